"""Tasks of a program of its own, at the module level, so that handler processes and pickle find them by name."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import ParamSpec, TypeVar

from rota import Backoff, Context, JobSet, PermanentError, Rota

P = ParamSpec("P")
R = TypeVar("R")

rota = Rota("never-used.db")  # tests give it a store: rota.url
mail = JobSet()


def shouting(function: Callable[P, str]) -> Callable[P, str]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> str:
        return function(*args, **kwargs).upper()

    return call


@rota.job
def plain(name: str, times: int = 1) -> list[str]:
    return [name] * times


@rota.job
def with_ctx(ctx: Context, name: str, times: int = 1) -> list[str]:
    return [f"{ctx.attempt}:{name}"] * times


@rota.job(executor="inline")
def inline(ctx: Context, name: str) -> str:
    return f"{ctx.attempt}:{name}"


@rota.job
async def awaited(name: str, times: int = 1) -> str:
    return name * times


@rota.job
async def awaited_ctx(ctx: Context, name: str) -> str:
    return f"{ctx.attempt}:{name}"


@rota.job
def counted(n: int) -> Generator[int, None, str]:
    yield 50
    return f"counted {n}"


@rota.job
def counted_ctx(ctx: Context, n: int) -> Generator[int, None, str]:
    yield 50
    return f"{ctx.attempt}: counted {n}"


@rota.job
async def steps(n: int) -> AsyncGenerator[int, None]:
    yield n


@rota.job
async def steps_ctx(ctx: Context, n: int) -> AsyncGenerator[int, None]:
    yield n + ctx.attempt


@rota.job(executor="process")
def apart(name: str, times: int = 1) -> list[str]:
    return [name] * times


@rota.job(executor="process")
def apart_ctx(ctx: Context, name: str) -> str:
    return f"{ctx.attempt}:{name}"


@rota.job(executor="process")
async def apart_awaited(ctx: Context, name: str) -> str:
    return f"{ctx.attempt}:{name}"


@rota.job(executor="process")
@shouting
def apart_decorated(name: str) -> str:
    return name


@rota.job
def odd(name: str, priority: int, self: str, options: str, job: str, **rest: int) -> list[object]:
    return [name, priority, self, options, job, rest]


@rota.job(max_retries=0)
def fails(times: int = 1) -> int:
    raise PermanentError(f"no luck, {times} times")


@rota.job(max_retries=3, backoff=Backoff(base=0, jitter=0))
def fails_first(ctx: Context) -> int:
    if ctx.attempt < 3:
        raise ConnectionError("no line")
    return ctx.attempt


@shouting
@rota.job
def under_a_decorator(name: str) -> str:
    return name


class Box:
    @staticmethod
    @rota.job(executor="process")
    def boxed(x: int) -> int:
        return x + 1


@mail.job(executor="process")
def send(to: str) -> str:
    return f"sent to {to}"
