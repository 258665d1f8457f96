-- Webhooks: who is told of ends, and what became of each message.

CREATE TABLE endpoints (
    endpoint_id     BLOB PRIMARY KEY CHECK (length(endpoint_id) = 16),
    organization_id TEXT NOT NULL,
    root_id         BLOB CHECK (length(root_id) = 16),           -- the one chain it is for; NULL: all of the organization's
    url             TEXT NOT NULL CHECK (length(url) BETWEEN 1 AND 2048),
    description     TEXT,
    events          TEXT NOT NULL CHECK (json_valid(events)),
    job_types       TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(job_types)),   -- empty: all
    with_result     INTEGER NOT NULL DEFAULT 0 CHECK (with_result IN (0, 1)),
    state           TEXT NOT NULL DEFAULT 'ENABLED' CHECK (state IN ('ENABLED', 'DISABLED')),
    reason          TEXT,                                        -- why it is disabled
    failing_since   INTEGER,
    last_status     INTEGER,
    last_error      TEXT,
    version         INTEGER NOT NULL DEFAULT 1,
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    dropped_at      INTEGER
) STRICT;

-- Whether anybody is to be told at all, and who.
CREATE INDEX endpoints_open ON endpoints (organization_id, root_id) WHERE state = 'ENABLED' AND dropped_at IS NULL;
CREATE INDEX endpoints_root ON endpoints (root_id) WHERE root_id IS NOT NULL;

-- A digest will not do: messages are signed with it. Beside the endpoints, so that who may read those need not read this.
CREATE TABLE hook_secrets (
    owner          TEXT PRIMARY KEY,                             -- an endpoint's id, or `organization:` and a name
    secret         TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    previous       TEXT,                                         -- signs too, until then
    previous_until INTEGER
) STRICT, WITHOUT ROWID;

ALTER TABLE organizations ADD COLUMN signs INTEGER NOT NULL DEFAULT 0 CHECK (signs IN (0, 1));   -- it has a secret of its own

ALTER TABLE outbox ADD COLUMN organization_id TEXT NOT NULL DEFAULT 'default';
ALTER TABLE outbox ADD COLUMN endpoint_id BLOB;
ALTER TABLE outbox ADD COLUMN lane TEXT NOT NULL DEFAULT '';     -- host and organization: who waits behind whom
ALTER TABLE outbox ADD COLUMN last_status INTEGER;
ALTER TABLE outbox ADD COLUMN last_attempt_at INTEGER;
ALTER TABLE outbox ADD COLUMN gave_up_at INTEGER;

DROP INDEX outbox_due;
CREATE INDEX outbox_due ON outbox (next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;
CREATE INDEX outbox_lanes ON outbox (lane, next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;
CREATE INDEX outbox_over ON outbox (coalesce(delivered_at, gave_up_at)) WHERE coalesce(delivered_at, gave_up_at) IS NOT NULL;
CREATE INDEX outbox_endpoint ON outbox (endpoint_id, outbox_id);
CREATE INDEX outbox_organization ON outbox (organization_id, outbox_id);
