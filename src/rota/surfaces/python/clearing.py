"""Clearing up: dead letters, and what is old or not wanted any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from rota.engine.retention import Retention, add, remove_logs
from rota.errors import AlreadyEnded, InvalidOption, KeyTaken, NotFound, StillLive, StillNeeded
from rota.model import checks
from rota.model.checks import whole
from rota.model.gate import Actor, Right
from rota.model.states import MOVES, ErrorType, Status
from rota.model.values import SECOND, Group, Job, JobRef, Purged, undashed
from rota.ports.store import Where
from rota.surfaces.python.listing import Listing, error_word
from rota.moments import age_us
from rota.results import Acted, Page

PAGE = 500
MANY_MAX = 1_000_000
LEFT_MAX = 10_000
"""How many that are left are counted."""


class Clearing(Listing):
    """The part of Rota that goes through what is over."""

    def dead_letters(
        self,
        *,
        job_type: str | None = None,
        error_type: ErrorType | str | None = None,
        text: str | None = None,
        organization: str | None = None,
        limit: int = 100,
        before: int | None = None,
        actor: Actor | str | None = None,
    ) -> Page[Job]:
        """Return the chains that ended DEAD_LETTER, by their last job, newest first. One that was retried is none any more."""
        where = self._dead(Right.READ, actor, job_type=job_type, error_type=error_type, text=text, organization=organization)
        return self._page(where, limit, before)

    def retry_dead(
        self,
        *,
        job_type: str | None = None,
        error_type: ErrorType | str | None = None,
        text: str | None = None,
        organization: str | None = None,
        limit: int = 1000,
        actor: Actor | str | None = None,
    ) -> list[Job]:
        """Retry every dead letter that matches, newest first, at most `limit`; return the new jobs. Where a key is taken, it stays dead."""
        where = self._dead(Right.STEER, actor, job_type=job_type, error_type=error_type, text=text, organization=organization)
        who, store = self._session.actor(actor), self._session.open().store
        whole("limit", limit, least=1, most=MANY_MAX)
        retried: list[Job] = []
        for job_id in self._each(where):
            if len(retried) == limit:
                break
            now = self._session.clock.now()
            try:
                retried.append(store.retry(job_id, new_id=self._session.ids.take(1, now)[0], actor=who, now=now))
            except (StillLive, AlreadyEnded, KeyTaken, NotFound):
                # Somebody else was quicker, or its key belongs to another by now.
                continue
        self._session.poke()
        return retried

    def cancel_all(
        self,
        *,
        status: Status | str | Sequence[str] | None = None,
        job_type: str | None = None,
        organization: str | None = None,
        owner: str | None = None,
        group: str | Group | None = None,
        chain: JobRef | None = None,
        schedule: str | None = None,
        text: str | None = None,
        error_type: ErrorType | str | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        limit: int = 1000,
        actor: Actor | str | None = None,
    ) -> Acted:
        """Cancel every live job that matches, newest first, at most `limit`; say how many that was, and how many still match.

        The filters are those of `find`. One that runs is asked to stop, once.
        """
        said = (job_type, organization, owner, text)
        where = self._where(
            Right.CANCEL,
            actor,
            said,
            status=status,
            group=group,
            chain=chain,
            schedule=schedule,
            error_type=error_type,
            made=(since, until),
        )
        whole("limit", limit, least=1, most=MANY_MAX)
        live = tuple(each for each in map(str, MOVES) if not where.status or each in where.status)
        return self._cancel(msgspec.structs.replace(where, status=live), limit, reason, actor) if live else Acted(0, 0)

    def _cancel(self, where: Where, limit: int, reason: str | None, actor: Actor | str | None) -> Acted:
        who, store, said = self._session.actor(actor), self._session.open().store, checks.reason(reason)
        done = left = 0
        for job in self._each_job(where):
            if job.cancel_requested_at is not None:
                continue
            if done == limit:
                left += 1
                if left == LEFT_MAX:
                    break
                continue
            with suppress(AlreadyEnded, NotFound):
                store.cancel(str(undashed(job.id)), actor=who, now=self._session.clock.now(), reason=said)
                done += 1
        self._session.poke()
        return Acted(done, left, more=left == LEFT_MAX)

    def discard(self, job_id: JobRef, *, actor: Actor | str | None = None) -> Purged:
        """Remove one ended chain with its runs and logs, for good."""
        found, opened = self._session.reach(job_id, actor, Right.DELETE), self._session.open()
        gone = opened.store.discard(found, actor=self._session.actor(actor), now=self._session.clock.now())
        remove_logs(opened.log_dir, gone.run_ids)
        return gone

    def discard_dead(
        self,
        *,
        job_type: str | None = None,
        error_type: ErrorType | str | None = None,
        text: str | None = None,
        organization: str | None = None,
        limit: int = 1000,
        actor: Actor | str | None = None,
    ) -> Purged:
        """Remove every dead letter that matches, newest first, at most `limit`. Those that others need are kept, and counted so."""
        where = self._dead(Right.DELETE, actor, job_type=job_type, error_type=error_type, text=text, organization=organization)
        whole("limit", limit, least=1, most=MANY_MAX)
        done = Purged()
        for job_id in self._each(where):
            if done.chains == limit:
                break
            try:
                add(done, self.discard(job_id, actor=actor))
            except StillNeeded:
                done.kept += 1
            except (StillLive, NotFound):
                continue
        return done

    def purge(
        self,
        *,
        older_than: timedelta | float | None = None,
        dry_run: bool = False,
        trust_clock: bool = False,
        progress: Callable[[Purged], object] | None = None,
        actor: Actor | str | None = None,
    ) -> Purged:
        """Remove chains that ended longer ago than this (in seconds; the setting `retention` if it is not given), with runs and logs.

        What others need stays. It goes batch by batch, so workers go on meanwhile; `progress` is called after each with the
        sum so far. With `dry_run` nothing is removed, only counted. If the clock is far past the last moment at which it was trusted,
        ClockInDoubt is raised, which names both; `trust_clock=True` says that it is right, and workers trust it then, too.
        """
        self._session.scope(actor, Right.DELETE)
        if older_than is None and not self.settings.retention:
            raise InvalidOption("retention is off (setting retention=0): say what is old with older_than=…")
        age = round(self.settings.retention * SECOND) if older_than is None else age_us("older_than", older_than)
        opened = self._session.open()
        opened.store.crowd(crowded=bool(opened.store.workers()))
        retention = Retention(opened.store, clock=self._session.clock, settings=self.settings, log_dir=opened.log_dir, trust=opened.trust)
        return retention.purge(older_than=age, dry_run=dry_run, trust_clock=trust_clock, progress=progress)

    def _dead(
        self,
        operation: Right,
        actor: Actor | str | None,
        *,
        job_type: str | None,
        error_type: ErrorType | str | None,
        text: str | None,
        organization: str | None,
    ) -> Where:
        return Where(
            scope=self._session.scope(actor, operation),
            status=(str(Status.DEAD_LETTER),),
            job_type=job_type,
            organization=organization,
            text=text,
            error_type=error_word(error_type),
            tails=True,
        )

    def _each(self, where: Where) -> Iterator[str]:
        """Go through the ids of all that match, page by page: what is done to one does not shift the next."""
        return (str(undashed(job.id)) for job in self._each_job(where))

    def _each_job(self, where: Where) -> Iterator[Job]:
        store, cursor = self._session.open().store, None
        while page := store.find(where, limit=PAGE, before=cursor):
            cursor = page[-1][0]
            for _, job in page:
                yield job
