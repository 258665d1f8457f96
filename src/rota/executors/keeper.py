"""The thread that keeps handler processes: starts them ahead of need, gives them jobs, hears them and reaps them."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable

import msgspec

from rota.errors import InvalidHandler
from rota.executors import wire
from rota.executors.handler_process import Process, describe_exit, introduction, process_handlers, spawn
from rota.executors.invoke import unknown
from rota.executors.locate import Address, check_importable, locate
from rota.executors.stops import settle
from rota.model.decide import Crashed, Failed, Outcome, Released
from rota.model.handler import Handler, Place
from rota.model.values import Claimed, log_path
from rota.ports.executor import Ended, Equipment, Receipt, Reply, Report, StopReason, forced

logger = logging.getLogger(__name__)

SPARE = 2
"""Processes kept ready beyond those at work; where no handler was declared for processes, one is kept in all."""
STARTING_MAX = 2
"""Processes starting at once: importing takes a core each."""
EXIT_S = 0.5
"""How long an idle process may take to end by itself."""
FALSE_STARTS = 3
"""Processes that die before they are ready, after which waiting jobs are told; or while importing a handler, after which none tries to."""
SEEK_S = 30.0
"""How long a process may take to import a handler that is sought; after that it is killed, and none tries to again."""
PAUSE_S = 0.5
"""Between false starts."""
POLL_S = 0.2
"""How often processes are looked at where the kernel has no pidfd."""


class Running(msgspec.Struct, eq=False):
    """One job in one process, and what is wished of it. The keeper reads what the engine's thread writes here."""

    job: Claimed
    process: Process
    started: float
    reason: StopReason | None = None
    kill_at: float | None = None
    killed: bool = False
    entered: bool = False
    done: wire.Done | None = None


class Sought(msgspec.Struct, eq=False):
    """A handler that was looked for in a process: whether one has tried to import it, and why it could not."""

    handler: Handler
    address: Address
    tried: bool
    """What was declared for processes need not be tried."""
    deaths: int = 0
    error: str | None = None


