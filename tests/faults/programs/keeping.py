"""Handlers that keep a state and then stay where they are, on each executor, and the Rota they belong to."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from rota import Backoff, Context, Rota

rota = Rota(os.environ["FAULTS_DB"])
QUICK = Backoff(base=0.02, factor=1.0, jitter=0.0)
STAY_S = 50.0


def keep(ctx: Context, marker: str) -> object:
    if ctx.attempt > 1:
        return ctx.resumed_from
    ctx.checkpoint({"page": 3})
    Path(marker).touch()
    time.sleep(STAY_S)
    return None


async def keep_on_the_loop(ctx: Context, marker: str) -> object:
    if ctx.attempt > 1:
        return ctx.resumed_from
    ctx.checkpoint({"page": 3})
    Path(marker).touch()  # noqa: ASYNC240 - one small file, in a test
    await asyncio.sleep(STAY_S)
    return None


def keep_and_kill(ctx: Context) -> None:
    """Keep the number of the attempt, and kill the worker in the next instruction."""
    worker = os.getppid() if ctx.job.executor == "process" else os.getpid()
    ctx.checkpoint({"attempt": ctx.attempt, "before": (ctx.resumed_from or {}).get("attempt")})
    os.kill(worker, signal.SIGKILL)
    time.sleep(STAY_S)


rota.job(keep_and_kill, name="thread-kills", backoff=QUICK)
rota.job(keep_and_kill, name="process-kills", executor="process", backoff=QUICK)
rota.job(keep, name="thread", backoff=QUICK)
rota.job(keep, name="process", executor="process", backoff=QUICK)
rota.job(keep_on_the_loop, name="async", backoff=QUICK)
