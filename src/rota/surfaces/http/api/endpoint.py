"""Endpoints: each operation at its address, read from the request by the operation's own parameters; and routes written by hand."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Collection
from functools import cached_property
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rota import wire
from rota.app import Rota
from rota.errors import InvalidOption, NotFound, PermissionDenied, UnknownOrganization, UnknownTemplate
from rota.model.gate import Actor, Right, scope_of
from rota.operation import NOUNS, Ask, Field, Operation, ask_for, noun, operations, refuse_denied
from rota.surfaces.http.api import results
from rota.surfaces.http.api.requests import JSON, BadRequest, body_type, read
from rota.surfaces.http.api.results import PAGE_MAX, Cursors, Key

F = TypeVar("F", bound=Callable[..., Any])

API = "/api/v1"
MANY_MAX = 10_000
"""Things that one request acts on, at most."""
PER_PAGE = 100
"""Items of a page of a list that is whole in memory, unless the request says how many."""
IN_ADDRESS = frozenset({"GET", "DELETE"})
"""Methods whose parameters are in the address; those of all others are the body."""
PROMISING = ("If-Match", "Idempotency-Key")
"""Headers that promise something to the client. A route that would ignore one refuses it."""
_PLACES = re.compile(r"\{(\w+)\}")


class Asked(msgspec.Struct, frozen=True, eq=False):
    """A request for an endpoint that is written by hand: the Rota as the caller uses it, and who that is."""

    request: Request
    rota: Rota
    who: Actor


class Address(Route):
    """A route of the API."""

    def __init__(self, name: str, tag: str, http: str, endpoint: Callable[[Request], Any], headers: Collection[str]) -> None:
        """Take its name, its chapter of the document, its method and path, what answers, and the headers that it reads."""
        self.tag = tag
        self._refused = {header.lower().encode(): header for header in PROMISING if header not in headers}
        self.method, _, self.shown = http.partition(" ")
        # A name may have slashes.
        super().__init__(API + self.shown.replace("{name}", "{name:path}"), endpoint, methods=[self.method], name=name)
        # Starlette adds HEAD to GET. Streams would answer it without an end.
        self.methods = {self.method}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless it has a header that would be ignored."""
        ignored = next((self._refused[name] for name, _ in scope["headers"] if name in self._refused), None)
        if ignored is not None and scope["method"] == self.method:
            raise InvalidOption(f"header.{ignored}: {self.name} does not read it: leave it out")
        await super().handle(scope, receive, send)


