-- A new lane advances the version of the definitions from bit 40 on, which only workers compare: other programs read nothing anew for it.
DROP TRIGGER lanes_known;
CREATE TRIGGER lanes_known AFTER INSERT ON lanes
BEGIN
    UPDATE meta SET value = value + 1099511627776 WHERE key = 'definitions_version';
END;

-- Live jobs without a lane, which only a program of an earlier version writes: workers put them into one.
CREATE INDEX jobs_stray ON jobs (job_type) WHERE lane IS NULL AND finished_at IS NULL;
