-- One turn of the wheel: end, keep, claim.

-- name: candidates
-- {first} are the numbers of the first ready jobs, in the order of the queue.
SELECT json_group_array(json_array({columns})) FROM ({first}) CROSS JOIN jobs AS j ON j.number = picked;

-- name: candidates_slim
-- The same without what may be large, for rows that are only looked at.
SELECT json_group_array(json_array({claimed_head}, '', {claimed_rest}, NULL, j.owner, NULL, coalesce(j.lane, 0)))
  FROM ({first}) CROSS JOIN jobs AS j ON j.number = picked;

-- name: first_of_lanes
-- {arms} is one `arm` per lane, joined by UNION ALL; SQLite merges them along jobs_ready, which it does
-- only where the ORDER BY belongs to the UNION itself: one level further out it sorts the whole queue.
SELECT number AS picked FROM ({arms} ORDER BY priority DESC, position, created_at, job_id LIMIT :want)

-- name: arm
SELECT number, priority, position, created_at, job_id FROM jobs
 WHERE status = 'QUEUED' AND held IS NULL AND lane = ?

-- name: first_of_many_lanes
-- The same merge where an arm for each lane would make a text too long to be kept prepared. `heads` leaps along jobs_ready from the first job
-- of a lane to that of the next, so it costs what is ready and not what the worker knows. `line` is SQLite's queue of a recursion with an
-- ORDER BY: the first of all leaves it, and the next of the same lane takes its place.
WITH RECURSIVE heads (number, lane, priority, position, created_at, job_id) AS (
    SELECT * FROM (
        SELECT number, lane, priority, position, created_at, job_id FROM jobs
         WHERE status = 'QUEUED' AND held IS NULL AND lane > 0
         ORDER BY lane, priority DESC, position, created_at, job_id LIMIT 1)
    UNION ALL
    SELECT j.number, j.lane, j.priority, j.position, j.created_at, j.job_id FROM heads CROSS JOIN jobs AS j ON j.number = (
        SELECT n.number FROM jobs AS n WHERE n.status = 'QUEUED' AND n.held IS NULL AND n.lane > heads.lane
         ORDER BY n.lane, n.priority DESC, n.position, n.created_at, n.job_id LIMIT 1)
), line (number, lane, priority, position, created_at, job_id) AS (
    SELECT * FROM heads WHERE lane IN (SELECT value FROM json_each(?))
    UNION ALL
    SELECT j.number, j.lane, j.priority, j.position, j.created_at, j.job_id FROM line CROSS JOIN jobs AS j ON j.number = coalesce((
        SELECT n.number FROM jobs AS n
         WHERE n.status = 'QUEUED' AND n.held IS NULL AND n.lane = line.lane AND n.priority = line.priority
           AND (n.position, n.created_at, n.job_id) > (line.position, line.created_at, line.job_id)
         ORDER BY n.position, n.created_at, n.job_id LIMIT 1), (
        SELECT n.number FROM jobs AS n
         WHERE n.status = 'QUEUED' AND n.held IS NULL AND n.lane = line.lane AND n.priority < line.priority
         ORDER BY n.priority DESC, n.position, n.created_at, n.job_id LIMIT 1))
     ORDER BY priority DESC, position, created_at, job_id LIMIT :want
)
SELECT number AS picked FROM line
-- name: no_suspect
-- Its table is read for each row that is passed over: asked only where suspects are in the way.
crashes = 0

-- name: place_suspect
-- Where it runs: `explain` tells by this whether others may start beside it.
UPDATE jobs SET executor = :executor WHERE number = :number;

-- name: candidates_among
-- The first of those that several queries offered.
SELECT json_group_array(json_array({columns}))
  FROM (SELECT number AS picked FROM jobs WHERE number IN (SELECT value FROM json_each(:numbers))
         ORDER BY priority DESC, position, created_at, job_id LIMIT :want)
 CROSS JOIN jobs AS j ON j.number = picked;

-- name: candidates_named
-- Jobs that are ready, by their numbers.
SELECT json_group_array(json_array({columns})) FROM jobs AS j
 WHERE j.number IN (SELECT value FROM json_each(:numbers)) AND +j.status = 'QUEUED' AND j.held IS NULL;

