"""Scans: rows of a relation as they are asked for, along the index that has the fewest of them to look at.

Ended and live jobs are asked for apart, because the indexes are partial: see `lists`. Neither ends nor starts have an index by time alone,
which every job would pay for. Ends are walked type by type, along the index that retention walks, and merged: a type is opened when it can
have the next one. A job has started before its end, so the same walk has the latest starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import count, islice
from typing import Any

from rota.model.gate import EVERYTHING, Scope
from rota.model.states import TERMINAL, Status
from rota.model.values import Instant
from rota.ports.scan import Bound, Compares, Order
from rota.stores.verbs.db import Db
from rota.stores.verbs.relations import RELATIONS, scoped

Row = tuple[Any, ...]
Source = tuple[str, dict[str, Any]]
PROBE = 20_000
"""A source with fewer rows is read whole and sorted."""
CHUNK_FIRST, CHUNK_GROWS, CHUNK_MAX = 50, 4, 5000
"""Rows that are read at a time on a walk along the ends: at first, how many times more each time, and at most."""
LIVE = frozenset(Status) - TERMINAL
UNHAPPY = TERMINAL - {Status.COMPLETED}
LIVE_SOURCES = {
    "due": Status.PENDING,
    "blocked": Status.PENDING,
    "ready": Status.QUEUED,
    "held": Status.QUEUED,
    "running": Status.RUNNING,
}
"""The index ranges of live jobs where they are in one table with ended ones."""
BY_NUMBER = "number"
BY_FINISH = "finished_at"
BY_START = "started_at"
LATEST_FINISH = Order(BY_FINISH, descending=True)
LATEST_START = Order(BY_START, descending=True)


class ScanSnapshot:
    """Implements `rota.ports.scan.Snapshot` on a connection that sees one moment."""

    def __init__(self, db: Db) -> None:
        """Take the connection for the time of the block."""
        self._db = db

    def orders(self, relation: str) -> frozenset[Order]:
        """Return the orders that a scan of a relation has for less than all of its rows."""
        return RELATIONS[relation].orders

    def scan(
        self,
        relation: str,
        columns: Sequence[str],
        *,
        bounds: Sequence[Bound] = (),
        order: Order | None = None,
        scope: Scope = EVERYTHING,
    ) -> Iterator[Row]:
        """Return rows as they are asked for."""
        whose = scoped(RELATIONS[relation], scope)
        if whose is None:
            return iter(())
        if relation == "jobs":
            return JobScan(self._db, tuple(columns), (*bounds, *whose), order).rows()
        return self._db.stream(relation, None, tuple(columns), (*bounds, *whose), order)


class JobScan:
    """One scan of jobs: where its rows are looked for, and how several sources become one."""

    def __init__(self, db: Db, columns: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None) -> None:
        """Take what is asked for."""
        self._db = db
        self._columns = columns
        self._order = order
        self._equal = {bound.column: bound.value for bound in bounds if bound.compares is Compares.EQUAL}
        self._statuses = frozenset(Status)
        for bound in bounds:
            if bound.compares is Compares.AMONG and bound.column == "status":
                self._statuses &= frozenset(Status(word) for word in bound.value)
        self._bounds = tuple(bound for bound in bounds if bound.column != "schedule_name")
        self._ended = tuple(bound for bound in bounds if bound.column == BY_FINISH)
        if self._ended:
            # What has not ended has no time of its end, and meets no bound of it.
            self._statuses &= TERMINAL

    def rows(self) -> Iterator[Row]:
        """Return its rows, in order."""
        if not self._statuses:
            return iter(())
        if self._db.ends_apart and self._order is not None and not self._equal.keys().isdisjoint({"schedule_id", "schedule_name"}):
            return self._of_schedules_in_order()
        if "schedule_name" in self._equal and "schedule_id" not in self._equal:
            return self._of_schedules()
        if self._is_along_ends():
            if self._order is None:
                return self._between()
            return self._by_start() if self._order.column == BY_START else self._by_finish()
        return self._read([(source, ()) for source in self._sources()])

    def _is_along_ends(self) -> bool:
        """Say whether the scan is by time, and nothing else leads to fewer rows."""
        by_time = self._order in {LATEST_START, LATEST_FINISH, Order(BY_FINISH)} or (self._order is None and self._ended)
        has_key = not self._equal.keys().isdisjoint({"job_id", BY_NUMBER, "schedule_id", "job_type"})
        return bool(by_time) and bool(self._statuses & TERMINAL) and not has_key and not self._is_of_few()

    # ---- where ----------------------------------------------------------------------------------------------

    def _sources(self) -> list[Source]:
        """Return the sources that have every row which can match."""
        equal = self._equal
        if self._db.ends_apart:
            return [(name, {}) for name, within in (("ended", TERMINAL), ("live", LIVE)) if self._statuses & within]
        if not equal.keys().isdisjoint({"job_id", BY_NUMBER}):
            return [("key", {})]
        if "schedule_id" in equal:
            return [("of_schedule", {"schedule_id": equal["schedule_id"]})]
        if self._is_of_few():
            return [("organization", {"organization_id": equal["organization_id"]})]
        if self._statuses <= UNHAPPY:
            return [("status", {"status": str(status)}) for status in self._statuses]
        if self._statuses <= LIVE:
            return self._live()
        return self._of_type() or [("all", {})]

    def _of_type(self) -> list[Source]:
        """Return the sources of one type; none if its jobs are met soon on a walk from the newest on."""
        if "job_type" not in self._equal:
            return []
        values = {"job_type": self._equal["job_type"]}
        if self._order is None or self._order.column != BY_NUMBER:
            return [("ended_of_type", values), *self._live()]
        return [("numbers_of_type", values), *self._live()] if self._size("ended_of_type", **values) < PROBE else []

    def _live(self) -> list[Source]:
        if self._db.ends_apart:
            return [("live", {})] if self._statuses & LIVE else []
        return [(source, {}) for source, status in LIVE_SOURCES.items() if status in self._statuses]

    def _is_of_few(self) -> bool:
        """Say whether the scan is of an organization with few jobs, which an index has."""
        organization = self._equal.get("organization_id", "default")
        return organization != "default" and self._size("organization", organization_id=organization) < PROBE

    def _size(self, source: str, **values: Any) -> int:
        values = {"created_from": None, "created_until": None, "limit": PROBE} | values
        return int(self._db.along("size", source, **values)[0][0])

    # ---- how ------------------------------------------------------------------------------------------------

    def _along(self, source: str, *more: Bound, **values: Any) -> Iterator[Row]:
        """Read a source in order; the value that rows are ordered by comes last."""
        columns = self._columns if self._order is None else (*self._columns, self._order.column)
        return self._db.stream("jobs", source, columns, (*self._bounds, *more), self._order, **values)

    def _read(self, sources: list[tuple[Source, tuple[Bound, ...]]]) -> Iterator[Row]:
        """Read several sources as one."""
        order = self._order
        if order is None:
            for (source, values), more in sources:
                yield from self._along(source, *more, **values)
        elif order.column == BY_NUMBER:
            streams = [self._along(source, *more, **values) for (source, values), more in sources]
            yield from (row[:-1] for row in merge(*streams, key=_last, reverse=order.descending))
        else:
            # What is sorted is narrow: rows are read whole when their turn has come.
            columns = (BY_NUMBER, order.column)
            streams = [
                self._db.stream("jobs", source, columns, (*self._bounds, *more), order, **values) for (source, values), more in sources
            ]
            ordered = ((value, number) for number, value in merge(*streams, key=_last, reverse=order.descending))
            yield from (row for _, row in self._fetched(ordered, self._columns))

    def _of_schedules(self) -> Iterator[Row]:
        """Read the jobs of the schedules of a name, those that were dropped included."""
        sources: list[tuple[Source, tuple[Bound, ...]]] = []
        for schedule in self._schedules():
            own = Bound("schedule_id", Compares.EQUAL, schedule)
            along = self._sources() if self._db.ends_apart else [("of_schedule", {"schedule_id": schedule})]
            sources += [(source, (own,)) for source in along]
        return self._read(sources)

    def _of_schedules_in_order(self) -> Iterator[Row]:
        """Read the jobs of schedules in order: their numbers are sorted, and each is read when its turn has come."""
        order = self._order
        assert order is not None  # noqa: S101 - the caller looked
        streams = [
            self._db.stream("facts", None, (BY_NUMBER, order.column), (Bound("schedule_id", Compares.EQUAL, schedule),), order)
            for schedule in self._schedules()
        ]
        places = ((value, number) for number, value in merge(*streams, key=_last, reverse=order.descending))
        return (row for _, row in self._fetched(places, self._columns))

    def _schedules(self) -> list[str]:
        if "schedule_id" in self._equal:
            return [self._equal["schedule_id"]]
        return [schedule for (schedule,) in self._db.rows("scan_schedules_named", name=self._equal["schedule_name"])]

    # ---- by time --------------------------------------------------------------------------------------------

    def _between(self) -> Iterator[Row]:
        """Read ended jobs type by type, in no order."""
        if self._db.ends_apart:
            # Chunks of all types, by a plan that is kept: a scan of each type would be planned for itself.
            places: Iterator[Any] = self._ends(descending=True)
            if self._db.hops:
                places = self._db.stream("ends", None, (BY_FINISH, BY_NUMBER), self._ended, None)
            yield from (row for _, row in self._fetched(places, self._columns, ended=True))
            return
        earliest = max((bound.value for bound in self._ended if bound.compares is Compares.LEAST), default=None)
        for job_type, last in self._types(descending=True):
            if earliest is None or last >= earliest:
                yield from self._along("ended_of_type", Bound("job_type", Compares.EQUAL, job_type), job_type=job_type)

    def _by_finish(self) -> Iterator[Row]:
        """Read jobs in the order of their ends; live ones have none, which is the least."""
        descending = self._order == LATEST_FINISH
        ended = (row for _, row in self._fetched(self._ends(descending=descending), self._columns, ended=True))
        if descending:
            yield from ended
        for source, values in self._live():
            yield from (row[:-1] for row in self._along(source, **values))
        if not descending:
            yield from ended

    def _by_start(self) -> Iterator[Row]:
        """Read jobs in the order of their starts, the latest first.

        Who has started before its end, and ended before the place of the walk, has started before that too: all later starts are known.
        """
        tie = count()
        latest: list[tuple[Instant, int, Row]] = []
        for row in [*self._along("clock_back"), *self._running()]:
            heappush(latest, (-row[-1], next(tie), row[:-1]))
        columns = (*self._columns, BY_START)
        for finished, row in self._fetched(self._ends(descending=True), columns, ended=True):
            while latest and -latest[0][0] >= finished:
                yield heappop(latest)[2]
            if row[-1] is not None and row[-1] <= finished:
                heappush(latest, (-row[-1], next(tie), row[:-1]))
        while latest:
            yield heappop(latest)[2]
        yield from self._never_started()

    def _running(self) -> Iterator[Row]:
        if Status.RUNNING not in self._statuses:
            return iter(())
        return self._along("live" if self._db.ends_apart else "running", _of_status(Status.RUNNING))

    def _never_started(self) -> Iterator[Row]:
        waiting = self._statuses & {Status.PENDING, Status.QUEUED}
        ended = self._statuses & {Status.SKIPPED, Status.CANCELLED}
        sources: list[tuple[str, frozenset[Status], dict[str, Any]]]
        if self._db.ends_apart:
            sources = [("ended", ended, {}), ("live", waiting, {})]
        else:
            sources = [("status", frozenset({status}), {"status": str(status)}) for status in ended]
            sources += [(source, waiting, values) for source, values in self._live() if source != "running"]
        for source, statuses, values in sources:
            if statuses:
                yield from (row[:-1] for row in self._along(source, _of_status(*statuses), **values) if row[-1] is None)

    def _types(self, *, descending: bool) -> list[tuple[str, Instant]]:
        """Return the types of ended jobs, each with its last end, or its first."""
        return [(job_type, edge) for job_type, edge in self._db.rows("scan_ended_types", descending=int(descending))]

    def _ends(self, *, descending: bool) -> Iterator[tuple[Instant, int]]:
        """Merge the ends of all types: a type is opened when it can have the next one. Return moments and numbers."""
        known: set[int] = set()
        if self._db.ends_apart and not self._ended:
            # Most queries want no more, and each type that is opened is a question to the server.
            first = self._db.rows("scan_first_ends", descending=int(descending), want=CHUNK_FIRST)
            yield from first
            if len(first) < CHUNK_FIRST:
                return
            known = {number for _, number in first}
        sign, order = (-1 if descending else 1), Order(BY_FINISH, descending)
        waiting = [(sign * edge, job_type) for job_type, edge in self._types(descending=descending)]
        heapify(waiting)
        heads: list[tuple[Instant, int, Iterator[Row]]] = []
        while waiting or heads:
            if waiting and (not heads or waiting[0][0] <= heads[0][0]):
                own = Bound("job_type", Compares.EQUAL, heappop(waiting)[1])
                stream = self._db.stream("ends", None, (BY_FINISH, BY_NUMBER), (*self._ended, own), order)
            else:
                finished, number, stream = heappop(heads)
                if number not in known:
                    yield sign * finished, number
            following = next(stream, None)
            if following is not None:
                heappush(heads, (sign * following[0], following[1], stream))

    def _fetched(self, places: Iterator[tuple[Any, int]], columns: tuple[str, ...], *, ended: bool = False) -> Iterator[tuple[Any, Row]]:
        """Read the rows of jobs, as far as they match, in the order in which their numbers come; each with the value it is ordered by."""
        size = CHUNK_FIRST
        sources: list[Source] = [("all", {})]
        if self._db.ends_apart:
            sources = [("ended", {})] if ended else self._sources()
        # Numbers lead to a row sooner than its schedule, and those of a schedule are of no other.
        bounds = tuple(bound for bound in self._bounds if (bound.column, bound.compares) != ("schedule_id", Compares.EQUAL))
        while chunk := list(islice(places, size)):
            among = Bound(BY_NUMBER, Compares.AMONG, tuple(number for _, number in chunk))
            rows: dict[int, Row] = {}
            for source, _ in sources:
                found = self._db.stream("jobs", source, (*columns, BY_NUMBER), (*bounds, among), None)
                rows |= {row[-1]: row[:-1] for row in found}
            yield from ((value, rows[number]) for value, number in chunk if number in rows)
            size = min(size * CHUNK_GROWS, CHUNK_MAX)


def _of_status(*statuses: Status) -> Bound:
    return Bound("status", Compares.AMONG, tuple(str(status) for status in statuses))


def _last(row: Row) -> tuple[bool, Any]:
    return row[-1] is not None, row[-1]
