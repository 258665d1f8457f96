-- Reports: due times that did not run, written with their outcome, for webhooks and live events.
-- Why joins are `= ANY (ARRAY[...])`, and some conditions expressions: see edges.sql.

-- name: add_reports
-- Each row: [event, schedule, organization, due, last due, count, outcome, phase, reason]. What was reported before is left out.
INSERT INTO schedule_reports (event, schedule_id, organization_id, due_at, last_due_at, count, outcome, phase, reason, created_at)
SELECT e.value ->> 0, (e.value ->> 1)::uuid, e.value ->> 2, (e.value ->> 3)::bigint, (e.value ->> 4)::bigint, (e.value ->> 5)::bigint,
       e.value ->> 6, e.value ->> 7, e.value ->> 8, :now
  FROM json_array_elements(:rows::json) AS e (value)
    ON CONFLICT (schedule_id, due_at, outcome, phase) DO NOTHING
RETURNING hex(schedule_id), due_at, outcome, phase;

-- name: mark_spans
-- Each row: [schedule, due and fate of the span that can still grow, or nulls].
UPDATE schedules SET open_due_at = e.due_at, open_fate = e.fate
  FROM (SELECT (value ->> 0)::uuid AS schedule_id, (value ->> 1)::bigint AS due_at, value ->> 2 AS fate
          FROM json_array_elements(:rows::json) AS r (value)) AS e
 WHERE schedules.schedule_id = ANY (ARRAY[e.schedule_id]);

-- name: open_span
SELECT open_due_at, open_fate FROM schedules WHERE schedule_id = :schedule_id;

-- name: reported_row
SELECT last_due_at, count, reason FROM occurrences WHERE schedule_id = :schedule_id AND due_at = :due_at AND fate = :fate;

-- name: endpoints_of
-- Who may want to know of an organization's schedules.
SELECT hex(h.endpoint_id), h.url, h.events, h.job_types FROM endpoints AS h
 WHERE h.organization_id = :organization_id AND h.root_id IS NULL AND {is_told};

-- name: add_report_mail
-- Each row: [event, schedule, key, url, payload, endpoint, organization, lane].
INSERT INTO outbox (event, schedule_id, message_key, target, payload, endpoint_id, organization_id, lane, next_attempt_at, created_at)
SELECT e.value ->> 0, (e.value ->> 1)::uuid, e.value ->> 2, e.value ->> 3, e.value ->> 4, (e.value ->> 5)::uuid, e.value ->> 6,
       e.value ->> 7, :now, :now
  FROM json_array_elements(:rows::json) AS e (value);

-- name: report_columns
-- In the order of rota.model.reports.ScheduleReport, after the report's id.
r.report_id, r.event, r.phase, hex(r.schedule_id), s.name, r.organization_id, s.created_by, t.name, r.outcome, r.due_at, r.last_due_at,
r.count, r.reason, r.created_at

-- name: reports_after
SELECT {report_columns} FROM (SELECT * FROM schedule_reports WHERE report_id > :after ORDER BY report_id LIMIT :limit) AS r
  JOIN schedules AS s ON s.schedule_id = ANY (ARRAY[r.schedule_id]) JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id])
 ORDER BY r.report_id;

-- name: reports_since
SELECT {report_columns} FROM (SELECT * FROM schedule_reports WHERE created_at >= :since ORDER BY created_at LIMIT :limit) AS r
  JOIN schedules AS s ON s.schedule_id = ANY (ARRAY[r.schedule_id]) JOIN templates AS t ON t.template_id = ANY (ARRAY[s.template_id])
 ORDER BY r.report_id;

-- name: forget_reports
-- But for the newest, so that ids go on ascending, and for those of due times that have no outcome yet: their id keeps a report from being repeated.
DELETE FROM schedule_reports WHERE report_id = ANY (ARRAY(
    SELECT r.report_id FROM schedule_reports AS r
     WHERE r.created_at < :before AND r.report_id + 0 < (SELECT n.report_id FROM schedule_reports AS n ORDER BY n.report_id DESC LIMIT 1)
       AND (SELECT s.row_id FROM schedules AS s WHERE s.schedule_id = r.schedule_id AND s.dropped_at + 0 IS NULL AND s.cursor_at < r.due_at) IS NULL
     ORDER BY r.created_at LIMIT :limit));

-- name: write_pulse
UPDATE meta SET value = :now WHERE key = 'pulse_at';
