"""What keeps a job waiting, as a person would say it."""

from __future__ import annotations

from rota.engine.predicates import World
from rota.model.values import Held, Instant, moment

_WORDS = {
    "type": "no live worker has a handler for {name}",
    "queue": "no live worker that has its handler serves queue {name}: start one with `rota worker --queue {name}`",
    "params": "it was enqueued for {name}: it waits for a worker that takes its parameters",
    "all": "everything is paused",
    "paused-queue": "queue {name} is paused",
    "template": "template {name} is paused",
    "broken": "template {name} can't be read, so its jobs wait: `rota doctor` says what to do",
    Held.ORGANIZATION: "organization {name} is paused",
    Held.SUSPENDED: "organization {name} is suspended",
    "alone": "{name} runs alone: a worker crashed under it before, and nothing else starts on its worker until it finishes",
    "suspect": "{name} is running: of jobs that a worker crashed under, a worker runs one at a time",
    "process": "a handler process for it is starting",
}
_DISCREET = {
    Held.TEMPLATE_LIMIT: "template {name} is at its limit",
    Held.RATE_LIMIT: "template {name} is at its rate limit",
    "concurrency": "its workers hold as many {name} jobs as they may",
    "alone": "a job that a worker crashed under runs alone, and nothing else starts on its worker until it finishes",
    "suspect": "another job that a worker crashed under is running: a worker runs one at a time",
}
"""For whom must not learn how much others run, or who they are."""


def in_words(blocker: str, world: World, now: Instant, *, whole: bool) -> str:
    """Return what blocks. `whole`: figures and names of all organizations may be told, not only of the reader's own."""
    kind, _, name = blocker.partition(":")
    words = _DISCREET[kind].format(name=name) if kind in _DISCREET and not whole else _told(kind, name, world)
    return words + _until(name, world, now) if kind == Held.RATE_LIMIT else words


def _told(kind: str, name: str, world: World) -> str:
    used = world.in_use
    match kind:
        case Held.TEMPLATE_LIMIT:
            return f"{used.by_type.get(name, 0)} of at most {world.template_limits[name]} {name} jobs run"
        case Held.ORGANIZATION_LIMIT:
            return f"organization {name} runs {used.by_organization.get(name, 0)} of at most {world.organization_limits[name]}"
        case Held.RATE_LIMIT:
            return f"{used.starts[name].count} started in the last {world.rates[name].seconds:g} s"
        case "concurrency":
            return f"its workers hold {used.here.get(name, 0)} of at most {world.concurrency[name]} {name} jobs"
        case _:
            return _WORDS[kind].format(name=name)


def _until(name: str, world: World, now: Instant) -> str:
    next_at = world.in_use.starts[name].next_at
    if next_at is None:
        return ""
    return f"; the next may start in {max(0.0, (next_at - now) / 1e6):.0f} s (at {moment(next_at):%Y-%m-%dT%H:%M:%SZ})"
