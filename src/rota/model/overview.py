"""The first screen as a value: is it healthy, what did not run, what is stuck and why, what is running, what comes next.

The dashboard's first page, `rota top` and the API show the same `Overview`. What its reader may not see is left out: a figure
that is None was not looked at, a list that is empty has nothing to show to this reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum

import msgspec

from rota.model.findings import span_text
from rota.model.kinds import is_kind, type_in_words, unserved
from rota.model.local_time import written
from rota.model.schedules import Fate
from rota.model.values import Instant, moment_of


class Level(StrEnum):
    """How well it is."""

    WELL = "well"
    WATCH = "watch"
    """Nothing is lost, but somebody should know."""
    TROUBLE = "trouble"
    """Work does not get done that should."""


class Concern(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that is not as it should be."""

    level: Level
    what: str
    """One sentence without its full stop."""
    remedy: str | None = None


class Health(msgspec.Struct, kw_only=True, frozen=True):
    """Is it healthy?"""

    level: Level
    sentence: str
    """The answer with its reason, for people: the gravest concern, or that all is well and how much of it there is."""
    concerns: tuple[Concern, ...] = ()
    """All of them, gravest first."""


class Example(msgspec.Struct, kw_only=True, frozen=True):
    """One job that stands for its group."""

    id: str
    number: str
    job_type: str


class NotRun(msgspec.Struct, kw_only=True, frozen=True):
    """What did not run: due times of one schedule that had the same fate, or dead letters of one type."""

    kind: str
    """`schedule` or `job`: what `name` names."""
    name: str
    """The schedule, or the job type."""
    organization: str
    fate: str
    """A fate of `rota.model.schedules.Fate`, OVERDUE among them, or DEAD_LETTER."""
    count: int
    first_at: datetime
    """The earliest due time, or end, of those counted."""
    last_at: datetime
    reason: str | None = None
    """Of the latest."""
    more: bool = False
    """There are more than `count`: the look stopped at a bound."""
    planned: bool = False
    """It was meant not to run: a pause, a day of its calendar, a time its clock jumps over, one that a later run stands for."""
    example: Example | None = None
    """The latest job, where there is one."""


class Why(StrEnum):
    """What a waiting job waits for, as `explain` would say it; in the order in which groups are shown."""

    NO_WORKER = "no_worker"
    """No live worker has a handler of its type."""
    PAUSED = "paused"
    """Everything, its template or its organization is paused or suspended."""
    PARENT = "parent"
    """Other jobs, or another schedule, have to end first."""
    LIMIT = "limit"
    """As many run, or have started, as may."""
    SUSPECT = "suspect"
    """A job that a worker crashed under runs, and they may not start beside it."""
    DIRECT = "direct"
    """It is a direct execution, and waits for the next free slot."""
    TURN = "turn"
    """Nothing but others that are before it."""
    LATER = "later"
    """Its time has not come: it was asked for later, or a failed attempt waits to be tried again."""


OTHERS_FIRST = "others have to end first"
"""Why jobs wait for others, where it was not looked at for which."""


class Stuck(msgspec.Struct, kw_only=True, frozen=True):
    """Jobs that wait for the same reason, longer than usual."""

    why: Why
    words: str
    """The reason in words."""
    count: int
    more: bool
    """There are more than `count`: it is not worth the time to count them all."""
    oldest_s: float
    """How long the oldest has waited since it could have run (since it was made, if it waits for others)."""
    example: Example
    job_type: str | None = None
    """Where all of them are of one type."""


def is_stuck(group: Stuck, usual_s: float) -> bool:
    """Say whether jobs wait for more than their time, jobs that are still to finish, or the usual wait for a slot."""
    match group.why:
        case Why.LATER:
            return False
        case Why.PARENT if group.words != OTHERS_FIRST:
            # The detail names what has failed before what is still awaited.
            return not group.words.startswith("waits for ")
        case Why.PARENT | Why.TURN | Why.LIMIT | Why.DIRECT:
            return group.oldest_s > usual_s
        case _:
            return True


