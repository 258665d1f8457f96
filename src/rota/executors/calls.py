"""The requests of a handler to its worker, as JSON: how they are written and replies are read, the same in every executor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.errors import InvalidOption, InvalidParams
from rota.model.call import Call
from rota.model.handler import Wrapper
from rota.model.params import encode
from rota.model.values import Job
from rota.ports.executor import Question, Request

_job = msgspec.json.Decoder(Job)
_encode = msgspec.json.Encoder().encode


class NewCall(msgspec.Struct):
    """A job that a handler enqueues, as it travels."""

    name: Any
    params: Any
    options: dict[str, Any]


class Page(msgspec.Struct):
    """Some results, and where the next ones begin."""

    results: list[msgspec.Raw]
    next: tuple[int, int] | None


_call = msgspec.json.Decoder(NewCall)
_page = msgspec.json.Decoder(Page)


def parts_of(
    target: object, params: Mapping[str, Any] | None, options: dict[str, Any]
) -> tuple[object, Mapping[str, Any] | None, dict[str, Any]]:
    """Return name, params and options of a job that is named by its template, its task or a call."""
    if not isinstance(target, Call | Wrapper):
        return target, params, options
    call: Call[Any] = target if isinstance(target, Call) else target.bind()  # type: ignore[attr-defined] # a task is the only Wrapper
    if call is target and params is not None:
        raise InvalidParams(f"{call!r} has its params already: enqueue it without others, or bind its task to other arguments")
    if call.actor is not None:
        raise InvalidOption(f"{call.name} acts as {call.actor!r}, and a handler enqueues as its job's owner: leave acting_as out")
    call.task.check_included()
    return call.name, call.params if call is target else params, {**call.options, **options}


def enqueue_request(name: object, params: Mapping[str, Any] | None, options: Mapping[str, Any]) -> Request:
    """Return the request for a new job; refuse what JSON can't hold, saying where it is."""
    written = {option: _written(option, value) for option, value in options.items()}
    call = {
        "name": name,
        "params": msgspec.Raw(encode(params, "params").encode()),
        "options": msgspec.Raw(encode(written, "options").encode()),
    }
    return Request(Question.ENQUEUE, encode(call, "the job"))


def read_call(body: str) -> NewCall:
    """Return a new job from its request."""
    call = _call.decode(body)
    run_at = call.options.get("run_at")
    if isinstance(run_at, dict):
        call.options["run_at"] = datetime.fromisoformat(run_at["at"]) if "at" in run_at else timedelta(microseconds=run_at["in_us"])
    return call


def read_job(body: str) -> Job:
    """Return the job that a request has made."""
    return _job.decode(body)


class ResultFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose results a handler asks for, of the jobs that its own waited for: all, those of a template, or that of one job."""

    template: str | None = None
    job: str | None = None
    """An id or a number."""

    def check(self, matched: int) -> None:
        """Refuse a job that is none of those: its absence is a mistake, and not an empty result."""
        if self.job is not None and not matched:
            raise InvalidOption(
                f"this job did not wait for {self.job}, so it has no result of it: pass the handle of a job that it depends on, "
                "or of a member of the group that it follows"
            )


class PageRequest(msgspec.Struct):
    """A request for results as it travels."""

    after: tuple[int, int] | None
    wanted: ResultFilter


_page_request = msgspec.json.Decoder(PageRequest)


def result_filter(of: object) -> ResultFilter:
    """Return whose results a task or a handle selects; refuse what is neither."""
    if of is None:
        return ResultFilter()
    if isinstance(of, Wrapper):
        of.check_included()  # type: ignore[attr-defined] # a task is the only Wrapper
        return ResultFilter(template=of.name)  # type: ignore[attr-defined] # as above
    if hasattr(of, "_decoded"):
        return ResultFilter(job=of.id)  # type: ignore[attr-defined] # a handle
    raise InvalidOption(f"ctx.results({of!r}): pass a task or a handle, or nothing for the results of all jobs that this one waited for")


def page_request(after: object, wanted: ResultFilter) -> Request:
    """Return the request for results, from a cursor on."""
    return Request(Question.RESULTS, _encode({"after": after, "wanted": wanted}).decode())


def read_page_request(body: str) -> PageRequest:
    """Return what a request asks for."""
    return _page_request.decode(body)


def read_page(body: str) -> Page:
    """Return a page of results from its reply."""
    return _page.decode(body)


def written_page(results: Iterable[str | None], after: tuple[int, int] | None) -> str:
    """Return a page as its reply; results are JSON already."""
    return _encode({"results": [None if text is None else msgspec.Raw(text.encode()) for text in results], "next": after}).decode()


def _written(option: str, value: Any) -> Any:
    """Return an option as JSON has it: a job as its id, a moment apart from a span."""
    if option == "run_at" and isinstance(value, timedelta):
        return {"in_us": value // timedelta(microseconds=1)}
    if option == "run_at" and isinstance(value, datetime):
        return {"at": value.isoformat()}
    if isinstance(value, timedelta):
        return value.total_seconds()
    if option == "depends_on" and isinstance(value, Iterable) and not isinstance(value, str):
        return [_named(each) for each in value]
    return _named(value) if option == "depends_on" else value


def _named(job: Any) -> Any:
    """Return a job, or its handle, as its id."""
    return job if isinstance(job, str | int) else getattr(job, "id", job)
