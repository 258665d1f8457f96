-- Reads for people. Times and ids are turned into their outside form by the caller.

-- name: job_columns
lower(hex(j.job_id)), j.number, (SELECT r.number FROM jobs AS r WHERE r.job_id = j.root_id), j.status, j.job_type, j.organization_id,
j.priority, iif(j.queued_at IS NULL, 0, j.position), j.attempt, lower(hex(j.root_id)), j.created_at, lower(hex(j.template_id)), j.origin, lower(hex(j.retry_of)), j.failures,
j.crashes, j.snoozes, j.held, j.blockers, j.run_at, j.expires_at, j.unique_key, j.params, lower(hex(j.schedule_id)), j.due_at,
lower(hex(j.group_id)), j.sequence_number, j.owner, j.run_as, j.max_retries, j.max_crashes, j.backoff, j.timeout, j.executor, j.queued_at,
j.started_at, j.finished_at, lower(hex(j.worker_id)), j.cancel_requested_at, j.cancel_requested_by, j.ended_by, j.reason, j.error_type,
j.meta, {queue_of}, (SELECT n.digest FROM lanes AS n WHERE n.lane = j.lane), j.tags

-- name: queue_of
-- Jobs that ended before there were queues have no lane.
coalesce((SELECT n.queue FROM lanes AS n WHERE n.lane = j.lane), 'default')

-- name: job
SELECT {columns} FROM jobs AS j WHERE j.job_id = unhex(:job_id);

-- name: job_by_number
SELECT {columns} FROM jobs AS j WHERE j.number = :number AND j.attempt = 1;

-- name: chain
WITH RECURSIVE line (job_id) AS (
    SELECT root_id FROM jobs WHERE job_id = unhex(:job_id)
    UNION ALL
    SELECT next.job_id FROM line JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT {columns} FROM line CROSS JOIN jobs AS j ON j.job_id = line.job_id ORDER BY j.attempt;

-- name: tails
-- The last jobs of the chains that these ids belong to. Only a job that has finished can have a successor: the others cost one look.
WITH RECURSIVE line (asked, number, job_id, root_id, attempt, status, ended) AS (
    SELECT e.value, j.number, j.job_id, j.root_id, j.attempt, j.status, j.finished_at IS NOT NULL
      FROM json_each(:ids) AS e CROSS JOIN jobs AS j ON j.job_id = unhex(e.value)
    UNION ALL
    SELECT line.asked, next.number, next.job_id, next.root_id, next.attempt, next.status, next.finished_at IS NOT NULL
      FROM line CROSS JOIN jobs AS next ON next.retry_of = line.job_id WHERE line.ended
)
SELECT asked, lower(hex(job_id)), lower(hex(root_id)), iif(attempt = 1, number, (SELECT r.number FROM jobs AS r WHERE r.job_id = line.root_id)),
       attempt, status, ended
  FROM line WHERE NOT ended OR NOT EXISTS (SELECT 1 FROM jobs AS n WHERE n.retry_of = line.job_id);

-- name: run_columns
lower(hex(r.run_id)), r.status, lower(hex(r.template_id)), r.started_at, r.finished_at, r.exit_code, r.error, r.error_type, r.error_code,
r.traceback, r.result, r.result_message, r.rows_affected, r.output_reference, r.artifacts, r.log_path, r.progress,
r.progress_message, r.checkpoint, j.params

-- name: run
SELECT {run_columns} FROM jobs AS j JOIN job_runs AS r ON r.job_number = j.number WHERE j.job_id = unhex(:job_id);

-- name: runs
SELECT e.value, {run_columns}
  FROM json_each(:ids) AS e CROSS JOIN jobs AS j ON j.job_id = unhex(e.value) CROSS JOIN job_runs AS r ON r.job_number = j.number;

-- ---- lists: the page's numbers are picked along one of the sources below, {source}, then the rows are read --------------------

-- name: find
SELECT {columns} FROM (SELECT j.number AS picked FROM jobs AS j {source} AND j.number >= :floor AND j.number < :before
                              AND {made} AND {matching} ORDER BY j.number DESC LIMIT :limit)
 CROSS JOIN jobs AS j ON j.number = picked ORDER BY j.number DESC;

-- name: size
-- How many rows a source has, as far as it is worth counting.
SELECT count(*) FROM (SELECT 1 FROM jobs AS j {source} LIMIT :limit);

-- name: newest
-- The newest number of a source that comes in the order of numbers.
SELECT j.number FROM jobs AS j {source} ORDER BY j.number DESC LIMIT 1;

-- name: span
-- The newest number, and about how many jobs there are: the oldest go, few in between. Each end is looked up by itself, or it is a scan.
SELECT coalesce((SELECT max(number) FROM jobs), 0), coalesce((SELECT max(number) FROM jobs) - (SELECT min(number) FROM jobs) + 1, 0);

-- name: made
(:created_from IS NULL OR j.created_at >= :created_from) AND (:created_until IS NULL OR j.created_at < :created_until)

-- name: matching
(:statuses IS NULL OR j.status IN (SELECT value FROM json_each(:statuses)))
AND (:job_type IS NULL OR j.job_type = :job_type)
AND (:queue IS NULL OR {queue_of} = :queue)
AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(j.tags) WHERE value = :tag))
AND (:organization_id IS NULL OR j.organization_id = :organization_id)
AND (:owner IS NULL OR j.owner = :owner)
AND (:reach IS NULL OR j.owner = :reach OR j.schedule_id IN (SELECT unhex(value) FROM json_each(:granted)))
AND (:group_id IS NULL OR j.group_id = :group_id)
AND (:root_id IS NULL OR j.root_id = :root_id)
AND (:schedule_id IS NULL OR j.schedule_id = :schedule_id)
AND (:error_type IS NULL OR j.error_type = :error_type)
AND (NOT :tails OR NOT EXISTS (SELECT 1 FROM jobs AS s WHERE s.retry_of = j.job_id))
AND (:text IS NULL OR j.root_id = :named OR instr(j.params, :text) OR instr(j.job_type, :text) OR instr(coalesce(j.unique_key, ''), :text)
     OR instr(coalesce(j.reason, ''), :text)
     OR j.error_type IS NOT NULL AND EXISTS (SELECT 1 FROM job_runs AS r WHERE r.job_number = j.number AND instr(r.error, :text)))

