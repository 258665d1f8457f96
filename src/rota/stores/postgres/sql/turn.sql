-- One turn of the wheel: end, keep, claim. What changes is job_live; what has ended goes over to job_ends in the same statement.
-- Why some joins are `= ANY (ARRAY[...])`, and some conditions expressions: see edges.sql.

-- name: candidates
-- {first} are rows of job_live that nobody else is just claiming, locked. The last column: how many there were to choose from.
WITH {first}
SELECT {columns}, (SELECT count(*) FROM ahead)
  FROM first AS l JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number])
 ORDER BY l.priority DESC, l.position, l.created_at, l.job_id;

-- name: candidates_slim
-- The same without what may be large, for rows that are only looked at.
WITH {first}
SELECT {claimed_head}, '', {claimed_rest}, NULL, f.owner, NULL, l.lane, (SELECT count(*) FROM ahead)
  FROM first AS l JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number])
 ORDER BY l.priority DESC, l.position, l.created_at, l.job_id;

-- name: first_of_lane
-- The first ready jobs of one lane, along live_ready. What another worker is just claiming is passed over.
ahead AS (SELECT WHERE false),
first AS MATERIALIZED (
    SELECT number, priority, position, created_at, job_id, lane FROM job_live WHERE status = 'QUEUED' AND held IS NULL AND lane = :lane_0
     ORDER BY priority DESC, position, created_at, job_id LIMIT :want FOR UPDATE SKIP LOCKED
)

-- name: first_of_lanes
-- The first ready jobs of several lanes: {arms} is one `arm` for each, joined by UNION ALL, which PostgreSQL merges along live_ready as long as
-- nothing is locked there. So places are looked up first, :spare more than are wanted, for others may be claiming some. They are an array: were
-- they joined, each that has changed meanwhile would have the whole query made again.
ahead AS MATERIALIZED (
    SELECT place FROM ({arms}) AS a ORDER BY priority DESC, position, created_at, job_id LIMIT :want + :spare
),
first AS MATERIALIZED (
    SELECT number, priority, position, created_at, job_id, lane FROM job_live
     WHERE ctid = ANY (ARRAY(SELECT place FROM ahead)) AND status || '' = 'QUEUED' AND held IS NULL
     ORDER BY priority DESC, position, created_at, job_id LIMIT :want FOR UPDATE SKIP LOCKED
)

-- name: arm
-- Each has a LIMIT of its own: should PostgreSQL sort them rather than merge, it is these few.
SELECT * FROM (SELECT ctid AS place, priority, position, created_at, job_id FROM job_live
                WHERE status = 'QUEUED' AND held IS NULL AND lane = :lane
                ORDER BY priority DESC, position, created_at, job_id LIMIT :want + :spare) AS first

-- name: arms_of_many
-- The same for very many lanes in one arm, whose plan does not grow with them. It reads as many of each as its limit says: see `_offered_of_many`.
SELECT first.* FROM unnest(:lanes, :limits) AS t (lane, few) CROSS JOIN LATERAL (
    SELECT ctid AS place, priority, position, created_at, job_id FROM job_live
     WHERE status = 'QUEUED' AND held IS NULL AND job_live.lane = t.lane
     ORDER BY priority DESC, position, created_at, job_id LIMIT t.few) AS first

-- name: ready_now
-- The lanes that have something ready, in the order of their first jobs. It leaps along live_ready from one lane to the next.
WITH RECURSIVE heads AS (
    (SELECT lane, priority, position, created_at, job_id FROM job_live WHERE status = 'QUEUED' AND held IS NULL AND lane > 0
      ORDER BY lane, priority DESC, position, created_at, job_id LIMIT 1)
    UNION ALL
    SELECT n.* FROM heads CROSS JOIN LATERAL (
        SELECT lane, priority, position, created_at, job_id FROM job_live
         WHERE status = 'QUEUED' AND held IS NULL AND lane > heads.lane
         ORDER BY lane, priority DESC, position, created_at, job_id LIMIT 1) AS n
)
SELECT lane FROM heads ORDER BY priority DESC, position, created_at, job_id;
-- name: no_suspect
-- How often a job has crashed is among its facts, which are read for each row that is not a first attempt: asked only where suspects are in the way.
(attempt = 1 OR NOT EXISTS (SELECT FROM job_facts AS f WHERE f.number = job_live.number AND f.crashes > 0))

-- name: place_suspect
-- Where it runs: `explain` tells by this whether others may start beside it.
UPDATE job_facts SET executor = :executor WHERE number = :number;

