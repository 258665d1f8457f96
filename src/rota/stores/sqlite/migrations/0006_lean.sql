-- A lone job is added by one statement, and whatever SQLite does before each row counts.

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

-- In a trigger the table for an IN is made anew for each row: the usual ways come first, and by themselves. What has ended is refused by
-- jobs_ended, whatever is to change.
DROP TRIGGER jobs_move;
CREATE TRIGGER jobs_move BEFORE UPDATE OF status ON jobs
WHEN NEW.status <> OLD.status AND OLD.finished_at IS NULL
 AND NOT CASE OLD.status
             WHEN 'RUNNING' THEN NEW.status = 'COMPLETED' OR NEW.status IN ('FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED')
             WHEN 'QUEUED' THEN NEW.status = 'RUNNING' OR NEW.status IN ('SKIPPED', 'CANCELLED')
             WHEN 'PENDING' THEN NEW.status = 'QUEUED' OR NEW.status IN ('SKIPPED', 'CANCELLED')
             ELSE false
         END
BEGIN
    SELECT RAISE(ABORT, 'illegal move of a job: see the table of legal moves');
END;
