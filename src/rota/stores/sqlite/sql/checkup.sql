-- What `rota doctor` asks.

-- name: outbox_backlog
SELECT count(*), min(next_attempt_at) FROM outbox WHERE delivered_at IS NULL AND gave_up_at IS NULL AND next_attempt_at < :before;
