"""Templates, types without one, pauses and settings, and the version that every change to definitions advances."""

from __future__ import annotations

import msgspec

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows, setting
from rota.stores.mongodb.schema import PENDING, QUEUED, RUNNING, THERE

TEMPLATE = (
    "_id",
    "name",
    "job_type",
    "state",
    "version",
    "defaults",
    "overrides",
    "created_at",
    "updated_at",
    "kind",
    "body",
    "created_by",
)
LATE = 10_000
"""Enqueues share the door, so a lower number may be committed after a higher one: by this many at most."""
SECOND_US = 1_000_000
_spec = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text = msgspec.json.Decoder(str | None).decode
_count = msgspec.json.Decoder(int | None).decode
_seconds = msgspec.json.Decoder(float | None).decode


class _Rate(msgspec.Struct):
    count: int | None = None
    seconds: float | None = None


_rate = msgspec.json.Decoder(_Rate | None).decode


@statement
def definitions_version(db: Db) -> list[Row]:
    """Return the version of the definitions."""
    return rows(db.find("meta", {"_id": "definitions_version"}), ["value"])


@statement
def advance_definitions(db: Db) -> int:
    """Count a change of the definitions. The bits from 40 on count lanes."""
    return db.update("meta", {"_id": "definitions_version"}, {"$inc": {"value": 1}})


# ---- templates -------------------------------------------------------------------------------------------------------


def _named(name: str) -> Document:
    """Return the filter for a shared template."""
    return {"organization_id": None, "name": name, "dropped_at": None}


def _new_template(template_id: str, now: int, **columns: str | None) -> Document:
    created = {"version": 1, "created_at": now, "updated_at": now, "overrides": "{}", "default_params": "{}"}
    return {"kind": "python", "state": "ENABLED"} | document(_id=ident(template_id), **columns) | created


@statement
def put_template(db: Db, *, template_id: str, name: str, job_type: str, defaults: str, actor: str, now: int) -> int:
    """Write what the code says of a template; the same again changes nothing."""
    present = db.first("templates", _named(name), ("defaults", "job_type"))
    if present is None:
        return db.insert("templates", _new_template(template_id, now, name=name, job_type=job_type, defaults=defaults, created_by=actor))
    if (present["defaults"], present["job_type"]) == (defaults, job_type):
        return 0
    change = {"defaults": defaults, "job_type": job_type, "updated_at": now}
    return db.update("templates", {"_id": present["_id"]}, {"$set": change, "$inc": {"version": 1}})


@statement
def define_template(
    db: Db, *, template_id: str, name: str, kind: str, job_type: str, body: str | None, defaults: str, actor: str, now: int
) -> int:
    """Create or change a template that is SQL or a command."""
    change = setting(kind=kind, body=body, defaults=defaults, updated_at=now)
    if db.update("templates", _named(name), change | {"$inc": {"version": 1}}):
        return 1
    columns = {"name": name, "kind": kind, "job_type": job_type, "body": body, "defaults": defaults, "created_by": actor}
    return db.insert("templates", _new_template(template_id, now, **columns))


@statement
def templates(db: Db) -> list[Row]:
    """Return the shared templates. One that belongs to a schedule is read with it."""
    return rows(db.find("templates", {"organization_id": None, "dropped_at": None}, TEMPLATE, sort=[("name", 1)]), TEMPLATE)


@statement
def template(db: Db, *, name: str) -> list[Row]:
    """Return a shared template."""
    return rows(db.find("templates", _named(name), TEMPLATE), TEMPLATE)


@statement
def add_template(db: Db, *, template_id: str, name: str, job_type: str, state: str, defaults: str, actor: str, now: int) -> int:
    """Create a template in a state."""
    columns = {"name": name, "job_type": job_type, "state": state, "defaults": defaults, "created_by": actor}
    return db.insert("templates", _new_template(template_id, now, **columns))


