-- Tenants with users and limits, duplicates, dependencies at any width, figures that need no scan, retention.

CREATE TABLE users (
    name            TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 255),
    organization_id TEXT NOT NULL REFERENCES organizations,
    role            TEXT NOT NULL CHECK (role IN ('system_manager', 'admin', 'user')),
    permissions     TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(permissions)),
    state           TEXT NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'REMOVED')),
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
) STRICT;

-- What people have set on top of what the code says, field by field; the limits' own columns hold what is in force.
ALTER TABLE templates ADD COLUMN overrides TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(overrides));
ALTER TABLE templates ADD COLUMN concurrency INTEGER CHECK (concurrency >= 1);

-- The lines of organizations, as narrow as can be: with a thousand of them each claim writes to another page of this index
-- (43 us a job with created_at and job_id in it, 34 without). Equal positions of one organization are rare, and sorted when read.
DROP INDEX jobs_tail;
CREATE INDEX jobs_tail ON jobs (priority, organization_id, position) WHERE status = 'QUEUED';

-- Parked rows in lanes: the word they are parked under, then their type, then the order of the queue.
DROP INDEX jobs_held;
CREATE INDEX jobs_held ON jobs (held, job_type, priority DESC, position, created_at, job_id) WHERE status = 'QUEUED' AND held IS NOT NULL;

-- Starts and submissions inside their windows, exactly: only templates with such a limit write here.
CREATE TABLE rate_log (
    key   TEXT NOT NULL,
    at    INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 1),
    PRIMARY KEY (key, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX dedup_expired ON dedup (expires_at);

-- Chains that ended and have not yet told everybody who waits for them: a hundred thousand children are told over many turns.
CREATE TABLE ended_roots (
    root_id BLOB PRIMARY KEY CHECK (length(root_id) = 16),
    status  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

DROP INDEX edges_open;
CREATE INDEX edges_open ON job_edges (parent_root, needs, on_failure) WHERE resolved_at IS NULL;
CREATE INDEX edges_of_parent ON job_edges (parent_root, child);

-- Figures. A bucket is an eighth of an octave of the run's microseconds, -1 for an end without a run.
DROP TABLE stats_hourly;
CREATE TABLE stats_hourly (
    hour            INTEGER NOT NULL,
    organization_id TEXT NOT NULL,
    job_type        TEXT NOT NULL,
    status          TEXT NOT NULL,
    bucket          INTEGER NOT NULL,
    count           INTEGER NOT NULL,
    total_us        INTEGER NOT NULL,
    PRIMARY KEY (hour, organization_id, job_type, status, bucket)
) STRICT, WITHOUT ROWID;

-- Ended jobs that are in the store, counted as they end and as they are removed.
CREATE TABLE stats_total (
    organization_id TEXT NOT NULL,
    job_type        TEXT NOT NULL,
    status          TEXT NOT NULL,
    count           INTEGER NOT NULL,
    PRIMARY KEY (organization_id, job_type, status)
) STRICT, WITHOUT ROWID;

INSERT INTO stats_total (organization_id, job_type, status, count)
SELECT organization_id, job_type, status, count(*) FROM jobs WHERE finished_at IS NOT NULL GROUP BY 1, 2, 3;

-- Lists, newest first: each index ends with the number by itself. The default organization pays for no index of its own: its
-- jobs are nearly always most of them. Nor do types and times: see jobs_finished.
CREATE INDEX jobs_org ON jobs (organization_id) WHERE organization_id <> 'default';
CREATE INDEX jobs_unhappy ON jobs (status) WHERE status IN ('FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED');
CREATE INDEX jobs_blocked ON jobs (organization_id, blockers) WHERE status = 'PENDING' AND blockers > 0;
CREATE INDEX jobs_schedule ON jobs (schedule_id) WHERE schedule_id IS NOT NULL;

-- Ends by their type: what retention walks, and lists by type. When they were made stands there too, so that a list by time
-- reads this index and not the rows (0.05 us a job; an index of its own for types and for times cost an enqueue 8 us).
DROP INDEX jobs_finished;
CREATE INDEX jobs_finished ON jobs (job_type, finished_at, created_at) WHERE finished_at IS NOT NULL;

-- Whose webhooks are still to be delivered, and which rows go with a chain that is removed.
CREATE INDEX outbox_job ON outbox (job_id);

CREATE TRIGGER jobs_owned BEFORE UPDATE OF owner ON jobs
BEGIN
    SELECT RAISE(ABORT, 'the owner of a job cannot change');
END;

-- The execution log: every move of a job happens once and has its own columns, so the log is read from them. Only who asked for a
-- further attempt, if anybody did, stands in the audit.
CREATE VIEW job_log (job_id, root_id, attempt, step, at, from_status, to_status, actor, message) AS
SELECT job_id, root_id, attempt, 1, created_at, NULL, iif(queued_at IS created_at, 'QUEUED', 'PENDING'),
       CASE WHEN attempt = 1 THEN owner
            ELSE coalesce((SELECT a.actor FROM audit AS a WHERE a.subject = 'job' AND a.subject_id = lower(hex(jobs.retry_of)) AND a.action = 'job.retry'),
                          'system') END,
       NULL
  FROM jobs
UNION ALL
SELECT job_id, root_id, attempt, 2, queued_at, 'PENDING', 'QUEUED', 'system', NULL
  FROM jobs WHERE queued_at IS NOT NULL AND queued_at <> created_at
UNION ALL
SELECT job_id, root_id, attempt, 3, started_at, 'QUEUED', 'RUNNING', 'system', 'worker ' || lower(hex(worker_id))
  FROM jobs WHERE started_at IS NOT NULL
UNION ALL
SELECT job_id, root_id, attempt, 4, cancel_requested_at, 'RUNNING', 'RUNNING', cancel_requested_by, 'asked to stop'
  FROM jobs WHERE cancel_requested_at IS NOT NULL AND started_at IS NOT NULL
UNION ALL
SELECT j.job_id, j.root_id, j.attempt, 5, j.finished_at,
       CASE WHEN j.started_at IS NOT NULL THEN 'RUNNING' WHEN j.queued_at IS NOT NULL THEN 'QUEUED' ELSE 'PENDING' END,
       j.status, j.ended_by, coalesce(j.reason, (SELECT r.error FROM job_runs AS r WHERE r.job_number = j.number))
  FROM jobs AS j WHERE j.finished_at IS NOT NULL;
