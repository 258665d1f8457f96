"""Handlers that take too long, at module level so that a handler process can import them."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path


def on_a_thread(marker: str) -> None:
    Path(marker).touch()
    time.sleep(3)


async def on_the_loop(marker: str) -> None:
    Path(marker).touch()  # noqa: ASYNC240 - one small file, in a test
    await asyncio.sleep(1000)


def in_a_process(marker: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(marker).write_text(str(child.pid))
    time.sleep(1000)
