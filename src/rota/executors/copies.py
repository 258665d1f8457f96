"""Copies of the worker's process that handlers make by `os.fork()`.

A copy that comes back from its handler, as one does that could not become another program, is no worker: the original speaks for
both. It must not take up what waits here, which would then run twice, and it must not stay, with all that the original holds open.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Busy(Protocol):
    """An executor whose threads take up work by themselves."""

    def forget(self) -> None:
        """Have nothing to do any more. Other threads are gone, with the locks that they held."""


_busy: WeakSet[Busy] = WeakSet()


def forget_in_copies(executor: Busy) -> None:
    """See to it that copies made from now on have nothing of this executor's to do."""
    _busy.add(executor)


def end_copy(pid: int) -> None:
    """End this process at once unless it is the one that had this number; nothing that it has copied is flushed twice."""
    if os.getpid() != pid:
        os._exit(0)


def _forget() -> None:
    for executor in tuple(_busy):
        executor.forget()


os.register_at_fork(after_in_child=_forget)
