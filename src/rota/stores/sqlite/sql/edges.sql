-- What waits for what: edges, telling those who wait that a chain has ended, and the graph of it all.
-- An open edge belongs to a job that is PENDING: who ends closes what is left of its own.

-- name: chains
-- The chains that these ids belong to, as far as they are this organization's: id, root, the root's number, the tail's state.
WITH RECURSIVE line (given, root, job_id) AS (
    SELECT e.value, j.root_id, j.root_id FROM json_each(:ids) AS e CROSS JOIN jobs AS j ON j.job_id = unhex(e.value)
     WHERE j.organization_id = :organization_id
    UNION ALL
    SELECT line.given, line.root, next.job_id FROM line CROSS JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT line.given, lower(hex(line.root)), (SELECT r.number FROM jobs AS r WHERE r.job_id = line.root), j.status
  FROM line CROSS JOIN jobs AS j ON j.job_id = line.job_id
 WHERE NOT EXISTS (SELECT 1 FROM jobs AS n WHERE n.retry_of = line.job_id);

-- name: add_edges
-- The same parents for each child. Each parent: [root, needs, on_failure, source, whether that is met already, its place].
-- Where a child waits for the same chain's end (a group's turn, an overlap), what it needs can only become more.
INSERT INTO job_edges (child, parent_root, needs, on_failure, source, resolved_at, place)
SELECT c.value, unhex(p.value ->> 0), p.value ->> 1, p.value ->> 2, p.value ->> 3, iif(p.value ->> 4, :now, NULL), p.value ->> 5
  FROM json_each(:children) AS c CROSS JOIN json_each(:parents) AS p
 WHERE true
    ON CONFLICT (child, parent_root) DO UPDATE
   SET needs = excluded.needs, on_failure = excluded.on_failure, source = excluded.source, resolved_at = excluded.resolved_at
 WHERE job_edges.needs = 'end' AND excluded.needs = 'success';

