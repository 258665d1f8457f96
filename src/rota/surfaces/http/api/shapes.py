"""What the API of jobs takes and gives, beside the model's own values: each is described by its type, and shown by an example."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rota.engine.explain import Explanation, Reason
from rota.faces.background_job import BackgroundJob, ExecutionLogEntry
from rota.model.backoff import StrictBackoff
from rota.model.checks import CENTURY_S
from rota.model.dependencies import Dependency, Graph
from rota.model.groups import Follower, Group, Member, Mode, OnFailure
from rota.model.values import Job, LogEntry, Run
from rota.results import Acted
from rota.surfaces.http.api.requests import PRIORITY, TEXT, Id, Moment, Name
from rota.surfaces.http.api.runs import LogOut

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


_AT = "2026-03-01T09:00:00Z"
_ID, _RUN_ID, _GROUP_ID = (f"019c8a5e-7a00-7{n}-8000-00000000002a" for n in ("000", "001", "002"))
JOB: dict[str, Any] = {
    "id": _ID,
    "number": "JOB-2026-00042",
    "status": "QUEUED",
    "job_type": "send_email",
    "organization": "default",
    "priority": 50,
    "position": 100,
    "attempt": 1,
    "root_id": _ID,
    "created_at": _AT,
    "params": {"to": "ada@example.com"},
    "owner": "ada",
    "run_at": _AT,
    "queued_at": _AT,
    "max_retries": 5,
    "timeout": 300.0,
}
RUN: dict[str, Any] = {
    "id": _RUN_ID,
    "job_id": _ID,
    "started_at": _AT,
    "status": "COMPLETED",
    "params": {"to": "ada@example.com"},
    "finished_at": "2026-03-01T09:00:01Z",
    "result": {"sent": 1},
    "progress": 100,
}
NEW_JOB: dict[str, Any] = {"name": "send_email", "params": {"to": "ada@example.com"}}
_ENTRY = {"at": _AT, "attempt": 1, "message": "", "from_status": None, "to_status": "QUEUED", "actor": "ada", "level": None}
_MEMBER = {
    "sequence_number": 1,
    "root_id": _ID,
    "number": "JOB-2026-00042",
    "job_type": "send_email",
    "status": "QUEUED",
    "attempt": 1,
    "started": False,
}
_EDGE = {"child": _ID, "parent": _RUN_ID, "needs": "success", "on_failure": "wait", "source": "user", "resolved_at": None}
_FOLLOWER = {"root_id": _ID, "number": "JOB-2026-00043", "job_type": "report", "status": "PENDING", "on_parent_failure": "wait"}
_REASON = {"condition": "what it waits for has ended", "met": False, "detail": "waits for JOB-2026-00041 (RUNNING)"}

SHAPES: dict[type, Any] = {
    Job: JOB,
    Run: RUN,
    LogEntry: _ENTRY,
    Member: _MEMBER,
    Group: {
        "id": _GROUP_ID,
        "name": "newsletter",
        "mode": "sequential",
        "on_failure": "stop",
        "status": "QUEUED",
        "created_at": _AT,
        "members": [_MEMBER],
        "organization": "default",
        "owner": "ada",
        "then": _FOLLOWER,
    },
    Follower: _FOLLOWER,
    Reason: _REASON,
    Explanation: {"job": JOB, "summary": _REASON["detail"], "reasons": [_REASON]},
    Dependency: _EDGE,
    Graph: {"root_id": _ID, "jobs": {_ID: JOB}, "edges": [_EDGE], "cut": False},
    BackgroundJob: {
        "naming_series": "JOB-.YYYY.-",
        "name": "JOB-2026-00042",
        "job_type": "send_email",
        "organization": "default",
        "owner_user": "ada",
        "status": "Queued",
        "priority": "Normal",
        "progress": 0,
        "progress_message": None,
        "input_parameters": {"to": "ada@example.com"},
        "output_reference": None,
        "error_message": None,
        "error_type": None,
        "retry_count": 0,
        "max_retries": 5,
        "next_retry_at": None,
        "depends_on": None,
        "job_hash": None,
        "timeout_seconds": 300,
        "created_at": _AT,
        "started_at": None,
        "completed_at": None,
        "canceled_at": None,
        "canceled_by": None,
    },
    ExecutionLogEntry: {
        "background_job": "JOB-2026-00042",
        "from_status": None,
        "to_status": "Queued",
        "timestamp": _AT,
        "actor": "ada",
        "message": None,
        "retry_attempt": None,
    },
    StrictBackoff: {"base": 60.0, "factor": 2.0},
    BulkJobIn: NEW_JOB,
    NewJobIn: NEW_JOB,
    NewGroupIn: {"jobs": [NEW_JOB, "JOB-2026-00042"], "mode": "sequential"},
    DirectIn: {**NEW_JOB, "timeout": 5},
    Acted: {"done": 1000, "left": 250, "more": False},
    Taken: {"accepted": 2, "existing": 0, "ids": [_ID, _RUN_ID]},
    LogOut: {"items": [_ENTRY], "cut": False},
}
"""Every value that the API of jobs takes or gives, with an example."""
