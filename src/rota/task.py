"""Tasks: functions that can be enqueued, and sets of them that an application includes."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from rota.errors import InvalidOption, InvalidParams, Refused
from rota.handle import Handle
from rota.model.backoff import Backoff
from rota.model.call import Call
from rota.model.checks import unknown_option
from rota.model.gate import Actor
from rota.model.handler import Handler, Wrapper, function_of, inspect_handler, kind_handler
from rota.model.schedule_options import TAKEN
from rota.model.signals import rules_of
from rota.model.templates import FIELDS, Rate
from rota.submission import submit, submit_async

if TYPE_CHECKING:
    from rota.executors.context import Context

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Span: TypeAlias = float | str | timedelta
"""A length of time: seconds, "5m", or a timedelta."""
RateLike: TypeAlias = str | tuple[int, float] | Rate
"""A number in a window: "10/60s", (10, 60)."""
Errors: TypeAlias = type[BaseException] | Iterable[type[BaseException]]
"""Exception classes: one, or several."""
PriorityLike: TypeAlias = int | Literal["low", "normal", "high", "critical"]


class JobOptions(TypedDict, total=False):
    """The options of `@rota.job(...)`. What is None or left out is as if nothing were said."""

    name: str | None
    executor: Literal["thread", "async", "process", "inline"] | None
    priority: PriorityLike | None
    max_retries: int | None
    max_crashes: int | None
    backoff: Backoff | None
    timeout: Span | None
    queue: str | None
    queue_ttl: Span | None
    dedup_window: Span | None
    payload_max: int | None
    max_running: int | None
    concurrency: int | None
    rate_limit: RateLike | None
    submit_limit: RateLike | None
    requires_permission: str | None
    display_name: str | None
    description: str | None
    default_params: Mapping[str, Any] | None
    retry_on: Errors | None
    fail_on: Errors | None
    cron: str | None
    every: Span | None
    timezone: str | None
    catch_up: Literal["none", "last", "all"] | None
    overlap: Literal["allow", "queue", "skip"] | None
    calendar: str | None
    jitter: Span | None
    depends_on: Sequence[str] | str | None


class EnqueueOptions(TypedDict, total=False):
    """The options of one job, beside its params. What is None or left out comes from the template."""

    priority: PriorityLike | None
    run_at: datetime | timedelta | None
    unique_key: str | None
    depends_on: Sequence[Any] | Handle[Any] | str | None
    on_parent_failure: Literal["wait", "skip", "cancel", "run"] | None
    max_retries: int | None
    timeout: Span | None
    queue: str | None
    queue_ttl: Span | None
    webhook: str | None
    job_id: str | None
    meta: Mapping[str, Any] | None
    tags: Sequence[str] | None
    backoff: Backoff | None
    organization: str | None
    transaction: Any


def refuse_unknown(called: str, options: Mapping[str, Any]) -> None:
    """Refuse options that no job has; `called` is what they were passed to."""
    unknown = options.keys() - EnqueueOptions.__annotations__.keys()
    if unknown:
        raise unknown_option(called, min(unknown), EnqueueOptions.__annotations__)


class Task(Wrapper, Generic[P, R]):
    """A function that can be enqueued. `options` speaks about the job, `enqueue` and `bind` take the function's own arguments."""

    def __init__(self, handler: Handler, home: Home) -> None:
        """Made by `@rota.job` and `@jobs.job`."""
        function = handler.function
        functools.update_wrapper(cast("Callable[..., Any]", self), function, updated=())
        # What somebody has attached to the function stays readable, unless it has the name of something that a task has.
        self.__dict__.update({name: value for name, value in getattr(function, "__dict__", {}).items() if not hasattr(Task, name)})
        self.__wrapped__ = function
        self.handler = handler
        parameters = [each for each in inspect.signature(function).parameters.values() if each.name != handler.context]
        self._signature = inspect.Signature(parameters)
        self._positional = tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)
        self._name = handler.name
        self._home = home
        self._options: EnqueueOptions = {}
        self._actor: Actor | str | None = None
        self._origin = self
        """The task as it was decorated, without options."""

    @property
    def name(self) -> str:
        """The template that its jobs are made from."""
        return self._home.prefix + self._name

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Accept one job; when this returns it is on disk (or, with the option `transaction`, will be when that commits)."""
        rota = self._acting
        accepted = submit(rota._seat.session, rota._actor, self.name, self._bound(args, kwargs), **self._options)  # noqa: SLF001 - its own Rota's
        return accepted.handle(rota, self._origin)

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Accept one job without blocking the event loop."""
        rota = self._acting
        params = self._bound(args, kwargs)
        accepted = await submit_async(rota._seat.session, rota._actor, self.name, params, **self._options)  # noqa: SLF001 - its own Rota's
        return accepted.handle(rota, self._origin)

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return the job that `enqueue` would accept, as a value; nothing is written."""
        return Call(self._origin, self._bound(args, kwargs), self._options, self._actor)

    def options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return the same task with options for its jobs, on top of those it has."""
        refuse_unknown(f"{self.name}.options()", options)
        return self._copy(_options={**self._options, **options})

    def acting_as(self, actor: Actor | str | None) -> Self:
        """Return the same task, whose jobs are enqueued by this user."""
        return self._copy(_actor=actor)

    def handle(self, job_id: str) -> Handle[R]:
        """Return the handle of a job of this task, by the id or number that another request or process has kept."""
        return Handle(self._acting, self._origin, job_id)

    def check_included(self) -> None:
        """Refuse a task whose JobSet is in no Rota yet: its name may be another's there."""
        if self._home.rota is None:
            raise InvalidOption(
                f"{self._name}: its JobSet is in no Rota yet; call rota.include(jobs) first, or import the module that does"
            )

    @property
    def _acting(self) -> Any:
        """The Rota as the user that this task acts as."""
        rota = self._home.rota
        if rota is None:
            self.check_included()
        return rota if self._actor is None else rota.acting_as(self._actor)

    def _decoded(self, text: str) -> R:
        """Return a stored result as the return annotation says."""
        return cast("R", self.handler.codec.decode_result(text))

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return arguments by name. `inspect.Signature.bind` takes 3 µs, so it is only asked for the words of an error."""
        if not args:
            return kwargs
        params = dict(zip(self._positional, args, strict=False))
        params.update(kwargs)
        if len(params) != len(args) + len(kwargs):  # one too many, or the same one twice
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise InvalidParams(f"{self.name}(): {error}; it takes {self._signature}") from None
        return params

    def _copy(self, **changes: Any) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, **changes)
        return other

    def __reduce__(self) -> Any:
        place = (str(getattr(self, "__module__", "")), str(getattr(self, "__qualname__", "")))
        try:
            found: object = _task_at(*place, {}, None)
        except Exception as error:  # noqa: BLE001 - whatever its module does when it is imported
            found = error
        if getattr(found, "_origin", None) is not self._origin:
            from pickle import PicklingError  # noqa: PLC0415 - a program that pickles has imported it

            raise PicklingError(
                f"the task {self.name!r} can't be pickled: another process would not find it as {'.'.join(place)}; "
                "decorate its function at the module level"
            )
        return _task_at, (*place, self._options, self._actor)

    def __copy__(self) -> Self:
        return self._copy()

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{self._signature}>"


class PlainTask(Task[P, R]):
    """A function without a Context."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return cast("R", self.__wrapped__(*args, **kwargs))


