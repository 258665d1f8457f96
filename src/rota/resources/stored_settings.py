"""Settings that the store keeps for all processes."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from rota.model.gate import Right
from rota.model.shapes import TEXT_MAX, Shape
from rota.model.stored_settings import NO_EFFECT, STORABLE, InForceSettings, Storable, Stored, Word, storable
from rota.operation import Ask, Resource, operation

if TYPE_CHECKING:
    from rota.engine.registry import Registry

SettingName = Annotated[str, Shape("Its name.", "scheduler.enabled", "NAME", most=TEXT_MAX)]


class SettingView(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that the store may keep, and what holds in the process that answers."""

    name: str
    value: str | None
    """What holds here; None: nothing goes by it, and nothing is stored."""
    source: Word
    """Whose word that is."""
    setting: str | None
    """The setting of the process that it sets."""
    stored: str | None = None
    set_by: str | None = None
    set_at: datetime | None = None
    notice: str | None = None
    """Why what is stored does not hold, or not yet."""
    what: str


class StoredSettings(Resource):
    """Settings that the store keeps: they hold in every process whose environment and program say nothing of them."""

    __slots__ = ()

    @operation(Right.OPERATE, http="GET /settings", cli="setting list")
    def list(self, ask: Ask) -> builtins.list[SettingView]:
        """Return every setting that the store may keep: its value here, and whose word that is."""
        return views(ask)

    @operation(Right.OPERATE, http="PUT /settings/{name}", cli="setting set")
    def set(self, ask: Ask, name: SettingName, value: Annotated[str, Shape("Its value.", "false", "VALUE", most=TEXT_MAX)]) -> SettingView:
        """Set a setting for all processes.

        The environment of a process and its program take precedence over it.
        """
        return put(ask, name, value)

    @operation(Right.OPERATE, http="DELETE /settings/{name}", cli="setting reset")
    def reset(self, ask: Ask, name: SettingName) -> SettingView:
        """Remove a setting from the store, so that its default holds again."""
        return put(ask, name, None)


def put(ask: Ask, name: str, value: str | None) -> SettingView:
    """Set a setting, or reset it if the value is None; return what holds since."""
    full, known = storable(name)
    text = None if value is None else value.strip()
    if text is not None:
        known.value_of(full, text)
    ask.store.put_setting(full, text, actor=ask.who, now=ask.now)
    ask.session.poke()
    return next(view for view in views(ask) if view.name == full)


def views(ask: Ask) -> builtins.list[SettingView]:
    """Return every setting that the store may keep."""
    ask.session.current()
    return last_read(ask.registry)


def last_read(registry: Registry) -> builtins.list[SettingView]:
    """Return the same, as last read."""
    holds = registry.in_force()
    stored = {each.name: each for each in registry.stored}
    return [_view(name, known, holds, stored.get(name)) for name, known in STORABLE.items()]


def _view(name: str, known: Storable, holds: InForceSettings, stored: Stored | None) -> SettingView:
    facts: dict[str, Any] = {} if stored is None else {"stored": stored.value, "set_by": stored.set_by, "set_at": stored.set_at}
    if known.field is None:
        source = Word.DEFAULT if stored is None else Word.STORE
        notice = None if stored is None else f"{name} {NO_EFFECT}"
        return SettingView(name=name, value=facts.get("stored"), source=source, setting=None, notice=notice, what=known.what, **facts)
    source = holds.words[known.field]
    return SettingView(
        name=name,
        value=known.shown(getattr(holds.settings, known.field)),
        source=source,
        setting=known.field,
        notice=None if stored is None else _notice(name, known, holds),
        what=known.what,
        **facts,
    )


def _notice(name: str, known: Storable, holds: InForceSettings) -> str | None:
    """Return why what is stored does not hold here, or not yet."""
    assert known.field is not None  # noqa: S101 - the caller looked
    value, source = known.shown(getattr(holds.settings, known.field)), holds.words[known.field]
    if source is Word.ENVIRONMENT:
        return f"{name} is {value} in this process: ROTA_{known.field.upper()} takes precedence over the store"
    if source is Word.PROGRAM:
        return f"{name} is {value} in this process: Settings({known.field}=…) takes precedence over the store"
    if known.at_start:
        return f"workers that are running keep theirs until they are restarted: {name} holds from the next start on"
    return None
