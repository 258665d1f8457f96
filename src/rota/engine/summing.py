"""Rows in batches, digested on their way: what is compared when a store was copied."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from rota.errors import CopyRefused
from rota.ports.copying import Row, Table

BATCH_ROWS = 2000
BATCH_BYTES = 4 * 1024 * 1024
NUL, INSTEAD = "\0", "\N{REPLACEMENT CHARACTER}"
_NUL_ENCODED = b"\\u0000"


class Batch:
    """The digest of one table, as far as it has been read. It depends on rows and their order, not on how they were batched."""

    def __init__(self, table: Table | None, *, takes_nul: bool, mend: bool) -> None:
        """Take what the rows are of; NULs in texts are refused or mended where the target can't hold them."""
        self._table = table
        self._takes_nul = takes_nul
        self._mend = mend
        self._hash = hashlib.blake2b(digest_size=16)
        self._encoder = msgspec.json.Encoder()
        self.rows = 0
        self.mended = 0

    def digest(self) -> str:
        """Return the digest of what went through."""
        return self._hash.hexdigest()

    def encode(self, row: Row, into: bytearray) -> Row:
        """Append a row to what is to be digested, and return it as it is to be written."""
        start = len(into)
        self._encoder.encode_into(row, into, -1)
        # A text that speaks of a NUL looks alike: it is looked at, and found harmless.
        if not self._takes_nul and into.find(_NUL_ENCODED, start) >= 0 and self._table is not None:
            row = self._without_nul(row, self._table)
            del into[start:]
            self._encoder.encode_into(row, into, -1)
        into += b"\n"
        return row

    def add(self, rows: int, encoded: bytearray) -> None:
        """Digest a batch."""
        self._hash.update(encoded)
        self.rows += rows

    def _without_nul(self, row: Row, table: Table) -> Row:
        bad = [name for name, value in zip(table.names, row, strict=True) if isinstance(value, str) and NUL in value]
        if bad and not self._mend:
            named = dict(zip(table.names, row, strict=True))
            key = ", ".join(f"{name} {_shown(named[name])}" for name in table.key)
            raise CopyRefused(
                f"table {table.name}, {key}: {bad[0]} has a NUL character, which PostgreSQL can't hold in a text. Have it replaced by "
                f"{INSTEAD} in the copy (mend=True, --mend), or remove what it is a part of; nothing was changed"
            )
        self.mended += len(bad)
        return tuple(value.replace(NUL, INSTEAD) if isinstance(value, str) else value for value in row) if bad else row


def batches(rows: Iterator[Row], of: Batch) -> Iterator[list[Row]]:
    """Give rows in batches that are bounded in number and in bytes, digesting each."""
    batch: list[Row] = []
    encoded = bytearray()
    for row in rows:
        batch.append(of.encode(row, encoded))
        if len(batch) >= BATCH_ROWS or len(encoded) >= BATCH_BYTES:
            of.add(len(batch), encoded)
            yield batch
            batch, encoded = [], bytearray()
    of.add(len(batch), encoded)
    if batch:
        yield batch


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)
