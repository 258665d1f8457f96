-- What keeps a login from being used by jobs, the first reason only. Asked at each connect, with search_path = pg_catalog: a role can have
-- a search_path of its own, with functions in it that are called like these. A login can become every role that it is a member of.
WITH reachable AS MATERIALIZED (
    SELECT r.oid, r.rolname::text AS role, r.rolsuper, r.rolcreaterole
      FROM pg_catalog.pg_roles AS r
     WHERE pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER')
), homes AS MATERIALIZED (
    -- Schemas that have Rota's tables.
    SELECT n.oid, n.nspname::text AS name, n.nspowner
      FROM pg_catalog.pg_namespace AS n
     WHERE n.oid IN (SELECT c.relnamespace FROM pg_catalog.pg_class AS c
                      WHERE c.relname IN ('meta', 'job_facts', 'job_live', 'job_ends') GROUP BY c.relnamespace HAVING count(*) = 4)
)
SELECT 'superuser' AS reason, role, '' AS name FROM reachable WHERE rolsuper
 UNION ALL
SELECT 'server', role, '' FROM reachable WHERE role IN ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files')
 UNION ALL
SELECT 'replication', rolname::text, '' FROM pg_catalog.pg_roles WHERE rolname = session_user AND rolreplication
 UNION ALL
-- Before PostgreSQL 16 such a role could make itself a member of nearly any other.
SELECT 'createrole', role, '' FROM reachable WHERE rolcreaterole AND pg_catalog.current_setting('server_version_num')::int < 160000
 UNION ALL
SELECT 'owner', r.role, h.name FROM homes AS h JOIN reachable AS r ON r.oid = h.nspowner
 UNION ALL
SELECT 'create', r.role, h.name FROM homes AS h CROSS JOIN reachable AS r WHERE pg_catalog.has_schema_privilege(r.oid, h.oid, 'CREATE')
 UNION ALL
-- In a schema that everybody may look into, such as public, rights on its tables decide.
SELECT 'usage', r.role, h.name FROM homes AS h CROSS JOIN reachable AS r
 WHERE pg_catalog.has_schema_privilege(r.oid, h.oid, 'USAGE') AND NOT pg_catalog.has_schema_privilege('public', h.oid, 'USAGE')
 UNION ALL
SELECT 'table', r.role, h.name || '.' || c.relname
  FROM homes AS h JOIN pg_catalog.pg_class AS c ON c.relnamespace = h.oid CROSS JOIN reachable AS r
 WHERE CASE c.relkind
       WHEN 'S' THEN pg_catalog.has_sequence_privilege(r.oid, c.oid, 'USAGE, SELECT, UPDATE')
       WHEN 'i' THEN false WHEN 'I' THEN false WHEN 't' THEN false WHEN 'c' THEN false
       ELSE pg_catalog.has_table_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
            OR pg_catalog.has_any_column_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, REFERENCES') END
 LIMIT 1