-- name: candidates_among
-- The first of those that several queries offered.
SELECT coalesce(json_agg(json_build_array({columns}) ORDER BY l.priority DESC, l.position, l.created_at, l.job_id), '[]')::text
  FROM (SELECT * FROM job_live WHERE number = ANY (:numbers) ORDER BY priority DESC, position, created_at, job_id LIMIT :want) AS l
  JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number]);

-- name: candidates_named
-- Jobs that are ready, by their numbers.
SELECT coalesce(json_agg(json_build_array({columns})), '[]')::text
  FROM job_live AS l JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number])
 WHERE l.number = ANY (:numbers) AND l.status || '' = 'QUEUED' AND l.held IS NULL;

-- name: direct_status
-- The status of the job that the ACTIVE reservation is for, '' once it has ended; NULL: there is no reservation.
SELECT coalesce((SELECT l.status FROM job_live AS l WHERE l.number = ANY (ARRAY[d.job_number])), '')
  FROM direct_reservations AS d WHERE d.status = 'ACTIVE'

-- name: candidate_direct
SELECT coalesce(json_agg(json_build_array({columns})), '[]')::text FROM job_live AS l JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number])
 WHERE l.number = :number AND l.status || '' = 'QUEUED' AND l.held = 'direct';

-- name: claimed_columns
-- In the order of rota.model.values.Claimed. run_id and started_at are filled in by the caller.
{claimed_head}, f.params, {claimed_rest},
{checkpoint_before},
f.owner, f.meta, coalesce(f.lane, 0)

-- name: claimed_head
f.number, hex(f.job_id), hex(f.root_id),
CASE WHEN f.attempt = 1 THEN f.number ELSE (SELECT r.number FROM job_facts AS r WHERE r.job_id = f.root_id) END,
'', f.job_type, f.origin, f.organization_id

-- name: claimed_rest
l.priority, l.position, f.attempt, f.failures, f.crashes, f.snoozes, f.max_retries, f.max_crashes, f.backoff, f.timeout, f.executor, 0

-- name: checkpoint_before
-- What the chain's last run before this attempt left behind. An attempt that ended without a run is passed over.
CASE WHEN f.attempt > 1 THEN (
    WITH RECURSIVE line (job_id) AS (
        SELECT f.retry_of
        UNION ALL
        SELECT o.retry_of FROM line JOIN job_facts AS o ON o.job_id = ANY (ARRAY[line.job_id])
         WHERE o.attempt > 1 AND (SELECT p.run_id FROM job_ends AS p WHERE p.number = o.number) IS NULL
    )
    SELECT n.checkpoint FROM line JOIN job_facts AS o ON o.job_id = ANY (ARRAY[line.job_id])
      JOIN run_notes AS n ON n.job_number = ANY (ARRAY[o.number])
) END

-- name: start
-- :ids holds each run's id, in the order of :numbers; :clocks is a JSON object of priority to position.
WITH clocks AS (
    INSERT INTO queue_clock AS c (priority, position)
    SELECT e.key::integer, e.value::bigint FROM json_each_text(:clocks::json) AS e ORDER BY 1
        ON CONFLICT (priority) DO UPDATE SET position = excluded.position WHERE c.position < excluded.position
)
UPDATE job_live SET status = 'RUNNING', started_at = :now, worker_id = :worker_id, run_id = e.run_id, held = NULL
  FROM unnest(:numbers, :ids) AS e (number, run_id)
 WHERE job_live.number = ANY (ARRAY[e.number]) AND status || '' = 'QUEUED';

-- name: carry_checkpoints
-- A run starts with the checkpoint of the one before: if it makes none of its own, its successor still has it.
INSERT INTO run_notes (job_number, checkpoint) SELECT e.key::bigint, e.value FROM json_each_text(:checkpoints::json) AS e;

-- name: park_jobs
-- :parked is a JSON object of number to the word of its blocker.
-- Parking takes a row out of the ready index; a direct job was never in it and keeps its own word.
UPDATE job_live SET held = e.value FROM json_each_text(:parked::json) AS e
 WHERE number = ANY (ARRAY[e.key::bigint]) AND status || '' = 'QUEUED' AND held IS NULL;

-- name: park_run
UPDATE job_live SET held = :held
 WHERE number = ANY (ARRAY(
    SELECT number FROM (SELECT number, organization_id FROM job_live WHERE status = 'QUEUED' AND held IS NULL AND lane = :lane
                         ORDER BY priority DESC, position, created_at, job_id LIMIT :limit) AS first
     WHERE organization_id = :organization_id));

