"""Schedules and calendars of a definitions file: checked against the store and the rest of the file, written in an order that holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from rota.errors import DependencyCycle, InvalidInput
from rota.model.definitions import OrganizationState, TemplateState, unfit_for_schedules
from rota.model.gate import Actor, Right
from rota.model.params import decode_params, encode_params
from rota.model.schedule_options import calendar_of
from rota.model.schedule_order import dependencies_first
from rota.model.schedules import Calendar, Schedule, ScheduleState, comes_into_use, next_due
from rota.surfaces.python.defining import Defining

if TYPE_CHECKING:
    from rota.definitions_file import Definitions, Entry

NULLABLE = frozenset(
    {"timezone", "starts", "ends", "params", "priority", "catch_up_lateness", "catch_up_count", "calendar", "run_as", "description"}
)
"""Options that "none" takes back to their default. TOML has no word for nothing."""


class Change(msgspec.Struct):
    """One thing of a file: what it is, whether it is there already, and how it is written if it differs."""

    what: str
    is_new: bool
    write: Callable[[], object] | None


class _Planned(msgspec.Struct):
    """A schedule of a file: as it is, and as it shall be."""

    entry: Entry
    who: Actor
    said: dict[str, Any]
    state: ScheduleState | None
    before: Schedule | None
    after: Schedule


class _Around(msgspec.Struct):
    """What a schedule can name: what is in the store, and what is in the file."""

    templates: dict[str, str]
    """With the state that each has, or will have by this file."""
    calendars: set[tuple[str, str]]
    schedules: set[tuple[str, str]]

    def check(self, planned: _Planned) -> None:
        """Refuse a schedule that names something else."""
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


class LoadingSchedules(Defining):
    """The part of Rota that takes schedules and calendars from files."""

    def _changed_calendars(self, definitions: Definitions, actor: Actor | str | None) -> Iterator[Change]:
        there = {(organization, each.name): each for organization, each in self._session.open().store.calendars()}
        for entry in definitions.calendars:
            who = self._session.acts(actor, Right.SCHEDULE, self._home(entry, definitions))
            before = there.get((who.organization, entry.name))
            after = self._calendar(entry, before)

            def write(after: Calendar = after, who: Actor = who) -> None:
                self._session.open().store.put_calendar(after, organization=who.organization, actor=who, now=self._session.clock.now())

            yield Change(f"calendar {entry.name}", before is None, None if after == before else write)

    def _calendar(self, entry: Entry, before: Calendar | None) -> Calendar:
        if before is None and "days" not in entry.fields:
            raise entry.at.refusal("days is missing: give a list of dates, such as [2026-12-25]")
        days = entry.fields.get("days", () if before is None else sorted(before.days))
        description = entry.fields.get("description", None if before is None else before.description)
        with entry.at.naming():
            return calendar_of(
                entry.name, days, None if _is_none("description", description) else description, most=self.settings.calendar_max
            )

    def _changed_schedules(self, definitions: Definitions, actor: Actor | str | None) -> Iterator[Change]:
        there = {(each.organization, each.name): each for each in (self._open_synced().schedules() if definitions.schedules else ())}
        planned = [self._plan(entry, definitions, there, actor) for entry in definitions.schedules]
        around = self._around(definitions, {*there, *((each.after.organization, each.after.name) for each in planned)})
        for each in self._in_order_of_need(planned, there.values()):
            around.check(each)
            write = None if each.after == each.before else partial(self._write_planned, each)
            yield Change(f"schedule {each.entry.name}", each.before is None, write)

    def _plan(self, entry: Entry, definitions: Definitions, there: dict[tuple[str, str], Schedule], actor: Actor | str | None) -> _Planned:
        who = self._session.acts(actor, Right.SCHEDULE, self._home(entry, definitions))
        before = there.get((who.organization, entry.name))
        with entry.at.naming():
            state = _state(entry.fields)
            said = {key: None if _is_none(key, value) else value for key, value in entry.fields.items() if key not in OF_THE_FILE}
            if said.get("params") is not None:
                # As JSON has it: a date of the file compares with what was kept of it.
                said["params"] = decode_params(encode_params(said["params"], limit_bytes=self.settings.payload_max))
            if before is None:
                said.setdefault("template", entry.name)
                is_here = who.organization in self._session.registry.organizations
                after = (
                    self._new_schedule(entry.name, said, who) if is_here else self._built(entry.name, said, who, self._session.clock.now())
                )
            else:
                after = self._edited(before, said)
        return _Planned(entry, who, said, state, before, self._in_state(after, state))

    def _edited(self, schedule: Schedule, said: dict[str, Any]) -> Schedule:
        return self._changed(schedule, said, self._session.clock.now())

    def _in_state(self, schedule: Schedule, state: ScheduleState | None) -> Schedule:
        """Return it in the state that the file says. An AT that is over stays disabled: the file may be loaded again after its moment."""
        is_over = schedule.state is ScheduleState.DISABLED and next_due(schedule.timing, self._session.clock.now()) is None
        return schedule if state is None or is_over else msgspec.structs.replace(schedule, state=state)

    def _in_order_of_need(self, planned: Sequence[_Planned], there: Iterable[Schedule]) -> list[_Planned]:
        """Return what is planned so that each comes after those it depends on, in the file or the store."""
        waits = {(each.organization, each.name): each.depends_on for each in there}
        waits |= {(each.after.organization, each.after.name): each.after.depends_on for each in planned}
        by_name = {(each.after.organization, each.after.name): each for each in planned}
        found: list[_Planned] = []
        for organization in dict.fromkeys(each.after.organization for each in planned):
            try:
                names = dependencies_first({name: parents for (home, name), parents in waits.items() if home == organization})
            except DependencyCycle as error:
                culprit = next(each for each in planned if each.after.name in error.path and each.after.organization == organization)
                raise culprit.entry.at.refusal(error) from None
            found += [by_name[organization, name] for name in names if (organization, name) in by_name]
        return found

    def _around(self, definitions: Definitions, schedules: set[tuple[str, str]]) -> _Around:
        calendars = {(organization, each.name) for organization, each in self._session.open().store.calendars()}
        templates = {name: known.state for name, known in self._recorded().items()}
        for each in definitions.templates:
            templates[each.name] = each.state or templates.get(each.name, TemplateState.ENABLED)
        return _Around(
            templates=templates,
            calendars=calendars | {(_organization(each), each.name) for each in definitions.calendars},
            schedules=schedules,
        )

    def _write_planned(self, planned: _Planned) -> None:
        if planned.before is None:
            self._add_schedule(planned.after, planned.who)
            return

        def change(schedule: Schedule) -> Schedule:
            return self._in_state(self._edited(schedule, planned.said), planned.state)

        self._deciding(
            lambda decide, store, now, version: store.change_schedule(
                planned.after.id, change, decide, actor=planned.who, now=now, definitions=version
            )
        )

    def _home(self, entry: Entry, definitions: Definitions) -> str:
        """Return the organization that a table is about; it must be in the store or in the file."""
        name = _organization(entry)
        self._session.registry.sync(self._session.open().store, self._session.clock.now())
        found = self._session.registry.organizations.get(name)
        if found is not None and found.state is OrganizationState.REMOVED:
            raise entry.at.refusal(f"organization {name!r} was removed: `rota organization resume {name}` brings it back")
        if found is None and name not in {each.name for each in definitions.organizations}:
            raise entry.at.refusal(f"organization={name!r} is neither in the store nor in this file")
        return name


OF_THE_FILE = ("state", "enabled", "organization")
"""Keys of a schedule's table that are none of its options."""


def _organization(entry: Entry) -> str:
    name = entry.fields.get("organization", "default")
    if not isinstance(name, str):
        raise entry.at.refusal(f"organization={name!r} is not allowed: give its name")
    return name


def _state(fields: dict[str, Any]) -> ScheduleState | None:
    """Return the state that a table says, in one of the two ways there are; None: as it is, and of a new one ENABLED."""
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
