"""Groups: made, cancelled and read. What a bad end does to the rest is in `endings.after_chain_ends`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeAlias

from rota.errors import GroupRefused, NotFound
from rota.model.dependencies import RUN
from rota.model.gate import EVERYTHING, Actor, Scope
from rota.model.groups import Follower, Group, Member, Mode, derive
from rota.model.settings import MIB
from rota.model.states import Status
from rota.model.values import Instant, NewRow, ResultsPage, dashed, moment, number_text
from rota.ports.store import NewGroup
from rota.stores.verbs import edges, reads
from rota.stores.verbs.chains import Doom, end_doomed
from rota.stores.verbs.db import Db, audit
from rota.stores.verbs.endings import end_waiting
from rota.stores.verbs.intake import Taken, take_in

RESULTS_MAX = 4 * MIB
"""Bytes of results in one page, unless the first one alone is larger."""
Place: TypeAlias = tuple[tuple[int, int], str]
"""Which of the parents it is, and of a group which member; and the root of the chain there."""


def add_group(db: Db, group: NewGroup, *, actor: Actor, now: Instant) -> None:
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
    for is_new, members in groupby(enumerate(group.members, 1), key=lambda member: isinstance(member[1], NewRow)):
        if is_new and group.mode is Mode.PARALLEL:
            doomed += _add_all(db, group, members, now)
            continue
        for sequence_number, member in members:
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
    if group.then is not None:
        group.then.follows = group.group_id
        doomed += _added(db, [group.then], now).doomed
    # Only now that all are there can the group's rule apply to the rest of them.
    end_doomed(db, doomed, now)


def cancel_group(db: Db, group_id: str, *, actor: Actor, now: Instant) -> None:
    """Cancel every chain of the group that has not ended."""
    found = db.row("group", group_id=group_id)
    if found is None:
        raise NotFound(f"there is no group {dashed(group_id)} in this store")
    # First of all: with the rule `run` the end of its members would release it.
    followers = [number for (number,) in db.rows("waiting_followers", group_id=group_id)]
    if followers:
        end_waiting(db, followers, Status.CANCELLED, now, reason="group cancelled", actor=actor.name)
    members = db.rows("live_members", group_id=group_id)
    asked = len(followers)
    for number, status in members:
        if status == Status.RUNNING:
            asked += db.change("request_cancel", number=number, now=now, actor=actor.name, reason="group cancelled")
    waiting = [number for number, status in members if status != Status.RUNNING]
    if waiting:
        end_waiting(db, waiting, Status.CANCELLED, now, reason="group cancelled", actor=actor.name)
    if asked or waiting:
        audit(db, actor, now, "group.cancel", ("group", group_id), organization=found[5])


def groups(db: Db, *, limit: int, scope: Scope = EVERYTHING) -> list[Group]:
    """Return the newest groups."""
    rows = db.rows("groups", limit=limit, organization_id=scope.organization, owner=scope.owner)
    found = (group(db, row[0]) for row in rows)
    return [each for each in found if each is not None]


def group(db: Db, group_id: str) -> Group | None:
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
        then=_follower(db, group_id),
    )


def _follower(db: Db, group_id: str) -> Follower | None:
    """Return the job that follows a group, unless it was removed."""
    row = db.row("follower_of", group_id=group_id)
    if row is None:
        return None
    root_id, needs, on_failure = row
    job = reads.job_from(db.rows("tails_of", roots=[root_id])[0])
    rule = RUN if needs == "end" else on_failure
    return Follower(root_id=job.root_id, number=job.number, job_type=job.job_type, status=job.status, on_parent_failure=rule)


def awaited_groups(db: Db, job_id: str) -> list[Group]:
    """Return the groups whose end a job waits for."""
    found = [group(db, group_id) for (group_id,) in db.rows("awaited_groups", job_id=job_id)]
    return [each for each in found if each is not None]


def results_before(
    db: Db, job_id: str, *, after: tuple[int, int] | None, limit: int, template: str | None = None, parent: str | None = None
) -> ResultsPage:
    """Return some results of what the chain of a job was told to wait for."""
    located = db.row("locate", job_id=job_id)
    if located is None:
        raise NotFound(f"there is no job {dashed(job_id)} in this store")
    places = _places(db, located[0], after or (0, 0), limit + 1)
    page = _selected(db, places[:limit], template, parent)
    sizes = {root: (number, size) for root, number, size in db.rows("result_sizes", roots=[root for _, root in page])}
    taken, left = 0, RESULTS_MAX
    for _, root in page:
        left -= sizes.get(root, (0, 0))[1]
        if left < 0 and taken:
            break
        taken += 1
    numbers = [sizes[root][0] for _, root in page[:taken] if root in sizes]
    texts = dict(db.rows("results_of", numbers=numbers)) if numbers else {}
    results = [texts.get(sizes[root][0]) if root in sizes else None for _, root in page[:taken]]
    if taken < len(page):
        return ResultsPage(results, page[taken - 1][0])
    return ResultsPage(results, places[limit - 1][0] if limit < len(places) else None)


def _selected(db: Db, places: list[Place], template: str | None, parent: str | None) -> list[Place]:
    """Return the places of one chain, or of the chains of a template."""
    if parent is not None:
        return [each for each in places if each[1] == parent]
    if template is None:
        return places
    templates = dict(db.rows("types_of_roots", roots=[root for _, root in places]))
    return [each for each in places if templates.get(each[1]) == template]


def _places(db: Db, root_id: str, after: tuple[int, int], limit: int) -> list[Place]:
    """Return the roots of chains that a chain waited for, behind a place: which parent, and of a group which member."""
    found: list[Place] = []
    for place, (parent, is_group) in enumerate(db.rows("named_parents", roots=[root_id]), 1):
        if place < after[0] or len(found) == limit:
            continue
        if is_group:
            passed = after[1] if place == after[0] else 0
            members = db.rows("members_after", group_id=parent, after=passed, limit=limit - len(found))
            found += [((place, sequence_number), root) for sequence_number, root in members]
        elif place > after[0]:
            found.append(((place, 0), parent))
    return found


def _add_all(db: Db, group: NewGroup, members: Iterable[tuple[int, NewRow | str]], now: Instant) -> list[tuple[Doom, list[int]]]:
    """Add new members that do not wait for each other; return those that must end at once."""
    rows: list[NewRow] = []
    for sequence_number, row in members:
        assert isinstance(row, NewRow)  # noqa: S101 - the caller looked
        row.group_id, row.sequence_number, row.after = group.group_id, sequence_number, None
        rows.append(row)
    return _added(db, rows, now).doomed


def _add_new(db: Db, group: NewGroup, row: NewRow, now: Instant, *, sequence_number: int, after: str | None) -> Taken:
    row.group_id = group.group_id
    row.sequence_number = sequence_number
    row.after = after
    return _added(db, [row], now)


def _added(db: Db, rows: Sequence[NewRow], now: Instant) -> Taken:
    taken = take_in(db, rows, now)
    for row, one in zip(rows, taken.enqueued, strict=True):
        if one.existing:
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
