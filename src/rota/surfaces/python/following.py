"""Live events and logs that grow: what happens is told while it happens."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rota.engine.patience import Patience
from rota.errors import InvalidOption, PermissionDenied
from rota.model.events import Event, EventType, View, cursor_of, types_of
from rota.model.gate import Actor, Right, Scope
from rota.model.states import Status
from rota.model.values import JobRef, log_path, undashed
from rota.ports.store import Store
from rota.surfaces.python.base import Base

if TYPE_CHECKING:
    from rota.engine.feed import Feed
    from rota.engine.listening import Listener, Over

LOOK_S = 0.25
"""How often a log that is followed is looked at."""
CHUNK_BYTES = 65_536
"""What is read of a log at a time."""


class Events(Iterator[Event]):
    """Events as they happen; waits for each. Ends with the chain, if it is about one, or when it is closed."""

    def __init__(self, listener: Listener) -> None:
        """Take who listens."""
        self.listener = listener
        self._events: deque[Event] = deque()

    def __next__(self) -> Event:
        """Return the next event, however long it takes."""
        found = self.next(None)
        if found is None:
            raise StopIteration
        return found

    def next(self, timeout: float | None = None) -> Event | None:
        """Return the next event; None if none came in time (seconds), or none will come any more (`over` says why)."""
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
        """Why nothing more comes; None while something may."""
        return self.listener.over

    def close(self) -> None:
        """Listen no longer."""
        from rota.engine.listening import Over  # noqa: PLC0415 - few programs need it

        self.listener.end(Over.CLOSED)
        self.listener.close()

    def __enter__(self) -> Self:
        """Listen for the time of a block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Listen no longer."""
        self.close()

    def __del__(self) -> None:
        """Let go of what nobody asks any more."""
        self.listener.close()


class Following(Base):
    """The part of Rota that tells what happens."""

    def events(
        self,
        *,
        types: Iterable[EventType | str] | str | None = None,
        status: Iterable[Status | str] | str | None = None,
        job_type: str | None = None,
        job: JobRef | None = None,
        after: str | None = None,
        actor: Actor | str | None = None,
    ) -> Events:
        """Listen to what happens to jobs and definitions that the actor may see: each event as it is noticed, within a second.

        With `job` only the chain of this one, first as it stands, until it has ended. `after` is the id of an event: what came after it
        is told again first, as far as the store still shows it; a `gap` says where it does not.
        """
        return Events(self.listen(types=types, status=status, job_type=job_type, job=job, after=after, actor=actor))

    def listen(
        self,
        *,
        types: Iterable[EventType | str] | str | None = None,
        status: Iterable[Status | str] | str | None = None,
        job_type: str | None = None,
        job: JobRef | None = None,
        after: str | None = None,
        ready: Callable[[], None] | None = None,
        actor: Actor | str | None = None,
    ) -> Listener:
        """Do as `events` does, for those who have their own way to wait: `ready` is called from another thread when something is there."""
        cursor = None if after is None else cursor_of(after)
        view = View(
            scope=self._session.scope(actor, Right.READ),
            stats=self._counted(actor),
            types=types_of(types if types is None or isinstance(types, str) else list(types)),
            statuses=_statuses(status),
            job_type=job_type,
            root_id=None if job is None else self._root_of(job, actor),
        )
        listener = self._feeding().listen(view, after=None if view.root_id else cursor, ready=ready)
        if view.root_id is not None:
            self._tell_chain(listener, view.root_id)
        return listener

    def follow_log(self, job_id: JobRef, *, actor: Actor | str | None = None) -> LogTail:
        """Follow what the handler of this very job writes, from the first line on, until the job has ended.

        Going through it waits for each piece, which is whole lines; its `read()` returns what is new and does not wait.
        """
        found, opened = self._session.reach(job_id, actor, Right.READ_LOG), self._session.open()
        if opened.store.job(found) is None:
            raise self._session.no_job(job_id)
        return LogTail(opened.store, opened.log_dir, found, Patience(outage_s=self.settings.busy_timeout))

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _feeding(self) -> Feed:
        from rota.engine.feed import Feed  # noqa: PLC0415 - few programs need it

        opened = self._session.open()
        with self._session.lock:
            if self._session.feed is None:
                self._session.feed = Feed(opened.store, self._session.clock, self.settings, opened.wakeup)
            return self._session.feed

    def _tell_chain(self, listener: Listener, root_id: str) -> None:
        """Tell how the chain stands before anything that comes: whoever looks at one job wants to know that first."""
        from rota.engine.gathering import of_chain  # noqa: PLC0415 - few programs need it
        from rota.engine.listening import Batch, Over, is_last  # noqa: PLC0415

        store = self._session.open().store
        chain = store.chain(root_id)
        if not chain:
            listener.end(Over.ENDED)
            return
        changes = of_chain(chain[-1], store.run(str(undashed(chain[-1].id))), self._session.clock.now())
        events = [change.event() for change in changes if listener.view.shows(change)]
        if events:
            listener.put_first(Batch(events, listener.cursor, listener.cursor))
        if any(map(is_last, changes)):
            listener.end(Over.ENDED)

    def _counted(self, actor: Actor | str | None) -> Scope | None:
        try:
            return self._session.scope(actor, Right.READ_STATS)
        except PermissionDenied:
            return None

    def _root_of(self, given: JobRef, actor: Actor | str | None) -> str:
        job = self._session.open().store.job(self._session.reach(given, actor, Right.READ))
        if job is None:
            raise self._session.no_job(given)
        return str(undashed(job.root_id))


class LogTail:
    """The log of one run, read as it grows."""

    def __init__(self, store: Store, log_dir: str, job_id: str, patience: Patience) -> None:
        """Begin at its beginning."""
        self._store = store
        self._patience = patience
        self._log_dir = log_dir
        self._job_id = job_id
        self._path: str | None = None
        self._place = 0
        self.over = False
        """Nothing more comes: the job has ended, and all that it left has been read."""

    def read(self) -> str:
        """Return what is new, whole lines, at most 64 kB of it; nothing if there is nothing."""
        ended = self._ended()
        piece = self._piece(whole=ended)
        self.over = ended and not piece
        return piece

    def __iter__(self) -> Iterator[str]:
        """Go through what comes, waiting for it, and for a store that goes away meanwhile."""
        while True:
            piece = self._patience.ask(self.read)
            if piece:
                yield piece
            elif self.over:
                return
            else:
                time.sleep(LOOK_S)

    def _ended(self) -> bool:
        """Say whether the job has ended; asked before its log is read, so that nothing is left behind."""
        job = self._store.job(self._job_id)
        if job is None:
            return True
        if self._path is None and job.started_at is not None:
            run = self._store.run(self._job_id)
            self._path = None if run is None else log_path(self._log_dir, str(undashed(run.id)))
        return job.status.ended

    def _piece(self, *, whole: bool) -> str:
        if self._path is None:
            return ""
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123 - see `log_path`
                file.seek(self._place)
                data = file.read(CHUNK_BYTES)
        except OSError:
            return ""
        if not whole or len(data) == CHUNK_BYTES:
            # A line, and a letter of several bytes, is told when it is there to its end; one that never ends is told as it is.
            data = data[: data.rfind(b"\n") + 1] or (data if len(data) == CHUNK_BYTES else b"")
        self._place += len(data)
        return data.decode(errors="replace")


def _statuses(given: Iterable[Status | str] | str | None) -> frozenset[str]:
    wanted = (given,) if isinstance(given, str) else tuple(given or ())
    for each in wanted:
        if each not in set(Status):
            raise InvalidOption(f"status {each!r} is not one of {', '.join(Status)}")
    return frozenset(map(str, wanted))
