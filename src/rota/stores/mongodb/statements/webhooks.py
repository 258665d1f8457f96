"""Webhooks: who is to be notified of ends, the secrets that sign messages, and the outbox.

A message that is neither delivered nor given up is open: its `over_at` is 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from rota.model.webhooks import organization_owner, owner_of, sealing_key
from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, row, rows, setting
from rota.stores.mongodb.schema import LIVING, OPEN, THERE
from rota.stores.mongodb.statements.jobs import root_numbers
from rota.stores.mongodb.statements.joining import among

TOLD = {"state": "ENABLED", **LIVING}
"""Endpoints that get messages."""
ENDPOINT = (
    *("_id", "organization_id", "url", "events", "job_types", "root_id", "with_result", "description", "state", "reason"),
    *("failing_since", "last_status", "last_error", "version", "created_by", "created_at", "updated_at"),
)
SPAN = {"organization_id": {"$gte": ""}}
"""Any organization, as a condition by which the server walks an index that begins with it."""

# ---- messages of ends ------------------------------------------------------------------------------------------------


@statement
def any_endpoints(db: Db) -> list[Row]:
    """Say whether any endpoint gets messages."""
    return [(db.has("endpoints", SPAN | TOLD),)]


@statement
def hooked_ends(db: Db, *, numbers: Sequence[int], most: int) -> list[Row]:
    """Return each of these ends with each endpoint that may want to know: those of its organization, then the one of its chain."""
    facts = list(among(db, "job_facts", "_id", numbers, FACT))
    told = _told(db, facts)
    hooked = [fact for fact in facts if fact["_id"] in told]
    if not hooked:
        return []
    keys = [fact["_id"] for fact in hooked]
    ends = {end["_id"]: end for end in among(db, "job_ends", "_id", keys, END)}
    notes = {note["_id"]: note for note in among(db, "run_notes", "_id", keys, ("error", "error_type", "result"))}
    retried = {fact["retry_of"] for fact in among(db, "job_facts", "retry_of", [fact["job_id"] for fact in hooked], ("retry_of",))}
    roots = root_numbers(db, hooked)
    found: list[Row] = []
    for fact in hooked:
        end, note = ends.get(fact["_id"]), notes.get(fact["_id"], {})
        if end is None:
            continue
        whole = end | fact
        whole["root_number"] = roots.get(fact["root_id"])
        whole["error_type"] = note.get("error_type", end.get("error_type"))
        whole["error"] = note["error"][:most] if "error" in note else None
        whole["goes_on"] = fact["job_id"] in retried
        for endpoint_ in told[fact["_id"]]:
            result = note.get("result") if endpoint_["with_result"] else None
            found.append((*row(whole, ENDED_RUN), result, *row(endpoint_, ("_id", "url", "events", "job_types"))))
    return found


FACT = ("job_id", "root_id", "organization_id", "job_type", "attempt", "created_at")
END = ("run_id", "status", "reason", "error_type", "queued_at", "started_at", "finished_at")
ENDED_RUN = (
    *("job_id", "run_id", "root_id", "root_number", "organization_id", "job_type", "attempt", "status", "reason", "error_type", "error"),
    *("created_at", "queued_at", "started_at", "finished_at", "goes_on"),
)


def _told(db: Db, facts: Collection[Document]) -> dict[int, list[Document]]:
    """Return the endpoints that may want to know of jobs, by their numbers."""
    columns = ("organization_id", "root_id", "url", "events", "job_types", "with_result")
    organizations = {fact["organization_id"] for fact in facts}
    of_organization: defaultdict[str, list[Document]] = defaultdict(list)
    for found in among(db, "endpoints", "organization_id", organizations, columns, root_id=None, **TOLD):
        of_organization[found["organization_id"]].append(found)
    of_chain: defaultdict[tuple[str, str], list[Document]] = defaultdict(list)
    for found in among(db, "endpoints", "root_id", {fact["root_id"] for fact in facts}, columns, **TOLD):
        of_chain[found["organization_id"], found["root_id"]].append(found)
    told = {fact["_id"]: of_organization[fact["organization_id"]] + of_chain[fact["organization_id"], fact["root_id"]] for fact in facts}
    return {number: endpoints_ for number, endpoints_ in told.items() if endpoints_}


@statement
def add_mail(db: Db, *, rows: Sequence[tuple[Any, ...]], now: int) -> int:
    """Write messages: each row has the event, the job, the run, the URL, the payload, the endpoint, the organization and the lane."""
    return add_messages(db, ("event", "job_id", "run_id", "target", "payload", "endpoint_id", "organization_id", "lane"), rows, now)


def add_messages(db: Db, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], now: int) -> int:
    """Write messages that are due now."""
    if not rows:
        return 0
    due = {"attempts": 0, "next_attempt_at": now, "created_at": now, **OPEN}
    first = db.next_numbers("outbox", len(rows))
    messages = [document(_id=number, **dict(zip(columns, values, strict=True)), **due) for number, values in enumerate(rows, first)]
    return db.insert("outbox", *messages)


# ---- endpoints -------------------------------------------------------------------------------------------------------


@statement
def add_endpoint(
    db: Db,
    *,
    endpoint_id: str,
    organization_id: str,
    chain: str | None,
    url: str,
    description: str | None,
    events: str,
    kinds: str,
    with_result: int,
    actor: str,
    now: int,
) -> int:
    """Keep a new endpoint; one that is there is left."""
    if db.has("endpoints", {"_id": ident(endpoint_id)}):
        return 0
    place = document(_id=ident(endpoint_id), organization_id=organization_id, root_id=ident(chain), url=url, description=description)
    wants = {"events": events, "job_types": kinds, "with_result": with_result}
    made = {"state": "ENABLED", "version": 1, "created_by": actor, "created_at": now, "updated_at": now}
    return db.insert("endpoints", place | wants | made)


@statement
def endpoint(db: Db, *, endpoint_id: str) -> list[Row]:
    """Return an endpoint."""
    return rows(db.find("endpoints", _one(endpoint_id), ENDPOINT), ENDPOINT)


def _one(endpoint_id: str) -> Document:
    return {"_id": ident(endpoint_id), **LIVING}


@statement
def endpoints(db: Db, *, organization_id: str | None) -> list[Row]:
    """Return the endpoints of an organization, or of all, the newest first; not those of single jobs."""
    found = db.find("endpoints", _of_organization(organization_id), ENDPOINT, sort=[("created_at", -1), ("_id", -1)])
    return rows(found, ENDPOINT)


def _of_organization(organization_id: str | None) -> Document:
    return {**(SPAN if organization_id is None else {"organization_id": organization_id}), "root_id": None, **LIVING}


@statement
def count_endpoints(db: Db, *, organization_id: str) -> list[Row]:
    """Return how many endpoints an organization has; those of single jobs are not counted."""
    return [(db.size("endpoints", _of_organization(organization_id)),)]


@statement
def change_endpoint(
    db: Db,
    *,
    endpoint_id: str,
    url: str,
    description: str | None,
    events: str,
    kinds: str,
    with_result: int,
    state: str,
    reason: str | None,
    fresh: int,
    now: int,
) -> int:
    """Change an endpoint. With `fresh`, it has not failed yet."""
    wants = {"url": url, "description": description, "events": events, "job_types": kinds, "with_result": with_result}
    change = setting(**wants, state=state, reason=reason, updated_at=now, **(WELL if fresh else {}))
    return db.update("endpoints", _one(endpoint_id), change | {"$inc": {"version": 1}})


WELL = {"failing_since": None, "last_status": None, "last_error": None}


@statement
def drop_endpoint(db: Db, *, endpoint_id: str, now: int) -> int:
    """Drop an endpoint. Its document stays."""
    return db.update("endpoints", _one(endpoint_id), {"$set": {"dropped_at": now, "updated_at": now}})


@statement
def endpoint_failed(db: Db, *, endpoint_id: str, at: int, code: int | None, error: str | None) -> int:
    """Record that an endpoint could not be reached, or did not accept a message."""
    key = {"_id": ident(endpoint_id)}
    failed = db.update("endpoints", key, setting(last_status=code, last_error=error))
    db.update("endpoints", key | {"failing_since": None}, {"$set": {"failing_since": at}})
    return failed


@statement
def endpoint_well(db: Db, *, endpoint_id: str) -> int:
    """Record that an endpoint that failed accepts messages."""
    return db.update("endpoints", {"_id": ident(endpoint_id), "failing_since": THERE}, setting(**WELL))


@statement
def endpoint_gone(db: Db, *, endpoint_id: str, reason: str, now: int) -> int:
    """Disable an endpoint that is enabled."""
    change = {"$set": {"state": "DISABLED", "reason": reason, "updated_at": now}, "$inc": {"version": 1}}
    return db.update("endpoints", _one(endpoint_id) | {"state": "ENABLED"}, change)


@statement
def failing_endpoints(db: Db, *, before: int, limit: int) -> list[Row]:
    """Return enabled endpoints that have failed for long, first those that have for longest."""
    columns = ("_id", "organization_id", "failing_since", "last_error")
    where = {"failing_since": {"$lt": before}, **TOLD}
    return rows(db.find("endpoints", where, columns, sort=[("failing_since", 1)], limit=limit), columns)


@statement
def outbox_backlog(db: Db, *, before: int) -> list[Row]:
    """Return how many messages should have been sent by then, and when the first of them."""
    overdue = {**OPEN, "next_attempt_at": {"$lt": before}}
    first = db.first("outbox", overdue, ("next_attempt_at",), sort=[("next_attempt_at", 1)], hint="outbox_due")
    return [(db.size("outbox", overdue), first["next_attempt_at"])] if first else [(0, None)]


@statement
def enabled_endpoints(db: Db, *, limit: int) -> list[Row]:
    """Return endpoints that get messages."""
    columns = ("_id", "organization_id", "url", "events", "job_types")
    return rows(db.find("endpoints", SPAN | TOLD, columns, limit=limit), columns)


@statement
def remove_endpoints(db: Db, *, numbers: Sequence[int]) -> int:
    """Remove the endpoints of the chains of these jobs."""
    roots = {fact["root_id"] for fact in db.find("job_facts", {"_id": {"$in": list(numbers)}}, ("root_id",))}
    return db.delete("endpoints", {"root_id": {"$in": list(roots)}}) if roots else 0


# ---- secrets ---------------------------------------------------------------------------------------------------------


@statement
def set_secret(db: Db, *, owner: str, secret: str, until: int, now: int) -> int:
    """Sign with a secret from now on, and with the one before it until then; the same again changes nothing."""
    present = db.first("hook_secrets", {"_id": owner}, ("secret",))
    if present is None:
        return db.insert("hook_secrets", {"_id": owner, "secret": secret, "created_at": now})
    if present["secret"] == secret:
        return 0
    change = {"previous": present["secret"], "previous_until": until, "secret": secret, "created_at": now}
    return db.update("hook_secrets", {"_id": owner}, {"$set": change})


@statement
def secrets(db: Db, *, owner: str, now: int) -> list[Row]:
    """Return the secrets that messages are signed with."""
    return [(found["secret"], _previous(found, now)) for found in db.find("hook_secrets", {"_id": owner}, SECRETS)]


SECRETS = ("secret", "previous", "previous_until")


def _previous(found: Document, now: int) -> str | None:
    return found.get("previous") if found.get("previous_until", 0) > now else None


@statement
def sign(db: Db, *, organization_id: str) -> int:
    """Record that an organization has a secret."""
    return db.update("organizations", {"_id": organization_id, "signs": 0}, {"$set": {"signs": 1}})


@statement
def signs(db: Db, *, organization_id: str) -> list[Row]:
    """Say whether there is a secret for messages of single jobs: who may ask need not be let to the secrets."""
    return rows(db.find("organizations", {"_id": organization_id}, ("signs",)), ("signs",))


@statement
def drop_secret(db: Db, *, owner: str) -> int:
    """Remove a secret."""
    return db.delete("hook_secrets", {"_id": owner})


@statement
def signing_secrets(db: Db, *, after_owner: str, limit: int) -> list[Row]:
    """Return secrets as they are stored, behind an owner."""
    columns = ("_id", "secret", "previous")
    return rows(db.find("hook_secrets", {"_id": {"$gt": after_owner}}, columns, sort=[("_id", 1)], limit=limit), columns)


@statement
def reseal_signing(db: Db, *, owner: str, secret: str, previous: str | None, old_secret: str, old_previous: str | None) -> int:
    """Keep the same secrets under another key. Those that were changed in the meantime are left."""
    where = {"_id": owner, "secret": old_secret, "previous": old_previous}
    return db.update("hook_secrets", where, setting(secret=secret, previous=previous))


@statement
def keys_of_signing(db: Db) -> list[Row]:
    """Return how many secrets are under each master key; '': not encrypted."""
    found = db.cursor("hook_secrets", {}, ("secret", "previous"))
    counts = Counter(sealing_key(text) or "" for each in found for text in (each["secret"], each.get("previous")) if text is not None)
    return sorted(counts.items())


# ---- the outbox ------------------------------------------------------------------------------------------------------


@statement
def mail(db: Db) -> list[Row]:
    """Return when the next message is due, when the oldest that is over was, and when the oldest report but the last was made."""
    due = db.first("outbox", OPEN, ("next_attempt_at",), sort=[("next_attempt_at", 1)])
    over = db.first("outbox", {"over_at": {"$gt": 0}}, ("over_at",), sort=[("over_at", 1)])
    last = db.first("schedule_reports", {}, (), sort=[("_id", -1)])
    report = last and db.first("schedule_reports", {"_id": {"$ne": last["_id"]}}, ("created_at",), sort=[("created_at", 1)])
    return [(due and due["next_attempt_at"], over and over["over_at"], report and report["created_at"])]


@statement
def open_lanes(db: Db, *, message_lane: str, limit: int) -> list[Row]:
    """Return lanes with open messages behind one, and when each is next due: a hop from one to the next, however many wait in each."""
    found = db.aggregate(
        "outbox",
        [
            {"$match": {"lane": {"$gt": message_lane}, **OPEN}},
            {"$sort": {"lane": 1, "next_attempt_at": 1}},
            {"$group": {"_id": "$lane", "next_at": {"$first": "$next_attempt_at"}}},
            {"$sort": {"_id": 1}},
            {"$limit": limit},
        ],
    )
    return [(lane["_id"], lane["next_at"]) for lane in found]


@statement
def take_mail(db: Db, *, message_lane: str, now: int, until: int, limit: int) -> list[Row]:
    """Take on the messages of a lane that have been due for longest: nobody else does until then."""
    where = {"lane": message_lane, "next_attempt_at": {"$lte": now}, **OPEN}
    keys = [message["_id"] for message in db.find("outbox", where, (), sort=[("next_attempt_at", 1)], limit=limit)]
    if keys:
        db.update("outbox", {"_id": {"$in": keys}}, {"$set": {"next_attempt_at": until}})
    return [(key,) for key in keys]


@statement
def parcels(db: Db, *, rowids: Sequence[int], now: int) -> list[Row]:
    """Return what it takes to send these messages. Messages are signed with a secret of the endpoint's own, or the organization's."""
    messages = db.find("outbox", {"_id": {"$in": list(rowids)}}, sort=[("_id", 1)])
    endpoint_ids = {message["endpoint_id"] for message in messages if "endpoint_id" in message}
    endpoints_ = {found["_id"]: found for found in among(db, "endpoints", "_id", endpoint_ids, None)}
    signed = {found["_id"]: found for found in among(db, "hook_secrets", "_id", {_owner(each) for each in endpoints_.values()}, SECRETS)}
    found: list[Row] = []
    for message in messages:
        endpoint_ = endpoints_.get(message.get("endpoint_id", ""))
        secret = None if endpoint_ is None else signed.get(_owner(endpoint_))
        told = endpoint_ is not None and endpoint_["state"] == "ENABLED" and "dropped_at" not in endpoint_
        found.append(
            (
                *row(message, ("_id", "next_attempt_at", "endpoint_id", "lane", "event")),
                _key(message),
                *row(message, ("payload", "attempts")),
                endpoint_["url"] if endpoint_ is not None and told else None,
                *((None, None, None) if secret is None else (secret["_id"], secret["secret"], _previous(secret, now))),
            )
        )
    return found


def _owner(endpoint_: Document) -> str:
    return organization_owner(endpoint_["organization_id"]) if "root_id" in endpoint_ else owner_of(endpoint_["_id"])


def _key(message: Document) -> str | None:
    return message.get("message_key") or message.get("run_id") or message.get("job_id")


@statement
def settle_mail(
    db: Db,
    *,
    rowid: int,
    lease: int,
    sent: int,
    code: int | None,
    error: str | None,
    at: int,
    next_at: int | None,
    delivered_at: int | None,
    gave_up_at: int | None,
) -> int:
    """Record what came of a message, as long as it is still the one that was taken on: after its lease another may have it."""
    over_at = delivered_at or gave_up_at or 0
    came = {"last_status": code, "last_error": error, "delivered_at": delivered_at, "gave_up_at": gave_up_at, "over_at": over_at}
    kept = document(last_attempt_at=at if sent else None, next_attempt_at=next_at)
    change = setting(**came, **kept) | {"$inc": {"attempts": sent}}
    return db.update("outbox", {"_id": rowid, "next_attempt_at": lease, **OPEN}, change)


@statement
def redeliver(db: Db, *, rowid: int, now: int) -> int:
    """Make a message due now, whatever became of it."""
    return db.update("outbox", {"_id": rowid}, setting(attempts=0, next_attempt_at=now, delivered_at=None, gave_up_at=None, **OPEN))


@statement
def send_as_soon(db: Db, *, now: int, ahead: int, span: int) -> int:
    """Correct the times of messages that were reckoned by a clock that was ahead.

    What waits by such a clock waits as long from now on; what such a clock took on waits no more.
    """
    waiting = {"$max": [0, {"$subtract": ["$next_attempt_at", WRITTEN_AT]}]}
    is_ahead = {"$gt": [WRITTEN_AT, ahead]}
    too_far = {"$or": [is_ahead, {"$gt": [{"$subtract": ["$next_attempt_at", span]}, ahead]}]}
    return db.update(
        "outbox",
        {"next_attempt_at": {"$gt": ahead}, **OPEN, "$expr": too_far},
        [
            {
                "$set": {
                    "next_attempt_at": {"$cond": [is_ahead, {"$add": [now, waiting]}, now]},
                    "created_at": {"$min": ["$created_at", now]},
                    # One that is not there stays so: the least of nothing and a number is the number.
                    "last_attempt_at": {"$cond": [{"$gt": ["$last_attempt_at", now]}, now, "$last_attempt_at"]},
                }
            }
        ],
    )


WRITTEN_AT = {"$ifNull": ["$last_attempt_at", "$created_at"]}


@statement
def forget_deliveries(db: Db, *, before: int, limit: int) -> int:
    """Remove messages that have been over for long, first those that have for longest."""
    old = db.find("outbox", {"over_at": {"$gt": 0, "$lt": before}}, (), sort=[("over_at", 1)], limit=limit)
    return db.delete("outbox", {"_id": {"$in": [message["_id"] for message in old]}}) if old else 0


# ---- deliveries, as people see them ----------------------------------------------------------------------------------

DELIVERY = (
    *("_id", "endpoint_id", "organization_id", "event", "key", "job_id", "schedule", "target", "attempts", "next_attempt_at"),
    *("last_attempt_at", "last_status", "last_error", "created_at", "delivered_at", "gave_up_at"),
)
OF_STATE: dict[str | None, Document] = {
    None: {},
    "waiting": OPEN,
    "delivered": {"delivered_at": THERE},
    "gave up": {"gave_up_at": THERE},
}


@statement
def delivery(db: Db, *, rowid: int) -> list[Row]:
    """Return a message."""
    return _shown(db, db.find("outbox", {"_id": rowid}))


@statement
def deliveries(db: Db, *, before_id: int, state: str | None, limit: int) -> list[Row]:
    """Return messages, the newest first."""
    return _newest(db, {}, before_id, state, limit)


@statement
def deliveries_of_organization(db: Db, *, organization_id: str, before_id: int, state: str | None, limit: int) -> list[Row]:
    """Return messages of an organization, the newest first."""
    return _newest(db, {"organization_id": organization_id}, before_id, state, limit)


@statement
def deliveries_of_endpoint(
    db: Db, *, endpoint_id: str, organization_id: str | None, before_id: int, state: str | None, limit: int
) -> list[Row]:
    """Return messages to an endpoint, the newest first."""
    where = document(endpoint_id=ident(endpoint_id), organization_id=organization_id)
    return _newest(db, where, before_id, state, limit)


def _newest(db: Db, where: Document, before_id: int, state: str | None, limit: int) -> list[Row]:
    behind = where | {"_id": {"$lt": before_id}} | OF_STATE[state]
    return _shown(db, db.find("outbox", behind, sort=[("_id", -1)], limit=limit))


def _shown(db: Db, messages: list[Document]) -> list[Row]:
    """Return messages with their keys, and the names of the schedules that they are about."""
    keys = {message["schedule_id"] for message in messages if "schedule_id" in message}
    names = {schedule["_id"]: schedule["name"] for schedule in among(db, "schedules", "_id", keys, ("name",))}
    return rows((message | {"key": _key(message), "schedule": names.get(message.get("schedule_id", ""))} for message in messages), DELIVERY)