-- name: direct_status
-- The status of the job that the ACTIVE reservation is for; NULL: there is no reservation.
SELECT coalesce((SELECT j.status FROM jobs AS j WHERE j.number = d.job_number), '') FROM direct_reservations AS d WHERE d.status = 'ACTIVE'

-- name: candidate_direct
SELECT json_group_array(json_array({columns})) FROM jobs AS j WHERE j.number = :number AND j.status = 'QUEUED' AND j.held = 'direct';

-- name: claimed_columns
-- In the order of rota.model.values.Claimed. run_id and started_at are filled in by the caller.
{claimed_head}, j.params, {claimed_rest},
{checkpoint_before},
j.owner, j.meta, coalesce(j.lane, 0)

-- name: claimed_head
j.number, lower(hex(j.job_id)), lower(hex(j.root_id)),
CASE WHEN j.attempt = 1 THEN j.number ELSE (SELECT r.number FROM jobs AS r WHERE r.job_id = j.root_id) END,
'', j.job_type, j.origin, j.organization_id

-- name: claimed_rest
j.priority, j.position, j.attempt, j.failures, j.crashes, j.snoozes, j.max_retries, j.max_crashes, j.backoff, j.timeout, j.executor, 0

-- name: checkpoint_before
-- What the chain's last run before this attempt left behind. An attempt that ended without a run is passed over.
CASE WHEN j.attempt > 1 THEN (
    WITH RECURSIVE line (job_id) AS (
        SELECT j.retry_of
        UNION ALL
        SELECT o.retry_of FROM line CROSS JOIN jobs AS o ON o.job_id = line.job_id
         WHERE o.retry_of IS NOT NULL AND NOT EXISTS (SELECT 1 FROM job_runs AS p WHERE p.job_number = o.number)
    )
    SELECT p.checkpoint FROM line CROSS JOIN jobs AS o ON o.job_id = line.job_id JOIN job_runs AS p ON p.job_number = o.number
) END

-- name: insert_runs
-- :ids holds the 16 bytes of each run's id, in the order of :numbers. The run comes first: no job is RUNNING without one.
-- A run starts with the checkpoint of the one before: if it makes none of its own, its successor still has it.
INSERT INTO job_runs (job_number, run_id, template_id, started_at, checkpoint)
SELECT e.value, substr(:ids, e.key * 16 + 1, 16), j.template_id, :now,
       {checkpoint_before}
  FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value;

-- name: start_jobs
UPDATE jobs SET status = 'RUNNING', started_at = :now, worker_id = :worker_id, held = NULL
 WHERE number IN (SELECT value FROM json_each(:numbers)) AND +status = 'QUEUED';

-- name: park_jobs
-- :parked is a JSON object of number to the word of its blocker.
-- Parking takes a row out of the ready index; a direct job was never in it and keeps its own word.
UPDATE jobs SET held = e.value FROM json_each(:parked) AS e WHERE number = CAST(e.key AS INTEGER) AND +status = 'QUEUED' AND held IS NULL;

-- name: park_run
UPDATE jobs SET held = :held
 WHERE number IN (SELECT number FROM (SELECT number, organization_id FROM jobs WHERE status = 'QUEUED' AND held IS NULL AND lane = :lane
                                       ORDER BY priority DESC, position, created_at, job_id LIMIT :limit)
                   WHERE organization_id = :organization_id);

-- name: finish_runs_plain
-- :done is a JSON object of number to moment.
UPDATE job_runs SET status = 'COMPLETED', finished_at = e.value
  FROM json_each(:done) AS e
 WHERE job_number = CAST(e.key AS INTEGER) AND job_runs.status IS NULL;

-- name: open_runs
-- Runs whose jobs this worker has just completed: one that was ended before has ended its run too.
SELECT json_group_array(r.job_number) FROM json_each(:numbers) AS e CROSS JOIN job_runs AS r ON r.job_number = e.value
 CROSS JOIN jobs AS j ON j.number = e.value
 WHERE +r.status IS NULL AND +j.status = 'COMPLETED' AND +j.worker_id = :worker_id;

-- name: finish_jobs_plain
-- The + keeps the planner from walking jobs_running for each of them (42 us a job instead of 5.5).
UPDATE jobs SET status = 'COMPLETED', finished_at = e.value, ended_by = 'system', reason = NULL
  FROM json_each(:done) AS e
 WHERE number = CAST(e.key AS INTEGER) AND +jobs.status = 'RUNNING' AND +worker_id = :worker_id;

