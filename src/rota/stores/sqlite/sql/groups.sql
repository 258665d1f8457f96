-- name: insert_group
INSERT INTO job_groups (group_id, organization_id, name, mode, on_failure, created_by, created_at)
VALUES (unhex(:group_id), :organization_id, :name, :mode, :on_failure, :actor, :now);

-- name: group_exists
SELECT EXISTS (SELECT 1 FROM job_groups WHERE group_id = unhex(:group_id));

-- name: joinable
SELECT number, status, lower(hex(group_id)), organization_id, lower(hex(root_id)), attempt FROM jobs WHERE job_id = unhex(:job_id);

-- name: join_group
UPDATE jobs SET group_id = unhex(:group_id), sequence_number = :sequence_number, blockers = blockers + :blockers
 WHERE number = :number AND status IN ('PENDING', 'QUEUED');

-- name: group
SELECT lower(hex(group_id)), name, mode, on_failure, created_at, organization_id, created_by FROM job_groups WHERE group_id = unhex(:group_id);

-- name: groups
SELECT lower(hex(group_id)) FROM job_groups
 WHERE (:organization_id IS NULL OR organization_id = :organization_id) AND (:owner IS NULL OR created_by = :owner)
 ORDER BY group_id DESC LIMIT :limit;

-- name: members
-- The tail of each member's chain, and whether any job of it has a run.
SELECT j.sequence_number, lower(hex(j.root_id)), (SELECT r.number FROM jobs AS r WHERE r.job_id = j.root_id), j.job_type, j.status, j.attempt,
       max(j.started_at IS NOT NULL) OVER (PARTITION BY j.sequence_number),
       row_number() OVER (PARTITION BY j.sequence_number ORDER BY j.attempt DESC) AS from_tail
  FROM jobs AS j WHERE j.group_id = unhex(:group_id) ORDER BY j.sequence_number, from_tail;

-- name: live_members
SELECT number, status FROM jobs WHERE group_id = unhex(:group_id) AND finished_at IS NULL ORDER BY sequence_number;

-- ---- the job that follows a group ------------------------------------------------------------------------------------

-- name: groups_waited_for
-- The groups of these jobs that somebody waits for.
SELECT DISTINCT lower(hex(j.group_id)) FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value
 WHERE +j.group_id IS NOT NULL
   AND EXISTS (SELECT 1 FROM job_edges INDEXED BY edges_open WHERE parent_root = j.group_id AND resolved_at IS NULL);

-- name: live_member_after
-- Up to which member a group was passed, and the first live one behind a place. Those that were passed are not looked at again.
SELECT g.passed, (SELECT m.sequence_number FROM jobs AS m INDEXED BY jobs_group
                   WHERE m.group_id = g.group_id AND m.sequence_number > iif(:first, 0, g.passed) AND +m.finished_at IS NULL
                   ORDER BY m.sequence_number LIMIT 1)
  FROM job_groups AS g WHERE g.group_id = unhex(:group_id);

-- name: pass_members
UPDATE job_groups SET passed = :passed WHERE group_id = unhex(:group_id);

-- name: group_tails
-- How the chains of a group's members stand: each state once.
SELECT DISTINCT j.status FROM jobs AS j WHERE j.group_id = unhex(:group_id)
   AND (j.status = 'COMPLETED' OR NOT EXISTS (SELECT 1 FROM jobs AS n WHERE n.retry_of = j.job_id));

-- name: note_group_ended
INSERT INTO ended_roots (root_id, status) VALUES (unhex(:group_id), :status) ON CONFLICT (root_id) DO UPDATE SET status = excluded.status;

-- name: waiting_followers
SELECT child FROM job_edges INDEXED BY edges_open WHERE parent_root = unhex(:group_id) AND resolved_at IS NULL;

-- name: follower_of
-- The first: a group is made with one.
SELECT lower(hex(c.root_id)), e.needs, e.on_failure FROM job_edges AS e CROSS JOIN jobs AS c ON c.number = e.child
 WHERE e.parent_root = unhex(:group_id) ORDER BY e.child LIMIT 1;

-- name: awaited_groups
SELECT lower(hex(e.parent_root)) FROM jobs AS c CROSS JOIN job_edges AS e ON e.child = c.number AND +e.resolved_at IS NULL
 CROSS JOIN job_groups AS g ON g.group_id = e.parent_root WHERE c.job_id = unhex(:job_id);

-- ---- the results of what a job waited for ----------------------------------------------------------------------------

-- name: named_parents
-- What the jobs of a chain were told to wait for, in that order: the root of a chain or a group, and whether it is a group.
SELECT lower(hex(e.parent_root)), EXISTS (SELECT 1 FROM job_groups AS g WHERE g.group_id = e.parent_root)
  FROM ({attempts_of}) AS a CROSS JOIN job_edges AS e ON e.child = a.number
 WHERE e.source = 'user' ORDER BY a.number, e.place, e.parent_root;

-- name: members_after
SELECT sequence_number, lower(hex(root_id)) FROM jobs INDEXED BY jobs_group
 WHERE group_id = unhex(:group_id) AND sequence_number > :after AND attempt = 1 ORDER BY sequence_number LIMIT :limit;

-- name: types_of_roots
SELECT lower(hex(job_id)), job_type FROM jobs WHERE job_id IN (SELECT unhex(value) FROM json_each(:roots));

-- name: result_sizes
-- The completed jobs of these chains that have a result: root, number, its bytes.
WITH RECURSIVE line (root, job_id) AS (
    SELECT unhex(value), unhex(value) FROM json_each(:roots)
    UNION ALL
    SELECT line.root, next.job_id FROM line CROSS JOIN jobs AS next ON next.retry_of = line.job_id
)
SELECT lower(hex(line.root)), j.number, octet_length(r.result) FROM line CROSS JOIN jobs AS j ON j.job_id = line.job_id AND +j.status = 'COMPLETED'
 CROSS JOIN job_runs AS r ON r.job_number = j.number WHERE r.result IS NOT NULL;

-- name: results_of
SELECT job_number, result FROM job_runs WHERE job_number IN (SELECT value FROM json_each(:numbers));
