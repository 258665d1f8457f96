-- The types of jobs without a template, and the function that each of them calls. Workers that may import it learn it from here.
CREATE TABLE adhoc_types (
    job_type   text COLLATE "C" PRIMARY KEY,
    handler    text NOT NULL,                                                 -- module:function
    created_by text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL
);
