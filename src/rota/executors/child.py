"""A handler process: runs one handler at a time on its main thread, and does not outlive its worker.

The worker's end of the socket closing means that the worker is gone: then this process and everything it started die at
once. So they do when a lease that the worker gave was not renewed in time: it is stopped, or cut off, and others are about
to take over. A second thread watches for both, takes the worker's messages and collects what handlers print. It never waits for
the worker to listen: progress that was held back is sent by a third.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from itertools import count
from multiprocessing import spawn
from queue import SimpleQueue
from types import FrameType
from typing import Any

from rota.errors import InvalidHandler
from rota.executors import wire
from rota.executors.aio import run_async
from rota.executors.attempt import Attempt
from rota.executors.capture import Capture
from rota.executors.invoke import enter_handlers, outcome_of, runner
from rota.executors.locate import MAIN, Address, resolve, resolve_app
from rota.executors.stops import is_late
from rota.executors.text import clean, head
from rota.hooks import ProcessEvent
from rota.model.decide import Failed, Outcome, Released, Stopped
from rota.model.handler import Handler, Place, inspect_handler
from rota.model.settings import Settings
from rota.model.signals import Cancelled, Rules
from rota.model.values import Claimed
from rota.ports.clock import StoreClock
from rota.ports.executor import Answer, App, Ended, Equipment, Receipt, Reply, Report, Request

PR_SET_PDEATHSIG = 1
WATCH_S = 0.5
"""How often the parent is looked at, should the socket have been inherited by a process that keeps it open; and held-back progress."""


def main(fd: int, parent: int, lock_fd: int | None) -> None:
    """Serve the worker at the other end of a socket until it says exit, or is gone."""
    if os.getpgrp() != os.getpid():
        os.setsid()
    held = [fd] if lock_fd is None else [fd, lock_fd]
    for inherited in held:
        os.set_inheritable(inherited, False)  # noqa: FBT003 - os has no keyword for it
    os.register_at_fork(after_in_child=lambda: _become_ordinary(held))
    child = Child(socket.socket(fileno=fd), parent)
    signal.signal(signal.SIGTERM, child.on_term)
    _ask_for_parent_death()
    threading.Thread(target=child.listen, name="rota-control", daemon=True).start()
    threading.Thread(target=child.pass_on, name="rota-progress", daemon=True).start()
    enter_handlers()
    child.serve()


class Child:
    """The process's state. Only the main thread runs handlers; only it receives signals."""

    def __init__(self, sock: socket.socket, parent: int) -> None:
        """Take over the standard streams."""
        self._sock = sock
        self._pid, self._parent = os.getpid(), parent
        self._main = threading.main_thread()
        self._capture = Capture()
        self._orders: SimpleQueue[wire.ToChild] = SimpleQueue()
        self._wire = _Wire(self.send)
        self._clock = StoreClock()
        self._until: float | None = None
        self._equipment: Equipment | None = None
        self._handlers: dict[tuple[Address, Rules | None], Handler] = {}
        self._main_error: BaseException | None = None
        self._app_error: BaseException | None = None
        self._sending = threading.Lock()
        self._switching = threading.Lock()
        self._attempt: Attempt | None = None
        self._asked: int | None = None
        self._halt: Callable[[], object] = self._signal_main
        self._armed = self._shielded = self._deferred = self._reached = False

    # ---- the main thread ----------------------------------------------------------------------------------

    def serve(self) -> None:
        """Take orders, one after the other."""
        while True:
            match self._orders.get():
                case wire.Init() as init:
                    self._prepare(init)
                    self.send(wire.Ready())
                case wire.Start() as start:
                    self.send(self._perform(start))
                case wire.Find(address=address):
                    self.send(wire.Found(address, self._tried(address)))
                case wire.Exit():
                    self._capture.give_back()
                    return

    def _prepare(self, init: wire.Init) -> None:
        self._import(init)
        app = self._app(init.app)
        self._equipment = Equipment(
            handlers={},
            sink=self._wire,
            clock=self._clock,
            settings=init.settings,
            slots=1,
            log_dir=init.log_dir,
            lock_fd=None,
            store=init.store,
            middleware=() if app is None else app.middleware.functions,
        )
        if app is not None:
            app.on.process_start.call(ProcessEvent(pid=self._pid, worker_pid=self._parent))

    def _app(self, address: Address | None) -> App | None:
        """Return the program's Rota, if its worker wants it here. Without it no job runs: what must surround it would be missing."""
        if address is None:
            return None
        try:
            if self._main_error is not None and address.module == MAIN:
                raise self._main_error
            return resolve_app(address)
        except BaseException as error:  # noqa: BLE001 - importing a module may run anything
            self._app_error = error
            return None

    def _import(self, init: wire.Init) -> None:
        # What can't be imported is said by the job that needs it.
        try:
            spawn.prepare(prepared(init.program))
        except BaseException as error:  # noqa: BLE001 - the main program is run here, and may do anything
            self._main_error = error
        for module in init.modules:
            with contextlib.suppress(BaseException):
                import_module(module)

    def _tried(self, address: Address) -> str | None:
        """Import a handler; return why that does not work, if it does not."""
        try:
            if self._app_error is not None:
                raise self._app_error
            resolve(address)
        except BaseException as error:  # noqa: BLE001 - importing a module may run anything
            return f"{type(error).__name__}: {clean(error)}"
        return None

    def _perform(self, start: wire.Start) -> wire.Done:
        equipment = self._equipment
        if equipment is None:
            raise RuntimeError("a job came before the introduction")
        self._clock.set(start.now)
        attempt = Attempt(start.job, equipment)
        attempt.log.before = self._capture.drain
        signal.signal(signal.SIGTERM, self.on_term)
        self._capture.begin(attempt.log)
        began = equipment.clock.monotonic()
        self.send(wire.Started(start.job.number))
        outcome = self._guarded(start, attempt, equipment.settings)
        seconds = equipment.clock.monotonic() - began
        self._capture.end()
        path = attempt.end()
        kind, body = wire.pack_outcome(outcome)
        return wire.Done(start.job.number, kind, body, equipment.clock.now(), seconds, path, self._reached)

    def _guarded(self, start: wire.Start, attempt: Attempt, settings: Settings) -> Outcome:
        """Run the handler where Cancelled may be raised, from the first line to the last and not beyond."""
        try:
            with self._switching:
                self._halt, self._reached, self._deferred = self._signal_main, False, False
                self._attempt = attempt
                if self._asked == start.job.number:
                    self._reached = True
                    return Stopped()
            outcome = self._called(start, attempt, settings)
            self._armed = False
            return outcome
        except BaseException as error:  # noqa: BLE001 - Cancelled between the handler's last line and ours, or a stray from its event loop
            return outcome_of(error, settings, start.rules)
        finally:
            self._armed = False
            with self._switching:
                self._attempt = None

    def _called(self, start: wire.Start, attempt: Attempt, settings: Settings) -> Outcome:
        try:
            handler = self._handler(start)
        except BaseException as error:  # noqa: BLE001 - importing a module may run anything
            text = head(f"handler could not be loaded: {type(error).__name__}: {clean(error)}", settings.error_max)
            failed = outcome_of(error, settings)
            if not isinstance(failed, Failed):
                return Failed(error=text)
            return Failed(error=text, traceback=failed.traceback, exception_type=failed.exception_type)
        if is_late(start.job, self._clock):
            return Released()
        if handler.is_async:
            return asyncio.run(self._cancellable(handler, start, attempt, settings))
        self._armed = True
        if attempt.stopping:
            self._signal_main()
        return runner(settings)(handler, start.job, attempt, settings)

    async def _cancellable(self, handler: Handler, start: wire.Start, attempt: Attempt, settings: Settings) -> Outcome:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is None:
            raise RuntimeError("not in a task")

        def halt() -> None:
            self._reached = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: the handler is over
                loop.call_soon_threadsafe(task.cancel)
            attempt.stop()  # after that: a task that waits for a checkpoint is cancelled, once; one that blocks the loop is woken

        with self._switching:
            self._halt = halt
            if attempt.stopping:
                halt()
        return await run_async(handler, start.job, attempt, settings)

    def _handler(self, start: wire.Start) -> Handler:
        handler = self._handlers.get((start.address, start.rules))
        middleware = 0 if self._equipment is None else len(self._equipment.middleware)
        if self._app_error is None and middleware < start.middleware:
            raise InvalidHandler(
                f"the worker has {start.middleware} middleware and this handler process {middleware}: register middleware "
                "when its module is imported, before workers start"
            )
        if handler is None:
            if self._app_error is not None:
                raise self._app_error
            if self._main_error is not None and start.address.module == MAIN:
                raise self._main_error
            handler = inspect_handler(start.job.job_type, resolve(start.address), Place.PROCESS, start.rules)
            self._handlers[start.address, start.rules] = handler
        return handler

    def on_term(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler's signature
        """Raise Cancelled into the handler, if the worker asked for it; die if the worker is gone."""
        if os.getppid() != self._parent:
            _die()
        attempt = self._attempt
        if not self._armed or attempt is None or not attempt.stopping:
            return  # a TERM for the whole service: the worker decides when its handlers stop
        if self._shielded:
            self._deferred = True
            return
        self._armed, self._reached = False, True
        raise Cancelled("the job was asked to stop")

    # ---- any thread ---------------------------------------------------------------------------------------

    def send(self, message: wire.FromChild) -> None:
        """Send a whole message: the main thread can't be cancelled in the middle of one."""
        if os.getpid() != self._pid:
            os._exit(0)  # a copy made by os.fork() came back from its handler; the original speaks for itself
        data = wire.frame(message)
        on_main = threading.current_thread() is self._main
        if on_main:
            self._shielded = True
        try:
            with self._sending, contextlib.suppress(OSError):
                self._sock.sendall(data)
        finally:
            if on_main:
                self._shielded = False
        if on_main and self._deferred and self._armed:
            self._deferred, self._armed, self._reached = False, False, True
            raise Cancelled("the job was asked to stop")

    # ---- the control thread -------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take messages, collect output, and die with the worker."""
        try:
            frames, selector = wire.for_child(), selectors.DefaultSelector()
            selector.register(self._sock, selectors.EVENT_READ)
            selector.register(self._capture.reader, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(self._patience())]
                if os.getppid() != self._parent:
                    _die()
                if self._capture.reader in ready:
                    self._capture.drain()
                if self._sock in ready:
                    data = self._sock.recv(65_536)
                    if not data:
                        _die()
                    for message in frames.feed(data):
                        self._obey(message)
                if self._attempt is not None and self._until is not None and self._clock.monotonic() >= self._until:
                    self._lapse()
        finally:
            _die()

    def _patience(self) -> float:
        if self._until is None or self._attempt is None:
            return WATCH_S
        return min(WATCH_S, max(0.0, self._until - self._clock.monotonic()))

    def _lapse(self) -> None:
        """Say why, if the worker can be told without waiting for it, and die."""
        if self._sending.acquire(timeout=0.05):
            with contextlib.suppress(OSError):
                self._sock.send(wire.frame(wire.Lapsed()), socket.MSG_DONTWAIT)
        _die()

    def _obey(self, message: wire.ToChild) -> None:
        match message:
            case wire.Lease(until=until):
                self._until = until
            case wire.Kept(ticket=ticket, receipt=answer) | wire.Replied(ticket=ticket, reply=answer):
                self._wire.answer(ticket, answer)
            case wire.Stop(number=number):
                with self._switching:
                    if self._attempt is not None and self._attempt.job.number == number:
                        # No `stop()`: the signal wakes a main thread that waits for a checkpoint, and one Cancelled is enough.
                        self._attempt.stopping = True
                        self._halt()
                    else:
                        self._asked = number
            case _:
                self._orders.put(message)

    def _signal_main(self) -> None:
        if self._main.ident is not None:
            signal.pthread_kill(self._main.ident, signal.SIGTERM)

    # ---- the thread for progress --------------------------------------------------------------------------

    def pass_on(self) -> None:
        """Send progress that was held back, when its time has come. The worker may take a while to hear it."""
        while True:
            if (attempt := self._attempt) is not None:
                attempt.flush(self._clock.monotonic())
            time.sleep(WATCH_S)


class _Wire:
    """The sink of a handler process: reports go to the worker, ends are sent with their log."""

    def __init__(self, send: Callable[[wire.FromChild], None]) -> None:
        self._send = send
        self._tickets = count(1)
        self._answers: dict[int, Callable[[Any], None]] = {}

    def ended(self, ended: Ended) -> None:
        """Never called: the end travels as `Done`."""
        raise AssertionError(f"the end of job {ended.job.number} was reported twice")

    def report(self, report: Report) -> None:
        self._send(wire.Note(report))

    def keep(self, report: Report, answer: Answer) -> None:
        ticket = next(self._tickets)
        self._answers[ticket] = answer
        self._send(wire.Note(report, ticket))

    def ask(self, job: Claimed, request: Request, replied: Callable[[Reply], None]) -> None:
        ticket = next(self._tickets)
        self._answers[ticket] = replied
        self._send(wire.Asked(job.number, request, ticket))

    def answer(self, ticket: int, receipt: Receipt | Reply) -> None:
        """Pass on what the worker said."""
        if (answer := self._answers.pop(ticket, None)) is not None:
            answer(receipt)


def prepared(program: wire.Program) -> dict[str, object]:
    """Return the worker's program as `multiprocessing.spawn.prepare` takes it."""
    data: dict[str, object] = {"sys_path": [*map(os.fsdecode, program.path)], "sys_argv": [*map(os.fsdecode, program.argv)]}
    if program.main_name is not None:
        data["init_main_from_name"] = program.main_name
    elif program.main_path is not None:
        data["init_main_from_path"] = os.fsdecode(program.main_path)
    return data


def _die() -> None:
    # Our group is our own since setsid: this takes along every program the handler started.
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _become_ordinary(held: list[int]) -> None:
    """In a copy made by os.fork(): let go of the worker's socket and lock, and die of TERM like any program."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for fd in held:
        with contextlib.suppress(OSError):
            os.close(fd)


def _ask_for_parent_death() -> None:
    """Ask the kernel for a TERM when the worker dies, where it can; `on_term` knows what it means."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
