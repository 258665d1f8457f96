"""A handler's view of its own job."""

from __future__ import annotations

import os
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, overload

from rota.executors.attempt import Attempt, RunLog
from rota.executors.calls import Page, ResultFilter, enqueue_request, page_request, parts_of, read_job, read_page, result_filter
from rota.executors.text import clean
from rota.model.call import Call, Returning
from rota.model.handler import Wrapper
from rota.model.params import decode, decode_params
from rota.model.signals import Cancelled
from rota.model.values import Claimed, Job, dashed, number_text
from rota.ports.executor import Request

R = TypeVar("R")


class Context:
    """Given to a handler that asks for it: who it is, and how it reports, logs and learns that it should stop."""

    __slots__ = ("_attempt", "log", "params")

    def __init__(self, attempt: Attempt, params: dict[str, object]) -> None:
        """Made by executors."""
        self._attempt = attempt
        self.params = params
        self.log = Log(attempt.log)

    @property
    def job(self) -> Claimed:
        """The job as it was claimed."""
        return self._attempt.job

    @property
    def id(self) -> str:
        """The job's id; a retry is a job of its own."""
        return dashed(self._attempt.job.job_id)

    @property
    def number(self) -> str:
        """The job's number as people see it: JOB-2026-00042, its third attempt JOB-2026-00042.3."""
        job = self._attempt.job
        return number_text(job.root_id, job.root_number, job.attempt)

    @property
    def template(self) -> str:
        """The name of the job's template."""
        return self._attempt.job.job_type

    @property
    def organization(self) -> str:
        """The organization that the job belongs to."""
        return self._attempt.job.organization_id

    @property
    def attempt(self) -> int:
        """1 for the first attempt of the chain, and one more for each after it."""
        return self._attempt.job.attempt

    @property
    def root_id(self) -> str:
        """The chain's id, the same for every attempt: the idempotency key to pass to the outside."""
        return dashed(self._attempt.job.root_id)

    @property
    def run_id(self) -> str:
        """This run's id; a retry has another."""
        return dashed(self._attempt.job.run_id)

    @property
    def cancelled(self) -> bool:
        """Whether the handler was asked to stop: cancelled, over its timeout, or shutting down."""
        return self._attempt.stopping

    @property
    def resumed_from(self) -> Any:
        """The state of the chain's last checkpoint before this attempt, or None."""
        return decode(self._attempt.job.checkpoint)

    @property
    def meta(self) -> Mapping[str, object]:
        """What was kept with the job beside its params. It can't be changed."""
        return MappingProxyType(decode_params(self._attempt.job.meta or "{}"))

    @overload
    def results(self) -> Iterator[Any]: ...
    @overload
    def results(self, of: Returning[R]) -> Iterator[R]: ...
    def results(self, of: Returning[Any] | None = None) -> Iterator[Any]:
        """Iterate over the results of the jobs that this one waited for, in the order in which `depends_on` named them.

        After those come the results of the group that it follows, in the order of its members. They are plain JSON values, one for each
        job; None stands for a job that did not complete, or returned nothing.

        With a task, only the results of its jobs are returned, and with a handle only the result of that job. They have the type that the
        function returns, and jobs without a result are left out.

        Results are read page by page. In async handlers use `results_async`: this blocks the event loop.
        """
        return self._results(of, result_filter(of))

    def _results(self, of: Returning[Any] | None, wanted: ResultFilter) -> Iterator[Any]:
        after: object = None
        matched = 0
        while True:
            page = read_page(self._attempt.ask(page_request(after, wanted)))
            matched += len(page.results)
            yield from _values(page, of)
            if (after := page.next) is None:
                return wanted.check(matched)

    @overload
    def results_async(self) -> AsyncIterator[Any]: ...
    @overload
    def results_async(self, of: Returning[R]) -> AsyncIterator[R]: ...
    def results_async(self, of: Returning[Any] | None = None) -> AsyncIterator[Any]:
        """Do what `results` does without blocking the event loop: `async for result in ctx.results_async()`."""
        return self._results_async(of, result_filter(of))

    async def _results_async(self, of: Returning[Any] | None, wanted: ResultFilter) -> AsyncIterator[Any]:
        from rota.executors.aio import ask  # noqa: PLC0415 - asyncio only where it is needed

        after: object = None
        matched = 0
        while True:
            page = read_page(await ask(self._attempt, page_request(after, wanted)))
            matched += len(page.results)
            for result in _values(page, of):
                yield result
            if (after := page.next) is None:
                wanted.check(matched)
                return

    def enqueue(self, name: str | Wrapper | Call[Any], params: Mapping[str, Any] | None = None, **options: Any) -> Job:
        """Accept a job of this job's organization and owner; once this returns, it is on disk. Options are those of `rota.enqueue`.

        The job is named by its template, its task, or a call: `ctx.enqueue(page.bind(3))`.

        Raise what `rota.enqueue` would raise, or Cancelled if the handler was asked to stop. In async handlers use `enqueue_async`: this
        blocks the event loop.
        """
        return read_job(self._attempt.ask(self._new_job(name, params, options)))

    async def enqueue_async(self, name: str | Wrapper | Call[Any], params: Mapping[str, Any] | None = None, **options: Any) -> Job:
        """Do what `enqueue` does without blocking the event loop."""
        from rota.executors.aio import ask  # noqa: PLC0415 - asyncio only where it is needed

        return read_job(await ask(self._attempt, self._new_job(name, params, options)))

    def _new_job(self, target: object, params: Mapping[str, Any] | None, options: dict[str, Any]) -> Request:
        name, params, options = parts_of(target, params, options)
        return enqueue_request(name, params, self._traced(name, options))

    def _traced(self, name: object, options: dict[str, Any]) -> dict[str, Any]:
        """Let a new job carry on this run's trace: the worker does not see the handler's span."""
        meta = options.get("meta")
        if not self._attempt.is_traced or not (meta is None or isinstance(meta, Mapping)):
            return options
        from rota.executors.traces import carried_meta  # noqa: PLC0415 - OpenTelemetry, which few programs use

        return options | {"meta": carried_meta(name, meta)}

    def progress(self, pct: float, message: str | None = None) -> None:
        """Show how far the work is: 0 to 100, clamped, never going back. What is no number is InvalidProgress."""
        self._attempt.progress(pct, message)

    def artifact(self, path: str | os.PathLike[str]) -> None:
        """Record a file or address that this run made."""
        self._attempt.artifact(os.fspath(path))

    def checkpoint(self, state: object = None) -> None:
        """Keep a state for the next attempt: once this returns, it is on disk. Raise Cancelled if the handler was asked to stop.

        Without a state it only does the latter, and costs nothing. In async handlers use `checkpoint_async`: this blocks the event loop.
        """
        if state is not None:
            self._attempt.checkpoint(state)
        if self._attempt.stopping:
            raise Cancelled("the job was asked to stop")

    async def checkpoint_async(self, state: object = None) -> None:
        """Do what `checkpoint` does without blocking the event loop: other tasks run while the state is written."""
        if state is not None:
            from rota.executors.aio import checkpoint  # noqa: PLC0415 - asyncio only where it is needed

            await checkpoint(self._attempt, state)
        if self._attempt.stopping:
            raise Cancelled("the job was asked to stop")


