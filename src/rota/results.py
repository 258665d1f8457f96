"""What the Python surface returns beyond the model's own values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

import msgspec

from rota.engine.log_reader import LogReader
from rota.model.values import Job, LogEntry, Run

T = TypeVar("T")


class Bulk(msgspec.Struct, frozen=True):
    """What became of an `enqueue_many`. Ids are kept when the caller's own collection was in memory anyway."""

    accepted: int
    existing: int
    ids: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return how many jobs were taken in."""
        return self.accepted + self.existing

    def __iter__(self) -> Iterator[str]:
        """Go through the ids that were kept."""
        return iter(self.ids)


class Acted(msgspec.Struct, frozen=True):
    """What was done to all that match, and how many still do."""

    done: int
    left: int
    more: bool = False
    """Only so many were counted."""


class Page(list[T]):
    """A page of a list; `next` is what to pass as `before` to get the page after it, None if there is none."""

    def __init__(self, items: Iterable[T], *, next_: Any = None) -> None:
        """Take what is on the page, and where the next begins."""
        super().__init__(items)
        self.next = next_


class Log(Sequence[LogEntry]):
    """The log of one job, or of a chain: moves and what handlers wrote, in the order of time."""

    def __init__(self, entries: list[LogEntry], text: str, *, numbered: bool = False) -> None:
        """Take the entries and the handlers' own text; `numbered` lines say of which attempt they are."""
        self._entries = entries
        self._numbered = numbered
        self.text = text
        """What the handler wrote, as it is in the run's log."""

    @overload
    def __getitem__(self, index: int) -> LogEntry: ...
    @overload
    def __getitem__(self, index: slice) -> list[LogEntry]: ...
    def __getitem__(self, index: int | slice) -> LogEntry | list[LogEntry]:
        """Return one entry or some."""
        return self._entries[index]

    def __len__(self) -> int:
        """Return how many entries there are."""
        return len(self._entries)

    def __contains__(self, item: object) -> bool:
        """Say whether an entry is there or, for text, whether any line has it."""
        if isinstance(item, str):
            return item in str(self)
        return item in self._entries

    def __str__(self) -> str:
        """Return the log as lines."""
        return "\n".join(line(entry, numbered=self._numbered) for entry in self._entries)


def line(entry: LogEntry, *, numbered: bool = False) -> str:
    """Return one entry as a line of text; `numbered` says of which attempt it is."""
    stamp = f"{entry.at:%Y-%m-%dT%H:%M:%S}.{entry.at.microsecond // 1000:03d}Z"
    attempt = f"  #{entry.attempt}" if numbered else ""
    if entry.to_status is None:
        return f"{stamp}{attempt}  {entry.level:<8} {entry.message}"
    words = f"{entry.to_status} by {entry.actor}" if entry.actor else str(entry.to_status)
    return f"{stamp}{attempt}  {words}" + (f": {entry.message}" if entry.message else "")


def log_of(moves: Sequence[LogEntry], runs: Iterable[tuple[Job, Run | None]], logs: LogReader, *, numbered: bool = False) -> Log:
    """Build a log from the moves that the store has, and from what handlers wrote in the runs of these attempts."""
    entries = list(moves)
    whole = ""
    for job, run in runs:
        if run is None:
            continue
        text = logs.text(run)
        entries += _lines(text, job.attempt)
        whole += text
        if not text and (elsewhere := logs.elsewhere(run, job)) is not None:
            entries.append(LogEntry(at=run.finished_at or run.started_at, attempt=job.attempt, message=elsewhere, level="WARNING"))
    entries.sort(key=_order)
    return Log(entries, whole, numbered=numbered)


def _order(entry: LogEntry) -> tuple[datetime, int, int]:
    """Return what a log is sorted by: where moments are the same, what a handler wrote stands before its end."""
    place = 1 if entry.to_status is None else 2 if entry.to_status.ended else 0
    return entry.at, entry.attempt, place


def _lines(text: str, attempt: int) -> list[LogEntry]:
    entries: list[LogEntry] = []
    for raw in text.splitlines():
        stamp, _, rest = raw.partition(" ")
        level, _, message = rest.partition(" ")
        try:
            at = datetime.fromisoformat(stamp)
        except ValueError:
            at = None
        if at is not None and at.tzinfo is not None:
            entries.append(LogEntry(at=at, attempt=attempt, message=message, level=level))
        elif entries:
            # A line without a stamp belongs to the one before it: a traceback, or what a program printed.
            last = entries[-1]
            entries.append(msgspec.structs.replace(last, message=raw, level=last.level))
    return entries
