-- What is asked of the server itself.

-- name: tables_here
SELECT c.relname::text FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = :schema AND c.relkind IN ('r', 'p', 'v');

-- name: schema_rights
-- Who asks, and what it may do with the schema, which may not be there yet.
SELECT current_user::text, n.oid IS NOT NULL, has_schema_privilege(n.oid, 'USAGE'),
       CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE') ELSE has_schema_privilege(n.oid, 'CREATE') END,
       pg_get_userbyid(n.nspowner)::text,
       (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_catalog.pg_class AS c WHERE c.relnamespace = n.oid AND c.relname = 'meta')
  FROM (SELECT 1) AS one LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = :schema;

-- name: snapshot_now
-- Which transactions are over: another text means that somebody has begun or committed one that writes.
SELECT pg_current_snapshot()::text;

-- name: place
-- Which database of which server: a name, and a moment that no two servers share.
SELECT current_database()::text, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text;

-- name: mark
-- Something to write, so that the commit is one that standbys acknowledge.
SELECT pg_logical_emit_message(true, 'rota', '');

-- name: schema_version
SELECT value FROM meta WHERE key = 'schema';

-- name: set_schema_version
INSERT INTO meta (key, value) VALUES ('schema', :version) ON CONFLICT (key) DO UPDATE SET value = excluded.value;