class ContextTask(Task[P, R]):
    """A function with a Context."""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return cast("R", self.__wrapped__(ctx, *args, **kwargs))


class AsyncTask(Task[P, R]):
    """A coroutine function without a Context."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function itself."""
        return cast("Coroutine[Any, Any, R]", self.__wrapped__(*args, **kwargs))


class AsyncContextTask(Task[P, R]):
    """A coroutine function with a Context."""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function itself."""
        return cast("Coroutine[Any, Any, R]", self.__wrapped__(ctx, *args, **kwargs))


class GeneratorTask(Task[P, R]):
    """A generator function without a Context: it yields progress, and its result is what it returns."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, R]:
        """Call the function itself."""
        return cast("Generator[Any, Any, R]", self.__wrapped__(*args, **kwargs))


class GeneratorContextTask(Task[P, R]):
    """A generator function with a Context."""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, R]:
        """Call the function itself."""
        return cast("Generator[Any, Any, R]", self.__wrapped__(ctx, *args, **kwargs))


class AsyncGeneratorTask(Task[P, None]):
    """An async generator function without a Context: it yields progress, and its result is None."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[Any, Any]:
        """Call the function itself."""
        return cast("AsyncGenerator[Any, Any]", self.__wrapped__(*args, **kwargs))


class AsyncGeneratorContextTask(Task[P, None]):
    """An async generator function with a Context."""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[Any, Any]:
        """Call the function itself."""
        return cast("AsyncGenerator[Any, Any]", self.__wrapped__(ctx, *args, **kwargs))


class WorkTask(PlainTask[..., Any]):
    """A template that is SQL or a command: its jobs can be enqueued and bound, and it is not a function that can be called."""

    def __init__(self, name: str, rota: Any) -> None:
        """Made by `rota.templates.sql` and `rota.templates.command`."""
        super().__init__(kind_handler(name), Home(rota, _registered))
        self.__name__ = self.__qualname__ = name

    def __call__(self, /, *_args: Any, **_params: Any) -> NoReturn:
        """Refuse: there is no function."""
        raise Refused(f"{self.name!r} is not a Python function, and can't be called: a worker runs its jobs. Use {self.name}.enqueue(…)")

    def __reduce__(self) -> Any:
        from pickle import PicklingError  # noqa: PLC0415 - a program that pickles has imported it

        raise PicklingError(f"the task {self.name!r} can't be pickled: it is in no module. Pass its name, and enqueue by that")


def _registered(_task: Task[..., Any], _options: Mapping[str, Any]) -> None:
    """Do nothing: the template is in the store."""


class WithCtx(Protocol[P, R_co]):
    """A function whose first parameter is a Context called ctx."""

    def __call__(self, ctx: Context, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Be called with a Context."""


