"""Who may come in: tokens for programs, sessions for browsers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import timedelta

import msgspec

from rota.admission import FIRST, NOBODY, NOTED_S, BrowserSession
from rota.errors import InvalidOption, NotFound, PermissionDenied, Refused, StoreError, Unauthenticated
from rota.model.access import PERMITS, SECRET_BYTES, Permit, Token, csrf_of, digest, is_token, permits_of, token_text
from rota.model.checks import check_name
from rota.model.gate import LOCAL, Actor, Right, Role
from rota.model.values import SECOND, Instant, dashed, instant, moment_of, undashed
from rota.resources.tokens import NewToken
from rota.surfaces.python.base import Base

log = logging.getLogger("rota.access")


class Admitting(Base):
    """The part of Rota that knows tokens and sessions."""

    def create_token(
        self,
        name: str,
        *,
        user: str | None = None,
        permits: Iterable[Permit | str] = (Permit.READ,),
        expires_in: timedelta | None = None,
        actor: Actor | str | None = None,
    ) -> NewToken:
        """Make a token that acts as a user, or as the operator of this store; its secret is returned here and nowhere else."""
        import secrets  # noqa: PLC0415 - only the HTTP API needs tokens and sessions

        who = self._session.acts(actor, Right.MANAGE_ORGANIZATIONS)
        check_name(name, "token", self.settings.name_max)
        if user is not None:
            self._session.actor(user)
            if user not in self._session.registry.users:
                raise NotFound(f"{user!r} is no user of this store: `rota user add` makes one")
        if expires_in is not None and expires_in <= timedelta(0):
            raise InvalidOption(f"expires_in={expires_in} is not allowed: give a time to come")
        now = self._session.clock.now()
        created = moment_of(now)
        token = Token(
            id=dashed(self._session.ids.take(1, now)[0]),
            name=name,
            user=user,
            permits=permits_of(tuple(permits)),
            created_by=who.name,
            created_at=created,
            expires_at=None if expires_in is None else created + expires_in,
        )
        secret = token_text(secrets.token_bytes(SECRET_BYTES))
        self._session.open().store.add_token(token, digest(secret), actor=who, now=now)
        return NewToken(token, secret)

    def welcome(self, *, local: bool, actor: Actor | str | None = None) -> NewToken | None:
        """Ask, before this store is served over HTTP, whether it may be. Return the operator's token, if this is the first time.

        Where only this machine can reach it, and nobody has made a token yet, the one who starts it needs one. Where others can, the
        store must have users: everybody who comes is somebody.
        """
        self._session.scope(actor, Right.OPERATE)
        opened = self._session.open()
        self._session.registry.sync(opened.store, self._session.clock.now())
        if not local and all(user.removed for user in self._session.registry.users.values()):
            raise Refused(
                "other machines can reach this address, and the store has no users: make one with"
                " `rota user add NAME --role system_manager` and a token with `rota token create NAME --user NAME`, or stay on 127.0.0.1"
            )
        if not local or opened.store.tokens():
            return None
        return self.create_token(FIRST, permits=Permit, actor=actor)

    def tokens(self, *, revoked: bool = False, actor: Actor | str | None = None) -> list[Token]:
        """Return tokens, newest first; those that open nothing any more only if asked for."""
        self._session.scope(actor, Right.MANAGE_ORGANIZATIONS)
        now = moment_of(self._session.clock.now())
        return [token for token in self._session.open().store.tokens() if revoked or token.is_open(now)]

    def revoke_token(self, token_id: str, *, actor: Actor | str | None = None) -> Token:
        """Let a token open nothing any more, and end the sessions that were opened with it."""
        who = self._session.acts(actor, Right.MANAGE_ORGANIZATIONS)
        found = undashed(token_id)
        if found is None:
            raise NotFound(f"{token_id!r} is not the id of a token: `rota token list` shows them")
        return self._session.open().store.revoke_token(found, actor=who, now=self._session.clock.now())

    def authenticate(self, secret: str) -> Actor:
        """Return who comes with this token. Raise Unauthenticated, with the same words whatever is wrong with it."""
        if not is_token(secret):
            raise Unauthenticated(NOBODY)
        token = self._session.open().store.token_by(digest(secret))
        return self._admitted(token)

    def open_session(self, secret: str) -> BrowserSession:
        """Let a browser in that brings a token."""
        import secrets  # noqa: PLC0415 - as in `create_token`

        store, now = self._session.open().store, self._session.clock.now()
        token = store.token_by(digest(secret)) if is_token(secret) else None
        self._admitted(token)
        assert token is not None  # noqa: S101 - admitted
        session, age_s = secrets.token_hex(SECRET_BYTES), self.settings.session_ttl
        store.add_session(digest(session), token.id, now=now, expires_at=now + round(age_s * SECOND))
        return BrowserSession(session, csrf_of(session), round(age_s))

    def session(self, secret: str) -> Actor:
        """Return who is behind a browser session."""
        return self._admitted(self._session.open().store.session(digest(secret), now=self._session.clock.now()))

    def still_admitted(self, digests: Collection[bytes]) -> dict[bytes, Actor]:
        """Return who is behind the digest of each token or session that still opens the door.

        However many are asked about, this takes two statements, and it does not count as a use of a token.
        """
        store, now = self._session.open().store, self._session.clock.now()
        tokens = store.tokens_behind(digests, now=now)
        self._session.registry.sync(store, now)
        found: dict[bytes, Actor] = {}
        for key, token in tokens.items():
            with suppress(Unauthenticated, PermissionDenied):
                who = self._actor_of(token, now)
                if who.role is not Role.MANAGER:
                    self._session.refuse_known_closed(who, Right.READ)
                found[key] = who
        return found

    def close_session(self, secret: str) -> None:
        """Let a browser session end."""
        self._session.open().store.end_session(digest(secret), now=self._session.clock.now())

    def _admitted(self, token: Token | None) -> Actor:
        now = self._session.clock.now()
        if token is None:
            raise Unauthenticated(NOBODY)
        if token.user is not None:
            self._session.registry.sync(self._session.open().store, now)
        actor = self._actor_of(token, now)
        if token.last_used_at is None or now - instant(token.last_used_at) >= NOTED_S * SECOND:
            self._note_use(token)
        return actor

    def _actor_of(self, token: Token, now: Instant) -> Actor:
        """Return who comes with a token, by what is known of users now."""
        if not token.is_open(moment_of(now)):
            raise Unauthenticated(NOBODY)
        try:
            user = LOCAL if token.user is None else self._session.known_user(token.user)
        except PermissionDenied:
            raise Unauthenticated(NOBODY) from None
        if Permit.MANAGE in token.permits:
            # Who may make tokens may make one for anything: this says so, instead of hiding it.
            return user
        operations = frozenset(operation for operation, permit in PERMITS.items() if permit in token.permits)
        return msgspec.structs.replace(user, operations=operations)

    def _note_use(self, token: Token) -> None:
        """Write down that a token was used. A store that can't be written now may still be read, and whoever reads must come in."""
        try:
            self._session.open().store.note_use(token.id, now=self._session.clock.now())
        except StoreError as error:
            log.warning("the use of token %s could not be written down: %s", token.id, error)
