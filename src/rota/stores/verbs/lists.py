"""Lists: pages of jobs, newest first, read along the index that has the fewest rows to look at.

Types and times have no index of their own, which every job would pay for. Ended jobs are found by both in the index that retention
walks, live ones in those of their states; and what is common is soon met on a walk from the newest on. All of it is exact, also where a
clock has stepped or old jobs were imported: numbers follow the order of making, and times need not.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import msgspec

from rota.model.states import TERMINAL, Status
from rota.model.values import Job
from rota.ports.store import Where
from rota.stores.verbs.db import Db, blob
from rota.stores.verbs.reads import LAST, job_from

PROBE = 20_000
"""A source with fewer rows is read whole and sorted: some milliseconds. So many of the newest are walked over before a larger one is."""
DEARER = 8
"""A row that an index leads to lies anywhere in the file: it costs about so many rows of a walk (1.9 us against 0.27)."""
ANY_TIME = {"created_from": None, "created_until": None}
EVERY_STATE = frozenset(Status)
UNHAPPY = TERMINAL - {Status.COMPLETED}


class Source(msgspec.Struct, frozen=True):
    """Where the rows of a page are looked for: one or several index ranges, each with the status it is about, if any."""

    arms: tuple[tuple[str, str | None], ...]
    sorted: bool = True
    """Its rows come in the order of their numbers: a page is read without looking at them all."""


ALL = Source((("all", None),))


def find(db: Db, where: Where, *, limit: int, before: int | None = None) -> list[tuple[int, Job]]:
    """Return a page of jobs, newest first, each with its cursor."""
    values = _values(where)
    if values is None:
        return []
    values |= {"floor": 0, "before": LAST if before is None else before, "limit": limit}
    # One view of the store for all that is asked, whoever writes meanwhile.
    with db.snapshot():
        rows = _page(db, values, list(_sources(where, values["organization_id"], ends_apart=db.ends_apart)))
    return [(row[1], job_from(row)) for row in rows]


def _page(db: Db, values: dict[str, Any], sources: list[Source]) -> list[tuple[Any, ...]]:
    """Read a page along a small source or, if there is none, among the newest; only what is not there is worth a longer search."""
    # What a time leaves of a source is not known before all of it is looked at: it is counted without.
    small = _fewest(db, values | ANY_TIME, sources, PROBE)
    if small is not None or not sources:
        return _along(db, values, small or ALL)
    in_order = next((source for source in sources if source.sorted), ALL)
    rows = _along(db, values | {"floor": min(_newest(db, values, in_order) + 1, values["before"]) - PROBE}, in_order)
    if len(rows) == values["limit"]:
        return rows
    jobs = db.rows("span")[0][1]
    return _along(db, values, _fewest(db, values, sources, jobs // DEARER) or in_order)


def _newest(db: Db, values: dict[str, Any], source: Source) -> int:
    found = [db.along("newest", name, **values, status=status) for name, status in source.arms]
    return max((rows[0][0] for rows in found if rows), default=0)


def _along(db: Db, values: dict[str, Any], source: Source) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for name, status in source.arms:
        rows += db.along("find", name, **values, status=status)
    rows.sort(key=itemgetter(1), reverse=True)
    return rows[: values["limit"]]


def _values(where: Where) -> dict[str, Any] | None:
    """Return what statements are given; None if nothing can match, because what is asked for is out of reach."""
    scope = where.scope
    if scope.organization is not None and where.organization not in {None, scope.organization}:
        return None
    if scope.owner is not None and where.owner not in {None, scope.owner} and not scope.granted:
        return None
    return {
        "statuses": where.status or None,
        "job_type": where.job_type,
        "queue": where.queue,
        "tag": where.tag,
        "organization_id": where.organization if scope.organization is None else scope.organization,
        "owner": where.owner if scope.owner is None or scope.granted else scope.owner,
        "reach": scope.owner if scope.granted else None,
        "granted": scope.granted or None,
        "group_id": blob(where.group_id),
        "root_id": blob(where.root_id),
        "schedule_id": blob(where.schedule_id),
        "error_type": where.error_type,
        "created_from": where.created_from,
        "created_until": where.created_until,
        "tails": where.tails,
        "text": where.text,
        "named": blob(where.named),
    }


def _fewest(db: Db, values: dict[str, Any], sources: list[Source], most: int) -> Source | None:
    """Return the source with the fewest rows, if they are fewer than `most`."""
    best, fewest = None, most
    for source in sources:
        size = 0
        for name, status in source.arms:
            if size < fewest:
                rows = db.along("size", name, **(values | {"status": status, "limit": fewest - size}))
                size += rows[0][0]
        if size < fewest:
            best, fewest = source, size
    return best


def _sources(where: Where, organization: str | None, *, ends_apart: bool) -> Iterator[Source]:
    """Go through the sources that have every row which can match."""
    # What has an error type has ended, and not well.
    statuses = frozenset(map(Status, where.status)) or (UNHAPPY if where.error_type is not None else EVERY_STATE)
    if where.root_id is not None:
        yield Source((("chain", None),), sorted=False)
    if where.group_id is not None:
        yield Source((("group", None),), sorted=False)
    if where.schedule_id is not None:
        yield Source((("schedule", None),), sorted=False)
    if statuses <= UNHAPPY:
        yield Source(tuple(("status", str(status)) for status in statuses))
    elif ends_apart and statuses <= TERMINAL:
        yield Source((("ends", None),))
    if organization not in {None, "default"}:
        yield Source((("organization", None),))
    if statuses < EVERY_STATE or any(each is not None for each in (where.job_type, where.queue, where.created_from, where.created_until)):
        yield Source(tuple(_by_state(statuses, "" if where.job_type is None else "_of_type", where.queue)), sorted=False)


def _by_state(statuses: frozenset[Status], of_type: str, queue: str | None) -> Iterator[tuple[str, None]]:
    """Go through the index ranges of these states, and of a type or a queue where the index has these."""
    of_queue = "" if queue is None else "_of_queue"
    if Status.PENDING in statuses:
        yield ("due", None)
        yield ("blocked", None)
    if Status.QUEUED in statuses:
        yield (f"ready{of_type or of_queue}", None)
        yield (f"held{of_type}", None)
    if Status.RUNNING in statuses:
        yield ("running", None)
    if statuses & TERMINAL:
        yield (f"ended{of_type}", None)
