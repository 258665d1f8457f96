-- Secrets of organizations and of single jobs, encrypted: the body with a key of its own, and that key (wrapped) with the master key key_id.

CREATE TABLE secrets (
    secret_id       BLOB PRIMARY KEY CHECK (length(secret_id) = 16),
    organization_id TEXT NOT NULL REFERENCES organizations,
    name            TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 128 AND name NOT GLOB '*[^A-Za-z0-9_]*' AND name NOT GLOB '[0-9]*'),
    schedule_id     BLOB REFERENCES schedules ON DELETE CASCADE,   -- the job that alone has it; NULL: jobs of the organization may name it
    version         INTEGER NOT NULL CHECK (version >= 1),
    key_id          TEXT NOT NULL,
    wrapped         BLOB NOT NULL,
    body            BLOB NOT NULL,
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    last_used_at    INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX secrets_of_organization ON secrets (organization_id, name) WHERE schedule_id IS NULL;
CREATE UNIQUE INDEX secrets_of_job ON secrets (schedule_id, name) WHERE schedule_id IS NOT NULL;
-- Those that are still under an old key.
CREATE INDEX secrets_key ON secrets (key_id, secret_id);
