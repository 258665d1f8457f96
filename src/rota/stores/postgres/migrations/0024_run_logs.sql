-- What handlers wrote, where logs are kept in the store: pieces of a run's log, each at its place in bytes. They go with their run.
CREATE TABLE run_logs (
    run_id     uuid NOT NULL,
    start      bigint NOT NULL CHECK (start >= 0),
    job_number bigint NOT NULL,
    at         bigint NOT NULL,
    data       bytea NOT NULL CHECK (length(data) > 0),
    PRIMARY KEY (run_id, start)
);
