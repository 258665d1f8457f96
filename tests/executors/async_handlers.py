"""The same handlers as coroutines."""

import asyncio
import contextlib
import sys
import time
from pathlib import Path

from rota.executors.context import Context
from rota.executors.invoke import inside_handler
from rota.model.signals import Cancelled, PermanentError, Retry, Skip, Snooze
from tests.executors.handlers import HastySnooze, HttpError, MuteError, RudeError, Unusual, fork_and_wait, mark, touch


async def wait_for(path):
    while not exists(path):  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.002)


def exists(path):
    return Path(path).exists()


async def nothing():
    pass


async def give(value):
    await asyncio.sleep(0)
    return value


async def add(a, b=10):
    return a + b


async def fail(message="boom"):
    await asyncio.sleep(0)
    raise RuntimeError(message)


async def fail_for_good():
    raise PermanentError("no such account")


async def fail_http(status):
    raise HttpError(status)


async def retry(after=None):
    raise Retry("later", after=after)


async def snooze(seconds):
    raise Snooze(seconds)


async def snooze_for_ever():
    raise Snooze(float("inf"))


async def skip(reason):
    raise Skip(reason)


async def say_cancelled():
    raise Cancelled("enough")


async def leave(code=3):
    sys.exit(code)


async def press_ctrl_c():
    raise KeyboardInterrupt


async def raise_unusual():
    raise Unusual("from below")


async def give_nan():
    return {"ok": 1, "rate": float("nan")}


async def give_object():
    return object()


async def give_much(size):
    return "x" * size


async def surrogate():
    raise RuntimeError("bad \udc80 text")


async def unprintable():
    raise MuteError


async def rude():
    raise RudeError


async def snooze_without_end():
    raise HastySnooze


async def steps():
    yield 10
    await asyncio.sleep(0)
    yield 20, "a fifth"
    yield 15, "never back"
    yield 60


async def bad_steps():
    yield "half"


async def endless_steps(started):
    touch(started)
    while True:
        yield 1
        await asyncio.sleep(0.005)


async def identify(ctx: Context, **rest):
    return {
        "attempt": ctx.attempt,
        "root_id": ctx.root_id,
        "run_id": ctx.run_id,
        "params": ctx.params,
        "resumed": ctx.resumed_from,
        "number": ctx.job.number,
        "cancelled": ctx.cancelled,
    }


async def talk(ctx: Context):
    ctx.log.info("copied %d of %d", 3, 7)
    ctx.log.debug("percent %% stays")
    ctx.log.warning("wrong %d", "format")
    try:
        raise ValueError("inner")
    except ValueError:
        ctx.log.exception("it broke")
    ctx.log.error("done")


async def babble(ctx: Context, lines):
    for number in range(lines):
        ctx.log.info("line %d %s", number, "x" * 80)


async def report(ctx: Context):
    ctx.artifact("/tmp/report.pdf")
    ctx.checkpoint({"page": 3})
    for pct in (-5, 10, 5, 40, 300):
        ctx.progress(pct)


async def report_twice(ctx: Context, then):
    ctx.progress(1)
    ctx.progress(2, "second")
    await wait_for(then)


async def is_inside():
    return inside_handler() and await asyncio.to_thread(inside_handler)


async def until_cancelled(ctx: Context, started):
    touch(started)
    while True:
        ctx.checkpoint()
        await asyncio.sleep(0.002)


async def until_cancelled_then_return(ctx: Context, started):
    touch(started)
    with contextlib.suppress(asyncio.CancelledError):
        while not ctx.cancelled:  # noqa: ASYNC110 - that is what a handler does
            await asyncio.sleep(0.002)
    return "finished anyway"


async def until_cancelled_then_fail(ctx: Context, started):
    touch(started)
    with contextlib.suppress(asyncio.CancelledError):
        while not ctx.cancelled:  # noqa: ASYNC110 - that is what a handler does
            await asyncio.sleep(0.002)
    raise RuntimeError("in that very instant")


async def until_file(started, go, mark=None):
    touch(started)
    await wait_for(go)
    if mark is not None:
        touch(mark)
    return "late"


async def stubborn(started, go):
    touch(started)
    while True:
        try:
            await wait_for(go)
            return "stubborn"
        except asyncio.CancelledError:
            pass


async def tidy(started, tidied):
    touch(started)
    try:
        await asyncio.sleep(60)
    finally:
        touch(tidied)


async def block_the_loop(started, go):
    touch(started)
    while not exists(go):
        time.sleep(0.002)  # noqa: ASYNC251 - this is what it is about
    return "late"


async def cancel_itself():
    raise asyncio.CancelledError


async def stop_the_loop():
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


async def leave_a_poisoned_task():
    async def poison():
        sys.exit(9)

    task = asyncio.create_task(poison())
    await asyncio.sleep(0.01)
    with contextlib.suppress(BaseException):
        task.exception()


async def fork_and_return():
    return fork_and_wait()


async def make_mark(path):
    mark(path)


async def tidy_after_checkpoint(ctx: Context, tidied):
    try:
        await ctx.checkpoint_async(1)
    finally:
        await asyncio.sleep(0.2)
        touch(tidied)
