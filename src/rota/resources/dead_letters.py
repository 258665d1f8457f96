"""Dead letters: chains that failed permanently."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Annotated

from rota.engine.retention import add, remove_logs
from rota.errors import AlreadyEnded, KeyTaken, NotFound, StillLive, StillNeeded
from rota.model.checks import whole
from rota.model.dead_letters import DeadLetterGroups, grouped, message_of
from rota.model.gate import Right
from rota.model.shapes import TEXT_MAX, Limit, Shape
from rota.model.states import ErrorType, Status
from rota.model.values import Job, Purged, undashed
from rota.operation import Ask, Resource, operation
from rota.ports.store import Store, Where
from rota.resources.filters import LIST_MAX, check_place, error_word, named_by, page_of, refuse_empty, refuse_unfiltered
from rota.resources.jobs import MANY_MAX, All, Cursor, Error, JobType, OfOrganization, Text
from rota.results import Page

PAGE = 500
"""Rows whose errors are read at once."""
MESSAGE_LOOK = 10_000
"""Dead letters whose errors one page of a list compares with a message, about; the next page continues there."""

Message = Annotated[
    str | None,
    Shape("Only those with this error, whatever its numbers, ids and quoted values: `message` of a group.", metavar="TEXT", most=TEXT_MAX),
]
Look = Annotated[int, Shape("Dead letters that are grouped at most: the newest.", 5000, "N")]


class DeadLetters(Resource):
    """Chains that ended DEAD_LETTER, by their last job."""

    __slots__ = ()

    @operation(Right.READ, http="GET /dead-letters", cli="dead list")
    def list(
        self,
        ask: Ask,
        *,
        job_type: JobType = None,
        error_type: Error = None,
        text: Text = None,
        message: Message = None,
        organization: OfOrganization = None,
        limit: Limit = 100,
        before: Cursor = None,
    ) -> Page[Job]:
        """Return the chains that ended DEAD_LETTER, by their last job, newest first. A chain that was retried is not among them."""
        where = _where(ask, job_type, error_type, text, organization)
        if message is None:
            return page_of(ask.store, where, limit, before)
        whole("limit", limit, least=1, most=LIST_MAX)
        if before is not None:
            check_place(before)
        return _page_with(ask.store, where, message_of(message), limit, before)

    @operation(Right.READ, http="GET /dead-letters/groups", cli="dead groups")
    def groups(
        self,
        ask: Ask,
        *,
        job_type: JobType = None,
        error_type: Error = None,
        text: Text = None,
        organization: OfOrganization = None,
        look: Look = 5000,
    ) -> DeadLetterGroups:
        """Return the newest dead letters by type and error, the largest group first. Errors that differ in values only are one group."""
        whole("look", look, least=1, most=LIST_MAX)
        rows = ask.store.find(_where(ask, job_type, error_type, text, organization), limit=look + 1)
        return grouped(_with_errors(ask.store, rows[:look]), more=len(rows) > look)

    @operation(Right.STEER, http="POST /dead-letters/retry", cli="dead retry", confirm="Retry every dead letter that matches?")
    def retry(
        self,
        ask: Ask,
        *,
        job_type: JobType = None,
        error_type: Error = None,
        text: Text = None,
        message: Message = None,
        organization: OfOrganization = None,
        all: All = False,  # noqa: A002 - the word that every surface has for it
        limit: Limit = 1000,
    ) -> builtins.list[Job]:
        """Retry every dead letter that matches, newest first, at most `limit`. Returns the new jobs.

        Without a filter, `all` must be set. A dead letter whose unique key another job has taken is left as it is.
        """
        where = _where(ask, job_type, error_type, text, organization)
        who, store = ask.who, ask.store
        whole("limit", limit, least=1, most=MANY_MAX)
        refuse_empty(None, text)
        refuse_unfiltered(job_type, error_type, text, message, organization, everything=all)
        retried: builtins.list[Job] = []
        for _, job in _each(store, where, message):
            if len(retried) == limit:
                break
            now = ask.now
            try:
                retried.append(store.retry(str(undashed(job.id)), new_id=ask.session.ids.take(1, now)[0], actor=who, now=now))
            except (StillLive, AlreadyEnded, KeyTaken, NotFound):
                # Somebody else was quicker, or its key belongs to another by now.
                continue
        ask.session.poke()
        return retried

    @operation(
        Right.DELETE,
        http="POST /dead-letters/delete",
        cli="dead delete",
        confirm="Delete every dead letter that matches, with its runs and its logs, for good?",
    )
    def delete(
        self,
        ask: Ask,
        *,
        job_type: JobType = None,
        error_type: Error = None,
        text: Text = None,
        message: Message = None,
        organization: OfOrganization = None,
        all: All = False,  # noqa: A002 - the word that every surface has for it
        limit: Limit = 1000,
    ) -> Purged:
        """Delete every dead letter that matches, newest first, at most `limit`. Those that others need are kept, and counted as kept.

        Without a filter, `all` must be set.
        """
        where = _where(ask, job_type, error_type, text, organization)
        who, opened = ask.who, ask.opened
        whole("limit", limit, least=1, most=MANY_MAX)
        refuse_empty(None, text)
        refuse_unfiltered(job_type, error_type, text, message, organization, everything=all)
        done = Purged()
        for _, job in _each(opened.store, where, message):
            if done.chains == limit:
                break
            try:
                gone = opened.store.discard(str(undashed(job.id)), actor=who, now=ask.now)
            except StillNeeded:
                done.kept += 1
            except (StillLive, NotFound):
                continue
            else:
                remove_logs(opened.log_dir, gone.run_ids)
                add(done, gone)
        return done


def _each(store: Store, where: Where, message: str | None, before: int | None = None) -> Iterator[tuple[int, Job]]:
    """Go through all that match, page by page: a change of one does not shift the next."""
    wanted = None if message is None else message_of(message)
    while page := store.find(where, limit=PAGE, before=before):
        before = page[-1][0]
        errors = None if wanted is None else [message_of(error) for _, error in _with_errors(store, page)]
        yield from (row for place, row in enumerate(page) if errors is None or errors[place] == wanted)


def _page_with(store: Store, where: Where, message: str, limit: int, before: int | None) -> Page[Job]:
    found: builtins.list[tuple[int, Job]] = []
    looked = 0
    while page := store.find(where, limit=PAGE, before=before):
        before = page[-1][0]
        looked += len(page)
        errors = (message_of(error) for _, error in _with_errors(store, page))
        found += [row for row, error in zip(page, errors, strict=True) if error == message]
        if len(found) > limit:
            return Page([job for _, job in found[:limit]], next_=found[limit - 1][0])
        if looked >= MESSAGE_LOOK:
            return Page([job for _, job in found], next_=before)
    return Page([job for _, job in found])


def _with_errors(store: Store, rows: builtins.list[tuple[int, Job]]) -> builtins.list[tuple[Job, str]]:
    """Return jobs with what they died of."""
    errors = {} if not rows else store.errors([number for number, _ in rows])
    return [(job, errors.get(number) or job.reason or "") for number, job in rows]


def _where(ask: Ask, job_type: str | None, error_type: ErrorType | str | None, text: str | None, organization: str | None) -> Where:
    return Where(
        scope=ask.scope,
        status=(str(Status.DEAD_LETTER),),
        job_type=job_type,
        organization=organization,
        text=text,
        named=None if text is None else named_by(ask, text),
        error_type=None if error_type is None else error_word(error_type),
        tails=True,
    )
