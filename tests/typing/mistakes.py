"""Mistakes, planted: both type checkers must report every line that is marked, and no other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from datetime import timedelta

from rota import Call, Context, Handle, JobSet, Rota

rota = Rota()
jobs = JobSet()


@rota.job
def greet(ctx: Context, name: str, times: int = 1) -> list[str]:
    return [name] * times


@rota.job(max_retries=3)
def plain(name: str, *, times: int = 1) -> list[str]:
    return [name] * times


@rota.job
async def fetch(ctx: Context, url: str) -> bytes:
    return url.encode()


@rota.job
async def fetch_plain(url: str) -> bytes:
    return url.encode()


@rota.job
def count(ctx: Context, n: int) -> Generator[int, None, str]:
    yield n
    return "counted"


@jobs.job(priority="low")
def count_plain(n: int) -> Generator[int, None, str]:
    yield n
    return "counted"


@rota.job
async def steps(ctx: Context, n: int) -> AsyncGenerator[int, None]:
    yield n


@rota.job
async def steps_plain(n: int) -> AsyncGenerator[int, None]:
    yield n


@rota.job
def clash(name: str, priority: int, self: str, options: str) -> int:
    return priority


@rota.job
def open_ended(to: str, **rest: int) -> None: ...


class Box:
    @staticmethod
    @rota.job
    def boxed(x: int) -> int:
        return x


# ---- arguments ------------------------------------------------------------------------------------------------------
greet.enqueue(3)  # mistake: a number for a text
greet.enqueue("Ada", times="2")  # mistake: a text for a number
greet.enqueue(nam="Ada")  # mistake: a misspelt parameter
greet.enqueue()  # mistake: a missing argument
greet.enqueue("a", 1, 2)  # mistake: an argument too many
greet.enqueue("a", name="b")  # mistake: the same parameter twice
greet.enqueue("a", priority="high")  # mistake: an option among the arguments
greet.bind(name=3)  # mistake: a number for a text
greet.bind()  # mistake: a missing argument
plain.enqueue("a", 2)  # mistake: a keyword-only parameter by place
fetch.enqueue(1)  # mistake: a number for a text
fetch_plain.enqueue(ur="x")  # mistake: a misspelt parameter
count.enqueue("x")  # mistake: a text for a number
count_plain.enqueue("x")  # mistake: a text for a number
steps.enqueue("x")  # mistake: a text for a number
steps_plain.enqueue("x")  # mistake: a text for a number
Box.boxed.enqueue("x")  # mistake: a text for a number
clash.enqueue(name=1, priority=1, self="s", options="o")  # mistake: a number for a text
open_ended.enqueue("a", first="x")  # mistake: a text for a number

# ---- calls of the function itself -----------------------------------------------------------------------------------
greet("Ada")  # mistake: the Context is missing
plain(3)  # mistake: a number for a text
plain("a").upper()  # mistake: a list is not a text

# ---- options of one job ---------------------------------------------------------------------------------------------
greet.options(priority="hihg")  # mistake: a misspelt priority
greet.options(priorty="high")  # mistake: a misspelt option
greet.options(run_at="5m")  # mistake: a text for a moment
greet.options(unique_key=3).enqueue("x")  # mistake: a number for a text
greet.options(timeout=object())  # mistake: an object for a span
greet.options(on_parent_failure="ignore")  # mistake: a rule that does not exist
greet.options(name="x")  # mistake: an argument among the options
greet.options("high")  # mistake: an option without its name
greet.options(priority="high").enqueue(3)  # mistake: a number for a text, after options
greet.acting_as("ada").enqueue(3)  # mistake: a number for a text, after acting_as
greet.acting_as(3)  # mistake: a number for a user

# ---- results and handles --------------------------------------------------------------------------------------------
number: int = greet.enqueue("x").result()  # mistake: a list is not a number
pages: str = fetch.enqueue("x").result()  # mistake: bytes are not a text
word: int = count.enqueue(1).result()  # mistake: the result of a generator is what it returns
nothing: int = steps.enqueue(1).result()  # mistake: an async generator has no result
held: Handle[int] = greet.enqueue("x")  # mistake: a handle of another result
call: Call[int] = greet.bind("x")  # mistake: a call of another result
greet.enqueue("x").resultt()  # mistake: a misspelt verb
greet.enqueue("x").status.ended  # mistake: status is called
greet.enqueue("x").result(timeout="soon")  # mistake: a text for seconds
greet.handle(3)  # mistake: a number for an id


def read(ctx: Context) -> None:
    number: int = next(ctx.results(greet))  # mistake: a list is not a number
    sum(ctx.results(plain))  # mistake: lists are not numbers
    next(ctx.results(count.handle("x"))).decode()  # mistake: a text is not bytes
    ctx.results(fetch.enqueue("x")).upper()  # mistake: an iterator is not a text
    ctx.results("greet")  # mistake: a name for a task
    ctx.results(greet.bind("x"))  # mistake: a call is not a job
    ctx.results(greet, plain)  # mistake: two tasks
    ctx.resultss(greet)  # mistake: a misspelt verb
    print(number)


async def read_later(ctx: Context) -> None:
    async for page in ctx.results_async(fetch):
        page.encode()  # mistake: bytes are not a text
    for line in ctx.results_async(greet):  # mistake: an async iterator in a plain loop
        print(line)


# ---- the application ------------------------------------------------------------------------------------------------
rota.enqueue(3)  # mistake: a number for a name
rota.enqueue(greet.bind("a")).resultt()  # mistake: a misspelt verb
rota.enqueue(greet.bind("a"), priority="hihg")  # mistake: a misspelt priority
rota.enqueue(greet.bind("a"), {"name": "b"})  # mistake: params beside those of a call
rota.enqueue("greet", {"name": "a"}, unique_keyy="k")  # mistake: a misspelt option
rota.enqueue("greet", {"name": "a"}, run_at=5)  # mistake: a number for a moment
rota.wait("x").resultt  # mistake: a misspelt field
rota.wait(timeout=timedelta(1))  # mistake: no job
rota.wait(greet)  # mistake: a task is not a job
rota.schedule("x", greet.bind(name=3), cron="0 9 * * *")  # mistake: a number for a text
rota.schedule("x", greet.bind("a"), crom="0 9 * * *")  # mistake: a misspelt option
rota.schedule("x", 3, cron="0 9 * * *")  # mistake: a number for a task
rota.include([jobs])  # mistake: a list for a set
rota.include(jobs, prefx="mail.")  # mistake: a misspelt option


# ---- decorators -----------------------------------------------------------------------------------------------------
@rota.job(max_retires=3)  # mistake: a misspelt option
def first() -> None: ...


@rota.job(timeout=object())  # mistake: an object for a span
def second() -> None: ...


@rota.job(executor="threads")  # mistake: an executor that does not exist
def third() -> None: ...


@rota.job(priority="urgent")  # mistake: a priority that does not exist
def fourth() -> None: ...


@jobs.job(max_retries="3")  # mistake: a text for a number
def fifth() -> None: ...


@rota.job("sixth")  # mistake: a name without name=
def sixth() -> None: ...


async def late() -> None:
    later: str = await fetch.enqueue("x").result_async()  # mistake: bytes are not a text
    await greet.enqueue_async(3)  # mistake: a number for a text
    fetch_plain("x").decode()  # mistake: a coroutine that is not awaited
    print(later)
