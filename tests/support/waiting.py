"""Waiting for facts, not for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.pace import patient

T = TypeVar("T")


def eventually(fact: Callable[[], T], *, within: float = 10.0, what: str = "") -> T:
    """Return the first true value of `fact`, or fail saying what never came. `within` is for a quiet machine: see `pace`."""
    begun = time.monotonic()
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() - begun >= patient(within):
            raise AssertionError(f"did not happen within {patient(within):g} s: {what or fact}")
        time.sleep(0.01)
