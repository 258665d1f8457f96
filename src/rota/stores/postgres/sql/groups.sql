-- name: insert_group
INSERT INTO job_groups (group_id, organization_id, name, mode, on_failure, created_by, created_at)
VALUES (:group_id, :organization_id, :name, :mode, :on_failure, :actor, :now);

-- name: group_exists
SELECT EXISTS (SELECT 1 FROM job_groups WHERE group_id = :group_id);

-- name: joinable
SELECT number, status, hex(group_id), organization_id, hex(root_id), attempt FROM jobs WHERE job_id = :job_id;

-- name: join_group
WITH joining AS (
    UPDATE job_live SET blockers = blockers + :blockers WHERE number = :number AND status || '' IN ('PENDING', 'QUEUED') RETURNING number
)
UPDATE job_facts SET group_id = :group_id, sequence_number = :sequence_number WHERE number = (SELECT number FROM joining);

-- name: group
SELECT hex(group_id), name, mode, on_failure, created_at, organization_id, created_by FROM job_groups WHERE group_id = :group_id;

-- name: groups
SELECT hex(group_id) FROM job_groups
 WHERE (:organization_id IS NULL OR organization_id = :organization_id) AND (:owner IS NULL OR created_by = :owner)
 ORDER BY group_id DESC LIMIT :limit;

-- name: members
-- The tail of each member's chain, and whether any job of it has a run.
SELECT j.sequence_number, hex(j.root_id), (SELECT r.number FROM job_facts AS r WHERE r.job_id = j.root_id), j.job_type, j.status, j.attempt,
       bool_or(j.started_at IS NOT NULL) OVER (PARTITION BY j.sequence_number),
       row_number() OVER (PARTITION BY j.sequence_number ORDER BY j.attempt DESC) AS from_tail
  FROM jobs AS j WHERE j.group_id = :group_id ORDER BY j.sequence_number, from_tail;

-- name: live_members
SELECT l.number, l.status FROM job_facts AS f JOIN job_live AS l ON l.number = ANY (ARRAY[f.number])
 WHERE f.group_id = :group_id ORDER BY f.sequence_number;

-- ---- the job that follows a group ------------------------------------------------------------------------------------

-- name: groups_waited_for
-- The groups of these jobs that somebody waits for.
SELECT DISTINCT hex(f.group_id) FROM job_facts AS f
 WHERE f.number = ANY (:numbers) AND hex(f.group_id) IS NOT NULL
   AND (SELECT w.child FROM job_edges AS w WHERE w.parent_root = f.group_id AND w.resolved_at IS NULL
         ORDER BY w.needs, w.on_failure LIMIT 1) IS NOT NULL;

-- name: live_member_after
-- Up to which member a group was passed, and the first live one behind a place. Those that were passed are not looked at again.
SELECT g.passed, (SELECT m.sequence_number FROM job_facts AS m
                   WHERE m.group_id = g.group_id AND m.sequence_number > CASE WHEN :first <> 0 THEN 0 ELSE g.passed END
                     AND (SELECT l.number FROM job_live AS l WHERE l.number = m.number) IS NOT NULL
                   ORDER BY m.sequence_number LIMIT 1)
  FROM job_groups AS g WHERE g.group_id = :group_id;

-- name: pass_members
UPDATE job_groups SET passed = :passed WHERE group_id = :group_id;

-- name: group_tails
-- How the chains of a group's members stand: each state once.
SELECT DISTINCT coalesce((SELECT e.status FROM job_ends AS e WHERE e.number = f.number), 'RUNNING') FROM job_facts AS f
 WHERE f.group_id = :group_id AND (SELECT n.number FROM job_facts AS n WHERE n.retry_of = f.job_id) IS NULL;

-- name: note_group_ended
INSERT INTO ended_roots (root_id, status) VALUES (:group_id, :status) ON CONFLICT (root_id) DO UPDATE SET status = excluded.status;

-- name: waiting_followers
SELECT child FROM job_edges WHERE parent_root = :group_id AND resolved_at IS NULL ORDER BY needs, on_failure, child;

-- name: follower_of
-- The first: a group is made with one. The source is in no index, so that the primary key can't answer by itself.
SELECT hex(c.root_id), e.needs, e.on_failure
  FROM (SELECT w.child, w.needs, w.on_failure FROM job_edges AS w WHERE w.parent_root = :group_id AND w.source <> '' ORDER BY w.child + 0 LIMIT 1) AS e
  JOIN job_facts AS c ON c.number = ANY (ARRAY[e.child]);

-- name: awaited_groups
SELECT hex(e.parent_root) FROM job_facts AS c JOIN job_edges AS e ON e.child = ANY (ARRAY[c.number]) AND e.resolved_at + 0 IS NULL
  JOIN job_groups AS g ON g.group_id = ANY (ARRAY[e.parent_root]) WHERE c.job_id = :job_id;

-- ---- the results of what a job waited for ----------------------------------------------------------------------------

-- name: named_parents
-- What the jobs of a chain were told to wait for, in that order: the root of a chain or a group, and whether it is a group.
SELECT hex(e.parent_root), (SELECT g.group_id FROM job_groups AS g WHERE g.group_id = e.parent_root) IS NOT NULL
  FROM ({attempts_of}) AS a {then_edges} WHERE e.source = 'user' ORDER BY a.number, e.place NULLS FIRST, e.parent_root;

-- name: members_after
SELECT sequence_number, hex(root_id) FROM job_facts
 WHERE group_id = :group_id AND sequence_number > :after AND attempt + 0 = 1 ORDER BY sequence_number LIMIT :limit;

-- name: types_of_roots
SELECT hex(f.job_id), f.job_type FROM json_array_elements_text(:roots::json) AS e (value) JOIN job_facts AS f ON f.job_id = ANY (ARRAY[e.value::uuid]);

-- name: result_sizes
-- The completed jobs of these chains that have a result: root, number, its bytes.
SELECT hex(a.root), n.job_number, octet_length(n.result) FROM ({attempts_of}) AS a (root, number)
  JOIN job_ends AS e ON e.number = ANY (ARRAY[a.number]) AND e.status || '' = 'COMPLETED'
  JOIN run_notes AS n ON n.job_number = ANY (ARRAY[a.number]) WHERE n.result IS NOT NULL;

-- name: results_of
SELECT job_number, result FROM run_notes WHERE job_number = ANY (:numbers);
