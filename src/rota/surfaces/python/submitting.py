"""Registering handlers and enqueueing jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from rota.engine.registry import Options
from rota.engine.submit import NewJob, by
from rota.errors import NotFound, TransactionMisuse
from rota.executors import check_handler
from rota.model.backoff import Backoff
from rota.model.values import Actor, Enqueued, Instant, Job, NewRow
from rota.ports.store import DefinitionsChanged, Store
from rota.surfaces.python.base import Base
from rota.surfaces.python.results import Bulk, ids_of, job_of

Function = TypeVar("Function", bound=Callable[..., Any])


NOTHING = (None,) * 7


class Submitting(Base):
    """The part of Rota that takes jobs in."""

    def job(
        self,
        function: Function | None = None,
        *,
        name: str | None = None,
        executor: str | None = None,
        priority: str | int | None = None,
        max_retries: int | None = None,
        max_crashes: int | None = None,
        backoff: Backoff | None = None,
        timeout: float | None = None,
        queue_ttl: float | None = None,
    ) -> Any:
        """Register a handler: `@rota.job` or `@rota.job(max_retries=3)`. The function itself stays as it is."""
        options = Options(
            priority=priority, max_retries=max_retries, max_crashes=max_crashes, backoff=backoff, timeout=timeout, queue_ttl=queue_ttl
        )

        def register(target: Function) -> Function:
            self._registry.add(
                name or str(getattr(target, "__name__", "")), target, executor=executor, options=options, check=check_handler
            )
            return target

        return register if function is None else register(function)

    def enqueue(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        priority: str | int | None = None,
        run_at: datetime | timedelta | None = None,
        unique_key: str | None = None,
        max_retries: int | None = None,
        timeout: float | None = None,
        queue_ttl: float | None = None,
        job_id: str | None = None,
        actor: Actor | str | None = None,
        transaction: Any = None,
    ) -> Job:
        """Accept one job; when this returns it is on disk (or, with `transaction`, will be when that commits)."""
        store, who = self._open().store, by(actor)
        given = (priority, run_at, unique_key, max_retries, timeout, queue_ttl, job_id)
        if given == NOTHING:
            build = partial(self._submit.plain, name, params, store, who)
        else:
            new = NewJob(
                name=name,
                params=params,
                priority=priority,
                run_at=run_at,
                unique_key=unique_key,
                max_retries=max_retries,
                timeout=timeout,
                queue_ttl=queue_ttl,
                job_id=job_id,
            )
            build = partial(self._submit.one, new, store, who)
        row, now, enqueued = self._enqueue(build, store, transaction)
        if transaction is None:
            self._poke()
        return self._holder(enqueued.job_id, transaction) if enqueued.existing else job_of(row, enqueued, now)

    def _enqueue(self, build: Callable[[], NewRow], store: Store, transaction: Any) -> tuple[NewRow, Instant, Enqueued]:
        """Write one row; if the definitions it was built from have changed meanwhile, build it anew."""
        while True:
            row = build()
            now = self._clock.now()
            try:
                return row, now, store.enqueue([row], now=now, definitions=self._registry.version, transaction=transaction)[0]
            except DefinitionsChanged:
                self._registry.sync(store, now)

    async def aenqueue(self, name: str, params: Mapping[str, Any] | None = None, **options: Any) -> Job:
        """Accept one job without blocking the event loop."""
        import asyncio  # noqa: PLC0415 - its import takes 40 ms, which only async programs need

        if options.get("transaction") is None and self._open().store.transacting():
            raise TransactionMisuse("this thread is inside `with rota.transaction() as tx`: pass transaction=tx, or await after the block")
        return await asyncio.to_thread(self.enqueue, name, params, **options)

    def enqueue_many(self, jobs: Iterable[Any], *, actor: Actor | str | None = None, transaction: Any = None) -> Bulk:
        """Accept many jobs: (name, params) pairs or NewJob, any number, in bounded memory, a chunk to a commit.

        If an item is bad, those before it are accepted and the error says how many; with `transaction`, none is.
        """
        store = self._open().store
        with nullcontext() if transaction is None else transaction.savepoint():
            return self._enqueue_chunks(jobs, store, by(actor), transaction)

    def _enqueue_chunks(self, jobs: Iterable[Any], store: Store, actor: Actor, transaction: Any) -> Bulk:
        accepted = existing = 0
        ids: list[str] | None = [] if isinstance(jobs, Sized) else None
        for rows, now, error in self._submit.chunks(jobs, store, actor):
            if rows:
                enqueued = store.enqueue(rows, now=now, transaction=transaction)
                known = sum(each.existing for each in enqueued)
                existing += known
                accepted += len(enqueued) - known
                if ids is not None:
                    ids += ids_of(enqueued)
                if transaction is None:
                    self._poke()
            if error is not None:
                kept = f"the {accepted:,} jobs before it were accepted" if transaction is None else "none was enqueued"
                raise type(error)(f"item {accepted + existing}: {error} ({kept})") from error
        return Bulk(accepted, existing, tuple(ids or ()))

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Open a transaction on the store's file for the caller's own writes and enqueues: all happen, or none."""
        store = self._open().store
        self._registry.sync(store, self._clock.now())
        with store.transaction() as transaction:
            yield transaction
        self._poke()

    def _holder(self, job_id: str, transaction: Any) -> Job:
        job = self._open().store.job(job_id, transaction=transaction)
        if job is None:
            raise NotFound(f"the job {job_id} was removed meanwhile: enqueue again")
        job.existing = True
        return job
