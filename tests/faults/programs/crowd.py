"""A crowd that enqueues the same thing at the same moment: one thread for each call.

Arguments: how they are the same (key, params or limit), number of calls, file to wait for. Says `ready`, then a line for
each call: `made`, `found` or `refused`, and the id of the job.
"""

import os
import sys
import threading
import time
from pathlib import Path

import limits  # noqa: F401 - ends this program after a while, whatever happens
from jobs import rota

from rota.errors import DuplicateJob, RateLimited

rota.job(name="unrepeated", dedup_window=3600)(lambda n=0: None)
rota.job(name="few", submit_limit="100/1h")(lambda n=0: None)

CALLS = {
    "key": lambda: rota.enqueue("work", {}, unique_key="the only one"),
    "params": lambda: rota.enqueue("unrepeated", {"n": 7}),
    "limit": lambda: rota.enqueue("few"),
}


def call(how: str, start: threading.Barrier, said: list[str]) -> None:
    start.wait()
    try:
        job = CALLS[how]()
        said.append(f"{'found' if job.existing else 'made'} {job.id}")
    except DuplicateJob as error:
        said.append(f"refused {error.job_id}")
    except RateLimited as error:
        said.append(f"refused {error.retry_after_s}")


def main() -> None:
    how, count, gate = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    rota.enqueue("work", {})
    said: list[str] = []
    start = threading.Barrier(count)
    threads = [threading.Thread(target=call, args=(how, start, said)) for _ in range(count - 1)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    while not gate.exists():
        time.sleep(0.001)
    call(how, start, said)
    for thread in threads:
        thread.join()
    os.write(1, "".join(f"{line}\n" for line in said).encode())
    print("end", flush=True)


if __name__ == "__main__":
    main()
