"""Runs handlers on threads: the hot path. A job costs a few microseconds here, so nothing on it locks or waits.

How that is done: whoever pops a job from the deque owns it, and whoever pops its number from `_running` reports its
end; both pops are atomic. Threads are woken one at a time, because under one interpreter lock a second busy thread
only gets in the way of the first. A lookout wakes the others when jobs were not taken within about a millisecond, which
is what happens as soon as handlers block.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import NamedTuple

from rota.executors.attempt import Attempt
from rota.executors.invoke import enter_handlers, outcome_of, runner, unknown, wants_attempt
from rota.executors.stops import end_copy, forget_in_copies, is_late, settle, take_all, take_one
from rota.model.decide import Interrupted, Outcome, Released, Stopped, TimedOut
from rota.model.values import Claimed
from rota.ports.executor import Ended, Equipment, Readiness, StopReason

LOOK_S = 0.0007
"""How long the lookout lets woken threads try before it wakes others."""
BRISK = 16
"""Jobs taken between two looks from which on more threads would not help."""
FORGET_S = 5.0
"""How long a cancellation that found no job waits for one that is just being taken."""


class _Current(NamedTuple):
    job: Claimed
    started: float
    attempt: Attempt | None


class _Slot:
    """One thread and what it runs."""

    __slots__ = ("current", "gate")

    def __init__(self) -> None:
        self.current: _Current | None = None
        self.gate = Lock()
        self.gate.acquire()


class ThreadExecutor:
    """At most `slots` daemon threads, started on demand. A handler over its timeout is given up, not stopped."""

    def __init__(self, equipment: Equipment) -> None:
        """Start nothing yet."""
        self._equipment = equipment
        self._clock = equipment.clock
        self._waiting: deque[Claimed] = deque()
        self._running: dict[int, _Slot] = {}
        self._given_up: set[int] = set()
        self._slots: list[_Slot] = []
        self._idle: list[_Slot] = []
        self._rousing = Lock()
        self._lookout: Thread | None = None
        self._call = Event()
        self._submitted = 0
        self._asked: dict[int, float] = {}
        self._halted = self._cut = False
        self._alert = False
        """Whether a thread that took a job must look at `_asked` and `_halted`: one test instead of two."""
        self._pid = os.getpid()
        forget_in_copies(self)

    def submit(self, jobs: Sequence[Claimed]) -> None:
        """Queue these and see to it that threads take them."""
        self._submitted += len(jobs)
        self._waiting.extend(jobs)
        self._nudge()

    def readiness(self, job_type: str) -> Readiness:  # noqa: ARG002 - every handler alike
        """Say whether a slot is free."""
        return Readiness.NOW if self.occupied() + len(self._waiting) < self._equipment.slots else Readiness.LATER

    def occupied(self) -> int:
        """Return how many threads have a handler, those given up included."""
        return sum(slot.current is not None for slot in self._slots)

    def given_up(self) -> int:
        """Return how many threads have a handler that was given up."""
        return len(self._given_up)

    def cancel(self, number: int) -> None:
        """Drop a waiting job, or tell a running one through its Context."""
        job = take_one(self._waiting, number)
        # Found or not: threads that came by meanwhile saw nothing waiting, and rest.
        self._nudge()
        if job is not None:
            self._equipment.sink.ended(Ended(job, Stopped(), self._clock.now(), 0.0))
            return
        # A thread may have popped the job and not entered it yet: it looks here after entering, we look there after noting.
        self._asked[number] = self._clock.monotonic()
        self._alert = True
        slot = self._running.get(number)
        current = None if slot is None else slot.current
        if current is not None and current.job.number == number:
            self._asked.pop(number, None)
            if current.attempt is not None:
                current.attempt.stop()

    def tick(self, monotonic: float) -> float | None:
        """Give up handlers over their timeout, and pass on progress that was held back."""
        soonest: float | None = None
        for slot in self._slots:
            current = slot.current
            if current is None:
                continue
            due = None if current.attempt is None else current.attempt.flush(monotonic)
            timeout = current.job.timeout
            if timeout > 0 and current.job.number in self._running:
                if monotonic >= current.started + timeout:
                    self._give_up(current, TimedOut(timeout), monotonic)
                else:
                    due = current.started + timeout if due is None else min(due, current.started + timeout)
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        if self._asked:
            self._forget(monotonic)
        return soonest

    def release(self) -> list[Claimed]:
        """Give back what no thread has taken."""
        return take_all(self._waiting)

    def interrupt(self) -> None:
        """Give up every running handler; jobs being taken in this instant are never entered."""
        self._halted = self._alert = True
        monotonic = self._clock.monotonic()
        for slot in self._slots:
            current = slot.current
            if current is not None:
                self._give_up(current, Interrupted(), monotonic)

    def renew(self, until: float | None) -> None:
        """Have nothing that outlives its worker."""

    def cut(self, grace_s: float) -> None:
        """Tell every running handler; jobs being taken in this instant are never entered."""
        del grace_s
        self._cut = True
        self._halted = self._alert = True
        for slot in tuple(self._slots):
            current = slot.current
            if current is not None and current.attempt is not None:
                current.attempt.stop()

    def close(self) -> None:
        """Let idle threads end; those still inside a handler end with it and are not heard."""
        self.forget()
        for slot in tuple(self._slots):
            if (current := slot.current) is not None and current.attempt is not None:
                current.attempt.stop()  # nobody is left to answer one that waits for a checkpoint
        with self._rousing:
            while self._idle:
                self._idle.pop().gate.release()
        self._call.set()

    def forget(self) -> None:
        """Take up nothing more, and report nothing."""
        self._halted = self._alert = True
        self._waiting.clear()
        self._running.clear()

    def _give_up(self, current: _Current, outcome: Outcome, monotonic: float) -> None:
        # First: whoever finds its number gone looks here.
        self._given_up.add(current.job.number)
        if self._running.pop(current.job.number, None) is None:
            self._given_up.discard(current.job.number)
            return
        path = None if current.attempt is None else current.attempt.abandon()
        self._equipment.sink.ended(Ended(current.job, outcome, self._clock.now(), monotonic - current.started, path))

    def _forget(self, monotonic: float) -> None:
        for number, since in tuple(self._asked.items()):
            if monotonic - since > FORGET_S:
                self._asked.pop(number, None)
        self._alert = self._halted or bool(self._asked)

    # ---- waking -------------------------------------------------------------------------------------------

    def _nudge(self) -> None:
        if not self._waiting or self._halted or not self._spare():
            return
        horizon = self._clock.monotonic() - LOOK_S
        if not any(current.started > horizon for slot in self._slots if (current := slot.current)):
            alone = len(self._waiting) <= 1
            self._rouse(1)
            if alone:
                return  # the thread that was woken takes the only job: the lookout would be in its way
        self._call.set()
        if self._lookout is None:
            self._lookout = Thread(target=self._look_out, name="rota-lookout", daemon=True)
            self._lookout.start()

    def _spare(self) -> int:
        return len(self._idle) + self._equipment.slots - len(self._slots)

    def _rouse(self, count: int) -> None:
        with self._rousing:
            for _ in range(count):
                if self._idle:
                    self._idle.pop().gate.release()
                elif len(self._slots) < self._equipment.slots:
                    slot = _Slot()
                    self._slots.append(slot)
                    Thread(target=self._live, args=(slot,), name=f"rota-handler-{len(self._slots)}", daemon=True).start()
                else:
                    return

    def _look_out(self) -> None:
        """Wake more threads while jobs are waiting: all that are needed if each takes long, one more if they are just not brisk."""
        while not self._halted:
            self._call.wait()
            self._call.clear()
            while self._waiting and self._spare():
                before = self._submitted - len(self._waiting)
                time.sleep(LOOK_S)
                left = len(self._waiting)
                taken = self._submitted - left - before
                if taken < BRISK:
                    self._rouse(left if taken <= self.occupied() else 1)

    # ---- the threads --------------------------------------------------------------------------------------

    def _live(self, slot: _Slot) -> None:
        enter_handlers()
        while True:
            try:
                self._work(slot)
            except BaseException as error:  # noqa: BLE001 - something was raised into the thread from outside: the pool must survive it
                self._salvage(slot, error)
            else:
                end_copy(self._pid)
                return

    def _work(self, slot: _Slot) -> None:
        equipment, running, settings = self._equipment, self._running, self._equipment.settings
        handlers, ended, now, monotonic = equipment.handlers, equipment.sink.ended, self._clock.now, self._clock.monotonic
        take, enter, leave, run = self._waiting.popleft, running.__setitem__, running.pop, runner(settings)
        middleware, last, wanted = equipment.middleware, None, False
        started = monotonic()
        outcome: Outcome | None
        while True:
            try:
                job = take()
            except IndexError:
                outcome = None  # an idle thread keeps no exception alive
                if not self._rest(slot):
                    return
                started = monotonic()
                continue
            handler = handlers.get(job.job_type)
            if handler is not last:
                # Asked once for jobs of one type in a row.
                last, wanted = handler, handler is not None and (bool(middleware) or wants_attempt(handler))
            attempt = Attempt(job, equipment) if wanted else None
            slot.current = _Current(job, started, attempt)
            enter(job.number, slot)
            outcome = self._hold_back(job) if self._alert or job.start_by else None
            if outcome is None:
                outcome = unknown(job) if handler is None else run(handler, job, attempt, settings)
            finished = monotonic()
            slot.current = None
            if leave(job.number, None) is not None:
                if self._cut:
                    outcome = settle(job, outcome, reason=StopReason.LEASE, reached=True, seconds=finished - started)
                path = None if attempt is None else attempt.end()
                ended(Ended(job, outcome, now(), finished - started, path))
            else:
                self._given_up.discard(job.number)
            started = finished

    def _hold_back(self, job: Claimed) -> Outcome | None:
        """Return the outcome of a job that must not be started after all."""
        if self._asked.pop(job.number, None) is not None:
            return Stopped()
        return Released() if self._halted or is_late(job, self._clock) else None

    def _rest(self, slot: _Slot) -> bool:
        """Wait to be woken; False when the executor is closed."""
        self._idle.append(slot)
        if self._waiting or self._halted:
            # Work came, or the end, before we were seen to be idle. If somebody has woken us meanwhile, the gate is open.
            try:
                self._idle.remove(slot)
            except ValueError:
                slot.gate.acquire()
        else:
            slot.gate.acquire()
        return not self._halted or bool(self._waiting)

    def _salvage(self, slot: _Slot, error: BaseException) -> None:
        current, slot.current = slot.current, None
        if current is not None:
            self._given_up.discard(current.job.number)
        if current is not None and self._running.pop(current.job.number, None) is not None:
            path = None if current.attempt is None else current.attempt.end()
            seconds = self._clock.monotonic() - current.started
            outcome = outcome_of(error, self._equipment.settings)
            self._equipment.sink.ended(Ended(current.job, outcome, self._clock.now(), seconds, path))
