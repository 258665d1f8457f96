"""Which templates there are: those of this process's code, and those the store knows from others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from rota.errors import InvalidHandler, InvalidName, InvalidOption, TemplateUnavailable, UnknownTemplate
from rota.model.backoff import Backoff
from rota.model.handler import Handler, inspect_handler
from rota.model.ordering import priority_of
from rota.model.settings import Settings
from rota.model.values import SYSTEM, Instant, Policy, Template
from rota.ports.clock import Ids
from rota.ports.store import Store

CENTURY_S = 36_525 * 86_400


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """What a template says of its jobs. None: the setting's default."""

    priority: str | int | None = None
    max_retries: int | None = None
    max_crashes: int | None = None
    backoff: Backoff | None = None
    timeout: float | None = None
    queue_ttl: float | None = None


class Known(msgspec.Struct, kw_only=True):
    """One template as this process knows it."""

    name: str
    policy: Policy
    queue_ttl: float | None
    template_id: str | None = None
    state: str = "ENABLED"
    handler: Handler | None = None


class Registry:
    """Templates by name. Code wins over the store's record for handlers and defaults; the state is the store's word."""

    def __init__(self, settings: Settings, ids: Ids) -> None:
        """Start empty."""
        self._settings = settings
        self._ids = ids
        self.handlers: dict[str, Handler] = {}
        self._known: dict[str, Known] = {}
        self._lock = threading.Lock()
        self._unsynced = True
        self.version = -1
        """Of the store's definitions, as last read."""

    def add(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        executor: str | None,
        options: Options,
        check: Callable[[Handler], None] | None = None,
    ) -> None:
        """Register a handler, or refuse it saying which parameter or option can't be."""
        check_name(name, "template", self._settings.name_max)
        handler = inspect_handler(name, function, executor)
        present = self.handlers.get(name)
        if present is not None and not _same_function(present.function, function):
            raise InvalidHandler(
                f"{name!r} is registered already, for {_where(present.function)}: give {_where(function)} another name with name=…"
            )
        if check is not None:
            check(handler)
        with self._lock:
            self._known[name] = Known(
                name=name,
                policy=policy_of(options, handler.executor, self._settings),
                queue_ttl=None if options.queue_ttl is None else seconds("queue_ttl", options.queue_ttl),
                handler=handler,
            )
            self.handlers[name] = handler
            self._unsynced = True

    def copy(self) -> Registry:
        """Return the same templates under a lock of its own."""
        other = Registry(self._settings, self._ids)
        other.handlers = self.handlers
        other._known = dict(self._known)
        other._unsynced = True
        return other

    def resolve(self, name: str, store: Store, now: Instant) -> Known:
        """Return the template a new job is made from. What others changed meanwhile shows when the job is written."""
        known = self._known.get(name) if not self._unsynced else None
        if known is None or known.template_id is None or known.state != "ENABLED":
            self.sync(store, now)
            known = self._known.get(name)
        if known is None:
            check_name(name, "template", self._settings.name_max)
            names = ", ".join(sorted(self._known)[:10]) or "none"
            raise UnknownTemplate(f"no template {name!r}; known here: {names}. Register it with @rota.job, or start a worker that has it")
        if known.state != "ENABLED":
            raise TemplateUnavailable(f"template {name!r} is {known.state.lower()} and takes no new jobs")
        return known

    def sync(self, store: Store, now: Instant) -> None:
        """Bring code and record together when either has changed."""
        with self._lock:
            if self._unsynced and self.handlers:
                store.put_templates([self._record(self._known[name], now) for name in self.handlers], actor=SYSTEM, now=now)
            version = store.definitions()
            if version == self.version and not self._unsynced:
                return
            self._unsynced = False
            for template in store.templates():
                self._take(template)
            self.version = version

    def _record(self, known: Known, now: Instant) -> Template:
        defaults = msgspec.to_builtins(known.policy) | {"queue_ttl": known.queue_ttl}
        return Template(
            id=known.template_id or self._ids.take(1, now)[0],
            name=known.name,
            job_type=known.name,
            state=known.state,
            version=0,
            defaults=defaults,
        )

    def _take(self, template: Template) -> None:
        known = self._known.get(template.name)
        if known is None:
            defaults = dict(template.defaults)
            queue_ttl = defaults.pop("queue_ttl", None)
            known = Known(name=template.name, policy=msgspec.convert(defaults, Policy), queue_ttl=queue_ttl)  # type: ignore[arg-type]
            self._known[template.name] = known
        elif known.handler is None:
            defaults = dict(template.defaults)
            known.queue_ttl = defaults.pop("queue_ttl", None)  # type: ignore[assignment] # a number or None, as written
            known.policy = msgspec.convert(defaults, Policy)
        known.template_id = template.id
        known.state = template.state


def policy_of(options: Options, executor: str, settings: Settings) -> Policy:
    """Return the rules a job will carry, options over settings."""
    backoff = options.backoff or Backoff(settings.backoff_base, settings.backoff_factor, settings.backoff_cap, settings.backoff_jitter)
    return Policy(
        priority=priority_of(settings.priority if options.priority is None else options.priority),
        max_retries=whole("max_retries", settings.max_retries if options.max_retries is None else options.max_retries, least=0),
        max_crashes=whole("max_crashes", settings.max_crashes if options.max_crashes is None else options.max_crashes, least=1),
        backoff=msgspec.json.encode(backoff).decode(),
        timeout=seconds("timeout", settings.timeout if options.timeout is None else options.timeout),
        executor=executor,
    )


def override(policy: Policy, *, priority: str | int | None, max_retries: int | None, timeout: float | None) -> Policy:
    """Return a policy with one job's own choices on top."""
    if priority is None and max_retries is None and timeout is None:
        return policy
    return msgspec.structs.replace(
        policy,
        priority=policy.priority if priority is None else priority_of(priority),
        max_retries=policy.max_retries if max_retries is None else whole("max_retries", max_retries, least=0),
        timeout=policy.timeout if timeout is None else seconds("timeout", timeout),
    )


def check_name(name: object, what: str, limit: int) -> None:
    """Refuse names that are empty, too long or not printable."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidName(f"{name!r} is not a {what} name: give a text of 1 to {limit} characters")
    if len(name) > limit:
        raise InvalidName(f"the {what} name {name[:40] + '…'!r} has {len(name):,} characters; at most {limit} are allowed")
    if not name.isprintable():
        raise InvalidName(f"the {what} name {name!r} has characters that can't be printed")


def whole(name: str, value: object, *, least: int) -> int:
    """Return a whole number or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidOption(f"{name}={value!r} is not allowed: give a whole number, {least} or more")
    return value


def seconds(name: str, value: object) -> float:
    """Return seconds or refuse them."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= CENTURY_S:
        raise InvalidOption(f"{name}={value!r} is not allowed: give 0 or more seconds, at most a hundred years")
    return float(value)


def _same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    return one is other or (_where(one) == _where(other) and "<locals>" not in _where(one))


def _where(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
