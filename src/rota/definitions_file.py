"""Definitions in a file: templates, schedules, organizations and more as TOML, or job types as JSON. Read here, written elsewhere."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from rota.errors import InvalidDefinition, InvalidInput, InvalidOption
from rota.model.checks import check_name
from rota.model.definitions import TemplateState
from rota.model.kinds import check_type_name
from rota.model.schedule_options import OPTIONS
from rota.model.templates import FIELDS, NULLABLE, Spec, spec_of

DOCTYPE = "Job Type"
JOB_TYPE_FIELDS = {
    "display_name": "display_name",
    "description": "description",
    "handler_method": "handler",
    "default_timeout": "timeout",
    "default_priority": "priority",
    "max_retries": "max_retries",
    "requires_permission": "requires_permission",
    "deduplication_window": "dedup_window",
}
"""What a job type calls the fields of a template."""
USUAL_WINDOW_S = 300
"""The duplicate window of a job type that names none, as the document that defines job types says."""
BOOKKEEPING = frozenset({"name", "owner", "creation", "modified", "modified_by", "docstatus", "idx", "parent", "parentfield", "parenttype"})
"""Keys that an export of job types may carry and that say nothing about them."""
KINDS = ("templates", "organizations", "users", "connections", "calendars", "schedules")
KEYS = {
    "organizations": ("display_name", "max_running", "max_queued", "max_priority"),
    "users": ("organization", "role", "permissions"),
    "connections": ("url", "login", "secret_name", "multi", "organization"),
    "calendars": ("days", "description", "organization"),
    "schedules": (*OPTIONS, "state", "enabled", "organization"),
}
"""What the tables of each kind have; templates have their FIELDS, their WORK and a state."""
WORK = ("sql", "command", "connection", "secrets")
"""What a template that is SQL or a command has besides: see `Templates.define`."""


class Location(msgspec.Struct, frozen=True):
    """Where something stands, for the message that refuses it."""

    source: str
    table: str = ""

    def refusal(self, why: object) -> InvalidDefinition:
        """Return the error that names the place."""
        return InvalidDefinition(f"{self.source}{', ' if self.table else ''}{self.table}: {why}")

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Name the place in every refusal that leaves the block."""
        try:
            yield
        except InvalidDefinition:
            raise
        except InvalidInput as error:
            raise self.refusal(error) from None


class Entry(msgspec.Struct, frozen=True):
    """One thing that is no template: its name and what the file says of it, its keys known and its values not yet checked."""

    at: Location
    name: str
    fields: dict[str, Any]


class TemplateEntry(msgspec.Struct, frozen=True):
    """One template: what the file sets of it, checked."""

    at: Location
    name: str
    spec: Spec
    state: TemplateState | None
    """None: as it is."""
    usual: Spec = Spec()
    """Fields that the file does not set and its format has a default for: they hold unless the code or people say otherwise."""
    work: dict[str, Any] | None = None
    """What it does, if it is SQL or a command: some of WORK, their values not yet checked."""


class Definitions(msgspec.Struct, kw_only=True):
    """What a file says."""

    templates: list[TemplateEntry] = msgspec.field(default_factory=list)
    organizations: list[Entry] = msgspec.field(default_factory=list)
    users: list[Entry] = msgspec.field(default_factory=list)
    connections: list[Entry] = msgspec.field(default_factory=list)
    calendars: list[Entry] = msgspec.field(default_factory=list)
    schedules: list[Entry] = msgspec.field(default_factory=list)


def read_definitions(path: str | os.PathLike[str], *, name_max: int) -> Definitions:
    """Read a file, .toml or .json; refuse it whole, naming the place, if anything in it can't be taken."""
    file, at = Path(path), Location(os.fspath(path))
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise at.refusal(f"can't be read: {error}") from None
    match file.suffix.lower():
        case ".toml":
            return definitions_of(_toml(text, at), at, name_max=name_max)
        case ".json":
            return definitions_of(_json(text, at), at, name_max=name_max)
    raise at.refusal("is neither .toml nor .json: its name says how it is to be read")


def definitions_of(document: object, at: Location, *, name_max: int) -> Definitions:
    """Return what a document says: tables by kind and name, or a list of job types."""
    if isinstance(document, list):
        return Definitions(templates=_unique(_job_type(item, index, at, name_max) for index, item in enumerate(document, 1)))
    if not isinstance(document, dict):
        raise at.refusal(f"holds neither tables nor a list of {DOCTYPE}s")
    unknown = [key for key in document if key not in KINDS]
    if unknown:
        raise at.refusal(f"there is no [{unknown[0]}]: it has {', '.join(f'[{kind}.NAME]' for kind in KINDS)}")
    others = {kind: [_entry(kind, *each, name_max) for each in _tables(document, kind, at)] for kind in KEYS}
    return Definitions(
        templates=[_template(table, name, fields, name_max) for table, name, fields in _tables(document, "templates", at)], **others
    )


