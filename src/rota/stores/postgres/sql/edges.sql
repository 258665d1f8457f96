-- What waits for what: edges, telling those who wait that a chain has ended, and the graph of it all.
-- An open edge belongs to a job that is PENDING: who ends closes what is left of its own.
-- A plan is kept for as long as its connection, and may have been made while a table was empty: so that it can only look rows up, one
-- side of a join is `= ANY (ARRAY[...])` of the other, and a condition that would invite a walk along a partial index is an expression.

-- name: chains
-- The chains that these ids belong to, as far as they are this organization's: id, root, the root's number, the tail's state.
WITH RECURSIVE line (given, root, job_id) AS (
    SELECT e.value, f.root_id, f.root_id FROM json_array_elements_text(:ids::json) AS e (value)
      JOIN job_facts AS f ON f.job_id = ANY (ARRAY[e.value::uuid])
     WHERE f.organization_id = :organization_id
    UNION ALL
    SELECT line.given, line.root, next.job_id FROM line {then_next}
)
SELECT line.given, hex(line.root), (SELECT r.number FROM job_facts AS r WHERE r.job_id = line.root), j.status
  FROM line JOIN jobs AS j ON j.job_id = ANY (ARRAY[line.job_id])
 WHERE {is_tail};

-- name: then_next
-- From each job of a line to its successor, if it has one.
CROSS JOIN LATERAL (SELECT n.job_id FROM job_facts AS n WHERE n.retry_of = line.job_id OFFSET 0) AS next

-- name: is_tail
(SELECT n.number FROM job_facts AS n WHERE n.retry_of = line.job_id) IS NULL

-- name: add_edges
-- The same parents for each child. Each parent: [root, needs, on_failure, source, whether that is met already, its place].
-- Where a child waits for the same chain's end (a group's turn, an overlap), what it needs can only become more.
INSERT INTO job_edges AS e (child, parent_root, needs, on_failure, source, resolved_at, place)
SELECT c.number, (p.value ->> 0)::uuid, p.value ->> 1, p.value ->> 2, p.value ->> 3, CASE WHEN (p.value ->> 4)::boolean THEN :now END,
       (p.value ->> 5)::integer
  FROM unnest(:children) AS c (number) CROSS JOIN json_array_elements(:parents::json) AS p (value)
    ON CONFLICT (child, parent_root) DO UPDATE
   SET needs = excluded.needs, on_failure = excluded.on_failure, source = excluded.source, resolved_at = excluded.resolved_at
 WHERE e.needs = 'end' AND excluded.needs = 'success';

-- name: waiting_child
-- The tail of the chain that a job belongs to.
WITH RECURSIVE line (job_id) AS (
    SELECT root_id FROM job_facts WHERE job_id = :job_id
    UNION ALL
    SELECT next.job_id FROM line {then_next}
)
SELECT j.number, hex(j.job_id), hex(j.root_id), j.organization_id, (SELECT r.number FROM job_facts AS r WHERE r.job_id = j.root_id), j.status
  FROM line JOIN jobs AS j ON j.job_id = ANY (ARRAY[line.job_id])
 WHERE {is_tail};

-- name: edges_of_child
SELECT hex(parent_root), source, resolved_at IS NULL FROM job_edges WHERE child = :child;

-- name: block
UPDATE job_live SET blockers = blockers + :count WHERE number = :number AND status || '' = 'PENDING';

-- name: close_edges
-- Of jobs that ended while they waited.
UPDATE job_edges SET resolved_at = :now WHERE child = ANY (:children) AND resolved_at + 0 IS NULL;

-- name: next_in_turn
-- Who follows jobs that ended while they waited themselves: number, the root waited for, and whose turn it is, a group's or an overlap's.
-- A dependency on an earlier member of a sequence stands for the group's turn too.
SELECT e.child, hex(e.parent_root), e.source FROM job_facts AS j
 CROSS JOIN LATERAL (SELECT w.child, w.parent_root, w.source FROM job_edges AS w
                      WHERE w.parent_root = j.root_id AND w.resolved_at IS NULL AND w.needs = 'end' AND w.source <> 'user'
                       ORDER BY w.on_failure, w.child) AS e
 WHERE j.number = ANY (:numbers) AND (SELECT l.status FROM job_live AS l WHERE l.number = e.child) IS NOT NULL
