-- Which job and which run an entry of the audit trail is about, and how it came out.
ALTER TABLE audit ADD COLUMN job_uuid uuid;
ALTER TABLE audit ADD COLUMN job_run_uuid uuid;
ALTER TABLE audit ADD COLUMN outcome text NOT NULL DEFAULT 'ok' CHECK (outcome IN ('ok', 'failed', 'denied'));
CREATE INDEX audit_action ON audit (action, audit_id);
CREATE INDEX audit_job ON audit (job_uuid, audit_id) WHERE job_uuid IS NOT NULL;

-- Jobs that SQL has created were entered by their id and under names of events: now as other schedules are, with the id beside it.
UPDATE audit SET job_uuid = subject_id::uuid, subject = 'schedule', subject_id = coalesce(after::json ->> 'job_name', subject_id),
                 action = CASE action WHEN 'JOB_CREATED' THEN 'schedule.create' WHEN 'JOB_MODIFIED' THEN 'schedule.edit' ELSE 'schedule.delete' END,
                 after = CASE WHEN action <> 'JOB_DELETED' THEN (after::jsonb - 'job_uuid' - 'job_name' - 'outcome')::text END
 WHERE subject = 'sql_job';
UPDATE audit SET job_run_uuid = subject_id::uuid WHERE subject = 'job' AND subject_id ~ '^[0-9a-f]{32}$';

-- Whether there are runs whose results are audited: every turn asks.
CREATE INDEX templates_of_sql ON templates (template_id) WHERE kind <> 'python';

-- Settings that all processes share: the environment of a process and its program come before them.
CREATE TABLE settings (
    name   text COLLATE "C" PRIMARY KEY,
    value  text NOT NULL,
    set_by text NOT NULL,
    set_at bigint NOT NULL
);
