-- What is looked at from above: the first screen and the metrics. Each walk goes along an index and has a bound.

-- name: ready_lanes
-- Each lane and priority that has ready jobs: a hop from one to the next along jobs_ready, not a scan. Of each: its first row,
-- how many there are as far as it is worth counting (all together are counted up to :look, but each up to a thousand), that
-- bound, and since when its first few wait.
WITH RECURSIVE line (number, lane, priority) AS (
    SELECT number, lane, priority FROM jobs
     WHERE number = (SELECT number FROM jobs WHERE status = 'QUEUED' AND held IS NULL AND lane > 0
                      ORDER BY lane, priority DESC, position, created_at, job_id LIMIT 1)
    UNION ALL
    SELECT j.number, j.lane, j.priority FROM line CROSS JOIN jobs AS j
        ON j.number = coalesce((SELECT p.number FROM jobs AS p
                                 WHERE p.status = 'QUEUED' AND p.held IS NULL AND p.lane = line.lane AND p.priority < line.priority
                                 ORDER BY p.priority DESC, p.position, p.created_at, p.job_id LIMIT 1),
                               (SELECT p.number FROM jobs AS p WHERE p.status = 'QUEUED' AND p.held IS NULL AND p.lane > line.lane
                                 ORDER BY p.lane, p.priority DESC, p.position, p.created_at, p.job_id LIMIT 1))
    LIMIT :limit
), share (most) AS (SELECT max(1000, :look / max(1, count(*))) FROM line)
SELECT n.job_type, line.lane, n.queue, line.number, (SELECT most FROM share),
       (SELECT count(*) FROM (SELECT 1 FROM jobs AS p INDEXED BY jobs_ready
                               WHERE p.status = 'QUEUED' AND p.held IS NULL AND p.lane = line.lane AND p.priority = line.priority
                               LIMIT (SELECT most FROM share))),
       (SELECT min(queued_at) FROM (SELECT queued_at FROM jobs AS p INDEXED BY jobs_ready
                                     WHERE p.status = 'QUEUED' AND p.held IS NULL AND p.lane = line.lane
                                       AND p.priority = line.priority ORDER BY p.position, p.created_at, p.job_id LIMIT :few))
  FROM line CROSS JOIN lanes AS n ON n.lane = line.lane;

-- name: running_suspects
-- What runs under which a worker has crashed before, and where.
SELECT j.number, lower(hex(j.worker_id)), lower(hex(j.root_id)), (SELECT r.number FROM jobs AS r WHERE r.job_id = j.root_id), j.attempt, j.executor
  FROM jobs AS j WHERE j.status = 'RUNNING' AND j.crashes > 0 ORDER BY j.started_at, j.number;

-- name: waiting_suspects
-- Among the first ready jobs of a lane, those under which a worker has crashed: they keep their place, so that they are near the front.
SELECT count(*), min(queued_at), min(number)
  FROM (SELECT crashes, queued_at, number, organization_id, owner FROM jobs INDEXED BY jobs_ready
         WHERE status = 'QUEUED' AND held IS NULL AND lane = :lane
         ORDER BY priority DESC, position, created_at, job_id LIMIT :look)
 WHERE crashes > 0 AND (:organization_id IS NULL OR organization_id = :organization_id) AND (:owner IS NULL OR owner = :owner);

-- name: held_lanes
-- Each word and type that rows are parked under.
WITH RECURSIVE lane (number, held, job_type) AS (
    SELECT number, held, job_type FROM jobs
     WHERE number = (SELECT number FROM jobs WHERE status = 'QUEUED' AND held IS NOT NULL
                      ORDER BY held, job_type, priority DESC, position, created_at, job_id LIMIT 1)
    UNION ALL
    SELECT j.number, j.held, j.job_type FROM lane CROSS JOIN jobs AS j
        ON j.number = coalesce((SELECT p.number FROM jobs AS p
                                 WHERE p.status = 'QUEUED' AND p.held = lane.held AND p.job_type > lane.job_type
                                 ORDER BY p.job_type, p.priority DESC, p.position, p.created_at, p.job_id LIMIT 1),
                               (SELECT p.number FROM jobs AS p WHERE p.status = 'QUEUED' AND p.held > lane.held
                                 ORDER BY p.held, p.job_type, p.priority DESC, p.position, p.created_at, p.job_id LIMIT 1))
    LIMIT :limit
), share (most) AS (SELECT max(1000, :look / max(1, count(*))) FROM lane)
SELECT held, job_type, number, (SELECT most FROM share),
       (SELECT count(*) FROM (SELECT 1 FROM jobs AS p INDEXED BY jobs_held
                               WHERE p.status = 'QUEUED' AND p.held = lane.held AND p.job_type = lane.job_type
                               LIMIT (SELECT most FROM share))),
       (SELECT min(queued_at) FROM (SELECT queued_at FROM jobs AS p INDEXED BY jobs_held
                                     WHERE p.status = 'QUEUED' AND p.held = lane.held AND p.job_type = lane.job_type
                                     ORDER BY p.priority DESC, p.position, p.created_at, p.job_id LIMIT :few))
  FROM lane;

