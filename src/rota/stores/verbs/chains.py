"""What people ask of one chain: cancel, change, move, retry, wait for others. Each change is audited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.errors import AlreadyEnded, IllegalMove, InvalidOption, KeyTaken, NotFound, StillLive
from rota.model.dependencies import RUN, circle, parent_ended, unknown_parent
from rota.model.gate import Actor
from rota.model.ordering import GAP, Room, counted_from, make_room
from rota.model.params import decode_params
from rota.model.states import RETRYABLE_ENDS, ErrorType, Status
from rota.model.values import Instant, Job, NewRow, dashed, moment, number_text, undashed
from rota.ports.store import Check
from rota.stores.verbs import edges, limits, reads
from rota.stores.verbs.db import Db, audit
from rota.stores.verbs.edges import PARENT_RULE_ENDS, Chain, Edge
from rota.stores.verbs.endings import end_waiting
from rota.stores.verbs.queue import position_after

WINDOW = 64
"""How many neighbours a move looks at first; it doubles until there is room."""
Neighbours = list[tuple[int, int]]


def cancel(db: Db, job_id: str, *, actor: Actor, now: Instant, reason: str | None = None, check: Check | None = None) -> Job:
    """Cancel the chain; return the job that was its live one, or its tail."""
    look_at_chain(db, job_id, check)
    root_id = _locate(db, job_id)
    live = db.row("live_of_root", root_id=root_id)
    if live is None:
        tail = db.row("tail_of", job_id=root_id)
        assert tail is not None  # noqa: S101 - the chain has at least its root
        if tail[2] == Status.CANCELLED:
            return job_there(db, tail[1])
        raise AlreadyEnded(f"the chain of {dashed(job_id)} has ended {tail[2]}: there is nothing to cancel")
    number, live_id, status = live
    if status != Status.RUNNING:
        end_waiting(db, [number], Status.CANCELLED, now, reason=reason or "cancelled", actor=actor.name)
    elif not db.change("request_cancel", number=number, now=now, actor=actor.name, reason=reason):
        return job_there(db, live_id)
    job = job_there(db, live_id)
    _audit(db, actor, now, "job.cancel", job, before={"status": status}, after={"reason": reason} if reason else None)
    return job


def _audit(db: Db, actor: Actor, now: Instant, action: str, job: Job, *, before: Any = None, after: Any = None) -> None:
    """Record what was done to a job."""
    schedule_id = None if job.schedule_id is None else undashed(job.schedule_id)
    subject = ("job", str(undashed(job.id)))
    audit(db, actor, now, action, subject, before=before, after=after, organization=job.organization, job=schedule_id)


def change(
    db: Db,
    job_id: str,
    *,
    actor: Actor,
    now: Instant,
    priority: int | None = None,
    params: str | None = None,
    run_at: Instant | None = None,
    put_off: bool = False,
    check: Check | None = None,
) -> Job:
    """Change what a waiting job still may have changed."""
    look_at_chain(db, job_id, check)
    number, live_id, status = _live(db, job_id)
    if status == Status.RUNNING:
        what = "params" if params is not None else "priority" if priority is not None else "run_at"
        raise IllegalMove(f"Cannot modify {what} after dispatch: {dashed(live_id)} is RUNNING")
    if run_at is not None and status != Status.PENDING:
        raise IllegalMove(f"{dashed(live_id)} is {status}: only a PENDING job can be given another run_at")
    place = _place(db, number)
    asked = {"priority": priority, "params": params, "run_at": run_at}
    after = {name: value for name, value in asked.items() if value is not None and value != place[name]}
    if not after:
        return job_there(db, live_id)
    before = {name: place[name] for name in after}
    position = place["position"]
    if "run_at" in after:
        position = counted_from(now) if put_off else 0
    new_priority = place["priority"] if priority is None else priority
    if new_priority != place["priority"] and status == Status.QUEUED:
        position = position_after(db, place["organization_id"], new_priority) + GAP
    db.change("change_waiting", number=number, params=params, run_at=run_at, priority=new_priority, position=position)
    limits.reconsider(db, number)
    job = job_there(db, live_id)
    _audit(db, actor, now, "job.change", job, before=_shown(before), after=_shown(after))
    return job


def _shown(values: dict[str, Any]) -> dict[str, Any]:
    """Return values of a job as the audit shows them."""
    shown = dict(values)
    if "params" in shown:
        shown["params"] = decode_params(shown["params"])
    if "run_at" in shown:
        shown["run_at"] = moment(shown["run_at"])
    return shown


def move(
    db: Db,
    job_id: str,
    *,
    actor: Actor,
    now: Instant,
    before: str | None = None,
    after: str | None = None,
    front: bool = False,
    check: Check | None = None,
) -> Job:
    """Give a QUEUED job another place among its organization's own of the same priority."""
    look_at_chain(db, job_id, check)
    number, live_id, status = _live(db, job_id)
    if status != Status.QUEUED:
        raise IllegalMove(f"{dashed(live_id)} is {status}: only a QUEUED job can be moved")
    place = _place(db, number)
    target = None if front else _target(db, place, live_id, before or after or "")
    room, ahead, behind = _room(db, place, target, behind_target=after is not None)
    if room.position == place["position"]:
        return job_there(db, live_id)
    for (neighbour, _), position in zip(ahead, room.before, strict=False):
        db.change("set_position", number=neighbour, position=position)
    for (neighbour, _), position in zip(behind, room.after, strict=False):
        db.change("set_position", number=neighbour, position=position)
    db.change("set_position", number=number, position=room.position)
    limits.reconsider(db, number)
    job = job_there(db, live_id)
    _audit(db, actor, now, "job.move", job, before={"position": place["position"]}, after={"position": room.position})
    return job


