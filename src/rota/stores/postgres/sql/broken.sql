-- Rows that are not what they should be: found when a batch fails, parked, named by `rota doctor` and repaired by `rota doctor --repair`.
-- Why joins are `= ANY (ARRAY[...])`, and some conditions expressions: see edges.sql.

-- name: ready_of_lane
SELECT number FROM job_live WHERE status = 'QUEUED' AND held IS NULL AND lane = :lane
 ORDER BY priority DESC, position, created_at, job_id LIMIT :limit;

-- name: park_broken
-- A direct job keeps no word of its own here: its reservation is ended with it.
UPDATE job_live SET held = :held WHERE number = :number AND status || '' = 'QUEUED';

-- name: park_pending
-- A PENDING job has no word to be parked under. One blocker more than it has edges keeps it out of what is due.
UPDATE job_live SET blockers = blockers + 1, reason = :reason WHERE number = :number AND status || '' = 'PENDING';

-- name: unset_expiry
UPDATE job_live SET expires_at = NULL WHERE number = :number;

-- name: let_wait
-- The end of its parent ends a job no more.
UPDATE job_edges SET on_failure = 'wait' WHERE child = :number AND parent_root = :root_id;

-- name: bereft
-- PENDING jobs that wait for one that is not there, of the first :look open edges. What waits for a schedule may wait for one to come.
SELECT DISTINCT e.child FROM (SELECT child, parent_root, source FROM job_edges WHERE resolved_at IS NULL LIMIT :look) AS e
  JOIN job_live AS j ON j.number = ANY (ARRAY[e.child]) AND j.status || '' = 'PENDING'
 WHERE e.source <> 'schedule' AND NOT EXISTS (SELECT 1 FROM job_facts AS p WHERE p.job_id = ANY (ARRAY[e.parent_root]))
   AND NOT EXISTS (SELECT 1 FROM job_groups AS g WHERE g.group_id = ANY (ARRAY[e.parent_root])) LIMIT :limit;

-- name: release_broken
UPDATE job_live SET held = NULL WHERE number = :number AND status || '' = 'QUEUED';

-- name: parked_broken
SELECT number, held FROM job_live WHERE status = 'QUEUED' AND held >= 'broken:' AND held < 'broken;' ORDER BY held, job_type LIMIT :limit;

-- name: wrong_blockers
-- PENDING jobs that wait for more, or for less, than they have open edges; of the first :look that wait for anything.
SELECT number, blockers, edges, reason FROM (
    SELECT b.number, b.blockers, b.reason,
           (SELECT count(*) FROM job_edges AS e WHERE e.child = b.number AND e.resolved_at IS NULL) AS edges
      FROM (SELECT number, blockers, reason FROM job_live WHERE status = 'PENDING' AND blockers > 0
             ORDER BY organization_id LIMIT :look) AS b) AS seen
 WHERE blockers <> edges
UNION ALL
SELECT o.child, j.blockers, count(*), j.reason FROM (SELECT child FROM job_edges WHERE resolved_at IS NULL LIMIT :look) AS o
  JOIN job_live AS j ON j.number = ANY (ARRAY[o.child]) WHERE j.status || '' = 'PENDING' AND j.blockers = 0 GROUP BY o.child, j.blockers, j.reason LIMIT :limit;

-- name: set_blockers
UPDATE job_live SET blockers = :blockers, reason = NULL WHERE number = :number AND status || '' = 'PENDING';

-- name: unregistered
-- Workers that hold RUNNING jobs and are not on record; '' for jobs that name none. One statement, one moment: a worker registers first.
SELECT coalesce(hex(l.worker_id), ''), count(*) FROM job_live AS l
 WHERE l.status = 'RUNNING' AND (SELECT w.host FROM workers AS w WHERE w.worker_id = l.worker_id) IS NULL
 GROUP BY l.worker_id ORDER BY l.worker_id LIMIT :limit;

-- name: held_numbers
SELECT number FROM job_live WHERE worker_id = :worker_id AND status = 'RUNNING' ORDER BY number + 0 LIMIT :limit;

-- name: held_rows
SELECT coalesce(json_agg(json_build_array(json_build_array({columns}), 0, NULL, hex(l.run_id), l.started_at)), '[]')::text
  FROM job_live AS l JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number]) WHERE l.number = ANY (:numbers);

