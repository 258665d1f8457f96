-- What is looked at from above: the first screen and the metrics. Each walk goes along an index and has a bound.

-- name: ready_lanes
-- Each lane and priority that has ready jobs: a hop from one to the next along live_ready, not a scan. Of each: its first row,
-- how many there are as far as it is worth counting (all together are counted up to :look, but each up to a thousand), that
-- bound, and since when its first few wait.
WITH RECURSIVE line (number, lane, priority) AS (
    (SELECT number, lane, priority FROM job_live WHERE status = 'QUEUED' AND held IS NULL AND lane > 0
      ORDER BY lane, priority DESC, position, created_at, job_id LIMIT 1)
    UNION ALL
    SELECT next.number, next.lane, next.priority FROM line CROSS JOIN LATERAL (
        (SELECT p.number, p.lane, p.priority FROM job_live AS p
          WHERE p.status = 'QUEUED' AND p.held IS NULL AND p.lane = line.lane AND p.priority < line.priority
          ORDER BY p.priority DESC, p.position, p.created_at, p.job_id LIMIT 1)
        UNION ALL
        (SELECT p.number, p.lane, p.priority FROM job_live AS p
          WHERE p.status = 'QUEUED' AND p.held IS NULL AND p.lane > line.lane
          ORDER BY p.lane, p.priority DESC, p.position, p.created_at, p.job_id LIMIT 1)
        LIMIT 1) AS next
), lines AS (SELECT number, lane, priority FROM line LIMIT :limit),
share AS (SELECT greatest(1000, :look / greatest(1, count(*))) AS most FROM lines)
SELECT (SELECT n.job_type FROM lanes AS n WHERE n.lane = lines.lane), lane, (SELECT n.queue FROM lanes AS n WHERE n.lane = lines.lane),
       number, (SELECT most FROM share),
       (SELECT count(*) FROM (SELECT 1 FROM job_live AS p
                               WHERE p.status = 'QUEUED' AND p.held IS NULL AND p.lane = lines.lane AND p.priority = lines.priority
                               LIMIT (SELECT most FROM share)) AS counted),
       (SELECT min(queued_at) FROM (SELECT p.queued_at FROM job_live AS p
                                     WHERE p.status = 'QUEUED' AND p.held IS NULL AND p.lane = lines.lane
                                       AND p.priority = lines.priority ORDER BY p.position, p.created_at, p.job_id LIMIT :few) AS heads)
  FROM lines;

-- name: running_suspects
-- What runs under which a worker has crashed before, and where.
SELECT f.number, hex(l.worker_id), hex(f.root_id), (SELECT r.number FROM job_facts AS r WHERE r.job_id = f.root_id), f.attempt, f.executor
  FROM job_live AS l JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number])
 WHERE l.status = 'RUNNING' AND l.attempt + 0 > 1 AND f.crashes > 0 ORDER BY l.started_at, f.number;

-- name: waiting_suspects
-- Among the first ready jobs of a lane, those under which a worker has crashed: they keep their place, so that they are near the front.
SELECT count(*), min(l.queued_at), min(l.number)
  FROM (SELECT number, queued_at, organization_id FROM job_live
         WHERE status = 'QUEUED' AND held IS NULL AND lane = :lane
         ORDER BY priority DESC, position, created_at, job_id LIMIT :look) AS l
  JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number])
 WHERE f.crashes > 0 AND (:organization_id IS NULL OR l.organization_id = :organization_id) AND (:owner IS NULL OR f.owner = :owner);

-- name: held_lanes
-- Each word and type that rows are parked under.
WITH RECURSIVE lane (number, held, job_type) AS (
    (SELECT number, held, job_type FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL
      ORDER BY held, job_type, priority DESC, position, created_at, job_id LIMIT 1)
    UNION ALL
    SELECT next.number, next.held, next.job_type FROM lane CROSS JOIN LATERAL (
        SELECT p.number, p.held, p.job_type FROM job_live AS p
         WHERE p.status = 'QUEUED' AND p.held IS NOT NULL AND (p.held, p.job_type) > (lane.held, lane.job_type)
         ORDER BY p.held, p.job_type, p.priority DESC, p.position, p.created_at, p.job_id LIMIT 1) AS next
), lanes AS (SELECT number, held, job_type FROM lane LIMIT :limit),
share AS (SELECT greatest(1000, :look / greatest(1, count(*))) AS most FROM lanes)
SELECT held, job_type, number, (SELECT most FROM share),
       (SELECT count(*) FROM (SELECT 1 FROM job_live AS p
                               WHERE p.status = 'QUEUED' AND p.held = lanes.held AND p.job_type = lanes.job_type
                               LIMIT (SELECT most FROM share)) AS counted),
       (SELECT min(queued_at) FROM (SELECT p.queued_at FROM job_live AS p
                                     WHERE p.status = 'QUEUED' AND p.held = lanes.held AND p.job_type = lanes.job_type
                                     ORDER BY p.priority DESC, p.position, p.created_at, p.job_id LIMIT :few) AS heads)
  FROM lanes;

