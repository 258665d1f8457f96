-- A new lane advances the version of the definitions from bit 40 on, which only workers compare: other programs read nothing anew for it.
CREATE OR REPLACE FUNCTION lane_known() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE meta SET value = value + 1099511627776 WHERE key = 'definitions_version';
    RETURN NULL;
END $$;

-- Live jobs without a lane, which only a program of an earlier version writes: workers put them into one.
CREATE INDEX live_stray ON job_live (job_type) WHERE lane IS NULL;
