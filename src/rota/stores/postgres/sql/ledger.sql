-- The ledger: what became of each due time, and the jobs that came of those that fired.
-- Why joins are `= ANY (ARRAY[...])`, and some conditions expressions: see edges.sql. For the same reason what is asked of each row
-- stands as a SELECT of its own: EXISTS might be answered by a join.

-- name: insert_occurrences
-- Each row: [schedule, due, last due, count, fate, reason, job id or null].
INSERT INTO occurrences (schedule_id, due_at, last_due_at, count, fate, reason, job_id, recorded_at)
SELECT (e.value ->> 0)::uuid, (e.value ->> 1)::bigint, (e.value ->> 2)::bigint, (e.value ->> 3)::bigint, e.value ->> 4, e.value ->> 5,
       (e.value ->> 6)::uuid, :now
  FROM json_array_elements(:rows::json) AS e (value);

-- name: insert_fired
-- The rows of jobs that were just made.
INSERT INTO occurrences (schedule_id, due_at, last_due_at, count, fate, job_id, recorded_at)
SELECT schedule_id, due_at, due_at, 1, 'FIRED', job_id, :now FROM job_facts WHERE number BETWEEN :first AND :last;

-- name: note_reasons
-- :rows is a JSON array of [schedule, due time, reason], of rows that say FIRED.
UPDATE occurrences SET reason = e.value ->> 2 FROM json_array_elements(:rows::json) AS e (value)
 WHERE schedule_id = (e.value ->> 0)::uuid AND due_at = (e.value ->> 1)::bigint AND fate = 'FIRED';

-- name: spread_until
SELECT coalesce(max(at), 0) FROM rate_log WHERE key = 'catch-up';

-- name: note_spread
INSERT INTO rate_log (key, at, count) VALUES ('catch-up', :at, 1);

-- name: forget_spread
DELETE FROM rate_log WHERE key = 'catch-up';

-- name: newest_occurrence
-- Up to the cursor: what fired beyond it did so when the clock was ahead. What was recorded before the last edit stays as it is.
SELECT due_at, fate, reason, last_due_at FROM (
    SELECT * FROM occurrences WHERE schedule_id = :schedule_id AND due_at <= :cursor_at ORDER BY due_at DESC, fate DESC LIMIT 1) AS o
 WHERE recorded_at > (SELECT updated_at FROM schedules AS s WHERE s.schedule_id = o.schedule_id);

-- name: extend_occurrence
UPDATE occurrences SET last_due_at = greatest(last_due_at, :last_due_at), count = count + :count, recorded_at = :now
 WHERE schedule_id = :schedule_id AND due_at = :due_at AND fate = :fate;

-- name: take_back_occurrences
-- Fates that were given for times that have not come after all. Where there is a job, there can't be another.
DELETE FROM occurrences WHERE schedule_id = :schedule_id AND due_at > :now AND job_id IS NULL;

-- name: keep_told
-- What was told of times that have not come after all, as it was told. Where something is kept from before, only what lies before that:
-- the rest is of a clock that may have been wrong itself.
INSERT INTO occurrences_told (schedule_id, due_at, last_due_at, count, fate, reason, recorded_at)
SELECT o.schedule_id, o.due_at, o.last_due_at, o.count, o.fate, o.reason, o.recorded_at
  FROM schedules AS s JOIN occurrences AS o ON o.schedule_id = ANY (ARRAY[s.schedule_id])
 WHERE s.schedule_id = :schedule_id AND o.last_due_at > :now AND o.job_id IS NULL AND (s.told_from IS NULL OR o.last_due_at <= s.told_from)
    ON CONFLICT (schedule_id, due_at, fate) DO NOTHING;

-- name: told
SELECT due_at, last_due_at, count, fate, reason, recorded_at FROM occurrences_told
 WHERE schedule_id = :schedule_id AND last_due_at > :after ORDER BY due_at;

