-- Entering the queue. Rows come as one JSON array and are written by one statement: see decision 0008.

-- name: position_base
-- The highest position that counts for a newcomer: its organization's own tail or, while anything is queued at this
-- priority, the clock (the highest position claimed there). NULL: nothing is queued at this priority.
SELECT CASE WHEN EXISTS (SELECT 1 FROM jobs WHERE status = 'QUEUED' AND priority = :priority) THEN {tail} END;

-- name: tail
max(coalesce((SELECT max(position) FROM jobs WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id), 0),
    coalesce((SELECT position FROM queue_clock WHERE priority = :priority), 0))

-- name: clock_reset
DELETE FROM queue_clock WHERE priority = :priority;

-- name: clock_advance
INSERT INTO queue_clock (priority, position) VALUES (:priority, :position)
ON CONFLICT (priority) DO UPDATE SET position = max(position, excluded.position);

-- name: insert_jobs
-- Many jobs of one shape: :ids holds 16 bytes for each, :bodies is a JSON array of their params.
INSERT INTO jobs (number, job_id, root_id, params, position, {new_columns})
SELECT :number + e.key, substr(:ids, e.key * 16 + 1, 16), substr(:ids, e.key * 16 + 1, 16), e.value, :position + :gap * e.key, {new_values}
  FROM json_each(:bodies) AS e;

-- name: insert_job
-- One job: without the JSON array it costs 10 us less.
INSERT INTO jobs (number, job_id, root_id, params, position, {new_columns})
VALUES (:number, :ids, :ids, :params, :position, {new_values});

-- name: insert_job_at_once
-- The common case of one job: gate, position and row in one statement, which is its own transaction. It writes only if nothing
-- needs a second look: the definitions are those the caller read, no limit is set, the newest number was not deleted, and the
-- organization has others waiting at this priority. Otherwise there is no position, which is refused. For a SELECT with a WHERE, and
-- for RETURNING, SQLite would make a table of one row first; `told` is ours, and tells the position. What is not named is as in a new row.
INSERT INTO jobs (job_id, root_id, params, position, organization_id, template_id, job_type, origin, status, priority, run_at, expires_at,
                  unique_key, owner, max_retries, max_crashes, backoff, timeout, executor, meta, lane, created_at, queued_at)
VALUES (:job_id, :job_id, :params,
        CASE WHEN (SELECT value & 1099511627775 FROM meta WHERE key = 'definitions_version') = :definitions & 1099511627775
              AND (SELECT max_queued FROM organizations WHERE organization_id = :organization_id) IS NULL
              AND (SELECT value FROM meta WHERE key = 'number_floor') < (SELECT max(number) FROM jobs)
             THEN told(max((SELECT max(position) FROM jobs WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id),
                           coalesce((SELECT position FROM queue_clock WHERE priority = :priority), 0)) + :gap) END,
        :organization_id, :template_id, :job_type, :origin, 'QUEUED', :priority, :run_at, :expires_at,
        :unique_key, :owner, :max_retries, :max_crashes, :backoff, :timeout, :executor, :meta, :lane, :now, :now);

-- name: new_columns
organization_id, template_id, job_type, origin, status, blockers, priority, run_at, expires_at, unique_key, job_hash, group_id,
sequence_number, owner, max_retries, max_crashes, backoff, timeout, executor, meta, lane, tags, held, created_at, queued_at

-- name: new_values
:organization_id, :template_id, :job_type, :origin, :status, :blockers, :priority, :run_at, :expires_at, :unique_key, :job_hash, :group_id,
:sequence_number, :owner, :max_retries, :max_crashes, :backoff, :timeout, :executor, :meta, :lane, :tags, :held, :now, :queued_at

-- name: key_holder
SELECT lower(hex(job_id)), lower(hex(root_id)), number, status, iif(queued_at IS NULL, 0, position) FROM jobs INDEXED BY jobs_unique
 WHERE organization_id = :organization_id AND job_type = :job_type AND unique_key = :unique_key AND finished_at IS NULL;

