-- The types of jobs without a template, and the function that each of them calls. Workers that may import it learn it from here.
CREATE TABLE adhoc_types (
    job_type   TEXT NOT NULL PRIMARY KEY,
    handler    TEXT NOT NULL,                                    -- module:function
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
