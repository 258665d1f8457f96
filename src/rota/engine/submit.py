"""From what a caller says to a row that the store takes: checked, encoded, resolved, with its id chosen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from rota.engine.recorded_params import encode_recorded
from rota.engine.registry import Known, Registry, override
from rota.engine.tracing import carry
from rota.errors import InvalidInput, InvalidOption, InvalidParams, NotFound, PermissionDenied, RotaError, TransactionMisuse
from rota.model.call import NewJob, as_new_job, as_pair
from rota.model.checks import line, text, when
from rota.model.definitions import Organization, Template
from rota.model.dependencies import parent_rule
from rota.model.gate import Actor, Right, refuse_unfit, scope_of
from rota.model.handler import Handler, inspect_handler
from rota.model.kinds import check_type_name
from rota.model.lanes import queue_of
from rota.model.params import decode_params, encode_hook, encode_params
from rota.model.secret_params import SECRET, refuse_mentions
from rota.model.settings import Settings
from rota.model.templates import Spec, in_force, path_of, span_of
from rota.model.values import LATEST, SECOND, Instant, NewRow, Origin, undashed
from rota.ports.clock import Clock, Ids
from rota.ports.store import Store
from rota.ports.tracing import Tracing

if TYPE_CHECKING:
    from hashlib import blake2b

Look: TypeAlias = Callable[[str], "Callable[..., Any] | None"]
"""Finds the function at module:function; None if it can't be known here. Raises InvalidHandler for one that is not allowed or not there."""
META_MAX = 4096
"""Bytes of what is kept with a job beside its params."""
TAGS_MAX, TAG_MAX = 20, 64
"""Labels of one job, and letters of one label."""
HANDLERS_MAX = 1000
"""Handlers of types without a template that are kept in memory."""


