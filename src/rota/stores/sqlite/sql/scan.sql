-- Relations that queries over sys.* read: see verbs/relations.py. What is not asked for costs nothing: SQLite leaves out columns and joins.

-- name: scan_jobs
SELECT j.number, j.job_id, j.organization_id, j.owner, j.schedule_id, s.name AS schedule_name, j.template_id, t.name AS template_name,
       j.job_type, coalesce(n.queue, 'default') AS queue, j.origin, j.root_id, j.retry_of, j.attempt, j.failures, j.crashes, j.snoozes,
       j.status, j.held, j.blockers, j.priority, j.position, j.run_at, j.due_at,
       iif(j.attempt = 1, coalesce(j.due_at, j.run_at), j.run_at) AS scheduled_at, j.expires_at, j.created_at, j.queued_at, j.started_at,
       j.finished_at, j.worker_id, j.cancel_requested_at, j.unique_key, j.group_id, j.sequence_number, j.max_retries, j.timeout, j.executor,
       j.target_node, j.shard, j.ended_by, j.error_type, j.reason, j.params, j.meta, j.tags, r.run_id, r.exit_code, r.error, r.error_code,
       r.result, coalesce(r.result_message, r.error, j.reason) AS message, r.rows_affected, r.progress, r.progress_message
  FROM (SELECT j.* FROM jobs AS j {source}) AS j
  LEFT JOIN job_runs AS r ON r.job_number = j.number
  LEFT JOIN schedules AS s ON s.schedule_id = j.schedule_id
  LEFT JOIN templates AS t ON t.template_id = j.template_id
  LEFT JOIN lanes AS n ON n.lane = j.lane

-- name: source_key
WHERE true

-- name: source_of_schedule
-- The index has the numbers: rows are read in the order of these, and no more of them than are asked for.
NOT INDEXED WHERE j.number IN (SELECT k.number FROM jobs AS k INDEXED BY jobs_occurrence
                                WHERE k.schedule_id IS NOT NULL AND k.schedule_id = unhex(:schedule_id))

-- name: source_numbers_of_type
NOT INDEXED WHERE j.number IN (SELECT k.number FROM jobs AS k INDEXED BY jobs_finished WHERE k.finished_at IS NOT NULL AND k.job_type = :job_type)

-- name: scan_schedules_named
SELECT lower(hex(schedule_id)) FROM schedules INDEXED BY schedules_called WHERE dropped_at IS NULL AND name = :name
UNION ALL
SELECT lower(hex(schedule_id)) FROM schedules INDEXED BY schedules_dropped WHERE dropped_at IS NOT NULL AND name = :name;

-- name: source_clock_back
INDEXED BY jobs_clock_back WHERE j.started_at > j.finished_at

-- name: scan_ends
SELECT j.number, j.finished_at, j.job_type FROM jobs AS j INDEXED BY jobs_finished WHERE j.finished_at IS NOT NULL

-- name: scan_facts
SELECT j.number, j.schedule_id, j.finished_at, j.started_at FROM jobs AS j

-- name: scan_ended_types
-- The types of ended jobs, each with its last end, or its first: a hop from type to type, not a scan.
WITH RECURSIVE type (job_type) AS (
    SELECT (SELECT min(j.job_type) FROM jobs AS j INDEXED BY jobs_finished WHERE j.finished_at IS NOT NULL)
    UNION ALL
    SELECT (SELECT min(j.job_type) FROM jobs AS j INDEXED BY jobs_finished WHERE j.finished_at IS NOT NULL AND j.job_type > type.job_type)
      FROM type WHERE type.job_type IS NOT NULL
)
SELECT job_type,
       iif(:descending = 1,
           (SELECT max(j.finished_at) FROM jobs AS j INDEXED BY jobs_finished WHERE j.finished_at IS NOT NULL AND j.job_type = type.job_type),
           (SELECT min(j.finished_at) FROM jobs AS j INDEXED BY jobs_finished WHERE j.finished_at IS NOT NULL AND j.job_type = type.job_type))
  FROM type WHERE job_type IS NOT NULL;

-- name: scan_schedules
SELECT s.schedule_id, s.organization_id, s.created_by AS owner, (SELECT u.user_id FROM users AS u WHERE u.name = s.created_by) AS owner_id,
       (SELECT r.role_id FROM roles AS r WHERE r.organization_id = s.organization_id AND r.name = s.run_as) AS run_as_id, s.name, coalesce(s.description, t.description) AS description, t.kind, t.body,
       t.job_class, t.job_type, t.name AS template_name, s.kind AS schedule_kind, s.cron_expression, s.interval_us,
       coalesce(s.at, s.starts_at) AS starts_at, s.ends_at, s.timezone,
       CASE WHEN s.state <> 'DISABLED' THEN s.next_trigger_at END AS next_at, s.last_triggered_at AS last_at, s.on_completion,
       t.partition_strategy, t.partition_shard, t.partition_expression, t.defaults, t.overrides, s.run_as, s.created_at, s.updated_at, s.state,
       CASE WHEN t.state <> 'ENABLED' THEN 'template ' || t.state END AS held_by, s.catch_up, s.overlap, s.calendar, s.priority,
       s.param_overrides AS params, s.version
  FROM schedules AS s CROSS JOIN templates AS t ON t.template_id = s.template_id WHERE s.dropped_at IS NULL

-- name: scan_dependencies
SELECT s.schedule_id, p.schedule_id AS parent_id, s.organization_id, s.created_by AS owner, s.name, p.name AS parent_name
  FROM schedules AS s CROSS JOIN json_each(s.depends_on) AS d
 CROSS JOIN schedules AS p ON p.organization_id = s.organization_id AND p.name = d.value AND p.dropped_at IS NULL
 WHERE s.dropped_at IS NULL AND s.depends_on IS NOT NULL

-- name: scan_occurrences
SELECT o.schedule_id, s.name, s.organization_id, s.created_by AS owner, o.due_at, o.last_due_at, o.count, o.fate, o.reason, o.job_id,
       o.recorded_at
  FROM occurrences AS o CROSS JOIN schedules AS s ON s.schedule_id = o.schedule_id

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
