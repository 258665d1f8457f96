"""Jobs: find, read and change them."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from rota.engine.recorded_params import encode_recorded
from rota.engine.retention import remove_logs
from rota.errors import AlreadyEnded, InvalidOption, NotFound, Refused
from rota.model import checks
from rota.model.checks import when, whole
from rota.model.dependencies import Graph, parent_rule
from rota.model.gate import EVERYTHING, Right
from rota.model.groups import Group
from rota.model.kinds import is_kind
from rota.model.ordering import priority_of
from rota.model.params import decode_params, encode_params
from rota.model.secret_params import SECRET, refuse_mentions
from rota.model.shapes import NAME_MAX, TEXT_MAX, Limit, Organization, Params, Priority, Shape, Span, When
from rota.model.states import MOVES, ErrorType, Status
from rota.model.values import Job, JobRef, Purged, Run, undashed
from rota.operation import Ask, Resource, operation
from rota.ports.pages import each_job
from rota.ports.store import Where
from rota.resources.filters import page_of, refuse_empty, refuse_unfiltered, statuses, where_of
from rota.results import Acted, Log, Page, log_of
from rota.submission import submit

MANY_MAX = 1_000_000
LEFT_MAX = 10_000
"""Matching jobs beyond the limit that are counted."""

Ref = Annotated[JobRef, Shape("The job's id or number.", "JOB-2026-00042", "JOB", wire=str)]
Statuses = Annotated[Status | str | Sequence[str] | None, Shape("Only jobs in one of these states.", "QUEUED", "STATUS", wire=list[str])]
JobType = Annotated[str | None, Shape("Only jobs of this template.", "send_email", "TYPE", option="type", most=NAME_MAX)]
Queue = Annotated[str | None, Shape("Only jobs of this queue.", "mail", "QUEUE", most=NAME_MAX)]
Tag = Annotated[str | None, Shape("Only jobs with this tag.", "eu", "TAG", most=NAME_MAX)]
Since = Annotated[datetime | timedelta | None, Shape("Created after this moment, or at most this long ago.", "2h", "TIME", wire=str)]
Until = Annotated[datetime | timedelta | None, Shape("Created before this moment, or at least this long ago.", "1h", "TIME", wire=str)]
OfOrganization = Annotated[str | None, Shape("Only jobs of this organization.", "acme", "NAME", most=NAME_MAX)]
Owner = Annotated[str | None, Shape("Only jobs that this user owns.", "ada", "USER", most=NAME_MAX)]
OfGroup = Annotated[str | Group | None, Shape("Only members of this group.", metavar="ID", wire=str, most=NAME_MAX)]
OfChain = Annotated[JobRef | None, Shape("Only attempts of this job.", metavar="JOB", wire=str, most=NAME_MAX)]
OfSchedule = Annotated[
    str | None, Shape("Only jobs of this schedule: its name, or its id if it was deleted.", "daily", "NAME", most=NAME_MAX)
]
Error = Annotated[ErrorType | str | None, Shape("Only jobs with this type of error.", "timeout", "TYPE")]
All = Annotated[bool, Shape("Everything: needed if no filter is given.")]
Reason = Annotated[str | None, Shape("Why; recorded with the job.", "wrong address", "TEXT", most=checks.REASON_MAX)]
Cursor = Annotated[int | None, Shape("Continue after this place: `next` of the previous page.", metavar="CURSOR")]
Replaced = Annotated[Any, Shape("Params that replace those of the job that have the same names.", {"to": "ada@example.com"}, "JSON")]
Text = Annotated[str | None, Shape("Text in params, type, key, reason or error, or a job's number or id.", metavar="TEXT", most=TEXT_MAX)]


class Jobs(Resource):
    """Jobs of every state."""

    __slots__ = ()

    @operation(Right.READ, http="GET /jobs", cli="job list")
    def list(
        self,
        ask: Ask,
        *,
        status: Statuses = None,
        job_type: JobType = None,
        queue: Queue = None,
        tag: Tag = None,
        organization: OfOrganization = None,
        owner: Owner = None,
        group: OfGroup = None,
        chain: OfChain = None,
        schedule: OfSchedule = None,
        text: Text = None,
        error_type: Error = None,
        since: Since = None,
        until: Until = None,
        limit: Limit = 100,
        before: Cursor = None,
    ) -> Page[Job]:
        """Return jobs, newest first, that match every filter given. Each attempt is a job of its own.

        The result is one page; `before` continues after it, with `next` of the page.
        """
        where = where_of(
            ask,
            status=status,
            job_type=job_type,
            queue=queue,
            tag=tag,
            organization=organization,
            owner=owner,
            group=group,
            chain=chain,
            schedule=schedule,
            text=text,
            error_type=error_type,
            since=since,
            until=until,
        )
        return page_of(ask.store, where, limit, before)

    @operation(Right.READ, http="GET /jobs/{job}", cli="job get", etag=True)
    def get(self, ask: Ask, job: Ref) -> Job:
        """Return one job: this very attempt, by its id or its number, such as JOB-2026-00042."""
        return ask.found(job)

    @operation(Right.READ, http="GET /jobs/{job}/attempts", cli="job attempts")
    def attempts(self, ask: Ask, job: Ref) -> builtins.list[Job]:
        """Return every attempt of the chain that this job belongs to, first to last."""
        chain = ask.store.chain(ask.job(job))
        if not chain:
            raise ask.session.no_job(job)
        return chain

    @operation(Right.READ, http="GET /jobs/{job}/runs", cli="job runs")
    def runs(self, ask: Ask, job: Ref) -> builtins.list[Run]:
        """Return the runs of the chain that this job belongs to, first to last: one for each attempt that was started."""
        store = ask.store
        runs = (store.run(str(undashed(attempt.id))) for attempt in store.chain(ask.job(job)))
        return [run for run in runs if run is not None]

    @operation(Right.READ_LOG, http="GET /jobs/{job}/log", cli="job log")
    def log(self, ask: Ask, job: Ref, *, chain: Annotated[bool, Shape("Include every attempt of the chain.")] = False) -> Log:
        """Return the log of this attempt, or of the whole chain: state changes and the handler's lines, in the order of time."""
        found, store = ask.found(job), ask.store
        job_id = str(undashed(found.id))
        moves, logs = store.log(job_id), ask.opened.logs(ask.settings)
        if chain:
            runs = ((attempt, store.run(str(undashed(attempt.id)))) for attempt in store.chain(job_id))
            return log_of(moves, runs, logs, numbered=True)
        own = [move for move in moves if move.attempt == found.attempt]
        return log_of(own, [(found, store.run(job_id))], logs)

    @operation(Right.READ, http="GET /jobs/{job}/graph", cli="job graph")
    def graph(self, ask: Ask, job: Ref) -> Graph:
        """Return the chains that this one waits for and those that wait for it, near and far, each with its last attempt."""
        graph = ask.store.graph(ask.job(job), limit=ask.settings.graph_max)
        if graph is None:
            raise ask.session.no_job(job)
        if ask.scope is EVERYTHING:
            return graph
        jobs = {root: each for root, each in graph.jobs.items() if ask.scope.holds(each.organization, each.owner, each.schedule_id)}
        edges = tuple(edge for edge in graph.edges if edge.child in jobs and edge.parent in jobs)
        return msgspec.structs.replace(graph, jobs=jobs, edges=edges)

    @operation(Right.STEER, http="PATCH /jobs/{job}", cli="job update", etag=True)
    def update(
        self,
        ask: Ask,
        job: Ref,
        *,
        priority: Priority | str | None = None,
        params: Params | None = None,
        run_at: Annotated[When | None, Shape("Not before this moment, or this long from now.", "10m")] = None,
    ) -> Job:
        """Change priority or params of a waiting job, or the time of a PENDING one: all that is given, or nothing."""
        job_id, now = ask.job(job), ask.now
        if priority is None and params is None and run_at is None:
            raise InvalidOption("nothing to change: pass priority=…, params=… or run_at=…")
        store, number = ask.store, None if priority is None else priority_of(priority)
        ask.registry.sync(store, now)
        present = store.job(job_id)
        if present is not None and number is not None:
            _check_priority(ask, present.organization, number)
        if present is not None and params is not None:
            ask.registry.refuse_unfit(ask.who, present.job_type)
        text = None if present is None or params is None else _checked_params(ask, present, params)
        at = None if run_at is None else when(run_at, now)
        put_off = isinstance(run_at, timedelta)
        changed = store.change(
            job_id, actor=ask.who, now=now, priority=number, params=text, run_at=at, put_off=put_off, check=ask.unchanged(job_id)
        )
        ask.session.poke()
        return changed

    @operation(Right.STEER, http="POST /jobs/{job}/depend", cli="job depend")
    def depend(
        self,
        ask: Ask,
        job: Ref,
        on: Annotated[Sequence[Any] | JobRef, Shape("The jobs to wait for.", metavar="JOB", wire=list[str])],
        *,
        on_failure: Annotated[str, Shape("If one of them fails: wait, skip, cancel or run.", "wait", "RULE")] = "wait",
    ) -> Job:
        """Make a PENDING job wait for one more job, or several: their chains must complete before it is queued.

        What it waits for already changes nothing. `on_failure` says what happens to it if one of them ends otherwise.
        """
        child, rule = ask.job(job), parent_rule(on_failure, "on_failure")
        parents = ask.session.submitter.parents(on, ask.who)
        if not parents:
            raise InvalidOption("there is nothing to wait for: pass on=… one job, or several")
        changed = ask.store.add_dependencies(child, parents, on_failure=rule, actor=ask.who, now=ask.now)
        ask.session.poke()
        return changed

    @operation(Right.STEER, http="POST /jobs/{job}/move", cli="job move", etag=True)
    def move(
        self,
        ask: Ask,
        job: Ref,
        *,
        before: Annotated[JobRef | None, Shape("Right before this job.", metavar="JOB", wire=str)] = None,
        after: Annotated[JobRef | None, Shape("Right after this job.", metavar="JOB", wire=str)] = None,
        front: Annotated[bool, Shape("To the front of its priority.")] = False,
    ) -> Job:
        """Reorder a QUEUED job within its priority: to the front, before or after another."""
        job_id = ask.job(job)
        if (before is not None) + (after is not None) + front != 1:
            raise InvalidOption("say where to: pass exactly one of before=…, after=… or front=True")
        return ask.store.move(
            job_id,
            actor=ask.who,
            now=ask.now,
            before=None if before is None else ask.job(before),
            after=None if after is None else ask.job(after),
            front=front,
            check=ask.unchanged(job_id),
        )

    @operation(Right.CANCEL, http="POST /jobs/{job}/cancel", cli="job cancel", etag=True, confirm="Cancel {job} for good?")
    def cancel(self, ask: Ask, job: Ref, *, reason: Reason = None) -> Job:
        """Cancel the chain: at once while it waits, by request while it runs. It is never retried."""
        job_id = ask.job(job)
        cancelled = ask.store.cancel(job_id, actor=ask.who, now=ask.now, reason=checks.reason(reason), check=ask.unchanged(job_id))
        ask.session.poke()
        return cancelled

    @operation(Right.CANCEL, http="POST /jobs/cancel", cli="job cancel-all", confirm="Cancel every job that matches?")
    def cancel_all(
        self,
        ask: Ask,
        *,
        status: Statuses = None,
        job_type: JobType = None,
        queue: Queue = None,
        tag: Tag = None,
        organization: OfOrganization = None,
        owner: Owner = None,
        group: OfGroup = None,
        chain: OfChain = None,
        schedule: OfSchedule = None,
        text: Text = None,
        error_type: Error = None,
        since: Since = None,
        until: Until = None,
        all: All = False,  # noqa: A002 - the word that every surface has for it
        reason: Reason = None,
        limit: Limit = 1000,
    ) -> Acted:
        """Cancel every live job that matches, newest first, at most `limit`. A running job is asked to stop, once.

        The filters are those of `list`; without one, `all` must be set. Returns how many were cancelled, and how many still match.
        """
        where = where_of(
            ask,
            status=status,
            job_type=job_type,
            queue=queue,
            tag=tag,
            organization=organization,
            owner=owner,
            group=group,
            chain=chain,
            schedule=schedule,
            text=text,
            error_type=error_type,
            since=since,
            until=until,
        )
        whole("limit", limit, least=1, most=MANY_MAX)
        refuse_empty(status, text)
        filters = (status, job_type, queue, tag, organization, owner, group, chain, schedule, text, error_type, since, until)
        refuse_unfiltered(*filters, everything=all)
        live = live_states(status)
        return _cancel(ask, msgspec.structs.replace(where, status=live), limit, reason) if live else Acted(0, 0)

    @operation(Right.STEER, http="POST /jobs/{job}/retry", cli="job retry", status=201)
    def retry(self, ask: Ask, job: Ref) -> Job:
        """Retry an ended chain (DEAD_LETTER, CANCELLED, SKIPPED) with a fresh budget."""
        job_id, now = ask.job(job), ask.now
        retried = ask.store.retry(job_id, new_id=ask.session.ids.take(1, now)[0], actor=ask.who, now=now)
        ask.session.poke()
        return retried

    @operation(Right.SUBMIT, http="POST /jobs/{job}/again", cli="job again", status=201)
    def again(self, ask: Ask, job: Ref, /, **params: Replaced) -> Job:
        """Enqueue the same job once more, also if it completed: a new chain, linked to the old one. `params` replace some of its own."""
        found = ask.also(Right.READ).found(job)
        ask.within(found.organization)
        if is_kind(found.job_type):
            # It has the rights of its owner, and what it does is in its definition.
            raise Refused(f"{found.number} is a run of a job that SQL has created: run that job again with EXECUTE JOB")
        ask.registry.sync(ask.store, ask.now)
        organization = ask.registry.organizations.get(found.organization)
        most = None if organization is None else organization.max_priority
        handler = None if found.template_id is not None else ask.store.adhoc_types().get(found.job_type)
        accepted = submit(
            ask.session,
            ask.actor,
            found.job_type if handler is None else None,
            {**found.params, **params},
            handler=handler,
            job_type=None if handler is None else found.job_type,
            priority=found.priority if most is None else min(found.priority, most),
            queue=found.queue,
            tags=found.tags or None,
            meta={**(found.meta or {}), "again_of": found.id},
            organization=found.organization,
        )
        return accepted.job()

    @operation(Right.DELETE, http="DELETE /jobs/{job}", cli="job delete", confirm="Delete {job}, its runs and its logs for good?")
    def delete(self, ask: Ask, job: Ref) -> Purged:
        """Delete an ended chain with its runs and logs, permanently."""
        job_id, opened = ask.job(job), ask.opened
        gone = opened.store.discard(job_id, actor=ask.who, now=ask.now)
        remove_logs(opened.log_dir, gone.run_ids)
        return gone

    @operation(Right.SUBMIT, http="POST /direct", cli="direct")
    def direct(
        self,
        ask: Ask,
        name: Annotated[str, Shape("The template's name.", "send_email", "TEMPLATE")],
        params: Params | None = None,
        *,
        timeout: Annotated[Span | None, Shape("How long to wait for a slot. Default: the setting `direct_wait`.", "10s")] = None,
        job_id: Annotated[str | None, Shape("A UUIDv7 of your own: repeating the call runs no second job.", metavar="UUID")] = None,
        meta: Annotated[Mapping[str, Any] | None, Shape("Data that is kept with the job.", {"order": 42}, "JSON")] = None,
        organization: Organization = None,
    ) -> Run:
        """Run one job ahead of the queue and return its run."""
        from rota.local_workers import direct  # noqa: PLC0415 - few programs need it

        return direct(ask, name, params, timeout=timeout, job_id=job_id, meta=meta, organization=organization)