class Current(msgspec.Struct, kw_only=True, frozen=True):
    """One job that runs."""

    id: str
    number: str
    job_type: str
    organization: str
    attempt: int
    started_at: datetime
    elapsed_s: float
    progress: int | None = None
    """In percent, if it says so."""
    message: str | None = None
    usual_s: float | None = None
    """How long half of its type's runs took at most, lately (setting stats_hours)."""
    long_s: float | None = None
    """How long all but the slowest twentieth took at most."""
    timeout_s: float | None = None
    """When it will be stopped; None: never."""
    stopping: bool = False
    """It was asked to stop."""
    slow: bool = False
    """It takes longer than nearly all of its kind did."""


class Running(msgspec.Struct, kw_only=True, frozen=True):
    """What is running?"""

    jobs: tuple[Current, ...] = ()
    """The longest first; some of them if there are many."""
    count: int = 0
    """Handlers that run."""
    more: bool = False
    """There are more than `count`."""
    claimed_ahead: int = 0
    """Jobs that workers hold beyond their slots: their handlers have not started. 0 to whom workers are not shown."""


class Coming(msgspec.Struct, kw_only=True, frozen=True):
    """One due time to come."""

    schedule: str
    organization: str
    template: str
    due_at: datetime
    note: str | None = None
    """What is worth knowing: what it waits for, or that its zone's clock changes near it."""
    more: int = 0
    """On the last that is shown of its schedule: how many of it follow in the window."""


class Hour(msgspec.Struct, kw_only=True, frozen=True):
    """How many due times there are in one hour."""

    begins_at: datetime
    count: int


class ClockChange(msgspec.Struct, kw_only=True, frozen=True):
    """A zone's clock changes, and whom it concerns. Offsets as in UTC+1."""

    at: datetime
    timezone: str
    before: str
    after: str
    schedules: tuple[str, ...]


class Ahead(msgspec.Struct, kw_only=True, frozen=True):
    """What comes next?"""

    start: datetime
    end: datetime
    items: tuple[Coming, ...] = ()
    """What will run, in order of time; of each schedule the first few, so that a busy one does not hide the others."""
    hours: tuple[Hour, ...] = ()
    """Every hour, UTC, that the window touches, also those with nothing."""
    count: int = 0
    """Due times in the window; hours count every one of them, however many there are."""
    more: bool = False
    """There are more schedules than are counted: `count` and every hour are lower bounds."""
    changes: tuple[ClockChange, ...] = ()
    """Clocks that change inside the window."""


class Counts(msgspec.Struct, kw_only=True, frozen=True):
    """How much there is."""

    pending: int = 0
    queued: int = 0
    running: int = 0
    """Handlers that run."""
    claimed_ahead: int = 0
    """Jobs that workers hold beyond their slots. 0 to whom workers are not shown."""
    more: bool = False
    """The figures above are less than what there is: counting stopped at a bound."""
    completed: int = 0
    """In the last `hours`, as failed and dead."""
    failed: int = 0
    """Attempts that failed or timed out."""
    dead: int = 0
    """Dead letters."""
    hours: int = 24
    workers: int | None = None
    """Alive; None to whom workers are not shown."""


class Overview(msgspec.Struct, kw_only=True, frozen=True):
    """The first screen: five questions from top to bottom."""

    at: datetime
    organization: str | None
    """Whose it is; None: everybody's."""
    health: Health
    counts: Counts | None
    not_run: tuple[NotRun, ...]
    """What is overdue first, then what did not run in the last 24 hours, newest first."""
    stuck: tuple[Stuck, ...]
    running: Running
    ahead: Ahead
    took_ms: float = 0.0
    """How long it took to find all this out."""


PLANNED = frozenset({Fate.COALESCED, Fate.SKIPPED_CALENDAR, Fate.SKIPPED_DST_GAP})
"""Fates that are as somebody wished."""


class OverdueFacts(msgspec.Struct, kw_only=True, frozen=True):
    """Due times that should have run and have no recorded outcome."""

    count: int
    schedules: tuple[str, ...]
    """Their names, the longest overdue first."""
    since: Instant
    """The first due time of all."""
    more: bool = False
    """There are more schedules than were looked at."""


