"""Grants: the privileges of users, roles and everybody in an organization. SQL's GRANT and REVOKE call the functions of this file."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, TypeVar

import msgspec

from rota.errors import InvalidOption, NotFound, PermissionDenied, StillNeeded
from rota.model.checks import word_of
from rota.model.definitions import by_right
from rota.model.gate import Actor, Right, may_grant
from rota.model.grants import (
    ALL_ON_JOB,
    PRIVILEGES,
    Entitlement,
    Grant,
    GrantChanges,
    GranteeKind,
    Privilege,
    TargetKind,
    dependents,
    described,
    named_grants,
)
from rota.model.schedules import Schedule
from rota.model.secrets import SecretPlace, no_secret
from rota.model.shapes import TEXT_MAX, Organization, Shape
from rota.model.values import dashed, undashed
from rota.operation import Ask, Resource, operation
from rota.ports.store import DefinitionsChanged
from rota.resources.roles import role_named
from rota.schedule_views import named

T = TypeVar("T")

PrivilegeName = Annotated[
    Privilege | str,
    Shape("CREATE JOB, VIEW JOB HISTORY, EXECUTE, ALTER, DROP, ALL, USE, ROLE or EXECUTE EXTERNAL JOB.", "EXECUTE", "PRIVILEGE", wire=str),
]
GranteeName = Annotated[str, Shape("The user or the role that gets it, or PUBLIC.", "bob", "GRANTEE")]
Kind = Annotated[
    str | None, Shape("USER or ROLE, where a user and a role have the same name. Default: the one that exists.", "USER", "KIND")
]
JobName = Annotated[str | None, Shape("The job that it is about, by the name of its schedule.", "nightly", "NAME", most=TEXT_MAX)]
RoleName = Annotated[str | None, Shape("Of ROLE: the role.", metavar="NAME")]
ConnectionName = Annotated[str | None, Shape("Of USE: a connection.", metavar="NAME")]
SecretName = Annotated[str | None, Shape("Of USE: a secret.", metavar="NAME")]


OPTIONS = {TargetKind.JOB: "job", TargetKind.ROLE: "role", TargetKind.CONNECTION: "connection", TargetKind.SECRET: "secret_name"}
"""The parameter for each kind of thing."""


class GrantTarget(msgspec.Struct, frozen=True):
    """The thing that a privilege is granted on, looked up."""

    kind: TargetKind | None = None
    id: str | None = None
    name: str | None = None
    owner: str | None = None


NO_TARGET = GrantTarget()


class Recipient(msgspec.Struct, frozen=True):
    """Who is to hold a privilege, looked up."""

    kind: GranteeKind
    name: str = ""

    def __str__(self) -> str:
        """Return it as messages name it."""
        return self.name or str(self.kind)


class Granted(msgspec.Struct, frozen=True):
    """What came of granting: the grants, and those among them that were there before."""

    grants: tuple[Grant, ...]
    already: tuple[Grant, ...] = ()


class Grants(Resource):
    """Who was granted what."""

    __slots__ = ()

    @operation(Right.READ, http="GET /grants", cli="grant list")
    def list(self, ask: Ask, *, job: JobName = None, organization: Organization = None) -> builtins.list[Grant]:
        """Return the grants that the actor may see: an admin all of its organization, a user its own and those it has made."""
        schedule = None if job is None else named(ask, job, organization)
        grants = visible_grants(ask)
        return [
            grant
            for grant in grants
            if organization in {None, grant.organization}
            and (schedule is None or (grant.target_kind is TargetKind.JOB and grant.target_id == schedule.id))
        ]

    @operation(Right.GRANT, http="POST /grants", cli="grant create", status=201)
    def create(
        self,
        ask: Ask,
        privilege: PrivilegeName,
        grantee: GranteeName,
        *,
        kind: Kind = None,
        job: JobName = None,
        role: RoleName = None,
        connection: ConnectionName = None,
        secret_name: SecretName = None,
        grant_option: Annotated[bool, Shape("The grantee may grant it further.")] = False,
        organization: Organization = None,
    ) -> builtins.list[Grant]:
        """Grant a privilege. Nobody grants what they do not have.

        ALL is EXECUTE, ALTER, DROP and VIEW JOB HISTORY, each granted for itself.
        """
        wanted = word_of(Privilege, "privilege", privilege)
        things = {TargetKind.JOB: job, TargetKind.ROLE: role, TargetKind.CONNECTION: connection, TargetKind.SECRET: secret_name}
        given = [(kind, name) for kind, name in things.items() if name is not None]
        if len(given) > 1:
            raise InvalidOption(f"{' and '.join(kind.lower() for kind, _ in given)} are given: a privilege is granted on one thing")
        on, name = given[0] if given else (None, None)
        _refuse_misfit(wanted, on)
        schedule = named(ask, job, organization) if job is not None else None
        where = organization_of(ask, schedule, organization)
        target = target_named(ask, on, name, where, schedule)
        everybody = kind is None and grantee == GranteeKind.PUBLIC
        word = GranteeKind.PUBLIC if everybody else GranteeKind.ANY if kind is None else word_of(GranteeKind, "kind", kind)
        recipients = [recipient_named(ask, word, grantee, where)]
        return builtins.list(grant(ask, [wanted], target, recipients, organization=where, grant_option=grant_option).grants)

    @operation(Right.GRANT, http="DELETE /grants/{id}", cli="grant delete", status=204, confirm="Revoke the grant {id}?")
    def delete(
        self,
        ask: Ask,
        id: Annotated[str, Shape("The id of the grant.", metavar="ID")],  # noqa: A002 - the name that callers know
        *,
        cascade: Annotated[bool, Shape("Revoke what was granted onward, too.")] = False,
        option_only: Annotated[bool, Shape("Revoke the right to grant it further, and nothing else.")] = False,
    ) -> None:
        """Revoke a grant: its grantor may, and so may admins. It is refused while others rest on it, unless `cascade`."""
        wanted = undashed(id)
        found = [each for each in ask.store.grants() if undashed(each.id) == wanted and _may_revoke(ask, each)]
        if not found:
            raise NotFound(f"there is no grant {id!r} that you may revoke: `rota grant list` shows them")
        revoke(ask, found, cascade=cascade, option_only=option_only)


# ---- whom, and on what -------------------------------------------------------------------------------------------------


def organization_of(ask: Ask, schedule: Schedule | None, organization: str | None) -> str:
    """Return where a grant holds: where its job is, else where the actor acts."""
    return ask.within(organization).organization if schedule is None else schedule.organization


def target_named(ask: Ask, kind: TargetKind | None, name: str | None, organization: str, schedule: Schedule | None = None) -> GrantTarget:
    """Return the thing that a privilege is to be granted on: it has to be there. Connections and secrets are known by their names."""
    if kind is None or name is None:
        return NO_TARGET
    if schedule is not None:
        return GrantTarget(kind, schedule.id, schedule.name, schedule.created_by)
    if kind is TargetKind.ROLE:
        role = role_named(ask, name, organization)
        return GrantTarget(kind, undashed(role.id), role.name)
    if kind is TargetKind.CONNECTION and all(each.key != (organization, name) for each in ask.store.connections()):
        raise NotFound(f"there is no connection {name!r} in organization {organization!r}: `rota connection list` shows them")
    if kind is TargetKind.SECRET:
        place = SecretPlace(organization, name)
        if not any((each.organization, each.name, each.job_id) == (organization, name, None) for each in ask.store.stored_secrets()):
            raise no_secret(place)
    return GrantTarget(kind, name, name)


def recipient_named(ask: Ask, kind: GranteeKind, name: str, organization: str) -> Recipient:
    """Return the user or the role that a name means in an organization, or everybody."""
    if kind is GranteeKind.PUBLIC:
        return Recipient(GranteeKind.PUBLIC)
    ask.registry.sync(ask.store, ask.now)
    user = ask.registry.users.get(name)
    is_user = user is not None and not user.removed and user.organization == organization
    is_role = any(role.name == name and role.organization == organization for role in ask.store.roles())
    found = [
        word for word, there in ((GranteeKind.USER, is_user), (GranteeKind.ROLE, is_role)) if there and kind in {GranteeKind.ANY, word}
    ]
    if len(found) > 1:
        raise InvalidOption(f"{name!r} is a user and a role in organization {organization!r}: say USER {name} or ROLE {name}")
    if not found:
        what = "user or role" if kind is GranteeKind.ANY else kind.lower()
        raise NotFound(f"there is no {what} {name!r} in organization {organization!r}: create it first")
    return Recipient(found[0], name)


def _refuse_misfit(privilege: Privilege, kind: TargetKind | None) -> None:
    """Refuse a privilege on a thing that it can't be about."""
    if kind in PRIVILEGES[privilege]:
        return
    fitting = [f"{OPTIONS[each]}=" for each in PRIVILEGES[privilege] if each is not None]
    remedy = f"pass {' or '.join(fitting)}" if fitting else "leave it out"
    raise InvalidOption(
        f"privilege={privilege!r} is not granted on {'nothing in particular' if kind is None else f'a {kind.lower()}'}: {remedy}"
    )


