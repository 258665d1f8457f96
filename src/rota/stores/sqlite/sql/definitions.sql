-- Templates, pauses, and the version that every change to them advances.

-- name: definitions_version
SELECT value FROM meta WHERE key = 'definitions_version';

-- name: advance_definitions
UPDATE meta SET value = value + 1 WHERE key = 'definitions_version';

-- name: put_template
INSERT INTO templates (template_id, name, job_type, defaults, created_by, created_at, updated_at)
VALUES (unhex(:template_id), :name, :job_type, :defaults, :actor, :now, :now)
ON CONFLICT (coalesce(organization_id, ''), name) WHERE dropped_at IS NULL
DO UPDATE SET defaults = excluded.defaults, job_type = excluded.job_type, version = version + 1, updated_at = excluded.updated_at
 WHERE defaults <> excluded.defaults OR job_type <> excluded.job_type;

-- name: templates
SELECT lower(hex(template_id)), name, job_type, state, version, defaults FROM templates WHERE dropped_at IS NULL ORDER BY name;

-- name: pause
INSERT INTO pauses (kind, name, paused_at, paused_by) VALUES (:kind, :name, :now, :actor) ON CONFLICT DO NOTHING;

-- name: resume
DELETE FROM pauses WHERE kind = :kind AND name = :name;

-- name: unpark
UPDATE jobs SET held = NULL WHERE status = 'QUEUED' AND held = :held;

-- name: pauses
SELECT kind, name FROM pauses ORDER BY kind, name;

-- name: schema_version
SELECT value FROM meta WHERE key = 'schema';

-- name: set_schema_version
INSERT INTO meta (key, value) VALUES ('schema', :version) ON CONFLICT (key) DO UPDATE SET value = excluded.value;
