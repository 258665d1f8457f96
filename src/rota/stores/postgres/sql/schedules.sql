-- Schedules and their calendars: defined, read, and when they are to be looked at.
-- Why joins are `= ANY (ARRAY[...])`, and some conditions expressions: see edges.sql.

-- name: schedule_columns
-- In the order of rota.model.schedules.Schedule, but for its dates.
json_build_array(hex(s.schedule_id), s.name, s.organization_id, t.name,
                 json_build_array(s.kind, s.cron_expression, s.at, s.interval_us, s.timezone, s.starts_at, s.ends_at),
                 s.state, s.description, coalesce(s.param_overrides, '{}')::json, s.priority, s.catch_up, s.catch_up_lateness, s.catch_up_count,
                 s.overlap, s.jitter, s.calendar, s.on_completion, coalesce(s.depends_on, '[]')::json, s.run_as, s.cursor_at, s.next_trigger_at,
                 s.last_triggered_at, s.declared::json, s.version, s.created_by, {own_template})

-- name: due_columns
-- The same without what firing has no use for.
json_build_array(hex(s.schedule_id), s.name, s.organization_id, t.name,
                 json_build_array(s.kind, s.cron_expression, s.at, s.interval_us, s.timezone, s.starts_at, s.ends_at),
                 s.state, NULL, coalesce(s.param_overrides, '{}')::json, s.priority, s.catch_up, s.catch_up_lateness, s.catch_up_count,
                 s.overlap, s.jitter, s.calendar, s.on_completion, coalesce(s.depends_on, '[]')::json, s.run_as, s.cursor_at, s.next_trigger_at,
                 s.last_triggered_at, NULL, s.version, s.created_by, {due_template})

-- name: own_template
-- In the order of rota.model.schedules.OwnTemplate, of a template that belongs to this schedule alone.
CASE WHEN t.organization_id IS NOT NULL THEN json_build_array(hex(t.template_id), t.kind, t.job_type, t.defaults::json, t.version, t.body, t.job_class,
                                                              t.partition_strategy, t.partition_shard, t.partition_expression) END

-- name: due_template
CASE WHEN t.organization_id IS NOT NULL THEN json_build_array(hex(t.template_id), t.kind, t.job_type, t.defaults::json, t.version) END

-- name: due_surroundings
-- Whether it has live chains, and how far its cursor was before the clock was set back: few have that, and are asked for more.
coalesce((SELECT 1 FROM job_live AS l WHERE l.schedule_id = s.schedule_id LIMIT 1), 0), s.ahead_at, s.told_from, s.told_until, s.open_due_at, s.open_fate

-- name: live_of
-- But for those that another one of them follows: who follows that one follows them too.
SELECT hex(l.root_id) FROM job_live AS l
 WHERE l.schedule_id = :schedule_id
   AND (SELECT e.child FROM job_edges AS e
         WHERE e.parent_root = l.root_id AND e.resolved_at IS NULL AND e.needs = 'end' AND e.source = 'overlap'
         ORDER BY e.on_failure, e.child LIMIT 1) IS NULL
 ORDER BY l.number + 0;

-- name: fired_beyond
SELECT due_at FROM occurrences WHERE schedule_id = :schedule_id AND due_at > :cursor_at AND job_id IS NOT NULL;

-- name: schedules_due_now
SELECT coalesce(json_agg(json_build_array(s.row_id, {due_columns}, {due_surroundings}) ORDER BY s.next_trigger_at, s.row_id), '[]')::text FROM (
    SELECT * FROM schedules
     WHERE (depends_on IS NOT NULL) = :depends AND state <> 'DISABLED' AND dropped_at IS NULL AND next_trigger_at <= :now
     ORDER BY next_trigger_at, row_id LIMIT :limit) AS s
  JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id]);

-- name: schedules_overdue
-- The same, read without being fired: for one organization, or for all of them.
SELECT coalesce(json_agg(json_build_array(s.row_id, {due_columns}, {due_surroundings}) ORDER BY s.next_trigger_at, s.row_id), '[]')::text FROM (
    SELECT * FROM schedules
     WHERE (depends_on IS NOT NULL) = :depends AND state <> 'DISABLED' AND dropped_at IS NULL AND next_trigger_at <= :now
       AND (:organization_id IS NULL OR organization_id = :organization_id)
     ORDER BY next_trigger_at, row_id LIMIT :limit) AS s
  JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id]);

