"""Schedules that code declares: made the first time, and brought up to what the code says anew.

What the code said last stands in the schedule. Where it says the same again, nothing happens, whatever people have changed since;
where it says something else, that option and no other is changed. So people's word stays until the code has a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rota.errors import ScheduleExists, TemplateUnavailable
from rota.model.gate import Actor, Scope
from rota.model.schedule_options import TIMES, as_said, with_options
from rota.model.schedules import OnCompletion, Schedule, ScheduleState
from rota.model.values import Instant
from rota.ports.schedules import Change
from rota.ports.store import Store

log = logging.getLogger("rota.schedules")


def declare(
    store: Store,
    name: str,
    said: Mapping[str, Any],
    build: Callable[[], Schedule],
    edit: Callable[[str, Change, Actor], Schedule],
    *,
    actor: Actor,
    now: Instant,
) -> Schedule:
    """Make the schedule, or change what is said otherwise than last time; `build` refuses what can't be.

    One whose template takes no jobs is kept DISABLED, with a warning: a program has to start all the same.
    """
    words = as_said(said)
    found = store.schedules(scope=Scope(actor.organization), name=name)
    if found and found[0].declared == words:
        # Not built: its `at` or `ends` may have passed since it was said first.
        return found[0]
    if not found and _is_done(store, name, words, actor):
        return store.schedules(scope=Scope(actor.organization), name=name, dropped=True)[-1]
    new = build()
    if not found:
        try:
            return _add(store, msgspec.structs.replace(new, declared=words), actor, now)
        except ScheduleExists:
            # Another process started in the same moment: what it made is looked at like any other.
            found = store.schedules(scope=Scope(actor.organization), name=name)
            if not found:
                raise
            if found[0].declared == words:
                return found[0]

    def change(schedule: Schedule) -> Schedule:
        return msgspec.structs.replace(with_options(schedule, news(schedule.declared or {}, words), now), declared=words)

    def disabled(schedule: Schedule) -> Schedule:
        return _disabled(change(schedule))

    try:
        return edit(found[0].id, change, actor)
    except TemplateUnavailable as error:
        _warn(found[0], error)
        return edit(found[0].id, disabled, actor)


def _add(store: Store, new: Schedule, actor: Actor, now: Instant) -> Schedule:
    try:
        return store.add_schedule(new, actor=actor, now=now)
    except TemplateUnavailable as error:
        _warn(new, error)
        return store.add_schedule(_disabled(new), actor=actor, now=now)


def _disabled(schedule: Schedule) -> Schedule:
    return msgspec.structs.replace(schedule, state=ScheduleState.DISABLED)


def _warn(schedule: Schedule, error: TemplateUnavailable) -> None:
    log.warning(
        "schedule %s of organization %s is disabled: %s, and `rota schedule enable %s` after it",
        schedule.name,
        schedule.organization,
        error,
        schedule.name,
    )


def _is_done(store: Store, name: str, words: Mapping[str, Any], actor: Actor) -> bool:
    """Say whether this is an AT that has fired and was not to be kept: it is not made anew when the program starts again."""
    if words.get("at") is None or str(words.get("on_completion")).upper() != OnCompletion.DROP:
        return False
    gone = store.schedules(scope=Scope(actor.organization), name=name, dropped=True)
    return bool(gone) and gone[-1].declared == words and gone[-1].last_at is not None


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are said otherwise now; one that is said no more goes back to its default."""
    changed = {name: after.get(name) for name in {*before, *after} if before.get(name) != after.get(name)}
    if any(changed.get(name) is not None for name in TIMES):
        # Another rule takes the place of the old one by itself.
        changed = {name: value for name, value in changed.items() if name not in TIMES or value is not None}
    return changed
