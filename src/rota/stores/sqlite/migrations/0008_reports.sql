-- Reports: due times that did not run, for webhooks and live events. Each is written in the transaction that writes the outcome.

CREATE TABLE schedule_reports (
    report_id       INTEGER PRIMARY KEY,
    event           TEXT NOT NULL,
    schedule_id     BLOB NOT NULL CHECK (length(schedule_id) = 16),
    organization_id TEXT NOT NULL,
    due_at          INTEGER NOT NULL,                            -- the first due time of the span
    last_due_at     INTEGER NOT NULL,
    count           INTEGER NOT NULL CHECK (count >= 1),
    outcome         TEXT NOT NULL,                               -- a fate of the ledger, or OVERDUE
    phase           TEXT NOT NULL CHECK (phase IN ('opened', 'closed')),
    reason          TEXT,
    created_at      INTEGER NOT NULL
) STRICT;

-- The id of a message: a span is reported once when it opens and once when it closes, whatever happens in between.
CREATE UNIQUE INDEX schedule_reports_key ON schedule_reports (schedule_id, due_at, outcome, phase);
CREATE INDEX schedule_reports_time ON schedule_reports (created_at);

-- The span that was reported as opened and can still grow.
ALTER TABLE schedules ADD COLUMN open_due_at INTEGER;
ALTER TABLE schedules ADD COLUMN open_fate TEXT;

-- A message is about a job or about a schedule. SQLite can't make a column nullable, so the table is rebuilt.
CREATE TABLE outbox_rebuilt (
    outbox_id       INTEGER PRIMARY KEY,
    event           TEXT NOT NULL,
    job_id          BLOB,
    run_id          BLOB,
    schedule_id     BLOB CHECK (length(schedule_id) = 16),
    message_key     TEXT,                                        -- the webhook-id; NULL: the run's id, or the job's
    target          TEXT NOT NULL,
    payload         TEXT NOT NULL CHECK (json_valid(payload)),
    attempts        INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER NOT NULL,
    last_error      TEXT,
    created_at      INTEGER NOT NULL,
    delivered_at    INTEGER,
    organization_id TEXT NOT NULL DEFAULT 'default',
    endpoint_id     BLOB,
    lane            TEXT NOT NULL DEFAULT '',                    -- host and organization: who waits behind whom
    last_status     INTEGER,
    last_attempt_at INTEGER,
    gave_up_at      INTEGER,
    CHECK ((job_id IS NULL) = (schedule_id IS NOT NULL) AND (schedule_id IS NULL) = (message_key IS NULL))
) STRICT;

INSERT INTO outbox_rebuilt (outbox_id, event, job_id, run_id, target, payload, attempts, next_attempt_at, last_error, created_at, delivered_at,
                            organization_id, endpoint_id, lane, last_status, last_attempt_at, gave_up_at)
SELECT outbox_id, event, job_id, run_id, target, payload, attempts, next_attempt_at, last_error, created_at, delivered_at,
       organization_id, endpoint_id, lane, last_status, last_attempt_at, gave_up_at FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_rebuilt RENAME TO outbox;

CREATE INDEX outbox_job ON outbox (job_id);
CREATE INDEX outbox_due ON outbox (next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;
CREATE INDEX outbox_lanes ON outbox (lane, next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;
CREATE INDEX outbox_over ON outbox (coalesce(delivered_at, gave_up_at)) WHERE coalesce(delivered_at, gave_up_at) IS NOT NULL;
CREATE INDEX outbox_endpoint ON outbox (endpoint_id, outbox_id);
CREATE INDEX outbox_organization ON outbox (organization_id, outbox_id);

-- When a worker last made sure that the store takes writes: see the setting pulse_url.
INSERT INTO meta (key, value) VALUES ('pulse_at', 0);