-- name: ending_columns
number, job_type, status, created_at, finished_at, held, priority, position, run_at, expires_at, queued_at, started_at, worker_id,
run_id, cancel_requested_at, cancel_requested_by, ended_by, reason, error_type

-- name: end_plain
-- Completions that left nothing behind: :numbers and, in the same order, :moments. Returns the numbers that have ended, NULL for all :count of
-- them, and rows for `count_figures`. Only the columns that are read further down are returned: each costs every job.
WITH gone AS (
    DELETE FROM job_live AS l USING unnest(:numbers, :moments) AS e (number, finished_at)
     WHERE l.number = ANY (ARRAY[e.number]) AND l.status || '' = 'RUNNING' AND l.worker_id = :worker_id
    RETURNING l.number, l.job_type, l.created_at, e.finished_at, l.held, l.priority, l.position, l.run_at, l.expires_at, l.queued_at,
              l.started_at, l.worker_id, l.run_id, l.cancel_requested_at, l.cancel_requested_by, l.organization_id
), ends AS (
    INSERT INTO job_ends ({ending_columns})
    SELECT number, job_type, 'COMPLETED', created_at, finished_at, held, priority, position, run_at, expires_at, queued_at, started_at, worker_id,
           run_id, cancel_requested_at, cancel_requested_by, 'system', NULL, NULL
      FROM gone
), ended AS (
    SELECT {minute_of} AS minute, organization_id, job_type, {bucket_of} AS bucket, count(*) AS count, {spent_in} AS total_us
      FROM gone GROUP BY bucket, job_type, organization_id, minute
)
SELECT CASE WHEN (SELECT count(*) FROM gone) <> :count THEN (SELECT coalesce(json_agg(number), '[]')::text FROM gone) END,
       (SELECT coalesce(json_agg(json_build_array(minute, organization_id, job_type, 'COMPLETED', bucket, count, total_us)), '[]')::text FROM ended);

-- name: open_endings
-- What this worker still runs of these (recovery, with no id of its own: whoever does), and what the endings must know of it.
SELECT coalesce(json_agg(json_build_array(l.number, (l.cancel_requested_at IS NOT NULL)::integer, hex(l.root_id), hex(f.group_id))), '[]')::text
  FROM job_live AS l JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number])
 WHERE l.number = ANY (:numbers) AND l.status || '' = 'RUNNING' AND (:worker_id IS NULL OR l.worker_id = :worker_id);

-- name: ends_look
-- What ends mean to others, in one statement: to webhooks, to who is parked, to who waits, to a direct execution.
SELECT ({any_endpoints}), ({any_over_limit}), ({any_open_edges}), ({direct_status}), ({any_audited});

-- name: any_audited
-- Whether SQL has created jobs: the results of their runs are audited.
SELECT EXISTS (SELECT 1 FROM templates WHERE kind <> 'python');

-- name: ended_as
SELECT number, finished_at, worker_id = :worker_id, status FROM jobs WHERE number = ANY (:numbers);

-- name: finish_runs
-- Each row: [number, at, run status, error, error_type, error_code, traceback, exit_code, result, log_path, result_message, rows_affected].
-- When and how it ended is its job's.
INSERT INTO run_notes AS n (job_number, error, error_type, error_code, traceback, exit_code, result, log_path, result_message, rows_affected)
SELECT (e.value ->> 0)::bigint, e.value ->> 3, e.value ->> 4, e.value ->> 5, e.value ->> 6, (e.value ->> 7)::integer, e.value ->> 8, e.value ->> 9,
       e.value ->> 10, (e.value ->> 11)::bigint
  FROM json_array_elements(:rows::json) AS e (value)
 WHERE coalesce(e.value ->> 3, e.value ->> 4, e.value ->> 5, e.value ->> 6, e.value ->> 7, e.value ->> 8, e.value ->> 9, e.value ->> 10, e.value ->> 11) IS NOT NULL
    ON CONFLICT (job_number) DO UPDATE
   SET error = excluded.error, error_type = excluded.error_type, error_code = excluded.error_code, traceback = excluded.traceback,
       exit_code = excluded.exit_code, result = excluded.result, log_path = coalesce(n.log_path, excluded.log_path),
       result_message = excluded.result_message, rows_affected = excluded.rows_affected;

