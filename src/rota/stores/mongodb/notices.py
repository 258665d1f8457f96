"""Hints by a change stream over the document that writers ring: see `rota.stores.hints`."""

from __future__ import annotations

from functools import partial

from pymongo.errors import PyMongoError

from rota.errors import RotaError
from rota.model.settings import Settings
from rota.stores.hints import Bell, Listener
from rota.stores.mongodb.address import Address
from rota.stores.mongodb.connection import Connections

LOOK_MS = 500
"""How often the listening thread looks whether it is to end; hints themselves arrive at once."""


def listener(where: Address, settings: Settings) -> Listener:
    """Return what listens to a database."""
    return Listener(partial(_listen, where, settings), (PyMongoError, RotaError))


def _listen(where: Address, settings: Settings, bell: Bell) -> None:
    # A client of its own: stopping a worker waits for this thread, and closing the store does not.
    connections = Connections(where, settings)
    try:
        with connections.client[where.database]["bell"].watch([{"$project": {"_id": 1}}], max_await_time_ms=LOOK_MS) as stream:
            bell.hear()
            # A stream ends if its collection is dropped, as by a restore: then the answer to every question is nothing, and comes at once.
            while not bell.ended.is_set() and stream.alive:
                if stream.try_next() is not None:
                    bell.ring()
    finally:
        connections.close()
