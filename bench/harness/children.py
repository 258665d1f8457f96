"""The processes of a run: started in groups of their own, capped in time, and all stopped at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TERM_GRACE_S = 5.0
_TAIL = 400

Child = subprocess.Popen[str]


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python keeps what it has compiled: otherwise a child may compile Rota in the middle of a drain."""
    return {name: value for name, value in environment.items() if name not in {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}}


class NotMeasured(Exception):  # noqa: N818 # an answer for the table, not a mistake
    """A figure could not be taken; the text says why and goes into the table."""


class Children:
    """Every process that this run starts. Leaving the `with` block stops what still runs, whatever the reason."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        """Give all children this environment; what workers print goes to `log`."""
        self._environment = dict(environment)
        self._log = log
        self._running: list[Child] = []

    def __enter__(self) -> Self:
        """Take charge."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop everything that still runs."""
        self.stop(*self._running)

    def start(self, command: Sequence[str], extra: Mapping[str, str] | None = None, **options: Any) -> Child:
        """Start a process that goes on by itself, its output kept in the log unless asked for."""
        with self._log.open("a") as log:
            options = {"stdout": log, "stderr": log} | options
            child = subprocess.Popen(
                list(command),
                env=self._environment | dict(extra or {}),
                text=True,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                **options,
            )
        self._running.append(child)
        return child

    def call(self, command: Sequence[str], extra: Mapping[str, str] | None = None, *, cap_s: float) -> str:
        """Run a process to its end and return what it printed; too slow or failed is NotMeasured."""
        return self.collect(self.start(command, extra, stdout=subprocess.PIPE, stderr=subprocess.PIPE), cap_s=cap_s)

    def collect(self, child: Child, *, cap_s: float) -> str:
        """Wait for a process whose output is piped, and return that output."""
        try:
            output, errors = child.communicate(timeout=cap_s)
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"not over after {cap_s:.0f} s") from None
        finally:
            self.stop(child)
        if child.returncode:
            raise NotMeasured(f"ended with {child.returncode}: {_last_line(errors or output or '')}")
        return output

    def stop(self, *children: Child, first: signal.Signals = signal.SIGTERM) -> None:
        """End these processes and their groups: asked first, killed after a grace."""
        children = tuple(children)
        for sign in (first, signal.SIGKILL):
            for child in children:
                _signal_group(child, sign)
            _wait(children, TERM_GRACE_S)
        self._running = [child for child in self._running if child not in children]


def _signal_group(child: Child, sign: signal.Signals) -> None:
    # start_new_session made the child the leader of its own group, so this reaches what it started and nobody else.
    if child.poll() is None or sign is signal.SIGKILL:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, sign)


def _wait(children: Sequence[Child], seconds: float) -> None:
    end = time.monotonic() + seconds
    while any(child.poll() is None for child in children) and time.monotonic() < end:
        time.sleep(0.01)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line] or lines
    return telling[-1][-_TAIL:] if telling else "no message"