# ---- granting ----------------------------------------------------------------------------------------------------------


def grant(
    ask: Ask,
    privileges: Iterable[Privilege],
    target: GrantTarget,
    recipients: Sequence[Recipient],
    *,
    organization: str,
    grant_option: bool,
) -> Granted:
    """Grant privileges on one thing, all of them to all recipients or none."""
    wanted = [each for privilege in privileges for each in (ALL_ON_JOB if privilege is Privilege.ALL else (privilege,))]
    member = next((each for each in recipients if each.kind is GranteeKind.ROLE), None)
    if Privilege.ROLE in wanted and member is not None:
        raise InvalidOption(f"role {member} can't be a member of role {target.name}: grant {target.name} to its users")

    def decide(who: Actor, present: Sequence[Grant]) -> tuple[GrantChanges, Granted]:
        for privilege in wanted:
            _refuse_ungrantable(ask, who, privilege, target)
        there = {each.key: each for each in present}
        given = [
            _new(ask, who, privilege, target, each, organization, grant_option=grant_option) for each in recipients for privilege in wanted
        ]
        add = tuple(each for each in given if each.key not in there or (grant_option and not there[each.key].grant_option))
        already = tuple(there[each.key] for each in given if each not in add)
        return GrantChanges(add=add), Granted((), already)

    added, outcome = _decided(ask, decide)
    return Granted((*outcome.already, *added), outcome.already)


