"""Looking from above, in SQL: lanes of what waits, what runs, what did not fire, figures. Every walk has its bound."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import msgspec

from rota.model.gate import EVERYTHING, Scope
from rota.model.schedules import Fate
from rota.model.values import LATEST, Instant, dashed, number_text
from rota.ports.overseeing import Dead, Figure, Lane, Paused, RunningSuspect, Seen, Shown, UnderWay, Unfired
from rota.stores.verbs.base import Base
from rota.stores.verbs.db import Db
from rota.stores.verbs.queue import numbers_json
from rota.stores.verbs.reads import job_from
from rota.stores.verbs.stats import HOUR

LANES_MAX = 500
"""Lanes that are looked at, at most."""
ROWS_LOOK = 5000
"""Rows that are read where an index does not tell enough, at most: for those of one organization, and for what is blocked."""
SUSPECTS_LOOK = 1000
"""Rows at the front of each lane that are looked at for suspects."""
HEADS = 50
"""How many at the front of each lane are looked at for the longest wait."""


class Overseeing(Base):
    """Implements `rota.ports.overseeing.Overseeing`."""

    def waiting(self, *, now: Instant, look: int, scope: Scope = EVERYTHING) -> list[Lane]:
        """Return what waits, in lanes."""
        with self._reading() as db, db.snapshot():
            queued = list(_queued(db, look) if scope.organization is None else _queued_of(db, look, scope))
            if db.rows("running_suspects"):
                queued = _with_suspects(db, queued, scope)
            return [*queued, *_blocked(db, look, scope), *_due(db, now, look, scope)]
        raise AssertionError  # a context manager may swallow an error, for all that mypy knows

    def shown(self, numbers: list[int]) -> dict[int, Shown]:
        """Return how jobs are named."""
        with self._reading() as db:
            return {
                row[0]: Shown(id=dashed(row[1]), root_id=row[2], root_number=row[3], attempt=row[4], job_type=row[5])
                for row in db.rows("shown", numbers=numbers_json(numbers))
            }

    def suspects(self) -> list[RunningSuspect]:
        """Return the suspects that run."""
        with self._reading() as db:
            return [
                RunningSuspect(worker_id=worker_id, number=number_text(root_id, root_number, attempt), executor=executor)
                for _, worker_id, root_id, root_number, attempt, executor in db.rows("running_suspects")
            ]

    def running(self, *, look: int, limit: int, scope: Scope = EVERYTHING) -> UnderWay:
        """Return the longest running jobs."""
        with self._reading() as db:
            rows = db.rows("running_now", look=look, limit=limit, organization_id=scope.organization, owner=scope.owner)
        count, looked = (rows[0][-2], rows[0][-1]) if rows else (0, 0)
        return UnderWay(
            jobs=[Seen(job=job_from(row[:-4]), progress=row[-4], message=row[-3]) for row in rows], count=count, more=looked >= look
        )

    def dead_lately(self, *, since: Instant, look: int, limit: int, scope: Scope = EVERYTHING) -> list[Dead]:
        """Return dead letters."""
        values = {"organization_id": scope.organization, "owner": scope.owner}
        with self._reading() as db:
            return [
                Dead(
                    job=Shown(id=dashed(row[0]), root_id=row[1], root_number=row[2], attempt=row[3], job_type=row[4]),
                    organization=row[5],
                    at=row[6],
                    reason=row[7],
                )
                for row in db.rows("dead_lately", since=since, look=look, limit=limit, **values)
            ]

    def unfired(self, *, since: Instant, limit: int, scope: Scope = EVERYTHING) -> list[Unfired]:
        """Return due times that did not fire."""
        with self._reading() as db:
            return [
                Unfired(
                    schedule=row[0],
                    schedule_id=row[1],
                    organization=row[2],
                    fate=Fate(row[3]),
                    due_at=row[4],
                    last_due_at=row[5],
                    count=row[6],
                    reason=row[7],
                )
                for row in db.rows("unfired", since=since, limit=limit, organization_id=scope.organization, owner=scope.owner)
            ]

    def figures(self, *, since: Instant, scope: Scope = EVERYTHING) -> list[Figure]:
        """Return how attempts ended."""
        with self._reading(long=True) as db:
            return [Figure(*row) for row in db.rows("figures", since=since - since % HOUR, organization_id=scope.organization)]

    def hourly(self, *, since: Instant, scope: Scope = EVERYTHING) -> list[Figure]:
        """Return figures by the hour."""
        with self._reading(long=True) as db:
            return [Figure(*row) for row in db.rows("hourly", since=since - since % HOUR, organization_id=scope.organization)]

    def kept(self, status: str, *, scope: Scope = EVERYTHING) -> dict[str, int]:
        """Return how many ended jobs are here."""
        with self._reading(long=True) as db:
            return dict(db.rows("kept", status=status, organization_id=scope.organization))

    def metas(self, numbers: list[int]) -> dict[int, str]:
        """Return what is kept with jobs."""
        with self._reading() as db:
            return dict(db.rows("metas", numbers=numbers_json(numbers)))

    def paused(self) -> list[Paused]:
        """Return what is paused."""
        with self._reading() as db:
            return [Paused(kind=kind, name=name, at=at, by=by) for kind, name, at, by in db.rows("paused")]


def _queued(db: Db, look: int) -> Iterator[Lane]:
    """Go along the ready index, lane by lane and priority by priority, then along what is parked, word by word and type by type."""
    for job_type, lane, queue, number, most, count, since in sorted(
        db.rows("ready_lanes", limit=LANES_MAX, look=look, few=HEADS), key=itemgetter(0)
    ):
        values = {"number": number, "count": count, "more": count >= most, "since": since, "lane": lane, "queue": queue}
        yield Lane(status="QUEUED", job_type=job_type, **values)
    for held, job_type, number, most, count, since in db.rows("held_lanes", limit=LANES_MAX, look=look, few=HEADS):
        yield Lane(status="QUEUED", job_type=job_type, held=held, number=number, count=count, more=count >= most, since=since)


def _queued_of(db: Db, look: int, scope: Scope) -> Iterator[Lane]:
    """Look at the heads of an organization's lines, the highest priority first, until enough was looked at."""
    left, priority = min(look, ROWS_LOOK), db.value("next_priority", priority=101)
    while priority is not None and left > 0:
        rows = db.rows("line_lanes", priority=priority, organization_id=scope.organization, owner=scope.owner, look=left)
        looked = sum(row[3] for row in rows)
        for held, job_type, mine, count, since, number, lane, queue in rows:
            if mine:
                values = {"number": number, "count": count, "more": looked >= left, "since": since, "lane": lane, "queue": queue}
                yield Lane(status="QUEUED", job_type=job_type, held=held, **values)
        left -= looked
        priority = db.value("next_priority", priority=priority)


