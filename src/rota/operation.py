"""Operations: each is written once, with its right, its route and its command. The decorator asks the gate before the body runs."""

from __future__ import annotations

import functools
import hashlib
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

import msgspec
from msgspec import UNSET

from rota.errors import ChangedMeanwhile, InvalidOption, NotFound, PermissionDenied
from rota.model.gate import EVERYTHING, Actor, Right, Scope, scope_of
from rota.model.shapes import Shape, shape_of
from rota.model.values import dashed, undashed

if TYPE_CHECKING:
    from rota.compose import Opened
    from rota.engine.registry import Registry
    from rota.model.groups import Group
    from rota.model.settings import Settings
    from rota.model.values import Instant, Job, JobRef
    from rota.ports.store import Check, Store
    from rota.session import Session

P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N", bound="View")

DIGITS_MAX = 18
"""Digits of a version, at most: no store counts further."""
Expected = str | int
"""The state that an edit expects: an ETag as HTTP sends it, or a version."""


class Ask:
    """One permitted request: who asks, which rows the right reaches, and the store. A body has no other way to the store."""

    __slots__ = ("actor", "expected", "right", "scope", "session")

    def __init__(self, session: Session, actor: Actor | str | None, right: Right, expected: Expected | None = None) -> None:
        """Ask the gate; raises PermissionDenied."""
        self.session = session
        self.actor = actor
        self.right = right
        self.expected = expected
        self.scope: Scope = session.scope(actor, right)

    def also(self, right: Right) -> Ask:
        """Ask for another right too: the same actor, with the scope of that right."""
        return Ask(self.session, self.actor, right, self.expected)

    def may(self, right: Right) -> Scope | None:
        """Return the scope of another right of the same actor; None if it has none, which is not entered as a refusal."""
        return self.session.may(self.actor, right)

    @property
    def who(self) -> Actor:
        """The actor, looked up."""
        return self.session.actor(self.actor)

    def within(self, organization: str | None) -> Actor:
        """Return the actor as acting in an organization: its own, or any other that its right reaches."""
        return self.session.acts(self.actor, self.right, organization)

    @property
    def opened(self) -> Opened:
        """The open store with its liveness, its clock and its folder of logs."""
        return self.session.open()

    @property
    def store(self) -> Store:
        """The store."""
        return self.session.open().store

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.session.settings

    @property
    def registry(self) -> Registry:
        """Handlers, templates, organizations and users, as last read."""
        return self.session.registry

    @property
    def now(self) -> Instant:
        """The time, by the clock that everything here goes by."""
        return self.session.clock.now()

    def job(self, ref: JobRef) -> str:
        """Return the id of a job in the scope; NotFound for any other."""
        return self.session.job_id(ref, self.scope)

    def found(self, ref: JobRef) -> Job:
        """Return a job in the scope; NotFound for any other."""
        return self.session.job(ref, self.scope)

    def group(self, ref: str | Group) -> str:
        """Return the id of a group in the scope; NotFound for any other."""
        group_id = self.session.group_id(ref)
        if self.scope is not EVERYTHING:
            group = self.store.group(group_id)
            if group is None or not self.scope.holds(group.organization, group.owner):
                raise NotFound(f"there is no group {dashed(group_id)} in this store")
        return group_id

    @property
    def version(self) -> int | None:
        """The version that an edit expects; None: any."""
        if self.expected is None or isinstance(self.expected, int):
            return self.expected
        text = str(self.expected).strip()
        if text == "*":
            return None
        digits = text.removeprefix('"').removesuffix('"')
        if not digits.isdecimal() or len(digits) > DIGITS_MAX:
            raise ChangedMeanwhile("what you change", has=None, given=text[:100])
        return int(digits)

    def unchanged(self, job_id: str) -> Check | None:
        """Return the check that refuses an edit of a job that is not in the expected state, for the transaction of the edit; None: any."""
        if self.expected is None or str(self.expected).strip() == "*":
            return None
        tags = {tag.strip().removeprefix("W/") for tag in str(self.expected).split(",")}

        def check(chain: list[Job]) -> None:
            job = next(each for each in chain if undashed(each.id) == job_id)
            if tag_of(job, chain[-1]) not in tags:
                # Its tag is not told: it is a digest of what a token without the permit `read` may not see.
                raise ChangedMeanwhile(job.number, has=None, given=str(self.expected))

        return check