-- name: schedule_due
SELECT coalesce(json_agg(json_build_array(s.row_id, {due_columns}, {due_surroundings})), '[]')::text
  FROM schedules AS s JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id]) WHERE s.schedule_id = :schedule_id AND s.dropped_at + 0 IS NULL;

-- name: due_before_it
-- The schedules among these names that are due themselves and have not fired yet.
SELECT name FROM schedules
 WHERE organization_id = :organization_id AND name = ANY(:names) AND dropped_at IS NULL AND state <> 'DISABLED' AND next_trigger_at <= :now;

-- name: schedules_too_far
-- The clock was ahead when these were last looked at, and has come back: a scan, but a rare one.
SELECT coalesce(json_agg({schedule_columns}), '[]')::text FROM (
    SELECT * FROM schedules WHERE state <> 'DISABLED' AND dropped_at IS NULL AND cursor_at > :now LIMIT :limit) AS s
  JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id]);

-- name: furthest
-- The furthest moment at which anything was written that waits: fates, jobs that were put off, the message with the furthest attempt. No message
-- waits longer than :span, so one that does was taken on by a clock that was ahead.
SELECT greatest((SELECT value FROM meta WHERE key = 'clock'),
                (SELECT -position FROM job_live WHERE status = 'PENDING' AND position < 0 ORDER BY position LIMIT 1),
                (SELECT greatest({written_at}, next_attempt_at - :span) FROM outbox WHERE {is_open} ORDER BY next_attempt_at DESC LIMIT 1));

-- name: note_clock
UPDATE meta SET value = :now WHERE key = 'clock' AND value < :now;

-- name: set_clock
UPDATE meta SET value = :now WHERE key = 'clock';

-- name: beat_of_schedules
-- `(SELECT false)` hides from the planner what it would make of the bare word: a condition that the index does not know.
SELECT (SELECT next_trigger_at FROM schedules WHERE (depends_on IS NOT NULL) = (SELECT false) AND {may_be_due} ORDER BY next_trigger_at LIMIT 1),
       (SELECT next_trigger_at FROM schedules WHERE (depends_on IS NOT NULL) = (SELECT true) AND {may_be_due} ORDER BY next_trigger_at LIMIT 1),
       (SELECT until FROM job_edges WHERE resolved_at IS NULL AND until IS NOT NULL ORDER BY until LIMIT 1),
       (SELECT 0 FROM {jobs_over} LIMIT 1),
       ({furthest});

-- name: jobs_over
-- Jobs that SQL has created whose one due time has passed, and none of whose chains lives that it has become.
(SELECT o.schedule_id FROM schedules AS o
  WHERE o.at IS NOT NULL AND o.next_trigger_at IS NULL AND o.state <> 'DISABLED' AND o.dropped_at IS NULL
    AND (SELECT p.organization_id FROM templates AS p WHERE p.template_id = o.template_id) IS NOT NULL
    AND (SELECT 1 FROM job_live AS l
          WHERE l.schedule_id = o.schedule_id AND (SELECT f.due_at FROM job_facts AS f WHERE f.number = l.number) IS NOT NULL LIMIT 1) IS NULL) AS over

-- name: ids_over
SELECT hex(over.schedule_id) FROM {jobs_over} LIMIT :limit;

-- name: end_schedule
UPDATE schedules SET state = 'DISABLED', version = version + 1, updated_at = :now WHERE schedule_id = :schedule_id;

-- name: begin_purge
UPDATE schedules SET purging = :now WHERE schedule_id = :schedule_id;

-- name: end_purge
UPDATE schedules SET purging = NULL
 WHERE purging IS NOT NULL AND (SELECT 1 FROM job_facts AS f WHERE f.schedule_id = schedules.schedule_id LIMIT 1) IS NULL;

-- name: any_purging
SELECT EXISTS (SELECT 1 FROM schedules WHERE purging IS NOT NULL);

