"""The connections to a replica set: one client a process, and what is asked of the server before it is used."""

from __future__ import annotations

import os
import threading
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from rota.errors import StoreUnavailable, StoreUnusable
from rota.model.settings import Settings
from rota.stores.mongodb.address import Address
from rota.stores.mongodb.documents import TYPES, Document
from rota.stores.mongodb.errors import translate

LEAST_VERSION = (6, 0)
"""Earlier servers know neither `$in` in partial indexes nor reads of one moment outside of transactions on all members."""
ANSWER_S = 5.0
"""An operation that waits for nobody is answered in this time, or the server is taken for lost."""
CONNECT_S = 3.0
CHECK_S = 2.0
"""Between two signs of life of each server: one that gives none for this and `CONNECT_S` is lost, with all that was asked of it."""
SINGLE_SERVER = (
    "is a single server without a replica set: MongoDB has no transactions there. "
    "Start it with `--replSet rs0` and run `rs.initiate()` once: its data stays"
)


class Connections:
    """One client, opened when it is first used, and anew in a process that was forked."""

    def __init__(self, address: Address, settings: Settings, *, long: bool = False) -> None:
        """Take where to connect to; `long` operations may take any time."""
        self._address = address
        self._long = long
        self._settings = settings
        self._lock = threading.Lock()
        self._client: MongoClient[Document] | None = None
        self._pid = 0

    @property
    def client(self) -> MongoClient[Document]:
        """Return the client of this process."""
        if self._client is None or self._pid != os.getpid():
            with self._lock:
                if self._client is None or self._pid != os.getpid():
                    self._client, self._pid = self._open(), os.getpid()
        return self._client

    def _open(self) -> MongoClient[Document]:
        settings = self._settings
        wait_ms = max(1, round(settings.busy_timeout * 1000))
        usual: dict[str, Any] = {
            "appname": "rota",
            "connectTimeoutMS": round(CONNECT_S * 1000),
            "heartbeatFrequencyMS": round(CHECK_S * 1000),
            "serverSelectionTimeoutMS": wait_ms,
            "waitQueueTimeoutMS": wait_ms,
            "socketTimeoutMS": None if self._long else round((settings.busy_timeout + ANSWER_S) * 1000),
            "maxPoolSize": max(2, settings.pool_size),
            "retryWrites": True,
            "readPreference": "primary",
        }
        try:
            return MongoClient(self._address.secret, **usual, w="majority", readConcernLevel="majority", tz_aware=True, type_registry=TYPES)
        except PyMongoError as error:
            raise translate(error, self._address) from None
        except (ValueError, OSError) as error:
            raise StoreUnusable(f"{self._address.shown} can't be used: {self._address.without_password(str(error))}") from None

    def close(self) -> None:
        """Close every connection."""
        if self._client is not None and self._pid == os.getpid():
            self._client.close()


def beat_silence_s(settings: Settings) -> float:
    """Return how long a beat may go without an answer: the two after it come before the worker has to stop its handlers."""
    return max(1.0, settings.guard_s / 3)


def members(client: MongoClient[Any]) -> list[str]:
    """Return what tells a replica set from another: its name, and the addresses of its members."""
    hello = client.admin.command("hello")
    return [hello.get("setName", ""), *sorted(hello.get("hosts", ()))]


def refuse_unfit(client: MongoClient[Document], address: Address) -> None:
    """Refuse a server that can't keep Rota's promises, with the remedy."""
    hello = client.admin.command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise StoreUnusable(f"{address.shown} {SINGLE_SERVER}")
    if not hello.get("isWritablePrimary"):
        raise StoreUnavailable(f"{address.shown} is not the primary of its replica set: leave directConnection out of the URL")
    version = tuple(client.server_info()["versionArray"][:2])
    if version < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise StoreUnusable(f"{address.shown} is MongoDB {'.'.join(map(str, version))}: use {least} or later")
