"""`rota organization list|show|create|change|suspend|resume|remove` and `rota user list|add|change|remove`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rota.model.definitions import Organization, User
from rota.model.gate import Role
from rota.surfaces.cli.options import JsonOption, StoreOption, examples
from rota.surfaces.cli.output import age, clock_time, escaped, show_json, show_json_lines, show_pairs, show_table, table
from rota.surfaces.cli.session import actor, session

NO_LIMIT = "none"

OrganizationArgument = Annotated[str, typer.Argument(metavar="NAME", help="The organization.")]
UserArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]
DisplayOption = Annotated[str | None, typer.Option("--display-name", help="What people call it. Else its name.")]
RunningOption = Annotated[
    str | None, typer.Option("--max-running", metavar="N", help="Run at most so many of its jobs at once; none for no limit.")
]
QueuedOption = Annotated[
    str | None, typer.Option("--max-queued", metavar="N", help="Take no more jobs while so many wait; none for no limit.")
]
PriorityLimitOption = Annotated[
    str | None,
    typer.Option("--max-priority", metavar="PRIORITY", help="The highest priority of its jobs: 0 to 100, or a word; none for no limit."),
]
RemovedOption = Annotated[bool, typer.Option("--removed", help="Those that were removed too.")]
RoleOption = Annotated[Role | None, typer.Option("--role", help="What the user is to its organization.")]
MemberOption = Annotated[str | None, typer.Option("--organization", metavar="NAME", help="Whose user it is.")]
PermissionsOption = Annotated[
    list[str] | None, typer.Option("--permission", metavar="NAME", help="A permission that templates may require; may be repeated.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


def register_organizations(app: typer.Typer) -> None:
    """Add the commands about organizations."""
    app.command("list", epilog=examples("rota organization list"))(list_organizations)
    app.command("show", epilog=examples("rota organization show acme"))(show)
    app.command("create", epilog=examples("rota organization create acme --display-name 'Acme Ltd' --max-running 20 --max-queued 10000"))(
        create
    )
    app.command("change", epilog=examples("rota organization change acme --max-running 50 --max-priority none"))(change)
    app.command("suspend", epilog=examples("rota organization suspend acme"))(suspend)
    app.command("resume", epilog=examples("rota organization resume acme"))(resume)
    app.command("remove", epilog=examples("rota organization remove acme"))(remove)


def register_users(app: typer.Typer) -> None:
    """Add the commands about users."""
    app.command("list", epilog=examples("rota user list"))(list_users)
    app.command(
        "add", epilog=examples("rota user add root --role system_manager", "rota user add bob --organization acme --permission reports")
    )(add_user)
    app.command("change", epilog=examples("rota user change bob --role admin", "rota user change bob --no-permissions"))(change_user)
    app.command("remove", epilog=examples("rota user remove bob"))(remove_user)


# ---- organizations --------------------------------------------------------------------------------------------------


def list_organizations(*, removed: RemovedOption = False, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List organizations and their limits."""
    with session(store) as rota:
        found = rota.acting_as(actor()).organizations.list(removed=removed)
    if as_json:
        return show_json_lines(found)
    made = table(
        "name", "state", "max running", "max queued", "max priority", "display name", right=("max running", "max queued", "max priority")
    )
    for each in found:
        limits = [_limit(limit) for limit in (each.max_running, each.max_queued, each.max_priority)]
        made.add_row(escaped(each.name), each.state, *limits, escaped(each.display_name))
    return show_table(made, "No organizations.")


