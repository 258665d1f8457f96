"""What the jobs of schedules need, by the definitions in force: how long they usually take, and which limits they count against."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from rota.engine.predicates import World
from rota.engine.registry import Registry
from rota.model.contention import SLOTS, Demand, Limited
from rota.model.figures import TypeStats, usual
from rota.model.prospects import Prospect
from rota.model.schedules import Overlap, Schedule
from rota.model.values import SECOND


class Demands(msgspec.Struct, frozen=True, kw_only=True):
    """What each of some schedules needs, in their order, and how much there is of everything that is limited."""

    each: tuple[Demand, ...]
    rooms: Mapping[Limited, int]


def demands_of(
    prospects: Sequence[Prospect],
    registry: Registry,
    world: World,
    *,
    figures: Mapping[str, TypeStats],
    slots: int,
    busy: Collection[str] = (),
) -> Demands:
    """Return what schedules need; `busy` are the ids of those that have jobs which are not over."""
    places = {(each.schedule.organization, each.schedule.name): place for place, each in enumerate(prospects)}
    rooms: dict[Limited, int] = {SLOTS: slots}
    rooms |= {("template", name): limit for name, limit in world.template_limits.items()}
    rooms |= {("organization", name): limit for name, limit in world.organization_limits.items()}
    # Who fires counts what waits: with that many not over, none of them can be one too many.
    rooms |= {("queue", each.name): each.max_queued for each in registry.organizations.values() if each.max_queued is not None}
    # This many on each worker: with one more than that it depends on which worker takes it.
    rooms |= {("worker", name): limit for name, limit in world.concurrency.items()}
    found: list[Demand] = []
    for prospect in prospects:
        schedule = prospect.schedule
        lasts = usual(figures.get(schedule.job_type))
        owner, template = schedule.organization, schedule.job_type
        shares = (("template", template), ("worker", template), ("organization", owner), ("queue", owner))
        found.append(
            Demand(
                lasts=schedule.jitter + lasts,
                shares=tuple(limit for limit in shares if limit in rooms),
                allows=schedule.overlap is Overlap.ALLOW,
                awaits=tuple(places[key] for key in ((schedule.organization, name) for name in schedule.depends_on) if key in places),
                certain=schedule.id in busy or _is_held(schedule, registry, world, lasts / SECOND),
            )
        )
    return Demands(each=tuple(found), rooms=rooms)


def _is_held(schedule: Schedule, registry: Registry, world: World, lasts_s: float) -> bool:
    """Say whether something else than a number that run at once may hold up its jobs, or bring them back."""
    organization, template = schedule.organization, schedule.job_type
    pauses = {("all", ""), ("template", template), ("organization", organization)}
    if not pauses.isdisjoint(world.pauses) or organization in world.suspended or template in world.rates:
        return True
    known = registry.find(template)
    return known is not None and 0 < known.force.policy.timeout < lasts_s
