"""Hooks: functions that a worker calls after an attempt is over, when a due time did not run, and when it or a handler process starts.

Registered as `rota.on.failed(f)`, with or without an `@`. Each is called once, with one event, after the outcome is in the store. What a
hook raises is logged by the logger `rota.hooks` and changes nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from rota.errors import InvalidHandler
from rota.middleware import name_of
from rota.model.schedules import Fate
from rota.model.states import Status

log = logging.getLogger("rota.hooks")


class AttemptEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that is over."""

    job: str
    number: str
    template: str
    attempt: int
    organization: str
    worker: str | None
    """The worker that ran it, also where another one has recovered it."""
    status: Status
    duration: float | None
    """Seconds; None where the handler never started, or its worker is gone."""
    error: str | None = None
    """Why it failed, was cancelled or skipped."""
    exception: BaseException | None = None
    """What the handler raised, where it ran in this process."""
    exception_type: str | None = None
    traceback: str | None = None
    retry_at: datetime | None = None
    """When the next attempt is due, if there is one."""


class NotRun(msgspec.Struct, frozen=True, kw_only=True):
    """Due times of a schedule that did not run."""

    schedule: str
    organization: str
    due_at: datetime
    last_due_at: datetime
    count: int
    fate: Fate
    reason: str | None
    job_id: str | None = None
    """Of a due time that fired and whose job did not complete."""


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that starts or has stopped."""

    worker: str
    pid: int


class ProcessEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A handler process that is about to take jobs."""

    pid: int
    worker_pid: int


Event = TypeVar("Event")
Result = TypeVar("Result")


class Hook(Generic[Event]):
    """The functions that are called for one kind of event."""

    __slots__ = ("functions", "name")

    def __init__(self, name: str) -> None:
        """Begin with none."""
        self.name = name
        self.functions: tuple[Callable[[Event], object], ...] = ()

    def __call__(self, function: Callable[[Event], Result]) -> Callable[[Event], Result]:
        """Register a function that takes the event. Registering it again changes nothing."""
        self._check(function)
        if function not in self.functions:
            self.functions = (*self.functions, function)
        return function

    def _check(self, function: object) -> None:
        if not callable(function) or inspect.iscoroutinefunction(function):
            problem = "is async, and would never be awaited" if callable(function) else "can't be called"
            raise InvalidHandler(f"hook {name_of(function)} {problem}: pass rota.on.{self.name} a plain function that takes one event")

    def __iter__(self) -> Iterator[Callable[[Event], object]]:
        """Go through the functions that are registered now."""
        return iter(self.functions)

    def call(self, event: Event) -> None:
        """Call each function, whatever the others raise."""
        for function in self.functions:
            try:
                function(event)
            except KeyboardInterrupt:
                raise
            except BaseException:
                log.exception("hook %s of rota.on.%s failed", name_of(function), self.name)


class On:
    """The hooks of one Rota: `rota.on`."""

    __slots__ = ("cancelled", "completed", "dead_letter", "failed", "not_run", "process_start", "skipped", "worker_start", "worker_stop")

    def __init__(self) -> None:
        """Begin with none."""
        self.completed: Hook[AttemptEvent] = Hook("completed")
        """An attempt completed."""
        self.failed: Hook[AttemptEvent] = Hook("failed")
        """An attempt failed, timed out, or was lost with its process or worker: each one, the last of a chain too."""
        self.dead_letter: Hook[AttemptEvent] = Hook("dead_letter")
        """An attempt failed and is not retried; after `failed`."""
        self.cancelled: Hook[AttemptEvent] = Hook("cancelled")
        """A running job was cancelled."""
        self.skipped: Hook[AttemptEvent] = Hook("skipped")
        """A handler raised Skip."""
        self.not_run: Hook[NotRun] = Hook("not_run")
        """A due time did not run. Called at most once, on the thread of the worker that found out, or of the program whose edit of the
        schedule did; what it raises is logged by `rota.trigger`. A complete list is `rota.schedules.occurrences(not_ran=True)`."""
        self.worker_start: Hook[WorkerEvent] = Hook("worker_start")
        """A worker is about to start; it waits for these."""
        self.worker_stop: Hook[WorkerEvent] = Hook("worker_stop")
        """A worker has stopped, and every other hook has been called."""
        self.process_start: Hook[ProcessEvent] = Hook("process_start")
        """A handler process has imported the program and is about to take jobs. Called in that process."""

    def about(self, status: Status, *, runs_again: bool = False) -> tuple[Hook[AttemptEvent], ...]:
        """Return the hooks with functions that want to know of an attempt with this outcome."""
        match status:
            case Status.COMPLETED:
                hooks: tuple[Hook[AttemptEvent], ...] = (self.completed,)
            case Status.DEAD_LETTER:
                hooks = (self.failed, self.dead_letter)
            case Status.CANCELLED:
                hooks = (self.cancelled,)
            case Status.SKIPPED:
                # With a successor it was snoozed, or given back before it started: nothing has come of it yet.
                hooks = () if runs_again else (self.skipped,)
            case _:
                hooks = (self.failed,)
        return tuple(hook for hook in hooks if hook.functions)
