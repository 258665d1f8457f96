"""Signs of life inside one simulation: a roll of who lives, instead of lock files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rota.ports.liveness import Life


class Roll:
    """Implements `rota.ports.liveness.Liveness` for workers that are all simulated here."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self.living: set[str] = set()

    def take(self, worker_id: str) -> Sign:
        """Let a worker live."""
        self.living.add(worker_id)
        return Sign(self, worker_id)

    @contextmanager
    def seize(self, worker_id: str) -> Iterator[Life]:
        """Say whether a worker lives: here this is always known."""
        yield Life.ALIVE if worker_id in self.living else Life.DEAD

    def forget(self, worker_id: str) -> None:
        """Forget a worker."""
        self.living.discard(worker_id)


class Sign:
    """The sign of life of one simulated worker."""

    fd = -1

    def __init__(self, roll: Roll, worker_id: str) -> None:
        """Stand for one worker."""
        self._roll = roll
        self._worker_id = worker_id

    def release(self, *, clean: bool) -> None:
        """Live no more."""
        del clean
        self._roll.forget(self._worker_id)
