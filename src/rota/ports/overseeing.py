"""What the first screen and the metrics ask of a store: part of its contract, beside `rota.ports.store`.

All of it is read along indexes and bounded, so that a look costs the same however many jobs there are.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from rota.model.gate import EVERYTHING, Scope
from rota.model.schedules import Fate
from rota.model.values import SECOND, Instant, Job

MINUTES_KEPT: Instant = 7 * 3600 * SECOND
"""How long figures by the minute are kept at least: more than the longest range that is shown by them."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting jobs that are alike: how many, since when the first waits, and one of them."""

    status: str
    """QUEUED, or PENDING."""
    count: int
    more: bool
    """There are more: counting stopped at the bound."""
    since: Instant
    """QUEUED: when the longest waiting among the first was queued. PENDING: when the first is due or, if it is blocked, was made."""
    number: int
    """The row number of one of them."""
    job_type: str | None = None
    """None: of any type."""
    lane: int | None = None
    """The lane that they are QUEUED in, where that is known."""
    queue: str | None = None
    held: str | None = None
    """The word that they are parked under."""
    blocked: bool = False
    """They wait for others to end."""
    suspects: bool = False
    """A worker has crashed under each of them."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is named on a screen."""

    id: str
    root_id: str
    root_number: int
    attempt: int
    job_type: str


class RunningSuspect(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs although a worker has crashed under it."""

    worker_id: str
    number: str
    """As people see it: JOB-2026-00042.2."""
    executor: str
    """Where it runs: in a process, or in its worker, which starts nothing else until it finishes."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One job that runs, and how far it says it is."""

    job: Job
    progress: int | None
    message: str | None


class UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """What runs: the longest running first."""

    jobs: list[Seen]
    count: int
    more: bool


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter, and what it died of."""

    job: Shown
    organization: str
    at: Instant
    reason: str | None


class Unfired(msgspec.Struct, frozen=True, kw_only=True):
    """Due times of a schedule that did not fire."""

    schedule: str
    schedule_id: str
    organization: str
    fate: Fate
    due_at: Instant
    last_due_at: Instant
    count: int
    reason: str | None


class Figure(msgspec.Struct, frozen=True):
    """How many attempts of one type ended alike. For the bucket see `rota.model.figures`."""

    job_type: str
    status: str
    bucket: int
    count: int
    total_us: int
    hour: Instant = 0
    organization: str = ""


class EndCount(msgspec.Struct, frozen=True):
    """How many attempts of one type ended alike in a period. One may be told of in several parts."""

    period: Instant
    """When it begins."""
    job_type: str
    status: str
    count: int


class Trended(msgspec.Struct, frozen=True, kw_only=True):
    """How attempts ended, period by period."""

    ends: list[EndCount]
    took: dict[Instant, dict[int, int]]
    """Completed runs by period and bucket, for which see `rota.model.figures`."""
    since: Instant
    """From when on they are told of: later than was asked for if there are more rows than the bound allows."""
    more: bool


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """A pause: of what, since when, by whom."""

    kind: str
    name: str
    at: Instant
    by: str


class Overseeing(Protocol):
    """The part of the store that is looked at from above."""

    def waiting(self, *, now: Instant, look: int, scope: Scope = EVERYTHING) -> list[Lane]:
        """Return what waits, in lanes. About `look` are counted: the lanes share that out, and what is more is said to be.

        While suspects run, those that wait have lanes of their own, as far as they are near the front.
        """

    def shown(self, numbers: list[int]) -> dict[int, Shown]:
        """Return how jobs are named, by their row numbers; those that are gone are left out."""

    def suspects(self) -> list[RunningSuspect]:
        """Return the suspects that run, the longest running first."""

    def running(self, *, look: int, limit: int, scope: Scope = EVERYTHING) -> UnderWay:
        """Return the longest running jobs, at most `limit`, among the first `look` that are found."""

    def dead_lately(self, *, since: Instant, look: int, limit: int, scope: Scope = EVERYTHING) -> list[Dead]:
        """Return dead letters that ended since a moment and were not retried, newest made first, among the newest `look` of all."""

    def unfired(self, *, since: Instant, limit: int, scope: Scope = EVERYTHING) -> list[Unfired]:
        """Return due times, the latest first, that did not fire. The scope's owner is who made the schedule."""

    def figures(self, *, since: Instant, scope: Scope = EVERYTHING) -> list[Figure]:
        """Return how attempts ended since the hour of a moment, added up over hours and organizations."""

    def hourly(self, *, since: Instant, scope: Scope = EVERYTHING) -> list[Figure]:
        """Return the figures since the hour of a moment, each with its hour and organization."""

    def trend(self, *, since: Instant, step: Instant, look: int, job_type: str | None = None, scope: Scope = EVERYTHING) -> Trended:
        """Return how attempts ended since a moment in periods of `step`, whole minutes or whole hours, from about `look` rows, the newest.

        What is shorter than an hour is known for the last `MINUTES_KEPT`.
        """

    def kept(self, status: str, *, scope: Scope = EVERYTHING) -> dict[str, int]:
        """Return how many ended jobs of a status are in the store, by type."""

    def errors(self, numbers: list[int]) -> dict[int, str]:
        """Return the errors of attempts by the row numbers of their jobs, cut at 500 characters; attempts without one are left out."""

    def metas(self, numbers: list[int]) -> dict[int, str]:
        """Return what is kept with jobs beside their params, as JSON, by their row numbers; those without are left out."""

    def paused(self) -> list[Paused]:
        """Return what is paused, the oldest pause first."""
