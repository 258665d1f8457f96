"""Dead letters by what they died of: errors that differ only in numbers, ids and quoted values are one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

import msgspec

from rota.model.overview import Example
from rota.model.values import Job

GAP = "…"
"""The mark that replaces a value in a message."""
MESSAGE_MAX = 300
"""Characters of a message that are compared and shown."""
_VALUES = re.compile(
    r"""'[^'\n]*' | "[^"\n]*" | `[^`\n]*`                               # between quotes
      | \b[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\b      # UUIDs
      | \b0x[0-9a-fA-F]+\b
      | \b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,}\b                           # digests
      | \d+(?:[.,:_-]\d+)*                                              # numbers, dates, times, addresses
    """,
    re.VERBOSE,
)


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one type that died of the same error."""

    job_type: str
    error_type: str | None
    message: str
    """The error without its numbers, ids and quoted values, which are `…`. The filter `message` takes it."""
    count: int
    first_at: datetime
    """When the first of them died."""
    last_at: datetime
    example: Example
    """The newest of them."""
    error: str
    """The error of the example."""


class DeadLetterGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters by error, the largest group first."""

    groups: tuple[DeadLetterGroup, ...]
    count: int
    """Dead letters that were grouped: the newest that match."""
    more: bool
    """There are more, which are not in the groups."""


def message_of(error: str) -> str:
    """Return the first line of an error without its numbers, ids and quoted values. What it returns is not changed by it."""
    lines = error.strip().split("\n", 1)
    return _VALUES.sub(GAP, " ".join(lines[0].split())[:MESSAGE_MAX])


def grouped(dead: Iterable[tuple[Job, str]], *, more: bool) -> DeadLetterGroups:
    """Return dead letters, newest first, each with its error, by error."""
    found: dict[tuple[str, str | None, str], list[tuple[Job, str]]] = {}
    for job, error in dead:
        found.setdefault((job.job_type, job.error_type, message_of(error)), []).append((job, error))
    groups = [_group(message, same) for (_, _, message), same in found.items()]
    groups.sort(key=lambda group: (-group.count, group.job_type, group.message))
    return DeadLetterGroups(groups=tuple(groups), count=sum(group.count for group in groups), more=more)


def _group(message: str, dead: list[tuple[Job, str]]) -> DeadLetterGroup:
    newest, error = dead[0]
    times = [job.finished_at or job.created_at for job, _ in dead]
    return DeadLetterGroup(
        job_type=newest.job_type,
        error_type=newest.error_type,
        message=message,
        count=len(dead),
        first_at=min(times),
        last_at=max(times),
        example=Example(id=newest.id, number=newest.number, job_type=newest.job_type),
        error=error,
    )
