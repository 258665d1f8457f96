"""Whether a schedule kept its word: every due time matched to one fate, and every one that fired to a job of its own.

`match(schedule, rows, jobs)` looks at a ledger from outside and trusts nothing that wrote it. A ledger was written by the
definitions of its time, so only the stretch since the schedule's last edit, when the ledger was closed, can be held against the due
times of now. Of what is older is checked what holds whatever the definition was: no due time has two fates, and jobs and rows agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Protocol

import msgspec

from rota.model.lattice import Lattice
from rota.model.schedules import Fate, Kind, Schedule, lattice_of
from rota.model.values import LATEST, Instant, Job, dashed, instant, undashed

WITH_JOB = frozenset({Fate.FIRED, Fate.SKIPPED_DEPENDENCY})
"""Fates of due times that became jobs; one that was given up had a job too, which never ran."""


class Row(Protocol):
    """One row of the ledger, as `rota.ports.schedules.Occurrence` has it."""

    @property
    def due_at(self) -> Instant: ...  # noqa: D102 - see Occurrence
    @property
    def last_due_at(self) -> Instant: ...  # noqa: D102
    @property
    def count(self) -> int: ...  # noqa: D102
    @property
    def fate(self) -> Fate: ...  # noqa: D102
    @property
    def job_id(self) -> str | None: ...  # noqa: D102


class Mismatch(msgspec.Struct, frozen=True):
    """Something that does not match."""

    due_at: Instant | None
    what: str
    count: int = 1
    """How many due times it is about."""
    stray: str | None = None
    """The job that fired although nothing was due. A clock that was ahead may have fired it, by a definition before the last edit."""


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a comparison."""

    due: int
    """Due times that were looked at."""
    matched: int
    problems: tuple[Mismatch, ...]

    @property
    def ok(self) -> bool:
        """Say whether all of them match."""
        return not self.problems

    def without(self, stray: Callable[[str], bool]) -> Matched:
        """Return it without the stray jobs that somebody can account for."""
        left = tuple(problem for problem in self.problems if problem.stray is None or not stray(problem.stray))
        return Matched(due=self.due, matched=self.matched + len(self.problems) - len(left), problems=left)


def match(
    schedule: Schedule,
    rows: Iterable[Row],
    jobs: Iterable[Job],
    *,
    since: Instant = 0,
    until: Instant = LATEST,
    forgotten_before: Instant = 0,
) -> Matched:
    """Match the due times in (since, until], as far as the schedule's cursor, with the rows of its ledger and with its jobs.

    Rows and jobs may be all there are, in any order, other attempts and jobs without a due time among them; they must have been
    read after the schedule. Rows and jobs of due times before `forgotten_before` may have been removed by retention. Where the clock
    was ahead, came back and the schedule was edited then, jobs that fired ahead look astray: see `Matched.without`.
    """
    until = min(until, schedule.cursor_at)
    near = sorted((row for row in rows if row.last_due_at > since and row.due_at <= until), key=lambda row: (row.due_at, row.last_due_at))
    firsts = [_First(job.id, instant(job.due_at)) for job in jobs if job.due_at is not None and job.retry_of is None]
    found = [*_shapes(near), *_doubles(near), *_jobs(near, firsts, since, until, forgotten_before)]
    edited = max(since, min(until, _edited_at(schedule)), min(until, forgotten_before))
    newer = _Lattice(lattice_of(schedule.timing), edited, until)
    newer.walk([row for row in near if row.last_due_at > edited])
    due = newer.due + sum(row.count for row in near if row.last_due_at <= edited)
    problems = sorted({*found, *newer.problems}, key=lambda problem: (problem.due_at or 0, problem.what))
    return Matched(due=due, matched=max(0, due - sum(problem.count for problem in problems)), problems=tuple(problems))


class _First(msgspec.Struct, frozen=True):
    """The first job of a due time."""

    id: str
    due_at: Instant


def _edited_at(schedule: Schedule) -> Instant:
    """Return the moment since which the schedule is what it is."""
    at = 0 if schedule.updated_at is None else instant(schedule.updated_at)
    if schedule.timing.kind is Kind.AT and schedule.version == 1:
        # One of the very moment in which it was made is due.
        return min(at, (schedule.timing.at or 0) - 1)
    return at


# ---- what holds whatever the definition was ------------------------------------------------------------------------


def _shapes(rows: Sequence[Row]) -> Iterator[Mismatch]:
    for row in rows:
        if row.count < 1 or row.last_due_at < row.due_at or (row.count == 1) != (row.due_at == row.last_due_at):
            yield Mismatch(row.due_at, f"{row.fate} counts {row.count} from its first to its last due time: that can't be")
        elif row.fate in WITH_JOB and row.count > 1:
            yield Mismatch(row.due_at, f"{row.fate} counts {row.count}: each due time that fires has a row of its own", row.count)


def _doubles(rows: Sequence[Row]) -> Iterator[Mismatch]:
    """Find due times that several rows begin or end with. A skipped 02:30 and a real 03:30 may be one moment."""
    seen: dict[tuple[Instant, bool], Fate] = {}
    for row in rows:
        for at in {row.due_at, row.last_due_at}:
            key = at, row.fate is Fate.SKIPPED_DST_GAP
            if key in seen:
                yield Mismatch(at, f"it has two fates: {' and '.join(sorted((seen[key], row.fate)))}")
            seen[key] = row.fate


