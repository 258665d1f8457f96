"""Lanes and queues: which ready jobs the same workers can take."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from rota.errors import InvalidOption
from rota.model.checks import line

Names: TypeAlias = str | Iterable[str] | None
"""Names as a list, or as text with commas between them."""
DEFAULT_QUEUE = "default"
QUEUE_MAX = 255
"""Letters of a queue's name."""


class ParamNames(msgspec.Struct, frozen=True, array_like=True):
    """The names of parameters that a job was enqueued for, or that a handler takes."""

    required: frozenset[str] = frozenset()
    allowed: frozenset[str] | None = None
    """None: any name."""


def fits(handler: ParamNames, job: ParamNames) -> bool:
    """Say whether a handler takes every job that was enqueued for these parameters."""
    if not handler.required <= job.required:
        return False
    return handler.allowed is None or (job.allowed is not None and job.allowed <= handler.allowed)


def signature(name: str, names: ParamNames) -> str:
    """Return parameters as people write them: `greet(name, times=…)`."""
    words = sorted(names.required) + [f"{each}=…" for each in sorted((names.allowed or frozenset()) - names.required)]
    return f"{name}({', '.join([*words, '**…'] if names.allowed is None else words)})"


class Takes(msgspec.Struct, frozen=True):
    """What a handler takes, as it is recorded with its template."""

    digest: str
    names: ParamNames
    queue: str = "default"
    """Where its jobs will wait, by the code's word."""
    schema: str | None = None
    """JSON Schema of the params object, as text; None: not stated here."""


class NewestParams(msgspec.Struct, frozen=True):
    """What the newest handler of a template takes."""

    digest: str
    names: ParamNames
    schema: dict[str, Any] | None = None


class JobLane(msgspec.Struct, frozen=True):
    """A line of ready jobs of one type, one queue and one digest of parameters."""

    id: int
    job_type: str
    queue: str
    digest: str = ""
    """Empty: what the jobs were enqueued for is not known."""
    names: ParamNames | None = None
    """Behind the digest, where it is known."""


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told to serve; None: everything."""

    queues: frozenset[str] | None = None
    types: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    """Job types that it leaves to others."""

    def takes(self, job_type: str) -> bool:
        """Say whether it serves a job type."""
        return (self.types is None or _is_among(job_type, self.types)) and not _is_among(job_type, self.exclude)

    def serves(self, queue: str) -> bool:
        """Say whether it serves a queue."""
        return self.queues is None or queue in self.queues


def _is_among(name: str, names: frozenset[str]) -> bool:
    """Say whether a name is listed; one that ends with * stands for all that begin like it."""
    return name in names or any(each.endswith("*") and name.startswith(each[:-1]) for each in names)


SERVES_ALL = Serving()


class QueueInfo(msgspec.Struct, kw_only=True, frozen=True):
    """One queue: what waits in it, what runs, and who serves it."""

    name: str
    waiting: int = 0
    """QUEUED jobs, parked ones included."""
    at_least: bool = False
    """There are more than were counted."""
    oldest: datetime | None = None
    """Since when its longest waiting job is QUEUED."""
    running: int = 0
    workers: int = 0
    """Live workers that serve it and are not stopping."""
    paused: bool = False


def queue_of(option: str, given: object) -> str:
    """Return the name of a queue, or refuse it."""
    name = line(option, given, QUEUE_MAX)
    if "," in name or name != name.strip():
        raise InvalidOption(f"{option}={name!r} is not the name of a queue: it has no comma, and no space at either end")
    return name


def serving_of(queues: Names = None, types: Names = None, exclude: Names = None, *, usual: tuple[str, str, str] = ("", "", "")) -> Serving:
    """Return what a worker is told to serve, or else what the settings say: queues, types, and types to exclude."""
    asked = names_of("queues", usual[0] if queues is None else queues)
    return Serving(
        queues=None if asked is None else frozenset(queue_of("queues", name) for name in asked),
        types=names_of("types", usual[1] if types is None else types),
        exclude=names_of("exclude", usual[2] if exclude is None else exclude) or frozenset(),
    )


def names_of(option: str, given: Names) -> frozenset[str] | None:
    """Return names given as a list or as text with commas; None for none given."""
    if given is None or given == "":
        return None
    names = frozenset(part.strip() for part in (given.split(",") if isinstance(given, str) else given))
    if not names or "" in names:
        raise InvalidOption(f"{option}={given!r} is not a list of names: use names with commas between them, such as a,b")
    return names
