-- Roles, and the privileges that users, roles and everybody in an organization were granted.

-- Every user has an id that outlives a change of anything else. Those that are there get one of the moment they were created.
ALTER TABLE users ADD COLUMN user_id uuid;
UPDATE users SET user_id = overlay(overlay(replace(gen_random_uuid()::text, '-', '') PLACING lpad(to_hex(created_at / 1000), 12, '0') FROM 1 FOR 12)
                                   PLACING '7' FROM 13 FOR 1)::uuid;
CREATE UNIQUE INDEX users_id ON users (user_id);

CREATE TABLE roles (
    role_id         uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL REFERENCES organizations,
    name            text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    created_by      text NOT NULL,
    created_at      bigint NOT NULL
);
CREATE UNIQUE INDEX roles_name ON roles (organization_id, name);
-- Jobs that run as a role: it stays while there are any.
CREATE INDEX schedules_run_as ON schedules (organization_id, run_as) WHERE run_as IS NOT NULL AND dropped_at IS NULL;

-- A grantee is a name; PUBLIC has none. A job and a role are named by their ids, connections and secrets by their names.
CREATE TABLE grants (
    grant_id        uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL REFERENCES organizations,
    grantee_kind    text NOT NULL CHECK (grantee_kind IN ('USER', 'ROLE', 'PUBLIC')),
    grantee         text COLLATE "C" NOT NULL CHECK ((grantee = '') = (grantee_kind = 'PUBLIC')),
    privilege       text NOT NULL CHECK (privilege IN ('CREATE JOB', 'EXECUTE EXTERNAL JOB', 'VIEW JOB HISTORY', 'EXECUTE', 'ALTER', 'DROP', 'USE', 'ROLE')),
    target_kind     text CHECK (target_kind IN ('JOB', 'ROLE', 'CONNECTION', 'SECRET')),
    target_id       text COLLATE "C" CHECK ((target_id IS NULL) = (target_kind IS NULL)),
    grant_option    integer NOT NULL CHECK (grant_option IN (0, 1)),
    granted_by      text COLLATE "C" NOT NULL,
    granted_at      bigint NOT NULL
);
CREATE UNIQUE INDEX grants_once ON grants
    (organization_id, grantee_kind, grantee, privilege, coalesce(target_kind, ''), coalesce(target_id, ''), granted_by);
CREATE INDEX grants_on ON grants (target_kind, target_id) WHERE target_id IS NOT NULL;

-- Words of which there are few. Rows that are there are not looked at.
ALTER TABLE templates ADD CONSTRAINT templates_job_class
    CHECK (job_class IN ('LOCAL_SAFE', 'LEADER_ONLY', 'QUORUM_REQUIRED')) NOT VALID;
ALTER TABLE templates ADD CONSTRAINT templates_partition_strategy
    CHECK (partition_strategy IN ('ALL_SHARDS', 'SINGLE_SHARD', 'SHARD_SET', 'DYNAMIC')) NOT VALID;
