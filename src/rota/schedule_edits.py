"""Edits of schedules: how a new one is built, a change checked, and the due times up to now decided with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rota.engine.declared import declare
from rota.engine.trigger import Decider, Trigger
from rota.errors import InvalidSchedule
from rota.model.checks import check_name
from rota.model.definitions import TemplateState, unfit_for_schedules
from rota.model.gate import Actor
from rota.model.params import encode_params
from rota.model.schedule_options import TIMES, with_options
from rota.model.schedules import Kind, Schedule, Timing
from rota.model.values import SECOND, Instant
from rota.ports.schedules import Change
from rota.ports.store import DefinitionsChanged, Store
from rota.schedule_views import schedule_view

if TYPE_CHECKING:
    from rota.session import Session

T = TypeVar("T")


class _Overtaken(Exception):  # noqa: N818 - a signal, not an error of anybody
    """The schedule fired while its change waited for its turn: the change comes after that, by the clock too."""


def deciding(session: Session, work: Callable[[Decider, Store, Instant, int], T]) -> T:
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
            result = work(decider, store, now, session.registry.version)
        except (DefinitionsChanged, _Overtaken):
            continue
        for schedule, rows in decider.decided:
            trigger.tell(schedule, rows)
        session.poke()
        return result


def edited(session: Session, schedule_id: str, change: Change, who: Actor) -> Schedule:
    """Change a schedule after its ledger was closed."""
    return deciding(session, lambda decide, store, now, version: _edit(session, decide, store, now, version)(schedule_id, change, who))


def _edit(session: Session, decide: Decider, store: Store, now: Instant, version: int) -> Callable[[str, Change, Actor], Schedule]:
    """Return what changes a schedule at one moment."""

    def edit(schedule_id: str, change: Change, who: Actor) -> Schedule:
        def in_time(schedule: Schedule) -> Schedule:
            if now < schedule.cursor_at <= session.clock.now():
                raise _Overtaken
            return change(schedule)

        return store.change_schedule(schedule_id, in_time, decide, actor=who, now=now, definitions=version)

    return edit


def declared(session: Session, name: str, options: Mapping[str, Any], who: Actor) -> Schedule:
    """Create the schedule that code declares, or change what it declares differently from last time."""
    _check_params(session, options)

    def work(decide: Decider, store: Store, now: Instant, version: int) -> Schedule:
        build = partial(new_schedule, session, name, options, who, now)
        edit = _edit(session, decide, store, now, version)
        return declare(store, name, options, build, edit, actor=who, now=now)

    return deciding(session, work)


def new_schedule(session: Session, name: str, options: Mapping[str, Any], who: Actor, now: Instant | None = None) -> Schedule:
    """Return a new schedule in the actor's organization, which must be there. Nothing is written."""
    now = session.clock.now() if now is None else now
    session.registry.organization(who.organization, session.open().store, now)
    return built(session, name, options, who, now)


def built(session: Session, name: str, options: Mapping[str, Any], who: Actor, now: Instant) -> Schedule:
    """Return a new schedule of an organization that has been checked, or is created together with it."""
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
    )
    new = with_options(empty, with_template_name(session, options), now)
    _refuse_many(session, new)
    _refuse_unfit_params(session, new)
    _refuse_past(new, now - round(session.settings.schedule_grace * SECOND))
    at = new.timing.at
    # An AT of this very moment is due, not past.
    return msgspec.structs.replace(new, cursor_at=now if at is None else min(now, at - 1))


def added(session: Session, new: Schedule, who: Actor) -> Schedule:
    """Write a new schedule; refused if there is one of its name."""
    store = session.open().store
    session.registry.sync(store, session.clock.now())
    schedule = store.add_schedule(new, actor=who, now=session.clock.now())
    session.poke()
    return schedule


def changed(session: Session, schedule: Schedule, options: Mapping[str, Any], now: Instant) -> Schedule:
    """Return a schedule with these options, or refuse them. Nothing is written."""
    after = with_options(schedule, options, now)
    _refuse_many(session, after)
    if after.params != schedule.params or after.template != schedule.template:
        _refuse_unfit_params(session, after)
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
    """Refuse values that do not fit, and a param that has the name of the Context's parameter, where the handler is known here."""
    handler = session.registry.handlers.get(schedule.template)
    if handler is not None and schedule.params:
        handler.check_context(schedule.params)
        handler.codec.check_some(schedule.params)


def _refuse_past(schedule: Schedule, now: Instant) -> None:
    at = schedule.timing.at
    if at is not None and at <= now:
        raise InvalidSchedule(f"at={schedule_view(schedule).at} has passed: give a moment to come, or `enqueue` the job")