-- name: source_all
NOT INDEXED WHERE true

-- name: source_chain
NOT INDEXED WHERE j.number IN (WITH RECURSIVE line (job_id, number) AS (
    SELECT job_id, number FROM jobs WHERE job_id = :root_id
    UNION ALL
    SELECT next.job_id, next.number FROM line JOIN jobs AS next ON next.retry_of = line.job_id
) SELECT number FROM line)

-- name: source_group
INDEXED BY jobs_group WHERE j.group_id = :group_id

-- name: source_schedule
INDEXED BY jobs_occurrence WHERE j.schedule_id IS NOT NULL AND j.schedule_id = :schedule_id

-- name: source_status
INDEXED BY jobs_unhappy
 WHERE (j.status = 'FAILED' OR j.status = 'TIMED_OUT' OR j.status = 'DEAD_LETTER' OR j.status = 'SKIPPED' OR j.status = 'CANCELLED')
   AND j.status = :status

-- name: source_running
INDEXED BY jobs_running WHERE j.status = 'RUNNING'

-- name: source_ready
INDEXED BY jobs_ready WHERE j.status = 'QUEUED' AND j.held IS NULL AND {made}

-- name: source_ready_of_type
INDEXED BY jobs_ready WHERE j.status = 'QUEUED' AND j.held IS NULL AND j.lane IN (SELECT n.lane FROM lanes AS n WHERE n.job_type = :job_type)
   AND {made}

-- name: source_ready_of_queue
INDEXED BY jobs_ready WHERE j.status = 'QUEUED' AND j.held IS NULL AND j.lane IN (SELECT n.lane FROM lanes AS n WHERE n.queue = :queue)
   AND {made}

-- name: source_held
INDEXED BY jobs_held WHERE j.status = 'QUEUED' AND j.held IS NOT NULL AND {made}

-- name: source_held_of_type
-- Each word that rows are parked under, then the type: a hop from word to word, not a scan.
INDEXED BY jobs_held WHERE j.status = 'QUEUED' AND j.held IS NOT NULL AND j.job_type = :job_type AND {made} AND j.held IN (
    WITH RECURSIVE word (held) AS (
        SELECT min(held) FROM jobs WHERE status = 'QUEUED' AND held IS NOT NULL
        UNION ALL
        SELECT (SELECT min(p.held) FROM jobs AS p WHERE p.status = 'QUEUED' AND p.held IS NOT NULL AND p.held > word.held)
          FROM word WHERE word.held IS NOT NULL
    ) SELECT held FROM word)

-- name: source_due
INDEXED BY jobs_due WHERE j.status = 'PENDING' AND j.blockers = 0

-- name: source_blocked
INDEXED BY jobs_blocked WHERE j.status = 'PENDING' AND j.blockers > 0

-- name: source_ended
INDEXED BY jobs_finished WHERE j.finished_at IS NOT NULL AND {made}

