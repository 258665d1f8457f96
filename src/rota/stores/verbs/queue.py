"""The queue in SQL: rows of one shape are written by one statement, positions are given here. Who may enter: see `intake`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from rota.errors import DuplicateId
from rota.model.ordering import GAP, counted_from
from rota.model.values import Enqueued, Held, Instant, NewRow, Origin
from rota.stores.verbs import definitions
from rota.stores.verbs.db import Db, blob

STRETCH = 8
"""Rows of one shape that follow each other are written by a statement of their own where there are, on average, so many of them."""

BODIES_MAX = 64 * 1024 * 1024
"""Params, in characters, that one statement writes: a store takes so much in one value and no more (SQLite 1,000,000,000 bytes)."""


def at_once(row: NewRow, now: Instant, definitions: int) -> dict[str, Any] | None:
    """Return the values of `insert_job_at_once` for one job; None for one that needs a second look.

    That statement writes nothing where something else needs one. A chosen id may be taken, and which job has it must be looked up.
    """
    if row.run_at > now or row.chosen or not row.lane or not is_single(row):
        return None
    values = _of_all(row, now, waits=False, lane=row.lane)
    values["ids"], values["params"] = bytes.fromhex(row.job_id), row.params
    values["definitions"], values["gap"] = definitions, GAP
    return values


def added_at_once(row: NewRow, added: list[tuple[Any, ...]]) -> Enqueued | None:
    """Return the job that was added, or the holder of its key, from the rows that came back."""
    if not added:
        return None
    if row.unique_key is None:
        number, position = added[0]
        return Enqueued(row.job_id, row.job_id, number, "QUEUED", position, existing=False)
    return Enqueued(*added[0])


def position_after(db: Db, organization_id: str, priority: int) -> int:
    """Return the base for newcomers: the first gets base + 100. An empty priority starts again at 100."""
    base = db.value("position_base", organization_id=organization_id, priority=priority)
    if base is None:
        db.change("clock_reset", priority=priority)
        return 0
    return int(base)


def promote(db: Db, now: Instant, limit: int) -> None:
    """Queue what is due, highest priority first."""
    moved = 0
    for priority, earliest in db.rows("due_priorities"):
        if earliest <= now and moved < limit:
            positions = queue_due(db, priority, now, limit - moved)
            db.change("queue_jobs", now=now, positions=positions)
            moved += len(positions)


def queue_due(db: Db, priority: int, now: Instant, limit: int) -> dict[int, int]:
    """Return the positions that due jobs of a priority get, by their numbers."""
    due = _due_decoder.decode(db.value("due_jobs", priority=priority, now=now, limit=limit))
    last: dict[str, int] = {}
    positions: dict[int, int] = {}
    for number, organization_id in due:
        if organization_id not in last:
            last[organization_id] = position_after(db, organization_id, priority)
        last[organization_id] += GAP
        positions[number] = last[organization_id]
    return positions


_due_decoder = msgspec.json.Decoder(list[tuple[int, str]])


def is_plain(row: NewRow) -> bool:
    """Say whether nothing of a row needs a look at others before it is written."""
    return bool(not row.depends_on and row.lane and is_uniform(row))


def are_in_line(rows: Sequence[NewRow], now: Instant) -> bool:
    """Say whether rows will stand in the queue one behind the other: plain, due, of one organization and priority."""
    organization_id, priority = rows[0].organization_id, rows[0].policy.priority
    return all(
        row.organization_id == organization_id and row.policy.priority == priority and row.run_at <= now and is_plain(row) for row in rows
    )


def is_uniform(row: NewRow) -> bool:
    """Say whether rows like this one, of one shape, can be written together."""
    return not (row.unique_key or row.chosen or row.webhook or row.is_tied)


def is_single(row: NewRow) -> bool:
    """Say whether nothing but one with the same id or key can stand in a row's way, and nothing else is written with it."""
    return row.webhook is None and not (row.depends_on or row.is_tied)


def is_member(row: NewRow) -> bool:
    """Say whether a row is tied to its group alone, and waits for none of its members."""
    tied = row.after or row.follows or row.job_hash or row.submit_limit is not None or row.schedule_id or row.depends_on
    return bool(row.group_id) and not (tied or row.unique_key or row.chosen or row.webhook)


def stands_alone(row: NewRow) -> bool:
    """Say whether nothing but one with the same id or key can stand in a row's way."""
    return not (row.depends_on or row.is_tied)


def shape(row: NewRow) -> tuple[Any, ...]:
    """Return what rows that are written together have in common."""
    return (
        row.job_type,
        row.policy,
        row.run_at,
        row.template_id,
        row.organization_id,
        row.origin,
        row.owner,
        row.expires_at,
        row.unique_key,
        row.meta,
        row.depends_on,
        row.on_parent_failure,
        row.put_off,
        row.queue,
        row.digest,
        row.lane,
        row.tags,
    )


