"""A worker of a rate-limited type, whose handler writes down when it starts."""

import os
import signal
import sys
import time
from pathlib import Path

import limits  # ends this program after a while, whatever happens

from rota import Rota

if os.environ.get("ROTA_TEST_PROVE"):
    signal.alarm(4 * limits.HARD_S)

rota = Rota(os.environ["FAULTS_DB"])
RATE = sys.argv[1] if __name__ == "__main__" and len(sys.argv) > 1 else "5/1s"
STARTS = Path(os.environ["FAULTS_EXECUTED"])


def note() -> None:
    # First of all: the moment is what the test is about. All processes of a machine share this clock.
    at = time.monotonic()
    with STARTS.open("ab") as file:
        file.write(b"%.6f\n" % at)


@rota.job(rate_limit=RATE)
def thread():
    note()


@rota.job(rate_limit=RATE, executor="process")
def process():
    note()


if __name__ == "__main__":
    print("started", flush=True)
    rota.run(concurrency=8)
