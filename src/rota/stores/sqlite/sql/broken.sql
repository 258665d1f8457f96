-- Rows that are not what they should be: found when a batch fails, parked, named by `rota doctor` and repaired by `rota doctor --repair`.

-- name: ready_of_lane
SELECT number FROM jobs WHERE status = 'QUEUED' AND held IS NULL AND lane = :lane
 ORDER BY priority DESC, position, created_at, job_id LIMIT :limit;

-- name: park_broken
-- A direct job keeps no word of its own here: its reservation is ended with it.
UPDATE jobs SET held = :held WHERE number = :number AND +status = 'QUEUED';

-- name: park_pending
-- A PENDING job has no word to be parked under. One blocker more than it has edges keeps it out of what is due.
UPDATE jobs SET blockers = blockers + 1, reason = :reason WHERE number = :number AND +status = 'PENDING';

-- name: unset_expiry
UPDATE jobs SET expires_at = NULL WHERE number = :number AND finished_at IS NULL;

-- name: let_wait
-- The end of its parent ends a job no more.
UPDATE job_edges SET on_failure = 'wait' WHERE child = :number AND parent_root = :root_id;

-- name: bereft
-- PENDING jobs that wait for one that is not there, of the first :look open edges. What waits for a schedule may wait for one to come.
SELECT DISTINCT e.child FROM (SELECT child, parent_root, source FROM job_edges INDEXED BY edges_open WHERE resolved_at IS NULL LIMIT :look) AS e
 CROSS JOIN jobs AS j ON j.number = e.child AND j.status = 'PENDING'
 WHERE e.source <> 'schedule' AND NOT EXISTS (SELECT 1 FROM jobs AS p WHERE p.job_id = e.parent_root)
   AND NOT EXISTS (SELECT 1 FROM job_groups AS g WHERE g.group_id = e.parent_root) LIMIT :limit;

-- name: release_broken
UPDATE jobs SET held = NULL WHERE number = :number AND +status = 'QUEUED';

-- name: parked_broken
SELECT number, held FROM jobs WHERE status = 'QUEUED' AND held >= 'broken:' AND held < 'broken;' ORDER BY held, job_type LIMIT :limit;

-- name: wrong_blockers
-- PENDING jobs that wait for more, or for less, than they have open edges; of the first :look that wait for anything.
SELECT number, blockers, edges, reason FROM (
    SELECT b.number, b.blockers, j.reason, (SELECT count(*) FROM job_edges AS e WHERE e.child = b.number AND e.resolved_at IS NULL) AS edges
      FROM (SELECT number, blockers FROM jobs WHERE status = 'PENDING' AND blockers > 0 LIMIT :look) AS b CROSS JOIN jobs AS j ON j.number = b.number)
 WHERE blockers <> edges
UNION ALL
SELECT o.child, j.blockers, count(*), j.reason
  FROM (SELECT child FROM job_edges INDEXED BY edges_open WHERE resolved_at IS NULL LIMIT :look) AS o
 CROSS JOIN jobs AS j ON j.number = o.child WHERE j.status = 'PENDING' AND +j.blockers = 0 GROUP BY o.child LIMIT :limit;

-- name: set_blockers
UPDATE jobs SET blockers = :blockers, reason = NULL WHERE number = :number AND +status = 'PENDING';

-- name: unregistered
-- Workers that hold RUNNING jobs and are not on record; '' for jobs that name none. One statement, one moment: a worker registers first.
SELECT coalesce(lower(hex(worker_id)), ''), count(*) FROM jobs INDEXED BY jobs_running
 WHERE status = 'RUNNING' AND (worker_id IS NULL OR worker_id NOT IN (SELECT worker_id FROM workers)) GROUP BY worker_id LIMIT :limit;

-- name: held_numbers
SELECT number FROM jobs WHERE worker_id IS unhex(nullif(:worker_id, '')) AND status = 'RUNNING' ORDER BY number LIMIT :limit;

-- name: held_rows
SELECT json_group_array(json_array(json_array({columns}), r.run_id IS NULL, r.status, lower(hex(r.run_id)), r.started_at))
  FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value LEFT JOIN job_runs AS r ON r.job_number = j.number;

-- name: held_bare
-- As much of a RUNNING job as can be read of any row.
SELECT lower(hex(j.job_id)), lower(hex(j.root_id)), j.attempt, r.run_id IS NULL, r.status, lower(hex(r.run_id)), r.started_at
  FROM jobs AS j LEFT JOIN job_runs AS r ON r.job_number = j.number WHERE j.number = :number;

