"""Pages of jobs: numbers are picked along a source, the newest first, until there are enough that match; then their rows are read.

A source is a range of one index. What its collection can tell is asked of it together with the range. The rest is asked of the other
collections for some numbers at a time, and it is the server that compares: only numbers come back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from bson.min_key import MinKey

from rota.stores.mongodb.db import SOURCES, Db, statement
from rota.stores.mongodb.documents import Document, Row, ident, ids
from rota.stores.mongodb.schema import PENDING, QUEUED, RUNNING, THERE
from rota.stores.mongodb.statements.jobs import job_rows, whole_by_number
from rota.stores.mongodb.statements.joining import among

FIRST, MOST = 100, 5000
"""Numbers that are looked at together: at first, and at most."""
CLOSE = 4
"""Numbers lie close together if there are at most so many for each of them."""
COLUMNS = {
    "job_facts": frozenset(
        {"job_type", "created_at", "lane", "organization_id", "root_id", "schedule_id", "owner", "group_id", "tags", "$or"}
    ),
    "job_live": frozenset({"job_type", "created_at", "lane", "organization_id", "root_id", "schedule_id", "status", "error_type"}),
    "job_ends": frozenset({"job_type", "created_at", "status", "error_type"}),
}
"""The conditions that can be asked of each collection. What has not ended has no type of error."""
DEFAULT_QUEUE = "default"


Values = dict[str, Any]


class Source(NamedTuple):
    """A range of one index that has every job which can match."""

    collection: str
    along: str | None
    """The index. None: the server finds it, for each part of the range has its own."""
    range: Callable[[Db, Values], Document]


# ---- sources ---------------------------------------------------------------------------------------------------------


def _everything(_: Db, __: Values) -> Document:
    return {}


def _of_chain(_: Db, values: Values) -> Document:
    root_id = ident(values["root_id"])
    return {"$or": [{"job_id": root_id}, {"root_id": root_id, "attempt": {"$gt": 1}}]}


def _ready(_: Db, values: Values) -> Document:
    # Asked for any lane, the server compares moments in the index.
    return {**QUEUED, "held": None, "lane": {"$gte": MinKey()}} | _created(values)


def _held(_: Db, values: Values) -> Document:
    # Asked for any word, the server hops from word to word where the type is given.
    return {**QUEUED, "held": {**THERE, "$gte": ""}} | _created(values)


def _created(values: Values) -> Document:
    bounds = {"$gte": values["created_from"], "$lt": values["created_until"]}
    given = {compared: moment for compared, moment in bounds.items() if moment is not None}
    return {"created_at": given} if given else {}


def _lanes(db: Db, **where: Any) -> Document:
    return {"$in": [lane["_id"] for lane in db.find("lanes", where, ())]}


SOURCES.update(
    all=Source("job_facts", "_id_", _everything),
    chain=Source("job_facts", None, _of_chain),
    group=Source("job_facts", "facts_group", lambda _, values: {"group_id": ident(values["group_id"])}),
    schedule=Source("job_facts", "facts_schedule", lambda _, values: {"schedule_id": ident(values["schedule_id"])}),
    organization=Source("job_facts", "facts_org", lambda _, values: {"organization_id": values["organization_id"]}),
    status=Source("job_ends", "ends_unhappy", lambda _, values: {"status": str(values["status"])}),
    ends=Source("job_ends", "_id_", _everything),
    # Each has a type: so the moments are asked of the index that has them.
    ended=Source("job_ends", "ends_finished", lambda _, values: {"job_type": {"$gt": ""}} | _created(values)),
    ended_of_type=Source("job_ends", "ends_finished", lambda _, values: {"job_type": values["job_type"]} | _created(values)),
    running=Source("job_live", "live_running", lambda _, __: RUNNING),
    ready=Source("job_live", "live_ready", _ready),
    ready_of_type=Source(
        "job_live", "live_ready", lambda db, values: _ready(db, values) | {"lane": _lanes(db, job_type=values["job_type"])}
    ),
    ready_of_queue=Source("job_live", "live_ready", lambda db, values: _ready(db, values) | {"lane": _lanes(db, queue=values["queue"])}),
    held=Source("job_live", "live_held", _held),
    held_of_type=Source("job_live", "live_held", lambda db, values: _held(db, values) | {"job_type": values["job_type"]}),
    due=Source("job_live", "live_due", lambda _, __: {**PENDING, "blockers": 0}),
    blocked=Source("job_live", "live_blocked", lambda _, __: {**PENDING, "blockers": {"$gt": 0}}),
)

# ---- statements ------------------------------------------------------------------------------------------------------


@statement
def size(db: Db, source: Source, /, **values: Any) -> list[Row]:
    """Return how many rows a source has, as far as it is worth counting."""
    return [(db.size(source.collection, source.range(db, values), limit=values["limit"], hint=source.along),)]


@statement
def newest(db: Db, source: Source, /, **values: Any) -> list[Row]:
    """Return the newest number of a source that comes in the order of numbers."""
    last = db.first(source.collection, source.range(db, values), (), sort=[("_id", -1)], hint=source.along)
    return [] if last is None else [(last["_id"],)]


@statement
def span(db: Db) -> list[Row]:
    """Return the newest number, and about how many jobs there are: the oldest go, few in between."""
    first, last = (db.first("job_facts", {}, (), sort=[("_id", order)]) for order in (1, -1))
    return [(0, 0) if first is None or last is None else (last["_id"], last["_id"] - first["_id"] + 1)]


@statement
def find(db: Db, source: Source, /, **values: Any) -> list[Row]:
    """Return the newest jobs of a source between two numbers that match."""
    numbers = list(islice(_matching(db, source, values), values["limit"]))
    return job_rows(db, whole_by_number(db, numbers))


def _matching(db: Db, source: Source, values: Values) -> Iterator[int]:
    """Return the numbers of the jobs that match, the newest first."""
    conditions = _conditions(db, values)
    own = {name: conditions.pop(name) for name in conditions.keys() & COLUMNS[source.collection]}
    tests = list(_tests(source.collection, conditions, values))
    where = {"$and": [source.range(db, values), {"_id": {"$gte": values["floor"], "$lt": values["before"]}}, own]}
    limit = 0 if tests else values["limit"]
    cursor = db.cursor(source.collection, where, (), sort=[("_id", -1)], limit=limit, hint=source.along).batch_size(MOST)
    for numbers in _growing(found["_id"] for found in cursor):
        left = numbers
        for test in tests:
            kept = test(db, left) if left else set()
            left = [number for number in left if number in kept]
        yield from left


def _growing(numbers: Iterator[int]) -> Iterator[list[int]]:
    """Return numbers some at a time: few at first, for they may do."""
    size = FIRST
    while chunk := list(islice(numbers, size)):
        yield chunk
        size = min(4 * size, MOST)


# ---- what is asked for -------------------------------------------------------------------------------------------------


def _conditions(db: Db, values: Values) -> Document:
    """Return the conditions on single columns, and under `$or` the one on owners and grants."""
    asked: Document = {name: values[name] for name in ("job_type", "organization_id", "owner", "error_type")}
    asked |= {name: ident(values[name]) for name in ("group_id", "root_id", "schedule_id")}
    asked |= {"lane": _of_queue(db, values["queue"]), "tags": _tagged(values["tag"])}
    if values["statuses"] is not None:
        asked["status"] = {"$in": list(map(str, values["statuses"]))}
    if values["reach"] is not None:
        asked["$or"] = [{"owner": values["reach"]}, {"schedule_id": {"$in": ids(values["granted"])}}]
    return {name: condition for name, condition in asked.items() if condition is not None} | _created(values)


def _of_queue(db: Db, queue: str | None) -> Document | None:
    """Return the condition on lanes. A job without one is in the default queue."""
    if queue is None:
        return None
    return {"$not": _lanes(db, queue={"$ne": queue})} if queue == DEFAULT_QUEUE else _lanes(db, queue=queue)


def _tagged(tag: str | None) -> Document | None:
    """Return the condition that a list of texts, in JSON, has this one: behind any number of others."""
    if tag is None:
        return None
    return {"$regex": rf'^\[(?:"(?:\\.|[^"\\])*",)*{_literal(msgspec.json.encode(tag).decode())}[,\]]'}


def _literal(text: str) -> str:
    """Return the pattern for a text. The server takes no NUL in one."""
    return re.escape(text).replace("\0", r"\x00")


Test = Callable[[Db, list[int]], set[int]]
"""Returns those of some numbers whose jobs match."""


def _tests(collection: str, conditions: Document, values: Values) -> Iterator[Test]:
    """Return what is left to be asked of other collections than the one that is walked along."""
    if conditions:
        others = ("job_live", "job_ends") if collection == "job_facts" else ("job_facts",)
        yield lambda db, numbers: set().union(*(_meeting(db, other, numbers, conditions) for other in others))
    if values["tails"]:
        yield _without_successor
    if values["text"] is not None:
        pattern, named = {"$regex": _literal(values["text"])}, ident(values["named"])
        yield lambda db, numbers: _with_text(db, numbers, pattern, named)


def _without_successor(db: Db, numbers: list[int]) -> set[int]:
    by_id = {fact["job_id"]: fact["_id"] for fact in among(db, "job_facts", "_id", numbers, ("job_id",))}
    retried = {by_id[fact["retry_of"]] for fact in among(db, "job_facts", "retry_of", by_id, ("retry_of",))}
    return set(numbers) - retried


def _with_text(db: Db, numbers: list[int], pattern: Document, named: str | None) -> set[int]:
    """Return the jobs that have a text in what people see of them, and those of the chain that it names."""
    facts: list[Document] = [{"params": pattern}, {"job_type": pattern}, {"unique_key": pattern}]
    if named is not None:
        facts.append({"root_id": named})
    found = _meeting(db, "job_facts", numbers, {"$or": facts})
    found |= _meeting(db, "job_live", numbers, {"reason": pattern}) | _meeting(db, "job_ends", numbers, {"reason": pattern})
    failed = _meeting(db, "run_notes", numbers, {"error": pattern}) - found
    return found | _meeting(db, "job_ends", sorted(failed, reverse=True), {"error_type": THERE})


def _meeting(db: Db, collection: str, numbers: list[int], where: Document) -> set[int]:
    """Return those of some numbers, the highest first, whose documents match, and maybe others.

    If they lie close together, all between them are walked over: to look each up costs several times as much.
    """
    if not numbers:
        return set()
    close = numbers[0] - numbers[-1] < CLOSE * len(numbers)
    among = {"$gte": numbers[-1], "$lte": numbers[0]} if close else {"$in": numbers}
    return {found["_id"] for found in db.cursor(collection, {"_id": among} | where, (), hint="_id_")}
