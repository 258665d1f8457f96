-- Schema 24, generated from the migrations by `make schema`. Do not edit it: add a migration.

-- The first schema: all tables of the model. Instants are microseconds since 1970 UTC, ids are UUIDv7.
-- A job stands in two tables: what it is (job_facts, written once), and how it fares: job_live while it has not ended, job_ends
-- afterwards. So the table that changes at every step is as narrow and as short as what is under way, and history is only ever
-- added to (decision 0025). The view `jobs` puts them together. A job has one run at most, and that stands there too; what the run left
-- behind, if anything, is in run_notes, and the view `job_runs` shows it whole.
-- What must never be is refused here, by CHECK or trigger, whoever asks: raw SQL too. Checks of one row are WHEN clauses, which
-- cost nothing while they hold; checks across tables are made once for each statement.
-- Names compare by their bytes (COLLATE "C"), as everywhere in Rota, whatever the database's own rule is.

CREATE FUNCTION hex(id uuid) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT replace(id::text, '-', '') $$;

CREATE TABLE meta (
    key   text PRIMARY KEY,
    value bigint NOT NULL,
    note  text
);

CREATE TABLE organizations (
    organization_id text COLLATE "C" PRIMARY KEY,
    display_name    text NOT NULL,
    state           text NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'SUSPENDED', 'REMOVED')),
    max_running     bigint CHECK (max_running >= 0),
    max_queued      bigint CHECK (max_queued >= 0),
    max_priority    integer CHECK (max_priority BETWEEN 0 AND 100),
    created_at      bigint NOT NULL,
    signs integer NOT NULL DEFAULT 0 CHECK (signs IN (0, 1))   -- it has a secret of its own
);

CREATE TABLE users (
    name            text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 255),
    organization_id text COLLATE "C" NOT NULL REFERENCES organizations,
    role            text NOT NULL CHECK (role IN ('system_manager', 'admin', 'user')),
    permissions     text NOT NULL DEFAULT '[]' CHECK (permissions::json IS NOT NULL),
    state           text NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'REMOVED')),
    created_by      text NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    user_id uuid
);

CREATE TABLE templates (
    template_id         uuid PRIMARY KEY,
    organization_id     text COLLATE "C" REFERENCES organizations,           -- NULL: shared by all
    name                text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    display_name        text,
    description         text,
    kind                text NOT NULL DEFAULT 'python' CHECK (kind IN ('python', 'sql', 'procedure', 'external')),
    job_type            text COLLATE "C" NOT NULL,
    body                text,
    default_params      text NOT NULL DEFAULT '{}' CHECK (default_params::json IS NOT NULL),
    defaults            text NOT NULL DEFAULT '{}' CHECK (defaults::json IS NOT NULL),
    overrides           text NOT NULL DEFAULT '{}' CHECK (overrides::json IS NOT NULL),
    state               text NOT NULL DEFAULT 'ENABLED' CHECK (state IN ('ENABLED', 'DISABLED', 'ARCHIVED')),
    requires_permission text,
    max_running         bigint CHECK (max_running >= 0),
    concurrency         bigint CHECK (concurrency >= 1),
    rate_limit          bigint CHECK (rate_limit >= 0),
    rate_window         bigint CHECK (rate_window > 0),
    submit_limit        bigint CHECK (submit_limit >= 0),
    submit_window       bigint CHECK (submit_window > 0),
    queue_ttl           bigint CHECK (queue_ttl > 0),
    payload_max         bigint CHECK (payload_max > 0),
    dedup_window        bigint CHECK (dedup_window >= 0),
    job_class           text,
    partition_strategy  text,
    partition_shard     text,
    partition_expression text,
    run_as              text,
    version             bigint NOT NULL DEFAULT 1,
    created_by          text NOT NULL,
    created_at          bigint NOT NULL,
    updated_at          bigint NOT NULL,
    dropped_at          bigint
);

CREATE UNIQUE INDEX templates_name ON templates (coalesce(organization_id, ''), name) WHERE dropped_at IS NULL;

CREATE TABLE calendars (
    organization_id text COLLATE "C" NOT NULL REFERENCES organizations,
    name            text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    description     text,
    days            text NOT NULL CHECK (days::json IS NOT NULL),
    created_by      text NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    PRIMARY KEY (organization_id, name)
);

CREATE TABLE schedules (
    row_id             bigint GENERATED ALWAYS AS IDENTITY UNIQUE,            -- how firing calls it
    schedule_id        uuid PRIMARY KEY,
    organization_id    text COLLATE "C" NOT NULL REFERENCES organizations,
    template_id        uuid NOT NULL REFERENCES templates,
    name               text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    description        text,
    kind               text NOT NULL CHECK (kind IN ('CRON', 'AT', 'EVERY')),
    cron_expression    text,
    at                 bigint,
    interval_us        bigint CHECK (interval_us > 0),
    timezone           text NOT NULL DEFAULT 'UTC',
    starts_at          bigint,
    ends_at            bigint,
    state              text NOT NULL DEFAULT 'ENABLED' CHECK (state IN ('ENABLED', 'DISABLED', 'PAUSED')),
    param_overrides    text CHECK (param_overrides::json IS NOT NULL OR param_overrides IS NULL),
    priority           integer CHECK (priority BETWEEN 0 AND 100),
    catch_up           text NOT NULL DEFAULT 'last' CHECK (catch_up IN ('none', 'last', 'all')),
    catch_up_lateness  bigint,
    catch_up_count     bigint,
    overlap            text NOT NULL DEFAULT 'skip' CHECK (overlap IN ('allow', 'queue', 'skip')),
    jitter             bigint NOT NULL DEFAULT 0 CHECK (jitter >= 0),
    calendar           text,
    on_completion      text NOT NULL DEFAULT 'PRESERVE' CHECK (on_completion IN ('PRESERVE', 'DROP')),
    depends_on         text CHECK (depends_on::json IS NOT NULL OR depends_on IS NULL),
    run_as             text,
    cursor_at          bigint NOT NULL,
    last_triggered_at  bigint,
    next_trigger_at    bigint,
    declared           text CHECK (declared::json IS NOT NULL OR declared IS NULL),
    ahead_at           bigint,
    told_from          bigint,
    told_until         bigint,
    version            bigint NOT NULL DEFAULT 1,
    created_by         text NOT NULL,
    created_at         bigint NOT NULL,
    updated_at         bigint NOT NULL,
    dropped_at         bigint,
    open_due_at bigint,
    open_fate text COLLATE "C",
    purging bigint
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX schedules_name ON schedules (organization_id, name) WHERE dropped_at IS NULL;
CREATE INDEX schedules_due ON schedules ((depends_on IS NOT NULL), next_trigger_at, row_id) WHERE state <> 'DISABLED' AND dropped_at IS NULL;
-- Not only of those that were not dropped: each such index would be one more that a plan might walk to find a name.
CREATE INDEX schedules_called ON schedules (name);
CREATE INDEX schedules_template ON schedules (template_id);
CREATE INDEX schedules_dropped ON schedules (dropped_at) WHERE dropped_at IS NOT NULL;

CREATE TABLE occurrences (
    schedule_id  uuid NOT NULL REFERENCES schedules,
    due_at       bigint NOT NULL,                                             -- of a span: the first due time
    last_due_at  bigint NOT NULL,
    count        bigint NOT NULL DEFAULT 1 CHECK (count >= 1),
    fate         text COLLATE "C" NOT NULL
                 CHECK (fate IN ('FIRED', 'COALESCED', 'MISSED', 'SKIPPED_OVERLAP', 'SKIPPED_PAUSED', 'SKIPPED_CALENDAR',
                                 'SKIPPED_DST_GAP', 'SKIPPED_DEPENDENCY', 'REFUSED')),
    reason       text,
    job_id       uuid,
    recorded_at  bigint NOT NULL
);

CREATE INDEX occurrences_spans ON occurrences (last_due_at) WHERE last_due_at > due_at;
CREATE INDEX occurrences_time ON occurrences (due_at, schedule_id, fate);
ALTER TABLE occurrences ADD PRIMARY KEY (schedule_id, due_at, fate);                       -- last: see job_ends

CREATE TABLE occurrences_told (
    schedule_id  uuid NOT NULL REFERENCES schedules,
    due_at       bigint NOT NULL,
    last_due_at  bigint NOT NULL,
    count        bigint NOT NULL,
    fate         text NOT NULL,
    reason       text,
    recorded_at  bigint NOT NULL,
    PRIMARY KEY (schedule_id, due_at, fate)
);

CREATE TABLE job_groups (
    group_id        uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL,
    name            text,
    mode            text NOT NULL CHECK (mode IN ('sequential', 'parallel')),
    on_failure      text NOT NULL CHECK (on_failure IN ('stop', 'continue', 'skip')),
    created_by      text NOT NULL,
    created_at      bigint NOT NULL,
    passed integer NOT NULL DEFAULT 0
);

CREATE TABLE workers (
    worker_id   uuid PRIMARY KEY,
    host        text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('worker', 'client')),
    beat        bigint NOT NULL DEFAULT 0,
    job_types   text NOT NULL DEFAULT '[]' CHECK (job_types::json IS NOT NULL),
    started_at  bigint NOT NULL,
    stopping_at bigint,
    ended_at    bigint,
    slots integer CHECK (slots > 0),
    queues text CHECK (queues IS NULL OR queues::json IS NOT NULL),
    digests text NOT NULL DEFAULT '{}' CHECK (digests::json IS NOT NULL),
    pid bigint,
    rota_version text,
    memory bigint
) WITH (fillfactor = 50);

