-- The ledger: what became of each due time, and the jobs that came of those that fired.

-- name: insert_occurrences
-- Each row: [schedule, due, last due, count, fate, reason, job id or null].
INSERT INTO occurrences (schedule_id, due_at, last_due_at, count, fate, reason, job_id, recorded_at)
SELECT unhex(e.value ->> 0), e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value ->> 5, unhex(e.value ->> 6), :now
  FROM json_each(:rows) AS e;

-- name: insert_fired
-- The rows of jobs that were just made.
INSERT INTO occurrences (schedule_id, due_at, last_due_at, count, fate, job_id, recorded_at)
SELECT schedule_id, due_at, due_at, 1, 'FIRED', job_id, :now FROM jobs WHERE number BETWEEN :first AND :last;

-- name: note_reasons
-- :rows is a JSON array of [schedule, due time, reason], of rows that say FIRED.
UPDATE occurrences SET reason = e.value ->> 2 FROM json_each(:rows) AS e
 WHERE schedule_id = unhex(e.value ->> 0) AND due_at = e.value ->> 1 AND fate = 'FIRED';

-- name: spread_until
SELECT coalesce(max(at), 0) FROM rate_log WHERE key = 'catch-up';

-- name: note_spread
INSERT INTO rate_log (key, at, count) VALUES ('catch-up', :at, 1);

-- name: forget_spread
DELETE FROM rate_log WHERE key = 'catch-up';

-- name: newest_occurrence
-- Up to the cursor: what fired beyond it did so when the clock was ahead. What was recorded before the last edit stays as it is.
SELECT due_at, fate, reason, last_due_at FROM (
    SELECT * FROM occurrences WHERE schedule_id = unhex(:schedule_id) AND due_at <= :cursor_at ORDER BY due_at DESC LIMIT 1) AS o
 WHERE recorded_at > (SELECT updated_at FROM schedules AS s WHERE s.schedule_id = o.schedule_id);

-- name: extend_occurrence
UPDATE occurrences SET last_due_at = max(last_due_at, :last_due_at), count = count + :count, recorded_at = :now
 WHERE schedule_id = unhex(:schedule_id) AND due_at = :due_at AND fate = :fate;

-- name: take_back_occurrences
-- Fates that were given for times that have not come after all. Where there is a job, there can't be another.
DELETE FROM occurrences WHERE schedule_id = unhex(:schedule_id) AND due_at > :now AND job_id IS NULL;

-- name: keep_told
-- What was told of times that have not come after all, as it was told. Where something is kept from before, only what lies before that:
-- the rest is of a clock that may have been wrong itself.
INSERT INTO occurrences_told (schedule_id, due_at, last_due_at, count, fate, reason, recorded_at)
SELECT o.schedule_id, o.due_at, o.last_due_at, o.count, o.fate, o.reason, o.recorded_at
  FROM schedules AS s CROSS JOIN occurrences AS o ON o.schedule_id = s.schedule_id
 WHERE s.schedule_id = unhex(:schedule_id) AND o.last_due_at > :now AND o.job_id IS NULL AND (s.told_from IS NULL OR o.last_due_at <= s.told_from)
    ON CONFLICT (schedule_id, due_at, fate) DO NOTHING;

-- name: told
SELECT due_at, last_due_at, count, fate, reason, recorded_at FROM occurrences_told
 WHERE schedule_id = unhex(:schedule_id) AND last_due_at > :after ORDER BY due_at;

-- name: told_from
SELECT told_from FROM schedules WHERE schedule_id = unhex(:schedule_id);

-- name: told_again
-- What was cut of it goes on where it was.
INSERT OR REPLACE INTO occurrences (schedule_id, due_at, last_due_at, count, fate, reason, recorded_at)
VALUES (unhex(:schedule_id), :due_at, :last_due_at, :count, :fate, :reason, :recorded_at);

-- name: forget_told
DELETE FROM occurrences_told WHERE schedule_id = unhex(:schedule_id);

-- name: reaching_occurrences
SELECT due_at, fate, count FROM occurrences WHERE schedule_id = unhex(:schedule_id) AND due_at <= :now AND last_due_at > :now ORDER BY due_at DESC;