-- name: source_ended_of_type
INDEXED BY jobs_finished WHERE j.finished_at IS NOT NULL AND j.job_type = :job_type AND {made}

-- name: source_organization
INDEXED BY jobs_org WHERE j.organization_id <> 'default' AND j.organization_id = :organization_id

-- ---- the queue ---------------------------------------------------------------------------------------------------------------

-- name: next_priority
SELECT max(priority) FROM jobs WHERE status = 'QUEUED' AND priority < :priority;

-- name: next_line
-- Within one priority and organization the queue is a line that jobs_tail has in order already.
SELECT min(organization_id) FROM jobs WHERE status = 'QUEUED' AND priority = :priority AND organization_id > :organization_id;

-- name: line
SELECT {columns} FROM jobs AS j WHERE j.status = 'QUEUED' AND j.priority = :priority AND j.organization_id = :organization_id
 ORDER BY j.position, j.created_at, j.job_id LIMIT :limit;

-- name: ahead
SELECT count(*) FROM jobs AS j
 WHERE j.status = 'QUEUED' AND j.held IS NULL AND (:organization_id IS NULL OR j.organization_id = :organization_id)
   AND (-j.priority, j.position, j.created_at, j.job_id)
     < (SELECT -m.priority, m.position, m.created_at, m.job_id FROM jobs AS m WHERE m.job_id = unhex(:job_id));

-- name: blockers
-- The tails of the chains that a job waits for: live ones, and those that ended otherwise than it needs.
WITH RECURSIVE line (job_id) AS (
    SELECT e.parent_root FROM jobs AS c CROSS JOIN job_edges AS e ON e.child = c.number AND +e.resolved_at IS NULL WHERE c.job_id = unhex(:job_id)
    UNION ALL
    SELECT next.job_id FROM line CROSS JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT {columns} FROM line CROSS JOIN jobs AS j ON j.job_id = line.job_id
 WHERE NOT EXISTS (SELECT 1 FROM jobs AS n WHERE n.retry_of = line.job_id);

-- ---- what happened -----------------------------------------------------------------------------------------------------------

-- name: log
-- IN, not a join: so that the chain's ids reach into each arm of the view, and none of them is a scan.
WITH RECURSIVE line (job_id) AS (
    SELECT root_id FROM jobs WHERE job_id = unhex(:job_id)
    UNION ALL
    SELECT next.job_id FROM line JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT at, attempt, message, from_status, to_status, actor FROM job_log WHERE job_id IN (SELECT job_id FROM line) ORDER BY attempt, step;

-- name: audit_columns
a.audit_id, a.at, a.actor, a.organization_id, a.action, a.subject, a.subject_id, a.before, a.after, nullif(lower(hex(a.job_uuid)), ''),
nullif(lower(hex(a.job_run_uuid)), ''), a.outcome

-- name: audit_trail
SELECT {audit_columns} FROM audit AS a
 WHERE audit_id < :before_id AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:subject IS NULL OR subject = :subject)
 ORDER BY audit_id DESC LIMIT :limit;

-- name: audit_of_chain
-- Changes are filed under the attempt that was live; who asks about one means its chain.
WITH RECURSIVE line (job_id) AS (
    SELECT unhex(:subject_id)
    UNION
    SELECT root_id FROM jobs WHERE job_id = unhex(:subject_id)
    UNION
    SELECT next.job_id FROM line JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT {audit_columns}
  FROM line CROSS JOIN audit AS a ON a.subject = :subject AND a.subject_id = lower(hex(line.job_id))
 WHERE a.audit_id < :before_id AND (:organization_id IS NULL OR a.organization_id = :organization_id)
 ORDER BY a.audit_id DESC LIMIT :limit;

-- name: audit_of_action
SELECT {audit_columns} FROM audit AS a INDEXED BY audit_action
 WHERE action = :action AND audit_id < :before_id AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:subject IS NULL OR subject = :subject)
 ORDER BY audit_id DESC LIMIT :limit;

-- name: audit_of_job
SELECT {audit_columns} FROM audit AS a
 WHERE job_uuid = unhex(:job_uuid) AND audit_id < :before_id AND (:organization_id IS NULL OR organization_id = :organization_id)
 ORDER BY audit_id DESC LIMIT :limit;

-- name: audit_of
SELECT {audit_columns} FROM audit AS a
 WHERE subject = :subject AND subject_id = :subject_id AND audit_id < :before_id
   AND (:organization_id IS NULL OR organization_id = :organization_id)
 ORDER BY audit_id DESC LIMIT :limit;
