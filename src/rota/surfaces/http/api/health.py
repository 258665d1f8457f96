"""Whether the process lives, and whether it can do its work: the two questions of a load balancer. No token is asked for."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query

from rota.errors import StoreUnavailable
from rota.surfaces.http.access import Served
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.describing import gives, refuses

router = APIRouter(tags=["Health"])


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


@router.get("/health", summary="Ask whether the process lives", responses=gives(ProcessHealth, what="It does."))
def health() -> Answer:
    """Say that the process lives. Nothing is looked at."""
    return Answer(ProcessHealth())


NOT_READY = refuses(StoreUnavailable)[503]
NOT_READY["content"] |= gives(StoreHealth)[200]["content"]


@router.get(
    "/ready",
    summary="Ask whether the store can be used",
    responses=gives(StoreHealth, what="It can.") | refuses(HTTPStatus.UNPROCESSABLE_ENTITY) | {503: NOT_READY},
)
def ready(
    rota: Served, *, schedules: Annotated[bool, Query(description="Answer 503 also if due times of schedules are overdue.")] = False
) -> Answer:
    """Say that the store can be read, 503 otherwise, and how many due times are overdue.

    Those should have run, and no worker has recorded an outcome for longer than `lease_ttl`.
    """
    rota.store.pauses()
    overdue = sum(each.expected for each in rota.schedules.overdue())
    late = schedules and overdue > 0
    return Answer(StoreHealth(status="overdue" if late else "ok", overdue=overdue), status_code=503 if late else 200)