-- name: told_from
SELECT told_from FROM schedules WHERE schedule_id = :schedule_id;

-- name: told_again
-- What was cut of it goes on where it was.
INSERT INTO occurrences (schedule_id, due_at, last_due_at, count, fate, reason, recorded_at)
VALUES (:schedule_id, :due_at, :last_due_at, :count, :fate, :reason, :recorded_at)
    ON CONFLICT (schedule_id, due_at, fate) DO UPDATE
   SET last_due_at = excluded.last_due_at, count = excluded.count, reason = excluded.reason, job_id = NULL, recorded_at = excluded.recorded_at;

-- name: forget_told
DELETE FROM occurrences_told WHERE schedule_id = :schedule_id;

-- name: reaching_occurrences
SELECT due_at, fate, count FROM occurrences WHERE schedule_id = :schedule_id AND due_at <= :now AND last_due_at > :now ORDER BY due_at DESC, fate DESC;

-- name: counted_inside
-- What other rows count from a moment on: due times that a row which reaches over them does not have.
SELECT coalesce(sum(count), 0)::bigint FROM occurrences
 WHERE schedule_id = :schedule_id AND due_at > :due_at AND due_at <= :now AND fate <> 'SKIPPED_DST_GAP';

-- name: begins_inside
-- Where the row begins that has this due time, if it begins after another one that reaches over it.
SELECT max(due_at) FROM occurrences
 WHERE schedule_id = :schedule_id AND due_at > :due_at AND due_at <= :last_due_at AND last_due_at >= :last_due_at AND fate <> 'SKIPPED_DST_GAP';

-- name: cut_occurrence
UPDATE occurrences SET last_due_at = :last_due_at, count = :count WHERE schedule_id = :schedule_id AND due_at = :due_at AND fate = :fate;

-- name: next_number
-- A number to go on with: a sequence needs none.
SELECT NULL;

-- name: insert_jobs_due
-- Jobs of schedules, of one shape and one due time: :ids, :schedules and :bodies hold the id, the schedule and the params of each.
WITH new AS MATERIALIZED (
    SELECT nextval('job_numbers') AS number, e.job_id, e.params, :position + :gap * (e.place - 1) AS position, e.schedule_id
      FROM ROWS FROM (unnest(:ids), unnest(:schedules), unnest(:bodies)) WITH ORDINALITY AS e (job_id, schedule_id, params, place)
), facts AS (
    INSERT INTO job_facts (number, job_id, root_id, params, schedule_id, due_at, run_as, {new_facts})
    SELECT number, job_id, job_id, params, schedule_id, :due_at, :run_as, {new_facts_values} FROM new
)
INSERT INTO job_live (number, job_id, root_id, attempt, position, schedule_id, {new_live})
SELECT number, job_id, job_id, 1, position, schedule_id, {new_live_values} FROM new;

-- name: insert_jobs_due_each
-- Jobs of schedules of any shapes and due times: see insert_jobs_each.
WITH new AS MATERIALIZED (
    SELECT nextval('job_numbers') AS number, r.ids AS job_id, r.unnest AS params, r.now AS created_at, r.*
      FROM ROWS FROM (
               json_to_recordset(:rows::json) AS ({values_of_each}, schedule_id uuid, due_at bigint, run_as text),
               unnest(:bodies)) AS r
), facts AS (
    INSERT INTO job_facts (number, job_id, root_id, params, schedule_id, due_at, run_as, {new_facts})
    SELECT number, job_id, job_id, params, schedule_id, due_at, run_as, {new_facts} FROM new
)
INSERT INTO job_live (number, job_id, root_id, attempt, position, schedule_id, {new_live})
SELECT number, job_id, job_id, 1, position, schedule_id, {new_live} FROM new;

-- ---- waiting for other schedules -----------------------------------------------------------------------------------