-- name: open_endings
-- What this worker still runs of these (recovery, with no id of its own: whoever does), and what the endings must know of it.
SELECT json_group_array(json_array(number, cancel_requested_at IS NOT NULL, lower(hex(root_id)), lower(hex(group_id))))
  FROM jobs WHERE number IN (SELECT value FROM json_each(:numbers)) AND +status = 'RUNNING'
                AND (:worker_id = x'' OR +worker_id = :worker_id);

-- name: ends_look
-- What ends mean to others, in one statement: to webhooks, to who is parked, to who waits, to a direct execution.
SELECT ({any_endpoints}), ({any_over_limit}), ({any_open_edges}), ({direct_status}), ({any_audited});

-- name: any_audited
-- Whether SQL has created jobs: the results of their runs are audited.
SELECT EXISTS (SELECT 1 FROM templates WHERE kind <> 'python' AND template_id > x'');

-- name: ended_as
SELECT number, finished_at, worker_id = :worker_id, status FROM jobs WHERE number IN (SELECT value FROM json_each(:numbers));

-- name: finish_runs
-- Each row: [number, at, run status, error, error_type, error_code, traceback, exit_code, result, log_path, result_message, rows_affected].
UPDATE job_runs SET finished_at = e.value ->> 1, status = e.value ->> 2, error = e.value ->> 3, error_type = e.value ->> 4,
                    error_code = e.value ->> 5, traceback = e.value ->> 6, exit_code = e.value ->> 7, result = e.value ->> 8,
                    log_path = coalesce(log_path, e.value ->> 9), result_message = e.value ->> 10, rows_affected = e.value ->> 11
  FROM json_each(:rows) AS e
 WHERE job_number = e.value ->> 0 AND job_runs.status IS NULL;

-- name: finish_jobs
-- Each row: [number, at, status, error_type, reason]. The reason of a cancel request stands if that is how it ends.
UPDATE jobs SET finished_at = e.value ->> 1, status = e.value ->> 2, error_type = e.value ->> 3,
                reason = iif(e.value ->> 2 = 'CANCELLED', coalesce(reason, e.value ->> 4), e.value ->> 4),
                ended_by = iif(e.value ->> 2 = 'CANCELLED', coalesce(cancel_requested_by, 'system'), 'system')
  FROM json_each(:rows) AS e
 WHERE number = e.value ->> 0 AND +jobs.status = 'RUNNING';

-- name: insert_successors
-- Each row: [number of the one before, id, status, run_at, failures, crashes, snoozes, keeps its place, keeps its expiry, its lane if that is another].
-- A place beyond the clock was given before its priority was empty and counted anew: now it is before those who came since.
-- Without a place, the position says from when its run_at is counted.
INSERT INTO jobs (job_id, root_id, retry_of, attempt, organization_id, template_id, job_type, origin, status, failures, crashes, snoozes,
                  priority, position, run_at, expires_at, unique_key, job_hash, params, schedule_id, due_at, group_id, sequence_number,
                  owner, run_as, max_retries, max_crashes, backoff, timeout, executor, target_node, shard, meta, tags, lane, created_at, queued_at)
SELECT unhex(e.value ->> 1), o.root_id, o.job_id, o.attempt + 1, o.organization_id, o.template_id, o.job_type, o.origin, e.value ->> 2,
       e.value ->> 4, e.value ->> 5, e.value ->> 6, o.priority,
       CASE WHEN NOT e.value ->> 7 THEN -:now
            WHEN o.position <= coalesce((SELECT c.position FROM queue_clock AS c WHERE c.priority = o.priority), 0) THEN o.position ELSE 0 END,
       e.value ->> 3,
       iif(e.value ->> 8, o.expires_at, NULL), o.unique_key, o.job_hash, o.params, o.schedule_id, o.due_at, o.group_id, o.sequence_number,
       o.owner, o.run_as, o.max_retries, o.max_crashes, o.backoff, o.timeout, o.executor, o.target_node, o.shard, o.meta, o.tags,
       coalesce(e.value ->> 9, {own_lane}), :now, iif(e.value ->> 7, :now, NULL)
  FROM json_each(:rows) AS e CROSS JOIN jobs AS o ON o.number = e.value ->> 0
 WHERE true
ON CONFLICT (retry_of) WHERE retry_of IS NOT NULL DO NOTHING;

