"""Live events and logs that grow: what happens is told while it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rota.engine.patience import Patience
from rota.errors import InvalidOption, PermissionDenied
from rota.live import Events, LogTail
from rota.model.events import EventType, View, cursor_of, types_of
from rota.model.gate import Actor, Right, Scope
from rota.model.states import Status
from rota.model.values import JobRef, undashed
from rota.surfaces.python.base import Base

if TYPE_CHECKING:
    from rota.engine.feed import Feed
    from rota.engine.listening import Listener


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


def _statuses(given: Iterable[Status | str] | str | None) -> frozenset[str]:
    wanted = (given,) if isinstance(given, str) else tuple(given or ())
    for each in wanted:
        if each not in set(Status):
            raise InvalidOption(f"status {each!r} is not one of {', '.join(Status)}")
    return frozenset(map(str, wanted))