class JobDecorator(Protocol):
    """`@rota.job`, and `@rota.job(...)`, which takes a function or more options."""

    # The order matters: a Context before none, and an ordinary function last, which every function is.
    @overload
    def __call__(self, target: WithCtx[P, Coroutine[Any, Any, R]], /, **options: Unpack[JobOptions]) -> AsyncContextTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: WithCtx[P, AsyncGenerator[Any, Any]], /, **options: Unpack[JobOptions]) -> AsyncGeneratorContextTask[P]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: WithCtx[P, Generator[Any, Any, R]], /, **options: Unpack[JobOptions]) -> GeneratorContextTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: WithCtx[P, R], /, **options: Unpack[JobOptions]) -> ContextTask[P, R]: ...
    @overload
    def __call__(self, target: Callable[P, Coroutine[Any, Any, R]], /, **options: Unpack[JobOptions]) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: Callable[P, AsyncGenerator[Any, Any]], /, **options: Unpack[JobOptions]) -> AsyncGeneratorTask[P]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: Callable[P, Generator[Any, Any, R]], /, **options: Unpack[JobOptions]) -> GeneratorTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: Callable[P, R], /, **options: Unpack[JobOptions]) -> PlainTask[P, R]: ...
    @overload
    def __call__(self, **options: Unpack[JobOptions]) -> JobDecorator: ...


Register: TypeAlias = "Callable[[Task[..., Any], Mapping[str, Any]], None]"


class Home:
    """Where tasks belong: the Rota that registers them and takes their jobs, None for a JobSet that is in none yet."""

    def __init__(self, rota: Any, register: Register, prefix: str = "") -> None:
        """Take a Rota, and the function that registers a task there."""
        self.rota = rota
        self.register = register
        self.prefix = prefix

    def job(self, function: Any = None, /, **options: Any) -> Any:
        """Make a task: the one body behind all overloads of `@rota.job`."""
        if function is not None and not callable(function):
            raise InvalidOption(f"@rota.job({function!r}) decorates nothing: a name is given as @rota.job(name={function!r})")
        unknown = next((option for option in options if option not in TAKES and option != "at"), None)
        if unknown is not None:
            raise unknown_option("@rota.job", unknown, TAKES)
        if function is None:
            return functools.partial(self.job, **options)
        target = function_of(function)
        name = options.pop("name", None) or str(getattr(target, "__name__", ""))
        rules = rules_of(options.pop("retry_on", None), options.pop("fail_on", None))
        handler = inspect_handler(name, target, options.get("executor"), rules)
        task = _class_of(handler)(handler, self)
        self.register(task, options)
        return task


class JobSet:
    """Tasks without an application, so that modules need not import theirs in a circle; `rota.include(jobs)` registers them."""

    def __init__(self) -> None:
        """Start empty."""
        self._tasks: list[tuple[Task[..., Any], Mapping[str, Any]]] = []
        self._home = Home(None, lambda task, options: self._tasks.append((task, options)))

    @property
    def job(self) -> JobDecorator:
        """Decorate a function as `@rota.job` does."""
        return cast("JobDecorator", self._home.job)

    def join(self, rota: Any, register: Register, prefix: str) -> None:
        """Register its tasks with a Rota, the present and the later ones; `rota.include` calls this."""
        home = self._home
        if home.rota is not None:
            raise InvalidOption(
                f"this JobSet is in the Rota of {home.rota.store.url} already, where its tasks enqueue: "
                "use a JobSet of its own for another Rota, or rota.testing.use(…) in tests"
            )
        home.rota, home.prefix = rota, prefix
        try:
            for task, options in self._tasks:
                register(task, options)
        except BaseException:
            home.rota, home.prefix = None, ""
            raise
        home.register = register
        self._tasks.clear()


TAKES: tuple[str, ...] = tuple(option for option in ("name", *FIELDS, "retry_on", "fail_on", *TAKEN) if option != "handler")
"""The options of `@rota.job`."""


def _class_of(handler: Handler) -> type[Task[..., Any]]:
    kinds: dict[tuple[bool, bool], tuple[type[Task[..., Any]], type[Task[..., Any]]]] = {
        (False, False): (PlainTask, ContextTask),
        (True, False): (AsyncTask, AsyncContextTask),
        (False, True): (GeneratorTask, GeneratorContextTask),
        (True, True): (AsyncGeneratorTask, AsyncGeneratorContextTask),
    }
    return kinds[handler.is_async, handler.is_generator][handler.context is not None]


def _task_at(module: str, qualname: str, options: EnqueueOptions, actor: Actor | str | None) -> Any:
    """Return the task of that name, also from under other decorators, with options. Called by pickle."""
    __import__(module)
    found: Any = functools.reduce(getattr, qualname.split("."), sys.modules[module])
    while not isinstance(found, Task):
        found = found.__wrapped__
    task = found.options(**options) if options else found
    return task if actor is None else task.acting_as(actor)
