"""A program with a worker of its own whose handlers no other process can import: they are inside a function. Argument: concurrency."""

import os
import signal
import sys
import threading
import time

import limits  # noqa: F401 - ends this program after a while, whatever happens
from jobs import PATIENCE_S, record, wait_for

from rota import Context, Rota


def main() -> None:
    rota = Rota(os.environ["FAULTS_DB"])

    @rota.job()
    def work(ctx: Context, ms: float = 0):
        record(ctx)
        time.sleep(ms / 1000)

    @rota.job(timeout=0)
    def hold(ctx: Context, gate: str):
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

    def introduce() -> None:
        while not rota._session.drivers:
            time.sleep(0.005)
        print("registered", rota._session.drivers[0].worker.id, flush=True)

    threading.Thread(target=introduce, daemon=True).start()
    rota.run(concurrency=int(sys.argv[1]))


if __name__ == "__main__":
    main()
