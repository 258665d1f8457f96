"""One attempt as its executor holds it: the wish to stop, what is reported on the way, the log. `Context` is its face."""

from __future__ import annotations

import math
import reprlib
from threading import RLock
from typing import Any

from rota.errors import InvalidProgress, PayloadTooLarge
from rota.executors.runlog import RunLog
from rota.executors.text import clean, head
from rota.model.params import encode
from rota.model.values import Claimed
from rota.ports.executor import Equipment, Report


class Attempt:
    """The running side of one job. Thread-safe: handlers may report from threads of their own."""

    __slots__ = (
        "_clock",
        "_due",
        "_ended",
        "_lock",
        "_message",
        "_message_max",
        "_pct",
        "_report",
        "_spacing",
        "_state_max",
        "_told_range",
        "_withheld",
        "job",
        "log",
        "stopping",
    )

    def __init__(self, job: Claimed, equipment: Equipment) -> None:
        """Prepare a handler's run; nothing is opened before it is needed."""
        settings = equipment.settings
        self.job = job
        self.log = RunLog(equipment.log_dir, job.run_id, clock=equipment.clock, limit_bytes=settings.log_max)
        self.stopping = False
        self._report = equipment.sink.report
        self._clock = equipment.clock
        self._spacing = settings.progress_interval
        self._message_max = settings.error_max
        self._state_max = settings.result_max
        self._told_range = False
        self._lock = RLock()
        self._pct = -1
        self._message: str | None = None
        self._withheld = False
        self._due = 0.0
        self._ended = False

    def stop(self) -> None:
        """Let the handler see that it was asked to stop."""
        self.stopping = True

    def progress(self, pct: float, message: str | None) -> None:
        """Report progress: 0 to 100, never back, not too often; the first and 100 get through at once."""
        wanted = self._within(pct)
        text = None if message is None else head(clean(message), self._message_max)
        with self._lock:
            first, before = self._pct < 0, (self._pct, self._message)
            self._pct = max(self._pct, wanted)
            self._message = self._message if text is None else text
            if self._ended or before == (self._pct, self._message):
                return
            if first or self._pct == 100 or self._clock.monotonic() >= self._due:
                self._send()
            else:
                self._withheld = True

    def flush(self, monotonic: float) -> float | None:
        """Send progress that was held back, if its time has come; return when it will."""
        with self._lock:
            if not self._withheld:
                return None
            if monotonic < self._due:
                return self._due
            self._send()
        return None

    def checkpoint(self, state: object) -> None:
        """Report a state that the next attempt can go on from, or refuse one that is not JSON or too large."""
        text = encode(state, "checkpoint")
        size = len(text) if text.isascii() else len(text.encode())
        if size > self._state_max:
            raise PayloadTooLarge(
                f"the checkpoint takes {size:,} bytes; the limit is {self._state_max:,} (setting result_max). "
                "Keep the data elsewhere and its name here"
            )
        self._keep(Report(self.job.number, checkpoint=text))

    def artifact(self, path: str) -> None:
        """Report a file or address that the handler made."""
        self._keep(Report(self.job.number, artifact=head(clean(path), self._message_max)))

    def end(self) -> str | None:
        """Send what is still held back, refuse everything later, and return the log's path if there is one."""
        with self._lock:
            if self._withheld:
                self._send()
            self._ended = True
        return self.log.close()

    def abandon(self) -> str | None:
        """Ask to stop and refuse everything later: the run was ended without its handler."""
        self.stopping = True
        return self.end()

    def _within(self, pct: object) -> int:
        """Return progress as it is kept; the first that was out of range is noted in the run's log."""
        number = as_percent(pct)
        kept = int(min(100, max(0, number)))
        if not 0 <= number <= 100 and not self._told_range:
            self._told_range = True
            self.log.line("WARNING", f"progress {number:.15g} is outside 0..100: kept as {kept}")
        return kept

    def _send(self) -> None:
        self._withheld = False
        self._due = self._clock.monotonic() + self._spacing
        self._report(Report(self.job.number, progress=self._pct, message=self._message))

    def _keep(self, report: Report) -> None:
        with self._lock:
            if not self._ended:
                self._report(report)


def as_percent(given: Any) -> float:
    """Return progress as a number, or refuse what is none."""
    # A text that holds a number, or True, is nearly always a mistake: neither is guessed at.
    if not isinstance(given, bool | str | bytes | bytearray):
        try:
            number = float(given)
        except OverflowError:
            return math.inf if given > 0 else -math.inf
        except (TypeError, ValueError):
            number = math.nan
        if not math.isnan(number):
            return number
    raise InvalidProgress(f"progress {clean(reprlib.repr(given))} is not a number: give one from 0 to 100")
