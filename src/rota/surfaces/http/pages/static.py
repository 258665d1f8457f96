"""What pages are dressed in: one style sheet, one script, one picture. Named by their digest, they are kept for ever by browsers."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from rota.surfaces.http.routes import KnownRoute

KINDS = {"rota.css": "text/css", "rota.js": "text/javascript", "rota.svg": "image/svg+xml"}
FOR_EVER = "public, max-age=31536000, immutable"

_BODIES = {name: (files(__package__) / "static" / name).read_bytes() for name in KINDS}
_DIGESTS = {name: hashlib.sha256(body).hexdigest()[:16] for name, body in _BODIES.items()}


def address(name: str) -> str:
    """Return where a file is, in this very version."""
    return f"/static/{name}?v={_DIGESTS[name]}"


def install(app: Starlette) -> None:
    """Serve the files. They tell nothing about anybody: no session is asked for."""
    for name in KINDS:
        app.router.routes.append(KnownRoute(f"/static/{name}", _serving(name)))


def _serving(name: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a route of the app
    body, kind, tag = _BODIES[name], KINDS[name], f'"{_DIGESTS[name]}"'

    async def serve(request: Request) -> Response:
        headers = {"ETag": tag, "Cache-Control": FOR_EVER if request.query_params.get("v") == _DIGESTS[name] else "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return serve
