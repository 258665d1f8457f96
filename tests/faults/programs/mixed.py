"""An application for `rota worker --app mixed:rota`: jobs of every kind. ROTA_TEST_LEAK_BYTES: what each of them leaks in its worker."""

import asyncio
import os
import time

import limits  # noqa: F401 - ends this program after a while, whatever happens

from rota import Backoff, Context, Retry, Rota

rota = Rota(os.environ["FAULTS_DB"])
SOON = Backoff(base=0.001, jitter=0)
LEAK_BYTES = int(os.environ.get("ROTA_TEST_LEAK_BYTES", "0"))
leaked: list[bytes] = []


def leak() -> None:
    if LEAK_BYTES:
        leaked.append(b"x" * LEAK_BYTES)


@rota.job
def returns(text: str) -> str:
    leak()
    return text


@rota.job
def reports(ctx: Context, text: str) -> None:
    leak()
    for step in range(3):
        ctx.log.info("step %d of %s", step, text)
        ctx.progress(step * 30, text)
    ctx.checkpoint({"text": text})


@rota.job(max_retries=2, backoff=SOON)
def fails_once(ctx: Context, text: str) -> str:
    leak()
    if ctx.attempt == 1:
        raise ValueError(text)
    return text


@rota.job(max_retries=1, backoff=SOON)
def fails(text: str) -> None:
    leak()
    raise Retry(text)


@rota.job(timeout=0.02, max_retries=0)
def late(ctx: Context) -> None:
    leak()
    while True:
        time.sleep(0.002)
        ctx.checkpoint()


@rota.job
async def awaits(ctx: Context, text: str) -> str:
    leak()
    ctx.log.info("waiting")
    await asyncio.sleep(0)
    return text


@rota.job(timeout=0.02, max_retries=0)
async def awaits_late() -> None:
    leak()
    await asyncio.sleep(3600)


@rota.job(executor="process")
def apart(ctx: Context, text: str) -> str:
    print("printed", text)
    ctx.progress(50, text)
    return text


@rota.job(executor="process", max_retries=0)
def fails_apart(text: str) -> None:
    raise ValueError(text)


@rota.job(executor="process", timeout=0.05, max_retries=0)
def late_apart() -> None:
    time.sleep(3600)
