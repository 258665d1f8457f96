"""Dependencies in SQL: what a job waits for, as people ask for it, when it is made or later."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.errors import IllegalMove, NotFound
from rota.model.dependencies import RUN, circle, parent_ended, unknown_parent
from rota.model.gate import Actor
from rota.model.states import ErrorType, Status
from rota.model.values import Instant, NewRow, dashed, number_text
from rota.stores.verbs import edges
from rota.stores.verbs.db import Db
from rota.stores.verbs.edges import PARENT_RULE_ENDS, Chain, Edge
from rota.stores.verbs.endings import end_waiting
from rota.stores.verbs.verbs import audit


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


def add_dependencies(db: Db, job_id: str, parents: Sequence[str], on_failure: str, actor: Actor, now: Instant) -> str:  # noqa: PLR0917 - as the other verbs
    """Let a PENDING job wait for more chains; return the id of the live job."""
    number, live_id, root_id, organization_id, name = _pending(db, job_id)
    chains = _parents(edges.chains(db, tuple(parents), organization_id), parents)
    if root_id in chains:
        raise circle([name, name])
    present = {root: (source, bool(is_open)) for root, source, is_open in db.rows("edges_of_child", child=number)}
    new = {root: chain for root, chain in chains.items() if _adds(present.get(root), on_failure)}
    if not new:
        return live_id
    waits = _waits(new, on_failure, first=len(present))
    edges.add(db, [number], waits.edges, now)
    open_before = sum(present[root][1] for root in new if root in present)
    db.change("block", number=number, count=waits.blockers - open_before)
    if db.value("is_waited_for", root_id=root_id):
        edges.refuse_circle(db, root_id)
    after = {"depends_on": [chain.number for chain in new.values()], "on_failure": on_failure}
    audit(db, actor, now, "job.depend", ("job", live_id), after=after, organization=organization_id)
    if waits.doom is not None:
        end_doomed(db, [(waits.doom, [number])], now)
    return live_id


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
