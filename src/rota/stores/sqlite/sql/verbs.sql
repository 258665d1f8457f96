-- What people ask for: cancel, change, move, retry; and the audit of it.

-- name: locate
-- The chain that a job belongs to, and the job itself.
SELECT lower(hex(root_id)), number, status FROM jobs WHERE job_id = unhex(:job_id);

-- name: live_of_root
SELECT number, lower(hex(job_id)), status FROM jobs WHERE job_id = unhex(:root_id) AND finished_at IS NULL
UNION ALL
SELECT number, lower(hex(job_id)), status FROM jobs WHERE root_id = unhex(:root_id) AND finished_at IS NULL AND attempt > 1;

-- name: tail_of
-- Walk from any job of a chain to its last.
WITH RECURSIVE line (job_id) AS (
    SELECT unhex(:job_id)
    UNION ALL
    SELECT next.job_id FROM line JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT number, lower(hex(job_id)), status, unique_key, organization_id, job_type, lower(hex(root_id)) FROM jobs
 WHERE job_id IN (SELECT job_id FROM line) ORDER BY attempt DESC LIMIT 1;

-- name: request_cancel
UPDATE jobs SET cancel_requested_at = :now, cancel_requested_by = :actor, reason = :reason
 WHERE number = :number AND status = 'RUNNING' AND cancel_requested_at IS NULL;

-- name: change_waiting
UPDATE jobs SET params = coalesce(:params, params), run_at = coalesce(:run_at, run_at), priority = :priority, position = :position
 WHERE number = :number AND status IN ('PENDING', 'QUEUED');

-- name: place_of
SELECT number, status, priority, organization_id, position, created_at, job_id, params, run_at, held FROM jobs WHERE number = :number;

-- name: neighbours_behind
-- Own jobs behind a place, nearest first, the moved one left out.
SELECT number, position FROM jobs
 WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id AND number <> :moved
   AND (position, created_at, job_id) >= (:position, :created_at, :job_id)
 ORDER BY position, created_at, job_id LIMIT :limit;

-- name: neighbours_ahead
SELECT number, position FROM jobs
 WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id AND number <> :moved
   AND (position, created_at, job_id) < (:position, :created_at, :job_id)
 ORDER BY position DESC, created_at DESC, job_id DESC LIMIT :limit;

-- name: first_in_line
SELECT number, position, created_at, job_id FROM jobs
 WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id AND number <> :moved
 ORDER BY position, created_at, job_id LIMIT 1;

-- name: set_position
UPDATE jobs SET position = :position WHERE number = :number AND status = 'QUEUED';

-- name: insert_retry
-- One more attempt of an ended chain, with a fresh budget.
INSERT INTO jobs (job_id, root_id, retry_of, attempt, organization_id, template_id, job_type, origin, status,
                  priority, position, run_at, unique_key, job_hash, params, schedule_id, due_at, group_id, sequence_number,
                  owner, run_as, max_retries, max_crashes, backoff, timeout, executor, target_node, shard, meta, tags, lane, created_at, queued_at)
SELECT unhex(:new_id), o.root_id, o.job_id, o.attempt + 1, o.organization_id, o.template_id, o.job_type,
       iif(o.origin = 'direct', 'api', o.origin), 'QUEUED', o.priority, :position, :now, o.unique_key, o.job_hash, o.params, o.schedule_id,
       o.due_at, o.group_id, o.sequence_number, o.owner, o.run_as, o.max_retries, o.max_crashes, o.backoff, o.timeout, o.executor,
       o.target_node, o.shard, o.meta, o.tags, {own_lane}, :now, :now
  FROM jobs AS o WHERE o.number = :number;

-- name: audit
INSERT INTO audit (at, actor, organization_id, action, subject, subject_id, before, after, job_uuid, job_run_uuid, outcome)
VALUES (:at, :actor, :organization_id, :action, :subject, :subject_id, :before, :after, unhex(:job_uuid), unhex(:job_run_uuid), :outcome);

-- name: audit_runs
-- Ends of runs. :ends holds what each status is called, as rows [status, action, outcome]; without :every only runs of jobs that SQL has created.
INSERT INTO audit (at, actor, organization_id, action, subject, subject_id, after, job_uuid, job_run_uuid, outcome)
SELECT j.finished_at, iif(j.status = 'CANCELLED', coalesce(j.cancel_requested_by, j.owner), coalesce(j.run_as, j.owner)), j.organization_id,
       e.value ->> 1, 'job', lower(hex(j.job_id)), json_object('status', j.status, 'attempt', j.attempt), j.schedule_id, j.job_id, e.value ->> 2
  FROM json_each(:numbers) AS n CROSS JOIN jobs AS j ON j.number = n.value CROSS JOIN json_each(:ends) AS e ON e.value ->> 0 = j.status
 WHERE :every = 1 OR EXISTS (SELECT 1 FROM templates AS t WHERE t.template_id = j.template_id AND t.kind <> 'python');
