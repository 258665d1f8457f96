"""A Context for tests that call a handler themselves, without a store or a worker. It keeps what the handler does with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from rota.errors import InvalidOption
from rota.executors.attempt import Attempt, RunLog
from rota.executors.calls import read_call, written_page
from rota.executors.context import Context
from rota.executors.text import clean
from rota.model.checks import whole
from rota.model.params import decode, decode_params, encode, encode_params
from rota.model.settings import Settings
from rota.model.states import Status
from rota.model.values import Claimed, Job, dashed, moment_of, number_text
from rota.ports.clock import Clock, SystemClock, UuidV7
from rota.ports.executor import Answer, Ended, Equipment, Question, Receipt, Replied, Reply, Report, Request

_encode = msgspec.json.Encoder().encode


class Progress(NamedTuple):
    """One report of `ctx.progress`."""

    pct: int
    message: str | None


class NewJob(NamedTuple):
    """One call of `ctx.enqueue`."""

    name: str
    params: dict[str, Any]
    options: dict[str, Any]


class Recorded(Context):
    """A Context without a worker. What the handler reports, keeps and enqueues is in these lists, first to last."""

    __slots__ = ("artifacts", "checkpoints", "enqueued", "logged", "progressed")

    def __init__(self, job: Claimed, results: Iterable[object]) -> None:
        """Made by `testing.context`."""
        self.checkpoints: list[Any] = []
        self.artifacts: list[str] = []
        self.progressed: list[Progress] = []
        self.enqueued: list[NewJob] = []
        self.logged: list[str] = []
        """What was written to `ctx.log`, each with its level: "INFO page 3"."""
        sink = _Sink(self, [encode(result, "results") for result in results])
        clock, settings = SystemClock(), Settings(progress_interval=0)
        equipment = Equipment(handlers={}, sink=sink, clock=clock, settings=settings, slots=1, log_dir=None, lock_fd=None)
        attempt = Attempt(job, equipment)
        attempt.log = _Lines(self.logged, job.run_id, clock, settings)
        super().__init__(attempt, decode_params(job.params))

    def cancel(self) -> None:
        """Ask the handler to stop, as a cancelled job, a timeout or a shutdown does."""
        self._attempt.stop()


class _Lines(RunLog):
    """A log that is a list."""

    __slots__ = ("_lines",)

    def __init__(self, lines: list[str], run_id: str, clock: Clock, settings: Settings) -> None:
        super().__init__(None, run_id, clock=clock, settings=settings)
        self._lines = lines

    def write(self, level: str, text: str) -> None:
        """Keep one entry."""
        self._lines.append(f"{level} {clean(text)}")


class _Sink:
    """Takes what a worker would take, and keeps it in the Context."""

    def __init__(self, context: Recorded, results: list[str]) -> None:
        self._context = context
        self._results = results
        self._ids = UuidV7()

    def ended(self, ended: Ended) -> None:
        """Take nothing: no executor runs this handler."""

    def report(self, report: Report) -> None:
        """Keep progress or an artifact."""
        if report.artifact is not None:
            self._context.artifacts.append(report.artifact)
        if report.progress is not None:
            self._context.progressed.append(Progress(report.progress, report.message))

    def keep(self, report: Report, answer: Answer) -> None:
        """Keep a checkpoint."""
        self._context.checkpoints.append(decode(report.checkpoint))
        answer(Receipt.WRITTEN)

    def ask(self, job: Claimed, request: Request, replied: Replied) -> None:
        """Answer at once."""
        if request.question is Question.RESULTS:
            replied(Reply(written_page(self._results, None)))
            return
        call = read_call(request.body)
        self._context.enqueued.append(NewJob(call.name, call.params or {}, call.options))
        replied(Reply(_encode(self._job(job, call.name, call.params or {})).decode()))

    def _job(self, parent: Claimed, name: str, params: dict[str, Any]) -> Job:
        now = SystemClock().now()
        job_id = self._ids.take(1, now)[0]
        number = len(self._context.enqueued) + parent.number
        return Job(
            id=dashed(job_id),
            number=number_text(job_id, number, 1),
            status=Status.QUEUED,
            job_type=name,
            organization=parent.organization_id,
            priority=50,
            position=number,
            attempt=1,
            root_id=dashed(job_id),
            created_at=moment_of(now),
            params=params,
        )


def context(
    *,
    params: Mapping[str, Any] | None = None,
    attempt: int = 1,
    resumed_from: object = None,
    meta: Mapping[str, Any] | None = None,
    results: Iterable[object] = (),
    template: str = "test",
    organization: str = "default",
    owner: str = "local",
) -> Recorded:
    """Return a Context to call a handler with: `greet(testing.context(attempt=2), "Ada")`.

    `results` is what `ctx.results()` returns, as plain values; `resumed_from` the checkpoint of the attempt before.
    """
    if isinstance(results, str | bytes | Mapping):
        raise InvalidOption(f"results={results!r:.80} is not a list of results: pass one for each job that the handler waits for")
    first, job_id, run_id = UuidV7().take(3, SystemClock().now())
    number = whole("attempt", attempt, least=1)
    job = Claimed(
        number=number,
        job_id=first if number == 1 else job_id,
        root_id=first,
        root_number=1,
        run_id=run_id,
        job_type=template,
        origin="API",
        organization_id=organization,
        params=encode_params(params or {}, limit_bytes=Settings().payload_max),
        priority=50,
        position=1,
        attempt=number,
        failures=number - 1,
        crashes=0,
        snoozes=0,
        max_retries=number,
        max_crashes=0,
        backoff="",
        timeout=0.0,
        executor="inline",
        started_at=SystemClock().now(),
        checkpoint=None if resumed_from is None else encode(resumed_from, "resumed_from"),
        owner=owner,
        meta=None if meta is None else encode(meta, "meta"),
    )
    return Recorded(job, results)
