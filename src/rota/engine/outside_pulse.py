"""The pulse: a URL outside that is called while all that was due has fired. Silence there means that schedules are not running.

It has a thread of its own and never delays a turn. Before each call it makes sure of what the call stands for: that the worker turns,
that no due time is late, and that the store takes a write.
"""

from __future__ import annotations

import logging
from typing import Protocol

from rota.engine.overdue import overdue
from rota.engine.registry import Registry
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.model.webhooks import error_text
from rota.ports.clock import Clock
from rota.ports.sender import Caller
from rota.ports.store import Store

log = logging.getLogger("rota.pulse")


class Turning(Protocol):
    """A worker, as far as its pulse asks about it."""

    turned_s: float
    """When its last good turn began, on the monotonic clock."""

    @property
    def unreadable_until(self) -> Instant:
        """Until when a schedule that it can't read is left alone."""


class OutsidePulse:
    """Calls the URL of the setting `pulse_url`. Belongs to one thread."""

    def __init__(self, worker: Turning, caller: Caller, store: Store, registry: Registry, *, clock: Clock, settings: Settings) -> None:
        """Take what it asks before a call, and who calls."""
        self._worker = worker
        self._caller = caller
        self._store = store
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._trouble: str | None = None

    def send(self) -> None:
        """Call the URL, unless something that was due has not fired. An error of the store withholds the call."""
        try:
            trouble = self._withheld() or self._call()
        except Exception as error:
            self._note(f"pulse withheld: {error}")
            raise
        self._note(trouble)

    def _withheld(self) -> str | None:
        """Return why there is nothing to say; None if all is well, which the store has acknowledged."""
        now, ttl_s = self._clock.now(), self._settings.lease_ttl
        if self._clock.monotonic() - self._worker.turned_s > ttl_s:
            return f"pulse withheld: no turn was completed for {ttl_s:g} s"
        if self._worker.unreadable_until > now:
            return "pulse withheld: a schedule can't be read on this machine"
        late = overdue(self._store, self._registry, self._settings, now=now).alarming
        if late:
            return f"pulse withheld: {len(late)} schedules are overdue, {late[0].schedule} among them"
        self._store.write_pulse(now=now)
        return None

    def _call(self) -> str | None:
        sent = self._caller.call(self._settings.pulse_url)
        return None if sent.accepted else f"pulse failed: {error_text(sent)}"

    def _note(self, trouble: str | None) -> None:
        """Log a change: a pulse that stays away for hours is one line, not one a minute."""
        if trouble is not None and self._trouble is None:
            log.warning("%s", trouble)
        elif trouble is None and self._trouble is not None:
            log.info("pulse resumed")
        self._trouble = trouble
