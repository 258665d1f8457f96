-- Jobs of a kind wait by their connection: those that were stored before there was a runner name none, and so have the default one.
UPDATE templates SET job_type = 'kind:sql:' || organization_id || '/default' WHERE job_type = 'kind:sql' AND length(organization_id) <= 200;
UPDATE template_versions SET job_type = (SELECT t.job_type FROM templates AS t WHERE t.template_id = template_versions.template_id)
 WHERE job_type = 'kind:sql';
