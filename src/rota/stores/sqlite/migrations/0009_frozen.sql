-- What can't change any more is refused by the schema too. Each trigger names its columns: starts and plain ends set none of them, and don't pay.
-- What has ended can't change at all: see jobs_ended and runs_ended.

CREATE TRIGGER jobs_place_frozen BEFORE UPDATE OF priority, position ON jobs
WHEN OLD.status = 'RUNNING' AND (NEW.priority <> OLD.priority OR NEW.position <> OLD.position)
BEGIN
    SELECT RAISE(ABORT, 'Cannot modify priority or position after dispatch');
END;

CREATE TRIGGER jobs_queued_once BEFORE UPDATE OF queued_at ON jobs
WHEN OLD.queued_at IS NOT NULL AND NEW.queued_at IS NOT OLD.queued_at AND OLD.finished_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'a job is queued once');
END;

CREATE TRIGGER runs_outcome_with_end BEFORE UPDATE OF exit_code, error ON job_runs
WHEN NEW.status IS NULL AND (NEW.exit_code IS NOT OLD.exit_code OR NEW.error IS NOT OLD.error)
BEGIN
    SELECT RAISE(ABORT, 'exit_code and error are written with the end of a run');
END;

CREATE TRIGGER schedules_identity BEFORE UPDATE OF schedule_id, created_at ON schedules
WHEN NEW.schedule_id <> OLD.schedule_id OR NEW.created_at <> OLD.created_at
BEGIN
    SELECT RAISE(ABORT, 'identity and creation of a schedule cannot change');
END;

CREATE TRIGGER reservations_ended BEFORE UPDATE OF status ON direct_reservations
WHEN OLD.status <> 'ACTIVE' AND NEW.status <> OLD.status
BEGIN
    SELECT RAISE(ABORT, 'a reservation that has ended cannot change');
END;
