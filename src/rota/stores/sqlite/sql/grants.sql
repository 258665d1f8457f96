-- Roles and grants.

-- name: role_columns
lower(hex(role_id)), organization_id, name, created_by, created_at

-- name: roles
SELECT {role_columns} FROM roles ORDER BY organization_id, name;

-- name: role
SELECT {role_columns} FROM roles WHERE role_id = unhex(:role_id);

-- name: add_role
INSERT INTO roles (role_id, organization_id, name, created_by, created_at)
VALUES (unhex(:role_id), :organization_id, :name, :actor, :now) ON CONFLICT DO NOTHING;

-- name: drop_role
DELETE FROM roles WHERE role_id = unhex(:role_id);

-- name: grant_columns
lower(hex(g.grant_id)), g.organization_id, g.grantee_kind, g.grantee, g.privilege, g.target_kind, g.target_id,
CASE g.target_kind
     WHEN 'JOB' THEN (SELECT s.name FROM schedules AS s WHERE s.schedule_id = unhex(g.target_id))
     WHEN 'ROLE' THEN (SELECT r.name FROM roles AS r WHERE r.role_id = unhex(g.target_id))
     ELSE g.target_id END,
CASE WHEN g.target_kind = 'JOB' THEN (SELECT s.created_by FROM schedules AS s WHERE s.schedule_id = unhex(g.target_id)) END,
g.grant_option, g.granted_by, g.granted_at

-- name: grants
SELECT {grant_columns} FROM grants AS g ORDER BY g.organization_id, g.grantee_kind, g.grantee, g.privilege, g.target_kind, g.target_id, g.granted_by;

-- name: grants_on
SELECT {grant_columns} FROM grants AS g WHERE g.target_kind = :target_kind AND g.target_id = :target_id;

-- name: put_grant
-- The same grant again may add the option to grant it further, and takes nothing away.
INSERT INTO grants AS g (grant_id, organization_id, grantee_kind, grantee, privilege, target_kind, target_id, grant_option, granted_by, granted_at)
VALUES (unhex(:grant_id), :organization_id, :grantee_kind, :grantee, :privilege, :target_kind, :target_id, :grant_option, :granted_by, :now)
ON CONFLICT (organization_id, grantee_kind, grantee, privilege, coalesce(target_kind, ''), coalesce(target_id, ''), granted_by)
DO UPDATE SET grant_option = 1 WHERE excluded.grant_option > g.grant_option;

-- name: narrow_grant
UPDATE grants SET grant_option = 0 WHERE grant_id = unhex(:grant_id) AND grant_option = 1;

-- name: remove_grant
DELETE FROM grants WHERE grant_id = unhex(:grant_id);

-- name: job_is_there
SELECT EXISTS (SELECT 1 FROM schedules WHERE schedule_id = unhex(:schedule_id) AND dropped_at IS NULL);

-- name: schedules_run_as
SELECT name FROM schedules WHERE organization_id = :organization_id AND run_as = :name AND dropped_at IS NULL LIMIT :limit;
