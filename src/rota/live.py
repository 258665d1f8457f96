"""Live events, and logs that are read while they grow."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rota.engine.log_reader import CHUNK_BYTES, LogReader
from rota.engine.patience import Patience
from rota.model.events import Event, EventType, View, cursor_of, types_of
from rota.model.gate import EVERYTHING, Right, Scope, scope_of
from rota.model.states import Status
from rota.model.values import Job, JobRef, Run, undashed
from rota.operation import Ask
from rota.resources.filters import statuses

if TYPE_CHECKING:
    from rota.engine.event_feed import Feed, Listener, Over

LOOK_S = 0.25
"""How often a log that is followed is read."""


class Events(Iterator[Event]):
    """Events as they happen; iterating waits for each. It is over when its chain has ended, if it is about one, or when it is closed."""

    def __init__(self, listener: Listener) -> None:
        """Take the listener."""
        self.listener = listener
        self._events: deque[Event] = deque()

    def __next__(self) -> Event:
        """Return the next event, however long it takes."""
        event = self.next(None)
        if event is None:
            raise StopIteration
        return event

    def next(self, timeout: float | None = None) -> Event | None:
        """Return the next event; None if none came within `timeout` seconds, or if no more will come (`over` says why)."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._events:
            ended = self.over
            for batch in self.listener.take(LOOK_S if end is None else max(0.0, min(LOOK_S, end - time.monotonic()))):
                self._events.extend(batch.with_ids())
            if not self._events and (ended is not None or (end is not None and time.monotonic() >= end)):
                return None
        return self._events.popleft()

    @property
    def over(self) -> Over | None:
        """The reason why no more events come; None while they may."""
        return self.listener.over

    def close(self) -> None:
        """Stop listening."""
        from rota.engine.event_feed import Over  # noqa: PLC0415 - few programs need it

        self.listener.end(Over.CLOSED)
        self.listener.close()

    def __enter__(self) -> Self:
        """Listen for the time of a block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop listening."""
        self.close()

    def __del__(self) -> None:
        """Close the listener that nobody reads any more."""
        self.listener.close()


class LogTail:
    """The log of one run, read as it grows."""

    def __init__(self, ask: Ask, logs: LogReader, job_id: str, patience: Patience) -> None:
        """Start at the first line."""
        self._ask = ask
        self._store = ask.store
        self._patience = patience
        self._logs = logs
        self._job_id = job_id
        self._run: Run | None = None
        self._read = 0
        self._ahead = b""
        """What was read and is not returned yet."""
        self._asked: set[bool] = set()
        """Whether it was asked, before the end and after it, if the log is on another machine."""
        self.over = False
        """The job has ended, and its whole log has been read."""

    def read(self) -> str:
        """Return new whole lines, at most 64 kB; empty if there are none."""
        job = self._looked()
        ended = job is None or job.status.ended
        piece = self._piece(whole=ended)
        if not piece and job is not None:
            piece = self._elsewhere(job)
        self.over = ended and not piece
        return piece

    def __iter__(self) -> Iterator[str]:
        """Yield new lines, waiting for them, and for a store that becomes unavailable."""
        while True:
            piece = self._patience.ask(self.read)
            if piece:
                yield piece
            elif self.over:
                return
            else:
                time.sleep(LOOK_S)

    def _looked(self) -> Job | None:
        """Return the job, None if it is gone; asked before its log is read, so that no line is missed."""
        job = self._store.job(self._job_id)
        if job is None:
            return None
        if self._ask.scope is not EVERYTHING and not self._ask.also(self._ask.right).scope.holds(
            job.organization, job.owner, job.schedule_id
        ):
            # The privilege was revoked while the log was followed.
            raise self._ask.session.no_job(self._job_id)
        if job.started_at is not None and (self._run is None or job.status.ended):
            self._run = self._store.run(self._job_id) or self._run
        return job

    def _piece(self, *, whole: bool) -> str:
        if self._run is None:
            return ""
        while len(self._ahead) < CHUNK_BYTES and (more := self._logs.read(self._run, after=self._read)):
            self._read += len(more)
            self._ahead += more
        data = self._ahead[:CHUNK_BYTES]
        if not whole or len(data) == CHUNK_BYTES:
            # A line, and a character of several bytes, is returned when it is complete; a line longer than a chunk is returned in parts.
            data = data[: data.rfind(b"\n") + 1] or (data if len(data) == CHUNK_BYTES else b"")
        self._ahead = self._ahead[len(data) :]
        return data.decode(errors="replace")

    def _elsewhere(self, job: Job) -> str:
        """Return a line that says, once, on which machine the log is, if it can't be read from here."""
        if self._run is None or self._read or job.status.ended in self._asked:
            return ""
        words = self._logs.elsewhere(self._run, job)
        self._asked |= {job.status.ended} if words is None else {True, False}
        return "" if words is None else f"{self._run.started_at:%Y-%m-%dT%H:%M:%S.%fZ} WARNING {words}\n"


