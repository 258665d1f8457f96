"""The driver: repeats turns until it is told to stop, then brings the worker home. Written once, for every worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rota.engine.worker import Worker
from rota.errors import StoreBusy, StoreUnavailable
from rota.model.settings import Settings
from rota.ports.clock import Clock

log = logging.getLogger("rota.driver")

SURPRISE_S = 1.0
"""Pause after an error nobody expected: the engine goes on, but does not spin."""
LAST_LOOK_S = 0.05
"""How often a worker that is being brought home looks whether it holds anything."""


class Driver:
    """Runs one worker on a thread of its own."""

    def __init__(self, worker: Worker, settings: Settings, clock: Clock) -> None:
        """Take the worker; it is started by `start`."""
        self.worker = worker
        self._settings = settings
        self._clock = clock
        self._grace_s = settings.shutdown_grace
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rota-wheel", daemon=True)

    def start(self) -> None:
        """Register the worker, recover, and begin to turn."""
        try:
            self.worker.start()
            self.worker.heartbeat.watch()
            self.worker.calls.begin(self.worker.id)
            for ticker in self.worker.tickers:
                ticker.start()
            self._thread.start()
        except BaseException:
            self._stop_tickers()
            self.worker.logs.stop()
            self.worker.heartbeat.withdraw()
            self.worker.inbox.close()
            raise

    def stop(self, *, grace_s: float | None = None) -> None:
        """Stop claiming, let running jobs finish within the grace period, write everything, and return."""
        if grace_s is not None:
            self._grace_s = grace_s
        self._stop.set()
        self.worker.poke()
        self._thread.join()

    def hurry(self) -> None:
        """Interrupt what still runs: somebody asked twice."""
        self._hurry.set()
        self.worker.poke()

    @property
    def running(self) -> bool:
        """Say whether the driver's thread is alive."""
        return self._thread.is_alive()

    @property
    def holding(self) -> int:
        """Return how many jobs are claimed and not yet written as ended."""
        return self.worker.holding

    def _run(self) -> None:
        while not self._stop.is_set():
            self.worker.wait(self._turn())
        self._stop_tickers()
        self._guarded(self.worker.begin_stop)
        self._drain(self._grace_s, until_hurry=True)
        if self.worker.holding:
            self._guarded(self.worker.interrupt)
            self._drain(self._settings.kill_grace + 1.0, until_hurry=False)
        if self.worker.holding:
            self._guarded(self.worker.abandon)
        self._guarded(self.worker.finish)
        # The program may go on for long: one that could not say goodbye must not look alive until it ends.
        self._guarded(self.worker.heartbeat.withdraw)
        self.worker.calls.close(self.worker.id)

    def _turn(self) -> float:
        start = self._clock.monotonic()
        try:
            delay_s = self.worker.turn()
            self.worker.meter.turned(self._clock.monotonic() - start)
            return delay_s
        except Exception:
            log.exception("turn failed; retrying")
            return SURPRISE_S

    def _drain(self, seconds: float, *, until_hurry: bool) -> None:
        """Turn until nothing is held or the time is over."""
        end = self._clock.monotonic() + seconds
        while self.worker.holding and self._clock.monotonic() < end and not (until_hurry and self._hurry.is_set()):
            self.worker.wait(min(self._turn(), LAST_LOOK_S))

    def _stop_tickers(self) -> None:
        for ticker in self.worker.tickers:
            ticker.stop()

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (StoreBusy, StoreUnavailable) as error:
            log.warning("could not deregister the worker (%s); other workers will recover its jobs", error)
        except Exception:
            log.exception("could not shut the worker down cleanly; other workers will recover its jobs")