-- name: counted_inside
-- What other rows count from a moment on: due times that a row which reaches over them does not have.
SELECT coalesce(sum(count), 0) FROM occurrences
 WHERE schedule_id = unhex(:schedule_id) AND due_at > :due_at AND due_at <= :now AND fate <> 'SKIPPED_DST_GAP';

-- name: begins_inside
-- Where the row begins that has this due time, if it begins after another one that reaches over it.
SELECT max(due_at) FROM occurrences
 WHERE schedule_id = unhex(:schedule_id) AND due_at > :due_at AND due_at <= :last_due_at AND last_due_at >= :last_due_at AND fate <> 'SKIPPED_DST_GAP';

-- name: cut_occurrence
UPDATE occurrences SET last_due_at = :last_due_at, count = :count WHERE schedule_id = unhex(:schedule_id) AND due_at = :due_at AND fate = :fate;

-- name: next_number
-- The number to go on with where the newest jobs were deleted, NULL otherwise: SQLite counts on by itself.
SELECT iif(value >= coalesce((SELECT max(number) FROM jobs), 0), value + 1, NULL) FROM meta WHERE key = 'number_floor';

-- name: insert_jobs_due
-- Jobs of schedules, of one shape and one due time: :bodies is a JSON array of their params, :ids and :schedules hold 16 bytes for each.
INSERT INTO jobs (number, job_id, root_id, params, position, schedule_id, due_at, run_as, {new_columns})
SELECT :number + e.key, substr(:ids, e.key * 16 + 1, 16), substr(:ids, e.key * 16 + 1, 16), e.value, :position + :gap * e.key,
       substr(:schedules, e.key * 16 + 1, 16), :due_at, :run_as, {new_values}
  FROM json_each(:bodies) AS e;

-- name: insert_job_due
-- One job of a schedule, with the values of insert_job.
INSERT INTO jobs (number, job_id, root_id, params, position, schedule_id, due_at, run_as, {new_columns})
VALUES (:number, :ids, :ids, :params, :position, :schedule_id, :due_at, :run_as, {new_values});

-- ---- waiting for other schedules -----------------------------------------------------------------------------------

-- name: fired_in_window
-- The latest due time of a schedule in a window, with its fate and job; a span that begins before the window did not fire anyway.
SELECT o.fate, lower(hex(o.job_id)) FROM occurrences AS o
 WHERE o.schedule_id = unhex(:schedule_id) AND o.due_at <= :until AND o.due_at > :after AND o.fate <> 'SKIPPED_DST_GAP'
 ORDER BY o.due_at DESC LIMIT 1;