def _toml(text: str, at: Location) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise at.refusal(f"is not TOML: {error}") from None


def _json(text: str, at: Location) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise at.refusal(f"is not JSON: {error.msg} (at line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise at.refusal("is nested too deeply") from None


def _tables(document: Mapping[str, Any], kind: str, at: Location) -> Iterator[tuple[Location, str, dict[str, Any]]]:
    tables = document.get(kind, {})
    if not isinstance(tables, dict):
        raise Location(at.source, f"[{kind}]").refusal(f"is not a table of tables: write [{kind}.NAME]")
    for name, fields in tables.items():
        where = Location(at.source, f"[{kind}.{name}]")
        if not isinstance(fields, dict):
            raise where.refusal(f"is not a table: write [{kind}.{name}] above its keys")
        yield where, name, fields


def _template(at: Location, name: str, fields: dict[str, Any], name_max: int) -> TemplateEntry:
    said = dict(fields)
    with at.naming():
        check_type_name(name, "template", name_max)
        state = _state(said.pop("state", None))
        work = _work({key: said.pop(key) for key in WORK if key in said})
        unknown = [key for key in said if key not in FIELDS]
        if unknown:
            raise at.refusal(f"there is no key {unknown[0]!r}: it has state, {', '.join((*FIELDS, *WORK))}")
        # TOML has no word for nothing.
        spec = spec_of({key: None if _is_none(key, value) else value for key, value in said.items()})
        return TemplateEntry(at, name, spec, state, work=work)


def _work(said: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a template does that is SQL or a command, all of one type; None: it is Python, or stays what it is."""
    if not said:
        return None
    if "sql" not in said and "command" not in said:
        raise InvalidOption(f"{min(said)} is for a template that is SQL or a command: add sql or command")
    for key, value in said.items():
        if key == "secrets":
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise InvalidOption(f"secrets={value!r:.60} is not a list of names")
        elif not isinstance(value, str):
            raise InvalidOption(f"{key}={value!r:.60} is not a text")
    return said


def _is_none(key: str, value: object) -> bool:
    return key in NULLABLE and isinstance(value, str) and value.lower() == "none"


def _state(given: object) -> TemplateState | None:
    if given is None:
        return None
    if not isinstance(given, str) or given.upper() not in set(TemplateState):
        raise InvalidInput(f"state={given!r} is not one of {', '.join(state.lower() for state in TemplateState)}")
    return TemplateState(given.upper())


def _job_type(item: object, index: int, at: Location, name_max: int) -> TemplateEntry:
    where = Location(at.source, f"item {index}")
    if not isinstance(item, dict) or item.get("doctype") != DOCTYPE:
        raise where.refusal(f'is not a job type: it needs "doctype": "{DOCTYPE}"')
    name = item.get("type_name")
    where = Location(at.source, f"item {index} ({name})")
    with where.naming():
        check_type_name(name, "template", name_max)
        fields = {key: value for key, value in item.items() if key not in BOOKKEEPING and key not in {"doctype", "type_name"}}
        enabled = fields.pop("is_enabled", None)
        unknown = [key for key in fields if key not in JOB_TYPE_FIELDS]
        if unknown:
            raise where.refusal(f"there is no key {unknown[0]!r}: it has type_name, is_enabled, {', '.join(JOB_TYPE_FIELDS)}")
        # An export writes what was left empty as null or as an empty text.
        spec = spec_of({JOB_TYPE_FIELDS[key]: value for key, value in fields.items() if value is not None and value != ""})
        return TemplateEntry(where, str(name), spec, _enabled(enabled), usual=spec_of({"dedup_window": USUAL_WINDOW_S}))


def _enabled(given: object) -> TemplateState | None:
    if given is None:
        return None
    if given not in (0, 1):
        raise InvalidInput(f"is_enabled={given!r} is not allowed: give 0 or 1")
    return TemplateState.ENABLED if given else TemplateState.DISABLED


def _unique(entries: Iterable[TemplateEntry]) -> list[TemplateEntry]:
    found: dict[str, TemplateEntry] = {}
    for entry in entries:
        if entry.name in found:
            raise entry.at.refusal(f"is there twice: {found[entry.name].at.table} has this name too")
        found[entry.name] = entry
    return list(found.values())


def _entry(kind: str, at: Location, name: str, fields: dict[str, Any], name_max: int) -> Entry:
    with at.naming():
        check_name(name, kind.removesuffix("s"), name_max)
    unknown = [key for key in fields if key not in KEYS[kind]]
    if unknown:
        raise at.refusal(f"there is no key {unknown[0]!r}: it has {', '.join(KEYS[kind])}")
    return Entry(at, name, fields)