def retry(db: Db, job_id: str, *, new_id: str, actor: Actor, now: Instant) -> Job:
    """Add one more attempt to an ended chain, with a fresh budget."""
    root_id = _locate(db, job_id)
    if db.row("same_id", job_id=bytes.fromhex(new_id)) is not None:
        return job_there(db, new_id)
    live = db.row("live_of_root", root_id=root_id)
    if live is not None:
        raise StillLive(f"the chain of {dashed(job_id)} is still live: its job {dashed(live[1])} is {live[2]}")
    tail = db.row("tail_of", job_id=root_id)
    assert tail is not None  # noqa: S101 - the chain has at least its root
    number, tail_id, status, unique_key, organization_id, job_type, _ = tail
    if Status(status) not in RETRYABLE_ENDS:
        raise AlreadyEnded(f"the chain of {dashed(job_id)} ended {status}: only DEAD_LETTER, CANCELLED or SKIPPED can be retried")
    if unique_key is not None:
        holder = db.row("key_holder", organization_id=organization_id, job_type=job_type, unique_key=unique_key)
        if holder is not None:
            raise KeyTaken(f"unique key {unique_key!r} is held by {dashed(holder[0])} ({holder[3]}): cancel it or wait for its end")
    priority = _place(db, number)["priority"]
    db.change("insert_retry", number=number, new_id=new_id, now=now, position=position_after(db, organization_id, priority) + GAP)
    # Who has not yet been told of the end waits for the new one.
    edges.forget_ended(db, bytes.fromhex(root_id))
    for (group_id,) in db.rows("groups_of", numbers=[number]):
        edges.forget_ended(db, bytes.fromhex(group_id))
    _audit(db, actor, now, "job.retry", job_there(db, tail_id), before={"status": status}, after={"successor": dashed(new_id)})
    return job_there(db, new_id)


def look_at_chain(db: Db, job_id: str, check: Check | None) -> None:
    """Let the caller look at a chain before it is changed, and refuse by raising."""
    if check is not None and (chain := reads.chain(db, job_id)):
        check(chain)


def job_there(db: Db, job_id: str) -> Job:
    """Return a job that was found, or written, in this transaction."""
    job = reads.job(db, job_id)
    assert job is not None  # noqa: S101 - see above
    return job


