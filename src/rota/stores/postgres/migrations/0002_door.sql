-- The front door: tokens and browser sessions, of which only digests are kept.

CREATE TABLE tokens (
    token_id     uuid PRIMARY KEY,
    name         text NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    user_name    text COLLATE "C" REFERENCES users,                           -- NULL: the operator of this store
    hash         bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    permits      text NOT NULL CHECK (permits::json IS NOT NULL),
    created_by   text NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint CHECK (expires_at > created_at),
    revoked_at   bigint,
    last_used_at bigint
);

CREATE TABLE sessions (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    token_id   uuid NOT NULL REFERENCES tokens,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL CHECK (expires_at > created_at),
    ended_at   bigint
);

CREATE INDEX sessions_token ON sessions (token_id);
CREATE INDEX sessions_expired ON sessions (expires_at);

-- What did not fire, by its time: as small as what went otherwise than planned.
CREATE INDEX occurrences_unfired ON occurrences (last_due_at) WHERE fate <> 'FIRED';
