"""A worker of one version of a program, which also enqueues jobs for its own version. Arguments: the version, and how many of each job."""

import os
import sys
import threading
import time

import limits  # noqa: F401 - ends this program after a while, whatever happens

from rota import Rota

rota = Rota(os.environ["FAULTS_DB"])
version, count = sys.argv[1], int(sys.argv[2])

if version == "old":

    @rota.job(max_retries=0)
    def added(a: int) -> str:
        return f"old {a}"

    @rota.job(max_retries=0)
    def removed(a: int, b: int) -> str:
        return f"old {a} {b}"

    @rota.job(max_retries=0)
    def renamed(a: int) -> str:
        return f"old {a}"

    calls = [call for n in range(count) for call in (added.bind(n), removed.bind(n, n), renamed.bind(n))]
else:

    @rota.job(max_retries=0)
    def added(a: int, b: int) -> str:
        return f"new {a} {b}"

    @rota.job(max_retries=0)
    def removed(a: int) -> str:
        return f"new {a}"

    @rota.job(max_retries=0)
    def renamed(c: int) -> str:
        return f"new {c}"

    calls = [call for n in range(count) for call in (added.bind(n, n), removed.bind(n), renamed.bind(n))]


def introduce() -> None:
    while not rota._session.drivers:
        time.sleep(0.005)
    print("started", flush=True)
    for call in calls:
        rota.enqueue(call)
    print("enqueued", flush=True)


if __name__ == "__main__":
    threading.Thread(target=introduce, daemon=True).start()
    rota.run(concurrency=4)
    print("home", flush=True)
