"""What templates allow of submissions, in SQL: the same params once in a window, so many jobs in a window."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.errors import DuplicateJob, RateLimited
from rota.model.values import SECOND, Instant, NewRow, dashed, moment
from rota.stores.verbs import edges
from rota.stores.verbs.db import Db
from rota.stores.verbs.queue import blob

AHEAD_MAX = 60 * SECOND
"""How much later than this caller's the clock of one may be that was before it: it has waited for the store, or their machines differ."""


class Counted(msgspec.Struct):
    """How many of one organization and type were submitted inside the window, and how many this call has added."""

    window: Instant
    before: int
    added: int = 0


class Submissions:
    """The rows of one call: each is asked for before it is written, and noted after. A refusal undoes the whole call."""

    def __init__(self, db: Db, rows: Sequence[NewRow], now: Instant) -> None:
        """Take the rows of the call; nothing is read before a row needs it."""
        self._db = db
        self._rows = rows
        self._now = now
        self._counts: dict[str, Counted] = {}
        self._noted: set[str] = set()

    def admit(self, row: NewRow) -> None:
        """Refuse a row that is a duplicate, or one too many."""
        if row.job_hash is not None and row.dedup_window:
            self._refuse_duplicate(row)
        if row.submit_limit is not None:
            self._count(row)

    def note(self, row: NewRow) -> None:
        """Remember a row that was written."""
        if row.job_hash is None or not row.dedup_window:
            return
        self._noted.add(row.job_id)
        expires_at = self._now + row.dedup_window
        self._db.change("remember_hash", **_hash_key(row), job_id=bytes.fromhex(row.job_id), expires_at=expires_at)

    def close(self) -> None:
        """Note how many were added, and forget what is older than the window."""
        for key, counted in self._counts.items():
            if counted.added:
                self._db.change("forget_submissions", key=key, since=self._now - counted.window)
                self._db.change("log_submissions", key=key, now=self._now, count=counted.added)

    def _refuse_duplicate(self, row: NewRow) -> None:
        # A window that ends later than one opened now was opened by a clock that was ahead.
        until = self._now + (row.dedup_window or 0) + AHEAD_MAX
        known = self._db.row("duplicate_of", **_hash_key(row), now=self._now, until=until)
        if known is None:
            return
        job_id, expires_at = known
        if job_id in self._noted:
            raise DuplicateJob(f"the same params stand twice in one call, and {row.job_type!r} refuses duplicates: leave one of them out")
        job = edges.chains(self._db, (job_id,), row.organization_id).get(job_id)
        if job is None:
            # Removed meanwhile: there is nothing to be a duplicate of.
            return
        raise DuplicateJob(
            f"the same params of {row.job_type!r} were submitted as {job.number} ({dashed(job_id)}), which is {job.status}: "
            f"they are refused until {moment(expires_at):%Y-%m-%dT%H:%M:%SZ}",
            dashed(job_id),
        )

    def _count(self, row: NewRow) -> None:
        assert row.submit_limit is not None  # noqa: S101 - the caller looked
        key, window = _submit_key(row), row.submit_window or SECOND
        counted = self._counts.get(key)
        if counted is None:
            before = int(self._db.value("submitted", key=key, **_around(self._now, window)))
            counted = self._counts[key] = Counted(window, before)
        if counted.before + counted.added >= row.submit_limit:
            raise self._too_many(row, key, counted)
        counted.added += 1

    def _too_many(self, row: NewRow, key: str, counted: Counted) -> RateLimited:
        limit, wanted = row.submit_limit or 0, sum(_submit_key(each) == key for each in self._rows)
        rule = f"{row.job_type!r} takes at most {limit:,} jobs in {counted.window / SECOND:g} s"
        if wanted > limit:
            return RateLimited(f"{rule}, and this call has {wanted:,}: give at most {limit:,} at once", counted.window / SECOND)
        at = self._room_at(key, counted, need=counted.before + wanted - limit)
        # A caller that waited for the lock comes with an earlier now than those it waited for.
        left_s = min(counted.window, at - self._now) / SECOND
        return RateLimited(
            f"{rule}, and {counted.before:,} were submitted: try again in {left_s:.3g} s, at {moment(at):%Y-%m-%dT%H:%M:%S.%fZ}", left_s
        )

    def _room_at(self, key: str, counted: Counted, *, need: int) -> Instant:
        """Return when so many will have left the window."""
        at = self._now
        for at, count in self._db.rows("submissions", key=key, **_around(self._now, counted.window)):  # noqa: B007 - the last one counts
            need -= count
            if need <= 0:
                break
        return int(at) + counted.window


def _around(now: Instant, window: Instant) -> dict[str, Instant]:
    """Return which submissions count: those of the window. What is further ahead than it is long was noted by a clock that was wrong."""
    return {"since": now - window, "until": now + window}


def _hash_key(row: NewRow) -> dict[str, object]:
    return {"organization_id": row.organization_id, "template_id": blob(row.template_id) or b"", "hash": blob(row.job_hash)}


def _submit_key(row: NewRow) -> str:
    return f"submit:{row.organization_id}:{row.job_type}"
