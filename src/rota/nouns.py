"""The nouns of a Rota and where each is defined. Importing this module imports none of them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

NOUNS: dict[str, str] = {
    "jobs": "Jobs",
    "groups": "Groups",
    "dead_letters": "DeadLetters",
    "schedules": "Schedules",
    "calendars": "Calendars",
    "templates": "Templates",
    "queues": "Queues",
    "workers": "Workers",
    "organizations": "Organizations",
    "users": "Users",
    "tokens": "Tokens",
    "webhooks": "Webhooks",
    "audit": "Audit",
    "store": "StoreOperations",
}
"""The class of each noun; its module has the noun's name."""


@cache
def noun(name: str) -> Any:
    """Import the class of a noun. Cached, because an import statement costs 0.7 µs at each access."""
    return getattr(import_module(f"rota.resources.{name}"), NOUNS[name])
