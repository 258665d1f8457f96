-- What a small store held when it was left, by the version of its schema: a section is for its version and every later one.
-- It was left on 2026-03-01 at 11:30 UTC, one job still running. Ids end with the number of the job.

-- version 1

INSERT INTO templates (template_id, name, job_type, defaults, created_by, created_at, updated_at)
VALUES (x'019ca9450a0070008003000000000001', 'greet', 'greet', '{"executor":"thread","max_retries":3}', 'system',
        1772350000000000, 1772350000000000);

INSERT INTO schedules (schedule_id, organization_id, template_id, name, kind, interval_us, starts_at, param_overrides, cursor_at, next_trigger_at,
                       created_by, created_at, updated_at)
VALUES (x'019ca9450a0070008004000000000001', 'default', x'019ca9450a0070008003000000000001', 'hourly', 'EVERY', 3600000000, 1772361000000000,
        '{"name":"schedule"}', 1772364600000000, 1772368200000000, 'ada', 1772361000000000, 1772361000000000);

INSERT INTO occurrences (schedule_id, due_at, last_due_at, fate, reason, recorded_at)
VALUES (x'019ca9450a0070008004000000000001', 1772364600000000, 1772364600000000, 'MISSED', 'nobody was there', 1772364600000000);

INSERT INTO workers (worker_id, host, kind, job_types, started_at)
VALUES (x'019ca9450a0070008005000000000001', 'elsewhere', 'worker', '["greet"]', 1772364000000000);

INSERT INTO job_groups (group_id, organization_id, name, mode, on_failure, created_by, created_at)
VALUES (x'019ca9450a0070008006000000000001', 'default', 'pair', 'parallel', 'stop', 'ada', 1772364600000000);

WITH made (number) AS (VALUES (1), (2), (4), (5), (7), (8))
INSERT INTO jobs (number, job_id, organization_id, template_id, job_type, origin, root_id, status, priority, position, run_at, created_at, queued_at,
                  group_id, sequence_number, owner, max_retries, max_crashes, timeout, executor, backoff, params)
SELECT number, unhex('019ca9450a007000800700000000000' || number), 'default', x'019ca9450a0070008003000000000001', 'greet',
       iif(number > 6, 'group', 'api'), unhex('019ca9450a007000800700000000000' || number), 'QUEUED', 50, number * 100,
       1772364600000000, 1772364600000000, 1772364600000000, iif(number > 6, x'019ca9450a0070008006000000000001', NULL), iif(number > 6, number - 6, NULL),
       'ada', 3, 3, 300.0, 'thread', '{"base":60.0,"factor":2.0,"cap":86400.0,"jitter":0.0}', json_object('name', 'job ' || number)
  FROM made;

-- 1 is completed, 2 has failed, 5 is running.
INSERT INTO job_runs (job_number, run_id, template_id, started_at)
SELECT number, unhex('019ca9450a007000800800000000000' || number), template_id, 1772364660000000 FROM jobs WHERE number IN (1, 2, 5);
UPDATE jobs SET status = 'RUNNING', started_at = 1772364660000000, worker_id = x'019ca9450a0070008005000000000001' WHERE number IN (1, 2, 5);
UPDATE job_runs SET status = 'COMPLETED', finished_at = 1772364661000000, result = '"job 1"' WHERE job_number = 1;
UPDATE job_runs SET status = 'FAILED', finished_at = 1772364661000000, error = 'ConnectionError: no', error_type = 'transient' WHERE job_number = 2;
UPDATE jobs SET status = 'COMPLETED', finished_at = 1772364661000000, ended_by = 'system' WHERE number = 1;
UPDATE jobs SET status = 'FAILED', finished_at = 1772364661000000, ended_by = 'system', error_type = 'transient' WHERE number = 2;

-- 3 is the second attempt of 2, 6 waits for it, and 9 is for later.
INSERT INTO jobs (number, job_id, organization_id, template_id, job_type, root_id, retry_of, attempt, failures, status, blockers, priority, run_at, created_at,
                  owner, max_retries, max_crashes, timeout, executor, backoff, params)
SELECT 3, x'019ca9450a0070008007000000000003', organization_id, template_id, job_type, root_id, job_id, 2, 1, 'PENDING', 0, priority, 1772364721000000,
       1772364661000000, owner, max_retries, max_crashes, timeout, executor, backoff, params
  FROM jobs WHERE number = 2;
WITH made (number, blockers, run_at) AS (VALUES (6, 1, 1772364600000000), (9, 0, 1772370000000000))
INSERT INTO jobs (number, job_id, organization_id, template_id, job_type, root_id, status, blockers, priority, run_at, created_at,
                  owner, max_retries, max_crashes, timeout, executor, backoff, params)
SELECT m.number, unhex('019ca9450a007000800700000000000' || m.number), j.organization_id, j.template_id, j.job_type,
       unhex('019ca9450a007000800700000000000' || m.number), 'PENDING', m.blockers, j.priority, m.run_at, j.created_at,
       j.owner, j.max_retries, j.max_crashes, j.timeout, j.executor, j.backoff, json_object('name', 'job ' || m.number)
  FROM made AS m JOIN jobs AS j ON j.number = 1;
INSERT INTO job_edges (child, parent_root, needs, on_failure, source) VALUES (6, x'019ca9450a0070008007000000000002', 'success', 'wait', 'user');

-- version 2

INSERT INTO users (name, organization_id, role, created_by, created_at, updated_at)
VALUES ('ada', 'default', 'admin', 'system', 1772350000000000, 1772350000000000);
INSERT INTO stats_total (organization_id, job_type, status, count) VALUES ('default', 'greet', 'COMPLETED', 1), ('default', 'greet', 'FAILED', 1);

-- version 3

INSERT INTO calendars (organization_id, name, days, created_by, created_at, updated_at)
VALUES ('default', 'holidays', '["2026-12-25"]', 'ada', 1772350000000000, 1772350000000000);

-- version 4

INSERT INTO tokens (token_id, name, user_name, hash, permits, created_by, created_at)
VALUES (x'019ca9450a0070008009000000000001', 'ci', 'ada', x'0000000000000000000000000000000000000000000000000000000000000001', '["read"]', 'ada',
        1772350000000000);

-- version 5

INSERT INTO endpoints (endpoint_id, organization_id, url, events, state, created_by, created_at, updated_at)
VALUES (x'019ca9450a007000800a000000000001', 'default', 'https://example.com/hook', '["run.completed"]', 'DISABLED', 'ada', 1772350000000000,
        1772350000000000);
INSERT INTO outbox (event, job_id, run_id, target, payload, attempts, next_attempt_at, last_error, created_at, endpoint_id, lane, last_status,
                    last_attempt_at, gave_up_at)
VALUES ('run.completed', x'019ca9450a0070008007000000000001', x'019ca9450a007000800b000000000001', 'https://example.com/hook', '{"n": 1}', 3,
        1772350000000001, 'no answer', 1772350000000002, x'019ca9450a007000800a000000000001', 'example.com default', 503, 1772350000000003,
        1772350000000004);

-- version 10

INSERT INTO adhoc_types (job_type, handler, created_by, created_at) VALUES ('shop.jobs:tidy', 'shop.jobs:tidy', 'ada', 1772350000000000);
-- version 14
INSERT INTO lanes (job_type) SELECT DISTINCT job_type FROM jobs;
UPDATE jobs SET lane = (SELECT lane FROM lanes WHERE lanes.job_type = jobs.job_type) WHERE finished_at IS NULL;
