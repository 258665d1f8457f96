"""Run a worker with a schedule that is due every second, until it is terminated: python scheduled_worker.py STORE."""

from __future__ import annotations

import signal
import sys
import threading

from rota import Rota


def main(where: str) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    rota = Rota(where)

    @rota.job(name="tick")
    def tick() -> None: ...

    rota.schedule("ticks", "tick", every=1)
    with rota.running(concurrency=1):
        sys.stdout.write("up\n")
        sys.stdout.flush()
        stopped.wait(300)
    rota.close()


main(sys.argv[1])
