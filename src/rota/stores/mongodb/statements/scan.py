"""Scans of relations for queries over sys.*: see `rota.stores.verbs.relations`. Those of jobs are in `scan_jobs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from rota.ports.scan import Bound, Order
from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row
from rota.stores.mongodb.schema import KEYS, LIVING, THERE
from rota.stores.mongodb.statements import scan_jobs
from rota.stores.mongodb.statements.relation_views import Column, Field, Needed, Part, View, Walk, first_given, read, same
from rota.stores.verbs.relations import RELATIONS

_names = msgspec.json.Decoder(list[str]).decode


@statement
def scan(  # noqa: PLR0917 - as a connection's `stream`
    db: Db, relation: str, source: str | None, columns: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None, /, **values: Any
) -> Iterator[Row]:
    """Return the columns of a relation's rows as they are asked for; jobs are `ended`, `live` or `clock_back`."""
    del values  # bounds have them all
    match relation:
        case "jobs":
            assert source is not None  # noqa: S101 - jobs have sources
            return scan_jobs.jobs(db, source, columns, bounds, order)
        case "facts":
            return scan_jobs.facts(db, columns, bounds, order)
        case "ends":
            return scan_jobs.ends(db, columns, bounds, order)
        case _:
            return read(db, VIEWS[relation], columns, bounds, order=order, walk=Walk())


@statement
def scan_schedules_named(db: Db, *, name: str) -> list[Row]:
    """Return the schedules of a name, those that were dropped included."""
    return [(schedule["_id"],) for schedule in db.find("schedules", {"name": name}, ())]


def _plain(collection: str, where: Document | None = None) -> View:
    """Return the view of a collection whose columns are its fields."""
    key = KEYS.get(collection)
    columns = {column: Column((Field("d", "_id" if column == key else column),)) for column in RELATIONS[collection].columns}
    return View("d", collection, columns, where=where or {})


def _of_schedule(field: str) -> Column:
    return Column((Field("s", field),))


def _next_at(state: str, at: int | None) -> int | None:
    return None if state == "DISABLED" else at


def _held_by(state: str) -> str | None:
    return None if state == "ENABLED" else f"template {state}"


def _waits(schedule: Document) -> list[Document]:
    """Return a schedule once for each that it depends on."""
    return [schedule | {"depends_on": name} for name in _names(schedule["depends_on"])]


SCHEDULES = View(
    "s",
    "schedules",
    {
        **same(
            "s",
            "organization_id name cron_expression interval_us ends_at timezone on_completion run_as created_at updated_at state catch_up"
            " overlap calendar priority version",
        ),
        **same("t", "kind body job_class job_type partition_strategy partition_shard partition_expression defaults overrides"),
        "schedule_id": _of_schedule("_id"),
        "owner": _of_schedule("created_by"),
        "schedule_kind": _of_schedule("kind"),
        "last_at": _of_schedule("last_triggered_at"),
        "params": _of_schedule("param_overrides"),
        "template_name": Column((Field("t", "name"),)),
        "owner_id": Column((Field("u", "user_id"),)),
        "run_as_id": Column((Field("r", "_id"),)),
        "description": Column((Field("s", "description"), Field("t", "description")), first_given),
        "starts_at": Column((Field("s", "at"), Field("s", "starts_at")), first_given),
        "next_at": Column((Field("s", "state"), Field("s", "next_trigger_at")), _next_at),
        "held_by": Column((Field("t", "state"),), _held_by),
    },
    {
        "t": Part("templates", (Field("s", "template_id"),), needed=Needed.IF_ASKED),
        "u": Part("users", (Field("s", "created_by"),)),
        "r": Part("roles", (Field("s", "organization_id"), Field("s", "run_as")), own=("organization_id", "name")),
    },
    LIVING,
)
DEPENDENCIES = View(
    "s",
    "schedules",
    {
        **same("s", "organization_id name"),
        "schedule_id": _of_schedule("_id"),
        "owner": _of_schedule("created_by"),
        "parent_id": Column((Field("p", "_id"),)),
        "parent_name": Column((Field("p", "name"),)),
    },
    {
        "p": Part(
            "schedules",
            (Field("s", "organization_id"), Field("s", "depends_on")),
            own=("organization_id", "name"),
            needed=Needed.ALWAYS,
            where=LIVING,
        ),
    },
    {**LIVING, "depends_on": THERE},
    _waits,
)
OCCURRENCES = View(
    "o",
    "occurrences",
    {
        **same("o", "schedule_id due_at last_due_at count fate reason job_id recorded_at"),
        **same("s", "name organization_id"),
        "owner": _of_schedule("created_by"),
    },
    {"s": Part("schedules", (Field("o", "schedule_id"),), needed=Needed.IF_ASKED)},
)
VIEWS = {
    "schedules": SCHEDULES,
    "dependencies": DEPENDENCIES,
    "occurrences": OCCURRENCES,
    "templates": _plain("templates", LIVING),
    **{collection: _plain(collection) for collection in ("workers", "users", "organizations", "calendars", "audit")},
}