-- name: waiting_child
-- The tail of the chain that a job belongs to.
WITH RECURSIVE line (root, job_id) AS (
    SELECT root_id, root_id FROM jobs WHERE job_id = unhex(:job_id)
    UNION ALL
    SELECT line.root, next.job_id FROM line CROSS JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT j.number, lower(hex(j.job_id)), lower(hex(j.root_id)), j.organization_id, (SELECT r.number FROM jobs AS r WHERE r.job_id = j.root_id), j.status
  FROM line CROSS JOIN jobs AS j ON j.job_id = line.job_id
 WHERE NOT EXISTS (SELECT 1 FROM jobs AS n WHERE n.retry_of = line.job_id);

-- name: edges_of_child
SELECT lower(hex(parent_root)), source, resolved_at IS NULL FROM job_edges WHERE child = :child;

-- name: block
UPDATE jobs SET blockers = blockers + :count WHERE number = :number AND +status = 'PENDING';

-- name: close_edges
-- Of jobs that ended while they waited.
UPDATE job_edges SET resolved_at = :now WHERE child IN (SELECT value FROM json_each(:children)) AND +resolved_at IS NULL;

-- name: next_in_turn
-- Who follows jobs that ended while they waited themselves: number, the root waited for, and whose turn it is, a group's or an overlap's.
-- A dependency on an earlier member of a sequence stands for the group's turn too.
SELECT e.child, lower(hex(e.parent_root)), e.source FROM json_each(:numbers) AS n CROSS JOIN jobs AS j ON j.number = n.value
 CROSS JOIN job_edges AS e INDEXED BY edges_open ON e.parent_root = j.root_id AND e.resolved_at IS NULL AND e.needs = 'end' AND e.source <> 'user'
 CROSS JOIN jobs AS w ON w.number = e.child AND w.finished_at IS NULL
UNION ALL
SELECT e.child, lower(hex(e.parent_root)), 'group' FROM json_each(:numbers) AS n CROSS JOIN jobs AS j ON j.number = n.value AND j.group_id IS NOT NULL
 CROSS JOIN job_edges AS e INDEXED BY edges_open ON e.parent_root = j.root_id AND e.resolved_at IS NULL AND e.source = 'user'
 CROSS JOIN jobs AS w ON w.number = e.child AND w.finished_at IS NULL AND +w.group_id = j.group_id AND w.sequence_number > j.sequence_number;

-- name: turns_of
-- What these jobs waited for in turn: their root, that of the one before, whose turn it is, and whether the one before is live.
SELECT lower(hex(j.root_id)), lower(hex(e.parent_root)), iif(e.source = 'user', 'group', e.source),
       EXISTS (SELECT 1 FROM jobs AS p WHERE p.job_id = e.parent_root AND p.finished_at IS NULL)
       OR EXISTS (SELECT 1 FROM jobs AS p WHERE p.root_id = e.parent_root AND p.finished_at IS NULL AND p.attempt > 1)
  FROM json_each(:numbers) AS n CROSS JOIN jobs AS j ON j.number = n.value
 CROSS JOIN job_edges AS e ON e.child = j.number AND +e.resolved_at IS NULL
 WHERE e.source IN ('group', 'overlap')
    OR (e.source = 'user' AND (SELECT g.mode FROM job_groups AS g WHERE g.group_id = j.group_id) = 'sequential'
        AND (SELECT p.sequence_number FROM jobs AS p WHERE p.job_id = e.parent_root AND p.group_id = j.group_id) < j.sequence_number);

-- name: wait_in_turn
-- One who waits for the same chain already waits no more for that.
INSERT INTO job_edges (child, parent_root, needs, on_failure, source)
SELECT :child, unhex(p.value), 'end', 'cancel', :source FROM json_each(:roots) AS p WHERE true
    ON CONFLICT (child, parent_root) DO NOTHING;

-- name: states_of
SELECT number, status FROM jobs WHERE number IN (SELECT value FROM json_each(:numbers));

-- ---- telling -----------------------------------------------------------------------------------------------------

-- name: any_open_edges
SELECT EXISTS (SELECT 1 FROM job_edges INDEXED BY edges_open WHERE resolved_at IS NULL);

-- name: note_ended
-- Chains that ended, by the numbers of their tails, as far as anybody still waits for them.
INSERT INTO ended_roots (root_id, status)
SELECT j.root_id, j.status FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value
 WHERE j.status IN ('COMPLETED', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED')
   AND EXISTS (SELECT 1 FROM job_edges INDEXED BY edges_open WHERE parent_root = j.root_id AND resolved_at IS NULL)
    ON CONFLICT (root_id) DO UPDATE SET status = excluded.status;

-- name: some_ended
SELECT root_id, status FROM ended_roots LIMIT :limit;

-- name: any_ended
SELECT EXISTS (SELECT 1 FROM ended_roots);

-- name: forget_ended
DELETE FROM ended_roots WHERE root_id = :root_id;

-- name: to_satisfy
-- Those who waited for a chain that has completed. Each that is told leaves this index, and no other: the next call begins
-- where this one ends.
SELECT json_group_array(child) FROM (SELECT child FROM job_edges INDEXED BY edges_open WHERE parent_root = :root_id AND resolved_at IS NULL LIMIT :limit);

-- name: to_satisfy_at_end
-- Those to whom any end will do, and not the many who may wait for a completion that has yet to come.
SELECT json_group_array(child) FROM (
    SELECT child FROM job_edges INDEXED BY edges_open
     WHERE parent_root = :root_id AND resolved_at IS NULL AND needs = 'end' LIMIT :limit);

-- name: to_doom
-- Those who needed success of a chain that ended otherwise and are to end themselves.
SELECT json_group_array(json_array(child, on_failure)) FROM (
    SELECT child, on_failure FROM job_edges INDEXED BY edges_open
     WHERE parent_root = :root_id AND resolved_at IS NULL AND needs = 'success' AND on_failure IN ('skip', 'cancel')
     LIMIT :limit);

-- name: satisfy
-- One by one: edges_open would be walked for all who wait, each time that some are told.
UPDATE job_edges SET resolved_at = :now
 WHERE child IN (SELECT value FROM json_each(:children)) AND parent_root = :root_id AND +resolved_at IS NULL;

-- name: unblock
UPDATE jobs SET blockers = blockers - 1 WHERE number IN (SELECT value FROM json_each(:children)) AND +status = 'PENDING' AND blockers > 0;

-- name: number_of_root
SELECT lower(hex(root_id)), number FROM jobs WHERE job_id = :root_id;

-- ---- circles and graphs ------------------------------------------------------------------------------------------

-- name: is_waited_for
-- A chain, or the group that it is in.
SELECT EXISTS (SELECT 1 FROM job_edges INDEXED BY edges_open WHERE parent_root = unhex(:root_id) AND resolved_at IS NULL)
    OR EXISTS (SELECT 1 FROM jobs AS j CROSS JOIN job_edges AS e INDEXED BY edges_open ON e.parent_root = j.group_id AND e.resolved_at IS NULL
                WHERE j.job_id = unhex(:root_id));

-- name: waits_above
-- Who waits for whom, from one chain upwards, over open edges of every source; child and parent as roots. A group waits for its members.
WITH RECURSIVE up (root) AS (
    SELECT unhex(:root_id)
    UNION
    SELECT e.parent_root FROM up CROSS JOIN jobs AS c ON c.job_id = up.root AND c.finished_at IS NULL
                             CROSS JOIN job_edges AS e ON e.child = c.number AND +e.resolved_at IS NULL
    UNION
    SELECT e.parent_root FROM up CROSS JOIN jobs AS c ON c.root_id = up.root AND c.finished_at IS NULL AND c.attempt > 1
                             CROSS JOIN job_edges AS e ON e.child = c.number AND +e.resolved_at IS NULL
    UNION
    SELECT m.root_id FROM up CROSS JOIN jobs AS m INDEXED BY jobs_group ON m.group_id = up.root AND +m.finished_at IS NULL
)
SELECT lower(hex(up.root)), lower(hex(m.root_id)) FROM up CROSS JOIN jobs AS m INDEXED BY jobs_group ON m.group_id = up.root AND +m.finished_at IS NULL
UNION ALL
SELECT lower(hex(up.root)), lower(hex(e.parent_root)) FROM up
 CROSS JOIN jobs AS c ON c.job_id = up.root AND c.finished_at IS NULL
 CROSS JOIN job_edges AS e ON e.child = c.number AND +e.resolved_at IS NULL
UNION ALL
SELECT lower(hex(up.root)), lower(hex(e.parent_root)) FROM up
 CROSS JOIN jobs AS c ON c.root_id = up.root AND c.finished_at IS NULL AND c.attempt > 1
 CROSS JOIN job_edges AS e ON e.child = c.number AND +e.resolved_at IS NULL;

-- name: numbers_of_roots
SELECT lower(hex(j.job_id)), j.number FROM json_each(:roots) AS e CROSS JOIN jobs AS j ON j.job_id = unhex(e.value);

-- name: parents_of
SELECT lower(hex(e.parent_root)) FROM ({attempts_of}) AS a
 CROSS JOIN job_edges AS e ON e.child = a.number LIMIT :limit;

-- name: children_of
SELECT lower(hex(c.root_id)) FROM json_each(:roots) AS p CROSS JOIN job_edges AS e ON e.parent_root = unhex(p.value)
 CROSS JOIN jobs AS c ON c.number = e.child LIMIT :limit;

-- name: edges_among
-- The edges between chains that are all among those named.
SELECT lower(hex(a.root)), lower(hex(e.parent_root)), e.needs, e.on_failure, e.source, e.resolved_at FROM ({attempts_of}) AS a
 CROSS JOIN job_edges AS e ON e.child = a.number AND e.parent_root IN (SELECT unhex(value) FROM json_each(:roots))
 LIMIT :limit;

-- name: tails_of
WITH RECURSIVE line (job_id) AS (
    SELECT unhex(value) FROM json_each(:roots)
    UNION ALL
    SELECT next.job_id FROM line CROSS JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT {columns} FROM line CROSS JOIN jobs AS j ON j.job_id = line.job_id
 WHERE NOT EXISTS (SELECT 1 FROM jobs AS n WHERE n.retry_of = line.job_id);

-- name: attempts_of
-- Every job of these chains: an edge belongs to the attempt that was there when it was made.
WITH RECURSIVE line (root, job_id) AS (
    SELECT unhex(value), unhex(value) FROM json_each(:roots)
    UNION ALL
    SELECT line.root, next.job_id FROM line CROSS JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT line.root, j.number FROM line CROSS JOIN jobs AS j ON j.job_id = line.job_id
