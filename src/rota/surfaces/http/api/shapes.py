"""What the API of jobs takes and gives, beside the model's own values: each is described by its type."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rota.model.backoff import StrictBackoff
from rota.model.checks import CENTURY_S
from rota.model.groups import Mode, OnFailure
from rota.surfaces.http.api.requests import PRIORITY, TEXT, Id, Moment, Name

WAIT_MAX_S = 3600.0

Priority = Annotated[int, Meta(ge=0, le=100)] | Annotated[str, Meta(max_length=64, extra_json_schema=PRIORITY)]
Key = Annotated[str, Meta(min_length=1, max_length=1024, pattern=TEXT)]
Url = Annotated[str, Meta(min_length=1, max_length=2048, pattern=TEXT)]
ParentRule = Literal["wait", "skip", "cancel", "run"]
Retries = Annotated[int, Meta(ge=0, le=1000)]
Seconds = Annotated[float, Meta(ge=0, le=CENTURY_S)]
Params = Annotated[dict[str, Any], Meta(description="What the handler is called with: names and values.")]


class _Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A body: what it does not know is refused."""


class _JobIn(_Body):
    """What can be said of a new job beside what it is."""

    params: Params | None = None
    priority: Priority | None = None
    run_at: Annotated[Moment | None, Meta(description="Not before this moment.")] = None
    unique_key: Annotated[Key, Meta(description="While a live job has it, that one is returned.")] | None = None
    depends_on: Annotated[list[Id], Meta(max_length=1000, description="Jobs whose chains must complete first.")] | None = None
    on_parent_failure: Annotated[ParentRule | None, Meta(description="What becomes of it if one of them ends otherwise.")] = None
    max_retries: Retries | None = None
    backoff: Annotated[StrictBackoff | None, Meta(description="The delays between retries; else those of its template.")] = None
    timeout: Annotated[Seconds | None, Meta(description="How long the handler may take; 0: no limit.")] = None
    queue: Annotated[Name, Meta(description="The queue; else that of its template.")] | None = None
    tags: Annotated[list[str], Meta(description="Short labels, at most 20.")] | None = None
    queue_ttl: Annotated[Seconds | None, Meta(description="How long after `run_at` it may start.")] = None
    webhook: Annotated[Url, Meta(description="An address that is told of its ends.")] | None = None


class BulkJobIn(_JobIn, kw_only=True):
    """A job of many."""

    name: Annotated[Name, Meta(description="The template, or the type of the handler.")]


class NewJobIn(_JobIn, kw_only=True):
    """A job to be made: of a template, or of a handler without one."""

    name: Annotated[Name, Meta(description="The template, or the type of the handler.")] | None = None
    handler: Annotated[Url, Meta(description="A function, module:function, for a job without a template: for system managers.")] | None = (
        None
    )
    job_type: Annotated[Name, Meta(description="The type of a job without a template; else the handler.")] | None = None
    organization: Annotated[Name, Meta(description="Another than your own: for system managers.")] | None = None


class NewGroupIn(_Body):
    """A group to be made: of new jobs, and of jobs that wait already, given by their ids."""

    jobs: Annotated[list[BulkJobIn | Id], Meta(description="In the order of the group; none only if a job follows it.")]
    then: Annotated[BulkJobIn | None, Meta(description="What is queued when all of them have ended for good.")] = None
    mode: Mode = Mode.SEQUENTIAL
    on_failure: Annotated[OnFailure | None, Meta(description="Default: `stop` if sequential, `continue` if parallel.")] = None
    name: Name | None = None
    organization: Name | None = None


class DirectIn(_Body):
    """A job to be run ahead of the queue."""

    name: Name
    params: Params | None = None
    timeout: Annotated[float, Meta(ge=0, le=WAIT_MAX_S, description="Seconds to wait for a slot, at most.")] | None = None
    organization: Name | None = None


# ---- answers -------------------------------------------------------------------------------------------------------


class Taken(msgspec.Struct, kw_only=True):
    """What became of a bulk request."""

    accepted: int
    existing: Annotated[int, Meta(description="Jobs that were there already, found by their unique keys.")]
    ids: Annotated[list[str] | None, Meta(description="In the order of the request; null if there are more than 10,000.")]


NEW_JOB: dict[str, Any] = {"name": "send_email", "params": {"to": "ada@example.com"}}
"""The body of a new job in examples."""
