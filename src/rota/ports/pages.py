"""Lists of a store that are read to their end, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator

from rota.model.values import Job
from rota.ports.schedules import Ledger, Occurrence, cursor_of
from rota.ports.store import Store, Where

PAGE = 1000
"""Rows that are read at once."""


def each_job(store: Store, where: Where) -> Iterator[Job]:
    """Go through all jobs that match, newest first. A change of one does not shift the next."""
    cursor, page = None, store.find(where, limit=PAGE)
    while page:
        for cursor, job in page:  # noqa: B007 - the last one is where the next page begins
            yield job
        page = store.find(where, limit=PAGE, before=cursor) if len(page) == PAGE else []


def each_occurrence(store: Store, ledger: Ledger) -> Iterator[Occurrence]:
    """Go through all rows of a ledger, latest due time first."""
    page = store.occurrences(ledger, limit=PAGE)
    while page:
        yield from page
        page = store.occurrences(ledger, limit=PAGE, before=cursor_of(page[-1])) if len(page) == PAGE else []
