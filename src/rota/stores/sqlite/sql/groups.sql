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