def _values(page: Page, of: Returning[Any] | None) -> Iterator[Any]:
    """Yield a page of results: as plain JSON, one for each job, or decoded by a task or a handle, without the absent ones."""
    if of is None:
        yield from (decode(bytes(result).decode()) for result in page.results)
        return
    for result in page.results:
        if (text := bytes(result).decode()) != "null":
            yield of._decoded(text)  # noqa: SLF001 - what the protocol is for


class Log:
    """Writes to the run's own log, with %-arguments like `logging`. Never raises; bounded by `log_max`."""

    __slots__ = ("_log",)

    def __init__(self, log: RunLog) -> None:
        """Made with the Context."""
        self._log = log

    def debug(self, message: object, *args: object) -> None:
        """Write a line of level DEBUG."""
        self._log.line("DEBUG", _text(message, args))

    def info(self, message: object, *args: object) -> None:
        """Write a line of level INFO."""
        self._log.line("INFO", _text(message, args))

    def warning(self, message: object, *args: object) -> None:
        """Write a line of level WARNING."""
        self._log.line("WARNING", _text(message, args))

    def error(self, message: object, *args: object) -> None:
        """Write a line of level ERROR."""
        self._log.line("ERROR", _text(message, args))

    def exception(self, message: object, *args: object) -> None:
        """Write a line of level ERROR with the traceback of the exception being handled."""
        self._log.line("ERROR", f"{_text(message, args)}\n{traceback.format_exc().rstrip()}")


def _text(message: object, args: tuple[object, ...]) -> str:
    text = clean(message)
    if not args:
        return text
    # logging takes a single mapping for %(name)s
    values = args[0] if len(args) == 1 and isinstance(args[0], dict) and args[0] else args
    try:
        return text % values
    except Exception:  # noqa: BLE001 - a wrong format must not fail the handler; the line shows both halves
        return f"{text} {clean(args)}"