-- name: purging_ends
-- Ends of chains of jobs that were dropped with their history, whose children have ended too; the attempt is the length of the chain.
SELECT own.number, own.attempt FROM schedules AS s CROSS JOIN LATERAL (
SELECT f.number, f.attempt FROM job_facts AS f
 WHERE f.schedule_id = s.schedule_id AND f.group_id IS NULL
   AND (SELECT e.status FROM job_ends AS e WHERE e.number = f.number) IN ('COMPLETED', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED')
   AND (SELECT n.number FROM job_facts AS n WHERE n.retry_of = f.job_id LIMIT 1) IS NULL
   AND (SELECT 1 FROM job_edges AS w
         WHERE w.parent_root = f.root_id
           AND ((SELECT l.number FROM job_live AS l WHERE l.number = w.child) IS NOT NULL
                OR (SELECT l.number FROM job_live AS l
                     WHERE l.root_id = (SELECT c.root_id FROM job_facts AS c WHERE c.number = w.child) AND l.attempt > 1) IS NOT NULL)
         LIMIT 1) IS NULL
   AND (SELECT 1 FROM outbox AS w WHERE w.job_id = f.job_id AND w.delivered_at + 0 IS NULL AND w.gave_up_at + 0 IS NULL LIMIT 1) IS NULL
 LIMIT :limit) AS own
 WHERE s.purging IS NOT NULL LIMIT :limit;

-- name: forget_ledger_of_purged
DELETE FROM occurrences WHERE schedule_id = ANY(ARRAY(SELECT schedule_id FROM schedules WHERE purging IS NOT NULL));

-- name: live_roots
-- The chains of a schedule that have not ended.
SELECT hex(root_id) FROM job_live WHERE schedule_id = :schedule_id ORDER BY number + 0;

-- name: add_version
INSERT INTO template_versions (template_id, version, schedule_id, kind, job_type, body, defaults, created_by, created_at)
SELECT template_id, version, :schedule_id, kind, job_type, body, defaults, :actor, :now FROM templates WHERE template_id = :template_id;

-- name: template_version
SELECT kind, job_type, body, defaults, created_by, created_at FROM template_versions WHERE template_id = :template_id AND version = :version;

-- name: work_of_job
-- What a job was defined as when it was enqueued, and never anything else: another version may be somebody else's. A shared template has
-- versions that only its options have, which keep the work of the one before.
SELECT v.kind, v.body, v.defaults, t.name, replace(j.schedule_id::text, '-', ''), j.run_as, v.created_by, t.organization_id IS NULL
  FROM job_facts AS j JOIN templates AS t ON t.template_id = j.template_id
  JOIN template_versions AS v ON v.template_id = j.template_id
       AND v.version = (SELECT max(o.version) FROM template_versions AS o
                         WHERE o.template_id = j.template_id AND o.version <= (j.meta::json ->> 'template_version')::bigint)
 WHERE j.number = :number AND (t.organization_id IS NULL OR v.version = (j.meta::json ->> 'template_version')::bigint);

-- name: forget_versions
-- Versions that are not in force any more, and that no job names. Those of shared templates stay while there is the template.
DELETE FROM template_versions WHERE (template_id, version) IN (
    SELECT v.template_id, v.version FROM template_versions AS v JOIN templates AS t ON t.template_id = ANY (ARRAY[v.template_id])
     WHERE (t.dropped_at IS NOT NULL OR (v.version < t.version AND t.organization_id IS NOT NULL))
       AND (SELECT 1 FROM job_facts AS f
             WHERE f.schedule_id = v.schedule_id AND (f.meta::json ->> 'template_version')::bigint = v.version LIMIT 1) IS NULL
     LIMIT :limit);

-- name: may_be_due
state <> 'DISABLED' AND dropped_at IS NULL AND next_trigger_at IS NOT NULL

-- name: zone_rules
SELECT value FROM meta WHERE key = 'tzdata';

-- name: set_zone_rules
UPDATE meta SET value = :rules WHERE key = 'tzdata';

-- name: zoned_schedules
SELECT coalesce(json_agg({schedule_columns}), '[]')::text FROM schedules AS s JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id])
 WHERE s.kind = 'CRON' AND s.timezone <> 'UTC' AND s.state <> 'DISABLED' AND s.dropped_at IS NULL;

-- name: set_next
UPDATE schedules SET next_trigger_at = :next_at WHERE schedule_id = :schedule_id;

-- name: schedules
SELECT coalesce(json_agg({read_schedule} ORDER BY {schedules_order}), '[]')::text
  FROM schedules AS s JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id])
 WHERE (s.dropped_at IS NOT NULL) = :dropped AND (:name IS NULL OR s.name = :name) AND {schedules_asked_for};

