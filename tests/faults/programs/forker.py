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
    print("exit", reap(pid, within), flush=True)


def reap(pid: int, within: float) -> object:
    end = time.monotonic() + within
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hung"


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
        while rota.stats().by_status.get("COMPLETED") != 3:
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
        rota.turn()  # before anything else: this is where a parent's worker would be used by mistake
        print("child", rota.get(second.id).status, rota.get(second.id).worker_id)
        rota.close()

    first = rota.enqueue("work")
    rota.turn()
    print("parent", rota.get(first.id).status, rota.get(first.id).worker_id, flush=True)
    second = rota.enqueue("work")
    join(in_child(story))
    third = rota.enqueue("work")
    rota.turn()
    print("after", rota.get(third.id).status, rota.get(third.id).worker_id, flush=True)
    rota.close()


def child_closes_at_once() -> None:
    def story():
        rota.close()

    with rota.running(concurrency=2) as running:
        [before] = running.workers()
        join(in_child(story))
        print("same", [each.id for each in rota.workers()] == [before.id])
        print("ended", rota.wait(rota.enqueue("work").id, timeout=20).status, flush=True)


def child_closes_the_callers_sign() -> None:
    """The parent has shown a sign of life as a caller of direct(): it is not the child's to take back."""

    def story():
        rota.close()

    rota.direct("work", timeout=10)
    [mine] = [each.id for each in rota.workers() if each.kind == "client"]
    join(in_child(story))
    print(
        "same",
        mine in [each.id for each in rota.workers()],
        Path(f"{rota.url}.workers", f"{mine.replace('-', '')}.lock").exists(),
        flush=True,
    )
    rota.close()


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
    print("same", mine in [each.id for each in rota.workers()], Path(f"{rota.url}.workers", f"{mine.replace('-', '')}.lock").exists())
    print("after", rota.direct("work", timeout=10).status, flush=True)
    rota.close()


def child_outlives_its_parents_connection() -> None:
    """The parent closes, as it does at its end, while the child goes on: what the child accepts must stay."""
    told, tell = os.pipe()
    heard, hear = os.pipe()

    def story():
        print("accepted", rota.enqueue("work").id)
        os.write(tell, b"x")
        os.read(heard, 1)
        print("accepted", rota.enqueue("work").id)
        print("locks", sum(f" {os.getpid()} " in line for line in Path("/proc/locks").read_text().splitlines()), flush=True)
        os._exit(0)

    print("accepted", rota.enqueue("work").id)
    pid = in_child(story)
    os.read(told, 1)
    rota.close()
    os.write(hear, b"x")
    join(pid)


def many_threads() -> None:
    """Forks while other threads are in the middle of enqueueing: what they hold is never given back in the child."""
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            rota.enqueue("work")

    def story():
        os.write(1, f"accepted {rota.enqueue('work').id}\n".encode())

    rota.enqueue("work")
    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = []
    while len(codes) < 15 and "hung" not in codes:
        pid = os.fork()
        if not pid:
            # With threads about, the child leaves at once, past the locks of the standard streams.
            try:
                story()
            finally:
                os._exit(0)
        codes.append(reap(pid, 5.0))
    stop.set()
    for thread in threads:
        thread.join()
    for code in codes:
        print("exit", code, flush=True)
    rota.close()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
