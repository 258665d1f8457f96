"""How jobs carry what their traces go on from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Tracing(Protocol):
    """A way to trace, where a program has one. Texts are JSON objects."""

    def carried(self, name: str, count: int) -> Mapping[str, str]:
        """Begin what so many jobs of this name go on from, as a span of the caller's trace; nothing if nobody records it."""

    def with_trace(self, meta: str | None, carrier: Mapping[str, str]) -> str | None:
        """Return a job's meta with what its trace goes on from; what somebody has put there already stays."""

    def trace_of(self, meta: str) -> str | None:
        """Return what of a job's meta is a trace's, None if nothing is."""
