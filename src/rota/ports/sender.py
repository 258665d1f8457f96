"""Who carries messages outside."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from rota.model.webhooks import Sent


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent, where to, and what it is signed with."""

    url: str
    key: str
    """`webhook-id`: the same at each attempt."""
    payload: str
    owner: str = ""
    """Whose secrets they are."""
    secrets: tuple[str, ...]
    """As they are stored: encrypted or not."""
    at: datetime
    """`webhook-timestamp`: when this attempt was made."""


class Caller(Protocol):
    """Calls a URL that the operator has set."""

    def call(self, url: str) -> Sent:
        """Ask for a URL and return what came of it, within the time allowed. Raises nothing."""


class Sender(Protocol):
    """Sends one message at a time. May be called from several threads."""

    def send(self, message: Message) -> Sent:
        """Send a message and return what came of it, within the time allowed. Raises nothing, and tells neither secret nor path."""
