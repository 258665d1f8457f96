"""Forecasts, proofs and plans of schedules as people see them: moments as aware datetimes, lengths in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from rota.model.forecast import per_hour
from rota.model.schedules import Fate
from rota.model.values import instant, moment_of
from rota.schedule_views import OverdueView


class ForecastItem(msgspec.Struct, kw_only=True, frozen=True):
    """One due time to come."""

    schedule: str
    organization: str
    template: str
    due_at: datetime
    fate: Fate
    note: str | None
    """What is worth knowing: why it does not run, what it waits for, or that its zone's clock changes near it."""
    starts_at: datetime | None
    """When its job will probably start; None if it does not run, or is not seen to start as limits stand."""
    wait_s: float
    """How long it will probably wait after its due time, for room or for what it depends on."""


class ZoneChange(msgspec.Struct, kw_only=True, frozen=True):
    """A zone's clock changes, and whom it concerns. Offsets as in UTC+1."""

    at: datetime
    timezone: str
    before: str
    after: str
    schedules: tuple[str, ...]


class Forecast(list[ForecastItem]):
    """What is due in a window, in order of time."""

    def __init__(
        self,
        items: Iterable[ForecastItem],
        *,
        start: datetime,
        end: datetime,
        cut: bool,
        exact_until: datetime | None = None,
        changes: tuple[ZoneChange, ...] = (),
    ) -> None:
        """Take what was found."""
        super().__init__(items)
        self.start = start
        self.end = end
        self.cut = cut
        """There is more than the setting `forecast_max` allows: what is here is complete up to the last of it."""
        self.exact_until = exact_until
        """Overlaps, dependencies and waits are worked out up to here (setting `forecast_simulated_max`), and later due times are told as if
        jobs did not meet; None: all of it is worked out."""
        self.changes = changes

    @property
    def density(self) -> list[tuple[datetime, int]]:
        """How many will run in each hour, UTC, that has any."""
        running = [instant(item.due_at) for item in self if item.fate is Fate.FIRED]
        return [(moment_of(begins), count) for begins, count in per_hour(running)]


class Problem(msgspec.Struct, kw_only=True, frozen=True):
    """A due time, or something about a schedule, that does not match."""

    schedule: str
    due_at: datetime | None
    what: str


class Verified(msgspec.Struct, kw_only=True, frozen=True):
    """What a look over ledgers and jobs found."""

    schedules: int
    due: int
    """Due times that were looked at."""
    matched: int
    """Those of them that have one fate, and a job of their own if they fired."""
    problems: tuple[Problem, ...]
    overdue: tuple[OverdueView, ...]
    """Schedules with due times in the window that should have run and have no recorded outcome: no worker has been there."""
    since: datetime | None
    until: datetime

    @property
    def ok(self) -> bool:
        """Say whether everything matches, and nothing is overdue."""
        return not self.problems and not self.overdue


class SchedulePlan(msgspec.Struct, kw_only=True, frozen=True):
    """What a change of a schedule would change of its due times."""

    schedule: str
    start: datetime
    end: datetime
    """Nearer than the days asked for if there are more due times than the setting `forecast_max` allows."""
    added: tuple[datetime, ...]
    removed: tuple[datetime, ...]
    kept: int
    words_before: str
    words_after: str
