-- Schedules and their calendars: defined, read, and when they are to be looked at.

-- name: schedule_columns
-- In the order of rota.model.schedules.Schedule, but for its dates.
json_array(lower(hex(s.schedule_id)), s.name, s.organization_id, t.name,
           json_array(s.kind, s.cron_expression, s.at, s.interval_us, s.timezone, s.starts_at, s.ends_at),
           s.state, s.description, json(coalesce(s.param_overrides, '{}')), s.priority, s.catch_up, s.catch_up_lateness, s.catch_up_count, s.overlap,
           s.jitter, s.calendar, s.on_completion, json(coalesce(s.depends_on, '[]')), s.run_as, s.cursor_at, s.next_trigger_at, s.last_triggered_at,
           json(s.declared), s.version, s.created_by, {own_template})

-- name: due_columns
-- The same without what firing has no use for.
json_array(lower(hex(s.schedule_id)), s.name, s.organization_id, t.name,
           json_array(s.kind, s.cron_expression, s.at, s.interval_us, s.timezone, s.starts_at, s.ends_at),
           s.state, NULL, json(coalesce(s.param_overrides, '{}')), s.priority, s.catch_up, s.catch_up_lateness, s.catch_up_count, s.overlap,
           s.jitter, s.calendar, s.on_completion, json(coalesce(s.depends_on, '[]')), s.run_as, s.cursor_at, s.next_trigger_at, s.last_triggered_at,
           NULL, s.version, s.created_by, {due_template})

-- name: own_template
-- In the order of rota.model.schedules.OwnTemplate, of a template that belongs to this schedule alone.
json(iif(t.organization_id IS NULL, NULL, json_array(lower(hex(t.template_id)), t.kind, t.job_type, json(t.defaults), t.version, t.body, t.job_class,
                                                     t.partition_strategy, t.partition_shard, t.partition_expression)))

-- name: due_template
json(iif(t.organization_id IS NULL, NULL, json_array(lower(hex(t.template_id)), t.kind, t.job_type, json(t.defaults), t.version)))

-- name: due_surroundings
-- Whether it has live chains, and how far its cursor was before the clock was set back: few have that, and are asked for more.
EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_schedule_live WHERE schedule_id = s.schedule_id AND schedule_id IS NOT NULL AND finished_at IS NULL),
s.ahead_at, s.told_from, s.told_until, s.open_due_at, s.open_fate

-- name: live_of
-- But for those that another one of them follows: who follows that one follows them too.
SELECT lower(hex(root_id)) FROM jobs INDEXED BY jobs_schedule_live
 WHERE schedule_id = unhex(:schedule_id) AND schedule_id IS NOT NULL AND finished_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM job_edges AS e INDEXED BY edges_open
                    WHERE e.parent_root = jobs.root_id AND e.resolved_at IS NULL AND e.needs = 'end' AND e.source = 'overlap')
 ORDER BY number;

-- name: fired_beyond
SELECT due_at FROM occurrences WHERE schedule_id = unhex(:schedule_id) AND due_at > :cursor_at AND job_id IS NOT NULL;

-- name: schedules_due_now
SELECT json_group_array(json_array(s.rowid, {due_columns}, {due_surroundings})) FROM (
    SELECT rowid, * FROM schedules INDEXED BY schedules_due
     WHERE (depends_on IS NOT NULL) = :depends AND state <> 'DISABLED' AND dropped_at IS NULL AND next_trigger_at <= :now
     ORDER BY next_trigger_at LIMIT :limit) AS s
 CROSS JOIN templates AS t ON t.template_id = s.template_id;

-- name: schedules_overdue
-- The same, read without being fired: for one organization, or for all of them.
SELECT json_group_array(json_array(s.rowid, {due_columns}, {due_surroundings})) FROM (
    SELECT rowid, * FROM schedules INDEXED BY schedules_due
     WHERE (depends_on IS NOT NULL) = :depends AND state <> 'DISABLED' AND dropped_at IS NULL AND next_trigger_at <= :now
       AND (:organization_id IS NULL OR organization_id = :organization_id)
     ORDER BY next_trigger_at LIMIT :limit) AS s
 CROSS JOIN templates AS t ON t.template_id = s.template_id;