class Seat:
    """Where all views of one Rota find its session, so that a test can put another one there."""

    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
        """Take the session of a new Rota."""
        self.session = session


class View:
    """A Rota, or one of its nouns, as somebody uses it. Cheap: it holds where the session is, the actor and the expected state."""

    __slots__ = ("_actor", "_expected", "_seat")

    def __init__(self, seat: Seat, actor: Actor | str | None = None, expected: Expected | None = None) -> None:
        """Made by a Rota."""
        self._seat = seat
        self._actor = actor
        self._expected = expected

    @property
    def _session(self) -> Session:
        return self._seat.session


class Resource(View):
    """A noun, whose verbs are operations. Made at each access."""

    __slots__ = ()

    def if_match(self, expected: Expected | None) -> Self:
        """Return the same noun, whose edits are refused with ChangedMeanwhile unless the thing is in this state: its ETag or version."""
        return type(self)(self._seat, self._actor, expected)


def ask_for(view: View, right: Right) -> Ask:
    """Ask the gate for the actor of a noun or a Rota: for functions of surfaces that are not operations."""
    return Ask(view._seat.session, view._actor, right, view._expected)  # noqa: SLF001 - of this module's own class


def refuse_denied(view: View, actor: Actor, right: Right) -> None:
    """Refuse an actor without a right before anything else of its request is looked at."""
    session = session_of(view)
    try:
        scope_of(actor, right, session.holdings(actor, right))
    except PermissionDenied as error:
        session.denied(actor, right, error)
        raise


def session_of(view: View) -> Session:
    """Return the session behind a noun or a Rota: for surfaces, which are part of the same program."""
    return view._seat.session  # noqa: SLF001 - of this module's own class


def seen_from(view: View, session: Session) -> View:
    """Return the same actor and expected state before another session: that of a transaction."""
    return View(Seat(session), view._actor, view._expected)  # noqa: SLF001 - of this module's own class


class Field(msgspec.Struct, frozen=True, eq=False):
    """One parameter of an operation."""

    name: str
    hint: Any
    shape: Shape
    required: bool
    default: Any
    positional: bool = False
    """Whether Python takes it by its place: on the command line it is an argument, not an option."""


