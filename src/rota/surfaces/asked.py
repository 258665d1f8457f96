"""Which request is being answered: what log lines of one request have in common."""

from __future__ import annotations

from contextvars import ContextVar

request_id: ContextVar[str | None] = ContextVar("rota_request_id", default=None)
"""None outside of a request."""
