"""What open streams of live events cost: memory of the server, and speed of the queue with and without them.

    python bench/events.py                                    500 streams, SQLite, in a temporary folder
    python bench/events.py --store postgresql://…/empty       the same on PostgreSQL: a database of its own, please
    python bench/events.py --streams 2000 --jobs 50000 --rounds 5

Three processes: a server, a worker that drains no-op jobs, and this one, which holds the streams and reads them. Rounds with and without
streams take turns, so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from rota import Rota

SERVER = """
import sys, time
from rota import Rota
from rota.surfaces.http.serving import Address, Server
rota = Rota(sys.argv[1])
server = Server(rota, Address("127.0.0.1", 0))
server.start()
print(server.address.port, rota.tokens.create("bench").secret, flush=True)
sys.stdin.read()
server.stop()
rota.close()
"""
WORKER = """
import sys
from rota import Rota
rota = Rota(sys.argv[1])
@rota.job
def nothing(text=""):
    pass
rota.run()
"""
MIB = 1024 * 1024
PARAMS = {"text": "x" * 80}


class Ears:
    """Open streams that are read and forgotten."""

    def __init__(self, port: int, secret: str) -> None:
        """Take where to listen."""
        self._port = port
        self._request = f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n\r\n".encode()
        self._open: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.bytes = 0

    async def open(self, count: int) -> None:
        """Open so many more, a few at a time."""
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(self._request)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head, head
            self._open.append(writer)
            self._tasks.append(asyncio.create_task(self._read(reader)))

    async def close(self) -> None:
        """Hang up."""
        for writer in self._open:
            writer.close()
        for task in self._tasks:
            task.cancel()
        self._open, self._tasks = [], []

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(65_536):
                self.bytes += len(data)


class Drained(NamedTuple):
    """How a worker fared that was started on a full queue."""

    jobs_s: float
    cpu_us: float
    """Of the worker, for each job: what else the machine does hardly shows in it."""


async def drain(rota: Rota, url: str, jobs: int) -> Drained:
    """Fill the queue, start a worker, and wait until all is done."""
    before = rota.store.stats().by_status["COMPLETED"]
    rota.enqueue_many([("nothing", PARAMS)] * jobs)
    worker = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", WORKER, url])
    try:
        begun, done = 0.0, 0
        while done < jobs:
            done = (await asyncio.to_thread(rota.store.stats)).by_status["COMPLETED"] - before
            begun = begun or (time.perf_counter() if done else 0.0)
            await asyncio.sleep(0.05)
        cpu_s = sum(psutil.Process(worker.pid).cpu_times()[:2])
        return Drained(jobs / (time.perf_counter() - begun), cpu_s / jobs * 1e6)
    finally:
        worker.terminate()
        await asyncio.to_thread(worker.wait)


def serve(url: str) -> tuple[subprocess.Popen[str], str, str]:
    """Start a server; return it with its port and a token."""
    server = subprocess.Popen([sys.executable, "-c", SERVER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port, secret = server.stdout.readline().split()
    return server, port, secret


async def measure(options: argparse.Namespace, url: str) -> None:
    """Run rounds and print the figures."""
    rota = Rota(url)
    rota.job(name="nothing")(lambda text="": None)
    server, port, secret = await asyncio.to_thread(serve, url)
    process, ears = psutil.Process(server.pid), Ears(int(port), secret)
    speeds: dict[str, list[Drained]] = {"without": [], "with": []}
    try:
        await ears.open(1)
        await asyncio.sleep(1)
        alone = process.memory_info().rss
        for _ in range(options.rounds):
            await ears.close()
            await asyncio.sleep(6)
            speeds["without"].append(await drain(rota, url, options.jobs))
            await ears.open(options.streams)
            await asyncio.sleep(1)
            idle = process.memory_info().rss
            cpu, own, begun, read = sum(process.cpu_times()[:2]), time.process_time(), time.perf_counter(), ears.bytes
            speeds["with"].append(await drain(rota, url, options.jobs))
            took = time.perf_counter() - begun
            used = 100 * (sum(process.cpu_times()[:2]) - cpu) / took
            print(
                f"{options.streams} streams: {(idle - alone) / MIB:.1f} MB idle, {(process.memory_info().rss - alone) / MIB:.1f} MB after;"
                f" server {used:.0f} % of a core, this client {100 * (time.process_time() - own) / took:.0f} %,"
                f" {(ears.bytes - read) / took / MIB:.1f} MB/s sent",
                flush=True,
            )
        for name, found in speeds.items():
            each = ", ".join(f"{one.jobs_s:.0f}" for one in found)
            print(
                f"{name:>8} streams: {statistics.median(one.jobs_s for one in found):8.0f} jobs/s ({each});"
                f" worker {statistics.median(one.cpu_us for one in found):.1f} us of CPU a job"
            )
    finally:
        await ears.close()
        if server.stdin is not None:
            server.stdin.close()
        server.wait()
        rota.close()


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", help="a store of its own; else a SQLite file in a temporary folder")
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        asyncio.run(measure(options, options.store or str(Path(folder) / "rota.db")))


if __name__ == "__main__":
    main()
