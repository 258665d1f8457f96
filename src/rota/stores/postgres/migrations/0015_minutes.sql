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
