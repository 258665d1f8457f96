-- Jobs that SQL has created: a schedule with a template of its own.

-- A job that was dropped with its history: its chains are removed as they end. The moment of the DROP; NULL: its history stays.
ALTER TABLE schedules ADD COLUMN purging INTEGER;
CREATE INDEX schedules_purging ON schedules (purging) WHERE purging IS NOT NULL;

-- Schedules with one due time that has passed, and that are not disabled yet: such a job is over when its chain has ended.
CREATE INDEX schedules_over ON schedules (at) WHERE at IS NOT NULL AND next_trigger_at IS NULL AND state <> 'DISABLED' AND dropped_at IS NULL;

-- What a job was when a run of it was created: ALTER JOB does not change what waits.
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
