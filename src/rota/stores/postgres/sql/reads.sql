-- Reads for people. Times and ids are turned into their outside form by the caller.
-- Why some joins are `= ANY (ARRAY[...])`, and some conditions expressions: see edges.sql.

-- name: job_columns
hex(j.job_id), j.number, (SELECT r.number FROM job_facts AS r WHERE r.job_id = j.root_id), j.status, j.job_type, j.organization_id,
j.priority, CASE WHEN j.queued_at IS NULL THEN 0 ELSE j.position END, j.attempt, hex(j.root_id), j.created_at, hex(j.template_id), j.origin, hex(j.retry_of), j.failures,
j.crashes, j.snoozes, j.held, j.blockers, j.run_at, j.expires_at, j.unique_key, j.params, hex(j.schedule_id), j.due_at,
hex(j.group_id), j.sequence_number, j.owner, j.run_as, j.max_retries, j.max_crashes, j.backoff, j.timeout, j.executor, j.queued_at,
j.started_at, j.finished_at, hex(j.worker_id), j.cancel_requested_at, j.cancel_requested_by, j.ended_by, j.reason, j.error_type,
j.meta, {queue_of}, (SELECT n.digest FROM lanes AS n WHERE n.lane = j.lane), j.tags

-- name: queue_of
-- Jobs that ended before there were queues have no lane.
coalesce((SELECT n.queue FROM lanes AS n WHERE n.lane = j.lane), 'default')

-- name: job
SELECT {columns} FROM jobs AS j WHERE j.job_id = :job_id;

-- name: job_by_number
SELECT {columns} FROM jobs AS j WHERE j.number = :number AND j.attempt = 1;

-- name: chain
WITH RECURSIVE line (job_id) AS (
    SELECT root_id FROM job_facts WHERE job_id = :job_id
    UNION ALL
    SELECT next.job_id FROM line {then_next}
)
SELECT {columns} FROM line JOIN jobs AS j ON j.job_id = ANY (ARRAY[line.job_id]) ORDER BY j.attempt;

-- name: tails
-- The last jobs of the chains that these ids belong to. Only a job that has finished can have a successor: the others cost one look.
WITH RECURSIVE line (asked, number, job_id, root_id, attempt, status, ended) AS (
    SELECT e.value, j.number, j.job_id, j.root_id, j.attempt, j.status, j.finished_at IS NOT NULL
      FROM json_array_elements_text(:ids::json) AS e (value) JOIN jobs AS j ON j.job_id = ANY (ARRAY[e.value::uuid])
    UNION ALL
    SELECT line.asked, j.number, j.job_id, j.root_id, j.attempt, j.status, j.finished_at IS NOT NULL
      FROM line {then_next} JOIN jobs AS j ON j.job_id = ANY (ARRAY[next.job_id]) WHERE line.ended
)
SELECT asked, hex(job_id), hex(root_id), CASE WHEN attempt = 1 THEN number ELSE (SELECT r.number FROM job_facts AS r WHERE r.job_id = line.root_id) END,
       attempt, status, ended
  FROM line WHERE NOT ended OR {is_tail};

-- name: run_columns
hex(r.run_id), r.status, hex(r.template_id), r.started_at, r.finished_at, r.exit_code, r.error, r.error_type, r.error_code,
r.traceback, r.result, r.result_message, r.rows_affected, r.output_reference, r.artifacts, r.log_path, r.progress,
r.progress_message, r.checkpoint, f.params

-- name: run
SELECT {run_columns} FROM job_facts AS f JOIN job_runs AS r ON r.job_number = ANY (ARRAY[f.number]) WHERE f.job_id = :job_id;

-- name: runs
SELECT e.value, {run_columns} FROM json_array_elements_text(:ids::json) AS e (value)
  JOIN job_facts AS f ON f.job_id = ANY (ARRAY[e.value::uuid]) JOIN job_runs AS r ON r.job_number = ANY (ARRAY[f.number]);

-- ---- lists: the page's numbers are picked along one of the sources below, {source}, then the rows are read --------------------
-- A source is a set of rows of the one table whose index leads to them, and says of each what a list may ask for. What stands in
-- another table is a look of its own, which is taken only if somebody asks. A source that comes in the order of numbers has its number
-- as its place; of any other the place is number + 0, or a page would be read by walking over all numbers.

