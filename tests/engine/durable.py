"""Handlers that wait for their checkpoints, at module level so that a handler process can import them."""

import asyncio
import time
from contextlib import closing
from pathlib import Path

import apsw

from rota import Cancelled, Context, Rota
from rota.errors import TransactionMisuse


def kept(database: str) -> list[str]:
    """Return the checkpoints that another program sees in the file."""
    with closing(apsw.Connection(database)) as file:
        file.set_busy_timeout(20_000)
        return [row[0] for row in file.execute("SELECT checkpoint FROM job_runs WHERE checkpoint IS NOT NULL")]


def read_back(ctx: Context, database: str) -> list[str]:
    ctx.checkpoint({"page": 3})
    return kept(database)


async def read_back_async(ctx: Context, database: str) -> list[str]:
    await ctx.checkpoint_async({"page": 3})
    return kept(database)


async def read_back_blocking(ctx: Context, database: str) -> list[str]:
    ctx.checkpoint({"page": 3})
    return kept(database)


def wait_for_it(ctx: Context, folder: str) -> None:
    """Say that the wait begins, once nobody holds it up, and how it ended."""
    (Path(folder) / "waits").touch()
    while (Path(folder) / "hold").exists():
        time.sleep(0.01)
    try:
        ctx.checkpoint({"page": 3})
    except Cancelled as error:
        (Path(folder) / "over").write_text(str(error))
        raise
    (Path(folder) / "over").write_text("kept")


async def wait_for_it_async(ctx: Context, folder: str) -> None:
    (Path(folder) / "waits").touch()
    while (Path(folder) / "hold").exists():  # noqa: ASYNC110 - a file: another process waits for it too
        await asyncio.sleep(0.01)
    try:
        await ctx.checkpoint_async({"page": 3})
    except (Cancelled, asyncio.CancelledError):
        (Path(folder) / "over").write_text("the job was asked to stop")
        raise
    (Path(folder) / "over").write_text("kept")


async def wait_for_it_blocking(ctx: Context, folder: str) -> None:
    wait_for_it(ctx, folder)


def inside_a_transaction(ctx: Context, database: str) -> str:
    with closing(Rota(database)) as rota, rota.transaction():
        try:
            ctx.checkpoint({"page": 3})
        except TransactionMisuse as error:
            return str(error)
    return "it was taken"
