-- Jobs that another system has begun: their past attempts, written by the moves that any attempt makes.

-- name: adopt_starts
-- Each row: [number, run id, started_at, failures before it].
WITH begun AS (
    UPDATE job_live AS l SET status = 'RUNNING', started_at = (e.value ->> 2)::bigint, worker_id = :adopter_id, run_id = (e.value ->> 1)::uuid
      FROM json_array_elements(:rows::json) AS e (value)
     WHERE l.number = ANY (ARRAY[(e.value ->> 0)::bigint]) AND l.status || '' = 'QUEUED'
    RETURNING l.number, (e.value ->> 3)::integer AS failures
)
UPDATE job_facts AS f SET failures = begun.failures FROM begun WHERE f.number = ANY (ARRAY[begun.number]);
