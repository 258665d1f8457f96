"""Running: a worker in this process, direct execution, recovery by hand."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import msgspec

from rota.compose import Opened, make_minder
from rota.engine.submit import NewJob
from rota.errors import Refused, StoreUnavailable
from rota.executors import inside_handler
from rota.model.checks import seconds, whole
from rota.model.gate import Actor, Operation, scope_of
from rota.model.lanes import Names, Serving
from rota.model.signals import PermanentError
from rota.model.values import Origin, Run
from rota.surfaces.python.base import Base

if TYPE_CHECKING:
    from queue import SimpleQueue

    from rota.engine.driver import Driver
    from rota.engine.minder import Minder
    from rota.engine.recovery import Recovered, Recovery

START_S = 0.2
"""Pause before a worker is started again because its server was lost; then twice as long each time."""
LAST_LOOK_S = 0.05
"""How often a worker on its way home is looked after."""


class InsideHandlerError(Refused, PermanentError):
    """No handler can ever do this: an attempt that does not catch it is not repeated."""


class Running(Base):
    """The part of Rota that turns the wheel."""

    @contextmanager
    def running(
        self,
        *,
        concurrency: int | None = None,
        queues: Names = None,
        types: Names = None,
        exclude: Names = None,
        actor: Actor | str | None = None,
    ) -> Iterator[Self]:
        """Run a worker inside this process for the time of the block. What it serves: see `start`."""
        driver = self.start(concurrency=concurrency, queues=queues, types=types, exclude=exclude, actor=actor)
        try:
            yield self
        finally:
            self._session.stop(driver)

    def start(
        self,
        *,
        concurrency: int | None = None,
        queues: Names = None,
        types: Names = None,
        exclude: Names = None,
        actor: Actor | str | None = None,
    ) -> Driver:
        """Start a worker on a thread of its own and return its driver.

        It serves these queues, and these job types but for those to exclude; None: as the settings say, by default all.
        """
        self._session.scope(actor, Operation.OPERATE)
        if inside_handler():
            raise InsideHandlerError(
                "a worker can't be started inside a handler; in a script whose handlers run in processes, "
                'start it under `if __name__ == "__main__":`'
            )
        slots = self.settings.concurrency if concurrency is None else concurrency
        whole("concurrency", slots, least=1)
        serving = self._session.serving(queues, types, exclude)
        driver = self._started(self._session.open(), slots, serving)
        with self._session.lock:
            self._session.drivers.append(driver)
        return driver

    def _started(self, opened: Opened, slots: int, serving: Serving) -> Driver:
        """Start a worker. A server that was there a moment ago, and has ended a session since, is tried again for `busy_timeout`."""
        from rota.engine.driver import Driver  # noqa: PLC0415 - a program that only enqueues has no worker

        end = time.monotonic() + (self.settings.busy_timeout if opened.time is not None else 0)
        pause_s = START_S
        while True:
            try:
                self._session.registry.sync(opened.store, self._session.clock.now())
                driver = Driver(self._session.make_worker(opened, slots, serving=serving), self.settings, self._session.clock)
                driver.start()
            except StoreUnavailable:
                if time.monotonic() + pause_s > end:
                    raise
            else:
                return driver
            time.sleep(pause_s)
            pause_s *= 2

    def stop(self, driver: Driver, *, actor: Actor | str | None = None) -> None:
        """Bring a worker home that `start` has returned: it takes no more jobs, and those that run may finish in `shutdown_grace`."""
        self._session.scope(actor, Operation.OPERATE)
        self._session.stop(driver)

    def run(
        self,
        *,
        concurrency: int | None = None,
        queues: Names = None,
        types: Names = None,
        exclude: Names = None,
        actor: Actor | str | None = None,
    ) -> None:
        """Run a worker until SIGTERM or SIGINT; a second one interrupts what still runs. What it serves: see `start`."""
        import signal  # noqa: PLC0415 - a program that only enqueues runs no worker
        from queue import SimpleQueue  # noqa: PLC0415

        self._session.scope(actor, Operation.OPERATE)
        # A handler may interrupt the very wait it ends: an Event would deadlock there, this queue does not.
        heard: SimpleQueue[int] = SimpleQueue()

        def on_signal(number: int, _frame: object) -> None:
            heard.put(number)

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            driver = self.start(concurrency=concurrency, queues=queues, types=types, exclude=exclude)
            while driver.running and not _hears(heard, 1.0):
                pass
            way_home = threading.Thread(target=self._session.stop, args=(driver,), name="rota-way-home", daemon=True)
            way_home.start()
            while way_home.is_alive():
                if _hears(heard, LAST_LOOK_S):
                    driver.hurry()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def turn(self, *, actor: Actor | str | None = None) -> None:
        """Turn the wheel in this thread until nothing more is ready now: for tests and for simple scripts."""
        self._session.scope(actor, Operation.OPERATE)
        opened = self._session.open()
        with self._session.lock:
            if self._session.inline is None:
                self._session.registry.sync(opened.store, self._session.clock.now())
                inline = self._session.make_worker(opened, self.settings.concurrency, inline=True)
                try:
                    inline.start()
                except BaseException:
                    inline.standing.withdraw()
                    raise
                self._session.inline = inline
            worker = self._session.inline
            if worker.standing.renewal.watched and self._session.follows is not None:
                worker.standing.watch()
            worker.poke()
            while worker.turn() == 0.0 or worker.holding:
                pass

    def minder(self, *, actor: Actor | str | None = None) -> Minder:
        """Report overdue schedules and send webhook messages from this process for the time of a `with` block, while it runs no worker.

        `rota serve` and `rota up` do so. Use it in a program that serves the HTTP app itself.
        """
        self._session.scope(actor, Operation.OPERATE)
        has_worker = lambda: any(driver.running for driver in self._session.drivers)  # noqa: E731 - asked again and again
        return make_minder(
            self._session.open(), self._session.registry, clock=self._session.clock, settings=self.settings, has_worker=has_worker
        )

    def recover(self, *, actor: Actor | str | None = None) -> Recovered:
        """End what dead workers left behind, now. Workers do this by themselves."""
        self._session.scope(actor, Operation.OPERATE)
        recovery = self._recovery(self._session.open())
        done = recovery.sweep(None)
        done.successors += recovery.repair().successors
        return done

    def _recovery(self, opened: Opened) -> Recovery:
        from rota.engine.hook_calls import HookCalls  # noqa: PLC0415 - few programs need them
        from rota.engine.recovery import Recovery  # noqa: PLC0415

        return Recovery(
            opened.store,
            opened.liveness,
            clock=self._session.clock,
            ids=self._session.ids,
            rng=self._session.rng,
            settings=self.settings,
            calls=HookCalls(self.on, inline=True),
        )

    def direct(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        job_id: str | None = None,
        meta: Mapping[str, Any] | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
    ) -> Run:
        """Run one job ahead of the queue and return its run. `timeout` bounds the wait for a slot."""
        from rota.engine.direct import Direct  # noqa: PLC0415 - few programs need it

        who = self._session.acts(actor, Operation.SUBMIT, organization)
        if inside_handler():
            raise InsideHandlerError("direct execution from inside a handler would wait for its own slot: enqueue the job instead")
        wait_s = self.settings.direct_wait if timeout is None else seconds("timeout", timeout)
        opened = self._session.open()
        # Unlike an enqueue, a reservation is not compared with the version of the definitions that its row was built from.
        self._session.registry.sync(opened.store, self._session.clock.now())
        new = NewJob(name=name, params=params, max_retries=0, job_id=job_id, meta=meta)
        row = self._session.submitter.one(new, opened.store, who, origin=Origin.DIRECT)
        ttl = self.settings.reservation_ttl
        limit = min(row.policy.timeout, ttl) if row.policy.timeout else ttl
        row.policy = msgspec.structs.replace(row.policy, timeout=limit)
        with self._session.owning(opened) as owner_id:
            direct = Direct(
                store=opened.store,
                registry=self._session.registry,
                liveness=opened.liveness,
                clock=self._session.clock,
                ids=self._session.ids,
                settings=self.settings,
                owner_id=owner_id,
                idle_id=self._session.inline.id if self._session.inline is not None else None,
                owner=f"{who.name}@{os.uname().nodename}",
                scope=scope_of(who, Operation.READ),
                poke=self._session.poke,
                sweep=partial(self._recovery(opened).sweep, None),
                inline_worker=self._session.inline_worker if name in self._session.registry.handlers else None,
            )
            return direct.run(row, wait_s=wait_s)


def _hears(heard: SimpleQueue[int], seconds: float) -> bool:
    """Wait for a signal; say whether one came."""
    from queue import Empty  # noqa: PLC0415 - as in `run`

    try:
        heard.get(timeout=seconds)
    except Empty:
        return False
    return True
