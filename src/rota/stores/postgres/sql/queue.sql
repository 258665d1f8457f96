-- Entering the queue. Rows come as one JSON array and are written by one statement: see decision 0008.
-- Why some joins are `= ANY (ARRAY[...])`, and some conditions expressions: see edges.sql. For the same reason the highest of a line is the
-- first from behind, and not its max().

-- name: position_base
-- The highest position that counts for a newcomer: its organization's own tail or, while anything is queued at this
-- priority, the clock (the highest position claimed there). NULL: nothing is queued at this priority.
SELECT CASE WHEN EXISTS (SELECT 1 FROM job_live WHERE status = 'QUEUED' AND priority = :priority)
            THEN greatest((SELECT position FROM job_live WHERE status = 'QUEUED' AND priority = :priority AND organization_id = :organization_id
                            ORDER BY position DESC LIMIT 1),
                          (SELECT position FROM queue_clock WHERE priority = :priority), 0)
       END

-- name: clock_reset
DELETE FROM queue_clock WHERE priority = :priority;

-- name: insert_jobs
-- Many jobs of one shape: :ids and :bodies hold the id and the params of each. A caller that asks for their numbers adds RETURNING.
WITH new AS MATERIALIZED (
    SELECT nextval('job_numbers') AS number, e.job_id, e.params, :position + :gap * (e.place - 1) AS position
      FROM ROWS FROM (unnest(:ids), unnest(:bodies)) WITH ORDINALITY AS e (job_id, params, place)
), facts AS (
    INSERT INTO job_facts (number, job_id, root_id, params, {new_facts})
    SELECT number, job_id, job_id, params, {new_facts_values} FROM new
)
INSERT INTO job_live (number, job_id, root_id, attempt, position, {new_live})
SELECT number, job_id, job_id, 1, position, {new_live_values} FROM new;

-- name: insert_jobs_each
-- Many jobs of any shapes: :bodies holds their params, :rows is a JSON array of objects with the other values of insert_job.
WITH new AS MATERIALIZED (
    SELECT nextval('job_numbers') AS number, r.ids AS job_id, r.unnest AS params, r.now AS created_at, r.*
      FROM ROWS FROM (
               json_to_recordset(:rows::json) AS ({values_of_each}),
               unnest(:bodies)) AS r
), facts AS (
    INSERT INTO job_facts (number, job_id, root_id, params, {new_facts})
    SELECT number, job_id, job_id, params, {new_facts} FROM new
)
INSERT INTO job_live (number, job_id, root_id, attempt, position, {new_live})
SELECT number, job_id, job_id, 1, position, {new_live} FROM new;

-- name: values_of_each
ids uuid, position bigint, status text, blockers bigint, held text, now bigint, queued_at bigint, organization_id text,
template_id uuid, job_type text, origin text, unique_key text, job_hash bytea, group_id uuid, sequence_number bigint,
owner text, max_retries bigint, max_crashes bigint, backoff text, timeout double precision, executor text, meta text,
priority bigint, run_at bigint, expires_at bigint, lane bigint, tags text

-- name: insert_job
WITH new AS MATERIALIZED (
    SELECT nextval('job_numbers') AS number, (:ids)[1] AS job_id
), facts AS (
    INSERT INTO job_facts (number, job_id, root_id, params, {new_facts})
    SELECT number, job_id, job_id, :params, {new_facts_values} FROM new
)
INSERT INTO job_live (number, job_id, root_id, attempt, position, {new_live})
SELECT number, job_id, job_id, 1, :position, {new_live_values} FROM new;

-- name: insert_job_at_once
-- The common case of one job: gate, position and rows in one statement. It writes only if nothing needs a second look: the definitions
-- are those the caller read, and no limit is set.
WITH gate AS MATERIALIZED (
    SELECT ({position_base}) AS base WHERE {as_the_caller_knows}
), {facts_at_once}
{live_at_once}
RETURNING number, position;

-- name: insert_job_with_key_at_once
-- The same for a job with a unique key; returns the job, or the holder of its key, and whether that was there before. If two insert one key at once, the index refuses the later.
WITH holder AS MATERIALIZED (
    {key_holder}
), gate AS MATERIALIZED (
    SELECT ({position_base}) AS base WHERE {as_the_caller_knows} AND NOT EXISTS (SELECT 1 FROM holder)
), {facts_at_once}, live AS (
    {live_at_once}
    RETURNING job_id, root_id, number, status, position
)
SELECT hex(job_id), hex(root_id), number, status, position, false FROM live
 UNION ALL
SELECT *, true FROM holder WHERE {as_the_caller_knows};

-- name: as_the_caller_knows
(SELECT value & 1099511627775 FROM meta WHERE key = 'definitions_version') = :definitions & 1099511627775
AND (SELECT max_queued FROM organizations WHERE organization_id = :organization_id) IS NULL

-- name: facts_at_once
reset AS (
    DELETE FROM queue_clock WHERE priority = :priority AND (SELECT base IS NULL FROM gate)
), new AS MATERIALIZED (
    SELECT nextval('job_numbers') AS number, (:ids)[1] AS job_id, coalesce(base, 0) + :gap AS position FROM gate
), facts AS (
    INSERT INTO job_facts (number, job_id, root_id, params, {new_facts})
    SELECT number, job_id, job_id, :params, {new_facts_values} FROM new
)

-- name: live_at_once
INSERT INTO job_live (number, job_id, root_id, attempt, position, {new_live})
SELECT number, job_id, job_id, 1, position, {new_live_values} FROM new

