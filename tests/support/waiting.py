"""Waiting for facts, not for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.pace import patient

T = TypeVar("T")

LOOK_S, LOOK_MAX_S = 0.01, 0.06
LOOK_TIMES = 4
"""How many times longer to wait between two looks than one takes."""


def eventually(fact: Callable[[], T], *, within: float = 10.0, what: str = "") -> T:
    """Return the first true value of `fact`, or fail saying what never came. `within` is for a quiet machine: see `pace`."""
    begun = time.monotonic()
    while True:
        looked = time.monotonic()
        value = fact()
        if value:
            return value
        now = time.monotonic()
        if now - begun >= patient(within):
            raise AssertionError(f"did not happen within {patient(within):g} s: {what or fact}")
        # What is waited for needs the processor too: an expensive look, such as one through a new connection, is not repeated at once.
        time.sleep(min(LOOK_MAX_S, max(LOOK_S, LOOK_TIMES * (now - looked))))