-- name: find
SELECT {columns} FROM (SELECT s.number AS picked, s.place FROM ({source}) AS s WHERE s.place >= :floor AND s.place < :before
                              AND {made} AND {matching} ORDER BY s.place DESC LIMIT :limit) AS p
  JOIN jobs AS j ON j.number = ANY (ARRAY[p.picked]) ORDER BY p.place DESC;

-- name: size
-- How many rows a source has, as far as it is worth counting.
SELECT count(*) FROM (SELECT 1 FROM ({source}) AS s LIMIT :limit) AS counted;

-- name: newest
-- The newest number of a source that comes in the order of numbers.
SELECT place FROM ({source}) AS s ORDER BY place DESC LIMIT 1;

-- name: span
-- The newest number, and about how many jobs there are: the oldest go, few in between. Each end is looked up by itself.
SELECT coalesce(last.number, 0), coalesce(last.number - first.number + 1, 0)
  FROM (SELECT (SELECT number FROM job_facts ORDER BY number DESC LIMIT 1)) AS last (number)
 CROSS JOIN (SELECT (SELECT number FROM job_facts ORDER BY number LIMIT 1)) AS first (number);

-- name: made
-- A range, so that an index which has the moment at its end is asked and not the row.
created_at >= coalesce(:created_from, -9223372036854775808) AND created_at < coalesce(:created_until, 9223372036854775807)

-- name: matching
(:job_type IS NULL OR s.job_type = :job_type)
AND (:queue IS NULL OR coalesce((SELECT n.queue FROM lanes AS n WHERE n.lane = s.lane), 'default') = :queue)
AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_array_elements_text(coalesce(s.tags, '[]')::json) AS t (tag) WHERE t.tag = :tag))
AND (:statuses::text IS NULL OR s.status = ANY (:statuses))
AND (:organization_id IS NULL OR s.organization_id = :organization_id)
AND (:owner IS NULL OR s.owner = :owner)
AND (:reach IS NULL OR s.owner = :reach OR s.schedule_id = ANY (:granted))
AND (:group_id IS NULL OR s.group_id = :group_id)
AND (:root_id IS NULL OR s.root_id = :root_id)
AND (:schedule_id IS NULL OR s.schedule_id = :schedule_id)
AND (:error_type IS NULL OR s.error_type = :error_type)
AND (NOT :tails::boolean OR (SELECT t.number FROM job_facts AS t WHERE t.retry_of = s.job_id) IS NULL)
AND (:text IS NULL OR s.root_id = :named OR strpos(s.params, :text) > 0 OR strpos(s.job_type, :text) > 0 OR strpos(coalesce(s.unique_key, ''), :text) > 0
     OR strpos(coalesce(s.reason, ''), :text) > 0
     OR s.error_type IS NOT NULL AND (SELECT strpos(n.error, :text) > 0 FROM run_notes AS n WHERE n.job_number = s.number))

-- name: of_facts
number, job_id, job_type, created_at, organization_id, owner, group_id, root_id, schedule_id, params, unique_key, lane, tags,
coalesce((SELECT l.status FROM job_live AS l WHERE l.number = f.number), (SELECT e.status FROM job_ends AS e WHERE e.number = f.number)) AS status,
coalesce((SELECT l.reason FROM job_live AS l WHERE l.number = f.number), (SELECT e.reason FROM job_ends AS e WHERE e.number = f.number)) AS reason,
(SELECT e.error_type FROM job_ends AS e WHERE e.number = f.number) AS error_type

-- name: of_live
number, job_id, job_type, created_at, organization_id, (SELECT f.owner FROM job_facts AS f WHERE f.number = l.number) AS owner,
(SELECT f.group_id FROM job_facts AS f WHERE f.number = l.number) AS group_id, root_id, schedule_id,
(SELECT f.params FROM job_facts AS f WHERE f.number = l.number) AS params, unique_key, lane,
(SELECT f.tags FROM job_facts AS f WHERE f.number = l.number) AS tags, status, reason, NULL::text AS error_type

-- name: of_ends
number, (SELECT f.job_id FROM job_facts AS f WHERE f.number = e.number) AS job_id, job_type, created_at,
(SELECT f.organization_id FROM job_facts AS f WHERE f.number = e.number) AS organization_id,
(SELECT f.owner FROM job_facts AS f WHERE f.number = e.number) AS owner,
(SELECT f.group_id FROM job_facts AS f WHERE f.number = e.number) AS group_id,
(SELECT f.root_id FROM job_facts AS f WHERE f.number = e.number) AS root_id,
(SELECT f.schedule_id FROM job_facts AS f WHERE f.number = e.number) AS schedule_id,
(SELECT f.params FROM job_facts AS f WHERE f.number = e.number) AS params,
(SELECT f.unique_key FROM job_facts AS f WHERE f.number = e.number) AS unique_key,
(SELECT f.lane FROM job_facts AS f WHERE f.number = e.number) AS lane,
(SELECT f.tags FROM job_facts AS f WHERE f.number = e.number) AS tags, status, reason, error_type

