"""A server of this run's own, whatever its kind: what the rest of the bench needs to know of it."""

from __future__ import annotations

import socket
from typing import NamedTuple

from harness.children import Child


class Server(NamedTuple):
    """A running server: where it listens, its version, what was set, and the process whose CPU counts."""

    url: str
    version: str
    settings: str
    process: Child


def free_port() -> int:
    """Return a port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
