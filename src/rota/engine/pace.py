"""How long a worker sleeps between two turns: less after a hint and while work waits, longer while the store is in trouble."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rota.engine.holding import Holding
from rota.engine.sink import Inbox
from rota.model.settings import Settings
from rota.model.values import SECOND, Instant
from rota.ports.clock import Clock

log = logging.getLogger("rota.worker")

TROUBLE_S = (0.05, 1.0)
"""Shortest and longest pause after the store failed."""
HINT_S = 0.2
"""How long after a hint its commit is looked for."""


class Pace:
    """Sleeps for one worker, and says for how long. Belongs to its thread."""

    def __init__(self, inbox: Inbox, clock: Clock, settings: Settings) -> None:
        """Begin without trouble."""
        self._inbox = inbox
        self._clock = clock
        self._settings = settings
        self._trouble_s = 0.0
        self._hint_at = -HINT_S

    def well(self) -> None:
        """Note that the store works."""
        self._trouble_s = 0.0

    def trouble_s(self, error: Exception) -> float:
        """Return how long to wait because the store failed."""
        shortest, longest = TROUBLE_S
        if not self._trouble_s:
            log.warning("the store is unavailable; outcomes are kept and no jobs are claimed until it is back: %s", error)
        self._trouble_s = min(longest, max(shortest, self._trouble_s * 2))
        return self._trouble_s

    def delay_s(self, hold: Holding, *, deadline: float | None, due: Iterable[Instant | None]) -> float:
        """Return how long to sleep at most: until a handler's deadline (monotonic), or something is due."""
        ahead = hold.ahead
        self._inbox.listens = not ahead
        self._inbox.threshold = max(1, len(hold.jobs) // 2) if ahead else 1
        delay = self._settings.linger if ahead else self._poll_s()
        if deadline is not None:
            delay = min(delay, max(0.0, deadline - self._clock.monotonic()))
        for at in due:
            if at is not None:
                delay = min(delay, max(0.0, (at - self._clock.now()) / SECOND))
        return delay

    def _poll_s(self) -> float:
        """Return how long to sleep without a hint. Just after one, look again soon: the log is written before the commit is."""
        if not self._inbox.hinted:
            return self._settings.poll
        since_hint = self._clock.monotonic() - self._hint_at
        if since_hint < HINT_S:
            return min(self._settings.poll, max(0.001, since_hint / 2))
        return self._settings.poll_hinted

    def wait(self, seconds: float) -> None:
        """Sleep until something arrives, at most so long."""
        if self._inbox.wait(seconds):
            self._hint_at = self._clock.monotonic()