-- name: run_of_waiting
-- The run of a job that has not started.
SELECT r.status, json_object('job_number', r.job_number, 'run_id', lower(hex(r.run_id)), 'started_at', r.started_at, 'finished_at', r.finished_at,
                             'status', r.status, 'error', r.error, 'result', r.result)
  FROM job_runs AS r CROSS JOIN jobs AS j ON j.number = r.job_number WHERE r.job_number = :number AND j.status IN ('PENDING', 'QUEUED');

-- name: end_stray_run
UPDATE job_runs SET status = 'SKIPPED', finished_at = :now WHERE job_number = :number AND status IS NULL;

-- name: remove_run
DELETE FROM job_runs WHERE job_number = :number;

-- name: stray_runs
-- Runs of jobs that have not started, of the first :look in the queue. What a claim meets is parked, wherever it is.
SELECT q.number FROM (SELECT number FROM jobs INDEXED BY jobs_tail WHERE status = 'QUEUED' LIMIT :look) AS q
 CROSS JOIN job_runs AS r ON r.job_number = q.number LIMIT :limit;

-- name: open_runs_of_ended
SELECT r.job_number, j.status FROM job_runs AS r CROSS JOIN jobs AS j ON j.number = r.job_number
 WHERE r.status IS NULL AND j.finished_at IS NOT NULL LIMIT :limit;

-- name: close_open_run
-- The run ends as its job did.
UPDATE job_runs SET finished_at = j.finished_at, status = CASE WHEN j.status IN ('TIMED_OUT', 'DEAD_LETTER') THEN 'FAILED' ELSE j.status END,
                    error = iif(j.status = 'COMPLETED', NULL, coalesce(error, 'its job ended ' || j.status || ' before it'))
  FROM jobs AS j WHERE job_runs.job_number = :number AND job_runs.status IS NULL AND j.number = job_runs.job_number AND j.finished_at IS NOT NULL;

-- name: unknown_statuses
SELECT number, status, finished_at IS NOT NULL FROM jobs
 WHERE status NOT IN ('PENDING', 'QUEUED', 'RUNNING', 'COMPLETED', 'FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED') LIMIT :limit;

-- name: end_unknown
UPDATE jobs SET status = 'CANCELLED', blockers = 0, finished_at = :now, reason = :reason, ended_by = 'system'
 WHERE number = :number AND finished_at IS NULL;

-- name: both_live_and_ended
-- A job is one row here: it can't be both.
SELECT NULL, NULL WHERE :limit < 0;

-- name: remove_live
SELECT NULL WHERE :number < 0;

-- name: orphan_runs
SELECT r.job_number, json_object('job_number', r.job_number, 'run_id', lower(hex(r.run_id)), 'started_at', r.started_at,
                                 'finished_at', r.finished_at, 'status', r.status, 'error', r.error, 'result', r.result)
  FROM job_runs AS r WHERE NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.number = r.job_number) LIMIT :limit;

-- name: end_orphan_runs
-- Only what has ended can be removed.
UPDATE job_runs SET status = 'SKIPPED', finished_at = started_at WHERE job_number IN (SELECT value FROM json_each(:numbers)) AND status IS NULL;

-- name: remove_orphan_runs
DELETE FROM job_runs WHERE job_number IN (SELECT value FROM json_each(:numbers));

-- name: orphan_edges
SELECT e.child, json_object('child', e.child, 'parent_root', lower(hex(e.parent_root)), 'needs', e.needs, 'on_failure', e.on_failure)
  FROM job_edges AS e WHERE NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.number = e.child) LIMIT :limit;

-- name: remove_orphan_edges
DELETE FROM job_edges WHERE child IN (SELECT value FROM json_each(:numbers));

-- name: orphan_ends
-- A job and its end are one row here.
SELECT NULL, NULL WHERE :limit < 0;

-- name: remove_orphan_ends
SELECT NULL WHERE json_array_length(:numbers) < 0;

-- name: orphan_live
SELECT NULL, NULL WHERE :limit < 0;

-- name: park_lost
SELECT :number, :held;

-- name: lost_facts
SELECT NULL, NULL WHERE :limit < 0;

-- name: end_lost
SELECT :number, :now, :reason;

-- name: enabled_schedules
-- Each by itself, so that one that can't be read keeps no other from being looked at.
SELECT lower(hex(schedule_id)), organization_id, name FROM schedules WHERE state <> 'DISABLED' AND dropped_at IS NULL LIMIT :limit;

-- name: schedule_raw
SELECT param_overrides, depends_on, declared FROM schedules WHERE schedule_id = unhex(:schedule_id);

-- name: disable_schedule
-- What can't be read of it goes, and is in the log: then it can be shown, edited and enabled again.
UPDATE schedules SET state = 'DISABLED', next_trigger_at = NULL, updated_at = :now, version = version + 1, description = :description,
                     param_overrides = :params, depends_on = :depends_on, declared = :declared
 WHERE schedule_id = unhex(:schedule_id);
