"""Runs async handlers as tasks of one event loop, in one thread.

The loop's thread starts tasks and hears them end; the engine's thread decides when one is over its time. Whoever pops a
job's number from `_running` reports its end, so a task that swallowed its cancellation can be given up from outside.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, suppress
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any

import msgspec

from rota.executors.attempt import Attempt
from rota.executors.context import Context
from rota.executors.invoke import COMPLETED, arguments, enter_handlers, keep_result, outcome_of, show_progress, unfit, unknown
from rota.executors.stops import end_copy, is_late, settle, take_all, take_one
from rota.middleware import enter
from rota.model.decide import Outcome, Released, Stopped
from rota.model.handler import Handler
from rota.model.settings import Settings
from rota.model.signals import Cancelled
from rota.model.values import Claimed
from rota.ports.executor import Ended, Equipment, Readiness, Request, StopReason, forced

CLOSE_S = 0.5
"""How long `close` waits for the loop to end; a handler that blocks it is left behind."""


class _Running(msgspec.Struct, eq=False):
    """One task and what is wished of it."""

    job: Claimed
    attempt: Attempt
    started: float
    task: asyncio.Task[Outcome] | None = None
    reason: StopReason | None = None
    reached: bool = False
    give_up_at: float | None = None


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
            outcome = forced(running.reason or StopReason.TIMEOUT, running.job.timeout)
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
        if task.cancelled():
            # Before its first step: it never gets to say so itself.
            outcome: Outcome = Stopped()
        else:
            # What surrounds handlers, as tracing does, may fail as well: the job ends all the same.
            error = task.exception()
            outcome = task.result() if error is None else outcome_of(error, self._equipment.settings)
        seconds = self._clock.monotonic() - running.started
        self._tasks.pop(job.number, None)
        if self._running.pop(job.number, None) is not None:
            reached = running.reached or isinstance(outcome, Stopped)
            outcome = settle(job, outcome, reason=running.reason, reached=reached, seconds=seconds)
            path = running.attempt.end()
            self._equipment.sink.ended(Ended(job, outcome, self._clock.now(), seconds, path))
        self._fill()

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


async def run_async(handler: Handler, job: Claimed, attempt: Attempt, settings: Settings) -> Outcome:
    """Await a coroutine function or drive an async generator to its end. A task cancelled on request is Stopped."""
    if settings.traces == "off":
        return await _run_async(handler, job, attempt, settings)
    from rota.executors.traces import running  # noqa: PLC0415 - OpenTelemetry, which few programs use

    with running(job) as ended:
        outcome = await _run_async(handler, job, attempt, settings)
        ended(outcome)
    return outcome


async def _run_async(handler: Handler, job: Claimed, attempt: Attempt, settings: Settings) -> Outcome:
    try:
        params = handler.codec.decode(job.params)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with params, it is wrong for good
        return unfit(error, settings)
    try:
        if attempt.middleware:
            value = await _surrounded(handler, params, attempt)
        else:
            called = handler.function(**arguments(handler, params, attempt))
            value = await _ended(called, attempt)
        return COMPLETED if value is None else keep_result(value, settings)
    except asyncio.CancelledError as error:
        return Stopped() if attempt.stopping else outcome_of(error, settings, handler.rules)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a task would end the loop for everyone
        return outcome_of(error, settings, handler.rules)


async def _ended(called: Any, attempt: Attempt) -> object:
    """Return what a call ends with: a coroutine, an async generator, or a decorator's wrapper that has waited for either itself."""
    if inspect.isasyncgen(called):
        await _drive(called, attempt)
        return None
    return await called if inspect.isawaitable(called) else called


async def _surrounded(handler: Handler, params: dict[str, object], attempt: Attempt) -> object:
    """Call an async handler inside its middleware, an async generator to its end."""
    value = None
    with ExitStack() as stack:
        enter(stack, attempt.middleware, Context(attempt, params))
        called = handler.function(**arguments(handler, params, attempt))
        value = await _ended(called, attempt)
    return value  # noqa: RET504 - still None where a middleware has suppressed the exception


def run_to_end(handler: Handler, job: Claimed, attempt: Attempt, settings: Settings) -> Outcome:
    """Call an async handler on a loop of its own and wait for it, whether or not a loop runs here already."""

    def call() -> Outcome:
        try:
            return asyncio.run(run_async(handler, job, attempt, settings))
        except BaseException as error:  # noqa: BLE001 - a task of the handler's own raised SystemExit into the loop
            return outcome_of(error, settings, handler.rules)

    try:
        asyncio.get_running_loop()
        has_loop = True
    except RuntimeError:
        has_loop = False
    if not has_loop:
        return call()  # not in the `except`: it would be the context of what the handler raises
    # A loop can't run inside a loop: the caller waits for one in another thread.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, call).result()


async def checkpoint(attempt: Attempt, state: object) -> None:
    """Keep a state for the next attempt, and wait until it is on disk. A task that is cancelled waits no longer."""
    done, wake = _bell()
    wait = attempt.send(state, wake)
    await done.wait()
    attempt.conclude(wait)


async def ask(attempt: Attempt, request: Request) -> str:
    """Ask the worker for something and return its answer. A task that is cancelled waits no longer."""
    done, wake = _bell()
    wait = attempt.begin_ask(request, wake)
    await done.wait()
    return attempt.conclude_ask(wait)


def _bell() -> tuple[asyncio.Event, Callable[[], None]]:
    """Return an event of this loop, and what sets it from any thread."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed: the handler is over
            loop.call_soon_threadsafe(done.set)

    return done, wake


async def _drive(steps: AsyncGenerator[object, Any], attempt: Attempt) -> None:
    """Run an async generator to its end. Asked to stop, it finds Cancelled at its yield, once."""
    told = False
    async with aclosing(steps):
        with suppress(StopAsyncIteration):
            step = await anext(steps)
            while True:
                show_progress(attempt, step)
                if attempt.stopping and not told:
                    told = True
                    step = await steps.athrow(Cancelled("the job was asked to stop"))
                else:
                    step = await anext(steps)