def _jobs(rows: Sequence[Row], firsts: Sequence[_First], since: Instant, until: Instant, forgotten_before: Instant) -> Iterator[Mismatch]:
    """Hold jobs against rows, both ways."""
    by_id = {undashed(first.id): first for first in firsts}
    by_due: dict[Instant, _First] = {}
    for first in firsts:
        if first.due_at in by_due:
            yield Mismatch(first.due_at, f"it fired twice: jobs {by_due[first.due_at].id} and {first.id}")
        by_due[first.due_at] = first
    told: dict[Instant, str | None] = {row.due_at: row.job_id for row in rows if row.fate in WITH_JOB}
    for due_at, job_id in told.items():
        job = by_id.get(job_id)
        if job_id is None:
            yield Mismatch(due_at, "it fired, and its row names no job")
        elif job is None and due_at >= forgotten_before:
            yield Mismatch(due_at, f"it fired, and its job {dashed(job_id)} is not there")
        elif job is not None and job.due_at != due_at:
            yield Mismatch(due_at, f"its job {job.id} belongs to another due time")
    for due_at, first in by_due.items():
        if since < due_at <= until and due_at not in told and due_at >= forgotten_before:
            yield Mismatch(due_at, f"job {first.id} was made of it, and no row says so")


# ---- what holds since the last edit --------------------------------------------------------------------------------


class _Span(msgspec.Struct):
    """A row that covers more due times than its first and last."""

    last: Instant
    left: int
    """Due times between its ends that it still has to be given."""
    row: Row
    open: bool
    """It reaches out of the window: how many of its due times lie inside is not known."""


class _Lattice:
    """Gives each due time of a window to one row, or says that it can't be done.

    Rows may lie inside each other: a span that a calendar's days were taken out of. Where several could take a due time, the one
    that ends first takes it: if that leaves a row short, every other way does too.
    """

    def __init__(self, lattice: Lattice, after: Instant, until: Instant) -> None:
        self._lattice = lattice
        self._after = after
        self._until = until
        self.due = 0
        self.problems: list[Mismatch] = []
        self._spans: list[tuple[Instant, int, _Span]] = []

    def walk(self, rows: Sequence[Row]) -> None:
        """Give every due time a row."""
        if self._until <= self._after:
            return
        self._walk_gaps({row.due_at for row in rows if row.fate is Fate.SKIPPED_DST_GAP})
        rows = [row for row in rows if row.fate is not Fate.SKIPPED_DST_GAP]
        for row in rows:
            if row.due_at <= self._after:
                self._open(row)
        starts = {row.due_at: row for row in rows}
        ends = {at for row in rows for at in (row.due_at, row.last_due_at) if self._after < at <= self._until}
        before, points = self._after, self._points(self._after)
        ahead = next(points, None)
        for at in sorted(ends):
            if ahead is not None and ahead < at:
                self._between(before, at - 1)
                points = self._points(at - 1)
                ahead = next(points, None)
            if ahead == at:
                self.due += 1
                ahead = next(points, None)
            else:
                self._is_none(at, starts.get(at))
            self._close(at)
            if at in starts:
                self._open(starts[at])
            before = at
        if ahead is not None:
            self._between(before, self._until)
        self._close(LATEST)

    def _is_none(self, at: Instant, row: Row | None) -> None:
        """Note that a row begins or ends with what is no due time."""
        self.due += 1
        stray = row.job_id if row is not None and row.fate in WITH_JOB else None
        self.problems.append(Mismatch(at, "it has a fate, and is no due time of this schedule", stray=stray))

    def _walk_gaps(self, told: set[Instant]) -> None:
        real = set(self._lattice.gaps(self._after, self._until))
        told = {at for at in told if self._after < at <= self._until}
        self.due += len(real)
        self.problems += [Mismatch(at, "the clock jumped over it, and no row says so") for at in real - told]
        self.problems += [Mismatch(at, "its row says that the clock jumped over it, which it did not") for at in told - real]

    def _points(self, after: Instant) -> Iterator[Instant]:
        return (point.at for point in self._lattice.points(after, self._until) if not point.gap)

    def _open(self, row: Row) -> None:
        """Let a row take due times, those that are its ends aside."""
        outside = row.due_at <= self._after or row.last_due_at > self._until
        own = 1 + (row.last_due_at != row.due_at)
        span = _Span(row.last_due_at, row.count - own, row, outside)
        if span.left > 0:
            heappush(self._spans, (span.last, span.row.due_at, span))

    def _close(self, at: Instant) -> None:
        """Let rows that end here take no more."""
        while self._spans and self._spans[0][0] <= at:
            span = heappop(self._spans)[2]
            if span.left and not span.open:
                row = span.row
                self.problems.append(Mismatch(row.due_at, f"{row.fate} counts {row.count}, and only {row.count - span.left} are there"))

    def _between(self, after: Instant, until: Instant) -> None:
        """Give the due times in a stretch without ends to the rows that reach over it."""
        run = self._lattice.tally(after, until)
        if run is None:
            return
        self.due += run.count
        left = run.count
        for _, _, span in sorted(self._spans, key=lambda each: each[:2]):
            taken = min(left, span.left)
            span.left -= taken
            left -= taken
        if left:
            words = "it has no fate" if left == 1 else f"{left} due times from here on have no fate"
            self.problems.append(Mismatch(run.first, words, left))
