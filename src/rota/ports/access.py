"""What the front door asks a store to keep: tokens and sessions, by their digests. A part of the contract of `rota.ports.store`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from rota.model.access import Token
from rota.model.gate import Actor
from rota.model.values import Instant


class Access(Protocol):
    """Tokens and browser sessions. A secret never comes here: only its digest does."""

    def add_token(self, token: Token, digest: bytes, *, actor: Actor, now: Instant) -> None:
        """Keep a new token. Audited. The same id again: nothing more."""

    def tokens(self) -> list[Token]:
        """Return every token, revoked and expired ones too, newest first."""

    def token_by(self, digest: bytes) -> Token | None:
        """Return the token of this digest."""

    def revoke_token(self, token_id: str, *, actor: Actor, now: Instant) -> Token:
        """Let a token open nothing any more, and end its sessions. Audited. Again: nothing more. Raise NotFound."""

    def note_use(self, token_id: str, *, now: Instant) -> None:
        """Write down that a token was used. Nothing, if a later use is known."""

    def add_session(self, digest: bytes, token_id: str, *, now: Instant, expires_at: Instant) -> None:
        """Keep a browser session that stands for a token."""

    def session(self, digest: bytes, *, now: Instant) -> Token | None:
        """Return the token behind a session that has neither ended nor expired."""

    def tokens_behind(self, digests: Collection[bytes], *, now: Instant) -> dict[bytes, Token]:
        """Return the token of each of these digests: its own, or that of a session that has neither ended nor expired. One statement."""

    def end_session(self, digest: bytes, *, now: Instant) -> None:
        """End a session. Again, or one that is not there: nothing."""

    def forget_sessions(self, *, before: Instant, limit: int) -> int:
        """Remove up to `limit` sessions, ended or not, whose time was over at this moment; return how many."""