-- name: line_lanes
-- The head of one line of the queue, that of an organization at a priority, sorted into lanes; whose own they are too.
SELECT held, job_type, mine, count(*), min(queued_at), min(number), lane, (SELECT n.queue FROM lanes AS n WHERE n.lane = head.lane)
  FROM (SELECT held, job_type, lane, :owner IS NULL OR owner = :owner AS mine, queued_at, number FROM jobs INDEXED BY jobs_tail
         WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id ORDER BY position LIMIT :look) AS head
 GROUP BY held, job_type, mine, lane;

-- name: blocked_lanes
SELECT job_type, 1, count(*), min(created_at), min(number)
  FROM (SELECT job_type, created_at, number FROM jobs INDEXED BY jobs_blocked WHERE status = 'PENDING' AND blockers > 0 LIMIT :look)
 GROUP BY job_type;

-- name: blocked_lanes_of
SELECT job_type, mine, count(*), min(created_at), min(number)
  FROM (SELECT job_type, :owner IS NULL OR owner = :owner AS mine, created_at, number FROM jobs INDEXED BY jobs_blocked
         WHERE status = 'PENDING' AND blockers > 0 AND organization_id = :organization_id LIMIT :look)
 GROUP BY job_type, mine;

-- name: due_lane
-- One priority's PENDING jobs that are due after a moment, up to another: how many, the first due time, and whose it is.
SELECT count(*), count(*), min(run_at),
       (SELECT number FROM jobs WHERE status = 'PENDING' AND blockers = 0 AND priority = :priority AND run_at > :after AND run_at <= :until
         ORDER BY run_at LIMIT 1)
  FROM (SELECT run_at FROM jobs INDEXED BY jobs_due
         WHERE status = 'PENDING' AND blockers = 0 AND priority = :priority AND run_at > :after AND run_at <= :until
         ORDER BY run_at LIMIT :look);

-- name: due_lane_of
SELECT count(*), count(*) FILTER (WHERE mine), min(run_at) FILTER (WHERE mine), min(number) FILTER (WHERE mine)
  FROM (SELECT run_at, number, organization_id = :organization_id AND (:owner IS NULL OR owner = :owner) AS mine FROM jobs INDEXED BY jobs_due
         WHERE status = 'PENDING' AND blockers = 0 AND priority = :priority AND run_at > :after AND run_at <= :until
         ORDER BY run_at LIMIT :look);

-- name: shown
SELECT j.number, lower(hex(j.job_id)), lower(hex(j.root_id)), r.number, j.attempt, j.job_type
  FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value CROSS JOIN jobs AS r ON r.job_id = j.root_id;

-- name: running_now
-- The longest running among the first that are found; with each, how many are whose, and how many were looked at.
SELECT {columns}, r.progress, r.progress_message, picked.total, picked.looked
  FROM (SELECT number, started_at, count(*) OVER () AS total, looked
          FROM (SELECT number, started_at, owner, count(*) OVER () AS looked
                  FROM (SELECT number, started_at, owner FROM jobs INDEXED BY jobs_running
                         WHERE status = 'RUNNING' AND (:organization_id IS NULL OR organization_id = :organization_id) LIMIT :look))
         WHERE :owner IS NULL OR owner = :owner ORDER BY started_at, number LIMIT :limit) AS picked
 CROSS JOIN jobs AS j ON j.number = picked.number LEFT JOIN job_runs AS r ON r.job_number = j.number
 ORDER BY picked.started_at, picked.number;

