-- A job that follows a group, and the results of what a job waited for: see decision 0051.

-- Which of its parents this is, in the order in which the job named them.
ALTER TABLE job_edges ADD COLUMN place INTEGER;

-- The members up to this one had ended when somebody last looked for one that has not: the next look begins behind them.
ALTER TABLE job_groups ADD COLUMN passed INTEGER NOT NULL DEFAULT 0;
