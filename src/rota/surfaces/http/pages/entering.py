"""The door: log in with a token, log out, and choose between dark and light."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import RedirectResponse, Response

from rota.admission import Admission
from rota.errors import PermissionDenied, Unauthenticated
from rota.surfaces.http.access import COOKIE, door_of, place_of
from rota.surfaces.http.pages.rendering import THEMES
from rota.surfaces.http.pages.routing import page_router
from rota.surfaces.http.pages.visit import THEME, Visit, is_secure, ours

router = page_router()

YEAR_S = 365 * 86_400


@router.get("/login", is_open=True)
def ask(visit: Visit, next: str = "/") -> Response:  # noqa: A002 - the word in the address
    """Show the door; who has come in already goes on."""
    session = visit.request.cookies.get(COOKIE)
    if session is not None:
        try:
            Admission(visit.rota).session(session)
        except Unauthenticated:
            pass
        else:
            return RedirectResponse(ours(next) or "/", status_code=HTTPStatus.SEE_OTHER)
    return visit.page("login.html", title="Log in", wrong="", next=ours(next) or "/")


@router.post("/login", is_open=True)
def enter(visit: Visit) -> Response:
    """Let a browser in that brings a token. Another site's form is refused: it would let its visitor in as somebody else."""
    if visit.request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise PermissionDenied("this did not come from a page of Rota's own: open the login page and paste the token there")
    door, place, to = door_of(visit.request), place_of(visit.request), ours(visit.form.get("next")) or "/"
    try:
        session = Admission(visit.rota).open_session(visit.form.get("token", "").strip())
    except Unauthenticated as wrong:
        # Only wrong tokens are counted and throttled: others who share this address can log in with a right one.
        door.throttle.note(place)
        return visit.page("login.html", status=HTTPStatus.UNAUTHORIZED, title="Log in", wrong=str(wrong), next=to)
    answer = RedirectResponse(to, status_code=HTTPStatus.SEE_OTHER)
    answer.set_cookie(
        COOKIE, session.secret, max_age=session.max_age_s, path="/", httponly=True, samesite="strict", secure=is_secure(visit.request)
    )
    return answer


@router.post("/logout")
def leave(visit: Visit) -> Response:
    """End the session."""
    Admission(visit.rota).close_session(visit.request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/login", status_code=HTTPStatus.SEE_OTHER)
    answer.delete_cookie(COOKIE)
    return answer


@router.post("/theme", is_open=True)
def dress(visit: Visit) -> Response:
    """Take the other of dark and light: for browsers without JavaScript. It changes nothing but this browser's own cookie."""
    other = THEMES[visit.request.cookies.get(THEME) == THEMES[0]]
    answer = RedirectResponse(ours(visit.form.get("back")) or "/", status_code=HTTPStatus.SEE_OTHER)
    answer.set_cookie(THEME, other, max_age=YEAR_S, path="/", samesite="strict", secure=is_secure(visit.request))
    return answer
