"""Edits of schedules: how a new one is built, a change checked, and the due times up to now decided with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rota.engine.recorded_params import refuse_recorded_values
from rota.engine.trigger import Decider, Trigger
from rota.errors import InvalidSchedule, ScheduleExists, TemplateUnavailable
from rota.model.checks import check_name
from rota.model.connections import Connection
from rota.model.definitions import Template, TemplateState, unfit_for_schedules
from rota.model.gate import Actor, Scope
from rota.model.kinds import is_kind
from rota.model.params import encode_params
from rota.model.schedule_options import TIMES, as_said, with_options
from rota.model.schedules import CatchUp, Kind, OnCompletion, Overlap, OwnTemplate, Schedule, ScheduleState, Timing
from rota.model.secret_params import named_secrets, refuse_unnamed
from rota.model.sql_names import Body, connection_key, refuse_misnamed, usual_params
from rota.model.values import SECOND, Instant, moment
from rota.ports.schedules import Change
from rota.ports.store import DefinitionsChanged, Store

if TYPE_CHECKING:
    from rota.session import Session

T = TypeVar("T")

log = logging.getLogger("rota.schedules")


class _Overtaken(Exception):  # noqa: N818 - a signal, not an error of anybody
    """The schedule fired while its change waited for its turn: the change comes after that, by the clock too."""


class Edit(msgspec.Struct):
    """A moment at which schedules are changed, and the decider that closes their ledgers up to it."""

    session: Session
    store: Store
    now: Instant
    definitions: int
    decide: Decider

    def change(self, schedule_id: str, change: Change, who: Actor) -> Schedule:
        """Change a schedule after its ledger was closed."""

        def in_time(schedule: Schedule) -> Schedule:
            if self.now < schedule.cursor_at <= self.session.clock.now():
                raise _Overtaken
            return change(schedule)

        return self.store.change_schedule(schedule_id, in_time, self.decide, actor=who, now=self.now, definitions=self.definitions)


def deciding(session: Session, work: Callable[[Edit], T]) -> T:
    """Do work that closes a ledger, again if it comes too late for its moment; then report the due times that did not run."""
    store = session.open().store
    trigger = Trigger(
        store,
        session.registry,
        clock=session.clock,
        ids=session.ids,
        rng=session.rng,
        settings=session.settings,
        alerts=session.on.not_run,
    )
    while True:
        now = session.clock.now()
        session.registry.sync(store, now)
        decider = trigger.decider(now)
        try:
            result = work(Edit(session, store, now, session.registry.version, decider))
        except (DefinitionsChanged, _Overtaken):
            continue
        session.follow_up(partial(_report, trigger, decider))
        return result


def _report(trigger: Trigger, decider: Decider, session: Session) -> None:
    for schedule, rows in decider.decided:
        trigger.tell(schedule, rows)
    session.poke()


def edited(session: Session, schedule_id: str, change: Change, who: Actor) -> Schedule:
    """Change a schedule after its ledger was closed."""
    return deciding(session, lambda edit: edit.change(schedule_id, change, who))


def declared(session: Session, name: str, options: Mapping[str, Any], who: Actor) -> Schedule:
    """Create the schedule that code declares, or change what it declares differently from last time.

    The options that the code declared last are kept with the schedule. If it declares the same again nothing changes, whatever people have
    changed since. Where it declares something else, that option and no other is changed: people's changes stay until the code has new ones.
    """
    _check_params(session, options)
    return deciding(session, lambda edit: _declare(edit, name, options, who))


def _declare(edit: Edit, name: str, options: Mapping[str, Any], who: Actor) -> Schedule:
    store, now, scope, words = edit.store, edit.now, Scope(who.organization), as_said(options)
    found = store.schedules(scope=scope, name=name)
    if found and found[0].declared == words:
        # Not built: its `at` or `ends` may have passed since it was declared first.
        return found[0]
    if not found and (done := _done(store, name, words, scope)) is not None:
        return done
    new = msgspec.structs.replace(new_schedule(edit.session, name, options, who, now), declared=words)
    if not found:
        try:
            return _available(new, lambda after: store.add_schedule(after(new), actor=who, now=now))
        except ScheduleExists:
            # Another process started in the same moment: its schedule is treated like any other.
            found = store.schedules(scope=scope, name=name)
            if not found:
                raise
            if found[0].declared == words:
                return found[0]

    def change(schedule: Schedule) -> Schedule:
        return msgspec.structs.replace(with_options(schedule, news(schedule.declared or {}, words), now), declared=words)

    return _available(found[0], lambda after: edit.change(found[0].id, lambda schedule: after(change(schedule)), who))


def _available(schedule: Schedule, write: Callable[[Change], Schedule]) -> Schedule:
    """Write a schedule; if its template takes no jobs, write it DISABLED, with a warning: a program has to start all the same."""
    try:
        return write(lambda after: after)
    except TemplateUnavailable as error:
        log.warning(
            "schedule %s of organization %s is disabled: %s, and `rota schedule enable %s` after it",
            schedule.name,
            schedule.organization,
            error,
            schedule.name,
        )
        return write(lambda after: msgspec.structs.replace(after, state=ScheduleState.DISABLED))


def _done(store: Store, name: str, words: Mapping[str, Any], scope: Scope) -> Schedule | None:
    """Return an AT that has fired and was not to be kept: it is not created again when the program starts again."""
    if words.get("at") is None or str(words.get("on_completion")).upper() != OnCompletion.DROP:
        return None
    gone = store.schedules(scope=scope, name=name, dropped=True)
    return gone[-1] if gone and gone[-1].declared == words and gone[-1].last_at is not None else None


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are declared differently now; one that is declared no more goes back to its default."""
    changed = {name: after.get(name) for name in {*before, *after} if before.get(name) != after.get(name)}
    if any(changed.get(name) is not None for name in TIMES):
        # Another rule takes the place of the old one.
        changed = {name: value for name, value in changed.items() if name not in TIMES or value is not None}
    return changed


