-- What handlers wrote, where logs are kept in the store: pieces of a run's log, each at its place in bytes. They go with their run.
CREATE TABLE run_logs (
    run_id     BLOB NOT NULL CHECK (length(run_id) = 16),
    start      INTEGER NOT NULL CHECK (start >= 0),
    job_number INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    data       BLOB NOT NULL CHECK (length(data) > 0),
    PRIMARY KEY (run_id, start)
) STRICT;
