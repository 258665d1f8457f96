"""Calls of a pulse, as a receiver sees them."""

from __future__ import annotations

import time

from tests.support.receiver import Receiver
from tests.support.waiting import eventually

EVERY_S = 0.1
SILENCE_S = 10 * EVERY_S
"""Long enough for several calls, if there were any."""


def pings(receiver: Receiver) -> int:
    return len(receiver.to("GET /200"))


def comes_again(receiver: Receiver) -> None:
    """Wait for a call that began after this."""
    before = pings(receiver)
    eventually(lambda: pings(receiver) >= before + 2, within=30, what="another call")


def falls_silent(receiver: Receiver) -> None:
    """Wait until no call has come for a while; how soon that is depends on what withholds it."""

    def quiet() -> bool:
        before = pings(receiver)
        time.sleep(SILENCE_S)
        return pings(receiver) == before

    eventually(quiet, within=30, what="silence")