-- name: own_lane
-- The lane of the attempt before; of one that ended before there were lanes, the lane of its type.
coalesce(o.lane, (SELECT n.lane FROM lanes AS n WHERE n.job_type = o.job_type AND n.queue = 'default' AND n.digest = ''))

-- name: group_rule
-- The rule of a group, and the place after which it applies: in a sequence, after the first that ended badly.
SELECT on_failure,
       iif(mode = 'sequential', (SELECT min(sequence_number) FROM jobs WHERE number IN (SELECT value FROM json_each(:numbers))
                                    AND +group_id = unhex(:group_id) AND +status IN ('DEAD_LETTER', 'CANCELLED')), 0)
  FROM job_groups WHERE group_id = unhex(:group_id);

-- name: end_rest_of_group
-- Members whose chains have not started: still in their first attempt, still waiting.
UPDATE jobs SET status = :status, blockers = 0, finished_at = :now, reason = :reason, ended_by = 'system'
 WHERE group_id = unhex(:group_id) AND sequence_number > :after AND attempt = 1 AND status IN ('PENDING', 'QUEUED')
RETURNING number;

-- name: end_waiting
-- Waiting jobs that end without a run. Returns their numbers and groups.
UPDATE jobs SET status = :status, blockers = 0, finished_at = :now, reason = :reason, ended_by = :actor, error_type = :error_type,
                cancel_requested_at = :requested_at, cancel_requested_by = :requested_by
 WHERE number IN (SELECT value FROM json_each(:numbers)) AND +status IN ('PENDING', 'QUEUED')
RETURNING number, lower(hex(group_id));

-- name: keep_progress
UPDATE job_runs SET progress = max(coalesce(progress, 0), :progress), progress_message = coalesce(:message, progress_message)
 WHERE job_number = :number AND status IS NULL;

-- name: keep_checkpoint
UPDATE job_runs SET checkpoint = :checkpoint WHERE job_number = :number AND status IS NULL;

-- name: keep_artifact
UPDATE job_runs SET artifacts = json_insert(artifacts, '$[#]', :artifact)
 WHERE job_number = :number AND status IS NULL AND NOT EXISTS (SELECT 1 FROM json_each(artifacts) WHERE value = :artifact);

-- name: turn_look
-- What a turn asks first, in one statement.
SELECT (SELECT value FROM meta WHERE key = 'definitions_version'),
       ({is_given_up}),
       ({any_ended}),
       ({next_expiry}),
       ({next_due}),
       ({any_over_limit}),
       ({any_open_edges}),
       ({direct_status}),
       ({any_endpoints}),
       ({any_audited});

-- name: peek
-- Whether a turn is worth its commit, in one statement.
SELECT (SELECT value FROM meta WHERE key = 'definitions_version'),
       ({is_ready}),
       ({is_direct_ready}),
       ({any_parked}),
       ({any_ended}),
       ({next_expiry}),
       ({next_due}),
       ({cancelling});

-- name: count_late
UPDATE meta SET value = value + :count WHERE key = 'late_results';

-- name: is_ready
SELECT EXISTS (SELECT 1 FROM jobs WHERE status = 'QUEUED' AND held IS NULL AND lane IN (SELECT value FROM json_each(:lanes)));

-- name: is_direct_ready
SELECT EXISTS (SELECT 1 FROM direct_reservations AS d CROSS JOIN jobs AS j ON j.number = d.job_number
                WHERE d.status = 'ACTIVE' AND +j.status = 'QUEUED' AND j.lane IN (SELECT value FROM json_each(:lanes)));

-- name: cancelling
SELECT json_group_array(number) FROM jobs WHERE worker_id = :worker_id AND status = 'RUNNING' AND cancel_requested_at IS NOT NULL;

-- name: next_expiry
SELECT min(expires_at) FROM jobs WHERE expires_at IS NOT NULL AND started_at IS NULL AND finished_at IS NULL;

-- name: holding
SELECT json_group_array(json_array({columns})) FROM jobs AS j WHERE j.worker_id = :worker_id AND j.status = 'RUNNING';

-- name: run_ids
SELECT j.number, lower(hex(r.run_id)), r.started_at FROM jobs AS j JOIN job_runs AS r ON r.job_number = j.number
 WHERE j.worker_id = :worker_id AND j.status = 'RUNNING';
