"""Notes to due times that are to come: why one does not run, what it waits for, and that its zone's clock changes near it."""

from __future__ import annotations

from rota.model.forecast import Foreseen, Jumps
from rota.model.schedules import Fate
from rota.model.values import moment_of

WORDS = {
    Fate.SKIPPED_PAUSED: "the schedule is paused",
    Fate.SKIPPED_OVERLAP: "the job of an earlier due time is not over",
    Fate.SKIPPED_DEPENDENCY: "what it depends on does not complete in time",
}


def note_of(item: Foreseen, jumps: Jumps) -> str | None:
    """Return what is worth knowing of a due time, None if nothing is."""
    schedule = item.prospect.schedule
    if item.fate is Fate.SKIPPED_CALENDAR:
        return f"excluded by calendar {schedule.calendar!r}"
    if item.fate is Fate.SKIPPED_DST_GAP:
        return f"the clock of {schedule.timing.timezone} jumps over it"
    if item.fate is Fate.REFUSED:
        return item.prospect.refused or item.reason
    if item.fate is not Fate.FIRED:
        return WORDS.get(item.fate) or item.reason
    waits = None
    if schedule.depends_on and item.starts_at is not None and item.starts_at > item.due_at:
        waits = f"waits for {', '.join(schedule.depends_on)} until {moment_of(item.starts_at):%Y-%m-%d %H:%M} UTC"
    jump = jumps.near(item.prospect, item.due_at)
    return "; ".join(word for word in (waits, None if jump is None else jump.words()) if word) or None
