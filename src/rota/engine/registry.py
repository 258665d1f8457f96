"""What jobs can be made of here: templates of this process's code and of the store, its organizations and its users."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rota.errors import InvalidHandler, InvalidOption, OrganizationUnavailable, TemplateUnavailable, UnknownOrganization, UnknownTemplate
from rota.model.checks import check_name, guess, whole
from rota.model.connections import Connection
from rota.model.definitions import Organization, OrganizationState, Template, TemplateState, User
from rota.model.gate import SYSTEM, Actor, refuse_unfit
from rota.model.grants import Grant, Holdings, holdings_of
from rota.model.handler import Handler, Place, Wrapper, function_of, inspect_handler
from rota.model.kinds import RUNNER, check_type_name, is_kind
from rota.model.lanes import JobLane, ParamNames, Takes
from rota.model.ordering import priority_of
from rota.model.schedule_options import schedule_said
from rota.model.schedules import JobKind
from rota.model.schema_check import SchemaCheck
from rota.model.settings import Settings
from rota.model.signals import PermanentError, Rules
from rota.model.stored_settings import InForceSettings, Stored, Word, own_words
from rota.model.templates import (
    TEXT_MAX,
    InForce,
    Spec,
    as_object,
    backoff_of,
    besides_handler,
    check_defaults,
    from_object,
    in_force,
    span_of,
    spec_of,
)
from rota.model.values import Instant, Policy, undashed
from rota.ports.clock import Ids
from rota.ports.store import Store

log = logging.getLogger("rota.templates")

Find: TypeAlias = Callable[[str], "Callable[..., Any] | None"]
"""Imports the function that a template names; None if it is not to be imported here. Raises InvalidHandler if it can't be."""
Check: TypeAlias = Callable[[Handler], None]
"""Refuses a handler that its executor could never call."""

Kinds: TypeAlias = Callable[["Registry"], dict[str, Handler]]
"""Returns the handlers of kinds that are not Python, by job type, for what a registry knows."""

Words: TypeAlias = Callable[[], dict[str, Word]]
"""Says whose word each setting of a process is."""

SHOWN = 10
"""Templates that the refusal of an unknown one lists."""
HOLDERS_MAX = 10_000
"""Actors whose privileges are remembered, at most: programs may vouch for any number of them."""


class Known(msgspec.Struct, kw_only=True):
    """One template as this process knows it. What is in force is worked out once, not for each job."""

    name: str
    force: InForce
    code: Spec = Spec()
    people: Spec = Spec()
    template_id: str | None = None
    state: str = TemplateState.ENABLED
    handler: Handler | None = None
    record: Template | None = None
    """As the store has it; None until it was recorded there."""
    broken: str | None = None
    """What can't be read of the record: no job of it is made or started until that is set anew."""
    digest: str = ""
    """Of the handler's parameters, where the store knows it; empty: jobs are enqueued without one."""
    lane: int = 0
    """Where its jobs wait that say nothing of their queue; 0: the store has no such lane yet."""
    recorded: SchemaCheck | UnsetType | None = UNSET
    """Checks params by the newest schema that a worker recorded, where there is no handler here; UNSET until the first job needs it."""
    special: bool = False
    """It asks for more than most: default params, a permission, a dedup window or a limit on submissions."""

    def __post_init__(self) -> None:
        """Work out what every job of it would ask again."""
        force = self.force
        self.special = bool(
            force.requires_permission is not None or force.dedup_window or force.submit_limit or force.default_params is not None
        )
        self.special = self.special or self.is_work

    @property
    def is_work(self) -> bool:
        """It is SQL or a command, whose jobs carry the version that they were enqueued with."""
        return self.record is not None and self.record.kind is not JobKind.PYTHON


class Named(msgspec.Struct, frozen=True):
    """A handler as a record names it."""

    path: str
    executor: str | None


