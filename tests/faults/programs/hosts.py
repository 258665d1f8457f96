"""A worker of one machine among several: handlers of every kind that write when they begin, while they live and when they end.

What they write goes to one file that all machines of the test share, with moments of the clock that these share too. FAULTS_CLOCK_S
says how wrong this machine's own clock is.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from pathlib import Path

import limits  # noqa: F401 - ends this program after a while, whatever happens

from rota import Backoff, Context, Rota
from rota.ports.clock import SystemClock

_error_us = round(float(os.environ.get("FAULTS_CLOCK_S", "0")) * 1_000_000)
SystemClock.now = lambda self: time.time_ns() // 1000 + _error_us

rota = Rota(os.environ["FAULTS_DB"])
QUICK = Backoff(base=0.02, factor=1.0, jitter=0.0)
LOOK_S = 0.01


def note(what: str, ctx: Context) -> None:
    """One write, appended whole: what, which job, which attempt, which machine, when."""
    fd = os.open(os.environ["FAULTS_EXECUTED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        line = f"{what} {ctx.job.job_type} {ctx.attempt} {os.environ['FAULTS_HOST']} {time.monotonic()} {os.getpid()}\n"
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def runs_on(ctx: Context) -> bool:
    """Whether this attempt is the first, and so goes on until it is stopped, or its gate is there."""
    return ctx.attempt == 1 and not Path(ctx.params["gate"]).exists()


@rota.job(backoff=QUICK, timeout=0)
def heedful(ctx: Context, gate: str):
    note("begin", ctx)
    while runs_on(ctx) and not ctx.cancelled:
        note("alive", ctx)
        time.sleep(LOOK_S)
    ctx.checkpoint()
    note("end", ctx)


@rota.job(backoff=QUICK, timeout=0)
async def awaiting(ctx: Context, gate: str):
    note("begin", ctx)
    while runs_on(ctx):
        note("alive", ctx)
        await asyncio.sleep(LOOK_S)
    note("end", ctx)


@rota.job(backoff=QUICK, timeout=0, executor="process")
def apart(ctx: Context, gate: str):
    note("begin", ctx)
    while runs_on(ctx):
        note("alive", ctx)
        time.sleep(LOOK_S)
    note("end", ctx)


@rota.job(backoff=QUICK, timeout=0)
def deaf(ctx: Context, gate: str):
    note("begin", ctx)
    while runs_on(ctx):
        note("alive", ctx)
        time.sleep(LOOK_S)
    note("end", ctx)


@rota.job(backoff=QUICK)
def quick(ctx: Context, gate: str = ""):
    note("begin", ctx)


def introduce() -> None:
    while not rota._session.drivers:
        time.sleep(0.005)
    print("pid", os.getpid(), flush=True)
    print("registered", rota._session.drivers[0].worker.id, flush=True)


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)
    threading.Thread(target=introduce, daemon=True).start()
    rota.run(concurrency=int(sys.argv[1]))
    print("home", flush=True)
