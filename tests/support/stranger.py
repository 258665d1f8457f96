"""Another user of the machine, for real: a child process that has given up every right of ours."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65_534


@contextmanager
def public_folder() -> Iterator[Path]:
    """Lend a folder that every user may enter and read, as /srv or /var/lib usually are: pytest's own are closed."""
    folder = Path(tempfile.mkdtemp(prefix="rota-public-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_stranger(work: Callable[[], object]) -> str:
    """Do this as another user; return what it returned or raised, as a text."""
    with stranger(work) as said:
        return said


@contextmanager
def stranger(work: Callable[[], object]) -> Iterator[str]:
    """Do this as another user, who keeps what it opened until the end of the block."""
    with busy_stranger(lambda tell, _: tell(_outcome(work))) as read:
        yield read()


@contextmanager
def busy_stranger(work: Callable[[Callable[[str], None], Callable[[], bool]], object]) -> Iterator[Callable[[], str]]:
    """Let another user work beside the block: it may tell one text, and is told when the block is over."""
    assert os.geteuid() == 0, "another user can't be had here: these tests need root, to give its rights up in a child process"
    reading, writing = os.pipe()
    waiting, ending = os.pipe()
    with warnings.catch_warnings():
        # Later Pythons warn of threads; the child has what it needs in memory and waits for none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.close(ending)
            os.set_blocking(waiting, False)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            work(lambda text: _tell(writing, text), lambda: _is_over(waiting))
            os.set_blocking(waiting, True)
            os.read(waiting, 1)
        finally:
            os._exit(0)
    os.close(writing)
    os.close(waiting)
    try:
        yield lambda: _all(reading)
    finally:
        os.close(ending)
        os.close(reading)
        os.waitpid(child, 0)


def _tell(writing: int, text: str) -> None:
    os.write(writing, text.encode())
    os.close(writing)


def _all(reading: int) -> str:
    text = b""
    while part := os.read(reading, 65_536):
        text += part
    return text.decode()


def _is_over(waiting: int) -> bool:
    try:
        return os.read(waiting, 1) == b""
    except BlockingIOError:
        return False


def _outcome(work: Callable[[], object]) -> str:
    try:
        return repr(work())
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
