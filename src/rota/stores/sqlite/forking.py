"""Forks: every connection is closed before one, and opened again, on either side, when it is next used.

SQLite keeps its table of file locks in the memory of the process. A fork copies the table but not the locks, so a child
that opened the same file would take none, and could lose what its parent writes. `subprocess` is not concerned: it runs
another program.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol
from weakref import WeakSet


class Stillness(Protocol):
    """Something that can be made to let go of its connections for a moment."""

    def still(self) -> AbstractContextManager[None]:
        """Close every connection and let nobody open one while the block lasts."""


_known: WeakSet[Stillness] = WeakSet()
_during = ExitStack()


def watch(one: Stillness) -> None:
    """Hold this one still around every fork of this process."""
    _known.add(one)


def _before() -> None:
    for one in list(_known):
        _during.enter_context(one.still())


def _after() -> None:
    _during.close()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
