"""Hints by LISTEN and NOTIFY: see `rota.stores.hints`."""

from __future__ import annotations

import time
from functools import partial

import psycopg

from rota.errors import RotaError
from rota.model.settings import Settings
from rota.stores.hints import Bell, Listener
from rota.stores.postgres.address import Address
from rota.stores.postgres.connection import beat_silence_s, open_connection

LOOK_S = 0.5
"""How often the listening thread looks whether it is to end; hints themselves arrive at once."""
ASK_S = 10.0
"""How often the server is asked whether it is still there: one that is stopped sends no hints, and does not hang up either."""


def listener(where: Address, settings: Settings) -> Listener:
    """Return what listens to a schema."""
    return Listener(partial(_listen, where, settings), (psycopg.Error, RotaError))


def _listen(where: Address, settings: Settings, bell: Bell) -> None:
    # Short: stopping a worker waits for this thread.
    with open_connection(where, settings, silence_s=beat_silence_s(settings)) as raw:
        raw.execute(f"LISTEN {where.schema_quoted}".encode())
        bell.hear()
        asked = time.monotonic()
        while not bell.ended.is_set():
            for _ in raw.notifies(timeout=LOOK_S, stop_after=1):
                bell.ring()
            if time.monotonic() - asked > ASK_S:
                raw.execute("SELECT 1")
                asked = time.monotonic()