@statement
def set_overrides(db: Db, *, name: str, overrides: str, step: int, now: int) -> int:
    """Set what people say of a template."""
    return db.update("templates", _named(name), {"$set": {"overrides": overrides, "updated_at": now}, "$inc": {"version": step}})


@statement
def set_template_state(db: Db, *, name: str, state: str, now: int) -> int:
    """Set the state of a template that has another one."""
    where = _named(name) | {"state": {"$ne": state}}
    return db.update("templates", where, {"$set": {"state": state, "updated_at": now}, "$inc": {"version": 1}})


@statement
def drop_template(db: Db, *, name: str, now: int) -> int:
    """Drop a template. Its document stays."""
    return db.update("templates", _named(name), {"$set": {"dropped_at": now, "updated_at": now}})


@statement
def show_what_is_said(db: Db, *, name: str) -> int:
    """Write what code and people say together into columns of their own. A null that people set removes the code's value."""
    present = db.first("templates", _named(name), ("defaults", "overrides"))
    if present is None:
        return 0
    spec = _spec(present["defaults"]) | _spec(present["overrides"])
    return db.update("templates", {"_id": present["_id"]}, setting(**_columns_of(spec)))


def _columns_of(spec: dict[str, msgspec.Raw]) -> dict[str, str | int | None]:
    said = {name: bytes(value) for name, value in spec.items()}

    def of(name: str) -> bytes:
        return said.get(name, b"null")

    rate, submits, queue_ttl = _rate(of("rate_limit")) or _Rate(), _rate(of("submit_limit")) or _Rate(), _seconds(of("queue_ttl"))
    return {
        **{column: _text(of(column)) for column in ("display_name", "description", "requires_permission")},
        **{column: _count(of(column)) for column in ("max_running", "concurrency", "payload_max")},
        "rate_limit": rate.count,
        "rate_window": _microseconds(rate.seconds),
        "submit_limit": submits.count,
        "submit_window": _microseconds(submits.seconds),
        "queue_ttl": None if queue_ttl is None else max(1, round(queue_ttl * SECOND_US)),
        "dedup_window": _microseconds(_seconds(of("dedup_window"))),
        "default_params": "{}" if of("default_params") == b"null" else of("default_params").decode(),
    }


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND_US)


@statement
def template_limits(db: Db, *, name: str) -> list[Row]:
    """Return the limits of a template by which jobs are parked."""
    columns = ("max_running", "rate_limit", "rate_window")
    return rows(db.find("templates", _named(name), columns), columns)


# ---- jobs of a type --------------------------------------------------------------------------------------------------


@statement
def live_job_of_type(db: Db, *, job_type: str) -> list[Row]:
    """Say whether a job of a type has not ended: each question walks one partial index."""
    lanes = [lane["_id"] for lane in db.find("lanes", {"job_type": job_type}, ())]
    if lanes and db.has("job_live", {"lane": {"$in": lanes}, **QUEUED, "held": None}):
        return [(True,)]
    # The first column of an index needs a condition, or its second can't narrow the walk.
    running = {**RUNNING, "worker_id": {"$gte": ""}, "job_type": job_type}
    held = {**QUEUED, "held": {**THERE, "$gte": ""}, "job_type": job_type}
    due = {**PENDING, "blockers": 0, "priority": {"$gte": 0}, "job_type": job_type}
    blocked = {**PENDING, "blockers": {"$gt": 0}, "organization_id": {"$gte": ""}, "job_type": job_type}
    walks = ((running, "live_running"), (held, "live_held"), (due, "live_due"), (blocked, "live_blocked"))
    return [(any(db.first("job_live", where, (), hint=index) is not None for where, index in walks),)]


@statement
def ended_job_of_type(db: Db, *, job_type: str) -> list[Row]:
    """Say whether a job of a type has ended."""
    return [(db.has("job_ends", {"job_type": job_type}),)]


