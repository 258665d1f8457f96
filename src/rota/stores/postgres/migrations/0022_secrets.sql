-- Secrets of organizations and of single jobs, encrypted: the body with a key of its own, and that key (wrapped) with the master key key_id.

CREATE TABLE secrets (
    secret_id       uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL REFERENCES organizations,
    name            text COLLATE "C" NOT NULL CHECK (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,127}$'),
    schedule_id     uuid REFERENCES schedules ON DELETE CASCADE,   -- the job that alone has it; NULL: jobs of the organization may name it
    version         bigint NOT NULL CHECK (version >= 1),
    key_id          text COLLATE "C" NOT NULL,
    wrapped         bytea NOT NULL,
    body            bytea NOT NULL,
    created_by      text NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    last_used_at    bigint
);
CREATE UNIQUE INDEX secrets_of_organization ON secrets (organization_id, name) WHERE schedule_id IS NULL;
CREATE UNIQUE INDEX secrets_of_job ON secrets (schedule_id, name) WHERE schedule_id IS NOT NULL;
-- Those that are still under an old key.
CREATE INDEX secrets_key ON secrets (key_id, secret_id);
