"""Runs async handlers as tasks of one event loop, in one thread.

The loop's thread starts tasks and hears them end; the engine's thread decides when one is over its time. Whoever pops a
job's number from `_running` reports its end, so a task that swallowed its cancellation can be given up from outside.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread

from rota.executors.attempt import Attempt
from rota.executors.copies import end_copy
from rota.executors.coroutines import run_async
from rota.executors.invoke import enter_handlers, outcome_of, unknown
from rota.executors.settle import forced, settle
from rota.executors.waiting import is_late, take_all, take_one
from rota.model.decide import Outcome, Released, Stopped
from rota.model.values import Claimed
from rota.ports.executor import Ended, Equipment, Readiness, StopReason

CLOSE_S = 0.5
"""How long `close` waits for the loop to end; a handler that blocks it is left behind."""


class _Running:
    """One task and what is wished of it."""

    __slots__ = ("attempt", "give_up_at", "job", "reached", "reason", "started", "task")

    def __init__(self, job: Claimed, attempt: Attempt, started: float) -> None:
        self.job = job
        self.attempt = attempt
        self.started = started
        self.task: asyncio.Task[Outcome] | None = None
        self.reason: StopReason | None = None
        self.reached = False
        self.give_up_at: float | None = None


class AsyncExecutor:
    """At most `slots` tasks at once. A timeout cancels the task, and gives it up after `timeout_grace`."""

    def __init__(self, equipment: Equipment) -> None:
        """Start nothing yet."""
        self._equipment = equipment
        self._clock = equipment.clock
        self._waiting: deque[Claimed] = deque()
        self._running: dict[int, _Running] = {}
        self._tasks: dict[int, _Running] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._closed = self._cut = False
        self._pid = os.getpid()

    def submit(self, jobs: Sequence[Claimed]) -> None:
        """Hand these to the loop with one call."""
        self._waiting.extend(jobs)
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = Thread(target=self._live, args=(self._loop,), name="rota-async", daemon=True)
            self._thread.start()
        self._post(self._fill)

    def readiness(self, job_type: str) -> Readiness:  # noqa: ARG002 - every handler alike
        """Say whether a slot is free."""
        return Readiness.NOW if self.occupied() + len(self._waiting) < self._equipment.slots else Readiness.LATER

    def occupied(self) -> int:
        """Return how many tasks have not returned, those given up included."""
        return len(self._tasks)

    def given_up(self) -> int:
        """Return how many tasks were given up and have not returned."""
        return len(self._tasks.keys() - self._running.keys())

    def cancel(self, number: int) -> None:
        """Drop a waiting job, or cancel its task."""
        job = take_one(self._waiting, number)
        # Found or not: the loop may have come by meanwhile, and seen nothing waiting.
        self._post(self._fill)
        if job is not None:
            self._equipment.sink.ended(Ended(job, Stopped(), self._clock.now(), 0.0))
        else:
            # The loop may be about to start it: what is posted comes after.
            self._post(lambda: self._cancel(number))

    def tick(self, monotonic: float) -> float | None:
        """Cancel tasks over their timeout, give up those past their grace, pass on progress that was held back."""
        moments: list[float] = []
        for running in tuple(self._running.values()):
            if (due := running.attempt.flush(monotonic)) is not None:
                moments.append(due)
            deadline = running.started + running.job.timeout if running.job.timeout > 0 else None
            if running.give_up_at is None and deadline is not None and monotonic >= deadline:
                self._stop(running, StopReason.TIMEOUT, monotonic + self._equipment.settings.timeout_grace)
            if running.give_up_at is not None and monotonic >= running.give_up_at:
                self._give_up(running, monotonic)
            else:
                moments += [moment for moment in (running.give_up_at or deadline,) if moment is not None]
        return min(moments, default=None)

    def release(self) -> list[Claimed]:
        """Give back what the loop has not started."""
        return take_all(self._waiting)

    def interrupt(self) -> None:
        """Cancel every task; those that do not end within `kill_grace` are given up."""
        self._interrupt()
        self._post(self._interrupt)  # for those the loop was just starting

    def renew(self, until: float | None) -> None:
        """Have nothing that outlives its worker."""

    def cut(self, grace_s: float) -> None:
        """Cancel every task, and start no more; one that does not end is not given up here."""
        del grace_s
        self._cut = True
        self._stop_all()
        self._post(self._stop_all)  # for those the loop is just starting

    def close(self) -> None:
        """Cancel what is left, unheard, and stop the loop."""
        self._closed = True
        self._waiting.clear()
        self._running.clear()
        for running in tuple(self._tasks.values()):
            running.attempt.stop()  # nobody is left to answer one that waits for a checkpoint
        self._post(self._shut)
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _interrupt(self) -> None:
        give_up_at = self._clock.monotonic() + self._equipment.settings.kill_grace
        for running in tuple(self._running.values()):
            if running.give_up_at is None:
                self._stop(running, StopReason.SHUTDOWN, give_up_at)

    def _stop_all(self) -> None:
        for running in tuple(self._running.values()):
            if running.reason is None:
                self._stop(running, StopReason.LEASE, None)

    def _stop(self, running: _Running, reason: StopReason, give_up_at: float | None) -> None:
        running.reason = reason
        running.give_up_at = give_up_at
        self._post(lambda: self._reach(running))
        # The loop may be blocked by a handler that waits for a checkpoint: it must not wait for the loop. Others are cancelled there, once.
        running.attempt.stop()

    def _give_up(self, running: _Running, monotonic: float) -> None:
        if self._running.pop(running.job.number, None) is not None:
            path = running.attempt.abandon()
            outcome = forced(running.job, running.reason or StopReason.TIMEOUT)
            self._equipment.sink.ended(Ended(running.job, outcome, self._clock.now(), monotonic - running.started, path))

    def _post(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # closed
                self._loop.call_soon_threadsafe(call)

    # ---- the loop's thread --------------------------------------------------------------------------------

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._closed:
            # A handler's own tasks may raise SystemExit into the loop, or stop it; the others must go on.
            try:
                loop.run_forever()
            except BaseException:  # noqa: BLE001, S112 - it belongs to a task, which keeps it
                continue
        with suppress(BaseException):
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        self._tasks.clear()  # whoever did not heed its cancellation is not called any more

    def _fill(self) -> None:
        while len(self._tasks) < self._equipment.slots and not self._cut:
            try:
                job = self._waiting.popleft()
            except IndexError:
                return
            running = _Running(job, Attempt(job, self._equipment), self._clock.monotonic())
            self._running[job.number] = self._tasks[job.number] = running
            running.task = asyncio.get_running_loop().create_task(self._run(running))
            running.task.add_done_callback(partial(self._end, running))

    async def _run(self, running: _Running) -> Outcome:
        enter_handlers()  # in the task's own context: what is posted to a loop brings its caller's along
        handler = self._equipment.handlers.get(running.job.job_type)
        if handler is None:
            return unknown(running.job)
        if is_late(running.job, self._clock):
            return Released()
        try:
            return await run_async(handler, running.job, running.attempt, self._equipment.settings)
        finally:
            end_copy(self._pid)  # before the loop takes up the others

    def _end(self, running: _Running, task: asyncio.Task[Outcome]) -> None:
        job = running.job
        outcome = self._outcome(task)
        seconds = self._clock.monotonic() - running.started
        self._tasks.pop(job.number, None)
        if self._running.pop(job.number, None) is not None:
            reached = running.reached or isinstance(outcome, Stopped)
            outcome = settle(job, outcome, reason=running.reason, reached=reached, seconds=seconds)
            path = running.attempt.end()
            self._equipment.sink.ended(Ended(job, outcome, self._clock.now(), seconds, path))
        self._fill()

    def _outcome(self, task: asyncio.Task[Outcome]) -> Outcome:
        if task.cancelled():
            # Before its first step: it never gets to say so itself.
            return Stopped()
        # What surrounds handlers, as tracing does, may fail as well: the job ends all the same.
        error = task.exception()
        return task.result() if error is None else outcome_of(error, self._equipment.settings)

    def _reach(self, running: _Running) -> None:
        running.reached = True
        running.attempt.stop()
        if running.task is not None:
            running.task.cancel()

    def _cancel(self, number: int) -> None:
        running = self._running.get(number)
        if running is not None and running.reason is None:
            # At once: a checkpoint that returns before the wish arrives would raise Cancelled, and the task be cancelled after that.
            running.reason = StopReason.CANCEL
            self._reach(running)

    def _shut(self) -> None:
        loop = asyncio.get_running_loop()
        for running in tuple(self._tasks.values()):
            if running.task is not None:
                running.task.cancel()
        # One more round lets the cancelled tasks run their `finally`.
        loop.call_soon(loop.call_soon, loop.stop)
