"""The router of a page module: what goes wrong in it unforeseen is a page too, and only the log says what it was."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from rota.errors import RotaError
from rota.surfaces.http.pages.failing import as_page
from rota.surfaces.http.pages.visit import Ask
from rota.surfaces.http.problems import surprise

FORESEEN = (RotaError, RequestValidationError, HTTPException, ClientDisconnect, Ask)


class PageRoute(APIRoute):
    """One page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request for it."""
        answer = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                return await answer(request)
            except FORESEEN:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the reader gets a page and the log the reason
                return as_page(request, surprise(request.method, request.url.path, error))

        return guarded


def page_router() -> APIRouter:
    """Return a router for pages."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)