-- name: source_all
SELECT number AS place, {of_facts} FROM job_facts AS f

-- name: source_chain
SELECT number + 0 AS place, {of_facts} FROM job_facts AS f WHERE job_id = ANY (ARRAY(
    WITH RECURSIVE line (job_id) AS (
        SELECT :root_id
        UNION ALL
        SELECT next.job_id FROM line {then_next}
    ) SELECT job_id FROM line))

-- name: source_group
SELECT number + 0 AS place, {of_facts} FROM job_facts AS f WHERE group_id = :group_id

-- name: source_schedule
SELECT number + 0 AS place, {of_facts} FROM job_facts AS f WHERE schedule_id = :schedule_id

-- name: source_status
SELECT number AS place, {of_ends} FROM job_ends AS e
 WHERE status IN ('FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED') AND status = :status

-- name: source_ends
SELECT number AS place, {of_ends} FROM job_ends AS e

-- name: source_running
SELECT number + 0 AS place, {of_live} FROM job_live AS l WHERE status = 'RUNNING'

-- name: source_ready
SELECT number + 0 AS place, {of_live} FROM job_live AS l WHERE status = 'QUEUED' AND held IS NULL AND {made}

-- name: source_ready_of_type
SELECT number + 0 AS place, {of_live} FROM job_live AS l
 WHERE status = 'QUEUED' AND held IS NULL AND lane = ANY (ARRAY(SELECT n.lane FROM lanes AS n WHERE n.job_type = :job_type)) AND {made}

-- name: source_ready_of_queue
SELECT number + 0 AS place, {of_live} FROM job_live AS l
 WHERE status = 'QUEUED' AND held IS NULL AND lane = ANY (ARRAY(SELECT n.lane FROM lanes AS n WHERE n.queue = :queue)) AND {made}

-- name: source_held
SELECT number + 0 AS place, {of_live} FROM job_live AS l WHERE status = 'QUEUED' AND held IS NOT NULL AND {made}

-- name: source_held_of_type
-- Each word that rows are parked under, then the type: a hop from word to word, not a scan.
SELECT number + 0 AS place, {of_live} FROM (
    WITH RECURSIVE word (held) AS (
        (SELECT held FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL ORDER BY held LIMIT 1)
        UNION ALL
        SELECT (SELECT p.held FROM job_live AS p WHERE p.status = 'QUEUED' AND p.held IS NOT NULL AND p.held > word.held ORDER BY p.held LIMIT 1)
          FROM word WHERE word.held IS NOT NULL
    ) SELECT held FROM word) AS word
 CROSS JOIN LATERAL (SELECT * FROM job_live WHERE status = 'QUEUED' AND held IS NOT NULL AND held = word.held AND job_type = :job_type AND {made}
                     OFFSET 0) AS l

-- name: source_due
SELECT number + 0 AS place, {of_live} FROM job_live AS l WHERE status = 'PENDING' AND blockers = 0

-- name: source_blocked
SELECT number + 0 AS place, {of_live} FROM job_live AS l WHERE status = 'PENDING' AND blockers > 0

-- name: source_ended
-- Each has a type: so the moments are asked of the index that has them, not of the rows.
SELECT number + 0 AS place, {of_ends} FROM job_ends AS e WHERE job_type > '' AND {made}

-- name: source_ended_of_type
SELECT number + 0 AS place, {of_ends} FROM job_ends AS e WHERE job_type = :job_type AND {made}

-- name: source_organization
SELECT number AS place, {of_facts} FROM job_facts AS f WHERE organization_id <> 'default' AND organization_id = :organization_id

-- ---- the queue ---------------------------------------------------------------------------------------------------------------

-- name: next_priority
SELECT priority FROM job_live WHERE status = 'QUEUED' AND priority < :priority ORDER BY priority DESC LIMIT 1;

-- name: next_line
-- Within one priority and organization the queue is a line that live_tail has in order already.
SELECT organization_id FROM job_live WHERE status = 'QUEUED' AND priority = :priority AND organization_id > :organization_id
 ORDER BY organization_id LIMIT 1;

