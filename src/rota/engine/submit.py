"""From what a caller says to a row that the store takes: checked, encoded, resolved, with its id chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import msgspec

from rota.engine.registry import Known, Registry, override, seconds
from rota.errors import InvalidInput, InvalidOption, InvalidParams
from rota.model.params import encode_params
from rota.model.settings import Settings
from rota.model.values import LATEST, LOCAL, SECOND, Actor, Instant, NewRow, Origin, instant, undashed
from rota.ports.clock import Clock, Ids
from rota.ports.store import Store


class NewJob(msgspec.Struct, kw_only=True):
    """One job to enqueue, with its own options. What is None comes from the template."""

    name: str
    params: Mapping[str, Any] | None = None
    priority: str | int | None = None
    run_at: datetime | timedelta | None = None
    unique_key: str | None = None
    max_retries: int | None = None
    timeout: float | None = None
    queue_ttl: float | None = None
    job_id: str | None = None


class Submitter:
    """Builds rows. Reads the store only to know its templates."""

    def __init__(self, registry: Registry, clock: Clock, ids: Ids, settings: Settings) -> None:
        """Take what rows are built from."""
        self._registry = registry
        self._clock = clock
        self._ids = ids
        self._settings = settings

    def one(self, job: NewJob, store: Store, actor: Actor, *, origin: str = Origin.API) -> NewRow:
        """Build the row of one job."""
        now = self._clock.now()
        known = self._registry.resolve(job.name, store, now)
        return self._row(job, known, actor, now, job_id=self._id(job.job_id, now), origin=origin)

    def chunks(self, jobs: Iterable[Any], store: Store, actor: Actor) -> Iterator[tuple[list[NewRow], Instant, InvalidInput | None]]:
        """Build rows chunk by chunk, in bounded memory. A bad item ends the last chunk and comes with it."""
        rest = iter(jobs)
        while items := list(islice(rest, self._settings.bulk_chunk)):
            now = self._clock.now()
            self._registry.sync(store, now)
            rows, error = self._chunk(items, store, actor, now)
            yield rows, now, error
            if error is not None:
                return

    def _chunk(self, items: list[Any], store: Store, actor: Actor, now: Instant) -> tuple[list[NewRow], InvalidInput | None]:
        rows: list[NewRow] = []
        templates: dict[str, Known] = {}
        for item, job_id in zip(items, self._ids.take(len(items), now), strict=True):
            try:
                if type(item) is tuple and len(item) == 2:
                    name, params = item
                    if name not in templates:
                        templates[name] = self._registry.resolve(name, store, now)
                    rows.append(self._plain(templates[name], params, job_id, actor, now))
                else:
                    job = as_new_job(item)
                    known = self._registry.resolve(job.name, store, now)
                    rows.append(self._row(job, known, actor, now, job_id=self._id(job.job_id, now, job_id)))
            except InvalidInput as error:
                return rows, error
            except TypeError as error:
                return rows, InvalidParams(str(error))
        return rows, None

    def plain(self, name: str, params: Mapping[str, Any] | None, store: Store, actor: Actor) -> NewRow:
        """Build the row of one job that has nothing of its own but its params: most jobs, and the shortest way."""
        now = self._clock.now()
        return self._plain(self._registry.resolve(name, store, now), params, self._ids.take(1, now)[0], actor, now)

    def _plain(self, known: Known, params: Mapping[str, Any] | None, job_id: str, actor: Actor, now: Instant) -> NewRow:
        _check(known, params)
        return NewRow(
            job_id=job_id,
            job_type=known.name,
            params=encode_params(params, limit_bytes=self._settings.payload_max),
            policy=known.policy,
            run_at=now,
            template_id=known.template_id,
            organization_id=actor.organization,
            owner=actor.name,
            expires_at=None if known.queue_ttl is None else now + round(known.queue_ttl * SECOND),
        )

    def _row(self, job: NewJob, known: Known, actor: Actor, now: Instant, *, job_id: str, origin: str = Origin.API) -> NewRow:
        _check(known, job.params)
        queue_ttl = known.queue_ttl if job.queue_ttl is None else seconds("queue_ttl", job.queue_ttl)
        run_at = now if job.run_at is None else max(now, when(job.run_at, now))
        return NewRow(
            job_id=job_id,
            job_type=job.name,
            params=encode_params(job.params, limit_bytes=self._settings.payload_max),
            policy=override(known.policy, priority=job.priority, max_retries=job.max_retries, timeout=job.timeout),
            run_at=run_at,
            template_id=known.template_id,
            organization_id=actor.organization,
            origin=origin,
            owner=actor.name,
            unique_key=None if job.unique_key is None else self._key(job.unique_key),
            expires_at=None if queue_ttl is None else run_at + round(queue_ttl * SECOND),
            chosen=job.job_id is not None,
        )

    def _id(self, given: str | None, now: Instant, fresh: str | None = None) -> str:
        if given is None:
            return fresh or self._ids.take(1, now)[0]
        job_id = undashed(given)
        if job_id is None or job_id[12] != "7":
            raise InvalidOption(f"job_id={given!r} is not a UUIDv7")
        return job_id

    def _key(self, key: object) -> str:
        if not isinstance(key, str) or not 1 <= len(key) <= self._settings.key_max:
            raise InvalidOption(f"unique_key {str(key)[:40]!r} is not allowed: give a text of 1 to {self._settings.key_max} characters")
        return key


def when(run_at: datetime | timedelta, now: Instant) -> Instant:
    """Return a moment given as an aware datetime or as a time from now."""
    if isinstance(run_at, timedelta):
        at = now + run_at // timedelta(microseconds=1)
        if not 0 <= at <= LATEST:
            raise InvalidOption(f"run_at={run_at} from now is out of range: give a moment between the years 1970 and 9999")
        return at
    if not isinstance(run_at, datetime):
        raise InvalidOption(f"run_at={run_at!r} is not a moment: give an aware datetime, or a timedelta from now")
    if run_at.tzinfo is None:
        raise InvalidOption(f"run_at={run_at.isoformat()} has no time zone: give an aware datetime, such as datetime.now(UTC)")
    return max(0, instant(run_at))


def as_new_job(item: Any) -> NewJob:
    """Return an item of a bulk call as a NewJob: a name, a (name, params) pair or a NewJob."""
    if isinstance(item, NewJob):
        return item
    if isinstance(item, str):
        return NewJob(name=item)
    if isinstance(item, tuple | list) and len(item) == 2:
        return NewJob(name=item[0], params=item[1])
    raise InvalidParams(f"{item!r:.80} is not a job: give (name, params) or rota.NewJob(...)")


def by(actor: Actor | str | None) -> Actor:
    """Return who asks; a plain name is an actor of the default organization."""
    if actor is None:
        return LOCAL
    return Actor(actor) if isinstance(actor, str) else actor


def _check(known: Known, params: Mapping[str, Any] | None) -> None:
    handler = known.handler
    if handler is None or (params is not None and not isinstance(params, Mapping)):
        return
    names = params.keys() if params else frozenset[str]()
    if handler.required <= names and (handler.allowed is None or names <= handler.allowed):
        return
    handler.check(names)
