"""Who asks: a bearer token, or the session of a browser. Everything else of the API is given an Actor and asks the one gate."""

from __future__ import annotations

import threading
import time

import msgspec
from starlette.requests import Request

from rota.admission import NOBODY, Admission, is_same
from rota.app import Rota
from rota.errors import PermissionDenied, TooManyAttempts, Unauthenticated
from rota.model.access import csrf_of, digest
from rota.model.gate import Actor
from rota.surfaces.http.answers import ACTOR

COOKIE = "rota_session"
CSRF_HEADER = "x-rota-csrf"
CSRF_FIELD = "csrf"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
PLACES_MAX = 10_000
"""Places whose wrong attempts are remembered, at most: beyond that the oldest are forgotten."""


class Throttle:
    """Counts wrong tokens by where they come from, in a window that slides."""

    def __init__(self, most: int, window_s: float) -> None:
        """Allow so many in so long."""
        self._most = most
        self._window_s = window_s
        self._wrong: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def note(self, place: str) -> None:
        """Remember a wrong token; refuse a place that had been wrong too often before it."""
        with self._lock:
            recent = self._recent(place)
            self._wrong.pop(place, None)
            # The newest keep the door closed: who goes on trying goes on waiting.
            self._wrong[place] = [*recent, time.monotonic()][-self._most :]
            while len(self._wrong) > PLACES_MAX:
                del self._wrong[next(iter(self._wrong))]
            self._refuse(recent)

    def _refuse(self, recent: list[float]) -> None:
        if len(recent) >= self._most:
            after_s = recent[0] + self._window_s - time.monotonic()
            left_s = max(1, round(after_s))
            raise TooManyAttempts(f"too many wrong tokens came from here: use a right one, or wait {left_s} s before the next try", after_s)

    def _recent(self, place: str) -> list[float]:
        since = time.monotonic() - self._window_s
        return [at for at in self._wrong.get(place, ()) if at > since]


class Door:
    """Lets requests in."""

    def __init__(self, rota: Rota) -> None:
        """Take whose door it is."""
        self._rota = rota
        self.throttle = Throttle(rota.settings.login_attempts, rota.settings.login_window)

    def who(self, request: Request, *, shown: str | None = None) -> Actor:
        """Return who asks. A session that changes something must show that its own page asked: by a header, or by what a form `shown`."""
        actor = request.scope[ACTOR] = self.known(request)
        if request.method not in SAFE and not _given(request):
            word = csrf_of(request.cookies.get(COOKIE, ""))
            if not is_same(shown or request.headers.get(CSRF_HEADER, ""), word):
                raise PermissionDenied("this did not come from a page of Rota's own: reload the page and do it again")
        return actor

    def known(self, request: Request) -> Actor:
        """Return who comes, whatever they come for; refuse who is nobody."""
        try:
            return self._known(request)
        except Unauthenticated:
            # A right token is always let in: others may share its address. An old cookie is no attempt.
            if "authorization" in request.headers:
                self.throttle.note(place_of(request))
            raise

    def key(self, request: Request) -> bytes:
        """Return the digest of what a request comes with: a token, or the session of a browser."""
        given = _given(request)
        return digest(given.partition(" ")[2].strip() if given else request.cookies.get(COOKIE, ""))

    def _known(self, request: Request) -> Actor:
        given = _given(request)
        if given:
            # It alone decides, also where no token is in it: requests that go together are known by this header.
            scheme, _, secret = given.partition(" ")
            if scheme.lower() != "bearer":
                raise Unauthenticated(f"{scheme[:20]!r} is not how to come in: give `Authorization: Bearer` and a token")
            return Admission(self._rota).authenticate(secret.strip())
        session = request.cookies.get(COOKIE)
        if session is None:
            raise Unauthenticated(NOBODY)
        return Admission(self._rota).session(session)


def _given(request: Request) -> str:
    """Return what a request says of itself, beside its cookies."""
    return request.headers.get("authorization", "").strip()


def place_of(request: Request) -> str:
    """Return where a request comes from, as far as wrong tokens are counted."""
    return request.client.host if request.client else "?"


def door_of(request: Request) -> Door:
    """Return the door of the app that a request came to."""
    door: Door = request.app.state.door
    return door


def rota_of(request: Request) -> Rota:
    """Return the Rota that an app serves."""
    rota: Rota = request.app.state.rota
    return rota


def answered(actor: Actor) -> Actor:
    """Return an actor as one who is told what came of its own act: also with a token that is for acting and not for reading."""
    return msgspec.structs.replace(actor, operations=None)
