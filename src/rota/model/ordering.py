"""The order of the queue and how room is made in it. Pure arithmetic on positions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.errors import InvalidOption
from rota.model.values import Instant

GAP = 100
"""Between neighbours, so that most moves change one row."""

PRIORITIES = {"low": 25, "normal": 50, "high": 75, "critical": 100}


def priority_of(given: str | int) -> int:
    """Return a priority given as a word or a number from 0 to 100."""
    if isinstance(given, str) and given.lower() in PRIORITIES:
        return PRIORITIES[given.lower()]
    if isinstance(given, str) and given.isdecimal() and len(given) <= 3:
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= 100:
        raise InvalidOption(f"priority {given!r} is not allowed: give 0 to 100, or one of {', '.join(PRIORITIES)}")
    return given


def counted_from(at: Instant) -> int:
    """Return the position of a job that waits for a time counted from a moment: that moment, negated.

    A job that waits for its time has no place in the queue yet. One that waits for a moment that a caller named has position 0.
    By the moment of the others a store sees that they were put off by a clock that was ahead, and lets them wait as long from now on.
    """
    return -at


def order_key(priority: int, position: int, created_at: Instant, job_id: str) -> tuple[int, int, Instant, str]:
    """Return what the queue is sorted by, ascending; equal keys can't exist."""
    return (-priority, position, created_at, job_id)


class Room(msgspec.Struct, frozen=True):
    """A free position, and the neighbours that must step aside for it."""

    position: int
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


def make_room(before: Sequence[int], after: Sequence[int]) -> Room:
    """Find a position between two neighbours, moving the fewest of them.

    `before` are the positions ahead of the new place, nearest first (descending); `after` those behind it, nearest
    first (ascending). `Room.before` and `Room.after` are new positions for the first so many of each.
    """
    if not before and not after:
        return Room(GAP)
    if not before:
        return Room(after[0] - GAP)
    if not after:
        return Room(before[0] + GAP)
    if after[0] - before[0] >= 2:
        return Room((before[0] + after[0]) // 2)
    up = _push(before[0] + 1, after, +1)
    down = _push(after[0] - 1, before, -1)
    if len(up) <= len(down):
        return Room(before[0] + 1, after=tuple(up))
    return Room(after[0] - 1, before=tuple(down))


def _push(taken: int, neighbours: Sequence[int], step: int) -> list[int]:
    """Return new positions for the neighbours that stand on, or before, the place already taken."""
    moved: list[int] = []
    for position in neighbours:
        if (position - taken) * step > 0:
            break
        taken += step
        moved.append(taken)
    return moved