class Facts(msgspec.Struct, kw_only=True, frozen=True):
    """What health is judged by."""

    alive: int
    """Workers that show signs of life."""
    lost: int = 0
    """Workers that were not ended and show none."""
    lost_jobs: int = 0
    """What those still hold."""
    waiting: int = 0
    more: bool = False
    """More wait than were counted."""
    running: int = 0
    completed: int | None = None
    hours: int = 24
    scheduled: bool = False
    """Something is due in the hours to come."""
    oldest_s: float = 0.0
    """How long the oldest ready job that nothing but its turn holds up has waited."""
    unqueued_s: float = 0.0
    """How long ago a PENDING job was due that is not queued yet."""
    overdue: OverdueFacts | None = None
    suspects: tuple[tuple[int, str], ...] = ()
    """How many wait for a suspect that runs, and the reason in words."""
    unserved: tuple[str, ...] = ()
    """Types that wait and that no live worker has a handler of."""
    unserved_queues: tuple[str, ...] = ()
    """Queues in which jobs wait and that no live worker serves."""
    paused: tuple[tuple[str, Instant, str], ...] = ()
    """What is paused, in words, since when, and by whom (empty: that is not told)."""
    dead: int = 0
    """Dead letters of the last hour."""
    missed: int = 0
    """Due times of the last hour that did not run and were meant to."""
    clock_ahead_s: float = 0.0
    """How far due times were given their fates ahead of now: the clock was set back."""
    read_s: float = 0.0
    """How long the store took to answer."""


class Patience(msgspec.Struct, kw_only=True, frozen=True):
    """From when on something is a concern, in seconds."""

    waiting_s: float
    unqueued_s: float
    clock_s: float
    read_s: float


def health_of(facts: Facts, patience: Patience) -> Health:
    """Say whether all is well or, if not, what concerns: the gravest first."""
    concerns = sorted(_concerns(facts, patience), key=lambda each: each.level is not Level.TROUBLE)
    if not concerns:
        return Health(level=Level.WELL, sentence=_all_is_well(facts))
    first = concerns[0].what
    more = len(concerns) - 1
    others = f" (and {more} more {'concern' if more == 1 else 'concerns'})" if more else ""
    return Health(level=concerns[0].level, sentence=f"{first[0].upper()}{first[1:]}{others}.", concerns=tuple(concerns))


def _concerns(facts: Facts, patience: Patience) -> Iterator[Concern]:
    yield from _of_workers(facts)
    yield from _of_overdue(facts)
    yield from _of_waiting(facts, patience)
    yield from _of_what_went_wrong(facts)
    if facts.clock_ahead_s > patience.clock_s:
        yield Concern(
            level=Level.WATCH,
            what=f"the clock was set back by {span_text(facts.clock_ahead_s)}: schedules wait for it, or repeat nothing that fired",
            remedy="see the clocks of the workers' machines",
        )
    if facts.read_s > patience.read_s:
        yield Concern(
            level=Level.WATCH,
            what=f"the store is slow: it took {facts.read_s * 1000:,.0f} ms to answer",
            remedy="`rota doctor` looks at it",
        )


def _of_workers(facts: Facts) -> Iterator[Concern]:
    if not facts.alive:
        wanted = facts.waiting or facts.running or facts.scheduled
        waits = f", and {_waiting(facts)} {'job waits' if facts.waiting == 1 else 'jobs wait'}" if facts.waiting else ""
        yield Concern(
            level=Level.TROUBLE if wanted else Level.WATCH,
            what=f"no worker is running{waits}",
            remedy="start one with `rota up` or `rota worker`",
        )
    if facts.lost:
        who = "a worker was" if facts.lost == 1 else f"{facts.lost:,} workers were"
        holds = f"; {facts.lost_jobs:,} jobs are still in its name" if facts.lost_jobs else ""
        yield Concern(
            level=Level.TROUBLE if facts.lost_jobs else Level.WATCH,
            what=f"{who} lost without a word{holds}",
            remedy="any other worker takes over: see that one runs",
        )


