-- Nothing can say yet who may run jobs as whom. So run_as is refused, and what earlier versions have kept of it is cleared, each with an entry
-- in the audit trail.

INSERT INTO audit (at, actor, organization_id, action, subject, subject_id, before, after)
SELECT unixepoch() * 1000000, 'system', NULL, 'template.set', 'template', name, json_object('run_as', run_as), json_object('run_as', NULL)
  FROM templates WHERE run_as IS NOT NULL;
UPDATE templates SET run_as = NULL WHERE run_as IS NOT NULL;

INSERT INTO audit (at, actor, organization_id, action, subject, subject_id, before, after)
SELECT unixepoch() * 1000000, 'system', organization_id, 'schedule.edit', 'schedule', name, json_object('run_as', run_as), json_object('run_as', NULL)
  FROM schedules WHERE run_as IS NOT NULL;
UPDATE schedules SET run_as = NULL, declared = json_remove(declared, '$.run_as'), version = version + 1 WHERE run_as IS NOT NULL;

-- A retry copies the fields of the job before it, so ended jobs are cleared too: for this one change they are not frozen.
INSERT INTO audit (at, actor, organization_id, action, subject, subject_id, before, after)
SELECT unixepoch() * 1000000, 'system', organization_id, 'job.change', 'job', lower(hex(job_id)), json_object('run_as', run_as),
       json_object('run_as', NULL)
  FROM jobs WHERE run_as IS NOT NULL;
DROP TRIGGER jobs_ended;
UPDATE jobs SET run_as = NULL WHERE run_as IS NOT NULL;
CREATE TRIGGER jobs_ended AFTER UPDATE ON jobs
WHEN OLD.finished_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a job that has ended cannot change');
END;
