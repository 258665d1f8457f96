"""Definitions from a file into the store: everything is checked before anything is written, and loading again changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from rota.definitions_file import Definitions, Entry, Location, TemplateEntry, definitions_of, read_definitions
from rota.engine.registry import Known
from rota.model.checks import word_of
from rota.model.definitions import Organization, OrganizationState, Template, TemplateState, User
from rota.model.gate import Right, Role
from rota.model.templates import Spec, as_object, check_defaults, from_object, in_force
from rota.operation import Ask
from rota.resources import organizations, templates, users
from rota.resources.definition_connections import changed_connections
from rota.resources.definition_schedules import Change, changed_calendars, changed_schedules
from rota.resources.users import new_id, permissions_of
from rota.schedule_edits import Ahead


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
    ahead = Ahead({}, {})
    changes = [
        *_changed_organizations(ask, definitions.organizations),
        *_changed_users(ask, definitions),
        *changed_connections(ask, definitions, ahead),
        *_changed_templates(ask, definitions.templates, ahead),
        *changed_calendars(ask, definitions),
        *changed_schedules(ask, definitions, ahead),
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


def _changed_templates(ask: Ask, entries: list[TemplateEntry], ahead: Ahead) -> Iterator[Change]:
    there = templates.recorded(ask)
    for entry in entries:
        known = there.get(entry.name)
        overrides = _unset(entry, known) | as_object(entry.spec)
        work = _work(ask, entry, known, overrides)
        if work is None:
            with entry.at.naming():
                templates.check_overrides(ask, entry.name, overrides)
        people = {} if known is None else as_object(known.people)
        if work is not None:
            ahead.templates[entry.name] = replace(work, overrides=people | overrides)
        now = known.state if known is not None else TemplateState.ENABLED if work is not None else entry.state
        state = None if entry.state in {None, now} else entry.state
        plan = _Planned(entry, None if work is not None and _is_defined(known, work) else work, overrides, state)
        same = known is not None and plan.work is None and state is None and people | overrides == people
        yield Change(f"template {entry.name}", known is None, None if same else partial(_write_template, ask, plan))


class _Planned(msgspec.Struct, frozen=True):
    """What is to be written of one template."""

    entry: TemplateEntry
    work: Template | None
    """Its definition, if it is SQL or a command and not the one that the store has."""
    overrides: dict[str, object]
    state: TemplateState | None
    """None: as it is, or as it is created."""


def _write_template(ask: Ask, plan: _Planned) -> None:
    name = plan.entry.name
    if plan.work is not None:
        templates.write_work(ask, plan.work)
    if plan.work is None or plan.overrides:
        new = templates.new_template(ask, name, plan.entry.state or TemplateState.ENABLED)
        ask.store.set_template(new, actor=ask.who, now=ask.now, overrides=plan.overrides, unset=(), version=None)
        ask.session.poke()
    if plan.state is not None:
        templates.write_state(ask, name, plan.state)


def _work(ask: Ask, entry: TemplateEntry, known: Known | None, overrides: dict[str, object]) -> Template | None:
    """Return the definition of a template that is SQL or a command. Fields that its definition has besides stay."""
    if entry.work is None:
        return None
    said = {key: None if key == "connection" and str(value).lower() == "none" else value for key, value in entry.work.items()}
    with entry.at.naming():
        work = templates.work_of(
            ask, sql=said.get("sql"), command=said.get("command"), connection=said.get("connection"), secrets=said.get("secrets") or ()
        )
        templates.refuse_handler(entry.name, work.kind, overrides)
        present = Spec() if known is None or not known.is_work else replace(known.code, executor=UNSET)
        people = {} if known is None else as_object(known.people)
        check_defaults(in_force(entry.name, ask.settings, present, from_object(people | overrides)), handler=None)
    if known is not None and not known.is_work:
        raise entry.at.refusal(f"template {entry.name!r} is Python: choose another name, or delete that template first")
    return templates.work_template(ask, entry.name, work, present)


def _is_defined(known: Known | None, work: Template) -> bool:
    record = None if known is None else known.record
    return record is not None and (record.kind, record.body, record.defaults) == (work.kind, work.body, work.defaults)


def _unset(entry: TemplateEntry, known: Known | None) -> dict[str, object]:
    """Return the defaults of the file's format for fields that neither the code nor operators have set."""
    said = {} if known is None else as_object(known.code) | as_object(known.people)
    return {field: value for field, value in as_object(entry.usual).items() if field not in said}