-- name: schedule_due
SELECT json_group_array(json_array(s.rowid, {due_columns}, {due_surroundings})) FROM schedules AS s
 CROSS JOIN templates AS t ON t.template_id = s.template_id WHERE s.schedule_id = unhex(:schedule_id) AND s.dropped_at IS NULL;

-- name: due_before_it
-- The schedules among these names that are due themselves and have not fired yet.
SELECT s.name FROM json_each(:names) AS e CROSS JOIN schedules AS s INDEXED BY schedules_name
    ON s.organization_id = :organization_id AND s.name = e.value AND s.dropped_at IS NULL
 WHERE s.state <> 'DISABLED' AND s.next_trigger_at <= :now;

-- name: schedules_too_far
-- The clock was ahead when these were last looked at, and has come back: a scan, but a rare one.
SELECT json_group_array({schedule_columns}) FROM (
    SELECT * FROM schedules WHERE state <> 'DISABLED' AND dropped_at IS NULL AND cursor_at > :now LIMIT :limit) AS s
 CROSS JOIN templates AS t ON t.template_id = s.template_id;

-- name: furthest
-- The furthest moment at which anything was written that waits: fates, jobs that were put off, the message with the furthest attempt. No message
-- waits longer than :span, so one that does was taken on by a clock that was ahead.
SELECT max((SELECT value FROM meta WHERE key = 'clock'),
           coalesce(-(SELECT min(position) FROM jobs INDEXED BY jobs_put_off WHERE status = 'PENDING' AND position < 0), 0),
           coalesce((SELECT max({written_at}, next_attempt_at - :span) FROM outbox INDEXED BY outbox_due WHERE {is_open} AND next_attempt_at > 0
                      ORDER BY next_attempt_at DESC LIMIT 1), 0));

-- name: note_clock
UPDATE meta SET value = :now WHERE key = 'clock' AND value < :now;

-- name: set_clock
UPDATE meta SET value = :now WHERE key = 'clock';

-- name: beat_of_schedules
SELECT (SELECT min(next_trigger_at) FROM schedules INDEXED BY schedules_due
         WHERE (depends_on IS NOT NULL) = 0 AND state <> 'DISABLED' AND dropped_at IS NULL AND next_trigger_at IS NOT NULL),
       (SELECT min(next_trigger_at) FROM schedules INDEXED BY schedules_due
         WHERE (depends_on IS NOT NULL) = 1 AND state <> 'DISABLED' AND dropped_at IS NULL AND next_trigger_at IS NOT NULL),
       (SELECT min(until) FROM job_edges INDEXED BY edges_until WHERE resolved_at IS NULL AND until IS NOT NULL),
       (SELECT 0 FROM {jobs_over} LIMIT 1),
       ({furthest});

-- name: jobs_over
-- Jobs that SQL has created whose one due time has passed, and none of whose chains lives that it has become.
schedules AS o INDEXED BY schedules_over CROSS JOIN templates AS p ON p.template_id = o.template_id AND p.organization_id IS NOT NULL
 WHERE o.at IS NOT NULL AND o.next_trigger_at IS NULL AND o.state <> 'DISABLED' AND o.dropped_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM jobs AS j INDEXED BY jobs_schedule_live
                    WHERE j.schedule_id = o.schedule_id AND j.schedule_id IS NOT NULL AND j.finished_at IS NULL AND j.due_at IS NOT NULL)

-- name: ids_over
SELECT lower(hex(o.schedule_id)) FROM {jobs_over} LIMIT :limit;

-- name: end_schedule
UPDATE schedules SET state = 'DISABLED', version = version + 1, updated_at = :now WHERE schedule_id = unhex(:schedule_id);

-- name: begin_purge
UPDATE schedules SET purging = :now WHERE schedule_id = unhex(:schedule_id);

-- name: end_purge
UPDATE schedules SET purging = NULL
 WHERE purging IS NOT NULL AND NOT EXISTS (SELECT 1 FROM jobs AS j INDEXED BY jobs_occurrence WHERE j.schedule_id = schedules.schedule_id AND j.schedule_id IS NOT NULL);

