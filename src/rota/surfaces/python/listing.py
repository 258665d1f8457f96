"""Lists and history: pages of jobs, figures, logs, and what people changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from rota.errors import InvalidOption
from rota.model.checks import whole
from rota.model.gate import Actor, Operation
from rota.model.states import ErrorType, Status
from rota.model.values import Audited, Group, Job, JobRef, Stats, undashed
from rota.ports.store import Where
from rota.surfaces.python.declaring import Declaring
from rota.surfaces.python.moments import ago
from rota.surfaces.python.results import Log, Page, log_of

LIST_MAX = 100_000
"""Rows of one page, at most: more are read page by page."""


class Listing(Declaring):
    """The part of Rota that lists and counts."""

    def find(
        self,
        *,
        status: Status | str | Sequence[str] | None = None,
        job_type: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        organization: str | None = None,
        owner: str | None = None,
        group: str | Group | None = None,
        chain: JobRef | None = None,
        schedule: str | None = None,
        text: str | None = None,
        error_type: ErrorType | str | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        limit: int = 100,
        before: int | None = None,
        actor: Actor | str | None = None,
    ) -> Page[Job]:
        """Return a page of jobs, newest first, that match every filter given; `before=page.next` is the page after it.

        `since` and `until` are about when a job was made: an aware datetime, or how long ago. `text` is looked for in params,
        type, key, reason and error. A `schedule` is named, or given by its id if it was deleted.
        """
        said = (job_type, organization, owner, text)
        where = self._where(
            Operation.READ,
            actor,
            said,
            status=status,
            group=group,
            chain=chain,
            schedule=schedule,
            error_type=error_type,
            made=(since, until),
        )
        if queue is not None or tag is not None:
            where = msgspec.structs.replace(where, queue=queue, tag=tag)
        return self._page(where, limit, before)

    def _where(
        self,
        operation: Operation,
        actor: Actor | str | None,
        said: tuple[str | None, str | None, str | None, str | None],
        *,
        status: Status | str | Sequence[str] | None,
        group: str | Group | None,
        chain: JobRef | None,
        schedule: str | None,
        error_type: ErrorType | str | None,
        made: tuple[datetime | timedelta | None, datetime | timedelta | None],
    ) -> Where:
        """Return what people ask for, as the store takes it; `said` are texts that it takes as they are."""
        (job_type, organization, owner, text), (since, until) = said, made
        now = self._session.clock.now()
        return Where(
            scope=self._session.scope(actor, operation),
            status=_statuses(status),
            job_type=job_type,
            organization=organization,
            owner=owner,
            group_id=None if group is None else self._session.group_id(group),
            root_id=None if chain is None else self._root(chain, actor),
            schedule_id=None if schedule is None else self._schedule_id(schedule, organization, actor),
            text=text,
            error_type=error_word(error_type),
            created_from=None if since is None else ago("since", since, now),
            created_until=None if until is None else ago("until", until, now),
        )

    def _page(self, where: Where, limit: int, before: int | None) -> Page[Job]:
        whole("limit", limit, least=1, most=LIST_MAX)
        if before is not None:
            whole("before", before, least=1)
        # One more than is shown says whether there is a next page.
        found = self._session.open().store.find(where, limit=limit + 1, before=before)
        return Page([job for _, job in found[:limit]], next_=found[limit - 1][0] if len(found) > limit else None)

    def _root(self, given: JobRef, actor: Actor | str | None) -> str:
        job = self._session.open().store.job(self._session.reach(given, actor, Operation.READ))
        if job is None:
            raise self._session.no_job(given)
        return str(undashed(job.root_id))

    def _schedule_id(self, given: str, organization: str | None, actor: Actor | str | None) -> str:
        return undashed(given) or self._named(given, actor, Operation.READ, organization).id

    def stats(self, *, hours: int | None = None, actor: Actor | str | None = None) -> Stats:
        """Return counts by state, priority and type, ages, and how types fared in the last hours (setting stats_hours)."""
        scope = self._session.scope(actor, Operation.READ_STATS)
        back = self.settings.stats_hours if hours is None else whole("hours", hours, least=1, most=9600)
        return self._session.open().store.stats(now=self._session.clock.now(), hours=back, scope=scope)

    def log(self, job_id: JobRef, *, actor: Actor | str | None = None) -> Log:
        """Return the log of this very job: its moves and its handler's lines."""
        found, opened = self._session.reach(job_id, actor, Operation.READ_LOG), self._session.open()
        job = opened.store.job(found)
        if job is None:
            raise self._session.no_job(job_id)
        moves = [move for move in opened.store.log(found) if move.attempt == job.attempt]
        return log_of(moves, {job.attempt: opened.store.run(found)}, opened.log_dir)

    def timeline(self, job_id: JobRef, *, actor: Actor | str | None = None) -> Log:
        """Return the log of the whole chain this id belongs to: every attempt's moves and lines, in the order of time."""
        found, opened = self._session.reach(job_id, actor, Operation.READ_LOG), self._session.open()
        moves = opened.store.log(found)
        if not moves:
            raise self._session.no_job(job_id)
        runs = {job.attempt: opened.store.run(str(undashed(job.id))) for job in opened.store.chain(found)}
        return log_of(moves, runs, opened.log_dir, numbered=True)

    def audit(
        self,
        *,
        subject: str | None = None,
        limit: int = 100,
        before: int | None = None,
        actor: Actor | str | None = None,
    ) -> Page[Audited]:
        """Return what people changed, newest first.

        `subject` narrows it to a kind of thing (`job`, `template`, …) or to one (`job:JOB-2026-00042`, `template:send_email`).
        """
        scope = self._session.scope(actor, Operation.READ_AUDIT)
        whole("limit", limit, least=1, most=LIST_MAX)
        store, wanted = self._session.open().store, None if subject is None else self._subject(subject, actor)
        found = store.audit(limit=limit + 1, before=before, scope=scope, subject=wanted)
        return Page(found[:limit], next_=found[limit - 1].id if len(found) > limit else None)

    def _subject(self, given: str, actor: Actor | str | None) -> str:
        kind, colon, name = given.partition(":")
        if kind == "job" and colon:
            return f"job:{self._session.reach(name, actor, Operation.READ)}"
        return given


def _statuses(given: Status | str | Sequence[str] | None) -> tuple[str, ...]:
    wanted = (given,) if isinstance(given, str) else tuple(given or ())
    for each in wanted:
        if each not in set(Status):
            raise InvalidOption(f"status {each!r} is not one of {', '.join(Status)}")
    return tuple(map(str, wanted))


def error_word(given: ErrorType | str | None) -> str | None:
    """Return an error type as the store keeps it."""
    if given is not None and given not in set(ErrorType):
        raise InvalidOption(f"error_type {given!r} is not one of {', '.join(ErrorType)}")
    return None if given is None else str(given)
