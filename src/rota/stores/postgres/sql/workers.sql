-- Workers, recovery, direct reservations.
-- Why joins are `= ANY (ARRAY[...])`, and some conditions expressions: see edges.sql.

-- name: register
INSERT INTO workers (worker_id, host, kind, job_types, queues, digests, started_at, slots, pid, rota_version, memory)
VALUES (:worker_id, :host, :kind, :job_types, :queues, :digests, :now, :slots, :pid, :rota_version, :memory)
ON CONFLICT (worker_id) DO NOTHING;

-- name: beat
UPDATE workers SET beat = beat + 1, job_types = :job_types, digests = coalesce(:digests, digests), memory = coalesce(:memory, memory) WHERE worker_id = :worker_id AND ended_at IS NULL;

-- name: stopping
UPDATE workers SET stopping_at = :now WHERE worker_id = :worker_id AND stopping_at IS NULL AND ended_at IS NULL;

-- name: end_worker
UPDATE workers SET ended_at = :now WHERE worker_id = :worker_id AND ended_at IS NULL;

-- name: give_up_worker
-- Its own beat, should it come after all, finds it ended: one of the two comes first.
UPDATE workers SET ended_at = :now WHERE worker_id = :worker_id AND ended_at IS NULL AND beat = :beat;

-- name: worker_columns
hex(w.worker_id), w.host, w.kind, w.beat, w.job_types, w.started_at, w.stopping_at, w.ended_at,
(SELECT count(*) FROM job_live AS l WHERE l.worker_id = w.worker_id AND l.status = 'RUNNING'), w.slots, w.queues, w.digests, w.pid, w.rota_version, w.memory

-- name: workers
-- Those that were given up and still hold something are here too: whoever gave them up may be gone itself.
SELECT {worker_columns} FROM workers AS w WHERE w.ended_at IS NULL
 UNION ALL
SELECT {worker_columns} FROM workers AS w
 WHERE w.ended_at IS NOT NULL AND w.worker_id = ANY(ARRAY(SELECT DISTINCT l.worker_id FROM job_live AS l WHERE l.status = 'RUNNING'))
 ORDER BY 1;

-- name: all_workers
SELECT {worker_columns} FROM workers AS w ORDER BY w.worker_id;

-- name: held_by
-- A run is here what its job is: it is never missing, and never ends alone.
SELECT coalesce(json_agg(json_build_array(json_build_array({columns}), 0, NULL, hex(l.run_id), l.started_at) ORDER BY f.number), '[]')::text
  FROM (SELECT * FROM job_live WHERE worker_id = :worker_id AND status = 'RUNNING' ORDER BY number + 0 LIMIT :limit) AS l
  JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number]);

-- name: failed_without_successor
-- A stretch of time, though it has no end, is taken to be short: of "from then on" a plan expects a third of all ends, and reads them all.
SELECT coalesce(json_agg(json_build_array(json_build_array({columns}), 0, l.status, coalesce(hex(l.run_id), ''), l.started_at)), '[]')::text
  FROM (SELECT * FROM job_ends WHERE status IN ('FAILED', 'TIMED_OUT') AND finished_at BETWEEN :since AND 9223372036854775807 ORDER BY finished_at) AS l
  JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number])
 WHERE {no_successor};

-- name: recovered_at
SELECT value FROM meta WHERE key = 'recovered_at';

-- name: set_recovered_at
UPDATE meta SET value = :now WHERE key = 'recovered_at';

-- name: reservation_columns
hex(reservation_id), reserved_by, hex(worker_id), hex(job_id), job_number, reserved_at, expires_at

-- name: active_reservation
SELECT {reservation_columns} FROM direct_reservations WHERE status = 'ACTIVE';

-- name: reservation_by_id
SELECT {reservation_columns} FROM direct_reservations WHERE reservation_id = :reservation_id;

-- name: insert_reservation
INSERT INTO direct_reservations (reservation_id, reserved_at, reserved_by, status, expires_at, job_id, job_number, worker_id)
VALUES (:reservation_id, :now, :reserved_by, 'ACTIVE', :expires_at, :job_id, :job_number, :worker_id);

-- name: end_reservation
UPDATE direct_reservations SET status = :status, released_at = :now WHERE reservation_id = :reservation_id AND status = 'ACTIVE';

-- name: end_reservation_of
-- Of the job among these that it was made for.
UPDATE direct_reservations SET status = :status, released_at = :now WHERE status = 'ACTIVE' AND job_number = ANY(:numbers);

-- name: is_waiting
SELECT 1 FROM job_live WHERE number = :number AND status IN ('PENDING', 'QUEUED');

-- name: is_given_up
SELECT EXISTS (SELECT 1 FROM workers WHERE worker_id = :worker_id AND ended_at IS NOT NULL);

-- name: is_running
SELECT 1 FROM job_live WHERE number = :number AND status || '' = 'RUNNING';
