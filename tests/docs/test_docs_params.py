"""The table of encodings says what the code does."""

from __future__ import annotations

import re
import typing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from rota.model.handler import inspect_handler
from tests.docs.pages import page, rows
from tests.support.annotated import TABLE, Color, Line, Part, Point, Size, one


class Letter(msgspec.Struct):
    to: str


MEANT = {
    "none, `Any`, `object`": typing.Any,
    "`Enum`": Color,
    "`NamedTuple`": Point,
    "`dataclass`": Line,
    "`TypedDict`": Size,
    "`Struct`": Letter,
    "`BaseModel`": Part,
}
NAMES = vars(typing) | {kind.__name__: kind for kind in (date, datetime, time, timedelta, Decimal, Path, UUID, msgspec.Meta)}
ENCODINGS = {
    row[0]: row[1].strip("`") for row in rows(page("docs/guide/jobs.md").partition("## Params")[2].partition("\n## ")[0]) if len(row) == 3
}


@pytest.mark.parametrize("annotation", ENCODINGS)
def test_an_example_of_the_table_is_what_is_stored(annotation):
    kind = MEANT.get(annotation) or eval(annotation.strip("`").replace("\\|", "|"), dict(NAMES))
    codec = inspect_handler("f", one(kind), None).codec
    text = '{"value":' + ENCODINGS[annotation] + "}"
    values = codec.decode(text)
    assert msgspec.json.decode(codec.encode(values)) == msgspec.json.decode(text)
    if annotation != "`datetime \\| None`":
        plain = {str, int, float, bool, dict, list}
        assert type(values["value"]) in plain or values["value"] != msgspec.json.decode(ENCODINGS[annotation])


def test_the_table_has_every_kind_of_annotation_that_is_tested():
    words = set(re.findall(r"\w+", " ".join(ENCODINGS)))
    for name in ("str", "int", "float", "bool", "Any", "object", "datetime", "date", "time", "timedelta", "UUID", "Decimal", "Path"):
        assert name in words
        assert name in TABLE
    for name in ("Enum", "bytes", "list", "set", "frozenset", "tuple", "dict", "dataclass", "TypedDict", "NamedTuple", "Struct", "Literal"):
        assert name in words
        assert any(name in case for case in TABLE)