def show(name: OrganizationArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show an organization, its limits and its users."""
    with session(store) as rota:
        found = rota.acting_as(actor()).organizations.get(name)
        users = [user for user in rota.acting_as(actor()).users.list() if user.organization == name]
    if as_json:
        return show_json({**_fields(found), "users": [_fields(user) for user in users]})
    show_pairs(
        [
            ("name", found.name),
            ("display name", found.display_name),
            ("state", found.state),
            ("max running", _limit(found.max_running)),
            ("max queued", _limit(found.max_queued)),
            ("max priority", _limit(found.max_priority)),
            ("created", clock_time(found.created_at)),
            ("users", ", ".join(f"{user.name} ({user.role})" for user in users)),
        ]
    )
    return None


def create(
    name: OrganizationArgument,
    *,
    display_name: DisplayOption = None,
    max_running: RunningOption = None,
    max_queued: QueuedOption = None,
    max_priority: PriorityLimitOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an organization."""
    limits = _limits(max_running, max_queued, max_priority)
    with session(store, make=True) as rota:
        made = rota.acting_as(actor()).organizations.create(name, display_name=display_name, **limits)
    _show(made, as_json=as_json)


def change(
    name: OrganizationArgument,
    *,
    display_name: DisplayOption = None,
    max_running: RunningOption = None,
    max_queued: QueuedOption = None,
    max_priority: PriorityLimitOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an organization's limits or its display name: what is not given stays."""
    given = _limits(max_running, max_queued, max_priority)
    if display_name is not None:
        given["display_name"] = display_name
    if not given:
        raise typer.BadParameter("nothing to change: give --display-name, --max-running, --max-queued or --max-priority")
    with session(store) as rota:
        changed = rota.acting_as(actor()).organizations.update(name, **given)
    _show(changed, as_json=as_json)


def suspend(name: OrganizationArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Let nothing of an organization start or come in until it is resumed.

    What runs goes on, what waits keeps its place; its people may still read and cancel.
    """
    with session(store) as rota:
        found = rota.acting_as(actor()).organizations.suspend(name)
    _show(found, as_json=as_json)


def resume(name: OrganizationArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Let a suspended organization go on, or bring a removed one back."""
    with session(store) as rota:
        found = rota.acting_as(actor()).organizations.restore(name)
    _show(found, as_json=as_json)


def remove(name: OrganizationArgument, *, yes: YesOption = False, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Remove an organization.

    Its waiting jobs end as dead letters ("Organization not found"), its people may do nothing any more. Nothing is deleted.
    """
    with session(store) as rota:
        found = rota.acting_as(actor()).organizations.get(name)
        _confirm(f"Remove organization {found.name}? Its waiting jobs will fail.", yes=yes)
        found = rota.acting_as(actor()).organizations.delete(name)
    _show(found, as_json=as_json)


# ---- users ----------------------------------------------------------------------------------------------------------


def list_users(*, removed: RemovedOption = False, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List users, their organizations and roles."""
    with session(store) as rota:
        found = rota.acting_as(actor()).users.list(removed=removed)
    if as_json:
        return show_json_lines(found)
    made = table("name", "organization", "role", "permissions", "since", "state", gives=("permissions",))
    for user in found:
        state = "removed" if user.removed else "active"
        made.add_row(
            escaped(user.name), escaped(user.organization), user.role, escaped(", ".join(user.permissions)), age(user.created_at), state
        )
    return show_table(made, "No users: until the first one is made, everybody who can open the store is its manager.")


def add_user(
    name: UserArgument,
    *,
    organization: MemberOption = None,
    role: RoleOption = None,
    permissions: PermissionsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a user, or bring one back that was removed.

    From the first one on, names that are no users may do nothing.
    """
    with session(store, make=True) as rota:
        user = rota.acting_as(actor()).users.create(
            name, organization=organization or "default", role=role or Role.USER, permissions=permissions or ()
        )
    _show_user(user, as_json=as_json)


def change_user(
    name: UserArgument,
    *,
    organization: MemberOption = None,
    role: RoleOption = None,
    permissions: PermissionsOption = None,
    no_permissions: Annotated[bool, typer.Option("--no-permissions", help="Take every permission away.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a user: what is not given stays. --permission replaces all of them."""
    if permissions and no_permissions:
        raise typer.BadParameter("give --permission or --no-permissions, not both")
    given: dict[str, Any] = {"organization": organization, "role": role, "permissions": () if no_permissions else permissions}
    given = {key: value for key, value in given.items() if value is not None}
    if not given:
        raise typer.BadParameter("nothing to change: give --organization, --role, --permission or --no-permissions")
    with session(store) as rota:
        user = rota.acting_as(actor()).users.update(name, **given)
    _show_user(user, as_json=as_json)


def remove_user(name: UserArgument, *, yes: YesOption = False, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Let a user do nothing any more. Its jobs stay."""
    with session(store) as rota:
        _confirm(f"Remove user {name}?", yes=yes)
        user = rota.acting_as(actor()).users.delete(name)
    _show_user(user, as_json=as_json)


# ---- inside ---------------------------------------------------------------------------------------------------------


def _confirm(question: str, *, yes: bool) -> None:
    if not yes:
        typer.confirm(question, abort=True, err=True)


def _limits(max_running: str | None, max_queued: str | None, max_priority: str | None) -> dict[str, Any]:
    """Return the limits that were given; None where one is to be taken away."""
    given = {"max_running": max_running, "max_queued": max_queued, "max_priority": max_priority}
    return {name: _read_limit(name, text) for name, text in given.items() if text is not None}


def _read_limit(name: str, text: str) -> str | int | None:
    if text.lower() == NO_LIMIT:
        return None
    if text.isdecimal():
        return int(text)
    if name == "max_priority":
        return text
    raise typer.BadParameter(f"{text!r} is not a limit: give a whole number, or {NO_LIMIT}", param_hint=f"--{name.replace('_', '-')}")


def _limit(limit: int | None) -> str:
    return NO_LIMIT if limit is None else f"{limit:,}"


def _fields(value: Organization | User) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _show(organization: Organization, *, as_json: bool) -> None:
    if as_json:
        return show_json(organization)
    limits = {"running": organization.max_running, "queued": organization.max_queued, "priority": organization.max_priority}
    words = ", ".join(f"{name} {_limit(limit)}" for name, limit in limits.items())
    return typer.echo(f"{organization.name}  {organization.state}  limits: {words}")


def _show_user(user: User, *, as_json: bool) -> None:
    if as_json:
        return show_json(user)
    permissions = f"  permissions: {', '.join(user.permissions)}" if user.permissions else ""
    return typer.echo(f"{user.name}  {'REMOVED' if user.removed else user.role}  of {user.organization}{permissions}")
