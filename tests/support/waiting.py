"""Waiting for facts, not for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(fact: Callable[[], T], *, within: float = 10.0, what: str = "") -> T:
    """Return the first true value of `fact`, or fail saying what never came."""
    end = time.monotonic() + within
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(f"did not happen within {within:g} s: {what or fact}")
        time.sleep(0.01)
