"""Workers in this process, direct execution, and recovery by hand."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from rota.compose import Opened, import_named, make_caller, make_runners, make_sender, serve_kinds
from rota.declarations import declare_scheduled
from rota.engine.parts import Parts
from rota.engine.worker import Worker
from rota.errors import Refused, StoreUnavailable
from rota.executors import build, inside_handler
from rota.executors.locate import runs_apart
from rota.handler_calls import HandlerCalls
from rota.model.call import NewJob
from rota.model.checks import whole
from rota.model.gate import Right, scope_of
from rota.model.lanes import SERVES_ALL, Serving
from rota.model.schedules import JobKind
from rota.model.signals import PermanentError
from rota.model.templates import span_of
from rota.model.values import Origin, Run
from rota.operation import Ask
from rota.session import Session

if TYPE_CHECKING:
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


def make_worker(
    session: Session, opened: Opened, slots: int, *, inline: bool = False, direct_only: bool = False, serving: Serving | None = None
) -> Worker:
    """Build a worker on an open store, once that knows the schedules that decorators declare.

    Annotations of handlers are resolved here: one that can't be is no matter for a job. What a worker needs is imported here too: a thread
    of its own would hold the lock of an import while its process is forked, and the child could never import that module.
    """
    settings, registry, clock, app = session.settings, session.registry, session.clock, session.app
    declare_scheduled(session)
    import_named(registry, opened.store, settings, clock)
    runners = make_runners(settings, opened.store.url)
    serve_kinds(registry, runners)
    for handler in tuple(registry.handlers.values()):
        handler.codec.build()
    parts = Parts(
        store=opened.store,
        liveness=opened.liveness,
        clock=clock,
        ids=session.ids,
        rng=session.rng,
        settings=settings,
        handlers=registry.handlers,
        registry=registry,
        build_executor=build,
        runs_apart=partial(runs_apart, app=app),
        log_dir=opened.log_dir,
        ships_logs=opened.ships_logs,
        wakeup=None if inline else opened.wakeup,
        inline=inline,
        alerts=session.on.not_run,
        direct_only=direct_only,
        check_clock=None if session.follows is None else session.follows.check,
        make_sender=None if inline else partial(make_sender, settings),
        caller=None if inline else make_caller(settings),
        meter=session.meter,
        trust=opened.trust,
        tracing=session.tracing,
        app=app,
        middleware=app.middleware,
        on=app.on,
        serve=HandlerCalls(session, opened.store),
        runners=runners,
        serving=SERVES_ALL if direct_only else serving or session.serving(),
    )
    return Worker(parts, concurrency=slots)


@contextmanager
def inline_worker(session: Session, *, direct_only: bool = True) -> Iterator[Worker]:
    """Lend a worker that runs here; unless it is asked to do more, it is there for a direct execution alone."""
    worker = make_worker(session, session.open(), 1, inline=True, direct_only=direct_only)
    try:
        worker.start()
        if worker.heartbeat.renewal.watched and session.follows is not None:
            # A handler may take long. Nothing repeats a direct execution, so nobody has to be stopped before others take over.
            worker.heartbeat.watch(guarded=False)
        yield worker
    finally:
        try:
            worker.begin_stop()
            worker.finish()
        finally:
            # One that could not say goodbye to its store turns no more all the same: it must not look alive.
            worker.heartbeat.withdraw()


@contextmanager
def owning(session: Session, opened: Opened) -> Iterator[str]:
    """Lend the id of the row that shows that this process lives: a local worker's, or one of its own, which beats meanwhile."""
    with session.lock:
        local = session.drivers[0].worker.id if session.drivers else None
    if local is not None:
        yield local
        return
    from rota.engine.background import Ticker  # noqa: PLC0415
    from rota.engine.heartbeat import Renewal  # noqa: PLC0415 - only direct executions without a worker need it

    client_id = _client(session, opened)
    every_s = Renewal(session.clock, session.settings).every_s
    beats = Ticker(lambda: opened.store.beat(client_id, job_types=()), every_s=every_s, name="beats")
    beats.start()
    try:
        yield client_id
    finally:
        beats.stop()


def _client(session: Session, opened: Opened) -> str:
    """Return the row of this process, made anew if others have given it up while it had nothing to say."""
    with session.lock:
        if session.client_id is not None and opened.store.beat(session.client_id, job_types=()):
            return session.client_id
        lease, session.lease, session.client_id = session.lease, None, None
        if lease is not None:
            lease.release(clean=True)
        now = session.clock.now()
        client_id = session.ids.take(1, now)[0]
        session.lease = opened.liveness.take(client_id)
        opened.store.register(client_id, host=os.uname().nodename, kind="client", job_types=(), now=now)
        session.client_id = client_id
        return client_id


