"""The routes of pages: who visits, what the address says, and a page also for what is refused and what nobody foresaw."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from http import HTTPStatus
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rota.errors import InvalidOption, RotaError, Unauthenticated
from rota.model.gate import Actor, Right
from rota.surfaces.http import problems
from rota.surfaces.http.access import COOKIE, CSRF_FIELD
from rota.surfaces.http.pages.context import BODIES, DIGESTS, PART, STATIC, SURE, Ask, Form, Visit, form_of, path_of
from rota.surfaces.http.problems import surprise

F = TypeVar("F", bound=Callable[..., Response])
T = TypeVar("T")
Verb = Annotated[str, Meta(max_length=20)]
Name = Annotated[str, Meta(max_length=255)]
Before = Annotated[int, Meta(ge=1, le=2**62)] | None
"""The place in a list that a page begins after."""
FORESEEN = (RotaError, HTTPException, ClientDisconnect, Ask)
FOR_EVER = "public, max-age=31536000, immutable"
NOT_PAGES = ("/api/", "/metrics")
HINTS = {
    HTTPStatus.FORBIDDEN: "Somebody with another role may do this: ask a system manager.",
    HTTPStatus.NOT_FOUND: "It may have been removed, or belong to somebody else.",
    HTTPStatus.TOO_MANY_REQUESTS: "Wait a little, then do it again.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store is busy or away. Nothing was changed; try again.",
}


class PageRoute(Route):
    """One page: a function of a visit, and of parameters that the address names."""

    def __init__(self, path: str, function: Callable[..., Response], method: str, *, is_open: bool, script: str = "") -> None:
        """Take the function; `is_open` if the page is also for who has not come in; the field with the SQL that it runs."""
        self._function = function
        self._is_open = is_open
        self._script = script
        super().__init__(path, self._serve, methods=[method], name=function.__name__)

    async def _serve(self, request: Request) -> Response:
        try:
            form = await form_of(request) if request.method == "POST" else Form([])
            if self._script:
                state = request.app.state
                actor: Actor = await run_in_threadpool(state.door.known, request)
                shown: Response = await state.statements.do(request, actor, form.get(self._script, ""), partial(self._show, request, form))
                return shown
            return await run_in_threadpool(self._show, request, form)
        except FORESEEN:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader gets a page and the log the reason
            return as_page(request, surprise(request.method, request.url.path, error))

    def _show(self, request: Request, form: Form) -> Response:
        if self._is_open:
            visit = Visit(request, form=form)
        else:
            # What changes something must carry the form's own word.
            actor: Actor = request.app.state.door.who(request, shown=form.get(CSRF_FIELD))
            given = [*request.query_params.multi_items(), *form.pairs, *request.path_params.items()]
            if any("\0" in str(value) for _, value in given):
                raise InvalidOption("this has a NUL character in it, which no store can keep or look for")
            visit = request.state.visit = Visit(request, actor, form)
        return self._function(visit, **self._read({**request.query_params, **request.path_params}))

    def _read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return the parameters of the page; an address may have others, which are not for it, and an empty number is none."""
        known = {name: value for name, value in given.items() if name in self._parameters.__struct_fields__}
        try:
            read = msgspec.convert({name: value for name, value in known.items() if value}, self._parameters, strict=False)
        except msgspec.ValidationError as error:
            words, _, place = str(error).partition(" - at ")
            raise InvalidOption(f"{place.strip('`$.') or 'the address'}: {words}") from None
        return msgspec.structs.asdict(read)

    @cached_property
    def _parameters(self) -> type[msgspec.Struct]:
        hints = typing.get_type_hints(self._function, include_extras=True)
        fields: list[Any] = []
        for name, parameter in list(inspect.signature(self._function).parameters.items())[1:]:
            required = parameter.default is parameter.empty
            fields.append((name, hints[name]) if required else (name, hints[name], parameter.default))
        return msgspec.defstruct(self._function.__name__, fields, kw_only=True)


