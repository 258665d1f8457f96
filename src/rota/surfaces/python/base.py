"""What every part of the Python surface stands on: a session."""

from __future__ import annotations

import os
from datetime import datetime

from rota.hooks import On
from rota.middleware import Middleware
from rota.model.settings import Settings
from rota.model.values import moment_of
from rota.ports.clock import Clock, Ids
from rota.session import Session


class Base:
    """Holds the session. One object serves all threads."""

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        seed: int | None = None,
    ) -> None:
        """Name the store: a path, sqlite:///path, postgresql://user@host/database, or None for $ROTA_STORE, else ./rota.db."""
        self._session = Session(self, store, settings=settings, clock=clock, ids=ids, seed=seed)

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self._session.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._session.settings = settings

    @property
    def middleware(self) -> Middleware:
        """Registers functions that surround every handler: `@rota.middleware`."""
        return self._session.middleware

    @property
    def on(self) -> On:
        """Registers functions that workers call: `@rota.on.failed`."""
        return self._session.on

    @property
    def url(self) -> str:
        """Which store is meant, without the password that may belong to it."""
        return str(self._session.where)

    @url.setter
    def url(self, store: str | os.PathLike[str]) -> None:
        self._session.name_store(store)

    @property
    def now(self) -> datetime:
        """What time it is, by the clock that everything here goes by."""
        return moment_of(self._session.clock.now())

    def close(self) -> None:
        """Stop local workers and let go of the store. It opens again when it is used again."""
        self._session.close()
