-- Connections.

-- name: connection_columns
lower(hex(connection_id)), organization_id, name, url, login, secret, multi, version, created_by, created_at, updated_at

-- name: connections
SELECT {connection_columns} FROM connections ORDER BY organization_id, name;

-- name: connection
SELECT {connection_columns} FROM connections WHERE organization_id = :organization_id AND name = :name;

-- name: add_connection
INSERT INTO connections (connection_id, organization_id, name, url, login, secret, multi, created_by, created_at, updated_at)
VALUES (unhex(:connection_id), :organization_id, :name, :url, :login, :secret, :multi, :actor, :now, :now);

-- name: change_connection
UPDATE connections SET url = :url, login = :login, secret = :secret, multi = :multi, version = version + 1, updated_at = :now
 WHERE organization_id = :organization_id AND name = :name;

-- name: drop_connection
DELETE FROM connections WHERE organization_id = :organization_id AND name = :name;

-- name: connection_is_there
SELECT EXISTS (SELECT 1 FROM connections WHERE organization_id = :organization_id AND name = :name);

-- name: connections_naming_secret
SELECT name FROM connections WHERE organization_id = :organization_id AND secret = :name ORDER BY name LIMIT :limit;

-- name: users_of_connection
-- Jobs of the organization, and templates that all organizations share, that name it; with a `kind`, those of that kind that name none, too.
-- What people say takes precedence over the code.
SELECT u.name FROM (
    SELECT coalesce(s.name, 'template ' || t.name) AS name, t.kind,
           json_extract(json_patch(t.defaults, t.overrides), '$.connection') AS connection
      FROM templates AS t
      LEFT JOIN schedules AS s ON s.template_id = t.template_id AND s.dropped_at IS NULL AND t.organization_id IS NOT NULL
     WHERE t.dropped_at IS NULL AND (t.organization_id IS NULL OR s.organization_id = :organization_id)
) AS u
 WHERE u.connection = :name OR (u.connection IS NULL AND u.kind = :kind)
 ORDER BY 1 LIMIT :limit;
