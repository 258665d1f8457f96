"""Statements about privileges and roles: GRANT, REVOKE, CREATE ROLE, DROP ROLE, SHOW GRANTS and SHOW ROLES."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rota.errors import NotFound, Refused, RotaError
from rota.model.gate import Right
from rota.model.grants import GranteeKind, TargetKind, described
from rota.resources.grants import (
    NO_TARGET,
    GrantTarget,
    Recipient,
    grant,
    organization_of,
    recipient_named,
    revocable,
    revoke,
    target_named,
    visible_grants,
)
from rota.resources.roles import create, delete, visible_roles
from rota.sql.execution import Execution, Refusal, state_of
from rota.sql.patterns import like
from rota.sql.result import Result
from rota.sql.syntax import CreateRole, Dependents, DropRole, Grantee, GrantRights, RevokeRights, Show, Target

Rows = Iterable[tuple[Any, ...]]


def grant_rights(run: Execution, statement: GrantRights) -> Result:
    """Grant privileges, all of them to all grantees or none."""
    organization, target = _target(run, statement.target)
    recipients = _recipients(run, statement.grantees, organization)
    granted = grant(run.ask, statement.privileges, target, recipients, organization=organization, grant_option=statement.grant_option)
    for each in granted.already:
        run.notice(f"{each} was granted already")
    return Result("GRANT", notices=run.notices)


def revoke_rights(run: Execution, statement: RevokeRights) -> Result:
    """Revoke privileges, or only the right to grant them further. Without CASCADE it is refused if other grants depend on them."""
    organization, target = _target(run, statement.target)
    found = []
    for recipient in _recipients(run, statement.grantees, organization):
        for privilege, grants in revocable(run.ask, statement.privileges, target, recipient, organization).items():
            fitting = [each for each in grants if each.grant_option or not statement.grant_option_only]
            if not fitting:
                what = described(privilege, target.kind, target.name)
                option = " WITH GRANT OPTION" if statement.grant_option_only else ""
                run.notice(f"{recipient} has no {what}{option} that you may revoke: nothing was revoked")
            found += fitting
    if found:
        revoke(run.ask, found, cascade=statement.dependents is Dependents.CASCADE, option_only=statement.grant_option_only)
    return Result("REVOKE", notices=run.notices)


def _target(run: Execution, target: Target | None) -> tuple[str, GrantTarget]:
    """Return the organization that a statement is about, and the thing that privileges are granted on."""
    if target is None:
        return organization_of(run.ask, None, None), NO_TARGET
    schedule = run.job(target.name, "target") if target.kind is TargetKind.JOB else None
    organization = organization_of(run.ask, schedule, None)
    try:
        return organization, target_named(run.ask, target.kind, target.name, organization, schedule)
    except NotFound as error:
        raise Refusal("target", str(error), code=f"unknown_{target.kind.lower()}", sqlstate="42704") from None


def _recipients(run: Execution, grantees: tuple[Grantee, ...], organization: str) -> list[Recipient]:
    return [_recipient(run, each, organization, f"grantees.{place}") for place, each in enumerate(grantees)]


def _recipient(run: Execution, grantee: Grantee, organization: str, part: str) -> Recipient:
    try:
        return recipient_named(run.ask, grantee.kind, grantee.name, organization)
    except RotaError as error:
        code = "unknown_grantee" if isinstance(error, NotFound) else error.code
        raise Refusal(part, str(error), code=code, sqlstate=state_of(error)) from None


def create_role(run: Execution, statement: CreateRole) -> Result:
    """Create a role."""
    try:
        create(run.ask, statement.name)
    except Refused as error:
        raise Refusal("name", str(error), code="role_exists", sqlstate="42710") from None
    return Result("CREATE ROLE", notices=run.notices)


def drop_role(run: Execution, statement: DropRole) -> Result:
    """Drop a role that nothing names any more."""
    try:
        delete(run.ask, statement.name)
    except NotFound as error:
        raise Refusal("name", str(error), code="unknown_role", sqlstate="42704") from None
    return Result("DROP ROLE", notices=run.notices)


# ---- SHOW -------------------------------------------------------------------------------------------------------------

GRANT_COLUMNS = (
    "grantee",
    "grantee_kind",
    "privilege",
    "object_kind",
    "object",
    "grantable",
    "organization",
    "granted_by",
    "granted_at",
)


def show_grants(run: Execution, statement: Show) -> tuple[tuple[str, ...], Rows]:
    """List the grants that the actor may see, of one job or one grantee if the statement names it."""
    grants = visible_grants(run.ask)
    if statement.job is not None:
        job = run.job(statement.job, "job")
        grants = [each for each in grants if each.target_kind is TargetKind.JOB and each.target_id == job.id]
    wanted = statement.grantee
    if wanted is not None:
        grants = [each for each in grants if each.grantee == wanted.name and wanted.kind in {GranteeKind.ANY, each.grantee_kind}]
    return GRANT_COLUMNS, (
        (
            each.grantee or str(each.grantee_kind),
            str(each.grantee_kind),
            str(each.privilege),
            None if each.target_kind is None else str(each.target_kind),
            each.target,
            each.grant_option,
            each.organization,
            each.granted_by,
            each.granted_at,
        )
        for each in grants
    )


def show_roles(run: Execution, statement: Show) -> tuple[tuple[str, ...], Rows]:
    """List the roles that the actor may see."""
    roles = visible_roles(run.also(Right.READ_ORGANIZATIONS).ask)
    columns = ("role_name", "role_uuid", "organization", "created_by", "created_at")
    return columns, [
        (each.name, each.id, each.organization, each.created_by, each.created_at)
        for each in roles
        if statement.like is None or like(each.name, statement.like)
    ]