-- name: any_purging
SELECT EXISTS (SELECT 1 FROM schedules WHERE purging IS NOT NULL);

-- name: purging_ends
-- Ends of chains of jobs that were dropped with their history, whose children have ended too; the attempt is the length of the chain.
SELECT j.number, j.attempt FROM schedules AS s INDEXED BY schedules_purging
 CROSS JOIN jobs AS j INDEXED BY jobs_occurrence ON j.schedule_id = s.schedule_id AND j.schedule_id IS NOT NULL
 WHERE s.purging IS NOT NULL AND j.status IN ('COMPLETED', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED') AND j.group_id IS NULL
   AND NOT EXISTS (SELECT 1 FROM jobs AS n WHERE n.retry_of = j.job_id)
   AND NOT EXISTS (SELECT 1 FROM job_edges AS e CROSS JOIN jobs AS c ON c.number = e.child
                    WHERE e.parent_root = j.root_id
                      AND (c.finished_at IS NULL
                           OR EXISTS (SELECT 1 FROM jobs AS l WHERE l.root_id = c.root_id AND l.finished_at IS NULL AND l.attempt > 1)))
   AND NOT EXISTS (SELECT 1 FROM outbox AS w WHERE w.job_id = j.job_id AND w.delivered_at IS NULL AND w.gave_up_at IS NULL)
 LIMIT :limit;

-- name: forget_ledger_of_purged
DELETE FROM occurrences WHERE schedule_id IN (SELECT schedule_id FROM schedules INDEXED BY schedules_purging WHERE purging IS NOT NULL);

-- name: live_roots
-- The chains of a schedule that have not ended.
SELECT lower(hex(root_id)) FROM jobs INDEXED BY jobs_schedule_live
 WHERE schedule_id = unhex(:schedule_id) AND schedule_id IS NOT NULL AND finished_at IS NULL ORDER BY number;

-- name: add_version
INSERT INTO template_versions (template_id, version, schedule_id, kind, job_type, body, defaults, created_by, created_at)
SELECT template_id, version, unhex(:schedule_id), kind, job_type, body, defaults, :actor, :now FROM templates WHERE template_id = unhex(:template_id);

-- name: template_version
SELECT kind, job_type, body, defaults, created_by, created_at FROM template_versions WHERE template_id = unhex(:template_id) AND version = :version;

-- name: work_of_job
-- What a job was defined as when it was enqueued, and never anything else: another version may be somebody else's. A shared template has
-- versions that only its options have, which keep the work of the one before.
SELECT v.kind, v.body, v.defaults, t.name, lower(hex(j.schedule_id)), j.run_as, v.created_by, t.organization_id IS NULL
  FROM jobs AS j CROSS JOIN templates AS t ON t.template_id = j.template_id
 CROSS JOIN template_versions AS v ON v.template_id = j.template_id
       AND v.version = (SELECT max(o.version) FROM template_versions AS o
                         WHERE o.template_id = j.template_id AND o.version <= j.meta ->> 'template_version')
 WHERE j.number = :number AND (t.organization_id IS NULL OR v.version = j.meta ->> 'template_version');

-- name: forget_versions
-- Versions that are not in force any more, and that no job names. Those of shared templates stay while there is the template.
DELETE FROM template_versions WHERE (template_id, version) IN (
    SELECT v.template_id, v.version FROM template_versions AS v CROSS JOIN templates AS t ON t.template_id = v.template_id
     WHERE (t.dropped_at IS NOT NULL OR (v.version < t.version AND t.organization_id IS NOT NULL))
       AND NOT EXISTS (SELECT 1 FROM jobs AS j INDEXED BY jobs_occurrence
                        WHERE j.schedule_id = v.schedule_id AND j.schedule_id IS NOT NULL AND j.meta ->> 'template_version' = v.version)
     LIMIT :limit);

-- name: zone_rules
SELECT value FROM meta WHERE key = 'tzdata';

-- name: set_zone_rules
UPDATE meta SET value = :rules WHERE key = 'tzdata';

-- name: zoned_schedules
SELECT json_group_array({schedule_columns}) FROM schedules AS s CROSS JOIN templates AS t ON t.template_id = s.template_id
 WHERE s.kind = 'CRON' AND s.timezone <> 'UTC' AND s.state <> 'DISABLED' AND s.dropped_at IS NULL;

-- name: set_next
UPDATE schedules SET next_trigger_at = :next_at WHERE schedule_id = unhex(:schedule_id);

-- name: schedules
SELECT json_group_array(json_array({schedule_columns}, s.created_at, s.updated_at, s.dropped_at)) FROM (
    SELECT * FROM schedules WHERE (dropped_at IS NOT NULL) = :dropped AND (:organization_id IS NULL OR organization_id = :organization_id)
       AND (:owner IS NULL OR created_by = :owner OR schedule_id IN (SELECT unhex(value) FROM json_each(:granted))) AND (:name IS NULL OR name = :name) ORDER BY organization_id, name, created_at) AS s
 CROSS JOIN templates AS t ON t.template_id = s.template_id WHERE :template IS NULL OR t.name = :template;

-- name: schedules_called
SELECT json_group_array(json_array({schedule_columns}, s.created_at, s.updated_at, s.dropped_at)) FROM (
    SELECT * FROM schedules INDEXED BY schedules_called WHERE dropped_at IS NULL AND name = :name AND (:organization_id IS NULL OR organization_id = :organization_id)
       AND (:owner IS NULL OR created_by = :owner OR schedule_id IN (SELECT unhex(value) FROM json_each(:granted))) ORDER BY organization_id, name, created_at) AS s
 CROSS JOIN templates AS t ON t.template_id = s.template_id WHERE :template IS NULL OR t.name = :template;

-- name: schedule
SELECT json_group_array(json_array({schedule_columns}, s.created_at, s.updated_at, s.dropped_at)) FROM schedules AS s
 CROSS JOIN templates AS t ON t.template_id = s.template_id WHERE s.schedule_id = unhex(:schedule_id);

-- name: schedule_ids
SELECT lower(hex(s.schedule_id)) FROM schedules AS s CROSS JOIN templates AS t ON t.template_id = s.template_id
 WHERE (s.dropped_at IS NOT NULL) = :dropped AND (:organization_id IS NULL OR s.organization_id = :organization_id)
   AND (:owner IS NULL OR s.created_by = :owner OR s.schedule_id IN (SELECT unhex(value) FROM json_each(:granted))) AND (:name IS NULL OR s.name = :name) AND (:template IS NULL OR t.name = :template)
 ORDER BY s.organization_id, s.name, s.created_at;

-- name: schedule_named
SELECT lower(hex(schedule_id)) FROM schedules INDEXED BY schedules_name
 WHERE organization_id = :organization_id AND name = :name AND dropped_at IS NULL;

-- name: template_named
SELECT lower(hex(template_id)), state FROM templates WHERE {this_template};

-- name: name_of_template
-- Whether a template has this name: one that all share, or one of this organization.
SELECT EXISTS (SELECT 1 FROM templates WHERE coalesce(organization_id, '') = '' AND name = :name AND dropped_at IS NULL)
    OR EXISTS (SELECT 1 FROM templates WHERE coalesce(organization_id, '') = :organization_id AND name = :name AND dropped_at IS NULL);

-- name: put_own_template
INSERT INTO templates (template_id, organization_id, name, description, kind, job_type, body, defaults, job_class, partition_strategy,
                       partition_shard, partition_expression, version, created_by, created_at, updated_at)
VALUES (unhex(:template_id), :organization_id, :name, :description, :kind, :job_type, :body, :defaults, :job_class, :partition_strategy,
        :partition_shard, :partition_expression, 1, :actor, :now, :now)
    ON CONFLICT (template_id) DO UPDATE
   SET name = excluded.name, description = excluded.description, kind = excluded.kind, job_type = excluded.job_type, body = excluded.body,
       defaults = excluded.defaults, job_class = excluded.job_class, partition_strategy = excluded.partition_strategy,
       partition_shard = excluded.partition_shard, partition_expression = excluded.partition_expression,
       version = templates.version + :step, updated_at = excluded.updated_at;

-- name: drop_own_template
UPDATE templates SET dropped_at = :now, updated_at = :now WHERE template_id = unhex(:template_id) AND organization_id IS NOT NULL AND dropped_at IS NULL;

-- name: all_depending
-- Every schedule of an organization that depends on others.
SELECT name, depends_on FROM schedules WHERE organization_id = :organization_id AND dropped_at IS NULL AND depends_on IS NOT NULL;

-- name: put_schedule
-- Make or overwrite a schedule: one statement, so that no column is forgotten in one of two.
INSERT INTO schedules (schedule_id, organization_id, template_id, name, description, kind, cron_expression, at, interval_us, timezone, starts_at, ends_at,
                       state, param_overrides, priority, catch_up, catch_up_lateness, catch_up_count, overlap, jitter, calendar, on_completion,
                       depends_on, run_as, cursor_at, next_trigger_at, declared, version, created_by, created_at, updated_at)
VALUES (unhex(:schedule_id), :organization_id, unhex(:template_id), :name, :description, :kind, :cron, :at, :interval, :timezone, :starts_at, :ends_at,
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
UPDATE schedules SET dropped_at = :now, next_trigger_at = NULL, updated_at = :now WHERE schedule_id = unhex(:schedule_id) AND dropped_at IS NULL;

-- name: advance_schedules
-- Each row: [rowid, cursor, next, last or null, state or null, dropped].
UPDATE schedules SET cursor_at = e.value ->> 1, next_trigger_at = e.value ->> 2, last_triggered_at = coalesce(e.value ->> 3, last_triggered_at),
                     state = coalesce(e.value ->> 4, state), dropped_at = iif(e.value ->> 5, :now, dropped_at),
                     ahead_at = iif(ahead_at > e.value ->> 1, ahead_at, NULL), told_until = iif(told_until > e.value ->> 1, told_until, NULL),
                     told_from = iif(told_until > e.value ->> 1, told_from, NULL)
  FROM json_each(:rows) AS e
 WHERE schedules.rowid = e.value ->> 0;

-- name: advance_alike
-- Many that were due at one time and are due next at one time: their rowids.
UPDATE schedules SET cursor_at = :cursor_at, next_trigger_at = :next_at, last_triggered_at = :last_at,
                     ahead_at = iif(ahead_at > :cursor_at, ahead_at, NULL), told_until = iif(told_until > :cursor_at, told_until, NULL),
                     told_from = iif(told_until > :cursor_at, told_from, NULL)
 WHERE rowid IN (SELECT value FROM json_each(:rowids));

-- name: pull_back_schedule
UPDATE schedules SET ahead_at = max(coalesce(ahead_at, 0), cursor_at), told_from = iif(:told, :now, NULL),
                     told_until = iif(:told, coalesce(told_until, cursor_at), NULL), cursor_at = :now, next_trigger_at = :next_at
 WHERE schedule_id = unhex(:schedule_id);

-- name: rest_on_this_clock
-- Somebody edits: what was told by a clock that was ahead is not told again.
UPDATE schedules SET ahead_at = iif(cursor_at > :now, max(coalesce(ahead_at, 0), cursor_at), ahead_at), told_from = NULL, told_until = NULL
 WHERE schedule_id = unhex(:schedule_id);

-- ---- calendars -----------------------------------------------------------------------------------------------------

-- name: calendar
SELECT days, description FROM calendars WHERE organization_id = :organization_id AND name = :name;

-- name: calendars
SELECT organization_id, name, days, description FROM calendars
 WHERE :organization_id IS NULL OR organization_id = :organization_id ORDER BY organization_id, name;

-- name: put_calendar
INSERT INTO calendars (organization_id, name, description, days, created_by, created_at, updated_at)
VALUES (:organization_id, :name, :description, :days, :actor, :now, :now)
    ON CONFLICT (organization_id, name) DO UPDATE SET description = excluded.description, days = excluded.days, updated_at = excluded.updated_at
 WHERE (description, days) IS NOT (excluded.description, excluded.days);

-- name: drop_calendar
DELETE FROM calendars WHERE organization_id = :organization_id AND name = :name;

-- name: users_of_calendar
SELECT name FROM schedules WHERE organization_id = :organization_id AND calendar = :name AND dropped_at IS NULL ORDER BY name;
