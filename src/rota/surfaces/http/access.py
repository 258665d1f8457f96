"""Who asks: a bearer token, or the session of a browser. Everything else of the API is given an Actor and asks the one gate."""

from __future__ import annotations

import threading
import time
from hashlib import blake2b
from urllib.parse import quote

from starlette.requests import Request

from rota.admission import NOBODY, Admission, is_same
from rota.app import Rota
from rota.errors import PermissionDenied, TooManyAttempts, Unauthenticated
from rota.model.access import csrf_of, digest
from rota.model.gate import Actor

ACTOR = "rota.actor"
"""Where the scope of a request has the actor whom the door let in."""
COOKIE = "rota_session"
"""The cookie of a browser that has logged in: see `cookie_name`."""
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
        now = time.monotonic()
        with self._lock:
            recent = [at for at in self._wrong.pop(place, ()) if at > now - self._window_s]
            # The newest keep the door closed: who goes on trying goes on waiting.
            self._wrong[place] = [*recent, now][-self._most :]
            while len(self._wrong) > PLACES_MAX:
                del self._wrong[next(iter(self._wrong))]
        if len(recent) >= self._most:
            after_s = recent[0] + self._window_s - now
            left_s = max(1, round(after_s))
            raise TooManyAttempts(f"too many wrong tokens came from here: use a right one, or wait {left_s} s before the next try", after_s)


class Door:
    """Lets requests in."""

    def __init__(self, rota: Rota) -> None:
        """Take whose door it is."""
        self.admission = Admission(rota)
        self.throttle = Throttle(rota.settings.login_attempts, rota.settings.login_window)

    def who(self, request: Request, *, shown: str | None = None) -> Actor:
        """Return who asks. A session that changes something must show that its own page asked: by a header, or by what a form `shown`."""
        actor = request.scope[ACTOR] = self.known(request)
        if request.method not in SAFE and not request.headers.get("authorization", "").strip():
            word = csrf_of(request.cookies.get(cookie_name(request, COOKIE), ""))
            if not is_same(shown or request.headers.get(CSRF_HEADER, ""), word):
                raise PermissionDenied("this did not come from a page of Rota's own: reload the page and do it again")
        return actor

    def known(self, request: Request) -> Actor:
        """Return who comes, whatever they come for; refuse who is nobody."""
        given = request.headers.get("authorization", "").strip()
        try:
            if given:
                # It alone decides, also where no token is in it: requests that go together are known by this header.
                scheme, _, secret = given.partition(" ")
                if scheme.lower() != "bearer":
                    raise Unauthenticated(f"{scheme[:20]!r} is not how to come in: give `Authorization: Bearer` and a token")
                return self.admission.authenticate(secret.strip())
            session = request.cookies.get(cookie_name(request, COOKIE))
            if session is None:
                raise Unauthenticated(NOBODY)
            return self.admission.session(session)
        except Unauthenticated:
            # A right token is always let in: others may share its address. An old cookie is no attempt.
            if "authorization" in request.headers:
                self.throttle.note(place_of(request))
            raise

    def key(self, request: Request) -> bytes:
        """Return the digest of what a request comes with: a token, or the session of a browser."""
        given = request.headers.get("authorization", "").strip()
        return digest(given.partition(" ")[2].strip() if given else request.cookies.get(cookie_name(request, COOKIE), ""))


def root_of(request: Request) -> str:
    """Return the path below which the app is mounted, or which a proxy takes off; empty if there is none."""
    root = request.scope.get("root_path", "").strip("/")
    return f"/{quote(root)}" if root else ""


def cookie_name(request: Request, name: str) -> str:
    """Return the name that a cookie has below the root of this app.

    Browsers send a cookie of `/` to `/rota` as well, so Rotas below several paths of one host must not share a name.
    """
    root = root_of(request)
    return f"{name}_{blake2b(root.encode(), digest_size=4).hexdigest()}" if root else name


def place_of(request: Request) -> str:
    """Return where a request comes from, as far as wrong tokens are counted."""
    return request.client.host if request.client else "?"
