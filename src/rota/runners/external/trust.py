"""Who could change a file or a folder: whatever a command depends on must be beyond the reach of other users."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import PurePosixPath

GROUP, ALL = stat.S_IWGRP, stat.S_IWOTH


def trusted_users() -> frozenset[int]:
    """Return the users whose files are believed: root, and the worker's own."""
    return frozenset({0, os.geteuid()})


def exposure(path: str, *, users: frozenset[int] | None = None, found: os.stat_result | None = None) -> str | None:
    """Return who else could change what is at this path, and the remedy; None: nobody.

    The path has no symbolic links in it. `found` is what is known of it already, such as by an open descriptor. A folder above may be
    writable by others if it is sticky: then they can't replace what is in it.
    """
    believed = trusted_users() if users is None else users
    own = _open_to_others(path, found or os.stat(path), believed)  # noqa: PTH116 - called for each run, with paths that are plain texts
    if own:
        return own
    for folder in _above(path):
        state = os.stat(folder)  # noqa: PTH116 - as above
        if state.st_mode & stat.S_ISVTX and state.st_uid in believed:
            continue
        if reason := _open_to_others(folder, state, believed):
            return reason
    return None


def _above(path: str) -> Iterator[str]:
    yield from map(str, PurePosixPath(path).parents)


def _open_to_others(path: str, state: os.stat_result, users: frozenset[int]) -> str | None:
    if state.st_uid not in users:
        return f"{path} belongs to user {state.st_uid}, who could change it: chown it to root"
    bits = state.st_mode & (GROUP | ALL)
    if bits:
        who = "every user" if bits & ALL else "its group"
        return f"{path} can be changed by {who} (mode {stat.S_IMODE(state.st_mode):04o}): run `chmod go-w {path}`"
    return None
