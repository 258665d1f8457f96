-- Schema 25, generated from the migrations by `make schema`. Do not edit it: add a migration.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE organizations (
    organization_id TEXT PRIMARY KEY,
    display_name    TEXT NOT NULL,
    state           TEXT NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'SUSPENDED', 'REMOVED')),
    max_running     INTEGER CHECK (max_running >= 0),
    max_queued      INTEGER CHECK (max_queued >= 0),
    max_priority    INTEGER CHECK (max_priority BETWEEN 0 AND 100),
    created_at      INTEGER NOT NULL
, signs INTEGER NOT NULL DEFAULT 0 CHECK (signs IN (0, 1))) STRICT;

CREATE TABLE templates (
    template_id         BLOB PRIMARY KEY CHECK (length(template_id) = 16),
    organization_id     TEXT REFERENCES organizations,           -- NULL: shared by all
    name                TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    display_name        TEXT,
    description         TEXT,
    kind                TEXT NOT NULL DEFAULT 'python' CHECK (kind IN ('python', 'sql', 'procedure', 'external')),
    job_type            TEXT NOT NULL,
    body                TEXT,
    default_params      TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(default_params)),
    defaults            TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(defaults)),
    state               TEXT NOT NULL DEFAULT 'ENABLED' CHECK (state IN ('ENABLED', 'DISABLED', 'ARCHIVED')),
    requires_permission TEXT,
    max_running         INTEGER CHECK (max_running >= 0),
    rate_limit          INTEGER CHECK (rate_limit >= 0),
    rate_window         INTEGER CHECK (rate_window > 0),
    submit_limit        INTEGER CHECK (submit_limit >= 0),
    submit_window       INTEGER CHECK (submit_window > 0),
    queue_ttl           INTEGER CHECK (queue_ttl > 0),
    payload_max         INTEGER CHECK (payload_max > 0),
    dedup_window        INTEGER CHECK (dedup_window >= 0),
    job_class           TEXT,
    partition_strategy  TEXT,
    partition_shard     TEXT,
    partition_expression TEXT,
    run_as              TEXT,
    version             INTEGER NOT NULL DEFAULT 1,
    created_by          TEXT NOT NULL,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    dropped_at          INTEGER
, overrides TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(overrides)), concurrency INTEGER CHECK (concurrency >= 1)) STRICT;

CREATE UNIQUE INDEX templates_name ON templates (coalesce(organization_id, ''), name) WHERE dropped_at IS NULL;

CREATE TABLE schedules (
    schedule_id        BLOB PRIMARY KEY CHECK (length(schedule_id) = 16),
    organization_id    TEXT NOT NULL REFERENCES organizations,
    template_id        BLOB NOT NULL REFERENCES templates,
    name               TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    description        TEXT,
    kind               TEXT NOT NULL CHECK (kind IN ('CRON', 'AT', 'EVERY')),
    cron_expression    TEXT,
    at                 INTEGER,
    interval_us        INTEGER CHECK (interval_us > 0),
    timezone           TEXT NOT NULL DEFAULT 'UTC',
    starts_at          INTEGER,
    ends_at            INTEGER,
    state              TEXT NOT NULL DEFAULT 'ENABLED' CHECK (state IN ('ENABLED', 'DISABLED', 'PAUSED')),
    param_overrides    TEXT CHECK (json_valid(param_overrides)),
    priority           INTEGER CHECK (priority BETWEEN 0 AND 100),
    catch_up           TEXT NOT NULL DEFAULT 'last' CHECK (catch_up IN ('none', 'last', 'all')),
    catch_up_lateness  INTEGER,
    catch_up_count     INTEGER,
    overlap            TEXT NOT NULL DEFAULT 'skip' CHECK (overlap IN ('allow', 'queue', 'skip')),
    jitter             INTEGER NOT NULL DEFAULT 0 CHECK (jitter >= 0),
    calendar           TEXT,
    on_completion      TEXT NOT NULL DEFAULT 'PRESERVE' CHECK (on_completion IN ('PRESERVE', 'DROP')),
    depends_on         TEXT CHECK (json_valid(depends_on)),
    run_as             TEXT,
    cursor_at          INTEGER NOT NULL,
    last_triggered_at  INTEGER,
    next_trigger_at    INTEGER,
    version            INTEGER NOT NULL DEFAULT 1,
    created_by         TEXT NOT NULL,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    dropped_at         INTEGER
, declared TEXT CHECK (json_valid(declared)), ahead_at INTEGER, told_from INTEGER, told_until INTEGER, open_due_at INTEGER, open_fate TEXT, purging INTEGER) STRICT;

CREATE UNIQUE INDEX schedules_name ON schedules (organization_id, name) WHERE dropped_at IS NULL;

