"""Refusals as pages: the words of the problem for people, problem+json for everything that does not ask for a page."""

from __future__ import annotations

from http import HTTPStatus
from inspect import isawaitable
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rota.errors import RotaError, Unauthenticated
from rota.surfaces.http.access import COOKIE, rota_of
from rota.surfaces.http.pages.visit import PART, SURE, Ask, Visit

NOT_PAGES = ("/api/", "/metrics")
HINTS = {
    HTTPStatus.FORBIDDEN: "Somebody with another role may do this: ask a system manager.",
    HTTPStatus.NOT_FOUND: "It may have been removed, or belong to somebody else.",
    HTTPStatus.TOO_MANY_REQUESTS: "Wait a little, then do it again.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store is busy or away. Nothing was changed; try again.",
}


def install(app: Starlette) -> None:
    """Let what the app refuses be a page where a page was asked for, and let pages ask back."""
    for kind in (RotaError, HTTPException):
        app.add_exception_handler(kind, _or_page(app.exception_handlers[kind]))
    app.add_exception_handler(Ask, _ask)


def _or_page(plain: Any) -> Any:
    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, Unauthenticated) and _wants_page(request):
            return _to_the_door(request)
        found = plain(request, error)
        refused: Response = await found if isawaitable(found) else found
        return as_page(request, refused)

    return answer


def _wants_page(request: Request) -> bool:
    if request.url.path.startswith(NOT_PAGES) or PART in request.headers:
        return False
    return "text/html" in request.headers.get("accept", "")


def as_page(request: Request, refused: Response) -> Response:
    """Return a problem as a page, in the same words and with the same status, if that is what was asked for."""
    if not _wants_page(request):
        return refused
    said = msgspec.json.decode(bytes(refused.body))
    status = HTTPStatus(refused.status_code)
    headers = {name: value for name, value in refused.headers.items() if name in {"retry-after", "allow"}}
    detail = said["detail"] if said["code"] != "no_such_page" else f"there is no page {request.url.path}"
    return _visit(request).page(
        "problem.html", status=status, headers=headers, title=status.phrase, detail=detail, code=said["code"], hint=HINTS.get(status, "")
    )


def _to_the_door(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    to = f"/login?next={quote(wanted)}" if request.method == "GET" and wanted != "/" else "/login"
    answer = RedirectResponse(to, status_code=HTTPStatus.SEE_OTHER)
    # A session that is over is not shown again: each showing would count as a wrong token.
    answer.delete_cookie(COOKIE)
    return answer


def _ask(request: Request, question: Any) -> Response:
    """Ask once, with the form as it was sent: saying yes sends it again."""
    visit = _visit(request)
    fields = [(name, value) for name, value in visit.form.pairs if name not in {"csrf", SURE}]
    return visit.page(
        "ask.html", headers={"x-rota-ask": "1"}, question=question.question, verb=question.verb, fields=fields, action=request.url.path
    )


def _visit(request: Request) -> Visit:
    found: Visit | None = getattr(request.state, "visit", None)
    return found or Visit(request, rota_of(request), None)
