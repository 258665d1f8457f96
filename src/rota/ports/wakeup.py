"""Hints that somebody else has committed. A hint saves latency; polling underneath carries correctness."""

from __future__ import annotations

from typing import Protocol


class Wakeup(Protocol):
    """Something to wait on beside one's own alarm."""

    echoes: bool
    """Every commit comes as a hint: one's own and turns, too."""

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable when somebody may have committed; None: there are no hints now."""

    def drain(self) -> None:
        """Take what has arrived, so that the descriptor is quiet until the next hint."""

    def close(self) -> None:
        """Let go of the descriptor."""