def standing(db: Db, rows: Sequence[NewRow]) -> dict[int, Enqueued | None]:
    """Return which of these are there already, by their id or their key, as `found` does; None for one that is among them a second time."""
    ids = [row.job_id for row in rows]
    keys = [(row.organization_id, row.job_type, row.unique_key) for row in rows]
    seen: set[object] = set()
    there: dict[int, Enqueued | None] = {}
    for at, (job_id, key) in enumerate(zip(ids, keys, strict=True)):
        if job_id in seen or key in seen:
            there[at] = None
        seen |= {job_id} if key[2] is None else {job_id, key}
    for at, by_key, *same in sorted(db.rows("standing", ids=bytes.fromhex("".join(ids)), keys=keys)):
        if not by_key:
            _refuse_other(rows[at], same)
        if there.get(at) is None:
            there[at] = _existing(same)
    return there


def found(db: Db, row: NewRow) -> Enqueued | None:
    """Return the job that stands in the way: enqueued before under this id, or holding this key."""
    same = db.row("same_id", job_id=bytes.fromhex(row.job_id))
    if same is not None:
        _refuse_other(row, same)
        return _existing(same)
    if row.unique_key is None:
        return None
    holder = db.row("key_holder", organization_id=row.organization_id, job_type=row.job_type, unique_key=row.unique_key)
    return None if holder is None else _existing(holder)


def _refuse_other(row: NewRow, same: Sequence[Any]) -> None:
    if same[6] != row.organization_id:
        raise DuplicateId(f"id {row.job_id} is taken already: choose another")
    if same[5] != row.job_type:
        raise DuplicateId(f"id {row.job_id} belongs to a job of type {same[5]!r} already: choose another")


def known(db: Db, job_id: str) -> Enqueued | None:
    """Return the job of an id, if it is here."""
    same = db.row("same_id", job_id=bytes.fromhex(job_id))
    return None if same is None else _existing(same)


def _existing(row: Sequence[Any]) -> Enqueued:
    return Enqueued(job_id=row[0], root_id=row[1], number=row[2], status=row[3], position=row[4], existing=True)


def add(
    db: Db, rows: list[NewRow], now: Instant, number: int | None = None, *, base: int | None = None, blockers: int = 0
) -> list[Enqueued]:
    """Write rows of one shape and return what became of them; their numbers ascend, from `number` on if that is given."""
    first = rows[0]
    waits = first.run_at > now or blockers > 0
    status = "PENDING" if waits else "QUEUED"
    position = (
        _unplaced(first, now)
        if waits
        else GAP + (position_after(db, first.organization_id, first.policy.priority) if base is None else base)
    )
    if first.schedule_id is not None:
        (due_number,) = add_due(db, rows, now, number, blockers=blockers)
        return [Enqueued(first.job_id, first.job_id, due_number, status, 0 if waits else position, existing=False)]
    many, gap = len(rows) > 1, 0 if waits else GAP
    values = _of_all(first, now, number, position=position, waits=waits, blockers=blockers, lane=definitions.lane_of_row(db, first))
    if many:
        numbers: Sequence[int] = _add_many(db, rows, values, gap)
    else:
        numbers = db.added("insert_job", 1, ids=bytes.fromhex(first.job_id), params=first.params, **values)
    return [
        Enqueued(row.job_id, row.job_id, own, status, 0 if waits else position + gap * index, existing=False)
        for index, (row, own) in enumerate(zip(rows, numbers, strict=True))
    ]


def _add_many(db: Db, rows: list[NewRow], values: dict[str, Any], gap: int) -> Sequence[int]:
    numbers: list[int] = []
    for part in _parts(rows):
        numbers += db.added("insert_jobs", len(part), gap=gap, **_each_of(db, part), **values)
        values["number"], values["position"] = None, values["position"] + gap * len(part)
    return numbers


def _parts(rows: list[NewRow]) -> Iterator[list[NewRow]]:
    """Cut rows where their params become too large for one statement; mostly they are not."""
    part: list[NewRow] = []
    size = 0
    for row in rows:
        size += len(row.params)
        if part and size > BODIES_MAX:
            yield part
            part, size = [], len(row.params)
        part.append(row)
    yield part


def add_plain(db: Db, rows: Sequence[NewRow], now: Instant, number: int | None = None, *, base: int | None = None) -> list[Enqueued]:
    """Write rows that wait for no other, in the order given: stretches of one shape if they are long, else all as they come."""
    stretches = [list(same) for _, same in groupby(rows, key=shape)]
    if len(rows) < STRETCH * len(stretches) and len(rows) > 1:
        return add_each(db, rows, now, number, base=base)
    added: list[Enqueued] = []
    for stretch in stretches:
        own = base if base is None else base + len(added) * GAP
        added += add(db, stretch, now, None if added else number, base=own)
    return added


def pour(db: Db, rows: Sequence[NewRow], now: Instant, base: int) -> None:
    """Write rows that stand in line behind a position."""
    alike = shape(rows[0])
    if any(shape(row) != alike for row in rows):
        add_plain(db, rows, now, base=base)
        return
    # The way of most: of rows of one shape it is not even asked which numbers they were given.
    values = _of_all(rows[0], now, position=base + GAP, waits=False, lane=definitions.lane_of_row(db, rows[0]))
    db.change("insert_jobs", gap=GAP, **_each_of(db, rows), **values)


