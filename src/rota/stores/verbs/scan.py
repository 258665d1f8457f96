"""Scans: rows of a relation as they are asked for, along the index that has the fewest of them to look at.

Ended and live jobs are asked for apart, because the indexes are partial: see `lists`. Ends have no index by time alone, which every job
would pay for. They are read type by type, along the index that retention walks, and merged: a type is opened when its turn has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from typing import Any

import msgspec

from rota.model.gate import EVERYTHING, Scope
from rota.model.states import TERMINAL, Status
from rota.ports.scan import Bound, Compares, Order
from rota.stores.verbs.db import Db
from rota.stores.verbs.relations import RELATIONS, scoped

Row = tuple[Any, ...]
PROBE = 20_000
"""A source with fewer rows is read whole and sorted."""
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
            return _JobScan(self._db, tuple(columns), (*bounds, *whose), order).rows()
        return self._db.stream(relation, None, tuple(columns), (*bounds, *whose), order)


class _JobScan:
    """One scan of jobs: where its rows are looked for, and how several sources become one."""

    def __init__(self, db: Db, columns: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None) -> None:
        self._db = db
        self._columns = columns
        self._order = order
        self._equal = {bound.column: bound.value for bound in bounds if bound.compares is Compares.EQUAL}
        self._statuses = frozenset(Status)
        for bound in bounds:
            if bound.compares is Compares.AMONG and bound.column == "status":
                self._statuses &= frozenset(Status(word) for word in msgspec.json.decode(bound.value))
        self._bounds = tuple(bound for bound in bounds if bound.column != "schedule_name")

    def rows(self) -> Iterator[Row]:
        """Return its rows, in order."""
        if not self._statuses:
            return iter(())
        if "schedule_name" in self._equal and "schedule_id" not in self._equal:
            return self._of_schedules()
        by_finish = self._order is not None and self._order.column == BY_FINISH
        bounded = any(bound.column == BY_FINISH for bound in self._bounds)
        if (by_finish or bounded) and self._statuses & TERMINAL and not self._keys() and not self._is_of_few():
            return self._by_type()
        return self._merged([self._along(source, **values) for source, values in self._sources()])

    # ---- where ----------------------------------------------------------------------------------------------

    def _keys(self) -> bool:
        return not self._equal.keys().isdisjoint({"job_id", BY_NUMBER, "schedule_id", "job_type"})

    def _sources(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the sources that have every row which can match."""
        apart, equal = self._db.ends_apart, self._equal
        if apart:
            return [(name, {}) for name, within in (("ended", TERMINAL), ("live", LIVE)) if self._statuses & within]
        if not equal.keys().isdisjoint({"job_id", BY_NUMBER}):
            return [("key", {})]
        if "schedule_id" in equal:
            return [("of_schedule", {"schedule_id": equal["schedule_id"]})]
        if self._is_of_few():
            return [("organization", {"organization_id": equal["organization_id"]})]
        if self._statuses <= UNHAPPY:
            return [("status", {"status": str(status)}) for status in self._statuses]
        if "job_type" in equal and self._statuses & TERMINAL:
            if self._order is None or self._order.column == BY_FINISH:
                return [("ended_of_type", {"job_type": equal["job_type"]}), *self._live()]
            if not self._is_common():
                return [("numbers_of_type", {"job_type": equal["job_type"]}), *self._live()]
        if self._statuses <= LIVE:
            return self._live()
        return [("all", {})]

    def _live(self) -> list[tuple[str, dict[str, Any]]]:
        return [(source, {}) for source, status in LIVE_SOURCES.items() if status in self._statuses]

    def _is_of_few(self) -> bool:
        """Say whether the scan is of an organization with few jobs, which an index has."""
        organization = self._equal.get("organization_id", "default")
        return organization != "default" and self._size("organization", organization_id=organization) < PROBE

    def _is_common(self) -> bool:
        """Say whether jobs of the type are met soon on a walk from the newest on."""
        return self._size("ended_of_type", job_type=self._equal["job_type"]) >= PROBE

    def _size(self, source: str, **values: Any) -> int:
        values = {"created_from": None, "created_until": None, "limit": PROBE} | values
        return int(self._db.along("size", source, **values)[0][0])

    # ---- how ------------------------------------------------------------------------------------------------

    def _along(self, source: str, more: tuple[Bound, ...] = (), **values: Any) -> Iterator[Row]:
        columns = self._columns if self._order is None else (*self._columns, self._order.column)
        return self._db.stream("jobs", source, columns, (*self._bounds, *more), self._order, **values)

    def _merged(self, streams: list[Iterator[Row]]) -> Iterator[Row]:
        if self._order is None:
            for stream in streams:
                yield from stream
            return
        for row in merge(*streams, key=_last, reverse=self._order.descending) if len(streams) != 1 else streams[0]:
            yield row[:-1]

    def _of_schedules(self) -> Iterator[Row]:
        """Read the jobs of the schedules of a name, those that were dropped included."""
        ids = [row[0] for row in self._db.rows("scan_schedules_named", name=self._equal["schedule_name"])]
        if self._db.ends_apart:
            sources = [(source, schedule, {}) for schedule in ids for source, _ in self._sources()]
        else:
            sources = [("of_schedule", schedule, {"schedule_id": schedule}) for schedule in ids]
        return self._merged(
            [self._along(source, (Bound("schedule_id", Compares.EQUAL, schedule),), **values) for source, schedule, values in sources]
        )

    def _by_type(self) -> Iterator[Row]:
        """Read ended jobs type by type, and live ones, which have no time."""
        descending = self._order is not None and self._order.descending
        live = [self._along(source, **values) for source, values in self._live_apart()]
        if descending or self._order is None:
            yield from self._of_types(descending=True)
        for stream in live:
            yield from (row if self._order is None else row[:-1] for row in stream)
        if self._order is not None and not descending:
            yield from self._of_types(descending=False)

    def _live_apart(self) -> list[tuple[str, dict[str, Any]]]:
        if any(bound.column == BY_FINISH for bound in self._bounds):
            return []
        if self._db.ends_apart:
            return [("live", {})] if self._statuses & LIVE else []
        return self._live()

    def _of_types(self, *, descending: bool) -> Iterator[Row]:
        """Merge the ended jobs of all types in the order of their ends; a type is opened when it can have the next one."""
        order = self._order or Order(BY_FINISH, descending=True)
        sign = -1 if descending else 1
        waiting = [(sign * edges[descending], job_type) for job_type, *edges in self._db.rows("scan_ended_types")]
        heapify(waiting)
        heads: list[tuple[int, str, Row, Iterator[Row]]] = []
        while waiting or heads:
            if waiting and (not heads or waiting[0][0] <= heads[0][0]):
                job_type = heappop(waiting)[1]
                bounds = (*self._bounds, Bound("job_type", Compares.EQUAL, job_type))
                source = "ended" if self._db.ends_apart else "ended_of_type"
                stream = self._db.stream("jobs", source, (*self._columns, BY_FINISH), bounds, order, job_type=job_type)
            else:
                _, job_type, row, stream = heappop(heads)
                yield row[:-1]
            following = next(stream, None)
            if following is not None:
                heappush(heads, (sign * following[-1], job_type, following, stream))


def _last(row: Row) -> tuple[bool, Any]:
    return row[-1] is not None, row[-1]
