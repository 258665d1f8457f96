"""Waiting through an outage: whoever only waits for something asks again until the store is back, and is told if that takes too long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from rota.errors import StoreBusy, StoreUnavailable

T = TypeVar("T")

PAUSE_S = (0.02, 1.0)
"""Shortest and longest pause between two questions to a store that is away."""


class Patience(msgspec.Struct, frozen=True):
    """How long one who waits bears with a store that is away."""

    until: float = 0.0
    """An outage may last until then (monotonic)."""
    outage_s: float = 0.0
    """And for so long in any case."""

    def ask(self, question: Callable[[], T]) -> T:
        """Return the answer to a question, or raise what the store said last. Asked twice, it has to do no more than once."""
        give_up_at = max(self.until, time.monotonic() + self.outage_s)
        pause, longest = PAUSE_S
        while True:
            try:
                return question()
            except (StoreBusy, StoreUnavailable):
                left = give_up_at - time.monotonic()
                if left <= 0:
                    raise
            time.sleep(min(pause, left))
            pause = min(pause * 2, longest)
