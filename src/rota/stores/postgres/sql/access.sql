-- Tokens and browser sessions. Only digests are kept.

-- name: add_token
INSERT INTO tokens (token_id, name, user_name, hash, permits, created_by, created_at, expires_at)
VALUES (:token_id, :name, :user_name, :hash, :permits, :actor, :now, :expires_at) ON CONFLICT (token_id) DO NOTHING;

-- name: token_columns
hex(t.token_id), t.name, t.user_name, t.permits, t.created_by, t.created_at, t.expires_at, t.revoked_at, t.last_used_at

-- name: tokens
SELECT {token_columns} FROM tokens AS t ORDER BY t.created_at DESC, t.token_id DESC;

-- name: token
SELECT {token_columns} FROM tokens AS t WHERE t.token_id = :token_id;

-- name: token_by
SELECT {token_columns} FROM tokens AS t WHERE t.hash = :hash;

-- name: revoke_token
UPDATE tokens SET revoked_at = :now WHERE token_id = :token_id AND revoked_at IS NULL;

-- name: note_token_use
UPDATE tokens SET last_used_at = :now WHERE token_id = :token_id AND coalesce(last_used_at, 0) < :now;

-- name: add_session
INSERT INTO sessions (hash, token_id, created_at, expires_at) VALUES (:hash, :token_id, :now, :expires_at);

-- name: token_of_session
SELECT {token_columns} FROM sessions AS s JOIN tokens AS t ON t.token_id = s.token_id
 WHERE s.hash = :hash AND s.ended_at IS NULL AND s.expires_at > :now;

-- name: tokens_behind
-- Both ways by index, one row for each digest that is known.
WITH asked AS (SELECT decode(value, 'hex') AS hash FROM json_array_elements_text(:hashes::json))
SELECT encode(a.hash, 'hex'), {token_columns} FROM asked AS a JOIN tokens AS t ON t.hash = a.hash
 UNION ALL
SELECT encode(a.hash, 'hex'), {token_columns}
  FROM asked AS a JOIN sessions AS s ON s.hash = a.hash JOIN tokens AS t ON t.token_id = s.token_id
 WHERE s.ended_at IS NULL AND s.expires_at > :now;

-- name: end_session
UPDATE sessions SET ended_at = :now WHERE hash = :hash AND ended_at IS NULL;

-- name: end_sessions_of
UPDATE sessions SET ended_at = :now WHERE token_id = :token_id AND ended_at IS NULL;

-- name: forget_sessions
DELETE FROM sessions WHERE hash IN (SELECT hash FROM sessions WHERE expires_at <= :before ORDER BY expires_at LIMIT :limit);
