"""How a surface stops statements that another thread runs: a query at its next step, a script before its next statement."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

CANCELLED = "the statement was cancelled"

_stop: ContextVar[threading.Event | None] = ContextVar("rota_sql_stop", default=None)


@contextmanager
def stopped_by(stop: threading.Event) -> Iterator[None]:
    """Let an event stop the statements that this thread runs in the block."""
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


def current_stop() -> threading.Event | None:
    """Return what may stop the statements of this thread."""
    return _stop.get()


def is_stopped() -> bool:
    """Say whether the statements of this thread are to stop."""
    stop = _stop.get()
    return stop is not None and stop.is_set()
