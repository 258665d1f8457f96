-- A store as a whole: what a copy needs beside its tables, and the mark of a store that was moved.

-- name: counters
-- What belongs to this store alone stays here. Numbers were given up to the highest there is, or was.
SELECT key, value FROM meta WHERE key NOT IN ('schema', 'definitions_version', 'number_floor', 'moved', 'moved_to')
UNION ALL
SELECT 'numbers', max(value, coalesce((SELECT max(number) FROM jobs), 0)) FROM meta WHERE key = 'number_floor';

-- name: put_counter
INSERT INTO meta (key, value) VALUES (iif(:key = 'numbers', 'number_floor', :key), :value)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: forget_counters
DELETE FROM meta WHERE key NOT IN ('schema', 'definitions_version', 'number_floor');

-- name: queue_order
SELECT job_id FROM jobs WHERE status = 'QUEUED' ORDER BY priority DESC, position, created_at, job_id;

-- name: tables_here
SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\';

-- name: triggers
SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger';

-- name: broken_rules
-- References that lead nowhere: they are looked at after the copy, all at once.
SELECT "table" || ' refers to what is not in ' || "parent", count(*) FROM pragma_foreign_key_check GROUP BY 1;

-- name: moved
SELECT m.value, w.value FROM meta AS m JOIN meta AS w ON w.key = 'moved_to' WHERE m.key = 'moved';

-- name: mark_moved
INSERT INTO meta (key, value) VALUES ('moved', :at), ('moved_to', :place) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: unmark_moved
DELETE FROM meta WHERE key IN ('moved', 'moved_to');
