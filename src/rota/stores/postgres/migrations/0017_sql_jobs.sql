-- Jobs that SQL has created: a schedule with a template of its own.

-- A job that was dropped with its history: its chains are removed as they end. The moment of the DROP; NULL: its history stays.
ALTER TABLE schedules ADD COLUMN purging bigint;
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
