"""Lock files: the kernel lets go of one when the last process that holds it is gone."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from rota.errors import StoreUnusable
from rota.model.settings import Settings
from rota.ports.files import make_folder, open_file, open_to_others
from rota.ports.liveness import Life

OUT_OF_REACH = {errno.ENOENT, errno.EACCES, errno.ELOOP}
"""Why another worker's lock can't be asked: it was removed, is another user's, or is not a file."""


class FileLease:
    """One locked file."""

    def __init__(self, path: str, settings: Settings) -> None:
        """Make the file and lock it."""
        self._path = path
        folder = os.path.dirname(path)  # noqa: PTH120 - see `FileLocks._path`
        try:
            make_folder(folder, mode=settings.folder_mode)
            self.fd = open_file(path, os.O_RDWR, mode=settings.file_mode)
        except OSError as error:
            raise StoreUnusable(f"workers keep their lock files in {folder}, which can't be written: {error}") from error
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        _leases.add(self)

    def release(self, *, clean: bool) -> None:
        """Let go of the lock; the file of a worker that holds nothing is removed first."""
        _leases.discard(self)
        if clean:
            with suppress(FileNotFoundError):
                os.unlink(self._path)  # noqa: PTH108 - see `FileLocks._path`
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

    def __init__(self, folder: Path, settings: Settings, *, beside_strangers: bool = False) -> None:
        """Keep the lock files in this folder, which is made when the first is taken.

        `beside_strangers`: the folder above it is in one where anybody may create files, and is checked before each use.
        """
        self._folder = folder
        self._settings = settings
        self._beside_strangers = beside_strangers

    def take(self, worker_id: str) -> FileLease:
        """Lock a new file of this worker's own."""
        if self._beside_strangers:
            with suppress(OSError):
                make_folder(self._folder.parent, mode=self._settings.folder_mode)
        self.check()
        return FileLease(self._path(worker_id), self._settings)

    @contextmanager
    def seize(self, worker_id: str) -> Iterator[Life]:
        """Try another worker's lock; holding it for the block keeps a second observer out."""
        self.check()
        try:
            fd = os.open(self._path(worker_id), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno not in OUT_OF_REACH:
                raise
            yield Life.UNKNOWN
            return
        try:
            yield _try_lock(fd)
        finally:
            os.close(fd)

    def forget(self, worker_id: str) -> None:
        """Remove a dead worker's file."""
        with suppress(OSError):
            os.unlink(self._path(worker_id))  # noqa: PTH108 - see `_path`

    def check(self) -> None:
        """Refuse a folder that can't be trusted."""
        if self._beside_strangers:
            refuse_strangers(self._folder.parent, self._settings)

    def _path(self, worker_id: str) -> str:
        """Return the path as text: `pathlib` interns each part of one, and Python 3.12 never frees interned text."""
        return f"{self._folder}/{worker_id}.lock"


def refuse_strangers(folder: Path, settings: Settings) -> None:
    """Refuse a folder that another user may have put there, or could change: the locks in it would show what that user wants."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnusable(f"workers keep their lock files in {folder}, which can't be looked at: {error}") from error
    if stat.S_ISLNK(found.st_mode):
        what = "it is a symbolic link"
    elif not stat.S_ISDIR(found.st_mode):
        what = "it is not a folder"
    elif found.st_uid != os.geteuid():
        what = f"it belongs to user {found.st_uid}, not to user {os.geteuid()}"
    elif (bits := open_to_others(folder, mode=settings.folder_mode)) is not None:
        what = f"its mode {bits:04o} lets other users in"
    else:
        return
    raise StoreUnusable(
        f"workers keep their lock files in {folder}, which can't be trusted: {what}. "
        "Remove it, or set XDG_RUNTIME_DIR to a folder of this user's own"
    )


def _try_lock(fd: int) -> Life:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Life.ALIVE
    return Life.DEAD
