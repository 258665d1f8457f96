-- Templates, pauses, and the version that every change to them advances.

-- name: definitions_version
SELECT value FROM meta WHERE key = 'definitions_version';

-- name: advance_definitions
-- From bit 40 on the version counts lanes, which are no change for those who enqueue: see `lanes.same_definitions`.
UPDATE meta SET value = value + 1 WHERE key = 'definitions_version';

-- name: put_template
INSERT INTO templates AS t (template_id, name, job_type, defaults, created_by, created_at, updated_at)
VALUES (:template_id, :name, :job_type, :defaults, :actor, :now, :now)
ON CONFLICT (coalesce(organization_id, ''), name) WHERE dropped_at IS NULL
DO UPDATE SET defaults = excluded.defaults, job_type = excluded.job_type, version = t.version + 1, updated_at = excluded.updated_at
 WHERE t.defaults <> excluded.defaults OR t.job_type <> excluded.job_type;

-- name: define_template
INSERT INTO templates AS t (template_id, name, kind, job_type, body, defaults, created_by, created_at, updated_at)
VALUES (:template_id, :name, :kind, :job_type, :body, :defaults, :actor, :now, :now)
ON CONFLICT (coalesce(organization_id, ''), name) WHERE dropped_at IS NULL
DO UPDATE SET kind = excluded.kind, body = excluded.body, defaults = excluded.defaults, version = t.version + 1, updated_at = excluded.updated_at;

-- name: template_columns
hex(template_id), name, job_type, state, version, defaults, overrides, created_at, updated_at, kind, body, created_by

-- name: templates
-- But for those that belong to one schedule: they are read with it.
SELECT {template_columns} FROM templates WHERE organization_id IS NULL AND dropped_at IS NULL ORDER BY name;

-- name: template
SELECT {template_columns} FROM templates WHERE {this_template};

-- name: this_template
-- A shared template by its name: as the index on names has it.
coalesce(organization_id, '') = '' AND name = :name AND dropped_at IS NULL

-- name: add_template
INSERT INTO templates (template_id, name, job_type, state, defaults, created_by, created_at, updated_at)
VALUES (:template_id, :name, :job_type, :state, :defaults, :actor, :now, :now);

-- name: set_overrides
UPDATE templates SET overrides = :overrides, version = version + :step, updated_at = :now WHERE {this_template};

-- name: set_template_state
UPDATE templates SET state = :state, version = version + 1, updated_at = :now WHERE {this_template} AND state <> :state;

-- name: drop_template
UPDATE templates SET dropped_at = :now, updated_at = :now WHERE {this_template};

