"""Groups: made, cancelled and read. What a bad end does to the rest is in `endings.after_chain_ends`."""

from __future__ import annotations

from rota.errors import GroupRefused, NotFound
from rota.model.gate import Actor
from rota.model.groups import Mode, derive
from rota.model.states import Status
from rota.model.values import Group, Instant, Member, NewRow, dashed, moment, number_text
from rota.ports.store import NewGroup
from rota.stores.relational import edges
from rota.stores.relational.db import Db
from rota.stores.relational.dependencies import Doom, end_doomed
from rota.stores.relational.endings import end_waiting
from rota.stores.relational.intake import Taken, take_in
from rota.stores.relational.verbs import audit


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
    doomed: list[tuple[Doom, list[int]]] = []
    for sequence_number, member in enumerate(group.members, 1):
        after = before if group.mode is Mode.SEQUENTIAL else None
        if isinstance(member, NewRow):
            taken = _add_new(db, group, member, now, sequence_number=sequence_number, after=after)
            before = taken.enqueued[0].root_id
            doomed += taken.doomed
        else:
            before = _join(db, group, member, now, sequence_number=sequence_number, after=after)
    if before is not None and group.mode is Mode.SEQUENTIAL and not all(isinstance(member, NewRow) for member in group.members):
        # Nobody waits for a new job yet, but jobs that were there may wait for each other: looked at once, from the last one up.
        edges.refuse_circle(db, before)
    # Only now that all are there can the group's rule apply to the rest of them.
    end_doomed(db, doomed, now)


def cancel_group(db: Db, group_id: str, actor: Actor, now: Instant) -> None:
    """Cancel every chain of the group that has not ended."""
    found = db.row("group", group_id=group_id)
    if found is None:
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
        audit(db, actor, now, "group.cancel", ("group", group_id), organization=found[5])


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
        id=dashed(group_id),
        name=row[1],
        mode=row[2],
        on_failure=row[3],
        created_at=created_at,
        members=members,
        status=derive(members),
        organization=row[5],
        owner=row[6],
    )


def _add_new(db: Db, group: NewGroup, row: NewRow, now: Instant, *, sequence_number: int, after: str | None) -> Taken:
    row.group_id = group.group_id
    row.sequence_number = sequence_number
    row.after = after
    taken = take_in(db, [row], now)
    added = taken.enqueued[0]
    if added.existing:
        raise GroupRefused(f"unique key {row.unique_key!r} is held by a job outside this group: wait for its end, or leave the key out")
    return taken


def _join(db: Db, group: NewGroup, job_id: str, now: Instant, *, sequence_number: int, after: str | None) -> str:
    row = db.row("joinable", job_id=job_id)
    if row is None:
        raise NotFound(f"there is no job {dashed(job_id)} in this store")
    number, status, group_id, organization_id, root_id, attempt = row
    if organization_id != group.organization_id:
        raise NotFound(f"there is no job {dashed(job_id)} in this store")
    if group_id:
        raise GroupRefused(f"{dashed(job_id)} is in group {dashed(group_id)} already")
    allowed = {Status.PENDING} if group.mode is Mode.SEQUENTIAL else {Status.PENDING, Status.QUEUED}
    if Status(status) not in allowed or attempt > 1:
        words = " or ".join(sorted(allowed))
        raise GroupRefused(f"{dashed(job_id)} is {status}, attempt {attempt}: a {group.mode} group takes first attempts that are {words}")
    # One that depends on the member before it waits for that one already, and for more than its end.
    waits = after is not None and after not in {root for root, *_ in db.rows("edges_of_child", child=number)}
    db.change("join_group", number=number, group_id=group.group_id, sequence_number=sequence_number, blockers=int(waits))
    if after is not None and waits:
        edges.add(db, [number], [edges.Edge(after, "end", "cancel", "group", met=False)], now)
    return str(root_id)
