"""What those who watch ask a store: what is new since they last looked. A part of the contract of `rota.ports.store`.

Nothing is written down for them but reports of schedules, which webhooks need as well. Each read goes along an index, and has a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rota.model.events import JobNow
from rota.model.gate import EVERYTHING, Scope
from rota.model.reports import ScheduleReport
from rota.model.values import Instant


class Marks(msgspec.Struct, frozen=True):
    """How far the store has come."""

    number: int
    """The newest job's; 0: there is none."""
    audit_id: int
    """The newest change made by people."""
    definitions: int
    """See `Store.definitions`."""
    report_id: int = 0
    """The newest report of a schedule; 0: there is none."""


class ProgressNow(msgspec.Struct, frozen=True):
    """A job that runs, and how far it says it is."""

    number: int
    progress: int | None
    message: str | None


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Numbers from the first to the last."""

    first: int
    last: int


class NumberedReport(msgspec.Struct, frozen=True):
    """A report of a schedule, and its number: those of one store ascend in the order of their commits."""

    report_id: int
    report: ScheduleReport


class DefinitionChange(msgspec.Struct, frozen=True):
    """A change that somebody made to what jobs are made from."""

    audit_id: int
    at: Instant
    organization: str | None
    action: str
    subject: str
    name: str


class Watching(Protocol):
    """Reads for those who watch. Each may be further on than the one before it."""

    def marks(self) -> Marks:
        """Return how far the store has come."""

    def made_in(self, spans: Sequence[Span], *, limit: int) -> list[JobNow]:
        """Return the jobs with these numbers, lowest first, at most `limit`. What is not committed yet is not there."""

    def progress_now(self, *, limit: int) -> list[ProgressNow]:
        """Return what runs."""

    def ended_since(self, since: Instant, *, limit: int) -> list[list[int]]:
        """Return the numbers of what ended at this moment or later: for each job type some, the last end first, at most `limit`."""

    def jobs_now(self, numbers: Sequence[int]) -> list[JobNow]:
        """Return the jobs of these numbers, lowest first, as they stand; those that are gone are left out."""

    def definition_changes(self, *, after: int, limit: int) -> list[DefinitionChange]:
        """Return what people changed in templates, schedules, calendars, pauses, organizations and users, oldest first."""

    def reports_after(self, report_id: int, *, limit: int) -> list[NumberedReport]:
        """Return the reports of schedules after one, oldest first, at most `limit`."""

    def reports_since(self, since: Instant, *, limit: int) -> list[NumberedReport]:
        """Return the reports written at this moment or later, oldest first, at most `limit`."""

    def counts(self, *, scope: Scope = EVERYTHING) -> dict[str, int]:
        """Return how many jobs of an organization, or of all, there are in each state."""
