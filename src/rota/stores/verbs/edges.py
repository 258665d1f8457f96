"""Edges in SQL: one mechanism for dependencies, a sequential group's turn and overlaps.

A chain that ends is noted, and those who wait for it are told a bounded number at a time (`endings.settle`), so that a
hundred thousand children of one parent don't stop the wheel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from rota.model.dependencies import circle, find_circle, group_ended, parent_ended
from rota.model.groups import ended_as
from rota.model.states import CHAIN_ENDS, Status
from rota.model.values import Instant, dashed, number_text
from rota.stores.verbs.db import Db

_numbers = msgspec.json.Decoder(list[int])
_doomed = msgspec.json.Decoder(list[tuple[int, str]])

PARENT_RULE_ENDS = {"skip": Status.SKIPPED, "cancel": Status.CANCELLED}
"""How a child ends whose parent ended otherwise than COMPLETED; one that waits does not."""


class Chain(msgspec.Struct):
    """A chain that somebody wants to wait for."""

    root_id: str
    number: str
    status: Status
    """Of its tail."""

    @property
    def completed(self) -> bool:
        """Say whether it ended well."""
        return self.status is Status.COMPLETED

    @property
    def ended(self) -> bool:
        """Say whether it ended at all: an attempt that failed is no end, its retry follows."""
        return self.status in CHAIN_ENDS

    @property
    def dead(self) -> bool:
        """Say whether it ended otherwise than well: only a retry by hand can still complete it."""
        return self.ended and not self.completed


class Edge(msgspec.Struct, array_like=True):
    """One edge to be written, as `add_edges` takes it."""

    parent_root: str
    needs: str
    on_failure: str
    source: str
    met: bool
    place: int | None = None
    """Which of the parents it is, in the order in which the job named them."""


def chains(db: Db, ids: Sequence[str], organization_id: str) -> dict[str, Chain]:
    """Return the chains that these ids belong to, by id; those of other organizations are not there."""
    rows = db.rows("chains", ids=ids, organization_id=organization_id)
    return {given: Chain(root, number_text(root, number, 1), Status(status)) for given, root, number, status in rows}


def add(db: Db, children: Iterable[int], edges: Sequence[Edge], now: Instant) -> None:
    """Let each of these jobs wait for each of these chains; their blockers are the caller's to count."""
    db.change("add_edges", children=children, parents=edges, now=now)


def close(db: Db, numbers: list[int], now: Instant) -> None:
    """Close what jobs that ended while they waited still had open; whose turn came after theirs waits for those before them."""
    if numbers and db.value("any_open_edges"):
        _hand_turns_on(db, numbers)
        db.change("close_edges", children=numbers, now=now)


def _hand_turns_on(db: Db, numbers: list[int]) -> None:
    """Let those who follow jobs that ended before their turn follow who was before these: a line that loses one stays a line."""
    waiting = db.rows("next_in_turn", numbers=numbers)
    if not waiting:
        return
    before: dict[tuple[str, str], list[tuple[str, bool]]] = {}
    for root, parent, source, is_live in db.rows("turns_of", numbers=numbers):
        before.setdefault((root, source), []).append((parent, bool(is_live)))
    for child, root, source in waiting:
        live = _live_before(before, root, source)
        if live:
            added = db.change("wait_in_turn", child=child, source=source, roots=live)
            db.change("block", number=child, count=added)


def _live_before(before: dict[tuple[str, str], list[tuple[str, bool]]], root: str, source: str) -> list[str]:
    """Return the live chains that come before this one in a line, past those that ended with it."""
    found: dict[str, bool] = {}
    ahead = [root]
    while ahead:
        for parent, is_live in before.get((ahead.pop(), source), ()):
            if parent not in found:
                found[parent] = is_live
                ahead += [] if is_live else [parent]
    return sorted(parent for parent, is_live in found.items() if is_live)


def refuse_circle(db: Db, root_id: str) -> None:
    """Refuse, naming the path, if this chain waits for itself by way of others. What was written before is undone with it."""
    found = find_circle(db.rows("waits_above", root_id=root_id), root_id)
    if found is None:
        return
    numbers = dict(db.rows("numbers_of_roots", roots=found))
    raise circle([number_text(root, numbers[root], 1) if root in numbers else f"group {dashed(root)}" for root in found])


# ---- telling ---------------------------------------------------------------------------------------------------------


