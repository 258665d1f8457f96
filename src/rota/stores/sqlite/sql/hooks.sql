-- Webhooks: who is to be told of ends, and the outbox.

-- name: any_endpoints
SELECT EXISTS (SELECT 1 FROM endpoints INDEXED BY endpoints_open WHERE organization_id > '' AND state = 'ENABLED' AND dropped_at IS NULL);

-- name: hooked_ends
-- Each of these ends with each endpoint that may want to know: those of its organization, then the one of its chain.
SELECT {hooked_columns}
  FROM json_each(:numbers) AS n CROSS JOIN jobs AS j ON j.number = n.value
 CROSS JOIN endpoints AS h INDEXED BY endpoints_open ON h.organization_id = j.organization_id AND h.root_id IS NULL AND {is_told}
  LEFT JOIN job_runs AS r ON r.job_number = j.number
UNION ALL
SELECT {hooked_columns}
  FROM json_each(:numbers) AS n CROSS JOIN jobs AS j ON j.number = n.value
 CROSS JOIN endpoints AS h INDEXED BY endpoints_open ON h.organization_id = j.organization_id AND h.root_id = j.root_id AND {is_told}
  LEFT JOIN job_runs AS r ON r.job_number = j.number;

-- name: is_told
h.state = 'ENABLED' AND h.dropped_at IS NULL

-- name: hooked_columns
-- In the order of rota.model.webhooks.EndedRun; then the endpoint.
lower(hex(j.job_id)), nullif(lower(hex(r.run_id)), ''), lower(hex(j.root_id)),
iif(j.attempt = 1, j.number, (SELECT f.number FROM jobs AS f WHERE f.job_id = j.root_id)),
j.organization_id, j.job_type, j.attempt, j.status, j.reason, coalesce(r.error_type, j.error_type), substr(r.error, 1, :most),
j.created_at, j.queued_at, j.started_at, j.finished_at, EXISTS (SELECT 1 FROM jobs AS s WHERE s.retry_of = j.job_id),
iif(h.with_result, r.result, NULL), lower(hex(h.endpoint_id)), h.url, h.events, h.job_types

-- name: add_mail
-- Each row: [event, job, run, url, payload, endpoint, organization, lane].
INSERT INTO outbox (event, job_id, run_id, target, payload, endpoint_id, organization_id, lane, next_attempt_at, created_at)
SELECT e.value ->> 0, unhex(e.value ->> 1), unhex(e.value ->> 2), e.value ->> 3, e.value ->> 4, unhex(e.value ->> 5), e.value ->> 6,
       e.value ->> 7, :now, :now
  FROM json_each(:rows) AS e;

-- ---- endpoints -----------------------------------------------------------------------------------------------------------------

-- name: endpoint_columns
lower(hex(h.endpoint_id)), h.organization_id, h.url, h.events, h.job_types, nullif(lower(hex(h.root_id)), ''), h.with_result, h.description, h.state,
h.reason, h.failing_since, h.last_status, h.last_error, h.version, h.created_by, h.created_at, h.updated_at

-- name: add_endpoint
INSERT INTO endpoints (endpoint_id, organization_id, root_id, url, description, events, job_types, with_result, created_by, created_at, updated_at)
VALUES (unhex(:endpoint_id), :organization_id, unhex(:chain), :url, :description, :events, :kinds, :with_result, :actor, :now, :now)
ON CONFLICT (endpoint_id) DO NOTHING;

-- name: endpoint
SELECT {endpoint_columns} FROM endpoints AS h WHERE h.endpoint_id = unhex(:endpoint_id) AND h.dropped_at IS NULL;

-- name: endpoints
SELECT {endpoint_columns} FROM endpoints AS h
 WHERE h.dropped_at IS NULL AND h.root_id IS NULL AND (:organization_id IS NULL OR h.organization_id = :organization_id)
 ORDER BY h.created_at DESC, h.endpoint_id DESC;

-- name: count_endpoints
SELECT count(*) FROM endpoints WHERE organization_id = :organization_id AND root_id IS NULL AND dropped_at IS NULL;

-- name: change_endpoint
UPDATE endpoints SET url = :url, description = :description, events = :events, job_types = :kinds, with_result = :with_result,
                     state = :state, reason = :reason, updated_at = :now, version = version + 1,
                     failing_since = iif(:fresh, NULL, failing_since), last_status = iif(:fresh, NULL, last_status),
                     last_error = iif(:fresh, NULL, last_error)
 WHERE endpoint_id = unhex(:endpoint_id) AND dropped_at IS NULL;

-- name: drop_endpoint
UPDATE endpoints SET dropped_at = :now, updated_at = :now WHERE endpoint_id = unhex(:endpoint_id) AND dropped_at IS NULL;

