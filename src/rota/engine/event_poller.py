"""What is new since the last look: reads of a store become changes to tell. One looks for all who listen.

Nothing was written down for it but reports of schedules, so each kind of change has its own way of being found:

- *New jobs* by their numbers. PostgreSQL gives numbers before transactions commit: those that were missing are looked for a while.
- *What runs* is a small set, seen whole each time: who is new in it has started, who has left it has ended.
- *Ends* by their moment, type by type. A moment is earlier than its commit, so a look goes back a little and leaves out what it has seen.
- *Reports of schedules* by their numbers, which ascend in the order of commits: they are written one transaction at a time.
- *Definitions* by the audit trail.

Every read has a bound. Where more happened than that, `missed` says so: whoever listens is told that there is a gap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from rota.model.events import Change, Cursor, EventType, JobNow
from rota.model.values import SECOND, Instant, Job, Run, instant, undashed
from rota.ports.clock import Clock
from rota.ports.events import Marks, NumberedReport, ProgressNow, Span, Watching

MADE_MAX = 5000
"""New jobs that one look reads."""
BEHIND_MAX = 20_000
"""New jobs that may wait to be read: beyond that the oldest are left out."""
ENDED_MAX = 5000
"""Ends of one type that one look reads."""
RUNNING_MAX = 10_000
DEFINITIONS_MAX = 200
REPORTS_MAX = 1000
"""Reports of schedules that one look reads."""
MARGIN: tuple[Instant, Instant] = (SECOND // 2, 5 * SECOND)
"""How far a look at ends goes back behind the one before it: in a flood, and otherwise."""
FLOOD = 10_000
"""Ends inside the margin that make it shorter: each of them is read again at every look."""
LATE_S = 30.0
"""How long a number that is missing is looked for: so long may a transaction take that adds jobs."""
SPANS_MAX = 100


class Gathered(msgspec.Struct):
    """What one look has found."""

    changes: list[Change]
    missed: bool = False
    """There was more than could be read."""


class _Missing(msgspec.Struct, frozen=True):
    span: Span
    since_s: float


class _Running(msgspec.Struct):
    job: JobNow
    progress: int | None = None
    message: str | None = None


class EventPoller:
    """Remembers how far it has looked. Belongs to one thread at a time."""

    def __init__(self, store: Watching, clock: Clock) -> None:
        """Take what to look at; `begin` comes first."""
        self._store = store
        self._clock = clock
        self._marks = Marks(0, 0, 0)
        self._missing: list[_Missing] = []
        self._running: dict[int, _Running] = {}
        self._ended: dict[int, Instant] = {}
        self._margin = MARGIN[1]
        self._at: Instant = 0
        self._swept_at: Instant = 0

    @property
    def cursor(self) -> Cursor:
        """How far everything has been told."""
        return Cursor(self._at, min([self._marks.number + 1, *(each.span.first for each in self._missing)]) - 1)

    def begin(self) -> None:
        """Take the store as it is now: what happens from here on is news."""
        self._at = self._clock.now()
        self._marks = self._store.marks()
        self._missing = []
        found = {each.number: each for each in self._store.progress_now(limit=RUNNING_MAX)}
        jobs = self._store.jobs_now(list(found)) if found else []
        self._running = {job.number: _Running(job, found[job.number].progress, found[job.number].message) for job in jobs}
        ended = self._store.ended_since(self._at - self._margin, limit=ENDED_MAX)
        self._ended = {number: self._at for numbers in ended for number in numbers}

    def gather(self) -> Gathered:
        """Return what is new."""
        gathered, now = Gathered([]), self._clock.now()
        marks = self._store.marks()
        self._look_at_definitions(marks, gathered)
        self._look_at_reports(marks, gathered)
        self._look_for_new(marks, gathered)
        self._look_at_ends(gathered)
        self._at = now
        return gathered

    # ---- new jobs -------------------------------------------------------------------------------------------------

    def _look_for_new(self, marks: Marks, into: Gathered) -> None:
        now_s, last = self._clock.monotonic(), self._marks.number
        if marks.number - last > BEHIND_MAX:
            into.missed, last, self._missing = True, marks.number - MADE_MAX, []
        asked = list(self._missing)
        if marks.number > last:
            asked.append(_Missing(Span(last + 1, marks.number), now_s))
        if not asked:
            return
        jobs = self._store.made_in([each.span for each in asked], limit=MADE_MAX)
        into.changes += [Change(type=EventType.CREATED, at=job.created_at, job=job) for job in jobs]
        until = marks.number if len(jobs) < MADE_MAX else jobs[-1].number
        self._missing = list(self._still_missing(asked, [job.number for job in jobs], until, now_s))[-SPANS_MAX:]
        self._marks = msgspec.structs.replace(self._marks, number=max(last, until))

    def _still_missing(self, asked: Iterable[_Missing], found: Sequence[int], until: int, now_s: float) -> Iterable[_Missing]:
        for each in asked:
            if now_s - each.since_s < LATE_S:
                for span in holes(Span(each.span.first, min(each.span.last, until)), found):
                    yield _Missing(span, each.since_s)
            if each.span.first <= self._marks.number and each.span.last > until:
                # It was asked for before, and is not read to its end: the mark stands behind it already.
                yield _Missing(Span(max(each.span.first, until + 1), each.span.last), each.since_s)

    # ---- starts, progress, ends -----------------------------------------------------------------------------------

    def _look_at_ends(self, into: Gathered) -> None:
        running = {each.number: each for each in self._store.progress_now(limit=RUNNING_MAX)}
        fresh = self._fresh_ends(into)
        # Where not all that runs could be seen, nothing is known of those who are not among it.
        gone = [] if len(running) == RUNNING_MAX else [number for number in self._running if number not in running]
        wanted = {*(number for number in running if number not in self._running), *fresh, *gone} - self._ended.keys()
        jobs = self._store.jobs_now(sorted(wanted)) if wanted else []
        for job in jobs:
            if job.finished_at is not None:
                self._tell_end(job, into)
            elif job.number in running and job.number not in self._running:
                into.changes.append(Change(type=EventType.STARTED, at=job.started_at or job.created_at, job=job))
                self._running[job.number] = _Running(job)
        still = {job.number for job in jobs}
        for number in gone:
            if number not in still:
                self._running.pop(number, None)
        self._tell_progress(running.values(), into)

    def _fresh_ends(self, into: Gathered) -> list[int]:
        now = self._clock.now()
        since = min(self._at, now) - self._margin
        found = self._store.ended_since(since, limit=ENDED_MAX)
        # The last of a full list is its oldest: had it been seen before, nothing would be missing between.
        into.missed |= any(len(numbers) == ENDED_MAX and numbers[-1] not in self._ended for numbers in found)
        shortest, longest = MARGIN
        flooded = sum(map(len, found)) > FLOOD
        self._forget_ends(now)
        self._margin = max(shortest, self._margin // 2) if flooded else min(longest, self._margin * 2)
        fresh = [number for numbers in found for number in numbers if number not in self._ended]
        if len(fresh) > BEHIND_MAX:
            into.missed = True
            self._ended |= dict.fromkeys(fresh[BEHIND_MAX:], now)
        return fresh[:BEHIND_MAX]

    def _forget_ends(self, now: Instant) -> None:
        """Remember ends longer than the longest look goes back: a look that becomes longer again must not tell them twice."""
        if not 0 <= now - self._swept_at < 2 * SECOND:
            before = min(self._at, now) - 2 * MARGIN[1]
            self._ended = {number: at for number, at in self._ended.items() if at >= before}
            self._swept_at = now

    def _tell_end(self, job: JobNow, into: Gathered) -> None:
        assert job.finished_at is not None  # noqa: S101 - it has ended
        if self._running.pop(job.number, None) is None and job.started_at is not None:
            into.changes.append(Change(type=EventType.STARTED, at=job.started_at, job=job))
        into.changes.append(Change(type=EventType.ENDED, at=job.finished_at, job=job))
        self._ended[job.number] = job.finished_at

    def _tell_progress(self, running: Iterable[ProgressNow], into: Gathered) -> None:
        now = self._clock.now()
        for each in running:
            known = self._running.get(each.number)
            if known is None or (known.progress, known.message) == (each.progress, each.message):
                continue
            known.progress, known.message = each.progress, each.message
            into.changes.append(
                Change(type=EventType.PROGRESS, at=now, job=known.job, progress=each.progress, message=each.message),
            )

    # ---- definitions ----------------------------------------------------------------------------------------------

    def _look_at_definitions(self, marks: Marks, into: Gathered) -> None:
        before, until = self._marks, marks.audit_id
        if marks.audit_id > before.audit_id:
            rows = self._store.definition_changes(after=before.audit_id, limit=DEFINITIONS_MAX)
            if len(rows) == DEFINITIONS_MAX:
                until = rows[-1].audit_id
            for row in rows:
                whose = None if row.subject in {"template", "all"} else row.organization
                into.changes.append(
                    Change(
                        type=EventType.DEFINITIONS,
                        at=row.at,
                        subject=row.subject,
                        name=row.name,
                        action=row.action,
                        organization=whose,
                    )
                )
        elif marks.definitions != before.definitions:
            # A program has declared its templates anew: nobody did it by hand, so it stands in no audit trail.
            into.changes.append(Change(type=EventType.DEFINITIONS, at=self._clock.now()))
        self._marks = msgspec.structs.replace(self._marks, audit_id=until, definitions=marks.definitions)

    # ---- reports --------------------------------------------------------------------------------------------------

    def _look_at_reports(self, marks: Marks, into: Gathered) -> None:
        before, until = self._marks.report_id, marks.report_id
        if until > before:
            found = self._store.reports_after(before, limit=REPORTS_MAX)
            into.changes += map(_reported, found)
            if found:
                # Some may have been written after the marks were read; more than one look reads come with the next.
                until = found[-1].report_id if len(found) == REPORTS_MAX else max(until, found[-1].report_id)
        self._marks = msgspec.structs.replace(self._marks, report_id=until)


def again(store: Watching, after: Cursor, now: Instant, *, oldest: Instant) -> list[Change] | None:
    """Return what happened after a cursor as far as the store still shows it, oldest first; None: it lies too far back."""
    marks = store.marks()
    if after.at < oldest or after.at > now + MARGIN[1] or not 0 <= marks.number - after.number <= BEHIND_MAX:
        return None
    since = after.at - MARGIN[1]
    made = store.made_in([Span(after.number + 1, marks.number)], limit=BEHIND_MAX + 1) if marks.number > after.number else []
    ended = store.ended_since(since, limit=ENDED_MAX)
    running = {each.number: each for each in store.progress_now(limit=RUNNING_MAX)}
    if any(len(numbers) == ENDED_MAX for numbers in ended) or sum(map(len, ended)) > BEHIND_MAX:
        return None
    reports = store.reports_since(since, limit=BEHIND_MAX)
    if len(reports) == BEHIND_MAX:
        return None
    changes = [*(Change(type=EventType.CREATED, at=job.created_at, job=job) for job in made), *map(_reported, reports)]
    for job in store.jobs_now([*running, *(number for numbers in ended for number in numbers)]):
        if job.started_at is not None and job.started_at >= since:
            changes.append(Change(type=EventType.STARTED, at=job.started_at, job=job))
        if job.finished_at is not None:
            changes.append(Change(type=EventType.ENDED, at=job.finished_at, job=job))
        elif (told := running.get(job.number)) is not None and (told.progress is not None or told.message):
            changes.append(Change(type=EventType.PROGRESS, at=now, job=job, progress=told.progress, message=told.message))
    changes.sort(key=_order)
    return changes


def of_chain(job: Job, run: Run | None, now: Instant) -> list[Change]:
    """Return how a chain stands, in the words of events about its last job."""
    seen = _watched(job)
    changes = [Change(type=EventType.CREATED, at=seen.created_at, job=seen)]
    if seen.started_at is not None:
        changes.append(Change(type=EventType.STARTED, at=seen.started_at, job=seen))
    if run is not None and (run.progress is not None or run.progress_message):
        at = now if seen.finished_at is None else seen.finished_at
        changes.append(Change(type=EventType.PROGRESS, at=at, job=seen, progress=run.progress, message=run.progress_message))
    if seen.finished_at is not None:
        changes.append(Change(type=EventType.ENDED, at=seen.finished_at, job=seen))
    return changes


def _reported(numbered: NumberedReport) -> Change:
    report = numbered.report
    return Change(type=EventType(report.event), at=report.at, report=report)


def _watched(job: Job) -> JobNow:
    return JobNow(
        job_id=str(undashed(job.id)),
        number=0,
        root_number=int(job.number.split("-")[2].partition(".")[0]),
        root_id=str(undashed(job.root_id)),
        attempt=job.attempt,
        organization=job.organization,
        owner=job.owner or "",
        job_type=job.job_type,
        status=str(job.status),
        priority=job.priority,
        created_at=instant(job.created_at),
        started_at=None if job.started_at is None else instant(job.started_at),
        finished_at=None if job.finished_at is None else instant(job.finished_at),
        reason=job.reason,
        error_type=None if job.error_type is None else str(job.error_type),
    )


def holes(span: Span, found: Sequence[int]) -> list[Span]:
    """Return the numbers of a span that were not found, as spans. What was found comes lowest first."""
    here = found[bisect_left(found, span.first) : bisect_right(found, span.last)]
    edges = [span.first - 1, *here, span.last + 1]
    return [Span(low + 1, high - 1) for low, high in pairwise(edges) if high - low > 1]


_STEPS = {EventType.CREATED: 0, EventType.STARTED: 1, EventType.PROGRESS: 2, EventType.ENDED: 3}


def _order(change: Change) -> tuple[Instant, int]:
    return change.at, _STEPS.get(change.type, 4)
