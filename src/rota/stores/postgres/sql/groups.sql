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
