"""Webhooks in SQL: endpoints and their secrets, messages of ends, written in the transaction of the move, and their delivery.

Every end of a job passes `tell_of`, as it passes the figures. Where nobody is to be told, nothing is asked for it: a turn knows it from
its first look, and ends that belong to no turn from theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec

from rota.errors import ChangedMeanwhile, InvalidOption, NotFound
from rota.model.gate import EVERYTHING, SYSTEM, Actor, Scope
from rota.model.states import Status
from rota.model.values import BROKEN_ROW, Instant, NewRow, dashed, moment, moment_of
from rota.model.webhooks import (
    ERROR_MAX,
    RUN_EVENTS,
    Delivery,
    DeliveryState,
    EndedRun,
    Event,
    Webhook,
    WebhookState,
    error_text,
    event_of,
    lane_of,
    organization_of,
    organization_owner,
    owner_of,
    payload_of,
)
from rota.ports.hooks import EndpointChange, Mail, Parcel, Settled, Taken
from rota.stores.verbs.db import Db, audit

LANES_MAX = 200
"""Lanes that are looked at in one round; the next goes on behind them."""
NEWEST = 2**62
LOOKED_AT_MAX = 10_000
"""Endpoints that `rota doctor` reads."""
BY_HAND = "disabled by hand"
GONE = "the receiver answered 410 Gone: it wants nothing any more"
_encode = msgspec.json.Encoder().encode
_EVENTS = {str(event): event for event in Event}
_names = msgspec.json.Decoder(tuple[str, ...])
log = logging.getLogger("rota.store")
_strings = msgspec.json.Decoder(list[str]).decode
_FACTS = len(EndedRun.__struct_fields__)
_ALL = _encode(RUN_EVENTS).decode()


def endpoints(db: Db, *, scope: Scope = EVERYTHING) -> list[Webhook]:
    """Return the webhooks of organizations."""
    return [_webhook(row) for row in db.rows("endpoints", organization_id=scope.organization)]


def set_secret(db: Db, owner: str, secret: str, *, organization: str, previous_until: Instant, actor: Actor, now: Instant) -> None:
    """Sign with another secret from now on."""
    if db.change("set_secret", owner=owner, secret=secret, until=previous_until, now=now):
        if owner == organization_owner(organization):
            db.change("sign", organization_id=organization)
        audit(db, actor, now, "webhook.rotate", ("webhook", owner), organization=organization)


def secrets(db: Db, owner: str, *, now: Instant) -> tuple[str, ...]:
    """Return what messages are signed with."""
    row = db.row("secrets", owner=owner, now=now)
    return () if row is None else tuple(each for each in row if each is not None)


# ---- the outbox -------------------------------------------------------------------------------------------


def mail(db: Db) -> Mail:
    """Look at the outbox."""
    return Mail(*db.rows("mail")[0])


def take_mail(
    db: Db,
    settled: Sequence[Settled],
    *,
    now: Instant,
    until: Instant,
    limit: int,
    each: int,
    busy: Collection[str] = (),
    after: str = "",
) -> Taken:
    """Write what came of messages, and take on what is due."""
    for one in settled:
        _settle(db, one, now)
    return _take(db, now, until, limit=limit, each=each, busy=frozenset(busy), after=after) if limit else Taken([], after)


def deliveries(
    db: Db,
    *,
    scope: Scope = EVERYTHING,
    endpoint_id: str | None = None,
    state: DeliveryState | None = None,
    before: int | None = None,
    limit: int,
) -> list[Delivery]:
    """Return messages, newest first."""
    values: dict[str, Any] = {"before_id": NEWEST if before is None else before, "state": state, "limit": limit}
    if endpoint_id is not None:
        rows = db.rows("deliveries_of_endpoint", endpoint_id=endpoint_id, organization_id=scope.organization, **values)
    elif scope.organization is not None:
        rows = db.rows("deliveries_of_organization", organization_id=scope.organization, **values)
    else:
        rows = db.rows("deliveries", **values)
    return [_delivery(row) for row in rows]


def forget_deliveries(db: Db, *, before: Instant, limit: int) -> int:
    """Remove old messages."""
    return db.change("forget_deliveries", before=before, limit=limit)


def write_pulse(db: Db, *, now: Instant) -> None:
    """Commit a small write."""
    db.change("write_pulse", now=now)


def forget_reports(db: Db, *, before: Instant, limit: int) -> int:
    """Remove old reports."""
    return db.change("forget_reports", before=before, limit=limit)


# ---- endpoints -------------------------------------------------------------------------------------------------------


def add_endpoint(db: Db, webhook: Webhook, secret: str, *, most: int, actor: Actor, now: Instant) -> None:
    """Keep a new webhook and its secret."""
    if db.value("count_endpoints", organization_id=webhook.organization) >= most:
        raise InvalidOption(
            f"organization {webhook.organization!r} has {most:,} webhooks already: delete one, or raise the setting webhook_max"
        )
    endpoint_id = webhook.id.replace("-", "")
    added = db.change(
        "add_endpoint",
        endpoint_id=endpoint_id,
        organization_id=webhook.organization,
        chain=None if webhook.job is None else webhook.job.replace("-", ""),
        actor=webhook.created_by,
        now=now,
        **_columns(webhook),
    )
    if added:
        db.change("set_secret", owner=owner_of(endpoint_id), secret=secret, until=now, now=now)
        audit(db, actor, now, "webhook.create", ("webhook", endpoint_id), after=_shown(webhook), organization=webhook.organization)


def change_endpoint(db: Db, endpoint_id: str, change: EndpointChange, *, version: int | None, actor: Actor, now: Instant) -> Webhook:
    """Change a webhook."""
    before = _there(db, endpoint_id)
    if version is not None and version != before.version:
        raise ChangedMeanwhile(f"webhook {before.id}", has=before.version, given=version)
    given = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not msgspec.UNSET}
    wanted = msgspec.structs.replace(before, **given)
    if wanted == before:
        return before
    if wanted.state is WebhookState.ENABLED and _is_broken(db, endpoint_id) and not {"url", "events", "job_types"} <= given.keys():
        raise InvalidOption(f"webhook {before.id} can't be read: pass url, events and job_types to enable it, or delete it")
    disabled = wanted.state is WebhookState.DISABLED
    db.change(
        "change_endpoint",
        endpoint_id=endpoint_id,
        state=wanted.state,
        reason=(before.reason or BY_HAND) if disabled else None,
        fresh=int(before.state is WebhookState.DISABLED and not disabled),
        now=now,
        **_columns(wanted),
    )
    after = _there(db, endpoint_id)
    subject, organization = ("webhook", endpoint_id), before.organization
    audit(db, actor, now, "webhook.change", subject, before=_shown(before), after=_shown(after), organization=organization)
    return after


def drop_endpoint(db: Db, endpoint_id: str, *, actor: Actor, now: Instant) -> None:
    """Delete a webhook."""
    before = _there(db, endpoint_id)
    db.change("drop_endpoint", endpoint_id=endpoint_id, now=now)
    db.change("drop_secret", owner=owner_of(endpoint_id))
    audit(db, actor, now, "webhook.delete", ("webhook", endpoint_id), before=_shown(before), organization=before.organization)


def _there(db: Db, endpoint_id: str) -> Webhook:
    found = endpoint(db, endpoint_id)
    if found is None:
        raise no_webhook(dashed(endpoint_id))
    return found


def no_webhook(name: str) -> NotFound:
    """Return what is said of a webhook that is not there, or that is somebody else's."""
    return NotFound(f"there is no webhook {name}: `rota webhook list` shows them")


