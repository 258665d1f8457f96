-- Relations that queries over sys.* read: see verbs/relations.py. Over the tables, not the views: a view looks each row up twice.

-- name: scan_jobs_facts
f.job_id, f.organization_id, f.owner, f.schedule_id, s.name AS schedule_name, f.template_id, t.name AS template_name,
coalesce(q.queue, 'default') AS queue, f.origin, f.root_id, f.retry_of, f.attempt, f.failures, f.crashes, f.snoozes,
f.due_at, f.created_at, f.unique_key, f.group_id, f.sequence_number, f.max_retries, f.timeout, f.executor, f.target_node, f.shard, f.params,
f.meta, f.tags, n.exit_code, n.error, n.error_code, n.result, n.rows_affected, n.progress, n.progress_message

-- name: scan_jobs_ends
e.status, e.held, 0 AS blockers, e.priority, e.position, e.run_at,
CASE WHEN f.attempt = 1 THEN coalesce(f.due_at, e.run_at) ELSE e.run_at END AS scheduled_at, e.expires_at, e.queued_at, e.started_at,
e.finished_at, e.worker_id, e.run_id, e.cancel_requested_at, e.ended_by, e.error_type, e.reason,
coalesce(n.result_message, n.error, e.reason) AS message

-- name: scan_jobs_fares
l.status, l.held, l.blockers, l.priority, l.position, l.run_at,
CASE WHEN f.attempt = 1 THEN coalesce(f.due_at, l.run_at) ELSE l.run_at END AS scheduled_at, l.expires_at, l.queued_at, l.started_at,
NULL::bigint AS finished_at, l.worker_id, l.run_id, l.cancel_requested_at, NULL::text AS ended_by, NULL::text AS error_type, l.reason,
coalesce(n.result_message, n.error, l.reason) AS message

-- name: scan_jobs_joins
LEFT JOIN run_notes AS n ON n.job_number = f.number
LEFT JOIN schedules AS s ON s.schedule_id = f.schedule_id
LEFT JOIN templates AS t ON t.template_id = f.template_id
LEFT JOIN lanes AS q ON q.lane = f.lane

-- OFFSET keeps the rest of a job apart, so that it is looked up for each row: a plan made while a table is small would walk it. A scan by id or
-- by schedule begins at the facts, every other at how jobs fare.

-- name: scan_jobs_ended
SELECT e.number, e.job_type, {scan_jobs_facts}, {scan_jobs_ends}
  FROM job_ends AS e CROSS JOIN LATERAL (SELECT * FROM job_facts WHERE number = e.number OFFSET 0) AS f {scan_jobs_joins}

-- name: scan_jobs_ended_of_key
SELECT f.number, f.job_type, {scan_jobs_facts}, {scan_jobs_ends}
  FROM job_facts AS f CROSS JOIN LATERAL (SELECT * FROM job_ends WHERE number = f.number OFFSET 0) AS e {scan_jobs_joins}

-- name: scan_jobs_live
SELECT l.number, l.job_type, {scan_jobs_facts}, {scan_jobs_fares}
  FROM job_live AS l CROSS JOIN LATERAL (SELECT * FROM job_facts WHERE number = l.number OFFSET 0) AS f {scan_jobs_joins}

-- name: scan_jobs_live_of_key
SELECT f.number, f.job_type, {scan_jobs_facts}, {scan_jobs_fares}
  FROM job_facts AS f CROSS JOIN LATERAL (SELECT * FROM job_live WHERE number = f.number OFFSET 0) AS l {scan_jobs_joins}

-- name: scan_schedules_named
SELECT hex(schedule_id) FROM schedules WHERE name = :name;

-- name: scan_jobs_clock_back
{scan_jobs_ended}
 WHERE e.started_at > e.finished_at

-- name: scan_ends
SELECT number, finished_at, job_type FROM job_ends

-- name: scan_facts
-- When the jobs of a schedule started and ended. What is not asked for is not joined.
SELECT f.number, f.schedule_id, e.finished_at, coalesce(e.started_at, l.started_at) AS started_at
  FROM job_facts AS f LEFT JOIN job_ends AS e ON e.number = f.number LEFT JOIN job_live AS l ON l.number = f.number

-- name: scan_types
-- The types of ended jobs, each with its last end, or its first: a hop from type to type along the index, not a scan.
WITH RECURSIVE last (job_type, edge) AS (
    (SELECT job_type, finished_at FROM job_ends WHERE :descending::bigint = 1 ORDER BY job_type DESC, finished_at DESC LIMIT 1)
    UNION ALL
    SELECT e.job_type, e.finished_at FROM last CROSS JOIN LATERAL (
        SELECT job_type, finished_at FROM job_ends WHERE job_type < last.job_type ORDER BY job_type DESC, finished_at DESC LIMIT 1) AS e
), first (job_type, edge) AS (
    (SELECT job_type, finished_at FROM job_ends WHERE :descending::bigint = 0 ORDER BY job_type, finished_at LIMIT 1)
    UNION ALL
    SELECT e.job_type, e.finished_at FROM first CROSS JOIN LATERAL (
        SELECT job_type, finished_at FROM job_ends WHERE job_type > first.job_type ORDER BY job_type, finished_at LIMIT 1) AS e
)

