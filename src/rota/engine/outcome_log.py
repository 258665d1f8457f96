"""Outcomes of attempts as log records of the logger `rota.jobs`, and as events for hooks: by the worker that wrote them, each one once.

| outcome | level |
| --- | --- |
| dead letter | ERROR |
| failed, timed out, interrupted, lost with its worker: retried | WARNING |
| cancelled, skipped by its handler | INFO |
| completed, snoozed, given back before it started | DEBUG |

A record is made after the outcome is in the store, so what is logged has happened. Params are never logged.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import TypeAlias

from rota.hooks import AttemptEvent, Hook, On, WorkerEvent
from rota.model.decide import Failed, Released, Transition
from rota.model.states import Status
from rota.model.values import Claimed, Job, dashed, moment_of, number_text
from rota.ports.executor import Ended
from rota.ports.turns import Ending, Turn, Turned

JOBS = "rota.jobs"
log = logging.getLogger(JOBS)
hook_log = logging.getLogger("rota.hooks")

EVENTS_MAX = 10_000
"""Events that wait for hooks. Where hooks are slower than the worker for long, those beyond are dropped: a worker is not held up."""
CLOSE_S = 5.0
"""How long a worker that stops waits for hooks to return."""
TEXT_MAX = 1000
"""Characters of an error or a reason in a message; the traceback below it has more."""
TIME = "%Y-%m-%dT%H:%M:%SZ"
FIELDS = ("job", "number", "template", "attempt", "worker", "duration", "organization", "status", "retry_at")
"""What each record has besides its message: attributes of the record, as `extra` makes them."""
LEVELS = {
    Status.DEAD_LETTER: logging.ERROR,
    Status.FAILED: logging.WARNING,
    Status.TIMED_OUT: logging.WARNING,
    Status.CANCELLED: logging.INFO,
    Status.SKIPPED: logging.INFO,
    Status.COMPLETED: logging.DEBUG,
}
WORDS = {
    Status.DEAD_LETTER: "failed permanently",
    Status.FAILED: "failed",
    Status.TIMED_OUT: "failed",
    Status.CANCELLED: "was cancelled",
    Status.SKIPPED: "was skipped",
    Status.COMPLETED: "completed",
}

QUIET = (None, "", "cancelled", "released", "snoozed")
"""Reasons that say no more than the outcome."""
EXPIRED = "its reservation expired while it ran"
COMPLETION = Transition(Status.COMPLETED)
"""What is written for a completion that left nothing behind."""

ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]


class HandlerTraceback(Exception):  # noqa: N818 - it is the text of a traceback, as the cause of a stand-in
    """The traceback of an exception that was raised in a handler process."""

    def __str__(self) -> str:
        """Return the text, set apart from what a formatter writes around it."""
        return f'\n"""\n{self.args[0].rstrip()}\n"""'


def log_turn(turn: Turn, turned: Turned, ended: Mapping[int, Ended], plain: Mapping[int, Ended], calls: HookCalls) -> None:
    """Log what a turn has written, and let go of the exceptions."""
    worker_id = turn.worker_id
    verbose = log.isEnabledFor(logging.DEBUG) or bool(calls.on.completed.functions)
    late = frozenset(turned.late)
    if verbose and turn.done:
        log_completions((plain[number] for number, _ in turn.done if number not in late), worker_id, calls)
    everything = verbose or turned.as_written
    notable = turn.endings if everything else [each for each in turn.endings if each.transition.status is not Status.COMPLETED]
    for ending in notable:
        each = ended[ending.number]
        if ending.number not in late:
            _log_ending(ending, turned, each, worker_id, calls)
        if isinstance(each.outcome, Failed):
            each.outcome.exception = None


def log_completions(completed: Iterable[Ended], worker_id: str, calls: HookCalls) -> None:
    """Log completions that left nothing behind, where somebody wants to know."""
    if log.isEnabledFor(logging.DEBUG) or calls.on.completed.functions:
        for each in completed:
            _log(each.job, Status.COMPLETED, COMPLETION, worker_id, calls, seconds=each.seconds)


def log_recovered(ending: Ending, job: Claimed, status: Status, worker_id: str, calls: HookCalls) -> None:
    """Log what was written for an attempt whose worker (`worker_id`) is gone. How long it ran nobody knows."""
    _log(job, status, _as_written(ending, status), worker_id, calls, seconds=None)


def log_expired(job: Job, calls: HookCalls) -> None:
    """Log the end of a direct execution whose reservation has expired."""
    event = AttemptEvent(
        job=job.id,
        number=job.number,
        template=job.job_type,
        attempt=job.attempt,
        organization=job.organization,
        worker=job.worker_id,
        status=job.status,
        duration=None,
        error=EXPIRED,
    )
    if hooks := calls.on.about(job.status):
        calls.add(hooks, event)
    if log.isEnabledFor(logging.ERROR):
        _emit(logging.ERROR, event, WORDS[Status.DEAD_LETTER])


def _log_ending(ending: Ending, turned: Turned, each: Ended, worker_id: str, calls: HookCalls) -> None:
    status = turned.as_written.get(ending.number, ending.transition.status)
    transition, failed = _as_written(ending, status), None
    if isinstance(each.outcome, Failed) and status is ending.transition.status:
        failed = each.outcome
    elif status is Status.DEAD_LETTER and transition.status is not status:
        transition = Transition(status, error=dict(turned.refused).get(ending.number, "result could not be stored"))
    seconds = None if isinstance(each.outcome, Released) else each.seconds
    _log(each.job, status, transition, worker_id, calls, seconds=seconds, failed=failed)


def _as_written(ending: Ending, status: Status) -> Transition:
    """Return what of an ending was written."""
    cancelled = status is Status.CANCELLED and ending.transition.status is not status
    return ending.if_cancelled if cancelled else ending.transition


def _log(
    job: Claimed,
    status: Status,
    transition: Transition,
    worker_id: str,
    calls: HookCalls,
    *,
    seconds: float | None,
    failed: Failed | None = None,
) -> None:
    successor = transition.successor
    hooks = calls.on.about(status, runs_again=successor is not None)
    level = logging.DEBUG if status is Status.SKIPPED and successor is not None else LEVELS[status]
    if not hooks and not log.isEnabledFor(level):
        return
    event = AttemptEvent(
        job=dashed(job.job_id),
        number=number_text(job.root_id, job.root_number, job.attempt),
        template=job.job_type,
        attempt=job.attempt,
        organization=job.organization_id,
        worker=worker_id,
        status=status,
        duration=seconds,
        error=transition.error or transition.reason,
        exception=None if failed is None else failed.exception,
        exception_type=None if failed is None else failed.exception_type,
        traceback=None if failed is None else failed.traceback,
        retry_at=None if successor is None else moment_of(successor.run_at),
    )
    if hooks:
        calls.add(hooks, event)
    if log.isEnabledFor(level):
        words, after = WORDS[status], ""
        if successor is not None:
            at = "now" if successor.in_place else f"at {event.retry_at:{TIME}}"
            after = f"; {'runs again' if status is Status.SKIPPED else 'retrying'} {at}"
            if status is Status.SKIPPED:
                words = "was given back before it started" if successor.in_place else "was snoozed"
        _emit(level, event, words, after=after, failed=failed)


def _emit(level: int, event: AttemptEvent, words: str, *, after: str = "", failed: Failed | None = None) -> None:
    """Make a record and hand it on. What the program's own handlers and filters raise never reaches the turn."""
    seconds, why = event.duration, "" if event.error in QUIET else f": {_line(str(event.error))}"
    ran = "" if seconds is None else f" after {seconds * 1000:.0f} ms" if seconds < 1 else f" after {seconds:.1f} s"
    fields: dict[str, object] = {name: getattr(event, name) for name in FIELDS}
    fields["duration"] = None if seconds is None else round(seconds, 6)
    fields["status"] = str(event.status)
    fields["retry_at"] = None if event.retry_at is None else f"{event.retry_at:{TIME}}"
    try:
        exc_info = None if failed is None else _exc_info(failed)
        arguments = (event.number, event.template, words, ran, why, after)
        record = log.makeRecord(log.name, level, __file__, 0, "%s %s %s%s%s%s", arguments, exc_info, extra=fields)
        if failed is not None and failed.traceback:
            # Formatters take this text as it is: without frames of ours, and bounded.
            record.exc_text = failed.traceback.rstrip("\n")
        log.handle(record)
    except Exception:  # noqa: BLE001 - as `logging` itself does with a handler that fails
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc()