-- name: finish_jobs
-- Each row: [number, at, status, error_type, reason]. The reason of a cancel request stands if that is how it ends.
WITH gone AS (
    DELETE FROM job_live AS l USING json_array_elements(:rows::json) AS e (value)
     WHERE l.number = ANY (ARRAY[(e.value ->> 0)::bigint]) AND l.status || '' = 'RUNNING'
    RETURNING l.*, e.value AS ending
)
INSERT INTO job_ends ({ending_columns})
SELECT number, job_type, ending ->> 2, created_at, (ending ->> 1)::bigint, held, priority, position, run_at, expires_at, queued_at, started_at,
       worker_id, run_id, cancel_requested_at, cancel_requested_by,
       CASE WHEN ending ->> 2 = 'CANCELLED' THEN coalesce(cancel_requested_by, 'system') ELSE 'system' END,
       CASE WHEN ending ->> 2 = 'CANCELLED' THEN coalesce(reason, ending ->> 4) ELSE ending ->> 4 END,
       ending ->> 3
  FROM gone;

-- name: insert_successors
-- Each row: [number of the one before, id, status, run_at, failures, crashes, snoozes, keeps its place, keeps its expiry, its lane if that is another].
-- A place beyond the clock was given before its priority was empty and counted anew: now it is before those who came since.
WITH next AS MATERIALIZED (
    SELECT nextval('job_numbers') AS number, (e.value ->> 1)::uuid AS job_id, o.number AS before, e.value ->> 2 AS status,
           (e.value ->> 3)::bigint AS run_at, (e.value ->> 4)::integer AS failures, (e.value ->> 5)::integer AS crashes,
           (e.value ->> 6)::integer AS snoozes, (e.value ->> 7)::boolean AS in_place, (e.value ->> 8)::boolean AS keeps_expiry,
           coalesce((e.value ->> 9)::bigint, {own_lane}) AS lane
      FROM json_array_elements(:rows::json) AS e (value) JOIN job_facts AS o ON o.number = ANY (ARRAY[(e.value ->> 0)::bigint])
     WHERE (SELECT s.number FROM job_facts AS s WHERE s.retry_of = o.job_id) IS NULL
), facts AS (
    INSERT INTO job_facts (number, job_id, root_id, retry_of, attempt, organization_id, template_id, job_type, origin, failures, crashes, snoozes,
                           unique_key, job_hash, params, schedule_id, due_at, group_id, sequence_number, owner, run_as, max_retries, max_crashes,
                           backoff, timeout, executor, target_node, shard, meta, tags, lane, created_at)
    SELECT n.number, n.job_id, o.root_id, o.job_id, o.attempt + 1, o.organization_id, o.template_id, o.job_type, o.origin, n.failures, n.crashes,
           n.snoozes, o.unique_key, o.job_hash, o.params, o.schedule_id, o.due_at, o.group_id, o.sequence_number, o.owner, o.run_as, o.max_retries,
           o.max_crashes, o.backoff, o.timeout, o.executor, o.target_node, o.shard, o.meta, o.tags, n.lane, :now
      FROM next AS n JOIN job_facts AS o ON o.number = ANY (ARRAY[n.before])
)
INSERT INTO job_live (number, job_id, root_id, attempt, organization_id, job_type, created_at, schedule_id, unique_key, status, priority, position,
                      run_at, expires_at, queued_at, lane)
SELECT n.number, n.job_id, o.root_id, o.attempt + 1, o.organization_id, o.job_type, :now, o.schedule_id, o.unique_key, n.status, b.priority,
       CASE WHEN NOT n.in_place THEN -:now
            WHEN b.position <= coalesce((SELECT c.position FROM queue_clock AS c WHERE c.priority = b.priority), 0) THEN b.position ELSE 0 END,
       n.run_at, CASE WHEN n.keeps_expiry THEN b.expires_at END, CASE WHEN n.in_place THEN :now END, n.lane
  FROM next AS n JOIN job_facts AS o ON o.number = ANY (ARRAY[n.before]) JOIN job_ends AS b ON b.number = ANY (ARRAY[n.before]);

-- name: own_lane
-- The lane of the attempt before; of one that ended before there were lanes, the lane of its type.
coalesce(o.lane, (SELECT n.lane FROM lanes AS n WHERE n.job_type = o.job_type AND n.queue = 'default' AND n.digest = ''))

