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
-- Jobs and templates that name it; with a `kind`, those of that kind that name none, too. What people say takes precedence over the code.
SELECT DISTINCT coalesce(s.name, t.name)
  FROM (SELECT template_id, name, kind, organization_id, json_extract(json_patch(defaults, overrides), '$.connection') AS connection
          FROM templates WHERE dropped_at IS NULL) AS t
  LEFT JOIN schedules AS s ON s.template_id = t.template_id AND s.dropped_at IS NULL
 WHERE coalesce(s.organization_id, t.organization_id, :organization_id) = :organization_id
       AND (t.connection = :name OR (t.connection IS NULL AND t.kind = :kind))
 ORDER BY 1 LIMIT :limit;