def start(session: Session, concurrency: int | None, serving: Serving) -> Driver:
    """Start a worker on a thread of its own and return its driver."""
    if inside_handler():
        raise InsideHandlerError(
            "a worker can't be started inside a handler; in a script whose handlers run in processes, "
            'start it under `if __name__ == "__main__":`'
        )
    if concurrency is not None:
        whole("concurrency", concurrency, least=1)
    driver = _started(session, session.open(), concurrency, serving)
    with session.lock:
        session.drivers.append(driver)
    return driver


def run(session: Session, concurrency: int | None, serving: Serving) -> None:
    """Run a worker until SIGTERM or SIGINT; a second one interrupts what still runs."""
    from rota.stop_signals import StopSignals  # noqa: PLC0415 - only this needs it

    with StopSignals() as signals:
        driver = start(session, concurrency, serving)
        while driver.running and not signals.wait(1.0):
            pass
        stopping = threading.Thread(target=session.stop, args=(driver,), name="rota-way-home", daemon=True)
        stopping.start()
        while stopping.is_alive():
            if signals.wait(LAST_LOOK_S):
                driver.hurry()


def turn(session: Session) -> None:
    """Turn the worker's cycle in this thread until nothing more is ready now."""
    opened = session.open()
    with session.lock:
        if session.inline is None:
            session.registry.sync(opened.store, session.clock.now())
            inline = make_worker(session, opened, session.current().concurrency, inline=True)
            try:
                inline.start()
            except BaseException:
                inline.heartbeat.withdraw()
                raise
            session.inline = inline
            _leave_at_exit(session)
        worker = session.inline
        if worker.heartbeat.renewal.watched and session.follows is not None:
            worker.heartbeat.watch()
        worker.poke()
        while worker.turn() == 0.0 or worker.holding:
            pass


_turning: WeakSet[Session] = WeakSet()
"""Sessions whose inline worker is registered: a program that ends without closing them did not lose a worker."""


def _leave_at_exit(session: Session) -> None:
    _turning.add(session)
    atexit.unregister(_leave)
    atexit.register(_leave)


def _leave() -> None:
    """Deregister inline workers at the end of the process. In a forked child they are the parent's."""
    for session in list(_turning):
        if session.inline is not None and session.pid == os.getpid():
            # The program is over. If the store is unreachable now, recovery finds later that the worker is gone.
            with suppress(Exception):
                session.close()


def minder(ask: Ask) -> Minder:
    """Return a minder, which reports overdue schedules and sends webhook messages while this process runs no worker."""
    from rota.engine.background import Minder, OverdueWatch  # noqa: PLC0415 - few programs need it
    from rota.engine.webhook_delivery import WebhookDelivery  # noqa: PLC0415

    session, opened, settings, clock = ask.session, ask.opened, ask.settings, ask.session.clock
    watch = OverdueWatch(opened.store, ask.registry, clock=clock, settings=settings)
    delivery = WebhookDelivery(opened.store, partial(make_sender, settings), clock=clock, settings=settings, trust=opened.trust)
    has_worker = lambda: any(driver.running for driver in session.drivers)  # noqa: E731 - asked again and again
    return Minder(watch, delivery, has_worker=has_worker, clock=clock, settings=settings)


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
    with owning(session, opened) as owner_id:
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
            inline_worker=partial(inline_worker, session) if _runs_here(session, name) else None,
        )
        return execution.run(row, wait_s=wait_s)


def _runs_here(session: Session, name: str) -> bool:
    """Say whether a worker of this process could run jobs of a template."""
    known = session.registry.find(name)
    if known is None or not known.is_work or known.record is None:
        return name in session.registry.handlers
    return known.record.kind is JobKind.SQL or bool(session.settings.external_file)


def _started(session: Session, opened: Opened, concurrency: int | None, serving: Serving) -> Driver:
    """Start a worker, with the slots of the settings if none are given.

    A server that was reachable a moment ago, and has ended a session since, is tried again for `busy_timeout`.
    """
    from rota.engine.driver import Driver  # noqa: PLC0415 - direct execution needs none

    end = time.monotonic() + (session.settings.busy_timeout if opened.time is not None else 0)
    pause_s = START_S
    while True:
        try:
            session.registry.sync(opened.store, session.clock.now())
            slots = session.registry.settings.concurrency if concurrency is None else concurrency
            driver = Driver(make_worker(session, opened, slots, serving=serving), session.settings, session.clock)
            driver.start()
        except StoreUnavailable:
            if time.monotonic() + pause_s > end:
                raise
        else:
            return driver
        time.sleep(pause_s)
        pause_s *= 2


def _recovery(session: Session, opened: Opened) -> Recovery:
    from rota.engine.log_shipper import LogShipper  # noqa: PLC0415 - a worker has its own
    from rota.engine.outcome_log import HookCalls  # noqa: PLC0415
    from rota.engine.recovery import Recovery  # noqa: PLC0415

    return Recovery(
        opened.store,
        opened.liveness,
        clock=session.clock,
        ids=session.ids,
        rng=session.rng,
        settings=session.settings,
        calls=HookCalls(session.on, inline=True),
        logs=LogShipper(opened.store, opened.log_dir, clock=session.clock) if opened.ships_logs else None,
    )
