"""Forks: every connection is closed before one, and opened again, on either side, when it is next used.

SQLite keeps its table of file locks in the memory of the process. A fork copies the table but not the locks, so a child
that opened the same file would take none, and could lose what its parent writes. `subprocess` is not concerned: it runs
another program.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol
from weakref import WeakSet


class Stillness(Protocol):
    """Something that can be made to let go of its connections for a moment."""

    def still(self) -> AbstractContextManager[None]:
        """Close every connection and let nobody open one while the block lasts."""


class _During(threading.local):
    """What this thread holds still while it forks: each its own, for two threads may fork at the same time."""

    def __init__(self) -> None:
        self.held = ExitStack()


stores: WeakSet[Stillness] = WeakSet()
"""Those that are held still around every fork of this process."""
_during = _During()


def _before() -> None:
    # Always in the same order: two that fork at the same time must not wait for each other.
    for one in sorted(stores, key=id):
        _during.held.enter_context(one.still())


def _after() -> None:
    _during.held.close()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
