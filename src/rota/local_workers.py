"""Workers in this process, direct execution, and recovery by hand."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from rota.compose import Opened, make_minder
from rota.engine.submit import NewJob
from rota.errors import Refused, StoreUnavailable
from rota.executors import inside_handler
from rota.model.checks import whole
from rota.model.gate import Right, scope_of
from rota.model.lanes import Serving
from rota.model.signals import PermanentError
from rota.model.templates import span_of
from rota.model.values import Origin, Run
from rota.operation import Ask
from rota.session import Session

if TYPE_CHECKING:
    from queue import SimpleQueue

    from rota.engine.background import Minder
    from rota.engine.driver import Driver
    from rota.engine.recovery import Recovered, Recovery
    from rota.task import Span

START_S = 0.2
"""Pause before a worker is started again because its server was lost; doubled after each try."""
LAST_LOOK_S = 0.05
"""How often signals are looked for while a worker stops."""


class InsideHandlerError(Refused, PermanentError):
    """A call that no handler can make: an attempt that does not catch it is not repeated."""


def start(session: Session, concurrency: int | None, serving: Serving) -> Driver:
    """Start a worker on a thread of its own and return its driver."""
    if inside_handler():
        raise InsideHandlerError(
            "a worker can't be started inside a handler; in a script whose handlers run in processes, "
            'start it under `if __name__ == "__main__":`'
        )
    slots = session.settings.concurrency if concurrency is None else concurrency
    whole("concurrency", slots, least=1)
    driver = _started(session, session.open(), slots, serving)
    with session.lock:
        session.drivers.append(driver)
    return driver


def run(session: Session, concurrency: int | None, serving: Serving) -> None:
    """Run a worker until SIGTERM or SIGINT; a second one interrupts what still runs."""
    import signal  # noqa: PLC0415 - only this needs it
    from queue import SimpleQueue  # noqa: PLC0415

    # A signal handler may interrupt the very wait that it ends: an Event would deadlock there, this queue does not.
    heard: SimpleQueue[int] = SimpleQueue()

    def on_signal(number: int, _frame: object) -> None:
        heard.put(number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        driver = start(session, concurrency, serving)
        while driver.running and not _hears(heard, 1.0):
            pass
        stopping = threading.Thread(target=session.stop, args=(driver,), name="rota-way-home", daemon=True)
        stopping.start()
        while stopping.is_alive():
            if _hears(heard, LAST_LOOK_S):
                driver.hurry()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def turn(session: Session) -> None:
    """Turn the worker's cycle in this thread until nothing more is ready now."""
    opened = session.open()
    with session.lock:
        if session.inline is None:
            session.registry.sync(opened.store, session.clock.now())
            inline = session.make_worker(opened, session.settings.concurrency, inline=True)
            try:
                inline.start()
            except BaseException:
                inline.heartbeat.withdraw()
                raise
            session.inline = inline
        worker = session.inline
        if worker.heartbeat.renewal.watched and session.follows is not None:
            worker.heartbeat.watch()
        worker.poke()
        while worker.turn() == 0.0 or worker.holding:
            pass


def minder(ask: Ask) -> Minder:
    """Return a minder, which reports overdue schedules and sends webhook messages while this process runs no worker."""
    session = ask.session
    has_worker = lambda: any(driver.running for driver in session.drivers)  # noqa: E731 - asked again and again
    return make_minder(ask.opened, ask.registry, clock=session.clock, settings=ask.settings, has_worker=has_worker)


def recover(ask: Ask) -> Recovered:
    """Recover the jobs of dead workers now."""
    recovery = _recovery(ask.session, ask.opened)
    done = recovery.sweep(None)
    done.successors += recovery.repair().successors
    return done


def direct(
    ask: Ask,
    name: str,
    params: Mapping[str, Any] | None = None,
    *,
    timeout: Span | None = None,
    job_id: str | None = None,
    meta: Mapping[str, Any] | None = None,
    organization: str | None = None,
) -> Run:
    """Run one job ahead of the queue and return its run. `timeout` limits the wait for a slot."""
    from rota.engine.direct import Direct  # noqa: PLC0415 - only this needs it

    session, settings = ask.session, ask.settings
    who = ask.within(organization)
    if inside_handler():
        raise InsideHandlerError("direct execution from inside a handler would wait for its own slot: enqueue the job instead")
    wait_s = settings.direct_wait if timeout is None else span_of("timeout", timeout)
    opened = ask.opened
    # Unlike an enqueue, a reservation is not compared with the version of the definitions that its row was built from.
    ask.registry.sync(opened.store, ask.now)
    new = NewJob(name=name, params=params, max_retries=0, job_id=job_id, meta=meta)
    row = session.submitter.one(new, opened.store, who, origin=Origin.DIRECT)
    ttl = settings.reservation_ttl
    limit = min(row.policy.timeout, ttl) if row.policy.timeout else ttl
    row.policy = msgspec.structs.replace(row.policy, timeout=limit)
    with session.owning(opened) as owner_id:
        execution = Direct(
            store=opened.store,
            registry=ask.registry,
            liveness=opened.liveness,
            clock=session.clock,
            ids=session.ids,
            settings=settings,
            owner_id=owner_id,
            idle_id=session.inline.id if session.inline is not None else None,
            owner=f"{who.name}@{os.uname().nodename}",
            scope=scope_of(who, Right.READ),
            poke=session.poke,
            sweep=partial(_recovery(session, opened).sweep, None),
            inline_worker=session.inline_worker if name in ask.registry.handlers else None,
        )
        return execution.run(row, wait_s=wait_s)


def _started(session: Session, opened: Opened, slots: int, serving: Serving) -> Driver:
    """Start a worker. A server that was reachable a moment ago, and has ended a session since, is tried again for `busy_timeout`."""
    from rota.engine.driver import Driver  # noqa: PLC0415 - direct execution needs none

    end = time.monotonic() + (session.settings.busy_timeout if opened.time is not None else 0)
    pause_s = START_S
    while True:
        try:
            session.registry.sync(opened.store, session.clock.now())
            driver = Driver(session.make_worker(opened, slots, serving=serving), session.settings, session.clock)
            driver.start()
        except StoreUnavailable:
            if time.monotonic() + pause_s > end:
                raise
        else:
            return driver
        time.sleep(pause_s)
        pause_s *= 2


def _recovery(session: Session, opened: Opened) -> Recovery:
    from rota.engine.outcome_log import HookCalls  # noqa: PLC0415 - a worker has its own
    from rota.engine.recovery import Recovery  # noqa: PLC0415

    return Recovery(
        opened.store,
        opened.liveness,
        clock=session.clock,
        ids=session.ids,
        rng=session.rng,
        settings=session.settings,
        calls=HookCalls(session.on, inline=True),
    )


def _hears(heard: SimpleQueue[int], seconds: float) -> bool:
    """Wait for a signal; return whether one came."""
    from queue import Empty  # noqa: PLC0415 - as in `run`

    try:
        heard.get(timeout=seconds)
    except Empty:
        return False
    return True