-- name: schedules_called
SELECT coalesce(json_agg({read_schedule} ORDER BY {schedules_order}), '[]')::text
  FROM schedules AS s JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id])
 WHERE s.dropped_at IS NULL AND s.name = :name AND {schedules_asked_for};

-- name: schedule
SELECT coalesce(json_agg({read_schedule}), '[]')::text FROM schedules AS s JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id])
 WHERE s.schedule_id = :schedule_id;

-- name: read_schedule
json_build_array({schedule_columns}, s.created_at, s.updated_at, s.dropped_at)

-- name: schedules_order
s.organization_id, s.name, s.created_at

-- name: schedules_asked_for
(:organization_id IS NULL OR s.organization_id = :organization_id) AND (:owner IS NULL OR s.created_by = :owner OR s.schedule_id = ANY (:granted))
AND (:template IS NULL OR t.name = :template)

-- name: schedule_ids
SELECT hex(s.schedule_id) FROM schedules AS s JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id])
 WHERE (s.dropped_at IS NOT NULL) = :dropped AND (:name IS NULL OR s.name = :name) AND {schedules_asked_for}
 ORDER BY {schedules_order};

-- name: schedule_named
SELECT hex(schedule_id) FROM schedules WHERE organization_id = :organization_id AND name = :name AND dropped_at IS NULL;

-- name: template_named
SELECT hex(template_id), state FROM templates WHERE {this_template};

-- name: name_of_template
-- Whether a template has this name: one that all share, or one of this organization.
SELECT EXISTS (SELECT 1 FROM templates WHERE coalesce(organization_id, '') = '' AND name = :name AND dropped_at IS NULL)
    OR EXISTS (SELECT 1 FROM templates WHERE coalesce(organization_id, '') = :organization_id AND name = :name AND dropped_at IS NULL);

-- name: put_own_template
INSERT INTO templates AS t (template_id, organization_id, name, description, kind, job_type, body, defaults, job_class, partition_strategy,
                       partition_shard, partition_expression, version, created_by, created_at, updated_at)
VALUES (:template_id, :organization_id, :name, :description, :kind, :job_type, :body, :defaults, :job_class, :partition_strategy,
        :partition_shard, :partition_expression, 1, :actor, :now, :now)
    ON CONFLICT (template_id) DO UPDATE
   SET name = excluded.name, description = excluded.description, kind = excluded.kind, job_type = excluded.job_type, body = excluded.body,
       defaults = excluded.defaults, job_class = excluded.job_class, partition_strategy = excluded.partition_strategy,
       partition_shard = excluded.partition_shard, partition_expression = excluded.partition_expression,
       version = t.version + :step, updated_at = excluded.updated_at;

-- name: drop_own_template
UPDATE templates SET dropped_at = :now, updated_at = :now WHERE template_id = :template_id AND organization_id IS NOT NULL AND dropped_at IS NULL;

-- name: all_depending
-- Every schedule of an organization that depends on others.
SELECT name, depends_on FROM schedules WHERE organization_id = :organization_id AND dropped_at IS NULL AND depends_on IS NOT NULL;

-- name: put_schedule
-- Make or overwrite a schedule: one statement, so that no column is forgotten in one of two.
INSERT INTO schedules (schedule_id, organization_id, template_id, name, description, kind, cron_expression, at, interval_us, timezone, starts_at, ends_at,
                       state, param_overrides, priority, catch_up, catch_up_lateness, catch_up_count, overlap, jitter, calendar, on_completion,
                       depends_on, run_as, cursor_at, next_trigger_at, declared, version, created_by, created_at, updated_at)
VALUES (:schedule_id, :organization_id, :template_id, :name, :description, :kind, :cron, :at, :interval, :timezone, :starts_at, :ends_at,
        :state, :params, :priority, :catch_up, :catch_up_lateness, :catch_up_count, :overlap, :jitter, :calendar, :on_completion,
        :depends_on, :run_as, :cursor_at, :next_at, :declared, 1, :created_by, :now, :now)
    ON CONFLICT (schedule_id) DO UPDATE
   SET template_id = excluded.template_id, name = excluded.name, description = excluded.description, kind = excluded.kind, cron_expression = excluded.cron_expression,
       at = excluded.at, interval_us = excluded.interval_us, timezone = excluded.timezone, starts_at = excluded.starts_at,
       ends_at = excluded.ends_at, state = excluded.state, param_overrides = excluded.param_overrides, priority = excluded.priority,
       catch_up = excluded.catch_up, catch_up_lateness = excluded.catch_up_lateness, catch_up_count = excluded.catch_up_count,
       overlap = excluded.overlap, jitter = excluded.jitter, calendar = excluded.calendar, on_completion = excluded.on_completion,
       depends_on = excluded.depends_on, run_as = excluded.run_as, cursor_at = excluded.cursor_at, next_trigger_at = excluded.next_trigger_at,
       declared = excluded.declared, created_by = excluded.created_by, version = schedules.version + 1, updated_at = excluded.updated_at;

