-- What people ask for: cancel, change, move, retry; and the audit of it.
-- Why some joins are `= ANY (ARRAY[...])`, and some conditions expressions: see edges.sql.

-- name: locate
-- The chain that a job belongs to, and the job itself.
SELECT hex(root_id), number, status FROM jobs WHERE job_id = :job_id;

-- name: live_of_root
SELECT l.number, hex(l.job_id), l.status FROM job_facts AS f JOIN job_live AS l ON l.number = ANY (ARRAY[f.number]) WHERE f.job_id = :root_id
UNION ALL
SELECT number, hex(job_id), status FROM job_live WHERE root_id = :root_id AND attempt > 1;

-- name: tail_of
-- Walk from any job of a chain to its last.
WITH RECURSIVE line (job_id) AS (
    SELECT :job_id
    UNION ALL
    SELECT next.job_id FROM line {then_next}
)
SELECT j.number, hex(j.job_id), j.status, j.unique_key, j.organization_id, j.job_type, hex(j.root_id)
  FROM line JOIN jobs AS j ON j.job_id = ANY (ARRAY[line.job_id]) ORDER BY j.attempt DESC LIMIT 1;

-- name: request_cancel
UPDATE job_live SET cancel_requested_at = :now, cancel_requested_by = :actor, reason = :reason
 WHERE number = :number AND status || '' = 'RUNNING' AND cancel_requested_at IS NULL;

-- name: change_waiting
WITH params AS (
    UPDATE job_facts SET params = :params WHERE number = :number AND :params IS NOT NULL
)
UPDATE job_live SET run_at = coalesce(:run_at, run_at), priority = :priority, position = :position
 WHERE number = :number AND status IN ('PENDING', 'QUEUED');

-- name: place_of
SELECT number, status, priority, organization_id, position, created_at, hex(job_id), params, run_at, held FROM jobs WHERE number = :number;

-- name: neighbours_behind
-- Own jobs behind a place, nearest first, the moved one left out. The index goes as far as positions; only those who share one are sorted.
SELECT number, position FROM (
    SELECT number, position, created_at, job_id FROM job_live
     WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id AND number <> :moved
       AND position >= :position AND (position, created_at, job_id) >= (:position, :created_at, :job_id)
     ORDER BY position FETCH FIRST (:limit) ROWS WITH TIES) AS tied
 ORDER BY position, created_at, job_id LIMIT :limit;

-- name: neighbours_ahead
SELECT number, position FROM (
    SELECT number, position, created_at, job_id FROM job_live
     WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id AND number <> :moved
       AND position <= :position AND (position, created_at, job_id) < (:position, :created_at, :job_id)
     ORDER BY position DESC FETCH FIRST (:limit) ROWS WITH TIES) AS tied
 ORDER BY position DESC, created_at DESC, job_id DESC LIMIT :limit;

-- name: first_in_line
SELECT number, position, created_at, hex(job_id) FROM (
    SELECT number, position, created_at, job_id FROM job_live
     WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id AND number <> :moved
     ORDER BY position FETCH FIRST 1 ROW WITH TIES) AS tied
 ORDER BY position, created_at, job_id LIMIT 1;

-- name: set_position
UPDATE job_live SET position = :position WHERE number = :number AND status || '' = 'QUEUED';

-- name: insert_retry
-- One more attempt of an ended chain, with a fresh budget.
WITH new AS MATERIALIZED (
    SELECT nextval('job_numbers') AS number
), facts AS (
    INSERT INTO job_facts (number, job_id, root_id, retry_of, attempt, organization_id, template_id, job_type, origin, unique_key, job_hash, params,
                           schedule_id, due_at, group_id, sequence_number, owner, run_as, max_retries, max_crashes, backoff, timeout, executor,
                           target_node, shard, meta, tags, lane, created_at)
    SELECT new.number, :new_id, o.root_id, o.job_id, o.attempt + 1, o.organization_id, o.template_id, o.job_type,
           CASE WHEN o.origin = 'direct' THEN 'api' ELSE o.origin END, o.unique_key, o.job_hash, o.params, o.schedule_id, o.due_at, o.group_id,
           o.sequence_number, o.owner, o.run_as, o.max_retries, o.max_crashes, o.backoff, o.timeout, o.executor, o.target_node, o.shard, o.meta,
           o.tags, {own_lane}, :now
      FROM new CROSS JOIN job_facts AS o WHERE o.number = :number
    RETURNING *
)
INSERT INTO job_live (number, job_id, root_id, attempt, organization_id, job_type, created_at, schedule_id, unique_key, status, priority, position,
                      run_at, queued_at, lane)
SELECT f.number, f.job_id, f.root_id, f.attempt, f.organization_id, f.job_type, f.created_at, f.schedule_id, f.unique_key, 'QUEUED', b.priority,
       :position, :now, :now, f.lane
  FROM facts AS f CROSS JOIN job_ends AS b WHERE b.number = :number;

-- name: audit
INSERT INTO audit (at, actor, organization_id, action, subject, subject_id, before, after, job_uuid, job_run_uuid, outcome)
VALUES (:at, :actor, :organization_id, :action, :subject, :subject_id, :before::text, :after::text, :job_uuid::uuid, :job_run_uuid::uuid, :outcome);

-- name: audit_runs
-- Ends of runs. :ends holds what each status is called, as rows [status, action, outcome]; without :every only runs of jobs that SQL has created.
INSERT INTO audit (at, actor, organization_id, action, subject, subject_id, after, job_uuid, job_run_uuid, outcome)
SELECT j.finished_at, CASE j.status WHEN 'CANCELLED' THEN coalesce(j.cancel_requested_by, f.owner) ELSE coalesce(f.run_as, f.owner) END,
       f.organization_id, e.value ->> 1, 'job', hex(f.job_id), json_build_object('status', j.status, 'attempt', f.attempt)::text,
       f.schedule_id, f.job_id, e.value ->> 2
  FROM unnest(:numbers) AS n (number) JOIN job_facts AS f ON f.number = ANY (ARRAY[n.number]) JOIN job_ends AS j ON j.number = ANY (ARRAY[n.number])
  JOIN json_array_elements(:ends::json) AS e (value) ON e.value ->> 0 = j.status
 WHERE :every::integer = 1 OR EXISTS (SELECT 1 FROM templates AS t WHERE t.template_id = f.template_id AND t.kind <> 'python')
 ORDER BY n.number;
