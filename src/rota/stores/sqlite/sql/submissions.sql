-- What templates allow of submissions: the same params once in a window, so many jobs in a window.

-- name: duplicate_of
SELECT lower(hex(job_id)), expires_at FROM dedup
 WHERE organization_id = :organization_id AND template_id = :template_id AND hash = :hash AND expires_at > :now AND expires_at <= :until;

-- name: remember_hash
INSERT INTO dedup (organization_id, template_id, hash, job_id, expires_at) VALUES (:organization_id, :template_id, :hash, :job_id, :expires_at)
ON CONFLICT (organization_id, template_id, hash) DO UPDATE SET job_id = excluded.job_id, expires_at = excluded.expires_at;

-- name: submitted
SELECT coalesce(sum(count), 0) FROM rate_log WHERE key = :key AND at > :since AND at <= :until;

-- name: submissions
SELECT at, count FROM rate_log WHERE key = :key AND at > :since AND at <= :until ORDER BY at;

-- name: log_submissions
INSERT INTO rate_log (key, at, count) VALUES (:key, :now, :count)
ON CONFLICT (key, at) DO UPDATE SET count = count + excluded.count;

-- name: forget_submissions
DELETE FROM rate_log WHERE key = :key AND at <= :since;
