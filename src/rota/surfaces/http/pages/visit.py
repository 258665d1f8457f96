"""One visit of a browser: who it is, what its form says, and the answers a page can give."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rota.app import Rota
from rota.errors import InvalidOption, PermissionDenied
from rota.model.access import csrf_of
from rota.model.gate import Actor, Right, Role, scope_of
from rota.surfaces.http.access import COOKIE, CSRF_FIELD, door_of, rota_of
from rota.surfaces.http.pages.rendering import THEMES, render

FIELDS_MAX = 1000
"""Fields of one form, at most."""
PART = "x-rota-part"
"""The header of a request for the inside of a page only."""
SAID = "rota_said"
"""The cookie with what the page after an act says, once."""
SAID_S = 60
SAID_MAX = 1000
THEME = "rota_theme"
SURE = "sure"
EVENTS = "/api/v1/events"


class Ask(Exception):  # noqa: N818 - a question, not an error of anybody
    """Something that can't be taken back is asked about, once."""

    def __init__(self, question: str, verb: str) -> None:
        """Take the question and the word on the button that means yes."""
        super().__init__(question)
        self.question = question
        self.verb = verb


class Form(dict[str, str]):
    """The fields of a form; of one that is given twice, the last counts here, and `pairs` has all."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        """Take what was sent."""
        super().__init__(pairs)
        self.pairs = pairs

    def text(self, name: str) -> str | None:
        """Return what stands in a field, None if nothing does."""
        return self.get(name, "").strip() or None

    def need(self, name: str) -> str:
        """Return what stands in a field, or refuse the form."""
        found = self.text(name)
        if found is None:
            raise InvalidOption(f"{name} is empty: fill it in")
        return found

    def number(self, name: str) -> int | None:
        """Return the whole number of a field, None if it is empty."""
        found = self.text(name)
        if found is None:
            return None
        if not found.removeprefix("-").isdecimal() or len(found) > 18:
            raise InvalidOption(f"{name}={found[:40]!r} is not a whole number")
        return int(found)


class Visit:
    """A page's view of one request."""

    def __init__(self, request: Request, rota: Rota, actor: Actor | None, *, csrf: str = "", form: Form | None = None) -> None:
        """Take who asks for what; `actor` is None for somebody at the door."""
        self.request = request
        self.rota = rota
        self.csrf = csrf
        self.form = form or Form([])
        self._actor = actor

    @property
    def actor(self) -> Actor:
        """Who asks."""
        assert self._actor is not None  # noqa: S101 - pages for nobody ask for none
        return self._actor

    @property
    def known(self) -> bool:
        """Say whether somebody has come in."""
        return self._actor is not None

    def may(self, operation: Right) -> bool:
        """Say whether the actor's right reaches anything: what it may not do is not offered."""
        try:
            scope_of(self.actor, operation)
        except PermissionDenied:
            return False
        return True

    def must(self, operation: Right) -> None:
        """Refuse, in the gate's words, what the actor may not do: before it is asked whether it is sure."""
        scope_of(self.actor, operation)

    @property
    def everywhere(self) -> bool:
        """Say whether the actor sees more than one organization."""
        return self.known and self.actor.role is Role.MANAGER

    @property
    def here(self) -> str:
        """The address of this page, to come back to."""
        url = self.request.url
        return f"{url.path}?{url.query}" if url.query else url.path

    def with_query(self, **changed: object) -> str:
        """Return the address of this page with other filters; None takes one away."""
        names = set(changed)
        kept = [(name, value) for name, value in self.request.query_params.multi_items() if name not in names and value]
        new = [(name, str(value)) for name, value in changed.items() if value is not None]
        query = urlencode(kept + new)
        return f"{self.request.url.path}?{query}" if query else self.request.url.path

    # ---- answers ----------------------------------------------------------------------------------------------

    def page(self, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **context: Any) -> Response:
        """Return a page; only its inside, if that is what was asked for."""
        part = PART in self.request.headers
        theme = self.request.cookies.get(THEME, "")
        said = "" if part else unquote(self.request.cookies.get(SAID, ""))[:SAID_MAX]
        text = render(
            template,
            visit=self,
            part=part,
            theme=theme if theme in THEMES else "",
            said=said,
            events=EVENTS if self.known and self.may(Right.READ) else "",
            **context,
        )
        answer = HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store", "Vary": f"Cookie, {PART}", **(headers or {})})
        if said:
            answer.delete_cookie(SAID)
        return answer

    def done(self, said: str, to: str | None = None) -> Response:
        """Go on to a page (the one that the form names, if it is ours), which says what was done."""
        answer = RedirectResponse(ours(self.form.get("back")) or to or "/", status_code=HTTPStatus.SEE_OTHER)
        answer.set_cookie(SAID, quote(said[:SAID_MAX]), max_age=SAID_S, httponly=True, samesite="strict", secure=is_secure(self.request))
        return answer

    def sure(self, question: str, verb: str) -> None:
        """Go on only if the person was asked and said yes."""
        if self.form.get(SURE) != "yes":
            raise Ask(question, verb)


def ours(address: str | None) -> str | None:
    """Return an address of a page of ours; no other may be gone on to."""
    if not address or not address.startswith("/") or address.startswith("//") or "\\" in address or not address.isprintable():
        return None
    return address


def is_secure(request: Request) -> bool:
    """Say whether the browser came by https."""
    return request.url.scheme == "https"


async def form_of(request: Request) -> Form:
    """Return the form that was sent."""
    if request.method != "POST":
        return Form([])
    body = await request.body()
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError:
        raise InvalidOption("this form can't be read: send it as application/x-www-form-urlencoded in UTF-8") from None
    return Form(pairs)


def visit_of(request: Request, form: Form) -> Visit:
    """Return the visit of somebody who has come in; what changes something must carry the form's own word."""
    actor = door_of(request).who(request, shown=form.get(CSRF_FIELD))
    given = [*request.query_params.multi_items(), *form.pairs, *request.path_params.items()]
    if any("\0" in str(value) for _, value in given):
        raise InvalidOption("this has a NUL character in it, which no store can keep or look for")
    session = request.cookies.get(COOKIE)
    made = Visit(request, rota_of(request), actor, csrf="" if session is None else csrf_of(session), form=form)
    request.state.visit = made
    return made


def stranger_of(request: Request, form: Form) -> Visit:
    """Return the visit of somebody at the door."""
    return Visit(request, rota_of(request), None, form=form)
