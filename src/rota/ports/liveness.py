"""How a worker shows that it lives, and how others tell that it does not. Never by pid."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol


class Life(StrEnum):
    """What is known of another worker."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """No lock of it can be found here: only its beat can tell."""


class Lease(Protocol):
    """The sign of life of this process; it ends with the process, whatever ends that."""

    fd: int

    def release(self, *, clean: bool) -> None:
        """Give the sign up. Not `clean`: the worker still holds something, and others shall find it dead at once."""


class Liveness(Protocol):
    """Signs of life on this machine."""

    def take(self, worker_id: str) -> Lease:
        """Show that this worker lives, from now until the process and all who inherited the lease are gone."""

    def seize(self, worker_id: str) -> AbstractContextManager[Life]:
        """Say whether another worker lives. If it is dead, nobody else finds it so while the block lasts."""

    def forget(self, worker_id: str) -> None:
        """Remove what is left of a dead worker's sign."""
