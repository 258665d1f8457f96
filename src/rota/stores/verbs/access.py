"""Tokens and sessions in SQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from rota.errors import NotFound
from rota.model.access import Permit, Token
from rota.model.gate import Actor
from rota.model.values import Instant, dashed, instant, moment, undashed
from rota.stores.verbs.base import Base, Hold
from rota.stores.verbs.db import Db
from rota.stores.verbs.verbs import audit

_permits = msgspec.json.Decoder(tuple[Permit, ...])


class Admitting(Base):
    """Implements `rota.ports.access.Access`."""

    def add_token(self, token: Token, digest: bytes, *, actor: Actor, now: Instant) -> None:
        """Keep a new token."""
        self._write(lambda db: _add(db, token, digest, actor, now))

    def tokens(self) -> list[Token]:
        """Return every token."""
        with self._reading() as db:
            return [_token(row) for row in db.rows("tokens")]

    def token_by(self, digest: bytes) -> Token | None:
        """Return the token of this digest."""
        with self._reading() as db:
            row = db.row("token_by", hash=digest)
            return None if row is None else _token(row)

    def revoke_token(self, token_id: str, *, actor: Actor, now: Instant) -> Token:
        """Let a token open nothing any more."""
        return self._write(lambda db: _revoke(db, str(undashed(token_id)), actor, now))

    def note_use(self, token_id: str, *, now: Instant) -> None:
        """Write down that a token was used."""
        self._write(lambda db: db.change("note_token_use", token_id=undashed(token_id), now=now), hold=Hold.NOTHING)

    def add_session(self, digest: bytes, token_id: str, *, now: Instant, expires_at: Instant) -> None:
        """Keep a session."""
        values = {"hash": digest, "token_id": undashed(token_id), "now": now, "expires_at": expires_at}
        self._write(lambda db: db.change("add_session", **values), hold=Hold.NOTHING)

    def session(self, digest: bytes, *, now: Instant) -> Token | None:
        """Return the token behind a session."""
        with self._reading() as db:
            row = db.row("token_of_session", hash=digest, now=now)
            return None if row is None else _token(row)

    def tokens_behind(self, digests: Collection[bytes], *, now: Instant) -> dict[bytes, Token]:
        """Return the token of each of these digests."""
        hashes = msgspec.json.encode([digest.hex() for digest in digests]).decode()
        with self._reading() as db:
            return {bytes.fromhex(hash_): _token(row) for hash_, *row in db.rows("tokens_behind", hashes=hashes, now=now)}

    def end_session(self, digest: bytes, *, now: Instant) -> None:
        """End a session."""
        self._write(lambda db: db.change("end_session", hash=digest, now=now), hold=Hold.NOTHING)

    def forget_sessions(self, *, before: Instant, limit: int) -> int:
        """Remove old sessions."""
        return self._write(lambda db: db.change("forget_sessions", before=before, limit=limit), hold=Hold.NOTHING)


def _add(db: Db, token: Token, digest: bytes, actor: Actor, now: Instant) -> None:
    added = db.change(
        "add_token",
        token_id=undashed(token.id),
        name=token.name,
        user_name=token.user,
        hash=digest,
        permits=msgspec.json.encode(token.permits).decode(),
        actor=token.created_by,
        now=now,
        expires_at=None if token.expires_at is None else instant(token.expires_at),
    )
    if added:
        audit(db, actor, now, "token.create", ("token", str(undashed(token.id))), after=_shown(token))


def _revoke(db: Db, token_id: str, actor: Actor, now: Instant) -> Token:
    row = db.row("token", token_id=token_id)
    if row is None:
        raise NotFound(f"there is no token {dashed(token_id)} in this store")
    if db.change("revoke_token", token_id=token_id, now=now):
        db.change("end_sessions_of", token_id=token_id, now=now)
        audit(db, actor, now, "token.revoke", ("token", token_id), before=_shown(_token(row)))
    found = db.row("token", token_id=token_id)
    assert found is not None  # noqa: S101 - it was there above, in this transaction
    return _token(found)


def _shown(token: Token) -> dict[str, Any]:
    return {"name": token.name, "user": token.user, "permits": token.permits}


def _token(row: Sequence[Any]) -> Token:
    token_id, name, user, permits, created_by, created_at, expires_at, revoked_at, last_used_at = row
    created = moment(created_at)
    assert created is not None  # noqa: S101 - NOT NULL
    return Token(
        id=dashed(token_id),
        name=name,
        user=user,
        permits=_permits.decode(permits),
        created_by=created_by,
        created_at=created,
        expires_at=moment(expires_at),
        revoked_at=moment(revoked_at),
        last_used_at=moment(last_used_at),
    )