def _of_overdue(facts: Facts) -> Iterator[Concern]:
    late = facts.overdue
    if late is None:
        return
    times = f"{'more than ' if late.more else ''}{late.count:,} {'due time' if late.count == 1 else 'due times'}"
    names = ", ".join(late.schedules[:NAMED_MAX]) + (", …" if len(late.schedules) > NAMED_MAX or late.more else "")
    whose = f"schedule {names}" if len(late.schedules) == 1 and not late.more else f"{len(late.schedules):,} schedules ({names})"
    has = "has" if late.count == 1 and not late.more else "have"
    yield Concern(
        level=Level.TROUBLE,
        what=f"{times} of {whose} {has} no outcome since {written(moment_of(late.since))}",
        remedy="see the workers' logs: none of them records it" if facts.alive else "start a worker with `rota up` or `rota worker`",
    )


def _of_waiting(facts: Facts, patience: Patience) -> Iterator[Concern]:
    handlers, kinds = ([name for name in facts.unserved if is_kind(name) is kind] for kind in (False, True))
    if facts.alive and handlers:
        named = ", ".join(handlers[:NAMED_MAX]) + (", …" if len(handlers) > NAMED_MAX else "")
        yield Concern(
            level=Level.TROUBLE,
            what=f"no live worker has a handler for {named}, and such jobs wait",
            remedy="start a worker with the application that has it",
        )
    if facts.alive and kinds:
        named = ", ".join(map(type_in_words, kinds[:NAMED_MAX])) + (", …" if len(kinds) > NAMED_MAX else "")
        yield Concern(
            level=Level.TROUBLE, what=f"no live worker serves {named}, and such jobs wait", remedy=unserved(kinds[0]).partition(": ")[2]
        )
    if facts.alive and facts.unserved_queues:
        named = ", ".join(facts.unserved_queues[:NAMED_MAX]) + (", …" if len(facts.unserved_queues) > NAMED_MAX else "")
        yield Concern(
            level=Level.TROUBLE,
            what=f"jobs wait in {'queue' if len(facts.unserved_queues) == 1 else 'queues'} {named}, which no live worker serves",
            remedy=f"start a worker that does: `rota worker --queue {facts.unserved_queues[0]}`",
        )
    for count, words in facts.suspects:
        waits = "1 job waits" if count == 1 else f"{count:,} jobs wait"
        yield Concern(level=Level.WATCH, what=f"{waits}: {words}", remedy="`rota job explain` of the job that runs says more")
    for words, since, by in facts.paused:
        who = f" (by {by})" if by else ""
        what = f"{words} is paused since {written(moment_of(since))}{who}"
        yield Concern(level=Level.WATCH, what=what, remedy="`rota resume` ends it")
    if facts.unqueued_s > patience.unqueued_s and facts.alive:
        yield Concern(
            level=Level.TROUBLE,
            what=f"a job was due {span_text(facts.unqueued_s)} ago and was not queued",
            remedy="see the workers' logs and clocks",
        )
    if facts.oldest_s > patience.waiting_s and facts.alive:
        yield Concern(
            level=Level.WATCH,
            what=f"the oldest ready job has waited for {span_text(facts.oldest_s)}",
            remedy="more workers, or more slots, would start it sooner",
        )


def _of_what_went_wrong(facts: Facts) -> Iterator[Concern]:
    if facts.dead:
        words = "1 job was dead-lettered" if facts.dead == 1 else f"{facts.dead:,} jobs were dead-lettered"
        yield Concern(level=Level.WATCH, what=f"{words} in the last hour", remedy="`rota dead list` says why")
    if facts.missed:
        words = "1 due time did not run" if facts.missed == 1 else f"{facts.missed:,} due times did not run"
        yield Concern(level=Level.WATCH, what=f"{words} in the last hour", remedy="`rota schedule occurrences --not-ran` says which")


def _all_is_well(facts: Facts) -> str:
    words = [
        "1 worker is up" if facts.alive == 1 else f"{facts.alive:,} workers are up",
        f"{facts.running:,} {'job runs' if facts.running == 1 else 'jobs run'}" if facts.running else "nothing runs",
        f"{_waiting(facts)} {'waits' if facts.waiting == 1 else 'wait'}" if facts.waiting else "nothing waits",
    ]
    if facts.completed:
        words.append(f"{facts.completed:,} completed in the last {facts.hours} hours")
    return f"All is well: {', '.join(words)}."


def _waiting(facts: Facts) -> str:
    return f"more than {facts.waiting:,}" if facts.more else f"{facts.waiting:,}"


NAMED_MAX = 3
