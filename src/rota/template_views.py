"""Templates as people see them: what is in force, and where each value comes from."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import msgspec

from rota.engine.registry import Known
from rota.model.backoff import Backoff
from rota.model.definitions import TemplateState
from rota.model.schedules import JobKind
from rota.model.templates import OF_THE_HANDLER, Rate, Source, said_by

_backoff = msgspec.json.Decoder(Backoff)


class TemplateView(msgspec.Struct, kw_only=True, frozen=True):
    """One template as it applies to a job created now. Times are in seconds, sizes in bytes; None does not limit."""

    name: str
    state: TemplateState
    version: int
    display_name: str
    description: str | None
    handler: str | None
    handled_here: bool
    """This process has its handler."""
    executor: str
    priority: int
    timeout: float
    max_retries: int
    max_crashes: int
    backoff: Backoff
    queue: str
    queue_ttl: float | None
    payload_max: int
    dedup_window: float | None
    requires_permission: str | None
    max_running: int | None
    concurrency: int | None
    rate_limit: Rate | None
    submit_limit: Rate | None
    default_params: dict[str, object] | None
    sources: dict[str, Source]
    """For each of the fields above: whether its value comes from a setting, from the code or from an operator."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    kind: JobKind = JobKind.PYTHON
    """python, sql or external."""
    body: str | None = None
    """SQL or a command, to those who manage templates; None in lists, and for Python."""
    connection: str | None = None
    secrets: tuple[str, ...] = ()
    digest: str | None = None
    """Of the parameters of its newest handler; None: not recorded, or a list of templates."""
    params_schema: dict[str, Any] | None = None
    """JSON Schema of the params object, as its newest handler has it."""


def template_view(known: Known) -> TemplateView:
    """Return a template that is recorded in the store as people see it."""
    force, record = known.force, known.record
    assert record is not None  # noqa: S101 - only recorded ones are shown
    sources = said_by(known.code, known.people)
    if known.handler is not None:
        sources |= dict.fromkeys(OF_THE_HANDLER, Source.CODE)
    fields = msgspec.structs.asdict(force)
    fields |= msgspec.structs.asdict(fields.pop("policy"))
    return TemplateView(
        **{**fields, "backoff": _backoff.decode(force.policy.backoff)},
        name=known.name,
        state=record.state,
        version=record.version,
        handled_here=known.handler is not None,
        sources=sources,
        created_at=record.created_at,
        updated_at=record.updated_at,
        kind=record.kind,
        connection=cast("str | None", record.defaults.get("connection")),
        secrets=tuple(cast("list[str]", record.defaults.get("secrets", ()))),
    )
