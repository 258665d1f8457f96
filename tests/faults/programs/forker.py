"""Uses a Rota, forks, and uses it on both sides. Argument: which story. Prints `child …` and `parent …` lines."""

import os
import sys
import threading
import time
from pathlib import Path

import limits  # noqa: F401 - ends this program after a while, whatever happens
from jobs import rota


def in_child(story) -> int:
    """Fork; the child tells its story and leaves by the door that programs leave by."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        story()
        sys.stdout.flush()
        code = 0
    finally:
        if code:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
    sys.exit(0)


def join(pid: int, within: float = 15.0) -> None:
    end = time.monotonic() + within
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            print("exit", os.waitstatus_to_exitcode(status), flush=True)
            return
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    print("exit hung", flush=True)


def both_enqueue() -> None:
    def story():
        for _ in range(60):
            print("accepted", rota.enqueue("work").id)

    rota.enqueue("work")
    pid = in_child(story)
    for _ in range(60):
        print("accepted", rota.enqueue("work").id)
    join(pid)
    print("accepted", rota.enqueue("work").id, flush=True)
    rota.close()


def worker_in_parent() -> None:
    def story():
        print("accepted", rota.enqueue("work").id)

    with rota.running(concurrency=2):
        rota.wait(rota.enqueue("work").id, timeout=20)
        join(in_child(story))
        rota.wait(rota.enqueue("work").id, timeout=20)
        while rota.stats().by_status != {"COMPLETED": 3}:
            time.sleep(0.01)
        print("workers", len(rota.workers()), flush=True)


def worker_in_child() -> None:
    def story():
        with rota.running(concurrency=2):
            rota.wait(rota.enqueue("work").id, timeout=20)
            print("workers", len(rota.workers()))

    rota.enqueue("work")
    join(in_child(story))
    print("left", len(rota.workers()), flush=True)


def turn_on_both_sides() -> None:
    def story():
        job = rota.enqueue("work")
        rota.turn()
        print("child", rota.get(job.id).status, rota.get(job.id).worker_id)
        rota.close()

    first = rota.enqueue("work")
    rota.turn()
    print("parent", rota.get(first.id).status, rota.get(first.id).worker_id, flush=True)
    join(in_child(story))
    second = rota.enqueue("work")
    rota.turn()
    print("after", rota.get(second.id).status, rota.get(second.id).worker_id, flush=True)
    rota.close()


def child_closes_at_once() -> None:
    def story():
        rota.close()

    with rota.running(concurrency=2) as running:
        [before] = running.workers()
        join(in_child(story))
        print("same", [each.id for each in rota.workers()] == [before.id])
        print("ended", rota.wait(rota.enqueue("work").id, timeout=20).status, flush=True)


def child_leaves_the_block_of_its_parent() -> None:
    """As a forked program does that ends by an exception inside `with rota.running()`."""
    pid = 0
    try:
        with rota.running(concurrency=2):
            [before] = rota.workers()
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                raise KeyboardInterrupt
            join(pid)
            print("same", [each.id for each in rota.workers()] == [before.id])
            print("ended", rota.wait(rota.enqueue("work").id, timeout=20).status, flush=True)
    except KeyboardInterrupt:
        sys.exit(0)


def client_of_direct() -> None:
    """The parent has shown a sign of life as a caller of direct(); the child is another caller."""

    def story():
        print("child", rota.direct("work", timeout=10).status)
        rota.close()

    print("parent", rota.direct("work", timeout=10).status, flush=True)
    [mine] = [each.id for each in rota.workers() if each.kind == "client"]
    join(in_child(story))
    print("same", mine in [each.id for each in rota.workers()], Path(f"{rota.url}.workers", f"{mine}.lock").exists())
    print("after", rota.direct("work", timeout=10).status, flush=True)
    rota.close()


def many_threads() -> None:
    """Forks while other threads are in the middle of enqueueing: what they hold is never given back in the child."""
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            print("accepted", rota.enqueue("work").id)

    def story():
        print("accepted", rota.enqueue("work").id)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        join(in_child_raw(story), within=10.0)
    stop.set()
    for thread in threads:
        thread.join()
    rota.close()


def in_child_raw(story) -> int:
    """Fork with threads about: the child leaves at once, past the locks of the standard streams."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        job = rota.enqueue("work")
        os.write(1, f"accepted {job.id}\n".encode())
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
