"""Uses a Rota, forks, and uses it on both sides. Argument: which story. Prints `child …` and `parent …` lines."""

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

import limits  # noqa: F401 - ends this program after a while, whatever happens
from jobs import rota

from rota import enqueue_async
from rota.waits import wait_async

LOCKS = Path(os.environ["FAULTS_LOCKS"])


def say(*words: object) -> None:
    """One write to a line: both sides speak into the same file."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def in_child(story) -> int:
    """Fork; the child tells its story and leaves by the door that programs leave by."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        story()
        code = 0
    finally:
        if code:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
    sys.exit(0)


def join(pid: int, within: float = 15.0) -> None:
    say("exit", reap(pid, within))


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
            say("accepted", rota.enqueue("work").id)

    rota.enqueue("work")
    pid = in_child(story)
    for _ in range(60):
        say("accepted", rota.enqueue("work").id)
    join(pid)
    say("accepted", rota.enqueue("work").id)
    rota.close()


def awaited_on_both_sides() -> None:
    """Fork while the parent's watcher and its pool of calls have threads, which the child does not have."""

    async def one(name: str, turn: bool) -> None:
        job = await enqueue_async(rota, "work")
        say("accepted", job.id)
        waits = asyncio.gather(*(wait_async(rota._session, None, job.id, 20) for _ in range(5)))
        await asyncio.sleep(0.1)
        if turn:
            rota.turn()
        say(name, *{str(run.status) for run in await waits})

    def story():
        asyncio.run(one("child", turn=True))

    awaiting = threading.Thread(target=asyncio.run, args=(one("parent", turn=False),))
    awaiting.start()
    while rota._session.watcher is None or not rota._session.watcher._waiters:
        time.sleep(0.005)
    with rota.running():
        join(in_child(story))
        awaiting.join()
    rota.close()


def imports_of_a_worker() -> None:
    """Say what is imported by threads other than this one, from the start of a worker to its end: a fork at that moment hangs the child."""

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if threading.current_thread() is not threading.main_thread():
                say("imported", name)

    sys.meta_path.insert(0, Finder())
    with rota.running():
        rota.wait(rota.enqueue("work").id, timeout=20)


def worker_in_parent() -> None:
    def story():
        say("accepted", rota.enqueue("work").id)

    with rota.running(concurrency=2):
        rota.wait(rota.enqueue("work").id, timeout=20)
        join(in_child(story))
        rota.wait(rota.enqueue("work").id, timeout=20)
        while rota.store.stats().by_status.get("COMPLETED") != 3:
            time.sleep(0.01)
        say("workers", len(rota.workers.list()))


def worker_in_child() -> None:
    def story():
        with rota.running(concurrency=2):
            rota.wait(rota.enqueue("work").id, timeout=20)
            say("workers", len(rota.workers.list()))

    rota.enqueue("work")
    join(in_child(story))
    say("left", len(rota.workers.list()))


def turn_on_both_sides() -> None:
    def story():
        rota.turn()  # before anything else: this is where a parent's worker would be used by mistake
        say("child", rota.jobs.get(second.id).status, rota.jobs.get(second.id).worker_id)
        rota.close()

    first = rota.enqueue("work")
    rota.turn()
    say("parent", rota.jobs.get(first.id).status, rota.jobs.get(first.id).worker_id)
    second = rota.enqueue("work")
    join(in_child(story))
    third = rota.enqueue("work")
    rota.turn()
    say("after", rota.jobs.get(third.id).status, rota.jobs.get(third.id).worker_id)
    rota.close()


def child_closes_at_once() -> None:
    def story():
        rota.close()

    with rota.running(concurrency=2) as running:
        [before] = running.workers.list()
        join(in_child(story))
        say("same", [each.id for each in rota.workers.list()] == [before.id])
        say("ended", rota.wait(rota.enqueue("work").id, timeout=20).status)


def child_closes_the_callers_sign() -> None:
    """The parent has shown a sign of life as a caller of direct(): it is not the child's to take back."""

    def story():
        rota.close()

    rota.jobs.direct("work", timeout=10)
    [mine] = [each.id for each in rota.workers.list() if each.kind == "client"]
    join(in_child(story))
    say(
        "same",
        mine in [each.id for each in rota.workers.list()],
        (LOCKS / f"{mine.replace('-', '')}.lock").exists(),
    )
    rota.close()


def child_leaves_the_block_of_its_parent() -> None:
    """As a forked program does that ends by an exception inside `with rota.running()`."""
    pid = 0
    try:
        with rota.running(concurrency=2):
            [before] = rota.workers.list()
            pid = os.fork()
            if not pid:
                raise KeyboardInterrupt
            join(pid)
            say("same", [each.id for each in rota.workers.list()] == [before.id])
            say("ended", rota.wait(rota.enqueue("work").id, timeout=20).status)
    except KeyboardInterrupt:
        sys.exit(0)


def client_of_direct() -> None:
    """The parent has shown a sign of life as a caller of direct(); the child is another caller."""

    def story():
        say("child", rota.jobs.direct("work", timeout=10).status)
        rota.close()

    say("parent", rota.jobs.direct("work", timeout=10).status)
    [mine] = [each.id for each in rota.workers.list() if each.kind == "client"]
    join(in_child(story))
    say("same", mine in [each.id for each in rota.workers.list()], (LOCKS / f"{mine.replace('-', '')}.lock").exists())
    say("after", rota.jobs.direct("work", timeout=10).status)
    rota.close()


def child_outlives_its_parents_connection() -> None:
    """The parent closes, as it does at its end, while the child goes on: what the child accepts must stay."""
    told, tell = os.pipe()
    heard, hear = os.pipe()

    def story():
        say("accepted", rota.enqueue("work").id)
        os.write(tell, b"x")
        os.read(heard, 1)
        say("accepted", rota.enqueue("work").id)
        say("locks", sum(f" {os.getpid()} " in line for line in Path("/proc/locks").read_text().splitlines()))
        os._exit(0)

    say("accepted", rota.enqueue("work").id)
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
        say("accepted", rota.enqueue("work").id)

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
        codes.append(reap(pid, 4.0))
    stop.set()
    for thread in threads:
        thread.join()
    for code in codes:
        say("exit", code)
    rota.close()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
