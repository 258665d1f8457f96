"""How long a chain waits before its next attempt."""

from __future__ import annotations

import sys
from random import Random

import msgspec

from rota.errors import InvalidOption

DAY_S = 86_400.0
LONGEST_S = 36_525 * DAY_S


class Backoff(msgspec.Struct, frozen=True):
    """Exponential backoff: `min(cap, base * factor ** (k - 1))` seconds before the k-th retry, then jitter."""

    base: float = 60.0
    factor: float = 2.0
    cap: float = DAY_S
    jitter: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what would make a delay negative or endless."""
        _require("base", self.base, 0, LONGEST_S, "0 or more seconds, at most a hundred years")
        _require("factor", self.factor, 1, sys.float_info.max, "1 or more")
        _require("cap", self.cap, 0, LONGEST_S, "0 or more seconds, at most a hundred years")
        _require("jitter", self.jitter, 0, 1, "between 0 and 1")

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


class StrictBackoff(Backoff, frozen=True, forbid_unknown_fields=True):
    """The same, as people give it: a field that it does not have is refused."""


def _require(field: str, value: object, low: float, high: float, allowed: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidOption(f"backoff {field}={value!r} is not allowed: give {allowed}")
