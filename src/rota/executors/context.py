"""What a handler sees of its own job."""

from __future__ import annotations

import os
import traceback

from rota.executors.attempt import Attempt
from rota.executors.runlog import RunLog
from rota.executors.text import clean
from rota.model.params import decode
from rota.model.signals import Cancelled
from rota.model.values import Claimed, dashed


class Context:
    """Given to a handler that asks for it: who it is, and how it reports, logs and learns that it should stop."""

    __slots__ = ("_attempt", "log", "params")

    def __init__(self, attempt: Attempt, params: dict[str, object]) -> None:
        """Made by executors."""
        self._attempt = attempt
        self.params = params
        self.log = Log(attempt.log)

    @property
    def job(self) -> Claimed:
        """The job as it was claimed."""
        return self._attempt.job

    @property
    def attempt(self) -> int:
        """1 for the first attempt of the chain, and one more for each after it."""
        return self._attempt.job.attempt

    @property
    def root_id(self) -> str:
        """The chain's id, the same for every attempt: the idempotency key to pass to the outside."""
        return dashed(self._attempt.job.root_id)

    @property
    def run_id(self) -> str:
        """This run's id; a retry has another."""
        return dashed(self._attempt.job.run_id)

    @property
    def cancelled(self) -> bool:
        """Whether the handler was asked to stop: cancelled, over its timeout, or shutting down."""
        return self._attempt.stopping

    @property
    def resumed_from(self) -> object:
        """The state of the chain's last checkpoint before this attempt, or None."""
        return decode(self._attempt.job.checkpoint)

    def progress(self, pct: float, message: str | None = None) -> None:
        """Show how far the work is: 0 to 100, clamped, never going back. What is no number is InvalidProgress."""
        self._attempt.progress(pct, message)

    def artifact(self, path: str | os.PathLike[str]) -> None:
        """Record a file or address that this run made."""
        self._attempt.artifact(os.fspath(path))

    def checkpoint(self, state: object = None) -> None:
        """Keep a state for the next attempt: once this returns, it is on disk. Raise Cancelled if the handler was asked to stop.

        Without a state it only does the latter, and costs nothing. In async handlers use `checkpoint_async`: this blocks the event loop.
        """
        if state is not None:
            self._attempt.checkpoint(state)
        if self._attempt.stopping:
            raise Cancelled("the job was asked to stop")

    async def checkpoint_async(self, state: object = None) -> None:
        """Do what `checkpoint` does without blocking the event loop: other tasks run while the state is written."""
        if state is not None:
            from rota.executors.coroutines import checkpoint  # noqa: PLC0415 - asyncio only where it is needed

            await checkpoint(self._attempt, state)
        if self._attempt.stopping:
            raise Cancelled("the job was asked to stop")


class Log:
    """Writes to the run's own log, with %-arguments like `logging`. Never raises; bounded by `log_max`."""

    __slots__ = ("_log",)

    def __init__(self, log: RunLog) -> None:
        """Made with the Context."""
        self._log = log

    def debug(self, message: object, *args: object) -> None:
        """Write a line of level DEBUG."""
        self._log.line("DEBUG", _text(message, args))

    def info(self, message: object, *args: object) -> None:
        """Write a line of level INFO."""
        self._log.line("INFO", _text(message, args))

    def warning(self, message: object, *args: object) -> None:
        """Write a line of level WARNING."""
        self._log.line("WARNING", _text(message, args))

    def error(self, message: object, *args: object) -> None:
        """Write a line of level ERROR."""
        self._log.line("ERROR", _text(message, args))

    def exception(self, message: object, *args: object) -> None:
        """Write a line of level ERROR with the traceback of the exception being handled."""
        self._log.line("ERROR", f"{_text(message, args)}\n{traceback.format_exc().rstrip()}")


def _text(message: object, args: tuple[object, ...]) -> str:
    text = clean(message)
    if not args:
        return text
    # logging takes a single mapping for %(name)s
    values = args[0] if len(args) == 1 and isinstance(args[0], dict) and args[0] else args
    try:
        return text % values
    except Exception:  # noqa: BLE001 - a wrong format must not fail the handler; the line shows both halves
        return f"{text} {clean(args)}"
