"""Keys to the front door: tokens, what each may be used for, and browser sessions. Pure: secrets come in, digests go out."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum

import msgspec

from rota.errors import InvalidOption
from rota.model.gate import Right

PREFIX = "rota"
SECRET_BYTES = 32
"""Chance in a token or a session: nobody guesses 256 bits, so their digest needs no salt and no slowness."""
_TOKEN = re.compile(r"rota_[0-9a-f]{64}")


class Permit(StrEnum):
    """What a token may be used for, at most: its user's own rights are asked as well.

    Each stands for itself, but for `manage`, which is everything: whoever may make tokens may make one for anything.
    """

    READ = "read"
    SUBMIT = "submit"
    OPERATE = "operate"
    MANAGE = "manage"


PERMITS: dict[Right, Permit] = {
    Right.READ: Permit.READ,
    Right.READ_LOG: Permit.READ,
    Right.READ_STATS: Permit.READ,
    Right.READ_AUDIT: Permit.READ,
    Right.READ_ORGANIZATIONS: Permit.READ,
    Right.READ_WEBHOOKS: Permit.READ,
    Right.SUBMIT: Permit.SUBMIT,
    Right.EXECUTE_JOBS: Permit.SUBMIT,
    Right.CANCEL: Permit.OPERATE,
    Right.STEER: Permit.OPERATE,
    Right.PAUSE: Permit.OPERATE,
    Right.SCHEDULE: Permit.OPERATE,
    Right.DELETE: Permit.MANAGE,
    Right.DELETE_SCHEDULES: Permit.MANAGE,
    Right.CREATE_JOBS: Permit.MANAGE,
    Right.ALTER_JOBS: Permit.MANAGE,
    Right.DROP_JOBS: Permit.MANAGE,
    Right.EXTERNAL: Permit.MANAGE,
    Right.WEBHOOKS: Permit.MANAGE,
    Right.DELETE_WEBHOOKS: Permit.MANAGE,
    Right.MANAGE_CONNECTIONS: Permit.MANAGE,
    Right.GRANT: Permit.MANAGE,
    Right.MANAGE_GRANTS: Permit.MANAGE,
    Right.MANAGE_SECRETS: Permit.MANAGE,
    Right.MANAGE_TEMPLATES: Permit.MANAGE,
    Right.MANAGE_ORGANIZATIONS: Permit.MANAGE,
    Right.OPERATE: Permit.MANAGE,
}
"""Which permit each operation needs. `docs/guide/access.md` is tested against it."""


class Token(msgspec.Struct, kw_only=True, frozen=True):
    """One token as people see it: never its secret."""

    id: str
    name: str
    user: str | None
    """Whose rights it has; None: the operator's of this store, who may do everything."""
    permits: tuple[Permit, ...]
    """Each once, in the order of `Permit`."""
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    """To the minute: it is not written at every use."""

    def is_open(self, now: datetime) -> bool:
        """Say whether it opens the door."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def permits_of(given: object) -> tuple[Permit, ...]:
    """Return permits as people give them, each once and in order."""
    if isinstance(given, str) or not isinstance(given, list | tuple | set | frozenset):
        raise InvalidOption(f"permits={given!r} is not allowed: give a list of {', '.join(Permit)}")
    wrong = [each for each in given if each not in set(Permit)]
    if wrong or not given:
        raise InvalidOption(f"permits={list(given)!r} is not allowed: give one or more of {', '.join(Permit)}")
    return tuple(each for each in Permit if each in given)


def token_text(chance: bytes) -> str:
    """Return a token as it is shown, once."""
    return f"{PREFIX}_{chance.hex()}"


def is_token(text: str) -> bool:
    """Say whether a text has the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def digest(secret: str) -> bytes:
    """Return what is kept of a secret."""
    from hashlib import sha256  # noqa: PLC0415 - it loads OpenSSL, which only the HTTP API needs

    return sha256(secret.encode(errors="surrogatepass")).digest()


def csrf_of(session: str) -> str:
    """Return the word that a form of this session must carry: nobody can make it without the session's secret."""
    from hashlib import sha256  # noqa: PLC0415 - as in `digest`

    return sha256(b"form " + session.encode(errors="surrogatepass")).hexdigest()