-- name: is_mine
(:owner IS NULL OR (SELECT f.owner FROM job_facts AS f WHERE f.number = l.number) = :owner)

-- name: line_lanes
-- The head of one line of the queue, that of an organization at a priority, sorted into lanes; whose own they are too.
SELECT held, job_type, mine, count(*), min(queued_at), min(number), lane, (SELECT n.queue FROM lanes AS n WHERE n.lane = heads.lane)
  FROM (SELECT l.held, l.job_type, l.lane, {is_mine} AS mine, l.queued_at, l.number FROM job_live AS l
         WHERE l.status = 'QUEUED' AND l.priority = :priority AND l.organization_id = :organization_id ORDER BY l.position LIMIT :look) AS heads
 GROUP BY held, job_type, mine, lane;

-- name: blocked_lanes
SELECT job_type, 1, count(*), min(created_at), min(number)
  FROM (SELECT job_type, created_at, number FROM job_live WHERE status = 'PENDING' AND blockers > 0 LIMIT :look) AS heads
 GROUP BY job_type;

-- name: blocked_lanes_of
SELECT job_type, mine, count(*), min(created_at), min(number)
  FROM (SELECT l.job_type, {is_mine} AS mine, l.created_at, l.number FROM job_live AS l
         WHERE l.status = 'PENDING' AND l.blockers > 0 AND l.organization_id = :organization_id LIMIT :look) AS heads
 GROUP BY job_type, mine;

-- name: due_lane
-- One priority's PENDING jobs that are due after a moment, up to another: how many, the first due time, and whose it is.
SELECT count(*), count(*), min(run_at),
       (SELECT number FROM job_live WHERE status = 'PENDING' AND blockers = 0 AND priority = :priority AND run_at > :after AND run_at <= :until
         ORDER BY run_at LIMIT 1)
  FROM (SELECT run_at FROM job_live
         WHERE status = 'PENDING' AND blockers = 0 AND priority = :priority AND run_at > :after AND run_at <= :until
         ORDER BY run_at LIMIT :look) AS heads;

-- name: due_lane_of
SELECT count(*), count(*) FILTER (WHERE mine), min(run_at) FILTER (WHERE mine), min(number) FILTER (WHERE mine)
  FROM (SELECT l.run_at, l.number, l.organization_id = :organization_id AND {is_mine} AS mine FROM job_live AS l
         WHERE l.status = 'PENDING' AND l.blockers = 0 AND l.priority = :priority AND l.run_at > :after AND l.run_at <= :until
         ORDER BY l.run_at LIMIT :look) AS heads;

-- name: shown
SELECT f.number, hex(f.job_id), hex(f.root_id), (SELECT r.number FROM job_facts AS r WHERE r.job_id = f.root_id), f.attempt, f.job_type
  FROM job_facts AS f WHERE f.number = ANY (:numbers);

-- name: running_now
-- The longest running among the first that are found; with each, how many are whose, and how many were looked at.
SELECT {columns}, (SELECT n.progress FROM run_notes AS n WHERE n.job_number = j.number),
       (SELECT n.progress_message FROM run_notes AS n WHERE n.job_number = j.number), picked.total, picked.looked
  FROM (SELECT number, started_at, count(*) OVER () AS total, looked
          FROM (SELECT l.number, l.started_at, {is_mine} AS mine, count(*) OVER () AS looked
                  FROM (SELECT number, started_at FROM job_live
                         WHERE status = 'RUNNING' AND (:organization_id IS NULL OR organization_id = :organization_id) LIMIT :look) AS l) AS found
         WHERE mine ORDER BY started_at, number LIMIT :limit) AS picked
  JOIN jobs AS j ON j.number = ANY (ARRAY[picked.number])
 ORDER BY picked.started_at, picked.number;

