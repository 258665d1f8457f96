"""A server process to be asked over HTTP: `empty` is Starlette and nothing behind it, `sqlite` and `postgres` are Rota's front door."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Annotated, Any

import msgspec
import uvicorn
from postgres import fresh_database, url_of
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rota import Rota
from rota.surfaces.http import make_app


class Body(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(max_length=255)]
    params: dict[str, Any] = {}
    priority: str | int | None = None
    unique_key: str | None = None


def empty() -> tuple[Starlette, str]:
    async def create(request: Request) -> Response:
        body = msgspec.json.decode(await request.body(), type=Body)
        return JSONResponse({"name": body.name}, 201)

    return Starlette(routes=[Route("/api/v1/jobs", create, methods=["POST"])]), ""


def front_door(url: str) -> tuple[Starlette, str]:
    rota = Rota(url)

    @rota.job
    def noop(text: str = "") -> None: ...

    token = rota.tokens.create("bench", permits=["submit"]).secret
    return make_app(rota), token


def main() -> None:
    which, *rest = sys.argv[1:]
    if which == "empty":
        app, token = empty()
    elif which == "postgres":
        fresh_database("rota_http")
        app, token = front_door(url_of("rota_http"))
    else:
        app, token = front_door(rest[0])
    # The protocol is named: asyncio lets small writes wait (Nagle) on sockets that do not say that they are TCP.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    print(json.dumps({"port": listener.getsockname()[1], "token": token, "pid": os.getpid()}), flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
