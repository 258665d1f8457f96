"""The filters of the lists of jobs, as they stand in the address and in forms: one reading for both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.errors import InvalidOption
from rota.model.states import ErrorType, Status
from rota.model.templates import span_of

NAMES = ("job_type", "queue", "organization", "owner", "group", "schedule", "text", "error_type", "since", "until")
LONG = 1024
"""Characters of one filter, at most."""
STATUSES = frozenset(Status)


class Filters:
    """What a list is narrowed to."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Take pairs of name and value; what is empty, or no filter, is left out."""
        self.pairs = [(name, value.strip()[:LONG]) for name, value in pairs if name in (*NAMES, "status") and value.strip()]
        self._by_name = {name: value for name, value in self.pairs if name != "status"}
        self.status = [Status(_status(value)) for name, value in self.pairs if name == "status"]

    def __getitem__(self, name: str) -> str:
        """Return one filter, empty if it is not set."""
        return self._by_name.get(name, "")

    def __bool__(self) -> bool:
        """Say whether anything is narrowed."""
        return bool(self.pairs)

    def options(self) -> dict[str, Any]:
        """Return them as `Rota.find` takes them."""
        found: dict[str, Any] = {name: self[name] for name in NAMES if self[name] and name not in {"since", "until"}}
        if self["error_type"] and self["error_type"] not in set(ErrorType):
            raise InvalidOption(f"error_type={self['error_type']!r} is not one of {', '.join(ErrorType)}")
        for name in ("since", "until"):
            if self[name]:
                found[name] = _when(name, self[name])
        return found | ({"status": self.status} if self.status else {})

    def words(self) -> str:
        """Say what is left, for a question."""
        said = [f"{name} {value}" for name, value in self.pairs]
        return " and ".join(said) if said else "any"


def _status(given: str) -> str:
    if given.upper() not in STATUSES:
        raise InvalidOption(f"status={given!r} is not one of {', '.join(Status)}")
    return given.upper()


def _when(name: str, given: str) -> datetime | timedelta:
    """Return a moment given as people write one (2026-11-15 or 2026-11-15T08:00Z, UTC if no zone is said), or how long ago (2h)."""
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        return timedelta(seconds=span_of(name, given))
    return at if at.tzinfo else at.replace(tzinfo=UTC)
