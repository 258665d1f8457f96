"""Reports failed attempts to Sentry: `sentry.watch(rota)`, after the program's own `sentry_sdk.init(...)`.

Each failure is one event, sent by the worker that wrote the outcome: also for a handler process, whose exception arrives as text, and for
what raises nothing, as a timeout or a lost worker. What a handler itself sends to Sentry has the same tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from rota.model.checks import extra

try:
    import sentry_sdk
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.scope import use_isolation_scope
    from sentry_sdk.utils import event_from_exception
except ImportError as error:
    raise ImportError(f"rota.contrib.sentry needs sentry-sdk: {extra('sentry')}") from error

from rota.app import Rota
from rota.engine.outcome_log import JOBS
from rota.executors.context import Context
from rota.hooks import AttemptEvent

if TYPE_CHECKING:
    from sentry_sdk.types import Event

MECHANISM = {"type": "rota", "handled": False}
SCOPE = "__rota_sentry_scope__"
"""The attribute of an exception that holds the scope it was raised in, with breadcrumbs and what the handler has set."""
_FRAME = re.compile(r'^  File "(?P<path>.+)", line (?P<line>\d+), in (?P<function>.+)\n(?:    (?P<code>.*)\n)?', re.MULTILINE)
_CHAINED = re.compile(r"^(?:The above exception was the direct cause of|During handling of the above exception).*\n", re.MULTILINE)


def watch(rota: Rota, *, dead_letters_only: bool = False) -> None:
    """Report each failed attempt of this Rota's workers, or only those that are not retried. Calling it again changes nothing."""
    # Its records are the same failures.
    ignore_logger(JOBS)
    rota.middleware(attempt_scope)
    (rota.on.dead_letter if dead_letters_only else rota.on.failed)(report)


def attempt_scope(ctx: Context) -> Iterator[None]:
    """Run a handler in a scope of its own: what it sends to Sentry is tagged, and nothing of it reaches the next job."""
    with sentry_sdk.isolation_scope() as scope:
        scope.set_tags(_tags(ctx.id, ctx.number, ctx.template, ctx.attempt, ctx.organization))
        try:
            yield
        except BaseException as error:
            with suppress(AttributeError, TypeError):  # an exception with slots of its own
                setattr(error, SCOPE, scope)
            raise


def report(event: AttemptEvent) -> None:
    """Send one failed attempt."""
    with _scope_of(event.exception) as scope:
        scope.set_tags(_tags(event.job, event.number, event.template, event.attempt, event.organization))
        scope.set_context(
            "rota", {"worker": event.worker, "duration": event.duration, "status": str(event.status), "retry_at": event.retry_at}
        )
        if event.exception is not None:
            content, hint = event_from_exception(event.exception, sentry_sdk.get_client().options, mechanism=MECHANISM)
            sentry_sdk.capture_event(content, hint=hint)
        else:
            sentry_sdk.capture_event(_from_text(event))


def _scope_of(error: BaseException | None) -> AbstractContextManager[sentry_sdk.Scope]:
    scope = getattr(error, SCOPE, None)
    return sentry_sdk.isolation_scope() if scope is None else use_isolation_scope(scope)


def _tags(job: str, number: str, template: str, attempt: int, organization: str) -> dict[str, Any]:
    return {"job": job, "number": number, "template": template, "attempt": attempt, "organization": organization}


def _from_text(event: AttemptEvent) -> Event:
    """Return an event for an exception that is known as text, or for a failure without one."""
    if event.exception_type is None:
        return {"level": "error", "logentry": {"message": f"{event.template} failed: {event.error}"}}
    module, _, name = event.exception_type.rpartition(".")
    exception = {
        "type": name,
        "module": module or None,
        "value": (event.error or "").removeprefix(name).removeprefix(": "),
        "mechanism": MECHANISM,
        "stacktrace": {"frames": _frames(event.traceback or "")},
    }
    return {"level": "error", "exception": {"values": [exception]}}


def _frames(traceback: str) -> list[dict[str, Any]]:
    """Return the frames of the exception that was raised last, the innermost last."""
    return [
        {
            "filename": found["path"],
            "abs_path": found["path"],
            "function": found["function"],
            "lineno": int(found["line"]),
            "context_line": found["code"],
        }
        for found in _FRAME.finditer(_CHAINED.split(traceback)[-1])
    ]