def add_each(db: Db, rows: Sequence[NewRow], now: Instant, number: int | None = None, *, base: int | None = None) -> list[Enqueued]:
    """Write plain rows of any shapes, and return what became of them, as `add` does those of one; all are of due times, or none."""
    last: dict[tuple[str, int], int] = {}
    lanes: dict[tuple[str, str, str], int] = {}
    values: list[dict[str, Any]] = []
    for row in rows:
        waits, line = row.run_at > now, (row.organization_id, row.policy.priority)
        if not waits:
            if line not in last:
                last[line] = position_after(db, *line) if base is None else base
            last[line] += GAP
        position = _unplaced(row, now) if waits else last[line]
        lane = row.lane or _lane_of(db, row, lanes)
        own = _of_all(row, now, None if values else number, position=position, waits=waits, lane=lane)
        if row.schedule_id is not None:
            own |= {"schedule_id": blob(row.schedule_id), "due_at": row.due_at, "run_as": row.run_as}
        values.append({"ids": bytes.fromhex(row.job_id), "params": row.params} | own)
    return [
        Enqueued(row.job_id, row.job_id, own, value["status"], max(0, value["position"]), existing=False)
        for row, own, value in zip(rows, db.added_each(values), values, strict=True)
    ]


def add_members(db: Db, rows: list[NewRow], now: Instant, number: int | None) -> list[Enqueued]:
    """Write members of one group, as `add_each` does, in parts that a statement can take."""
    added: list[Enqueued] = []
    for part in _parts(rows):
        added += add_each(db, part, now, None if added else number)
    return added


def _lane_of(db: Db, row: NewRow, lanes: dict[tuple[str, str, str], int]) -> int:
    """Return the lane of a row that does not know it; `lanes` has those of the rows before it."""
    key = row.job_type, row.queue, row.digest
    if key not in lanes:
        lanes[key] = definitions.find_lane(db, *key)
    return lanes[key]


def add_all_due(db: Db, rows: Sequence[NewRow], now: Instant, number: int | None = None) -> list[int]:
    """Write jobs of schedules that wait for no other: stretches of one shape and due time if they are long, else all as they come."""
    stretches = [list(same) for _, same in groupby(rows, key=lambda row: (shape(row), row.run_as, row.due_at))]
    if len(rows) < STRETCH * len(stretches) and len(rows) > 1:
        return [added.number for added in add_each(db, rows, now, number)]
    numbers: list[int] = []
    for stretch in stretches:
        numbers += add_due(db, stretch, now, None if numbers else number)
    return numbers


def add_due(db: Db, rows: list[NewRow], now: Instant, number: int | None = None, *, blockers: int = 0) -> Sequence[int]:
    """Write jobs of schedules, of one shape and due time, as `add` does others; return their numbers."""
    first = rows[0]
    waits = first.run_at > now or blockers > 0
    position = 0 if waits else position_after(db, first.organization_id, first.policy.priority) + GAP
    return db.added(
        "insert_jobs_due",
        len(rows),
        schedules=bytes.fromhex("".join([row.schedule_id or "" for row in rows])),
        due_at=first.due_at,
        run_as=first.run_as,
        gap=0 if waits else GAP,
        **_each_of(db, rows),
        **_of_all(first, now, number, position=position, waits=waits, blockers=blockers, lane=definitions.lane_of_row(db, first)),
    )


def _unplaced(row: NewRow, now: Instant) -> int:
    """Return the position of a row that waits for its time."""
    return counted_from(now) if row.put_off else 0


def _each_of(db: Db, rows: Sequence[NewRow]) -> dict[str, Any]:
    """Return what rows that are written together have each for itself."""
    return {"ids": bytes.fromhex("".join([row.job_id for row in rows])), "bodies": db.bodies([row.params for row in rows])}


def _of_all(
    row: NewRow, now: Instant, number: int | None = None, *, position: int | None = None, waits: bool, lane: int, blockers: int = 0
) -> dict[str, Any]:
    """Return what rows of one shape have in common, of any of them."""
    policy = row.policy
    return {
        "number": number,
        "status": "PENDING" if waits else "QUEUED",
        "position": position,
        "blockers": blockers,
        "held": str(Held.DIRECT) if row.origin == Origin.DIRECT else None,
        "now": now,
        "queued_at": None if waits else now,
        "organization_id": row.organization_id,
        "template_id": blob(row.template_id),
        "job_type": row.job_type,
        "origin": row.origin,
        "priority": policy.priority,
        "run_at": row.run_at,
        "expires_at": row.expires_at,
        "unique_key": row.unique_key,
        "job_hash": blob(row.job_hash),
        "group_id": blob(row.group_id),
        "sequence_number": row.sequence_number,
        "owner": row.owner,
        "max_retries": policy.max_retries,
        "max_crashes": policy.max_crashes,
        "backoff": policy.backoff,
        "timeout": policy.timeout,
        "executor": policy.executor,
        "meta": row.meta,
        "lane": lane,
        "tags": row.tags,
    }
