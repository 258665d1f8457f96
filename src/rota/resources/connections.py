"""Connections: databases that jobs in SQL use. SQL's CREATE, ALTER and DROP CONNECTION call the functions of this file."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.compose import make_checker
from rota.errors import ChangedMeanwhile, InvalidOption, NotFound, PermissionDenied, Refused, SecretUnavailable
from rota.model.connections import DEFAULT, Connection, ConnectionView, check_connection, seen_by
from rota.model.gate import RIGHTS, Reach, Right, uses
from rota.model.grants import TargetKind
from rota.model.secrets import Put, check_secret_value
from rota.model.shapes import Organization, Shape
from rota.model.values import dashed
from rota.operation import Ask, Resource, operation
from rota.orders import database_of, passwords_of
from rota.ports.runner import UnfitDatabase, Unreachable
from rota.resources.secrets import place_of, put

TESTS_MAX = 4
"""Tests at a time in one process: each waits for its database on a thread that others need."""
_tests = threading.BoundedSemaphore(TESTS_MAX)

Name = Annotated[str, Shape("The connection's name.", "warehouse", "NAME")]
Url = Annotated[
    str, Shape("postgresql://host/database or sqlite:////folder/file.db, without a password.", "postgresql://wh.example/dw", "URL")
]
Login = Annotated[str | None, Shape("The user of the database. A SQLite file has none.", "etl", "USER")]
SecretName = Annotated[str | None, Shape("The organization's secret that is the password. Default: no password.", "wh_password", "NAME")]
Password = Annotated[str, Shape("The new password, as it is in the database.", "correct horse battery staple", "PASSWORD", hidden=True)]
Multi = Annotated[bool, Shape("Whether the text of a job may have several statements.", option="multi/single")]


class ConnectionTest(msgspec.Struct, frozen=True):
    """The result of a test."""

    fit: bool
    """Jobs can use the database."""
    server: str | None
    """Its product and version, if they can."""
    error: str | None
    took_s: float


class Connections(Resource):
    """The connections of an organization: the caller's own, unless another is given."""

    __slots__ = ()

    @operation(Right.READ, http="GET /connections", cli="connection list")
    def list(self, ask: Ask, *, organization: Organization = None) -> builtins.list[ConnectionView]:
        """Return the connections that the actor may use, by organization and name. Their addresses are shown to those who manage them."""
        return [each for each in visible_connections(ask) if organization in {None, each.organization}]

    @operation(Right.READ, http="GET /connections/{name}", cli="connection get", etag=True)
    def get(self, ask: Ask, name: Name, *, organization: Organization = None) -> ConnectionView:
        """Return one connection that the actor may use."""
        wanted = ask.within(organization).organization
        for each in visible_connections(ask):
            if (each.organization, each.name) == (wanted, name):
                return each
        raise _no_connection(name, wanted)

    @operation(Right.MANAGE_CONNECTIONS, http="POST /connections", cli="connection create", status=201)
    def create(
        self,
        ask: Ask,
        name: Name,
        url: Url,
        *,
        login: Login = None,
        secret_name: SecretName = None,
        multi: Multi = False,
        organization: Organization = None,
    ) -> ConnectionView:
        """Create a connection. The database is not asked: `test` does that.

        The connection `default`, for jobs that name none, is created by system managers.
        """
        return create(ask, name, {"url": url, "login": login, "secret": secret_name, "multi": multi}, organization)

    @operation(Right.MANAGE_CONNECTIONS, http="PATCH /connections/{name}", cli="connection update", etag=True)
    def update(
        self,
        ask: Ask,
        name: Name,
        *,
        url: Annotated[Url | UnsetType, Shape(wire=str)] = UNSET,
        login: Login | UnsetType = UNSET,
        secret_name: SecretName | UnsetType = UNSET,
        multi: Annotated[bool | None, Shape("Whether the text of a job may have several statements.", option="multi/single")] = None,
        organization: Organization = None,
    ) -> ConnectionView:
        """Change a connection; what is not given stays. None removes the login or the secret. Runs keep what they started with."""
        given = {"url": url, "login": login, "secret": secret_name, "multi": UNSET if multi is None else multi}
        return update(ask, name, {field: value for field, value in given.items() if value is not UNSET}, organization)

    @operation(
        Right.MANAGE_CONNECTIONS,
        http="DELETE /connections/{name}",
        cli="connection delete",
        status=204,
        confirm="Delete connection {name}, and everybody's right to use it?",
    )
    def delete(self, ask: Ask, name: Name, *, organization: Organization = None) -> None:
        """Delete a connection that no job uses, and everybody's right to use it."""
        delete(ask, name, organization)

    @operation(Right.MANAGE_CONNECTIONS, http="POST /connections/{name}/test", cli="connection test")
    def test(self, ask: Ask, name: Name, *, organization: Organization = None) -> ConnectionTest:
        """Log in to the database of a connection from this process, and check that jobs may use it. It is not recorded."""
        present = managed(ask, name, organization)
        try:
            passwords = passwords_of(ask.session, ask.store, present)
        except (NotFound, SecretUnavailable) as error:
            return ConnectionTest(False, None, str(error), 0.0)  # noqa: FBT003 - as it reads
        return _tried(ask, present, passwords)

    @operation(Right.MANAGE_CONNECTIONS, http="PUT /connections/{name}/password", cli="connection rotate")
    def rotate(self, ask: Ask, name: Name, password: Password, *, organization: Organization = None) -> ConnectionTest:
        """Keep a new password in the connection's secret, if a login with it works from this process. Set it in the database first.

        It needs the right to manage secrets as well. If the login fails, the secret stays as it is.
        """
        present = managed(ask, name, organization)
        if present.secret is None:
            raise InvalidOption(f"connection {name!r} has no secret to keep a password in: name one with `secret_name`")
        secrets_ask = ask.also(Right.MANAGE_SECRETS)
        place = place_of(secrets_ask, present.secret, None, present.organization)
        tested = _tried(ask, present, {present.secret: check_secret_value(password)})
        if not tested.fit:
            raise Refused(f"the password was not changed, because no job could use the connection with it: {tested.error}")
        put(secrets_ask, place, password, Put.EITHER)
        return tested