class Ended(msgspec.Struct):
    """A chain that ended, or a group, and has not yet told all who wait for it."""

    root_id: bytes | str
    status: str


class Told(msgspec.Struct, kw_only=True):
    """Who is told of one end now: those who may go on, and those who must end themselves."""

    ended: Ended
    satisfied: list[int]
    doomed: list[tuple[int, str]]
    all_told: bool

    def __len__(self) -> int:
        """Return how many they are."""
        return len(self.satisfied) + len(self.doomed)

    def by_end(self) -> Iterator[tuple[Status, list[int]]]:
        """Go through the ends that the doomed come to, and their numbers."""
        for word, status in PARENT_RULE_ENDS.items():
            numbers = [number for number, on_failure in self.doomed if on_failure == word]
            if numbers:
                yield status, numbers


def note_ended(db: Db, numbers: list[int]) -> None:
    """Note chains that ended, by the numbers of their tails, as far as anybody waits for them."""
    if numbers and db.value("any_open_edges"):
        db.change("note_ended", numbers=numbers)
        # Who waits for a schedule rather than for one of its chains.
        db.change("let_any_do", numbers=numbers)
        db.change("note_schedules_completed", numbers=numbers)
        for (group_id,) in db.rows("groups_waited_for", numbers=numbers):
            _note_group(db, group_id)


def _note_group(db: Db, group_id: str) -> None:
    """Note a group that somebody waits for, if its last chain has ended."""
    if live_member(db, group_id) is not None:
        return
    tails = [Status(status) for (status,) in db.rows("group_tails", group_id=group_id)]
    if all(tail in CHAIN_ENDS for tail in tails):
        db.change("note_group_ended", group_id=group_id, status=ended_as(tails))


def live_member(db: Db, group_id: str) -> int | None:
    """Return the place of a member of a group whose chain has not ended, None if all have.

    Members that have ended are passed once, however many there are: a look mostly finds at once what the last one found.
    Those behind may be live again, by a retry: at the end all are looked at.
    """
    passed, place = db.rows("live_member_after", group_id=group_id, first=0)[0]
    if place is None and passed:
        _, place = db.rows("live_member_after", group_id=group_id, first=1)[0]
    if place is not None and place - 1 != passed:
        db.change("pass_members", group_id=group_id, passed=place - 1)
    return None if place is None else int(place)


def some_ended(db: Db, limit: int) -> list[Ended]:
    """Return some chains that have somebody to tell."""
    return [Ended(root_id, status) for root_id, status in db.rows("some_ended", limit=limit)]


def to_tell(db: Db, ended: Ended, limit: int) -> Told:
    """Return whom to tell of an end, at most `limit`."""
    doomed: list[tuple[int, str]] = []
    if ended.status == Status.COMPLETED:
        satisfied = _numbers.decode(db.value("to_satisfy", root_id=ended.root_id, limit=limit))
    else:
        satisfied = _numbers.decode(db.value("to_satisfy_at_end", root_id=ended.root_id, limit=limit))
        doomed = _doomed.decode(db.value("to_doom", root_id=ended.root_id, limit=limit - len(satisfied)))
    return Told(ended=ended, satisfied=satisfied, doomed=doomed, all_told=len(satisfied) + len(doomed) < limit)


def satisfy(db: Db, told: Told, now: Instant) -> None:
    """Resolve the edges of those who are told; a job with none left may be promoted."""
    children = told.satisfied + [number for number, _ in told.doomed]
    if children:
        db.change("satisfy", root_id=told.ended.root_id, children=children, now=now)
    if told.satisfied:
        db.change("unblock", children=told.satisfied)


def why_doomed(db: Db, ended: Ended) -> str:
    """Return the reason of those who end because of this end."""
    root = db.row("number_of_root", root_id=ended.root_id)
    if root is not None:
        return parent_ended(number_text(root[0], root[1], 1), ended.status)
    hex_id = ended.root_id.hex() if isinstance(ended.root_id, bytes) else ended.root_id
    group = db.row("group", group_id=hex_id)
    return parent_ended("a parent", ended.status) if group is None else group_ended(group[1] or dashed(hex_id), ended.status)


def forget_ended(db: Db, root_id: bytes | str) -> None:
    """Forget an end: everybody has been told of it, or it is one no more."""
    db.change("forget_ended", root_id=root_id)
