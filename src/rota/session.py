"""What every part of one Rota shares: the store, opened when it is first used, who asks, and ids as people give them."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from copy import copy
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec.structs import replace

from rota.compose import Opened, has_clock, make_tracing, master_keys, open_store
from rota.engine.call_pool import CallPool
from rota.engine.fleet import Beats
from rota.engine.meter import Meter
from rota.engine.registry import Registry
from rota.engine.submit import Submitter
from rota.errors import NotFound, OrganizationUnavailable, PermissionDenied
from rota.handle import Handle
from rota.hooks import On
from rota.middleware import Middleware
from rota.model.checks import check_name
from rota.model.definitions import OrganizationState
from rota.model.dependencies import unknown_parent
from rota.model.gate import EVERYTHING, LOCAL, WHILE_SUSPENDED, Actor, Right, Role, Scope, act_in, is_grantable, scope_of
from rota.model.grants import NOTHING, Holdings
from rota.model.groups import Group
from rota.model.lanes import Names, Serving, serving_of
from rota.model.settings import Settings, unknown_variables
from rota.model.stored_settings import own_words
from rota.model.urls import StoreUrl
from rota.model.values import Job, JobRef, dashed, undashed
from rota.ports.clock import Clock, Ids, StoreClock, SystemClock, UuidV7

if TYPE_CHECKING:
    from rota.engine.denials import Denials
    from rota.engine.driver import Driver
    from rota.engine.event_feed import Feed
    from rota.engine.watcher import Watcher
    from rota.engine.worker import Worker
    from rota.ports.liveness import Lease
    from rota.ports.store import Store
    from rota.vault import Keyring


log = logging.getLogger("rota.settings")
_warned: set[str] = set()
T = TypeVar("T")


class part(Generic[T]):  # noqa: N801 - a decorator, as `property` is
    """A part of a session that is made when it is first used, once, whichever thread comes first; from then on a plain attribute."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        """Take the method that makes it."""
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, session: Session, owner: type | None = None) -> T:
        session.see_fork()
        # Not the lock of the session: that one is held while a store is opened, and an event loop must not wait for it.
        with session.making:
            made: dict[str, T] = vars(session)
            if self._name not in made:
                made[self._name] = self._make(session)
            return made[self._name]


class Session:
    """Holds the settings, the registry and the open store, and asks the gate. One object serves all threads."""

    def __init__(
        self,
        app: Any,
        store: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        seed: int | None = None,
    ) -> None:
        """Take the Rota whose session it is, and the name of the store: see there."""
        self.app = app
        self.settings = settings or _settings_of_environment()
        self._given_clock = clock
        self.name_store(store)
        self.rng = Random(seed)  # noqa: S311 - jitter, not secrets
        self.ids: Ids = ids or UuidV7(None if seed is None else self.rng)
        self.tracing = None if self.settings.traces == "off" else make_tracing()
        self.opened: Opened | None = None
        self.pid = os.getpid()
        self.lock, self.making = threading.RLock(), threading.RLock()
        self.drivers: list[Driver] = []
        self.inline: Worker | None = None
        self.client_id: str | None = None
        self.lease: Lease | None = None
        self.feed: Feed | None = None
        self.watcher: Watcher | None = None
        self.effects: list[Callable[[Session], object]] | None = None
        """What is to be done after the commit; None where each call has its own."""

    @part
    def registry(self) -> Registry:
        """Handlers, templates, organizations and users."""
        return Registry(self.settings, self.ids, lambda: own_words(self.settings, os.environ))

    @part
    def submitter(self) -> Submitter:
        """Builder of rows for new jobs."""
        return Submitter(self.registry, self.clock, self.ids, self.settings, self.parent, self.tracing, self.look)

    @part
    def middleware(self) -> Middleware:
        """Functions that surround every handler: `@rota.middleware` registers one."""
        return Middleware()

    @part
    def on(self) -> On:
        """Functions that workers call: `@rota.on.failed` registers one."""
        return On()

    @part
    def calls(self) -> CallPool:
        """Threads for the blocking calls of async programs."""
        return CallPool()

    @part
    def beats(self) -> Beats:
        """When each worker's beat was last seen to move."""
        return Beats()

    @part
    def meter(self) -> Meter:
        """Figures of what the workers of this process do."""
        return Meter()

    @part
    def denials(self) -> Denials:
        """Entries of refusals in the audit trail."""
        from rota.engine.denials import Denials  # noqa: PLC0415 - only a refusal needs it

        return Denials(self._enter_denial)

    def name_store(self, store: str | os.PathLike[str] | None) -> None:
        """Mean this store from now on: None is $ROTA_STORE, else ./rota.db. The time is that of the given clock, else of the store."""
        self.where = StoreUrl(os.fspath(store) if store is not None else os.environ.get("ROTA_STORE") or "rota.db")
        self.follows = StoreClock(begin=self.open) if self._given_clock is None and has_clock(self.where) else None
        """The clock, where it follows the store's own."""
        self.clock: Clock = self._given_clock or self.follows or SystemClock()
        vars(self).pop("submitter", None)  # it has the clock of the store before

    def close(self) -> None:
        """Stop local workers and let go of the store. It opens again when it is used again."""
        self.see_fork()
        with self.lock:
            feed, self.feed = self.feed, None
            watcher, self.watcher = self.watcher, None
            calls = vars(self).pop("calls", None)
        for listening in (feed, watcher, calls):
            if listening is not None:
                listening.close()
        for driver in list(self.drivers):
            self.stop(driver)
        with self.lock:
            inline, self.inline = self.inline, None
            opened, self.opened = self.opened, None
            try:
                if inline is not None:
                    inline.begin_stop()
                    inline.finish()
                if opened is not None and self.client_id is not None:
                    self._end_client(opened, self.client_id)
            finally:
                if opened is not None:
                    opened.store.close()

    def _end_client(self, opened: Opened, client_id: str) -> None:
        """Give back the row that showed that this process lives."""
        opened.store.end_worker(client_id, now=self.clock.now())
        if self.lease is not None:
            self.lease.release(clean=True)
        self.client_id = self.lease = None

    def open(self) -> Opened:
        """Return the open store; open it if that was not done in this process yet."""
        opened = self.opened
        if opened is None or self.pid != os.getpid():
            self.see_fork()
            with self.lock:
                if self.opened is None:
                    self.opened = self.open_on_time()
                opened = self.opened
        if self.follows is not None:
            self.follows.check()
        return opened

    def open_on_time(self) -> Opened:
        """Open the store, and let the clock follow the store's own; to open it, the machine's is good enough."""
        if self.follows is None:
            return open_store(self.where, self.settings, self.clock)
        self.follows.follow(None)
        opened = open_store(self.where, self.settings, self.clock)
        self.follows.follow(opened.time)
        return opened

    def see_fork(self) -> None:
        """Forget, in a forked child, what is its parent's: its store, workers, sign of life, and locks other threads held."""
        if self.pid == os.getpid():
            return
        self.pid = os.getpid()
        self.lock, self.making = threading.RLock(), threading.RLock()
        _inherited.append(vars(self).copy())
        self.registry = self.registry.copy()
        self.opened = self.inline = self.client_id = self.lease = self.feed = self.watcher = None
        self.drivers = []
        for name in ("submitter", "calls", "beats", "meter", "denials"):
            vars(self).pop(name, None)  # a thread of the parent may have held its lock

    async def watching(self) -> Watcher:
        """Return what awaits jobs here. A store that is not open yet is opened on a thread."""
        opened = self.opened_here()
        if opened is None:
            opened = await self.calls.call(self.open)
        with self.lock:
            # One of a store that was closed in the meantime is of no use.
            if self.watcher is None or self.watcher.store is not opened.store:
                from rota.engine.watcher import Watcher  # noqa: PLC0415 - only who awaits ends needs it

                self.watcher = Watcher(opened.store, opened.wakeup, outage_s=self.settings.busy_timeout)
            return self.watcher

    def opened_here(self) -> Opened | None:
        """Return the open store, if this process has opened it already: without a wait."""
        self.see_fork()
        return self.opened

    def serving(self, queues: Names = None, types: Names = None, exclude: Names = None) -> Serving:
        """Return what a worker is to serve: what its caller says, or else the settings."""
        settings = self.settings
        return serving_of(queues, types, exclude, usual=(settings.worker_queues, settings.worker_types, settings.worker_exclude))

    def stop(self, driver: Driver) -> None:
        """Bring a worker home."""
        driver.stop()
        with self.lock:
            if driver in self.drivers:
                self.drivers.remove(driver)

    def look(self, path: str) -> Callable[..., Any] | None:
        """Return the function that a job without a template names, where it is here; refuse one that the settings don't allow."""
        from rota.executors.locate import look_for_handler, prefixes_of  # noqa: PLC0415 - few programs need it

        return look_for_handler(path, prefixes_of(self.settings.handler_modules))

    def current(self) -> Settings:
        """Return the settings that hold now: those that the store keeps are among them."""
        self.registry.sync(self.open().store, self.clock.now())
        return self.registry.settings

    def keyring(self) -> Keyring:
        """Return the master keys as the key file has them now; an empty keyring refuses secrets."""
        return master_keys(self.settings).keyring()

    def has_key_file(self) -> bool:
        """Say whether this process is told where master keys are: without that, nothing of `rota.vault` is imported."""
        return bool(self.settings.master_key_file or os.environ.get("CREDENTIALS_DIRECTORY"))

    def poke(self) -> None:
        """Wake the workers of this process."""
        for driver in self.drivers:
            driver.worker.poke()

    def follow_up(self, effect: Callable[[Session], object]) -> None:
        """Do what follows from a write: at once, or as soon as the transaction that it is part of is committed."""
        if self.effects is None:
            effect(self)
        else:
            self.effects.append(effect)

    def inside(self, store: Store) -> Session:
        """Return a session for calls that are all part of one transaction, on the store that is given to its work.

        What it reads of definitions is its own: should the transaction be undone, nobody has heard of it.
        """
        other = copy(self)
        other.opened = replace(self.open(), store=store)
        other.lock, other.making = threading.RLock(), threading.RLock()
        other.registry = self.registry.copy()
        # The store's clock would be asked on another connection, and workers find nothing before the commit.
        other.follows, other.drivers, other.effects = None, [], []
        # A refusal is entered although the transaction is undone.
        other.denials = self.denials
        vars(other).pop("submitter", None)
        return other

    # ---- who asks ---------------------------------------------------------------------------------------------

    def actor(self, given: Actor | str | None) -> Actor:
        """Return the actor of a call: without a name the manager, since the caller can open the store; else the user of that name."""
        if given is None:
            return LOCAL
        if isinstance(given, Actor):
            return given
        check_name(given, "actor", self.settings.name_max)
        self.registry.sync(self.open().store, self.clock.now())
        return self.known_user(given)

    def known_user(self, given: str) -> Actor:
        """Return who a name is by what is known of users now."""
        users = self.registry.users
        if not users:
            # Before the first user is made there is nobody to keep apart: a name is only recorded.
            return Actor(given, role=Role.MANAGER)
        user = users.get(given)
        if user is None or user.removed:
            raise PermissionDenied(
                f"{given!r} is no user of this store, and may do nothing in it; a system manager can add it: `rota user create`"
            )
        return Actor(user.name, user.organization, user.role, frozenset(user.permissions))

    def template_name(self, given: str) -> str:
        """Return the name of the template that a caller means: its name, or else its id, which jobs and runs show."""
        if undashed(given) is None:
            return given
        self.registry.sync(self.open().store, self.clock.now())
        return self.registry.name_of(given)

    def acts(self, actor: Actor | str | None, operation: Right, organization: str | None = None) -> Actor:
        """Return who asks, as acting in an organization; refuse what it may not do there."""
        if actor is None and organization is None:
            return LOCAL
        try:
            given = actor if isinstance(actor, Actor) else self.actor(actor)
            if given.role is Role.MANAGER:
                return act_in(given, operation, organization)
            self.registry.sync(self.open().store, self.clock.now())
            who = act_in(given, operation, organization, self.holdings(given, operation))
            self.refuse_known_closed(who, operation)
        except (PermissionDenied, OrganizationUnavailable) as error:
            self.denied(actor, operation, error)
            raise
        return who

    def scope(self, actor: Actor | str | None, operation: Right) -> Scope:
        """Return the rows that the actor may do this to."""
        if actor is None:
            return EVERYTHING
        try:
            who = actor if isinstance(actor, Actor) else self.actor(actor)
            if who.role is Role.MANAGER:
                return scope_of(who, operation)
            self.registry.sync(self.open().store, self.clock.now())
            scope = scope_of(who, operation, self.holdings(who, operation))
            self.refuse_known_closed(who, operation)
        except (PermissionDenied, OrganizationUnavailable) as error:
            self.denied(actor, operation, error)
            raise
        return scope

    def holdings(self, who: Actor, operation: Right) -> Holdings:
        """Return the privileges of an actor as they are known now, where they can widen what its role reaches."""
        if who.role is Role.MANAGER or not is_grantable(operation):
            return NOTHING
        return self.registry.holdings(who, self.open().store)

    def may(self, actor: Actor | str | None, operation: Right) -> Scope | None:
        """Return the same, or None for an actor without the right: a page leaves something out for it, and that is not an attempt."""
        if actor is None:
            return EVERYTHING
        try:
            who = actor if isinstance(actor, Actor) else self.actor(actor)
            scope_of(who, operation, self.holdings(who, operation))
        except PermissionDenied:
            return None
        return self.scope(who, operation)

    def denied(self, actor: Actor | str | None, operation: Right, error: Exception) -> None:
        """Enter a refusal into the audit trail."""
        self.denials.note(LOCAL if actor is None else actor, operation, error)

    def _enter_denial(self, actor: Actor | str, operation: Right, why: str) -> None:
        user = self.registry.users.get(actor) if isinstance(actor, str) else None
        who = actor if user is None else Actor(user.name, user.organization, user.role)
        self.open().store.record_denial(who, operation, why, now=self.clock.now())

    def refuse_known_closed(self, who: Actor, operation: Right) -> None:
        """Refuse the people of an organization that is known to be removed, and, where it is suspended, most of what they could do."""
        organization = self.registry.organizations.get(who.organization)
        if organization is None or organization.state is OrganizationState.ACTIVE:
            return
        if organization.state is OrganizationState.REMOVED:
            raise PermissionDenied(f"organization {who.organization!r} was removed: {who.name!r} may do nothing in this store")
        if operation not in WHILE_SUSPENDED:
            raise OrganizationUnavailable(f"organization {who.organization!r} is suspended: {who.name!r} may read and cancel, nothing else")

    def reach(self, given: JobRef, actor: Actor | str | None, operation: Right) -> str:
        """Return the id of a job that the actor may do this to; for one that is out of reach, what is said of one that is not there."""
        return self.job_id(given, self.scope(actor, operation))

    def parent(self, given: JobRef, actor: Actor) -> str:
        """Return the id of a job that the actor lets another wait for: only what its role may read shows that it is there."""
        # Not what it was granted: programs that only submit jobs read no grants.
        scope = scope_of(actor, Right.READ)
        job_id = undashed(_text(given))
        if job_id is None:
            return str(undashed(self.numbered(_text(given), scope).id))
        if scope.owner is not None:
            job = self.open().store.job(job_id)
            if job is not None and not scope.holds(job.organization, job.owner):
                raise unknown_parent(dashed(job_id))
        # The job may be in the caller's own transaction, which no one else sees yet: the store looks again.
        return job_id

    def no_job(self, given: object) -> NotFound:
        """Return what is said of a job that is not there."""
        return NotFound(f"there is no job {_text(given)!r} in {self.where}")

    def job_id(self, given: JobRef, scope: Scope = EVERYTHING) -> str:
        """Return the id that a text means: a UUID, or a number as people see it."""
        job_id = undashed(_text(given))
        return job_id if job_id is not None and scope is EVERYTHING else str(undashed(self.job(given, scope).id))

    def job(self, given: JobRef, scope: Scope) -> Job:
        """Return the job that a text means, with one SELECT unless the number of a later attempt is given."""
        text = _text(given)
        job_id = undashed(text)
        if job_id is None:
            return self.numbered(text, scope)
        job = self.open().store.job(job_id)
        if job is None or not scope.holds(job.organization, job.owner, job.schedule_id):
            raise self.no_job(given)
        return job

    def numbered(self, given: str, scope: Scope) -> Job:
        """Return a job by its number."""
        found = _NUMBER.fullmatch(given)
        if found is None:
            raise NotFound(f"{given!r} is neither the id of a job nor its number, such as JOB-2026-00042")
        store = self.open().store
        year, digits, attempt = found.groups()
        first = store.by_number(int(digits))
        if first is None or first.attempt != 1 or (year and year != first.number.split("-")[1]):
            raise self.no_job(given)
        if not scope.holds(first.organization, first.owner, first.schedule_id):
            raise self.no_job(given)
        if int(attempt or 1) == 1:
            return first
        chain = store.chain(str(undashed(first.id)))
        if int(attempt) not in range(1, len(chain) + 1):
            raise NotFound(f"{first.number} has {len(chain)} attempt{'s' * (len(chain) > 1)}: there is no {given!r}")
        return chain[int(attempt) - 1]

    def group_id(self, given: str | Group) -> str:
        """Return the id of a group as the store has it."""
        text = given.id if isinstance(given, Group) else given
        found = undashed(text)
        if found is None:
            raise NotFound(f"{text!r} is not the id of a group")
        return found


_NUMBER = re.compile(r"(?:JOB-([0-9]{4})-)?([0-9]{1,18})(?:\.([0-9]{1,9}))?", re.IGNORECASE)
"""JOB-2026-00042, its third attempt JOB-2026-00042.3, or just 42. The length is limited to what SQLite can store."""


def _settings_of_environment() -> Settings:
    """Read the settings from the environment; warn of each variable that sets nothing, once in a process."""
    for warning in unknown_variables(os.environ):
        if warning not in _warned:
            _warned.add(warning)
            log.warning(warning)
    return Settings.from_environment(os.environ)


def _text(given: object) -> str:
    """Return what a job is called: the id of a Job or a Handle, else what was given."""
    return given.id if isinstance(given, Job | Handle) else str(given)


_inherited: list[object] = []
"""What a parent process opened: kept from the garbage collector, whose closing would be seen by the parent."""
