-- Retention: whole chains that nothing needs any more, a bounded number at a time.

-- name: old_ends
-- Ends in the order of time, from a cursor on: whether each is the end of its chain, and whether others still need that.
-- A chain is needed while a child's chain lives, which may still look at what its parent left, and while its group has anything
-- newer: a group is kept as long as its youngest member, so that its status stays what it was, and until the job that follows it has ended.
-- Each type has its ends in order: with the ORDER BY right there SQLite leaves a type as soon as the rest of it is younger than :limit
-- others (some 0.4 ms for 200 of 20 types, however many there are). The types themselves are a hop from one to the next, not a scan.
WITH RECURSIVE step (job_type) AS (
    SELECT min(job_type) FROM jobs INDEXED BY jobs_finished WHERE finished_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(job_type) FROM jobs INDEXED BY jobs_finished WHERE finished_at IS NOT NULL AND job_type > step.job_type)
      FROM step WHERE step.job_type IS NOT NULL
), oldest AS MATERIALIZED (
    SELECT j.finished_at, j.created_at, j.number FROM step CROSS JOIN jobs AS j INDEXED BY jobs_finished ON j.job_type = step.job_type
     WHERE j.finished_at IS NOT NULL AND j.finished_at < :before AND (j.finished_at, j.created_at, j.number) > (:at, :made, :number)
     ORDER BY j.finished_at, j.created_at, j.number LIMIT :limit
), picked AS MATERIALIZED (
    SELECT oldest.finished_at, oldest.created_at, oldest.number, j.job_id, j.root_id, j.attempt, j.status, j.group_id
      FROM oldest CROSS JOIN jobs AS j ON j.number = oldest.number
), busy AS MATERIALIZED (
    SELECT group_id FROM (SELECT DISTINCT group_id FROM picked WHERE group_id IS NOT NULL) AS own
     WHERE EXISTS (SELECT 1 FROM jobs AS m WHERE m.group_id = own.group_id AND (m.finished_at IS NULL OR m.finished_at >= :before))
        OR EXISTS (SELECT 1 FROM job_edges AS e CROSS JOIN jobs AS c ON c.number = e.child
                    WHERE e.parent_root = own.group_id
                      AND (c.finished_at IS NULL
                           OR EXISTS (SELECT 1 FROM jobs AS l WHERE l.root_id = c.root_id AND l.finished_at IS NULL AND l.attempt > 1)))
)
SELECT p.finished_at, p.created_at, p.number, p.attempt,
       p.status IN ('COMPLETED', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED') AND NOT EXISTS (SELECT 1 FROM jobs AS s WHERE s.retry_of = p.job_id),
       p.group_id IN (SELECT group_id FROM busy)
       OR EXISTS (SELECT 1 FROM job_edges AS e CROSS JOIN jobs AS c ON c.number = e.child
                   WHERE e.parent_root = p.root_id
                     AND (c.finished_at IS NULL
                          OR EXISTS (SELECT 1 FROM jobs AS l WHERE l.root_id = c.root_id AND l.finished_at IS NULL AND l.attempt > 1)))
  FROM picked AS p ORDER BY p.finished_at, p.created_at, p.number;

-- name: chains_of
-- Every job of the chains with these tails, and whether an undelivered webhook or a reservation still needs it.
WITH RECURSIVE line (tail, number, job_id, retry_of) AS (
    SELECT j.number, j.number, j.job_id, j.retry_of FROM json_each(:tails) AS e CROSS JOIN jobs AS j ON j.number = e.value
    UNION ALL
    SELECT line.tail, o.number, o.job_id, o.retry_of FROM line CROSS JOIN jobs AS o ON o.job_id = line.retry_of
)
SELECT line.tail, line.number, lower(hex(r.run_id)),
       EXISTS (SELECT 1 FROM outbox AS w WHERE w.job_id = line.job_id AND w.delivered_at IS NULL AND w.gave_up_at IS NULL),
       EXISTS (SELECT 1 FROM direct_reservations AS d WHERE d.status = 'ACTIVE' AND d.job_number = line.number)
  FROM line LEFT JOIN job_runs AS r ON r.job_number = line.number;

-- name: groups_of
-- The groups that these jobs are in, and those that they follow.
SELECT lower(hex(j.group_id)) FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value WHERE j.group_id IS NOT NULL
UNION
SELECT lower(hex(g.group_id)) FROM json_each(:numbers) AS e CROSS JOIN job_edges AS w ON w.child = e.value
 CROSS JOIN job_groups AS g ON g.group_id = w.parent_root;

-- name: remove_outbox
DELETE FROM outbox WHERE job_id IN (SELECT j.job_id FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value);

-- name: remove_jobs
-- One statement: that each attempt is there as long as its successor is asked for at its end. Runs and edges go with their jobs.
DELETE FROM jobs WHERE number IN (SELECT value FROM json_each(:numbers));

-- name: remove_groups
DELETE FROM job_groups
 WHERE group_id IN (SELECT unhex(value) FROM json_each(:groups))
   AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.group_id = job_groups.group_id);

