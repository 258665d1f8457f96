"""Definitions from a file into the store: everything is checked before anything is written, and loading again changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from rota.engine.registry import Known
from rota.model.definitions import Organization, OrganizationState, TemplateState, User
from rota.model.gate import Actor, Right
from rota.model.templates import as_object
from rota.surfaces.python.loading_schedules import Change, LoadingSchedules
from rota.surfaces.python.tenants import Tenants, role_of

if TYPE_CHECKING:
    from rota.definitions_file import Definitions, Entry, TemplateEntry


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What a file changed, or would change: things as "template send_email"."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    dry_run: bool = False


class Loading(Tenants, LoadingSchedules):
    """The part of Rota that takes definitions in bulk."""

    def load_definitions(self, path: str | os.PathLike[str], *, dry_run: bool = False, actor: Actor | str | None = None) -> Loaded:
        """Take templates, schedules, calendars, organizations and users from a file, .toml or .json. What it does not name stays."""
        from rota.definitions_file import read_definitions  # noqa: PLC0415 - few programs need it

        self._session.acts(actor, Right.MANAGE_TEMPLATES)
        return self._load(read_definitions(path, name_max=self.settings.name_max), dry_run=dry_run, actor=actor)

    def load_samples(self, *, dry_run: bool = False, actor: Actor | str | None = None) -> Loaded:
        """Take the template of `rota.samples`, a job to try things with."""
        from rota.definitions_file import Location, definitions_of  # noqa: PLC0415
        from rota.samples import SAMPLES  # noqa: PLC0415 - nothing else needs it

        return self._load(definitions_of(SAMPLES, Location("samples"), name_max=self.settings.name_max), dry_run=dry_run, actor=actor)

    def _load(self, definitions: Definitions, *, dry_run: bool, actor: Actor | str | None) -> Loaded:
        who = self._session.acts(actor, Right.MANAGE_TEMPLATES)
        if definitions.organizations or definitions.users:
            self._session.acts(actor, Right.MANAGE_ORGANIZATIONS)
        changes = [
            *self._changed_organizations(definitions.organizations, who),
            *self._changed_users(definitions, who),
            *self._changed_templates(definitions.templates, who),
            *self._changed_calendars(definitions, actor),
            *self._changed_schedules(definitions, actor),
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

    def _changed_organizations(self, entries: list[Entry], who: Actor) -> Iterator[Change]:
        there = self._organizations()
        for entry in entries:
            present = there.get(entry.name)
            if present is not None and present.state is OrganizationState.REMOVED:
                raise entry.at.refusal(f"organization {entry.name!r} was removed: `rota organization resume {entry.name}` brings it back")
            with entry.at.naming():
                fields = self._checked(entry.name, entry.fields)
            before = present or Organization(name=entry.name, display_name=entry.name)
            after = msgspec.structs.replace(before, **fields)

            def write(after: Organization = after) -> None:
                self._session.open().store.put_organization(after, actor=who, now=self._session.clock.now())

            yield Change(f"organization {entry.name}", present is None, None if after == present else write)

    def _changed_users(self, definitions: Definitions, who: Actor) -> Iterator[Change]:
        there = {user.name: user for user in self._users().values() if not user.removed}
        homes = {*self._organizations(), *(entry.name for entry in definitions.organizations)}
        for entry in definitions.users:
            present = there.get(entry.name)
            after = self._user(entry, present)
            if after.organization not in homes:
                raise entry.at.refusal(f"organization={after.organization!r} is neither in the store nor in this file")

            def write(after: User = after) -> None:
                self._session.open().store.put_user(after, actor=who, now=self._session.clock.now())

            yield Change(f"user {entry.name}", present is None, None if after == present else write)

    def _user(self, entry: Entry, present: User | None) -> User:
        fields = dict(entry.fields)
        with entry.at.naming():
            if "role" in fields:
                fields["role"] = role_of(fields["role"])
            if "permissions" in fields:
                fields["permissions"] = self._permissions(fields["permissions"])
        before = present or User(name=entry.name, organization="default", role=role_of("user"))
        return msgspec.structs.replace(before, **fields)

    def _changed_templates(self, entries: list[TemplateEntry], who: Actor) -> Iterator[Change]:
        there = self._recorded()
        for entry in entries:
            known = there.get(entry.name)
            overrides = _unsaid(entry, known) | as_object(entry.spec)
            with entry.at.naming():
                self._check_overrides(entry.name, overrides)
            people = {} if known is None else as_object(known.people)
            state = None if known is None or entry.state in {None, known.state} else entry.state

            def write(entry: TemplateEntry = entry, state: TemplateState | None = state, overrides: dict[str, object] = overrides) -> None:
                self._put(self._new(entry.name, entry.state or TemplateState.ENABLED), who, overrides=overrides)
                if state is not None:
                    self._write_state(entry.name, state, who)

            same = known is not None and state is None and people | overrides == people
            yield Change(f"template {entry.name}", known is None, None if same else write)


def _unsaid(entry: TemplateEntry, known: Known | None) -> dict[str, object]:
    """Return the defaults of the file's format for fields that nobody has set: neither the code nor people."""
    said = {} if known is None else as_object(known.code) | as_object(known.people)
    return {field: value for field, value in as_object(entry.usual).items() if field not in said}
