-- Reports: due times that did not run, written with their outcome, for webhooks and live events.

-- name: add_reports
-- Each row: [event, schedule, organization, due, last due, count, outcome, phase, reason]. What was reported before is left out.
INSERT INTO schedule_reports (event, schedule_id, organization_id, due_at, last_due_at, count, outcome, phase, reason, created_at)
SELECT e.value ->> 0, unhex(e.value ->> 1), e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value ->> 5, e.value ->> 6, e.value ->> 7,
       e.value ->> 8, :now
  FROM json_each(:rows) AS e WHERE true
    ON CONFLICT (schedule_id, due_at, outcome, phase) DO NOTHING
RETURNING lower(hex(schedule_id)), due_at, outcome, phase;

-- name: mark_spans
-- Each row: [schedule, due and fate of the span that can still grow, or nulls].
UPDATE schedules SET open_due_at = e.value ->> 1, open_fate = e.value ->> 2
  FROM json_each(:rows) AS e WHERE schedules.schedule_id = unhex(e.value ->> 0);

-- name: open_span
SELECT open_due_at, open_fate FROM schedules WHERE schedule_id = unhex(:schedule_id);

-- name: reported_row
SELECT last_due_at, count, reason FROM occurrences WHERE schedule_id = unhex(:schedule_id) AND due_at = :due_at AND fate = :fate;

-- name: endpoints_of
-- Who may want to know of an organization's schedules.
SELECT lower(hex(h.endpoint_id)), h.url, h.events, h.job_types FROM endpoints AS h INDEXED BY endpoints_open
 WHERE h.organization_id = :organization_id AND h.root_id IS NULL AND {is_told};

-- name: add_report_mail
-- Each row: [event, schedule, key, url, payload, endpoint, organization, lane].
INSERT INTO outbox (event, schedule_id, message_key, target, payload, endpoint_id, organization_id, lane, next_attempt_at, created_at)
SELECT e.value ->> 0, unhex(e.value ->> 1), e.value ->> 2, e.value ->> 3, e.value ->> 4, unhex(e.value ->> 5), e.value ->> 6,
       e.value ->> 7, :now, :now
  FROM json_each(:rows) AS e;

-- name: report_columns
-- In the order of rota.model.reports.ScheduleReport, after the report's id.
r.report_id, r.event, r.phase, lower(hex(r.schedule_id)), s.name, r.organization_id, s.created_by, t.name, r.outcome, r.due_at, r.last_due_at,
r.count, r.reason, r.created_at

-- name: reports_after
SELECT {report_columns} FROM (SELECT * FROM schedule_reports WHERE report_id > :after ORDER BY report_id LIMIT :limit) AS r
 CROSS JOIN schedules AS s ON s.schedule_id = r.schedule_id CROSS JOIN templates AS t ON t.template_id = s.template_id ORDER BY r.report_id;

-- name: reports_since
SELECT {report_columns} FROM (SELECT * FROM schedule_reports INDEXED BY schedule_reports_time WHERE created_at >= :since
                               ORDER BY created_at LIMIT :limit) AS r
 CROSS JOIN schedules AS s ON s.schedule_id = r.schedule_id CROSS JOIN templates AS t ON t.template_id = s.template_id ORDER BY r.report_id;

-- name: forget_reports
-- But for the newest, so that ids go on ascending, and for those of due times that have no outcome yet: their id keeps a report from being repeated.
DELETE FROM schedule_reports WHERE report_id IN (
    SELECT r.report_id FROM schedule_reports AS r INDEXED BY schedule_reports_time
     WHERE r.created_at < :before AND r.report_id < (SELECT max(report_id) FROM schedule_reports)
       AND NOT EXISTS (SELECT 1 FROM schedules AS s WHERE s.schedule_id = r.schedule_id AND s.dropped_at IS NULL AND s.cursor_at < r.due_at)
     ORDER BY r.created_at LIMIT :limit);

-- name: write_pulse
UPDATE meta SET value = :now WHERE key = 'pulse_at';
