-- Schedules that fire: calendars, the ledger's questions, and jobs that wait for another schedule.

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

-- What the code said of a schedule last, where it is the code's.
ALTER TABLE schedules ADD COLUMN declared TEXT CHECK (json_valid(declared));

-- Those that depend on others are asked for by themselves: they come after them.
DROP INDEX schedules_due;
CREATE INDEX schedules_due ON schedules (depends_on IS NOT NULL, next_trigger_at) WHERE state <> 'DISABLED' AND dropped_at IS NULL;
-- The furthest moment up to which fates were given: a clock that was set back shows as one far ahead of now.
INSERT INTO meta (key, value) VALUES ('clock', 0), ('tzdata', 0);

-- Of a schedule whose clock was set back: up to where due times may have fired already, and the stretch of time that was told of before.
-- Which of the two clocks was wrong shows later: what was told is kept, and comes back if the clock does before anybody edits.
ALTER TABLE schedules ADD COLUMN ahead_at INTEGER;
ALTER TABLE schedules ADD COLUMN told_from INTEGER;
ALTER TABLE schedules ADD COLUMN told_until INTEGER;
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
-- Retention looks for those that were dropped long ago.
CREATE INDEX schedules_dropped ON schedules (dropped_at) WHERE dropped_at IS NOT NULL;

-- A due time becomes one job: its first attempt, which is attempt 1. Each index that begins with the schedule costs a firing a page of its
-- own, because neighbours in time are not neighbours there; so one index does for the rule, for lists, and for what became of a schedule.
DROP INDEX jobs_occurrence;
DROP INDEX jobs_schedule;
CREATE UNIQUE INDEX jobs_occurrence ON jobs (schedule_id, due_at, attempt) WHERE schedule_id IS NOT NULL;
-- What a schedule has under way, for overlaps: as small as what is live.
CREATE INDEX jobs_schedule_live ON jobs (schedule_id) WHERE schedule_id IS NOT NULL AND finished_at IS NULL;

CREATE INDEX occurrences_spans ON occurrences (last_due_at) WHERE last_due_at > due_at;
CREATE INDEX occurrences_time ON occurrences (due_at, schedule_id, fate);

-- The source 'schedule': a job that waits for a run of another schedule, at most `until`. Where there is no chain of it to wait for,
-- parent_root is that schedule's own id, and any chain of it that completes resolves the edge.
CREATE TABLE job_edges_new (
    child       INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
    parent_root BLOB NOT NULL,
    needs       TEXT NOT NULL CHECK (needs IN ('success', 'end')),
    on_failure  TEXT NOT NULL CHECK (on_failure IN ('wait', 'skip', 'cancel')),
    source      TEXT NOT NULL CHECK (source IN ('user', 'group', 'overlap', 'schedule')),
    resolved_at INTEGER,
    until       INTEGER,
    PRIMARY KEY (child, parent_root)
) STRICT, WITHOUT ROWID;
INSERT INTO job_edges_new (child, parent_root, needs, on_failure, source, resolved_at)
SELECT child, parent_root, needs, on_failure, source, resolved_at FROM job_edges;
DROP TABLE job_edges;
ALTER TABLE job_edges_new RENAME TO job_edges;
CREATE INDEX edges_open ON job_edges (parent_root, needs, on_failure) WHERE resolved_at IS NULL;
CREATE INDEX edges_of_parent ON job_edges (parent_root, child);
CREATE INDEX edges_until ON job_edges (until) WHERE resolved_at IS NULL AND until IS NOT NULL;