UNION ALL
SELECT e.child, hex(e.parent_root), 'group' FROM job_facts AS j
 CROSS JOIN LATERAL (SELECT w.child, w.parent_root FROM job_edges AS w
                      WHERE w.parent_root = j.root_id AND w.resolved_at IS NULL AND w.source = 'user' ORDER BY w.needs, w.on_failure, w.child) AS e
 WHERE j.number = ANY (:numbers) AND coalesce(j.sequence_number, 0) > 0 AND (SELECT l.status FROM job_live AS l WHERE l.number = e.child) IS NOT NULL
   AND (SELECT CASE WHEN f.group_id = j.group_id THEN f.sequence_number END FROM job_facts AS f WHERE f.number = e.child) > j.sequence_number;

-- name: turns_of
-- What these jobs waited for in turn: their root, that of the one before, whose turn it is, and whether the one before is live.
SELECT hex(j.root_id), hex(e.parent_root), CASE e.source WHEN 'user' THEN 'group' ELSE e.source END,
       (SELECT l.number FROM job_live AS l WHERE l.number = (SELECT f.number FROM job_facts AS f WHERE f.job_id = e.parent_root)
        UNION ALL
        SELECT l.number FROM job_live AS l WHERE l.root_id = e.parent_root AND l.attempt > 1) IS NOT NULL
  FROM job_facts AS j
 CROSS JOIN LATERAL (SELECT w.parent_root, w.source FROM job_edges AS w WHERE w.child = j.number AND w.resolved_at + 0 IS NULL OFFSET 0) AS e
 WHERE j.number = ANY (:numbers)
   AND (e.source IN ('group', 'overlap')
        OR (e.source = 'user' AND (SELECT g.mode FROM job_groups AS g WHERE g.group_id = j.group_id) = 'sequential'
            AND (SELECT p.sequence_number FROM job_facts AS p WHERE p.job_id = e.parent_root AND p.group_id = j.group_id) < j.sequence_number));

-- name: wait_in_turn
-- One who waits for the same chain already waits no more for that.
INSERT INTO job_edges (child, parent_root, needs, on_failure, source)
SELECT :child, p.root, 'end', 'cancel', :source FROM unnest(:roots) AS p (root)
    ON CONFLICT (child, parent_root) DO NOTHING;

-- name: states_of
SELECT number, status FROM job_live WHERE number = ANY (:numbers)
UNION ALL
SELECT number, status FROM job_ends WHERE number = ANY (:numbers);

-- ---- telling -----------------------------------------------------------------------------------------------------
-- The ORDER BYs of this part are edges_open's own: they cost nothing, and no other index has them.

-- name: any_open_edges
SELECT EXISTS (SELECT 1 FROM job_edges WHERE resolved_at IS NULL);

