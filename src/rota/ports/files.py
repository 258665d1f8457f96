"""Files and folders that are closed to other users of the machine, whatever the umask is (setting `store_mode`)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

OTHERS = 0o077
"""The permission bits of everybody but the owner."""


def make_file(path: str | Path, *, mode: int) -> bool:
    """Create an empty file of this mode; return False, changing nothing, if something is there.

    No descriptor is opened: closing one would drop the locks that SQLite holds on the same file in this process.
    """
    try:
        os.mknod(path, mode | stat.S_IFREG)
    except FileExistsError:
        return False
    if stat.S_IMODE(os.lstat(path).st_mode) != mode:
        # The umask took some bits away.
        os.chmod(path, mode)  # noqa: PTH101 - no Path is made on the way of a run's log, nor here
    return True


def open_file(path: str | Path, flags: int, *, mode: int) -> int:
    """Open a file for writing and return its descriptor; a new one gets this mode, one that exists keeps its own.

    A symbolic link at this path is refused (OSError): it might lead to anybody's file.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            try:
                return os.open(path, flags)
            except FileNotFoundError:
                # It was removed in between.
                continue
        os.fchmod(fd, mode)
        return fd


def make_folder(path: str | Path, *, mode: int) -> None:
    """Create a folder of this mode, and the folders above it that do not exist; one that exists keeps its own."""
    try:
        os.mkdir(path, mode)  # noqa: PTH102 - as above
    except FileNotFoundError:
        make_folder(os.path.dirname(path), mode=mode)  # noqa: PTH120 - as above
        make_folder(path, mode=mode)
        return
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112 - as above
            raise
        return
    found = stat.S_IMODE(os.lstat(path).st_mode)
    if found & 0o777 != mode:
        # The umask took some bits away. A set-group-id bit that came from the folder above is kept.
        os.chmod(path, found & ~0o777 | mode)  # noqa: PTH101 - as above


def open_to_others(path: str | Path, *, mode: int) -> int | None:
    """Return the permission bits of a file or folder if others have more of them than this mode allows; None if they do not."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        # Its own bits mean nothing.
        return None
    bits = stat.S_IMODE(found.st_mode)
    return bits if bits & OTHERS & ~mode else None
