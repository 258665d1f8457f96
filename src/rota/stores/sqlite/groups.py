"""Groups: made, cancelled and read. What a bad end does to the rest is in `turn.after_chain_ends`."""

from __future__ import annotations

from rota.errors import GroupRefused, NotFound
from rota.model.groups import Mode, derive
from rota.model.states import Status
from rota.model.values import Actor, Group, Instant, Member, NewRow, dashed, moment, number_text
from rota.ports.store import NewGroup
from rota.stores.sqlite.connection import Db
from rota.stores.sqlite.queue import enqueue
from rota.stores.sqlite.turn import end_waiting
from rota.stores.sqlite.verbs import audit


def add_group(db: Db, group: NewGroup, actor: Actor, now: Instant) -> None:
    """Make the group and its members; a repeated call finds it made."""
    if db.value("group_exists", group_id=group.group_id):
        return
    db.change(
        "insert_group",
        group_id=group.group_id,
        organization_id=group.organization_id,
        name=group.name,
        mode=group.mode,
        on_failure=group.on_failure,
        actor=actor.name,
        now=now,
    )
    before: str | None = None
    for sequence_number, member in enumerate(group.members, 1):
        after = before if group.mode is Mode.SEQUENTIAL else None
        if isinstance(member, NewRow):
            before = _add_new(db, group, member, now, sequence_number=sequence_number, after=after)
        else:
            before = _join(db, group, member, sequence_number, after)


def cancel_group(db: Db, group_id: str, actor: Actor, now: Instant) -> None:
    """Cancel every chain of the group that has not ended."""
    if not db.value("group_exists", group_id=group_id):
        raise NotFound(f"there is no group {dashed(group_id)} in this store")
    members = db.rows("live_members", group_id=group_id)
    asked = 0
    for number, status in members:
        if status == Status.RUNNING:
            asked += db.change("request_cancel", number=number, now=now, actor=actor.name, reason="group cancelled")
    waiting = [number for number, status in members if status != Status.RUNNING]
    if waiting:
        end_waiting(db, waiting, Status.CANCELLED, now, reason="group cancelled", actor=actor.name)
    if asked or waiting:
        audit(db, actor, now, "group.cancel", ("group", group_id))


def read_group(db: Db, group_id: str) -> Group | None:
    """Return a group with the tails of its members' chains."""
    row = db.row("group", group_id=group_id)
    if row is None:
        return None
    members = tuple(
        Member(sequence, dashed(root_id), number_text(root_id, number, attempt), job_type, Status(status), attempt, bool(started))
        for sequence, root_id, number, job_type, status, attempt, started, from_tail in db.rows("members", group_id=group_id)
        if from_tail == 1
    )
    created_at = moment(row[4])
    assert created_at is not None  # noqa: S101 - the column is NOT NULL
    return Group(
        id=dashed(group_id), name=row[1], mode=row[2], on_failure=row[3], created_at=created_at, members=members, status=derive(members)
    )


def _add_new(db: Db, group: NewGroup, row: NewRow, now: Instant, *, sequence_number: int, after: str | None) -> str:
    row.group_id = group.group_id
    row.sequence_number = sequence_number
    row.after = after
    added = enqueue(db, [row], now)[0]
    if added.existing:
        raise GroupRefused(f"unique key {row.unique_key!r} is held by {dashed(added.job_id)}, which is outside this group")
    return added.root_id


def _join(db: Db, group: NewGroup, job_id: str, sequence_number: int, after: str | None) -> str:
    row = db.row("joinable", job_id=job_id)
    if row is None:
        raise NotFound(f"there is no job {dashed(job_id)} in this store")
    number, status, group_id, organization_id, root_id, attempt = row
    if group_id:
        raise GroupRefused(f"{dashed(job_id)} is in group {dashed(group_id)} already")
    allowed = {Status.PENDING} if group.mode is Mode.SEQUENTIAL else {Status.PENDING, Status.QUEUED}
    if Status(status) not in allowed or attempt > 1:
        words = " or ".join(sorted(allowed))
        raise GroupRefused(f"{dashed(job_id)} is {status}, attempt {attempt}: a {group.mode} group takes first attempts that are {words}")
    if organization_id != group.organization_id:
        raise NotFound(f"there is no job {dashed(job_id)} in this store")
    db.change("join_group", number=number, group_id=group.group_id, sequence_number=sequence_number, blockers=int(after is not None))
    if after is not None:
        db.change("add_edge", child=number, parent_root=bytes.fromhex(after), needs="end", on_failure="cancel", source="group")
    return str(root_id)
