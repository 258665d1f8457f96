"""Connections of a definitions file: checked against the store and the rest of the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from rota.definitions_file import Definitions, Entry
from rota.model.connections import Connection, check_connection
from rota.model.gate import Actor, Right
from rota.model.values import dashed
from rota.operation import Ask
from rota.resources.definition_schedules import Change, actor_of
from rota.schedule_edits import Ahead

NULLABLE = frozenset({"login", "secret_name"})
"""Keys that "none" takes away. TOML has no null."""


def changed_connections(ask: Ask, definitions: Definitions, ahead: Ahead) -> Iterator[Change]:
    """Go through the connections of a file. Who loads it is a system manager, and so may define `default` too."""
    if not definitions.connections:
        return
    managing = ask.also(Right.MANAGE_CONNECTIONS)
    there = {each.key: each for each in ask.store.connections()}
    for entry in definitions.connections:
        who = actor_of(managing, entry, definitions)
        before = there.get((who.organization, entry.name))
        after = ahead.connections[who.organization, entry.name] = _connection(ask, entry, before, who)

        def write(after: Connection = after, before: Connection | None = before, who: Actor = who) -> None:
            ask.store.put_connection(after, actor=who, now=ask.now, version=0 if before is None else before.version)

        yield Change(f"connection {entry.name}", before is None, None if after == before else write)


def _connection(ask: Ask, entry: Entry, before: Connection | None, who: Actor) -> Connection:
    fields: dict[str, Any] = {key: None if _is_none(key, value) else value for key, value in entry.fields.items() if key != "organization"}
    if "secret_name" in fields:
        fields["secret"] = fields.pop("secret_name")
    if before is None and "url" not in fields:
        raise entry.at.refusal("url is missing: use postgresql://host/database or sqlite:////folder/file.db")
    with entry.at.naming():
        if before is not None:
            return check_connection(msgspec.structs.replace(before, **fields), name_max=ask.settings.name_max)
        new_id = dashed(ask.session.ids.take(1, ask.now)[0])
        new = Connection(id=new_id, organization=who.organization, name=entry.name, created_by=who.name, **fields)
        return check_connection(new, name_max=ask.settings.name_max)


def _is_none(key: str, value: object) -> bool:
    return key in NULLABLE and isinstance(value, str) and value.lower() == "none"