CREATE INDEX workers_live ON workers (worker_id) WHERE ended_at IS NULL;

-- ---- jobs ---------------------------------------------------------------------------------------------------------

CREATE SEQUENCE job_numbers;

-- What a job is. Never changed by a move; only its params, while it waits, and its group, once.
CREATE TABLE job_facts (
    number          bigint PRIMARY KEY DEFAULT nextval('job_numbers'),
    job_id          uuid NOT NULL UNIQUE,
    organization_id text COLLATE "C" NOT NULL,
    template_id     uuid,
    job_type        text COLLATE "C" NOT NULL CHECK (length(job_type) BETWEEN 1 AND 255),
    origin          text NOT NULL DEFAULT 'api' CHECK (origin IN ('api', 'direct', 'schedule', 'group')),
    root_id         uuid NOT NULL,
    retry_of        uuid,                                                     -- see facts_line and facts_kept
    attempt         integer NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    failures        integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    crashes         integer NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    snoozes         integer NOT NULL DEFAULT 0 CHECK (snoozes >= 0),
    unique_key      text COLLATE "C" CHECK (length(unique_key) BETWEEN 1 AND 1024),
    job_hash        bytea,
    params          text NOT NULL DEFAULT '{}',
    schedule_id     uuid,
    due_at          bigint,
    group_id        uuid REFERENCES job_groups,
    sequence_number integer,
    owner           text NOT NULL,
    run_as          text,
    max_retries     integer NOT NULL CHECK (max_retries >= 0),
    max_crashes     integer NOT NULL CHECK (max_crashes >= 1),
    backoff         text NOT NULL,
    timeout         double precision NOT NULL CHECK (timeout >= 0),
    executor        text NOT NULL,
    target_node     text,
    shard           text,
    meta            text,
    created_at      bigint NOT NULL,
    CHECK ((retry_of IS NULL) = (attempt = 1)),
    CHECK ((root_id = job_id) = (attempt = 1)),
    CHECK ((group_id IS NULL) = (sequence_number IS NULL)),
    lane bigint,
    tags text CHECK (tags IS NULL OR tags::json IS NOT NULL)
);

