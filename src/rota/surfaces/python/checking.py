"""Check-up: what is wrong with a store, and what would help."""

from __future__ import annotations

import time
from functools import partial

from rota.compose import grants_for, make_sender
from rota.model.findings import Finding
from rota.model.gate import Actor, Right
from rota.ports.clock import SystemClock
from rota.surfaces.python.base import Base


class Checking(Base):
    """The part of Rota that looks at itself."""

    def doctor(self, *, full: bool = False, repair: bool = False, actor: Actor | str | None = None) -> list[Finding]:
        """Look at the store, its server or file, and its workers; return what was found. `full`: also what takes long on a large file.

        Changes nothing without `repair`, which first repairs what can be repaired without a guess: those have the state `repaired`.
        Workers of other machines are watched for up to one and a half beats.
        """
        from rota.engine.checkup import Doctor  # noqa: PLC0415 - few programs need it

        self._session.scope(actor, Right.OPERATE)
        opened = self._session.open()
        # Where nobody gave a clock, ours follows the store's: what the machine's own shows is the question.
        machine = self._session.clock if self._session.follows is None else SystemClock()
        looks = Doctor(
            opened.store,
            opened.liveness,
            clock=self._session.clock,
            machine=machine,
            settings=self.settings,
            pause=time.sleep,
            registry=self._session.registry,
            make_sender=partial(make_sender, self.settings),
            trust=opened.trust,
        )
        return looks.findings(full=full, repair=repair)

    def grants(self, name: str, *, kind: str = "worker", actor: Actor | str | None = None) -> list[str]:
        """Return the GRANT statements that let a role of PostgreSQL be a worker, a submitter or a reader of this store."""
        self._session.scope(actor, Right.OPERATE)
        return grants_for(self._session.where, self.settings, name, kind=kind)
