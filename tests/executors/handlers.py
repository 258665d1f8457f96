"""Handlers for the executors' tests, at module level so that other processes find them."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

from rota.executors.context import Context
from rota.executors.invoke import inside_handler
from rota.model.signals import Cancelled, PermanentError, Retry, Skip, Snooze


class HttpError(Exception):
    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status_code = status


class MuteError(Exception):
    def __str__(self):
        raise ValueError("no")


class RudeError(Exception):
    def __str__(self):
        raise SystemExit("not a word")


class HastySnooze(Snooze):
    def __init__(self):
        """Forget to say for how long."""


class Unusual(BaseException):
    pass


def touch(path):
    Path(path).touch()


def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.002)


def nothing():
    pass


def give(value):
    return value


def add(a, b=10):
    return a + b


def fail(message="boom"):
    raise RuntimeError(message)


def fail_for_good():
    raise PermanentError("no such account")


def fail_http(status):
    raise HttpError(status)


def retry(after=None):
    raise Retry("later", after=after)


def snooze(seconds):
    raise Snooze(seconds)


def snooze_for_ever():
    raise Snooze(float("inf"))


def skip(reason):
    raise Skip(reason)


def say_cancelled():
    raise Cancelled("enough")


def leave(code=3):
    sys.exit(code)


def press_ctrl_c():
    raise KeyboardInterrupt


def raise_unusual():
    raise Unusual("from below")


def give_nan():
    return {"ok": 1, "rate": float("nan")}


def give_object():
    return object()


def give_much(size):
    return "x" * size


def surrogate():
    raise RuntimeError("bad \udc80 text")


def unprintable():
    raise MuteError


def rude():
    raise RudeError


def snooze_without_end():
    raise HastySnooze


def steps():
    yield 10
    yield 20, "a fifth"
    yield 15, "never back"
    yield 60
    return "over"


def bad_steps():
    yield "half"


def endless_steps(started):
    touch(started)
    while True:
        yield 1
        time.sleep(0.005)


def identify(ctx: Context, **rest):
    return {
        "attempt": ctx.attempt,
        "root_id": ctx.root_id,
        "run_id": ctx.run_id,
        "params": ctx.params,
        "resumed": ctx.resumed_from,
        "number": ctx.job.number,
        "cancelled": ctx.cancelled,
    }


def talk(ctx: Context):
    ctx.log.info("copied %d of %d", 3, 7)
    ctx.log.debug("percent %% stays")
    ctx.log.warning("wrong %d", "format")
    try:
        raise ValueError("inner")
    except ValueError:
        ctx.log.exception("it broke")
    ctx.log.error("done")


def babble(ctx: Context, lines):
    for number in range(lines):
        ctx.log.info("line %d %s", number, "x" * 80)


def report(ctx: Context):
    ctx.artifact("/tmp/report.pdf")
    ctx.checkpoint({"page": 3})
    for pct in (-5, 10, 5, 40, 300):
        ctx.progress(pct)


def report_twice(ctx: Context, then):
    ctx.progress(1)
    ctx.progress(2, "second")
    wait_for(then)


def is_inside():
    return inside_handler()


def until_cancelled(ctx: Context, started):
    touch(started)
    while True:
        ctx.checkpoint()
        time.sleep(0.002)


def until_cancelled_then_return(ctx: Context, started):
    try:
        touch(started)
        while not ctx.cancelled:
            time.sleep(0.002)
    except Cancelled:
        pass
    return "finished anyway"


def until_cancelled_then_fail(ctx: Context, started):
    try:
        touch(started)
        while not ctx.cancelled:
            time.sleep(0.002)
    except Cancelled:
        pass
    raise RuntimeError("in that very instant")


def until_file(started, go, mark=None):
    touch(started)
    wait_for(go)
    if mark is not None:
        touch(mark)
    return "late"


def stubborn(started, go):
    while True:
        try:
            touch(started)
            wait_for(go)
            return "stubborn"
        except BaseException:
            pass


def tidy(started, tidied):
    try:
        touch(started)
        time.sleep(60)
    finally:
        touch(tidied)


def start_program(pids):
    print("starting")
    program = subprocess.Popen(["sleep", "1000"])
    Path(pids).with_suffix(".part").write_text(f"{os.getpid()} {program.pid}")
    Path(pids).with_suffix(".part").rename(pids)
    program.wait()


def start_program_deaf(pids):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start_program(pids)


def start_program_and_report(ctx: Context, pids):
    program = subprocess.Popen(["sleep", "1000"])
    Path(pids).with_suffix(".part").write_text(f"{os.getpid()} {program.pid}")
    Path(pids).with_suffix(".part").rename(pids)
    while True:
        ctx.checkpoint("x" * 1000)


def kill_self(signum):
    os.kill(os.getpid(), signum)
    time.sleep(60)


def exit_hard(code):
    os._exit(code)


def print_much(ctx: Context):
    print("from print")
    ctx.log.info("from log")
    print("to stderr", file=sys.stderr)
    sys.stdout.flush()
    subprocess.run(["echo", "from a program"], check=True)
    print("no newline", end="")


def print_flood():
    for _ in range(200):
        print("y" * 1000)
    os.write(1, b"z" * 100_000)


def close_stdout():
    print("before")
    sys.stdout.close()
    os.close(1)
    raise RuntimeError("stdout is gone")


def close_stdout_and_return():
    sys.stdout.close()
    sys.stderr.close()


def read_stdin():
    return sys.stdin.read()


def pid():
    return os.getpid()


def fork_and_return():
    if os.fork() == 0:
        return "the copy"
    os.wait()
    return "the original"


def fork_and_wait():
    """As one whose copy fails to become another program does: both come back."""
    pid = fork()
    if pid:
        os.waitpid(pid, 0)
    return "the original" if pid else "the copy"


def fork():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later Pythons warn of threads
        return os.fork()


def mark(path):
    with Path(path).open("a") as file:
        file.write("once\n")


def report_from_threads(ctx: Context):
    threads = [threading.Thread(target=ctx.progress, args=(pct,)) for pct in range(1, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def hold_files(lock_inode):
    """Say which of our descriptors is the worker's lock."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.fstat(int(descriptor.name)).st_ino)
        except OSError:
            continue
    return lock_inode in found


def wrapping(function):
    class Wrapped:
        def __init__(self):
            self.handler = function

    return Wrapped()


@wrapping
def wrapped():
    return "inner"


def _make():
    def inner():
        pass

    return inner


local = _make()


def write_into_every_descriptor():
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"\xff" * 64)
        except OSError:
            continue
    time.sleep(60)


def print_bytes(kind, mebibytes):
    """Print this much and return by how many bytes the process was larger than at its start, at most."""
    chunk = {"newlines": b"\n" * 65_536, "binary": bytes(range(256)) * 256, "text": b"a line of text\n" * 4_369, "one line": b"x" * 65_536}[
        kind
    ]
    before = _largest()
    for _ in range(mebibytes * 16):
        os.write(1, chunk)
    return _largest() - before


def print_characters(count):
    """Print one line of letters that take two, three and four bytes."""
    os.write(1, ("é€😀" * count).encode())


def print_half_a_character():
    os.write(1, b"whole \xc3")


def _largest():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
