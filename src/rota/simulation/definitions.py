"""What a simulation takes over from a store: definitions and figures, no job."""

from __future__ import annotations

import msgspec

from rota.model.definitions import Organization, Template, User
from rota.model.figures import FIGURES_H, TypeStats
from rota.model.gate import EVERYTHING, SYSTEM, Scope
from rota.model.schedules import Calendar, CatchUp, Schedule
from rota.model.values import Instant
from rota.ports.store import Store


class Definitions(msgspec.Struct, kw_only=True):
    """The definitions of a store, as far as somebody may see them."""

    organizations: list[Organization] = msgspec.field(default_factory=list)
    users: list[User] = msgspec.field(default_factory=list)
    templates: list[Template] = msgspec.field(default_factory=list)
    pauses: list[tuple[str, str]] = msgspec.field(default_factory=list)
    calendars: list[tuple[str, Calendar]] = msgspec.field(default_factory=list)
    schedules: list[Schedule] = msgspec.field(default_factory=list)
    figures: tuple[TypeStats, ...] = ()
    behind: dict[str, Instant] = msgspec.field(default_factory=dict)
    """Schedules, by id, one of whose due times before the start is to be fired at the start, and up to which moment they were fired."""


def read(store: Store, now: Instant, scope: Scope = EVERYTHING) -> Definitions:
    """Read what a simulation needs, inside a scope."""
    mine = scope.organization
    return Definitions(
        organizations=[each for each in store.organizations() if mine in {None, each.name}],
        users=[each for each in store.users() if mine in {None, each.organization}],
        templates=store.templates(),
        pauses=[(kind, name) for kind, name in store.pauses() if kind != "organization" or mine in {None, name}],
        calendars=store.calendars(organization=mine),
        schedules=store.schedules(scope=scope),
        figures=store.stats(now=now, hours=FIGURES_H, scope=scope).by_type,
    )


def write(store: Store, said: Definitions, start: Instant) -> None:
    """Write definitions into an empty store. Schedules begin at `start`: what was due before is not made up for."""
    for organization in said.organizations:
        store.put_organization(organization, actor=SYSTEM, now=start)
    # Those who were removed after the others: somebody has to stay a manager.
    for user in sorted(said.users, key=lambda user: user.removed):
        _write_user(store, user, start)
    for organization in said.organizations:
        store.set_organization_state(organization.name, organization.state, actor=SYSTEM, now=start)
    store.put_templates(said.templates, actor=SYSTEM, now=start)
    for template in said.templates:
        if template.overrides:
            store.set_template(template, actor=SYSTEM, now=start, overrides=template.overrides)
    for kind, name in said.pauses:
        store.pause(kind, name, actor=SYSTEM, now=start)
    for organization_name, calendar in said.calendars:
        store.put_calendar(calendar, organization=organization_name, actor=SYSTEM, now=start)
    for schedule in _in_order(said.schedules):
        behind = said.behind.get(schedule.id)
        begun = msgspec.structs.replace(schedule, cursor_at=start if behind is None else behind)
        if behind is not None:
            # Nothing else is ever late in a simulation without faults, so these rules decide about that due time alone.
            begun = msgspec.structs.replace(begun, catch_up=CatchUp.LAST, catch_up_lateness=None)
        store.add_schedule(begun, actor=SYSTEM, now=start)
    # Last: a schedule that is in use stays so when its template is disabled, but is not made for one that is.
    for template in said.templates:
        store.set_template_state(template.name, template.state, actor=SYSTEM, now=start)


def _write_user(store: Store, user: User, start: Instant) -> None:
    store.put_user(msgspec.structs.replace(user, removed=False), actor=SYSTEM, now=start)
    if user.removed:
        store.remove_user(user.name, actor=SYSTEM, now=start)


def _in_order(schedules: list[Schedule]) -> list[Schedule]:
    """Return schedules as they were made, which is how those that are due at once are fired, and each after those it depends on."""
    left = {(each.organization, each.name): each for each in sorted(schedules, key=lambda each: each.id)}
    placed: dict[tuple[str, str], Schedule] = {}

    def place(key: tuple[str, str]) -> None:
        schedule = left.pop(key, None)
        if schedule is None:
            return
        for name in schedule.depends_on:
            place((schedule.organization, name))
        placed[key] = schedule

    for key in list(left):
        place(key)
    return list(placed.values())
