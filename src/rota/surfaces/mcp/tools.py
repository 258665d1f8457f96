"""Tools: the operations that have a route over HTTP, and a few written by hand; their results as JSON objects.

Nothing here needs the package `mcp`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from rota import wire
from rota.app import Rota
from rota.errors import InvalidOption, PermissionDenied
from rota.lab.forecasts import Forecast
from rota.model.gate import Actor, Right, scope_of
from rota.model.overview import Overview
from rota.model.shapes import Organization, Params, Priority, Shape, Span, When
from rota.model.values import Run
from rota.operation import NOUNS, Operation, noun, operations, refuse_denied, session_of
from rota.results import Log
from rota.schedule_views import OccurrenceView
from rota.surfaces.mcp.query import sql_query
from rota.surfaces.redaction import without_read

ITEMS_MAX = 1000
"""Items of a list in one result; `count` says how many there are."""
LOG_MAX = 1000
"""Entries of a log in one result; those before them are left out."""
DependsOn = Annotated[Sequence[str] | None, Shape("Ids or numbers of jobs that must complete first.", ["JOB-2026-00042"])]


class Tool(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One tool."""

    name: str
    operation: Operation
    method: Callable[[Rota], Callable[..., Any]]
    """Returns what is called, of the Rota of a caller."""

    @property
    def description(self) -> str:
        """The docstring of the operation."""
        return inspect.getdoc(self.operation.body) or ""

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return wire.schema(self.operation)

    def is_open_to(self, rota: Rota, actor: Actor) -> bool:
        """Say whether an actor has its right."""
        right = self.operation.right
        try:
            scope_of(actor, right, session_of(rota).holdings(actor, right))
        except PermissionDenied:
            return False
        return True

    def call(self, rota: Rota, actor: Actor, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Read the arguments, call the operation for this actor, and return its result as a JSON object."""
        refuse_denied(rota, actor, self.operation.right)
        keywords = wire.read(self.operation, arguments)
        if self.operation.method == "GET" and (keywords.get("limit") or 0) > ITEMS_MAX:
            raise InvalidOption(f"limit={keywords['limit']} is not allowed here: give at most {ITEMS_MAX:,}, and follow `next`")
        return document(wire.call(self.method(rota.acting_as(actor)), self.operation, keywords), actor)


class NewJob(msgspec.Struct, frozen=True):
    """A job that was accepted."""

    id: str
    number: str
    existing: bool
    """There was an unfinished job with the same key, and this is it."""


def enqueue(
    rota: Rota,
    ask: None,  # noqa: ARG001 - operations have an Ask in this place; the gate is asked by `Rota.enqueue`
    name: Annotated[str, Shape("The template's name.", "send_email", "TEMPLATE")],
    params: Params | None = None,
    *,
    priority: Priority | None = None,
    run_at: Annotated[When | None, Shape("Not before this moment, or this long from now.", "5m")] = None,
    unique_key: Annotated[str | None, Shape("If an unfinished job has this key, return it instead of creating another.", "ada")] = None,
    depends_on: DependsOn = None,
    on_parent_failure: Annotated[
        Literal["wait", "skip", "cancel", "run"] | None, Shape("What happens to it if a job that it depends on fails.")
    ] = None,
    max_retries: Annotated[int | None, Shape("Retries after a failure. Default: that of the template.", 3)] = None,
    timeout: Annotated[Span | None, Shape("Longest run of one attempt. Default: that of the template.", "30s")] = None,
    queue_ttl: Annotated[Span | None, Shape("Longest wait in the queue. Default: that of the template.", "1h")] = None,
    webhook: Annotated[str | None, Shape("A URL that is notified of the outcome.", "https://example.com/rota")] = None,
    meta: Annotated[Mapping[str, Any] | None, Shape("Data that is kept with the job.", {"order": 42})] = None,
    organization: Organization = None,
) -> NewJob:
    """Enqueue one job of a template. When this returns, the job is on disk.

    `templates_list` shows the templates, `jobs_get` the state of the job, and `explain` why it does not run yet.
    """
    options: dict[str, Any] = {
        "priority": priority,
        "run_at": run_at,
        "unique_key": unique_key,
        "depends_on": depends_on,
        "on_parent_failure": on_parent_failure,
        "max_retries": max_retries,
        "timeout": timeout,
        "queue_ttl": queue_ttl,
        "webhook": webhook,
        "meta": meta,
        "organization": organization,
    }
    handle = rota.enqueue(name, params, **{option: value for option, value in options.items() if value is not None})
    return NewJob(handle.id, handle.number, handle.existing)


def overview(rota: Rota, ask: None) -> Overview:  # noqa: ARG001 - as in `enqueue`
    """Say whether all is well: what did not run, what is stuck and why, what is running, and what is due next."""
    return rota.overview()


@functools.cache
def all_tools() -> dict[str, Tool]:
    """Return every tool by name."""
    tools: list[Tool] = [
        Tool("overview", Operation(overview, Right.READ, "GET /overview", None, False, 200, None), _by_hand(overview)),  # noqa: FBT003 - as the decorator makes it
        Tool("enqueue", Operation(enqueue, Right.SUBMIT, "POST /jobs", None, False, 201, None), _by_hand(enqueue)),  # noqa: FBT003
        Tool("sql_query", Operation(sql_query, Right.READ, "GET /sql", None, False, 200, None), _by_hand(sql_query)),  # noqa: FBT003
    ]
    for verb, operation in operations(Rota).items():
        if operation.path:
            tools.append(Tool(verb, operation, functools.partial(_verb, "", verb)))
    for name in NOUNS:
        for verb, operation in operations(noun(name)).items():
            if operation.path:
                tools.append(Tool(f"{name}_{verb}", operation, functools.partial(_verb, name, verb)))
    return {tool.name: tool for tool in tools}


def _by_hand(function: Callable[..., Any]) -> Callable[[Rota], Callable[..., Any]]:
    return lambda rota: functools.partial(function, rota, None)


def _verb(name: str, verb: str, rota: Rota) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(getattr(rota, name) if name else rota, verb)
    return method


# ---- results -----------------------------------------------------------------------------------------------------------


def document(result: Any, actor: Actor) -> dict[str, Any]:
    """Return what an operation returned as a JSON object, as far as the actor may read it. A list is `items` and `next`."""
    shown = _object(result)
    built = msgspec.to_builtins(without_read(shown) if actor.is_redacted else shown, str_keys=True)
    return built if isinstance(built, dict) else {"result": built}


def _object(result: Any) -> Any:
    if isinstance(result, Log):
        return {"items": list(result[-LOG_MAX:]), "next": None, "cut": len(result) > LOG_MAX}
    if isinstance(result, Forecast):
        more = {"start": result.start, "end": result.end, "cut": result.cut, "exact_until": result.exact_until, "changes": result.changes}
        return {"items": list(result), "next": None, **more}
    if isinstance(result, list | tuple):
        following = getattr(result, "next", None)
        items = {
            "items": [_item(each) for each in result[:ITEMS_MAX]],
            "next": wire.seal(following) if isinstance(following, tuple) else following,
        }
        return items if len(result) <= ITEMS_MAX else {**items, "cut": True, "count": len(result)}
    return _item(result)


def _item(value: Any) -> Any:
    if isinstance(value, Run):
        # The place of a log is a path of the machine that ran the job.
        return msgspec.structs.replace(value, log_path=None)
    if isinstance(value, OccurrenceView):
        return {name: getattr(value, name) for name in value.__struct_fields__ if name != "cursor"}
    return value