-- name: note_ended
-- Chains that ended, by the numbers of their tails, as far as anybody still waits for them.
INSERT INTO ended_roots (root_id, status)
SELECT DISTINCT ON (f.root_id) f.root_id, e.status
  FROM job_ends AS e JOIN job_facts AS f ON f.number = ANY (ARRAY[e.number])
 WHERE e.number = ANY (:numbers) AND e.status IN ('COMPLETED', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED')
   AND (SELECT w.child FROM job_edges AS w WHERE w.parent_root = f.root_id AND w.resolved_at IS NULL
         ORDER BY w.needs, w.on_failure LIMIT 1) IS NOT NULL
 ORDER BY f.root_id, f.attempt DESC
    ON CONFLICT (root_id) DO UPDATE SET status = excluded.status;

-- name: some_ended
SELECT hex(root_id), status FROM ended_roots LIMIT :limit;

-- name: any_ended
SELECT EXISTS (SELECT 1 FROM ended_roots);

-- name: forget_ended
DELETE FROM ended_roots WHERE root_id = :root_id;

-- name: to_satisfy
-- Those who waited for a chain that has completed. Each that is told leaves this index: the next call begins where this one ends.
SELECT coalesce(json_agg(child), '[]')::text FROM (
    SELECT child FROM job_edges WHERE parent_root = :root_id AND resolved_at IS NULL ORDER BY needs, on_failure, child LIMIT :limit) AS w;

-- name: to_satisfy_at_end
-- Those to whom any end will do, and not the many who may wait for a completion that has yet to come.
SELECT coalesce(json_agg(child), '[]')::text FROM (
    SELECT child FROM job_edges WHERE parent_root = :root_id AND resolved_at IS NULL AND needs = 'end' ORDER BY on_failure, child LIMIT :limit) AS w;

-- name: to_doom
-- Those who needed success of a chain that ended otherwise and are to end themselves: who may skip or cancel, which stand before wait.
SELECT coalesce(json_agg(json_build_array(child, on_failure)), '[]')::text FROM (
    SELECT child, on_failure FROM job_edges
     WHERE parent_root = :root_id AND resolved_at IS NULL
       AND (needs, on_failure) >= ('success', 'cancel') AND (needs, on_failure) < ('success', 'wait')
     ORDER BY needs, on_failure, child LIMIT :limit) AS w;

-- name: satisfy
-- One by one: edges_open would be walked for all who wait, each time that some are told. As text the root leads to no index.
UPDATE job_edges SET resolved_at = :now WHERE child = ANY (:children) AND hex(parent_root) = hex(:root_id) AND resolved_at + 0 IS NULL;

-- name: unblock
UPDATE job_live SET blockers = blockers - 1 WHERE number = ANY (:children) AND status || '' = 'PENDING' AND blockers > 0;

-- name: number_of_root
SELECT hex(root_id), number FROM job_facts WHERE job_id = :root_id;

-- ---- circles and graphs ------------------------------------------------------------------------------------------

-- name: is_waited_for
-- A chain, or the group that it is in.
SELECT (SELECT child FROM job_edges WHERE parent_root = :root_id AND resolved_at IS NULL ORDER BY needs, on_failure LIMIT 1) IS NOT NULL
    OR (SELECT child FROM job_edges WHERE parent_root = (SELECT f.group_id FROM job_facts AS f WHERE f.job_id = :root_id) AND resolved_at IS NULL
         ORDER BY needs, on_failure LIMIT 1) IS NOT NULL;

-- name: waits_above
-- Who waits for whom, from one chain upwards, over open edges of every source; child and parent as roots. A group waits for its members.
WITH RECURSIVE up (root) AS (
    SELECT :root_id
    UNION
    SELECT e.parent_root FROM up {then_waits}
)
SELECT hex(up.root), hex(e.parent_root) FROM up {then_waits};

-- name: then_waits
-- From each chain to the open edges of its live job (its first attempt, or the one that was made since), and from a group to its live members.
CROSS JOIN LATERAL (
    SELECT o.parent_root FROM (
        SELECT l.number FROM job_live AS l WHERE l.number = (SELECT f.number FROM job_facts AS f WHERE f.job_id = up.root)
        UNION ALL
        SELECT l.number FROM job_live AS l WHERE l.root_id = up.root AND l.attempt > 1
    ) AS c
    CROSS JOIN LATERAL (SELECT w.parent_root FROM job_edges AS w WHERE w.child = c.number AND w.resolved_at + 0 IS NULL OFFSET 0) AS o
    UNION ALL
    SELECT m.root_id FROM job_facts AS m WHERE m.group_id = up.root AND (SELECT l.number FROM job_live AS l WHERE l.number = m.number) IS NOT NULL
) AS e

-- name: numbers_of_roots
SELECT hex(job_id), number FROM job_facts WHERE job_id = ANY (:roots);

-- name: parents_of
SELECT hex(e.parent_root) FROM ({attempts_of}) AS a {then_edges} LIMIT :limit;

-- name: children_of
-- The source is in no index, so that the primary key, which has the parent in second place, can't answer by itself.
SELECT hex(f.root_id) FROM unnest(:roots) AS p (root)
 CROSS JOIN LATERAL (SELECT w.child FROM job_edges AS w WHERE w.parent_root = p.root AND w.source <> '' OFFSET 0) AS e
  JOIN job_facts AS f ON f.number = ANY (ARRAY[e.child]) LIMIT :limit;

-- name: edges_among
-- The edges between chains that are all among those named.
SELECT hex(a.root), hex(e.parent_root), e.needs, e.on_failure, e.source, e.resolved_at FROM ({attempts_of}) AS a {then_edges}
 WHERE e.parent_root = ANY (:roots) LIMIT :limit;

-- name: then_edges
CROSS JOIN LATERAL (SELECT * FROM job_edges AS w WHERE w.child = a.number OFFSET 0) AS e

-- name: tails_of
WITH RECURSIVE line (job_id) AS (
    SELECT * FROM unnest(:roots)
    UNION ALL
    SELECT next.job_id FROM line {then_next}
)
SELECT {columns} FROM line JOIN jobs AS j ON j.job_id = ANY (ARRAY[line.job_id])
 WHERE {is_tail};

-- name: attempts_of
-- Every job of these chains: an edge belongs to the attempt that was there when it was made.
WITH RECURSIVE line (root, job_id) AS (
    SELECT root, root FROM unnest(:roots) AS r (root)
    UNION ALL
    SELECT line.root, next.job_id FROM line {then_next}
)
SELECT line.root, f.number FROM line JOIN job_facts AS f ON f.job_id = ANY (ARRAY[line.job_id])
