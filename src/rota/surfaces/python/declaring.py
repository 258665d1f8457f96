"""Schedules that decorators declare: brought to the store by whoever uses it first, a worker or a program that enqueues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from rota.engine.trigger import Decider
from rota.errors import DependencyCycle, InvalidInput, NotFound, Refused
from rota.model.definitions import TemplateState
from rota.model.gate import SYSTEM
from rota.model.schedule_order import dependencies_first
from rota.model.values import Instant
from rota.ports.store import Store
from rota.surfaces.python.scheduling import Scheduling

if TYPE_CHECKING:
    pass

log = logging.getLogger("rota.schedules")

T = TypeVar("T")


class Declaring(Scheduling):
    """The part of Rota that has the store know the schedules of its decorators."""

    def _declare_scheduled(self) -> None:
        """Declare what was not declared yet. What the store refuses is told, and keeps nothing else from working."""
        if not self._session.registry.undeclared:
            return
        store = self._session.open().store
        if store.transacting():
            return
        with self._session.lock:
            registry = self._session.registry
            names, registry.undeclared = registry.undeclared, frozenset()
            try:
                registry.sync(store, self._session.clock.now())
                for name in self._in_order(names):
                    self._declare_one(name)
            except BaseException:
                # The store is away, or busy: to be said again.
                registry.undeclared |= names
                raise

    def _in_order(self, names: Iterable[str]) -> list[str]:
        waits = {name: _names(self._session.registry.scheduled[name].get("depends_on")) for name in sorted(names)}
        try:
            return dependencies_first(waits)
        except DependencyCycle as error:
            _tell(", ".join(dict.fromkeys(error.path)), error)
            return dependencies_first({name: parents for name, parents in waits.items() if name not in error.path})

    def _declare_one(self, name: str) -> None:
        known = self._session.registry.find(name)
        if known is None or known.state == TemplateState.ARCHIVED:
            return
        try:
            self._declare(name, self._session.registry.scheduled[name], SYSTEM)
        except (InvalidInput, Refused, NotFound) as error:
            _tell(name, error)

    def _open_synced(self) -> Store:
        self._declare_scheduled()
        return super()._open_synced()

    def _deciding(self, work: Callable[[Decider, Store, Instant, int], T]) -> T:
        self._declare_scheduled()
        return super()._deciding(work)


def _tell(name: str, error: Exception) -> None:
    log.error("the schedule that the decorator of %s declares is not in force: %s. Repair that and start again", name, error)


def _names(given: Any) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)