-- name: scan_ended_types
{scan_types}
SELECT job_type, edge FROM last UNION ALL SELECT job_type, edge FROM first;

-- name: scan_first_ends
-- The latest ends, or the earliest, of all types: so many are those of as many types at most, the ones with the latest last ends.
{scan_types}
(SELECT e.finished_at, e.number FROM (SELECT job_type FROM last ORDER BY edge DESC LIMIT :want) AS t CROSS JOIN LATERAL (
        SELECT finished_at, number FROM job_ends WHERE job_type = t.job_type ORDER BY finished_at DESC LIMIT :want) AS e
  ORDER BY e.finished_at DESC LIMIT :want)
UNION ALL
(SELECT e.finished_at, e.number FROM (SELECT job_type FROM first ORDER BY edge LIMIT :want) AS t CROSS JOIN LATERAL (
        SELECT finished_at, number FROM job_ends WHERE job_type = t.job_type ORDER BY finished_at LIMIT :want) AS e
  ORDER BY e.finished_at LIMIT :want);

-- name: scan_schedules
SELECT s.schedule_id, s.organization_id, s.created_by AS owner, (SELECT u.user_id FROM users AS u WHERE u.name = s.created_by) AS owner_id,
       (SELECT r.role_id FROM roles AS r WHERE r.organization_id = s.organization_id AND r.name = s.run_as) AS run_as_id, s.name, coalesce(s.description, t.description) AS description, t.kind, t.body,
       t.job_class, t.job_type, t.name AS template_name, s.kind AS schedule_kind, s.cron_expression, s.interval_us,
       coalesce(s.at, s.starts_at) AS starts_at, s.ends_at, s.timezone,
       CASE WHEN s.state <> 'DISABLED' THEN s.next_trigger_at END AS next_at, s.last_triggered_at AS last_at, s.on_completion,
       t.partition_strategy, t.partition_shard, t.partition_expression, t.defaults, t.overrides, s.run_as, s.created_at, s.updated_at, s.state,
       CASE WHEN t.state <> 'ENABLED' THEN 'template ' || t.state END AS held_by, s.catch_up, s.overlap, s.calendar, s.priority,
       s.param_overrides AS params, s.version
  FROM schedules AS s JOIN templates AS t ON t.template_id = s.template_id WHERE s.dropped_at IS NULL

-- name: scan_dependencies
SELECT s.schedule_id, p.schedule_id AS parent_id, s.organization_id, s.created_by AS owner, s.name, p.name AS parent_name
  FROM schedules AS s CROSS JOIN LATERAL json_array_elements_text(s.depends_on::json) AS d (name)
  JOIN schedules AS p ON p.organization_id = s.organization_id AND p.name = d.name AND p.dropped_at IS NULL
 WHERE s.dropped_at IS NULL AND s.depends_on IS NOT NULL

-- name: scan_occurrences
SELECT o.schedule_id, s.name, s.organization_id, s.created_by AS owner, o.due_at, o.last_due_at, o.count, o.fate, o.reason, o.job_id,
       o.recorded_at
  FROM occurrences AS o JOIN schedules AS s ON s.schedule_id = o.schedule_id

-- name: scan_workers
SELECT worker_id, host, kind, beat, job_types, queues, slots, started_at, stopping_at, ended_at, pid, rota_version, memory FROM workers

-- name: scan_users
SELECT user_id, name, organization_id, role, permissions, state, created_by, created_at, updated_at FROM users

-- name: scan_organizations
SELECT organization_id, display_name, state, max_running, max_queued, max_priority, created_at FROM organizations

-- name: scan_templates
SELECT template_id, organization_id, name, display_name, description, kind, job_type, state, requires_permission, max_running, concurrency,
       rate_limit, rate_window, submit_limit, submit_window, queue_ttl, payload_max, dedup_window, job_class, partition_strategy, defaults,
       overrides, version, created_by, created_at, updated_at
  FROM templates WHERE dropped_at IS NULL

-- name: scan_calendars
SELECT organization_id, name, description, days, created_by, created_at, updated_at FROM calendars

-- name: scan_audit
SELECT audit_id, at, actor, organization_id, action, subject, subject_id, before, after, job_uuid, job_run_uuid, outcome FROM audit