ROUTES: list[Route] = []
"""The pages, in the order in which they are looked at."""


def page(http: str, *, is_open: bool = False, script: str = "") -> Callable[[F], F]:
    """Make a function a page, or what a form does: of a method and a path. One that runs SQL names its field."""
    method, _, path = http.partition(" ")

    def decorate(function: F) -> F:
        ROUTES.append(PageRoute(path, function, method, is_open=is_open, script=script))
        return function

    return decorate


class Act(msgspec.Struct, frozen=True):
    """What a button does to one thing: a verb of a noun, which may have to be asked about first."""

    noun: str
    verb: str
    said: str
    """The sentence afterwards; `{name}` is the thing."""
    question: str = ""
    button: str = ""
    right: Right | None = None
    """What must be allowed before anything is asked."""

    def __call__(self, visit: Visit, name: str, **keywords: Any) -> str:
        """Do it, and return what is said."""
        if self.right is not None:
            visit.must(self.right)
        if self.question:
            visit.sure(self.question.format(name=name), self.button)
        getattr(getattr(visit.rota, self.noun), self.verb)(name, **keywords)
        return self.said.format(name=name)


def chosen(acts: Mapping[str, T], verb: str, whose: str) -> T:
    """Return the act of a button; refuse another word."""
    if verb not in acts:
        raise InvalidOption(f"{whose} can't {verb!r}: it can {', '.join(acts)}")
    return acts[verb]


def static_file(name: str) -> Route:
    """Return the route of a static file. It tells nothing about anybody: no session is asked for."""
    tag = f'"{DIGESTS[name]}"'

    async def serve(request: Request) -> Response:
        headers = {"ETag": tag, "Cache-Control": FOR_EVER if request.query_params.get("v") == DIGESTS[name] else "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(BODIES[name], media_type=STATIC[name], headers=headers)

    return Route(f"/static/{name}", serve)


# ---- refusals --------------------------------------------------------------------------------------------------------


def install(app: Starlette) -> None:
    """Let what the app refuses be a page where a page was asked for, and a problem elsewhere; and let pages ask back."""
    app.add_exception_handler(RotaError, _ours)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Ask, _ask)


async def _http(request: Request, error: Any) -> Response:
    if _wants_page(request) and not hasattr(request.state, "visit"):
        request.state.visit = await run_in_threadpool(_visitor, request)
    return as_page(request, problems.of_http(error))


async def _ours(request: Request, error: Any) -> Response:
    if isinstance(error, Unauthenticated) and _wants_page(request):
        return _to_the_door(request)
    return as_page(request, problems.of(error, store=request.app.state.rota.store.url))


def _wants_page(request: Request) -> bool:
    if path_of(request).startswith(NOT_PAGES) or PART in request.headers:
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
    visit = Visit(request)
    to = f"/login?next={quote(visit.here)}" if request.method == "GET" and visit.here != "/" else "/login"
    answer = visit.go(to)
    # A session that is over is not shown again: each showing would count as a wrong token.
    visit.drop(answer, COOKIE)
    return answer


def _ask(request: Request, question: Any) -> Response:
    """Ask once, with the form as it was sent: saying yes sends it again."""
    visit = _visit(request)
    fields = [(name, value) for name, value in visit.form.pairs if name not in {"csrf", SURE}]
    return visit.page(
        "ask.html", headers={"x-rota-ask": "1"}, question=question.question, verb=question.verb, fields=fields, action=visit.path
    )


def _visitor(request: Request) -> Visit:
    """Return the visit of a request that no page answers, with its user if the session is valid: its problem has the menu."""
    try:
        return Visit(request, request.app.state.door.known(request))
    except RotaError:
        return Visit(request)


def _visit(request: Request) -> Visit:
    found: Visit | None = getattr(request.state, "visit", None)
    return found or Visit(request)