def live_states(status: Status | str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the states of live jobs: all, or those that a filter names."""
    wanted = statuses(status)
    return tuple(each for each in map(str, MOVES) if not wanted or each in wanted)


def _check_priority(ask: Ask, name: str, priority: int) -> None:
    organization = ask.registry.organizations.get(name)
    if organization is not None and organization.max_priority is not None and priority > organization.max_priority:
        raise InvalidOption(f"priority {priority} is over the max_priority {organization.max_priority} of organization {name!r}")


def _checked_params(ask: Ask, job: Job, params: Mapping[str, Any]) -> str:
    handler, known = ask.registry.handlers.get(job.job_type), ask.registry.find(job.job_type)
    most = ask.settings.payload_max if known is None else known.force.payload_max
    if handler is not None:
        text = handler.codec.encode(params, limit_bytes=most)
    else:
        text = encode_params(params, limit_bytes=most) if known is None else encode_recorded(known, params, ask.store)
    if SECRET in text and known is not None and (known.is_work or is_kind(job.job_type)):
        refuse_mentions(decode_params(text), job.params)
    if known is not None and (known.is_work or is_kind(job.job_type)):
        _refuse_misnamed(ask, job, params)
    return text


def _refuse_misnamed(ask: Ask, job: Job, params: Mapping[str, Any]) -> None:
    """Refuse params that the text which a job was enqueued with does not use, and a name in it that has no value."""
    from rota.model.sql_names import connection_key, refuse_misnamed  # noqa: PLC0415 - few programs have such jobs

    work = ask.store.work_of(str(undashed(job.id)))
    if work is not None:
        connection = ask.registry.connections.get(connection_key(work, job.organization))
        refuse_misnamed(work.name, work, params, connection, usual=job.params)


def _cancel(ask: Ask, where: Where, limit: int, reason: str | None) -> Acted:
    who, store, words = ask.who, ask.store, checks.reason(reason)
    done = left = 0
    for job in each_job(store, where):
        if job.cancel_requested_at is not None:
            continue
        if done == limit:
            left += 1
            if left == LEFT_MAX:
                break
            continue
        with suppress(AlreadyEnded, NotFound):
            store.cancel(str(undashed(job.id)), actor=who, now=ask.now, reason=words)
            done += 1
    ask.session.poke()
    return Acted(done, left, more=left == LEFT_MAX)
