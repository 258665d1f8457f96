-- Jobs that another system has begun: their past attempts, written by the moves that any attempt makes.

-- name: adopt_runs
-- Each row: [number, run id, started_at, failures before it]. The run comes first: no job is RUNNING without one.
INSERT INTO job_runs (job_number, run_id, template_id, started_at)
SELECT f.number, (e.value ->> 1)::uuid, f.template_id, (e.value ->> 2)::bigint
  FROM json_array_elements(:rows::json) AS e (value) JOIN job_facts AS f ON f.number = ANY (ARRAY[(e.value ->> 0)::bigint]);

-- name: adopt_starts
WITH begun AS (
    UPDATE job_live AS l SET status = 'RUNNING', started_at = (e.value ->> 2)::bigint, worker_id = :adopter_id
      FROM json_array_elements(:rows::json) AS e (value)
     WHERE l.number = ANY (ARRAY[(e.value ->> 0)::bigint]) AND l.status || '' = 'QUEUED'
    RETURNING l.number, (e.value ->> 3)::integer AS failures
)
UPDATE job_facts AS f SET failures = begun.failures FROM begun WHERE f.number = ANY (ARRAY[begun.number]);