-- name: new_facts
organization_id, template_id, job_type, origin, unique_key, job_hash, group_id, sequence_number, owner, max_retries, max_crashes, backoff,
timeout, executor, meta, lane, tags, created_at

-- name: new_facts_values
:organization_id, :template_id, :job_type, :origin, :unique_key, :job_hash, :group_id, :sequence_number, :owner, :max_retries, :max_crashes,
:backoff, :timeout, :executor, :meta, :lane, :tags, :now

-- name: new_live
organization_id, job_type, created_at, unique_key, status, held, blockers, priority, run_at, expires_at, queued_at, lane

-- name: new_live_values
:organization_id, :job_type, :now, :unique_key, :status, :held, :blockers, :priority, :run_at, :expires_at, :queued_at, :lane

-- name: key_holder
SELECT hex(l.job_id), hex(l.root_id), l.number, l.status, CASE WHEN l.queued_at IS NULL THEN 0 ELSE l.position END FROM job_live AS l
 WHERE l.unique_key IS NOT NULL AND l.organization_id = :organization_id AND l.job_type = :job_type AND md5(l.unique_key) = md5(:unique_key);

-- name: standing
-- Which rows are there already, counted from 0, by id (0) or by key (1), and what stands there: same_id and key_holder for many.
-- :ids holds an id for each, :keys is a JSON array of [organization, type, key or null]. Each is looked up by itself: who joins
-- may walk every key there is, where the server believes there are few.
SELECT e.place - 1, 0, hex(j.job_id), hex(j.root_id), j.number, j.status, CASE WHEN j.queued_at IS NULL THEN 0 ELSE j.position END, j.job_type, j.organization_id
  FROM unnest(:ids) WITH ORDINALITY AS e (job_id, place) JOIN jobs AS j ON j.job_id = ANY (ARRAY[e.job_id])
 UNION ALL
SELECT e.place - 1, 1, hex(l.job_id), hex(l.root_id), l.number, l.status, CASE WHEN l.queued_at IS NULL THEN 0 ELSE l.position END, l.job_type, l.organization_id
  FROM json_array_elements(:keys::json) WITH ORDINALITY AS e (value, place) CROSS JOIN LATERAL (
       SELECT * FROM job_live
        WHERE unique_key IS NOT NULL AND organization_id = e.value ->> 0 AND job_type = e.value ->> 1
          AND md5(unique_key) = md5(e.value ->> 2)
        LIMIT 1) AS l;

-- name: same_id
SELECT hex(job_id), hex(root_id), number, status, CASE WHEN queued_at IS NULL THEN 0 ELSE position END, job_type, organization_id FROM jobs WHERE job_id = :job_id;

-- name: enqueue_gate
-- What every enqueue asks first, in one statement. The last column would be a number to go on with: a sequence needs none.
SELECT (SELECT value FROM meta WHERE key = 'definitions_version'),
       (SELECT max_queued FROM organizations WHERE organization_id = :organization_id),
       EXISTS (SELECT 1 FROM job_facts WHERE job_id = :first::uuid) OR EXISTS (SELECT 1 FROM job_facts WHERE job_id = :last::uuid),
       ({position_base}),
       NULL;

-- name: max_queued
SELECT max_queued FROM organizations WHERE organization_id = :organization_id;

-- name: queued_count
SELECT count(*) FROM job_live WHERE status = 'QUEUED' AND organization_id = :organization_id;

-- name: due_priorities
-- Each priority that has PENDING jobs free of edges, with its earliest run_at: a hop from priority to priority, not a scan.
WITH RECURSIVE step (priority) AS (
    (SELECT priority FROM job_live WHERE status = 'PENDING' AND blockers = 0 ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT l.priority FROM job_live AS l WHERE l.status = 'PENDING' AND l.blockers = 0 AND l.priority < step.priority
             ORDER BY l.priority DESC LIMIT 1)
      FROM step WHERE step.priority IS NOT NULL
)
SELECT priority, (SELECT l.run_at FROM job_live AS l WHERE l.status = 'PENDING' AND l.blockers = 0 AND l.priority = step.priority
                   ORDER BY l.run_at LIMIT 1)
  FROM step WHERE priority IS NOT NULL;

-- name: next_due
WITH RECURSIVE step (priority) AS (
    SELECT max(priority) FROM job_live WHERE status = 'PENDING' AND blockers = 0
    UNION ALL
    SELECT (SELECT max(priority) FROM job_live WHERE status = 'PENDING' AND blockers = 0 AND priority < step.priority)
      FROM step WHERE step.priority IS NOT NULL
)
SELECT min((SELECT min(run_at) FROM job_live WHERE status = 'PENDING' AND blockers = 0 AND priority = step.priority))
  FROM step WHERE priority IS NOT NULL;

-- name: due_jobs
SELECT coalesce(json_agg(json_build_array(number, organization_id) ORDER BY run_at, number), '[]')::text FROM (
    SELECT number, organization_id, run_at FROM job_live
     WHERE status = 'PENDING' AND blockers = 0 AND priority = :priority AND run_at <= :now
     ORDER BY run_at, number LIMIT :limit) AS due;

-- name: queue_jobs
-- :positions is a JSON object of number to position.
UPDATE job_live SET status = 'QUEUED', queued_at = :now, position = e.value::bigint
  FROM json_each_text(:positions::json) AS e
 WHERE number = ANY (ARRAY[e.key::bigint]) AND status || '' = 'PENDING';

-- name: expired_jobs
SELECT coalesce(json_agg(number), '[]')::text FROM (
    SELECT number FROM job_live
     WHERE expires_at IS NOT NULL AND started_at IS NULL AND expires_at <= :now
     ORDER BY expires_at LIMIT :limit) AS late;