-- name: fired_in_window
-- The latest due time of a schedule in a window, with its fate and job; a span that begins before the window did not fire anyway.
SELECT o.fate, hex(o.job_id) FROM occurrences AS o
 WHERE o.schedule_id = :schedule_id AND o.due_at <= :until AND o.due_at > :after AND o.fate <> 'SKIPPED_DST_GAP'
 ORDER BY o.due_at DESC, o.fate DESC LIMIT 1;

-- name: ended_in_window
-- The latest chain of a schedule that ended in a window, among its latest due times and what was fired by hand.
SELECT hex(f.root_id) FROM job_ends AS e JOIN job_facts AS f ON f.number = ANY (ARRAY[e.number])
 WHERE e.number = ANY(ARRAY(SELECT number FROM job_facts WHERE schedule_id = :schedule_id AND due_at IS NOT NULL
                             ORDER BY due_at DESC, attempt DESC LIMIT :look)
                      || ARRAY(SELECT number FROM job_facts WHERE schedule_id = :schedule_id AND due_at IS NULL
                                ORDER BY attempt DESC, number DESC LIMIT :look))
   AND e.finished_at + 0 > :after AND e.finished_at + 0 <= :until
   AND e.status || '' IN ('COMPLETED', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED') AND {no_successor}
 ORDER BY e.finished_at DESC LIMIT 1;

-- name: no_successor
(SELECT s.number FROM job_facts AS s WHERE s.retry_of = f.job_id) IS NULL

-- name: add_schedule_edge
INSERT INTO job_edges (child, parent_root, needs, on_failure, source, resolved_at, until)
VALUES (:child, :parent, 'success', 'wait', 'schedule', :resolved_at, :until);

-- name: note_schedules_completed
-- Schedules of which a chain has completed, by the numbers of the tails, as far as anybody waits for any of their chains.
INSERT INTO ended_roots (root_id, status)
SELECT f.schedule_id, 'COMPLETED' FROM job_ends AS e JOIN job_facts AS f ON f.number = ANY (ARRAY[e.number])
 WHERE e.number = ANY(:numbers) AND e.status || '' = 'COMPLETED'
   AND (SELECT 1 FROM job_edges AS w WHERE w.parent_root = f.schedule_id AND w.resolved_at IS NULL LIMIT 1) IS NOT NULL
    ON CONFLICT (root_id) DO NOTHING;

-- name: let_any_do
-- Those who waited for a chain of a schedule that did not complete wait for any chain of that schedule from now on.
-- From the chains to the edges, not the other way: there may be many who wait, and few that ended.
-- An edge is known by what it waits for: so it goes, and comes again, in place of one that may be there already.
WITH dead AS MATERIALIZED (
    SELECT f.root_id, f.schedule_id FROM job_ends AS e JOIN job_facts AS f ON f.number = ANY (ARRAY[e.number])
     WHERE e.number = ANY(:numbers) AND e.status || '' IN ('DEAD_LETTER', 'SKIPPED', 'CANCELLED') AND hex(f.schedule_id) IS NOT NULL
), gone AS (
    DELETE FROM job_edges WHERE parent_root = ANY(ARRAY(SELECT root_id FROM dead)) AND resolved_at IS NULL AND source = 'schedule'
    RETURNING *
)
INSERT INTO job_edges (child, parent_root, needs, on_failure, source, resolved_at, until)
SELECT DISTINCT ON (gone.child, dead.schedule_id)
       gone.child, dead.schedule_id, gone.needs, gone.on_failure, gone.source, gone.resolved_at, gone.until
  FROM gone JOIN dead ON dead.root_id = gone.parent_root
    ON CONFLICT (child, parent_root) DO UPDATE
   SET needs = excluded.needs, on_failure = excluded.on_failure, source = excluded.source, resolved_at = excluded.resolved_at, until = excluded.until;

-- name: anybody_late
SELECT EXISTS (SELECT 1 FROM job_edges WHERE resolved_at IS NULL AND until IS NOT NULL AND until <= :now);

-- name: waited_too_long
-- Jobs that still wait for another schedule although it is time to give up, with what their fate is written by.
SELECT f.number, hex(f.schedule_id), f.due_at, hex(f.job_id), json_agg(DISTINCT coalesce(w.name, d.name))::text
  FROM job_facts AS f
  JOIN job_edges AS e ON e.child = ANY (ARRAY[f.number]) AND e.source = 'schedule' AND e.resolved_at + 0 IS NULL
  LEFT JOIN schedules AS w ON w.schedule_id = ANY (ARRAY[e.parent_root])
  LEFT JOIN job_facts AS p ON p.job_id = ANY (ARRAY[e.parent_root])
  LEFT JOIN schedules AS d ON d.schedule_id = ANY (ARRAY[p.schedule_id])
 WHERE f.number = ANY(ARRAY(SELECT child FROM job_edges WHERE resolved_at IS NULL AND until IS NOT NULL AND until <= :now
                             ORDER BY until LIMIT :limit))
 GROUP BY f.number ORDER BY f.number;

-- name: fate_of_dependency
UPDATE occurrences SET fate = 'SKIPPED_DEPENDENCY', reason = :reason, recorded_at = :now
 WHERE schedule_id = :schedule_id AND due_at = :due_at AND fate = 'FIRED';

-- name: wait_as_long
-- Jobs that were put off, retries among them, and jobs of schedules, when the clock was ahead. A moment that a caller named stays.
UPDATE job_live SET run_at = :now + greatest(0, run_at - CASE WHEN position < 0 THEN -position ELSE created_at END),
                    expires_at = CASE WHEN created_at > :ahead THEN :now + (expires_at - created_at) ELSE expires_at END,
                    position = CASE WHEN position < 0 THEN -:now ELSE position END
 WHERE ctid = ANY(ARRAY(SELECT ctid FROM job_live WHERE status = 'PENDING' AND position < 0 AND position < -:ahead
                        UNION ALL SELECT ctid FROM job_live WHERE status = 'PENDING' AND blockers = 0 AND {made_ahead}
                        UNION ALL SELECT ctid FROM job_live WHERE status = 'PENDING' AND blockers > 0 AND {made_ahead}));

-- name: made_ahead
position >= 0 AND created_at > :ahead AND (attempt > 1 OR schedule_id IS NOT NULL)

-- name: wait_as_long_edges
UPDATE job_edges SET until = :now + greatest(0, until - (SELECT f.created_at FROM job_facts AS f WHERE f.number = job_edges.child))
 WHERE resolved_at IS NULL AND until IS NOT NULL AND (SELECT f.created_at FROM job_facts AS f WHERE f.number = job_edges.child) > :ahead;

-- name: awaited_schedules
SELECT DISTINCT s.name FROM job_facts AS f
  JOIN job_edges AS e ON e.child = ANY (ARRAY[f.number]) AND e.source = 'schedule' AND e.resolved_at + 0 IS NULL
  JOIN schedules AS s ON s.schedule_id = ANY (ARRAY[e.parent_root])
 WHERE f.job_id = :job_id ORDER BY s.name;

-- ---- reading -------------------------------------------------------------------------------------------------------

-- name: occurrence_columns
s.name, hex(o.schedule_id) AS schedule_id, s.organization_id, o.due_at, o.last_due_at, o.count, o.fate, o.reason, hex(o.job_id) AS job_id,
(WITH RECURSIVE line (job_id) AS (
     SELECT o.job_id WHERE o.job_id IS NOT NULL
     UNION ALL
     SELECT next.job_id FROM line CROSS JOIN LATERAL (SELECT n.job_id FROM job_facts AS n WHERE n.retry_of = line.job_id OFFSET 0) AS next)
 SELECT j.status FROM line JOIN jobs AS j ON j.job_id = ANY (ARRAY[line.job_id]) ORDER BY j.attempt DESC LIMIT 1) AS status,
o.recorded_at

-- name: occurrence_filter
(:organization_id IS NULL OR s.organization_id = :organization_id) AND (:owner IS NULL OR s.created_by = :owner OR s.schedule_id = ANY (:granted))
AND o.due_at BETWEEN :earliest AND :latest
AND (cardinality(:fates) = 0 OR o.fate = ANY(:fates))
AND (:before_at IS NULL OR (o.due_at, o.schedule_id, o.fate) < (:before_at, :before_schedule, :before_fate))

-- name: occurrence_outcome
-- OFFSET 0, where this is asked, keeps it outside: inside, what became of a chain would be looked up twice.
(NOT :not_ran OR found.fate <> 'FIRED' OR found.status IN ('DEAD_LETTER', 'SKIPPED', 'CANCELLED'))

-- name: occurrences_everywhere
SELECT * FROM (
    SELECT {occurrence_columns} FROM occurrences AS o JOIN schedules AS s ON s.schedule_id = ANY (ARRAY[o.schedule_id])
     WHERE {occurrence_filter} ORDER BY o.due_at DESC, o.schedule_id DESC, o.fate DESC OFFSET 0) AS found
 WHERE {occurrence_outcome} LIMIT :limit;

-- name: occurrences_of_schedule
SELECT * FROM (
    SELECT {occurrence_columns} FROM occurrences AS o JOIN schedules AS s ON s.schedule_id = ANY (ARRAY[o.schedule_id])
     WHERE o.schedule_id = :schedule_id AND {occurrence_filter} ORDER BY o.due_at DESC, o.fate DESC OFFSET 0) AS found
 WHERE {occurrence_outcome} LIMIT :limit;

-- name: occurrences_reaching
-- Spans that begin before a moment and reach over it.
SELECT * FROM (
    SELECT {occurrence_columns}
      FROM (SELECT * FROM occurrences WHERE last_due_at > due_at AND last_due_at >= :since OFFSET 0) AS o
      JOIN schedules AS s ON s.schedule_id = ANY (ARRAY[o.schedule_id])
     WHERE (:schedule_id IS NULL OR o.schedule_id = :schedule_id) AND {occurrence_filter}
     ORDER BY o.due_at DESC, o.schedule_id DESC, o.fate DESC OFFSET 0) AS found
 WHERE {occurrence_outcome} LIMIT :limit;

-- name: forget_occurrences
-- Rows of due times long ago whose jobs, if they had any, are gone too. The newest of a schedule that is there stays.
DELETE FROM occurrences WHERE ctid = ANY(ARRAY(
    SELECT o.ctid FROM occurrences AS o
     WHERE o.due_at < :before AND o.last_due_at < :before AND (SELECT f.number FROM job_facts AS f WHERE f.job_id = o.job_id) IS NULL
       AND ((SELECT 1 FROM occurrences AS n WHERE n.schedule_id = o.schedule_id AND n.due_at > o.due_at LIMIT 1) IS NOT NULL
            OR (SELECT s.dropped_at FROM schedules AS s WHERE s.schedule_id = o.schedule_id) IS NOT NULL)
     ORDER BY o.due_at LIMIT :limit));

-- name: forget_schedules
-- Those dropped long ago of which nothing is left: no job, no row of the ledger, nobody who waits for one.
DELETE FROM schedules WHERE schedule_id = ANY(ARRAY(
    SELECT s.schedule_id FROM schedules AS s
     WHERE s.dropped_at IS NOT NULL AND s.dropped_at < :before
       AND (SELECT 1 FROM occurrences AS o WHERE o.schedule_id = s.schedule_id LIMIT 1) IS NULL
       AND (SELECT 1 FROM job_facts AS f WHERE f.schedule_id = s.schedule_id LIMIT 1) IS NULL
       AND (SELECT 1 FROM job_edges AS e WHERE e.parent_root = s.schedule_id LIMIT 1) IS NULL
     ORDER BY s.dropped_at LIMIT :limit));