def _refuse_ungrantable(ask: Ask, who: Actor, privilege: Privilege, target: GrantTarget) -> None:
    wanted = Entitlement(privilege, target.kind, target.id)
    if may_grant(who, wanted, ask.session.holdings(who, Right.GRANT), is_owner=target.owner == who.name):
        return
    what = described(privilege, target.kind, target.name)
    raise PermissionDenied(f"{who.name!r} ({who.role}) may not grant {what}: nobody grants what they do not have WITH GRANT OPTION")


def _new(  # noqa: PLR0917 - built in one place
    ask: Ask, who: Actor, privilege: Privilege, target: GrantTarget, to: Recipient, organization: str, *, grant_option: bool
) -> Grant:
    return Grant(
        id=dashed(ask.session.ids.take(1, ask.now)[0]),
        organization=organization,
        grantee_kind=to.kind,
        grantee=to.name,
        privilege=privilege,
        target_kind=target.kind,
        target_id=target.id,
        target=target.name,
        target_owner=target.owner,
        grant_option=grant_option,
        granted_by=who.name,
    )


def _decided(ask: Ask, decide: Callable[[Actor, Sequence[Grant]], tuple[GrantChanges, T]]) -> tuple[builtins.list[Grant], T]:
    """Decide a change by what is known, and write it; anew, if something that it rests on has changed in between."""
    store, registry = ask.store, ask.registry
    while True:
        registry.sync(store, ask.now)
        version = registry.version
        # Asked for again: the right may be what has changed.
        who = ask.also(ask.right).who
        changes, outcome = decide(who, store.grants())
        if changes == GrantChanges():
            return [], outcome
        try:
            return store.change_grants(changes, actor=who, now=ask.now, definitions=version), outcome
        except DefinitionsChanged:
            continue


# ---- revoking ----------------------------------------------------------------------------------------------------------


def revocable(
    ask: Ask, privileges: Iterable[Privilege], target: GrantTarget, recipient: Recipient, organization: str
) -> dict[Privilege, builtins.list[Grant]]:
    """Return, by privilege, the grants of one recipient on one thing that the actor may revoke."""
    wanted = [each for privilege in privileges for each in (ALL_ON_JOB if privilege is Privilege.ALL else (privilege,))]
    found: dict[Privilege, builtins.list[Grant]] = {privilege: [] for privilege in wanted}
    for each in ask.store.grants():
        fits = (each.organization, each.grantee_kind, each.grantee) == (organization, recipient.kind, recipient.name)
        if fits and each.privilege in found and (each.target_kind, each.target_id) == (target.kind, target.id) and _may_revoke(ask, each):
            found[each.privilege].append(each)
    return found


def revoke(ask: Ask, given: Sequence[Grant], *, cascade: bool, option_only: bool) -> int:
    """Revoke grants, or only the right to grant further; return how many were revoked with those that rest on them."""
    ids = {each.id for each in given}

    def decide(who: Actor, present: Sequence[Grant]) -> tuple[GrantChanges, int]:
        del who
        there = tuple(each for each in present if each.id in ids)
        changes = GrantChanges(narrow=tuple(each for each in there if each.grant_option)) if option_only else GrantChanges(remove=there)
        here = [each for each in present if each.organization in {grant.organization for grant in there}]
        resting = dependents(here, changes, by_right(ask.registry.users))
        if resting and not cascade:
            rests = f"{named_grants(resting)} would rest on nothing"
            raise StillNeeded(f"{named_grants(there)} can't be revoked while others rest on it: {rests}; CASCADE revokes them too")
        changes = msgspec.structs.replace(changes, remove=(*changes.remove, *resting))
        return changes, len(changes.remove) + len(changes.narrow)

    return _decided(ask, decide)[1]


def _may_revoke(ask: Ask, given: Grant) -> bool:
    """Say whether an actor may revoke a grant: who granted it, managers, and admins of the organization."""
    if ask.scope.organization not in {None, given.organization}:
        return False
    return given.granted_by == ask.who.name or ask.may(Right.MANAGE_GRANTS) is not None


# ---- reading -----------------------------------------------------------------------------------------------------------


def visible_grants(ask: Ask) -> builtins.list[Grant]:
    """Return the grants that an actor may see: of its organization all, or its own, those it has made, and those on its jobs."""
    everything = ask.store.grants()
    if ask.may(Right.READ_ORGANIZATIONS) is not None:
        return [each for each in everything if ask.scope.organization in {None, each.organization}]
    who = ask.who
    held = {each.id for each in ask.session.holdings(who, Right.GRANT).grants}
    return [
        each
        for each in everything
        if each.organization == who.organization and (each.id in held or who.name in {each.granted_by, each.target_owner})
    ]
