"""What a simulation tells: how each schedule fared, a story of bounded length, and whether every due time has its one fate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from rota.model.local_time import written
from rota.model.matching import match
from rota.model.schedules import Fate, Schedule, ScheduleState
from rota.model.states import Status
from rota.model.values import SECOND, Instant, Job, instant, moment_of
from rota.model.words import in_words
from rota.ports.pages import each_job, each_occurrence
from rota.ports.schedules import Ledger, Occurrence
from rota.ports.store import Store, Where
from rota.simulation.run import Simulation, length

LATE: Instant = 60 * SECOND
"""A job that starts later after its due time is told of as late."""


class Tally(msgspec.Struct, kw_only=True):
    """How due times fared, counted."""

    due: int = 0
    fired: int = 0
    completed: int = 0
    failed: int = 0
    """Fired, and their jobs ended otherwise."""
    unfinished: int = 0
    """Fired, and their jobs wait or run at the end."""
    attempts: int = 0
    """Runs, retries among them."""
    not_run: dict[str, int] = msgspec.field(default_factory=dict)
    """By fate."""

    def add(self, other: Tally) -> None:
        """Count others in."""
        for name in ("due", "fired", "completed", "failed", "unfinished", "attempts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for fate, count in other.not_run.items():
            self.not_run[fate] = self.not_run.get(fate, 0) + count


class Fared(msgspec.Struct, kw_only=True, frozen=True):
    """One schedule and how it fared."""

    schedule: str
    organization: str
    template: str
    words: str
    state: ScheduleState
    """At the end."""
    tally: Tally


class Line(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One thing worth telling."""

    at: datetime
    what: str
    """A fate, or what befell the workers or the clock."""
    words: str
    schedule: str | None = None
    organization: str | None = None
    count: int = 1
    """Due times that it is about."""
    until: datetime | None = None
    """The last of them, of several."""


class Doubt(msgspec.Struct, kw_only=True, frozen=True):
    """Something that does not match: a due time without its one fate, or a fate without its one job; or an error of the engine itself."""

    schedule: str | None
    organization: str | None
    due_at: datetime | None
    what: str


class Simulated(msgspec.Struct, kw_only=True, frozen=True):
    """What came of a simulation."""

    start: datetime
    end: datetime
    seed: int
    workers: int
    faults: tuple[str, ...]
    failures: bool
    ok: bool
    """Every due time has exactly one fate, and every one that fired a job of its own."""
    totals: Tally
    recovered: int
    """Jobs that were taken over from workers that vanished."""
    schedules: tuple[Fared, ...]
    problems: tuple[Doubt, ...]
    story: tuple[Line, ...]
    left_out: int
    """Lines that the story has no room for; what went as it should is left out first."""


class Story:
    """Gathers lines, up to a number."""

    def __init__(self, limit: int) -> None:
        """Take how many lines there is room for."""
        self._limit = limit
        self._plain: list[tuple[tuple[Instant, str, str], Line]] = []
        self._rest: list[tuple[tuple[Instant, str, str], Line]] = []
        self._count = 0

    def add(self, at: Instant, line: Line, *, plain: bool = False) -> None:
        """Add a line; a plain one tells of what went as it should."""
        self._count += 1
        if plain and len(self._plain) >= self._limit:
            return
        (self._plain if plain else self._rest).append(((at, line.organization or "", line.schedule or ""), line))

    def told(self) -> tuple[tuple[Line, ...], int]:
        """Return the lines in order of time, and how many are left out."""
        kept = sorted(self._rest, key=_key)[: self._limit]
        if self._count <= self._limit:
            kept = sorted(self._rest + self._plain, key=_key)
        return tuple(line for _, line in kept), self._count - len(kept)


def _key(each: tuple[tuple[Instant, str, str], Line]) -> tuple[Instant, str, str]:
    return each[0]


def tell(store: Store, simulation: Simulation, ids: Iterable[str], *, limit: int) -> Simulated:
    """Look at the store after a simulation, and tell."""
    order, story, totals = simulation.order, Story(limit), Tally()
    for each in simulation.happened:
        story.add(each.at, Line(at=moment_of(each.at), what=each.what, words=each.words))
    fared: list[Fared] = []
    problems = [Doubt(schedule=None, organization=None, due_at=None, what=what) for what in simulation.surprises]
    for schedule in filter(None, map(store.schedule, ids)):
        rows, chains = rows_of(store, schedule), chains_of(store, schedule)
        tally = _tally(rows, chains)
        totals.add(tally)
        problems += _doubts(schedule, rows, chains)
        fared.append(
            Fared(
                schedule=schedule.name,
                organization=schedule.organization,
                template=schedule.template,
                words=in_words(schedule.timing),
                state=schedule.state,
                tally=tally,
            )
        )
        for row in rows:
            _tell_row(story, row, chains, order.end)
    lines, left_out = story.told()
    return Simulated(
        start=moment_of(order.start),
        end=moment_of(order.end),
        seed=order.seed,
        workers=order.workers,
        faults=tuple(order.faults),
        failures=order.failures,
        ok=not problems,
        totals=totals,
        recovered=simulation.recovered,
        schedules=tuple(sorted(fared, key=lambda each: (each.organization, each.schedule))),
        problems=tuple(problems),
        story=lines,
        left_out=left_out,
    )


