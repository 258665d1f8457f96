"""Limits in SQL: what is counted inside a turn, and parked rows that are offered again when there is room.

Parked rows stand in lanes: the word they are parked under, and their type. A row that no longer runs makes room under two
words, its template's and its organization's: the first of each lane under them is offered again, and the next claim takes
the best of these and parks the others anew. An organization's types have a lane each because one of them may be at its own
limit, or have no worker: it must not keep the place of the others. See decision 0015.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import msgspec

from rota.model.templates import Rate
from rota.model.values import SECOND, Claimed, Held, Instant
from rota.ports.turns import Counting, Starts, Usage
from rota.stores.verbs.db import Db

OFFER_MAX = 500
"""How many rows of a lane are offered again at once where no count bounds them; the rest follows turn by turn."""
AHEAD_MAX = 10 * SECOND
"""How far ahead of the clock a start may be counted: a moment beyond that, and beyond the next window, is of a clock that was wrong."""
STEPS_MAX = 1000
"""Moments kept of one window: a rate of more than so many is counted in steps of the window, each start a little late."""

_BROKEN = f"{Held.BROKEN}:"
_kinds = msgspec.json.Decoder(list[tuple[str, str, int]])
_starts = msgspec.json.Decoder(list[tuple[str, int, Instant | None]])
_lanes = msgspec.json.Decoder(list[tuple[str, str]])
_names = msgspec.json.Decoder(list[str])


def usage(db: Db, counting: Counting, *, now: Instant) -> Usage:
    """Count what is in use."""
    running = _kinds.decode(db.value("running_by_kind")) if counting.running else []
    limited = {word.partition(":")[2] for word in counting.limits if word.startswith(f"{Held.TEMPLATE_LIMIT}:")} | counting.rates.keys()
    waiting = _names.decode(db.value("types_waiting", types=list(limited))) if limited else []
    return Usage(
        running={(organization, job_type): count for organization, job_type, count in running},
        starts=_started(db, counting.rates, now),
        waiting=frozenset(waiting),
    )


def freed(db: Db, numbers: list[int]) -> None:
    """Offer parked rows again, one for each of these that no longer runs or stands ready."""
    if not numbers or not db.value("any_over_limit"):
        return
    lanes = _kinds.decode(db.value("lanes_of_gone", numbers=numbers))
    single = [(held, job_type) for held, job_type, count in lanes if count == 1]
    if single:
        db.change("offer_first", lanes=single)
    for held, job_type, count in lanes:
        if count > 1:
            _offer(db, held, job_type, count)


def reconsider(db: Db, number: int) -> None:
    """Offer a row that got another place in the line, and those that may now be before it."""
    db.change("offer_one", number=number)
    freed(db, [number])


def offer_again(db: Db, held: str) -> None:
    """Offer rows parked under this word again, the first of each lane now and the rest as turns sweep."""
    for (job_type,) in db.rows("lanes_of_word", held=held):
        _offer(db, held, job_type, OFFER_MAX)


def log_starts(db: Db, jobs: Sequence[Claimed], counting: Counting, now: Instant) -> None:
    """Count starts of rate-limited types, each at the latest moment at which it may happen; forget those that have left their window."""
    rates, counts = counting.rates, Counter[tuple[str, Instant]]()
    for job in jobs:
        if job.job_type in rates:
            job.counted_at = _step(now + counting.within, rates[job.job_type])
            counts[job.job_type, job.counted_at] += 1
    if not counts:
        return
    db.change("log_starts", starts=[(*key, count) for key, count in counts.items()])
    for name, _ in counts:
        db.change("forget_starts", job_type=name, now=now, span=rates[name].window, ahead=AHEAD_MAX)


def forget_unstarted(db: Db, unstarted: Sequence[tuple[str, Instant]]) -> None:
    """Take back the counts of starts that did not happen, each by its job type and the moment it was counted under."""
    # In one order, so that two who do so beside each other don't wait for each other.
    for (name, at), count in sorted(Counter(unstarted).items()):
        db.change("forget_unstarted", job_type=name, at=at, count=count)
        db.change("uncount_starts", job_type=name, at=at, count=count)


class Rooms:
    """What has room in this turn, and the parked rows that it is offered to."""

    def __init__(self, db: Db, counting: Counting, now: Instant, *, bound: int) -> None:
        """Count. `bound` is how many rows of a lane are offered where no count says how many."""
        self._db = db
        self._counting = counting
        self._now = now
        self._bound = bound
        self.usage = usage(db, counting, now=now)
        self._taken: list[Claimed] = []
        self._starts_left = {name: rate.count - self.usage.starts[name].count for name, rate in counting.rates.items()}

    def offer(self) -> bool:
        """Offer what waits for a rate and, if that is asked for, whatever else has room; say whether there is more of it."""
        for name in self._waiting():
            self._offer_rate(name, self._starts_left[name])
        return self._sweep() if self._counting.sweep else False

    def took(self, jobs: Sequence[Claimed]) -> None:
        """Count what was claimed."""
        log_starts(self._db, jobs, self._counting, self._now)
        self._taken += jobs
        for job in jobs if self._starts_left else ():
            if job.job_type in self._starts_left:
                self._starts_left[job.job_type] -= 1

    def passed_on(self, parked: Counter[tuple[str, int, str, str]]) -> None:
        """Offer the places of rows that were parked for another reason than their template to the next of that template."""
        by_type = Counter[str]()
        for (name, *_), count in parked.items():
            by_type[name] += count
        for name, count in by_type.items():
            left = self._left_of(f"{Held.TEMPLATE_LIMIT}:{name}")
            if left is not None and left > 0:
                _offer(self._db, f"{Held.TEMPLATE_LIMIT}:{name}", name, min(count, left))
            if name in self._starts_left:
                self._offer_rate(name, min(count, self._starts_left[name]))

    def room_at(self) -> Instant | None:
        """Return when a rate that rows wait for has room again."""
        waiting = self._waiting()
        if not waiting:
            return None
        starts = _started(self._db, {name: self._counting.rates[name] for name in waiting}, self._now)
        return min((each.next_at for each in starts.values() if each.next_at is not None), default=None)

    def _left_of(self, held: str) -> int | None:
        """Return how many more may run under a word; None: it is no limit that is in force."""
        limit = self._counting.limits.get(held)
        if limit is None:
            return None
        kind, _, name = held.partition(":")
        if kind == Held.ORGANIZATION_LIMIT:
            return limit - self._running[0][name] - sum(job.organization_id == name for job in self._taken)
        return limit - self._running[1][name] - sum(job.job_type == name for job in self._taken)

    @cached_property
    def _running(self) -> tuple[Counter[str], Counter[str]]:
        """What ran before this claim, by organization and by type."""
        by_organization, by_type = Counter[str](), Counter[str]()
        for (organization, job_type), count in self.usage.running.items():
            by_organization[organization] += count
            by_type[job_type] += count
        return by_organization, by_type

    def _waiting(self) -> list[str]:
        rates = self._counting.rates
        return _names.decode(self._db.value("rates_waiting", types=list(rates))) if rates else []

    def _offer_rate(self, name: str, count: int) -> None:
        # No more than may run, too: they would only be parked anew.
        left = self._left_of(f"{Held.TEMPLATE_LIMIT}:{name}")
        room = count if left is None else min(count, left)
        if room > 0:
            _offer(self._db, f"{Held.RATE_LIMIT}:{name}", name, room)

    def _sweep(self) -> bool:
        more = False
        for held, job_type in _lanes.decode(self._db.value("lanes")):
            if held == Held.DIRECT or held in self._counting.closed or held.startswith(_BROKEN) or self._counts_starts(held):
                continue
            left = self._left_of(held)
            if left is None:
                more = _offer(self._db, held, job_type, self._bound) == self._bound or more
            elif left > 0:
                # A row for each place: what is beyond that has to wait, and is no reason for another turn.
                _offer(self._db, held, job_type, min(left, self._bound))
        return more

    def _counts_starts(self, held: str) -> bool:
        kind, _, name = held.partition(":")
        return kind == Held.RATE_LIMIT and name in self._counting.rates


def _offer(db: Db, held: str, job_type: str, times: int) -> int:
    return db.change("offer", held=held, job_type=job_type, times=times)


def _started(db: Db, rates: dict[str, Rate], now: Instant) -> dict[str, Starts]:
    if not rates:
        return {}
    rows = [(name, rate.count, rate.window) for name, rate in rates.items()]
    found = _starts.decode(db.value("starts_inside", rates=rows, now=now, ahead=AHEAD_MAX))
    return {name: Starts(count, next_at) for name, count, next_at in found}


def _step(now: Instant, rate: Rate) -> Instant:
    """Return the moment under which a start is noted: never before it happened, so that no window holds too many."""
    if rate.count <= STEPS_MAX:
        return now
    step = max(1, rate.window // STEPS_MAX)
    return -(-now // step) * step
