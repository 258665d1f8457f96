"""Monque's collection in MongoDB: how it is opened, and the indexes that the library creates in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import unquote_plus

import msgspec
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import MongoClient, ReadPreference, WriteConcern, timeout
from pymongo.collection import Collection
from pymongo.errors import ConfigurationError, InvalidName, InvalidURI, OperationFailure, PyMongoError
from pymongo.uri_parser import parse_uri

from rota.errors import InvalidOption, StoreUnavailable, StoreUnusable
from rota.model.findings import Finding, advice, ok, problem

Fields: TypeAlias = dict[str, Any]
Documents: TypeAlias = Collection[Fields]

COLLECTION = "monque_jobs"
LIVE = {"$in": ["pending", "processing"]}
"""The states in which a document holds its unique key."""
CLAIM_FIELDS = ("lockedAt", "claimedBy", "lastHeartbeat")
"""Fields that the library removes when a claim ends."""
OWN_FIELDS = ("claimId", "leaseExpiresAt", "rotaCheckpoint")
"""Fields that are removed too: of later versions of the library, and of the bridge."""
SERVER_LEAST = (6, 0)
"""The first server whose partial indexes take `$in`."""


Keys: TypeAlias = tuple[tuple[str, int], ...]


class Index(msgspec.Struct, frozen=True):
    """An index of the library. Its name is the one that MongoDB gives it: under another one the library could not create its own."""

    keys: Keys
    options: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """Its default name."""
        return "_".join(f"{field}_{direction}" for field, direction in self.keys)


INDEXES = (
    Index((("status", 1), ("nextRunAt", 1))),
    Index((("name", 1), ("uniqueKey", 1)), {"unique": True, "partialFilterExpression": {"uniqueKey": {"$exists": True}, "status": LIVE}}),
    Index((("name", 1), ("status", 1))),
    Index((("createdAt", -1), ("_id", -1))),
    Index((("updatedAt", -1), ("_id", -1))),
    Index((("nextRunAt", -1), ("_id", -1))),
    Index((("claimedBy", 1), ("status", 1))),
    Index((("lastHeartbeat", 1), ("status", 1))),
    Index((("name", 1), ("status", 1), ("nextRunAt", 1), ("claimedBy", 1))),
    Index((("status", 1), ("lockedAt", 1), ("lastHeartbeat", 1))),
)
UNIQUE = INDEXES[1]


def open_collection(url: str, *, patience_s: float = 30.0) -> Documents:
    """Open the collection that a URL names: mongodb://host/database, `?collection=` for another than monque_jobs.

    Nothing that is asked of it is waited for longer than `patience_s`: a server that accepts and never answers must not hold a worker up.
    Close it with `collection.database.client.close()`.
    """
    address, _, query = url.partition("?")
    # The other options stay as they are: the driver itself reads some of them without decoding.
    options = query.split("&") if query else []
    name = next((unquote_plus(each.partition("=")[2]) for each in options if _is_collection(each)), COLLECTION)
    rest = "&".join(each for each in options if not _is_collection(each))
    url = f"{address}?{rest}" if rest else address
    try:
        database = parse_uri(url, warn=False)["database"]
        if database is None:
            raise ConfigurationError("it names no database")
        client: MongoClient[Fields] = MongoClient(url, appname="rota bridge", timeoutMS=max(1, round(patience_s * 1000)))
    except (ConfigurationError, InvalidURI, ValueError) as error:
        raise _bad_url(error) from error
    try:
        return as_jobs(client[database][name])
    except InvalidName as error:
        client.close()
        raise _bad_url(error) from error


def _bad_url(error: Exception) -> InvalidOption:
    return InvalidOption(f"the URL of Monque's collection: {error}; use mongodb://host/database?collection={COLLECTION}")


def _is_collection(option: str) -> bool:
    return option.partition("=")[0] == "collection"


def as_jobs(collection: Documents) -> Documents:
    """Return a collection as everything here uses it.

    Writes are acknowledged by a majority, and reads ask the primary: a secondary may still show a document as claimed that has ended. Times
    have their zone. A time beyond the year 9999, or a text that is not UTF-8, is read all the same: one such document must not keep the
    others from being read.
    """
    options: CodecOptions[Fields] = CodecOptions(
        tz_aware=True, uuid_representation=4, datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
    )
    return collection.with_options(codec_options=options, write_concern=WriteConcern("majority"), read_preference=ReadPreference.PRIMARY)


@contextmanager
def translated(collection: Documents) -> Iterator[None]:
    """Raise what MongoDB says in the block as errors of Rota: it is not there, or it refuses."""
    try:
        yield
    except OperationFailure as error:
        raise StoreUnusable(f"MongoDB refuses the use of {collection.full_name}: {_reason(error)}") from error
    except PyMongoError as error:
        raise StoreUnavailable(f"the MongoDB server of Monque's collection is not available: {error}") from error


def check_server(collection: Documents) -> None:
    """Refuse a server that can't be reached, or is too old for the library's indexes."""
    with translated(collection):
        version = tuple(collection.database.client.server_info()["versionArray"][:2])
    if version < SERVER_LEAST:
        least = ".".join(map(str, SERVER_LEAST))
        raise InvalidOption(f"Monque's collection needs MongoDB {least} or later; this server has {'.'.join(map(str, version))}")


def create_indexes(collection: Documents) -> None:
    """Create the indexes of the library that are missing, under its names."""
    for index in INDEXES:
        try:
            # Building one takes as long as it takes.
            with timeout(None):
                collection.create_index(list(index.keys), name=index.name, **index.options)
        except OperationFailure as error:
            raise InvalidOption(
                f"index {index.name} of {collection.name} can't be created: {_reason(error)}. "
                f"Monque itself could not create it either. {_IN_ITS_WAY.get(error.code or 0, 'Use')} --no-indexes"
            ) from error


_ANOTHER = "Drop the index that is in its way, or use"
_IN_ITS_WAY = {85: _ANOTHER, 86: _ANOTHER, 11000: "End one of the documents that have the same name and uniqueKey, or use"}
"""What to do about codes of MongoDB: an index of other options, of another name, and a key that is there twice."""


def _reason(error: OperationFailure) -> str:
    return str((error.details and error.details.get("errmsg")) or error)


def index_findings(collection: Documents) -> list[Finding]:
    """Compare the indexes of a collection with those of the library."""
    with translated(collection):
        there = {str(each["name"]): each for each in collection.list_indexes()}
    by_keys = {_keys_of(each): name for name, each in there.items()}
    found = [_finding(index, there, by_keys) for index in INDEXES]
    bad = [each for each in found if each is not None]
    return bad or [ok("indexes", f"{collection.name} has the {len(INDEXES)} indexes of Monque")]


def _finding(index: Index, there: Mapping[str, Mapping[str, Any]], by_keys: Mapping[Keys, str]) -> Finding | None:
    other = by_keys.get(index.keys)
    if other is None:
        text, remedy = f"{index.name} is missing", "start the bridge without --no-indexes, or create it"
        # Without the unique one, two enqueues of a key at the same moment make two jobs; the others are for speed.
        return problem("indexes", text, remedy) if index is UNIQUE else advice("indexes", text, remedy)
    if other != index.name:
        return problem("indexes", f"{index.name} has the name {other}: Monque can't start", f"drop {other} and create {index.name}")
    return None if _same_options(index, there[other]) else problem("indexes", f"{other} has other options than Monque's", "create it again")


def _same_options(index: Index, there: Mapping[str, Any]) -> bool:
    wanted, partial = bool(index.options.get("unique")), index.options.get("partialFilterExpression")
    has = there.get("partialFilterExpression")
    return bool(there.get("unique")) is wanted and (_plain(has) if has else None) == partial


def _keys_of(index: Mapping[str, Any]) -> Keys:
    keys: Mapping[str, Any] = index["key"]
    return tuple((field, int(direction)) if isinstance(direction, int | float) else (field, 0) for field, direction in keys.items())


def _plain(value: Any) -> Any:
    """Return nested documents as dicts: MongoDB's compare by the order of their fields."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, Iterable) and not isinstance(value, str) else value
