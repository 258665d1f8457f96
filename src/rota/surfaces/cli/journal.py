"""Plain log lines, for servers and pipes: what ended, how things stand now and then, and what the engine has to say."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from rota.model.states import Status
from rota.surfaces.asked import request_id
from rota.surfaces.cli.output import compact, one_line, plain, took
from rota.surfaces.cli.watch import Ended, Fresh, Snapshot

log = logging.getLogger("rota.jobs")

LINES_MAX = 20
"""Ends told one by one in one look; beyond that the summary has to do."""
SUMMARY_S = 10.0
LEVELS = {Status.FAILED: logging.WARNING, Status.TIMED_OUT: logging.WARNING, Status.DEAD_LETTER: logging.ERROR}


class Journal:
    """Tells what changed between two snapshots."""

    def __init__(self) -> None:
        """Start with nothing told."""
        self._fresh = Fresh()
        self._told = ""
        self._next = time.monotonic() + SUMMARY_S

    def update(self, snapshot: Snapshot) -> None:
        """Log the new ends and, every ten seconds if something changed, the counts."""
        ends = self._fresh.take(snapshot.ended)
        for each in ends[:LINES_MAX]:
            tell(each)
        if len(ends) > LINES_MAX:
            log.info("and at least %d more ended", len(ends) - LINES_MAX)
        now = time.monotonic()
        if now >= self._next and snapshot.stats is not None:
            self._next = now + SUMMARY_S
            counts = ", ".join(f"{state.lower()} {count}" for state, count in snapshot.stats.by_status.items() if count)
            if counts and counts != self._told:
                self._told = counts
                log.info("%s; %.1f done per second", counts, snapshot.rate)


def tell(ended: Ended) -> None:
    """Log one end."""
    job, run = ended.job, ended.run
    why = job.reason or (run.error if run and run.error else "") or (compact(run.result) if run else "")
    ran = f" after {took(job)}" if job.started_at else ""
    fields = {
        "number": job.number,
        "job_id": job.id,
        "attempt": job.attempt,
        "job_type": job.job_type,
        "organization": job.organization,
        "status": str(job.status),
    }
    log.log(
        LEVELS.get(job.status, logging.INFO),
        "%s %s %s%s%s",
        job.number,
        job.job_type,
        job.status,
        ran,
        f": {one_line(why)}" if why else "",
        extra={"job": fields},
    )


class Lines(logging.Formatter):
    """A line for people: time, level, who speaks, what."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with a traceback under it if there is one. What others say in it can't steer a terminal."""
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return plain(f"{_stamp(record)} {record.levelname:<7} {record.name}  {record.getMessage()}{trace}")


class JsonLines(logging.Formatter):
    """A line for machines: one JSON document."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the document."""
        fields: dict[str, object] = {"at": _stamp(record), "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        for name in ("job", "request"):
            value = getattr(record, name, None)
            if value is not None:
                fields[name] = value
        asked = request_id.get()
        if asked is not None:
            fields["request_id"] = asked
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields, enc_hook=str).decode()


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
    """Send log lines to `write`, or to stdout. An application that has set up logging itself keeps its own way."""
    handler = logging.StreamHandler(sys.stdout) if write is None else Printing(write)
    handler.setFormatter(JsonLines() if as_json else Lines())
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
    logging.getLogger("rota").setLevel(level)
    return handler


def _stamp(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
