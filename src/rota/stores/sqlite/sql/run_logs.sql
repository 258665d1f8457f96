-- What handlers wrote, in pieces.

-- name: append_logs
-- Each row: [run_id, number, start, data in hexadecimal digits]. A piece that does not begin where its log ends is left out: it is there already,
-- or one before it is missing. So is one whose run is gone.
INSERT INTO run_logs (run_id, start, job_number, at, data)
SELECT r.run_id, e.value ->> 2, r.job_number, :now, unhex(e.value ->> 3)
  FROM json_each(:rows) AS e CROSS JOIN job_runs AS r ON r.job_number = e.value ->> 1
 WHERE r.run_id = unhex(e.value ->> 0)
   AND e.value ->> 2 = coalesce((SELECT l.start + length(l.data) FROM run_logs AS l WHERE l.run_id = r.run_id ORDER BY l.start DESC LIMIT 1), 0);

-- name: log_sizes
SELECT lower(hex(unhex(e.value))), (SELECT l.start + length(l.data) FROM run_logs AS l WHERE l.run_id = unhex(e.value) ORDER BY l.start DESC LIMIT 1)
  FROM json_each(:run_ids) AS e;

-- name: log_after
-- From the piece on that holds the byte :after.
SELECT start, data FROM run_logs
 WHERE run_id = unhex(:run_id) AND start + length(data) > :after
   AND start >= coalesce((SELECT max(l.start) FROM run_logs AS l WHERE l.run_id = unhex(:run_id) AND l.start <= :after), 0)
 ORDER BY start LIMIT :limit;

-- name: ended_logs
SELECT lower(hex(l.run_id)), l.job_number FROM json_each(:run_ids) AS e CROSS JOIN run_logs AS l ON l.run_id = unhex(e.value) AND l.start = 0
 CROSS JOIN job_runs AS r ON r.job_number = l.job_number WHERE r.status IS NOT NULL;

-- name: remove_logs
DELETE FROM run_logs WHERE run_id IN (SELECT r.run_id FROM json_each(:numbers) AS e CROSS JOIN job_runs AS r ON r.job_number = e.value);
