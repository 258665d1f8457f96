"""A server process to be asked over HTTP: `empty` is FastAPI and nothing behind it, `sqlite` and `postgres` are Rota's front door."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from postgres import fresh_database, url_of
from pydantic import BaseModel, Field

from rota import Rota
from rota.surfaces.http import make_app


class Body(BaseModel):
    name: str = Field(max_length=255)
    params: dict[str, Any] = Field(default_factory=dict)
    priority: str | int | None = None
    unique_key: str | None = None


def empty() -> tuple[FastAPI, str]:
    app = FastAPI()

    @app.post("/api/v1/jobs", status_code=201)
    async def create(body: Body) -> dict[str, str]:
        return {"name": body.name}

    return app, ""


def front_door(url: str) -> tuple[FastAPI, str]:
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