-- name: endpoint_failed
UPDATE endpoints SET failing_since = coalesce(failing_since, :at), last_status = :code, last_error = :error
 WHERE endpoint_id = unhex(:endpoint_id);

-- name: endpoint_well
UPDATE endpoints SET failing_since = NULL, last_status = NULL, last_error = NULL
 WHERE endpoint_id = unhex(:endpoint_id) AND failing_since IS NOT NULL;

-- name: endpoint_gone
UPDATE endpoints SET state = 'DISABLED', reason = :reason, updated_at = :now, version = version + 1
 WHERE endpoint_id = unhex(:endpoint_id) AND state = 'ENABLED' AND dropped_at IS NULL;

-- name: failing_endpoints
SELECT lower(hex(endpoint_id)), organization_id, failing_since, last_error FROM endpoints
 WHERE failing_since < :before AND state = 'ENABLED' AND dropped_at IS NULL ORDER BY failing_since LIMIT :limit;

-- name: enabled_endpoints
SELECT lower(hex(endpoint_id)), organization_id, url, events, job_types FROM endpoints WHERE state = 'ENABLED' AND dropped_at IS NULL LIMIT :limit;

-- name: remove_endpoints
DELETE FROM endpoints WHERE root_id IN (SELECT j.root_id FROM json_each(:numbers) AS e CROSS JOIN jobs AS j ON j.number = e.value);

-- ---- secrets -------------------------------------------------------------------------------------------------------------------

-- name: set_secret
INSERT INTO hook_secrets AS s (owner, secret, created_at) VALUES (:owner, :secret, :now)
    ON CONFLICT (owner) DO UPDATE
   SET previous = s.secret, previous_until = :until, secret = excluded.secret, created_at = excluded.created_at
 WHERE s.secret <> excluded.secret;

-- name: secrets
SELECT secret, iif(previous_until > :now, previous, NULL) FROM hook_secrets WHERE owner = :owner;

-- name: sign
UPDATE organizations SET signs = 1 WHERE organization_id = :organization_id AND signs = 0;

-- name: signs
-- Whether there is a secret for messages of single jobs: who may ask need not be let to the secrets.
SELECT signs FROM organizations WHERE organization_id = :organization_id;

-- name: drop_secret
DELETE FROM hook_secrets WHERE owner = :owner;

-- name: signing_secrets
SELECT owner, secret, previous FROM hook_secrets WHERE owner > :after_owner ORDER BY owner LIMIT :limit;

-- name: reseal_signing
-- The same secrets under another key. Those that were changed in the meantime are left.
UPDATE hook_secrets SET secret = :secret, previous = :previous WHERE owner = :owner AND secret = :old_secret AND previous IS :old_previous;

-- name: keys_of_signing
-- The master keys of secrets, which follow the word sealed; '': one that is not encrypted.
SELECT key_id, count(*)
  FROM (SELECT CASE WHEN secret LIKE 'sealed:%' THEN substr(secret, 8, 16) ELSE '' END AS key_id FROM hook_secrets
         UNION ALL
        SELECT CASE WHEN previous LIKE 'sealed:%' THEN substr(previous, 8, 16) ELSE '' END FROM hook_secrets WHERE previous IS NOT NULL) AS k
 GROUP BY key_id ORDER BY key_id;

-- ---- the outbox ----------------------------------------------------------------------------------------------------------------

-- name: is_open
delivered_at IS NULL AND gave_up_at IS NULL

-- name: mail
SELECT (SELECT min(next_attempt_at) FROM outbox WHERE {is_open}),
       (SELECT min(coalesce(delivered_at, gave_up_at)) FROM outbox WHERE coalesce(delivered_at, gave_up_at) IS NOT NULL),
       (SELECT r.created_at FROM schedule_reports AS r WHERE r.created_at > 0 AND r.report_id <> (SELECT max(n.report_id) FROM schedule_reports AS n)
         ORDER BY r.created_at LIMIT 1);

-- name: open_lanes
-- Lanes with messages under way, from one on: a hop from one to the next, however many wait in each.
WITH RECURSIVE step (lane) AS (
    SELECT min(lane) FROM outbox WHERE lane > :message_lane AND {is_open}
    UNION ALL
    SELECT (SELECT min(lane) FROM outbox WHERE lane > step.lane AND {is_open}) FROM step WHERE step.lane IS NOT NULL
     LIMIT :limit + 1
)
SELECT lane, (SELECT min(o.next_attempt_at) FROM outbox AS o WHERE o.lane = step.lane AND {is_open}) FROM step WHERE lane IS NOT NULL;

