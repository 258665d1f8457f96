"""Pictures made small: a PNG of a screen has few colours that matter, so 256 of them are enough."""

from __future__ import annotations

import struct
import zlib
from collections import Counter

COLOURS = 256


def shrink(png: bytes) -> bytes:
    """Return an 8-bit RGB or RGBA picture with a palette, packed as well as can be."""
    width, height = struct.unpack(">II", png[16:24])
    depth = 4 if png[25] == 6 else 3
    rows = _rows(zlib.decompress(_data(png)), width * depth, depth)
    pixels = [[bytes(row[at : at + 3]) for at in range(0, len(row), depth)] for row in rows]
    counts = Counter(pixel for row in pixels for pixel in row)
    palette = _palette(counts)
    places = {colour: place for place, colour in enumerate(palette)}
    for colour in counts:
        if colour not in places:
            red, green, blue = colour
            places[colour] = min(
                range(len(palette)),
                key=lambda at: (palette[at][0] - red) ** 2 + (palette[at][1] - green) ** 2 + (palette[at][2] - blue) ** 2,
            )
    packed = zlib.compress(b"".join(b"\0" + bytes(places[pixel] for pixel in row) for row in pixels), 9)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return png[:8] + _chunk(b"IHDR", head) + _chunk(b"PLTE", b"".join(palette)) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def _palette(counts: Counter[bytes]) -> list[bytes]:
    """Choose colours: of each neighbourhood the one used most, so that what is rare but different stays; then what is used most."""
    chosen: dict[tuple[int, ...], bytes] = {}
    for colour, _ in counts.most_common():
        chosen.setdefault(tuple(part >> 5 for part in colour), colour)
    first = list(chosen.values())[: COLOURS // 2]
    return (first + [colour for colour, _ in counts.most_common(COLOURS) if colour not in first])[:COLOURS]


def _data(png: bytes) -> bytes:
    found, at = b"", 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            found += png[at + 8 : at + 8 + size]
        at += size + 12
    return found


def _rows(raw: bytes, size: int, depth: int) -> list[bytearray]:
    """Undo the filters of the rows."""
    rows: list[bytearray] = []
    above = bytearray(size)
    for at in range(0, len(raw), size + 1):
        kind, row = raw[at], bytearray(raw[at + 1 : at + 1 + size])
        for x in range(size):
            left = row[x - depth] if x >= depth else 0
            if kind == 1:
                row[x] = (row[x] + left) & 255
            elif kind == 2:
                row[x] = (row[x] + above[x]) & 255
            elif kind == 3:
                row[x] = (row[x] + (left + above[x]) // 2) & 255
            elif kind == 4:
                row[x] = (row[x] + _paeth(left, above[x], above[x - depth] if x >= depth else 0)) & 255
            elif kind == 0:
                break
        rows.append(row)
        above = row
    return rows


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda each: abs(guess - each))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
