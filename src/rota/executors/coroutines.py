"""Calls async handlers; beside `invoke`, so that asyncio is imported only where one is called."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from rota.executors.attempt import Attempt
from rota.executors.context import Context
from rota.executors.invoke import COMPLETED, arguments, keep_result, outcome_of, show_progress, unfit
from rota.middleware import enter
from rota.model.decide import Outcome, Stopped
from rota.model.handler import Handler
from rota.model.settings import Settings
from rota.model.signals import Cancelled
from rota.model.values import Claimed
from rota.ports.executor import Request


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
    with contextlib.ExitStack() as stack:
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: the handler is over
            loop.call_soon_threadsafe(done.set)

    return done, wake


async def _drive(steps: AsyncGenerator[object, Any], attempt: Attempt) -> None:
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
