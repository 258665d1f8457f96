-- Connections: databases that jobs in SQL use. A password is never here: `secret` is the name of one.

CREATE TABLE connections (
    connection_id   BLOB PRIMARY KEY CHECK (length(connection_id) = 16),
    organization_id TEXT NOT NULL REFERENCES organizations,
    name            TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    url             TEXT NOT NULL CHECK (length(url) BETWEEN 1 AND 2000),
    login           TEXT,
    secret          TEXT,
    multi           INTEGER NOT NULL DEFAULT 0 CHECK (multi IN (0, 1)),
    version         INTEGER NOT NULL DEFAULT 1,
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX connections_name ON connections (organization_id, name);

-- Grants on connections were names of nothing until now. A connection that is created under such a name is not meant by them.
DELETE FROM grants WHERE target_kind = 'CONNECTION';