def _with_suspects(db: Db, lanes: list[Lane], scope: Scope) -> list[Lane]:
    """Count suspects apart from others of their type that wait in the same lane."""
    found: list[Lane] = []
    apart: dict[int, int] = {}
    heads = {lane.lane: lane for lane in lanes if lane.held is None and lane.lane is not None}
    for lane_id, head in sorted(heads.items(), key=lambda item: str(item[1].job_type)):
        values = {"organization_id": scope.organization, "owner": scope.owner}
        count, since, number = db.rows("waiting_suspects", lane=lane_id, look=SUSPECTS_LOOK, **values)[0]
        if count:
            apart[lane_id] = count
            found.append(msgspec.structs.replace(head, number=number, count=count, more=False, since=since, suspects=True))
    for lane in lanes:
        # Each priority is counted by itself: what was counted apart is taken from the first ones.
        taken = min(lane.count, apart.get(lane.lane or 0, 0)) if lane.held is None else 0
        if taken:
            apart[lane.lane or 0] -= taken
        if lane.count > taken:
            found.append(msgspec.structs.replace(lane, count=lane.count - taken))
    return found


def _blocked(db: Db, look: int, scope: Scope) -> Iterator[Lane]:
    values: dict[str, Any] = {"look": look}
    if scope.organization is not None:
        values |= {"organization_id": scope.organization, "owner": scope.owner}
    values["look"] = look = min(look, ROWS_LOOK)
    rows = db.rows("blocked_lanes" if scope.organization is None else "blocked_lanes_of", **values)
    more = sum(row[2] for row in rows) >= look
    for job_type, mine, count, since, number in rows:
        if mine:
            yield Lane(status="PENDING", job_type=job_type, number=number, count=count, more=more, since=since, blocked=True)


def _due(db: Db, now: Instant, look: int, scope: Scope) -> Iterator[Lane]:
    """Go from priority to priority: those whose time has come, and those whose time is to come."""
    values: dict[str, Any] = {"look": look}
    if scope.organization is not None:
        values["look"] = look = min(look, ROWS_LOOK)
        values |= {"organization_id": scope.organization, "owner": scope.owner}
    statement = "due_lane" if scope.organization is None else "due_lane_of"
    for priority, _ in db.rows("due_priorities"):
        for after, until in ((-1, now), (now, LATEST)):
            looked, count, since, number = db.rows(statement, priority=priority, after=after, until=until, **values)[0]
            if count:
                yield Lane(status="PENDING", number=number, count=count, more=looked >= look, since=since)
