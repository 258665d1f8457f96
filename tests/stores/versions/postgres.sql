-- What a small store held when it was left, by the version of its schema: a section is for its version and every later one.
-- It was left on 2026-03-01 at 11:30 UTC, one job still running. Ids end with the number of the job.

-- version 1

INSERT INTO templates (template_id, name, job_type, defaults, created_by, created_at, updated_at)
VALUES ('019ca9450a0070008003000000000001', 'greet', 'greet', '{"executor":"thread","max_retries":3}', 'system',
        1772350000000000, 1772350000000000);

INSERT INTO schedules (schedule_id, organization_id, template_id, name, kind, interval_us, starts_at, param_overrides, cursor_at, next_trigger_at,
                       created_by, created_at, updated_at)
VALUES ('019ca9450a0070008004000000000001', 'default', '019ca9450a0070008003000000000001', 'hourly', 'EVERY', 3600000000, 1772361000000000,
        '{"name":"schedule"}', 1772364600000000, 1772368200000000, 'ada', 1772361000000000, 1772361000000000);

INSERT INTO workers (worker_id, host, kind, job_types, started_at)
VALUES ('019ca9450a0070008005000000000001', 'elsewhere', 'worker', '["greet"]', 1772364000000000);

INSERT INTO job_groups (group_id, organization_id, name, mode, on_failure, created_by, created_at)
VALUES ('019ca9450a0070008006000000000001', 'default', 'pair', 'parallel', 'stop', 'ada', 1772364600000000);

-- 1 is completed, 2 has failed, 3 is its second attempt, 5 is running, 6 waits for 2, 7 and 8 are a group, and 9 is for later.
SET LOCAL session_replication_role = replica;
INSERT INTO job_facts (number, job_id, organization_id, template_id, job_type, origin, root_id, retry_of, attempt, failures, group_id, sequence_number,
                       owner, max_retries, max_crashes, timeout, executor, backoff, params, created_at)
SELECT n, ('019ca9450a007000800700000000000' || n)::uuid, 'default', '019ca9450a0070008003000000000001', 'greet',
       CASE WHEN n IN (7, 8) THEN 'group' ELSE 'api' END, ('019ca9450a007000800700000000000' || CASE n WHEN 3 THEN 2 ELSE n END)::uuid,
       CASE n WHEN 3 THEN '019ca9450a0070008007000000000002'::uuid END, CASE n WHEN 3 THEN 2 ELSE 1 END, CASE n WHEN 3 THEN 1 ELSE 0 END,
       CASE WHEN n IN (7, 8) THEN '019ca9450a0070008006000000000001'::uuid END, CASE WHEN n IN (7, 8) THEN n - 6 END,
       'ada', 3, 3, 300.0, 'thread', '{"base":60.0,"factor":2.0,"cap":86400.0,"jitter":0.0}',
       json_build_object('name', 'job ' || CASE n WHEN 3 THEN 2 ELSE n END)::text, 1772364600000000
  FROM generate_series(1, 9) AS n;
SELECT setval('job_numbers', 9);
INSERT INTO job_ends (number, job_type, status, created_at, finished_at, priority, position, run_at, queued_at, started_at, worker_id, run_id, ended_by,
                      error_type)
SELECT number, job_type, CASE number WHEN 1 THEN 'COMPLETED' ELSE 'FAILED' END, created_at, 1772364661000000, 50, number * 100, created_at, created_at,
       1772364660000000, '019ca9450a0070008005000000000001', ('019ca9450a007000800800000000000' || number)::uuid, 'system',
       CASE number WHEN 2 THEN 'transient' END
  FROM job_facts WHERE number IN (1, 2);
INSERT INTO run_notes (job_number, error, error_type, result) VALUES (1, NULL, NULL, '"job 1"'), (2, 'ConnectionError: no', 'transient', NULL);
INSERT INTO job_live (number, job_id, root_id, attempt, organization_id, job_type, created_at, status, blockers, priority, position, run_at,
                      queued_at, started_at, worker_id, run_id)
SELECT number, job_id, root_id, attempt, organization_id, job_type, created_at,
       CASE WHEN number IN (3, 6, 9) THEN 'PENDING' WHEN number = 5 THEN 'RUNNING' ELSE 'QUEUED' END, CASE number WHEN 6 THEN 1 ELSE 0 END, 50,
       CASE WHEN number IN (3, 6, 9) THEN 0 ELSE number * 100 END,
       CASE number WHEN 3 THEN 1772364721000000 WHEN 9 THEN 1772370000000000 ELSE created_at END,
       CASE WHEN number NOT IN (3, 6, 9) THEN created_at END, CASE number WHEN 5 THEN 1772364660000000 END,
       CASE number WHEN 5 THEN '019ca9450a0070008005000000000001'::uuid END, CASE number WHEN 5 THEN '019ca9450a0070008008000000000005'::uuid END
  FROM job_facts WHERE number NOT IN (1, 2);
INSERT INTO job_edges (child, parent_root, needs, on_failure, source) VALUES (6, '019ca9450a0070008007000000000002', 'success', 'wait', 'user');

INSERT INTO users (name, organization_id, role, created_by, created_at, updated_at)
VALUES ('ada', 'default', 'admin', 'system', 1772350000000000, 1772350000000000);
INSERT INTO stats_total (organization_id, job_type, status, count) VALUES ('default', 'greet', 'COMPLETED', 1), ('default', 'greet', 'FAILED', 1);

INSERT INTO calendars (organization_id, name, days, created_by, created_at, updated_at)
VALUES ('default', 'holidays', '["2026-12-25"]', 'ada', 1772350000000000, 1772350000000000);
INSERT INTO occurrences (schedule_id, due_at, last_due_at, fate, reason, recorded_at)
VALUES ('019ca9450a0070008004000000000001', 1772364600000000, 1772364600000000, 'MISSED', 'nobody was there', 1772364600000000);

-- version 2

INSERT INTO tokens (token_id, name, user_name, hash, permits, created_by, created_at)
VALUES ('019ca9450a0070008009000000000001', 'ci', 'ada', '\x0000000000000000000000000000000000000000000000000000000000000001', '["read"]', 'ada',
        1772350000000000);

-- version 3

INSERT INTO endpoints (endpoint_id, organization_id, url, events, state, created_by, created_at, updated_at)
VALUES ('019ca9450a007000800a000000000001', 'default', 'https://example.com/hook', '["run.completed"]', 'DISABLED', 'ada', 1772350000000000,
        1772350000000000);
INSERT INTO outbox (event, job_id, run_id, target, payload, attempts, next_attempt_at, last_error, created_at, endpoint_id, lane, last_status,
                    last_attempt_at, gave_up_at)
VALUES ('run.completed', '019ca9450a0070008007000000000001', '019ca9450a007000800b000000000001', 'https://example.com/hook', '{"n": 1}', 3,
        1772350000000001, 'no answer', 1772350000000002, '019ca9450a007000800a000000000001', 'example.com default', 503, 1772350000000003,
        1772350000000004);

-- version 8

INSERT INTO adhoc_types (job_type, handler, created_by, created_at) VALUES ('shop.jobs:tidy', 'shop.jobs:tidy', 'ada', 1772350000000000);
-- version 13
INSERT INTO lanes (job_type) SELECT DISTINCT job_type FROM job_facts;
UPDATE job_live AS l SET lane = n.lane FROM lanes AS n WHERE n.job_type = l.job_type;
UPDATE job_facts AS f SET lane = l.lane FROM job_live AS l WHERE l.number = f.number;