def _locate(db: Db, job_id: str) -> str:
    row = db.row("locate", job_id=job_id)
    if row is None:
        raise NotFound(f"there is no job {dashed(job_id)} in this store")
    return str(row[0])


def number_of_live(db: Db, job_id: str) -> int | None:
    """Return the number of the job of a chain that has not ended; None if all have."""
    live = db.row("live_of_root", root_id=_locate(db, job_id))
    return None if live is None else int(live[0])


def _live(db: Db, job_id: str) -> tuple[int, str, str]:
    live = db.row("live_of_root", root_id=_locate(db, job_id))
    if live is None:
        tail = db.row("tail_of", job_id=job_id)
        raise AlreadyEnded(f"the chain of {dashed(job_id)} has ended {tail[2] if tail else ''}: it can't change any more")
    return live


def _place(db: Db, number: int) -> dict[str, Any]:
    row = db.row("place_of", number=number)
    assert row is not None  # noqa: S101 - found in this transaction
    names = ("number", "status", "priority", "organization_id", "position", "created_at", "job_id", "params", "run_at", "held")
    return dict(zip(names, row, strict=True))


def _target(db: Db, place: dict[str, Any], live_id: str, other_id: str) -> dict[str, Any]:
    number, other_live, status = _live(db, other_id)
    if other_live == live_id:
        raise InvalidOption(f"{dashed(live_id)} can't be moved relative to itself")
    other = _place(db, number)
    if status != Status.QUEUED:
        raise IllegalMove(f"{dashed(other_live)} is {status}: a job can only be moved next to a QUEUED one")
    if (other["priority"], other["organization_id"]) != (place["priority"], place["organization_id"]):
        raise IllegalMove(
            f"{dashed(other_live)} has priority {other['priority']}, {dashed(live_id)} has {place['priority']}: "
            "a job moves among its organization's own of the same priority; change its priority first"
        )
    return other


def _room(db: Db, place: dict[str, Any], target: dict[str, Any] | None, *, behind_target: bool) -> tuple[Room, Neighbours, Neighbours]:
    """Find room, looking at more neighbours until the run that must step aside ends inside the window."""
    limit = WINDOW
    while True:
        ahead, behind = _neighbours(db, place, target, limit, behind_target=behind_target)
        room = make_room([position for _, position in ahead], [position for _, position in behind])
        moved = len(room.before) + len(room.after)
        if moved < limit or limit > len(ahead) + len(behind):
            return room, ahead, behind
        limit *= 4


def _neighbours(
    db: Db, place: dict[str, Any], target: dict[str, Any] | None, limit: int, *, behind_target: bool
) -> tuple[Neighbours, Neighbours]:
    own = {"priority": place["priority"], "organization_id": place["organization_id"], "moved": place["number"]}
    if target is None:
        first = db.row("first_in_line", **own)
        if first is None:
            return [], []
        key = {"position": first[1], "created_at": first[2], "job_id": first[3]}
    else:
        key = {name: target[name] for name in ("position", "created_at", "job_id")}
    ahead: Neighbours = db.rows("neighbours_ahead", **own, **key, limit=limit)
    behind: Neighbours = db.rows("neighbours_behind", **own, **key, limit=limit + 1)
    if behind_target:
        # The target itself is the first of those behind its own key: the place is after it.
        ahead, behind = behind[:1] + ahead, behind[1:]
    return ahead, behind


class Doom(msgspec.Struct, frozen=True):
    """The end that a job comes to at once, because a parent of it has ended already, and why."""

    status: Status
    reason: str


class Waits(msgspec.Struct):
    """What one job waits for."""

    edges: list[Edge]
    doom: Doom | None = None

    @property
    def blockers(self) -> int:
        """Return how many edges are open."""
        return sum(not edge.met for edge in self.edges)