CREATE UNIQUE INDEX facts_retry ON job_facts (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX facts_group ON job_facts (group_id, sequence_number) WHERE group_id IS NOT NULL;
CREATE INDEX facts_org ON job_facts (organization_id, number) WHERE organization_id <> 'default';
CREATE UNIQUE INDEX facts_occurrence ON job_facts (schedule_id, due_at, attempt) WHERE schedule_id IS NOT NULL;
CREATE INDEX facts_by_hand ON job_facts (schedule_id, attempt, number) WHERE schedule_id IS NOT NULL AND due_at IS NULL;

-- How a job fares that has not ended: one narrow row, which is all that claims and ends write over and over.
CREATE TABLE job_live (
    number              bigint PRIMARY KEY,
    job_id              uuid NOT NULL,
    root_id             uuid NOT NULL,
    attempt             integer NOT NULL,
    organization_id     text COLLATE "C" NOT NULL,
    job_type            text COLLATE "C" NOT NULL,
    created_at          bigint NOT NULL,
    schedule_id         uuid,
    unique_key          text COLLATE "C",
    status              text NOT NULL,
    held                text COLLATE "C",
    blockers            integer NOT NULL DEFAULT 0 CHECK (blockers >= 0),
    priority            integer NOT NULL CHECK (priority BETWEEN 0 AND 100),
    position            bigint NOT NULL DEFAULT 0,
    run_at              bigint NOT NULL,
    expires_at          bigint,
    queued_at           bigint,
    started_at          bigint,
    worker_id           uuid,
    run_id              uuid,
    cancel_requested_at bigint,
    cancel_requested_by text,
    reason              text,
    CONSTRAINT live_move CHECK (CASE status
               WHEN 'PENDING' THEN started_at IS NULL AND run_id IS NULL AND held IS NULL
               WHEN 'QUEUED' THEN started_at IS NULL AND run_id IS NULL AND queued_at IS NOT NULL AND blockers = 0
               WHEN 'RUNNING' THEN started_at IS NOT NULL AND run_id IS NOT NULL AND worker_id IS NOT NULL
               ELSE false
           END),
    lane bigint
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Each index is named after the question it answers. The first is the one that others would do as well as: see job_ends.
CREATE INDEX live_tail ON job_live (priority, organization_id, position) WHERE status = 'QUEUED';
CREATE INDEX live_held ON job_live (held, job_type, priority DESC, position, created_at, job_id) WHERE status = 'QUEUED' AND held IS NOT NULL;
CREATE INDEX live_due ON job_live (priority, run_at, number) WHERE status = 'PENDING' AND blockers = 0;
CREATE INDEX live_blocked ON job_live (organization_id) WHERE status = 'PENDING' AND blockers > 0;
CREATE INDEX live_running ON job_live (worker_id, job_type, organization_id) WHERE status = 'RUNNING';
CREATE INDEX live_cancelling ON job_live (worker_id) WHERE status = 'RUNNING' AND cancel_requested_at IS NOT NULL;
CREATE INDEX live_expiring ON job_live (expires_at) WHERE expires_at IS NOT NULL AND started_at IS NULL;
CREATE UNIQUE INDEX live_chain ON job_live (root_id) WHERE attempt > 1;                -- a first attempt is found by its job_id
-- Of a key of a thousand letters an index takes the digest: a page has no room for it.
CREATE UNIQUE INDEX live_unique ON job_live (organization_id, job_type, md5(unique_key)) WHERE unique_key IS NOT NULL;
CREATE INDEX live_schedule ON job_live (schedule_id) WHERE schedule_id IS NOT NULL;

-- How a job fared that has ended: written once.
CREATE TABLE job_ends (
    number              bigint NOT NULL,
    job_type            text COLLATE "C" NOT NULL,
    status              text NOT NULL CHECK (status IN ('COMPLETED', 'FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED')),
    created_at          bigint NOT NULL,
    finished_at         bigint NOT NULL,
    held                text COLLATE "C",
    priority            integer NOT NULL,
    position            bigint NOT NULL,
    run_at              bigint NOT NULL,
    expires_at          bigint,
    queued_at           bigint,
    started_at          bigint,
    worker_id           uuid,
    run_id              uuid,
    cancel_requested_at bigint,
    cancel_requested_by text,
    ended_by            text,
    reason              text,
    error_type          text CHECK (error_type IN ('transient', 'permanent', 'timeout', 'crash', 'interrupted', 'dependency')),
    CONSTRAINT ends_move CHECK (started_at IS NOT NULL OR status IN ('SKIPPED', 'CANCELLED')),  -- only what has started ends otherwise
    CONSTRAINT ends_run CHECK ((run_id IS NULL) = (started_at IS NULL))
);

-- Ends by their type: what retention walks, and lists by type; when they were made stands there too, for lists by time.
CREATE INDEX ends_finished ON job_ends (job_type, finished_at, created_at, number);
CREATE INDEX ends_failed ON job_ends (finished_at) WHERE status IN ('FAILED', 'TIMED_OUT');
CREATE INDEX ends_unhappy ON job_ends (status, number) WHERE status IN ('FAILED', 'TIMED_OUT', 'DEAD_LETTER', 'SKIPPED', 'CANCELLED');
-- Of two indexes that seem equally good, while a table is empty, PostgreSQL takes the younger: so a key that others contain comes last.
ALTER TABLE job_ends ADD PRIMARY KEY (number);

-- A role that may only submit sees jobs without their params.
CREATE VIEW jobs AS
SELECT f.number, f.job_id, f.organization_id, f.template_id, f.job_type, f.origin, f.root_id, f.retry_of, f.attempt, f.failures, f.crashes,
       f.snoozes, coalesce(l.status, e.status) AS status, coalesce(l.held, e.held) AS held, coalesce(l.blockers, 0) AS blockers,
       coalesce(l.priority, e.priority) AS priority, coalesce(l.position, e.position) AS position, coalesce(l.run_at, e.run_at) AS run_at,
       coalesce(l.expires_at, e.expires_at) AS expires_at, f.unique_key, f.job_hash,
       CASE WHEN has_column_privilege('job_facts'::regclass, 'params', 'SELECT') THEN f.params ELSE '{}' END AS params, f.schedule_id, f.due_at, f.group_id,
       f.sequence_number, f.owner, f.run_as, f.max_retries, f.max_crashes, f.backoff, f.timeout, f.executor, f.target_node, f.shard, f.meta,
       f.created_at, coalesce(l.queued_at, e.queued_at) AS queued_at, coalesce(l.started_at, e.started_at) AS started_at, e.finished_at,
       coalesce(l.worker_id, e.worker_id) AS worker_id, coalesce(l.cancel_requested_at, e.cancel_requested_at) AS cancel_requested_at,
       coalesce(l.cancel_requested_by, e.cancel_requested_by) AS cancel_requested_by, e.ended_by, coalesce(l.reason, e.reason) AS reason,
       e.error_type
  FROM job_facts AS f
  -- Not a plain =, so that each row is looked up: a plan made while a table is empty would walk it, and is kept when it has grown.
  LEFT JOIN job_live AS l ON l.number = ANY (ARRAY[f.number])
  LEFT JOIN job_ends AS e ON e.number = ANY (ARRAY[f.number]);

-- What a run left behind beside its start and its end, which are its job's: most leave nothing. Written while it runs.
CREATE TABLE run_notes (
    job_number       bigint PRIMARY KEY,
    exit_code        integer,
    error            text,
    error_type       text,
    error_code       text,
    traceback        text,
    result           text,
    result_message   text,
    rows_affected    bigint,
    output_reference text,
    artifacts        text NOT NULL DEFAULT '[]',
    log_path         text,
    progress         integer CHECK (progress BETWEEN 0 AND 100),
    progress_message text,
    checkpoint       text
) WITH (fillfactor = 70);

CREATE VIEW job_runs AS
SELECT f.number AS job_number, coalesce(l.run_id, e.run_id) AS run_id, f.template_id,
       CASE WHEN e.status IN ('TIMED_OUT', 'DEAD_LETTER') THEN 'FAILED' ELSE e.status END AS status,
       coalesce(l.started_at, e.started_at) AS started_at, e.finished_at, n.exit_code, n.error, n.error_type, n.error_code, n.traceback,
       n.result, n.result_message, n.rows_affected, n.output_reference, coalesce(n.artifacts, '[]') AS artifacts, n.log_path, n.progress,
       n.progress_message, n.checkpoint
  FROM job_facts AS f
  LEFT JOIN job_live AS l ON l.number = ANY (ARRAY[f.number])
  LEFT JOIN job_ends AS e ON e.number = ANY (ARRAY[f.number])
  LEFT JOIN run_notes AS n ON n.job_number = ANY (ARRAY[f.number])
 WHERE coalesce(l.run_id, e.run_id) IS NOT NULL;

CREATE TABLE job_edges (
    child       bigint NOT NULL,
    parent_root uuid NOT NULL,
    needs       text COLLATE "C" NOT NULL CHECK (needs IN ('success', 'end')),
    on_failure  text COLLATE "C" NOT NULL CHECK (on_failure IN ('wait', 'skip', 'cancel')),
    source      text NOT NULL CHECK (source IN ('user', 'group', 'overlap', 'schedule')),
    resolved_at bigint,
    until       bigint,
    PRIMARY KEY (child, parent_root),
    place integer
);

CREATE INDEX edges_of_parent ON job_edges (parent_root);
CREATE INDEX edges_open ON job_edges (parent_root, needs, on_failure, child) WHERE resolved_at IS NULL;
CREATE INDEX edges_until ON job_edges (until) WHERE resolved_at IS NULL AND until IS NOT NULL;

-- Chains that ended and have not yet told everybody who waits for them: a hundred thousand children are told over many turns.
CREATE TABLE ended_roots (
    root_id uuid PRIMARY KEY,
    status  text NOT NULL
);

CREATE TABLE direct_reservations (
    reservation_id uuid PRIMARY KEY,
    reserved_at    bigint NOT NULL,
    reserved_by    text NOT NULL,
    status         text NOT NULL CHECK (status IN ('ACTIVE', 'RELEASED', 'EXPIRED')),
    expires_at     bigint NOT NULL,
    job_id         uuid NOT NULL,
    job_number     bigint NOT NULL,
    worker_id      uuid NOT NULL,                                             -- whose sign of life shows that the caller lives
    released_at    bigint
);

CREATE UNIQUE INDEX reservations_active ON direct_reservations (status) WHERE status = 'ACTIVE';

CREATE TABLE dedup (
    organization_id text COLLATE "C" NOT NULL,
    template_id     uuid NOT NULL,
    hash            bytea NOT NULL,
    job_id          uuid NOT NULL,
    expires_at      bigint NOT NULL,
    PRIMARY KEY (organization_id, template_id, hash)
);

CREATE INDEX dedup_expired ON dedup (expires_at);

CREATE TABLE rate_log (
    key   text COLLATE "C" NOT NULL,
    at    bigint NOT NULL,
    count bigint NOT NULL CHECK (count >= 1),
    PRIMARY KEY (key, at)
);

CREATE TABLE audit (
    audit_id        bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at              bigint NOT NULL,
    actor           text NOT NULL,
    organization_id text COLLATE "C",
    action          text NOT NULL,
    subject         text NOT NULL,
    subject_id      text NOT NULL,
    before          text,
    after           text,
    job_uuid uuid,
    job_run_uuid uuid,
    outcome text NOT NULL DEFAULT 'ok' CHECK (outcome IN ('ok', 'failed', 'denied'))
);

CREATE INDEX audit_subject ON audit (subject, subject_id, audit_id);

CREATE TABLE outbox (
    outbox_id       bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    event           text NOT NULL,
    job_id          uuid NOT NULL,
    run_id          uuid,
    target          text NOT NULL,
    payload         text NOT NULL CHECK (payload::json IS NOT NULL),
    attempts        integer NOT NULL DEFAULT 0,
    next_attempt_at bigint NOT NULL,
    last_error      text,
    created_at      bigint NOT NULL,
    delivered_at    bigint,
    organization_id text COLLATE "C" NOT NULL DEFAULT 'default',
    endpoint_id uuid,
    lane text COLLATE "C" NOT NULL DEFAULT '',   -- host and organization: who waits behind whom
    last_status integer,
    last_attempt_at bigint,
    gave_up_at bigint
);
CREATE INDEX outbox_job ON outbox (job_id);

-- Figures. A bucket is an eighth of an octave of the run's microseconds, -1 for an end without a run.
CREATE TABLE stats_hourly (
    hour            bigint NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    job_type        text COLLATE "C" NOT NULL,
    status          text NOT NULL,
    bucket          integer NOT NULL,
    count           bigint NOT NULL,
    total_us        bigint NOT NULL,
    PRIMARY KEY (hour, organization_id, job_type, status, bucket)
) WITH (fillfactor = 50);

CREATE TABLE stats_total (
    organization_id text COLLATE "C" NOT NULL,
    job_type        text COLLATE "C" NOT NULL,
    status          text NOT NULL,
    count           bigint NOT NULL,
    PRIMARY KEY (organization_id, job_type, status)
) WITH (fillfactor = 50);

CREATE TABLE pauses (
    kind      text COLLATE "C" NOT NULL CHECK (kind IN ('all', 'organization', 'template')),
    name      text COLLATE "C" NOT NULL,
    paused_at bigint NOT NULL,
    paused_by text NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE queue_clock (
    priority integer PRIMARY KEY,
    position bigint NOT NULL
) WITH (fillfactor = 50);

-- The execution log: every move of a job happens once and has its own columns, so the log is read from them.
CREATE VIEW job_log (job_id, root_id, attempt, step, at, from_status, to_status, actor, message) AS
SELECT job_id, root_id, attempt, 1, created_at, NULL, CASE WHEN queued_at = created_at THEN 'QUEUED' ELSE 'PENDING' END,
       CASE WHEN attempt = 1 THEN owner
            ELSE coalesce((SELECT a.actor FROM audit AS a WHERE a.subject = 'job' AND a.subject_id = hex(jobs.retry_of) AND a.action = 'job.retry'
                            LIMIT 1), 'system') END,
       NULL
  FROM jobs
UNION ALL
SELECT job_id, root_id, attempt, 2, queued_at, 'PENDING', 'QUEUED', 'system', NULL
  FROM jobs WHERE queued_at IS NOT NULL AND queued_at <> created_at
UNION ALL
SELECT job_id, root_id, attempt, 3, started_at, 'QUEUED', 'RUNNING', 'system', 'worker ' || hex(worker_id)
  FROM jobs WHERE started_at IS NOT NULL
UNION ALL
SELECT job_id, root_id, attempt, 4, cancel_requested_at, 'RUNNING', 'RUNNING', cancel_requested_by, 'asked to stop'
  FROM jobs WHERE cancel_requested_at IS NOT NULL AND started_at IS NOT NULL
UNION ALL
SELECT j.job_id, j.root_id, j.attempt, 5, j.finished_at,
       CASE WHEN j.started_at IS NOT NULL THEN 'RUNNING' WHEN j.queued_at IS NOT NULL THEN 'QUEUED' ELSE 'PENDING' END,
       j.status, j.ended_by, coalesce(j.reason, (SELECT n.error FROM run_notes AS n WHERE n.job_number = j.number))
  FROM jobs AS j WHERE j.finished_at + 0 IS NOT NULL;                         -- + 0: no invitation to walk over all ends

-- ---- what must never be ------------------------------------------------------------------------------------------

CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'check_violation';
END $$;

CREATE TRIGGER live_born BEFORE INSERT ON job_live FOR EACH ROW WHEN (NEW.status NOT IN ('PENDING', 'QUEUED'))
EXECUTE FUNCTION refuse('illegal move: a job is born PENDING or QUEUED');

CREATE TRIGGER ends_final BEFORE UPDATE ON job_ends FOR EACH ROW EXECUTE FUNCTION refuse('a job that has ended cannot change');

CREATE TRIGGER facts_identity BEFORE UPDATE ON job_facts FOR EACH ROW
WHEN ((NEW.number, NEW.job_id, NEW.organization_id, NEW.template_id, NEW.job_type, NEW.origin, NEW.root_id, NEW.retry_of, NEW.attempt,
       NEW.unique_key, NEW.schedule_id, NEW.due_at, NEW.created_at)
      IS DISTINCT FROM
      (OLD.number, OLD.job_id, OLD.organization_id, OLD.template_id, OLD.job_type, OLD.origin, OLD.root_id, OLD.retry_of, OLD.attempt,
       OLD.unique_key, OLD.schedule_id, OLD.due_at, OLD.created_at))
EXECUTE FUNCTION refuse('identity and origin of a job cannot change');

CREATE TRIGGER facts_owned BEFORE UPDATE ON job_facts FOR EACH ROW WHEN (NEW.owner IS DISTINCT FROM OLD.owner)
EXECUTE FUNCTION refuse('the owner of a job cannot change');

CREATE TRIGGER facts_grouped_once BEFORE UPDATE ON job_facts FOR EACH ROW
WHEN (OLD.group_id IS NOT NULL AND (NEW.group_id IS DISTINCT FROM OLD.group_id OR NEW.sequence_number IS DISTINCT FROM OLD.sequence_number))
EXECUTE FUNCTION refuse('a job joins one group, once');

CREATE TRIGGER notes_identity BEFORE UPDATE ON run_notes FOR EACH ROW WHEN (NEW.job_number <> OLD.job_number)
EXECUTE FUNCTION refuse('identity and start of a run cannot change');

CREATE TRIGGER notes_log_once BEFORE UPDATE ON run_notes FOR EACH ROW
WHEN (OLD.log_path IS NOT NULL AND NEW.log_path IS DISTINCT FROM OLD.log_path) EXECUTE FUNCTION refuse('log_path is written once');

CREATE TRIGGER notes_artifacts_grow BEFORE UPDATE ON run_notes FOR EACH ROW
WHEN (NEW.artifacts <> OLD.artifacts AND left(NEW.artifacts, length(OLD.artifacts) - 1) <> left(OLD.artifacts, -1))
EXECUTE FUNCTION refuse('artifacts only grow');

-- Across tables. A function looks into this schema, whoever calls it from wherever. Its plans are kept too, so here as well each row
-- is looked up: by a subquery for one value, where EXISTS would let PostgreSQL choose a join or a walk.

CREATE FUNCTION facts_line() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- With UNIQUE (retry_of) this makes a chain a line with at most one live job.
    IF NOT EXISTS (SELECT 1 FROM job_facts AS f
                    WHERE f.job_id = NEW.retry_of AND f.root_id = NEW.root_id AND f.attempt = NEW.attempt - 1
                      AND (SELECT e.status FROM job_ends AS e WHERE e.number = f.number) IS NOT NULL) THEN
        RAISE EXCEPTION USING MESSAGE = 'a successor follows the ended tail of its own chain', ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER facts_line BEFORE INSERT ON job_facts FOR EACH ROW WHEN (NEW.retry_of IS NOT NULL) EXECUTE FUNCTION facts_line();

CREATE FUNCTION facts_params_frozen() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM job_live WHERE number = OLD.number AND status IN ('PENDING', 'QUEUED')) THEN
        RAISE EXCEPTION USING MESSAGE = 'Cannot modify params after dispatch', ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER facts_params_frozen BEFORE UPDATE ON job_facts FOR EACH ROW WHEN (NEW.params <> OLD.params)
EXECUTE FUNCTION facts_params_frozen();

-- Numbers of jobs that are added together lie close together: so these two walk from the lowest to the highest, side by side with what was
-- added, which is half the work of looking each up.
CREATE FUNCTION live_added() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_nestloop = off SET enable_mergejoin = on SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    lowest  bigint;
    highest bigint;
BEGIN
    SELECT min(number), max(number) INTO lowest, highest FROM added;
    IF EXISTS (SELECT 1 FROM job_ends AS e JOIN added AS l ON l.number = e.number WHERE e.number BETWEEN lowest AND highest)
       OR EXISTS (SELECT 1 FROM added AS l
                    LEFT JOIN (SELECT number, job_id, root_id, attempt, organization_id, job_type, created_at, schedule_id, unique_key
                                 FROM job_facts WHERE number BETWEEN lowest AND highest) AS f ON f.number = l.number
                   WHERE f.number IS NULL OR f.job_id <> l.job_id OR f.root_id <> l.root_id OR f.attempt <> l.attempt
                      OR f.organization_id <> l.organization_id OR f.job_type <> l.job_type OR f.created_at <> l.created_at
                      OR f.schedule_id IS DISTINCT FROM l.schedule_id OR f.unique_key IS DISTINCT FROM l.unique_key) THEN
        RAISE EXCEPTION USING MESSAGE = 'a live job and what is known of it are written together', ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER live_added AFTER INSERT ON job_live REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION live_added();

CREATE FUNCTION facts_added() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_nestloop = off SET enable_mergejoin = on SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    lowest  bigint;
    highest bigint;
BEGIN
    SELECT min(number), max(number) INTO lowest, highest FROM added;
    IF EXISTS (SELECT 1 FROM (SELECT number FROM added) AS f
                 LEFT JOIN (SELECT number FROM job_live WHERE number BETWEEN lowest AND highest) AS l ON l.number = f.number
                WHERE l.number IS NULL) THEN
        RAISE EXCEPTION USING MESSAGE = 'a live job and what is known of it are written together', ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER facts_added AFTER INSERT ON job_facts REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION facts_added();

CREATE FUNCTION notes_written() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM now AS n WHERE (SELECT l.run_id FROM job_live AS l WHERE l.number = n.job_number) IS NULL) THEN
        RAISE EXCEPTION USING MESSAGE = 'a run that has ended cannot change, and one that has not begun leaves nothing behind',
                              ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER notes_added AFTER INSERT ON run_notes REFERENCING NEW TABLE AS now FOR EACH STATEMENT EXECUTE FUNCTION notes_written();
CREATE TRIGGER notes_changed AFTER UPDATE ON run_notes REFERENCING NEW TABLE AS now FOR EACH STATEMENT EXECUTE FUNCTION notes_written();

CREATE FUNCTION notes_kept() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM gone AS n WHERE (SELECT f.job_type FROM job_facts AS f WHERE f.number = n.job_number) IS NOT NULL) THEN
        RAISE EXCEPTION USING MESSAGE = 'what a run left behind goes with its job', ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER notes_kept AFTER DELETE ON run_notes REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION notes_kept();

