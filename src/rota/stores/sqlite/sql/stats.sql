-- Figures: counted as jobs end, so that none of these reads walks over history.

-- name: ends
-- Jobs that have just ended, counted by what the figures tell apart. A bucket is an eighth of an octave of the run's microseconds.
SELECT json_group_array(json_array(minute, organization_id, job_type, status, bucket, count, total_us)) FROM (
    SELECT j.finished_at - j.finished_at % 60000000 AS minute, j.organization_id, j.job_type, j.status,
           iif(j.started_at IS NULL, -1, CAST(8 * log2(max(j.finished_at - j.started_at, 1)) AS INTEGER)) AS bucket,
           count(*) AS count, sum(iif(j.started_at IS NULL, 0, max(j.finished_at - j.started_at, 0))) AS total_us
      FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value
     GROUP BY bucket, j.status, j.job_type, j.organization_id, minute);

-- name: tally_minutely
-- Each row: [minute, organization, job type, status, bucket, count, microseconds].
INSERT INTO stats_minutely (minute, organization_id, job_type, status, bucket, count, total_us)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6 FROM json_each(:ends) WHERE true
    ON CONFLICT (minute, organization_id, job_type, status, bucket)
    DO UPDATE SET count = count + excluded.count, total_us = total_us + excluded.total_us;

-- name: tally_hourly
INSERT INTO stats_hourly (hour, organization_id, job_type, status, bucket, count, total_us)
SELECT (value ->> 0) - (value ->> 0) % 3600000000, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6 FROM json_each(:ends) WHERE true
    ON CONFLICT (hour, organization_id, job_type, status, bucket)
    DO UPDATE SET count = count + excluded.count, total_us = total_us + excluded.total_us;

-- name: tally_total
INSERT INTO stats_total (organization_id, job_type, status, count)
SELECT value ->> 1, value ->> 2, value ->> 3, sum(value ->> 5) FROM json_each(:ends) GROUP BY 1, 2, 3
    ON CONFLICT (organization_id, job_type, status) DO UPDATE SET count = count + excluded.count;

-- name: untally
-- Jobs that are about to be removed: they are in the store no longer, but what happened in their hours did happen.
UPDATE stats_total SET count = count - gone.jobs
  FROM (SELECT j.organization_id AS organization_id, j.job_type AS job_type, j.status AS status, count(*) AS jobs
          FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value GROUP BY 1, 2, 3) AS gone
 WHERE stats_total.organization_id = gone.organization_id AND stats_total.job_type = gone.job_type AND stats_total.status = gone.status;

-- name: forget_zeros
DELETE FROM stats_total WHERE count = 0;

-- name: count_ended
SELECT status, sum(count) FROM stats_total WHERE :organization_id IS NULL OR organization_id = :organization_id GROUP BY status;

-- name: count_running
SELECT count(*) FROM jobs WHERE status = 'RUNNING' AND (:organization_id IS NULL OR organization_id = :organization_id);

-- name: count_pending
SELECT (SELECT count(*) FROM jobs WHERE status = 'PENDING' AND blockers = 0) + (SELECT count(*) FROM jobs WHERE status = 'PENDING' AND blockers > 0);

-- name: count_pending_of
SELECT (SELECT count(*) FROM jobs INDEXED BY jobs_due WHERE status = 'PENDING' AND blockers = 0 AND organization_id = :organization_id)
     + (SELECT count(*) FROM jobs INDEXED BY jobs_blocked WHERE status = 'PENDING' AND blockers > 0 AND organization_id = :organization_id);

-- name: count_line
-- One line of the queue: how long it is, and since when its first few wait. Positions are given in the order of time, so the
-- longest wait is there, unless more than :few were moved to the front.
SELECT (SELECT count(*) FROM jobs WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id),
       (SELECT min(queued_at) FROM (SELECT queued_at FROM jobs
                                     WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id
                                     ORDER BY position, created_at, job_id LIMIT :few));

-- name: count_types
SELECT job_type, sum(jobs) FROM (
    SELECT n.job_type, ready.jobs
      FROM (SELECT lane, count(*) AS jobs FROM jobs INDEXED BY jobs_ready WHERE status = 'QUEUED' AND held IS NULL GROUP BY lane) AS ready
     CROSS JOIN lanes AS n ON n.lane = ready.lane
    UNION ALL
    SELECT job_type, count(*) FROM jobs INDEXED BY jobs_held WHERE status = 'QUEUED' AND held IS NOT NULL GROUP BY job_type)
 GROUP BY job_type ORDER BY 2 DESC, 1 LIMIT :limit;

-- name: count_types_of_line
SELECT job_type, count(*) FROM jobs INDEXED BY jobs_tail
 WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id GROUP BY job_type;

-- name: fared
-- How types fared since an hour began: completed runs by bucket, and how many attempts failed.
SELECT job_type, bucket, status = 'COMPLETED', sum(count), sum(total_us) FROM stats_hourly
 WHERE hour >= :since AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND status IN ('COMPLETED', 'FAILED', 'TIMED_OUT', 'DEAD_LETTER')
 GROUP BY job_type, bucket, status = 'COMPLETED' ORDER BY job_type, bucket;

-- name: late_results
SELECT value FROM meta WHERE key = 'late_results';

-- name: claimed_ahead
-- RUNNING jobs that workers hold beyond their slots.
SELECT coalesce(sum(max(held - slots, 0)), 0)
  FROM (SELECT slots, (SELECT count(*) FROM jobs WHERE jobs.worker_id = workers.worker_id AND status = 'RUNNING') AS held
          FROM workers WHERE ended_at IS NULL AND slots IS NOT NULL);

-- name: count_workers
SELECT count(*) FROM workers WHERE ended_at IS NULL AND kind = 'worker';