def create(ask: Ask, name: str, fields: dict[str, Any], organization: str | None = None) -> ConnectionView:
    """Create a connection of an organization: `Connections.create`, and CREATE CONNECTION."""
    who = ask.within(organization)
    _refuse_default(ask, name)
    ask.registry.organization(who.organization, ask.store, ask.now)
    new = Connection(
        id=dashed(ask.session.ids.take(1, ask.now)[0]), organization=who.organization, name=name, created_by=who.name, **fields
    )
    check_connection(new, name_max=ask.settings.name_max)
    try:
        return seen_by(ask.store.put_connection(new, actor=who, now=ask.now, version=0), manager=True)
    except ChangedMeanwhile:
        raise Refused(f"organization {who.organization!r} has a connection {name!r} already: change it, or choose another name") from None


def update(ask: Ask, name: str, fields: dict[str, Any], organization: str | None = None) -> ConnectionView:
    """Change a connection of an organization: `Connections.update`, and ALTER CONNECTION."""
    present = managed(ask, name, organization)
    _refuse_default(ask, name)
    changed = check_connection(msgspec.structs.replace(present, **fields), name_max=ask.settings.name_max)
    version = present.version if ask.version is None else ask.version
    return seen_by(ask.store.put_connection(changed, actor=ask.within(organization), now=ask.now, version=version), manager=True)


def delete(ask: Ask, name: str, organization: str | None = None) -> None:
    """Delete a connection of an organization: `Connections.delete`, and DROP CONNECTION."""
    who = ask.within(organization)
    _refuse_default(ask, name)
    ask.store.drop_connection(name, organization=who.organization, actor=who, now=ask.now)


def managed(ask: Ask, name: str, organization: str | None = None) -> Connection:
    """Return a connection of the organization that the actor acts in, whole: for those who manage connections."""
    wanted = ask.within(organization).organization
    for each in ask.store.connections():
        if each.key == (wanted, name):
            return each
    raise _no_connection(name, wanted)


def visible_connections(ask: Ask) -> builtins.list[ConnectionView]:
    """Return the connections that an actor may use, each as it may see it."""
    who = ask.who
    holdings = ask.session.holdings(who, Right.READ)
    manager = RIGHTS[Right.MANAGE_CONNECTIONS][who.role] is not Reach.NONE
    return [
        seen_by(each, manager=manager)
        for each in ask.store.connections()
        if ask.scope.organization in {None, each.organization} and uses(who, TargetKind.CONNECTION, each.name, each.organization, holdings)
    ]


def _refuse_default(ask: Ask, name: str) -> None:
    """Refuse to change what jobs without a connection use, unless the actor is a system manager."""
    if name == DEFAULT and ask.scope.organization is not None:
        who = ask.who
        error = PermissionDenied(f"{who.name!r} ({who.role}) may not create, change or delete the connection {DEFAULT!r}: a manager may")
        ask.session.denied(ask.actor, ask.right, error)
        raise error


def _no_connection(name: str, organization: str) -> NotFound:
    return NotFound(f"there is no connection {name!r} in organization {organization!r}: `rota connection list` shows them")


def _tried(ask: Ask, connection: Connection, passwords: Mapping[str, str]) -> ConnectionTest:
    """Log in to a database, with the password under the name of the connection's secret, and say whether jobs could use it."""
    if not _tests.acquire(blocking=False):
        raise Refused(f"{TESTS_MAX} tests of connections are under way here: try again when one has finished")
    started, server, error = time.monotonic(), None, None
    try:
        answer = make_checker(ask.settings, ask.store.url).probe(database_of(connection, passwords))
        server = f"{answer.server} {answer.version}"
    except (Unreachable, UnfitDatabase) as problem:
        error = str(problem)
    finally:
        _tests.release()
    return ConnectionTest(error is None, server, error, round(time.monotonic() - started, 3))