def _exc_info(failed: Failed) -> ExcInfo | None:
    error = failed.exception
    if error is not None:
        return type(error), error, error.__traceback__
    if failed.exception_type is None:
        return None
    stand_in = _stand_in(failed.exception_type)
    error = stand_in(failed.error.removeprefix(f"{stand_in.__name__}: "))
    if failed.traceback:
        error.__cause__ = HandlerTraceback(failed.traceback)
    return stand_in, error, None


@lru_cache(maxsize=256)
def _stand_in(name: str) -> type[Exception]:
    """Return a class that is called like one of a handler process."""
    module, _, own = name.rpartition(".")
    return type(own, (Exception,), {"__module__": module or "builtins", "__doc__": "Raised in a handler process."})


def _line(text: str) -> str:
    """Return the beginning of a text as one line."""
    return " ".join(text[:TEXT_MAX].split()) + ("…" if len(text) > TEXT_MAX else "")


class HookCalls:
    """Calls a program's hooks beside the turns of a worker, one after the other, on a thread that is started with the first event.

    `inline`: at once, in the thread that has written the outcome.
    """

    def __init__(self, on: On, *, inline: bool) -> None:
        """Take the hooks; nothing is started before there is an event for one."""
        self.on = on
        self._inline = inline
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._dropped = 0

    def add(self, hooks: tuple[Hook[AttemptEvent], ...], event: AttemptEvent) -> None:
        """Have hooks called with an event."""
        for hook in hooks:
            self._put(partial(hook.call, event))

    def begin(self, worker_id: str) -> None:
        """Call the hooks of a worker that starts, and return when they have."""
        self.on.worker_start.call(WorkerEvent(worker=worker_id, pid=os.getpid()))

    def close(self, worker_id: str) -> None:
        """Let the hooks that wait be called, those of the worker's stop last, and wait for them a while."""
        if self.on.worker_stop.functions:
            self._put(partial(self.on.worker_stop.call, WorkerEvent(worker=worker_id, pid=os.getpid())))
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._waiting.put(None)
        thread.join(CLOSE_S)
        if thread.is_alive():
            hook_log.error(
                "a hook has not returned within %g s; the worker stops, and %d events may be lost", CLOSE_S, self._waiting.qsize()
            )

    def _put(self, call: Callable[[], None]) -> None:
        if self._inline:
            call()
            return
        if self._waiting.qsize() >= EVENTS_MAX:
            if not self._dropped:
                hook_log.error("hooks are slower than the worker: %d events wait for them, and further ones are dropped", EVENTS_MAX)
            self._dropped += 1
            return
        if self._dropped:
            hook_log.error("hooks have caught up; %d events were dropped", self._dropped)
            self._dropped = 0
        self._waiting.put(call)
        if self._thread is None:
            self._thread = Thread(target=self._live, name="rota-hooks", daemon=True)
            self._thread.start()

    def _live(self) -> None:
        while (call := self._waiting.get()) is not None:
            call()
            del call  # an idle thread keeps no exception alive
