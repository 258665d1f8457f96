"""How values go to the server that are not texts or numbers: ids, digests, and many of them in one."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from psycopg import pq
from psycopg.adapt import AdaptersMap, Buffer, Dumper
from psycopg.types.numeric import Int8Dumper

TEXT, UUID, TEXTS, UUIDS = 25, 2950, 1009, 2951
"""The types' numbers, which are the same on every server."""
_LENGTH = struct.Struct("!I")
_HEAD = struct.Struct("!5I")
"""Of an array: one dimension, no nulls, the type of its elements, how many, the first is number one."""


class HexDumper(Dumper):
    """Bytes as hexadecimal text: ids and digests, which the statements turn into what they are."""

    oid = 0

    def dump(self, obj: bytes) -> Buffer:
        """Return the text."""
        return obj.hex().encode()


class Ids:
    """Many ids of 16 bytes each, one behind the other."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes) -> None:
        """Take them."""
        self.packed = packed


class IdsDumper(Dumper):
    """Ids as the server has them: it need not read their digits."""

    format = pq.Format.BINARY
    oid = UUIDS

    def dump(self, obj: Ids) -> Buffer:
        """Return the array."""
        packed, length = obj.packed, _LENGTH.pack(16)
        head = _HEAD.pack(1, 0, UUID, len(packed) // 16, 1)
        return head + b"".join([length + packed[start : start + 16] for start in range(0, len(packed), 16)])


class Bodies:
    """The params of many jobs: as texts, which they stay."""

    __slots__ = ("params",)

    def __init__(self, params: Sequence[str]) -> None:
        """Take them."""
        self.params = params


class BodiesDumper(Dumper):
    """Params as the server has them: it need not read them as JSON to tell where one ends."""

    format = pq.Format.BINARY
    oid = TEXTS

    def dump(self, obj: Bodies) -> Buffer:
        """Return the array."""
        # In UTF-8, as every session that is used here.
        texts = [text.encode() for text in obj.params]
        return _HEAD.pack(1, 0, TEXT, len(texts), 1) + b"".join([_LENGTH.pack(len(text)) + text for text in texts])


def register(adapters: AdaptersMap) -> None:
    """Let values go as the statements expect them."""
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(bytes, HexDumper)
    adapters.register_dumper(Ids, IdsDumper)
    adapters.register_dumper(Bodies, BodiesDumper)
