"""A worker as `rota.run()` makes it: prints its id when it is registered, ends by SIGTERM. Argument: concurrency."""

import sys
import threading
import time

import limits  # noqa: F401 - ends this program after a while, whatever happens
from jobs import rota


def introduce() -> None:
    while not rota._session.drivers:
        time.sleep(0.005)
    print("registered", rota._session.drivers[0].worker.id, flush=True)


if __name__ == "__main__":
    threading.Thread(target=introduce, daemon=True).start()
    rota.run(concurrency=int(sys.argv[1]))
    print("home", flush=True)
