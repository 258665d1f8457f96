"""Documents from columns, and rows from documents: see `schema` for the rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bson.codec_options import CodecOptions, TypeDecoder, TypeRegistry
from bson.int64 import Int64

Document = dict[str, Any]
Row = tuple[Any, ...]

ID_BYTES = 16


class _Plain(TypeDecoder):
    """Makes plain integers of the driver's own, which JSON encoders do not know."""

    bson_type = Int64

    def transform_bson(self, value: Int64) -> int:
        """Return the number."""
        return int(value)


TYPES = TypeRegistry([_Plain()])
CODEC: CodecOptions[Document] = CodecOptions(tz_aware=True, type_registry=TYPES)
"""How documents are read, whoever opened the connection."""


def ident(value: str | bytes | None) -> str | None:
    """Return an id as documents have it: hexadecimal text. An empty one is nobody's, and None."""
    if isinstance(value, bytes):
        value = value.hex()
    return value or None


def ids(packed: bytes | Iterable[str | bytes]) -> list[str]:
    """Return many ids as documents have them; they may come as one value, 16 bytes each."""
    if isinstance(packed, bytes):
        text = packed.hex()
        return [text[start : start + 2 * ID_BYTES] for start in range(0, len(text), 2 * ID_BYTES)]
    return [value.hex() if isinstance(value, bytes) else value for value in packed]


def document(**columns: Any) -> Document:
    """Return the document of a row: columns that are NULL are not in it. `_id` is the column that is the key."""
    return {name: value for name, value in columns.items() if value is not None}


def row(found: Document, columns: Sequence[str]) -> Row:
    """Return the columns of a document in this order."""
    get = found.get
    return tuple([get(column) for column in columns])


def rows(found: Iterable[Document], columns: Sequence[str]) -> list[Row]:
    """Return the columns of many documents."""
    return [row(each, columns) for each in found]


def setting(**columns: Any) -> Document:
    """Return the update that sets columns: those that are NULL are taken out of the document."""
    present = {name: value for name, value in columns.items() if value is not None}
    absent = {name: "" for name, value in columns.items() if value is None}
    return ({"$set": present} if present else {}) | ({"$unset": absent} if absent else {})


def picked(values: Sequence[Any], keys: Sequence[Any], column: str = "$_id") -> Document:
    """Return the expression for the value that stands at the place of a document's key: one update then writes many documents.

    It costs the server a quarter less than an update for each.
    """
    return {"$arrayElemAt": [{"$literal": list(values)}, {"$indexOfArray": [{"$literal": list(keys)}, column]}]}


def projection(columns: Iterable[str]) -> dict[str, int]:
    """Return what the server is to send of each document."""
    wanted = dict.fromkeys(columns, 1)
    return wanted if "_id" in wanted else {"_id": 0} | wanted