class Endpoint(Address):
    """One operation at its address."""

    def __init__(self, name: str, tag: str, operation: Operation, method: Callable[[Asked, str | None], Callable[..., Any]]) -> None:
        """Take its name, such as `jobs.update`, and the function that returns what is called, given the expected state of an edit."""
        self.operation = operation
        self._method = method
        super().__init__(name, tag, f"{operation.method} {operation.path}", self._serve, ["If-Match"] if self.checks_version else [])

    @property
    def checks_version(self) -> bool:
        """Whether it is an edit that may name the version it expects."""
        return self.operation.etag and self.operation.method != "GET" and self.operation.status != HTTPStatus.CREATED

    @cached_property
    def parameters(self) -> dict[str, Field]:
        """Its parameters that a request may name, without `limit` and `cursor` of a list."""
        fields = {field.name: field for field in self.operation.fields if wire.reader_of(field).wire is not None}
        if self.limit is not None:
            fields = {name: field for name, field in fields.items() if name not in {"limit", "before"}}
        return fields

    @cached_property
    def in_path(self) -> frozenset[str]:
        """The parameters that are part of its path."""
        return frozenset(_PLACES.findall(self.operation.path))

    @cached_property
    def takes_body(self) -> bool:
        """Whether it has parameters that are its body."""
        return self.operation.method not in IN_ADDRESS and bool(self.parameters.keys() - self.in_path)

    @cached_property
    def item(self) -> Any:
        """The type of the items, if it returns a list; None otherwise."""
        origin = typing.get_origin(self.operation.result)
        return typing.get_args(self.operation.result)[0] if isinstance(origin, type) and issubclass(origin, list) else None

    @cached_property
    def limit(self) -> int | None:
        """How many items it returns, unless the request says so; None: it is no list, or a short one."""
        if self.operation.method != "GET" or self.item is None:
            return None
        usual = next((field.default for field in self.operation.fields if field.name == "limit"), None)
        return PER_PAGE if usual is None and self.item in results.KEYS else usual

    @cached_property
    def place(self) -> Any:
        """The type of a place in its list; None if it has no pages."""
        if self.limit is None:
            return None
        return next((wire.kind_of(field) for field in self.operation.fields if field.name == "before"), Key if self.is_cut else None)

    @cached_property
    def is_cut(self) -> bool:
        """Whether its list is whole in memory, and is cut into pages here."""
        return self.limit is not None and all(field.name != "limit" for field in self.operation.fields)

    async def _serve(self, request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(self._answer, request, body)

    def _answer(self, request: Request, body: bytes) -> Response:
        who: Actor = request.app.state.door.who(request)
        try:
            scope_of(who, self.operation.right)
        except PermissionDenied:
            # Privileges may reach further than the role.
            refuse_denied(request.app.state.rota, who, self.operation.right)
        given = self._given(request, body)
        cursor, limit = given.pop("cursor", None), given.pop("limit", self.limit) if self.limit is not None else None
        keywords = wire.read(self.operation, given, text=not self.takes_body)
        if self.takes_body and (keywords.get("limit") or 0) > MANY_MAX:
            raise InvalidOption(f"limit={keywords['limit']} is not allowed here: give at most {MANY_MAX:,}, and repeat the request")
        page = None if limit is None else self._page(keywords, limit, cursor)
        rota: Rota = request.app.state.rota
        asked = Asked(request, rota.acting_as(who), who)
        method = self._method(asked, request.headers.get("if-match"))
        try:
            result = wire.call(method, self.operation, keywords)
        except (UnknownTemplate, UnknownOrganization) as error:
            # A name in the path that is nobody's is a 404; in a body it is a wrong value.
            word = "template" if isinstance(error, UnknownTemplate) else "organization"
            if not self.in_path or word in keywords:
                raise
            raise NotFound(str(error)) from None
        return result if isinstance(result, Response) else results.answer(asked, self.operation, result, page)

    def _page(self, keywords: dict[str, Any], given: object, cursor: str | None) -> results.Paging | None:
        """Return which page of a list is asked for, and add what the operation is told of it to its keywords."""
        try:
            limit = msgspec.convert(given, int, strict=False)
        except msgspec.ValidationError:
            limit = 0
        if not 1 <= limit <= PAGE_MAX:
            raise InvalidOption(f"limit={given!r:.40} is not allowed: give a whole number from 1 to {PAGE_MAX:,}")
        page = None
        if self.place is not None:
            page = results.Paging(Cursors(self.name, keywords), limit)
            place = None if cursor is None else page.cursors.unseal(cursor, self.place)
            if self.is_cut:
                page.after = place
            else:
                keywords["before"] = place
        if not self.is_cut:
            keywords["limit"] = limit
        return page

    def _given(self, request: Request, body: bytes) -> dict[str, Any]:
        """Return what a request says: by its path and its query, or by its path and its body."""
        known = self.parameters.keys() - self.in_path
        if self.limit is not None:
            known |= {"limit"} if self.place is None else {"limit", "cursor"}
        path = dict(request.path_params)
        if any("\0" in value for value in path.values()):
            raise NotFound("there is nothing with a NUL character in its name")
        if not self.takes_body:
            if body:
                body_type(request, JSON)
                if read(body, dict):
                    raise InvalidOption(f"{self.name} takes no body: send none")
            return path | self._query(request, known)
        self._query(request, set())
        if self.operation.confirm is not None and not self.in_path and not body.strip():
            everything = '{"all": true}' if "all" in known else "{}"
            raise BadRequest(f"body is missing: send the filters, or {everything} for everything")
        if body:
            body_type(request, JSON)
        said = read(body, dict[str, Any])
        for name, value in said.items():
            if name not in known:
                raise InvalidOption(f"body.{name[:80]}: there is no such field; {self.name} takes {', '.join(known)}")
            _searchable(name, value)
        return path | said

    def _query(self, request: Request, known: set[str]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name in request.query_params:
            values = request.query_params.getlist(name)
            if name not in known:
                takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
                raise InvalidOption(f"query.{name[:80]}: there is no such parameter; {takes}")
            field = self.parameters.get(name)
            several = field is not None and wire.is_list(field)
            if len(values) > 1 and not several:
                raise InvalidOption(f"query.{name}: it is given {len(values)} times: give it once")
            if "null" in values and (field is None or not wire.is_text(field)):
                raise InvalidOption(f"query.{name}: 'null' is not a value of it: leave it out")
            given[name] = [_searchable(name, value) for value in values] if several else _searchable(name, values[0])
        return given


def made() -> list[Endpoint]:
    """Return the endpoints of all operations that have an address."""
    return [
        Endpoint(f"{name}.{verb}", name.replace("_", " ").capitalize(), each, _verb(name, verb))
        for name in NOUNS
        for verb, each in operations(noun(name)).items()
        if each.path and f"{name}.{verb}" not in OTHERWISE
    ]


OTHERWISE = {
    "jobs.log": "it is also sent as text, and as a stream",
    "jobs.direct": "it waits for a run, and takes an Idempotency-Key",
}
"""Operations whose endpoints are written by hand, and why."""
BY_HAND: list[Endpoint] = []
"""Endpoints that are written by hand, and read and answered as operations are."""


def by_hand(name: str, right: Right, http: str, *, tag: str, status: int = 200) -> Callable[[F], F]:
    """Make a function an endpoint, read and answered as operations are: it takes an `Asked` and an `Ask`, then its parameters."""

    def decorate(function: F) -> F:
        def method(asked: Asked, _expected: str | None) -> Callable[..., Any]:
            ask: Ask = ask_for(asked.rota, right)
            return lambda *args, **keywords: function(asked, ask, *args, **keywords)

        BY_HAND.append(Endpoint(name, tag, Operation(function, right, http, None, False, status, None), method))  # noqa: FBT003 - as the decorator makes it
        return function

    return decorate


def _verb(name: str, verb: str) -> Callable[[Asked, str | None], Callable[..., Any]]:
    def method(asked: Asked, expected: str | None) -> Callable[..., Any]:
        one = getattr(asked.rota, name)
        return typing.cast("Callable[..., Any]", getattr(one if expected is None else one.if_match(expected), verb))

    return method


def _searchable(name: str, value: Any) -> Any:
    """Return a value of a request, unless it has a character that no store can look for."""
    for text in value if isinstance(value, list) else (value,):
        if isinstance(text, str) and "\0" in text:
            raise InvalidOption(f"{name} has a NUL character, which no name or text has: leave it out")
    return value


# ---- routes that are written by hand ---------------------------------------------------------------------------------


class Described(typing.TypedDict, total=False):
    """What the OpenAPI document says of a route that is written by hand, beside its docstring."""

    parameters: list[dict[str, Any]]
    content: dict[str, Any]
    """Its body, by media type."""
    responses: typing.Required[dict[int | str, dict[str, Any]]]
    is_open: bool
    """It asks for no token."""


class HandRoute(Address):
    """A route that is written by hand, because it streams, waits, or takes more than one kind of body. It describes itself."""

    def __init__(self, name: str, tag: str, http: str, endpoint: Callable[[Request], Any], described: Described) -> None:
        """Take what answers, and what is said of it."""
        super().__init__(name, tag, http, endpoint, [each["name"] for each in described.get("parameters", ())])
        self.described = described


def route(name: str, tag: str, http: str, **described: typing.Unpack[Described]) -> Callable[[F], F]:
    """Make a function of a request a route."""

    def decorate(function: F) -> F:
        ROUTES.append(HandRoute(name, tag, http, function, described))
        return function

    return decorate


ROUTES: list[HandRoute] = []
"""Every route that is written by hand."""
