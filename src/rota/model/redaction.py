"""Redaction: takes the values of secrets, and the forms that programs print them in, out of output, texts and JSON. Pure.

It is a net, not a wall: a program that means to print a secret can encode it in a way that is not looked for here.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from json import dumps, loads
from typing import AnyStr
from urllib.parse import quote, quote_plus

MASK = "********"
VALUE_MIN_BYTES = 4
"""Shorter values are not looked for: they are parts of ordinary words."""
LINE_MIN_BYTES = 8
"""Shorter lines of a value are not looked for without the rest of it."""
_BYTES_MASK = MASK.encode()
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""A string or a number of JSON: all else that a document has is punctuation, true, false and null."""


class Redactor:
    """Replaces the values of secrets by `********`. It keeps the end of what was fed if a value may begin there: one for each stream."""

    __slots__ = ("_bytes", "_covered", "_held", "_texts")

    def __init__(self, values: Iterable[str]) -> None:
        """Take the values. If none is long enough, everything is returned as it is."""
        self._bytes = tuple({form for value in values for form in forms_of(value)})
        self._texts = tuple(form.decode() for form in self._bytes)
        self._held = b""
        self._covered = 0
        """Bytes at the beginning of `_held` that are part of a value whose mask was returned already."""

    def __bool__(self) -> bool:
        """Say whether there is anything to look for."""
        return bool(self._bytes)

    def another(self) -> Redactor:
        """Return a redactor of the same values for another stream."""
        other = Redactor(())
        other._bytes, other._texts = self._bytes, self._texts
        return other

    def feed(self, data: bytes) -> bytes:
        """Return what can be shown after these bytes. An end that may be the beginning of a value is kept for the next call."""
        if not self._bytes:
            return data
        data = self._held + data
        certain = min((_open_end(data, form) for form in self._bytes), default=len(data))
        return self._released(data, certain)

    def flush(self) -> bytes:
        """Return what was kept: the stream has ended."""
        return self._released(self._held, len(self._held)) if self._held else b""

    def text(self, text: str) -> str:
        """Return a text without the values."""
        spans = _spans(text, self._texts)
        if not spans:
            return text
        shown, end = [], 0
        for start, stop in _joined(spans):
            shown += [text[end:start], MASK]
            end = stop
        return "".join([*shown, text[end:]])

    def json(self, text: str) -> str:
        """Return JSON without the values, and valid as before. A number that has a value in it becomes a string."""
        if not self._bytes or ("\\" not in text and not any(form in text for form in self._texts)):
            return text
        shown = _TOKEN.sub(lambda token: self._token(token[0]), text)
        # A value can be several parts of a document, or all of it: then nothing of the document is shown.
        return shown if self.text(shown) == shown else dumps(MASK)

    def _token(self, token: str) -> str:
        if not token.startswith('"'):
            return token if self.text(token) == token else dumps(MASK)
        try:
            whole = loads(token, strict=False)
        except ValueError:
            return self.text(token)
        shown = self.text(whole)
        return token if shown == whole and self.text(token) == token else dumps(self.text(shown), ensure_ascii=False)

    def _released(self, data: bytes, certain: int) -> bytes:
        """Return the bytes up to a place without the values that begin before it, and keep the rest."""
        shown, end = [], self._covered
        for start, stop in sorted(_spans(data, self._bytes)):
            if start >= certain:
                break
            if start >= end:
                shown += [data[end:start], _BYTES_MASK]
            end = max(end, stop)
        if end < certain:
            shown.append(data[end:certain])
            end = certain
        self._held, self._covered = data[certain:], end - certain
        return b"".join(shown)


def forms_of(value: str) -> set[bytes]:
    """Return the forms in which a value is looked for."""
    forms = {form for form in _forms(value) if len(form) >= VALUE_MIN_BYTES} if len(value.encode()) >= VALUE_MIN_BYTES else set()
    lines = value.splitlines()
    if len(lines) > 1:
        long = (line.strip() for line in lines if len(line.strip().encode()) >= LINE_MIN_BYTES)
        forms |= {form for line in long for form in (line.encode(), *_escaped(line))}
    return forms


def _forms(value: str) -> Iterator[bytes]:
    plain = value.encode()
    yield plain
    yield from _escaped(value)
    yield plain.hex().encode()
    yield plain.hex().upper().encode()
    for form in _base64_forms(plain):
        yield form
        yield form.translate(_URL_SAFE)


def _escaped(value: str) -> Iterator[bytes]:
    """Give a value as JSON and URLs have it, with letters in hexadecimal digits large and small."""
    for escaped in (dumps(value)[1:-1], dumps(value, ensure_ascii=False)[1:-1]):
        yield escaped.encode()
        yield escaped.replace("/", r"\/").encode()
    for quoted in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield quoted.encode()
        yield _ESCAPE.sub(lambda escape: escape[0].lower(), quoted).encode()


def _base64_forms(plain: bytes) -> Iterator[bytes]:
    """Give the digits of a value in base64: alone, and what is the same wherever the value is inside of a longer text."""
    alone = b64encode(plain)
    yield alone
    yield alone.rstrip(b"=")
    for before in range(3):
        digits = b64encode(bytes(before) + plain)
        # A digit is 6 bits: those at both ends that have bits of neighbours are left out.
        yield digits[-(-before * 8 // 6) : (before + len(plain)) * 8 // 6]


def _spans(text: AnyStr, forms: Iterable[AnyStr]) -> list[tuple[int, int]]:
    """Return where forms are, those that overlap too."""
    found = []
    for form in forms:
        at = text.find(form)
        while at >= 0:
            found.append((at, at + len(form)))
            at = text.find(form, at + 1)
    return found


def _joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Give spans in their order, with those that overlap as one."""
    start = end = -1
    for first, last in sorted(spans):
        if first >= end:
            if end >= 0:
                yield start, end
            start = first
        end = max(end, last)
    yield start, end


def _open_end(data: bytes, form: bytes) -> int:
    """Return where the end of the data begins that may be the beginning of a form; its length if there is none."""
    at = data.find(form[:1], max(0, len(data) - len(form) + 1))
    while at >= 0:
        if form.startswith(data[at:]):
            return at
        at = data.find(form[:1], at + 1)
    return len(data)
