"""Handlers that enqueue and read results through their Context, at module level so that a handler process can import them."""

import asyncio
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import apsw

from rota import Cancelled, Context, PermanentError, Rota
from rota.errors import RotaError


def seen(database: str) -> list[str]:
    """Return the types of the jobs that another program sees in the file."""
    with closing(apsw.Connection(database)) as file:
        file.set_busy_timeout(20_000)
        return [row[0] for row in file.execute("SELECT job_type FROM jobs ORDER BY number")]


def enqueue(ctx: Context, database: str) -> list[object]:
    job = ctx.enqueue("other", {"text": "ä"}, priority="high", meta={"from": ctx.root_id}, run_at=timedelta(hours=1))
    return [job.id, job.number, str(job.status), seen(database)]


async def enqueue_async(ctx: Context, database: str) -> list[object]:
    job = await ctx.enqueue_async("other", {"text": "ä"}, priority="high", meta={"from": ctx.root_id}, run_at=timedelta(hours=1))
    return [job.id, job.number, str(job.status), seen(database)]


async def enqueue_blocking(ctx: Context, database: str) -> list[object]:
    return enqueue(ctx, database)


def chained(ctx: Context, moment: str) -> str:
    """Enqueue a job, and another that depends on it."""
    first = ctx.enqueue("other", run_at=datetime.fromisoformat(moment))
    return ctx.enqueue("other", depends_on=[first], on_parent_failure="run").id


def refused(ctx: Context, name: str = "other", params: object = None, options: dict | None = None) -> list[object]:
    try:
        ctx.enqueue(name, params, **(options or {}))
    except RotaError as error:
        return [type(error).__name__, str(error), {member: getattr(error, member) for member in error.members}]
    return ["nothing"]


async def refused_async(ctx: Context, name: str = "other", params: object = None, options: dict | None = None) -> list[object]:
    try:
        await ctx.enqueue_async(name, params, **(options or {}))
    except RotaError as error:
        return [type(error).__name__, str(error), {member: getattr(error, member) for member in error.members}]
    return ["nothing"]


async def refused_blocking(ctx: Context, name: str = "other", params: object = None, options: dict | None = None) -> list[object]:
    return refused(ctx, name, params, options)


def unfit(ctx: Context) -> str:
    try:
        ctx.enqueue("other", {"text": {1j}})
    except RotaError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def results(ctx: Context) -> list[object]:
    return list(ctx.results())


async def results_async(ctx: Context) -> list[object]:
    return [result async for result in ctx.results_async()]


async def results_blocking(ctx: Context) -> list[object]:
    await asyncio.sleep(0)
    return list(ctx.results())


@dataclass
class Part:
    """Something that has a JSON form of its own."""

    name: str
    price: Decimal
    made: date | None = None


app = Rota("never-opened.db")
"""Its tasks are module-level names, which a handler process imports."""


@app.job(max_retries=0)
def build(name: str) -> Part:
    if name == "broken":
        raise PermanentError("no such part")
    return Part(name, Decimal("1.50"), date(2026, 3, 1))


@app.job(max_retries=0)
def measure(width: int) -> int | None:
    return width or None


@app.job
def typed(ctx: Context, one: str) -> list[str]:
    parts = [f"{part.name} {part.price * 2} {part.made:%d.%m.}" for part in ctx.results(build)]
    picked = [f"{part.name} {part.price}" for part in ctx.results(build.handle(one))]
    return [*parts, *picked, *map(str, ctx.results(measure))]


@app.job
async def typed_async(ctx: Context, one: str) -> list[str]:
    parts = [f"{part.name} {part.price * 2} {part.made:%d.%m.}" async for part in ctx.results_async(build)]
    picked = [f"{part.name} {part.price}" async for part in ctx.results_async(build.handle(one))]
    return [*parts, *picked, *[str(width) async for width in ctx.results_async(measure)]]


@app.job
async def typed_blocking(ctx: Context, one: str) -> list[str]:
    await asyncio.sleep(0)
    return typed(ctx, one)


def meta(ctx: Context) -> list[object]:
    try:
        ctx.meta["x"] = 1  # type: ignore[index]
    except TypeError as error:
        return [dict(ctx.meta), str(error)]
    return [dict(ctx.meta)]


async def meta_async(ctx: Context) -> list[object]:
    return meta(ctx)


meta_blocking = meta_async


def inside_a_transaction(ctx: Context, database: str) -> str:
    with closing(Rota(database)) as rota, rota.transaction():
        try:
            ctx.enqueue("other")
        except RotaError as error:
            return f"{type(error).__name__}: {error}"
    return "it was taken"


def gives(value: object = None) -> object:
    return value


def sums(ctx: Context) -> int:
    """Add up the results of a group without holding them all."""
    return sum(ctx.results())  # type: ignore[arg-type]


def wait_for_it(ctx: Context, folder: str) -> None:
    """Say that the wait begins, and how it ended."""
    (Path(folder) / "waits").touch()
    while not (Path(folder) / "go").exists():
        time.sleep(0.01)
    try:
        ctx.enqueue("other")
    except Cancelled as error:
        (Path(folder) / "over").write_text(str(error))
        raise
    (Path(folder) / "over").write_text("enqueued")
