"""Calls async handlers; beside `invoke`, so that asyncio is imported only where one is called."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from rota.executors.attempt import Attempt
from rota.executors.invoke import COMPLETED, arguments, checked_params, keep_result, outcome_of, show_progress, unfit
from rota.model.decide import Outcome, Stopped
from rota.model.handler import Handler
from rota.model.settings import Settings
from rota.model.signals import Cancelled
from rota.model.values import Claimed


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
        params = checked_params(handler, job)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with params, it is wrong for good
        return unfit(error, settings)
    try:
        called = handler.function(**arguments(handler, params, attempt))
        if handler.is_generator:
            await _drive(called, attempt)
            return COMPLETED
        value = await called
        return COMPLETED if value is None else keep_result(value, settings)
    except asyncio.CancelledError as error:
        return Stopped() if attempt.stopping else outcome_of(error, settings)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a task would end the loop for everyone
        return outcome_of(error, settings)


def run_to_end(handler: Handler, job: Claimed, attempt: Attempt, settings: Settings) -> Outcome:
    """Call an async handler on a loop of its own and wait for it, whether or not a loop runs here already."""

    def call() -> Outcome:
        try:
            return asyncio.run(run_async(handler, job, attempt, settings))
        except BaseException as error:  # noqa: BLE001 - a task of the handler's own raised SystemExit into the loop
            return outcome_of(error, settings)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    # A loop can't run inside a loop: the caller waits for one in another thread.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, call).result()


async def checkpoint(attempt: Attempt, state: object) -> None:
    """Keep a state for the next attempt, and wait until it is on disk. A task that is cancelled waits no longer."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the handler is over
            loop.call_soon_threadsafe(done.set)

    wait = attempt.send(state, wake)
    await done.wait()
    attempt.conclude(wait)


async def _drive(steps: AsyncGenerator[object, None], attempt: Attempt) -> None:
    """Run an async generator to its end. Asked to stop, it finds Cancelled at its yield, once."""
    told = False
    async with contextlib.aclosing(steps):
        with contextlib.suppress(StopAsyncIteration):
            step = await anext(steps)
            while True:
                show_progress(attempt, step)
                if attempt.stopping and not told:
                    told = True
                    step = await steps.athrow(Cancelled("the job was asked to stop"))
                else:
                    step = await anext(steps)