class Ahead(msgspec.Struct):
    """Definitions that will be written before a schedule is, with which it is checked."""

    templates: dict[str, Template] = {}
    connections: dict[tuple[str, str], Connection] = {}


NOTHING = Ahead()


def new_schedule(
    session: Session, name: str, options: Mapping[str, Any], who: Actor, now: Instant | None = None, *, ahead: Ahead = NOTHING
) -> Schedule:
    """Return a new schedule in the actor's organization, which must be there. Nothing is written."""
    now = session.clock.now() if now is None else now
    session.registry.organization(who.organization, session.open().store, now)
    return built(session, name, options, who, now, ahead=ahead)


def built(
    session: Session,
    name: str,
    options: Mapping[str, Any],
    who: Actor,
    now: Instant,
    *,
    own: OwnTemplate | None = None,
    ahead: Ahead = NOTHING,
) -> Schedule:
    """Return a new schedule of an organization that has been checked, or is created together with it; `own` is the template of a job."""
    check_name(name, "schedule", session.settings.name_max)
    if not any(options.get(option) is not None for option in TIMES):
        raise InvalidSchedule(f"schedule {name!r} does not say when: give one of {', '.join(TIMES)}")
    _check_params(session, options)
    empty = Schedule(
        id=session.ids.take(1, now)[0],
        name=name,
        organization=who.organization,
        template=str(options.get("template", "")),
        timing=Timing(kind=Kind.CRON),
        created_by=who.name,
        own=own,
    )
    if options.get("catch_up") is None:
        options = {name: value for name, value in options.items() if name != "catch_up"}
        empty = _by_policy(empty, CatchUp(session.current().catch_up), options)
    new = with_options(empty, options if own is not None else with_template_name(session, options), now)
    _refuse_many(session, new)
    _refuse_unfit_params(session, new)
    if own is None:
        # The text of a job that SQL creates is first shown to its database, which says where a name is.
        refuse_misnamed_params(session, new, new.params, ahead)
    _refuse_past(new, now - round(session.settings.schedule_grace * SECOND))
    at = new.timing.at
    # An AT of this very moment is due, not past.
    return msgspec.structs.replace(new, cursor_at=now if at is None else min(now, at - 1))


def _by_policy(new: Schedule, policy: CatchUp, options: Mapping[str, Any]) -> Schedule:
    """Return a schedule that says nothing of catch_up with the policy of the settings."""
    if policy is not CatchUp.ALL:
        return msgspec.structs.replace(new, catch_up=policy)
    if options.get("overlap") == Overlap.SKIP:
        return new  # it would skip what it catches up
    return msgspec.structs.replace(new, catch_up=policy, overlap=Overlap.QUEUE)