CREATE TABLE occurrences (
    schedule_id  BLOB NOT NULL REFERENCES schedules,
    due_at       INTEGER NOT NULL,                               -- of a span: the first due time
    last_due_at  INTEGER NOT NULL,
    count        INTEGER NOT NULL DEFAULT 1 CHECK (count >= 1),
    fate         TEXT NOT NULL CHECK (fate IN ('FIRED', 'COALESCED', 'MISSED', 'SKIPPED_OVERLAP', 'SKIPPED_PAUSED', 'SKIPPED_CALENDAR',
                                               'SKIPPED_DST_GAP', 'SKIPPED_DEPENDENCY', 'REFUSED')),
    reason       TEXT,
    job_id       BLOB,
    recorded_at  INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, due_at, fate)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_groups (
    group_id        BLOB PRIMARY KEY CHECK (length(group_id) = 16),
    organization_id TEXT NOT NULL,
    name            TEXT,
    mode            TEXT NOT NULL CHECK (mode IN ('sequential', 'parallel')),
    on_failure      TEXT NOT NULL CHECK (on_failure IN ('stop', 'continue', 'skip')),
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL
, passed INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE TABLE workers (
    worker_id   BLOB PRIMARY KEY CHECK (length(worker_id) = 16),
    host        TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('worker', 'client')),
    beat        INTEGER NOT NULL DEFAULT 0,
    job_types   TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(job_types)),
    started_at  INTEGER NOT NULL,
    stopping_at INTEGER,
    ended_at    INTEGER
, slots INTEGER CHECK (slots > 0), queues TEXT CHECK (json_valid(queues)), digests TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(digests)), pid INTEGER, rota_version TEXT, memory INTEGER) STRICT;

CREATE INDEX workers_live ON workers (worker_id) WHERE ended_at IS NULL;

CREATE TABLE jobs (
    -- What triggers ask for stands among the first 32 columns: of a later one SQLite's mask knows only "all of them", and every start and
    -- end would read the whole row for it. What may be large stands last: nothing else is then on an overflow page.
    number              INTEGER PRIMARY KEY,                     -- never given twice to a first attempt: see jobs_numbered_once
    job_id              BLOB NOT NULL UNIQUE CHECK (length(job_id) = 16),
    organization_id     TEXT NOT NULL,
    template_id         BLOB,
    job_type            TEXT NOT NULL CHECK (length(job_type) BETWEEN 1 AND 255),
    origin              TEXT NOT NULL DEFAULT 'api' CHECK (origin = 'api' OR origin IN ('direct', 'schedule', 'group')),
    root_id             BLOB NOT NULL,
    retry_of            BLOB REFERENCES jobs (job_id),
    attempt             INTEGER NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    failures            INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    crashes             INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    snoozes             INTEGER NOT NULL DEFAULT 0 CHECK (snoozes >= 0),
    status              TEXT NOT NULL,
    held                TEXT,
    blockers            INTEGER NOT NULL DEFAULT 0 CHECK (blockers >= 0),
    priority            INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 100),
    position            INTEGER NOT NULL DEFAULT 0,
    run_at              INTEGER NOT NULL,
    expires_at          INTEGER,
    created_at          INTEGER NOT NULL,
    queued_at           INTEGER,
    started_at          INTEGER,
    finished_at         INTEGER,
    worker_id           BLOB,
    cancel_requested_at INTEGER,
    unique_key          TEXT CHECK (length(unique_key) BETWEEN 1 AND 1024),
    job_hash            BLOB,
    schedule_id         BLOB,
    due_at              INTEGER,
    group_id            BLOB REFERENCES job_groups,
    sequence_number     INTEGER,
    owner               TEXT NOT NULL,
    run_as              TEXT,
    max_retries         INTEGER NOT NULL CHECK (max_retries >= 0),
    max_crashes         INTEGER NOT NULL CHECK (max_crashes >= 1),
    timeout             REAL NOT NULL CHECK (timeout >= 0),
    executor            TEXT NOT NULL,
    target_node         TEXT,
    shard               TEXT,
    cancel_requested_by TEXT,
    ended_by            TEXT,
    error_type          TEXT CHECK (error_type IS NULL
                                    OR error_type IN ('transient', 'permanent', 'timeout', 'crash', 'interrupted', 'dependency')),
    reason              TEXT,
    backoff             TEXT NOT NULL,
    meta                TEXT,
    params              TEXT NOT NULL DEFAULT '{}', lane INTEGER, tags TEXT CHECK (json_valid(tags)),
    CHECK (   (status = 'QUEUED' AND finished_at IS NULL AND started_at IS NULL AND queued_at IS NOT NULL AND blockers = 0)
           OR (status = 'RUNNING' AND finished_at IS NULL AND started_at IS NOT NULL AND worker_id IS NOT NULL)
           OR (status = 'COMPLETED' AND finished_at IS NOT NULL)
           OR (status = 'PENDING' AND finished_at IS NULL AND started_at IS NULL AND held IS NULL)
           OR (status IN ('FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED') AND finished_at IS NOT NULL)),
    CHECK ((retry_of IS NULL) = (attempt = 1)),
    CHECK ((root_id = job_id) = (attempt = 1)),
    CHECK ((group_id IS NULL) = (sequence_number IS NULL))
) STRICT;

