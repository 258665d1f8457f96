-- Limits: what is counted inside a turn, and parked rows that are offered again. See decision 0015.
-- The ORDER BYs on parked rows are live_held's own: they cost nothing, and no other index has them.

-- name: running_by_kind
SELECT coalesce(json_agg(json_build_array(organization_id, job_type, times)), '[]')::text FROM (
    SELECT organization_id, job_type, count(*) AS times FROM job_live WHERE status = 'RUNNING' GROUP BY organization_id, job_type) AS kinds;

-- name: starts_inside
-- :rates is a JSON array of [job type, limit, window]. The second figure is the newest start that, with those after it, fills
-- the limit: when it leaves the window there is room. A moment beyond the next window is of a clock that was wrong.
SELECT coalesce(json_agg(json_build_array(job_type, times, CASE WHEN times >= most THEN (
           SELECT max(at) FROM (SELECT at, sum(count) OVER (ORDER BY at DESC) AS since FROM rate_log
                                 WHERE key = 'start:' || job_type AND at > :now - span AND at <= :now + span + :ahead) AS recent
            WHERE since >= most) + span END)), '[]')::text
  FROM (SELECT value ->> 0 AS job_type, (value ->> 1)::bigint AS most, (value ->> 2)::bigint AS span,
               (SELECT coalesce(sum(count), 0)::bigint FROM rate_log
                 WHERE key = 'start:' || (value ->> 0) AND at > :now - (value ->> 2)::bigint AND at <= :now + (value ->> 2)::bigint + :ahead) AS times
          FROM json_array_elements(:rates::json) AS e (value)) AS rates;

-- name: log_starts
-- :starts is a JSON array of [job type, moment, count].
INSERT INTO rate_log AS r (key, at, count)
SELECT 'start:' || (value ->> 0), (value ->> 1)::bigint, (value ->> 2)::bigint FROM json_array_elements(:starts::json) AS e (value)
    ON CONFLICT (key, at) DO UPDATE SET count = r.count + excluded.count;

-- name: forget_starts
DELETE FROM rate_log WHERE key = 'start:' || :job_type AND (at <= :now - :span OR at > :now + :span + :ahead);

-- name: forget_unstarted
DELETE FROM rate_log WHERE key = 'start:' || :job_type AND at = :at AND count <= :count;

-- name: uncount_starts
UPDATE rate_log SET count = count - :count WHERE key = 'start:' || :job_type AND at = :at;

-- name: rates_waiting
-- Which of these types have rows parked by their rate limit.
SELECT coalesce(json_agg(name), '[]')::text FROM unnest(:types) AS t (name) WHERE {over_rate} IS NOT NULL;

-- name: types_waiting
-- Which of these types have rows parked by a limit of their own.
SELECT coalesce(json_agg(name), '[]')::text FROM unnest(:types) AS t (name) WHERE {over_limit} IS NOT NULL OR {over_rate} IS NOT NULL;

-- name: over_rate
(SELECT p.number FROM job_live AS p WHERE p.status = 'QUEUED' AND p.held IS NOT NULL AND p.held = 'rate-limit:' || t.name ORDER BY p.job_type LIMIT 1)

-- name: over_limit
(SELECT p.number FROM job_live AS p WHERE p.status = 'QUEUED' AND p.held IS NOT NULL AND p.held = 'template-limit:' || t.name
  ORDER BY p.job_type LIMIT 1)

-- name: any_over_limit
-- The first word from there on is of that kind, or none is.
SELECT coalesce((SELECT held FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL AND held >= 'organization-limit:'
                  ORDER BY held LIMIT 1) < 'organization-limit;', false)
    OR coalesce((SELECT held FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL AND held >= 'template-limit:'
                  ORDER BY held LIMIT 1) < 'template-limit;', false);

-- name: any_parked
SELECT (SELECT held FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL AND held < 'direct' ORDER BY held LIMIT 1) IS NOT NULL
    OR (SELECT held FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL AND held > 'direct' ORDER BY held LIMIT 1) IS NOT NULL;

-- name: lanes_of_gone
-- Jobs that ended, or were moved, by number: the lanes parked under the limits of those that ran or stood ready, and how many may be offered.
WITH RECURSIVE
gone (job_type, organization_id) AS (
    SELECT j.job_type, j.organization_id FROM jobs AS j WHERE j.number = ANY (:numbers) AND j.held IS NULL AND j.queued_at IS NOT NULL
),
word (held, times) AS (
    SELECT 'organization-limit:' || organization_id, count(*) FROM gone GROUP BY organization_id
    UNION ALL
    SELECT 'template-limit:' || job_type, count(*) FROM gone GROUP BY job_type
),
lane (held, times, job_type) AS (
    SELECT held, times, (SELECT p.job_type FROM job_live AS p
                          WHERE p.status = 'QUEUED' AND p.held IS NOT NULL AND p.held = word.held ORDER BY p.job_type LIMIT 1)
      FROM word
    UNION ALL
    SELECT held, times, (SELECT p.job_type FROM job_live AS p
                          WHERE p.status = 'QUEUED' AND p.held IS NOT NULL AND p.held = lane.held AND p.job_type > lane.job_type
                          ORDER BY p.job_type LIMIT 1)
      FROM lane WHERE job_type IS NOT NULL
)
SELECT coalesce(json_agg(json_build_array(held, job_type, times)), '[]')::text FROM lane WHERE job_type IS NOT NULL;

-- name: lanes_of_word
WITH RECURSIVE lane (job_type) AS (
    SELECT (SELECT job_type FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL AND held = :held ORDER BY job_type LIMIT 1)
    UNION ALL
    SELECT (SELECT p.job_type FROM job_live AS p
             WHERE p.status = 'QUEUED' AND p.held IS NOT NULL AND p.held = :held AND p.job_type > lane.job_type ORDER BY p.job_type LIMIT 1)
      FROM lane WHERE job_type IS NOT NULL
)
SELECT job_type FROM lane WHERE job_type IS NOT NULL;

-- name: lanes
-- Every lane there is: a hop from one to the next along live_held, not a scan.
WITH RECURSIVE step (held, job_type) AS (
    (SELECT held, job_type FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL ORDER BY held, job_type LIMIT 1)
    UNION ALL
    SELECT next.held, next.job_type FROM step CROSS JOIN LATERAL (
        SELECT p.held, p.job_type FROM job_live AS p
         WHERE p.status = 'QUEUED' AND p.held IS NOT NULL AND (p.held, p.job_type) > (step.held, step.job_type)
         ORDER BY p.held, p.job_type LIMIT 1) AS next
)
SELECT coalesce(json_agg(json_build_array(held, job_type)), '[]')::text FROM step;

-- name: offer
-- The first of a lane come back into the ready index.
UPDATE job_live SET held = NULL
 WHERE number = ANY (ARRAY(SELECT number FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL AND held = :held AND job_type = :job_type
                           ORDER BY priority DESC, position, created_at, job_id LIMIT :times));

-- name: offer_one
UPDATE job_live SET held = NULL WHERE number = :number AND status || '' = 'QUEUED' AND held <> 'direct';

-- name: offer_first
-- The first of each of many lanes; :lanes is a JSON array of [word, job type].
UPDATE job_live SET held = NULL
 WHERE number = ANY (ARRAY(
    SELECT (SELECT p.number FROM job_live AS p
             WHERE p.status = 'QUEUED' AND p.held IS NOT NULL AND p.held = e.value ->> 0 AND p.job_type = e.value ->> 1
             ORDER BY p.priority DESC, p.position, p.created_at, p.job_id LIMIT 1)
      FROM json_array_elements(:lanes::json) AS e (value)));
