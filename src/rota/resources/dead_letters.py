"""Dead letters: chains that failed permanently."""

from __future__ import annotations

import builtins
from typing import Annotated

from rota.engine.retention import add, remove_logs
from rota.errors import AlreadyEnded, KeyTaken, NotFound, StillLive, StillNeeded
from rota.model.checks import whole
from rota.model.gate import Right
from rota.model.shapes import Limit, Shape
from rota.model.states import ErrorType, Status
from rota.model.values import Job, Purged, undashed
from rota.operation import Ask, Resource, operation
from rota.ports.pages import each_job
from rota.ports.store import Where
from rota.resources.filters import error_word, named_by, page_of, refuse_empty, refuse_unfiltered
from rota.resources.jobs import MANY_MAX, Cursor, Error, JobType, OfOrganization, Text
from rota.results import Page

All = Annotated[bool, Shape("Every dead letter: needed if no filter is given.")]


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
        organization: OfOrganization = None,
        limit: Limit = 100,
        before: Cursor = None,
    ) -> Page[Job]:
        """Return the chains that ended DEAD_LETTER, by their last job, newest first. A chain that was retried is not among them."""
        return page_of(ask.store, _where(ask, job_type, error_type, text, organization), limit, before)

    @operation(Right.STEER, http="POST /dead-letters/retry", cli="dead retry", confirm="Retry every dead letter that matches?")
    def retry(
        self,
        ask: Ask,
        *,
        job_type: JobType = None,
        error_type: Error = None,
        text: Text = None,
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
        refuse_unfiltered(job_type, error_type, text, organization, everything=all)
        retried: builtins.list[Job] = []
        for job in each_job(store, where):
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
        refuse_unfiltered(job_type, error_type, text, organization, everything=all)
        done = Purged()
        for job in each_job(opened.store, where):
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
