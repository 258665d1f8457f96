"""Where the documents of an import come from: a file of lines, a file that is one JSON array, lines, or objects at hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from rota.errors import InvalidImport
from rota.model.settings import MIB

LINE_MAX = 64 * MIB
"""Longest line: four times what a document may be in its own database, for extended JSON is longer."""
_MARK = b"\xef\xbb\xbf"
"""What some programs put before UTF-8."""


class DocumentPlace(msgspec.Struct, frozen=True):
    """Where a document stands: its line, or its place in an array, from 1."""

    number: int
    kind: str = "line"

    def __str__(self) -> str:
        """Return it as messages name it."""
        return f"{self.kind} {self.number}"


Reader = Callable[[], Iterator[tuple[DocumentPlace, Any]]]
"""Reads documents with their places from the beginning, each time it is called. Each is decoded only when it is looked at."""


def documents_of(source: str | os.PathLike[str] | Iterable[Any]) -> Reader:
    """Return the documents of a source. An iterable is read once, into memory; a file is read as it goes."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return _array(path) if _begins_array(path) else partial(_lines_of, path)
    items = list(source)
    return partial(_items, items)


def _begins_array(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4096).removeprefix(_MARK).lstrip()[:1] == b"["
    except OSError as error:
        raise InvalidImport(f"{path} can't be read: {error.strerror or error}") from error


def _array(path: Path) -> Reader:
    try:
        items = msgspec.json.decode(path.read_bytes().removeprefix(_MARK), type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidImport(f"{path} begins as a JSON array and can't be read as one: {error}") from None

    def again() -> Iterator[tuple[DocumentPlace, Any]]:
        for number, item in enumerate(items, 1):
            yield DocumentPlace(number, "item"), partial(_decode, bytes(item))

    return again


def _lines_of(path: Path) -> Iterator[tuple[DocumentPlace, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(_bounded(file), 1):
            text = (line.removeprefix(_MARK) if number == 1 else line).strip()
            if text:
                yield DocumentPlace(number), partial(_decode, text)


def _bounded(file: IO[bytes]) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LINE_MAX + 1):
        number += 1
        if len(line) > LINE_MAX:
            raise InvalidImport(f"line {number} is longer than {LINE_MAX:,} bytes: give one document a line", number)
        yield line


def _items(items: list[Any]) -> Iterator[tuple[DocumentPlace, Any]]:
    for number, item in enumerate(items, 1):
        if isinstance(item, str | bytes):
            text = item.encode("utf-8", "surrogateescape") if isinstance(item, str) else item
            if text.strip():
                yield DocumentPlace(number), partial(_decode, text)
        else:
            yield DocumentPlace(number, "item"), item


def _decode(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidImport(f"not JSON: {error}") from None
    except RecursionError:
        raise InvalidImport("nested too deeply to be read") from None