class Registry:
    """Templates, organizations and users by name. See `rota.model.templates` for who wins where code and record differ."""

    def __init__(self, settings: Settings, ids: Ids, words: Words | None = None) -> None:
        """Start empty; `words` says whose word each of the settings is."""
        self._settings = self.settings = settings
        self._words = words or partial(own_words, settings, {})
        self.stored: list[Stored] = []
        """Settings that the store keeps, as of `version`."""
        self._ids = ids
        self.handlers: dict[str, Handler] = {}
        self._serves_kinds: Kinds | None = None
        self._kinds: dict[str, Handler] = {}
        """Handlers of kinds that are not Python, by job type: see `serve_kinds`."""
        self._known: dict[str, Known] = {}
        self.organizations: dict[str, Organization] = {}
        self.users: dict[str, User] = {}
        self.connections: dict[tuple[str, str], Connection] = {}
        """By organization and name, as of `version`."""
        self.lanes: dict[tuple[str, str, str], JobLane] = {}
        self._queues: set[str] | None = None
        """By job type, queue and digest, as of `version`."""
        self._lock = threading.Lock()
        self._unsynced = True
        self._find: Find | None = None
        self._check: Check | None = None
        self._imported: dict[str, Named] = {}
        """Templates whose handler was not registered here but imported, and as what it was named."""
        self._refused: dict[str, int] = {}
        """Templates whose handler could not be imported, in which version. Told once."""
        self.scheduled: dict[str, Mapping[str, Any]] = {}
        """What the code says of the schedules of its templates. Whoever holds the store brings it there: see `undeclared`."""
        self.undeclared: frozenset[str] = frozenset()
        """Those of them that were not brought to the store yet."""
        self.version = -1
        """Of the store's definitions, as last read."""
        self._grants: tuple[int, list[Grant], dict[tuple[str, str], Holdings]] = (-1, [], {})
        """Those of a version, and by name and organization what was asked for of them."""
        self._adhoc: tuple[int, dict[str, str]] = (-1, {})
        """Types without a template that are known to be in the store as of a version, with their handlers."""

    def add(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        executor: str | None,
        options: Mapping[str, object],
        check: Callable[[Handler], None] | None = None,
        schedule: Mapping[str, Any] | None = None,
        rules: Rules | None = None,
    ) -> None:
        """Register a handler, or refuse it saying which parameter or option can't be."""
        check_type_name(name, "template", self._settings.name_max)
        handler = inspect_handler(name, function, executor, rules)
        present = self.handlers.get(name)
        if present is not None and name not in self._imported and not _same_function(present.function, function):
            raise InvalidHandler(
                f"{name!r} is registered already, for {_where(present.function)}: give {_where(function)} another name with name=…"
            )
        if check is not None:
            check(handler)
        code = replace(spec_of(_described(options, function)), executor=handler.executor, handler=_where(function)[:TEXT_MAX])
        check_defaults(in_force(name, self._settings, code, Spec()), handler)
        said = schedule_said(name, schedule or {}, _where(function))
        with self._lock:
            self._imported.pop(name, None)
            known = self._known.get(name)
            people = known.people if known is not None else Spec()
            force = in_force(name, self._settings, code, besides_handler(people))
            self._known[name] = Known(name=name, code=code, people=people, force=force, handler=handler)
            self.handlers[name] = handler
            self._unsynced = True
            self.scheduled.pop(name, None)
            self.undeclared -= {name}
            if said is not None:
                self.scheduled[name] = said
                self.undeclared |= {name}

    def remove(self, names: Iterable[str]) -> None:
        """Take handlers back that were registered a moment ago and that no store knows yet."""
        with self._lock:
            for name in list(names):
                self.handlers.pop(name, None)
                self._known.pop(name, None)
                self.scheduled.pop(name, None)
                self.undeclared -= {name}

    def serve(self, find: Find, check: Check, store: Store, now: Instant) -> None:
        """Be a worker's: import the handlers that templates name and that are not here. See `import_named`."""
        self._find, self._check = find, check
        self.sync(store, now)
        self.import_named(store, now)

    def copy(self) -> Registry:
        """Return the same templates under a lock of its own."""
        other = Registry(self._settings, self._ids, self._words)
        other.settings, other.stored = self.settings, self.stored
        # Its own: each has handlers for the kinds and connections that it has read of.
        other.handlers = dict(self.handlers)
        other._known = dict(self._known)
        other._find, other._check = self._find, self._check
        other._imported, other._refused = dict(self._imported), dict(self._refused)
        # It shares the handlers, and serves no kinds: what it sees may never be committed.
        other._kinds = dict(self._kinds)
        other.organizations, other.users = dict(self.organizations), dict(self.users)
        other.connections = dict(self.connections)
        other.lanes = dict(self.lanes)
        other.scheduled, other.undeclared = dict(self.scheduled), self.undeclared
        other._unsynced = True
        return other

    def find(self, name: str) -> Known | None:
        """Return a template as it was last read. Each kind that is not Python has one of its own, which nobody has to define."""
        known = self._known.get(name)
        return self._of_kind(name) if known is None and is_kind(name) else known

    def _of_kind(self, job_type: str) -> Known:
        force = in_force(job_type, self.settings, Spec(executor=RUNNER), Spec())
        return Known(name=job_type, force=force, template_id="", handler=self._kinds.get(job_type))

    def serve_kinds(self, kinds: Kinds) -> None:
        """Be a worker's: run the work of these kinds, of all connections there are now and later."""
        self._serves_kinds = kinds
        with self._lock:
            self._take_kinds()

    def _take_kinds(self) -> None:
        """Have a handler for each type of a kind that this process serves."""
        if self._serves_kinds is None:
            return
        present = self._serves_kinds(self)
        for gone in self._kinds.keys() - present.keys():
            self.handlers.pop(gone, None)
        self._kinds = present
        self.handlers.update(present)

    def refuse_unfit(self, who: Actor, template: str) -> None:
        """Refuse who lacks the permission that a template requires. A job has the rights of its owner: nobody borrows them by an edit."""
        known = self.find(template)
        refuse_unfit(who, None if known is None else known.force.requires_permission, template)

    def name_of(self, given: str) -> str:
        """Return the name of the template that is meant, by its name or else by its id; what is neither as it is."""
        wanted = None if given in self._known else undashed(given)
        return given if wanted is None else next((known.name for known in self.known() if known.template_id == wanted), given)

    def known(self) -> list[Known]:
        """Return every template as it was last read."""
        return list(self._known.values())

    def resolve(self, name: str, store: Store, now: Instant) -> Known:
        """Return the template a new job is made from. What others changed meanwhile shows when the job is written.

        The type of a kind is none: it is of jobs that have a definition, and enqueued by itself it would do nothing.
        """
        known = self._known.get(name) if not self._unsynced else None
        if known is None or known.template_id is None or known.state != "ENABLED" or known.broken is not None:
            self.sync(store, now)
            known = self._known.get(self.name_of(name))
        if known is None or known.template_id is None:
            check_name(name, "template", self._settings.name_max)
            raise self._unknown(name)
        if known.broken is not None:
            raise TemplateUnavailable(f"template {name!r} takes no new jobs: {known.broken}; `rota doctor` says what to do")
        if known.state != "ENABLED":
            raise TemplateUnavailable(
                f"template {name!r} is {known.state.lower()} and takes no new jobs: `rota template enable {name}` changes that"
            )
        return known

    def _unknown(self, name: str) -> UnknownTemplate:
        names = sorted(each.name for each in self.known() if each.state != TemplateState.ARCHIVED)
        listed = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")
        return UnknownTemplate(
            f"no template {name!r}{guess(name, names)}; known here: {listed or 'none'}. "
            "Register it with @rota.job, or start a worker that has it"
        )

    def record_adhoc(self, job_type: str, path: str, store: Store, actor: Actor, now: Instant) -> None:
        """Have the store know the handler of a type without a template, so that workers that may import it learn of it."""
        if self._unsynced:
            self.sync(store, now)
        version, types = self._adhoc
        if version == self.version and types.get(job_type) == path and job_type not in self._known:
            return
        store.put_adhoc_type(job_type, path, actor=actor, now=now)
        self.sync(store, now)
        self._adhoc = (self.version, {**(types if version == self.version else {}), job_type: path})

    def organization(self, name: str, store: Store, now: Instant) -> Organization:
        """Return an organization that takes new jobs, or refuse it."""
        found = self.organizations.get(name)
        if found is None or found.state is not OrganizationState.ACTIVE:
            self.sync(store, now)
            found = self.organizations.get(name)
        if found is None:
            raise UnknownOrganization(f"there is no organization {name!r} in this store: make it with `rota organization create`")
        if found.state is not OrganizationState.ACTIVE:
            raise OrganizationUnavailable(f"organization {name!r} is {found.state.lower()} and takes no new jobs")
        return found

    def holdings(self, who: Actor, store: Store) -> Holdings:
        """Return the privileges that an actor holds as of `version`. Grants are read when somebody asks for them, not by every sync."""
        version, grants, known = self._grants
        if version != self.version:
            grants, known = store.grants(), {}
            self._grants = (self.version, grants, known)
        key = (who.name, who.organization)
        held = known.get(key)
        if held is None:
            if len(known) >= HOLDERS_MAX:
                known.clear()
            held = known[key] = holdings_of(*key, grants)
        return held

    def sync(self, store: Store, now: Instant) -> None:
        """Bring code and record together when either has changed."""
        with self._lock:
            registered = [self._known.get(name) for name in tuple(self.handlers) if name not in self._imported]
            own = [known for known in registered if known is not None and not known.is_work]
            if self._unsynced and own:
                store.put_templates([self._record(known, now) for known in own], actor=SYSTEM, now=now)
            version = store.definitions()
            if version == self.version and not self._unsynced:
                return
            self._unsynced = False
            self.lanes = {(lane.job_type, lane.queue, lane.digest): lane for lane in store.lanes()}
            self._queues = None
            self._take_all(store.templates())
            self.organizations = {each.name: each for each in store.organizations()}
            self.users = {each.name: each for each in store.users()}
            self.connections = {each.key: each for each in store.connections()}
            self.stored = store.stored_settings()
            self.settings = self.in_force().settings if self.stored else self._settings
            self.version = version
            self._take_kinds()

    def in_force(self) -> InForceSettings:
        """Return the settings that hold here, and whose word each is."""
        return InForceSettings.of(self._settings, self._words(), self.stored)

    def _record(self, known: Known, now: Instant) -> Template:
        template_id = known.template_id or self._ids.take(1, now)[0]
        takes = None if known.handler is None else takes_of(known)
        return Template(id=template_id, name=known.name, job_type=known.name, defaults=as_object(known.code), takes=takes)

    def state_schemas(self, names: Iterable[str], store: Store, now: Instant) -> None:
        """Have the store know the JSON Schema of what these handlers take."""
        with self._lock:
            own = [self._known[name] for name in names if name in self._known]
        store.put_params({known.name: takes_of(known, schema=True) for known in own if known.handler is not None}, now=now)

    def _take_all(self, templates: list[Template]) -> None:
        there = {template.name for template in templates}
        for name in [name for name in self._known if name not in there]:
            if name in self.handlers and name not in self._imported and name not in self._kinds:
                # Dropped from the store while its code is here: the next job of it records it anew.
                self._known[name].template_id, self._unsynced = None, True
            else:
                del self._known[name]
                if self._imported.pop(name, None) is not None:
                    del self.handlers[name]
        for template in templates:
            self._take(template)

    def _take(self, template: Template) -> None:
        name = template.name
        if template.kind is not JobKind.PYTHON:
            self._yield_to(name)
        handler = self.handlers.get(name) if template.kind is JobKind.PYTHON else None
        recorded, people = from_object(template.defaults), from_object(template.overrides)
        if handler is None:
            code, force = recorded, in_force(name, self._settings, recorded, people)
        elif name in self._imported:
            code = replace(recorded, executor=handler.executor)
            force = in_force(name, self._settings, code, replace(people, executor=UNSET))
        else:
            code = self._known[name].code
            force = in_force(name, self._settings, code, besides_handler(people))
        digest = "" if handler is None or name in self._imported else handler.codec.digest
        self._known[name] = Known(
            name=name,
            code=code,
            people=people,
            force=force,
            template_id=template.id,
            state=template.state,
            handler=handler,
            record=template,
            broken=template.broken,
            digest=digest,
            lane=self.lane(name, force.queue, digest),
        )

    def _yield_to(self, name: str) -> None:
        """Have no function under the name of a template that is SQL or a command: a runner does its jobs."""
        handler = self.handlers.get(name)
        if handler is not None and handler.executor != RUNNER:
            del self.handlers[name]
            self._imported.pop(name, None)
            log.error("template %s is not Python any more: the function of this process that has its name is not called", name)

    def param_names(self) -> dict[tuple[str, str], ParamNames]:
        """Return the parameters behind each job type and digest."""
        return {(lane.job_type, lane.digest): lane.names for lane in self.lanes.values() if lane.names is not None}

    def lane(self, job_type: str, queue: str, digest: str = "") -> int:
        """Return the lane of these; 0 if the store had none when it was last read."""
        found = self.lanes.get((job_type, queue, digest))
        return 0 if found is None else found.id

    def refuse_further_queue(self, queue: str) -> None:
        """Refuse a queue that is new, once there are `queues_max`: each is a row that stays. Those that were let in lately count, too."""
        queues, most = self._queues, self._settings.queues_max
        if queues is None:
            queues = self._queues = {lane.queue for lane in self.lanes.values()}
        if queue not in queues and len(queues) >= most:
            # Some of them may have been let in for a call that is now refused.
            self._queues = None
            raise InvalidOption(
                f"queue={queue!r} is new, and this store has {len(queues):,} queues already: "
                f"use one of them (`rota queue list`), or raise the setting queues_max={most}"
            )
        queues.add(queue)

    # ---- handlers that templates name -------------------------------------------------------------------------

    def import_named(self, store: Store, now: Instant) -> None:
        """Import what is named and not here, where `serve` has said how. Workers do this whenever they read the definitions anew.

        Without the lock: a module may register handlers while it is imported. Not in `sync`: a caller who enqueues need not wait for it.
        """
        if self._find is None:
            return
        told = [record for known in self.known() if (record := self._import_one(known, self._find)) is not None]
        if told:
            # Where a handler runs is the code's word: those who enqueue without having it learn it from the record.
            store.put_templates(told, actor=SYSTEM, now=now)
        for job_type, path in store.adhoc_types().items():
            if job_type not in self._known:
                self._import_adhoc(job_type, Named(path, None), self._find)

    def _import_adhoc(self, job_type: str, wanted: Named, find: Find) -> None:
        """Import the handler of jobs without a template. If it is allowed here and can't be had, its jobs are to fail for good."""
        if job_type in self.handlers and self._imported.get(job_type) in {None, wanted}:
            return
        try:
            handler = self._find_one(job_type, wanted, find)
        except InvalidHandler as error:
            log.error("jobs of type %s have no template and end as dead letters: %s", job_type, error)  # noqa: TRY400 - the message says it all
            handler = inspect_handler(job_type, _refusing(str(error)), None)
        if handler is None:
            return
        with self._lock:
            if job_type not in self._known:
                self.handlers[job_type], self._imported[job_type] = handler, wanted

    def _import_one(self, known: Known, find: Find) -> Template | None:
        """Import the handler of one template, if that is wanted; return what its record lacks then."""
        name, record, wanted = known.name, known.record, _named(known)
        there = self._imported.get(name)
        if record is None or wanted in {None, there} or (there is None and name in self.handlers):
            return None
        if self._refused.get(name) == record.version:
            return None
        try:
            handler = self._find_one(name, wanted, find)
        except InvalidHandler as error:
            self._refused[name] = record.version
            self._forget(name)
            log.error(  # noqa: TRY400 - the message says it all; our own traceback would say nothing
                "the handler of template %s cannot be imported, so its jobs wait: %s. Fix that and restart this worker, "
                "or use another handler: `rota template update %s --handler MODULE:FUNCTION`",
                name,
                error,
                name,
            )
            return None
        if handler is None:
            self._forget(name)
            return None
        return self._keep(name, handler, wanted)

    def _find_one(self, name: str, wanted: Named, find: Find) -> Handler | None:
        target: Any = find(wanted.path)
        if target is None:
            log.debug("%s names %s, which is not under handler_modules; another worker may have it", name, wanted.path)
            return None
        rules = target.handler.rules if isinstance(target, Wrapper) else None
        handler = inspect_handler(name, function_of(target), wanted.executor, rules)
        handler.codec.build()
        if self._check is not None:
            self._check(handler)
        return handler

    def _keep(self, name: str, handler: Handler, wanted: Named) -> Template | None:
        with self._lock:
            known = self._known.get(name)
            if known is None or known.record is None or (name in self.handlers and name not in self._imported):
                return None  # it was dropped meanwhile, or importing the module has registered it
            self.handlers[name], self._imported[name] = handler, wanted
            self._take(known.record)
        log.info("template %s runs %s on this worker, as set in its record", name, wanted.path)
        defaults = known.record.defaults | {"executor": handler.executor}
        return None if wanted.executor or defaults == known.record.defaults else replace(known.record, defaults=defaults)

    def _forget(self, name: str) -> None:
        """Run nothing under a name any more whose function can't be had."""
        with self._lock:
            known = self._known.get(name)
            if self._imported.pop(name, None) is not None:
                del self.handlers[name]
                if known is not None and known.record is not None:
                    self._take(known.record)


