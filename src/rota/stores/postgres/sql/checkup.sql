-- What `rota doctor` asks: of the store, and of the server about itself. Whoever may connect may ask; what a role may not see comes as NULL.

-- name: outbox_backlog
SELECT count(*), min(next_attempt_at) FROM outbox WHERE delivered_at IS NULL AND gave_up_at IS NULL AND next_attempt_at < :before;

-- name: server_clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: server_settings
SELECT name, setting, reset_val FROM pg_catalog.pg_settings WHERE name = ANY (:names);

-- name: server_state
SELECT current_setting('server_version'), pg_is_in_recovery(), current_user::text, age(d.datfrozenxid)::bigint, mxid_age(d.datminmxid)::bigint,
       pg_database_size(d.oid), d.datconnlimit, r.rolconnlimit, (SELECT sum(numbackends)::bigint FROM pg_catalog.pg_stat_database)
  FROM pg_catalog.pg_database AS d, pg_catalog.pg_roles AS r WHERE d.datname = current_database() AND r.rolname = current_user;

-- name: open_transactions
-- Others' in this database, the longest first, and whether they hold one of the locks that all verbs need.
SELECT a.pid, coalesce(a.usename, '')::text, coalesce(a.application_name, ''), a.state, extract(epoch FROM clock_timestamp() - a.xact_start)::float8,
       EXISTS (SELECT 1 FROM pg_catalog.pg_locks AS l
                WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.granted AND l.classid::bigint = :key::bigint)
  FROM pg_catalog.pg_stat_activity AS a
 WHERE a.datname = current_database() AND a.xact_start IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
 ORDER BY a.xact_start LIMIT :limit;

-- name: prepared_transactions
SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_catalog.pg_prepared_xacts
 WHERE database = current_database() ORDER BY prepared;

-- name: idle_slots
SELECT slot_name::text FROM pg_catalog.pg_replication_slots WHERE NOT active AND restart_lsn IS NOT NULL ORDER BY slot_name;

-- name: tables_kept
SELECT c.relname::text, c.relpersistence::text, coalesce(array_to_string(c.reloptions, ' '), ''), pg_table_size(c.oid), pg_indexes_size(c.oid),
       coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0), extract(epoch FROM clock_timestamp() - s.last_autovacuum)::float8
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_stat_all_tables AS s ON s.relid = c.oid
 WHERE n.nspname = :schema AND c.relkind IN ('r', 'p') ORDER BY c.relname;

-- name: indexes_kept
SELECT c.relname::text, i.indisvalid AND i.indisready AND i.indislive
  FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = :schema;

-- name: triggers_kept
SELECT t.tgname::text, t.tgenabled::text
  FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = :schema AND NOT t.tgisinternal;

-- name: roles_with_grants
-- Roles, but owners and superusers, that were granted something on a table of the schema.
SELECT DISTINCT r.rolname::text FROM pg_catalog.pg_class AS c
  CROSS JOIN LATERAL aclexplode(c.relacl) AS acl
  JOIN pg_catalog.pg_roles AS r ON r.oid = acl.grantee
 WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace AS n WHERE n.nspname = :schema) AND c.relkind IN ('r', 'v')
   AND NOT r.rolsuper AND NOT pg_has_role(r.oid, c.relowner, 'USAGE')
 ORDER BY 1 LIMIT :limit;

-- name: rights_missing
-- Of [kind, name, right, column or null], those that a role has not.
SELECT e.value::text FROM json_array_elements(:rows::json) AS e (value)
 WHERE NOT coalesce(CASE
           WHEN e.value ->> 0 = 'sequence' THEN has_sequence_privilege(:role::name, to_regclass(format('%I.%I', :schema, e.value ->> 1)), e.value ->> 2)
           WHEN e.value ->> 3 IS NULL THEN has_table_privilege(:role::name, to_regclass(format('%I.%I', :schema, e.value ->> 1)), e.value ->> 2)
           ELSE has_column_privilege(:role::name, to_regclass(format('%I.%I', :schema, e.value ->> 1)), e.value ->> 3, e.value ->> 2) END, false);
