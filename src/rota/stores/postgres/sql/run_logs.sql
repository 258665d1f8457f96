-- What handlers wrote, in pieces.

-- name: append_logs
-- Each row: [run_id, number, start, data in hexadecimal digits]. A piece that does not begin where its log ends is left out: it is there already,
-- or one before it is missing. So is one whose run is gone.
INSERT INTO run_logs (run_id, start, job_number, at, data)
SELECT p.run_id, p.start, p.number, :now, p.data
  FROM (SELECT (e.value ->> 0)::uuid, (e.value ->> 1)::bigint, (e.value ->> 2)::bigint, decode(e.value ->> 3, 'hex')
          FROM json_array_elements(:rows::json) AS e (value)) AS p (run_id, number, start, data)
 WHERE p.run_id = coalesce((SELECT l.run_id FROM job_live AS l WHERE l.number = p.number), (SELECT e.run_id FROM job_ends AS e WHERE e.number = p.number))
   AND p.start = coalesce((SELECT l.start + length(l.data) FROM run_logs AS l WHERE l.run_id = p.run_id ORDER BY l.start DESC LIMIT 1), 0)
    ON CONFLICT (run_id, start) DO NOTHING;

-- name: log_sizes
SELECT hex(e.run_id), (SELECT l.start + length(l.data) FROM run_logs AS l WHERE l.run_id = e.run_id ORDER BY l.start DESC LIMIT 1)
  FROM unnest(:run_ids) AS e (run_id);

-- name: log_after
-- From the piece on that holds the byte :after.
SELECT start, data FROM run_logs
 WHERE run_id = :run_id AND start + length(data) > :after
   AND start >= coalesce((SELECT l.start FROM run_logs AS l WHERE l.run_id = :run_id AND l.start <= :after ORDER BY l.start DESC LIMIT 1), 0)
 ORDER BY start LIMIT :limit;

-- name: ended_logs
SELECT hex(l.run_id), l.job_number FROM run_logs AS l
 WHERE l.run_id = ANY (:run_ids) AND l.start = 0 AND (SELECT e.number FROM job_ends AS e WHERE e.number = l.job_number) IS NOT NULL;

-- name: remove_logs
DELETE FROM run_logs WHERE run_id = ANY(ARRAY(SELECT e.run_id FROM job_ends AS e WHERE e.number = ANY(:numbers) AND e.run_id IS NOT NULL));