class Operation:
    """The description of an operation, from which surfaces are made. Nothing is worked out before a surface asks for it."""

    def __init__(  # noqa: PLR0917 - built in one place
        self,
        body: Callable[..., Any],
        right: Right,
        http: str | None,
        cli: str | None,
        etag: bool,  # noqa: FBT001 - as above
        status: int,
        confirm: str | None,
    ) -> None:
        """Take what the decorator was given."""
        self.body = body
        self.right = right
        self.method, _, self.path = (http or "").partition(" ")
        self.cli = cli
        self.etag = etag
        self.status = status
        self.confirm = confirm

    @property
    def name(self) -> str:
        """The verb."""
        return self.body.__name__

    @property
    def reads(self) -> bool:
        """It changes nothing."""
        return self.right.name.startswith("READ")

    @property
    def destroys(self) -> bool:
        """What it does can't be undone: surfaces ask for confirmation."""
        return self.confirm is not None

    @cached_property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        return (inspect.getdoc(self.body) or "").partition("\n")[0]

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The annotations of its parameters, resolved. That of its result may be imported for type checkers alone."""
        parameters = {name: each for name, each in self.body.__annotations__.items() if name not in {"ask", "return"}}
        return {name: self._hint(name, each) for name, each in parameters.items()}

    @cached_property
    def result(self) -> Any:
        """The annotation of its result, resolved."""
        return self._hint("return", self.body.__annotations__["return"])

    def _hint(self, name: str, annotation: Any) -> Any:
        try:
            one = SimpleNamespace(__annotations__={name: annotation})
            return typing.get_type_hints(one, self.body.__globals__, include_extras=True)[name]
        except NameError:
            # Imported for type checkers alone: an object that only Python has.
            return object

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of its body by name, `self` and `ask` among them."""
        return inspect.signature(self.body).parameters

    @cached_property
    def fields(self) -> list[Field]:
        """Its parameters; those of a TypedDict behind `**options` one by one, other keywords as one object."""
        parameters = list(self.parameters.values())[2:]  # without self and ask
        return [field for each in parameters for field in self._fields(each)]

    def _fields(self, parameter: inspect.Parameter) -> Iterator[Field]:
        hint = self.hints[parameter.name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield Field(parameter.name, list[hint], shape_of(hint), required=False, default=(), positional=True)  # type: ignore[valid-type]
            return
        if parameter.kind is not parameter.VAR_KEYWORD:
            required = parameter.default is parameter.empty
            positional = parameter.kind is not parameter.KEYWORD_ONLY
            yield Field(parameter.name, hint, shape_of(hint), required, None if required else parameter.default, positional)
            return
        options = typing.get_args(hint)
        kind = options[0] if options and typing.get_origin(hint) is not Annotated else hint
        if not typing.is_typeddict(kind):
            # Any names: outside of Python, one object that holds them all.
            yield Field(parameter.name, dict[str, Any], shape_of(hint), required=False, default=UNSET)
            return
        for name, each in typing.get_type_hints(kind, include_extras=True).items():
            yield Field(name, each, shape_of(each), required=False, default=UNSET)


def operation(
    right: Right, *, http: str | None = None, cli: str | None = None, etag: bool = False, status: int = 200, confirm: str | None = None
) -> Callable[[Callable[Concatenate[N, Ask, P], R]], Callable[Concatenate[N, P], R]]:
    """Make a method of a noun an operation: a caller leaves out `ask`, which is made here, so that no body runs without its right.

    `http` is a method and a path, `cli` the words of a command. `etag`: its result has a version, and an edit may name the one it expects.
    `confirm` is what a person is asked before it, with its parameters in braces.
    """
    edits = etag and status != 201 and not right.name.startswith("READ")

    def decorate(body: Callable[Concatenate[N, Ask, P], R]) -> Callable[Concatenate[N, P], R]:
        @functools.wraps(body)
        def call(self: N, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if self._expected is not None and not edits:
                raise InvalidOption(f"{body.__qualname__} takes no expected state: call it without if_match({self._expected!r})")
            return body(self, Ask(self._seat.session, self._actor, right, self._expected), *args, **kwargs)

        call.operation = Operation(body, right, http, cli, etag, status, confirm)  # type: ignore[attr-defined]
        # `inspect`, `help()` and the docs show what a caller passes.
        del call.__wrapped__
        signature = inspect.signature(body)
        shown = [each for name, each in signature.parameters.items() if name != "ask"]
        call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        return call

    return decorate


def tag_of(job: Job, tail: Job) -> str:
    """Return the ETag of a job: another one as soon as anything of it has changed, or of the newest attempt of its chain."""
    digest = hashlib.blake2b(msgspec.json.encode(job), digest_size=12)
    if tail.id != job.id:
        digest.update(msgspec.json.encode(tail))
    return f'"{digest.hexdigest()}"'


def operations(kind: type[View]) -> dict[str, Operation]:
    """Return the operations of a noun by verb."""
    return {name: each.operation for name, each in vars(kind).items() if hasattr(each, "operation")}


NOUNS: dict[str, str] = {
    "jobs": "Jobs",
    "groups": "Groups",
    "dead_letters": "DeadLetters",
    "schedules": "Schedules",
    "calendars": "Calendars",
    "templates": "Templates",
    "queues": "Queues",
    "workers": "Workers",
    "organizations": "Organizations",
    "users": "Users",
    "roles": "Roles",
    "grants": "Grants",
    "connections": "Connections",
    "secrets": "Secrets",
    "tokens": "Tokens",
    "webhooks": "Webhooks",
    "audit": "Audit",
    "stored_settings": "StoredSettings",
    "store": "StoreOperations",
}
"""The class of each noun; its module has the noun's name."""


@cache
def noun(name: str) -> Any:
    """Import the class of a noun. Cached, because an import statement costs 0.7 µs at each access."""
    return getattr(import_module(f"rota.resources.{name}"), NOUNS[name])


class Noun(Generic[N]):
    """An attribute of a Rota that is one of its nouns: a view of the same session, for the same actor."""

    def __init__(self, doc: str) -> None:
        """Take what `help(Rota)` shows."""
        self.__doc__ = doc

    def __set_name__(self, owner: type[View], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, view: None, owner: type[View]) -> Self: ...
    @overload
    def __get__(self, view: View, owner: type[View] | None = None) -> N: ...
    def __get__(self, view: View | None, owner: type[View] | None = None) -> N | Self:
        if view is None:
            return self
        return cast("N", noun(self._name)(view._seat, view._actor))  # noqa: SLF001 - of this module's own class

    def __set__(self, view: View, value: object) -> None:
        raise AttributeError(f"{self._name} can't be replaced")
