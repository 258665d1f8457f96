"""Refusals of the gate as entries of the audit trail: few, and never a reason for a refusal to fail."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from rota.model.gate import Actor, Right

log = logging.getLogger("rota.audit")

EVERY_S = 60.0
"""A further refusal of the same actor and right is entered after this time."""
WAIT_S = 1.0
"""How long a refusal waits for its entry. On SQLite the caller's own transaction may hold the lock that the entry needs."""
KEYS_MAX = 1000
"""Actors and rights that are told apart inside that time; refusals beyond that are not entered."""


class Denials:
    """Enters refusals. One object serves all threads."""

    def __init__(self, enter: Callable[[Actor | str, Right, str], object]) -> None:
        """Take what enters one: who, which right, and the words of the refusal."""
        self._enter = enter
        self._lock = threading.Lock()
        self._entered: dict[tuple[str, Right], float] = {}

    def note(self, actor: Actor | str, right: Right, error: Exception) -> None:
        """Enter a refusal, unless one of the same actor and right was entered in the last minute."""
        name = actor if isinstance(actor, str) else actor.name
        if not self._is_new((name, right)):
            return
        writer = threading.Thread(target=self._write, args=(actor, right, str(error)), name="rota-denial", daemon=True)
        writer.start()
        writer.join(WAIT_S)

    def _is_new(self, key: tuple[str, Right]) -> bool:
        now = time.monotonic()
        with self._lock:
            if len(self._entered) >= KEYS_MAX:
                self._entered = {known: at for known, at in self._entered.items() if now - at < EVERY_S}
            at = self._entered.get(key)
            if (at is not None and now - at < EVERY_S) or (at is None and len(self._entered) >= KEYS_MAX):
                return False
            self._entered[key] = now
            return True

    def _write(self, actor: Actor | str, right: Right, why: str) -> None:
        try:
            self._enter(actor, right, why)
        except Exception as error:  # noqa: BLE001 - the caller is refused whatever becomes of the entry
            log.warning("could not enter a refusal into the audit trail (%s): %s", error, why)