CREATE FUNCTION edges_added() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM added AS e WHERE (SELECT f.job_type FROM job_facts AS f WHERE f.number = e.child) IS NULL) THEN
        RAISE EXCEPTION USING MESSAGE = 'an edge can not be without its job', ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER edges_added AFTER INSERT ON job_edges REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION edges_added();

CREATE FUNCTION live_kept() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_nestloop = off SET enable_mergejoin = on SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    lowest  bigint;
    highest bigint;
    jobs    bigint;
BEGIN
    SELECT min(number), max(number), count(*) INTO lowest, highest, jobs FROM gone;
    IF jobs > 20 AND highest - lowest < 4 * jobs THEN
        IF NOT EXISTS (SELECT 1 FROM (SELECT number FROM gone) AS l
                         LEFT JOIN (SELECT number FROM job_ends WHERE number BETWEEN lowest AND highest) AS e ON e.number = l.number
                        WHERE e.number IS NULL) THEN
            RETURN NULL;
        END IF;
    ELSIF NOT EXISTS (SELECT 1 FROM gone AS l WHERE (SELECT e.status FROM job_ends AS e WHERE e.number = l.number) IS NULL) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION USING MESSAGE = 'a job that has not ended cannot be deleted', ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER live_kept AFTER DELETE ON job_live REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION live_kept();