def waits_of(db: Db, row: NewRow) -> Waits:
    """Return what a new job waits for: the chains it depends on, and the one whose end it follows."""
    if row.job_id in row.depends_on:
        raise circle([dashed(row.job_id)] * 2)
    before = () if row.after is None else (row.after,)
    chains = edges.chains(db, row.depends_on + before, row.organization_id)
    parents = _parents(chains, row.depends_on)
    waits = _waits(parents, row.on_parent_failure)
    for root, chain in _parents(chains, before).items():
        # Where it depends on that chain as well, it needs its success, and that says more.
        if root not in parents:
            waits.edges.append(Edge(root, "end", "cancel", "group", chain.ended))
    if row.follows is not None:
        needs, rule = ("end", "wait") if row.on_parent_failure == RUN else ("success", row.on_parent_failure)
        waits.edges.append(Edge(row.follows, needs, rule, "user", edges.live_member(db, row.follows) is None, len(parents)))
    return waits


def end_doomed(db: Db, dooms: Sequence[tuple[Doom, list[int]]], now: Instant) -> None:
    """End jobs whose parents had ended before they were made."""
    for doom, numbers in dooms:
        end_waiting(db, numbers, doom.status, now, reason=doom.reason, actor="system", error_type=ErrorType.DEPENDENCY)


def add_dependencies(db: Db, job_id: str, parents: Sequence[str], *, on_failure: str, actor: Actor, now: Instant) -> Job:
    """Let a PENDING job wait for more chains."""
    number, live_id, root_id, organization_id, name = _pending(db, job_id)
    chains = _parents(edges.chains(db, tuple(parents), organization_id), parents)
    if root_id in chains:
        raise circle([name, name])
    present = {root: (source, bool(is_open)) for root, source, is_open in db.rows("edges_of_child", child=number)}
    new = {root: chain for root, chain in chains.items() if _adds(present.get(root), on_failure)}
    if not new:
        return job_there(db, live_id)
    waits = _waits(new, on_failure, first=len(present))
    edges.add(db, [number], waits.edges, now)
    open_before = sum(present[root][1] for root in new if root in present)
    db.change("block", number=number, count=waits.blockers - open_before)
    if db.value("is_waited_for", root_id=root_id):
        edges.refuse_circle(db, root_id)
    after = {"depends_on": [chain.number for chain in new.values()], "on_failure": on_failure}
    _audit(db, actor, now, "job.depend", job_there(db, live_id), after=after)
    if waits.doom is not None:
        end_doomed(db, [(waits.doom, [number])], now)
    return job_there(db, live_id)


def _parents(chains: dict[str, Chain], wanted: Sequence[str]) -> dict[str, Chain]:
    """Return the chains to wait for by their roots; two ids of one chain mean the same."""
    for given in wanted:
        if given not in chains:
            raise unknown_parent(dashed(given))
    return {chains[given].root_id: chains[given] for given in wanted}


def _adds(present: tuple[str, bool] | None, on_failure: str) -> bool:
    """Say whether a dependency adds to the edge that is there: to a turn of a group or an overlap, that the chain must complete."""
    return present is None or (present[0] != "user" and on_failure != RUN)


def _waits(parents: dict[str, Chain], on_failure: str, first: int = 0) -> Waits:
    if on_failure == RUN:
        # The rule is that any end will do: there is none for a bad one.
        return Waits([Edge(root, "end", "wait", "user", chain.ended, place) for place, (root, chain) in enumerate(parents.items(), first)])
    found = enumerate(parents.items(), first)
    waits = Waits([Edge(root, "success", on_failure, "user", chain.completed, place) for place, (root, chain) in found])
    end = PARENT_RULE_ENDS.get(on_failure)
    dead = next((chain for chain in parents.values() if chain.dead), None)
    if end is not None and dead is not None:
        waits.doom = Doom(end, parent_ended(dead.number, dead.status))
    return waits


def _pending(db: Db, job_id: str) -> tuple[int, str, str, str, str]:
    row = db.row("waiting_child", job_id=job_id)
    if row is None:
        raise NotFound(f"there is no job {dashed(job_id)} in this store")
    number, live_id, root_id, organization_id, root_number, status = row
    name = number_text(root_id, root_number, 1)
    if status != Status.PENDING:
        raise IllegalMove(f"{name} is {status}: only a PENDING job can be made to wait for others")
    return number, live_id, root_id, organization_id, name
