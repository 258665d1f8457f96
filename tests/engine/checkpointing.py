"""Handlers that leave a state behind, at module level so that a handler process can import them."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from rota import Cancelled, Context

HANG_S = 60.0


def keep(ctx: Context, then: str, marker: str = "") -> object:
    """Keep a state in the first attempt only, then do what is asked; a later attempt returns what it was given."""
    if ctx.attempt > 1:
        return _later(ctx, then)
    ctx.checkpoint({"page": 3})
    if marker:
        Path(marker).touch()
    if then == "hang":
        time.sleep(HANG_S)
    raise ConnectionError("the source went away")


async def keep_async(ctx: Context, then: str, marker: str = "") -> object:
    if ctx.attempt > 1:
        return _later(ctx, then)
    ctx.checkpoint({"page": 3})
    if marker:
        Path(marker).touch()  # noqa: ASYNC240 - one small file, in a test
    if then == "hang":
        await asyncio.sleep(HANG_S)
    raise ConnectionError("the source went away")


def _later(ctx: Context, then: str) -> object:
    if then == "fail twice" and ctx.attempt == 2:
        raise ConnectionError("and again, before any state was kept")
    return ctx.resumed_from


def keep_too_much(ctx: Context) -> None:
    ctx.checkpoint("x" * 2000)


async def keep_too_much_async(ctx: Context) -> None:
    ctx.checkpoint("x" * 2000)


def show(ctx: Context, go: str) -> None:
    ctx.progress(40, "four of ten")
    ctx.checkpoint(4)
    while not Path(go).exists():
        time.sleep(0.005)
    ctx.progress(41)
    ctx.progress(100, "done")


async def show_async(ctx: Context, go: str) -> None:
    ctx.progress(40, "four of ten")
    ctx.checkpoint(4)
    while not Path(go).exists():  # noqa: ASYNC110, ASYNC240 - another thread makes the file
        await asyncio.sleep(0.005)
    ctx.progress(41)
    ctx.progress(100, "done")


def look(ctx: Context, marker: str) -> None:
    """Stop where it looks, as a handler on a thread must."""
    Path(marker).touch()
    while True:
        ctx.checkpoint()
        time.sleep(0.005)


async def look_async(ctx: Context, marker: str) -> None:
    Path(marker).touch()  # noqa: ASYNC240 - one small file, in a test
    while True:
        ctx.checkpoint()
        await asyncio.sleep(0.005)


def fail_when_asked(ctx: Context, marker: str) -> None:
    """Fail in the very instant of being asked to stop."""
    Path(marker).touch()
    with suppress(Cancelled):
        while not ctx.cancelled:
            time.sleep(0.002)
    raise RuntimeError("in that very instant")


async def fail_when_asked_async(ctx: Context, marker: str) -> None:
    Path(marker).touch()  # noqa: ASYNC240 - one small file, in a test
    with suppress(asyncio.CancelledError):
        while not ctx.cancelled:  # noqa: ASYNC110 - that is what a handler does
            await asyncio.sleep(0.002)
    raise RuntimeError("in that very instant")


def finish_when_asked(ctx: Context, marker: str) -> str:
    Path(marker).touch()
    with suppress(Cancelled):
        while not ctx.cancelled:
            time.sleep(0.002)
    return "finished first"


async def finish_when_asked_async(ctx: Context, marker: str) -> str:
    Path(marker).touch()  # noqa: ASYNC240 - one small file, in a test
    with suppress(asyncio.CancelledError):
        while not ctx.cancelled:  # noqa: ASYNC110 - that is what a handler does
            await asyncio.sleep(0.002)
    return "finished first"
