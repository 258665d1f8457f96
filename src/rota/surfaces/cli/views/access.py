"""Organizations and their limits, users and their rights, and tokens. A secret is printed once, when it is created."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.model.access import Token
from rota.model.definitions import Organization, User
from rota.model.grants import CustomRole
from rota.model.secrets import Secret
from rota.model.zones import EPOCH
from rota.resources.secrets import Rotated
from rota.resources.tokens import NewToken
from rota.surfaces.cli.output import age, clock_time, show_pairs
from rota.surfaces.cli.views import View, listing

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called

LIMITS = ("max_running", "max_queued", "max_priority")


def show_organization(organization: Organization, called: Called) -> None:
    """Print an organization, its limits and its users."""
    show_pairs(
        [
            ("name", organization.name),
            ("display name", organization.display_name),
            ("state", organization.state),
            *((name.replace("_", " "), _limit(getattr(organization, name))) for name in LIMITS),
            ("created", "with the store" if organization.created_at == EPOCH else clock_time(organization.created_at)),
            ("users", ", ".join(f"{user.name} ({user.role})" for user in _users(organization, called))),
        ]
    )


def organization_document(organization: Organization, called: Called) -> dict[str, Any]:
    """Return an organization with its users."""
    return msgspec.structs.asdict(organization) | {"users": _users(organization, called)}


def show_limits(organization: Organization, _called: Called) -> None:
    """Print an organization as one line."""
    limits = ", ".join(f"{name.removeprefix('max_')} {_limit(getattr(organization, name))}" for name in LIMITS)
    typer.echo(f"{organization.name}  {organization.state}  limits: {limits}")


def _users(organization: Organization, called: Called) -> list[User]:
    return [user for user in called.rota.users.list() if user.organization == organization.name]


def _limit(limit: int | None) -> str:
    return "none" if limit is None else f"{limit:,}"


def show_user(user: User, _called: Called) -> None:
    """Print a user as one line."""
    permissions = f"  permissions: {', '.join(user.permissions)}" if user.permissions else ""
    typer.echo(f"{user.name}  {'DELETED' if user.removed else user.role}  of {user.organization}{permissions}")


def show_token(new: NewToken, called: Called) -> None:
    """Print a secret, alone on stdout."""
    if not called.extras["quiet"]:
        typer.echo(f"{_line(new.token)}\nThe secret, which is shown once, now:", err=True)
    typer.echo(new.secret)


def token_document(new: NewToken, _called: Called) -> dict[str, Any]:
    """Return a token with its secret among its fields."""
    fields: dict[str, Any] = msgspec.to_builtins(new.token)
    return fields | {"secret": new.secret}


def show_secret(secret: Secret, _called: Called) -> None:
    """Print a secret as one line, without its value."""
    whose = f"organization {secret.organization}" if secret.job is None else f"job {secret.job} in organization {secret.organization}"
    typer.echo(f"secret {secret.name} of {whose}, version {secret.version}, key {secret.key_id}")


def show_rotated(done: Rotated, _called: Called) -> None:
    """Print what came of a rotation, and what is left to do."""
    typer.echo(f"{done.secrets:,} secrets and {done.webhooks:,} webhook secrets were put under key {done.key_id}.")
    if not done.left:
        typer.echo("Nothing is left under other keys: they can be removed from the key file, once every process has the new one.")
        return
    missing = f" Keys that are not in the key file: {', '.join(done.missing)}." if done.missing else ""
    typer.echo(f"{done.left:,} are left under other keys, which are still needed.{missing}")


def _line(token: Token) -> str:
    expires = f"  expires {age(token.expires_at)}" if token.expires_at else ""
    return f"{token.id}  {_state(token)}  {token.name}  of {token.user or 'the operator'}  may {', '.join(token.permits)}{expires}"


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "open" if token.is_open(datetime.now(UTC)) else "expired"


ORGANIZATIONS = listing(
    "No organizations.",
    "name state max_running> max_queued> max_priority> display_name",
    max_running=lambda organization: _limit(organization.max_running),
    max_queued=lambda organization: _limit(organization.max_queued),
    max_priority=lambda organization: _limit(organization.max_priority),
)
USERS = listing(
    "No users: until the first one is created, everybody who can open the store is its manager.",
    "name organization role permissions~ since=created_at state",
    state=lambda user: "deleted" if user.removed else "active",
)
ROLES = listing("No roles: `rota role create NAME` creates one.", "name organization since=created_at by=created_by~")
GRANTS = listing(
    "No grants: `rota grant create EXECUTE NAME --job JOB` grants a privilege.",
    "privilege to on~ option organization by=granted_by~ since=granted_at id",
    to=lambda grant: grant.grantee or str(grant.grantee_kind),
    on=lambda grant: "" if grant.target_kind is None else f"{grant.target_kind.lower()} {grant.target}",
    option=lambda grant: "yes" if grant.grant_option else "",
)
SECRETS = listing(
    "No secrets: `rota secret set NAME` creates one.",
    "name job~ organization version> changed=updated_at used by=created_by~",
    used=lambda secret: secret.last_used_at or "never",
)
TOKENS = listing(
    "No tokens: `rota token create NAME` creates one.",
    "id name user permits~ created=created_at by=created_by~ used expires state",
    user=lambda token: token.user or "(operator)",
    used=lambda token: token.last_used_at or "never",
    expires=lambda token: token.expires_at or "never",
    state=_state,
)
VIEWS: dict[str | type, View] = {
    Organization: View(show_limits),
    "organization list": View(ORGANIZATIONS),
    "organization get": View(show_organization, organization_document),
    User: View(show_user),
    "user list": View(USERS),
    CustomRole: View(lambda role, _called: typer.echo(f"role {role.name} of organization {role.organization}")),
    "role list": View(ROLES),
    "grant list": View(GRANTS),
    "grant create": View(GRANTS),
    Secret: View(show_secret),
    "secret list": View(SECRETS),
    "secret rotate": View(show_rotated),
    Token: View(lambda token, _called: typer.echo(_line(token))),
    "token list": View(TOKENS),
    "token create": View(show_token, token_document),
}
