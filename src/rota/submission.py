"""Taking jobs in: what `rota.enqueue`, tasks, the HTTP API and handlers have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from contextvars import copy_context
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rota.declarations import declare_scheduled
from rota.engine.bulk import BulkCall
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
from rota.handle import Handle
from rota.model.call import NewJob
from rota.model.gate import Actor, Right, scope_of
from rota.model.params import decode_params
from rota.model.states import Status
from rota.model.values import Enqueued, Instant, Job, NewRow, dashed, moment, moment_of, number_text, undashed
from rota.ports.places import Place
from rota.ports.store import DefinitionsChanged, Store
from rota.results import Bulk

if TYPE_CHECKING:
    from rota.session import Session

Result = TypeVar("Result")


class Accepted(msgspec.Struct):
    """One job that was accepted, or found by its unique key or id. The Job is built only for a caller who asks for it."""

    row: NewRow
    enqueued: Enqueued
    now: Instant
    store: Store
    transaction: Any
    found: Job | None = None
    """The job, once it was read or built."""

    def handle(self, rota: Any, task: Any = None) -> Handle[Any]:
        """Return the handle of the job, for the Rota and the task that it was enqueued by."""
        number = None if self.found is None else self.found.number
        return Handle(rota, task, number=number, enqueued=self.enqueued)

    def job(self) -> Job:
        """Return the job."""
        if self.found is None and self.row.depends_on:
            # What a child waits for, or why it ended at once, is in the store.
            self.found = self.store.job(self.enqueued.job_id, transaction=self.transaction)
        if self.found is None:
            self.found = job_of(self.row, self.enqueued, self.now)
        return self.found


def submit(session: Session, actor: Actor | str | None, name: str | None, params: Mapping[str, Any] | None, **options: Any) -> Accepted:
    """Accept one job; when this returns it is on disk (or, with `transaction`, will be when that commits).

    The options are those of `EnqueueOptions`, `handler` and `job_type`.
    """
    store, who = session.open().store, session.acts(actor, Right.SUBMIT, options.pop("organization", None))
    submitter, registry = session.submitter, session.registry
    if registry.undeclared:
        declare_scheduled(session)
    transaction = options.pop("transaction", None)
    new = _new_job(name, params, options) if options or name is None else None
    if transaction is not None:
        if new is not None and new.handler is not None:
            submitter.refuse_new(new, store)
        transaction = store.join(transaction)
    while True:
        row = submitter.plain(name or "", params, store, who) if new is None else submitter.one(new, store, who)
        # A plain job is due when it was created: the clock is read once.
        now = row.run_at if new is None else session.clock.now()
        try:
            enqueued = store.enqueue([row], now=now, definitions=registry.version, transaction=transaction)[0]
        except DefinitionsChanged:
            registry.sync(store, now)
        except DuplicateJob as error:
            raise _discreet(session, error, who) from error
        else:
            accepted = Accepted(row, enqueued, now, store, transaction)
            if transaction is None and not row.lane:
                # The next job of this type then takes the shorter way.
                registry.sync(store, now)
            if transaction is None and session.drivers:
                session.poke()
            if enqueued.existing:
                accepted.found = _holder(accepted, transaction, who)
            return accepted


async def submit_async(
    session: Session, actor: Actor | str | None, name: str | None, params: Mapping[str, Any] | None, **options: Any
) -> Accepted:
    """Accept one job without blocking the event loop: on a thread of Rota's own, not of the program's pool."""
    given = options.get("transaction")
    if given is None:
        opened = session.opened_here()
        if opened is not None and opened.store.transacting():
            raise TransactionMisuse("this thread is inside `with rota.transaction() as tx`: pass transaction=tx, or await after the block")
        return await session.calls.call(partial(submit, session, actor, name, params, **options))
    options["transaction"] = handle = session.open().store.join(given)
    return await _undivided(partial(submit, session, actor, name, params, **options), handle.stop)


def submit_each(session: Session, actor: Actor | str | None, jobs: Sequence[Any]) -> list[Job | RotaError]:
    """Accept jobs of several callers with one commit, each independent of the others: (name, params) or (name, params, actor).

    A job that is refused is represented by its error; the others are on disk when this returns.
    """
    store = session.open().store
    if session.registry.undeclared:
        declare_scheduled(session)
    while True:
        built = [_row_of(session, store, job, actor) for job in jobs]
        rows = [row for row in built if isinstance(row, NewRow)]
        now = session.clock.now()
        for row in rows:
            row.run_at = now
        try:
            place = Place() if len(rows) > 1 and _in_line(session, rows, store, now) else None
            enqueued = iter(store.enqueue(rows, now=now, definitions=session.registry.version, place=place))
        except DefinitionsChanged:
            session.registry.sync(store, now)
        except StoreError as error:
            return [error if isinstance(row, NewRow) else row for row in built]
        except RotaError:
            # One of them was refused, and all with it: each is tried alone.
            pairs = zip(jobs, built, strict=True)
            return [_alone(session, job, actor) if isinstance(row, NewRow) else row for job, row in pairs]
        else:
            if not all(row.lane for row in rows):
                # The next job of such a type then takes the shorter way.
                session.registry.sync(store, now)
            if session.drivers:
                session.poke()
            return [job_of(row, next(enqueued), now) if isinstance(row, NewRow) else row for row in built]


def submit_many(
    session: Session, actor: Actor | str | None, jobs: Iterable[Any], *, organization: str | None = None, transaction: Any = None
) -> Bulk:
    """Accept many jobs, a chunk to a commit; with `transaction`, all or none."""
    store, who = session.open().store, session.acts(actor, Right.SUBMIT, organization)
    if session.registry.undeclared:
        declare_scheduled(session)
    if transaction is None:
        return _chunks(session, jobs, store, who, None)
    transaction = store.join(transaction)
    with transaction.savepoint():
        return _chunks(session, jobs, store, who, transaction)


def _in_line(session: Session, rows: list[NewRow], store: Store, now: Instant) -> bool:
    """Say whether nothing can refuse these rows: then they are written as a bulk call is, with fewer questions."""
    if not store.side_by_side(rows, now=now):
        return False
    organization = session.registry.organizations.get(rows[0].organization_id)
    return organization is not None and organization.max_queued is None


def _row_of(session: Session, store: Store, job: Any, actor: Actor | str | None) -> NewRow | RotaError:
    if not isinstance(job, tuple) or len(job) not in {2, 3}:
        return InvalidParams(f"{job!r:.80} is not a job: pass (name, params) or (name, params, actor)")
    try:
        return session.submitter.plain(job[0], job[1], store, session.acts(job[2] if len(job) == 3 else actor, Right.SUBMIT))
    except RotaError as error:
        return error


def _alone(session: Session, job: tuple[Any, ...], actor: Actor | str | None) -> Job | RotaError:
    try:
        return submit(session, job[2] if len(job) == 3 else actor, job[0], job[1]).job()
    except RotaError as error:
        return error


def _chunks(session: Session, jobs: Iterable[Any], store: Store, actor: Actor, transaction: Any) -> Bulk:
    call = BulkCall(
        session.submitter,
        store,
        actor,
        clock=session.clock,
        transaction=transaction,
        keep_ids=isinstance(jobs, Sized),
        discreet=partial(_discreet, session),
        poke=session.poke,
    )
    call.take(jobs)
    return Bulk(call.accepted, call.existing, tuple(call.ids or ()))


def _discreet(session: Session, error: DuplicateJob, who: Actor) -> DuplicateJob:
    """Return the refusal, without the job that it names if the actor may not read that."""
    found = undashed(error.job_id)
    job = None if found is None else session.open().store.job(found)
    if job is None or _reaches(who, job):
        return error
    return DuplicateJob(f"the same params of {job.job_type!r} were submitted by a colleague already, and are refused for a while")


def _holder(accepted: Accepted, transaction: Any, who: Actor) -> Job:
    """Return the job that was there already. An actor who may not read it learns that it is there, and no more."""
    row, job_id = accepted.row, accepted.enqueued.job_id
    job = accepted.store.job(job_id, transaction=transaction)
    if job is None:
        raise NotFound(f"the job {job_id} was removed in the meantime: enqueue again")
    if not _reaches(who, job):
        if job_id == row.job_id:
            raise DuplicateId(f"id {row.job_id} is taken already: choose another")
        raise KeyTaken(f"unique key {row.unique_key!r} is held by a job that {who.name!r} may not read: nothing was added")
    job.existing = True
    return job


def _reaches(who: Actor, job: Job) -> bool:
    """Say whether an actor's role may read a job, whatever its token was created for: how much of it an answer shows is decided there."""
    return scope_of(msgspec.structs.replace(who, operations=None), Right.READ).holds(job.organization, job.owner)


