"""Time, identity and chance come in through here, so that tests and simulations can hold them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Protocol
from zlib import crc32

from rota.errors import RotaError
from rota.model.values import SECOND, Instant

log = logging.getLogger("rota.clock")

CHECK_S = 10.0
"""How often a clock that follows another is compared with it, at most."""
STEP_S = 1.0
"""The machine's own clock has stepped, or the machine has slept, when it and the monotonic one differ by so much."""
SKEW_S = 1.0
"""From here on a machine's clock is so wrong that somebody should be told."""


class Clock(Protocol):
    """Where time is read. Nothing else reads it."""

    def now(self) -> Instant:
        """Return microseconds since 1970 UTC. May step either way."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> Instant:
        """Return microseconds since 1970 UTC."""
        return time.time_ns() // 1000

    monotonic = staticmethod(time.monotonic)
    """Return seconds that never go back."""


class StoreClock:
    """The machine's clock, until it is set by another: by the store's own, where it has one. Then all machines share one time.

    Between two comparisons it goes on by monotonic time, so the machine's clock may be wrong, or be set, as it likes. It is changed
    only if it was proven wrong: an answer that took a while says that little about the time.
    """

    def __init__(self, own: Clock | None = None, *, begin: Callable[[], object] | None = None) -> None:
        """Begin by the machine's clock. `begin` is called when the time is first asked for, and lets this clock follow another."""
        self._own = own or SystemClock()
        self._begin = begin
        self._ask: Callable[[], Instant] | None = None
        self._set: tuple[Instant, float] | None = None
        """What it was set to, and when, in monotonic time."""
        self._looked: tuple[Instant, float] | None = None
        """When it was last compared, by both clocks of the machine."""
        self._told = False

    def now(self) -> Instant:
        """Return microseconds since 1970 UTC."""
        if self._begin is not None:
            self._begin_once(self._begin)
        if self._set is None:
            return self._own.now()
        at, monotonic = self._set
        return at + round((self._own.monotonic() - monotonic) * SECOND)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._own.monotonic()

    @property
    def skew_s(self) -> float:
        """Return how far the machine's clock is ahead of this one; behind, if negative."""
        return (self._own.now() - self.now()) / SECOND

    def set(self, now: Instant) -> None:
        """Go on from this moment."""
        self._set = now, self._own.monotonic()

    def follow(self, ask: Callable[[], Instant] | None) -> None:
        """Be set by another clock from now on, if there is one; whoever asks may be refused, and asks again later."""
        self._begin = None
        self._ask, self._looked = ask, None
        if ask is None:
            self._set = None
        else:
            self.check()

    def check(self) -> None:
        """Compare with the clock that is followed, if that is due."""
        if self._ask is None:
            return
        own, monotonic = self._own.now(), self._own.monotonic()
        if not self._is_due(own, monotonic):
            return
        if self._set is not None:
            # Asked in vain, it is asked again later: monotonic time goes on meanwhile, and is right enough for hours.
            self._looked = own, monotonic
        try:
            answer = self._ask()
        except RotaError:
            return
        self._looked = own, monotonic
        self._heed(answer, round((self._own.monotonic() - monotonic) * SECOND))

    def _begin_once(self, begin: Callable[[], object]) -> None:
        self._begin = None
        try:
            begin()
        except BaseException:
            self._begin = begin
            raise

    def _is_due(self, own: Instant, monotonic: float) -> bool:
        if self._looked is None:
            return True
        looked, since = self._looked
        passed = monotonic - since
        return passed >= CHECK_S or abs((own - looked) / SECOND - passed) > STEP_S

    def _heed(self, answer: Instant, took: Instant) -> None:
        """Take in an answer: the other clock shows something between it and so much more by now."""
        if self._set is None or not answer <= self.now() <= answer + took:
            self.set(answer + took // 2)
        if abs(self.skew_s) > SKEW_S and not self._told:
            self._told = True
            word = "ahead of" if self.skew_s > 0 else "behind"
            log.warning(
                "this machine's clock is %.1f s %s the store's, which is used instead; correct it",
                abs(self.skew_s),
                word,
            )


class Ids(Protocol):
    """Where identities are made, before the write, so that a repeated call is harmless."""

    def take(self, count: int, now: Instant) -> list[str]:
        """Return `count` new ids, 32 hex digits each, ascending."""


class UuidV7:
    """UUIDv7 that ascend within this process: milliseconds, then a counter, then chance."""

    def __init__(self, rng: Random | None = None) -> None:
        """Take a seeded source to make ids repeatable; the system's otherwise."""
        self._rng = rng
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._pool = ""
        self._last = 0

    def take(self, count: int, now: Instant) -> list[str]:
        """Return `count` new ids, ascending, also when the clock stands still or steps back."""
        if self._pid != os.getpid():
            # A forked child: the lock may be held by a thread that is not here.
            self._pid, self._lock, self._pool = os.getpid(), threading.Lock(), ""
        with self._lock:
            # 48 bits of milliseconds and 12 + 10 of counter, as one number that only grows.
            first = max((now // 1000) << 22, self._last + 1)
            self._last = first + count - 1
            digits = 13 * count
            if self._rng is not None:
                chance = self._rng.randbytes(digits // 2 + 1).hex()[:digits]
            else:
                if len(self._pool) < digits:
                    # From the system, a thousand digits at a time.
                    self._pool += os.urandom(max(512, digits)).hex()
                chance, self._pool = self._pool[:digits], self._pool[digits:]
        ids: list[str] = []
        while (done := len(ids)) < count:
            # As many as share all but the lowest bits of the counter: milliseconds, version 7, and the counter's 12 high bits.
            stamp = first + done
            head, low = f"{stamp >> 22:012x}7{(stamp >> 10) & 0xFFF:03x}", stamp & 0x3FF
            if count == 1:
                return [f"{head}{_LOW[low]}{chance}"]
            ids += [f"{head}{lows}{chance[13 * at : 13 * at + 13]}" for at, lows in enumerate(_LOW[low : low + count - done], done)]
        return ids


_LOW = [f"{0x800 | low:03x}" for low in range(1024)]
"""Variant 10 before the counter's 10 low bits, which what is random follows."""


@cache
def zone_rules() -> int:
    """Return a number for the rules of time zones that this machine has: another one when they were updated."""
    from zoneinfo import TZPATH  # noqa: PLC0415 - a program without schedules has no use for zones

    for folder in TZPATH:
        try:
            # Bytes: a text in ASCII imports its codec, and a process that is forked meanwhile could never import it.
            with Path(folder, "tzdata.zi").open("rb") as file:
                return crc32(file.readline())
        except OSError:
            continue
    from importlib.metadata import version  # noqa: PLC0415 - where the system has no rules, Python takes those of this package

    return crc32(version("tzdata").encode())
