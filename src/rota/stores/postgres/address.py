"""Where a database is: what a URL says, and what of it may be shown."""

from __future__ import annotations

import os
import re
import zlib
from itertools import zip_longest

import msgspec
from psycopg import conninfo

from rota.errors import InvalidOption
from rota.model.urls import is_ambiguous
from rota.stores.paths import name_of

PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
DOOR, WHEEL, MIGRATION, GUESTS, CLAIMS = 1, 2, 3, 4, 5
"""The advisory locks of a schema: see `rota.stores.postgres.store`."""
UNREADABLE = "the store's URL can't be read: give postgresql://user@host:5432/database, special characters in it percent-encoded"

# What a connection has where the URL and the environment say nothing. A host that has gone silent is given up after 15 s: before
# others give up this worker.
USUAL: dict[str, str | int | None] = {
    "connect_timeout": 10,
    "application_name": "rota",
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
VARIABLES = {"connect_timeout": "PGCONNECT_TIMEOUT", "application_name": "PGAPPNAME", "target_session_attrs": "PGTARGETSESSIONATTRS"}


# Of several servers one may be stopped, or its machine off: that costs each new connection this long, until another has answered.
SEVERAL: dict[str, str | int | None] = {"target_session_attrs": "read-write", "connect_timeout": 3}


class Hosts:
    """Several servers, and the one that answered last, which is tried first: the driver tries them one after another."""

    def __init__(self, hosts: list[str], ports: list[str]) -> None:
        """Take their names and ports; one port may be the port of all."""
        self._places = list(zip_longest(hosts, ports[: len(hosts)], fillvalue=ports[0]))
        self._last: tuple[str, str] | None = None

    def note_answer(self, host: str, port: int) -> None:
        """Remember who has answered."""
        self._last = next((place for place in self._places if place in {(host, str(port)), (host, "")}), None)

    def order(self) -> dict[str, str]:
        """Return hosts and ports as the driver takes them."""
        places = sorted(self._places, key=lambda place: place != self._last)
        return {"host": ",".join(host for host, _ in places), "port": ",".join(port for _, port in places)}


class Address(msgspec.Struct, frozen=True):
    """One schema of one database."""

    secret: str
    """What the driver is given; it may hold a password and is never shown."""
    shown: str
    """The same as people may see it."""
    schema: str
    options: str = ""
    password: str = ""
    several: bool = False
    """The URL names several servers."""
    hosts: Hosts | None = None
    """Which of several servers to try first, unless the URL has its own rule."""

    def __repr__(self) -> str:
        """Return what may be shown: frames and logs print it."""
        return f"Address({self.shown!r}, schema={self.schema!r})"

    def conninfo(self) -> str:
        """Return what the driver is given for a new connection: `secret`, with the server first that answered last."""
        return self.secret if self.hosts is None else conninfo.make_conninfo(self.secret, **self.hosts.order())

    def note_answer(self, host: str, port: int) -> None:
        """Remember which of several servers has answered."""
        if self.hosts is not None:
            self.hosts.note_answer(host, port)

    @property
    def name(self) -> str:
        """Return a name that each store has to itself on this machine."""
        return name_of(self.schema, f"{self.shown}#{self.schema}")

    @property
    def schema_quoted(self) -> str:
        """Return the schema's name as SQL has it, also where it is one of SQL's own words."""
        return f'"{self.schema}"'

    @property
    def search_path(self) -> str:
        """Return where names are looked up: here, and not in temporary tables that are called like ours."""
        return f"{self.schema_quoted}, pg_temp"

    def key(self, lock: int) -> tuple[int, int]:
        """Return the numbers of one of the schema's advisory locks: the schema's own, and which."""
        own = zlib.crc32(f"rota:{self.schema}".encode())
        return own - (1 << 32 if own >= 1 << 31 else 0), lock

    def without_password(self, text: str) -> str:
        """Return what a driver said without the password, should it ever repeat it."""
        return text.replace(self.password, "…") if self.password and self.password not in self.shown else text


def address(url: str, schema: str) -> Address:
    """Read a URL. The schema is a plain name, which can be said anywhere."""
    if not PLAIN_NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidOption(
            f"setting schema={schema!r} is not a plain name: small letters, digits and _, at most 63, no digit and no pg_ first"
        )
    parts = _read(url)
    options = str(parts.pop("options", "") or "")
    # Of several servers the one that can be written is meant; which one that is may change.
    hosts, ports = (str(parts.get(name) or "").split(",") for name in ("host", "port"))
    usual = USUAL | SEVERAL if len(hosts) > 1 else USUAL
    usual = {name: value for name, value in usual.items() if VARIABLES.get(name, "") not in os.environ}
    parts = usual | parts | {"client_encoding": "utf8"}
    return Address(
        secret=conninfo.make_conninfo("", **parts),
        shown=_shown(parts),
        schema=schema,
        options=options,
        password=str(parts.get("password") or ""),
        several=len(hosts) > 1,
        hosts=Hosts(hosts, ports) if len(hosts) > 1 and not {"hostaddr", "load_balance_hosts"} & parts.keys() else None,
    )


def _read(url: str) -> dict[str, str | int | None]:
    """Return the parts of a URL. Nothing of one that can't be read is repeated: any part of it may be a password's."""
    if is_ambiguous(url):
        raise InvalidOption(UNREADABLE)
    try:
        parts: dict[str, str | int | None] = dict(conninfo.conninfo_to_dict(url))
    except Exception:  # noqa: BLE001 - whatever the driver says may hold the password
        parts = {"port": "unreadable"}
    if not re.fullmatch(r"[0-9,]*", str(parts.get("port") or "")):
        raise InvalidOption(UNREADABLE)
    return parts


def _shown(parts: dict[str, str | int | None]) -> str:
    user = f"{parts['user']}@" if parts.get("user") else ""
    hosts, ports = (str(parts.get(name) or "").split(",") for name in ("host", "port"))
    places = [f"{host}:{port}" if port else host for host, port in zip_longest(hosts, ports[: len(hosts)], fillvalue=ports[0])]
    service = f"?service={parts['service']}" if parts.get("service") else ""
    return f"postgresql://{user}{','.join(places)}/{parts.get('dbname') or ''}{service}"
