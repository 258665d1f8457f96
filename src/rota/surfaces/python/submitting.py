"""Registering handlers and enqueueing jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from contextvars import copy_context
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, Unpack, cast, overload

import msgspec

from rota.engine.bulk import BulkCall
from rota.engine.decorated import TAKEN
from rota.engine.submit import NewJob
from rota.errors import (
    DuplicateId,
    DuplicateJob,
    InvalidOption,
    InvalidParams,
    KeyTaken,
    NotFound,
    RotaError,
    StoreError,
    TransactionMisuse,
)
from rota.executors import check_handler
from rota.handle import Handle
from rota.model.backoff import Backoff
from rota.model.call import Call
from rota.model.gate import Actor, Operation, scope_of
from rota.model.templates import FIELDS
from rota.model.values import Enqueued, Instant, Job, NewRow, undashed
from rota.ports.places import Place
from rota.ports.store import DefinitionsChanged, Store
from rota.surfaces.python.declaring import Declaring
from rota.surfaces.python.results import Bulk, job_of
from rota.task import EnqueueOptions, Home, JobDecorator, JobSet, Span, Task, submitted

R = TypeVar("R")
Result = TypeVar("Result")


NOTHING = (None,) * 14
ENQUEUED = (*EnqueueOptions.__annotations__, "handler", "job_type", "actor")
"""The options of `enqueue`."""


class Submitting(Declaring):
    """The part of Rota that takes jobs in."""

    @property
    def job(self) -> JobDecorator:
        """Register a handler and return its Task: `@rota.job` or `@rota.job(max_retries=3)`. See `JobOptions`.

        What is None is left to the settings. What people have set for the template stays on top of what is said here. `cron` or
        `every` declares a schedule too, named like the template, as `schedule` would; the options after them are about it.
        """
        return cast("JobDecorator", Home(self, self._register).job)

    def include(self, jobs: JobSet, *, prefix: str = "") -> None:
        """Register the tasks of a JobSet, under names that begin with the prefix. A JobSet is included once."""
        registry = self._session.registry
        before = frozenset(registry.handlers)
        try:
            jobs.join(self, self._register, prefix)
        except BaseException:
            registry.remove(registry.handlers.keys() - before)
            raise

    def _register(self, task: Task[..., Any], options: Mapping[str, Any]) -> None:
        given = {option: value for option, value in options.items() if option in FIELDS and option != "executor" and value is not None}
        times = {option: options.get(option) for option in (*TAKEN, "at")}
        executor = options.get("executor")
        self._session.registry.add(
            task.name,
            task.__wrapped__,
            executor=executor,
            options=given,
            check=check_handler,
            schedule=times,
            rules=task.handler.rules,
        )

    @overload
    def enqueue(self, name: Call[R], /, **options: Unpack[EnqueueOptions]) -> Handle[R]: ...
    @overload
    def enqueue(self, name: Task[..., R], params: Mapping[str, Any] | None = None, /, **options: Unpack[EnqueueOptions]) -> Handle[R]: ...
    @overload
    def enqueue(
        self,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        handler: str | None = None,
        job_type: str | None = None,
        priority: str | int | None = None,
        run_at: datetime | timedelta | None = None,
        unique_key: str | None = None,
        depends_on: Sequence[Any] | Handle[Any] | str | None = None,
        on_parent_failure: str | None = None,
        max_retries: int | None = None,
        timeout: Span | None = None,
        queue: str | None = None,
        queue_ttl: Span | None = None,
        webhook: str | None = None,
        job_id: str | None = None,
        meta: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        backoff: Backoff | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
        transaction: Any = None,
    ) -> Job: ...
    def enqueue(
        self,
        name: str | Task[..., Any] | Call[Any] | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        handler: str | None = None,
        job_type: str | None = None,
        priority: str | int | None = None,
        run_at: datetime | timedelta | None = None,
        unique_key: str | None = None,
        depends_on: Sequence[Any] | Handle[Any] | str | None = None,
        on_parent_failure: str | None = None,
        max_retries: int | None = None,
        timeout: Span | None = None,
        queue: str | None = None,
        queue_ttl: Span | None = None,
        webhook: str | None = None,
        job_id: str | None = None,
        meta: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        backoff: Backoff | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
        transaction: Any = None,
    ) -> Job | Handle[Any]:
        """Accept one job; when this returns it is on disk (or, with `transaction`, will be when that commits).

        By name it returns the Job; of a Task or a Call it returns a Handle.
        `handler` ("module:function") makes one without a template, of the type `job_type` or of that path. For who may manage templates.
        """
        if type(name) is not str and isinstance(name, Task | Call):
            said = locals()
            return submitted(self, name, params, {option: said[option] for option in ENQUEUED if said[option] is not None})
        store, who = self._session.open().store, self._session.acts(actor, Operation.SUBMIT, organization)
        if self._session.registry.undeclared:
            self._declare_scheduled()
        given = (
            priority,
            run_at,
            unique_key,
            depends_on,
            on_parent_failure,
            max_retries,
            timeout,
            queue_ttl,
            webhook,
            job_id,
            meta,
            queue,
            tags,
            backoff,
        )
        plain = handler is None and given == NOTHING
        if name is None or handler is not None or job_type is not None:
            name = _type_of(name, handler, job_type)
        build: Callable[[], NewRow]
        if plain:
            build = partial(self._session.submitter.plain, name, params, store, who)
        else:
            new = NewJob(
                name=name,
                params=params,
                priority=priority,
                run_at=run_at,
                unique_key=unique_key,
                depends_on=depends_on,
                on_parent_failure=on_parent_failure,
                max_retries=max_retries,
                timeout=timeout,
                queue=queue,
                queue_ttl=queue_ttl,
                webhook=webhook,
                job_id=job_id,
                meta=meta,
                tags=tags,
                backoff=backoff,
                handler=handler,
            )
            build = partial(self._session.submitter.one, new, store, who)
            if handler is not None and transaction is not None:
                self._session.submitter.refuse_new(new, store)
        if transaction is not None:
            transaction = store.join(transaction)
        row, now, enqueued = self._enqueue(build, store, transaction, who, plain=plain)
        if transaction is None:
            self._session.poke()
        if enqueued.existing:
            return self._holder(row, enqueued, transaction, who)
        # What a child waits for, or why it ended at once, stands in the store.
        written = store.job(enqueued.job_id, transaction=transaction) if row.depends_on else None
        return written or job_of(row, enqueued, now)

    def _enqueue(
        self, build: Callable[[], NewRow], store: Store, transaction: Any, who: Actor, *, plain: bool
    ) -> tuple[NewRow, Instant, Enqueued]:
        """Write one row; if the definitions it was built from have changed meanwhile, build it anew."""
        while True:
            row = build()
            # A plain job is due when it was made: the clock is read once.
            now = row.run_at if plain else self._session.clock.now()
            try:
                return row, now, store.enqueue([row], now=now, definitions=self._session.registry.version, transaction=transaction)[0]
            except DefinitionsChanged:
                self._session.registry.sync(store, now)
            except DuplicateJob as error:
                raise self._discreet(error, who) from error

    async def aenqueue(
        self, name: str | None = None, params: Mapping[str, Any] | None = None, *, actor: Actor | str | None = None, **options: Any
    ) -> Job:
        """Accept one job without blocking the event loop: on a thread of Rota's own, not of the program's pool."""
        given = options.get("transaction")
        accept: Callable[..., Job] = self.enqueue
        if given is None:
            opened = self._session.opened_here()
            if opened is not None and opened.store.transacting():
                raise TransactionMisuse(
                    "this thread is inside `with rota.transaction() as tx`: pass transaction=tx, or await after the block"
                )
            return await self._session.calls.call(partial(accept, name, params, actor=actor, **options))
        options["transaction"] = handle = self._session.open().store.join(given)
        return await _undivided(partial(accept, name, params, actor=actor, **options), handle.stop)

    def enqueue_each(self, jobs: Sequence[Any], *, actor: Actor | str | None = None) -> list[Job | RotaError]:
        """Accept jobs of several callers with one commit, each by itself: (name, params) or (name, params, actor).

        In the place of a job that is refused stands why; the others are on disk when this returns.
        """
        store = self._session.open().store
        if self._session.registry.undeclared:
            self._declare_scheduled()
        while True:
            built = [self._row_of(store, job, actor) for job in jobs]
            rows = [row for row in built if isinstance(row, NewRow)]
            now = self._session.clock.now()
            for row in rows:
                row.run_at = now
            try:
                place = Place() if self._in_line(rows, store, now) else None
                enqueued = iter(store.enqueue(rows, now=now, definitions=self._session.registry.version, place=place))
            except DefinitionsChanged:
                self._session.registry.sync(store, now)
            except StoreError as error:
                return [error if isinstance(row, NewRow) else row for row in built]
            except RotaError:
                # One of them stood in the way of all.
                pairs = zip(jobs, built, strict=True)
                return [self._enqueue_alone(job, actor) if isinstance(row, NewRow) else row for job, row in pairs]
            else:
                self._session.poke()
                return [job_of(row, next(enqueued), now) if isinstance(row, NewRow) else row for row in built]

    def _in_line(self, rows: list[NewRow], store: Store, now: Instant) -> bool:
        """Say whether nothing can stand in the way of these rows: then they go as a bulk call does, with fewer questions."""
        if len(rows) < 2 or not store.side_by_side(rows, now=now):
            return False
        organization = self._session.registry.organizations.get(rows[0].organization_id)
        return organization is not None and organization.max_queued is None

    def _row_of(self, store: Store, job: Any, actor: Actor | str | None) -> NewRow | RotaError:
        if not isinstance(job, tuple) or len(job) not in {2, 3}:
            return InvalidParams(f"{job!r:.80} is not a job: give (name, params) or (name, params, actor)")
        try:
            return self._session.submitter.plain(
                job[0], job[1], store, self._session.acts(job[2] if len(job) == 3 else actor, Operation.SUBMIT)
            )
        except RotaError as error:
            return error

    def _enqueue_alone(self, job: tuple[Any, ...], actor: Actor | str | None) -> Job | RotaError:
        try:
            return self.enqueue(job[0], job[1], actor=job[2] if len(job) == 3 else actor)
        except RotaError as error:
            return error

    def enqueue_many(
        self, jobs: Iterable[Any], *, organization: str | None = None, actor: Actor | str | None = None, transaction: Any = None
    ) -> Bulk:
        """Accept many jobs: calls, (name, params) pairs or NewJob, any number, in bounded memory, a chunk to a commit.

        If an item is bad, those before it are accepted and the error says how many; with `transaction`, none is.
        """
        store, who = self._session.open().store, self._session.acts(actor, Operation.SUBMIT, organization)
        if self._session.registry.undeclared:
            self._declare_scheduled()
        if transaction is None:
            return self._enqueue_chunks(jobs, store, who, None)
        transaction = store.join(transaction)
        with transaction.savepoint():
            return self._enqueue_chunks(jobs, store, who, transaction)

    def _enqueue_chunks(self, jobs: Iterable[Any], store: Store, actor: Actor, transaction: Any) -> Bulk:
        call = BulkCall(
            self._session.submitter,
            store,
            actor,
            clock=self._session.clock,
            transaction=transaction,
            keep_ids=isinstance(jobs, Sized),
            discreet=self._discreet,
            poke=self._session.poke,
        )
        call.take(jobs)
        return Bulk(call.accepted, call.existing, tuple(call.ids or ()))

    @contextmanager
    def transaction(self, *, actor: Actor | str | None = None) -> Iterator[Any]:
        """Open a transaction on the store for the caller's own writes and enqueues: all happen, or none."""
        self._session.scope(actor, Operation.OPERATE)
        store = self._session.open().store
        self._session.registry.sync(store, self._session.clock.now())
        with store.transaction() as transaction:
            yield transaction
        self._session.poke()

    def _discreet(self, error: DuplicateJob, who: Actor) -> DuplicateJob:
        """Return the refusal, without the job that it names if that is a colleague's."""
        found = undashed(error.job_id)
        job = None if found is None else self._session.open().store.job(found)
        if job is None or _reaches(who, job):
            return error
        return DuplicateJob(f"the same params of {job.job_type!r} were submitted by a colleague already, and are refused for a while")

    def _holder(self, row: NewRow, enqueued: Enqueued, transaction: Any, who: Actor) -> Job:
        """Return the job that was there already; what a colleague may not see of it is that it is there, and no more."""
        job = self._session.open().store.job(enqueued.job_id, transaction=transaction)
        if job is None:
            raise NotFound(f"the job {enqueued.job_id} was removed meanwhile: enqueue again")
        if not _reaches(who, job):
            if enqueued.job_id == row.job_id:
                raise DuplicateId(f"id {row.job_id} is taken already: choose another")
            raise KeyTaken(f"unique key {row.unique_key!r} is held by a job that {who.name!r} may not read: nothing was added")
        job.existing = True
        return job