class Keeper:
    """Owns every handler process. Methods without underscore that say so may be called from other threads."""

    def __init__(self, equipment: Equipment) -> None:
        """Prepare; `live` does the work."""
        self.waiting: deque[Claimed] = deque()
        self.running: dict[int, Running] = {}
        self.found: dict[str, Sought] = {}
        """What was looked for, by job type."""
        self.released = False
        """Whether the engine took back what was waiting: then nothing goes back to wait."""
        self._equipment = equipment
        self._clock = equipment.clock
        self._wishes: deque[Callable[[], None]] = deque()
        self._processes: set[Process] = set()
        self.idle: list[Process] = []
        """Processes that are ready and have nothing to do."""
        self._addresses: dict[str, tuple[Handler, Address]] = {}
        self._false_starts = 0
        self._start_after = 0.0
        self._closed = self._cut = False
        self._lease: wire.Lease | None = None
        self._bell, self._ringer = socket.socketpair()
        self._bell.settimeout(0)
        self._ringer.settimeout(0)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ, self._hush)

    # ---- from any thread ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the keeper look at what is new."""
        with contextlib.suppress(OSError):  # full: it is being woken already; closed: nobody is there
            self._ringer.send(b"\0")

    def post(self, wish: Callable[[], None]) -> None:
        """Have something done by the keeper's thread, after what was posted before."""
        self._wishes.append(wish)
        self.wake()

    def shut(self) -> None:
        """Have every process ended and nothing more reported."""
        self._closed = True
        self.waiting.clear()
        self.running.clear()
        self.wake()

    # ---- the keeper's thread ------------------------------------------------------------------------------

    def live(self) -> None:
        """Keep processes until shut."""
        while not self._closed:
            try:
                self._turn()
            except Exception:
                logger.exception("the manager of handler processes failed; continuing")
        self._end_all()
        self._selector.close()
        self._bell.close()
        self._ringer.close()

    def _turn(self) -> None:
        while self._wishes:
            self._wishes.popleft()()
        self._give()
        self._find()
        self._grow()
        self._attend()

    def stop(self, running: Running) -> None:
        """Ask the process of a running job to raise Cancelled in it."""
        if self._is_current(running):
            self._send(running.process, wire.Stop(running.job.number))

    def kill(self, running: Running) -> None:
        """Kill the process of a running job and everything it started."""
        if self._is_current(running):
            self._hear(running.process)
            running.process.kill()

    def seek(self, handler: Handler) -> None:
        """Have a process try to import a handler."""
        known = self.found.get(handler.name)
        if known is None or known.handler is not handler:
            self.found[handler.name] = Sought(handler, locate(handler.function), handler.executor == Place.PROCESS)

    def renew(self, until: float | None) -> None:
        """Tell every process how long its handlers may run."""
        if until is None and self._lease is None:
            return
        self._lease = wire.Lease(until)
        for process in self._processes:
            self._send(process, self._lease)

    def cut(self, grace_s: float) -> None:
        """Start nothing more, ask every handler to stop, and let the grace be the rest of their processes' lives."""
        self._cut = True
        end = self._clock.monotonic() + grace_s
        for running in self.running.values():
            if running.reason is None:
                running.reason = StopReason.LEASE
                self._send(running.process, wire.Stop(running.job.number))
            running.kill_at = running.process.exit_by = end

    def _is_current(self, running: Running) -> bool:
        return self.running.get(running.job.number) is running

    def _attend(self) -> None:
        """Wait until something happens, hear it, and look after those that were told to go."""
        for key, _ in self._selector.select(self._patience()):
            key.data()
        now = self._clock.monotonic()
        for process in tuple(self._processes):
            if process.exit_by is not None and now >= process.exit_by:
                process.exit_by = now + EXIT_S
                process.kill()
            if process.seek_by is not None and now >= process.seek_by:
                process.seek_by = None
                self._tried(process.seeking, f"importing the handler took more than {SEEK_S:g} s")
                process.kill()
            if process.pidfd is None and process.is_zombie():
                self._bury(process)

    def _patience(self) -> float | None:
        now = self._clock.monotonic()
        ends = [end for process in self._processes for end in (process.exit_by, process.seek_by) if end is not None]
        waits = [max(0.0, end - now) for end in ends]
        if self._start_after > now:
            waits.append(self._start_after - now)
        if any(process.pidfd is None for process in self._processes):
            waits.append(POLL_S)
        return min(waits, default=None)

    def _hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._bell.recv(4096):
                pass

    # ---- starting -----------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Start processes in the background: as many as are wanted, and a few more."""
        staying = [process for process in self._processes if process.exit_by is None]
        starting = sum(not process.ready for process in staying)
        busy = len(self.running) + len(self.waiting)
        wanted = min(self._equipment.slots, busy + SPARE if any(process_handlers(self._equipment)) else max(1, busy))
        seeking = [process.seeking for process in staying if process.seeking is not None]
        if seeking and any(not sought.tried and sought.address not in seeking for sought in self.found.values()):
            wanted += 1  # the process that imports another handler may hang: one that waits to be tried gets a process all the same
        if self._cut or self._clock.monotonic() < self._start_after:
            return
        for _ in range(min(wanted - len(staying), STARTING_MAX - starting)):
            try:
                # Only what has been imported once: a module that kills its process must not keep others from being ready.
                modules = {sought.address.module for sought in self.found.values() if sought.tried and sought.error is None}
                first = introduction(self._equipment, modules)
                process = spawn(self._equipment.lock_fd)
            except (OSError, ValueError, InvalidHandler) as error:
                self._false_start(f"handler process could not be started: {error}")
                return
            self._processes.add(process)
            self._watch(process)
            process.send(first)
            if self._lease is not None:
                process.send(self._lease)

    def _watch(self, process: Process) -> None:
        self._selector.register(process.sock, selectors.EVENT_READ, lambda: self._serve(process))
        if process.pidfd is not None:
            self._selector.register(process.pidfd, selectors.EVENT_READ, lambda: self._bury(process))

    def _false_start(self, error: str) -> None:
        self._false_starts += 1
        self._start_after = self._clock.monotonic() + PAUSE_S
        if self._false_starts < FALSE_STARTS:
            return
        # Nothing says that the next one will live: those who wait get an answer, and later ones another try.
        while self.waiting:
            with contextlib.suppress(IndexError):
                job = self.waiting.popleft()
                self._equipment.sink.ended(Ended(job, Crashed(error), self._clock.now(), 0.0))

    # ---- giving -------------------------------------------------------------------------------------------

    def _give(self) -> None:
        while self.idle and self.waiting and len(self.running) < self._equipment.slots and not (self._closed or self._cut):
            try:
                job = self.waiting.popleft()
            except IndexError:
                return
            address = self._address(job)
            if isinstance(address, Failed):
                self._equipment.sink.ended(Ended(job, address, self._clock.now(), 0.0))
                continue
            process = self.idle.pop()
            process.running = job.number
            self.running[job.number] = Running(job, process, self._clock.monotonic())
            rules = self._addresses[job.job_type][0].rules
            self._send(process, wire.Start(job, address, self._clock.now(), rules, len(self._equipment.middleware)))

    def _find(self) -> None:
        """Have idle processes import what is sought. One that dies of it leaves it untried, for the next: see `_bury`."""
        for sought in self.found.values():
            if not self.idle or self._closed or self._cut:
                return
            if not sought.tried and not any(process.seeking == sought.address for process in self._processes):
                process = self.idle.pop()
                process.seeking, process.seek_by = sought.address, self._clock.monotonic() + SEEK_S
                self._send(process, wire.Find(sought.address))

    def _tried(self, address: Address | None, error: str | None) -> None:
        """Note that a handler was imported, or why no other process is to try."""
        for sought in self.found.values():
            if sought.address == address:
                sought.tried, sought.error = True, error

    def _address(self, job: Claimed) -> Address | Failed:
        handler = self._equipment.handlers.get(job.job_type)
        if handler is None:
            return unknown(job)
        known = self._addresses.get(job.job_type)
        if known is not None and known[0] is handler:
            return known[1]
        try:
            check_importable(handler)
        except InvalidHandler as error:
            return Failed(str(error), permanent=True)
        address = locate(handler.function)
        self._addresses[job.job_type] = (handler, address)
        return address

    def _send(self, process: Process, message: wire.ToChild) -> None:
        process.send(message)
        self._await_room(process)

    def _await_room(self, process: Process) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if process.unsent else 0)
        with contextlib.suppress(KeyError):
            key = self._selector.get_key(process.sock)
            if key.events != events:
                self._selector.modify(process.sock, events, key.data)

    # ---- hearing ------------------------------------------------------------------------------------------

    def _serve(self, process: Process) -> None:
        if process.unsent:
            process.push()
            self._await_room(process)
        if not self._hear(process):
            self._bury(process)

    def _hear(self, process: Process) -> bool:
        """Take what a process has said; False if it will say no more."""
        messages, open_still = process.receive()
        for message in messages:
            self._take(process, message)
        return open_still

    def _take(self, process: Process, message: wire.FromChild) -> None:
        match message:
            case wire.Ready():
                process.ready = True
                self._false_starts, self._start_after = 0, 0.0
                self.idle.append(process)
            case wire.Found(address=address, error=error):
                process.seeking = process.seek_by = None
                self.idle.append(process)
                self._tried(address, error)
            case wire.Started(number=number):
                if running := self.running.get(number):
                    running.started = self._clock.monotonic()
                    running.entered = True
            case wire.Lapsed():
                running = None if process.running is None else self.running.get(process.running)
                if running is not None and running.reason is None:
                    running.reason = StopReason.LEASE
            case wire.Note(report=report, ticket=ticket):
                self._pass_on(process, report, ticket)
            case wire.Asked():
                self._ask(process, message)
            case wire.Done():
                self._finish(process, message)

    def _pass_on(self, process: Process, report: Report, ticket: int | None) -> None:
        """Pass a report on; one with a ticket is a checkpoint, whose process is told when it is written."""
        if ticket is None:
            if report.number in self.running:
                self._equipment.sink.report(report)
            return

        def answer(receipt: Receipt) -> None:
            self.post(lambda: self._answer(process, wire.Kept(ticket, receipt)))

        if report.number in self.running:
            self._equipment.sink.keep(report, answer)
        else:
            answer(Receipt.REFUSED)

    def _ask(self, process: Process, asked: wire.Asked) -> None:
        """Pass a request on; its process is told the reply."""

        def replied(reply: Reply) -> None:
            self.post(lambda: self._answer(process, wire.Replied(asked.ticket, reply)))

        running = self.running.get(asked.number)
        if running is None:
            replied(Reply(lost=True))
        else:
            self._equipment.sink.ask(running.job, asked.request, replied)

    def _answer(self, process: Process, message: wire.Kept | wire.Replied) -> None:
        if process in self._processes:
            self._send(process, message)

    def _finish(self, process: Process, done: wire.Done) -> None:
        running = self.running.get(done.number)
        if running is None:
            return
        if running.reason is not None:
            # Asked to stop: its programs may still run, so the whole group goes, and the end is told when it has.
            running.done = done
            process.kill()
            return
        process.running = None
        process.jobs += 1
        if process.jobs < self._equipment.settings.process_jobs_max:
            self.idle.append(process)
        else:
            self._dismiss(process)
        self._end(running, wire.unpack_outcome(done), at=done.at, seconds=done.seconds, path=done.log_path)

    def _end(self, running: Running, outcome: Outcome, *, at: int, seconds: float, path: str | None) -> None:
        if self.running.pop(running.job.number, None) is not None:
            self._equipment.sink.ended(Ended(running.job, outcome, at, seconds, path))

    # ---- ending -------------------------------------------------------------------------------------------

    def _dismiss(self, process: Process) -> None:
        process.exit_by = self._clock.monotonic() + EXIT_S
        self._send(process, wire.Exit())

    def _bury(self, process: Process) -> None:
        """Reap a process that is gone, with what is left of its group, and say what became of its job."""
        if process not in self._processes:
            return
        self._processes.discard(process)
        self._hear(process)
        self._selector.unregister(process.sock)
        if process.pidfd is not None:
            self._selector.unregister(process.pidfd)
        if process in self.idle:
            self.idle.remove(process)
        code = process.reap()
        running = None if process.running is None else self.running.get(process.running)
        if running is not None:
            self._mourn(running, code)
        elif process.seeking is not None:
            # After several deaths no other is to try.
            for sought in self.found.values():
                if sought.address == process.seeking and not sought.tried:
                    sought.deaths += 1
                    if sought.deaths >= FALSE_STARTS:
                        sought.tried, sought.error = True, f"handler process died: {describe_exit(code)}"
        elif not process.ready and process.exit_by is None:
            self._false_start(f"handler process died before it was ready: {describe_exit(code)}")

    def _mourn(self, running: Running, code: int) -> None:
        done, job = running.done, running.job
        if done is not None:
            outcome = settle(job, wire.unpack_outcome(done), reason=running.reason, reached=done.reached, seconds=done.seconds)
            self._end(running, outcome, at=done.at, seconds=done.seconds, path=done.log_path)
            return
        if not running.entered and running.reason is None:
            # Its process died idle, before it could take the job.
            if self.released:
                self._end(running, Released(), at=self._clock.now(), seconds=0.0, path=None)
            elif self.running.pop(job.number, None) is not None:
                self.waiting.appendleft(job)
            return
        crash, reason = f"handler process died: {describe_exit(code)}", running.reason
        outcome = Crashed(crash, code) if reason is None else forced(reason, job.timeout)
        seconds = self._clock.monotonic() - running.started
        path = None if self._equipment.log_dir is None else log_path(self._equipment.log_dir, job.run_id)
        left = path if path is not None and os.path.exists(path) else None  # noqa: PTH110 - see `log_path`
        self._end(running, outcome, at=self._clock.now(), seconds=seconds, path=left)

    def _end_all(self) -> None:
        for process in tuple(self._processes):
            if process.running is None and process.ready:
                self._dismiss(process)
            else:
                process.exit_by = self._clock.monotonic()
                process.kill()
        while self._processes:
            self._attend()