-- name: show_what_is_said
-- What code and people say together, for those who read with SQL. One word wins whole, the last one; a null that people set takes the
-- code's word away. It is json and not jsonb, which refuses what params may well have in them (a \u0000) and orders their keys anew.
WITH said AS MATERIALIZED (
    SELECT template_id AS id, (SELECT json_object_agg(word.key, word.value ORDER BY word.turn)
                                 FROM (SELECT 1 AS turn, key, value FROM json_each(defaults::json)
                                       UNION ALL
                                       SELECT 2, key, value FROM json_each(overrides::json)) AS word) AS spec
      FROM templates WHERE {this_template}
)
UPDATE templates
   SET display_name        = said.spec ->> 'display_name',
       description         = said.spec ->> 'description',
       requires_permission = said.spec ->> 'requires_permission',
       max_running         = (said.spec ->> 'max_running')::bigint,
       concurrency         = (said.spec ->> 'concurrency')::bigint,
       payload_max         = (said.spec ->> 'payload_max')::bigint,
       rate_limit          = (said.spec #>> '{rate_limit,count}')::bigint,
       rate_window         = round((said.spec #>> '{rate_limit,seconds}')::numeric * 1000000)::bigint,
       submit_limit        = (said.spec #>> '{submit_limit,count}')::bigint,
       submit_window       = round((said.spec #>> '{submit_limit,seconds}')::numeric * 1000000)::bigint,
       queue_ttl           = CASE WHEN said.spec ->> 'queue_ttl' IS NOT NULL
                                  THEN greatest(1, round((said.spec ->> 'queue_ttl')::numeric * 1000000)::bigint) END,
       dedup_window        = round((said.spec ->> 'dedup_window')::numeric * 1000000)::bigint,
       default_params      = coalesce(nullif((said.spec -> 'default_params')::text, 'null'), '{}')
  FROM said
 WHERE template_id = ANY (ARRAY[said.id]);

-- name: template_limits
SELECT max_running, rate_limit, rate_window FROM templates WHERE {this_template};

-- name: live_job_of_type
-- Jobs of a type among those that have not ended: each arm walks one partial index, and none of them history.
SELECT EXISTS (SELECT 1 FROM lanes AS n WHERE n.job_type = :job_type
                  AND EXISTS (SELECT 1 FROM job_live AS l WHERE l.lane = n.lane AND l.status = 'QUEUED' AND l.held IS NULL))
    OR EXISTS (SELECT 1 FROM job_live WHERE status = 'RUNNING' AND job_type = :job_type)
    OR EXISTS (SELECT 1 FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL AND job_type = :job_type)
    OR EXISTS (SELECT 1 FROM job_live WHERE status = 'PENDING' AND blockers = 0 AND job_type = :job_type)
    OR EXISTS (SELECT 1 FROM job_live WHERE status = 'PENDING' AND blockers > 0 AND job_type = :job_type);

-- name: ended_job_of_type
SELECT EXISTS (SELECT 1 FROM job_ends WHERE job_type = :job_type);

-- name: newest_job
-- Some thousands back: those who enqueue share the door, so a lower number may be committed after a higher one.
SELECT coalesce((SELECT number FROM job_facts ORDER BY number DESC LIMIT 1) - 10000, 0);

-- name: newer_job_of_type
SELECT EXISTS (SELECT 1 FROM job_facts WHERE number > :newest AND job_type = :job_type);

-- name: schedule_of_template
-- Schedules of a template, and jobs made by SQL that call its handler.
SELECT EXISTS (SELECT 1 FROM schedules WHERE template_id = :template_id::uuid AND dropped_at IS NULL)
    OR EXISTS (SELECT 1 FROM templates WHERE organization_id IS NOT NULL AND job_type = :job_type AND dropped_at IS NULL);

-- name: adhoc_type
SELECT handler FROM adhoc_types WHERE job_type = :job_type;

-- name: adhoc_types
SELECT job_type, handler FROM adhoc_types ORDER BY job_type;

-- name: adhoc_count
SELECT count(*) FROM adhoc_types;

-- name: put_adhoc_type
INSERT INTO adhoc_types (job_type, handler, created_by, created_at) VALUES (:job_type, :handler, :actor, :now);

-- name: oldest_adhoc_types
SELECT job_type FROM adhoc_types ORDER BY created_at, job_type LIMIT :limit;

-- name: drop_adhoc_type
DELETE FROM adhoc_types WHERE job_type = :job_type;

-- name: pause
INSERT INTO pauses (kind, name, paused_at, paused_by) VALUES (:kind, :name, :now, :actor) ON CONFLICT DO NOTHING;

-- name: resume
DELETE FROM pauses WHERE kind = :kind AND name = :name;

-- name: pauses
SELECT kind, name FROM pauses ORDER BY kind, name;

-- ---- settings -------------------------------------------------------------------------------------------------------

-- name: stored_settings
SELECT name, value, set_by, set_at FROM settings ORDER BY name;

-- name: stored_setting
SELECT value FROM settings WHERE name = :name;

-- name: set_setting
INSERT INTO settings (name, value, set_by, set_at) VALUES (:name, :value, :actor, :now)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, set_by = excluded.set_by, set_at = excluded.set_at;

-- name: reset_setting
DELETE FROM settings WHERE name = :name;
