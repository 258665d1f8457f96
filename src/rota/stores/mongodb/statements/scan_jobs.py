"""Scans of jobs: ended and live ones apart, each along the index that has the fewest of them to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from rota.model.states import TERMINAL, Status
from rota.ports.scan import Bound, Compares, Order
from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row
from rota.stores.mongodb.schema import UNHAPPY
from rota.stores.mongodb.statements.relation_bounds import filter_of
from rota.stores.mongodb.statements.relation_views import (
    CHUNK_FIRST,
    CHUNK_GROWS,
    Column,
    Field,
    Needed,
    Part,
    View,
    Walk,
    first_given,
    read,
    same,
)
from rota.stores.verbs.relations import KEYED

FEW = 5000
"""With fewer jobs of a type or an organization, all of them are sorted; with more, some are met soon on a walk from the newest on."""
FACTS, STATE = "f", "s"
IN_ENDS = ("number", "job_type", "created_at")
IN_LIVE = (*IN_ENDS, "job_id", "root_id", "attempt", "organization_id", "schedule_id")
"""Columns that facts and states have both: they are taken from what is walked."""


@statement
def scan_ended_types(db: Db, *, descending: int) -> list[Row]:
    """Return the types of ended jobs, each with its last end, or its first: a hop from type to type along the index."""
    return [(edge["_id"], edge["at"]) for edge in _edges(db, descending)]


@statement
def scan_first_ends(db: Db, *, descending: int, want: int) -> list[Row]:
    """Return the latest ends of all types, or the earliest: they are those of as many types at most, the ones with the latest last ends."""
    types = [edge["_id"] for edge in _edges(db, descending, {"$sort": {"at": -1 if descending else 1}}, {"$limit": want})]
    if not types:
        return []
    ends = db.find("job_ends", {"job_type": {"$in": types}}, ("finished_at",), sort=_by_end(descending), limit=want, hint="ends_finished")
    return [(end["finished_at"], end["_id"]) for end in ends]


def _edges(db: Db, descending: int, *stages: Document) -> list[Document]:
    way = -1 if descending else 1
    group = {"_id": "$job_type", "at": {"$first": "$finished_at"}}
    return db.aggregate("job_ends", [{"$sort": {"job_type": way, "finished_at": way}}, {"$group": group}, *stages])


def _by_end(descending: int) -> list[tuple[str, int]]:
    return [("finished_at", -1 if descending else 1)]


# ---- relations -------------------------------------------------------------------------------------------------------


def jobs(db: Db, source: str, columns: Sequence[str], bounds: Sequence[Bound], order: Order | None) -> Iterator[Row]:
    """Return jobs of one of the sources."""
    if source == "clock_back":
        # They are few, and known by the index alone.
        return read(db, CLOCK_BACK, columns, bounds, order=order, walk=Walk("ends_clock_back"))
    way = _Way(db, source, bounds, order)
    return read(db, _view(source, way.base), columns, way.bounds, order=order, walk=way.walk)


def facts(db: Db, columns: Sequence[str], bounds: Sequence[Bound], order: Order | None) -> Iterator[Row]:
    """Return when jobs of a schedule started and ended."""
    keyed = any(bound.column == "schedule_id" and bound.compares is Compares.EQUAL for bound in bounds)
    return read(db, FACTS_VIEW, columns, bounds, order=order, walk=Walk("facts_schedule" if keyed else None))


def ends(db: Db, columns: Sequence[str], bounds: Sequence[Bound], order: Order | None) -> Iterator[Row]:
    """Return ends of all types between two moments, or those of a type in the order of time."""
    if order is None:
        return read(db, ENDS_VIEW, columns, bounds, order=None, walk=Walk("ends_finished"))
    return _in_steps(db, columns, [filter_of(bound, ENDS_VIEW.names()) for bound in bounds], descending=order.descending)


def _in_steps(db: Db, columns: Sequence[str], where: list[Document], *, descending: bool) -> Iterator[Row]:
    """Read ends in the order of time, the first few, then more: most types are asked for no more than their first.

    Those of the moment at which a step stops may come again: each is returned once. No cursor stays open, for there may be
    thousands of types.
    """
    names, size, seen = [ENDS_VIEW.names()[column] for column in columns], CHUNK_FIRST, set[int]()
    edge: int | None = None
    while True:
        beyond = [] if edge is None else [{"finished_at": {"$lte" if descending else "$gte": edge}}]
        filters = {"$and": [*where, *beyond]}
        found = db.find("job_ends", filters, (*names, "finished_at"), sort=_by_end(descending), limit=size, hint="ends_finished")
        yield from (tuple([end[name] for name in names]) for end in found if end["_id"] not in seen)
        if len(found) < size:
            return
        before, edge = edge, found[-1]["finished_at"]
        at_edge = {end["_id"] for end in found if end["finished_at"] == edge}
        seen = at_edge | seen if edge == before else at_edge
        size *= CHUNK_GROWS


# ---- ways ------------------------------------------------------------------------------------------------------------


class _Way:
    """How jobs of a source are found: which of their documents are walked, and along which index."""

    def __init__(self, db: Db, source: str, bounds: Sequence[Bound], order: Order | None) -> None:
        self._db = db
        self._order = None if order is None else order.column
        self._equal = {bound.column: bound.value for bound in bounds if bound.compares is Compares.EQUAL}
        self._is_live = source == "live"
        self._statuses = _statuses(bounds, is_live=self._is_live)
        self.bounds = [bound for bound in bounds if not _is_of_status(bound)]
        if len(self.bounds) < len(bounds):
            self.bounds.append(Bound("status", Compares.AMONG, tuple(sorted(self._statuses))))
        numbers = [bound.value for bound in bounds if bound.column == "number" and bound.compares in KEYED]
        self.base, self.walk = self._of_numbers(numbers[0]) if numbers else self._of_live() if self._is_live else self._of_ended()

    def _of_numbers(self, given: int | tuple[int, ...]) -> tuple[str, Walk]:
        if isinstance(given, tuple):
            # One more than there can be: so the first answer is the last.
            return STATE, Walk("_id_", batch=len(given) + 1)
        return STATE, Walk("_id_", is_of_few=True)

    def _of_live(self) -> tuple[str, Walk]:
        if "job_id" in self._equal:
            return FACTS, Walk("facts_id", is_of_few=True)
        if "schedule_id" in self._equal:
            return STATE, Walk("live_schedule")
        if self._statuses == {Status.RUNNING}:
            return STATE, Walk("live_running")
        # No live job has an end: as they come, they are in the order of their ends.
        return STATE, Walk("_id_" if self._order == "number" else None, in_order=self._order == "finished_at")

    def _of_ended(self) -> tuple[str, Walk]:
        if "job_id" in self._equal:
            return FACTS, Walk("facts_id", is_of_few=True)
        if "schedule_id" in self._equal:
            return FACTS, Walk("facts_schedule")
        if self._leads_by_organization():
            return FACTS, Walk("facts_org")
        if self._leads_by_type():
            return STATE, Walk("ends_finished")
        if self._statuses <= set(UNHAPPY):
            # The condition of the index in its own words: the server does not see that some of these words are among them.
            self.bounds.append(Bound("status", Compares.AMONG, UNHAPPY))
            return STATE, Walk("ends_unhappy")
        return STATE, Walk("_id_" if self._order == "number" else None)

    def _leads_by_organization(self) -> bool:
        """Say whether jobs of an organization other than the default are looked for, and nothing leads to fewer."""
        organization = self._equal.get("organization_id", "default")
        if organization in {"default", None}:
            return False
        if self._db.size("job_facts", {"organization_id": organization}, limit=FEW) < FEW:
            return True
        return self._order in {None, "number"} and "job_type" not in self._equal and not self._statuses <= set(UNHAPPY)

    def _leads_by_type(self) -> bool:
        """Say whether the index by type leads to few; it is in the order of ends, and not in that of numbers."""
        job_type = self._equal.get("job_type")
        if job_type is None:
            return False
        return self._order != "number" or self._db.size("job_ends", {"job_type": job_type}, limit=FEW) < FEW


def _is_of_status(bound: Bound) -> bool:
    return bound.column == "status" and bound.compares is Compares.AMONG


def _statuses(bounds: Sequence[Bound], *, is_live: bool) -> frozenset[str]:
    """Return the statuses that bounds leave to live or to ended jobs."""
    statuses = frozenset(str(status) for status in Status if (status in TERMINAL) != is_live)
    for bound in bounds:
        if _is_of_status(bound):
            statuses &= frozenset(bound.value)
    return statuses


# ---- views -----------------------------------------------------------------------------------------------------------


def _scheduled_at(attempt: int, due_at: int | None, run_at: int) -> int:
    return due_at if attempt == 1 and due_at is not None else run_at


def _seconds(value: float | None) -> float | None:
    return None if value is None else float(value)


def _or_default(queue: str | None) -> str:
    return "default" if queue is None else queue


def _or_none_open(blockers: int | None) -> int:
    return blockers or 0


COLUMNS = {
    **same(
        FACTS,
        "job_type job_id organization_id owner schedule_id template_id origin root_id retry_of attempt failures crashes snoozes due_at"
        " created_at unique_key group_id sequence_number max_retries executor target_node shard params meta tags",
    ),
    **same(
        STATE,
        "status held priority position run_at expires_at queued_at started_at finished_at worker_id run_id cancel_requested_at ended_by"
        " error_type reason",
    ),
    **same("n", "exit_code error error_code result rows_affected progress progress_message"),
    "number": Column((Field(FACTS, "_id"),)),
    "timeout": Column((Field(FACTS, "timeout"),), _seconds),
    "blockers": Column((Field(STATE, "blockers"),), _or_none_open),
    "scheduled_at": Column((Field(FACTS, "attempt"), Field(FACTS, "due_at"), Field(STATE, "run_at")), _scheduled_at),
    "message": Column((Field("n", "result_message"), Field("n", "error"), Field(STATE, "reason")), first_given),
    "schedule_name": Column((Field("schedule", "name"),)),
    "template_name": Column((Field("template", "name"),)),
    "queue": Column((Field("lane", "queue"),), _or_default),
}
PARTS = {
    "n": Part("run_notes", (Field(FACTS, "_id"),)),
    "schedule": Part("schedules", (Field(FACTS, "schedule_id"),)),
    "template": Part("templates", (Field(FACTS, "template_id"),)),
    "lane": Part("lanes", (Field(FACTS, "lane"),)),
}


@cache
def _view(source: str, base: str) -> View:
    """Return jobs of a source, as they are put together when their facts are walked, or their states."""
    states = "job_live" if source == "live" else "job_ends"
    if base == FACTS:
        return View(FACTS, "job_facts", COLUMNS, {STATE: Part(states, (Field(FACTS, "_id"),), needed=Needed.ALWAYS), **PARTS})
    both = {column: Column((Field(STATE, COLUMNS[column].fields[0].name),)) for column in (IN_LIVE if source == "live" else IN_ENDS)}
    return View(STATE, states, COLUMNS | both, {FACTS: Part("job_facts", (Field(STATE, "_id"),), needed=Needed.IF_ASKED), **PARTS})


CLOCK_BACK = _view("ended", STATE)._replace(where={"clock_back": 1})
ENDS_VIEW = View(
    STATE,
    "job_ends",
    {"number": Column((Field(STATE, "_id"),)), **same(STATE, "finished_at job_type")},
    # With a condition on the first column too, the server hops from type to type along the index.
    where={"job_type": {"$gte": ""}},
)
FACTS_VIEW = View(
    FACTS,
    "job_facts",
    {
        "number": Column((Field(FACTS, "_id"),)),
        "schedule_id": Column((Field(FACTS, "schedule_id"),)),
        "finished_at": Column((Field("e", "finished_at"),)),
        "started_at": Column((Field("e", "started_at"), Field("l", "started_at")), first_given),
    },
    {"e": Part("job_ends", (Field(FACTS, "_id"),)), "l": Part("job_live", (Field(FACTS, "_id"),))},
)