def _reaches(who: Actor, job: Job) -> bool:
    """Say whether an actor's role may read a job, whatever its token was made for: how much of it an answer shows is decided there."""
    return scope_of(msgspec.structs.replace(who, operations=None), Operation.READ).holds(job.organization, job.owner)


def _type_of(name: str | None, handler: str | None, job_type: str | None) -> str:
    """Return the template of a new job, or the type of one without a template; "" is the path of its handler."""
    if handler is None and job_type is not None:
        raise InvalidOption(
            f"job_type={job_type!r} is for a job without a template: pass handler='module:function' too, or a template's name"
        )
    if handler is None:
        raise InvalidOption("nothing to enqueue: pass the name of a template, or handler='module:function'")
    if name is not None:
        raise InvalidOption(f"the template {name!r} and handler={handler!r} are both given: pass one of them")
    return job_type or ""


async def _undivided(work: Callable[[], Result], stop: Callable[[], None]) -> Result:
    """Do work on a thread of its own, and return only when it is over: a caller who is cancelled goes on to use its connection.

    Not on one of the threads that all share: those may all wait for what this caller's transaction holds.
    """
    import asyncio  # noqa: PLC0415 - its import takes 40 ms, which only async programs need
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    pool = ThreadPoolExecutor(1)
    done = asyncio.get_running_loop().run_in_executor(pool, copy_context().run, work)
    pool.shutdown(wait=False)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        stop()
        while not done.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({done})
        done.cancelled() or done.exception()  # looked at: it is not news any more
        raise
