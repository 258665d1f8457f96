"""Secrets: values that jobs are given and nobody is shown. Pure: what is known of one, and what it is while it is sealed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

import msgspec

from rota.errors import InvalidName, InvalidOption, NotFound

NAME_MAX = 128
VALUE_MAX_BYTES = 65_536
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretPlace(msgspec.Struct, frozen=True):
    """Where a secret is: its organization and name, and its job if it is of that job alone."""

    organization: str
    name: str
    job: str | None = None
    """The id of the schedule, 32 hexadecimal digits; None: every job of the organization may name it."""

    def __str__(self) -> str:
        """Return it as messages name it."""
        return f"secret {self.name!r}"


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a secret, encrypted: the value under a key of its own, and that key under the master key."""

    organization: str
    name: str
    job: str | None = None
    version: int
    key_id: str
    """The master key that `wrapped` needs."""
    wrapped: bytes
    body: bytes
    id: str = ""
    """The id of the secret in the store; empty before it is stored."""

    def __repr__(self) -> str:
        """Return it without its contents."""
        return f"Sealed({self.organization!r}, {self.name!r}, version={self.version}, key_id={self.key_id!r})"

    __str__ = __repr__


Seal: TypeAlias = Callable[[int], Sealed]
"""Seals a value as this version of its secret. A store calls it inside its transaction, which knows the version; perhaps twice."""


class Put(StrEnum):
    """What is to be there before a value is set."""

    NEW = "new"
    EXISTING = "existing"
    EITHER = "either"


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret as people see it: never its value."""

    id: str
    organization: str
    name: str
    job: str | None = None
    """The name of the job that alone has it; None: it is the organization's."""
    job_id: str | None = None
    version: int
    """Counts its values."""
    key_id: str
    """The master key that it is encrypted with."""
    created_by: str
    created_at: datetime
    updated_at: datetime
    last_used_at: datetime | None = None


class SecretUse(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that one run was given."""

    run: str
    """The id of the job of the queue."""
    job: str | None
    """The id of the schedule."""
    organization: str
    owner: str
    """Whose rights the run has."""
    secrets: tuple[Sealed, ...]


class Rewrapped(msgspec.Struct, frozen=True):
    """A secret under another master key, and the state of it that this was made from."""

    before: Sealed
    after: Sealed


class KeyUse(msgspec.Struct, frozen=True):
    """How much in a store is encrypted with one master key."""

    key_id: str
    """Empty: webhook secrets that are not encrypted."""
    secrets: int = 0
    webhooks: int = 0


def no_secret(place: SecretPlace) -> NotFound:
    """Return the error of a secret that is not there."""
    whose = f"in organization {place.organization!r}" if place.job is None else "of this job"
    return NotFound(f"there is no {place} {whose}: `rota secret list` shows them")


def check_secret_name(name: object) -> str:
    """Return the name of a secret; refuse one that could not be the name of an environment variable."""
    if isinstance(name, str) and len(name) <= NAME_MAX and _NAME.fullmatch(name):
        return name
    raise InvalidName(f"{str(name)[:40]!r} is not the name of a secret: use letters, digits and _, no digit first, at most {NAME_MAX}")


def check_secret_value(value: object) -> str:
    """Return the value of a secret; refuse what can't be one, without repeating it."""
    if not isinstance(value, str):
        raise InvalidOption("the value of a secret is a text")
    if not value:
        raise InvalidOption("the value of a secret can't be empty")
    try:
        length = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidOption("the value of a secret has characters that UTF-8 can't encode") from None
    if "\0" in value:
        raise InvalidOption(
            "the value of a secret has a NUL character, which no environment variable can hold: encode it, as base64 for one"
        )
    if length > VALUE_MAX_BYTES:
        raise InvalidOption(f"the value of a secret has {length:,} bytes; at most {VALUE_MAX_BYTES:,} are allowed")
    return value
