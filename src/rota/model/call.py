"""A job that is not enqueued yet: as a call of a task with its params and options, or as a NewJob by the name of its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from rota.errors import InvalidOption, InvalidParams
from rota.model.backoff import Backoff

R_co = TypeVar("R_co", covariant=True)


class Returning(Protocol[R_co]):
    """A task or a handle: it knows the type of what its jobs return."""

    def _decoded(self, text: str) -> R_co:
        """Return a stored result, JSON text, as the value that the function returned."""


class Call(Generic[R_co]):
    """A task with its params and options: a value. Nothing is written until it is enqueued."""

    __slots__ = ("actor", "options", "params", "task")

    def __init__(self, task: Any, params: dict[str, Any], options: Mapping[str, Any], actor: Any = None) -> None:
        """Made by `Task.bind`."""
        self.task = task
        self.params = params
        self.options = options
        self.actor = actor

    @property
    def name(self) -> str:
        """The template that its job is made from."""
        return str(self.task.name)

    def __repr__(self) -> str:
        return f"{self.name}.bind({', '.join(f'{name}={value!r}' for name, value in self.params.items())})"


class NewJob(msgspec.Struct, kw_only=True):
    """One job to enqueue, with its own options. What is None comes from the template."""

    name: str = ""
    """The template; of a job without one, its type: if empty, the handler's path."""
    params: Mapping[str, Any] | None = None
    priority: str | int | None = None
    run_at: datetime | timedelta | None = None
    unique_key: str | None = None
    depends_on: Any = None
    """Jobs (or their ids or numbers) whose chains must complete first."""
    on_parent_failure: str | None = None
    """What becomes of this job if one of them ends otherwise: wait (until it is retried), skip, cancel, or run all the same."""
    max_retries: int | None = None
    timeout: float | str | timedelta | None = None
    queue: str | None = None
    queue_ttl: float | str | timedelta | None = None
    webhook: str | None = None
    """A URL that is told of this job's ends, signed with its organization's secret."""
    job_id: str | None = None
    meta: Mapping[str, Any] | None = None
    """Kept with the job and shown with it; its handler reads it as `ctx.meta`."""
    tags: Sequence[str] | None = None
    """Short labels, kept with the job; lists can be narrowed to one."""
    backoff: Backoff | Mapping[str, Any] | None = None
    handler: str | None = None
    """The function that a job without a template calls: module:function, of a module that handler_modules allow."""


def as_pair(item: Any) -> Any:
    """Return a call that has nothing but params as a (name, params) pair, which is the shortest way; other items as they are."""
    if isinstance(item, Call) and not item.options and item.actor is None:
        item.task.check_included()
        return (item.name, item.params)
    return item


def as_new_job(item: Any) -> NewJob:
    """Return an item of a bulk call as a NewJob: a name, a (name, params) pair, a call or a NewJob."""
    if isinstance(item, NewJob):
        return item
    if isinstance(item, Call):
        return _of_call(item)
    if isinstance(item, str):
        return NewJob(name=item)
    if isinstance(item, tuple | list) and len(item) == 2:
        return NewJob(name=item[0], params=item[1])
    raise InvalidParams(f"{item!r:.80} is not a job: give task.bind(...), (name, params) or rota.NewJob(...)")


def _of_call(call: Call[Any]) -> NewJob:
    """Return a call with its options; those that hold for all jobs of a bulk call or a group are refused."""
    call.task.check_included()
    shared = {"actor": call.actor, **{name: call.options.get(name) for name in ("organization", "transaction")}}
    option = next((name for name, value in shared.items() if value is not None), None)
    if option is not None:
        raise InvalidOption(f"{call!r} has its own {option}, and many jobs are accepted with one: pass {option}=… to the whole call")
    return NewJob(name=call.name, params=call.params, **{name: value for name, value in call.options.items() if name not in shared})