def added(session: Session, new: Schedule, who: Actor) -> Schedule:
    """Write a new schedule; refused if there is one of its name."""
    store = session.open().store
    session.registry.sync(store, session.clock.now())
    schedule = store.add_schedule(new, actor=who, now=session.clock.now())
    session.follow_up(lambda session: session.poke())
    return schedule


def changed(session: Session, schedule: Schedule, options: Mapping[str, Any], now: Instant, *, ahead: Ahead = NOTHING) -> Schedule:
    """Return a schedule with these options, or refuse them. Nothing is written."""
    after = with_options(schedule, options, now)
    if schedule.own is not None and after.run_as != schedule.run_as:
        raise InvalidSchedule(f"job {schedule.name!r} was created by SQL: change its role with ALTER JOB … SET RUN AS")
    _refuse_many(session, after)
    if after.params != schedule.params or after.template != schedule.template:
        _refuse_unfit_params(session, after)
        refuse_misnamed_params(session, after, after.params, ahead)
    if after.timing != schedule.timing:
        _refuse_past(after, now)
    return after


def renamed(session: Session, schedule: Schedule, name: str) -> Schedule:
    """Return a schedule with another name, or refuse it."""
    check_name(name, "schedule", session.settings.name_max)
    if name != schedule.name and schedule.declared is not None:
        raise InvalidSchedule(
            f"schedule {schedule.name!r} is declared by code, which would create it again under that name: rename it in the code "
            "and delete this one, or create another schedule"
        )
    return msgspec.structs.replace(schedule, name=name)


def with_template_name(session: Session, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of a schedule with its template by name, also where they have its id."""
    template = options.get("template")
    return {**options, "template": session.template_name(template)} if isinstance(template, str) else options


def refuse_unavailable(session: Session, template: str) -> None:
    """Refuse a template that takes no jobs. The store checks again when a schedule comes into use."""
    known = session.registry.find(template)
    if known is not None and known.state != TemplateState.ENABLED:
        raise unfit_for_schedules(template, known.state)


def _check_params(session: Session, options: Mapping[str, Any]) -> None:
    if options.get("params") is not None:
        encode_params(options["params"], limit_bytes=session.settings.payload_max)


def _refuse_many(session: Session, schedule: Schedule) -> None:
    count, most = len(schedule.depends_on), session.settings.parents_max
    if count > most:
        raise InvalidSchedule(f"depends_on names {count:,} schedules; at most {most:,} are allowed (setting parents_max)")


def _refuse_unfit_params(session: Session, schedule: Schedule) -> None:
    """Refuse values that do not fit and, where the handler is known here, a param that has the name of the Context's parameter."""
    if not schedule.params:
        return
    handler, known = session.registry.handlers.get(schedule.job_type), session.registry.find(schedule.job_type)
    if schedule.own is not None and is_kind(schedule.job_type):
        refuse_unnamed(schedule.params, named_secrets(schedule.own.defaults))
    elif known is not None and known.is_work and known.record is not None:
        refuse_unnamed(schedule.params, named_secrets(known.record.defaults))
    if handler is not None:
        handler.check_context(schedule.params)
        handler.codec.check_some(schedule.params)
    elif known is not None:
        refuse_recorded_values(known, schedule.params, session.open().store)


def refuse_misnamed_params(session: Session, schedule: Schedule, params: Collection[str], ahead: Ahead = NOTHING) -> None:
    """Refuse params that the SQL or the command of a schedule's jobs does not use, and a name in its text that has no value."""
    work: Body | None = None
    usual: Mapping[str, Any] = {}
    if schedule.own is None:
        known = session.registry.find(schedule.template)
        work = template = ahead.templates.get(schedule.template) or (known.record if known is not None and known.is_work else None)
        usual = usual if template is None else usual_params(template.defaults, template.overrides)
    elif is_kind(schedule.job_type):
        work, usual = schedule.own, usual_params(schedule.own.defaults)
    if work is None:
        return
    key = connection_key(work, schedule.organization)
    refuse_misnamed(
        schedule.template if schedule.own is None else schedule.name,
        work,
        {*usual, *params},
        ahead.connections.get(key) or session.registry.connections.get(key),
        usual=usual,
    )


def _refuse_past(schedule: Schedule, now: Instant) -> None:
    at = schedule.timing.at
    if at is not None and at <= now:
        raise InvalidSchedule(f"at={moment(at)} has passed: give a moment to come, or `enqueue` the job")