def listen(
    ask: Ask,
    *,
    types: Iterable[EventType | str] | str | None = None,
    status: Iterable[Status | str] | str | None = None,
    job_type: str | None = None,
    job: JobRef | None = None,
    after: str | None = None,
    ready: Callable[[], None] | None = None,
) -> Listener:
    """Do what `Rota.events` does, for callers with their own way to wait: another thread calls `ready` when events have come."""
    cursor = None if after is None else cursor_of(after)
    # The role's own: a stream outlives the moment at which privileges are asked for.
    scope = scope_of(ask.who, ask.right)
    view = View(
        scope=scope,
        stats=_counted(ask),
        types=types_of(types if types is None or isinstance(types, str) else list(types)),
        statuses=frozenset(statuses(status if status is None or isinstance(status, str) else list(status))),
        job_type=job_type,
        root_id=None if job is None else undashed(ask.session.job(job, scope).root_id),
    )
    listener = _feed(ask).listen(view, after=None if view.root_id else cursor, ready=ready)
    if view.root_id is not None:
        _put_chain(ask, listener, view.root_id)
    return listener


def follow_log(ask: Ask, job: JobRef) -> LogTail:
    """Follow the lines that the handler of this attempt writes, from the first on, until the job has ended. For Right.READ_LOG.

    Iterating waits for each piece, which is whole lines; `read()` returns what is new and does not wait.
    """
    job_id = str(undashed(ask.found(job).id))
    return LogTail(ask, ask.opened.logs(ask.settings), job_id, Patience(outage_s=ask.settings.busy_timeout))


def _feed(ask: Ask) -> Feed:
    from rota.engine.event_feed import Feed  # noqa: PLC0415 - a log is followed without it

    opened, session = ask.opened, ask.session
    with session.lock:
        if session.feed is None:
            session.feed = Feed(opened.store, session.clock, session.settings, opened.wakeup)
        return session.feed


def _put_chain(ask: Ask, listener: Listener, root_id: str) -> None:
    """Put the present state of the chain before anything that comes."""
    from rota.engine.event_feed import Batch, Over, is_last  # noqa: PLC0415
    from rota.engine.event_poller import of_chain  # noqa: PLC0415 - a log is followed without it

    store = ask.store
    chain = store.chain(root_id)
    if not chain:
        listener.end(Over.ENDED)
        return
    changes = of_chain(chain[-1], store.run(str(undashed(chain[-1].id))), ask.now)
    events = [change.event() for change in changes if listener.view.shows(change)]
    if events:
        listener.put_first(Batch(events, listener.cursor, listener.cursor))
    if any(map(is_last, changes)):
        listener.end(Over.ENDED)


def _counted(ask: Ask) -> Scope | None:
    return ask.may(Right.READ_STATS)