-- name: held_bare
-- As much of a RUNNING job as can be read of any row.
SELECT hex(job_id), hex(root_id), attempt, 0, NULL, hex(run_id), started_at FROM job_live WHERE number = :number;

-- name: run_of_waiting
-- A run is a part of its job's row here: one that has not started has none. Notes that are there all the same stay: they go with their job.
SELECT NULL, NULL WHERE :number < 0;

-- name: end_stray_run
SELECT :number, :now;

-- name: remove_run
SELECT :number;

-- name: stray_runs
SELECT NULL::bigint WHERE :limit < 0 AND :look < 0;

-- name: open_runs_of_ended
SELECT NULL::bigint, NULL::text WHERE :limit < 0;

-- name: close_open_run
SELECT :number;

-- name: unknown_statuses
SELECT NULL::bigint, NULL::text, NULL::boolean WHERE :limit < 0;

-- name: end_unknown
SELECT :number, :now, :reason;

-- name: both_live_and_ended
SELECT l.number, e.status FROM job_live AS l JOIN job_ends AS e ON e.number = ANY (ARRAY[l.number]) WHERE l.status = 'RUNNING' LIMIT :limit;

-- name: remove_live
DELETE FROM job_live WHERE number = :number;

-- name: orphan_runs
SELECT n.job_number, to_json(n)::text FROM run_notes AS n
 WHERE (SELECT f.job_type FROM job_facts AS f WHERE f.number = n.job_number) IS NULL LIMIT :limit;

-- name: end_orphan_runs
SELECT :numbers;

-- name: remove_orphan_runs
DELETE FROM run_notes WHERE job_number = ANY (:numbers);

-- name: orphan_edges
SELECT e.child, to_json(e)::text FROM job_edges AS e WHERE (SELECT f.job_type FROM job_facts AS f WHERE f.number = e.child) IS NULL LIMIT :limit;

-- name: remove_orphan_edges
DELETE FROM job_edges WHERE child = ANY (:numbers);

-- name: orphan_ends
SELECT e.number, to_json(e)::text FROM job_ends AS e WHERE (SELECT f.job_type FROM job_facts AS f WHERE f.number = e.number) IS NULL LIMIT :limit;

-- name: remove_orphan_ends
DELETE FROM job_ends WHERE number = ANY (:numbers);

-- name: orphan_live
SELECT l.number, to_json(l)::text FROM job_live AS l WHERE (SELECT f.job_type FROM job_facts AS f WHERE f.number = l.number) IS NULL LIMIT :limit;

-- name: park_lost
UPDATE job_live SET held = :held WHERE number = :number AND status || '' = 'QUEUED' AND held IS DISTINCT FROM :held;

-- name: lost_facts
-- Jobs that are neither live nor ended.
SELECT f.number, to_json(f)::text FROM job_facts AS f
 WHERE (SELECT l.status FROM job_live AS l WHERE l.number = f.number) IS NULL
   AND (SELECT e.status FROM job_ends AS e WHERE e.number = f.number) IS NULL LIMIT :limit;

-- name: end_lost
INSERT INTO job_ends (number, job_type, status, created_at, finished_at, priority, position, run_at, ended_by, reason)
SELECT number, job_type, 'CANCELLED', created_at, :now, 0, 0, created_at, 'system', :reason FROM job_facts WHERE number = :number;

-- name: enabled_schedules
-- Each by itself, so that one that can't be read keeps no other from being looked at.
SELECT hex(schedule_id), organization_id, name FROM schedules WHERE state <> 'DISABLED' AND dropped_at IS NULL LIMIT :limit;

-- name: schedule_raw
SELECT param_overrides, depends_on, declared FROM schedules WHERE schedule_id = :schedule_id;

-- name: disable_schedule
-- What can't be read of it goes, and is in the log: then it can be shown, edited and enabled again.
UPDATE schedules SET state = 'DISABLED', next_trigger_at = NULL, updated_at = :now, version = version + 1, description = :description,
                     param_overrides = :params, depends_on = :depends_on, declared = :declared
 WHERE schedule_id = :schedule_id;
