"""Whether the process lives, and whether it can do its work: the two questions of a load balancer. No token is asked for."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter

from rota.surfaces.http.access import Served
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.describing import gives

router = APIRouter(tags=["Health"])


class ProcessHealth(msgspec.Struct, frozen=True):
    """The answer of a process that is well."""

    status: str = "ok"


SHAPES: dict[type, Any] = {ProcessHealth: {"status": "ok"}}


@router.get("/health", summary="Ask whether the process lives", responses=gives(ProcessHealth, what="It does."))
def health() -> Answer:
    """Say that the process lives. Nothing is looked at."""
    return Answer(ProcessHealth())


@router.get("/ready", summary="Ask whether the store can be used", responses=gives(ProcessHealth, what="It can."))
def ready(rota: Served) -> Answer:
    """Say that the store can be read; 503 otherwise."""
    rota.pauses()
    return Answer(ProcessHealth())
