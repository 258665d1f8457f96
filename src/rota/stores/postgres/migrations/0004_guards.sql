-- The guards of changes and ends, at a lower cost. Every refusal is the same as before, in the same words.

-- One trigger for three: each costs every row that changes its own evaluation. Of several broken rules the first is named, in the order in which
-- the three fired, which was that of their names: identity, move, start.
DROP TRIGGER live_identity ON job_live;
DROP TRIGGER live_move ON job_live;
DROP TRIGGER live_started_once ON job_live;

CREATE FUNCTION live_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = CASE
        WHEN NEW.number <> OLD.number OR NEW.job_id <> OLD.job_id OR NEW.root_id <> OLD.root_id OR NEW.attempt <> OLD.attempt
             OR NEW.organization_id <> OLD.organization_id OR NEW.job_type <> OLD.job_type OR NEW.created_at <> OLD.created_at
             OR NEW.schedule_id IS DISTINCT FROM OLD.schedule_id OR NEW.unique_key IS DISTINCT FROM OLD.unique_key
        THEN 'identity and origin of a job cannot change'
        WHEN NEW.status <> OLD.status
             AND NOT (OLD.status = 'QUEUED' AND NEW.status = 'RUNNING' OR OLD.status = 'PENDING' AND NEW.status = 'QUEUED')
        THEN 'illegal move of a job: see the table of legal moves'
        ELSE 'a job starts once' END;
END $$;

CREATE TRIGGER live_changed BEFORE UPDATE ON job_live FOR EACH ROW
WHEN (NEW.number <> OLD.number OR NEW.job_id <> OLD.job_id OR NEW.root_id <> OLD.root_id OR NEW.attempt <> OLD.attempt
      OR NEW.organization_id <> OLD.organization_id OR NEW.job_type <> OLD.job_type OR NEW.created_at <> OLD.created_at
      OR NEW.schedule_id IS DISTINCT FROM OLD.schedule_id OR NEW.unique_key IS DISTINCT FROM OLD.unique_key
      OR NEW.status <> OLD.status
         AND NOT (OLD.status = 'QUEUED' AND NEW.status = 'RUNNING' OR OLD.status = 'PENDING' AND NEW.status = 'QUEUED')
      OR OLD.started_at IS NOT NULL AND (NEW.started_at IS DISTINCT FROM OLD.started_at OR NEW.worker_id IS DISTINCT FROM OLD.worker_id
                                         OR NEW.run_id IS DISTINCT FROM OLD.run_id))
EXECUTE FUNCTION live_changed();

-- Jobs that end together mostly were added together, and their numbers lie close together. So these two walk from the lowest to the highest,
-- side by side with the jobs, as `live_added` does. Of few jobs, or of numbers far apart, each is looked up: a walk would pass too many others.
CREATE OR REPLACE FUNCTION ends_added() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_nestloop = off SET enable_mergejoin = on SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    lowest  bigint;
    highest bigint;
    jobs    bigint;
BEGIN
    SELECT min(number), max(number), count(*) INTO lowest, highest, jobs FROM added;
    IF jobs > 20 AND highest - lowest < 4 * jobs THEN
        IF NOT EXISTS (SELECT 1 FROM (SELECT number FROM added) AS e
                         LEFT JOIN (SELECT number FROM job_facts WHERE number BETWEEN lowest AND highest) AS f ON f.number = e.number
                        WHERE f.number IS NULL)
           AND NOT EXISTS (SELECT 1 FROM (SELECT number FROM job_live WHERE number BETWEEN lowest AND highest) AS l
                             JOIN (SELECT number FROM added) AS e ON e.number = l.number) THEN
            RETURN NULL;
        END IF;
    ELSIF NOT EXISTS (SELECT 1 FROM added AS e WHERE (SELECT l.status FROM job_live AS l WHERE l.number = e.number) IS NOT NULL
                                                  OR (SELECT f.job_type FROM job_facts AS f WHERE f.number = e.number) IS NULL) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION USING MESSAGE = 'a job that ends is live no longer', ERRCODE = 'check_violation';
END $$;

CREATE OR REPLACE FUNCTION live_kept() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_nestloop = off SET enable_mergejoin = on SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    lowest  bigint;
    highest bigint;
    jobs    bigint;
BEGIN
    SELECT min(number), max(number), count(*) INTO lowest, highest, jobs FROM gone;
    IF jobs > 20 AND highest - lowest < 4 * jobs THEN
        IF NOT EXISTS (SELECT 1 FROM (SELECT number FROM gone) AS l
                         LEFT JOIN (SELECT number FROM job_ends WHERE number BETWEEN lowest AND highest) AS e ON e.number = l.number
                        WHERE e.number IS NULL) THEN
            RETURN NULL;
        END IF;
    ELSIF NOT EXISTS (SELECT 1 FROM gone AS l WHERE (SELECT e.status FROM job_ends AS e WHERE e.number = l.number) IS NULL) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION USING MESSAGE = 'a job that has not ended cannot be deleted', ERRCODE = 'check_violation';
END $$;