-- name: set_dependencies
-- A schedule that this one depends on has another name.
UPDATE schedules SET depends_on = :depends_on, version = version + 1, updated_at = :now
 WHERE organization_id = :organization_id AND name = :name AND dropped_at IS NULL;

-- name: drop_schedule
UPDATE schedules SET dropped_at = :now, next_trigger_at = NULL, updated_at = :now WHERE schedule_id = :schedule_id AND dropped_at + 0 IS NULL;

-- name: advance_schedules
-- Each row: [row_id, cursor, next, last or null, state or null, dropped].
UPDATE schedules SET cursor_at = e.cursor_at, next_trigger_at = e.next_at, last_triggered_at = coalesce(e.last_at, last_triggered_at),
                     state = coalesce(e.state, schedules.state), dropped_at = CASE WHEN e.dropped THEN :now ELSE dropped_at END,
                     ahead_at = CASE WHEN ahead_at > e.cursor_at THEN ahead_at END,
                     told_until = CASE WHEN told_until > e.cursor_at THEN told_until END,
                     told_from = CASE WHEN told_until > e.cursor_at THEN told_from END
  FROM (SELECT (value ->> 0)::bigint AS row_id, (value ->> 1)::bigint AS cursor_at, (value ->> 2)::bigint AS next_at, (value ->> 3)::bigint AS last_at,
               value ->> 4 AS state, value ->> 5 = '1' AS dropped
          FROM json_array_elements(:rows::json) AS r (value)) AS e
 WHERE schedules.row_id = ANY (ARRAY[e.row_id]);

-- name: advance_alike
-- Many that were due at one time and are due next at one time: their row_ids.
UPDATE schedules SET cursor_at = :cursor_at, next_trigger_at = :next_at, last_triggered_at = :last_at,
                     ahead_at = CASE WHEN ahead_at > :cursor_at THEN ahead_at END,
                     told_until = CASE WHEN told_until > :cursor_at THEN told_until END,
                     told_from = CASE WHEN told_until > :cursor_at THEN told_from END
 WHERE row_id = ANY(:rowids);

-- name: pull_back_schedule
UPDATE schedules SET ahead_at = greatest(ahead_at, cursor_at), told_from = CASE WHEN :told THEN :now END,
                     told_until = CASE WHEN :told THEN coalesce(told_until, cursor_at) END, cursor_at = :now, next_trigger_at = :next_at
 WHERE schedule_id = :schedule_id;

-- name: rest_on_this_clock
-- Somebody edits: what was told by a clock that was ahead is not told again.
UPDATE schedules SET ahead_at = CASE WHEN cursor_at > :now THEN greatest(ahead_at, cursor_at) ELSE ahead_at END, told_from = NULL, told_until = NULL
 WHERE schedule_id = :schedule_id;

-- ---- calendars -----------------------------------------------------------------------------------------------------

-- name: calendar
SELECT days, description FROM calendars WHERE organization_id = :organization_id AND name = :name;

-- name: calendars
SELECT organization_id, name, days, description FROM calendars
 WHERE :organization_id IS NULL OR organization_id = :organization_id ORDER BY organization_id, name;

-- name: put_calendar
INSERT INTO calendars AS c (organization_id, name, description, days, created_by, created_at, updated_at)
VALUES (:organization_id, :name, :description, :days, :actor, :now, :now)
    ON CONFLICT (organization_id, name) DO UPDATE SET description = excluded.description, days = excluded.days, updated_at = excluded.updated_at
 WHERE (c.description, c.days) IS DISTINCT FROM (excluded.description, excluded.days);

-- name: drop_calendar
DELETE FROM calendars WHERE organization_id = :organization_id AND name = :name;

-- name: users_of_calendar
SELECT name FROM schedules WHERE organization_id = :organization_id AND calendar = :name AND dropped_at IS NULL ORDER BY name || '';
