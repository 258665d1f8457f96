"""Schedules as rows: arrays in the order of `rota.model.schedules.Schedule`, which the verbs decode many of at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, ident
from rota.stores.mongodb.schema import LIVING, THERE
from rota.stores.mongodb.statements.joining import among, present

TIMING = ("kind", "cron_expression", "at", "interval_us", "timezone", "starts_at", "ends_at")
SURROUNDINGS = ("ahead_at", "told_from", "told_until", "open_due_at", "open_fate")
SHAPE = ("job_class", "partition_strategy", "partition_shard", "partition_expression")
OF_TEMPLATE = ("name", "organization_id", "kind", "job_type", "defaults", "version", "body", *SHAPE)
NOT_DISABLED = {"state": {"$ne": "DISABLED"}}
IN_TURN = [("next_trigger_at", 1), ("row_id", 1)]
_json = msgspec.json.Decoder(msgspec.Raw).decode


# ---- due -------------------------------------------------------------------------------------------------------------


@statement
def schedules_due_now(db: Db, *, depends: int, now: int, limit: int) -> list[Row]:
    """Return schedules that are due, in the order of their due times."""
    return _due_rows(db, _due(db, {}, depends=depends, now=now, limit=limit))


@statement
def schedules_overdue(db: Db, *, depends: int, organization_id: str | None, now: int, limit: int) -> list[Row]:
    """Return the same to read only, for one organization or for all of them."""
    where = {} if organization_id is None else {"organization_id": organization_id}
    return _due_rows(db, _due(db, where, depends=depends, now=now, limit=limit))


@statement
def schedule_due(db: Db, *, schedule_id: str | bytes) -> list[Row]:
    """Return one schedule in the same way, due or not."""
    return _due_rows(db, db.find("schedules", {"_id": ident(schedule_id), **LIVING}))


@statement
def due_before_it(db: Db, *, names: Sequence[str], organization_id: str, now: int) -> list[Row]:
    """Return those of some schedules that are due and have not fired yet."""
    where = {"organization_id": organization_id, "name": {"$in": list(names)}, **LIVING, "next_trigger_at": {"$lte": now}}
    return [(found["name"],) for found in db.find("schedules", where | NOT_DISABLED, ("name",), hint="schedules_name")]


def _due(db: Db, where: Document, *, depends: int, now: int, limit: int) -> list[Document]:
    due = {**LIVING, **NOT_DISABLED, "next_trigger_at": {"$lte": now}, "depends_on": THERE if depends else None}
    return db.find("schedules", due | where, sort=IN_TURN, limit=limit, hint="schedules_due")


def _due_rows(db: Db, schedules: Sequence[Document]) -> list[Row]:
    """Return schedules with what firing needs of them: whether they have live chains, and how far their cursors once were."""
    live = present(db, "job_live", "schedule_id", [schedule["_id"] for schedule in schedules])
    due = [
        [schedule["row_id"], _slim(schedule, template), int(schedule["_id"] in live), *map(schedule.get, SURROUNDINGS)]
        for schedule, template in _with_templates(db, schedules)
    ]
    return _text(due)


# ---- read ------------------------------------------------------------------------------------------------------------


@statement
def schedule(db: Db, *, schedule_id: str | bytes) -> list[Row]:
    """Return one schedule, dropped or not."""
    return _read_rows(db, db.find("schedules", {"_id": ident(schedule_id)}))


@statement
def schedules(
    db: Db, *, dropped: int, organization_id: str | None, owner: str | None, granted: Sequence[str], name: str | None, template: str | None
) -> list[Row]:
    """Return schedules by what was asked for."""
    where = {"dropped_at": THERE if dropped else None} | ({} if name is None else {"name": name})
    asked_for = _asked_for(db, organization_id=organization_id, owner=owner, granted=granted, template=template)
    return _read_rows(db, db.find("schedules", where | asked_for))


@statement
def schedules_called(
    db: Db, *, organization_id: str | None, owner: str | None, granted: Sequence[str], name: str, template: str | None
) -> list[Row]:
    """Return the schedules of a name."""
    asked_for = _asked_for(db, organization_id=organization_id, owner=owner, granted=granted, template=template)
    return _read_rows(db, db.find("schedules", {**LIVING, "name": name} | asked_for))


@statement
def schedule_ids(
    db: Db, *, dropped: int, organization_id: str | None, owner: str | None, granted: Sequence[str], name: str | None, template: str | None
) -> list[Row]:
    """Return the ids of the same schedules, so that each can be read by itself."""
    where = {"dropped_at": THERE if dropped else None} | ({} if name is None else {"name": name})
    asked_for = _asked_for(db, organization_id=organization_id, owner=owner, granted=granted, template=template)
    found = db.find("schedules", where | asked_for, ("template_id", "organization_id", "name", "created_at"))
    return [(schedule["_id"],) for schedule, _ in _with_templates(db, sorted(found, key=_place))]


@statement
def schedules_too_far(db: Db, *, now: int, limit: int) -> list[Row]:
    """Return schedules that were last looked at by a clock that was ahead. A scan, but a rare one."""
    return _bare_rows(db, db.find("schedules", {**LIVING, **NOT_DISABLED, "cursor_at": {"$gt": now}}, limit=limit))


@statement
def zoned_schedules(db: Db) -> list[Row]:
    """Return the schedules whose due times follow the rules of a zone."""
    return _bare_rows(db, db.find("schedules", {**LIVING, **NOT_DISABLED, "kind": "CRON", "timezone": {"$ne": "UTC"}}))


def _asked_for(db: Db, *, organization_id: str | None, owner: str | None, granted: Sequence[str], template: str | None) -> Document:
    where: Document = {}
    if organization_id is not None:
        where["organization_id"] = organization_id
    if owner is not None:
        where["$or"] = [{"created_by": owner}, {"_id": {"$in": list(granted)}}]
    if template is not None:
        where["template_id"] = {"$in": [found["_id"] for found in db.find("templates", {"name": template}, ())]}
    return where


def _read_rows(db: Db, schedules: Iterable[Document]) -> list[Row]:
    """Return schedules with their dates, in the order of organizations and names."""
    joined = _with_templates(db, sorted(schedules, key=_place))
    return _text([[_whole(found, template), *map(found.get, ("created_at", "updated_at", "dropped_at"))] for found, template in joined])


def _bare_rows(db: Db, schedules: Sequence[Document]) -> list[Row]:
    return _text([_whole(found, template) for found, template in _with_templates(db, schedules)])


def _place(schedule: Document) -> tuple[str, str, int]:
    return schedule["organization_id"], schedule["name"], schedule["created_at"]


# ---- columns ---------------------------------------------------------------------------------------------------------


def _with_templates(db: Db, schedules: Sequence[Document]) -> list[tuple[Document, Document]]:
    """Return schedules, each with its template; one whose template is gone is left out."""
    wanted = {schedule["template_id"] for schedule in schedules}
    templates = {template["_id"]: template for template in among(db, "templates", "_id", wanted, OF_TEMPLATE)}
    return [(schedule, templates[schedule["template_id"]]) for schedule in schedules if schedule["template_id"] in templates]


def _whole(schedule: Document, template: Document) -> list[Any]:
    """Return all that `Schedule` has, but for its dates."""
    own = [*_own(template), template.get("body"), *map(template.get, SHAPE)] if "organization_id" in template else None
    declared = None if "declared" not in schedule else _json(schedule["declared"])
    return _columns(schedule, template, description=schedule.get("description"), declared=declared, own=own)


def _slim(schedule: Document, template: Document) -> list[Any]:
    """Return the same without what firing has no use for."""
    own = _own(template) if "organization_id" in template else None
    return _columns(schedule, template, description=None, declared=None, own=own)


def _own(template: Document) -> list[Any]:
    """Return the beginning of `OwnTemplate`, of a template that belongs to one schedule alone."""
    return [template["_id"], template["kind"], template["job_type"], _json(template["defaults"]), template["version"]]


def _columns(
    schedule: Document, template: Document, *, description: str | None, declared: msgspec.Raw | None, own: list[Any] | None
) -> list[Any]:
    get = schedule.get
    return [
        schedule["_id"],
        get("name"),
        get("organization_id"),
        template.get("name"),
        [get(column) for column in TIMING],
        get("state"),
        description,
        _json(get("param_overrides", "{}")),
        get("priority"),
        get("catch_up"),
        get("catch_up_lateness"),
        get("catch_up_count"),
        get("overlap"),
        get("jitter"),
        get("calendar"),
        get("on_completion"),
        _json(get("depends_on", "[]")),
        get("run_as"),
        get("cursor_at"),
        get("next_trigger_at"),
        get("last_triggered_at"),
        declared,
        get("version"),
        get("created_by"),
        own,
    ]


def _text(arrays: list[Any]) -> list[Row]:
    return [(msgspec.json.encode(arrays).decode(),)]