-- name: standing
-- Which rows are there already, counted from 0, by id (0) or by key (1), and what stands there: same_id and key_holder for many.
-- :ids holds 16 bytes for each, :keys is a JSON array of [organization, type, key or null].
SELECT e.key, 0, lower(hex(j.job_id)), lower(hex(j.root_id)), j.number, j.status, iif(j.queued_at IS NULL, 0, j.position), j.job_type, j.organization_id
  FROM json_each(:keys) AS e CROSS JOIN jobs AS j ON j.job_id = substr(:ids, e.key * 16 + 1, 16)
 UNION ALL
SELECT e.key, 1, lower(hex(j.job_id)), lower(hex(j.root_id)), j.number, j.status, iif(j.queued_at IS NULL, 0, j.position), j.job_type, j.organization_id
  FROM json_each(:keys) AS e CROSS JOIN jobs AS j INDEXED BY jobs_unique
    ON j.organization_id = e.value ->> 0 AND j.job_type = e.value ->> 1 AND j.unique_key = e.value ->> 2 AND j.finished_at IS NULL;

-- name: same_id
SELECT lower(hex(job_id)), lower(hex(root_id)), number, status, iif(queued_at IS NULL, 0, position), job_type, organization_id FROM jobs WHERE job_id = :job_id;

-- name: enqueue_gate
-- What every enqueue asks first, in one statement: a lone job's cost is mostly statements and its commit. The last column
-- is the number to go on with where the newest jobs were deleted, NULL otherwise: SQLite counts on by itself.
SELECT (SELECT value FROM meta WHERE key = 'definitions_version'),
       (SELECT max_queued FROM organizations WHERE organization_id = :organization_id),
       EXISTS (SELECT 1 FROM jobs WHERE job_id = :first) OR EXISTS (SELECT 1 FROM jobs WHERE job_id = :last),
       ({position_base}),
       (SELECT iif(value >= coalesce((SELECT max(number) FROM jobs), 0), value + 1, NULL) FROM meta WHERE key = 'number_floor');

-- name: max_queued
SELECT max_queued FROM organizations WHERE organization_id = :organization_id;

-- name: queued_count
SELECT count(*) FROM jobs WHERE status = 'QUEUED' AND organization_id = :organization_id;

-- name: due_priorities
-- Each priority that has PENDING jobs free of edges, with its earliest run_at: a hop from priority to priority, not a scan.
WITH RECURSIVE step (priority) AS (
    SELECT max(priority) FROM jobs WHERE status = 'PENDING' AND blockers = 0
    UNION ALL
    SELECT (SELECT max(priority) FROM jobs WHERE status = 'PENDING' AND blockers = 0 AND priority < step.priority)
      FROM step WHERE step.priority IS NOT NULL
)
SELECT priority, (SELECT min(run_at) FROM jobs WHERE status = 'PENDING' AND blockers = 0 AND priority = step.priority)
  FROM step WHERE priority IS NOT NULL;

-- name: next_due
SELECT min(earliest) FROM (
    WITH RECURSIVE step (priority) AS (
        SELECT max(priority) FROM jobs WHERE status = 'PENDING' AND blockers = 0
        UNION ALL
        SELECT (SELECT max(priority) FROM jobs WHERE status = 'PENDING' AND blockers = 0 AND priority < step.priority)
          FROM step WHERE step.priority IS NOT NULL
    )
    SELECT (SELECT min(run_at) FROM jobs WHERE status = 'PENDING' AND blockers = 0 AND priority = step.priority) AS earliest
      FROM step WHERE priority IS NOT NULL);

-- name: due_jobs
SELECT json_group_array(json_array(number, organization_id)) FROM (
    SELECT number, organization_id FROM jobs
     WHERE status = 'PENDING' AND blockers = 0 AND priority = :priority AND run_at <= :now
     ORDER BY run_at, number LIMIT :limit);

-- name: queue_jobs
-- :positions is a JSON object of number to position.
UPDATE jobs SET status = 'QUEUED', queued_at = :now, position = e.value
  FROM json_each(:positions) AS e
 WHERE number = CAST(e.key AS INTEGER) AND +status = 'PENDING';

-- name: expired_jobs
SELECT json_group_array(number) FROM (
    SELECT number FROM jobs
     WHERE expires_at IS NOT NULL AND started_at IS NULL AND finished_at IS NULL AND expires_at <= :now
     ORDER BY expires_at LIMIT :limit);
