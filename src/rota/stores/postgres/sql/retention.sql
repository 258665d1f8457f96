-- Retention: whole chains that nothing needs any more, a bounded number at a time.
-- Why joins are `= ANY (ARRAY[...])`, and there is no EXISTS: see edges.sql and ledger.sql.

-- name: old_ends
-- Ends in the order of time, from a cursor on: whether each is the end of its chain, and whether others still need that.
-- A chain is needed while a child's chain lives, which may still look at what its parent left, and while its group has anything
-- newer: a group is kept as long as its youngest member, so that its status stays what it was, and until the job that follows it has ended.
-- Each type has its ends in order, and the types are a hop from one to the next, not a scan. A few of each type tell up to when the first
-- :limit of all can lie, and only so far each type is read: else a thousand types would be read :limit ends each.
WITH RECURSIVE step (job_type) AS (
    (SELECT job_type FROM job_ends ORDER BY job_type LIMIT 1)
    UNION ALL
    SELECT next.job_type FROM step CROSS JOIN LATERAL (
        SELECT e.job_type FROM job_ends AS e WHERE e.job_type > step.job_type ORDER BY e.job_type LIMIT 1) AS next
), few AS MATERIALIZED (
    SELECT own.finished_at FROM step CROSS JOIN LATERAL (
        {old_ends_of_type} ORDER BY e.finished_at, e.created_at, e.number LIMIT :limit / (SELECT count(*) FROM step) + 1) AS own
), bound AS MATERIALIZED (
    SELECT coalesce((SELECT finished_at FROM few ORDER BY finished_at OFFSET :limit - 1 LIMIT 1), :before) AS latest
), oldest AS MATERIALIZED (
    SELECT own.number FROM step CROSS JOIN LATERAL (
        {old_ends_of_type} AND e.finished_at <= (SELECT latest FROM bound)
         ORDER BY e.finished_at, e.created_at, e.number LIMIT :limit) AS own
     ORDER BY own.finished_at, own.created_at, own.number LIMIT :limit
), picked AS MATERIALIZED (
    SELECT e.finished_at, e.created_at, e.number, e.status, f.job_id, f.root_id, f.attempt, f.group_id
      FROM job_ends AS e JOIN job_facts AS f ON f.number = ANY (ARRAY[e.number]) WHERE e.number = ANY(ARRAY(SELECT number FROM oldest))
), busy AS MATERIALIZED (
    SELECT own.group_id FROM (SELECT DISTINCT group_id FROM picked WHERE group_id IS NOT NULL) AS own
     WHERE (SELECT 1 FROM job_facts AS m
             WHERE m.group_id = own.group_id AND coalesce((SELECT e.finished_at FROM job_ends AS e WHERE e.number = m.number), :before) >= :before
             LIMIT 1) IS NOT NULL
        OR (SELECT 1 FROM job_edges AS w
             WHERE w.parent_root = own.group_id
               AND ((SELECT l.number FROM job_live AS l WHERE l.number = w.child) IS NOT NULL
                    OR (SELECT l.number FROM job_live AS l
                         WHERE l.root_id = (SELECT c.root_id FROM job_facts AS c WHERE c.number = w.child) AND l.attempt > 1) IS NOT NULL)
             LIMIT 1) IS NOT NULL
)
SELECT f.finished_at, f.created_at, f.number, f.attempt,
       f.status IN ('COMPLETED', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED') AND {no_successor},
       coalesce(f.group_id IN (SELECT group_id FROM busy), false)
       OR (SELECT 1 FROM job_edges AS w
            WHERE w.parent_root = f.root_id
              AND ((SELECT l.number FROM job_live AS l WHERE l.number = w.child) IS NOT NULL
                   OR (SELECT l.number FROM job_live AS l
                        WHERE l.root_id = (SELECT c.root_id FROM job_facts AS c WHERE c.number = w.child) AND l.attempt > 1) IS NOT NULL)
            LIMIT 1) IS NOT NULL
  FROM picked AS f ORDER BY f.finished_at, f.created_at, f.number;

-- name: old_ends_of_type
SELECT e.finished_at, e.created_at, e.number FROM job_ends AS e
 WHERE e.job_type = step.job_type AND e.finished_at < :before AND (e.finished_at, e.created_at, e.number) > (:at, :made, :number)

-- name: chains_of
-- Every job of the chains with these tails, and whether an undelivered webhook or a reservation still needs it.
WITH RECURSIVE line (tail, number, job_id, retry_of) AS (
    SELECT number, number, job_id, retry_of FROM job_facts WHERE number = ANY(:tails)
    UNION ALL
    SELECT line.tail, o.number, o.job_id, o.retry_of FROM line JOIN job_facts AS o ON o.job_id = ANY (ARRAY[line.retry_of])
)
SELECT line.tail, line.number, hex((SELECT e.run_id FROM job_ends AS e WHERE e.number = line.number)),
       (SELECT 1 FROM outbox AS w WHERE w.job_id = line.job_id AND w.delivered_at + 0 IS NULL AND w.gave_up_at + 0 IS NULL LIMIT 1) IS NOT NULL,
       (SELECT 1 FROM direct_reservations AS d WHERE d.status = 'ACTIVE' AND d.job_number = line.number LIMIT 1) IS NOT NULL
  FROM line;

-- name: groups_of
-- The groups that these jobs are in, and those that they follow.
SELECT hex(group_id) FROM job_facts WHERE number = ANY(:numbers) AND hex(group_id) IS NOT NULL
UNION
SELECT hex(g.group_id) FROM job_edges AS w JOIN job_groups AS g ON g.group_id = ANY (ARRAY[w.parent_root]) WHERE w.child = ANY(:numbers);

-- name: remove_outbox
DELETE FROM outbox WHERE job_id = ANY(ARRAY(SELECT job_id FROM job_facts WHERE number = ANY(:numbers)));

-- name: remove_jobs
-- One statement: that a job goes with its end and its run, and each attempt only with its successor, is asked for at its end.
WITH edges AS (
    DELETE FROM job_edges WHERE child = ANY(:numbers)
), notes AS (
    DELETE FROM run_notes WHERE job_number = ANY(:numbers)
), ends AS (
    DELETE FROM job_ends WHERE number = ANY(:numbers)
)
DELETE FROM job_facts WHERE number = ANY(:numbers);

-- name: remove_groups
DELETE FROM job_groups WHERE group_id = ANY(:groups)
   AND (SELECT 1 FROM job_facts AS f WHERE f.group_id = job_groups.group_id LIMIT 1) IS NULL;

-- name: live_children
-- Live jobs of chains that wait, or waited, for this one: the root's id and number, the attempt, its status.
WITH children AS MATERIALIZED (
    SELECT c.number, c.root_id FROM job_edges AS e JOIN job_facts AS c ON c.number = ANY (ARRAY[e.child]) WHERE e.parent_root = :root_id
), live AS (
    SELECT root_id, attempt, status FROM job_live WHERE number = ANY(ARRAY(SELECT number FROM children))
    UNION
    SELECT root_id, attempt, status FROM job_live WHERE root_id = ANY(ARRAY(SELECT root_id FROM children)) AND attempt > 1
)
SELECT hex(root_id), (SELECT number FROM job_facts WHERE job_id = live.root_id), attempt, status FROM live LIMIT :limit;

-- name: group_lives
-- The group of a job, if it has a member that has not ended.
SELECT hex(f.group_id) FROM job_facts AS f
 WHERE f.number = :number
   AND (SELECT 1 FROM job_facts AS m
         WHERE m.group_id = f.group_id AND (SELECT l.number FROM job_live AS l WHERE l.number = m.number) IS NOT NULL LIMIT 1) IS NOT NULL;

-- ---- what has no use any more --------------------------------------------------------------------------------------------------

-- name: forget_dedup
DELETE FROM dedup WHERE ctid = ANY(ARRAY(SELECT ctid FROM dedup WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit));

-- name: longest_window
SELECT max(greatest(rate_window, submit_window, 0)) FROM templates WHERE dropped_at IS NULL;

-- name: forget_rates
DELETE FROM rate_log WHERE at < :before;

-- name: forget_workers
DELETE FROM workers WHERE worker_id = ANY(ARRAY(SELECT worker_id FROM workers WHERE ended_at < :before LIMIT :limit));

-- name: forget_reservations
-- Their ids begin with their time: what is younger than :until is not looked at.
DELETE FROM direct_reservations WHERE reservation_id = ANY(ARRAY(
    SELECT reservation_id FROM direct_reservations
     WHERE reservation_id < :until::uuid AND status <> 'ACTIVE' AND reserved_at < :before LIMIT :limit));

-- name: forget_hour
-- The oldest hour of the figures, if it is old enough.
DELETE FROM stats_hourly WHERE hour = (SELECT min(hour) FROM stats_hourly) AND hour < :before;

-- name: forget_minutes
-- The oldest hour of the figures by the minute, as far as it is old enough.
DELETE FROM stats_minutely WHERE minute < :before AND minute < (SELECT min(minute) FROM stats_minutely) + 3600000000;

-- name: retention_clock
-- When the clock was last trusted to delete by age; of a store in which it never was, when its newest job was made.
SELECT coalesce(nullif(value, 0), (SELECT created_at FROM job_facts ORDER BY number DESC LIMIT 1)) FROM meta WHERE key = 'retention_clock';

-- name: set_retention_clock
UPDATE meta SET value = :now WHERE key = 'retention_clock';
