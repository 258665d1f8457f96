-- Figures: counted as jobs end, so that none of these reads walks over history.
-- Why some joins are `= ANY (ARRAY[...])`: see edges.sql.

-- name: tally
-- Jobs that have just ended, counted by what the figures tell apart.
WITH ended AS MATERIALIZED (
    SELECT {minute_of} AS minute, f.organization_id, e.job_type, e.status, {bucket_of} AS bucket, count(*) AS count, {spent_in} AS total_us
      FROM job_ends AS e JOIN job_facts AS f ON f.number = ANY (ARRAY[e.number])
     WHERE e.number = ANY (:numbers)
     GROUP BY bucket, e.status, e.job_type, f.organization_id, minute
), {counted}
SELECT;

-- name: count_figures
-- Each row: [minute, organization, job type, status, bucket, count, total_us].
WITH ended AS MATERIALIZED (
    SELECT (e.value ->> 0)::bigint AS minute, e.value ->> 1 AS organization_id, e.value ->> 2 AS job_type, e.value ->> 3 AS status,
           (e.value ->> 4)::integer AS bucket, (e.value ->> 5)::bigint AS count, (e.value ->> 6)::bigint AS total_us
      FROM json_array_elements(:figures::json) AS e (value)
), {counted}
SELECT;

-- name: minute_of
finished_at - finished_at % 60000000

-- name: bucket_of
-- An eighth of an octave of the run's microseconds; a power of two begins one, which a logarithm may miss by its last digit.
CASE WHEN started_at IS NULL THEN -1
     ELSE trunc(8 * ln(greatest(finished_at - started_at, 1)::double precision) / ln(2::double precision) + 3e-13)::integer END

-- name: spent_in
sum(CASE WHEN started_at IS NULL THEN 0 ELSE greatest(finished_at - started_at, 0) END)::bigint

-- name: counted
-- What `ended` has, added to the figures, in an order that all keep: turns that count the same wait for each other, and never in a ring.
minutely AS (
    INSERT INTO stats_minutely AS s (minute, organization_id, job_type, status, bucket, count, total_us)
    SELECT minute, organization_id, job_type, status, bucket, count, total_us FROM ended
     ORDER BY minute, organization_id COLLATE "C", job_type COLLATE "C", status, bucket
        ON CONFLICT (minute, organization_id, job_type, status, bucket)
        DO UPDATE SET count = s.count + excluded.count, total_us = s.total_us + excluded.total_us
), hourly AS (
    INSERT INTO stats_hourly AS s (hour, organization_id, job_type, status, bucket, count, total_us)
    SELECT minute - minute % 3600000000 AS hour, organization_id, job_type, status, bucket, sum(count)::bigint, sum(total_us)::bigint FROM ended
     GROUP BY hour, organization_id, job_type, status, bucket
     ORDER BY hour, organization_id COLLATE "C", job_type COLLATE "C", status, bucket
        ON CONFLICT (hour, organization_id, job_type, status, bucket)
        DO UPDATE SET count = s.count + excluded.count, total_us = s.total_us + excluded.total_us
), totals AS (
    INSERT INTO stats_total AS s (organization_id, job_type, status, count)
    SELECT organization_id, job_type, status, sum(count)::bigint FROM ended GROUP BY 1, 2, 3 ORDER BY organization_id COLLATE "C", job_type COLLATE "C", status
        ON CONFLICT (organization_id, job_type, status) DO UPDATE SET count = s.count + excluded.count
)

-- name: untally
-- Jobs that are about to be removed: they are in the store no longer, but what happened in their hours did happen.
UPDATE stats_total SET count = stats_total.count - gone.jobs
  FROM (SELECT f.organization_id, e.job_type, e.status, count(*) AS jobs
          FROM job_ends AS e JOIN job_facts AS f ON f.number = ANY (ARRAY[e.number]) WHERE e.number = ANY (:numbers) GROUP BY 1, 2, 3) AS gone
 WHERE stats_total.organization_id = ANY (ARRAY[gone.organization_id]) AND stats_total.job_type = ANY (ARRAY[gone.job_type])
   AND stats_total.status = ANY (ARRAY[gone.status]);

-- name: forget_zeros
DELETE FROM stats_total WHERE count = 0;

-- name: count_ended
SELECT status, sum(count)::bigint FROM stats_total WHERE :organization_id IS NULL OR organization_id = :organization_id GROUP BY status;

-- name: count_running
SELECT count(*) FROM job_live WHERE status = 'RUNNING' AND (:organization_id IS NULL OR organization_id = :organization_id);

-- name: count_pending
SELECT (SELECT count(*) FROM job_live WHERE status = 'PENDING' AND blockers = 0)
     + (SELECT count(*) FROM job_live WHERE status = 'PENDING' AND blockers > 0);

-- name: count_pending_of
SELECT (SELECT count(*) FROM job_live WHERE status = 'PENDING' AND blockers = 0 AND organization_id = :organization_id)
     + (SELECT count(*) FROM job_live WHERE status = 'PENDING' AND blockers > 0 AND organization_id = :organization_id);

-- name: count_line
-- One line of the queue: how long it is, and since when its first few wait. Positions are given in the order of time, so the
-- longest wait is there, unless more than :few were moved to the front.
SELECT (SELECT count(*) FROM job_live WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id),
       (SELECT min(queued_at) FROM (SELECT queued_at FROM job_live
                                     WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id
                                     ORDER BY position LIMIT :few) AS first);

-- name: count_types
SELECT job_type, sum(jobs)::bigint FROM (
    SELECT (SELECT n.job_type FROM lanes AS n WHERE n.lane = ready.lane) AS job_type, ready.jobs
      FROM (SELECT lane, count(*) AS jobs FROM job_live WHERE status = 'QUEUED' AND held IS NULL GROUP BY lane) AS ready
    UNION ALL
    SELECT job_type, count(*) FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL GROUP BY job_type) AS queued
 GROUP BY job_type ORDER BY 2 DESC, 1 LIMIT :limit;

-- name: count_types_of_line
SELECT job_type, count(*) FROM job_live
 WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id GROUP BY job_type;

-- name: fared
-- How types fared since an hour began: completed runs by bucket, and how many attempts failed.
SELECT job_type, bucket, status = 'COMPLETED', sum(count)::bigint, sum(total_us)::bigint FROM stats_hourly
 WHERE hour >= :since AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND status IN ('COMPLETED', 'FAILED', 'TIMED_OUT', 'DEAD_LETTER')
 GROUP BY job_type, bucket, status = 'COMPLETED' ORDER BY job_type, bucket;

-- name: late_results
SELECT value FROM meta WHERE key = 'late_results';

-- name: claimed_ahead
-- RUNNING jobs that workers hold beyond their slots.
SELECT coalesce(sum(greatest(h.held - h.slots, 0)), 0)::bigint
  FROM (SELECT w.slots, (SELECT count(*) FROM job_live AS l WHERE l.worker_id = w.worker_id AND l.status = 'RUNNING') AS held
          FROM workers AS w WHERE w.ended_at IS NULL AND w.slots IS NOT NULL) AS h;

-- name: count_workers
SELECT count(*) FROM workers WHERE ended_at IS NULL AND kind = 'worker';