def _new_job(name: str | None, params: Mapping[str, Any] | None, options: dict[str, Any]) -> NewJob | None:
    """Return a job with its own options, or without a template; None if it has neither."""
    job_type, handler = options.pop("job_type", None), options.get("handler")
    if name is None or handler is not None or job_type is not None:
        return NewJob(name=_type_of(name, handler, job_type), params=params, **options)
    if all(value is None for value in options.values()):
        return None
    return NewJob(name=name, params=params, **options)


def _type_of(name: str | None, handler: str | None, job_type: str | None) -> str:
    """Return the type of a job without a template; "" is the path of its handler."""
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
    """Do work on a thread of its own, and return only when it is over: a cancelled caller continues to use its connection.

    It does not use the shared threads: those may all wait for what this caller's transaction holds.
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
        done.cancelled() or done.exception()  # read, so that asyncio does not report it as unread
        raise


@lru_cache(maxsize=256)
def _backoff(text: str) -> dict[str, float]:
    return msgspec.json.decode(text, type=dict[str, float])


_dashed = lru_cache(maxsize=256)(dashed)
_STATUS = {str(status): status for status in Status}


def job_of(row: NewRow, enqueued: Enqueued, now: Instant) -> Job:
    """Return a job that was just made, without asking the store for it. On the path of every enqueue: no work twice."""
    policy, created_at = row.policy, moment_of(now)
    job_id, status = dashed(enqueued.job_id), _STATUS[enqueued.status]
    return Job(
        id=job_id,
        number=number_text(enqueued.root_id, enqueued.number, 1),
        status=status,
        job_type=row.job_type,
        organization=row.organization_id,
        priority=policy.priority,
        position=enqueued.position,
        attempt=1,
        root_id=job_id,
        created_at=created_at,
        template_id=_dashed(row.template_id) if row.template_id else None,
        origin=row.origin,
        run_at=created_at if row.run_at == now else moment(row.run_at),
        expires_at=None if row.expires_at is None else moment(row.expires_at),
        unique_key=row.unique_key,
        params=decode_params(row.params),
        owner=row.owner,
        max_retries=policy.max_retries,
        max_crashes=policy.max_crashes,
        backoff=dict(_backoff(policy.backoff)),
        timeout=policy.timeout,
        executor=policy.executor,
        queued_at=created_at if status is Status.QUEUED else None,
        meta=None if row.meta is None else decode_params(row.meta),
        queue=row.queue,
        digest=row.digest or None,
        tags=() if row.tags is None else tuple(msgspec.json.decode(row.tags)),
    )
