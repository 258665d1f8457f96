"""Logging in with a token, logging out, the choice between dark and light, and the time zone of the pages."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

from starlette.responses import Response

from rota.errors import PermissionDenied, Unauthenticated
from rota.model.zones import zone_of
from rota.surfaces.http.access import COOKIE, Door, place_of
from rota.surfaces.http.pages.context import THEME, THEMES, ZONE, Visit, ours
from rota.surfaces.http.pages.routes import page

YEAR_S = 365 * 86_400
BROWSER = "browser"
"""The word for the zone of the browser."""


@page("GET /login", is_open=True)
def ask(visit: Visit, next: str = "/") -> Response:  # noqa: A002 - the word in the address
    """Show the door; who has come in already goes on."""
    session = visit.cookie(COOKIE)
    if session is not None:
        try:
            _door(visit).admission.session(session)
        except Unauthenticated:
            pass
        else:
            return visit.go(ours(next) or "/")
    return visit.page("login.html", title="Log in", wrong="", next=ours(next) or "/")


@page("POST /login", is_open=True)
def enter(visit: Visit) -> Response:
    """Let a browser in that brings a token. Another site's form is refused: it would let its visitor in as somebody else."""
    if visit.request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise PermissionDenied("this did not come from a page of Rota's own: open the login page and paste the token there")
    door, to = _door(visit), ours(visit.form.get("next")) or "/"
    try:
        session = door.admission.open_session(visit.form.get("token", "").strip())
    except Unauthenticated as wrong:
        # Only wrong tokens are counted and throttled: others who share this address can log in with a right one.
        door.throttle.note(place_of(visit.request))
        return visit.page("login.html", status=HTTPStatus.UNAUTHORIZED, title="Log in", wrong=str(wrong), next=to)
    answer = visit.go(to)
    visit.keep(answer, COOKIE, session.secret, session.max_age_s)
    return answer


@page("POST /logout")
def leave(visit: Visit) -> Response:
    """End the session."""
    _door(visit).admission.close_session(visit.cookie(COOKIE) or "")
    answer = visit.go("/login")
    visit.drop(answer, COOKIE)
    return answer


@page("POST /theme", is_open=True)
def dress(visit: Visit) -> Response:
    """Take the other of dark and light: for browsers without JavaScript. It changes nothing but this browser's own cookie."""
    other = THEMES[visit.cookie(THEME) == THEMES[0]]
    answer = visit.go(ours(visit.form.get("back")) or "/")
    visit.keep(answer, THEME, other, YEAR_S, httponly=False)
    return answer


@page("POST /zone")
def set_zone(visit: Visit) -> Response:
    """Show times in another zone, or again in that of the browser. It changes nothing but this browser's own cookie."""
    answer = visit.go(ours(visit.form.get("back")) or "/")
    name = visit.form.text("zone")
    if name is None or name.casefold() == BROWSER:
        visit.drop(answer, ZONE)
    else:
        visit.keep(answer, ZONE, quote(zone_of(name).key, safe=""), YEAR_S, httponly=False)
    return answer


def _door(visit: Visit) -> Door:
    door: Door = visit.request.app.state.door
    return door
