-- Jobs that another system has begun: their past attempts, written by the moves that any attempt makes.

-- name: adopt_runs
-- Each row: [number, run id, started_at, failures before it]. The run comes first: no job is RUNNING without one.
INSERT INTO job_runs (job_number, run_id, template_id, started_at)
SELECT e.value ->> 0, unhex(e.value ->> 1), j.template_id, e.value ->> 2
  FROM json_each(:rows) AS e CROSS JOIN jobs AS j ON j.number = e.value ->> 0;

-- name: adopt_starts
UPDATE jobs SET status = 'RUNNING', started_at = e.value ->> 2, failures = e.value ->> 3, worker_id = unhex(:adopter_id)
  FROM json_each(:rows) AS e
 WHERE number = e.value ->> 0 AND +jobs.status = 'QUEUED';
