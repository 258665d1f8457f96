-- Webhooks: who is told of ends, and what became of each message.

CREATE TABLE endpoints (
    endpoint_id     uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL,
    root_id         uuid,                                                     -- the one chain it is for; NULL: all of the organization's
    url             text NOT NULL CHECK (length(url) BETWEEN 1 AND 2048),
    description     text,
    events          text NOT NULL CHECK (events::json IS NOT NULL),
    job_types       text NOT NULL DEFAULT '[]' CHECK (job_types::json IS NOT NULL),   -- empty: all
    with_result     integer NOT NULL DEFAULT 0 CHECK (with_result IN (0, 1)),
    state           text COLLATE "C" NOT NULL DEFAULT 'ENABLED' CHECK (state IN ('ENABLED', 'DISABLED')),
    reason          text,                                                     -- why it is disabled
    failing_since   bigint,
    last_status     integer,
    last_error      text,
    version         integer NOT NULL DEFAULT 1,
    created_by      text NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    dropped_at      bigint
);

-- Whether anybody is to be told at all, and who.
CREATE INDEX endpoints_open ON endpoints (organization_id, root_id) WHERE state = 'ENABLED' AND dropped_at IS NULL;
CREATE INDEX endpoints_root ON endpoints (root_id) WHERE root_id IS NOT NULL;

-- A digest will not do: messages are signed with it. Beside the endpoints, so that who may read those need not read this.
CREATE TABLE hook_secrets (
    owner          text COLLATE "C" PRIMARY KEY,                              -- an endpoint's id, or `organization:` and a name
    secret         text NOT NULL,
    created_at     bigint NOT NULL,
    previous       text,                                                      -- signs too, until then
    previous_until bigint
);

ALTER TABLE organizations ADD COLUMN signs integer NOT NULL DEFAULT 0 CHECK (signs IN (0, 1));   -- it has a secret of its own

ALTER TABLE outbox ADD COLUMN organization_id text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE outbox ADD COLUMN endpoint_id uuid;
ALTER TABLE outbox ADD COLUMN lane text COLLATE "C" NOT NULL DEFAULT '';      -- host and organization: who waits behind whom
ALTER TABLE outbox ADD COLUMN last_status integer;
ALTER TABLE outbox ADD COLUMN last_attempt_at bigint;
ALTER TABLE outbox ADD COLUMN gave_up_at bigint;

DROP INDEX outbox_due;
CREATE INDEX outbox_due ON outbox (next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;
CREATE INDEX outbox_lanes ON outbox (lane, next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;
CREATE INDEX outbox_over ON outbox ((coalesce(delivered_at, gave_up_at))) WHERE coalesce(delivered_at, gave_up_at) IS NOT NULL;
CREATE INDEX outbox_endpoint ON outbox (endpoint_id, outbox_id);
CREATE INDEX outbox_organization ON outbox (organization_id, outbox_id);