-- name: ended_in_window
-- The latest chain of a schedule that ended in a window, among its latest due times and what was fired by hand.
SELECT lower(hex(j.root_id)) FROM (
    SELECT number FROM (SELECT number FROM jobs INDEXED BY jobs_occurrence
                         WHERE schedule_id IS NOT NULL AND schedule_id = unhex(:schedule_id) AND due_at IS NOT NULL
                         ORDER BY due_at DESC, attempt DESC LIMIT :look)
    UNION ALL
    SELECT number FROM (SELECT number FROM jobs INDEXED BY jobs_occurrence
                         WHERE schedule_id IS NOT NULL AND schedule_id = unhex(:schedule_id) AND due_at IS NULL
                         ORDER BY attempt DESC, number DESC LIMIT :look)) AS some
 CROSS JOIN jobs AS j ON j.number = some.number
 WHERE j.finished_at > :after AND j.finished_at <= :until
   AND j.status IN ('COMPLETED', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED') AND NOT EXISTS (SELECT 1 FROM jobs AS n WHERE n.retry_of = j.job_id)
 ORDER BY j.finished_at DESC LIMIT 1;

-- name: add_schedule_edge
INSERT INTO job_edges (child, parent_root, needs, on_failure, source, resolved_at, until)
VALUES (:child, unhex(:parent), 'success', 'wait', 'schedule', :resolved_at, :until);

-- name: note_schedules_completed
-- Schedules of which a chain has completed, by the numbers of the tails, as far as anybody waits for any of their chains.
INSERT INTO ended_roots (root_id, status)
SELECT j.schedule_id, 'COMPLETED' FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value
 WHERE +j.schedule_id IS NOT NULL AND j.status = 'COMPLETED'
   AND EXISTS (SELECT 1 FROM job_edges INDEXED BY edges_open WHERE parent_root = j.schedule_id AND resolved_at IS NULL)
    ON CONFLICT (root_id) DO NOTHING;

-- name: let_any_do
-- Those who waited for a chain of a schedule that did not complete wait for any chain of that schedule from now on.
-- From the chains to the edges, not the other way: there may be many who wait, and few that ended.
UPDATE OR REPLACE job_edges SET parent_root = (SELECT r.schedule_id FROM jobs AS r WHERE r.job_id = job_edges.parent_root)
 WHERE (child, parent_root) IN (
    SELECT w.child, w.parent_root FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value
     CROSS JOIN job_edges AS w INDEXED BY edges_open ON w.parent_root = j.root_id AND w.resolved_at IS NULL
     WHERE +j.schedule_id IS NOT NULL AND j.status IN ('DEAD_LETTER', 'SKIPPED', 'CANCELLED') AND w.source = 'schedule');

-- name: anybody_late
SELECT EXISTS (SELECT 1 FROM job_edges INDEXED BY edges_until WHERE resolved_at IS NULL AND until IS NOT NULL AND until <= :now);

-- name: waited_too_long
-- Jobs that still wait for another schedule although it is time to give up, with what their fate is written by.
SELECT j.number, lower(hex(j.schedule_id)), j.due_at, lower(hex(j.job_id)), json_group_array(DISTINCT coalesce(w.name, d.name))
  FROM (SELECT DISTINCT child FROM job_edges INDEXED BY edges_until
         WHERE resolved_at IS NULL AND until IS NOT NULL AND until <= :now LIMIT :limit) AS late
 CROSS JOIN jobs AS j ON j.number = late.child
 CROSS JOIN job_edges AS e ON e.child = j.number AND e.source = 'schedule' AND +e.resolved_at IS NULL
  LEFT JOIN schedules AS w ON w.schedule_id = e.parent_root
  LEFT JOIN jobs AS p ON p.job_id = e.parent_root
  LEFT JOIN schedules AS d ON d.schedule_id = p.schedule_id
 GROUP BY j.number;

-- name: fate_of_dependency
UPDATE occurrences SET fate = 'SKIPPED_DEPENDENCY', reason = :reason, recorded_at = :now
 WHERE schedule_id = unhex(:schedule_id) AND due_at = :due_at AND fate = 'FIRED';

-- name: wait_as_long
-- Jobs that were put off, retries among them, and jobs of schedules, when the clock was ahead. A moment that a caller named stays.
UPDATE jobs SET run_at = :now + max(0, run_at - iif(position < 0, -position, created_at)),
                expires_at = iif(created_at > :ahead, :now + (expires_at - created_at), expires_at), position = iif(position < 0, -:now, position)
 WHERE number IN (SELECT number FROM jobs INDEXED BY jobs_put_off WHERE status = 'PENDING' AND position < 0 AND position < -:ahead
                  UNION SELECT number FROM jobs INDEXED BY jobs_due WHERE status = 'PENDING' AND blockers = 0 AND {made_ahead}
                  UNION SELECT number FROM jobs INDEXED BY jobs_blocked WHERE status = 'PENDING' AND blockers > 0 AND {made_ahead});

-- name: made_ahead
position >= 0 AND created_at > :ahead AND (attempt > 1 OR schedule_id IS NOT NULL)

-- name: wait_as_long_edges
UPDATE job_edges SET until = :now + max(0, until - (SELECT j.created_at FROM jobs AS j WHERE j.number = job_edges.child))
 WHERE resolved_at IS NULL AND until IS NOT NULL AND (SELECT j.created_at FROM jobs AS j WHERE j.number = job_edges.child) > :ahead;

-- name: awaited_schedules
SELECT DISTINCT s.name FROM jobs AS j CROSS JOIN job_edges AS e ON e.child = j.number AND e.source = 'schedule' AND +e.resolved_at IS NULL
 CROSS JOIN schedules AS s ON s.schedule_id = e.parent_root WHERE j.job_id = unhex(:job_id) ORDER BY s.name;

-- ---- reading -------------------------------------------------------------------------------------------------------

-- name: occurrence_columns
s.name, lower(hex(o.schedule_id)) AS schedule_id, s.organization_id, o.due_at, o.last_due_at, o.count, o.fate AS fate, o.reason, lower(hex(o.job_id)),
(WITH RECURSIVE line (job_id) AS (
     SELECT o.job_id WHERE o.job_id IS NOT NULL
     UNION ALL
     SELECT next.job_id FROM line CROSS JOIN jobs AS next ON next.retry_of = line.job_id)
 SELECT j.status FROM line CROSS JOIN jobs AS j ON j.job_id = line.job_id WHERE NOT EXISTS (SELECT 1 FROM jobs AS n WHERE n.retry_of = line.job_id)) AS status,
o.recorded_at

-- name: occurrence_filter
(:organization_id IS NULL OR s.organization_id = :organization_id) AND (:owner IS NULL OR s.created_by = :owner OR s.schedule_id IN (SELECT unhex(value) FROM json_each(:granted)))
AND o.due_at BETWEEN :earliest AND :latest
AND (:fates = '[]' OR o.fate IN (SELECT value FROM json_each(:fates)))
AND (:before_at IS NULL OR (o.due_at, o.schedule_id, o.fate) < (:before_at, unhex(:before_schedule), :before_fate))

-- name: occurrence_outcome
(NOT :not_ran OR found.fate <> 'FIRED' OR found.status IN ('DEAD_LETTER', 'SKIPPED', 'CANCELLED'))

-- name: occurrences_everywhere
SELECT * FROM (
    SELECT {occurrence_columns} FROM occurrences AS o INDEXED BY occurrences_time CROSS JOIN schedules AS s ON s.schedule_id = o.schedule_id
     WHERE {occurrence_filter} ORDER BY o.due_at DESC, o.schedule_id DESC, o.fate DESC) AS found
 WHERE {occurrence_outcome} LIMIT :limit;

-- name: occurrences_of_schedule
SELECT * FROM (
    SELECT {occurrence_columns} FROM occurrences AS o CROSS JOIN schedules AS s ON s.schedule_id = o.schedule_id
     WHERE o.schedule_id = unhex(:schedule_id) AND {occurrence_filter} ORDER BY o.due_at DESC, o.fate DESC) AS found
 WHERE {occurrence_outcome} LIMIT :limit;

-- name: occurrences_reaching
-- Spans that begin before a moment and reach over it.
SELECT * FROM (
    SELECT {occurrence_columns} FROM occurrences AS o INDEXED BY occurrences_spans CROSS JOIN schedules AS s ON s.schedule_id = o.schedule_id
     WHERE o.last_due_at > o.due_at AND o.last_due_at >= :since AND (:schedule_id IS NULL OR o.schedule_id = unhex(:schedule_id))
       AND {occurrence_filter} ORDER BY o.due_at DESC, o.schedule_id DESC, o.fate DESC) AS found
 WHERE {occurrence_outcome} LIMIT :limit;

-- name: forget_occurrences
-- Rows of due times long ago whose jobs, if they had any, are gone too. The newest of a schedule that is there stays.
DELETE FROM occurrences WHERE (schedule_id, due_at, fate) IN (
    SELECT o.schedule_id, o.due_at, o.fate FROM occurrences AS o INDEXED BY occurrences_time
     WHERE o.due_at < :before AND o.last_due_at < :before AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.job_id = o.job_id)
       AND (EXISTS (SELECT 1 FROM occurrences AS n WHERE n.schedule_id = o.schedule_id AND n.due_at > o.due_at)
            OR (SELECT s.dropped_at FROM schedules AS s WHERE s.schedule_id = o.schedule_id) IS NOT NULL)
     ORDER BY o.due_at LIMIT :limit);

-- name: forget_schedules
-- Those dropped long ago of which nothing is left: no job, no row of the ledger, nobody who waits for one.
DELETE FROM schedules WHERE schedule_id IN (
    SELECT s.schedule_id FROM schedules AS s INDEXED BY schedules_dropped
     WHERE s.dropped_at IS NOT NULL AND s.dropped_at < :before
       AND NOT EXISTS (SELECT 1 FROM occurrences AS o WHERE o.schedule_id = s.schedule_id)
       AND NOT EXISTS (SELECT 1 FROM jobs AS j INDEXED BY jobs_occurrence WHERE j.schedule_id = s.schedule_id AND j.schedule_id IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM job_edges AS e WHERE e.parent_root = s.schedule_id)
     ORDER BY s.dropped_at LIMIT :limit);
