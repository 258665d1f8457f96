"""Calls a handler and turns whatever happens into an Outcome: nothing a handler does leaves here as an exception."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Generator
from contextlib import ExitStack
from contextvars import ContextVar, Token
from inspect import isgenerator
from typing import Any, TypeAlias

from rota.errors import InvalidProgress
from rota.executors.attempt import Attempt
from rota.executors.context import Context
from rota.executors.text import clean, head, tail
from rota.middleware import enter
from rota.model.decide import Completed, Failed, Outcome, Skipped, Snoozed, Stopped
from rota.model.handler import Handler
from rota.model.kinds import RUNNER
from rota.model.params import encode
from rota.model.settings import Settings
from rota.model.signals import Cancelled, Retry, Rules, Skip, Snooze, http_status, is_permanent
from rota.model.values import Claimed

Runner: TypeAlias = Callable[[Handler, Claimed, Attempt | None, Settings], Outcome]
COMPLETED = Completed(None)
"""Shared by every handler that returns nothing."""

OMITTED = ("builtins", "__main__", "__mp_main__")
"""Modules that a traceback does not name before a class."""
OWN = ("rota.executors.", "rota.middleware")
"""Modules whose frames before the handler's first, or its middleware's, are not shown in a traceback."""
DELAY_MAX_S = 100 * 366 * 86_400.0

_inside: ContextVar[bool] = ContextVar("rota_inside_handler", default=False)


def inside_handler() -> bool:
    """Say whether the calling code runs inside a handler."""
    return _inside.get()


def enter_handlers() -> Token[bool]:
    """Mark the current thread (and what copies its context) as one that runs handlers."""
    return _inside.set(True)


def leave_handlers(token: Token[bool]) -> None:
    """Undo `enter_handlers`."""
    _inside.reset(token)


def wants_attempt(handler: Handler) -> bool:
    """Say whether a call needs an Attempt: for a Context, for progress that is yielded, or to be cancelled."""
    return handler.context is not None or handler.is_generator or handler.is_async or handler.executor == RUNNER


def runner(settings: Settings) -> Runner:
    """Return what calls handlers that are not async: `run`, or one that traces it. Asked for once: off, tracing costs nothing."""
    if settings.traces == "off":
        return run
    from rota.executors.traces import run_traced  # noqa: PLC0415 - OpenTelemetry, which few programs use

    return run_traced


def run(handler: Handler, job: Claimed, attempt: Attempt | None, settings: Settings) -> Outcome:
    """Call a handler that is not async, to its end. `attempt` may be None where `wants_attempt` says no."""
    try:
        params = handler.codec.decode(job.params)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with params, it is wrong for good
        return unfit(error, settings)
    try:
        if attempt is None:
            value = handler.function(**params)
        elif attempt.middleware:
            value = _surrounded(handler, params, attempt)
        else:
            value = handler.function(**arguments(handler, params, attempt))
            if handler.is_generator and isgenerator(value):
                value = _drive(value, attempt)
        return COMPLETED if value is None else keep_result(value, settings)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends its run, not the worker
        return outcome_of(error, settings, handler.rules)


def _surrounded(handler: Handler, params: dict[str, object], attempt: Attempt) -> object:
    """Call a handler inside its middleware, a generator to its end."""
    value = None
    with ExitStack() as stack:
        enter(stack, attempt.middleware, Context(attempt, params))
        called = handler.function(**arguments(handler, params, attempt))
        value = _drive(called, attempt) if handler.is_generator and isgenerator(called) else called
    return value  # noqa: RET504 - still None where a middleware has suppressed the exception


def unfit(error: Exception, settings: Settings) -> Failed:
    """Return the outcome of a job whose params its handler can't be called with."""
    text = clean(error)
    failed = Failed(error=head(f"{type(error).__name__}: {text}", settings.error_max), permanent=True)
    _attach(error, text, failed, settings)
    return failed


def arguments(handler: Handler, params: dict[str, object], attempt: Attempt) -> dict[str, object]:
    """Return what to call the handler with, its Context included."""
    return params if handler.context is None else {**params, handler.context: Context(attempt, params)}