# ---- reading -----------------------------------------------------------------------------------------------------------


def rows_of(store: Store, schedule: Schedule) -> list[Occurrence]:
    """Return the ledger of a schedule, latest due time first."""
    return list(each_occurrence(store, Ledger(schedule_id=schedule.id)))


def chains_of(store: Store, schedule: Schedule) -> dict[str, list[Job]]:
    """Return the jobs of a schedule by the ids of their chains, first to last."""
    chains: dict[str, list[Job]] = {}
    for job in each_job(store, Where(schedule_id=schedule.id)):
        chains.setdefault(job.root_id.replace("-", ""), []).insert(0, job)
    return chains


def _doubts(schedule: Schedule, rows: list[Occurrence], chains: dict[str, list[Job]]) -> Iterator[Doubt]:
    jobs = [job for chain in chains.values() for job in chain if job.due_at is not None]
    if schedule.state is ScheduleState.DISABLED and not rows and not jobs:
        return  # it had no due times
    found = match(schedule, rows, jobs)
    for each in found.problems:
        yield Doubt(
            schedule=schedule.name,
            organization=schedule.organization,
            due_at=None if each.due_at is None else moment_of(each.due_at),
            what=each.what,
        )


# ---- counting ----------------------------------------------------------------------------------------------------------


def _tally(rows: list[Occurrence], chains: dict[str, list[Job]]) -> Tally:
    tally = Tally(attempts=sum(job.started_at is not None for chain in chains.values() for job in chain))
    for row in rows:
        tally.due += row.count
        if row.fate is not Fate.FIRED:
            fate = row.fate.value
            tally.not_run[fate] = tally.not_run.get(fate, 0) + row.count
            continue
        tally.fired += 1
        tally.completed += row.ran is True
        tally.failed += row.ran is False
        tally.unfinished += row.ran is None
    return tally


# ---- telling -----------------------------------------------------------------------------------------------------------


def _tell_row(story: Story, row: Occurrence, chains: dict[str, list[Job]], end: Instant) -> None:
    if row.fate is Fate.FIRED:
        words, plain = _fired(row, chains.get(row.job_id or "", []), end)
    else:
        several = f"{row.count:,} due times up to {written(moment_of(row.last_due_at))}: " if row.count > 1 else ""
        words, plain = f"{several}{row.reason or 'no reason was given'}", False
    line = Line(
        at=moment_of(row.due_at),
        what=row.fate.value,
        words=words,
        schedule=row.schedule,
        organization=row.organization,
        count=row.count,
        until=moment_of(row.last_due_at) if row.count > 1 else None,
    )
    story.add(row.due_at, line, plain=plain)


def _fired(row: Occurrence, chain: list[Job], end: Instant) -> tuple[str, bool]:
    """Return what became of a due time that fired, and whether all went as it should."""
    if not chain:
        return "its job is not there", False
    first, tail = chain[0], chain[-1]
    words = _end(tail)
    runs = sum(job.started_at is not None for job in chain)
    if first.started_at is not None and tail.finished_at is not None and tail.status.ended:
        words += f" after {length(instant(tail.finished_at) - instant(first.started_at))}"
    if runs > 1:
        words += f", at attempt {runs}"
    late = 0 if first.started_at is None else instant(first.started_at) - row.due_at
    if late > LATE:
        words += f"; started {length(late)} late"
    # What was due in the last minute may well not be over.
    as_it_should = tail.status is Status.COMPLETED or (not tail.status.ended and 0 <= end - row.due_at <= LATE)
    return f"{first.number} {words}", as_it_should and runs <= 1 and late <= LATE


def _end(tail: Job) -> str:
    match tail.status:
        case Status.COMPLETED:
            return "completed"
        case Status.RUNNING:
            return "still runs at the end"
        case Status.PENDING | Status.QUEUED:
            return "still waits at the end" + (f" ({tail.held})" if tail.held else "")
        case _:
            return f"ended {tail.status}" + (f" ({tail.reason})" if tail.reason else "")
