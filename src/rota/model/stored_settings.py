"""Settings that the store keeps for all processes: their names in SQL, the settings that they set, and whose word holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from rota.errors import InvalidOption, NotFound
from rota.model.checks import guess
from rota.model.settings import DOCS, Settings, checked, parsed

PREFIX = "scheduler."
DAY_S = 86_400
SWITCH = {"true": "on", "on": "on", "yes": "on", "1": "on", "false": "off", "off": "off", "no": "off", "0": "off"}
NO_EFFECT = "has no effect: due times are fired when they are due, and as many in one turn as `schedule_batch` allows"


class Word(StrEnum):
    """Whose word a value is, the strongest first."""

    ENVIRONMENT = "environment"
    PROGRAM = "program"
    STORE = "store"
    DEFAULT = "default"


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that the store keeps."""

    name: str
    value: str
    set_by: str
    set_at: datetime


class Storable(msgspec.Struct, frozen=True):
    """A setting that the store may keep."""

    what: str
    field: str | None = None
    """The setting that it sets; None: nothing here goes by it."""
    read: Callable[[str], Any] | None = None
    """Makes a value of the setting from the text; None: as settings are read everywhere."""
    shown: Callable[[Any], Any] = str
    """Makes a text of a value of the setting."""
    at_start: bool = False
    """Workers go by it from their next start on; other settings hold at once."""

    def value_of(self, name: str, text: str) -> Any:
        """Return the value of the setting for a text; refuse one that it can't have."""
        if self.field is None:
            return float(text) if _is_number(text) and float(text) > 0 else _refuse(name, text, "use a number above 0")
        doc = DOCS[self.field]
        try:
            return checked(self.field, parsed(self.field, text) if self.read is None else self.read(text))
        except (ValueError, InvalidOption):
            return _refuse(name, text, self._taken(doc.words, doc.low, doc.high))

    def _taken(self, words: tuple[str, ...], low: float | None, high: float | None) -> str:
        if self.read is _switch:
            return "use true or false"
        if words:
            return f"use {', '.join(words[:-1])} or {words[-1]}"
        bounds = [None if each is None else self.shown(each) for each in (low, high)]
        if bounds[1] is None:
            return "use a number" if bounds[0] is None else f"use {bounds[0]} or more"
        return f"use {bounds[0]} to {bounds[1]}"


def _switch(text: str) -> str:
    return SWITCH.get(text.lower(), text)


def _days(text: str) -> float:
    return float(text) * DAY_S


def _number(value: float) -> str:
    return f"{value:.15g}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _refuse(name: str, text: str, remedy: str) -> Any:
    raise InvalidOption(f"{name} = {text!r:.80} is not allowed: {remedy}")


STORABLE: dict[str, Storable] = {
    "scheduler.enabled": Storable(
        "whether schedules fire; due times that pass while they do not are caught up as after a time without workers",
        "schedules",
        _switch,
        lambda value: {"on": "true", "off": "false"}.get(value, value),
    ),
    "scheduler.max_concurrent_jobs": Storable("handlers that one worker runs at once", "concurrency", at_start=True),
    "scheduler.job_timeout_seconds": Storable("how long a run of a new job of SQL may take; 0: no limit", "sql_job_timeout"),
    "scheduler.default_max_retries": Storable("retries of a new job of SQL", "sql_job_retries"),
    "scheduler.default_retry_backoff_seconds": Storable("delay before the first retry of a new job of SQL", "sql_job_backoff"),
    "scheduler.job_history_retention_days": Storable(
        "days that ended chains are kept; 0: for ever", "retention", _days, lambda value: _number(value / DAY_S)
    ),
    "scheduler.catch_up_policy": Storable("catch_up of new schedules that say nothing of it", "catch_up", str.lower),
    "scheduler.sql_timeout": Storable("seconds that one query over sys.* may take", "sql_timeout", shown=_number),
    "scheduler.polling_interval_seconds": Storable(f"of other schedulers; {NO_EFFECT}"),
    "scheduler.max_jobs_per_tick": Storable(f"of other schedulers; {NO_EFFECT}"),
}
"""Every setting that the store may keep. What concerns external commands, secrets and listening is for the process alone."""


def storable(name: str) -> tuple[str, Storable]:
    """Return a setting that the store may keep by its name, with or without `scheduler.`; refuse any other."""
    wanted = name.strip().lower()
    full = wanted if wanted.startswith(PREFIX) else f"{PREFIX}{wanted}"
    found = STORABLE.get(full)
    if found is not None:
        return full, found
    own = wanted.removeprefix(PREFIX)
    if own in DOCS:
        raise NotFound(f"{own} is a setting of the process, and the store does not keep it: set ROTA_{own.upper()}")
    raise NotFound(f"there is no setting {full!r:.80}{guess(full, STORABLE)}: it is one of {', '.join(STORABLE)}")


def own_words(settings: Settings, environment: Mapping[str, str]) -> dict[str, Word]:
    """Return whose word the values of a process are: a value in code that is the default's own counts as the default."""
    usual = Settings()
    words = {}
    for name in DOCS:
        value, text = getattr(settings, name), environment.get(f"ROTA_{name.upper()}")
        if text is not None and _reads_as(name, text) == value:
            words[name] = Word.ENVIRONMENT
        else:
            words[name] = Word.DEFAULT if value == getattr(usual, name) else Word.PROGRAM
    return words


def _reads_as(name: str, text: str) -> object:
    try:
        return parsed(name, text)
    except InvalidOption:
        return None


class InForceSettings(msgspec.Struct, frozen=True):
    """The settings that hold in a process, and whose word each is."""

    settings: Settings
    words: dict[str, Word]

    @classmethod
    def of(cls, settings: Settings, words: dict[str, Word], stored: Iterable[Stored]) -> InForceSettings:
        """Put stored values where neither environment nor program have a word. A value that this version can't read is passed over."""
        values: dict[str, Any] = {}
        for each in stored:
            known = STORABLE.get(each.name)
            if known is None or known.field is None or words[known.field] is not Word.DEFAULT:
                continue
            try:
                values[known.field] = known.value_of(each.name, each.value)
            except InvalidOption:
                continue
        if not values:
            return cls(settings, words)
        return cls(msgspec.structs.replace(settings, **values), words | dict.fromkeys(values, Word.STORE))
