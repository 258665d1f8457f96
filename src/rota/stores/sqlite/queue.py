"""Entering the queue: rows of one shape are written by one statement, positions are given here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import apsw
import msgspec

from rota.errors import DuplicateId, QueueFull
from rota.model.ordering import GAP
from rota.model.values import Enqueued, Held, Instant, NewRow, Origin
from rota.ports.store import DefinitionsChanged
from rota.stores.sqlite.connection import Db

_encode = msgspec.json.Encoder().encode


def enqueue(db: Db, rows: Sequence[NewRow], now: Instant, definitions: int | None = None) -> list[Enqueued]:
    """Write new jobs, in the order given. Those that are there already come back as they are."""
    if not rows:
        return []
    repeated = False
    base = number = None
    for organization_id, own in _by_organization(rows):
        version, max_queued, known, base, number = db.rows(
            "enqueue_gate",
            organization_id=organization_id,
            priority=own[0].policy.priority,
            # Ids ascend within a call: one that is repeated shows at its ends. A caller's own may not: see _add_same.
            first=bytes.fromhex(own[0].job_id),
            last=bytes.fromhex(own[-1].job_id),
        )[0]
        if definitions is not None and version != definitions:
            raise DefinitionsChanged
        if max_queued is not None:
            _refuse_overflow(db, organization_id, own, max_queued)
        repeated = repeated or bool(known)
    if len(rows) == 1:
        found = None if _is_plain(rows[0]) and not repeated else _found(db, rows[0])
        return [found] if found else _add(db, [rows[0]], now, number, base=base)
    out: list[Enqueued] = []
    for plain, run in groupby(rows, key=_is_plain):
        if plain and not repeated:
            for _, same in groupby(run, key=_shape):
                out += _add_same(db, list(same), now, number)
                number = None
        else:
            for row in run:
                out.append(_found(db, row) or _add(db, [row], now, number)[0])
                number = None
    return out


def add_at_once(db: Db, row: NewRow, now: Instant, definitions: int) -> Enqueued | None:
    """Write one plain job in one statement, outside any transaction, if nothing needs a second look; otherwise nothing."""
    if row.run_at > now or not _is_plain(row):
        return None
    try:
        added = db.rows(
            "insert_job_at_once",
            ids=bytes.fromhex(row.job_id),
            params=row.params,
            definitions=definitions,
            gap=GAP,
            status="QUEUED",
            blockers=0,
            held=None,
            now=now,
            queued_at=now,
            **_columns(row),
        )
    except apsw.ConstraintError:
        # It is there already, most likely: the way that looks at each will say.
        return None
    return Enqueued(row.job_id, row.job_id, added[0][0], "QUEUED", added[0][1], existing=False) if added else None


def _by_organization(rows: Sequence[NewRow]) -> list[tuple[str, Sequence[NewRow]]]:
    first = rows[0].organization_id
    if all(row.organization_id == first for row in rows):
        return [(first, rows)]
    names = dict.fromkeys(row.organization_id for row in rows)
    return [(name, [row for row in rows if row.organization_id == name]) for name in names]


def position_after(db: Db, organization_id: str, priority: int) -> int:
    """Return the base for newcomers: the first gets base + 100. An empty priority starts again at 100."""
    base = db.value("position_base", organization_id=organization_id, priority=priority)
    if base is None:
        db.change("clock_reset", priority=priority)
        return 0
    return int(base)


def promote(db: Db, now: Instant, limit: int) -> Instant | None:
    """Queue what is due, highest priority first; return when the next one is due."""
    waiting = db.rows("due_priorities")
    moved = 0
    for priority, earliest in waiting:
        if earliest <= now and moved < limit:
            moved += _promote_priority(db, priority, now, limit - moved)
    if moved:
        waiting = db.rows("due_priorities")
    return min((earliest for _, earliest in waiting), default=None)


def _promote_priority(db: Db, priority: int, now: Instant, limit: int) -> int:
    due = _due_decoder.decode(db.value("due_jobs", priority=priority, now=now, limit=limit))
    last: dict[str, int] = {}
    positions: dict[int, int] = {}
    for number, organization_id in due:
        if organization_id not in last:
            last[organization_id] = position_after(db, organization_id, priority)
        last[organization_id] += GAP
        positions[number] = last[organization_id]
    db.change("queue_jobs", now=now, positions=_encode(positions).decode())
    return len(due)


_due_decoder = msgspec.json.Decoder(list[tuple[int, str]])


def _is_plain(row: NewRow) -> bool:
    return not (row.unique_key or row.after or row.group_id or row.chosen or row.origin == Origin.DIRECT)


def _refuse_overflow(db: Db, organization_id: str, rows: Sequence[NewRow], limit: int) -> None:
    waiting = db.value("queued_count", organization_id=organization_id)
    if waiting + len(rows) <= limit:
        return
    added = sum(_found(db, row) is None for row in rows)
    if added and waiting + added > limit:
        raise QueueFull(
            f"organization {organization_id!r} has {waiting:,} jobs queued and max_queued is {limit:,}: {added:,} more can't be added"
        )


def _found(db: Db, row: NewRow) -> Enqueued | None:
    """Return the job that stands in the way: enqueued before under this id, or holding this key."""
    same = db.row("same_id", job_id=bytes.fromhex(row.job_id))
    if same is not None:
        if same[5] != row.job_type:
            raise DuplicateId(f"id {row.job_id} belongs to a job of type {same[5]!r} already: choose another")
        return _existing(same)
    if row.unique_key is None:
        return None
    holder = db.row("key_holder", organization_id=row.organization_id, job_type=row.job_type, unique_key=row.unique_key)
    return None if holder is None else _existing(holder)


def _existing(row: tuple[Any, ...]) -> Enqueued:
    return Enqueued(job_id=row[0], root_id=row[1], number=row[2], status=row[3], position=row[4], existing=True)


def _add_same(db: Db, rows: list[NewRow], now: Instant, number: int | None) -> list[Enqueued]:
    """Write rows of one shape at once; if one of them turns out to be there already, look at each."""
    try:
        return _add(db, rows, now, number)
    except apsw.ConstraintError:
        return [_found(db, row) or _add(db, [row], now, None)[0] for row in rows]


def _shape(row: NewRow) -> tuple[Any, ...]:
    return (row.job_type, row.policy, row.run_at, row.template_id, row.organization_id, row.origin, row.owner, row.expires_at, row.meta)


def _add(db: Db, rows: list[NewRow], now: Instant, number: int | None, *, base: int | None = None) -> list[Enqueued]:
    """Write rows of one shape and return their numbers, which follow each other, from `number` on if that is given."""
    first = rows[0]
    waits = first.run_at > now or first.after is not None
    status = "PENDING" if waits else "QUEUED"
    position = 0 if waits else (base or position_after(db, first.organization_id, first.policy.priority)) + GAP
    many = len(rows) > 1
    db.change(
        "insert_jobs" if many else "insert_job",
        ids=bytes.fromhex("".join([row.job_id for row in rows])) if many else bytes.fromhex(first.job_id),
        params=f"[{','.join([row.params for row in rows])}]" if many else first.params,
        number=number,
        status=status,
        position=position,
        **({"gap": 0 if waits else GAP} if many else {}),
        blockers=int(first.after is not None),
        held=str(Held.DIRECT) if first.origin == Origin.DIRECT else None,
        now=now,
        queued_at=None if waits else now,
        **_columns(first),
    )
    last = db.raw.last_insert_rowid()
    if first.after is not None:
        db.change("add_edge", child=last, parent_root=bytes.fromhex(first.after), needs="end", on_failure="cancel", source="group")
    start = last - len(rows) + 1
    gap = 0 if waits else GAP
    return [
        Enqueued(row.job_id, row.job_id, start + index, status, position + gap * index, existing=False) for index, row in enumerate(rows)
    ]


def _columns(row: NewRow) -> dict[str, Any]:
    policy = row.policy
    return {
        "organization_id": row.organization_id,
        "template_id": blob(row.template_id),
        "job_type": row.job_type,
        "origin": row.origin,
        "priority": policy.priority,
        "run_at": row.run_at,
        "expires_at": row.expires_at,
        "unique_key": row.unique_key,
        "group_id": blob(row.group_id),
        "sequence_number": row.sequence_number,
        "owner": row.owner,
        "max_retries": policy.max_retries,
        "max_crashes": policy.max_crashes,
        "backoff": policy.backoff,
        "timeout": policy.timeout,
        "executor": policy.executor,
        "meta": row.meta,
    }


def blob(hex_id: str | None) -> bytes | None:
    """Return an id as the store keeps it."""
    return None if hex_id is None else bytes.fromhex(hex_id)


def numbers_json(numbers: Iterable[int]) -> str:
    """Return numbers as the JSON array that statements take."""
    return _encode(list(numbers)).decode()
