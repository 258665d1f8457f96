"""Handlers of a worker that will be cut off, at module level so that handler processes find them. Each writes when it begins and ends."""

import asyncio
import os
import time
from pathlib import Path


def note(path, what):
    """One write, appended whole: what, and when, on the clock that all processes of a machine share."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, f"{what} {time.monotonic()}\n".encode())
    finally:
        os.close(fd)


def notes(path):
    """Return each note as its words and its moment."""
    text = Path(path).read_text() if Path(path).exists() else ""
    return [(line.rpartition(" ")[0], float(line.rpartition(" ")[2])) for line in text.split("\n")[:-1]]


def heedful(ctx, path):
    note(path, f"begin thread {ctx.attempt}")
    while ctx.attempt == 1 and not ctx.cancelled:
        time.sleep(0.005)
    note(path, f"end thread {ctx.attempt}")
    ctx.checkpoint()


async def awaiting(ctx, path):
    note(path, f"begin async {ctx.attempt}")
    try:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
    finally:
        note(path, f"end async {ctx.attempt}")


def apart(ctx, path):
    note(path, f"begin process {ctx.attempt}")
    while ctx.attempt == 1:
        note(path, "alive process 1")
        time.sleep(0.01)
    note(path, f"end process {ctx.attempt}")


def deaf(ctx, path, go):
    note(path, f"begin deaf {ctx.attempt}")
    while not Path(go).exists():
        time.sleep(0.005)
    note(path, f"end deaf {ctx.attempt}")
