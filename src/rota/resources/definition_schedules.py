"""Schedules and calendars of a definitions file: checked against the store and the rest of the file, written in order of dependency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from rota.declarations import declare_scheduled, synced
from rota.definitions_file import Definitions, Entry
from rota.errors import DependencyCycle, InvalidInput
from rota.model.definitions import OrganizationState, TemplateState, unfit_for_schedules
from rota.model.dependencies import dependencies_first
from rota.model.gate import Actor, Right
from rota.model.params import decode_params, encode_params
from rota.model.schedule_options import calendar_of
from rota.model.schedules import Calendar, Schedule, ScheduleState, comes_into_use, next_due
from rota.operation import Ask
from rota.resources.templates import recorded
from rota.schedule_edits import Ahead, added, built, changed, edited, new_schedule

NULLABLE = frozenset(
    {"timezone", "starts", "ends", "params", "priority", "catch_up_lateness", "catch_up_count", "calendar", "run_as", "description"}
)
"""Options that "none" takes back to their default. TOML has no null."""
OF_THE_FILE = ("state", "enabled", "organization")
"""Keys of a schedule's table that are not among its options."""


class Change(msgspec.Struct):
    """One thing of a file: its name, whether it is new, and how it is written if it differs."""

    what: str
    is_new: bool
    write: Callable[[], object] | None


class _Planned(msgspec.Struct):
    """A schedule of a file: as it is, and as it will be."""

    entry: Entry
    who: Actor
    options: dict[str, Any]
    state: ScheduleState | None
    before: Schedule | None
    after: Schedule


class _References(msgspec.Struct):
    """The names that a schedule can refer to: those in the store, and those in the file."""

    templates: dict[str, str]
    """With the state that each has, or will have by this file."""
    calendars: set[tuple[str, str]]
    schedules: set[tuple[str, str]]

    def check(self, planned: _Planned) -> None:
        """Refuse a schedule that refers to something else."""
        after = planned.after
        lost = [] if after.template in self.templates else [f"template={after.template!r}"]
        if after.calendar is not None and (after.organization, after.calendar) not in self.calendars:
            lost.append(f"calendar={after.calendar!r}")
        lost += [f"depends_on={name!r}" for name in after.depends_on if (after.organization, name) not in self.schedules]
        if lost:
            raise planned.entry.at.refusal(f"{lost[0]} is neither in the store, for organization {after.organization!r}, nor in this file")
        state, before = self.templates[after.template], planned.before
        if state != TemplateState.ENABLED and (before is None or before.template != after.template or comes_into_use(before, after)):
            raise planned.entry.at.refusal(unfit_for_schedules(after.template, state))


def changed_calendars(ask: Ask, definitions: Definitions) -> Iterator[Change]:
    """Go through the calendars of a file."""
    there = {(organization, each.name): each for organization, each in ask.store.calendars()}
    for entry in definitions.calendars:
        who = actor_of(ask.also(Right.SCHEDULE), entry, definitions)
        before = there.get((who.organization, entry.name))
        after = _calendar(ask, entry, before)

        def write(after: Calendar = after, who: Actor = who) -> None:
            ask.store.put_calendar(after, organization=who.organization, actor=who, now=ask.now)

        yield Change(f"calendar {entry.name}", before is None, None if after == before else write)


def changed_schedules(ask: Ask, definitions: Definitions, ahead: Ahead) -> Iterator[Change]:
    """Go through the schedules of a file, each after those it depends on."""
    there = {(each.organization, each.name): each for each in (synced(ask.session).schedules() if definitions.schedules else ())}
    planned = [_plan(ask, entry, definitions, there, ahead) for entry in definitions.schedules]
    references = _references(ask, definitions, {*there, *((each.after.organization, each.after.name) for each in planned)})
    for each in _dependencies_first(planned, there.values()):
        references.check(each)
        write = None if each.after == each.before else partial(_write, ask, each)
        yield Change(f"schedule {each.entry.name}", each.before is None, write)


def _calendar(ask: Ask, entry: Entry, before: Calendar | None) -> Calendar:
    if before is None and "days" not in entry.fields:
        raise entry.at.refusal("days is missing: use a list of dates, such as [2026-12-25]")
    days = entry.fields.get("days", () if before is None else sorted(before.days))
    description = entry.fields.get("description", None if before is None else before.description)
    with entry.at.naming():
        return calendar_of(entry.name, days, None if _is_none("description", description) else description, most=ask.settings.calendar_max)