@statement
def newest_job(db: Db) -> list[Row]:
    """Return a number below which every job is committed."""
    newest = db.first("job_facts", {}, (), sort=[("_id", -1)])
    return [(0 if newest is None else newest["_id"] - LATE,)]


@statement
def newer_job_of_type(db: Db, *, newest: int, job_type: str) -> list[Row]:
    """Say whether there is a job of a type above a number."""
    return [(db.has("job_facts", {"_id": {"$gt": newest}, "job_type": job_type}),)]


@statement
def schedule_of_template(db: Db, *, template_id: str, job_type: str) -> list[Row]:
    """Say whether there are schedules of a template, or jobs in SQL that call its handler."""
    has_schedule = db.has("schedules", {"template_id": ident(template_id), "dropped_at": None})
    return [(has_schedule or db.has("templates", {"organization_id": THERE, "job_type": job_type, "dropped_at": None}),)]


# ---- types without a template ----------------------------------------------------------------------------------------


@statement
def adhoc_type(db: Db, *, job_type: str) -> list[Row]:
    """Return the handler of a type without a template."""
    return rows(db.find("adhoc_types", {"_id": job_type}), ["handler"])


@statement
def adhoc_types(db: Db) -> list[Row]:
    """Return the types without a template, with their handlers."""
    return rows(db.find("adhoc_types", {}, sort=[("_id", 1)]), ["_id", "handler"])


@statement
def adhoc_count(db: Db) -> list[Row]:
    """Return how many types have no template."""
    return [(db.size("adhoc_types", {}),)]


@statement
def put_adhoc_type(db: Db, *, job_type: str, handler: str, actor: str, now: int) -> int:
    """Record the handler of a type without a template."""
    return db.insert("adhoc_types", {"_id": job_type, "handler": handler, "created_by": actor, "created_at": now})


@statement
def oldest_adhoc_types(db: Db, *, limit: int) -> list[Row]:
    """Return the types without a template that were recorded first."""
    return rows(db.find("adhoc_types", {}, sort=[("created_at", 1), ("_id", 1)], limit=limit), ["_id"])


@statement
def drop_adhoc_type(db: Db, *, job_type: str) -> int:
    """Forget a type without a template."""
    return db.delete("adhoc_types", {"_id": job_type})


# ---- pauses ----------------------------------------------------------------------------------------------------------


@statement
def pause(db: Db, *, kind: str, name: str, actor: str, now: int) -> int:
    """Begin a pause, if there is none of this kind and name."""
    if db.has("pauses", {"kind": kind, "name": name}):
        return 0
    return db.insert("pauses", {"kind": kind, "name": name, "paused_at": now, "paused_by": actor})


@statement
def resume(db: Db, *, kind: str, name: str) -> int:
    """End a pause."""
    return db.delete("pauses", {"kind": kind, "name": name})


@statement
def pauses(db: Db) -> list[Row]:
    """Return what is paused."""
    return rows(db.find("pauses", {}, sort=[("kind", 1), ("name", 1)]), ["kind", "name"])


# ---- settings --------------------------------------------------------------------------------------------------------


@statement
def stored_settings(db: Db) -> list[Row]:
    """Return the settings that the store keeps."""
    return rows(db.find("settings", {}, sort=[("_id", 1)]), ["_id", "value", "set_by", "set_at"])


@statement
def stored_setting(db: Db, *, name: str) -> list[Row]:
    """Return the value of a setting."""
    return rows(db.find("settings", {"_id": name}), ["value"])


@statement
def set_setting(db: Db, *, name: str, value: str, actor: str, now: int) -> int:
    """Set a setting."""
    return db.update("settings", {"_id": name}, {"$set": {"value": value, "set_by": actor, "set_at": now}}, upsert=True)


@statement
def reset_setting(db: Db, *, name: str) -> int:
    """Remove a setting."""
    return db.delete("settings", {"_id": name})
