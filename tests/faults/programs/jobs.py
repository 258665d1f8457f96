"""Handlers that leave a trace of each entry in an append-only file, and the Rota they belong to."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from rota import Backoff, Context, Rota, TransientError

rota = Rota(os.environ["FAULTS_DB"])
_executed = os.environ["FAULTS_EXECUTED"]
QUICK = Backoff(base=0.02, factor=1.0, jitter=0.0)
PATIENCE_S = 50.0


def record(ctx: Context) -> None:
    """One write, appended whole: job, chain, process."""
    fd = os.open(_executed, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, f"{ctx.job.job_id} {ctx.job.root_id} {os.getpid()}\n".encode())
    finally:
        os.close(fd)


def wait_for(gate: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not Path(gate).exists():
        if time.monotonic() > end:
            raise TimeoutError(gate)
        time.sleep(0.005)


@rota.job(backoff=QUICK)
def work(ctx: Context, ms: float = 0):
    record(ctx)
    if ms:
        time.sleep(ms / 1000)


@rota.job(backoff=QUICK)
def flaky(ctx: Context):
    record(ctx)
    if ctx.attempt == 1:
        raise TransientError("the first time it never works")


@rota.job(backoff=QUICK, timeout=0)
def hold(ctx: Context, gate: str):
    record(ctx)
    wait_for(gate)


@rota.job(max_retries=0, timeout=0)
def once(ctx: Context, gate: str):
    record(ctx)
    wait_for(gate)


@rota.job(backoff=QUICK, timeout=0)
def forks(ctx: Context, gate: str):
    """Leaves a copy of its worker's process behind, as multiprocessing does, which outlives both."""
    if not os.fork():
        signal.alarm(20)
        Path(f"{gate}.copy").write_text(f"{os.getpid()}\n")
        while not Path(f"{gate}.end").exists():
            time.sleep(0.01)
        os._exit(0)
    record(ctx)
    wait_for(gate)


@rota.job(max_crashes=3)
def poison(ctx: Context):
    record(ctx)
    os._exit(13)


@rota.job(max_crashes=3)
def suicide(ctx: Context):
    record(ctx)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(PATIENCE_S)


@rota.job
def talk(ctx: Context):
    """Leaves a log."""
    record(ctx)
    ctx.log.info("a secret")


if os.environ.get("FAULTS_APART"):
    # Where a handler runs in a process, each worker starts some ahead: only tests that need them pay for them.

    @rota.job(executor="process", backoff=QUICK)
    def apart(ctx: Context, ms: float = 0):
        record(ctx)
        time.sleep(ms / 1000)

    @rota.job(backoff=QUICK, timeout=0, executor="process")
    def hold_apart(ctx: Context, gate: str):
        record(ctx)
        wait_for(gate)
