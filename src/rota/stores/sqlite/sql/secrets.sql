-- Secrets, encrypted.

-- name: stored_secret_columns
lower(hex(s.secret_id)), s.organization_id, s.name, j.name, lower(hex(s.schedule_id)), s.version, s.key_id, s.created_by, s.created_at, s.updated_at,
s.last_used_at

-- name: stored_secrets
SELECT {stored_secret_columns} FROM secrets AS s LEFT JOIN schedules AS j ON j.schedule_id = s.schedule_id
 ORDER BY s.organization_id, s.name, j.name IS NOT NULL, j.name;

-- name: stored_secret
SELECT {stored_secret_columns} FROM secrets AS s LEFT JOIN schedules AS j ON j.schedule_id = s.schedule_id
 WHERE s.organization_id = :organization_id AND s.name = :name AND s.schedule_id IS unhex(:schedule_id);

-- name: sealed_columns
lower(hex(secret_id)), organization_id, name, lower(hex(schedule_id)), version, key_id, wrapped, body

-- name: sealed_secrets
-- All of the job's own, and those of the organization that are asked for and that the job has not.
SELECT {sealed_columns} FROM secrets WHERE schedule_id = unhex(:schedule_id)
 UNION ALL
SELECT {sealed_columns} FROM secrets AS s
 WHERE organization_id = :organization_id AND schedule_id IS NULL AND name IN (SELECT value FROM json_each(:names))
       AND NOT EXISTS (SELECT 1 FROM secrets AS o WHERE o.schedule_id = unhex(:schedule_id) AND o.name = s.name);

-- name: add_stored_secret
INSERT INTO secrets (secret_id, organization_id, name, schedule_id, version, key_id, wrapped, body, created_by, created_at, updated_at)
VALUES (unhex(:secret_id), :organization_id, :name, unhex(:schedule_id), :version, :key_id, :wrapped, :sealed_body, :actor, :now, :now);

-- name: change_stored_secret
UPDATE secrets SET version = :version, key_id = :key_id, wrapped = :wrapped, body = :sealed_body, updated_at = :now WHERE secret_id = unhex(:secret_id);

-- name: drop_stored_secret
DELETE FROM secrets WHERE secret_id = unhex(:secret_id);

-- name: secrets_of_job
SELECT {stored_secret_columns} FROM secrets AS s LEFT JOIN schedules AS j ON j.schedule_id = s.schedule_id WHERE s.schedule_id = unhex(:schedule_id);

-- name: users_of_secret
-- Jobs of the organization, and templates that all organizations share, that name it.
SELECT coalesce(s.name, 'template ' || t.name)
  FROM templates AS t
  LEFT JOIN schedules AS s ON s.template_id = t.template_id AND s.dropped_at IS NULL AND t.organization_id IS NOT NULL
 WHERE t.dropped_at IS NULL AND (t.organization_id IS NULL OR s.organization_id = :organization_id) AND t.kind <> 'python'
       AND EXISTS (SELECT 1 FROM json_each(t.defaults, '$.secrets') AS e WHERE e.value = :name)
 ORDER BY 1 LIMIT :limit;

-- name: note_secrets_used
UPDATE secrets SET last_used_at = :now WHERE secret_id IN (SELECT unhex(value) FROM json_each(:secret_ids)) AND coalesce(last_used_at, 0) < :now;

-- name: secrets_to_rewrap
SELECT {sealed_columns} FROM secrets WHERE key_id <> :key_id AND secret_id > unhex(:after_id) ORDER BY secret_id LIMIT :limit;

-- name: rewrap_secret
-- One whose value was set in the meantime, or that another process has rewrapped, is left.
UPDATE secrets SET key_id = :key_id, wrapped = :wrapped WHERE secret_id = unhex(:secret_id) AND version = :version AND key_id = :old_key_id;

-- name: keys_of_secrets
SELECT key_id, count(*) FROM secrets GROUP BY key_id ORDER BY key_id;
