"""Connections: databases that jobs in SQL use, each under a name of its organization. Pure: nothing here opens one."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from urllib.parse import parse_qsl, urlsplit

import msgspec

from rota.errors import InvalidOption
from rota.model.checks import check_name, text
from rota.model.secrets import check_secret_name
from rota.model.urls import hide

DEFAULT = "default"
"""The connection of jobs that name none. Only a system manager creates, changes and deletes it."""
URL_MAX = 2_000
LOGIN_MAX = 255


class DatabaseKind(StrEnum):
    """The kinds of databases."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


SCHEMES: dict[str, DatabaseKind] = {
    "postgresql": DatabaseKind.POSTGRESQL,
    "postgres": DatabaseKind.POSTGRESQL,
    "sqlite": DatabaseKind.SQLITE,
}
"""The schemes that a URL may begin with."""
URL_OPTIONS = frozenset({"channel_binding", "sslmode", "sslrootcert", "target_session_attrs"})
"""What may follow the question mark of a PostgreSQL URL: what runners take, too. Options that name a login, a host, a service or a file
with passwords would take the place of what the connection says, and the rest is set by the runner."""
EXAMPLE = "postgresql://host/database or sqlite:////folder/file.db"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,19}")


class Connection(msgspec.Struct, kw_only=True, frozen=True):
    """A database, and the login with which jobs use it. Its password is a secret, of which only the name is here."""

    id: str
    organization: str
    name: str
    url: str
    login: str | None = None
    """The user of the database; None: a SQLite file, which has no users."""
    secret: str | None = None
    """The name of the organization's secret that is the password; None: the database asks for none."""
    multi: bool = False
    """A body may have several statements."""
    version: int = 1
    created_by: str
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def kind(self) -> DatabaseKind:
        """The kind of its database."""
        return kind_of(self.url)

    @property
    def key(self) -> tuple[str, str]:
        """What it is found by: its organization and its name."""
        return self.organization, self.name


def kind_of(url: str) -> DatabaseKind:
    """Return the kind of database that a URL names, or refuse its scheme."""
    scheme, found, _ = url.partition("://")
    if not found or not _SCHEME.fullmatch(scheme):
        raise InvalidOption(f"url is not an address: use {EXAMPLE}")
    if scheme not in SCHEMES:
        raise InvalidOption(f"url has the scheme {scheme!r}, which no connection can use: use {EXAMPLE}")
    return SCHEMES[scheme]


def check_connection(connection: Connection, *, name_max: int) -> Connection:
    """Return a connection whose parts are allowed and fit each other, or refuse the one that does not. No message has its URL."""
    check_name(connection.name, "connection", name_max)
    if connection.secret is not None:
        check_secret_name(connection.secret)
    if connection.login is not None and not text("login", connection.login, LOGIN_MAX).strip():
        raise InvalidOption("login='' is not allowed: use the name of a user of the database")
    multi: object = connection.multi
    if not isinstance(multi, bool):
        raise InvalidOption(f"multi={multi!r} is not allowed: use true or false")
    _check_url(connection.url)
    _check_login(connection)
    return connection


def _check_url(url: object) -> None:
    if not isinstance(url, str) or len(url) > URL_MAX or not url.isprintable():
        raise InvalidOption(f"url is not an address: use {EXAMPLE}, at most {URL_MAX:,} characters")
    if hide(url) != url:
        raise InvalidOption("url has a password: keep it as a secret, and name that as the connection's secret")
    match kind_of(url):
        case DatabaseKind.POSTGRESQL:
            _check_postgresql(url)
        case DatabaseKind.SQLITE:
            path = url.removeprefix("sqlite:///")
            if path == url or not path.strip() or path.startswith(":"):
                raise InvalidOption("url names no file: use sqlite:////folder/file.db")


def _check_postgresql(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidOption(f"url is not an address: use {EXAMPLE}") from None
    if "@" in url or any(character.isspace() for character in url):
        raise InvalidOption("url has a user or a space in it: name the user as the connection's login")
    if not host or "%" in parts.netloc or "," in parts.netloc:
        raise InvalidOption("url needs one host: use postgresql://host/database, with localhost for this machine")
    if not parts.path.strip("/"):
        raise InvalidOption("url names no database: use postgresql://host/database")
    unknown = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if name not in URL_OPTIONS]
    if unknown or parts.fragment:
        shown = f"the option {unknown[0][:40]!r}" if unknown else "a part after #"
        raise InvalidOption(f"url has {shown}, which no connection can have: it takes {', '.join(sorted(URL_OPTIONS))}")


def _check_login(connection: Connection) -> None:
    """Refuse a PostgreSQL connection without a login, which would have that of the worker, and a SQLite file with one."""
    is_file = connection.kind is DatabaseKind.SQLITE
    if is_file and (connection.login is not None or connection.secret is not None):
        raise InvalidOption("a SQLite file has no users: leave out login and secret")
    if not is_file and connection.login is None:
        raise InvalidOption("a PostgreSQL connection needs a login, which is the identity of its jobs: name a role with few rights")


class ConnectionView(msgspec.Struct, kw_only=True, frozen=True):
    """A connection as somebody sees it. Who may only use it is shown neither its address, nor its login, nor the name of its secret."""

    id: str
    organization: str
    name: str
    kind: DatabaseKind
    url: str | None = None
    login: str | None = None
    secret_name: str | None = None
    multi: bool = False
    version: int = 1
    created_by: str
    created_at: datetime | None = None
    updated_at: datetime | None = None


def seen_by(connection: Connection, *, manager: bool) -> ConnectionView:
    """Return a connection as one of those who manage connections sees it, or one of those who use it."""
    return ConnectionView(
        id=connection.id,
        organization=connection.organization,
        name=connection.name,
        kind=connection.kind,
        url=connection.url if manager else None,
        login=connection.login if manager else None,
        secret_name=connection.secret if manager else None,
        multi=connection.multi,
        version=connection.version,
        created_by=connection.created_by,
        created_at=connection.created_at,
        updated_at=connection.updated_at,
    )
