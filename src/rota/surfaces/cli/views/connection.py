"""Connections, who may use them, and whether their databases answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.errors import Refused
from rota.model.connections import ConnectionView
from rota.model.grants import TargetKind
from rota.resources.connections import ConnectionTest
from rota.surfaces.cli.output import clock_time, show_pairs
from rota.surfaces.cli.views import View, listing

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called


def show_connection(connection: ConnectionView, called: Called) -> None:
    """Print a connection and its users."""
    show_pairs([*_pairs(connection), ("granted to", ", ".join(_grantees(connection, called)))])


def connection_document(connection: ConnectionView, called: Called) -> dict[str, Any]:
    """Return a connection with its users."""
    return msgspec.structs.asdict(connection) | {"granted_to": _grantees(connection, called)}


def show_tested(tested: ConnectionTest, _called: Called) -> None:
    """Print that a database can be used."""
    if tested.fit:
        typer.echo(f"jobs can use it: {tested.server} answered after {tested.took_s:.2f} s")


def show_rotated(tested: ConnectionTest, called: Called) -> None:
    """Print that a password was kept."""
    typer.echo(f"connection {called.asked['name']} has the new password: {tested.server} accepted it")


def refuse_unfit(tested: ConnectionTest) -> None:
    """Fail if jobs can't use the database."""
    if not tested.fit:
        raise Refused(f"jobs can't use the connection: {tested.error}")


def _pairs(connection: ConnectionView) -> list[tuple[str, object]]:
    created = None if connection.created_at is None else clock_time(connection.created_at)
    return [
        ("connection", connection.name),
        ("organization", connection.organization),
        ("kind", connection.kind),
        ("url", connection.url),
        ("user", connection.login),
        ("secret", connection.secret_name),
        ("statements", _statements(connection)),
        ("created", f"{created} by {connection.created_by}"),
    ]


def _statements(connection: ConnectionView) -> str:
    return "several" if connection.multi else "one"


def _grantees(connection: ConnectionView, called: Called) -> list[str]:
    return [
        grant.grantee or str(grant.grantee_kind)
        for grant in called.rota.grants.list(organization=connection.organization)
        if grant.target_kind is TargetKind.CONNECTION and grant.target_id == connection.name
    ]


CONNECTIONS = listing(
    "No connections: `rota connection create NAME URL` creates one.",
    "name organization kind url+ user secret=secret_name statements since=created_at by=created_by~",
    user=lambda connection: connection.login,
    statements=_statements,
)
VIEWS: dict[str | type, View] = {
    ConnectionView: View(lambda connection, _called: show_pairs(_pairs(connection))),
    "connection list": View(CONNECTIONS),
    "connection get": View(show_connection, connection_document),
    "connection test": View(show_tested, check=refuse_unfit),
    "connection rotate": View(show_rotated),
}
