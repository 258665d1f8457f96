"""A tour of what jobs can do, made to be watched: rota up --app examples.tour:rota --demo.

Then, in another terminal: rota stats, rota job list, rota job explain 42, rota job cancel 42, rota pause, rota schedule list.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import time
from datetime import timedelta

from rota import Backoff, Context, PermanentError, Rota, Skip

rota = Rota()
turns = itertools.count()


@rota.job
def greet(name: str) -> str:
    """Return at once: what comes back is kept as the result of the run."""
    return f"Hello, {name}"


@rota.job(timeout=60)
def resize_images(ctx: Context, count: int) -> dict[str, int]:
    """Take some seconds, say how far it is, and stop when asked to."""
    for done in range(count):
        ctx.checkpoint()
        ctx.progress(100 * done / count, f"image {done + 1} of {count}")
        time.sleep(0.2)
    ctx.log.info("%d images resized", count)
    return {"images": count}


@rota.job(max_retries=3, backoff=Backoff(base=3, factor=2, jitter=0.2))
def call_partner(ctx: Context, order: int) -> str:
    """Fail now and then; each attempt is a job of its own, and the next one comes after a short backoff."""
    time.sleep(0.3)
    if ctx.attempt < 3 and order % 3:
        raise ConnectionError("partner.example.org refused the connection")
    if order % 7 == 6:
        raise PermanentError(f"order {order} is not known to the partner")
    return f"order {order} was taken at attempt {ctx.attempt}"


@rota.job
async def fetch_rates() -> float:
    """Wait without a thread: many of these share one event loop."""
    await asyncio.sleep(1.5)
    rate = round(random.uniform(1.05, 1.15), 4)  # noqa: S311 - an example's weather
    if rate < 1.06:
        raise Skip("the market is closed")
    return rate


@rota.job(executor="process", timeout=20)
def count_primes(ctx: Context, below: int) -> int:
    """Compute in a process of its own, which shares no interpreter and can be killed."""
    ctx.log.info("counting in process %d", os.getpid())
    found = 0
    for number in range(2, below):
        found += all(number % divisor for divisor in range(2, int(number**0.5) + 1))
        if number % 2000 == 0:
            ctx.progress(100 * number / below, f"{found} so far")
    return found


@rota.job(every="10s", max_retries=0)
def check_disk(ctx: Context) -> float:
    """Run every ten seconds, whether anybody enqueues something or not: the decorator declares the schedule."""
    usage = shutil.disk_usage(".")
    free = round(100 * usage.free / usage.total, 1)
    ctx.log.info("%.1f percent of the disk are free", free)
    return free


@rota.job(cron="* * * * *", timezone="Europe/Berlin", overlap="queue", default_params={"kind": "short"})
def minute_report(kind: str) -> str:
    """Run on every full minute, with the params that its template has for all of its jobs."""
    time.sleep(0.5)
    return f"a {kind} report"


@rota.job(priority="low")
def extract(table: str) -> str:
    """Be the first step of a group: the next one waits for this."""
    time.sleep(1.5)
    return table


@rota.job(priority="low")
def load(ctx: Context, table: str) -> str:
    """Be the second step."""
    for step in range(10):
        ctx.progress(10 * step, f"{table}, part {step + 1}")
        time.sleep(0.25)
    return f"{table} loaded"


def demo(rota: Rota) -> None:
    """Enqueue a little of everything. `rota up --demo` calls this every few seconds."""
    turn = next(turns)
    names = ("Ada", "Grace", "Edsger", "Barbara", "Tony")
    rota.enqueue_many(greet.bind(name) for name in names[: 1 + turn % 5])
    call_partner.enqueue(turn)
    resize_images.options(priority="high").enqueue(count=25 + 10 * (turn % 3))
    fetch_rates.options(unique_key="rates", run_at=timedelta(seconds=2)).enqueue()
    if turn % 3 == 0:
        count_primes.enqueue(below=400_000)
    if turn % 4 == 1:
        rota.group([extract.bind("orders"), load.bind("orders")], mode="sequential", name="nightly orders")
