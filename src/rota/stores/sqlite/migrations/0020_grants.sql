-- Roles, and the privileges that users, roles and everybody in an organization were granted.

-- Every user has an id that outlives a change of anything else. Those that are there get one of the moment they were created.
ALTER TABLE users ADD COLUMN user_id BLOB CHECK (length(user_id) = 16);
UPDATE users SET user_id = unhex(printf('%012x', created_at / 1000) || '7' || substr(hex(randomblob(2)), 1, 3)
                                 || substr('89AB', 1 + (random() & 3), 1) || substr(hex(randomblob(8)), 1, 15));
CREATE UNIQUE INDEX users_id ON users (user_id);

CREATE TABLE roles (
    role_id         BLOB PRIMARY KEY CHECK (length(role_id) = 16),
    organization_id TEXT NOT NULL REFERENCES organizations,
    name            TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX roles_name ON roles (organization_id, name);
-- Jobs that run as a role: it stays while there are any.
CREATE INDEX schedules_run_as ON schedules (organization_id, run_as) WHERE run_as IS NOT NULL AND dropped_at IS NULL;

-- A grantee is a name; PUBLIC has none. A job and a role are named by their ids, connections and secrets by their names.
CREATE TABLE grants (
    grant_id        BLOB PRIMARY KEY CHECK (length(grant_id) = 16),
    organization_id TEXT NOT NULL REFERENCES organizations,
    grantee_kind    TEXT NOT NULL CHECK (grantee_kind IN ('USER', 'ROLE', 'PUBLIC')),
    grantee         TEXT NOT NULL CHECK ((grantee = '') = (grantee_kind = 'PUBLIC')),
    privilege       TEXT NOT NULL CHECK (privilege IN ('CREATE JOB', 'EXECUTE EXTERNAL JOB', 'VIEW JOB HISTORY', 'EXECUTE', 'ALTER', 'DROP', 'USE', 'ROLE')),
    target_kind     TEXT CHECK (target_kind IN ('JOB', 'ROLE', 'CONNECTION', 'SECRET')),
    target_id       TEXT CHECK ((target_id IS NULL) = (target_kind IS NULL)),
    grant_option    INTEGER NOT NULL CHECK (grant_option IN (0, 1)),
    granted_by      TEXT NOT NULL,
    granted_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX grants_once ON grants
    (organization_id, grantee_kind, grantee, privilege, coalesce(target_kind, ''), coalesce(target_id, ''), granted_by);
CREATE INDEX grants_on ON grants (target_kind, target_id) WHERE target_id IS NOT NULL;

-- Words of which there are few: SQLite can't add a CHECK to a table.
CREATE TRIGGER templates_words_new BEFORE INSERT ON templates
WHEN NEW.job_class NOT IN ('LOCAL_SAFE', 'LEADER_ONLY', 'QUORUM_REQUIRED')
     OR NEW.partition_strategy NOT IN ('ALL_SHARDS', 'SINGLE_SHARD', 'SHARD_SET', 'DYNAMIC')
BEGIN
    SELECT RAISE(ABORT, 'a job class or a partition strategy that does not exist');
END;
CREATE TRIGGER templates_words BEFORE UPDATE OF job_class, partition_strategy ON templates
WHEN NEW.job_class NOT IN ('LOCAL_SAFE', 'LEADER_ONLY', 'QUORUM_REQUIRED')
     OR NEW.partition_strategy NOT IN ('ALL_SHARDS', 'SINGLE_SHARD', 'SHARD_SET', 'DYNAMIC')
BEGIN
    SELECT RAISE(ABORT, 'a job class or a partition strategy that does not exist');
END;
