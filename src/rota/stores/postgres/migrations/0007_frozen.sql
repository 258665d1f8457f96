-- What can't change any more is refused by the schema too. Each trigger names its columns: starts and ends set none of them, and don't pay.

CREATE TRIGGER live_place_frozen BEFORE UPDATE OF priority, position ON job_live FOR EACH ROW
WHEN (OLD.status NOT IN ('PENDING', 'QUEUED') AND (NEW.priority <> OLD.priority OR NEW.position <> OLD.position))
EXECUTE FUNCTION refuse('Cannot modify priority or position after dispatch');

CREATE TRIGGER live_queued_once BEFORE UPDATE OF queued_at ON job_live FOR EACH ROW
WHEN (OLD.queued_at IS NOT NULL AND NEW.queued_at IS DISTINCT FROM OLD.queued_at)
EXECUTE FUNCTION refuse('a job is queued once');

-- Notes are written just before the end, by another statement: so here it is that they are written once.
CREATE TRIGGER notes_outcome_once BEFORE UPDATE OF exit_code, error ON run_notes FOR EACH ROW
WHEN (OLD.exit_code IS NOT NULL AND NEW.exit_code IS DISTINCT FROM OLD.exit_code OR OLD.error IS NOT NULL AND NEW.error IS DISTINCT FROM OLD.error)
EXECUTE FUNCTION refuse('exit_code and error are written with the end of a run');

CREATE TRIGGER schedules_identity BEFORE UPDATE OF schedule_id, created_at ON schedules FOR EACH ROW
WHEN (NEW.schedule_id <> OLD.schedule_id OR NEW.created_at <> OLD.created_at)
EXECUTE FUNCTION refuse('identity and creation of a schedule cannot change');

CREATE TRIGGER reservations_ended BEFORE UPDATE OF status ON direct_reservations FOR EACH ROW
WHEN (OLD.status <> 'ACTIVE' AND NEW.status <> OLD.status)
EXECUTE FUNCTION refuse('a reservation that has ended cannot change');