class Submitter:
    """Builds rows. Reads the store only to know its templates and organizations."""

    def __init__(  # noqa: PLR0917 - built in one place
        self,
        registry: Registry,
        clock: Clock,
        ids: Ids,
        settings: Settings,
        locate: Callable[[Any, Actor], str],
        tracing: Tracing | None = None,
        look: Look | None = None,
    ) -> None:
        """Take what rows are built from; `locate` turns what an actor calls a job into its id. Without `tracing` nothing is traced.

        `look` finds the function of a job without a template; without it there are none.
        """
        self.registry = registry
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._locate = locate
        self._tracing = tracing
        self._look = look
        self._handlers: dict[str, Handler] = {}
        """Of types without a template."""
        self.sessions_max = settings.bulk_writers
        self.sessions = threading.Semaphore(self.sessions_max)
        """One for each session that writes for a bulk call beside its caller, over all callers of this process."""

    def one(self, job: NewJob, store: Store, actor: Actor, *, origin: str = Origin.API) -> NewRow:
        """Build the row of one job."""
        now = self._clock.now()
        known = self._known(job, store, actor, now)
        organization = self.registry.organization(actor.organization, store, now)
        row = self._row(job, known, organization, actor, now, store=store, job_id=self.id_of(job.job_id, now), origin=origin)
        if self._tracing is not None:
            carry(self._tracing, [row])
        return row

    @property
    def chunk_size(self) -> int:
        """How many items a chunk has, but for the last."""
        return self._settings.bulk_chunk

    def chunks(self, jobs: Iterable[Any]) -> Iterator[Chunk]:
        """Take items chunk by chunk, in bounded memory."""
        rest, first = iter(jobs), 0
        while items := list(islice(rest, self.chunk_size)):
            yield Chunk(items, self._ids.take(len(items), self._clock.now()), first)
            first += len(items)

    def rows(self, chunk: Chunk, store: Store, actor: Actor, now: Instant) -> Rows:
        """Build a chunk's rows, under the ids it was given. A bad item ends them and comes with them."""
        self.registry.sync(store, now)
        # Before anything is read: rows that are of newer definitions than they say are only built once more.
        definitions = self.registry.version
        organization = self.registry.organization(actor.organization, store, now)
        rows: list[NewRow] = []
        built = Rows(rows, definitions, bounded=organization.max_queued is not None)
        templates: dict[str, Known] = {}
        for item, job_id in zip(chunk.items, chunk.ids, strict=True):
            try:
                pair = item if type(item) is tuple else as_pair(item)
                if type(pair) is tuple and len(pair) == 2:
                    name, params = pair
                    if name not in templates:
                        templates[name] = self.registry.resolve(name, store, now)
                    rows.append(self._plain(templates[name], organization, params, job_id, actor, now, store))
                else:
                    job = as_new_job(item)
                    known = self._known(job, store, actor, now)
                    rows.append(
                        self._row(job, known, organization, actor, now, store=store, job_id=self.id_of(job.job_id, now, fresh=job_id))
                    )
            except (InvalidInput, PermissionDenied, NotFound) as error:
                built.error = error
                break
            except TypeError as error:
                built.error = InvalidParams(str(error))
                break
        if self._tracing is not None:
            carry(self._tracing, rows)
        return built

    def plain(self, name: str, params: Mapping[str, Any] | None, store: Store, actor: Actor) -> NewRow:
        """Build the row of one job that has nothing of its own but its params: most jobs, and the shortest way."""
        now = self._clock.now()
        known = self.registry.resolve(name, store, now)
        organization = self.registry.organization(actor.organization, store, now)
        row = self._plain(known, organization, params, self._ids.take(1, now)[0], actor, now, store)
        if self._tracing is not None:
            carry(self._tracing, [row])
        return row

    def _known(self, job: NewJob, store: Store, actor: Actor, now: Instant) -> Known:
        if job.handler is None:
            return self.registry.resolve(job.name, store, now)
        return self._adhoc(job, store, actor, now)

    def _adhoc(self, job: NewJob, store: Store, actor: Actor, now: Instant) -> Known:
        """Return what a job without a template is made from: the settings' defaults. Who may name a function may manage templates."""
        scope_of(actor, Right.MANAGE_TEMPLATES)
        path = path_of("handler", job.handler)
        if ":" not in path or self._look is None:
            raise InvalidOption(f"handler={path!r} is not the place of a function: use module:function")
        job_type = job.name or path
        check_type_name(job_type, "job_type", self._settings.name_max)
        function = self._look(path)
        handler = None if function is None else self._inspected(job_type, function)
        force = in_force(job_type, self._settings, Spec() if handler is None else Spec(executor=handler.executor), Spec())
        known = Known(name=job_type, force=force, handler=handler)
        encoded(known, job.params)
        self.registry.record_adhoc(job_type, path, store, actor, now)
        return known

    def _inspected(self, job_type: str, function: Callable[..., Any]) -> Handler:
        """Return the handler of a job without a template; the last ones are kept, because reading annotations takes its time."""
        handler = self._handlers.get(job_type)
        if handler is None or handler.function is not function:
            if len(self._handlers) >= HANDLERS_MAX:
                self._handlers.clear()
            handler = self._handlers[job_type] = inspect_handler(job_type, function, None)
        return handler

    def refuse_new(self, job: NewJob, store: Store) -> None:
        """Refuse a job whose handler the store does not know yet: that is written by a transaction of its own."""
        if store.adhoc_types().get(job.name or str(job.handler)) != job.handler:
            raise TransactionMisuse(
                f"handler {job.handler!r} is new here: enqueue a job of it outside of a transaction first, or register a template"
            )

    def _plain(  # noqa: PLR0917 - on the path of every job: keywords would cost it half a microsecond
        self,
        known: Known,
        organization: Organization,
        params: Mapping[str, Any] | None,
        job_id: str,
        actor: Actor,
        now: Instant,
        store: Store,
    ) -> NewRow:
        if known.special:
            params = with_defaults(known, params)
        force, handler = known.force, known.handler
        row = NewRow(
            job_id=job_id,
            job_type=known.name,
            # As `encoded` does, without the call.
            params=(
                encode_recorded(known, params, store) if handler is None else handler.codec.encode(params, limit_bytes=force.payload_max)
            ),
            policy=force.policy,
            run_at=now,
            template_id=known.template_id,
            organization_id=actor.organization,
            owner=actor.name,
            expires_at=None if force.queue_ttl is None else now + round(force.queue_ttl * SECOND),
            queue=force.queue,
            digest=known.digest,
            lane=known.lane,
        )
        if known.special or organization.max_priority is not None:
            self._special(row, known, organization, params, actor)
        return row

    def _row(
        self,
        job: NewJob,
        known: Known,
        organization: Organization,
        actor: Actor,
        now: Instant,
        *,
        store: Store,
        job_id: str,
        origin: str = Origin.API,
    ) -> NewRow:
        params = with_defaults(known, job.params) if known.special else job.params
        force = known.force
        queue_ttl = force.queue_ttl if job.queue_ttl is None else span_of("queue_ttl", job.queue_ttl)
        run_at = now if job.run_at is None else max(now, when(job.run_at, now))
        queue = force.queue if job.queue is None else queue_of("queue", job.queue)
        lane = known.lane if queue == force.queue and known.lane else self.registry.lane(known.name, queue, known.digest)
        if not lane and queue != force.queue:
            self.registry.refuse_further_queue(queue)
        row = NewRow(
            job_id=job_id,
            job_type=known.name,
            params=encode_recorded(known, params, store) if known.handler is None else encoded(known, params),
            policy=override(force.policy, priority=job.priority, max_retries=job.max_retries, timeout=job.timeout, backoff=job.backoff),
            run_at=run_at,
            template_id=known.template_id,
            organization_id=actor.organization,
            origin=origin,
            owner=actor.name,
            unique_key=None if job.unique_key is None else self._key(job.unique_key),
            expires_at=None if queue_ttl is None else min(LATEST, run_at + round(queue_ttl * SECOND)),
            depends_on=self.parents(job.depends_on, actor),
            on_parent_failure=parent_rule(job.on_parent_failure),
            meta=encode_params(job.meta, limit_bytes=META_MAX, name="meta") if job.meta else None,
            webhook=None if job.webhook is None else self._target(job.webhook),
            queue=queue,
            digest=known.digest,
            lane=lane,
            tags=None if job.tags is None else tags_of(job.tags),
            chosen=job.job_id is not None,
            put_off=isinstance(job.run_at, timedelta),
        )
        if known.special or organization.max_priority is not None:
            self._special(row, known, organization, params, actor, chosen_priority=job.priority is not None)
        return row

    def _special(
        self,
        row: NewRow,
        known: Known,
        organization: Organization,
        params: Mapping[str, Any] | None,
        actor: Actor,
        *,
        chosen_priority: bool = False,
    ) -> None:
        """Apply what only some templates and organizations have: a permission, a dedup window, limits."""
        force, most = known.force, organization.max_priority
        refuse_unfit(actor, force.requires_permission, known.name)
        if most is not None and row.policy.priority > most:
            if chosen_priority:
                raise InvalidOption(f"priority {row.policy.priority} is over the max_priority {most} of organization {organization.name!r}")
            # What the template gives by itself is lowered, so that the template stays usable.
            row.policy = msgspec.structs.replace(row.policy, priority=most)
        if force.dedup_window and row.origin == Origin.API:
            row.job_hash = job_hash(actor.organization, known.name, params)
            row.dedup_window = round(force.dedup_window * SECOND)
        if known.is_work and known.record is not None:
            row.meta = with_version(row.meta, known.record.version)
            if SECRET in row.params:
                refuse_mentions(decode_params(row.params), force.default_params)
            self._refuse_misnamed(known.record, params or (), actor.organization)
        if force.submit_limit is not None:
            row.submit_limit, row.submit_window = force.submit_limit.count, force.submit_limit.window

    def _refuse_misnamed(self, template: Template, params: Collection[str], organization: str) -> None:
        """Refuse params that the SQL or the command of a template does not use, and a name in its text that has no value."""
        from rota.model.sql_names import connection_key, refuse_misnamed, usual_params  # noqa: PLC0415 - few programs have such templates

        connection = self.registry.connections.get(connection_key(template, organization))
        refuse_misnamed(template.name, template, params, connection, usual=usual_params(template.defaults, template.overrides))

    def parents(self, given: Sequence[Any] | Any | None, actor: Actor) -> tuple[str, ...]:
        """Return the ids of jobs that another is to wait for, given as one or as several."""
        if not given:
            return ()
        parents = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        if len(parents) > self._settings.parents_max:
            raise InvalidOption(f"{len(parents):,} parents are over the limit of {self._settings.parents_max:,} (setting parents_max)")
        return tuple(dict.fromkeys(self._locate(parent, actor) for parent in parents))

    def id_of(self, given: str | None, now: Instant, option: str = "job_id", *, fresh: str | None = None) -> str:
        """Return the id that a caller chose, or a new one."""
        if given is None:
            return fresh or self._ids.take(1, now)[0]
        found = undashed(given)
        if found is None or found[12] != "7":
            raise InvalidOption(f"{option}={given!r} is not a UUIDv7")
        return found

    def _target(self, url: object) -> str:
        from rota.model.targets import target_of  # noqa: PLC0415 - only jobs with a webhook of their own need it

        return target_of(url, self._settings)

    def _key(self, key: object) -> str:
        if not isinstance(key, str) or not 1 <= len(key) <= self._settings.key_max:
            raise InvalidOption(f"unique_key {str(key)[:40]!r} is not allowed: give a text of 1 to {self._settings.key_max} characters")
        return text("unique_key", key, self._settings.key_max)


