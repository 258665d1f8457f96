"""Routers that read strictly: what is no JSON, says a name twice, or is not asked for is refused before anybody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from rota.surfaces.http.api.asking import JSON, STRICT, media_type, read, refuse_other

SHORT = 65_536
"""Bytes that are read in less time than another thread would take to begin."""


class StrictRoute(APIRoute):
    """A route whose body, if it takes one, is JSON as its RFC has it and no more."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what handles a request, with a look at its body before it."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def strict(request: Request) -> Response:
            body = await request.body()
            if body:
                refuse_other(media_type(request), JSON)
                if len(body) > SHORT:
                    # What takes long to read keeps nobody else waiting.
                    await run_in_threadpool(read, body, object)
                else:
                    read(body, object)
            return await handle(request)

        return strict


def strict_router(tag: str, prefix: str = "") -> APIRouter:
    """Return a router of the API."""
    return APIRouter(prefix=prefix, tags=[tag], dependencies=STRICT, route_class=StrictRoute)
