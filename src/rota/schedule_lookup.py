"""Schedules as a caller may see them: by name, all that are in its scope, and what is overdue of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.declarations import synced
from rota.engine.overdue import Backlog, overdue
from rota.errors import InvalidOption, NotFound
from rota.model.gate import EVERYTHING, Scope
from rota.model.schedules import Schedule
from rota.model.values import Instant
from rota.ports.schedules import Ledger
from rota.schedule_views import OverdueView, overdue_view

if TYPE_CHECKING:
    from rota.operation import Ask
    from rota.session import Session


def named(ask: Ask, name: str, organization: str | None) -> Schedule:
    """Return the schedule of this name that the actor means: of the organization given, else its own, else the only one."""
    scope = ask.scope
    matches = synced(ask.session).schedules(scope=Scope(organization or scope.organization, scope.owner), name=name)
    if scope is not EVERYTHING:
        matches = [schedule for schedule in matches if scope.holds(schedule.organization, schedule.created_by)]
    if len(matches) > 1:
        own = ask.who.organization
        matches = [schedule for schedule in matches if schedule.organization == own] or matches
    if not matches:
        raise NotFound(f"there is no schedule {name!r}: `rota schedule list` shows them")
    if len(matches) > 1:
        names = ", ".join(schedule.organization for schedule in matches[:5])
        raise InvalidOption(f"several organizations have a schedule {name!r} ({names}): say which with organization=…")
    return matches[0]


def in_scope(ask: Ask, schedule: str | None = None, organization: str | None = None) -> list[Schedule]:
    """Return the schedules that are asked for, inside the actor's scope: the one that is named, or all."""
    if schedule is not None:
        return [named(ask, schedule, organization)]
    return [each for each in synced(ask.session).schedules(scope=ask.scope) if organization in {None, each.organization}]


def overdue_views(ask: Ask, schedule: str | None = None, organization: str | None = None) -> list[OverdueView]:
    """Return the schedules with due times that passed longer than `lease_ttl` ago and have no recorded outcome."""
    schedule_id = None if schedule is None else named(ask, schedule, organization).id
    ledger = Ledger(scope=ask.scope, schedule_id=schedule_id, organization=organization)
    return [overdue_view(each) for each in backlog(ask.session, ledger, ask.now).schedules]


def backlog(session: Session, ledger: Ledger, now: Instant) -> Backlog:
    """Return what is overdue of the schedules that a query of the ledger is about."""
    scope, organization = ledger.scope, ledger.organization
    if scope.organization is not None and organization not in {None, scope.organization}:
        return Backlog()
    scope = Scope(scope.organization or organization, scope.owner)
    return overdue(session.open().store, session.registry, session.settings, now=now, scope=scope, schedule_id=ledger.schedule_id)
