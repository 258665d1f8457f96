"""Reading the ledger, latest due times first: in chunks, for what is asked of a row's schedule and job is known only behind the index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from typing import Any, NamedTuple

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, ident
from rota.stores.mongodb.schema import UNFIRED
from rota.stores.mongodb.statements import jobs
from rota.stores.mongodb.statements.joining import among, in_chunks

WALK = (100, 1000)
"""Rows that are looked at together, at least and at most."""
LATEST_FIRST = [("due_at", -1), ("schedule_id", -1), ("fate", -1)]
NOT_RUN = frozenset({"DEAD_LETTER", "SKIPPED", "CANCELLED"})


class _Asked(NamedTuple):
    """What is asked of rows, beyond their due times."""

    organization_id: str | None
    owner: str | None
    granted: Sequence[str]
    fates: Sequence[str]
    not_ran: int
    before_at: int | None
    before_schedule: str | bytes | None
    before_fate: str | None

    def ranges(self, own: Document) -> Iterator[Document]:
        """Return filters for the rows behind the place that was read last, in their order. Each is a range of an index."""
        if self.before_at is None:
            yield own
            return
        here, schedule_id = {"due_at": self.before_at}, ident(self.before_schedule)
        yield {"$and": [own, here | {"schedule_id": schedule_id, "fate": {"$lt": self.before_fate}}]}
        yield {"$and": [own, here | {"schedule_id": {"$lt": schedule_id}}]}
        yield {"$and": [own, {"due_at": {"$lt": self.before_at}}]}

    def about_fates(self) -> Document:
        """Return the filter for fates."""
        return {"fate": {"$in": [str(fate) for fate in self.fates]}} if self.fates else {}

    def has(self, schedule: Document | None) -> bool:
        """Say whether the rows of a schedule are asked for."""
        if schedule is None or self.organization_id not in {None, schedule["organization_id"]}:
            return False
        return self.owner in {None, schedule["created_by"]} or schedule["_id"] in self.granted


@statement
def occurrences_everywhere(db: Db, *, earliest: int, latest: int, limit: int, **asked: Any) -> list[Row]:
    """Return rows of all schedules."""
    wanted = _Asked(**asked)
    between = {"due_at": {"$gte": earliest, "$lte": latest}, **wanted.about_fates()}
    return _read(db, _rows_in(db, wanted.ranges(between), hint="occurrences_time"), wanted, limit)


@statement
def occurrences_of_schedule(db: Db, *, schedule_id: str | bytes, earliest: int, latest: int, limit: int, **asked: Any) -> list[Row]:
    """Return rows of one schedule."""
    wanted = _Asked(**asked)
    own = {"schedule_id": ident(schedule_id), "due_at": {"$gte": earliest, "$lte": latest}, **wanted.about_fates()}
    return _read(db, _rows_in(db, wanted.ranges(own), hint="occurrences_key"), wanted, limit)


@statement
def occurrences_reaching(
    db: Db, *, schedule_id: str | bytes | None, since: int, earliest: int, latest: int, limit: int, **asked: Any
) -> list[Row]:
    """Return spans that begin before a moment and reach over it."""
    wanted = _Asked(**asked)
    spans = {**UNFIRED, "last_due_at": {"$gte": since}, "$expr": {"$gt": ["$last_due_at", "$due_at"]}}
    own = {} if schedule_id is None else {"schedule_id": ident(schedule_id)}
    where = {"$and": [spans, own, {"due_at": {"$gte": earliest, "$lte": latest}}, wanted.about_fates()]}
    return _read(db, _rows_in(db, wanted.ranges(where), hint="occurrences_unfired"), wanted, limit)


def _rows_in(db: Db, ranges: Iterator[Document], *, hint: str) -> Iterator[Document]:
    """Return the rows of ranges one after the other, as they are asked for. What is not read to its end is closed with it."""
    for where in ranges:
        with closing(db.cursor("occurrences", where, sort=LATEST_FIRST, hint=hint)) as found:
            yield from found


def _read(db: Db, found: Iterator[Document], wanted: _Asked, limit: int) -> list[Row]:
    """Return the first rows that are asked for."""
    least, most = WALK
    chunks = in_chunks(found, max(least, min(limit, most)))
    return list(islice(chain.from_iterable(_wanted_of(db, some, wanted) for some in chunks), limit))


def _wanted_of(db: Db, some: Sequence[Document], wanted: _Asked) -> Iterator[Row]:
    """Return those of some rows that are asked for, with their schedules and what became of their jobs."""
    names = ("name", "organization_id", "created_by")
    schedules = {found["_id"]: found for found in among(db, "schedules", "_id", {row["schedule_id"] for row in some}, names)}
    mine = [row for row in some if wanted.has(schedules.get(row["schedule_id"]))]
    statuses = _statuses(db, [row["job_id"] for row in mine if "job_id" in row])
    for row in mine:
        schedule, status = schedules[row["schedule_id"]], statuses.get(row.get("job_id", ""))
        if not wanted.not_ran or row["fate"] != "FIRED" or status in NOT_RUN:
            times = (row["due_at"], row["last_due_at"], row["count"], row["fate"], row.get("reason"), row.get("job_id"))
            yield (schedule["name"], schedule["_id"], schedule["organization_id"], *times, status, row["recorded_at"])


def _statuses(db: Db, roots: Sequence[str]) -> dict[str, str]:
    """Return the statuses of the last attempts of chains, by the ids of the first."""
    lines = jobs.chains(db, roots, ("root_id", "attempt"))
    tails = {root: line[-1]["_id"] for root, line in lines.items() if line}
    states = jobs.states(db, list(tails.values()), ("status",))
    return {root: states[number]["status"] for root, number in tails.items() if number in states}
