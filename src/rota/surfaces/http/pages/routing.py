"""The routes of pages: who visits, what the address says, and a page also for what nobody foresaw."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from rota.errors import InvalidOption, RotaError
from rota.surfaces.http.pages.failing import as_page
from rota.surfaces.http.pages.visit import Ask, form_of, stranger_of, visit_of
from rota.surfaces.http.problems import surprise
from rota.surfaces.http.routes import KnownRoute

F = TypeVar("F", bound=Callable[..., Response])
FORESEEN = (RotaError, HTTPException, ClientDisconnect, Ask)


class PageRoute(KnownRoute):
    """One page: a function of a visit, and of parameters that the address names."""

    def __init__(self, path: str, function: Callable[..., Response], method: str, *, is_open: bool) -> None:
        """Take the function; `is_open` if the page is also for who has not come in."""
        self._function = function
        self._is_open = is_open
        super().__init__(path, self._serve, methods=[method], name=function.__name__)

    async def _serve(self, request: Request) -> Response:
        try:
            form = await form_of(request)
            return await run_in_threadpool(self._show, request, form)
        except FORESEEN:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader gets a page and the log the reason
            return as_page(request, surprise(request.method, request.url.path, error))

    def _show(self, request: Request, form: Any) -> Response:
        visit = (stranger_of if self._is_open else visit_of)(request, form)
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


class PageRouter:
    """The pages of one module."""

    def __init__(self) -> None:
        """Begin with none."""
        self.routes: list[PageRoute] = []

    def get(self, path: str, *, is_open: bool = False) -> Callable[[F], F]:
        """Make a function a page."""
        return self._add("GET", path, is_open=is_open)

    def post(self, path: str, *, is_open: bool = False) -> Callable[[F], F]:
        """Make a function what a form does."""
        return self._add("POST", path, is_open=is_open)

    def _add(self, method: str, path: str, *, is_open: bool) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            self.routes.append(PageRoute(path, function, method, is_open=is_open))
            return function

        return decorate


def page_router() -> PageRouter:
    """Return a router for the pages of a module."""
    return PageRouter()
