"""Whether the process lives, and whether it can do its work: the two questions of a load balancer. No token is asked for."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rota.app import Rota
from rota.errors import StoreUnavailable
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.hand import query, route
from rota.surfaces.http.api.requests import refuse_query
from rota.surfaces.http.openapi import gives, refuses


class ProcessHealth(msgspec.Struct, frozen=True):
    """The answer of a process that is well."""

    status: str = "ok"


class StoreHealth(msgspec.Struct, frozen=True):
    """The answer of a process that can read its store."""

    status: str
    """`ok`; `overdue` if that was asked about and due times are."""
    overdue: int
    """Due times of schedules that should have run and have no recorded outcome for longer than `lease_ttl`."""


SHAPES: dict[type, Any] = {ProcessHealth: {"status": "ok"}, StoreHealth: {"status": "ok", "overdue": 0}}


@route("health.get", "Health", "GET /health", responses=gives(ProcessHealth, what="It does."), is_open=True)
async def health(_request: Request) -> Response:
    """Say that the process lives. Nothing is looked at."""
    return Answer(ProcessHealth())


NOT_READY = refuses(StoreUnavailable)[503]
NOT_READY["content"] |= gives(StoreHealth)[200]["content"]


@route(
    "health.ready",
    "Health",
    "GET /ready",
    parameters=[query("schedules", {"type": "boolean"}, "Answer 503 also if due times of schedules are overdue.")],
    responses=gives(StoreHealth, what="It can.") | refuses(HTTPStatus.UNPROCESSABLE_ENTITY) | {503: NOT_READY},
    is_open=True,
)
async def ready(request: Request) -> Response:
    """Say that the store can be read, 503 otherwise, and how many due times are overdue.

    Those should have run, and no worker has recorded an outcome for longer than `lease_ttl`.
    """
    refuse_query(request, "schedules")
    given = request.query_params.get("schedules", "false")
    if given.lower() not in {"true", "false", "1", "0"}:
        raise HTTPException(422, f"query.schedules: {given[:40]!r} is neither true nor false")
    return await run_in_threadpool(_ready, request.app.state.rota, given.lower() in {"true", "1"})


def _ready(rota: Rota, schedules: bool) -> Response:  # noqa: FBT001 - of this module alone
    rota.store.pauses()
    overdue = sum(each.expected for each in rota.schedules.overdue())
    late = schedules and overdue > 0
    return Answer(StoreHealth(status="overdue" if late else "ok", overdue=overdue), status_code=503 if late else 200)
