"""Handlers of the tests of the log: importable, so that handler processes find them."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from rota import Context, Skip, Snooze


class OutOfStock(Exception):  # noqa: N818 - as an application names its own
    """An exception of the application's own."""


class UnspeakableError(Exception):
    """One whose text can't be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def out_of_stock(item: str = "tea") -> None:
    raise OutOfStock(f"no {item}\nleft")


async def out_of_stock_async() -> None:
    await asyncio.sleep(0)
    raise OutOfStock("no tea")


def speechless() -> None:
    raise UnspeakableError


def verbose() -> None:
    raise ValueError("x" * 10_000_000)


def fine() -> str:
    return "fine"


def skips() -> None:
    raise Skip("nothing to do")


def snoozes() -> None:
    raise Snooze(60, "not yet")


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def holds(ctx: Context) -> None:
    ctx.progress(1)
    while not ctx.cancelled:
        time.sleep(0.01)
    raise OutOfStock("stopped")