def show_progress(attempt: Attempt, step: object) -> None:
    """Take what a generator yielded: a number, (number, message), or None for a mere chance to stop."""
    if isinstance(step, tuple) and len(step) == 2:
        pct, message = step
    else:
        pct, message = step, None
    if pct is None:
        return
    try:
        attempt.progress(pct, message)
    except InvalidProgress:
        raise InvalidProgress(f"the handler yielded {step!r}: yield a number from 0 to 100, or (number, message)") from None


def keep_result(value: object, settings: Settings) -> Outcome:
    """Return a completion with the result as JSON, or say why it can't be stored."""
    try:
        text = encode(value, "result")
    except Exception as error:  # noqa: BLE001 - also what a value's own methods raise while it is encoded
        return _unstorable(clean(error), settings)
    size = len(text) if text.isascii() else len(text.encode())
    if size > settings.result_max:
        return _unstorable(f"it takes {size:,} bytes; the limit is {settings.result_max:,} (setting result_max)", settings)
    return Completed(text)


def outcome_of(error: BaseException, settings: Settings, rules: Rules | None = None) -> Outcome:
    """Return what an exception that left a handler means. Whatever the exception itself does, it is an outcome."""
    try:
        return _meaning(error, settings, rules)
    except BaseException as worse:  # noqa: BLE001 - its text may raise anything, and a signal's subclass may lack what the signal has
        return Failed(error=f"{type(error).__name__}, which can't be looked at: {type(worse).__name__}")


def unknown(job: Claimed) -> Failed:
    """Return the end of a job whose handler is not here."""
    return Failed(error=f"no handler for {job.job_type!r} is registered in this process")


def _meaning(error: BaseException, settings: Settings, rules: Rules | None) -> Outcome:
    text = clean(error)
    match error:
        case Cancelled():
            return Stopped(head(text, settings.error_max) or None)
        case Skip():
            return Skipped(head(text, settings.error_max))
        case Snooze():
            return Snoozed(_delay(error.delay_s), head(text, settings.error_max))
    _drop_own_frames(error)
    name = type(error).__name__
    failed = Failed(
        error=head(f"{name}: {text}" if text else name, settings.error_max),
        traceback=tail(_traceback(error), settings.error_max),
    )
    _attach(error, text, failed, settings)
    if isinstance(error, Retry):
        failed.after_s = None if error.after_s is None else _delay(error.after_s)
    else:
        if isinstance(error, SystemExit):
            failed.exit_code = _exit_code(error)
        _classify(error, failed, rules)
    return failed


def _attach(error: BaseException, text: str, failed: Failed, settings: Settings) -> None:
    """Keep the exception for the log. One with a huge text is not kept: loggers that format it themselves would write all of it."""
    kind = type(error)
    failed.exception_type = clean(kind.__qualname__ if kind.__module__ in OMITTED else f"{kind.__module__}.{kind.__qualname__}")
    if len(text) <= settings.error_max:
        failed.exception = error


def _drive(steps: Generator[Any, Any, object], attempt: Attempt) -> object:
    """Run a generator to its end, and return what it returns. Asked to stop, it finds Cancelled at its yield, once."""
    told = False
    try:
        step = next(steps)
        while True:
            show_progress(attempt, step)
            if attempt.stopping and not told:
                told = True
                step = steps.throw(Cancelled("the job was asked to stop"))
            else:
                step = next(steps)
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


def _unstorable(reason: str, settings: Settings) -> Failed:
    return Failed(error=head(f"result could not be stored: {reason}", settings.error_max), permanent=True)


def _classify(error: BaseException, failed: Failed, rules: Rules | None) -> None:
    try:
        failed.permanent = is_permanent(error, rules)
        status = http_status(error)
    except Exception:  # noqa: BLE001 - some libraries' errors raise when their attributes are read
        return
    failed.error_code = None if status is None else str(status)


def _drop_own_frames(error: BaseException) -> None:
    """Let the exception's traceback begin with the handler's first frame."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(OWN):
        frames = frames.tb_next
    error.__traceback__ = frames


def _traceback(error: BaseException) -> str:
    try:
        return clean("".join(traceback.format_exception(error)))
    except Exception:  # noqa: BLE001 - the error itself is worth more than its traceback
        return ""


def _exit_code(error: SystemExit) -> int | None:
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _delay(seconds: float) -> float:
    return min(DELAY_MAX_S, max(0.0, seconds)) if math.isfinite(seconds) else DELAY_MAX_S if seconds > 0 else 0.0
