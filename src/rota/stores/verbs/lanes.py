"""Lanes in SQL: found by type, queue and digest, and added when the first job of one comes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from rota.model.lanes import DEFAULT_QUEUE, JobLane, ParamNames, QueueInfo
from rota.model.values import Instant, NewRow, WorkerInfo, moment
from rota.stores.verbs.db import Db

HEADS = 50
"""How many at the front of each lane are looked at for the longest wait."""
DEFINITIONS = (1 << 40) - 1
"""The bits of the version that count changes of definitions; those above count lanes."""
STRAY_TYPES_MAX = 100
LINES_MAX = 5000
"""Lanes, by priority, whose ready jobs are counted."""

_names = msgspec.json.Decoder(ParamNames)
_encode = msgspec.json.Encoder().encode


def same_definitions(version: int, definitions: int) -> bool:
    """Say whether two versions are of the same definitions, whatever lanes have been added since.

    A job needs no lane that its caller knows, and a lane that the caller's own transaction has added is known to nobody else yet.
    """
    return (version ^ definitions) & DEFINITIONS == 0


def of_row(db: Db, row: NewRow) -> int:
    """Return the lane of a new job. One that is not there yet is added, which advances the version of the definitions."""
    return row.lane or find(db, row.job_type, row.queue, row.digest)


def find(db: Db, job_type: str, queue: str, digest: str) -> int:
    """Return a lane, adding it if it is not there."""
    values = {"job_type": job_type, "queue": queue, "digest": digest}
    lane = db.value("lane_of", **values)
    if lane is None:
        db.change("add_lane", **values)
        lane = db.value("lane_of", **values)
    return int(lane)


def place_strays(db: Db) -> int:
    """Put live jobs without a lane, which a program of an earlier version has written, into the lane of their type. Return how many."""
    types = [job_type for (job_type,) in db.rows("stray_types", limit=STRAY_TYPES_MAX)]
    return sum(db.change("place_strays", job_type=each, lane=find(db, each, DEFAULT_QUEUE, "")) for each in types)


def has_strays(db: Db) -> bool:
    """Say whether there are such jobs."""
    return bool(db.rows("stray_types", limit=1))


def of_types(db: Db, types: Sequence[str]) -> dict[int, str]:
    """Return every lane of these types."""
    return dict(db.rows("lanes_of_types", types=_encode(list(types)).decode())) if types else {}


def lanes(db: Db) -> list[JobLane]:
    """Return every lane."""
    return [
        JobLane(lane, job_type, queue, digest, None if names is None else _names.decode(names))
        for lane, job_type, queue, digest, names in db.rows("all_lanes")
    ]


class _Sum(msgspec.Struct):
    waiting: int = 0
    at_least: bool = False
    since: Instant | None = None
    running: int = 0

    def add(self, count: int, since: Instant | None, *, more: bool) -> None:
        self.waiting += count
        self.at_least = self.at_least or more
        self.since = since if self.since is None else self.since if since is None else min(self.since, since)


def queues(db: Db, workers: Sequence[WorkerInfo], *, look: int) -> list[QueueInfo]:
    """Return every queue that has or had jobs, is served by name, or is paused."""
    sums: dict[str, _Sum] = defaultdict(_Sum)
    names = {lane.id: lane.queue for lane in lanes(db)}
    for name in {DEFAULT_QUEUE, *names.values()}:
        sums[name]
    for _, _, queue, _, most, count, since in db.rows("ready_lanes", limit=LINES_MAX, look=look, few=HEADS):
        sums[queue].add(count, since, more=count >= most)
    _add_held(db, sums, names, look)
    for lane, count in db.rows("running_by_lane"):
        sums[names.get(lane, DEFAULT_QUEUE)].running += count
    serving = [worker for worker in workers if worker.kind == "worker" and worker.ended_at is None and worker.stopping_at is None]
    paused = {name for kind, name in db.rows("pauses") if kind == "queue"}
    for name in {*paused, *(queue for worker in serving for queue in worker.queues or ())}:
        sums[name]
    return [
        QueueInfo(
            name=name,
            waiting=each.waiting,
            at_least=each.at_least,
            oldest=moment(each.since),
            running=each.running,
            workers=sum(worker.queues is None or name in worker.queues for worker in serving),
            paused=name in paused,
        )
        for name, each in sorted(sums.items())
    ]


def _add_held(db: Db, sums: dict[str, _Sum], names: Mapping[int, str], look: int) -> None:
    rows = db.rows("held_by_lane", look=look)
    more = sum(count for _, count, _ in rows) >= look
    for lane, count, since in rows:
        sums[names.get(lane, DEFAULT_QUEUE)].add(count, since, more=more)
