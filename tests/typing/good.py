"""Every kind of task, used as it should be: both type checkers accept all of it, and agree on the types."""

from __future__ import annotations

import functools
import pickle
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar, assert_type

from rota import Call, Context, Handle, Job, JobFailed, JobSet, NewJob, Rota, Run, Status

P = ParamSpec("P")
R = TypeVar("R")

rota = Rota()
jobs = JobSet()


def traced(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return call


# ---- the eight kinds ------------------------------------------------------------------------------------------------


@rota.job
def greet(ctx: Context, name: str, times: int = 1) -> list[str]:
    return [f"{ctx.attempt}: {name}"] * times


@rota.job(max_retries=3, timeout="30s", queue_ttl=timedelta(hours=1), priority="high")
def plain(name: str, *, times: int = 1) -> list[str]:
    return [name] * times


@rota.job(timeout=timedelta(seconds=3))
async def fetch(ctx: Context, url: str) -> bytes:
    return url.encode()


@rota.job
async def fetch_plain(url: str) -> bytes:
    return url.encode()


@rota.job
def count(ctx: Context, n: int) -> Generator[int, None, str]:
    yield from range(n)
    return "counted"


@jobs.job(executor="process", overlap="skip", every=60)
def count_plain(n: int) -> Generator[int, None, str]:
    yield from range(n)
    return "counted"


@rota.job
async def steps(ctx: Context, n: int) -> AsyncGenerator[int, None]:
    yield n


@rota.job(name="steps.plain")
async def steps_plain(n: int) -> AsyncGenerator[int, None]:
    yield n


assert_type(greet.enqueue("Ada", times=2), Handle[list[str]])
assert_type(greet.enqueue(name="Ada").result(), list[str])
assert_type(plain.enqueue("Ada", times=2).result(timeout=10), list[str])
assert_type(fetch.enqueue("https://example.org").result(), bytes)
assert_type(fetch_plain.enqueue(url="https://example.org").result(), bytes)
assert_type(count.enqueue(1).result(), str)
assert_type(count_plain.enqueue(n=1).result(), str)
assert_type(steps.enqueue(1).result(), None)
assert_type(steps_plain.enqueue(1).result(), None)


# ---- odd functions --------------------------------------------------------------------------------------------------


@rota.job
def unannotated(to, subject="hi"):  # type: ignore[no-untyped-def]
    return to


@rota.job
def any_first(payload: Any, n: int) -> int:
    return n


@rota.job
def object_first(payload: object) -> int:
    return 1


@rota.job
def clash(name: str, priority: int, self: str, options: str, job: str) -> int:
    return priority


@rota.job
def by_name(*, to: str, cc: str | None = None) -> None: ...


@rota.job
def open_ended(to: str, **rest: int) -> int:
    return sum(rest.values())


@rota.job
@traced
def decorated(a: int) -> str:
    return str(a)


class Box:
    @staticmethod
    @rota.job
    def boxed(x: int) -> int:
        return x


def later(x: int) -> int:
    return x


unannotated.enqueue("a", subject="b")
assert_type(any_first.enqueue({}, 1).result(), int)
assert_type(object_first.enqueue(payload={}).result(), int)
assert_type(clash.enqueue(name="a", priority=1, self="s", options="o", job="j").result(), int)
assert_type(clash.enqueue("a", 1, "s", "o", "j").result(), int)
assert_type(by_name.enqueue(to="a").result(), None)
assert_type(open_ended.enqueue("a", first=1, second=2).result(), int)
assert_type(decorated.enqueue(1).result(), str)
assert_type(Box.boxed.enqueue(1).result(), int)
assert_type(rota.job(later, name="later").enqueue(x=1).result(), int)
assert_type(rota.job(name="again", max_retries=0)(later).enqueue(1).result(), int)


# ---- options, calls, handles ----------------------------------------------------------------------------------------

urgent = greet.options(priority="high", run_at=timedelta(minutes=5), unique_key="ada", timeout="5m", queue_ttl=timedelta(hours=1))
assert_type(urgent.enqueue("Ada").result(), list[str])
assert_type(greet.options(run_at=datetime.now(UTC), transaction=object()).acting_as("ada").enqueue("Ada"), Handle[list[str]])
assert_type(greet.options(depends_on=[greet.enqueue("Ada")]).enqueue("Bob").existing, bool)
assert_type(greet.bind("Ada"), Call[list[str]])
assert_type(rota.enqueue(greet.bind("Ada"), priority="low"), Handle[list[str]])
assert_type(rota.enqueue(greet, {"name": "Ada"}), Handle[list[str]])
assert_type(rota.enqueue("greet", {"name": "Ada"}, unique_key="k", timeout="5m"), Handle[Any])
assert_type(greet.handle("JOB-2026-00042").result(), list[str])
rota.enqueue_many(greet.bind(name) for name in "abc")
rota.enqueue_many([greet.bind("a"), ("greet", {"name": "b"}), NewJob(name="greet", params={"name": "c"})])
rota.group([greet.bind("a"), plain.bind("b"), greet.enqueue("c")])
rota.schedule("daily", greet.bind("Ada"), cron="0 9 * * *", timezone="Europe/Berlin")
rota.schedule("hourly", count, every="1h", params={"n": 1})
rota.include(jobs, prefix="mail.")

handle = greet.enqueue("Ada")
assert_type(handle.id, str)
assert_type(handle.number, str)
assert_type(handle.status(), Status)
assert_type(handle.run(), Run | None)
assert_type(handle.cancel(reason="no longer needed"), Job)
assert_type(rota.wait(handle, timeout=3), Run)
assert_type(rota.wait(handle.id), Run)
assert_type(rota.wait(rota.enqueue("greet", {"name": "Ada"})), Run)
rota.jobs.cancel(handle)
pickle.dumps(handle)
pickle.dumps(greet)
try:
    handle.result()
except JobFailed as error:
    print(error.job.number, error.run.error, error.traceback)


async def main() -> None:
    assert_type(await fetch.enqueue_async("https://example.org"), Handle[bytes])
    assert_type(await greet.enqueue("Ada").result_async(timeout=3), list[str])
    assert_type(await fetch_plain("https://example.org"), bytes)


@dataclass
class Line:
    amount: int


@rota.job
def invoice(number: str) -> Line:
    return Line(len(number))


@rota.job
def total(ctx: Context, first: str) -> int:
    assert_type(ctx.results(), Iterator[Any])
    assert_type(ctx.results(invoice), Iterator[Line])
    assert_type(ctx.results(invoice.options(priority="high")), Iterator[Line])
    assert_type(ctx.results(invoice.handle(first)), Iterator[Line])
    assert_type(ctx.results(greet), Iterator[list[str]])
    assert_type(ctx.results(fetch), Iterator[bytes])
    assert_type(ctx.results(count), Iterator[str])
    assert_type(ctx.results(rota.enqueue("greet", {"name": "Ada"})), Iterator[Any])
    assert_type(next(ctx.results(invoice.handle(first)), None), Line | None)
    return sum(line.amount for line in ctx.results(invoice))


@rota.job
async def total_async(ctx: Context, first: str) -> int:
    assert_type(ctx.results_async(), AsyncIterator[Any])
    assert_type(ctx.results_async(fetch_plain), AsyncIterator[bytes])
    assert_type([line async for line in ctx.results_async(invoice.handle(first))], list[Line])
    return sum([line.amount async for line in ctx.results_async(invoice)])


def use(ctx: Context) -> None:
    assert_type(greet(ctx, "Ada"), list[str])
    assert_type(plain("Ada", times=2), list[str])
    assert_type(count(ctx, 1), Generator[Any, Any, str])
    assert_type(steps_plain(1), AsyncGenerator[Any, Any])
    assert_type(Box.boxed(1), int)
