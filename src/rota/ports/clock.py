"""Time, identity and chance come in through here, so that tests and simulations can hold them."""

from __future__ import annotations

import os
import secrets
import threading
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import Protocol
from zlib import crc32
from zoneinfo import TZPATH

from rota.model.values import Instant


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

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()


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
            chance = self._chance(13 * count)
        return [_compose(first + i, chance[13 * i : 13 * i + 13]) for i in range(count)]

    def _chance(self, digits: int) -> str:
        """Return random hex digits, drawn from the system a thousand at a time."""
        if self._rng is not None:
            return self._rng.randbytes(digits // 2 + 1).hex()[:digits]
        if len(self._pool) < digits:
            self._pool += secrets.token_hex(max(512, digits))
        drawn, self._pool = self._pool[:digits], self._pool[digits:]
        return drawn


def _compose(stamp: int, chance: str) -> str:
    # version 7 before the 12 high bits of the counter, variant 10 before its 10 low bits and 52 random ones
    return f"{stamp >> 22:012x}7{(stamp >> 10) & 0xFFF:03x}{0x800 | (stamp & 0x3FF):03x}{chance}"


@cache
def zone_rules() -> int:
    """Return a number for the rules of time zones that this machine has: another one when they were updated."""
    for folder in TZPATH:
        try:
            with Path(folder, "tzdata.zi").open(encoding="ascii", errors="replace") as file:
                return crc32(file.readline().encode())
        except OSError:
            continue
    from importlib.metadata import version  # noqa: PLC0415 - where the system has no rules, Python takes those of this package

    return crc32(version("tzdata").encode())