CREATE INDEX jobs_due ON jobs (priority, run_at) WHERE status = 'PENDING' AND blockers = 0;

CREATE INDEX jobs_running ON jobs (worker_id, job_type, organization_id) WHERE status = 'RUNNING';

CREATE INDEX jobs_cancelling ON jobs (worker_id) WHERE status = 'RUNNING' AND cancel_requested_at IS NOT NULL;

CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE expires_at IS NOT NULL AND started_at IS NULL AND finished_at IS NULL;

CREATE INDEX jobs_failed ON jobs (finished_at) WHERE status IN ('FAILED', 'TIMED_OUT');

CREATE INDEX jobs_group ON jobs (group_id, sequence_number) WHERE group_id IS NOT NULL;

CREATE UNIQUE INDEX jobs_retry ON jobs (retry_of) WHERE retry_of IS NOT NULL;

CREATE UNIQUE INDEX jobs_live ON jobs (root_id) WHERE finished_at IS NULL AND attempt > 1;

CREATE UNIQUE INDEX jobs_unique ON jobs (organization_id, job_type, unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;

CREATE TABLE job_runs (
    job_number       INTEGER PRIMARY KEY REFERENCES jobs (number) ON DELETE CASCADE,
    run_id           BLOB NOT NULL UNIQUE CHECK (length(run_id) = 16),
    template_id      BLOB,
    status           TEXT CHECK (status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')),
    started_at       INTEGER NOT NULL,
    finished_at      INTEGER,
    exit_code        INTEGER,
    error            TEXT,
    error_type       TEXT,
    error_code       TEXT,
    traceback        TEXT,
    result           TEXT,
    result_message   TEXT,
    rows_affected    INTEGER,
    output_reference TEXT,
    artifacts        TEXT NOT NULL DEFAULT '[]',
    log_path         TEXT,
    progress         INTEGER CHECK (progress BETWEEN 0 AND 100),
    progress_message TEXT,
    checkpoint       TEXT,
    CHECK ((status IS NULL) = (finished_at IS NULL))
) STRICT;

CREATE TABLE direct_reservations (
    reservation_id BLOB PRIMARY KEY CHECK (length(reservation_id) = 16),
    reserved_at    INTEGER NOT NULL,
    reserved_by    TEXT NOT NULL,
    status         TEXT NOT NULL CHECK (status IN ('ACTIVE', 'RELEASED', 'EXPIRED')),
    expires_at     INTEGER NOT NULL,
    job_id         BLOB NOT NULL,
    job_number     INTEGER NOT NULL,
    worker_id      BLOB NOT NULL,                                -- whose lock shows that the caller lives
    released_at    INTEGER
) STRICT;

CREATE UNIQUE INDEX reservations_active ON direct_reservations (status) WHERE status = 'ACTIVE';

CREATE TABLE dedup (
    organization_id TEXT NOT NULL,
    template_id     BLOB NOT NULL,
    hash            BLOB NOT NULL,
    job_id          BLOB NOT NULL,
    expires_at      INTEGER NOT NULL,
    PRIMARY KEY (organization_id, template_id, hash)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    audit_id        INTEGER PRIMARY KEY,
    at              INTEGER NOT NULL,
    actor           TEXT NOT NULL,
    organization_id TEXT,
    action          TEXT NOT NULL,
    subject         TEXT NOT NULL,
    subject_id      TEXT NOT NULL,
    before          TEXT,
    after           TEXT
, job_uuid BLOB, job_run_uuid BLOB, outcome TEXT NOT NULL DEFAULT 'ok' CHECK (outcome IN ('ok', 'failed', 'denied'))) STRICT;

CREATE INDEX audit_subject ON audit (subject, subject_id);

CREATE TABLE queue_clock (
    priority INTEGER PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT;

CREATE TRIGGER jobs_params_frozen BEFORE UPDATE OF params ON jobs
WHEN NEW.params <> OLD.params AND OLD.status NOT IN ('PENDING', 'QUEUED')
BEGIN
    SELECT RAISE(ABORT, 'Cannot modify params after dispatch');
END;

CREATE TRIGGER jobs_identity BEFORE UPDATE OF number, job_id, organization_id, template_id, job_type, origin, root_id, retry_of,
                                              attempt, schedule_id, due_at, created_at ON jobs
BEGIN
    SELECT RAISE(ABORT, 'identity and origin of a job cannot change');
END;

CREATE TRIGGER jobs_grouped_once BEFORE UPDATE OF group_id, sequence_number ON jobs
WHEN OLD.group_id IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a job joins one group, once');
END;

CREATE TRIGGER jobs_kept BEFORE DELETE ON jobs
WHEN OLD.finished_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'a job that has not ended cannot be deleted');
END;

CREATE TRIGGER jobs_numbered_once BEFORE DELETE ON jobs
WHEN OLD.number = (SELECT max(number) FROM jobs)
BEGIN
    UPDATE meta SET value = max(value, OLD.number) WHERE key = 'number_floor';
END;

CREATE TRIGGER runs_identity BEFORE UPDATE OF job_number, run_id, template_id, started_at ON job_runs
BEGIN
    SELECT RAISE(ABORT, 'identity and start of a run cannot change');
END;

CREATE TRIGGER runs_log_once BEFORE UPDATE OF log_path ON job_runs
WHEN OLD.log_path IS NOT NULL AND NEW.log_path IS NOT OLD.log_path
BEGIN
    SELECT RAISE(ABORT, 'log_path is written once');
END;

CREATE TRIGGER runs_artifacts_grow BEFORE UPDATE OF artifacts ON job_runs
WHEN substr(NEW.artifacts, 1, length(OLD.artifacts) - 1) <> substr(OLD.artifacts, 1, length(OLD.artifacts) - 1)
BEGIN
    SELECT RAISE(ABORT, 'artifacts only grow');
END;

CREATE TRIGGER runs_kept BEFORE DELETE ON job_runs
WHEN OLD.status IS NULL
BEGIN
    SELECT RAISE(ABORT, 'a run that has not ended cannot be deleted');
END;

CREATE TABLE users (
    name            TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 255),
    organization_id TEXT NOT NULL REFERENCES organizations,
    role            TEXT NOT NULL CHECK (role IN ('system_manager', 'admin', 'user')),
    permissions     TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(permissions)),
    state           TEXT NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'REMOVED')),
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
, user_id BLOB CHECK (length(user_id) = 16)) STRICT;

