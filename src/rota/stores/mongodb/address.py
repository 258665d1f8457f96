"""Where a MongoDB database is: what a URL says, and what of it may be shown."""

from __future__ import annotations

import re

import msgspec
from pymongo import uri_parser
from pymongo.errors import PyMongoError

from rota.errors import InvalidOption
from rota.stores.paths import name_of

DATABASE = "rota"
"""The database of a URL that names none."""
OF_SERVER = ("admin", "config", "local")
"""Databases that are MongoDB's own."""
NAME_BYTES = 63
"""The longest name of a database."""
UNREADABLE = "the store's URL can't be read: use mongodb://user@host:27017/database?replicaSet=rs0, special characters percent-encoded"
_OPTION = re.compile(r"Unknown option: (\w+)\.")
_CREDENTIALS = re.compile(r"^(mongodb(?:\+srv)?://)(?:([^@/?]*)@)?([^/?]*)(/[^?]*)?")


class Address(msgspec.Struct, frozen=True):
    """One database of a replica set."""

    secret: str
    """The URL for the driver; it may contain a password and is never shown."""
    shown: str
    """The same without the password and the options."""
    database: str
    password: str = ""

    @property
    def name(self) -> str:
        """Return a name that each store has to itself on this machine."""
        return name_of(self.database, self.shown)

    def __repr__(self) -> str:
        """Return what may be shown: frames and logs print it."""
        return f"Address({self.shown!r})"

    def without_password(self, text: str) -> str:
        """Return a message of the driver without the password, should it ever repeat it."""
        return text.replace(self.password, "…") if self.password and self.password not in self.shown else text


def address(url: str) -> Address:
    """Read a URL. Nothing of one that can't be read is repeated in the error: any part of it may belong to a password."""
    parts = _CREDENTIALS.match(url)
    if parts is None or "@" in parts[3]:
        raise InvalidOption(UNREADABLE)
    try:
        # A name in DNS is looked up when the client connects, not here.
        plain = url.replace("mongodb+srv://", "mongodb://", 1)
        read = uri_parser.parse_uri(plain, warn=False)
    except (PyMongoError, ValueError) as error:
        raise InvalidOption(_unreadable(url, str(error))) from None
    except OSError as error:
        raise InvalidOption(f"the store's URL names a file that can't be read: {error.filename}: {error.strerror}") from None
    if read.get("collection"):
        raise InvalidOption("the store's URL names a collection: a store is a whole database, so end the path after its name")
    database = read.get("database") or DATABASE
    if database in OF_SERVER or len(database.encode()) > NAME_BYTES:
        raise InvalidOption(
            f"the store's URL names the database {database[:NAME_BYTES]!r}: use another name than {', '.join(OF_SERVER)}, "
            f"which are MongoDB's own, of at most {NAME_BYTES} bytes"
        )
    user = f"{parts[2].partition(':')[0]}@" if parts[2] else ""
    return Address(secret=url, shown=f"{parts[1]}{user}{parts[3]}/{database}", database=database, password=read.get("password") or "")


def _unreadable(url: str, said: str) -> str:
    """Name an option that does not exist, unless a password with an unencoded question mark looks like one."""
    unknown = _OPTION.match(said)
    if unknown is None or "@" in url.partition("?")[2]:
        return UNREADABLE
    return f"the store's URL has an option {unknown[1]!r} that MongoDB's driver does not know: correct or remove it"
