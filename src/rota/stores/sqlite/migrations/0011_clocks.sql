-- A clock that was ahead deletes nothing, and what waits by it comes back: see decision 0040.

-- The last moment at which the clock was trusted to delete by age. Of an earlier store, the newest moment that it shows.
INSERT INTO meta (key, value)
SELECT 'retention_clock', max(coalesce((SELECT max(value) FROM meta WHERE key IN ('clock', 'pulse_at', 'recovered_at')), 0),
                              coalesce((SELECT created_at FROM jobs ORDER BY number DESC LIMIT 1), 0),
                              coalesce((SELECT max(max(started_at, coalesce(ended_at, 0))) FROM workers), 0));

-- PENDING jobs whose run_at is counted from a moment: that moment is their position, negated. The lowest was written by the clock furthest ahead.
CREATE INDEX jobs_put_off ON jobs (position) WHERE status = 'PENDING' AND position < 0;
