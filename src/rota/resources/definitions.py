"""Definitions from a file into the store: everything is checked before anything is written, and loading again changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from rota.definitions_file import Definitions, Entry, Location, TemplateEntry, definitions_of, read_definitions
from rota.engine.registry import Known
from rota.model.checks import word_of
from rota.model.definitions import Organization, OrganizationState, TemplateState, User
from rota.model.gate import Right, Role
from rota.model.templates import as_object
from rota.operation import Ask
from rota.resources import organizations, templates, users
from rota.resources.definition_connections import changed_connections
from rota.resources.definition_schedules import Change, changed_calendars, changed_schedules
from rota.resources.users import new_id, permissions_of


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What a file changed, or would change: things as "template send_email"."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    dry_run: bool = False


def load(ask: Ask, path: str | os.PathLike[str], *, dry_run: bool = False) -> Loaded:
    """Load templates, schedules, calendars, connections, organizations and users from a file, .toml or .json. What it does not name stays.

    The caller has asked for the right to manage templates.
    """
    return load_definitions(ask, read_definitions(path, name_max=ask.settings.name_max), dry_run=dry_run)


def load_samples(ask: Ask, *, dry_run: bool = False) -> Loaded:
    """Load the template of `rota.samples`, a job to try things with."""
    from rota.samples import SAMPLES  # noqa: PLC0415 - nothing else needs it

    return load_definitions(ask, definitions_of(SAMPLES, Location("samples"), name_max=ask.settings.name_max), dry_run=dry_run)


def load_definitions(ask: Ask, definitions: Definitions, *, dry_run: bool = False) -> Loaded:
    """Check definitions against the store and each other, and write those that differ."""
    if definitions.organizations or definitions.users:
        ask.also(Right.MANAGE_ORGANIZATIONS)
    changes = [
        *_changed_organizations(ask, definitions.organizations),
        *_changed_users(ask, definitions),
        *changed_connections(ask, definitions),
        *_changed_templates(ask, definitions.templates),
        *changed_calendars(ask, definitions),
        *changed_schedules(ask, definitions),
    ]
    for change in changes if not dry_run else ():
        if change.write is not None:
            change.write()
    return Loaded(
        added=tuple(change.what for change in changes if change.is_new),
        changed=tuple(change.what for change in changes if not change.is_new and change.write is not None),
        unchanged=tuple(change.what for change in changes if change.write is None),
        dry_run=dry_run,
    )


def _changed_organizations(ask: Ask, entries: list[Entry]) -> Iterator[Change]:
    there = organizations.recorded(ask)
    for entry in entries:
        present = there.get(entry.name)
        if present is not None and present.state is OrganizationState.REMOVED:
            raise entry.at.refusal(f"organization {entry.name!r} was removed: `rota organization restore {entry.name}` brings it back")
        with entry.at.naming():
            fields = organizations.checked_fields(ask, entry.name, entry.fields)
        before = present or Organization(name=entry.name, display_name=entry.name)
        after = msgspec.structs.replace(before, **fields)

        def write(after: Organization = after) -> None:
            ask.store.put_organization(after, actor=ask.who, now=ask.now)

        yield Change(f"organization {entry.name}", present is None, None if after == present else write)


def _changed_users(ask: Ask, definitions: Definitions) -> Iterator[Change]:
    there = {user.name: user for user in users.recorded(ask).values() if not user.removed}
    homes = {*organizations.recorded(ask), *(entry.name for entry in definitions.organizations)}
    for entry in definitions.users:
        present = there.get(entry.name)
        after = _user(ask, entry, present)
        if after.organization not in homes:
            raise entry.at.refusal(f"organization={after.organization!r} is neither in the store nor in this file")

        def write(after: User = after) -> None:
            ask.store.put_user(after, actor=ask.who, now=ask.now)

        yield Change(f"user {entry.name}", present is None, None if after == present else write)


def _user(ask: Ask, entry: Entry, present: User | None) -> User:
    fields = dict(entry.fields)
    with entry.at.naming():
        if "role" in fields:
            fields["role"] = word_of(Role, "role", fields["role"])
        if "permissions" in fields:
            fields["permissions"] = permissions_of(ask, fields["permissions"])
    before = present or User(id=new_id(ask), name=entry.name, organization="default", role=Role.USER)
    return msgspec.structs.replace(before, **fields)


def _changed_templates(ask: Ask, entries: list[TemplateEntry]) -> Iterator[Change]:
    there = templates.recorded(ask)
    for entry in entries:
        known = there.get(entry.name)
        overrides = _unset(entry, known) | as_object(entry.spec)
        with entry.at.naming():
            templates.check_overrides(ask, entry.name, overrides)
        people = {} if known is None else as_object(known.people)
        state = None if known is None or entry.state in {None, known.state} else entry.state

        def write(entry: TemplateEntry = entry, state: TemplateState | None = state, overrides: dict[str, object] = overrides) -> None:
            new = templates.new_template(ask, entry.name, entry.state or TemplateState.ENABLED)
            ask.store.set_template(new, actor=ask.who, now=ask.now, overrides=overrides, unset=(), version=None)
            ask.session.poke()
            if state is not None:
                templates.write_state(ask, entry.name, state)

        same = known is not None and state is None and people | overrides == people
        yield Change(f"template {entry.name}", known is None, None if same else write)


def _unset(entry: TemplateEntry, known: Known | None) -> dict[str, object]:
    """Return the defaults of the file's format for fields that neither the code nor operators have set."""
    said = {} if known is None else as_object(known.code) | as_object(known.people)
    return {field: value for field, value in as_object(entry.usual).items() if field not in said}
