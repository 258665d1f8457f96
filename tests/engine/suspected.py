"""Handlers that were not declared for processes, and that a process can import."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from rota import Context


def plain(ctx: Context, folder: str):
    ctx.progress(40, "nearly half")
    ctx.log.info("in process %d", os.getpid())
    ctx.artifact("report.pdf")
    state = ctx.resumed_from
    ctx.checkpoint({"seen": ctx.attempt})
    return {"pid": os.getpid(), "attempt": ctx.attempt, "state": state, "folder": folder}


async def awaited(ctx: Context, folder: str):
    await asyncio.sleep(0)
    return plain(ctx, folder)


def stepwise(ctx: Context, folder: str):
    yield 10
    result = plain(ctx, folder)
    yield 90, "nearly done"
    return result


def _enter(folder: str) -> None:
    Path(folder, "entered").touch()


def endless(ctx: Context, folder: str):
    _enter(folder)
    while True:
        time.sleep(0.01)


async def endless_awaited(ctx: Context, folder: str):
    _enter(folder)
    await asyncio.sleep(3600)


def kills_its_process(folder: str):
    os._exit(7)


def quick():
    return os.getpid()


HANDLERS = {
    "thread": (plain, endless),
    "inline": (plain, endless),
    "async": (awaited, endless_awaited),
    "steps": (stepwise, endless),
    "process": (plain, endless),
}
