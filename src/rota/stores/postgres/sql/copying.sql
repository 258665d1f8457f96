-- A store as a whole: what a copy needs beside its tables, and the mark of a store that was moved.

-- name: counters
-- What belongs to this store alone stays here. Numbers were given up to where their sequence stands.
SELECT key, value FROM meta WHERE key NOT IN ('schema', 'definitions_version', 'moved')
UNION ALL
SELECT 'numbers', CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM job_numbers;

-- name: put_counter
INSERT INTO meta (key, value) VALUES (:key, :value::bigint) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: forget_counters
DELETE FROM meta WHERE key NOT IN ('schema', 'definitions_version');

-- name: next_counted
-- Tables whose rows the database numbers, and how it goes on.
SELECT 'audit', 'audit_id', coalesce(max(audit_id), 0) + 1 FROM audit
UNION ALL
SELECT 'lanes', 'lane', coalesce(max(lane), 0) + 1 FROM lanes
UNION ALL
SELECT 'outbox', 'outbox_id', coalesce(max(outbox_id), 0) + 1 FROM outbox
UNION ALL
SELECT 'schedule_reports', 'report_id', coalesce(max(report_id), 0) + 1 FROM schedule_reports;

-- name: queue_order
SELECT job_id FROM job_live WHERE status = 'QUEUED' ORDER BY priority DESC, position, created_at, job_id;

-- name: this_store
-- The same words for the same schema of the same running server, whatever address led here.
SELECT format('%s %s %s', pg_postmaster_start_time(), (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()),
              (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = :schema));

-- name: columns_here
SELECT c.relname::text, a.attname::text, pg_catalog.format_type(a.atttypid, NULL)
  FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = :schema AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum;

-- name: broken_rules
-- What triggers would have refused, looked at after the copy, all at once.
SELECT 'job_facts has a job that is neither live nor ended, or both', count(*)
  FROM job_facts AS f LEFT JOIN job_live AS l ON l.number = f.number LEFT JOIN job_ends AS e ON e.number = f.number
 WHERE (l.number IS NULL) = (e.number IS NULL)
UNION ALL
SELECT 'job_live has a job that is not what job_facts says', count(*)
  FROM job_live AS l LEFT JOIN job_facts AS f ON f.number = l.number
 WHERE (l.job_id, l.root_id, l.attempt, l.organization_id, l.job_type, l.created_at, l.schedule_id, l.unique_key)
       IS DISTINCT FROM (f.job_id, f.root_id, f.attempt, f.organization_id, f.job_type, f.created_at, f.schedule_id, f.unique_key)
UNION ALL
SELECT 'job_ends has a job that is not what job_facts says', count(*)
  FROM job_ends AS e LEFT JOIN job_facts AS f ON f.number = e.number
 WHERE (e.job_type, e.created_at) IS DISTINCT FROM (f.job_type, f.created_at)
UNION ALL
SELECT 'run_notes has what no run left behind', count(*)
  FROM run_notes AS n LEFT JOIN job_live AS l ON l.number = n.job_number LEFT JOIN job_ends AS e ON e.number = n.job_number
 WHERE coalesce(l.run_id, e.run_id) IS NULL
UNION ALL
SELECT 'job_edges has an edge of no job', count(*)
  FROM job_edges AS d LEFT JOIN job_facts AS f ON f.number = d.child WHERE f.number IS NULL;

-- name: make_copied
CREATE TEMP TABLE copied_live (LIKE job_live) ON COMMIT DROP;
CREATE TEMP TABLE copied_ends (LIKE job_ends) ON COMMIT DROP;
CREATE TEMP TABLE copied_runs (job_number bigint, run_id uuid, status text, started_at bigint, finished_at bigint) ON COMMIT DROP;

-- name: broken_runs
-- A run stands with its job here, so nothing of it may be otherwise than its job has it: a worker on the source mends that.
WITH copied AS (
    SELECT number, started_at, NULL AS status, NULL::bigint AS finished_at FROM copied_live
    UNION ALL
    SELECT number, started_at, CASE WHEN status IN ('TIMED_OUT', 'DEAD_LETTER') THEN 'FAILED' ELSE status END, finished_at FROM copied_ends
)
SELECT 'job_runs refers to what is not in jobs', count(*)
  FROM copied_runs AS r LEFT JOIN copied AS c ON c.number = r.job_number WHERE c.number IS NULL
UNION ALL
SELECT 'job_runs has a run that is not what its job says', count(*)
  FROM copied_runs AS r JOIN copied AS c ON c.number = r.job_number
 WHERE (r.status, r.started_at, r.finished_at) IS DISTINCT FROM (c.status, c.started_at, c.finished_at)
UNION ALL
SELECT 'jobs has a job that was started and has no run', count(*)
  FROM copied AS c LEFT JOIN copied_runs AS r ON r.job_number = c.number WHERE c.started_at IS NOT NULL AND r.run_id IS NULL;

-- name: moved
SELECT value, note FROM meta WHERE key = 'moved';

-- name: mark_moved
INSERT INTO meta (key, value, note) VALUES ('moved', :at, :place) ON CONFLICT (key) DO UPDATE SET value = excluded.value, note = excluded.note;

-- name: unmark_moved
DELETE FROM meta WHERE key = 'moved';
