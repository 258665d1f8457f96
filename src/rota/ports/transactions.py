"""Which stores' transactions a thread holds open: waiting for another writer of such a store would be waiting for itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_held = threading.local()


@contextmanager
def inside(address: str) -> Iterator[None]:
    """Note that this thread holds a transaction of the store at this address."""
    before: tuple[str, ...] = getattr(_held, "addresses", ())
    _held.addresses = (*before, address)
    try:
        yield
    finally:
        _held.addresses = before


def is_inside(address: str | None) -> bool:
    """Say whether this thread holds a transaction of the store at this address."""
    return address in getattr(_held, "addresses", ())