-- name: live_children
-- Live jobs of chains that wait, or waited, for this one: the root's id and number, the attempt, its status.
WITH children AS (
    SELECT c.number, c.root_id FROM job_edges AS e CROSS JOIN jobs AS c ON c.number = e.child WHERE e.parent_root = unhex(:root_id)
), live AS (
    SELECT t.root_id, t.attempt, t.status FROM children AS c CROSS JOIN jobs AS t ON t.number = c.number WHERE t.finished_at IS NULL
    UNION
    SELECT t.root_id, t.attempt, t.status FROM children AS c CROSS JOIN jobs AS t ON t.root_id = c.root_id
     WHERE t.finished_at IS NULL AND t.attempt > 1
)
SELECT lower(hex(root_id)), (SELECT number FROM jobs WHERE job_id = live.root_id), attempt, status FROM live LIMIT :limit;

-- name: group_lives
-- The group of a job, if it has a member that has not ended.
SELECT lower(hex(j.group_id)) FROM jobs AS j
 WHERE j.number = :number AND EXISTS (SELECT 1 FROM jobs AS m WHERE m.group_id = j.group_id AND m.finished_at IS NULL);

-- ---- what has no use any more --------------------------------------------------------------------------------------------------

-- name: forget_dedup
DELETE FROM dedup WHERE (organization_id, template_id, hash) IN (
    SELECT organization_id, template_id, hash FROM dedup WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit);

-- name: longest_window
SELECT max(max(coalesce(rate_window, 0), coalesce(submit_window, 0))) FROM templates WHERE dropped_at IS NULL;

-- name: forget_rates
DELETE FROM rate_log WHERE at < :before;

-- name: forget_workers
DELETE FROM workers WHERE worker_id IN (SELECT worker_id FROM workers WHERE ended_at < :before LIMIT :limit);

-- name: forget_reservations
-- Their ids begin with their time: what is younger than :until is not looked at.
DELETE FROM direct_reservations WHERE reservation_id IN (
    SELECT reservation_id FROM direct_reservations
     WHERE reservation_id < :until AND status <> 'ACTIVE' AND reserved_at < :before LIMIT :limit);

-- name: forget_hour
-- The oldest hour of the figures, if it is old enough.
DELETE FROM stats_hourly WHERE hour = (SELECT min(hour) FROM stats_hourly) AND hour < :before;

-- name: forget_minutes
-- The oldest hour of the figures by the minute, as far as it is old enough.
DELETE FROM stats_minutely WHERE minute < :before AND minute < (SELECT min(minute) FROM stats_minutely) + 3600000000;

-- name: retention_clock
-- When the clock was last trusted to delete by age; of a store in which it never was, when its newest job was made.
SELECT coalesce(nullif(value, 0), (SELECT created_at FROM jobs WHERE number = (SELECT max(number) FROM jobs))) FROM meta WHERE key = 'retention_clock';

-- name: set_retention_clock
UPDATE meta SET value = :now WHERE key = 'retention_clock';
