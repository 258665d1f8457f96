"""Admission: which actor a token or a browser session stands for. For the HTTP server and `rota serve`."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime

import msgspec

from rota.errors import PermissionDenied, Refused, StoreError, Unauthenticated
from rota.model.access import PERMITS, SECRET_BYTES, Permit, Token, csrf_of, digest, is_token
from rota.model.gate import LOCAL, Actor, Right, Role
from rota.model.values import SECOND, moment_of
from rota.operation import View
from rota.resources.tokens import NewToken, Tokens

log = logging.getLogger("rota.access")

NOTED_S = 60
"""A token's use is recorded at most this often."""
FIRST = "first start"
"""The name of the token that is created where there is none."""
LINK = "login link"
"""The name of the token in a link that a start in a terminal prints, or `rota login`."""
NOBODY = "this token opens nothing here: use one that `rota token create` has shown, and that is neither expired nor revoked"


class BrowserSession(msgspec.Struct, frozen=True):
    """A browser that has logged in."""

    secret: str
    """The value of the cookie."""
    csrf: str
    """The value that each form which changes something must carry."""
    max_age_s: int


class Admission:
    """Admits tokens and browser sessions to one Rota."""

    def __init__(self, rota: View) -> None:
        """Take the Rota that is served, or a view of it: `welcome` asks for its actor."""
        self._seat, self._actor = rota._seat, rota._actor  # noqa: SLF001 - a Rota's own

    def welcome(self, *, local: bool, fresh: bool = False) -> NewToken | None:
        """Check, before this store is served over HTTP, that it may be. Return the operator's token, if this is the first time.

        If only this machine can reach the address, and there is no token yet, one is created for the person who starts the server. If
        `fresh`, one is created in any case, and replaces the one of this person's last fresh start. If other machines can reach it, the
        store must have users.
        """
        session = self._seat.session
        session.scope(self._actor, Right.OPERATE)
        store = session.open().store
        session.registry.sync(store, session.clock.now())
        if not local and all(user.removed for user in session.registry.users.values()):
            raise Refused(
                "other machines can reach this address, and the store has no users: make one with"
                " `rota user create NAME --role system_manager` and a token with `rota token create NAME --user NAME`, or stay on 127.0.0.1"
            )
        if not local:
            return None
        if fresh:
            return self.login_link()
        return None if store.tokens() else Tokens(self._seat, self._actor).create(FIRST, permits=Permit)

    def login_link(self) -> NewToken:
        """Create the token of a login link, and revoke the person's earlier one."""
        tokens = Tokens(self._seat, self._actor)
        earlier = [token for token in tokens.list() if token.name == LINK]
        new = tokens.create(LINK, permits=Permit)
        for token in earlier:
            if token.created_by == new.token.created_by:
                tokens.revoke(token.id)
        return new

    def authenticate(self, secret: str) -> Actor:
        """Return the actor of this token. Raise Unauthenticated, with the same words whatever is wrong with it."""
        if not is_token(secret):
            raise Unauthenticated(NOBODY)
        return self._admitted(self._seat.session.open().store.token_by(digest(secret)))

    def open_session(self, secret: str) -> BrowserSession:
        """Log a browser in with a token."""
        import secrets  # noqa: PLC0415 - only a login needs it

        session = self._seat.session
        store, now = session.open().store, session.clock.now()
        token = store.token_by(digest(secret)) if is_token(secret) else None
        self._admitted(token)
        assert token is not None  # noqa: S101 - admitted
        cookie, age_s = secrets.token_hex(SECRET_BYTES), session.settings.session_ttl
        store.add_session(digest(cookie), token.id, now=now, expires_at=now + round(age_s * SECOND))
        return BrowserSession(cookie, csrf_of(cookie), round(age_s))

    def session(self, secret: str) -> Actor:
        """Return the actor of a browser session."""
        session = self._seat.session
        return self._admitted(session.open().store.session(digest(secret), now=session.clock.now()))

    def close_session(self, secret: str) -> None:
        """End a browser session."""
        session = self._seat.session
        session.open().store.end_session(digest(secret), now=session.clock.now())

    def still_admitted(self, digests: Collection[bytes]) -> dict[bytes, Actor]:
        """Return the actor of each token or session, given by its digest, that is still valid.

        This takes two statements, however many are asked about, and does not count as a use of a token.
        """
        session = self._seat.session
        store, now = session.open().store, session.clock.now()
        tokens = store.tokens_behind(digests, now=now)
        session.registry.sync(store, now)
        actors: dict[bytes, Actor] = {}
        for key, token in tokens.items():
            with suppress(Unauthenticated, PermissionDenied):
                actor = self._actor_of(token, moment_of(now))
                if actor.role is not Role.MANAGER:
                    session.refuse_known_closed(actor, Right.READ)
                actors[key] = actor
        return actors

    def _admitted(self, token: Token | None) -> Actor:
        if token is None:
            raise Unauthenticated(NOBODY)
        session = self._seat.session
        now = session.clock.now()
        if token.user is not None:
            session.registry.sync(session.open().store, now)
        at = moment_of(now)
        actor = self._actor_of(token, at)
        if token.last_used_at is None or (at - token.last_used_at).total_seconds() >= NOTED_S:
            try:
                session.open().store.note_use(token.id, now=now)
            except StoreError as error:
                # A store that can't be written may still be read, so a failure does not refuse the caller.
                log.warning("could not record the use of token %s: %s", token.id, error)
        return actor

    def _actor_of(self, token: Token, now: datetime) -> Actor:
        """Return the actor of a token, by the users as last read."""
        if not token.is_open(now):
            raise Unauthenticated(NOBODY)
        try:
            user = LOCAL if token.user is None else self._seat.session.known_user(token.user)
        except PermissionDenied:
            raise Unauthenticated(NOBODY) from None
        if Permit.MANAGE in token.permits:
            # A token that may create tokens could create one for anything, so it is not restricted here either.
            return user
        operations = frozenset(operation for operation, permit in PERMITS.items() if permit in token.permits)
        return msgspec.structs.replace(user, operations=operations)


def is_same(one: str, other: str) -> bool:
    """Compare two secrets in constant time."""
    from hmac import compare_digest  # noqa: PLC0415 - only the HTTP server needs it

    return compare_digest(one.encode(errors="surrogatepass"), other.encode(errors="surrogatepass"))
