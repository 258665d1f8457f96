-- Limits: what is counted inside a turn, and parked rows that are offered again. See decision 0015.

-- name: running_by_kind
-- The + keeps the planner on jobs_running, which holds RUNNING rows only; by organization it would walk another index.
SELECT json_group_array(json_array(organization_id, job_type, times)) FROM (
    SELECT organization_id, job_type, count(*) AS times FROM jobs INDEXED BY jobs_running WHERE status = 'RUNNING'
     GROUP BY +organization_id, +job_type);

-- name: starts_inside
-- :rates is a JSON array of [job type, limit, window]. The second figure is the newest start that, with those after it, fills
-- the limit: when it leaves the window there is room. A moment beyond the next window is of a clock that was wrong.
SELECT json_group_array(json_array(job_type, times, CASE WHEN times >= most THEN (
           SELECT max(at) FROM (SELECT at, sum(count) OVER (ORDER BY at DESC) AS since FROM rate_log
                                 WHERE key = 'start:' || job_type AND at > :now - span AND at <= :now + span + :ahead)
            WHERE since >= most) + span END))
  FROM (SELECT value ->> 0 AS job_type, value ->> 1 AS most, value ->> 2 AS span,
               (SELECT coalesce(sum(count), 0) FROM rate_log
                 WHERE key = 'start:' || (value ->> 0) AND at > :now - (value ->> 2) AND at <= :now + (value ->> 2) + :ahead) AS times
          FROM json_each(:rates));

-- name: log_starts
-- :starts is a JSON array of [job type, moment, count].
INSERT INTO rate_log (key, at, count) SELECT 'start:' || (value ->> 0), value ->> 1, value ->> 2 FROM json_each(:starts) WHERE true
    ON CONFLICT (key, at) DO UPDATE SET count = count + excluded.count;

-- name: forget_starts
DELETE FROM rate_log WHERE key = 'start:' || :job_type AND (at <= :now - :span OR at > :now + :span + :ahead);

-- name: forget_unstarted
DELETE FROM rate_log WHERE key = 'start:' || :job_type AND at = :at AND count <= :count;

-- name: uncount_starts
UPDATE rate_log SET count = count - :count WHERE key = 'start:' || :job_type AND at = :at;

-- name: rates_waiting
-- Which of these types have rows parked by their rate limit.
SELECT json_group_array(value) FROM json_each(:types)
 WHERE EXISTS (SELECT 1 FROM jobs WHERE status = 'QUEUED' AND held = 'rate-limit:' || value);

-- name: types_waiting
-- Which of these types have rows parked by a limit of their own.
SELECT json_group_array(value) FROM json_each(:types)
 WHERE EXISTS (SELECT 1 FROM jobs WHERE status = 'QUEUED' AND held = 'template-limit:' || value)
    OR EXISTS (SELECT 1 FROM jobs WHERE status = 'QUEUED' AND held = 'rate-limit:' || value);

-- name: any_over_limit
SELECT EXISTS (SELECT 1 FROM jobs WHERE status = 'QUEUED' AND held >= 'organization-limit:' AND held < 'organization-limit;')
    OR EXISTS (SELECT 1 FROM jobs WHERE status = 'QUEUED' AND held >= 'template-limit:' AND held < 'template-limit;');

-- name: any_parked
SELECT EXISTS (SELECT 1 FROM jobs WHERE status = 'QUEUED' AND held < 'direct') OR EXISTS (SELECT 1 FROM jobs WHERE status = 'QUEUED' AND held > 'direct');

-- name: lanes_of_gone
-- Jobs that ended, by number: the lanes parked under the limits of those that ran or stood ready, and how many may be offered.
WITH RECURSIVE
gone (job_type, organization_id) AS (
    SELECT j.job_type, j.organization_id FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value
     WHERE j.held IS NULL AND j.queued_at IS NOT NULL
),
word (held, times) AS (
    SELECT 'organization-limit:' || organization_id, count(*) FROM gone GROUP BY organization_id
    UNION ALL
    SELECT 'template-limit:' || job_type, count(*) FROM gone GROUP BY job_type
),
lane (held, times, job_type) AS (
    SELECT held, times, (SELECT min(p.job_type) FROM jobs AS p WHERE p.status = 'QUEUED' AND p.held = word.held) FROM word
    UNION ALL
    SELECT held, times, (SELECT min(p.job_type) FROM jobs AS p WHERE p.status = 'QUEUED' AND p.held = lane.held AND p.job_type > lane.job_type)
      FROM lane WHERE job_type IS NOT NULL
)
SELECT json_group_array(json_array(held, job_type, times)) FROM lane WHERE job_type IS NOT NULL;

-- name: lanes_of_word
WITH RECURSIVE lane (job_type) AS (
    SELECT min(job_type) FROM jobs WHERE status = 'QUEUED' AND held = :held
    UNION ALL
    SELECT (SELECT min(p.job_type) FROM jobs AS p WHERE p.status = 'QUEUED' AND p.held = :held AND p.job_type > lane.job_type)
      FROM lane WHERE job_type IS NOT NULL
)
SELECT job_type FROM lane WHERE job_type IS NOT NULL;

-- name: lanes
-- Every lane there is: a hop from one to the next along jobs_held, not a scan.
WITH RECURSIVE step (number, held, job_type) AS (
    SELECT number, held, job_type FROM jobs
     WHERE number = (SELECT number FROM jobs WHERE status = 'QUEUED' AND held IS NOT NULL ORDER BY held, job_type LIMIT 1)
    UNION ALL
    SELECT j.number, j.held, j.job_type FROM step CROSS JOIN jobs AS j
        ON j.number = coalesce((SELECT p.number FROM jobs AS p WHERE p.status = 'QUEUED' AND p.held = step.held AND p.job_type > step.job_type
                                 ORDER BY p.job_type LIMIT 1),
                               (SELECT p.number FROM jobs AS p WHERE p.status = 'QUEUED' AND p.held > step.held
                                 ORDER BY p.held, p.job_type LIMIT 1))
)
SELECT json_group_array(json_array(held, job_type)) FROM step;

-- name: offer
-- The first of a lane come back into the ready index.
UPDATE jobs SET held = NULL
 WHERE number IN (SELECT number FROM jobs WHERE status = 'QUEUED' AND held = :held AND job_type = :job_type
                   ORDER BY priority DESC, position, created_at, job_id LIMIT :times);

-- name: offer_one
UPDATE jobs SET held = NULL WHERE number = :number AND status = 'QUEUED' AND held <> 'direct';

-- name: offer_first
-- The first of each of many lanes; :lanes is a JSON array of [word, job type].
UPDATE jobs SET held = NULL
 WHERE number IN (SELECT (SELECT p.number FROM jobs AS p WHERE p.status = 'QUEUED' AND p.held = e.value ->> 0 AND p.job_type = e.value ->> 1
                           ORDER BY p.priority DESC, p.position, p.created_at, p.job_id LIMIT 1) FROM json_each(:lanes) AS e);
