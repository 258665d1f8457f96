"""Promotion: everything in a store moves to another, and back."""

from __future__ import annotations

import os
from pathlib import Path

from rota.compose import open_place, open_store
from rota.engine.store_copy import Promoted, Promotion, Tell
from rota.errors import CopyRefused, NotFound, StoreMoved
from rota.model.gate import Actor, Right
from rota.ports.clock import SystemClock
from rota.session import Session


def promote(
    session: Session,
    actor: Actor | str | None,
    target: str | os.PathLike[str],
    *,
    keep: bool = False,
    replace: bool = False,
    mend: bool = False,
    without_secrets: bool = False,
    progress: Tell | None = None,
) -> Promoted:
    """Copy everything to another store, verify it there, and close this one: see `StoreOperations.promote`."""
    settings = session.settings
    here = open_place(session.where, settings)
    if not here.depot.exists():
        raise NotFound(f"there is no store at {here.depot.url}: nothing to promote")
    _ask_to_operate(session, actor)
    if not session.drivers:
        # A worker that turns only when it is told to has no driver, and nobody else stops it.
        session.close()
    # Not the store's own clock: a store that was moved is not asked for the time.
    clock = SystemClock() if session.follows is not None else session.clock
    there = open_place(os.fspath(target), settings)
    if there.depot.exists():
        other = Session(session.app, target, settings=settings, clock=clock)
        try:
            _ask_to_operate(other, actor)
        finally:
            other.close()
    tell = progress or (lambda _: None)
    done = Promotion(
        here,
        there,
        clock=clock,
        settings=settings,
        keep=keep,
        replace=replace,
        mend=mend,
        key_ids=lambda: session.keyring().ids,
        without_secrets=without_secrets,
        tell=tell,
    ).run()
    if done.logs is not None and not Path(done.logs).exists():
        done.logs = None
    session.close()
    return done


def reopen(session: Session, actor: Actor | str | None) -> None:
    """Open a store again that was moved: see `StoreOperations.reopen`."""
    place = open_place(session.where, session.settings)
    if not place.depot.exists():
        raise NotFound(f"there is no store at {place.depot.url}")
    _ask_to_operate(session, actor)
    place.depot.prepare(now=SystemClock().now())
    if place.depot.moved() is None:
        raise CopyRefused(f"{place.depot.url} was not moved anywhere: it is open")
    place.depot.reopen()


def _ask_to_operate(session: Session, actor: Actor | str | None) -> None:
    """Ask the gate, also that of a store which was moved."""
    try:
        session.scope(actor, Right.OPERATE)
    except StoreMoved:
        with session.lock:
            session.opened = open_store(session.where, session.settings, session.clock, moved=True)
        try:
            session.scope(actor, Right.OPERATE)
        finally:
            session.close()
