-- Workers, recovery, direct reservations.

-- name: register
INSERT INTO workers (worker_id, host, kind, job_types, queues, digests, started_at, slots, pid, rota_version, memory)
VALUES (unhex(:worker_id), :host, :kind, :job_types, :queues, :digests, :now, :slots, :pid, :rota_version, :memory)
ON CONFLICT (worker_id) DO NOTHING;

-- name: beat
UPDATE workers SET beat = beat + 1, job_types = :job_types, digests = coalesce(:digests, digests), memory = coalesce(:memory, memory) WHERE worker_id = unhex(:worker_id) AND ended_at IS NULL;

-- name: stopping
UPDATE workers SET stopping_at = :now WHERE worker_id = unhex(:worker_id) AND stopping_at IS NULL AND ended_at IS NULL;

-- name: end_worker
UPDATE workers SET ended_at = :now WHERE worker_id = unhex(:worker_id) AND ended_at IS NULL;

-- name: give_up_worker
-- Its own beat, should it come after all, finds it ended: one of the two comes first.
UPDATE workers SET ended_at = :now WHERE worker_id = unhex(:worker_id) AND ended_at IS NULL AND beat = :beat;

-- name: worker_columns
lower(hex(worker_id)), host, kind, beat, job_types, started_at, stopping_at, ended_at,
(SELECT count(*) FROM jobs WHERE jobs.worker_id = workers.worker_id AND status = 'RUNNING'), slots, queues, digests, pid, rota_version, memory

-- name: workers
-- Those that were given up and still hold something are here too: whoever gave them up may be gone itself.
SELECT {worker_columns} FROM workers WHERE ended_at IS NULL
 UNION ALL
SELECT {worker_columns} FROM workers
 WHERE ended_at IS NOT NULL AND worker_id IN (SELECT worker_id FROM jobs WHERE status = 'RUNNING')
 ORDER BY 1;

-- name: all_workers
SELECT {worker_columns} FROM workers ORDER BY worker_id;

-- name: held_by
SELECT json_group_array(json_array(json_array({columns}), r.run_id IS NULL, r.status, lower(hex(r.run_id)), r.started_at))
  FROM (SELECT number AS picked FROM jobs WHERE worker_id = unhex(:worker_id) AND status = 'RUNNING' ORDER BY number LIMIT :limit)
 CROSS JOIN jobs AS j ON j.number = picked LEFT JOIN job_runs AS r ON r.job_number = j.number;

-- name: failed_without_successor
SELECT json_group_array(json_array(json_array({columns}), 0, j.status, lower(hex(r.run_id)), r.started_at))
  FROM (SELECT f.number AS picked FROM jobs AS f INDEXED BY jobs_failed
         WHERE f.status IN ('FAILED', 'TIMED_OUT') AND f.finished_at >= :since
           AND NOT EXISTS (SELECT 1 FROM jobs AS s WHERE s.retry_of = f.job_id))
 CROSS JOIN jobs AS j ON j.number = picked LEFT JOIN job_runs AS r ON r.job_number = j.number;

-- name: insert_missing_run
INSERT INTO job_runs (job_number, run_id, template_id, started_at)
SELECT number, unhex(:run_id), template_id, started_at FROM jobs WHERE number = :number
ON CONFLICT (job_number) DO NOTHING;

-- name: close_job_as
-- The run ended but its job did not: only the job is closed. One that was asked to stop and failed is CANCELLED.
UPDATE jobs SET status = iif(:failed AND cancel_requested_at IS NOT NULL, 'CANCELLED', :status),
                finished_at = coalesce((SELECT finished_at FROM job_runs WHERE job_number = number), :now),
                error_type = :error_type,
                ended_by = iif(:status = 'CANCELLED' OR :failed, coalesce(cancel_requested_by, 'system'), 'system')
 WHERE number = :number AND status = 'RUNNING'
RETURNING status, lower(hex(root_id)), lower(hex(group_id));

-- name: recovered_at
SELECT value FROM meta WHERE key = 'recovered_at';

-- name: set_recovered_at
UPDATE meta SET value = :now WHERE key = 'recovered_at';

-- name: active_reservation
SELECT lower(hex(reservation_id)), reserved_by, lower(hex(worker_id)), lower(hex(job_id)), job_number, reserved_at, expires_at
  FROM direct_reservations WHERE status = 'ACTIVE';

-- name: reservation_by_id
SELECT lower(hex(reservation_id)), reserved_by, lower(hex(worker_id)), lower(hex(job_id)), job_number, reserved_at, expires_at
  FROM direct_reservations WHERE reservation_id = unhex(:reservation_id);

-- name: insert_reservation
INSERT INTO direct_reservations (reservation_id, reserved_at, reserved_by, status, expires_at, job_id, job_number, worker_id)
VALUES (unhex(:reservation_id), :now, :reserved_by, 'ACTIVE', :expires_at, unhex(:job_id), :job_number, unhex(:worker_id));

-- name: end_reservation
UPDATE direct_reservations SET status = :status, released_at = :now WHERE reservation_id = unhex(:reservation_id) AND status = 'ACTIVE';

-- name: end_reservation_of
-- Of the job among these that it was made for.
UPDATE direct_reservations SET status = :status, released_at = :now WHERE status = 'ACTIVE' AND job_number IN (SELECT value FROM json_each(:numbers));

-- name: is_waiting
SELECT 1 FROM jobs WHERE number = :number AND status IN ('PENDING', 'QUEUED');

-- name: is_given_up
SELECT EXISTS (SELECT 1 FROM workers WHERE worker_id = :worker_id AND ended_at IS NOT NULL);

-- name: is_running
SELECT 1 FROM jobs WHERE number = :number AND status = 'RUNNING';
