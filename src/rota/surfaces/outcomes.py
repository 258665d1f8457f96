"""The last outcomes of a schedule, as surfaces show them: a mark for each, and words."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.app import Rota
from rota.model.schedules import Fate
from rota.schedule_views import OccurrenceView, ScheduleView

OUTCOMES = 10
"""Last outcomes of each schedule in a list."""
MARKED_MAX = 100
"""Schedules of a list that show their last outcomes: each takes a read."""


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a due time, or of several in a row, as a mark and in words."""

    at: datetime
    words: str
    sign: str
    level: str


def last_outcomes(rota: Rota, schedule: ScheduleView) -> list[Outcome]:
    """Return the last outcomes of a schedule, oldest first."""
    rows = rota.schedules.occurrences(schedule.name, organization=schedule.organization, limit=OUTCOMES)
    return [_outcome(became(row.fate, ran=row.ran), row) for row in reversed(rows)]


def became(fate: Fate, *, ran: bool | None) -> str:
    """Return what became of a due time: its fate or, of one that fired, how its job ended."""
    if fate is not Fate.FIRED:
        return str(fate)
    return "FIRED" if ran is None else "COMPLETED" if ran else "FAILED"


def _outcome(word: str, row: OccurrenceView) -> Outcome:
    plain = word.replace("_", " ").lower()
    words = plain if row.count == 1 else f"{plain} {row.count:,} times"
    match word:
        case "COMPLETED":
            return Outcome(row.last_due_at, words, "✓", "well")
        case "FAILED" | Fate.MISSED | Fate.REFUSED | Fate.OVERDUE:
            return Outcome(row.last_due_at, words, "✗", "trouble")
        case _:
            return Outcome(row.last_due_at, words, "–", "watch")
