-- Nothing can say yet who may run jobs as whom. So run_as is refused, and what earlier versions have kept of it is cleared, each with an entry
-- in the audit trail. A retry copies the fields of the job before it, so ended jobs are cleared too.

INSERT INTO audit (at, actor, organization_id, action, subject, subject_id, before, after)
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'system', NULL, 'template.set', 'template', name,
       json_build_object('run_as', run_as)::text, '{"run_as":null}'
  FROM templates WHERE run_as IS NOT NULL;
UPDATE templates SET run_as = NULL WHERE run_as IS NOT NULL;

INSERT INTO audit (at, actor, organization_id, action, subject, subject_id, before, after)
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'system', organization_id, 'schedule.edit', 'schedule', name,
       json_build_object('run_as', run_as)::text, '{"run_as":null}'
  FROM schedules WHERE run_as IS NOT NULL;
UPDATE schedules SET run_as = NULL, declared = (declared::jsonb - 'run_as')::text, version = version + 1 WHERE run_as IS NOT NULL;

INSERT INTO audit (at, actor, organization_id, action, subject, subject_id, before, after)
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'system', organization_id, 'job.change', 'job', replace(job_id::text, '-', ''),
       json_build_object('run_as', run_as)::text, '{"run_as":null}'
  FROM job_facts WHERE run_as IS NOT NULL;
UPDATE job_facts SET run_as = NULL WHERE run_as IS NOT NULL;