def endpoint(db: Db, endpoint_id: str) -> Webhook | None:
    """Return a webhook."""
    row = db.row("endpoint", endpoint_id=endpoint_id)
    return None if row is None else _webhook(row)


def _is_broken(db: Db, endpoint_id: str) -> bool:
    row = db.row("endpoint", endpoint_id=endpoint_id)
    return row is not None and (bool(name_flaws(row[2], row[3], row[4])) or (row[9] or "").startswith(BROKEN_ROW))


def unreadable_endpoints(db: Db) -> list[tuple[str, str, str]]:
    """Return enabled endpoints that can't be read: their id, their organization, and why."""
    found = []
    for endpoint_id, organization, *columns in db.rows("enabled_endpoints", limit=LOOKED_AT_MAX):
        if flaws := name_flaws(*columns):
            found.append((endpoint_id, organization, ", ".join(flaws)))
    return found


def set_endpoints_aside(db: Db, now: Instant) -> list[str]:
    """Disable endpoints that can't be read; return their names with the reasons."""
    disabled = []
    for endpoint_id, organization, why in unreadable_endpoints(db):
        reason = f"{BROKEN_ROW}{why}"
        if db.change("endpoint_gone", endpoint_id=endpoint_id, reason=reason, now=now):
            audit(db, SYSTEM, now, "webhook.disable", ("webhook", endpoint_id), after={"reason": reason}, organization=organization)
            disabled.append(f"{dashed(endpoint_id)} of {organization} ({why})")
    return disabled