-- name: group_rule
-- The rule of a group, and the place after which it applies: in a sequence, after the first that ended badly.
SELECT on_failure,
       CASE WHEN mode = 'sequential'
            THEN (SELECT min(f.sequence_number) FROM job_ends AS e JOIN job_facts AS f ON f.number = ANY (ARRAY[e.number])
                   WHERE e.number = ANY (:numbers) AND e.status || '' IN ('DEAD_LETTER', 'CANCELLED')
                     AND coalesce(hex(f.group_id), '') = hex(:group_id))
            ELSE 0 END
  FROM job_groups WHERE group_id = :group_id;

-- name: end_rest_of_group
-- Members whose chains have not started: still in their first attempt, still waiting.
WITH gone AS (
    DELETE FROM job_live
     WHERE number = ANY (ARRAY(SELECT number FROM job_facts WHERE group_id = :group_id AND sequence_number > :after AND attempt = 1))
       AND status IN ('PENDING', 'QUEUED')
    RETURNING *
)
INSERT INTO job_ends ({ending_columns})
SELECT number, job_type, :status, created_at, :now, held, priority, position, run_at, expires_at, queued_at, started_at, worker_id,
       run_id, cancel_requested_at, cancel_requested_by, 'system', :reason, NULL
  FROM gone
RETURNING number;

-- name: end_waiting
-- Waiting jobs that end without a run. Returns their numbers and groups.
WITH gone AS (
    DELETE FROM job_live WHERE number = ANY (:numbers) AND status IN ('PENDING', 'QUEUED') RETURNING *
), ended AS (
    INSERT INTO job_ends ({ending_columns})
    SELECT number, job_type, :status, created_at, :now, held, priority, position, run_at, expires_at, queued_at, started_at, worker_id,
           run_id, :requested_at, :requested_by, :actor, :reason, :error_type
      FROM gone
    RETURNING number
)
SELECT f.number, hex(f.group_id) FROM ended JOIN job_facts AS f ON f.number = ANY (ARRAY[ended.number]);

-- name: keep_progress
INSERT INTO run_notes AS n (job_number, progress, progress_message)
SELECT number, :progress, :message FROM job_live WHERE number = :number AND status || '' = 'RUNNING'
    ON CONFLICT (job_number) DO UPDATE
   SET progress = greatest(coalesce(n.progress, 0), excluded.progress), progress_message = coalesce(excluded.progress_message, n.progress_message);

-- name: keep_checkpoint
INSERT INTO run_notes (job_number, checkpoint)
SELECT number, :checkpoint FROM job_live WHERE number = :number AND status || '' = 'RUNNING'
    ON CONFLICT (job_number) DO UPDATE SET checkpoint = excluded.checkpoint;

-- name: keep_artifact
INSERT INTO run_notes AS n (job_number, artifacts)
SELECT number, '[' || to_json(:artifact)::text || ']' FROM job_live WHERE number = :number AND status || '' = 'RUNNING'
    ON CONFLICT (job_number) DO UPDATE
   SET artifacts = CASE WHEN n.artifacts = '[]' THEN '[' ELSE left(n.artifacts, -1) || ',' END || to_json(:artifact)::text || ']'
 WHERE NOT EXISTS (SELECT 1 FROM json_array_elements_text(n.artifacts::json) AS a (value) WHERE a.value = :artifact);

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

-- name: is_direct_ready
SELECT EXISTS (SELECT 1 FROM direct_reservations AS d JOIN job_live AS l ON l.number = ANY (ARRAY[d.job_number])
                WHERE d.status = 'ACTIVE' AND l.status || '' = 'QUEUED' AND l.lane = ANY (:lanes));

-- name: is_ready
SELECT EXISTS (SELECT 1 FROM unnest(:lanes) AS t (lane)
                WHERE (SELECT number FROM job_live WHERE status = 'QUEUED' AND held IS NULL AND job_live.lane = t.lane
                        ORDER BY priority DESC, position, created_at, job_id LIMIT 1) IS NOT NULL);

-- name: cancelling
SELECT coalesce(json_agg(number), '[]')::text FROM job_live WHERE worker_id = :worker_id AND status = 'RUNNING' AND cancel_requested_at IS NOT NULL;

-- name: next_expiry
SELECT min(expires_at) FROM job_live WHERE expires_at IS NOT NULL AND started_at IS NULL;

-- name: holding
SELECT coalesce(json_agg(json_build_array({columns})), '[]')::text FROM job_live AS l JOIN job_facts AS f ON f.number = ANY (ARRAY[l.number])
 WHERE l.worker_id = :worker_id AND l.status = 'RUNNING';

-- name: run_ids
SELECT number, hex(run_id), started_at FROM job_live WHERE worker_id = :worker_id AND status = 'RUNNING';