-- name: take_mail
UPDATE outbox SET next_attempt_at = :until
 WHERE outbox_id IN (SELECT outbox_id FROM outbox WHERE lane = :message_lane AND {is_open} AND next_attempt_at <= :now
                      ORDER BY next_attempt_at LIMIT :limit)
RETURNING outbox_id;

-- name: parcels
-- What it takes to send these. A secret of its own, or the organization's.
SELECT o.outbox_id, o.next_attempt_at, nullif(lower(hex(o.endpoint_id)), ''), o.lane, o.event, coalesce(o.message_key, lower(hex(coalesce(o.run_id, o.job_id)))), o.payload, o.attempts,
       iif({is_told}, h.url, NULL), s.owner, s.secret, iif(s.previous_until > :now, s.previous, NULL)
  FROM json_each(:rowids) AS e CROSS JOIN outbox AS o ON o.outbox_id = e.value
  LEFT JOIN endpoints AS h ON h.endpoint_id = o.endpoint_id
  LEFT JOIN hook_secrets AS s ON s.owner = iif(h.root_id IS NULL, lower(hex(h.endpoint_id)), 'organization:' || h.organization_id)
 ORDER BY o.outbox_id;

-- name: settle_mail
-- As long as it is still the one that was taken on: after its lease another may have it.
UPDATE outbox SET attempts = attempts + :sent, last_status = :code, last_error = :error, last_attempt_at = iif(:sent, :at, last_attempt_at),
                  next_attempt_at = coalesce(:next_at, next_attempt_at), delivered_at = :delivered_at, gave_up_at = :gave_up_at
 WHERE outbox_id = :rowid AND next_attempt_at = :lease AND {is_open};

-- name: delivery_columns
o.outbox_id, nullif(lower(hex(o.endpoint_id)), ''), o.organization_id, o.event, coalesce(o.message_key, lower(hex(coalesce(o.run_id, o.job_id)))), nullif(lower(hex(o.job_id)), ''), (SELECT s.name FROM schedules AS s WHERE s.schedule_id = o.schedule_id), o.target,
o.attempts, o.next_attempt_at, o.last_attempt_at, o.last_status, o.last_error, o.created_at, o.delivered_at, o.gave_up_at

-- name: delivery
SELECT {delivery_columns} FROM outbox AS o WHERE o.outbox_id = :rowid;

-- name: deliveries
SELECT {delivery_columns} FROM outbox AS o WHERE o.outbox_id < :before_id AND {of_state} ORDER BY o.outbox_id DESC LIMIT :limit;

-- name: deliveries_of_organization
SELECT {delivery_columns} FROM outbox AS o WHERE o.organization_id = :organization_id AND o.outbox_id < :before_id AND {of_state}
 ORDER BY o.outbox_id DESC LIMIT :limit;

-- name: deliveries_of_endpoint
SELECT {delivery_columns} FROM outbox AS o
 WHERE o.endpoint_id = unhex(:endpoint_id) AND o.outbox_id < :before_id AND {of_state}
   AND (:organization_id IS NULL OR o.organization_id = :organization_id)
 ORDER BY o.outbox_id DESC LIMIT :limit;

-- name: of_state
CASE :state WHEN 'waiting' THEN +o.delivered_at IS NULL AND +o.gave_up_at IS NULL WHEN 'delivered' THEN +o.delivered_at IS NOT NULL
            WHEN 'gave up' THEN +o.gave_up_at IS NOT NULL ELSE true END

-- name: written_at
coalesce(last_attempt_at, created_at)

-- name: send_as_soon
-- Messages that wait for a time that was reckoned by a clock that was ahead wait as long from now on; those that such a clock took on wait no more.
UPDATE outbox SET next_attempt_at = CASE WHEN {written_at} > :ahead THEN :now + max(0, next_attempt_at - {written_at}) ELSE :now END,
                  created_at = min(created_at, :now), last_attempt_at = iif(last_attempt_at > :now, :now, last_attempt_at)
 WHERE outbox_id IN (SELECT outbox_id FROM outbox INDEXED BY outbox_due WHERE {is_open} AND next_attempt_at > :ahead
                        AND ({written_at} > :ahead OR next_attempt_at - :span > :ahead));

-- name: redeliver
UPDATE outbox SET attempts = 0, next_attempt_at = :now, delivered_at = NULL, gave_up_at = NULL WHERE outbox_id = :rowid;

-- name: forget_deliveries
DELETE FROM outbox WHERE outbox_id IN (
    SELECT outbox_id FROM outbox WHERE coalesce(delivered_at, gave_up_at) IS NOT NULL AND coalesce(delivered_at, gave_up_at) < :before
     ORDER BY coalesce(delivered_at, gave_up_at) LIMIT :limit);