def _plan(ask: Ask, entry: Entry, definitions: Definitions, there: dict[tuple[str, str], Schedule], ahead: Ahead) -> _Planned:
    session, who = ask.session, actor_of(ask.also(Right.SCHEDULE), entry, definitions)
    before = there.get((who.organization, entry.name))
    with entry.at.naming():
        state = _state(entry.fields)
        options = {key: None if _is_none(key, value) else value for key, value in entry.fields.items() if key not in OF_THE_FILE}
        if options.get("params") is not None:
            # As JSON has it: a date of the file compares equal to the stored one.
            options["params"] = decode_params(encode_params(options["params"], limit_bytes=ask.settings.payload_max))
        if before is None:
            options.setdefault("template", entry.name)
            is_here = who.organization in ask.registry.organizations
            build = new_schedule if is_here else built
            after = build(session, entry.name, options, who, ask.now, ahead=ahead)
        else:
            after = changed(session, before, options, ask.now, ahead=ahead)
    return _Planned(entry, who, options, state, before, _in_state(ask, after, state))


def _in_state(ask: Ask, schedule: Schedule, state: ScheduleState | None) -> Schedule:
    """Return it in the state that the file sets. An AT that is over stays disabled: the file may be loaded again after its moment."""
    is_over = schedule.state is ScheduleState.DISABLED and next_due(schedule.timing, ask.now) is None
    return schedule if state is None or is_over else msgspec.structs.replace(schedule, state=state)


def _dependencies_first(planned: Sequence[_Planned], there: Iterable[Schedule]) -> list[_Planned]:
    """Return what is planned so that each comes after those it depends on, in the file or the store."""
    waits = {(each.organization, each.name): each.depends_on for each in there}
    waits |= {(each.after.organization, each.after.name): each.after.depends_on for each in planned}
    by_name = {(each.after.organization, each.after.name): each for each in planned}
    ordered: list[_Planned] = []
    for organization in dict.fromkeys(each.after.organization for each in planned):
        try:
            names = dependencies_first({name: parents for (home, name), parents in waits.items() if home == organization})
        except DependencyCycle as error:
            culprit = next(each for each in planned if each.after.name in error.path and each.after.organization == organization)
            raise culprit.entry.at.refusal(error) from None
        ordered += [by_name[organization, name] for name in names if (organization, name) in by_name]
    return ordered


def _references(ask: Ask, definitions: Definitions, schedules: set[tuple[str, str]]) -> _References:
    calendars = {(organization, each.name) for organization, each in ask.store.calendars()}
    templates: dict[str, str] = {name: known.state for name, known in recorded(ask).items()}
    for each in definitions.templates:
        templates[each.name] = each.state or templates.get(each.name, TemplateState.ENABLED)
    return _References(
        templates=templates,
        calendars=calendars | {(_organization(each), each.name) for each in definitions.calendars},
        schedules=schedules,
    )


def _write(ask: Ask, planned: _Planned) -> None:
    declare_scheduled(ask.session)
    if planned.before is None:
        added(ask.session, planned.after, planned.who)
        return

    def change(schedule: Schedule) -> Schedule:
        return _in_state(ask, changed(ask.session, schedule, planned.options, ask.now), planned.state)

    edited(ask.session, planned.after.id, change, planned.who)


def actor_of(ask: Ask, entry: Entry, definitions: Definitions) -> Actor:
    """Return the actor in the organization that a table is about, which must be in the store or in the file."""
    name = _organization(entry)
    ask.registry.sync(ask.store, ask.now)
    organization = ask.registry.organizations.get(name)
    if organization is not None and organization.state is OrganizationState.REMOVED:
        raise entry.at.refusal(f"organization {name!r} was removed: `rota organization restore {name}` brings it back")
    if organization is None and name not in {each.name for each in definitions.organizations}:
        raise entry.at.refusal(f"organization={name!r} is neither in the store nor in this file")
    return ask.within(name)


def _organization(entry: Entry) -> str:
    name = entry.fields.get("organization", "default")
    if not isinstance(name, str):
        raise entry.at.refusal(f"organization={name!r} is not allowed: use its name")
    return name


def _state(fields: dict[str, Any]) -> ScheduleState | None:
    """Return the state that a table sets, by `state` or by `enabled`. None: unchanged, and ENABLED for a new one."""
    state, enabled = fields.get("state"), fields.get("enabled")
    if state is not None and enabled is not None:
        raise InvalidInput("state and enabled are both given: one of them is enough")
    if enabled is not None:
        if not isinstance(enabled, bool):
            raise InvalidInput(f"enabled={enabled!r} is not allowed: give true or false")
        return ScheduleState.ENABLED if enabled else ScheduleState.DISABLED
    if state is None:
        return None
    if not isinstance(state, str) or state.upper() not in set(ScheduleState):
        raise InvalidInput(f"state={state!r} is not one of {', '.join(each.lower() for each in ScheduleState)}")
    return ScheduleState(state.upper())


def _is_none(key: str, value: object) -> bool:
    return key in NULLABLE and isinstance(value, str) and value.lower() == "none"