-- name: line
-- The index goes as far as positions; only those who share one are sorted.
SELECT {columns} FROM (SELECT * FROM (SELECT number, position, created_at, job_id FROM job_live
                                       WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id
                                       ORDER BY position FETCH FIRST (:limit) ROWS WITH TIES) AS tied
                        ORDER BY position, created_at, job_id LIMIT :limit) AS p
  JOIN jobs AS j ON j.number = ANY (ARRAY[p.number]) ORDER BY p.position, p.created_at, p.job_id;

-- name: ahead
SELECT count(*) FROM job_live AS l
 WHERE l.status = 'QUEUED' AND l.held IS NULL AND (:organization_id IS NULL OR l.organization_id = :organization_id)
   AND (-l.priority, l.position, l.created_at, l.job_id)
     < (SELECT -m.priority, m.position, m.created_at, m.job_id FROM jobs AS m WHERE m.job_id = :job_id);

-- name: blockers
-- The tails of the chains that a job waits for: live ones, and those that ended otherwise than it needs.
WITH RECURSIVE line (job_id) AS (
    SELECT e.parent_root FROM job_facts AS c JOIN job_edges AS e ON e.child = ANY (ARRAY[c.number]) AND e.resolved_at + 0 IS NULL
     WHERE c.job_id = :job_id
    UNION ALL
    SELECT next.job_id FROM line {then_next}
)
SELECT {columns} FROM line JOIN jobs AS j ON j.job_id = ANY (ARRAY[line.job_id])
 WHERE {is_tail};

-- ---- what happened -----------------------------------------------------------------------------------------------------------

-- name: log
-- An array, not a join: so that the chain's ids reach into each arm of the view, and none of them is a scan.
WITH RECURSIVE line (job_id) AS (
    SELECT root_id FROM job_facts WHERE job_id = :job_id
    UNION ALL
    SELECT next.job_id FROM line {then_next}
)
SELECT at, attempt, message, from_status, to_status, actor FROM job_log WHERE job_id = ANY (ARRAY(SELECT job_id FROM line)) ORDER BY attempt, step;

-- name: audit_columns
a.audit_id, a.at, a.actor, a.organization_id, a.action, a.subject, a.subject_id, a.before, a.after, hex(a.job_uuid), hex(a.job_run_uuid), a.outcome

-- name: audit_trail
SELECT {audit_columns} FROM audit AS a
 WHERE audit_id < :before_id AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:subject IS NULL OR subject = :subject)
 ORDER BY audit_id DESC LIMIT :limit;

-- name: audit_of_chain
-- Changes are filed under the attempt that was live; who asks about one means its chain. What is no id has none.
WITH RECURSIVE asked (job_id) AS (
    SELECT CASE WHEN :subject_id ~ '^[0-9a-fA-F]{32}$' THEN (:subject_id)::uuid END
), line (job_id) AS (
    (SELECT job_id FROM asked UNION SELECT f.root_id FROM asked JOIN job_facts AS f ON f.job_id = ANY (ARRAY[asked.job_id]))
    UNION
    SELECT next.job_id FROM line {then_next}
)
SELECT {audit_columns}
  FROM line CROSS JOIN LATERAL (SELECT * FROM audit WHERE subject = :subject AND subject_id = hex(line.job_id) AND audit_id + 0 < :before_id OFFSET 0) AS a
 WHERE :organization_id IS NULL OR a.organization_id = :organization_id
 ORDER BY a.audit_id DESC LIMIT :limit;

-- name: audit_of_action
SELECT {audit_columns} FROM audit AS a
 WHERE action = :action AND audit_id < :before_id AND (:organization_id IS NULL OR organization_id = :organization_id)
   AND (:subject IS NULL OR subject = :subject)
 ORDER BY audit_id DESC LIMIT :limit;

-- name: audit_of_job
SELECT {audit_columns} FROM audit AS a
 WHERE job_uuid = :job_uuid::uuid AND audit_id < :before_id AND (:organization_id IS NULL OR organization_id = :organization_id)
 ORDER BY audit_id DESC LIMIT :limit;

-- name: audit_of
SELECT {audit_columns} FROM audit AS a
 WHERE subject = :subject AND subject_id = :subject_id AND audit_id < :before_id
   AND (:organization_id IS NULL OR organization_id = :organization_id)
 ORDER BY audit_id DESC LIMIT :limit;
