"""What every part of the Python surface stands on: the store, opened when it is first used, and ids as people give them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from random import Random

from rota.compose import Opened, import_named, is_postgres, make_tracing, make_worker, open_store, store_url
from rota.engine.driver import Driver
from rota.engine.feed import Feed
from rota.engine.lease import Renewal
from rota.engine.meter import Meter
from rota.engine.overseeing import Beats
from rota.engine.registry import Registry
from rota.engine.submit import Submitter
from rota.engine.ticker import Ticker
from rota.engine.trigger import Alert
from rota.engine.worker import Worker
from rota.errors import NotFound, OrganizationUnavailable, PermissionDenied
from rota.model.checks import check_name
from rota.model.definitions import OrganizationState
from rota.model.dependencies import unknown_parent
from rota.model.gate import EVERYTHING, LOCAL, WHILE_SUSPENDED, Actor, Operation, Role, Scope, act_in, scope_of
from rota.model.settings import Settings
from rota.model.values import Group, Job, dashed, moment_of, undashed
from rota.ports.clock import Clock, Ids, StoreClock, UuidV7
from rota.ports.liveness import Lease


class Base:
    """Holds the settings, the registry and the open store. One object serves all threads."""

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        seed: int | None = None,
    ) -> None:
        """Name the store: a path, sqlite:///path, postgresql://user@host/database, or None for $ROTA_STORE, else ./rota.db."""
        self.settings = settings or Settings.from_environment(os.environ)
        self._url = store_url(store, os.environ)
        follows = StoreClock(begin=self._open if is_postgres(self._url) else None)
        self._clock: Clock = clock or follows
        self._follows = follows if clock is None else None
        """The clock, where nobody gave one: it follows the store's own, if that has one."""
        self._rng = Random(seed)  # noqa: S311 - jitter, not secrets
        self._ids: Ids = ids or UuidV7(None if seed is None else self._rng)
        self._registry = Registry(self.settings, self._ids)
        self._tracing = make_tracing(self.settings)
        self._submit = Submitter(self._registry, self._clock, self._ids, self.settings, self._parent, self._tracing)
        self._alerts: list[Alert] = []
        self._opened: Opened | None = None
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._drivers: list[Driver] = []
        self._inline: Worker | None = None
        self._client_id: str | None = None
        self._lease: Lease | None = None
        self._feed: Feed | None = None
        self._beats = Beats()
        self._meter = Meter()

    @property
    def url(self) -> str:
        """Which store is meant, without the password that may belong to it."""
        return str(self._url)

    @url.setter
    def url(self, store: str | os.PathLike[str]) -> None:
        self._url = store_url(store, os.environ)

    @property
    def now(self) -> datetime:
        """What time it is, by the clock that everything here goes by."""
        return moment_of(self._clock.now())

    def close(self) -> None:
        """Stop local workers and let go of the store. It opens again when it is used again."""
        self._see_fork()
        self._hang_up()
        for driver in list(self._drivers):
            self._stop(driver)
        with self._lock:
            inline, self._inline = self._inline, None
            opened, self._opened = self._opened, None
            try:
                if inline is not None:
                    inline.begin_stop()
                    inline.finish()
                if opened is not None:
                    self._end_client(opened)
            finally:
                if opened is not None:
                    opened.store.close()

    def _hang_up(self) -> None:
        """End all that listens to live events here. Whoever listens after that begins anew."""
        with self._lock:
            feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def _open(self) -> Opened:
        self._see_fork()
        opened = self._opened
        if opened is None:
            with self._lock:
                if self._opened is None:
                    self._opened = self._open_on_time()
                opened = self._opened
        if self._follows is not None:
            self._follows.check()
        return opened

    def _open_on_time(self) -> Opened:
        """Open the store, and let the clock follow the store's own; to open it, the machine's is good enough."""
        if self._follows is None:
            return open_store(self._url, self.settings, self._clock)
        self._follows.follow(None)
        opened = open_store(self._url, self.settings, self._clock)
        self._follows.follow(opened.time)
        return opened

    def _see_fork(self) -> None:
        """Forget, in a forked child, what is its parent's: its store, workers, sign of life, and locks other threads held."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._registry = self._registry.copy()
        self._submit = Submitter(self._registry, self._clock, self._ids, self.settings, self._parent, self._tracing)
        _inherited.append((self._opened, self._drivers, self._inline, self._lease, self._feed))
        self._opened = self._inline = self._client_id = self._lease = self._feed = None
        self._drivers = []

    def _make_worker(self, opened: Opened, slots: int, *, inline: bool = False, fires: bool = True) -> Worker:
        import_named(self._registry, opened.store, self.settings, self._clock)
        return make_worker(
            opened,
            self._registry,
            clock=self._clock,
            ids=self._ids,
            rng=self._rng,
            settings=self.settings,
            concurrency=slots,
            inline=inline,
            alerts=self._alerts,
            fires=fires,
            check_clock=None if self._follows is None else self._follows.check,
            meter=self._meter,
            tracing=self._tracing,
        )

    @contextmanager
    def _inline_worker(self, *, fires: bool = False) -> Iterator[Worker]:
        """Lend a worker that runs here; it fires schedules only if it is asked to."""
        worker = self._make_worker(self._open(), 1, inline=True, fires=fires)
        try:
            worker.start()
            if worker.standing.renewal.watched and self._follows is not None:
                # A handler may take long. Nothing repeats a direct execution, so nobody has to be stopped before others take over.
                worker.standing.watch(guarded=False)
            yield worker
        finally:
            try:
                worker.begin_stop()
                worker.finish()
            finally:
                # One that could not say goodbye to its store turns no more all the same: it must not look alive.
                worker.standing.withdraw()

    @contextmanager
    def _owning(self, opened: Opened) -> Iterator[str]:
        """Lend the id of the row that shows that this process lives: a local worker's, or one of its own, which beats meanwhile."""
        with self._lock:
            local = self._drivers[0].worker.id if self._drivers else None
        if local is not None:
            yield local
            return
        client_id = self._known_client(opened)
        every_s = Renewal(self._clock, self.settings).every_s
        beats = Ticker(lambda: opened.store.beat(client_id, job_types=()), every_s=every_s, name="beats")
        beats.start()
        try:
            yield client_id
        finally:
            beats.stop()

    def _known_client(self, opened: Opened) -> str:
        """Return the row of this process, made anew if others have given it up while it had nothing to say."""
        with self._lock:
            if self._client_id is not None and opened.store.beat(self._client_id, job_types=()):
                return self._client_id
            lease, self._lease, self._client_id = self._lease, None, None
            if lease is not None:
                lease.release(clean=True)
            now = self._clock.now()
            client_id = self._ids.take(1, now)[0]
            self._lease = opened.liveness.take(client_id)
            opened.store.register(client_id, host=os.uname().nodename, kind="client", job_types=(), now=now)
            self._client_id = client_id
            return client_id

    def _stop(self, driver: Driver) -> None:
        driver.stop()
        with self._lock:
            if driver in self._drivers:
                self._drivers.remove(driver)

    def _poke(self) -> None:
        for driver in self._drivers:
            driver.worker.poke()

    # ---- who asks ---------------------------------------------------------------------------------------------

    def _actor(self, given: Actor | str | None) -> Actor:
        """Return who asks. Nobody named: whoever can open the store is its manager. A name: what the store's users say it is."""
        if given is None:
            return LOCAL
        if isinstance(given, Actor):
            return given
        check_name(given, "actor", self.settings.name_max)
        self._registry.sync(self._open().store, self._clock.now())
        users = self._registry.users
        if not users:
            # Before the first user is made there is nobody to keep apart: a name is only recorded.
            return Actor(given, role=Role.MANAGER)
        user = users.get(given)
        if user is None or user.removed:
            raise PermissionDenied(
                f"{given!r} is no user of this store, and may do nothing in it; a system manager can add it: `rota user add`"
            )
        return Actor(user.name, user.organization, user.role, frozenset(user.permissions))

    def _acts(self, actor: Actor | str | None, operation: Operation, organization: str | None = None) -> Actor:
        """Return who asks, as acting in an organization; refuse what it may not do there."""
        if actor is None and organization is None:
            return LOCAL
        who = act_in(self._actor(actor), operation, organization)
        self._refuse_closed(who, operation)
        return who

    def _scope(self, actor: Actor | str | None, operation: Operation) -> Scope:
        """Return the rows that the actor may do this to."""
        if actor is None:
            return EVERYTHING
        who = self._actor(actor)
        scope = scope_of(who, operation)
        self._refuse_closed(who, operation)
        return scope

    def _refuse_closed(self, who: Actor, operation: Operation) -> None:
        """Refuse the people of an organization that is removed, and, where it is suspended, most of what they could do."""
        if who.role is Role.MANAGER:
            return
        self._registry.sync(self._open().store, self._clock.now())
        organization = self._registry.organizations.get(who.organization)
        if organization is None or organization.state is OrganizationState.ACTIVE:
            return
        if organization.state is OrganizationState.REMOVED:
            raise PermissionDenied(f"organization {who.organization!r} was removed: {who.name!r} may do nothing in this store")
        if operation not in WHILE_SUSPENDED:
            raise OrganizationUnavailable(f"organization {who.organization!r} is suspended: {who.name!r} may read and cancel, nothing else")

    def _reach(self, given: str | int | Job, actor: Actor | str | None, operation: Operation) -> str:
        """Return the id of a job that the actor may do this to; for one that is out of reach, what is said of one that is not there."""
        return self._id(given, self._scope(actor, operation))

    def _reach_group(self, given: str | Group, actor: Actor | str | None, operation: Operation) -> str:
        """Return the id of a group that the actor may do this to."""
        scope = self._scope(actor, operation)
        group_id = self._group_id(given)
        if scope is not EVERYTHING:
            group = self._open().store.group(group_id)
            if group is None or not scope.holds(group.organization, group.owner):
                raise NotFound(f"there is no group {dashed(group_id)} in this store")
        return group_id

    def _parent(self, given: str | int | Job, actor: Actor) -> str:
        """Return the id of a job that the actor lets another wait for: only what it may read shows that it is there."""
        scope = scope_of(actor, Operation.READ)
        job_id = undashed(given.id if isinstance(given, Job) else str(given))
        if job_id is None:
            return self._by_number(str(given), scope)
        if scope.owner is not None:
            job = self._open().store.job(job_id)
            if job is not None and not scope.holds(job.organization, job.owner):
                raise unknown_parent(dashed(job_id))
        # It may stand in the caller's own transaction, which nobody else sees yet: the store looks again.
        return job_id

    def _no_job(self, given: object) -> NotFound:
        name = given.id if isinstance(given, Job) else str(given)
        return NotFound(f"there is no job {name!r} in {self.url}")

    def _id(self, given: str | int | Job, scope: Scope = EVERYTHING) -> str:
        """Return the id that a text means: a UUID, or a number as people see it."""
        text = given.id if isinstance(given, Job) else str(given)
        job_id = undashed(text)
        if job_id is None:
            return self._by_number(text, scope)
        if scope is not EVERYTHING:
            job = self._open().store.job(job_id)
            if job is None or not scope.holds(job.organization, job.owner):
                raise self._no_job(given)
        return job_id

    def _by_number(self, given: str, scope: Scope = EVERYTHING) -> str:
        found = _NUMBER.fullmatch(given)
        if found is None:
            raise NotFound(f"{given!r} is neither the id of a job nor its number, such as JOB-2026-00042")
        store = self._open().store
        year, digits, attempt = found.groups()
        first = store.by_number(int(digits))
        if first is None or first.attempt != 1 or (year and year != first.number.split("-")[1]):
            raise self._no_job(given)
        if not scope.holds(first.organization, first.owner):
            raise self._no_job(given)
        chain = store.chain(str(undashed(first.id)))
        if int(attempt or 1) not in range(1, len(chain) + 1):
            raise NotFound(f"{first.number} has {len(chain)} attempt{'s' * (len(chain) > 1)}: there is no {given!r}")
        return str(undashed(chain[int(attempt or 1) - 1].id))

    def _group_id(self, given: str | Group) -> str:
        text = given.id if isinstance(given, Group) else given
        found = undashed(text)
        if found is None:
            raise NotFound(f"{text!r} is not the id of a group")
        return found

    def _end_client(self, opened: Opened) -> None:
        if self._client_id is None or self._lease is None:
            return
        opened.store.end_worker(self._client_id, now=self._clock.now())
        self._lease.release(clean=True)
        self._client_id = self._lease = None


_NUMBER = re.compile(r"(?:JOB-([0-9]{4})-)?([0-9]{1,18})(?:\.([0-9]{1,9}))?", re.IGNORECASE)
"""JOB-2026-00042, its third attempt JOB-2026-00042.3, or just 42. Bounded: what SQLite can't hold is no number of ours."""

_inherited: list[object] = []
"""What a parent process opened: kept from the garbage collector, whose closing would be seen by the parent."""
