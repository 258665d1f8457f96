-- How many handlers a worker runs at once. It may hold more jobs than that: claimed ahead, they are RUNNING and have not started.
-- NULL: a worker of an older version, or a client.
ALTER TABLE workers ADD COLUMN slots integer CHECK (slots > 0);
