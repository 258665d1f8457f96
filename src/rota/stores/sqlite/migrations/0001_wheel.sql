-- The first schema: all tables of the model. Instants are microseconds since 1970 UTC, ids are UUIDv7 blobs.
-- What must never be is refused here, by CHECK or trigger, whoever asks: raw SQL too.
-- rota.model.states.MOVES is the source of the moves; a test walks every pair against jobs_move.

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
) STRICT;

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
) STRICT;

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
) STRICT;

CREATE UNIQUE INDEX schedules_name ON schedules (organization_id, name) WHERE dropped_at IS NULL;
CREATE INDEX schedules_due ON schedules (next_trigger_at) WHERE state <> 'DISABLED' AND dropped_at IS NULL;

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
) STRICT;

CREATE TABLE workers (
    worker_id   BLOB PRIMARY KEY CHECK (length(worker_id) = 16),
    host        TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('worker', 'client')),
    beat        INTEGER NOT NULL DEFAULT 0,
    job_types   TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(job_types)),
    started_at  INTEGER NOT NULL,
    stopping_at INTEGER,
    ended_at    INTEGER
) STRICT;

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
    params              TEXT NOT NULL DEFAULT '{}',
    CHECK (   (status = 'QUEUED' AND finished_at IS NULL AND started_at IS NULL AND queued_at IS NOT NULL AND blockers = 0)
           OR (status = 'RUNNING' AND finished_at IS NULL AND started_at IS NOT NULL AND worker_id IS NOT NULL)
           OR (status = 'COMPLETED' AND finished_at IS NOT NULL)
           OR (status = 'PENDING' AND finished_at IS NULL AND started_at IS NULL AND held IS NULL)
           OR (status IN ('FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED') AND finished_at IS NOT NULL)),
    CHECK ((retry_of IS NULL) = (attempt = 1)),
    CHECK ((root_id = job_id) = (attempt = 1)),
    CHECK ((group_id IS NULL) = (sequence_number IS NULL))
) STRICT;

-- Each index is named after the question it answers.
CREATE INDEX jobs_ready ON jobs (job_type, priority DESC, position, created_at, job_id) WHERE status = 'QUEUED' AND held IS NULL;
CREATE INDEX jobs_held ON jobs (held, priority DESC, position, created_at, job_id) WHERE status = 'QUEUED' AND held IS NOT NULL;
CREATE INDEX jobs_tail ON jobs (priority, organization_id, position, created_at, job_id) WHERE status = 'QUEUED';
CREATE INDEX jobs_due ON jobs (priority, run_at) WHERE status = 'PENDING' AND blockers = 0;
CREATE INDEX jobs_running ON jobs (worker_id, job_type, organization_id) WHERE status = 'RUNNING';
CREATE INDEX jobs_cancelling ON jobs (worker_id) WHERE status = 'RUNNING' AND cancel_requested_at IS NOT NULL;
CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE expires_at IS NOT NULL AND started_at IS NULL AND finished_at IS NULL;
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_failed ON jobs (finished_at) WHERE status IN ('FAILED', 'TIMED_OUT');
CREATE INDEX jobs_group ON jobs (group_id, sequence_number) WHERE group_id IS NOT NULL;
CREATE UNIQUE INDEX jobs_retry ON jobs (retry_of) WHERE retry_of IS NOT NULL;
CREATE UNIQUE INDEX jobs_live ON jobs (root_id) WHERE finished_at IS NULL AND attempt > 1;   -- a first attempt is found by its job_id
CREATE UNIQUE INDEX jobs_unique ON jobs (organization_id, job_type, unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;
CREATE UNIQUE INDEX jobs_occurrence ON jobs (schedule_id, due_at) WHERE schedule_id IS NOT NULL AND retry_of IS NULL;

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

CREATE TABLE job_edges (
    child       INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
    parent_root BLOB NOT NULL,
    needs       TEXT NOT NULL CHECK (needs IN ('success', 'end')),
    on_failure  TEXT NOT NULL CHECK (on_failure IN ('wait', 'skip', 'cancel')),
    source      TEXT NOT NULL CHECK (source IN ('user', 'group', 'overlap')),
    resolved_at INTEGER,
    PRIMARY KEY (child, parent_root)
) STRICT, WITHOUT ROWID;

CREATE INDEX edges_open ON job_edges (parent_root) WHERE resolved_at IS NULL;

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
) STRICT;