class Chunk(msgspec.Struct):
    """Items of a bulk call that go into one commit, and the ids they will have however often their rows are built."""

    items: list[Any]
    ids: list[str]
    first: int
    """Which item of the call its first is."""


class Rows(msgspec.Struct):
    """What a chunk was built into, and what was wrong with the first item that is not among them."""

    rows: list[NewRow]
    definitions: int
    """The version that they were built from."""
    bounded: bool
    """Their organization has a `max_queued`: the store counts what waits, chunk by chunk."""
    error: RotaError | None = None


def tags_of(given: Sequence[str]) -> str:
    """Return labels as JSON text, each once and in their order, or refuse them."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidOption(f"tags={given!r:.60} is not a list of labels: use a list, such as ['import', 'eu']")
    labels = list(dict.fromkeys(line("tags", label, TAG_MAX) for label in given))
    if len(labels) > TAGS_MAX:
        raise InvalidOption(f"tags has {len(labels):,} labels, and a job has at most {TAGS_MAX}")
    return msgspec.json.encode(labels).decode()


def with_version(meta: str | None, version: int) -> str:
    """Return what a job carries with the version of its definition, which a later one does not change."""
    said: dict[str, Any] = {} if meta is None else msgspec.json.decode(meta)
    return msgspec.json.encode(said | {"template_version": version}).decode()


def job_hash(organization: str, template: str, params: Mapping[str, Any] | None) -> str:
    """Return the hash by which duplicates are known: the same whatever the order of keys, another for another tenant or template."""
    # Keys as JSON has them, texts, before they are sorted: 1 and "1" are the same key there.
    plain = msgspec.to_builtins([organization, template, params or {}], str_keys=True, order="sorted", enc_hook=encode_hook)
    return _blake2b()(msgspec.json.encode(plain), digest_size=16).hexdigest()


@cache
def _blake2b() -> type[blake2b]:
    from hashlib import blake2b  # noqa: PLC0415 - it loads OpenSSL, and few templates have a window for duplicates

    return blake2b


def with_defaults(known: Known, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a job's params over those that its template has for all of its jobs."""
    own = known.force.default_params
    if own is None or (params is not None and not isinstance(params, Mapping)):
        return params
    return {**own, **params} if params else own


def encoded(known: Known, params: Mapping[str, Any] | None) -> str:
    """Return params as JSON text, refused if the handler could not be called with them, where it is known here."""
    handler, most = known.handler, known.force.payload_max
    return encode_params(params, limit_bytes=most) if handler is None else handler.codec.encode(params, limit_bytes=most)
