"""Serves a store from a process that runs no worker: reports overdue schedules, and sends messages that would wait for a worker."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rota.engine.delivering import Delivering
from rota.engine.overdue_watch import OverdueWatch
from rota.engine.ticker import Ticker
from rota.model.settings import Settings
from rota.ports.clock import Clock


class Minder:
    """Works for the time of a `with` block, on a thread of its own, whenever the process runs no worker."""

    def __init__(
        self, watch: OverdueWatch, delivering: Delivering, *, has_worker: Callable[[], bool], clock: Clock, settings: Settings
    ) -> None:
        """Take what it does; a worker of this process does the same, so `has_worker` lets it rest."""
        self._watch = watch
        self._delivering = delivering
        self._has_worker = has_worker
        self._clock = clock
        self._next_look = clock.monotonic()
        self._ticker = Ticker(self._step, every_s=settings.webhook_interval, name="minder")

    def __enter__(self) -> Self:
        """Begin."""
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End."""
        self._ticker.stop()
        self._delivering.close()

    def _step(self) -> None:
        if self._has_worker():
            self._delivering.close()
            return
        monotonic = self._clock.monotonic()
        self._delivering.tick(monotonic)
        if monotonic >= self._next_look:
            self._next_look = monotonic + self._watch.every_s
            self._watch.look()
