-- Figures by the minute, for charts of the last hours: counted as jobs end, kept for a few hours.
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
