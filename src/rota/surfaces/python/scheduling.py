"""Schedules: made, changed, fired by hand, and what became of their due times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from rota.engine.declared import declare
from rota.engine.due import DueRows
from rota.engine.overdue import Backlog, Overdue, overdue
from rota.engine.trigger import Decider, Trigger
from rota.errors import ChangedMeanwhile, InvalidOption, InvalidSchedule, NotFound
from rota.model.call import Call
from rota.model.checks import check_name, whole
from rota.model.definitions import TemplateState, unfit_for_schedules
from rota.model.gate import EVERYTHING, Actor, Right, Scope
from rota.model.params import encode_params
from rota.model.schedule_options import OPTIONS, TIMES, calendar_of, with_options
from rota.model.schedules import Calendar, Fate, Kind, Schedule, ScheduleState, Timing, next_due
from rota.model.values import LATEST, SECOND, Instant, Job
from rota.moments import ago
from rota.permits import refuse_unfit
from rota.ports.schedules import Ledger, LedgerCursor
from rota.ports.store import DefinitionsChanged, Store
from rota.results import job_of
from rota.schedule_views import (
    OccurrenceView,
    OverdueView,
    ScheduleView,
    occurrence_view,
    overdue_row,
    overdue_view,
    schedule_view,
)
from rota.surfaces.python.base import Base
from rota.task import Task

Hook = TypeVar("Hook", bound=Callable[..., Any])
T = TypeVar("T")
LIST_MAX = 100_000
"""Rows of one page, at most: more are read page by page."""


class Scheduling(Base):
    """The part of Rota that keeps schedules."""

    def schedule(
        self,
        name: str,
        template: str | Task[..., Any] | Call[Any],
        *,
        cron: str | None = None,
        at: datetime | str | None = None,
        every: float | str | timedelta | None = None,
        timezone: str | None = None,
        starts: datetime | str | None = None,
        ends: datetime | str | None = None,
        params: Mapping[str, Any] | None = None,
        priority: str | int | None = None,
        catch_up: str | None = None,
        catch_up_lateness: float | str | timedelta | None = None,
        catch_up_count: int | None = None,
        overlap: str | None = None,
        jitter: float | str | timedelta | None = None,
        calendar: str | None = None,
        on_completion: str | None = None,
        depends_on: Sequence[str] | str | None = None,
        run_as: str | None = None,
        description: str | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
    ) -> ScheduleView:
        """Say when a template becomes jobs: `cron`, `at` or `every`. For programs, which say it again at each start.

        The first time the schedule is made. Later, what the program says otherwise than last time is changed, and what people have
        changed meanwhile stays. Due times up to now get their fate by what held before.
        """
        given = {option: value for option, value in locals().items() if option in OPTIONS and value is not None}
        who = self._session.acts(actor, Right.SCHEDULE, organization)
        given |= _what(template, given)
        given["template"] = self._session.template_name(given["template"])
        return schedule_view(self._declare(name, given, who))

    def create_schedule(
        self,
        name: str,
        template: str | Task[..., Any] | Call[Any],
        *,
        enabled: bool = True,
        organization: str | None = None,
        actor: Actor | str | None = None,
        **options: Any,
    ) -> ScheduleView:
        """Make a schedule, with the options of `schedule`; refuse if there is one of that name."""
        who = self._session.acts(actor, Right.SCHEDULE, organization)
        new = self._new_schedule(name, {**options, **_what(template, options)}, who)
        self._refuse_unavailable(new.template)
        if not enabled:
            new = msgspec.structs.replace(new, state=ScheduleState.DISABLED)
        return schedule_view(self._add_schedule(new, who))

    def edit_schedule(
        self,
        name: str,
        *,
        new_name: str | UnsetType = UNSET,
        version: int | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
        **options: Any,
    ) -> ScheduleView:
        """Change some options of a schedule; None takes one back to its default. Jobs that are there stay as they are.

        With a `new_name` its ledger, its due times and the schedules that depend on it follow; one that code declares is not renamed.
        With a `version` nothing is written if it has another one by now.
        """
        if not options and new_name is UNSET:
            raise InvalidOption(f"nothing to change: pass new_name, or some of {', '.join(OPTIONS)}")
        now, wanted = self._session.clock.now(), self._with_template_name(options)

        def edit(schedule: Schedule) -> Schedule:
            changed = self._changed(schedule, wanted, now)
            if changed.template != schedule.template:
                self._refuse_unavailable(changed.template)
            return changed if new_name is UNSET else self._renamed(changed, new_name)

        return self._change(name, edit, version, organization, actor)

    def enable_schedule(
        self, name: str, *, version: int | None = None, organization: str | None = None, actor: Actor | str | None = None
    ) -> ScheduleView:
        """Let a schedule fire from now on. What was due while it was disabled is not made up for; what was due in a pause was skipped."""
        now = self._session.clock.now()

        def enable(schedule: Schedule) -> Schedule:
            if schedule.state is ScheduleState.DISABLED and next_due(schedule.timing, now) is None:
                raise InvalidSchedule(f"schedule {name!r} has no due time left: edit its at or ends first")
            return msgspec.structs.replace(schedule, state=ScheduleState.ENABLED)

        return self._change(name, enable, version, organization, actor)

    def disable_schedule(
        self, name: str, *, version: int | None = None, organization: str | None = None, actor: Actor | str | None = None
    ) -> ScheduleView:
        """Take a schedule out of use: it has no due times. Its jobs go on."""
        return self._set_schedule_state(name, ScheduleState.DISABLED, version, organization, actor)

    def pause_schedule(
        self, name: str, *, version: int | None = None, organization: str | None = None, actor: Actor | str | None = None
    ) -> ScheduleView:
        """Let a schedule skip its due times, each written down as skipped, until it is enabled again."""
        return self._set_schedule_state(name, ScheduleState.PAUSED, version, organization, actor)

    def delete_schedule(
        self, name: str, *, version: int | None = None, organization: str | None = None, actor: Actor | str | None = None
    ) -> None:
        """Remove a schedule. Its jobs and its ledger stay; code that still declares it makes it anew."""
        who = self._session.acts(actor, Right.DELETE_SCHEDULES, organization)
        found = self._named(name, who, Right.DELETE_SCHEDULES, organization)
        self._deciding(
            lambda decide, store, now, definitions: store.drop_schedule(
                found.id, decide, actor=who, now=now, definitions=definitions, version=version
            )
        )

    def fire(
        self, name: str, params: Mapping[str, Any] | None = None, *, organization: str | None = None, actor: Actor | str | None = None
    ) -> Job:
        """Make a job of a schedule now, whatever its state, beside its due times: none of them is shifted or used up.

        `params` go over the schedule's own.
        """
        who = self._session.acts(actor, Right.SCHEDULE, organization)
        schedule, store = self._named(name, who, Right.SCHEDULE, organization), self._session.open().store
        while True:
            now = self._session.clock.now()
            self._session.registry.resolve(schedule.template, store, now)
            refuse_unfit(self._session.registry, who, schedule.template)
            self._session.registry.organization(schedule.organization, store, now)
            merged = {**schedule.params, **(params or {})}
            row = DueRows(self._session.registry, self._session.ids, self._session.rng).build(schedule, merged, now=now, run_at=now)
            row.owner = who.name
            try:
                enqueued = store.enqueue([row], now=now, definitions=self._session.registry.version)[0]
            except DefinitionsChanged:
                continue
            self._session.poke()
            return store.job(enqueued.job_id) or job_of(row, enqueued, now)

    # ---- reading ----------------------------------------------------------------------------------------------

    def schedules(
        self, *, template: str | None = None, organization: str | None = None, actor: Actor | str | None = None
    ) -> list[ScheduleView]:
        """Return schedules, by organization and name."""
        scope = self._session.scope(actor, Right.READ)
        found = self._open_synced().schedules(scope=scope, template=None if template is None else self._session.template_name(template))
        return [schedule_view(each) for each in found if organization in {None, each.organization}]

    def get_schedule(self, name: str, *, organization: str | None = None, actor: Actor | str | None = None) -> ScheduleView:
        """Return one schedule."""
        return schedule_view(self._named(name, actor, Right.READ, organization))

    def occurrences(
        self,
        schedule: str | None = None,
        *,
        fate: Fate | str | Iterable[str] | None = None,
        not_ran: bool = False,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        limit: int = 100,
        before: LedgerCursor | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
    ) -> list[OccurrenceView]:
        """Return what became of due times, latest first; `before=found[-1].cursor` is the page after it.

        `not_ran` leaves what did not run: every fate but FIRED, and FIRED whose job did not end COMPLETED. Due times that passed
        longer than `lease_ttl` ago and have no recorded outcome are OVERDUE, one row for each schedule: see `overdue`.
        """
        now = self._session.clock.now()
        whole("limit", limit, least=1, most=LIST_MAX)
        found = None if schedule is None else self._named(schedule, actor, Right.READ, organization)
        ledger = Ledger(
            scope=self._session.scope(actor, Right.READ),
            schedule_id=None if found is None else found.id,
            organization=organization,
            fates=_fates(fate),
            not_ran=not_ran,
            since=None if since is None else ago("since", since, now),
            until=None if until is None else ago("until", until, now),
        )
        rows: list[OccurrenceView] = []
        if ledger.fates != (Fate.OVERDUE,):
            rows = [occurrence_view(each) for each in self._session.open().store.occurrences(ledger, limit=limit, before=before)]
        if not ledger.fates or Fate.OVERDUE in ledger.fates:
            late = [overdue_row(each) for each in self._backlog(ledger, now).schedules if _is_asked_for(each, ledger, before)]
            rows = sorted([*rows, *late], key=lambda row: row.cursor, reverse=True)[:limit] if late else rows
        return rows

    def overdue(
        self, schedule: str | None = None, *, organization: str | None = None, actor: Actor | str | None = None
    ) -> list[OverdueView]:
        """Return the schedules with due times that passed longer than `lease_ttl` ago and have no recorded outcome, the longest first.

        It is worked out by the decision that a worker would make now, and written nowhere. At most 500 schedules are worked out.
        """
        found = None if schedule is None else self._named(schedule, actor, Right.READ, organization)
        ledger = Ledger(
            scope=self._session.scope(actor, Right.READ), schedule_id=None if found is None else found.id, organization=organization
        )
        return [overdue_view(each) for each in self._backlog(ledger, self._session.clock.now()).schedules]

    def on_not_run(self, hook: Hook) -> Hook:
        """Call this function whenever a due time did not run, in the worker that found out. Usable as a decorator.

        It is called with a `NotRun`, soon and at most once; what must not be missed is in `occurrences(not_ran=True)`.
        """
        self._session.on.not_run(hook)
        return hook

    # ---- calendars --------------------------------------------------------------------------------------------

    def calendars(self, *, organization: str | None = None, actor: Actor | str | None = None) -> list[Calendar]:
        """Return the calendars of an organization: days on which schedules that name them are not due."""
        who = self._session.acts(actor, Right.READ, organization)
        return [calendar for _, calendar in self._session.open().store.calendars(organization=who.organization)]

    def set_calendar(
        self,
        name: str,
        days: Iterable[date | str],
        *,
        description: str | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
    ) -> Calendar:
        """Make a calendar, or give it other days."""
        who = self._session.acts(actor, Right.SCHEDULE, organization)
        calendar = calendar_of(name, days if isinstance(days, str) else list(days), description, most=self.settings.calendar_max)
        store, now = self._session.open().store, self._session.clock.now()
        self._session.registry.organization(who.organization, store, now)
        store.put_calendar(calendar, organization=who.organization, actor=who, now=now)
        return calendar

    def delete_calendar(self, name: str, *, organization: str | None = None, actor: Actor | str | None = None) -> None:
        """Remove a calendar that no schedule uses."""
        who = self._session.acts(actor, Right.DELETE_SCHEDULES, organization)
        self._session.open().store.drop_calendar(name, organization=who.organization, actor=who, now=self._session.clock.now())

    # ---- inside -----------------------------------------------------------------------------------------------

    def _backlog(self, ledger: Ledger, now: Instant) -> Backlog:
        """Return what is overdue of the schedules that somebody asks for."""
        scope, organization = ledger.scope, ledger.organization
        if scope.organization is not None and organization not in {None, scope.organization}:
            return Backlog()
        scope = Scope(scope.organization or organization, scope.owner)
        return overdue(
            self._session.open().store, self._session.registry, self.settings, now=now, scope=scope, schedule_id=ledger.schedule_id
        )

    def _open_synced(self) -> Store:
        store = self._session.open().store
        self._session.registry.sync(store, self._session.clock.now())
        return store

    def _declare(self, name: str, given: Mapping[str, Any], who: Actor) -> Schedule:
        self._check_params(given)

        def work(decide: Decider, store: Store, now: Instant, version: int) -> Schedule:
            build = partial(self._new_schedule, name, given, who, now)
            return declare(store, name, given, build, decide, actor=who, now=now, definitions=version)

        return self._deciding(work)

    def _new_schedule(self, name: str, options: Mapping[str, Any], who: Actor, now: Instant | None = None) -> Schedule:
        now = self._session.clock.now() if now is None else now
        self._session.registry.organization(who.organization, self._session.open().store, now)
        return self._built(name, options, who, now)

    def _with_template_name(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options of a schedule with its template by name, also where they have its id."""
        given = options.get("template")
        return {**options, "template": self._session.template_name(given)} if isinstance(given, str) else options

    def _built(self, name: str, options: Mapping[str, Any], who: Actor, now: Instant) -> Schedule:
        """Return a new schedule of an organization that was looked at, or is to be made with it."""
        check_name(name, "schedule", self.settings.name_max)
        if not any(options.get(option) is not None for option in TIMES):
            raise InvalidSchedule(f"schedule {name!r} does not say when: give one of {', '.join(TIMES)}")
        self._check_params(options)
        empty = Schedule(
            id=self._session.ids.take(1, now)[0],
            name=name,
            organization=who.organization,
            template=str(options.get("template", "")),
            timing=Timing(kind=Kind.CRON),
            created_by=who.name,
        )
        new = with_options(empty, self._with_template_name(options), now)
        self._refuse_many(new)
        self._refuse_unfit_params(new)
        self._refuse_past(new, now - round(self.settings.schedule_grace * SECOND))
        at = new.timing.at
        # An AT of this very moment is due, not past.
        return msgspec.structs.replace(new, cursor_at=now if at is None else min(now, at - 1))

    def _changed(self, schedule: Schedule, options: Mapping[str, Any], now: Instant) -> Schedule:
        """Return a schedule with these options, or refuse them."""
        changed = with_options(schedule, options, now)
        self._refuse_many(changed)
        if changed.params != schedule.params or changed.template != schedule.template:
            self._refuse_unfit_params(changed)
        if changed.timing != schedule.timing:
            self._refuse_past(changed, now)
        return changed

    def _renamed(self, schedule: Schedule, name: str) -> Schedule:
        check_name(name, "schedule", self.settings.name_max)
        if name != schedule.name and schedule.declared is not None:
            raise InvalidSchedule(
                f"schedule {schedule.name!r} is declared by code, which would create it again under that name: rename it in the code "
                "and delete this one, or create another schedule"
            )
        return msgspec.structs.replace(schedule, name=name)

    def _refuse_unavailable(self, template: str) -> None:
        """Refuse a template that takes no jobs. The store looks again at one of a schedule that comes into use."""
        known = self._session.registry.find(template)
        if known is not None and known.state != TemplateState.ENABLED:
            raise unfit_for_schedules(template, known.state)

    def _refuse_many(self, schedule: Schedule) -> None:
        if len(schedule.depends_on) > self.settings.parents_max:
            count, most = len(schedule.depends_on), self.settings.parents_max
            raise InvalidSchedule(f"depends_on names {count:,} schedules; at most {most:,} are allowed (setting parents_max)")

    def _refuse_unfit_params(self, schedule: Schedule) -> None:
        """Refuse values that do not fit, and a param that has the name of the Context's parameter, where the handler is known here."""
        handler = self._session.registry.handlers.get(schedule.template)
        if handler is not None and schedule.params:
            handler.check_context(schedule.params)
            handler.codec.check_some(schedule.params)

    def _refuse_past(self, schedule: Schedule, now: Instant) -> None:
        at = schedule.timing.at
        if at is not None and at <= now:
            raise InvalidSchedule(f"at={schedule_view(schedule).at} has passed: give a moment to come, or `enqueue` the job")

    def _check_params(self, options: Mapping[str, Any]) -> None:
        if options.get("params") is not None:
            encode_params(options["params"], limit_bytes=self.settings.payload_max)

    def _add_schedule(self, new: Schedule, who: Actor) -> Schedule:
        store = self._open_synced()
        added = store.add_schedule(new, actor=who, now=self._session.clock.now())
        self._session.poke()
        return added

    def _set_schedule_state(
        self, name: str, state: ScheduleState, version: int | None, organization: str | None, actor: Actor | str | None
    ) -> ScheduleView:
        return self._change(name, lambda schedule: msgspec.structs.replace(schedule, state=state), version, organization, actor)

    def _change(
        self,
        name: str,
        change: Callable[[Schedule], Schedule],
        version: int | None,
        organization: str | None,
        actor: Actor | str | None,
    ) -> ScheduleView:
        who = self._session.acts(actor, Right.SCHEDULE, organization)
        found = self._named(name, who, Right.SCHEDULE, organization)

        def seen(schedule: Schedule) -> Schedule:
            """Change what the caller has seen: inside the transaction, so nobody comes between."""
            if version is not None and schedule.version != version:
                raise ChangedMeanwhile(f"schedule {schedule.name!r}", has=schedule.version, given=version)
            changed = change(schedule)
            if (changed.template, changed.params, changed.timing) != (schedule.template, schedule.params, schedule.timing):
                refuse_unfit(self._session.registry, who, changed.template)
            return changed

        return schedule_view(
            self._deciding(
                lambda decide, store, now, definitions: store.change_schedule(
                    found.id, seen, decide, actor=who, now=now, definitions=definitions
                )
            )
        )

    def _deciding(self, work: Callable[[Decider, Store, Instant, int], T]) -> T:
        """Do something that closes a ledger, again if the definitions changed meanwhile; tell of what did not run."""
        store = self._session.open().store
        trigger = Trigger(
            store,
            self._session.registry,
            clock=self._session.clock,
            ids=self._session.ids,
            rng=self._session.rng,
            settings=self.settings,
            alerts=self._session.on.not_run,
        )
        while True:
            now = self._session.clock.now()
            self._session.registry.sync(store, now)
            decider = trigger.decider(now)
            try:
                done = work(decider, store, now, self._session.registry.version)
            except DefinitionsChanged:
                continue
            for schedule, rows in decider.decided:
                trigger.tell(schedule, rows)
            self._session.poke()
            return done

    def _named(self, name: str, actor: Actor | str | None, operation: Right, organization: str | None) -> Schedule:
        """Return the schedule of this name that the actor means: of the organization given, else its own, else the only one."""
        scope, who = self._session.scope(actor, operation), self._session.actor(actor)
        found = self._open_synced().schedules(scope=Scope(organization or scope.organization, scope.owner), name=name)
        if scope is not EVERYTHING:
            found = [each for each in found if scope.holds(each.organization, each.created_by)]
        if len(found) > 1:
            found = [each for each in found if each.organization == who.organization] or found
        if not found:
            raise NotFound(f"there is no schedule {name!r}: `rota schedule list` shows them")
        if len(found) > 1:
            names = ", ".join(each.organization for each in found[:5])
            raise InvalidOption(f"several organizations have a schedule {name!r} ({names}): say which with organization=…")
        return found[0]


def _what(template: str | Task[..., Any] | Call[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a schedule makes jobs of, as its options: a template's name, a task, or a call with its params."""
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


def _fates(given: Fate | str | Iterable[str] | None) -> tuple[Fate, ...]:
    words = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    for word in words:
        if str(word).upper() not in set(Fate):
            raise InvalidOption(f"fate={word!r} is not one of {', '.join(Fate)}")
    return tuple(Fate(str(word).upper()) for word in words)


def _is_asked_for(overdue: Overdue, ledger: Ledger, before: LedgerCursor | None) -> bool:
    """Say whether a question about the ledger is also about what is overdue of a schedule."""
    since, until = ledger.since or 0, LATEST if ledger.until is None else ledger.until - 1
    return overdue.last_due_at >= since and overdue.due_at <= until and (before is None or overdue_row(overdue).cursor < before)
