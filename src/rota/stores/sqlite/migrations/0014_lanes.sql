-- Queues, and the parameters that a job was enqueued for: see decision 0052.

-- A lane is a line of ready jobs that the same workers can take: those of one type, one queue and one digest of parameters ('': not known).
CREATE TABLE lanes (
    lane     INTEGER PRIMARY KEY,
    job_type TEXT NOT NULL,
    queue    TEXT NOT NULL DEFAULT 'default' CHECK (length(queue) BETWEEN 1 AND 255),
    digest   TEXT NOT NULL DEFAULT '',
    UNIQUE (job_type, queue, digest)
) STRICT;

-- Workers know the lanes as of a version of the definitions, so a new lane advances it.
CREATE TRIGGER lanes_known AFTER INSERT ON lanes
BEGIN
    UPDATE meta SET value = value + 1 WHERE key = 'definitions_version';
END;

-- The parameters behind a digest: their names, as [required, allowed or null], and the JSON Schema, if a handler has stated it.
CREATE TABLE param_digests (
    job_type    TEXT NOT NULL,
    digest      TEXT NOT NULL,
    names       TEXT NOT NULL CHECK (json_valid(names)),
    schema      TEXT CHECK (json_valid(schema)),
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (job_type, digest)
) STRICT, WITHOUT ROWID;

ALTER TABLE jobs ADD COLUMN lane INTEGER;
ALTER TABLE jobs ADD COLUMN tags TEXT CHECK (json_valid(tags));

INSERT INTO lanes (job_type) SELECT DISTINCT job_type FROM jobs ORDER BY job_type;
UPDATE jobs SET lane = (SELECT lane FROM lanes WHERE lanes.job_type = jobs.job_type) WHERE finished_at IS NULL;

DROP INDEX jobs_ready;
CREATE INDEX jobs_ready ON jobs (lane, priority DESC, position, created_at, job_id) WHERE status = 'QUEUED' AND held IS NULL;

-- What a worker serves: its queues (NULL: all of them), and the digest of each of its handlers.
ALTER TABLE workers ADD COLUMN queues TEXT CHECK (json_valid(queues));
ALTER TABLE workers ADD COLUMN digests TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(digests));

-- SQLite can't change a CHECK.
CREATE TABLE pauses_with_queues (
    kind      TEXT NOT NULL CHECK (kind IN ('all', 'organization', 'template', 'queue')),
    name      TEXT NOT NULL,
    paused_at INTEGER NOT NULL,
    paused_by TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
INSERT INTO pauses_with_queues SELECT kind, name, paused_at, paused_by FROM pauses;
DROP TABLE pauses;
ALTER TABLE pauses_with_queues RENAME TO pauses;