-- name: dead_lately
-- The newest dead letters, among the first :look of them, that ended since a moment and were not retried.
SELECT hex(f.job_id), hex(f.root_id), (SELECT r.number FROM job_facts AS r WHERE r.job_id = f.root_id), f.attempt, f.job_type,
       f.organization_id, picked.finished_at,
       coalesce(picked.reason, (SELECT left(n.error, 500) FROM run_notes AS n WHERE n.job_number = f.number))
  FROM (SELECT number, finished_at, reason FROM job_ends WHERE status = 'DEAD_LETTER' ORDER BY number DESC LIMIT :look) AS picked
  JOIN job_facts AS f ON f.number = ANY (ARRAY[picked.number])
 WHERE picked.finished_at >= :since AND (:organization_id IS NULL OR f.organization_id = :organization_id) AND (:owner IS NULL OR f.owner = :owner)
   AND (SELECT s.number FROM job_facts AS s WHERE s.retry_of = f.job_id) IS NULL
 ORDER BY picked.number DESC LIMIT :limit;

-- name: unfired
SELECT s.name, hex(o.schedule_id), s.organization_id, o.fate, o.due_at, o.last_due_at, o.count, o.reason
  FROM (SELECT * FROM occurrences WHERE fate <> 'FIRED' AND last_due_at >= :since ORDER BY last_due_at DESC OFFSET 0) AS o
  JOIN schedules AS s ON s.schedule_id = ANY (ARRAY[o.schedule_id])
 WHERE (:organization_id IS NULL OR s.organization_id = :organization_id) AND (:owner IS NULL OR s.created_by = :owner)
 ORDER BY o.last_due_at DESC LIMIT :limit;

-- name: figures
SELECT job_type, status, bucket, sum(count)::bigint, sum(total_us)::bigint FROM stats_hourly
 WHERE hour >= :since AND (:organization_id IS NULL OR organization_id = :organization_id) GROUP BY job_type, status, bucket;

-- name: hourly
SELECT job_type, status, bucket, count, total_us, hour, organization_id FROM stats_hourly
 WHERE hour >= :since AND (:organization_id IS NULL OR organization_id = :organization_id);

-- name: trend_minutes
-- Since when there are no more than :look rows (no type and no bucket); then ends, by the minute and in the order of the key, so that nothing
-- is sorted (a type, no bucket); then completed runs by :step (no type, a bucket).
WITH begins AS MATERIALIZED (
    SELECT coalesce((SELECT minute + 60000000 FROM stats_minutely WHERE minute >= :since ORDER BY minute DESC LIMIT 1 OFFSET :look), :since) AS at
)
SELECT at, NULL AS job_type, NULL AS status, NULL::integer AS bucket, 0::bigint AS count FROM begins
UNION ALL
SELECT minute, job_type, status, NULL, sum(count)::bigint FROM stats_minutely
 WHERE minute >= (SELECT at FROM begins) AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:job_type IS NULL OR job_type = :job_type)
 GROUP BY minute, organization_id, job_type, status
UNION ALL
SELECT minute - minute % :step AS period, NULL, NULL, bucket, sum(count)::bigint FROM stats_minutely
 WHERE minute >= (SELECT at FROM begins) AND status = 'COMPLETED' AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:job_type IS NULL OR job_type = :job_type)
 GROUP BY period, bucket;

-- name: trend_hours
-- Since when there are no more than :look rows (no type and no bucket); then ends, by the hour and in the order of the key, so that nothing
-- is sorted (a type, no bucket); then completed runs by :step (no type, a bucket).
WITH begins AS MATERIALIZED (
    SELECT coalesce((SELECT hour + 3600000000 FROM stats_hourly WHERE hour >= :since ORDER BY hour DESC LIMIT 1 OFFSET :look), :since) AS at
)
SELECT at, NULL AS job_type, NULL AS status, NULL::integer AS bucket, 0::bigint AS count FROM begins
UNION ALL
SELECT hour, job_type, status, NULL, sum(count)::bigint FROM stats_hourly
 WHERE hour >= (SELECT at FROM begins) AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:job_type IS NULL OR job_type = :job_type)
 GROUP BY hour, organization_id, job_type, status
UNION ALL
SELECT hour - hour % :step AS period, NULL, NULL, bucket, sum(count)::bigint FROM stats_hourly
 WHERE hour >= (SELECT at FROM begins) AND status = 'COMPLETED' AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:job_type IS NULL OR job_type = :job_type)
 GROUP BY period, bucket;

-- name: kept
SELECT job_type, sum(count)::bigint FROM stats_total WHERE status = :status AND (:organization_id IS NULL OR organization_id = :organization_id)
 GROUP BY job_type;

-- name: errors
SELECT n.job_number, left(n.error, 500) FROM unnest(:numbers) AS e (number) JOIN run_notes AS n ON n.job_number = ANY (ARRAY[e.number])
 WHERE n.error IS NOT NULL;

-- name: metas
SELECT number, meta FROM job_facts WHERE number = ANY (:numbers) AND meta IS NOT NULL;

-- name: paused
SELECT kind, name, paused_at, paused_by FROM pauses ORDER BY paused_at, kind, name;
