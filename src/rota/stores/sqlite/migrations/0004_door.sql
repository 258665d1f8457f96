-- The front door: tokens and browser sessions, of which only digests are kept.

CREATE TABLE tokens (
    token_id     BLOB PRIMARY KEY CHECK (length(token_id) = 16),
    name         TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    user_name    TEXT REFERENCES users,                                       -- NULL: the operator of this store
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    permits      TEXT NOT NULL CHECK (json_valid(permits)),
    created_by   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER CHECK (expires_at > created_at),
    revoked_at   INTEGER,
    last_used_at INTEGER
) STRICT;

CREATE TABLE sessions (
    hash       BLOB PRIMARY KEY CHECK (length(hash) = 32),
    token_id   BLOB NOT NULL REFERENCES tokens,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL CHECK (expires_at > created_at),
    ended_at   INTEGER
) STRICT;

CREATE INDEX sessions_token ON sessions (token_id);
CREATE INDEX sessions_expired ON sessions (expires_at);

-- What did not fire, by its time: as small as what went otherwise than planned.
CREATE INDEX occurrences_unfired ON occurrences (last_due_at) WHERE fate <> 'FIRED';
