"""How long a chain waits before its next attempt."""

from __future__ import annotations

import math
from random import Random

import msgspec

from rota.errors import InvalidOption

DAY_S = 86_400.0


class Backoff(msgspec.Struct, frozen=True):
    """Exponential backoff: `min(cap, base * factor ** (k - 1))` seconds before the k-th retry, then jitter."""

    base: float = 60.0
    factor: float = 2.0
    cap: float = DAY_S
    jitter: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what would make a delay negative or endless."""
        _require("base", self.base, 0 <= self.base < math.inf, "0 or more seconds")
        _require("factor", self.factor, 1 <= self.factor < math.inf, "1 or more")
        _require("cap", self.cap, 0 <= self.cap < math.inf, "0 or more seconds")
        _require("jitter", self.jitter, 0 <= self.jitter <= 1, "between 0 and 1")

    def delay(self, retry: int, rng: Random) -> float:
        """Return the seconds to wait before retry number `retry` (1 is the first)."""
        plain = self._plain(retry)
        if not self.jitter:
            return plain
        spread = plain * self.jitter
        return min(self.cap, max(0.0, plain + rng.uniform(-spread, spread)))

    def _plain(self, retry: int) -> float:
        try:
            return min(self.cap, self.base * self.factor ** (retry - 1))
        except OverflowError:
            return self.cap


def _require(field: str, value: float, met: bool, allowed: str) -> None:  # noqa: FBT001 - the outcome of a check, not an option
    if not met:
        raise InvalidOption(f"backoff {field}={value!r} is not allowed: give {allowed}")