def _columns(webhook: Webhook) -> dict[str, Any]:
    return {
        "url": webhook.url,
        "description": webhook.description,
        "events": _encode(webhook.events).decode(),
        "kinds": _encode(webhook.job_types).decode(),
        "with_result": int(webhook.with_result),
    }


def _shown(webhook: Webhook) -> dict[str, Any]:
    """Return a webhook as the audit shows it."""
    fields = ("url", "events", "job_types", "with_result", "description", "state", "reason")
    return {name: getattr(webhook, name) for name in fields}


def _webhook(row: tuple[Any, ...]) -> Webhook:
    """Build a Webhook. One that can't be read is shown as disabled, for it gets no messages: it keeps no page from being shown."""
    flaws = name_flaws(row[2], row[3], row[4])
    if flaws:
        shown = list(row)
        for place, name in ((3, "events"), (4, "job_types")):
            shown[place] = "[]" if name in flaws.values() else shown[place]
        shown[8:10] = [WebhookState.DISABLED, f"{BROKEN_ROW}{', '.join(flaws)}"]
        row = tuple(shown)
    return Webhook(
        id=dashed(row[0]),
        organization=row[1],
        url=row[2],
        # A later version may know more of them.
        events=tuple(_EVENTS.get(name, name) for name in _names.decode(row[3])),  # type: ignore[arg-type]
        job_types=_names.decode(row[4]),
        job=None if row[5] is None else dashed(row[5]),
        with_result=bool(row[6]),
        description=row[7],
        state=WebhookState(row[8]),
        reason=row[9],
        failing_since=moment(row[10]),
        last_status=row[11],
        last_error=row[12],
        version=row[13],
        created_by=row[14],
        created_at=moment_of(row[15]),
        updated_at=moment_of(row[16]),
    )


# ---- the outbox ------------------------------------------------------------------------------------------------------


def _settle(db: Db, settled: Settled, now: Instant) -> None:
    parcel, sent, verdict = settled.parcel, settled.sent, settled.verdict
    told = db.change(
        "settle_mail",
        rowid=parcel.id,
        lease=parcel.lease,
        sent=int(parcel.url is not None),
        code=sent.status,
        error=error_text(sent),
        at=settled.at,
        next_at=verdict.next_at,
        delivered_at=settled.at if verdict.delivered else None,
        gave_up_at=settled.at if verdict.gave_up else None,
    )
    if not told or parcel.url is None or parcel.endpoint_id is None:
        return
    if verdict.delivered:
        db.change("endpoint_well", endpoint_id=parcel.endpoint_id)
        return
    db.change("endpoint_failed", endpoint_id=parcel.endpoint_id, at=settled.at, code=sent.status, error=error_text(sent))
    if sent.gone and db.change("endpoint_gone", endpoint_id=parcel.endpoint_id, reason=GONE, now=now):
        whose = organization_of(parcel.lane)
        audit(db, SYSTEM, now, "webhook.disable", ("webhook", parcel.endpoint_id), after={"reason": GONE}, organization=whose)


def _take(db: Db, now: Instant, until: Instant, *, limit: int, each: int, busy: frozenset[str], after: str) -> Taken:
    lanes = db.rows("open_lanes", message_lane=after, limit=LANES_MAX)
    taken: list[int] = []
    for lane, next_at in lanes:
        if next_at is None or next_at > now or lane in busy or f" {organization_of(lane)}" in busy:
            continue
        taken += [row[0] for row in db.rows("take_mail", message_lane=lane, now=now, until=until, limit=min(each, limit - len(taken)))]
        if len(taken) >= limit:
            # Those behind are the first of the next round.
            after = lane
            break
    else:
        after = lanes[-1][0] if len(lanes) >= LANES_MAX else ""
    return Taken([_parcel(row) for row in db.rows("parcels", rowids=taken, now=now)] if taken else [], after)


def _parcel(row: tuple[Any, ...]) -> Parcel:
    number, lease, endpoint_id, lane, event, key, payload, attempts, url, owner, *secrets = row
    return Parcel(
        id=number,
        lease=lease,
        endpoint_id=endpoint_id,
        lane=lane,
        event=event,
        key=_key(key),
        payload=payload,
        attempts=attempts,
        url=url,
        owner=owner or "",
        secrets=tuple(each for each in secrets if each is not None),
    )


def redeliver(db: Db, delivery_id: int, *, scope: Scope, actor: Actor, now: Instant) -> Delivery:
    """Send a message again."""
    row = db.row("delivery", rowid=delivery_id)
    if row is None or not scope.holds(row[2], None):
        raise NotFound(f"there is no delivery {delivery_id}: `rota webhook deliveries` shows them")
    before = _delivery(row)
    db.change("redeliver", rowid=delivery_id, now=now)
    subject = ("webhook", row[1] or "")
    audit(
        db, actor, now, "webhook.redeliver", subject, after={"delivery": delivery_id, "key": before.key}, organization=before.organization
    )
    found = db.row("delivery", rowid=delivery_id)
    assert found is not None  # noqa: S101 - it was there above, in this transaction
    return _delivery(found)


