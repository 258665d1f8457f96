-- Connections: databases that jobs in SQL use. A password is never here: `secret` is the name of one.

CREATE TABLE connections (
    connection_id   uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL REFERENCES organizations,
    name            text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    url             text NOT NULL CHECK (length(url) BETWEEN 1 AND 2000),
    login           text,
    secret          text COLLATE "C",
    multi           integer NOT NULL DEFAULT 0 CHECK (multi IN (0, 1)),
    version         bigint NOT NULL DEFAULT 1,
    created_by      text NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL
);
CREATE UNIQUE INDEX connections_name ON connections (organization_id, name);

-- Grants on connections were names of nothing until now. A connection that is created under such a name is not meant by them.
DELETE FROM grants WHERE target_kind = 'CONNECTION';
