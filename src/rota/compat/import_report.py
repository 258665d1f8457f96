"""The report of an import."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Progress = Callable[[str, int, int | None], None]
"""Called with the step (`checking`, `importing`), the number of documents done, and the number of all if it is known."""


class Bad(msgspec.Struct, frozen=True):
    """A line that can't be imported, and why."""

    line: int
    why: str


class Imported(msgspec.Struct, kw_only=True):
    """The outcomes of the documents of an import, or those that it would have."""

    documents: int = 0
    """How many were read, bad ones included."""
    waiting: int = 0
    recovered: int = 0
    """Were being processed: that attempt counts as a crash, and the job waits."""
    dead: int = 0
    cancelled: int = 0
    completed: int = 0
    """Imported as history."""
    left_out: int = 0
    """Completed ones, which are imported only if asked for."""
    already: int = 0
    """In the store since an earlier import."""
    key_taken: int = 0
    """Left out because a live job holds their unique key."""
    schedules: dict[str, str] = msgspec.field(default_factory=dict)
    """What recurs: the names of its schedules and when they are due. One of which an attempt was under way counts above, too."""
    zone_assumed: list[str] = msgspec.field(default_factory=list)
    """Those of the schedules whose documents name no time zone: `timezone` was taken, or UTC."""
    templates_made: list[str] = msgspec.field(default_factory=list)
    unknown_fields: list[str] = msgspec.field(default_factory=list)
    """Fields that were not understood and not kept."""
    bad: list[Bad] = msgspec.field(default_factory=list)
    """The first hundred."""
    bad_count: int = 0
    dry_run: bool = False