CREATE INDEX audit_subject ON audit (subject, subject_id);

CREATE TABLE outbox (
    outbox_id       INTEGER PRIMARY KEY,
    event           TEXT NOT NULL,
    job_id          BLOB NOT NULL,
    run_id          BLOB,
    target          TEXT NOT NULL,
    payload         TEXT NOT NULL CHECK (json_valid(payload)),
    attempts        INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER NOT NULL,
    last_error      TEXT,
    created_at      INTEGER NOT NULL,
    delivered_at    INTEGER
) STRICT;

CREATE INDEX outbox_due ON outbox (next_attempt_at) WHERE delivered_at IS NULL;

CREATE TABLE stats_hourly (
    hour            INTEGER NOT NULL,
    organization_id TEXT NOT NULL,
    job_type        TEXT NOT NULL,
    status          TEXT NOT NULL,
    count           INTEGER NOT NULL,
    total_us        INTEGER NOT NULL,
    histogram       TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (hour, organization_id, job_type, status)
) STRICT, WITHOUT ROWID;

CREATE TABLE pauses (
    kind      TEXT NOT NULL CHECK (kind IN ('all', 'organization', 'template')),
    name      TEXT NOT NULL,
    paused_at INTEGER NOT NULL,
    paused_by TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue_clock (
    priority INTEGER PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT;

-- ---- what must never be ------------------------------------------------------------------------------------------

CREATE TRIGGER jobs_born BEFORE INSERT ON jobs
WHEN NEW.status NOT IN ('PENDING', 'QUEUED')
BEGIN
    SELECT RAISE(ABORT, 'illegal move: a job is born PENDING or QUEUED');
END;

-- With UNIQUE (retry_of) this makes a chain a line with at most one live job, without an index entry for each first attempt.
CREATE TRIGGER jobs_line BEFORE INSERT ON jobs
WHEN NEW.retry_of IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM jobs WHERE job_id = NEW.retry_of AND finished_at IS NOT NULL
                                      AND root_id = NEW.root_id AND attempt = NEW.attempt - 1)
BEGIN
    SELECT RAISE(ABORT, 'a successor follows the ended tail of its own chain');
END;

CREATE TRIGGER jobs_move BEFORE UPDATE OF status ON jobs
WHEN NEW.status <> OLD.status
 AND NOT (   (OLD.status = 'RUNNING' AND NEW.status IN ('COMPLETED', 'FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED'))
          OR (OLD.status = 'QUEUED'  AND NEW.status IN ('RUNNING', 'SKIPPED', 'CANCELLED'))
          OR (OLD.status = 'PENDING' AND NEW.status IN ('QUEUED', 'SKIPPED', 'CANCELLED')))
BEGIN
    SELECT RAISE(ABORT, 'illegal move of a job: see the table of legal moves');
END;

CREATE TRIGGER jobs_run_first BEFORE UPDATE OF status ON jobs
WHEN NEW.status = 'RUNNING' AND NOT EXISTS (SELECT 1 FROM job_runs WHERE job_number = NEW.number)
BEGIN
    SELECT RAISE(ABORT, 'a job cannot be RUNNING without a run');
END;

CREATE TRIGGER jobs_ended BEFORE UPDATE ON jobs
WHEN OLD.finished_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a job that has ended cannot change');
END;

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

CREATE TRIGGER jobs_started_once BEFORE UPDATE OF started_at, worker_id ON jobs
WHEN OLD.started_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a job starts once');
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

-- Instead of AUTOINCREMENT, which writes one more page with every job: only deleting the newest job needs a note.
CREATE TRIGGER jobs_numbered_once BEFORE DELETE ON jobs
WHEN OLD.number = (SELECT max(number) FROM jobs)
BEGIN
    UPDATE meta SET value = max(value, OLD.number) WHERE key = 'number_floor';
END;

CREATE TRIGGER runs_ended BEFORE UPDATE ON job_runs
WHEN OLD.status IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a run that has ended cannot change');
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

INSERT INTO organizations (organization_id, display_name, created_at) VALUES ('default', 'Default', 0);
INSERT INTO meta (key, value) VALUES ('definitions_version', 1), ('late_results', 0), ('recovered_at', 0), ('number_floor', 0);
