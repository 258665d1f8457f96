"""Promoting: everything in a store moves to another, and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rota.compose import open_place, open_store
from rota.errors import CopyRefused, NotFound, StoreMoved
from rota.model.gate import Actor, Right
from rota.ports.clock import SystemClock
from rota.surfaces.python.base import Base

if TYPE_CHECKING:
    from rota.engine.promoting import Promoted, Tell


class Promoting(Base):
    """The part of Rota that leaves one store for another."""

    def promote(
        self,
        target: str | os.PathLike[str],
        *,
        keep: bool = False,
        replace: bool = False,
        mend: bool = False,
        progress: Tell | None = None,
        actor: Actor | str | None = None,
    ) -> Promoted:
        """Copy everything to another store, verify it there, and close this one, which from then on says where it went.

        No worker may be alive on either. With `keep` this store stays open, as it was. `replace` throws away what the target
        holds; a target that holds the same already is only verified. `mend` replaces NUL characters where the target can't hold them.
        """
        from rota.engine.promoting import Promotion  # noqa: PLC0415 - few programs need it

        here = open_place(self._session.where, self.settings)
        if not here.depot.exists():
            raise NotFound(f"there is no store at {here.depot.url}: nothing to promote")
        self._ask_to_operate(actor)
        if not self._session.drivers:
            # A worker that only turns when it is told to is ours to end.
            self.close()
        # Not the store's own clock: a store that was moved is not asked for the time.
        clock = SystemClock() if self._session.follows is not None else self._session.clock
        there = open_place(os.fspath(target), self.settings)
        if there.depot.exists():
            other = Promoting(target, settings=self.settings, clock=clock)
            try:
                other._ask_to_operate(actor)
            finally:
                other.close()
        tell = progress or (lambda _: None)
        done = Promotion(here, there, clock=clock, settings=self.settings, keep=keep, replace=replace, mend=mend, tell=tell).run()
        if done.logs is not None and not Path(done.logs).exists():
            done.logs = None
        self.close()
        return done

    def reopen(self, *, actor: Actor | str | None = None) -> None:
        """Take back that this store was moved: for when the place it went to is lost, with all that happened there since."""
        place = open_place(self._session.where, self.settings)
        if not place.depot.exists():
            raise NotFound(f"there is no store at {place.depot.url}")
        self._ask_to_operate(actor)
        place.depot.prepare(now=SystemClock().now())
        if place.depot.moved() is None:
            raise CopyRefused(f"{place.depot.url} was not moved anywhere: it is open")
        place.depot.reopen()

    def _ask_to_operate(self, actor: Actor | str | None) -> None:
        """Ask the gate, also that of a store which was moved."""
        try:
            self._session.scope(actor, Right.OPERATE)
        except StoreMoved:
            with self._session.lock:
                self._session.opened = open_store(self._session.where, self.settings, self._session.clock, moved=True)
            try:
                self._session.scope(actor, Right.OPERATE)
            finally:
                self.close()
