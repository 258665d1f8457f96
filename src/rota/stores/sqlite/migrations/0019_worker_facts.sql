-- What people want to know of a worker: its process, the version of Rota that it runs, and the memory it has in use as of its last beat, in bytes.
ALTER TABLE workers ADD COLUMN pid INTEGER;
ALTER TABLE workers ADD COLUMN rota_version TEXT;
ALTER TABLE workers ADD COLUMN memory INTEGER;
