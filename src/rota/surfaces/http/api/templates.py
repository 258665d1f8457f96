"""Templates: what is in force, whose word it is, and people's word over the code's."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import ConfigDict, Field

from rota.errors import ChangedMeanwhile, NotFound, TemplateInUse
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.asking import TEXT
from rota.surfaces.http.api.bodies import Body, Name, Params, Priority, Span, Text
from rota.surfaces.http.api.keyset import Cursor, Limit, cut
from rota.surfaces.http.api.missing import named_in_path
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.api.versions import IfMatch, etag, seen
from rota.surfaces.http.describing import gives, nothing, page_of, refuses
from rota.template_views import TemplateView

router = strict_router("Templates", "/templates")

TemplateName = Annotated[str, Path(description="The template's name.", examples=["send_email"], max_length=255, pattern=TEXT)]
ONE = gives(TemplateView, what="The template as it is in force.", etag=True)
CHANGED = ONE | refuses(NotFound, ChangedMeanwhile)


class BackoffIn(Body):
    """The delays between retries."""

    base: Span = 60.0
    factor: float = 2.0
    cap: Span = 86_400.0
    jitter: float = 0.2


class RateIn(Body):
    """At most `count` in any span of `seconds`."""

    count: int
    seconds: float


Rate = RateIn | Annotated[str, Field(max_length=64, description='As "10/60s" or "100/h".')]


class TemplateFields(Body):
    """What people say of a template. What is not given stays; null takes a limit away."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_running": 4, "timeout": "5m", "rate_limit": None}]})

    display_name: Name | None = None
    description: Text | None = None
    handler: Text | None = Field(None, description="Where its code is: `package.module:function`. A new template needs one.")
    executor: Name | None = None
    priority: Priority | None = None
    timeout: Span | None = None
    max_retries: int | None = None
    max_crashes: int | None = None
    backoff: BackoffIn | None = None
    queue: Name | None = None
    queue_ttl: Span | None = None
    payload_max: int | None = None
    dedup_window: Span | None = None
    requires_permission: Name | None = None
    max_running: int | None = None
    concurrency: int | None = None
    rate_limit: Rate | None = None
    submit_limit: Rate | None = None
    default_params: Params | None = None


class ResetFields(Body):
    """Which fields go back to what the code or the settings say."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"fields": ["timeout", "max_running"]}]})

    fields: list[Name] = Field(default_factory=list, max_length=50, description="None given: all.")


@router.get("", summary="List templates", responses=gives(page_of(TemplateView)))
def find(
    rota: Served,
    who: Who,
    *,
    archived: Annotated[bool, Query(description="Archived ones too.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Answer:
    """Return templates in the order of their names."""
    return Answer(cut(rota.acting_as(who).templates.list(archived=archived), lambda each: (each.name,), limit=limit, cursor=cursor))


@router.post("/{name:path}/reset", summary="Take back what people have set", responses=CHANGED)
def reset(name: TemplateName, rota: Served, who: Who, *, body: ResetFields | None = None, if_match: IfMatch = None) -> Answer:
    """Let what the code or the settings say hold again, for these fields or for all."""
    with named_in_path():
        fields = () if body is None else body.fields
        return _answer(rota.acting_as(who).templates.if_match(seen(if_match)).reset(name, *fields))


@router.post("/{name:path}/enable", summary="Enable a template", responses=CHANGED)
def enable(name: TemplateName, rota: Served, who: Who, *, if_match: IfMatch = None) -> Answer:
    """Let a template take new jobs again."""
    with named_in_path():
        return _answer(rota.acting_as(who).templates.if_match(seen(if_match)).enable(name))


@router.post("/{name:path}/disable", summary="Disable a template", responses=CHANGED)
def disable(name: TemplateName, rota: Served, who: Who, *, if_match: IfMatch = None) -> Answer:
    """Refuse new jobs of a template. Those that wait or run go on."""
    with named_in_path():
        return _answer(rota.acting_as(who).templates.if_match(seen(if_match)).disable(name))


@router.post("/{name:path}/archive", summary="Archive a template", responses=CHANGED)
def archive(name: TemplateName, rota: Served, who: Who, *, if_match: IfMatch = None) -> Answer:
    """Refuse new jobs of a template and leave it out of lists. Its schedules are disabled."""
    with named_in_path():
        return _answer(rota.acting_as(who).templates.if_match(seen(if_match)).archive(name))


@router.get("/{name:path}", summary="Get a template", responses=ONE | refuses(NotFound))
def get(name: TemplateName, rota: Served, who: Who) -> Answer:
    """Return one template, archived or not: what is in force, and whose word each field is."""
    with named_in_path():
        return _answer(rota.acting_as(who).templates.get(name))


@router.patch("/{name:path}", summary="Set fields of a template", responses=CHANGED)
def change(name: TemplateName, body: TemplateFields, rota: Served, who: Who, *, if_match: IfMatch = None) -> Answer:
    """Set some fields on top of what the code says, making the template if it is not there (then it needs a handler)."""
    return _answer(rota.acting_as(who).templates.if_match(seen(if_match)).update(name, **body.given()))


@router.delete(
    "/{name:path}",
    summary="Delete a template",
    status_code=204,
    responses=nothing() | refuses(NotFound, ChangedMeanwhile, TemplateInUse),
)
def delete(name: TemplateName, rota: Served, who: Who, *, if_match: IfMatch = None) -> None:
    """Remove a template that has no jobs and no schedules. Code that still registers it makes it anew."""
    with named_in_path():
        rota.acting_as(who).templates.if_match(seen(if_match)).delete(name)


def _answer(template: TemplateView) -> Answer:
    return Answer(template, headers=etag(template.version))
