"""What a handler raises to steer its own end, and what is raised into it.

Retry(after=...)     come back later; uses one of max_retries
Snooze(seconds)      come back later; uses no budget
Skip(reason)         nothing to do; the chain ends SKIPPED
PermanentError       trying again can't help; the chain ends DEAD_LETTER
TransientError       trying again may help (any other exception means the same)
Cancelled            raised *into* a handler that was asked to stop
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from rota.errors import InvalidOption


class PermanentError(Exception):
    """The attempt failed in a way that no retry can mend."""


class TransientError(Exception):
    """The attempt failed in a way that a retry may mend."""


class Retry(Exception):  # noqa: N818 - a signal, not an error
    """End this attempt as failed and try again, `after` seconds from now or by backoff."""

    def __init__(self, message: str = "", *, after: float | timedelta | None = None) -> None:
        """Take an optional message for the run's record and the delay."""
        super().__init__(message or "the handler asked for a retry")
        self.after_s = None if after is None else as_seconds(after)


class Snooze(Exception):  # noqa: N818 - a signal, not an error
    """Put the job back for a while without using its retry budget."""

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        """Take how long to sleep, in seconds or as a timedelta."""
        super().__init__(message or "snoozed")
        self.delay_s = as_seconds(delay)


class Skip(Exception):  # noqa: N818 - a signal, not an error
    """End the chain as SKIPPED: there was nothing to do."""

    def __init__(self, reason: str = "skipped by its handler") -> None:
        """Take the reason that the record will show."""
        super().__init__(reason)


class Cancelled(BaseException):
    """The job was asked to stop. A BaseException, so that `except Exception` in a handler lets it pass."""


RETRYABLE_HTTP = frozenset({429, 500, 502, 503, 504})


class Rules(msgspec.Struct, frozen=True):
    """Which errors of one handler are tried again. Classes are named, not held, because handler processes have their own."""

    retry_on: tuple[str, ...] | None = None
    """If given, every other error is permanent."""
    fail_on: tuple[str, ...] = ()
    """Permanent, whatever else holds."""

    def decide(self, error: BaseException) -> bool | None:
        """Say whether the rules make an error permanent; None if they say nothing of it. Subclasses count, as in an `except` clause."""
        names = {_name_of(kind) for kind in type(error).__mro__}
        if not names.isdisjoint(self.fail_on):
            return True
        return None if self.retry_on is None else names.isdisjoint(self.retry_on)


def rules_of(retry_on: object, fail_on: object) -> Rules | None:
    """Return the rules that two options of a handler say, None if neither is given; refuse what is not an exception class."""
    if retry_on is None and fail_on is None:
        return None
    return Rules(None if retry_on is None else _names_of("retry_on", retry_on), () if fail_on is None else _names_of("fail_on", fail_on))


def _names_of(option: str, given: object) -> tuple[str, ...]:
    names: list[str] = []
    for kind in given if isinstance(given, Iterable) and not isinstance(given, str | type) else (given,):
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidOption(f"{option}: {kind!r:.80} is not an exception class; use classes, such as {option}=(ConnectionError,)")
        names.append(_name_of(kind))
    return tuple(names)


def _name_of(kind: type) -> str:
    """Return where a class is defined. The main program has another name in a handler process."""
    return f"{'__main__' if kind.__module__ == '__mp_main__' else kind.__module__}:{kind.__qualname__}"


def is_permanent(error: BaseException, rules: Rules | None = None) -> bool:
    """Say whether a retry is pointless: by its class, by the handler's rules, or as an HTTP-like error with a 4xx that stays."""
    if isinstance(error, PermanentError):
        return True
    if isinstance(error, TransientError):
        return False
    if rules is not None and (ruled := rules.decide(error)) is not None:
        return ruled
    status = http_status(error)
    return status is not None and 400 <= status < 500 and status not in RETRYABLE_HTTP


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status an exception carries, as requests, httpx, urllib and aiohttp errors do."""
    if isinstance(error, SystemExit):
        return None
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
                return int(value)
    return None


def as_seconds(delay: float | timedelta) -> float:
    """Return a delay as seconds."""
    return delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