CREATE FUNCTION facts_kept() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM gone AS f WHERE (SELECT l.status FROM job_live AS l WHERE l.number = f.number) IS NOT NULL
                                          OR (SELECT e.status FROM job_ends AS e WHERE e.number = f.number) IS NOT NULL
                                          OR (SELECT n.artifacts FROM run_notes AS n WHERE n.job_number = f.number) IS NOT NULL) THEN
        RAISE EXCEPTION USING MESSAGE = 'a job that has not ended cannot be deleted, and one that has goes with its end and its run',
                              ERRCODE = 'check_violation';
    END IF;
    IF EXISTS (SELECT 1 FROM gone AS f WHERE (SELECT n.number FROM job_facts AS n WHERE n.retry_of = f.job_id) IS NOT NULL) THEN
        RAISE EXCEPTION USING MESSAGE = 'an attempt is kept as long as its successor is', ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER facts_kept AFTER DELETE ON job_facts REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION facts_kept();

-- Jobs that end together mostly were added together, and their numbers lie close together. So these two walk from the lowest to the highest,
-- side by side with the jobs, as `live_added` does. Of few jobs, or of numbers far apart, each is looked up: a walk would pass too many others.
CREATE FUNCTION ends_added() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_nestloop = off SET enable_mergejoin = on SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    lowest  bigint;
    highest bigint;
    jobs    bigint;
BEGIN
    SELECT min(number), max(number), count(*) INTO lowest, highest, jobs FROM added;
    IF jobs > 20 AND highest - lowest < 4 * jobs THEN
        IF NOT EXISTS (SELECT 1 FROM (SELECT number FROM added) AS e
                         LEFT JOIN (SELECT number FROM job_facts WHERE number BETWEEN lowest AND highest) AS f ON f.number = e.number
                        WHERE f.number IS NULL)
           AND NOT EXISTS (SELECT 1 FROM (SELECT number FROM job_live WHERE number BETWEEN lowest AND highest) AS l
                             JOIN (SELECT number FROM added) AS e ON e.number = l.number) THEN
            RETURN NULL;
        END IF;
    ELSIF NOT EXISTS (SELECT 1 FROM added AS e WHERE (SELECT l.status FROM job_live AS l WHERE l.number = e.number) IS NOT NULL
                                                  OR (SELECT f.job_type FROM job_facts AS f WHERE f.number = e.number) IS NULL) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION USING MESSAGE = 'a job that ends is live no longer', ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER ends_added AFTER INSERT ON job_ends REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ends_added();

