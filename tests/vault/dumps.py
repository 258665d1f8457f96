"""All that is in a store, as bytes, for a search."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import bson

from tests.stores.makers import MongoMaker, PostgresMaker, SqliteMaker


def dump_of(maker: SqliteMaker) -> bytes:
    """Return every value of a store."""
    match maker:
        case MongoMaker():
            names = maker.hand.database.list_collection_names()
            return b"\n".join(bson.encode(document) for name in names for document in maker.hand.find(name))
        case PostgresMaker():
            tables = maker._sql("SELECT tablename FROM pg_tables WHERE schemaname = ?", (maker.schema,))
            return _joined(row for (table,) in tables for row in maker._sql(f"SELECT t.*, t::text FROM {table} AS t"))
        case _:
            return sqlite_dump(maker.path)


def sqlite_dump(path: Path) -> bytes:
    """Return every value of a file."""
    with closing(apsw.Connection(str(path))) as raw:
        tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return _joined(row for table in tables for row in raw.execute(f'SELECT * FROM "{table}"'))


def _joined(rows: Iterable[tuple[Any, ...]]) -> bytes:
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row)
