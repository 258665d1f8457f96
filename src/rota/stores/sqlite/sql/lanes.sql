-- Lanes: lines of ready jobs of one type, one queue and one digest of parameters. See decision 0052.

-- name: all_lanes
SELECT n.lane, n.job_type, n.queue, n.digest, (SELECT d.names FROM param_digests AS d WHERE d.job_type = n.job_type AND d.digest = n.digest)
  FROM lanes AS n ORDER BY n.lane;

-- name: lanes_of_types
SELECT lane, job_type FROM lanes WHERE job_type IN (SELECT value FROM json_each(:types)) ORDER BY +lane;

-- name: lane_of
SELECT lane FROM lanes WHERE job_type = :job_type AND queue = :queue AND digest = :digest;

-- name: add_lane
INSERT INTO lanes (job_type, queue, digest) VALUES (:job_type, :queue, :digest) ON CONFLICT DO NOTHING;

-- name: held_by_lane
SELECT lane, count(*), min(queued_at)
  FROM (SELECT lane, queued_at FROM jobs INDEXED BY jobs_held WHERE status = 'QUEUED' AND held IS NOT NULL LIMIT :look) GROUP BY lane;

-- name: running_by_lane
SELECT +lane, count(*) FROM jobs INDEXED BY jobs_running WHERE status = 'RUNNING' GROUP BY +lane;

-- name: param_digests
SELECT job_type, digest, recorded_at, CASE WHEN :with_schema THEN schema END FROM param_digests;

-- name: add_param_digest
INSERT INTO param_digests (job_type, digest, names, schema, recorded_at) VALUES (:job_type, :digest, :param_names, :schema, :now)
ON CONFLICT DO NOTHING;

-- name: set_param_schema
UPDATE param_digests SET schema = :schema, recorded_at = :now WHERE job_type = :job_type AND digest = :digest;

-- name: newest_params
-- One that a worker stated comes first: the names of a job that was given back are recorded without a schema.
SELECT digest, names, schema FROM param_digests WHERE job_type = :job_type ORDER BY schema IS NULL, recorded_at DESC, digest LIMIT 1;

-- name: schemas_of_live_workers
SELECT DISTINCT (SELECT d.schema FROM param_digests AS d WHERE d.job_type = :job_type AND d.digest = announced.value)
  FROM workers AS w, json_each(w.digests) AS announced WHERE w.ended_at IS NULL AND announced.key = :job_type;

-- name: type_and_queue
SELECT j.job_type, {queue_of} FROM jobs AS j WHERE j.number = :number;

-- name: old_in_lane
-- Ready jobs of a lane that were queued at a moment or before, among its first :look.
SELECT number FROM (SELECT number, queued_at FROM jobs WHERE status = 'QUEUED' AND held IS NULL AND lane = :lane
                       ORDER BY priority DESC, position, created_at, job_id LIMIT :look)
 WHERE queued_at <= :before LIMIT :limit;

-- name: stray_types
SELECT DISTINCT job_type FROM jobs INDEXED BY jobs_stray WHERE lane IS NULL AND finished_at IS NULL LIMIT :limit;

-- name: place_strays
UPDATE jobs INDEXED BY jobs_stray SET lane = :lane WHERE job_type = :job_type AND lane IS NULL AND finished_at IS NULL;