CREATE FUNCTION ends_kept() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM gone AS e WHERE (SELECT f.job_type FROM job_facts AS f WHERE f.number = e.number) IS NOT NULL) THEN
        RAISE EXCEPTION USING MESSAGE = 'the end of a job goes with the job', ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ends_kept AFTER DELETE ON job_ends REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION ends_kept();

INSERT INTO organizations (organization_id, display_name, created_at) VALUES ('default', 'Default', 0);
INSERT INTO meta (key, value) VALUES ('definitions_version', 1), ('late_results', 0), ('recovered_at', 0), ('clock', 0), ('tzdata', 0);
-- The front door: tokens and browser sessions, of which only digests are kept.

CREATE TABLE tokens (
    token_id     uuid PRIMARY KEY,
    name         text NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    user_name    text COLLATE "C" REFERENCES users,                           -- NULL: the operator of this store
    hash         bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    permits      text NOT NULL CHECK (permits::json IS NOT NULL),
    created_by   text NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint CHECK (expires_at > created_at),
    revoked_at   bigint,
    last_used_at bigint
);

CREATE TABLE sessions (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    token_id   uuid NOT NULL REFERENCES tokens,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL CHECK (expires_at > created_at),
    ended_at   bigint
);

CREATE INDEX sessions_token ON sessions (token_id);
CREATE INDEX sessions_expired ON sessions (expires_at);

-- What did not fire, by its time: as small as what went otherwise than planned.
CREATE INDEX occurrences_unfired ON occurrences (last_due_at) WHERE fate <> 'FIRED';
-- Webhooks: who is told of ends, and what became of each message.

CREATE TABLE endpoints (
    endpoint_id     uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL,
    root_id         uuid,                                                     -- the one chain it is for; NULL: all of the organization's
    url             text NOT NULL CHECK (length(url) BETWEEN 1 AND 2048),
    description     text,
    events          text NOT NULL CHECK (events::json IS NOT NULL),
    job_types       text NOT NULL DEFAULT '[]' CHECK (job_types::json IS NOT NULL),   -- empty: all
    with_result     integer NOT NULL DEFAULT 0 CHECK (with_result IN (0, 1)),
    state           text COLLATE "C" NOT NULL DEFAULT 'ENABLED' CHECK (state IN ('ENABLED', 'DISABLED')),
    reason          text,                                                     -- why it is disabled
    failing_since   bigint,
    last_status     integer,
    last_error      text,
    version         integer NOT NULL DEFAULT 1,
    created_by      text NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    dropped_at      bigint
);

-- Whether anybody is to be told at all, and who.
CREATE INDEX endpoints_open ON endpoints (organization_id, root_id) WHERE state = 'ENABLED' AND dropped_at IS NULL;
CREATE INDEX endpoints_root ON endpoints (root_id) WHERE root_id IS NOT NULL;