-- name: dead_lately
-- The newest dead letters, among the first :look of them, that ended since a moment and were not retried.
SELECT lower(hex(j.job_id)), lower(hex(j.root_id)), r.number, j.attempt, j.job_type, j.organization_id, j.finished_at,
       coalesce(j.reason, (SELECT substr(e.error, 1, 500) FROM job_runs AS e WHERE e.job_number = j.number))
  FROM (SELECT number FROM jobs INDEXED BY jobs_unhappy
         WHERE status = 'DEAD_LETTER'
         ORDER BY number DESC LIMIT :look) AS picked
 CROSS JOIN jobs AS j ON j.number = picked.number CROSS JOIN jobs AS r ON r.job_id = j.root_id
 WHERE j.finished_at >= :since AND (:organization_id IS NULL OR j.organization_id = :organization_id) AND (:owner IS NULL OR j.owner = :owner)
   AND NOT EXISTS (SELECT 1 FROM jobs AS s WHERE s.retry_of = j.job_id)
 ORDER BY picked.number DESC LIMIT :limit;

-- name: unfired
SELECT s.name, lower(hex(o.schedule_id)), s.organization_id, o.fate, o.due_at, o.last_due_at, o.count, o.reason
  FROM occurrences AS o INDEXED BY occurrences_unfired CROSS JOIN schedules AS s ON s.schedule_id = o.schedule_id
 WHERE o.fate <> 'FIRED' AND o.last_due_at >= :since
   AND (:organization_id IS NULL OR s.organization_id = :organization_id) AND (:owner IS NULL OR s.created_by = :owner)
 ORDER BY o.last_due_at DESC LIMIT :limit;

-- name: figures
SELECT job_type, status, bucket, sum(count), sum(total_us) FROM stats_hourly
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
SELECT at, NULL AS job_type, NULL AS status, NULL AS bucket, 0 AS count FROM begins
UNION ALL
SELECT minute, job_type, status, NULL, sum(count) FROM stats_minutely
 WHERE minute >= (SELECT at FROM begins) AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:job_type IS NULL OR job_type = :job_type)
 GROUP BY minute, organization_id, job_type, status
UNION ALL
SELECT minute - minute % :step AS period, NULL, NULL, bucket, sum(count) FROM stats_minutely
 WHERE minute >= (SELECT at FROM begins) AND status = 'COMPLETED' AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:job_type IS NULL OR job_type = :job_type)
 GROUP BY period, bucket;

-- name: trend_hours
-- Since when there are no more than :look rows (no type and no bucket); then ends, by the hour and in the order of the key, so that nothing
-- is sorted (a type, no bucket); then completed runs by :step (no type, a bucket).
WITH begins AS MATERIALIZED (
    SELECT coalesce((SELECT hour + 3600000000 FROM stats_hourly WHERE hour >= :since ORDER BY hour DESC LIMIT 1 OFFSET :look), :since) AS at
)
SELECT at, NULL AS job_type, NULL AS status, NULL AS bucket, 0 AS count FROM begins
UNION ALL
SELECT hour, job_type, status, NULL, sum(count) FROM stats_hourly
 WHERE hour >= (SELECT at FROM begins) AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:job_type IS NULL OR job_type = :job_type)
 GROUP BY hour, organization_id, job_type, status
UNION ALL
SELECT hour - hour % :step AS period, NULL, NULL, bucket, sum(count) FROM stats_hourly
 WHERE hour >= (SELECT at FROM begins) AND status = 'COMPLETED' AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:job_type IS NULL OR job_type = :job_type)
 GROUP BY period, bucket;

-- name: kept
SELECT job_type, sum(count) FROM stats_total WHERE status = :status AND (:organization_id IS NULL OR organization_id = :organization_id)
 GROUP BY job_type;

-- name: errors
SELECT r.job_number, substr(r.error, 1, 500) FROM json_each(:numbers) AS e CROSS JOIN job_runs AS r ON r.job_number = e.value
 WHERE r.error IS NOT NULL;

-- name: metas
SELECT j.number, j.meta FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value WHERE j.meta IS NOT NULL;

-- name: paused
SELECT kind, name, paused_at, paused_by FROM pauses ORDER BY paused_at, kind, name;
