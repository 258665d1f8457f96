"""A handle: a job that was enqueued, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import msgspec

from rota.errors import JobCancelled, JobFailed, JobSkipped, NotFound
from rota.model.params import decode
from rota.model.states import RunStatus, Status
from rota.model.values import Enqueued, Job, LogEntry, Run, dashed, number_text

if TYPE_CHECKING:
    from rota.engine.explain import Explanation

R_co = TypeVar("R_co", covariant=True)


class Handle(Generic[R_co]):
    """A job and its retries, by the job's id. Cheap to make and to compare; pickles by its task's name and its id."""

    __slots__ = ("_enqueued", "_id", "_number", "_rota", "_task", "existing")

    def __init__(self, rota: Any, task: Any, job_id: str = "", *, number: str | None = None, enqueued: Enqueued | None = None) -> None:
        """Made by `Task.handle`, with an id, and by `enqueue`, with what it wrote. Without a task its result is plain JSON."""
        self._rota = rota
        self._task = task
        self._number = number
        self._enqueued = enqueued
        self._id = job_id
        self.existing = enqueued is not None and enqueued.existing
        """Whether `enqueue` found this job, by its unique key or its id, and added none."""

    @property
    def id(self) -> str:
        """The job's id."""
        if not self._id and self._enqueued is not None:
            self._id = dashed(self._enqueued.job_id)
        return self._id

    @property
    def number(self) -> str:
        """The job's number, such as JOB-2026-00042."""
        number = self._known_number
        if number is None:
            job: Job = self._rota.jobs.get(self.id)
            number = self._number = job.number
        return number

    @property
    def _known_number(self) -> str | None:
        """The number, where the store need not be asked for it. In tests it may be given with the caller's commit."""
        if self._number is None and self._enqueued is not None and self._enqueued.number:
            self._number = number_text(self._enqueued.root_id, self._enqueued.number, 1)
        return self._number

    def status(self) -> Status:
        """Return the status of the newest attempt."""
        chain: list[Job] = self._rota.jobs.attempts(self.id)
        return chain[-1].status

    def run(self) -> Run | None:
        """Return the newest run, of whatever attempt; None while no attempt has started."""
        runs: list[Run] = self._rota.jobs.runs(self.id)
        return runs[-1] if runs else None

    def explain(self) -> Explanation:
        """Say why the job does not run yet, or how it ended."""
        explanation: Explanation = self._rota.explain(self.id)
        return explanation

    def log(self) -> Sequence[LogEntry]:
        """Return the log of all attempts: what happened to them, and what the handler wrote. As a text it is lines."""
        entries: Sequence[LogEntry] = self._rota.jobs.log(self.id, chain=True)
        return entries

    def cancel(self, *, reason: str | None = None) -> Job:
        """Cancel the job and its retries: at once while it waits, by request while it runs."""
        job: Job = self._rota.jobs.cancel(self.id, reason=reason)
        return job

    def result(self, timeout: float | None = None) -> R_co:
        """Wait for the end of the chain, retries included, and return what the function returned.

        Raises JobFailed, JobCancelled, JobSkipped, or WaitTimeout after `timeout` seconds. If somebody retries a chain that has ended
        badly, call it again: it waits for the new attempt.
        """
        return self._value(self._rota.wait(self.id, timeout))

    async def result_async(self, timeout: float | None = None) -> R_co:  # noqa: ASYNC109 - the same word as in result()
        """Do the same without blocking the event loop."""
        rota = self._rota
        run: Run = await rota._wait_async(self.id, timeout)  # noqa: SLF001 - a Rota's own, and Handle is its part
        if run.status is RunStatus.COMPLETED:
            return self._value(run)
        # The error is built from what the store has, and reading that would block the loop.
        value: R_co = await rota._session.calls.call(partial(self._value, run))  # noqa: SLF001 - as above
        return value

    def _value(self, run: Run) -> R_co:
        if run.status is RunStatus.COMPLETED:
            return self._decoded(msgspec.json.encode(run.result).decode())
        job: Job = self._rota.jobs.get(run.job_id)
        tries = f" after {job.attempt} attempts" if job.attempt > 1 else ""
        raise JobFailed(f"{job.number} ({job.job_type}) failed{tries}: {run.error or 'no error was recorded'}", job, run)

    def _decoded(self, text: str) -> R_co:
        """Return a stored result as the task's return annotation says; plain JSON without a task."""
        return cast("R_co", decode(text) if self._task is None else self._task._decoded(text))  # noqa: SLF001 - Task's part

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> Any:
        rota = self._rota
        if self._task is None or self._task.handle(self.id)._rota._seat is not rota._seat:  # noqa: SLF001 - of its own class
            from pickle import PicklingError  # noqa: PLC0415 - a program that pickles has imported it

            why = "was enqueued by name" if self._task is None else f"is of {rota.store.url}, and its task belongs to another Rota"
            raise PicklingError(f"{self!r} can't be pickled: it {why}; pass its id ({self.id})")
        return _handle_at, (self._task, rota._actor, self.id, self._known_number, self.existing)  # noqa: SLF001 - of its own class

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        name = "" if self._task is None else f"{self._task.name} "
        return f"<Handle {name}{self._known_number or self.id}>"


def _handle_at(task: Any, actor: Any, job_id: str, number: str | None, existing: bool) -> Any:  # noqa: FBT001 - called by pickle
    handle = task.acting_as(actor).handle(job_id)
    handle._number, handle.existing = number, existing  # noqa: SLF001 - a constructor of this module
    return handle


def ended(job: Job, run: Run | None) -> Run:
    """Return the run of the last attempt of a chain that has ended; raise if it was cancelled or skipped."""
    why = "" if job.reason in {None, "cancelled"} else f": {job.reason}"
    if job.status is Status.CANCELLED:
        raise JobCancelled(f"{job.number} ({job.job_type}) was cancelled{why}", job, run)
    if job.status is Status.SKIPPED:
        raise JobSkipped(f"{job.number} ({job.job_type}) was skipped{why}", job, run)
    if run is None:
        raise NotFound(f"{job.number} ended {job.status}, and its run is not in the store any more")
    return run
