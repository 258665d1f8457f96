"""Logging in with a token, logging out, and the choice between dark and light."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import RedirectResponse, Response

from rota.errors import PermissionDenied, Unauthenticated
from rota.surfaces.http.access import COOKIE, Door, place_of
from rota.surfaces.http.pages.context import THEME, THEMES, Visit, is_secure, ours
from rota.surfaces.http.pages.routes import page

YEAR_S = 365 * 86_400


@page("GET /login", is_open=True)
def ask(visit: Visit, next: str = "/") -> Response:  # noqa: A002 - the word in the address
    """Show the door; who has come in already goes on."""
    session = visit.request.cookies.get(COOKIE)
    if session is not None:
        try:
            _door(visit).admission.session(session)
        except Unauthenticated:
            pass
        else:
            return RedirectResponse(ours(next) or "/", status_code=HTTPStatus.SEE_OTHER)
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
    answer = RedirectResponse(to, status_code=HTTPStatus.SEE_OTHER)
    answer.set_cookie(
        COOKIE, session.secret, max_age=session.max_age_s, path="/", httponly=True, samesite="strict", secure=is_secure(visit.request)
    )
    return answer


@page("POST /logout")
def leave(visit: Visit) -> Response:
    """End the session."""
    _door(visit).admission.close_session(visit.request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/login", status_code=HTTPStatus.SEE_OTHER)
    answer.delete_cookie(COOKIE)
    return answer


@page("POST /theme", is_open=True)
def dress(visit: Visit) -> Response:
    """Take the other of dark and light: for browsers without JavaScript. It changes nothing but this browser's own cookie."""
    other = THEMES[visit.request.cookies.get(THEME) == THEMES[0]]
    answer = RedirectResponse(ours(visit.form.get("back")) or "/", status_code=HTTPStatus.SEE_OTHER)
    answer.set_cookie(THEME, other, max_age=YEAR_S, path="/", samesite="strict", secure=is_secure(visit.request))
    return answer


def _door(visit: Visit) -> Door:
    door: Door = visit.request.app.state.door
    return door
