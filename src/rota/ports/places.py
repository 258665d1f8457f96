"""Where rows stand in the queue, said before they are written: so that those behind them need not wait for the write."""

from __future__ import annotations

import threading

from rota.model.ordering import GAP


class Place:
    """The place of the rows of one `enqueue`: the store says it once, and keeps to it however often it has to begin again."""

    def __init__(self, behind: int = 0) -> None:
        """Take a position behind which the rows come at least: of others that the store can't see yet. 0: of none."""
        self.behind = behind
        self.last: int | None = None
        """The position of the last row; None while nobody knows."""
        self._base: int | None = None
        self._over = threading.Event()

    @property
    def open(self) -> bool:
        """Whether the store may still choose."""
        return self._base is None

    def settle(self, base: int, rows: int) -> int:
        """Take the highest position that the store sees before so many rows; return the one that they come behind."""
        if self._base is None:
            self._base = max(base, self.behind)
            self.last = self._base + rows * GAP
            self._over.set()
        return self._base

    def give_up(self) -> None:
        """Let nobody wait any longer: the call is over."""
        self._over.set()

    def wait(self) -> int | None:
        """Return the position of the last row as soon as it is known; None if the call ended before it was."""
        self._over.wait()
        return self.last
