"""Lock files: the kernel lets go of one when the last process that holds it is gone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from rota.errors import StoreUnusable
from rota.ports.liveness import Life


class FileLease:
    """One locked file."""

    def __init__(self, path: Path) -> None:
        """Make the file and lock it."""
        self._path = path
        try:
            path.parent.mkdir(exist_ok=True, parents=True)
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnusable(f"workers keep their lock files in {path.parent}, which can't be written: {error}") from error
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        _leases.add(self)

    def release(self, *, clean: bool) -> None:
        """Let go of the lock; the file of a worker that holds nothing is removed first."""
        _leases.discard(self)
        if clean:
            with suppress(FileNotFoundError):
                self._path.unlink()
        with suppress(OSError):
            os.close(self.fd)


_leases: WeakSet[FileLease] = WeakSet()


def _drop_in_child() -> None:
    """Close, in a forked child, what it inherited: a copy that a handler forked must not keep its dead worker alive."""
    for lease in list(_leases):
        with suppress(OSError):
            os.close(lease.fd)
    _leases.clear()


os.register_at_fork(after_in_child=_drop_in_child)


class FileLocks:
    """Implements `rota.ports.liveness.Liveness` with flock, which knows neither pids nor namespaces."""

    def __init__(self, folder: Path) -> None:
        """Keep the lock files in this folder, which is made when the first is taken."""
        self._folder = folder

    def take(self, worker_id: str) -> FileLease:
        """Lock a new file of this worker's own."""
        return FileLease(self._path(worker_id))

    @contextmanager
    def seize(self, worker_id: str) -> Iterator[Life]:
        """Try another worker's lock; holding it for the block keeps a second observer out."""
        try:
            fd = os.open(self._path(worker_id), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            yield Life.UNKNOWN
            return
        try:
            yield _try_lock(fd)
        finally:
            os.close(fd)

    def forget(self, worker_id: str) -> None:
        """Remove a dead worker's file."""
        with suppress(OSError):
            self._path(worker_id).unlink()

    def _path(self, worker_id: str) -> Path:
        return self._folder / f"{worker_id}.lock"


def _try_lock(fd: int) -> Life:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Life.ALIVE
    return Life.DEAD