-- A digest will not do: messages are signed with it. Beside the endpoints, so that who may read those need not read this.
CREATE TABLE hook_secrets (
    owner          text COLLATE "C" PRIMARY KEY,                              -- an endpoint's id, or `organization:` and a name
    secret         text NOT NULL,
    created_at     bigint NOT NULL,
    previous       text,                                                      -- signs too, until then
    previous_until bigint
);
CREATE INDEX outbox_due ON outbox (next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;
CREATE INDEX outbox_lanes ON outbox (lane, next_attempt_at) WHERE delivered_at IS NULL AND gave_up_at IS NULL;
CREATE INDEX outbox_over ON outbox ((coalesce(delivered_at, gave_up_at))) WHERE coalesce(delivered_at, gave_up_at) IS NOT NULL;
CREATE INDEX outbox_endpoint ON outbox (endpoint_id, outbox_id);
CREATE INDEX outbox_organization ON outbox (organization_id, outbox_id);

CREATE FUNCTION live_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = CASE
        WHEN NEW.number <> OLD.number OR NEW.job_id <> OLD.job_id OR NEW.root_id <> OLD.root_id OR NEW.attempt <> OLD.attempt
             OR NEW.organization_id <> OLD.organization_id OR NEW.job_type <> OLD.job_type OR NEW.created_at <> OLD.created_at
             OR NEW.schedule_id IS DISTINCT FROM OLD.schedule_id OR NEW.unique_key IS DISTINCT FROM OLD.unique_key
        THEN 'identity and origin of a job cannot change'
        WHEN NEW.status <> OLD.status
             AND NOT (OLD.status = 'QUEUED' AND NEW.status = 'RUNNING' OR OLD.status = 'PENDING' AND NEW.status = 'QUEUED')
        THEN 'illegal move of a job: see the table of legal moves'
        ELSE 'a job starts once' END;
END $$;

CREATE TRIGGER live_changed BEFORE UPDATE ON job_live FOR EACH ROW
WHEN (NEW.number <> OLD.number OR NEW.job_id <> OLD.job_id OR NEW.root_id <> OLD.root_id OR NEW.attempt <> OLD.attempt
      OR NEW.organization_id <> OLD.organization_id OR NEW.job_type <> OLD.job_type OR NEW.created_at <> OLD.created_at
      OR NEW.schedule_id IS DISTINCT FROM OLD.schedule_id OR NEW.unique_key IS DISTINCT FROM OLD.unique_key
      OR NEW.status <> OLD.status
         AND NOT (OLD.status = 'QUEUED' AND NEW.status = 'RUNNING' OR OLD.status = 'PENDING' AND NEW.status = 'QUEUED')
      OR OLD.started_at IS NOT NULL AND (NEW.started_at IS DISTINCT FROM OLD.started_at OR NEW.worker_id IS DISTINCT FROM OLD.worker_id
                                         OR NEW.run_id IS DISTINCT FROM OLD.run_id))
EXECUTE FUNCTION live_changed();
-- Reports: due times that did not run, for webhooks and live events. Each is written in the transaction that writes the outcome.

CREATE TABLE schedule_reports (
    report_id       bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    event           text NOT NULL,
    schedule_id     uuid NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    due_at          bigint NOT NULL,                                          -- the first due time of the span
    last_due_at     bigint NOT NULL,
    count           bigint NOT NULL CHECK (count >= 1),
    outcome         text COLLATE "C" NOT NULL,                                -- a fate of the ledger, or OVERDUE
    phase           text COLLATE "C" NOT NULL CHECK (phase IN ('opened', 'closed')),
    reason          text,
    created_at      bigint NOT NULL
);

-- The id of a message: a span is reported once when it opens and once when it closes, whatever happens in between.
CREATE UNIQUE INDEX schedule_reports_key ON schedule_reports (schedule_id, due_at, outcome, phase);
CREATE INDEX schedule_reports_time ON schedule_reports (created_at);

-- A message is about a job or about a schedule.
ALTER TABLE outbox ALTER COLUMN job_id DROP NOT NULL;
ALTER TABLE outbox ADD COLUMN schedule_id uuid;
ALTER TABLE outbox ADD COLUMN message_key text;                               -- the webhook-id; NULL: the run's id, or the job's
ALTER TABLE outbox ADD CONSTRAINT outbox_subject
    CHECK ((job_id IS NULL) = (schedule_id IS NOT NULL) AND (schedule_id IS NULL) = (message_key IS NULL));

-- When a worker last made sure that the store takes writes: see the setting pulse_url.
INSERT INTO meta (key, value) VALUES ('pulse_at', 0);
-- What can't change any more is refused by the schema too. Each trigger names its columns: starts and ends set none of them, and don't pay.

CREATE TRIGGER live_place_frozen BEFORE UPDATE OF priority, position ON job_live FOR EACH ROW
WHEN (OLD.status NOT IN ('PENDING', 'QUEUED') AND (NEW.priority <> OLD.priority OR NEW.position <> OLD.position))
EXECUTE FUNCTION refuse('Cannot modify priority or position after dispatch');

CREATE TRIGGER live_queued_once BEFORE UPDATE OF queued_at ON job_live FOR EACH ROW
WHEN (OLD.queued_at IS NOT NULL AND NEW.queued_at IS DISTINCT FROM OLD.queued_at)
EXECUTE FUNCTION refuse('a job is queued once');

CREATE TRIGGER schedules_identity BEFORE UPDATE OF schedule_id, created_at ON schedules FOR EACH ROW
WHEN (NEW.schedule_id <> OLD.schedule_id OR NEW.created_at <> OLD.created_at)
EXECUTE FUNCTION refuse('identity and creation of a schedule cannot change');

CREATE TRIGGER reservations_ended BEFORE UPDATE OF status ON direct_reservations FOR EACH ROW
WHEN (OLD.status <> 'ACTIVE' AND NEW.status <> OLD.status)
EXECUTE FUNCTION refuse('a reservation that has ended cannot change');
-- The types of jobs without a template, and the function that each of them calls. Workers that may import it learn it from here.
CREATE TABLE adhoc_types (
    job_type   text COLLATE "C" PRIMARY KEY,
    handler    text NOT NULL,                                                 -- module:function
    created_by text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL
);
-- A clock that was ahead deletes nothing, and what waits by it comes back: see decision 0040.

-- The last moment at which the clock was trusted to delete by age. Of an earlier store, the newest moment that it shows.
INSERT INTO meta (key, value)
SELECT 'retention_clock', greatest(0, (SELECT max(value) FROM meta WHERE key IN ('clock', 'pulse_at', 'recovered_at')),
                                   (SELECT created_at FROM job_facts ORDER BY number DESC LIMIT 1),
                                   (SELECT max(greatest(started_at, ended_at)) FROM workers));

-- PENDING jobs whose run_at is counted from a moment: that moment is their position, negated. The lowest was written by the clock furthest ahead.
CREATE INDEX live_put_off ON job_live (position) WHERE status = 'PENDING' AND position < 0;
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
CREATE TRIGGER notes_outcome_once BEFORE UPDATE OF exit_code, error ON run_notes FOR EACH ROW
WHEN (OLD.exit_code IS NOT NULL AND NEW.exit_code IS DISTINCT FROM OLD.exit_code OR OLD.error IS NOT NULL AND NEW.error IS DISTINCT FROM OLD.error)
EXECUTE FUNCTION refuse('exit_code and error are written with the end of a run, and stay when it has ended');
-- Queues, and the parameters that a job was enqueued for: see decision 0052.

-- A lane is a line of ready jobs that the same workers can take: those of one type, one queue and one digest of parameters ('': not known).
CREATE TABLE lanes (
    lane     bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    job_type text COLLATE "C" NOT NULL,
    queue    text COLLATE "C" NOT NULL DEFAULT 'default' CHECK (length(queue) BETWEEN 1 AND 255),
    digest   text COLLATE "C" NOT NULL DEFAULT ''
);

CREATE UNIQUE INDEX lanes_key ON lanes (job_type, queue, digest);
-- A new lane advances the version of the definitions from bit 40 on, which only workers compare: other programs read nothing anew for it.
CREATE FUNCTION lane_known() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE meta SET value = value + 1099511627776 WHERE key = 'definitions_version';
    RETURN NULL;
END $$;
CREATE TRIGGER lanes_known AFTER INSERT ON lanes FOR EACH ROW EXECUTE FUNCTION lane_known();

-- The parameters behind a digest: their names, as [required, allowed or null], and the JSON Schema, if a handler has stated it.
CREATE TABLE param_digests (
    job_type    text COLLATE "C" NOT NULL,
    digest      text COLLATE "C" NOT NULL,
    names       text NOT NULL CHECK (names::json IS NOT NULL),
    schema      text CHECK (schema IS NULL OR schema::json IS NOT NULL),
    recorded_at bigint NOT NULL,
    PRIMARY KEY (job_type, digest)
);

INSERT INTO lanes (job_type) SELECT DISTINCT job_type FROM job_facts ORDER BY job_type;
UPDATE job_live AS l SET lane = n.lane FROM lanes AS n WHERE n.job_type = l.job_type;
UPDATE job_facts AS f SET lane = l.lane FROM job_live AS l WHERE l.number = f.number;
CREATE INDEX live_ready ON job_live (lane, priority DESC, position, created_at, job_id) WHERE status = 'QUEUED' AND held IS NULL;

CREATE OR REPLACE VIEW jobs AS
SELECT f.number, f.job_id, f.organization_id, f.template_id, f.job_type, f.origin, f.root_id, f.retry_of, f.attempt, f.failures, f.crashes,
       f.snoozes, coalesce(l.status, e.status) AS status, coalesce(l.held, e.held) AS held, coalesce(l.blockers, 0) AS blockers,
       coalesce(l.priority, e.priority) AS priority, coalesce(l.position, e.position) AS position, coalesce(l.run_at, e.run_at) AS run_at,
       coalesce(l.expires_at, e.expires_at) AS expires_at, f.unique_key, f.job_hash,
       CASE WHEN has_column_privilege('job_facts'::regclass, 'params', 'SELECT') THEN f.params ELSE '{}' END AS params, f.schedule_id, f.due_at, f.group_id,
       f.sequence_number, f.owner, f.run_as, f.max_retries, f.max_crashes, f.backoff, f.timeout, f.executor, f.target_node, f.shard, f.meta,
       f.created_at, coalesce(l.queued_at, e.queued_at) AS queued_at, coalesce(l.started_at, e.started_at) AS started_at, e.finished_at,
       coalesce(l.worker_id, e.worker_id) AS worker_id, coalesce(l.cancel_requested_at, e.cancel_requested_at) AS cancel_requested_at,
       coalesce(l.cancel_requested_by, e.cancel_requested_by) AS cancel_requested_by, e.ended_by, coalesce(l.reason, e.reason) AS reason,
       e.error_type, f.lane, f.tags
  FROM job_facts AS f
  -- Not a plain =, so that each row is looked up: a plan made while a table is empty would walk it, and is kept when it has grown.
  LEFT JOIN job_live AS l ON l.number = ANY (ARRAY[f.number])
  LEFT JOIN job_ends AS e ON e.number = ANY (ARRAY[f.number]);

ALTER TABLE pauses DROP CONSTRAINT pauses_kind_check;
ALTER TABLE pauses ADD CONSTRAINT pauses_kind_check CHECK (kind IN ('all', 'organization', 'template', 'queue'));

-- Live jobs without a lane, which only a program of an earlier version writes: workers put them into one.
CREATE INDEX live_stray ON job_live (job_type) WHERE lane IS NULL;
-- Figures by the minute, for charts of the last hours: counted as jobs end, kept for a few hours.
CREATE TABLE stats_minutely (
    minute          bigint NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    job_type        text COLLATE "C" NOT NULL,
    status          text NOT NULL,
    bucket          integer NOT NULL,
    count           bigint NOT NULL,
    total_us        bigint NOT NULL,
    PRIMARY KEY (minute, organization_id, job_type, status, bucket)
) WITH (fillfactor = 50);
-- Ended jobs that seem to have started after their end, because a clock was set back. They are few. Without them, a walk along the ends has
-- every start that is later than the end it is at: so queries by the time of the start need no index that every job would pay for.
CREATE INDEX ends_clock_back ON job_ends (started_at) WHERE started_at > finished_at;
CREATE INDEX schedules_purging ON schedules (purging) WHERE purging IS NOT NULL;

-- Schedules with one due time that has passed, and that are not disabled yet: such a job is over when its chain has ended.
CREATE INDEX schedules_over ON schedules (at) WHERE at IS NOT NULL AND next_trigger_at IS NULL AND state <> 'DISABLED' AND dropped_at IS NULL;

-- What a job was when a run of it was created: ALTER JOB does not change what waits.
CREATE TABLE template_versions (
    template_id uuid NOT NULL REFERENCES templates,
    version     bigint NOT NULL,
    schedule_id uuid NOT NULL,
    kind        text NOT NULL,
    job_type    text COLLATE "C" NOT NULL,
    body        text,
    defaults    text NOT NULL,
    created_by  text NOT NULL,
    created_at  bigint NOT NULL,
    PRIMARY KEY (template_id, version)
);
UPDATE users SET user_id = overlay(overlay(replace(gen_random_uuid()::text, '-', '') PLACING lpad(to_hex(created_at / 1000), 12, '0') FROM 1 FOR 12)
                                   PLACING '7' FROM 13 FOR 1)::uuid;
CREATE UNIQUE INDEX users_id ON users (user_id);

CREATE TABLE roles (
    role_id         uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL REFERENCES organizations,
    name            text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    created_by      text NOT NULL,
    created_at      bigint NOT NULL
);
CREATE UNIQUE INDEX roles_name ON roles (organization_id, name);
-- Jobs that run as a role: it stays while there are any.
CREATE INDEX schedules_run_as ON schedules (organization_id, run_as) WHERE run_as IS NOT NULL AND dropped_at IS NULL;

-- A grantee is a name; PUBLIC has none. A job and a role are named by their ids, connections and secrets by their names.
CREATE TABLE grants (
    grant_id        uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL REFERENCES organizations,
    grantee_kind    text NOT NULL CHECK (grantee_kind IN ('USER', 'ROLE', 'PUBLIC')),
    grantee         text COLLATE "C" NOT NULL CHECK ((grantee = '') = (grantee_kind = 'PUBLIC')),
    privilege       text NOT NULL CHECK (privilege IN ('CREATE JOB', 'EXECUTE EXTERNAL JOB', 'VIEW JOB HISTORY', 'EXECUTE', 'ALTER', 'DROP', 'USE', 'ROLE')),
    target_kind     text CHECK (target_kind IN ('JOB', 'ROLE', 'CONNECTION', 'SECRET')),
    target_id       text COLLATE "C" CHECK ((target_id IS NULL) = (target_kind IS NULL)),
    grant_option    integer NOT NULL CHECK (grant_option IN (0, 1)),
    granted_by      text COLLATE "C" NOT NULL,
    granted_at      bigint NOT NULL
);
CREATE UNIQUE INDEX grants_once ON grants
    (organization_id, grantee_kind, grantee, privilege, coalesce(target_kind, ''), coalesce(target_id, ''), granted_by);
CREATE INDEX grants_on ON grants (target_kind, target_id) WHERE target_id IS NOT NULL;

-- Words of which there are few. Rows that are there are not looked at.
ALTER TABLE templates ADD CONSTRAINT templates_job_class
    CHECK (job_class IN ('LOCAL_SAFE', 'LEADER_ONLY', 'QUORUM_REQUIRED')) NOT VALID;
ALTER TABLE templates ADD CONSTRAINT templates_partition_strategy
    CHECK (partition_strategy IN ('ALL_SHARDS', 'SINGLE_SHARD', 'SHARD_SET', 'DYNAMIC')) NOT VALID;
CREATE INDEX audit_action ON audit (action, audit_id);
CREATE INDEX audit_job ON audit (job_uuid, audit_id) WHERE job_uuid IS NOT NULL;

-- Jobs that SQL has created were entered by their id and under names of events: now as other schedules are, with the id beside it.
UPDATE audit SET job_uuid = subject_id::uuid, subject = 'schedule', subject_id = coalesce(after::json ->> 'job_name', subject_id),
                 action = CASE action WHEN 'JOB_CREATED' THEN 'schedule.create' WHEN 'JOB_MODIFIED' THEN 'schedule.edit' ELSE 'schedule.delete' END,
                 after = CASE WHEN action <> 'JOB_DELETED' THEN (after::jsonb - 'job_uuid' - 'job_name' - 'outcome')::text END
 WHERE subject = 'sql_job';
UPDATE audit SET job_run_uuid = subject_id::uuid WHERE subject = 'job' AND subject_id ~ '^[0-9a-f]{32}$';

-- Whether there are runs whose results are audited: every turn asks.
CREATE INDEX templates_of_sql ON templates (template_id) WHERE kind <> 'python';

-- Settings that all processes share: the environment of a process and its program come before them.
CREATE TABLE settings (
    name   text COLLATE "C" PRIMARY KEY,
    value  text NOT NULL,
    set_by text NOT NULL,
    set_at bigint NOT NULL
);
-- Connections: databases that jobs in SQL use. A password is never here: `secret` is the name of one.

CREATE TABLE connections (
    connection_id   uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL REFERENCES organizations,
    name            text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    url             text NOT NULL CHECK (length(url) BETWEEN 1 AND 2000),
    login           text,
    secret          text COLLATE "C",
    multi           integer NOT NULL DEFAULT 0 CHECK (multi IN (0, 1)),
    version         bigint NOT NULL DEFAULT 1,
    created_by      text NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL
);
CREATE UNIQUE INDEX connections_name ON connections (organization_id, name);

-- Grants on connections were names of nothing until now. A connection that is created under such a name is not meant by them.
DELETE FROM grants WHERE target_kind = 'CONNECTION';
-- Secrets of organizations and of single jobs, encrypted: the body with a key of its own, and that key (wrapped) with the master key key_id.

CREATE TABLE secrets (
    secret_id       uuid PRIMARY KEY,
    organization_id text COLLATE "C" NOT NULL REFERENCES organizations,
    name            text COLLATE "C" NOT NULL CHECK (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,127}$'),
    schedule_id     uuid REFERENCES schedules ON DELETE CASCADE,   -- the job that alone has it; NULL: jobs of the organization may name it
    version         bigint NOT NULL CHECK (version >= 1),
    key_id          text COLLATE "C" NOT NULL,
    wrapped         bytea NOT NULL,
    body            bytea NOT NULL,
    created_by      text NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    last_used_at    bigint
);
CREATE UNIQUE INDEX secrets_of_organization ON secrets (organization_id, name) WHERE schedule_id IS NULL;
CREATE UNIQUE INDEX secrets_of_job ON secrets (schedule_id, name) WHERE schedule_id IS NOT NULL;
-- Those that are still under an old key.
CREATE INDEX secrets_key ON secrets (key_id, secret_id);
-- Jobs of a kind wait by their connection: those that were stored before there was a runner name none, and so have the default one.
UPDATE templates SET job_type = 'kind:sql:' || organization_id || '/default' WHERE job_type = 'kind:sql' AND length(organization_id) <= 200;
UPDATE template_versions SET job_type = (SELECT t.job_type FROM templates AS t WHERE t.template_id = template_versions.template_id)
 WHERE job_type = 'kind:sql';
-- What handlers wrote, where logs are kept in the store: pieces of a run's log, each at its place in bytes. They go with their run.
CREATE TABLE run_logs (
    run_id     uuid NOT NULL,
    start      bigint NOT NULL CHECK (start >= 0),
    job_number bigint NOT NULL,
    at         bigint NOT NULL,
    data       bytea NOT NULL CHECK (length(data) > 0),
    PRIMARY KEY (run_id, start)
);

INSERT INTO meta (key, value) VALUES ('schema', 24);