CREATE INDEX jobs_tail ON jobs (priority, organization_id, position) WHERE status = 'QUEUED';

CREATE INDEX jobs_held ON jobs (held, job_type, priority DESC, position, created_at, job_id) WHERE status = 'QUEUED' AND held IS NOT NULL;

CREATE TABLE rate_log (
    key   TEXT NOT NULL,
    at    INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 1),
    PRIMARY KEY (key, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX dedup_expired ON dedup (expires_at);

CREATE TABLE ended_roots (
    root_id BLOB PRIMARY KEY CHECK (length(root_id) = 16),
    status  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE stats_hourly (
    hour            INTEGER NOT NULL,
    organization_id TEXT NOT NULL,
    job_type        TEXT NOT NULL,
    status          TEXT NOT NULL,
    bucket          INTEGER NOT NULL,
    count           INTEGER NOT NULL,
    total_us        INTEGER NOT NULL,
    PRIMARY KEY (hour, organization_id, job_type, status, bucket)
) STRICT, WITHOUT ROWID;

CREATE TABLE stats_total (
    organization_id TEXT NOT NULL,
    job_type        TEXT NOT NULL,
    status          TEXT NOT NULL,
    count           INTEGER NOT NULL,
    PRIMARY KEY (organization_id, job_type, status)
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_org ON jobs (organization_id) WHERE organization_id <> 'default';

CREATE INDEX jobs_blocked ON jobs (organization_id, blockers) WHERE status = 'PENDING' AND blockers > 0;

CREATE INDEX jobs_finished ON jobs (job_type, finished_at, created_at) WHERE finished_at IS NOT NULL;

CREATE TRIGGER jobs_owned BEFORE UPDATE OF owner ON jobs
BEGIN
    SELECT RAISE(ABORT, 'the owner of a job cannot change');
END;

CREATE VIEW job_log (job_id, root_id, attempt, step, at, from_status, to_status, actor, message) AS
SELECT job_id, root_id, attempt, 1, created_at, NULL, iif(queued_at IS created_at, 'QUEUED', 'PENDING'),
       CASE WHEN attempt = 1 THEN owner
            ELSE coalesce((SELECT a.actor FROM audit AS a WHERE a.subject = 'job' AND a.subject_id = lower(hex(jobs.retry_of)) AND a.action = 'job.retry'),
                          'system') END,
       NULL
  FROM jobs
UNION ALL
SELECT job_id, root_id, attempt, 2, queued_at, 'PENDING', 'QUEUED', 'system', NULL
  FROM jobs WHERE queued_at IS NOT NULL AND queued_at <> created_at
UNION ALL
SELECT job_id, root_id, attempt, 3, started_at, 'QUEUED', 'RUNNING', 'system', 'worker ' || lower(hex(worker_id))
  FROM jobs WHERE started_at IS NOT NULL
UNION ALL
SELECT job_id, root_id, attempt, 4, cancel_requested_at, 'RUNNING', 'RUNNING', cancel_requested_by, 'asked to stop'
  FROM jobs WHERE cancel_requested_at IS NOT NULL AND started_at IS NOT NULL
UNION ALL
SELECT j.job_id, j.root_id, j.attempt, 5, j.finished_at,
       CASE WHEN j.started_at IS NOT NULL THEN 'RUNNING' WHEN j.queued_at IS NOT NULL THEN 'QUEUED' ELSE 'PENDING' END,
       j.status, j.ended_by, coalesce(j.reason, (SELECT r.error FROM job_runs AS r WHERE r.job_number = j.number))
  FROM jobs AS j WHERE j.finished_at IS NOT NULL;

CREATE TABLE calendars (
    organization_id TEXT NOT NULL REFERENCES organizations,
    name            TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    description     TEXT,
    days            TEXT NOT NULL CHECK (json_valid(days)),
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    PRIMARY KEY (organization_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_due ON schedules (depends_on IS NOT NULL, next_trigger_at) WHERE state <> 'DISABLED' AND dropped_at IS NULL;

CREATE TABLE occurrences_told (
    schedule_id  BLOB NOT NULL REFERENCES schedules,
    due_at       INTEGER NOT NULL,
    last_due_at  INTEGER NOT NULL,
    count        INTEGER NOT NULL,
    fate         TEXT NOT NULL,
    reason       TEXT,
    recorded_at  INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, due_at, fate)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_called ON schedules (name) WHERE dropped_at IS NULL;

CREATE INDEX schedules_template ON schedules (template_id) WHERE dropped_at IS NULL;

CREATE INDEX schedules_dropped ON schedules (dropped_at) WHERE dropped_at IS NOT NULL;

CREATE UNIQUE INDEX jobs_occurrence ON jobs (schedule_id, due_at, attempt) WHERE schedule_id IS NOT NULL;

CREATE INDEX jobs_schedule_live ON jobs (schedule_id) WHERE schedule_id IS NOT NULL AND finished_at IS NULL;

CREATE INDEX occurrences_spans ON occurrences (last_due_at) WHERE last_due_at > due_at;

CREATE INDEX occurrences_time ON occurrences (due_at, schedule_id, fate);

CREATE TABLE "job_edges" (
    child       INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
    parent_root BLOB NOT NULL,
    needs       TEXT NOT NULL CHECK (needs IN ('success', 'end')),
    on_failure  TEXT NOT NULL CHECK (on_failure IN ('wait', 'skip', 'cancel')),
    source      TEXT NOT NULL CHECK (source IN ('user', 'group', 'overlap', 'schedule')),
    resolved_at INTEGER,
    until       INTEGER, place INTEGER,
    PRIMARY KEY (child, parent_root)
) STRICT, WITHOUT ROWID;

CREATE INDEX edges_open ON job_edges (parent_root, needs, on_failure) WHERE resolved_at IS NULL;

CREATE INDEX edges_of_parent ON job_edges (parent_root, child);

CREATE INDEX edges_until ON job_edges (until) WHERE resolved_at IS NULL AND until IS NOT NULL;

CREATE TABLE tokens (
    token_id     BLOB PRIMARY KEY CHECK (length(token_id) = 16),
    name         TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    user_name    TEXT REFERENCES users,                                       -- NULL: the operator of this store
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    permits      TEXT NOT NULL CHECK (json_valid(permits)),
    created_by   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER CHECK (expires_at > created_at),
    revoked_at   INTEGER,
    last_used_at INTEGER
) STRICT;

CREATE TABLE sessions (
    hash       BLOB PRIMARY KEY CHECK (length(hash) = 32),
    token_id   BLOB NOT NULL REFERENCES tokens,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL CHECK (expires_at > created_at),
    ended_at   INTEGER
) STRICT;

CREATE INDEX sessions_token ON sessions (token_id);

CREATE INDEX sessions_expired ON sessions (expires_at);

CREATE INDEX occurrences_unfired ON occurrences (last_due_at) WHERE fate <> 'FIRED';

CREATE TABLE endpoints (
    endpoint_id     BLOB PRIMARY KEY CHECK (length(endpoint_id) = 16),
    organization_id TEXT NOT NULL,
    root_id         BLOB CHECK (length(root_id) = 16),           -- the one chain it is for; NULL: all of the organization's
    url             TEXT NOT NULL CHECK (length(url) BETWEEN 1 AND 2048),
    description     TEXT,
    events          TEXT NOT NULL CHECK (json_valid(events)),
    job_types       TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(job_types)),   -- empty: all
    with_result     INTEGER NOT NULL DEFAULT 0 CHECK (with_result IN (0, 1)),
    state           TEXT NOT NULL DEFAULT 'ENABLED' CHECK (state IN ('ENABLED', 'DISABLED')),
    reason          TEXT,                                        -- why it is disabled
    failing_since   INTEGER,
    last_status     INTEGER,
    last_error      TEXT,
    version         INTEGER NOT NULL DEFAULT 1,
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    dropped_at      INTEGER
) STRICT;

CREATE INDEX endpoints_open ON endpoints (organization_id, root_id) WHERE state = 'ENABLED' AND dropped_at IS NULL;

CREATE INDEX endpoints_root ON endpoints (root_id) WHERE root_id IS NOT NULL;

CREATE TABLE hook_secrets (
    owner          TEXT PRIMARY KEY,                             -- an endpoint's id, or `organization:` and a name
    secret         TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    previous       TEXT,                                         -- signs too, until then
    previous_until INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_unhappy ON jobs (status)
 WHERE (status = 'FAILED' OR status = 'TIMED_OUT' OR status = 'DEAD_LETTER' OR status = 'SKIPPED' OR status = 'CANCELLED');

CREATE TRIGGER jobs_born BEFORE INSERT ON jobs
WHEN NEW.status NOT IN ('PENDING', 'QUEUED')
  OR (NEW.retry_of IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM jobs WHERE job_id = NEW.retry_of AND finished_at IS NOT NULL
                                           AND root_id = NEW.root_id AND attempt = NEW.attempt - 1))
BEGIN
    SELECT CASE WHEN NEW.status NOT IN ('PENDING', 'QUEUED') THEN RAISE(ABORT, 'illegal move: a job is born PENDING or QUEUED')
                ELSE RAISE(ABORT, 'a successor follows the ended tail of its own chain') END;
END;

CREATE TRIGGER jobs_move AFTER UPDATE OF status ON jobs
WHEN NOT (OLD.status = 'RUNNING' AND NEW.status = 'COMPLETED') AND NOT (OLD.status = 'QUEUED' AND NEW.status = 'RUNNING')
 AND NEW.status <> OLD.status AND OLD.finished_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'illegal move of a job: see the table of legal moves')
     WHERE NOT CASE OLD.status
                   WHEN 'RUNNING' THEN NEW.status IN ('COMPLETED', 'FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED')
                   WHEN 'QUEUED' THEN NEW.status IN ('RUNNING', 'SKIPPED', 'CANCELLED')
                   ELSE NEW.status IN ('QUEUED', 'SKIPPED', 'CANCELLED')
               END;
END;

CREATE TRIGGER jobs_run_first AFTER UPDATE OF status ON jobs
WHEN NEW.status = 'RUNNING' AND NOT EXISTS (SELECT 1 FROM job_runs WHERE job_number = NEW.number)
BEGIN
    SELECT RAISE(ABORT, 'a job cannot be RUNNING without a run');
END;

CREATE TRIGGER jobs_started_once AFTER UPDATE OF started_at, worker_id ON jobs
WHEN OLD.started_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a job starts once');
END;

CREATE TRIGGER runs_ended AFTER UPDATE ON job_runs
WHEN OLD.status IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a run that has ended cannot change');
END;

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

CREATE UNIQUE INDEX schedule_reports_key ON schedule_reports (schedule_id, due_at, outcome, phase);

CREATE INDEX schedule_reports_time ON schedule_reports (created_at);

CREATE TABLE "outbox" (
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

CREATE INDEX outbox_job ON outbox (job_id);

CREATE INDEX outbox_due ON outbox (next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;

CREATE INDEX outbox_lanes ON outbox (lane, next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;

CREATE INDEX outbox_over ON outbox (coalesce(delivered_at, gave_up_at)) WHERE coalesce(delivered_at, gave_up_at) IS NOT NULL;

CREATE INDEX outbox_endpoint ON outbox (endpoint_id, outbox_id);

CREATE INDEX outbox_organization ON outbox (organization_id, outbox_id);

CREATE TRIGGER jobs_place_frozen BEFORE UPDATE OF priority, position ON jobs
WHEN OLD.status = 'RUNNING' AND (NEW.priority <> OLD.priority OR NEW.position <> OLD.position)
BEGIN
    SELECT RAISE(ABORT, 'Cannot modify priority or position after dispatch');
END;

CREATE TRIGGER jobs_queued_once BEFORE UPDATE OF queued_at ON jobs
WHEN OLD.queued_at IS NOT NULL AND NEW.queued_at IS NOT OLD.queued_at AND OLD.finished_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'a job is queued once');
END;

CREATE TRIGGER runs_outcome_with_end BEFORE UPDATE OF exit_code, error ON job_runs
WHEN NEW.status IS NULL AND (NEW.exit_code IS NOT OLD.exit_code OR NEW.error IS NOT OLD.error)
BEGIN
    SELECT RAISE(ABORT, 'exit_code and error are written with the end of a run');
END;

CREATE TRIGGER schedules_identity BEFORE UPDATE OF schedule_id, created_at ON schedules
WHEN NEW.schedule_id <> OLD.schedule_id OR NEW.created_at <> OLD.created_at
BEGIN
    SELECT RAISE(ABORT, 'identity and creation of a schedule cannot change');
END;

CREATE TRIGGER reservations_ended BEFORE UPDATE OF status ON direct_reservations
WHEN OLD.status <> 'ACTIVE' AND NEW.status <> OLD.status
BEGIN
    SELECT RAISE(ABORT, 'a reservation that has ended cannot change');
END;

CREATE TABLE adhoc_types (
    job_type   TEXT NOT NULL PRIMARY KEY,
    handler    TEXT NOT NULL,                                    -- module:function
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_put_off ON jobs (position) WHERE status = 'PENDING' AND position < 0;

CREATE TRIGGER jobs_ended AFTER UPDATE ON jobs
WHEN OLD.finished_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a job that has ended cannot change');
END;

CREATE TABLE lanes (
    lane     INTEGER PRIMARY KEY,
    job_type TEXT NOT NULL,
    queue    TEXT NOT NULL DEFAULT 'default' CHECK (length(queue) BETWEEN 1 AND 255),
    digest   TEXT NOT NULL DEFAULT '',
    UNIQUE (job_type, queue, digest)
) STRICT;

CREATE TABLE param_digests (
    job_type    TEXT NOT NULL,
    digest      TEXT NOT NULL,
    names       TEXT NOT NULL CHECK (json_valid(names)),
    schema      TEXT CHECK (json_valid(schema)),
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (job_type, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_ready ON jobs (lane, priority DESC, position, created_at, job_id) WHERE status = 'QUEUED' AND held IS NULL;

CREATE TABLE "pauses" (
    kind      TEXT NOT NULL CHECK (kind IN ('all', 'organization', 'template', 'queue')),
    name      TEXT NOT NULL,
    paused_at INTEGER NOT NULL,
    paused_by TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER lanes_known AFTER INSERT ON lanes
BEGIN
    UPDATE meta SET value = value + 1099511627776 WHERE key = 'definitions_version';
END;

CREATE INDEX jobs_stray ON jobs (job_type) WHERE lane IS NULL AND finished_at IS NULL;

CREATE TABLE stats_minutely (
    minute          INTEGER NOT NULL,
    organization_id TEXT NOT NULL,
    job_type        TEXT NOT NULL,
    status          TEXT NOT NULL,
    bucket          INTEGER NOT NULL,
    count           INTEGER NOT NULL,
    total_us        INTEGER NOT NULL,
    PRIMARY KEY (minute, organization_id, job_type, status, bucket)
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_clock_back ON jobs (started_at) WHERE started_at > finished_at;

CREATE INDEX schedules_purging ON schedules (purging) WHERE purging IS NOT NULL;

CREATE INDEX schedules_over ON schedules (at) WHERE at IS NOT NULL AND next_trigger_at IS NULL AND state <> 'DISABLED' AND dropped_at IS NULL;

CREATE TABLE template_versions (
    template_id BLOB NOT NULL REFERENCES templates,
    version     INTEGER NOT NULL,
    schedule_id BLOB NOT NULL,
    kind        TEXT NOT NULL,
    job_type    TEXT NOT NULL,
    body        TEXT,
    defaults    TEXT NOT NULL CHECK (json_valid(defaults)),
    created_by  TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (template_id, version)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX users_id ON users (user_id);

CREATE TABLE roles (
    role_id         BLOB PRIMARY KEY CHECK (length(role_id) = 16),
    organization_id TEXT NOT NULL REFERENCES organizations,
    name            TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX roles_name ON roles (organization_id, name);

CREATE INDEX schedules_run_as ON schedules (organization_id, run_as) WHERE run_as IS NOT NULL AND dropped_at IS NULL;

CREATE TABLE grants (
    grant_id        BLOB PRIMARY KEY CHECK (length(grant_id) = 16),
    organization_id TEXT NOT NULL REFERENCES organizations,
    grantee_kind    TEXT NOT NULL CHECK (grantee_kind IN ('USER', 'ROLE', 'PUBLIC')),
    grantee         TEXT NOT NULL CHECK ((grantee = '') = (grantee_kind = 'PUBLIC')),
    privilege       TEXT NOT NULL CHECK (privilege IN ('CREATE JOB', 'EXECUTE EXTERNAL JOB', 'VIEW JOB HISTORY', 'EXECUTE', 'ALTER', 'DROP', 'USE', 'ROLE')),
    target_kind     TEXT CHECK (target_kind IN ('JOB', 'ROLE', 'CONNECTION', 'SECRET')),
    target_id       TEXT CHECK ((target_id IS NULL) = (target_kind IS NULL)),
    grant_option    INTEGER NOT NULL CHECK (grant_option IN (0, 1)),
    granted_by      TEXT NOT NULL,
    granted_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX grants_once ON grants
    (organization_id, grantee_kind, grantee, privilege, coalesce(target_kind, ''), coalesce(target_id, ''), granted_by);

CREATE INDEX grants_on ON grants (target_kind, target_id) WHERE target_id IS NOT NULL;

CREATE TRIGGER templates_words_new BEFORE INSERT ON templates
WHEN NEW.job_class NOT IN ('LOCAL_SAFE', 'LEADER_ONLY', 'QUORUM_REQUIRED')
     OR NEW.partition_strategy NOT IN ('ALL_SHARDS', 'SINGLE_SHARD', 'SHARD_SET', 'DYNAMIC')
BEGIN
    SELECT RAISE(ABORT, 'a job class or a partition strategy that does not exist');
END;

CREATE TRIGGER templates_words BEFORE UPDATE OF job_class, partition_strategy ON templates
WHEN NEW.job_class NOT IN ('LOCAL_SAFE', 'LEADER_ONLY', 'QUORUM_REQUIRED')
     OR NEW.partition_strategy NOT IN ('ALL_SHARDS', 'SINGLE_SHARD', 'SHARD_SET', 'DYNAMIC')
BEGIN
    SELECT RAISE(ABORT, 'a job class or a partition strategy that does not exist');
END;

CREATE INDEX audit_action ON audit (action, audit_id);

CREATE INDEX audit_job ON audit (job_uuid, audit_id) WHERE job_uuid IS NOT NULL;

CREATE INDEX templates_of_sql ON templates (template_id) WHERE kind <> 'python';

CREATE TABLE settings (
    name   TEXT PRIMARY KEY,
    value  TEXT NOT NULL,
    set_by TEXT NOT NULL,
    set_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE connections (
    connection_id   BLOB PRIMARY KEY CHECK (length(connection_id) = 16),
    organization_id TEXT NOT NULL REFERENCES organizations,
    name            TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    url             TEXT NOT NULL CHECK (length(url) BETWEEN 1 AND 2000),
    login           TEXT,
    secret          TEXT,
    multi           INTEGER NOT NULL DEFAULT 0 CHECK (multi IN (0, 1)),
    version         INTEGER NOT NULL DEFAULT 1,
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX connections_name ON connections (organization_id, name);

CREATE TABLE secrets (
    secret_id       BLOB PRIMARY KEY CHECK (length(secret_id) = 16),
    organization_id TEXT NOT NULL REFERENCES organizations,
    name            TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 128 AND name NOT GLOB '*[^A-Za-z0-9_]*' AND name NOT GLOB '[0-9]*'),
    schedule_id     BLOB REFERENCES schedules ON DELETE CASCADE,   -- the job that alone has it; NULL: jobs of the organization may name it
    version         INTEGER NOT NULL CHECK (version >= 1),
    key_id          TEXT NOT NULL,
    wrapped         BLOB NOT NULL,
    body            BLOB NOT NULL,
    created_by      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    last_used_at    INTEGER
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX secrets_of_organization ON secrets (organization_id, name) WHERE schedule_id IS NULL;

CREATE UNIQUE INDEX secrets_of_job ON secrets (schedule_id, name) WHERE schedule_id IS NOT NULL;

CREATE INDEX secrets_key ON secrets (key_id, secret_id);

CREATE TABLE run_logs (
    run_id     BLOB NOT NULL CHECK (length(run_id) = 16),
    start      INTEGER NOT NULL CHECK (start >= 0),
    job_number INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    data       BLOB NOT NULL CHECK (length(data) > 0),
    PRIMARY KEY (run_id, start)
) STRICT;

INSERT INTO meta (key, value) VALUES ('clock', 0);
INSERT INTO meta (key, value) VALUES ('definitions_version', 1);
INSERT INTO meta (key, value) VALUES ('late_results', 0);
INSERT INTO meta (key, value) VALUES ('number_floor', 0);
INSERT INTO meta (key, value) VALUES ('pulse_at', 0);
INSERT INTO meta (key, value) VALUES ('recovered_at', 0);
INSERT INTO meta (key, value) VALUES ('retention_clock', 0);
INSERT INTO meta (key, value) VALUES ('schema', 25);
INSERT INTO meta (key, value) VALUES ('tzdata', 0);
INSERT INTO organizations (organization_id, display_name, state, created_at, signs) VALUES ('default', 'Default', 'ACTIVE', 0, 0);
