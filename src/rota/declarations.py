"""Declarations: the schedules of decorators, brought to the store by the first user of it, a worker or a program that enqueues."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rota.errors import DependencyCycle, InvalidInput, NotFound, Refused
from rota.model.definitions import TemplateState
from rota.model.dependencies import dependencies_first
from rota.model.gate import SYSTEM

if TYPE_CHECKING:
    from rota.ports.store import Store
    from rota.session import Session

log = logging.getLogger("rota.schedules")


def declare_scheduled(session: Session) -> None:
    """Declare the schedules that the store does not know yet, if any. One that the store refuses is logged and stops nothing else."""
    if not session.registry.undeclared:
        return
    store = session.open().store
    if store.transacting():
        return
    with session.lock:
        registry = session.registry
        names, registry.undeclared = registry.undeclared, frozenset()
        try:
            registry.sync(store, session.clock.now())
            for name in _in_order(session, names):
                _declare(session, name)
        except BaseException:
            # The store is unavailable or busy: they are declared at the next occasion.
            registry.undeclared |= names
            raise


def synced(session: Session) -> Store:
    """Return the store, once it has the schedules that decorators declare and the registry has its definitions."""
    if session.registry.undeclared:
        declare_scheduled(session)
    store = session.open().store
    session.registry.sync(store, session.clock.now())
    return store


def _in_order(session: Session, names: Iterable[str]) -> list[str]:
    waits = {name: _names(session.registry.scheduled[name].get("depends_on")) for name in sorted(names)}
    try:
        return dependencies_first(waits)
    except DependencyCycle as error:
        _report(", ".join(dict.fromkeys(error.path)), error)
        return dependencies_first({name: parents for name, parents in waits.items() if name not in error.path})


def _declare(session: Session, name: str) -> None:
    from rota.schedule_edits import declared  # noqa: PLC0415 - few programs declare schedules

    known = session.registry.find(name)
    if known is None or known.state == TemplateState.ARCHIVED:
        return
    try:
        declared(session, name, session.registry.scheduled[name], SYSTEM)
    except (InvalidInput, Refused, NotFound) as error:
        _report(name, error)


def _report(name: str, error: Exception) -> None:
    log.error("the schedule that the decorator of %s declares is not in force: %s. Fix that and start again", name, error)


def _names(value: Any) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)
