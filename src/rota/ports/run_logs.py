"""What handlers wrote, where it is kept in the store: part of its contract, beside `rota.ports.store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rota.model.values import Instant


class Piece(msgspec.Struct, frozen=True):
    """A piece of a run's log."""

    run_id: str
    number: int
    """The row number of its job."""
    start: int
    """Its place in the log, in bytes."""
    data: bytes


class RunLogs(Protocol):
    """The part of the store that keeps what handlers wrote. A log is bytes that only grow, and goes with its run."""

    def append_logs(self, pieces: Sequence[Piece], *, now: Instant) -> dict[str, int]:
        """Add pieces, and return how long each of these logs is now, in bytes; a log of which there is nothing is left out.

        A piece that does not begin where its log ends, or whose run is not there, is not added: whoever lost an answer, or finds the
        file of a dead worker, appends again, and continues where the store says that the log ends.
        """

    def read_log(self, run_id: str, *, after: int) -> bytes:
        """Return what a log has from this byte on, at most 64 pieces; empty if there is nothing more."""

    def ended_logs(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Return those of these runs that have ended and have a log here, each with the row number of its job."""
