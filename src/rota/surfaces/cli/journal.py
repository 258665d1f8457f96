"""Plain log lines, for servers and pipes: how records look, and a summary of the store every ten seconds."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from rota.engine.outcome_log import FIELDS, JOBS
from rota.errors import RotaError
from rota.model.figures import Stats
from rota.model.states import Status
from rota.surfaces.asked import request_id
from rota.surfaces.cli.output import plain

if TYPE_CHECKING:
    from rota.app import Rota

log = logging.getLogger("rota.cli")

SUMMARY_S = 10.0
EXTRAS = (*FIELDS, "request")
"""Fields of a record that a JSON document has."""


class Summary:
    """Logs the counts of the store, and how many jobs complete per second, when something has changed. The engine logs outcomes itself."""

    every_s = 1.0
    """How often a process that writes log lines looks whether it is done."""

    def __init__(self, rota: Rota) -> None:
        """Begin to count now."""
        self._rota = rota
        self._counts = ""
        self._done: int | None = None
        self._since = time.monotonic()
        self._next = self._since + SUMMARY_S

    def update(self, notice: str, *, anew: bool = False) -> None:  # noqa: ARG002 - each notice is a log line of its own
        """Log a summary if ten seconds have passed since the last one."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + SUMMARY_S
        try:
            stats = self._rota.store.stats()
        except RotaError:
            return  # the worker logs it when its store is in trouble
        done, before = stats.by_status.get(Status.COMPLETED, 0), self._done
        rate = 0.0 if before is None else max(0, done - before) / (now - self._since)
        self._done, self._since = done, now
        counts = counted(stats)
        if counts and counts != self._counts:
            self._counts = counts
            log.info("%s; %.1f completed per second", counts, rate)


def counted(stats: Stats) -> str:
    """Return the counts of a store as one line. Running are the jobs whose handler runs."""
    counts: dict[str, int] = {}
    for state, count in stats.by_status.items():
        if state == Status.RUNNING:
            counts |= {"running": stats.running, "claimed ahead": stats.claimed_ahead}
        else:
            counts[state.lower().replace("_", " ")] = count
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


class Lines(logging.Formatter):
    """A line for people: time, level, logger, message."""

    def __init__(self, *, brief: bool = False) -> None:
        """`brief`: leave out the tracebacks of jobs, which the store has too."""
        super().__init__()
        self._brief = brief

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with a traceback under it if there is one. Control characters in it are replaced."""
        trace = "" if self._brief and record.name == JOBS else traceback_of(self, record)
        return plain(f"{_stamp(record)} {record.levelname:<7} {record.name}  {record.getMessage()}" + (f"\n{trace}" if trace else ""))


class JsonLines(logging.Formatter):
    """A line for machines: one JSON document."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the document."""
        fields: dict[str, object] = {"at": _stamp(record), "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        for name in EXTRAS:
            value = getattr(record, name, None)
            if value is not None:
                fields[name] = value
        asked = request_id.get()
        if asked is not None:
            fields["request_id"] = asked
        if trace := traceback_of(self, record):
            fields["traceback"] = trace
        return msgspec.json.encode(fields, enc_hook=str).decode()


def traceback_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Return the traceback of a record, as it came or as it is made; an empty text if there is none."""
    return record.exc_text or (formatter.formatException(record.exc_info) if record.exc_info else "")


class Printing(logging.Handler):
    """Hands each line to a function: a console with a live view must print it above the view."""

    def __init__(self, write: Callable[[str], object]) -> None:
        """Take what writes a line."""
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            self._write(self.format(record))
        except Exception:  # noqa: BLE001 - logging must never fail what it logs about
            self.handleError(record)


def set_up(write: Callable[[str], object] | None = None, *, as_json: bool = False, level: int = logging.INFO) -> logging.Handler:
    """Send log lines to `write`, briefly, or to stdout. An application that has set up logging itself keeps its own handlers."""
    handler = logging.StreamHandler(sys.stdout) if write is None else Printing(write)
    handler.setFormatter(JsonLines() if as_json else Lines(brief=write is not None))
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
    logging.getLogger("rota").setLevel(level)
    return handler


def _stamp(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