def _key(text: str) -> str:
    """Return the `webhook-id`: an id of ours gets its dashes, a report's key is used as it is."""
    return dashed(text) if len(text) == 32 else text


def _delivery(row: tuple[Any, ...]) -> Delivery:
    delivered, gave_up = row[14], row[15]
    waiting = delivered is None and gave_up is None
    return Delivery(
        id=row[0],
        webhook=None if row[1] is None else dashed(row[1]),
        organization=row[2],
        event=row[3],
        key=_key(row[4]),
        job=None if row[5] is None else dashed(row[5]),
        schedule=row[6],
        url=row[7],
        state=DeliveryState.WAITING if waiting else DeliveryState.GAVE_UP if delivered is None else DeliveryState.DELIVERED,
        attempts=row[8],
        next_attempt_at=moment(row[9]) if waiting else None,
        last_attempt_at=moment(row[10]),
        last_status=row[11],
        last_error=row[12],
        created_at=moment_of(row[13]),
        delivered_at=moment(delivered),
        gave_up_at=moment(gave_up),
    )


def tell_of(db: Db, numbers: Sequence[int], now: Instant, *, hooked: bool | None = None) -> bool:
    """Write the messages of jobs that have just ended, successors and all; say whether there were any.

    `hooked`: whether there is any webhook at all, if the caller knows it already.
    """
    if not numbers or not (db.value("any_endpoints") if hooked is None else hooked):
        return False
    rows = [row for found in db.rows("hooked_ends", numbers=numbers, most=ERROR_MAX + 1) if (row := _message(found))]
    if rows:
        db.change("add_mail", rows=rows, now=now)
    return bool(rows)


def _message(found: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return one row of the outbox; None if the endpoint does not want to know of this end."""
    result, endpoint_id, url, events, job_types = found[_FACTS:]
    end = EndedRun(*found[:_FACTS])
    end.goes_on = bool(end.goes_on)
    event = event_of(Status(end.status), goes_on=end.goes_on)
    if event is None:
        return None
    lane = lane_for((endpoint_id, url, events, job_types), event, end.job_type, end.organization_id)
    if lane is None:
        return None
    return event, end.job_id, end.run_id, url, payload_of(event, end, result), endpoint_id, end.organization_id, lane


def lane_for(endpoint: tuple[str, str, str, str], event: str, job_type: str, organization: str) -> str | None:
    """Return the lane of a message to an endpoint (its id, URL, events and job types); None if it does not want it or can't be read."""
    endpoint_id, url, events, job_types = endpoint
    try:
        wanted, types = _filters(events, job_types)
        return lane_of(url, organization) if event in wanted and (not types or job_type in types) else None
    except ValueError:
        log_skipped(endpoint_id, ", ".join(name_flaws(url, events, job_types)))
        return None


@lru_cache(maxsize=1000)
def _filters(events: str, job_types: str) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(_strings(events)), frozenset(_strings(job_types))


@lru_cache(maxsize=1000)
def log_skipped(endpoint_id: str, why: str) -> None:
    """Log once that an endpoint gets no messages."""
    log.error("webhook %s gets no messages: %s. `rota repair` disables it", dashed(endpoint_id), why)


def name_flaws(url: str, events: str, job_types: str) -> dict[str, str]:
    """Return what can't be read of an endpoint: what is said of it, and the name of the column."""
    flaws: dict[str, str] = {}
    for name, read, value in (("url", urlsplit, url), ("events", _strings, events), ("job_types", _strings, job_types)):
        try:
            read(value)
        except ValueError:
            flaws[f"its {name} can't be read"] = name
    return flaws


def attach(db: Db, row: NewRow, now: Instant) -> None:
    """Let a URL be told of the ends of a chain that has just been added. The endpoint has the id of the chain."""
    if not db.value("signs", organization_id=row.organization_id):
        raise InvalidOption(
            f"organization {row.organization_id!r} has no secret to sign the messages of single jobs with: "
            "`rota webhook rotate --organization` makes one and shows it once"
        )
    db.change(
        "add_endpoint",
        endpoint_id=row.job_id,
        organization_id=row.organization_id,
        chain=row.job_id,
        url=row.webhook,
        description=None,
        events=_ALL,
        kinds="[]",
        with_result=0,
        actor=row.owner,
        now=now,
    )
