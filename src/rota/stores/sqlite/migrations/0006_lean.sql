-- A lone job is added by one statement, and every job starts and ends by one: whatever SQLite does for each row counts.

-- Not IN: of more than two words SQLite makes a table first, for each statement that adds a job.
DROP INDEX jobs_unhappy;
CREATE INDEX jobs_unhappy ON jobs (status)
 WHERE (status = 'FAILED' OR status = 'TIMED_OUT' OR status = 'DEAD_LETTER' OR status = 'SKIPPED' OR status = 'CANCELLED');

-- One trigger where there were two. With UNIQUE (retry_of) its second half makes a chain a line with at most one live job, without an
-- index entry for each first attempt.
DROP TRIGGER jobs_born;
DROP TRIGGER jobs_line;
CREATE TRIGGER jobs_born BEFORE INSERT ON jobs
WHEN NEW.status NOT IN ('PENDING', 'QUEUED')
  OR (NEW.retry_of IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM jobs WHERE job_id = NEW.retry_of AND finished_at IS NOT NULL
                                           AND root_id = NEW.root_id AND attempt = NEW.attempt - 1))
BEGIN
    SELECT CASE WHEN NEW.status NOT IN ('PENDING', 'QUEUED') THEN RAISE(ABORT, 'illegal move: a job is born PENDING or QUEUED')
                ELSE RAISE(ABORT, 'a successor follows the ended tail of its own chain') END;
END;

-- What follows each start and end comes AFTER it: where a trigger comes before, SQLite looks for the row and reads all of it once more.
-- The usual moves pass by two comparisons: the table that an IN of several words needs is made for each row, even behind an OR.
DROP TRIGGER jobs_move;
CREATE TRIGGER jobs_move AFTER UPDATE OF status ON jobs
WHEN NOT (OLD.status = 'RUNNING' AND NEW.status = 'COMPLETED') AND NOT (OLD.status = 'QUEUED' AND NEW.status = 'RUNNING')
 AND NEW.status <> OLD.status AND OLD.finished_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'illegal move of a job: see the table of legal moves')
     WHERE NOT CASE OLD.status
                   WHEN 'RUNNING' THEN NEW.status IN ('COMPLETED', 'FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED')
                   WHEN 'QUEUED' THEN NEW.status IN ('RUNNING', 'SKIPPED', 'CANCELLED')
                   ELSE NEW.status IN ('QUEUED', 'SKIPPED', 'CANCELLED')
               END;
END;

DROP TRIGGER jobs_run_first;
CREATE TRIGGER jobs_run_first AFTER UPDATE OF status ON jobs
WHEN NEW.status = 'RUNNING' AND NOT EXISTS (SELECT 1 FROM job_runs WHERE job_number = NEW.number)
BEGIN
    SELECT RAISE(ABORT, 'a job cannot be RUNNING without a run');
END;

DROP TRIGGER jobs_ended;
CREATE TRIGGER jobs_ended AFTER UPDATE ON jobs
WHEN OLD.finished_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a job that has ended cannot change');
END;

DROP TRIGGER jobs_started_once;
CREATE TRIGGER jobs_started_once AFTER UPDATE OF started_at, worker_id ON jobs
WHEN OLD.started_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a job starts once');
END;

DROP TRIGGER runs_ended;
CREATE TRIGGER runs_ended AFTER UPDATE ON job_runs
WHEN OLD.status IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a run that has ended cannot change');
END;