def takes_of(known: Known, *, schema: bool = False) -> Takes:
    """Return what a template's handler takes, with its JSON Schema if that is asked for and its annotations can be resolved."""
    handler, text = known.handler, None
    assert handler is not None  # noqa: S101 - the caller looked
    if schema:
        with suppress(InvalidHandler):
            # In the order of the signature: forms show parameters in it.
            text = msgspec.json.encode(handler.codec.schema).decode()
    return Takes(handler.codec.digest, handler.codec.names, known.force.queue, text)


def _named(known: Known) -> Named | None:
    """Return what the record names: where the function is, and where it is to run unless the function itself decides."""
    if known.force.handler is None or known.record is None:
        return None
    recorded, said = known.record.defaults.get("executor"), known.people.executor
    if said is UNSET and recorded in {Place.PROCESS, Place.INLINE}:
        said = str(recorded)
    return Named(known.force.handler, None if said is UNSET else said)


def _refusing(why: str) -> Callable[..., Any]:
    """Return a handler in the place of one that can't be imported."""

    def refuse(**_params: object) -> None:
        raise PermanentError(why)

    return refuse


def override(
    policy: Policy,
    *,
    priority: str | int | None,
    max_retries: int | None = None,
    timeout: float | str | timedelta | None = None,
    backoff: object = None,
) -> Policy:
    """Return a policy with one job's own choices on top."""
    if priority is None and max_retries is None and timeout is None and backoff is None:
        return policy
    return replace(
        policy,
        priority=policy.priority if priority is None else priority_of(priority),
        max_retries=policy.max_retries if max_retries is None else whole("max_retries", max_retries, least=0),
        timeout=policy.timeout if timeout is None else span_of("timeout", timeout),
        backoff=policy.backoff if backoff is None else msgspec.json.encode(backoff_of("backoff", backoff)).decode(),
    )


def _described(options: Mapping[str, object], function: Callable[..., Any]) -> Mapping[str, object]:
    """Return the options with the first line of the function's docstring as the description, unless they have one."""
    if "description" in options or not inspect.isroutine(function):
        return options
    first = (inspect.getdoc(function) or "").strip().partition("\n")[0].strip()
    return {**options, "description": first[:TEXT_MAX]} if first else options


def _same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    return one is other or (_where(one) == _where(other) and "<locals>" not in _where(one))


def _where(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', repr(function))}"
