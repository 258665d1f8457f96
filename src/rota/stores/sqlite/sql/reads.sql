-- Reads for people. Times and ids are turned into their outside form by the caller.

-- name: job_columns
lower(hex(j.job_id)), j.number, (SELECT r.number FROM jobs AS r WHERE r.job_id = j.root_id), j.status, j.job_type, j.organization_id,
j.priority, j.position, j.attempt, lower(hex(j.root_id)), j.created_at, lower(hex(j.template_id)), j.origin, lower(hex(j.retry_of)), j.failures,
j.crashes, j.snoozes, j.held, j.blockers, j.run_at, j.expires_at, j.unique_key, j.params, lower(hex(j.schedule_id)), j.due_at,
lower(hex(j.group_id)), j.sequence_number, j.owner, j.run_as, j.max_retries, j.max_crashes, j.backoff, j.timeout, j.executor, j.queued_at,
j.started_at, j.finished_at, lower(hex(j.worker_id)), j.cancel_requested_at, j.cancel_requested_by, j.ended_by, j.reason, j.error_type

-- name: job
SELECT {columns} FROM jobs AS j WHERE j.job_id = unhex(:job_id);

-- name: job_by_number
SELECT {columns} FROM jobs AS j WHERE j.number = :number AND j.attempt = 1;

-- name: chain
WITH RECURSIVE line (job_id) AS (
    SELECT root_id FROM jobs WHERE job_id = unhex(:job_id)
    UNION ALL
    SELECT next.job_id FROM line JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT {columns} FROM line CROSS JOIN jobs AS j ON j.job_id = line.job_id ORDER BY j.attempt;

-- name: run
SELECT lower(hex(r.run_id)), r.status, lower(hex(r.template_id)), r.started_at, r.finished_at, r.exit_code, r.error, r.error_type, r.error_code,
       r.traceback, r.result, r.result_message, r.rows_affected, r.output_reference, r.artifacts, r.log_path, r.progress,
       r.progress_message, r.checkpoint, j.params
  FROM jobs AS j JOIN job_runs AS r ON r.job_number = j.number WHERE j.job_id = unhex(:job_id);

-- name: find
SELECT {columns} FROM jobs AS j
 WHERE j.number < coalesce(:before, 9223372036854775807)
   AND (:statuses IS NULL OR j.status IN (SELECT value FROM json_each(:statuses)))
   AND (:job_type IS NULL OR j.job_type = :job_type)
   AND (:group_id IS NULL OR j.group_id = unhex(:group_id))
   AND (:root_id IS NULL OR j.root_id = unhex(:root_id))
   AND (:text IS NULL OR instr(j.params, :text) OR instr(j.job_type, :text) OR instr(coalesce(j.unique_key, ''), :text)
        OR instr(coalesce(j.reason, ''), :text))
 ORDER BY j.number DESC LIMIT :limit;

-- name: next_priority
SELECT max(priority) FROM jobs WHERE status = 'QUEUED' AND priority < :priority;

-- name: next_line
-- Within one priority and organization the queue is a line that jobs_tail has in order already.
SELECT min(organization_id) FROM jobs WHERE status = 'QUEUED' AND priority = :priority AND organization_id > :organization_id;

-- name: line
SELECT {columns} FROM jobs AS j WHERE j.status = 'QUEUED' AND j.priority = :priority AND j.organization_id = :organization_id
 ORDER BY j.position, j.created_at, j.job_id LIMIT :limit;

-- name: ahead
SELECT count(*) FROM jobs AS j
 WHERE j.status = 'QUEUED' AND j.held IS NULL
   AND (-j.priority, j.position, j.created_at, j.job_id)
     < (SELECT -m.priority, m.position, m.created_at, m.job_id FROM jobs AS m WHERE m.job_id = unhex(:job_id));

-- name: blockers
WITH parents (root) AS (
    SELECT e.parent_root FROM jobs AS c JOIN job_edges AS e ON e.child = c.number AND e.resolved_at IS NULL WHERE c.job_id = unhex(:job_id)
)
SELECT {columns} FROM parents CROSS JOIN jobs AS j ON j.job_id = root AND j.finished_at IS NULL
UNION ALL
SELECT {columns} FROM parents CROSS JOIN jobs AS j ON j.root_id = root AND j.finished_at IS NULL AND j.attempt > 1;

-- name: count_by_status
SELECT status, count(*) FROM jobs GROUP BY status;

-- name: count_by_priority
SELECT priority, count(*) FROM jobs WHERE status = 'QUEUED' GROUP BY priority ORDER BY priority DESC;

-- name: count_waiting_by_type
SELECT job_type, count(*) FROM jobs WHERE status = 'QUEUED' GROUP BY job_type ORDER BY 2 DESC LIMIT 50;

-- name: oldest_waiting
SELECT min(queued_at) FROM jobs WHERE status = 'QUEUED';

-- name: late_results
SELECT value FROM meta WHERE key = 'late_results';
