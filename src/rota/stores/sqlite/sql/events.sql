-- What those who watch ask: what is new, along indexes that are there for other reasons.

-- name: watched_columns
lower(hex(j.job_id)), j.number, iif(j.attempt = 1, j.number, (SELECT r.number FROM jobs AS r WHERE r.job_id = j.root_id)),
lower(hex(j.root_id)), j.attempt, j.organization_id, j.owner, j.job_type, j.status, j.priority, j.created_at, j.started_at, j.finished_at,
j.reason, j.error_type

-- name: marks
SELECT coalesce((SELECT max(number) FROM jobs), 0), coalesce((SELECT max(audit_id) FROM audit), 0),
       (SELECT value FROM meta WHERE key = 'definitions_version'), coalesce((SELECT max(report_id) FROM schedule_reports), 0);

-- name: made_in
SELECT {watched_columns} FROM json_each(:spans) AS e CROSS JOIN jobs AS j ON j.number BETWEEN e.value ->> 0 AND e.value ->> 1 LIMIT :limit;

-- name: progress_now
-- As many rows as there are slots.
SELECT r.job_number, r.progress, r.progress_message
  FROM (SELECT number FROM jobs INDEXED BY jobs_running WHERE status = 'RUNNING' LIMIT :limit) AS p CROSS JOIN job_runs AS r ON r.job_number = p.number;

-- name: ended_since
-- The types are a hop from one to the next; of each only its last ends are read, and only in the index.
WITH RECURSIVE step (job_type) AS (
    SELECT min(job_type) FROM jobs INDEXED BY jobs_finished WHERE finished_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(job_type) FROM jobs INDEXED BY jobs_finished WHERE finished_at IS NOT NULL AND job_type > step.job_type)
      FROM step WHERE step.job_type IS NOT NULL
)
SELECT (SELECT json_group_array(number)
          FROM (SELECT number FROM jobs INDEXED BY jobs_finished
                 WHERE finished_at IS NOT NULL AND job_type = step.job_type AND finished_at >= :since
                 ORDER BY finished_at DESC LIMIT :limit))
  FROM step WHERE step.job_type IS NOT NULL;

-- name: jobs_now
SELECT {watched_columns} FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value;

-- name: definition_changes
SELECT audit_id, at, organization_id, action, subject, subject_id FROM audit
 WHERE audit_id > :after AND +subject IN ('template', 'schedule', 'calendar', 'organization', 'user', 'all')
 ORDER BY audit_id LIMIT :limit;

-- name: count_queued
SELECT count(*) FROM jobs WHERE status = 'QUEUED';

-- name: count_queued_line
SELECT count(*) FROM jobs WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id;
