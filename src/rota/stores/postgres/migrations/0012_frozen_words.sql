-- The refusal says the same as on SQLite.

DROP TRIGGER notes_outcome_once ON run_notes;
CREATE TRIGGER notes_outcome_once BEFORE UPDATE OF exit_code, error ON run_notes FOR EACH ROW
WHEN (OLD.exit_code IS NOT NULL AND NEW.exit_code IS DISTINCT FROM OLD.exit_code OR OLD.error IS NOT NULL AND NEW.error IS DISTINCT FROM OLD.error)
EXECUTE FUNCTION refuse('exit_code and error are written with the end of a run, and stay when it has ended');
