-- What those who watch ask: what is new, along indexes that are there for other reasons.
-- Why joins are `= ANY (ARRAY[...])`: see edges.sql.

-- name: watched_columns
hex(j.job_id), j.number, CASE WHEN j.attempt = 1 THEN j.number ELSE (SELECT r.number FROM job_facts AS r WHERE r.job_id = j.root_id) END,
hex(j.root_id), j.attempt, j.organization_id, j.owner, j.job_type, j.status, j.priority, j.created_at, j.started_at, j.finished_at,
j.reason, j.error_type

-- name: marks
SELECT coalesce((SELECT number FROM job_facts ORDER BY number DESC LIMIT 1), 0),
       coalesce((SELECT audit_id FROM audit ORDER BY audit_id DESC LIMIT 1), 0),
       (SELECT value FROM meta WHERE key = 'definitions_version'),
       coalesce((SELECT report_id FROM schedule_reports ORDER BY report_id DESC LIMIT 1), 0);

-- name: made_in
-- Numbers are given before their transactions commit: those that were missing are asked for again, span by span.
SELECT {watched_columns}
  FROM (SELECT own.number FROM json_array_elements(:spans::json) AS e (value) CROSS JOIN LATERAL (
            SELECT f.number FROM job_facts AS f WHERE f.number BETWEEN (e.value ->> 0)::bigint AND (e.value ->> 1)::bigint
             ORDER BY f.number LIMIT :limit) AS own
         ORDER BY own.number LIMIT :limit) AS p
  JOIN jobs AS j ON j.number = ANY (ARRAY[p.number]) ORDER BY p.number;

-- name: progress_now
SELECT p.number, n.progress, n.progress_message
  FROM (SELECT number FROM job_live WHERE status = 'RUNNING' LIMIT :limit) AS p LEFT JOIN run_notes AS n ON n.job_number = ANY (ARRAY[p.number]);

-- name: ended_since
-- The types are a hop from one to the next; of each only its last ends are read, and only in the index.
WITH RECURSIVE step (job_type) AS (
    (SELECT job_type FROM job_ends ORDER BY job_type LIMIT 1)
    UNION ALL
    SELECT next.job_type FROM step CROSS JOIN LATERAL (
        SELECT e.job_type FROM job_ends AS e WHERE e.job_type > step.job_type ORDER BY e.job_type LIMIT 1) AS next
)
SELECT own.numbers FROM step CROSS JOIN LATERAL (
    SELECT coalesce(json_agg(number), '[]')::text AS numbers
      FROM (SELECT e.number FROM job_ends AS e WHERE e.job_type = step.job_type AND e.finished_at >= :since
             ORDER BY e.finished_at DESC LIMIT :limit) AS last) AS own;

-- name: jobs_now
SELECT {watched_columns} FROM unnest(:numbers) AS e (number) JOIN jobs AS j ON j.number = ANY (ARRAY[e.number]) ORDER BY e.number;

-- name: definition_changes
SELECT audit_id, at, organization_id, action, subject, subject_id FROM audit
 WHERE audit_id > :after AND subject || '' IN ('template', 'schedule', 'calendar', 'organization', 'user', 'all')
 ORDER BY audit_id LIMIT :limit;

-- name: count_queued
SELECT count(*) FROM job_live WHERE status = 'QUEUED';

-- name: count_queued_line
SELECT count(*) FROM job_live WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id;
