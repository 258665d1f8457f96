-- A clock that was ahead deletes nothing, and what waits by it comes back: see decision 0040.

-- The last moment at which the clock was trusted to delete by age. Of an earlier store, the newest moment that it shows.
INSERT INTO meta (key, value)
SELECT 'retention_clock', greatest(0, (SELECT max(value) FROM meta WHERE key IN ('clock', 'pulse_at', 'recovered_at')),
                                   (SELECT created_at FROM job_facts ORDER BY number DESC LIMIT 1),
                                   (SELECT max(greatest(started_at, ended_at)) FROM workers));

-- PENDING jobs whose run_at is counted from a moment: that moment is their position, negated. The lowest was written by the clock furthest ahead.
CREATE INDEX live_put_off ON job_live (position) WHERE status = 'PENDING' AND position < 0;
