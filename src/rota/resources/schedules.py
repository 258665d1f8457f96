"""Schedules, and the outcomes of their due times."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from rota.declarations import declare_scheduled, synced
from rota.engine.due import DueRows
from rota.engine.overdue import Overdue
from rota.errors import ChangedMeanwhile, InvalidOption, InvalidSchedule, Refused
from rota.lab.forecasts import Verified
from rota.model.call import Call
from rota.model.checks import ago, whole
from rota.model.gate import Actor, Right
from rota.model.kinds import is_kind
from rota.model.params import decode_params
from rota.model.schedule_options import OPTIONS, ScheduleOptions
from rota.model.schedules import Fate, Schedule, ScheduleState, next_due
from rota.model.secret_params import SECRET, refuse_mentions
from rota.model.shapes import NAME_MAX, Limit, Name, Organization, Params, Shape
from rota.model.values import LATEST, Job, undashed
from rota.operation import Ask, Resource, operation
from rota.ports.schedules import Ledger, LedgerCursor
from rota.ports.store import DefinitionsChanged
from rota.resources.filters import LIST_MAX
from rota.results import Page
from rota.schedule_edits import (
    added,
    changed,
    deciding,
    declared,
    edited,
    new_schedule,
    refuse_misnamed_params,
    refuse_unavailable,
    renamed,
    with_template_name,
)
from rota.schedule_views import (
    OccurrenceView,
    OverdueView,
    ScheduleView,
    backlog,
    named,
    occurrence_view,
    overdue_row,
    overdue_views,
    schedule_view,
)
from rota.submission import job_of
from rota.task import Task

__all__ = ["Schedules", "backlog", "deciding", "declare", "named"]

ScheduleName = Annotated[str, Shape("The schedule's name.", "daily", "NAME")]
SomeSchedule = Annotated[str | None, Shape("Only this schedule.", "daily", "NAME", most=NAME_MAX)]
Whose = Annotated[str | None, Shape("Whose schedule, where several organizations have one of that name.", "default", "NAME", most=NAME_MAX)]
OfOrganization = Annotated[str | None, Shape("Only schedules of this organization.", "default", "NAME", most=NAME_MAX)]
Since = Annotated[datetime | timedelta | None, Shape("Due at or after this moment, or at most this long ago.", "7d", "TIME", wire=str)]
Until = Annotated[datetime | timedelta | None, Shape("Due before this moment, or at least this long ago.", "1h", "TIME", wire=str)]
TemplateOf = Annotated[
    str | Task[..., Any] | Call[Any], Shape("The template of its jobs, as a name, a task or a call.", "send_email", "TEMPLATE", wire=str)
]


class Schedules(Resource):
    """Schedules of every state."""

    __slots__ = ()

    # ---- reading ----------------------------------------------------------------------------------------------

    @operation(Right.READ, http="GET /schedules", cli="schedule list")
    def list(
        self,
        ask: Ask,
        *,
        template: Annotated[str | None, Shape("Only schedules of this template.", "send_email", "TEMPLATE", most=NAME_MAX)] = None,
        organization: OfOrganization = None,
    ) -> builtins.list[ScheduleView]:
        """Return schedules, by organization and name."""
        store, session = synced(ask.session), ask.session
        schedules = store.schedules(scope=ask.scope, template=None if template is None else session.template_name(template))
        return [schedule_view(each) for each in schedules if organization in {None, each.organization}]

    @operation(Right.READ, http="GET /schedules/{name}", cli="schedule get", etag=True)
    def get(self, ask: Ask, name: ScheduleName, *, organization: Whose = None) -> ScheduleView:
        """Return one schedule."""
        return schedule_view(named(ask, name, organization))

    @operation(Right.READ, http="GET /occurrences", cli="schedule occurrences")
    def occurrences(
        self,
        ask: Ask,
        schedule: SomeSchedule = None,
        *,
        fate: Annotated[Fate | str | Iterable[str] | None, Shape("Only these fates.", ["MISSED"], "FATE", wire=builtins.list[str])] = None,
        not_ran: Annotated[bool, Shape("Only due times that did not run, or whose job did not complete.")] = False,
        since: Since = None,
        until: Until = None,
        limit: Limit = 100,
        before: Annotated[
            LedgerCursor | None,
            Shape("Continue after this place: `next` of the previous page, or the `cursor` of a row.", metavar="CURSOR", wire=str),
        ] = None,
        organization: OfOrganization = None,
    ) -> Page[OccurrenceView]:
        """Return the outcomes of due times, latest first.

        `not_ran` leaves the due times that did not run: every fate but FIRED, and FIRED whose job did not end COMPLETED. Due times that
        passed longer than `lease_ttl` ago and have no recorded outcome are OVERDUE, one row for each schedule: see `overdue`.
        """
        now = ask.now
        whole("limit", limit, least=1, most=LIST_MAX)
        if before is not None:
            _check_cursor(before)
        ledger = Ledger(
            scope=ask.scope,
            schedule_id=None if schedule is None else named(ask, schedule, organization).id,
            organization=organization,
            fates=_fates(fate),
            not_ran=not_ran,
            since=None if since is None else ago("since", since, now),
            until=None if until is None else ago("until", until, now),
        )
        rows: builtins.list[OccurrenceView] = []
        if ledger.fates != (Fate.OVERDUE,):
            # One more than is shown tells whether there is a next page.
            rows = [occurrence_view(each) for each in ask.store.occurrences(ledger, limit=limit + 1, before=before)]
        if not ledger.fates or Fate.OVERDUE in ledger.fates:
            late = [overdue_row(each) for each in backlog(ask.session, ledger, now).schedules if _matches(each, ledger, before)]
            rows = sorted([*rows, *late], key=lambda row: row.cursor, reverse=True) if late else rows
        return Page(rows[:limit], next_=rows[limit - 1].cursor if len(rows) > limit else None)

    @operation(Right.READ, http="GET /occurrences/overdue", cli="schedule overdue")
    def overdue(self, ask: Ask, schedule: SomeSchedule = None, *, organization: Whose = None) -> builtins.list[OverdueView]:
        """Return the schedules with due times that passed longer than `lease_ttl` ago and have no recorded outcome, the longest first.

        They are computed by the decision that a worker would make now; nothing is written. At most 500 schedules are computed.
        """
        return overdue_views(ask, schedule, organization)

    @operation(Right.READ, http="GET /occurrences/verify", cli="schedule verify")
    def verify(
        self,
        ask: Ask,
        schedule: SomeSchedule = None,
        *,
        since: Annotated[datetime | timedelta | None, Shape("Due after this moment, or this long ago.", "30d", "TIME", wire=str)] = None,
        until: Annotated[
            datetime | timedelta | None,
            Shape("Due up to and including this moment, or this long ago. Default: now.", "1h", "TIME", wire=str),
        ] = None,
        organization: Whose = None,
    ) -> Verified:
        """Check that every due time after `since`, up to and including `until`, has one fate, and each that fired a job of its own.

        A ledger was written by the definitions of its time, so due times before a schedule's last edit are not compared with its present
        definition, only with the ledger itself and the jobs. What retention has removed is not missed; what was removed by hand is.
        Due times that are `overdue` have no outcome yet, and are reported separately from those that do not match.
        """
        from rota.lab.verify import verify  # noqa: PLC0415 - few programs need it

        return verify(ask, schedule, since=since, until=until, organization=organization)

    # ---- editing ----------------------------------------------------------------------------------------------

    @operation(Right.SCHEDULE, http="POST /schedules", cli="schedule create", etag=True, status=201)
    def create(
        self,
        ask: Ask,
        /,
        name: ScheduleName,
        template: TemplateOf,
        *,
        enabled: Annotated[bool, Shape("Whether it is due from now on. Default: enabled.", option="enabled/disabled")] = True,
        organization: Organization = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Create a schedule; refused if there is one of that name. One of `cron`, `at` and `every` says when it is due."""
        who = ask.within(organization)
        new = new_schedule(ask.session, name, {**options, **_subject(template, options)}, who)
        refuse_unavailable(ask.session, new.template)
        if not enabled:
            new = msgspec.structs.replace(new, state=ScheduleState.DISABLED)
        declare_scheduled(ask.session)
        return schedule_view(added(ask.session, new, who))

    @operation(Right.SCHEDULE, http="PATCH /schedules/{name}", cli="schedule update", etag=True)
    def update(
        self,
        ask: Ask,
        /,
        name: ScheduleName,
        *,
        new_name: Annotated[str | UnsetType, Shape("Rename the schedule.", metavar="NAME", wire=str)] = UNSET,
        template: Annotated[str | UnsetType, Shape("The template of its jobs.", "send_email", "TEMPLATE", wire=str)] = UNSET,
        organization: Whose = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Change some options of a schedule; None takes one back to its default. Jobs that exist already stay as they are.

        With a `new_name` its ledger, its due times and the schedules that depend on it follow; one that code declares can't be renamed.
        """
        wanted: Mapping[str, Any] = {**options} if template is UNSET else {**options, "template": template}
        if not wanted and new_name is UNSET:
            raise InvalidOption(f"nothing to change: pass new_name, or some of {', '.join(OPTIONS)}")
        session, now = ask.session, ask.now
        wanted = with_template_name(session, wanted)

        def edit(schedule: Schedule) -> Schedule:
            after = changed(session, schedule, wanted, now)
            if after.template != schedule.template:
                refuse_unavailable(session, after.template)
            return after if new_name is UNSET else renamed(session, after, new_name)

        return _change(ask, name, edit, organization)

    @operation(Right.SCHEDULE, http="POST /schedules/{name}/enable", cli="schedule enable", etag=True)
    def enable(self, ask: Ask, name: ScheduleName, *, organization: Whose = None) -> ScheduleView:
        """Let a schedule fire from now on. Due times while it was disabled are not made up for; those in a pause were skipped."""
        now = ask.now

        def edit(schedule: Schedule) -> Schedule:
            if schedule.state is ScheduleState.DISABLED and next_due(schedule.timing, now) is None:
                raise InvalidSchedule(f"schedule {name!r} has no due time left: edit its at or ends first")
            return msgspec.structs.replace(schedule, state=ScheduleState.ENABLED)

        return _change(ask, name, edit, organization)

    @operation(Right.SCHEDULE, http="POST /schedules/{name}/disable", cli="schedule disable", etag=True)
    def disable(self, ask: Ask, name: ScheduleName, *, organization: Whose = None) -> ScheduleView:
        """Take a schedule out of use: it has no due times. Its jobs continue."""
        return _change(ask, name, lambda schedule: msgspec.structs.replace(schedule, state=ScheduleState.DISABLED), organization)

    @operation(Right.SCHEDULE, http="POST /schedules/{name}/pause", cli="schedule pause", etag=True)
    def pause(self, ask: Ask, name: ScheduleName, *, organization: Whose = None) -> ScheduleView:
        """Let a schedule skip its due times, each recorded as skipped, until it is resumed."""
        return _change(ask, name, lambda schedule: msgspec.structs.replace(schedule, state=ScheduleState.PAUSED), organization)

    @operation(Right.SCHEDULE, http="POST /schedules/{name}/resume", cli="schedule resume", etag=True)
    def resume(self, ask: Ask, name: ScheduleName, *, organization: Whose = None) -> ScheduleView:
        """End the pause of a schedule. One that is enabled stays so; one that is disabled is refused."""

        def edit(schedule: Schedule) -> Schedule:
            if schedule.state is ScheduleState.DISABLED:
                raise Refused(f"schedule {name!r} is disabled, not paused: enable it")
            return msgspec.structs.replace(schedule, state=ScheduleState.ENABLED)

        return _change(ask, name, edit, organization)

    @operation(
        Right.DELETE_SCHEDULES,
        http="DELETE /schedules/{name}",
        cli="schedule delete",
        etag=True,
        status=204,
        confirm="Delete schedule {name}? Its jobs and its ledger stay.",
    )
    def delete(self, ask: Ask, name: ScheduleName, *, organization: Whose = None) -> None:
        """Delete a schedule. Its jobs and its ledger stay; code that still declares it creates it again."""
        who, version = ask.within(organization), ask.version
        schedule = named(ask, name, organization)
        deciding(
            ask.session,
            lambda edit: edit.store.drop_schedule(
                schedule.id, edit.decide, actor=who, now=edit.now, definitions=edit.definitions, version=version
            ),
        )

    @operation(Right.SCHEDULE, http="POST /schedules/{name}/fire", cli="schedule fire", status=201)
    def fire(self, ask: Ask, name: ScheduleName, params: Params | None = None, *, organization: Whose = None) -> Job:
        """Create a job of a schedule now, whatever its state. None of its due times is shifted or used up.

        `params` replace those of the schedule that have the same names.
        """
        return fired(ask, named(ask, name, organization), params, ask.within(organization))


def fired(ask: Ask, schedule: Schedule, params: Params | None, who: Actor) -> Job:
    """Create a job of a schedule now. None of its due times is shifted or used up."""
    session, store = ask.session, ask.store
    template = schedule.job_type
    while True:
        now = ask.now
        if is_kind(template):
            session.registry.sync(store, now)
        else:
            session.registry.resolve(template, store, now)
        session.registry.refuse_unfit(who, template)
        session.registry.organization(schedule.organization, store, now)
        merged = {**schedule.params, **(params or {})}
        row = DueRows(session.registry, session.ids, session.rng).build(schedule, merged, now=now, run_at=now)
        if params and SECRET in row.params:
            _refuse_mentions(ask, schedule, decode_params(row.params))
        refuse_misnamed_params(session, schedule, merged)
        if not is_kind(template):
            # SQL and commands run with the rights of their owner, also when somebody else has them executed.
            row.owner = who.name
        try:
            enqueued = store.fire_now(row, schedule.name, actor=who, now=now, definitions=session.registry.version)
        except DefinitionsChanged:
            session.registry.sync(store, now)
            continue
        session.poke()
        return store.job(enqueued.job_id) or job_of(row, enqueued, now)


def _refuse_mentions(ask: Ask, schedule: Schedule, params: dict[str, Any]) -> None:
    """Refuse params that mention a secret where the definition does not: whoever starts a job may not have it read or show one."""
    known = ask.registry.find(schedule.job_type)
    if known is None or not (known.is_work or is_kind(schedule.job_type)):
        return
    of_job = {} if schedule.own is None else schedule.own.defaults.get("default_params", {})
    refuse_mentions(params, {**of_job, **(known.force.default_params or {}), **schedule.params})


def _check_cursor(cursor: LedgerCursor) -> None:
    due_at, schedule_id, fate = cursor
    if not 0 <= due_at <= LATEST or undashed(schedule_id) != schedule_id or fate not in set(Fate):
        raise InvalidOption(f"before={cursor!r:.80} is not a place in the ledger: pass `next` of the previous page, or omit it")


def declare(ask: Ask, name: Name, template: TemplateOf, options: Mapping[str, Any], *, organization: str | None = None) -> ScheduleView:
    """Create the schedule that a program declares, or change what it declares differently from last time: `rota.schedule`."""
    who = ask.within(organization)
    said = {**options, **_subject(template, options)}
    said["template"] = ask.session.template_name(said["template"])
    declare_scheduled(ask.session)
    return schedule_view(declared(ask.session, name, said, who))


def _change(ask: Ask, name: str, edit: Callable[[Schedule], Schedule], organization: str | None) -> ScheduleView:
    who, version, session = ask.within(organization), ask.version, ask.session
    present = named(ask, name, organization)

    def change(schedule: Schedule) -> Schedule:
        """Change the version that the caller has seen: inside the transaction, so that no other edit comes between."""
        if version is not None and schedule.version != version:
            raise ChangedMeanwhile(f"schedule {schedule.name!r}", has=schedule.version, given=version)
        after = edit(schedule)
        if (after.template, after.params, after.timing) != (schedule.template, schedule.params, schedule.timing):
            session.registry.refuse_unfit(who, after.job_type)
        return after

    return schedule_view(edited(session, present.id, change, who))


def _subject(template: TemplateOf, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of a schedule's jobs as its options: a template's name, a task, or a call with its params."""
    if not isinstance(template, Task | Call):
        return {"template": template}
    call = template if isinstance(template, Call) else template.bind()
    said = {"actor": call.actor, **call.options, **({"params": call.params} if call is template else {})}
    said = {option: value for option, value in said.items() if value is not None}
    for option in said:
        if option not in {"params", "priority"}:
            raise InvalidOption(f"{call.name}: a schedule's jobs can't have {option}=…: leave it out of the task's options")
        if options.get(option) is not None:
            raise InvalidOption(f"{option} is in {call!r} and beside it: say it once")
    return {**said, "template": call.name}


def _fates(fate: Fate | str | Iterable[str] | None) -> tuple[Fate, ...]:
    words = () if fate is None else (fate,) if isinstance(fate, str) else tuple(fate)
    for word in words:
        if str(word).upper() not in set(Fate):
            raise InvalidOption(f"fate={word!r} is not one of {', '.join(Fate)}")
    return tuple(Fate(str(word).upper()) for word in words)


def _matches(overdue: Overdue, ledger: Ledger, before: LedgerCursor | None) -> bool:
    """Say whether a query of the ledger is also about what is overdue of a schedule."""
    since, until = ledger.since or 0, LATEST if ledger.until is None else ledger.until - 1
    return overdue.last_due_at >= since and overdue.due_at <= until and (before is None or overdue_row(overdue).cursor < before)
