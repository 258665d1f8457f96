-- Organizations and users.

-- name: organizations
SELECT organization_id, display_name, state, max_running, max_queued, max_priority, created_at FROM organizations ORDER BY organization_id;

-- name: organization
SELECT organization_id, display_name, state, max_running, max_queued, max_priority, created_at FROM organizations
 WHERE organization_id = :name;

-- name: put_organization
-- Its state stays: only `set_organization_state` changes that.
INSERT INTO organizations (organization_id, display_name, max_running, max_queued, max_priority, created_at)
VALUES (:name, :display_name, :max_running, :max_queued, :max_priority, :now)
ON CONFLICT (organization_id) DO UPDATE
   SET display_name = excluded.display_name, max_running = excluded.max_running, max_queued = excluded.max_queued,
       max_priority = excluded.max_priority;

-- name: set_organization_state
UPDATE organizations SET state = :state WHERE organization_id = :name;

-- name: users
SELECT name, organization_id, role, permissions, state, created_at, hex(user_id) FROM users ORDER BY name;

-- name: user
SELECT name, organization_id, role, permissions, state, created_at, hex(user_id) FROM users WHERE name = :name;

-- name: put_user
-- One that is there keeps its id.
INSERT INTO users (name, user_id, organization_id, role, permissions, created_by, created_at, updated_at)
VALUES (:name, :user_id, :organization_id, :role, :permissions, :actor, :now, :now)
ON CONFLICT (name) DO UPDATE
   SET organization_id = excluded.organization_id, role = excluded.role, permissions = excluded.permissions, state = 'ACTIVE',
       updated_at = excluded.updated_at;

-- name: remove_user
UPDATE users SET state = 'REMOVED', updated_at = :now WHERE name = :name;

-- name: other_managers
SELECT EXISTS (SELECT 1 FROM users WHERE role = 'system_manager' AND state = 'ACTIVE' AND name <> :name);
