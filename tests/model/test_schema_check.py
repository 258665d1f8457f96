"""Params checked by a recorded schema alone: what the codec takes is taken, and what is refused is refused in the codec's words."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from rota.errors import InvalidParams
from rota.model.codec import Codec
from rota.model.handler import inspect_handler
from rota.model.params import decode_params
from rota.model.schema_check import SchemaCheck
from tests.support.annotated import TABLE, Color, Line, Mail, Order, Point, Size, Tree, one


class Level(enum.IntEnum):
    """Numbers with names."""

    LOW = 1
    HIGH = 2


class Loose(enum.Enum):
    """Takes more than its members."""

    ANY = "any"

    @classmethod
    def _missing_(cls, value: object) -> Loose:
        return cls.ANY


class Car(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """A Struct with a tag."""

    seats: int


class Bike(msgspec.Struct, tag=True, rename="camel"):
    """Another, whose fields have other names in JSON."""

    gear_count: Annotated[int, Meta(ge=1)] = 1


class Row(msgspec.Struct, array_like=True):
    """A Struct that is an array."""

    key: str
    count: int = 0


class Stop(NamedTuple):
    """A tuple with a default."""

    name: str
    minutes: int = 0


class Partial(TypedDict, total=False):
    """An object of which most may be missing."""

    id: Required[int]
    note: NotRequired[str]


class Left(msgspec.Struct, tag=True):
    """One of two classes that contain each other."""

    inner: Left | Right | None = None


class Right(msgspec.Struct, tag=True):
    """The other."""

    inner: Left | Right | None = None
    depth: int = 0


MORE: dict[str, Any] = {
    "IntEnum": Level,
    "Enum with _missing_": Loose,
    "Literal of numbers": Literal[1, 2],
    "Literal with None": Literal["a"] | None,
    "tagged union": Car | Bike,
    "tagged Struct": Car,
    "optional tagged Struct": list[Bike | None],
    "array_like": Row,
    "NamedTuple with a default": Stop,
    "partial TypedDict": Partial,
    "classes that contain each other": Left | Right,
    "text of a length": Annotated[str, Meta(min_length=1, max_length=3)],
    "text of a pattern": Annotated[str, Meta(pattern="^a")],
    "open range": Annotated[float, Meta(gt=0, lt=10)],
    "multiple": Annotated[int, Meta(multiple_of=2)],
    "bounded list": Annotated[list[int], Meta(min_length=1, max_length=2)],
    "bounded bytes": Annotated[bytes, Meta(min_length=2, max_length=3)],
    "bounded dict": Annotated[dict[Annotated[str, Meta(max_length=3)], int], Meta(min_length=1)],
    "aware datetime": Annotated[datetime, Meta(tz=True)],
    "int keys": dict[int, list[UUID]],
    "Decimal or None": Decimal | None,
    "int or list": int | list[str],
    "bytes or Path": bytes | Path,
    "date or Line": date | Line,
    "model or number": Order | int,
    "bare list": list,
    "bare dict": dict,
    "None": None,
}
KINDS = {name: case.kind for name, case in TABLE.items()} | MORE


def codec(function: Callable[..., Any]) -> Codec:
    return inspect_handler("f", function, None).codec


def check_of(made: Codec) -> SchemaCheck:
    """Return the check by a schema as the store has it."""
    return SchemaCheck(msgspec.json.decode(msgspec.json.encode(made.schema)))


def refusal(check: SchemaCheck, params: Any) -> str | None:
    try:
        check.refuse_misfit(decode_params(msgspec.json.encode(params).decode()))
    except InvalidParams as error:
        return str(error)
    return None


def codec_refusal(made: Codec, params: Any) -> str | None:
    try:
        made.decode(msgspec.json.encode(params).decode())
    except InvalidParams as error:
        return str(error)
    return None


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_the_json_form_of_every_annotation_fits(case):
    assert refusal(check_of(codec(one(case.kind))), {"value": case.form}) is None


LINES = [{"sku": "a", "amount": "1"}, {"sku": "b"}, {"sku": "c", "amount": "x"}]
MISFITS = [
    (str, 7),
    (int, "7"),
    (int, 1.5),
    (int, None),
    (int, True),
    (float, "1"),
    (bool, 1),
    (datetime, "soon"),
    (datetime, 3),
    (date, "2026-02-30"),
    (time, "soon"),
    (timedelta, "soon"),
    (timedelta, 5),
    (UUID, "x"),
    (Decimal, "x"),
    (Color, "green"),
    (Color, 3),
    (Level, 3),
    (bytes, "*"),
    (list[int], 3),
    (list[int], [1, "a"]),
    (set[int], [1, "a"]),
    (frozenset[str], [1]),
    (tuple[int, str], [1]),
    (tuple[int, str], [1, 2]),
    (tuple[int, ...], [1, None]),
    (dict[str, int], [1]),
    (Line, {"amount": "1"}),
    (Line, 3),
    (list[Line], LINES),
    (Tree, {"name": "a", "branches": [{"name": 1}]}),
    (Size, {}),
    (Size, {"width": "a"}),
    (Point, [1, "a"]),
    (Point, [1]),
    (Mail, {"to": "a", "at": "soon"}),
    (Literal["a", "b"], "c"),
    (datetime | None, 3),
    (datetime | None, "soon"),
    (datetime | timedelta, 3),
    (int | str, None),
    (int | list[str], [1]),
    (Annotated[int, Meta(ge=1, le=9)], 0),
    (Annotated[int, Meta(ge=1, le=9)], 10),
    (Annotated[str, Meta(max_length=3)], "long"),
    (Annotated[str, Meta(pattern="^a")], "b"),
    (Annotated[list[int], Meta(min_length=1)], []),
    (Car, {"type": "Car", "seats": 4, "doors": 4}),
    (Row, [1]),
]


@pytest.mark.parametrize(("kind", "form"), MISFITS)
def test_what_does_not_fit_is_refused_in_the_words_of_the_codec(kind, form):
    made = codec(one(kind))
    words = refusal(check_of(made), {"value": form})
    assert words is not None
    assert words == codec_refusal(made, {"value": form})


@pytest.mark.parametrize(
    ("kind", "form", "words"),
    [
        (Path, 3, "params.value: expected str, got int 3"),
        (str | datetime, 3, "params.value: expected datetime or str, got int 3"),
        (dict[str, int], {"a": "x"}, "params.value.a: expected int, got str 'x'"),
        (dict[str, Line], {"a": {"sku": 1}}, "params.value.a.sku: expected str, got int 1"),
        (Line | Tree, {"name": "a", "branches": 3}, "params.value.branches: expected array, got int 3"),
        (Car | Bike, {"type": "Bike", "gearCount": 0}, "params.value.gearCount: expected int >= 1, got int 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place_also_where_the_words_are_not_the_same(kind, form, words):
    made = codec(one(kind))
    assert codec_refusal(made, {"value": form}) is not None
    assert refusal(check_of(made), {"value": form}) == words


def test_a_place_deep_inside_is_named():
    def order(lines: list[Line]): ...

    assert refusal(check_of(codec(order)), {"lines": LINES}) == "params.lines[2].amount: expected decimal, got str 'x'"


@pytest.mark.parametrize("params", [{}, {"name": "a", "time": 3}, {"times": 2}, {"name": "a", "times": "x"}, {"name": "a", "ctx": 1}])
def test_names_are_refused_as_by_the_handler(params):
    def f(name: str, times: int = 1): ...

    made = codec(f)
    words = refusal(check_of(made), params)
    assert words is not None
    assert words == codec_refusal(made, params)


def test_double_starred_parameters_take_any_name_and_check_its_value():
    def f(name: str, **more: int): ...

    made = codec(f)
    assert refusal(check_of(made), {"name": "a", "x": 1}) is None
    words = refusal(check_of(made), {"name": "a", "x": "y"})
    assert words == codec_refusal(made, {"name": "a", "x": "y"}) == "params.x: expected int, got str 'y'"


def test_values_alone_are_checked_where_params_are_not_complete():
    def f(name: str, times: int = 1): ...

    check = check_of(codec(f))
    check.refuse_values({"times": 2, "other": 3})
    with pytest.raises(InvalidParams, match=r"^params\.times: expected int, got str 'x'$"):
        check.refuse_values({"times": "x"})


def test_a_default_of_none_takes_null():
    def f(times: int = None): ...  # noqa: RUF013 - that is the case

    assert refusal(check_of(codec(f)), {"times": None}) is None


def test_the_fields_of_a_model_are_left_to_its_validators():
    assert refusal(check_of(codec(one(Order))), {"value": {"placedAt": "2026-03-01", "parts": [{"amount": 1}]}}) is None


def test_a_value_that_is_nested_too_deeply_for_python_is_accepted():
    form: dict[str, Any] = {"name": "leaf"}
    for _ in range(245):
        form = {"name": "branch", "branches": [form]}
    assert refusal(check_of(codec(one(Tree))), {"value": form}) is None


def test_classes_that_contain_each_other_are_not_tried_over_and_over():
    form: dict[str, Any] = {"inner": 3, "type": "Left"}
    for _ in range(60):
        form = {"inner": form, "type": "Right"}
    assert refusal(check_of(codec(one(Left | Right))), {"value": form}) is not None


@pytest.mark.parametrize("schema", [{}, {"properties": {"a": {"$ref": "#/$defs/A"}}}, {"properties": {"a": {"type": "strange"}}}])
def test_a_schema_that_does_not_tell_accepts(schema):
    SchemaCheck(schema).refuse_misfit({"a": 1})


def test_references_in_a_circle_end():
    SchemaCheck({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}).refuse_misfit({"a": 1})


FORMS = st.one_of(
    *(st.just(case.form) for case in TABLE.values()),
    st.sampled_from(
        ["", "a", "any", "abcd", "1", "*", "QUE=", "QUFB", "2026-03-01T00:00:00", "2026-03-01 00:00Z", "P1D", "-P1D", "1e5", "NaN", "Car"]
    ),
    st.sampled_from(["12:30", "12:30:00Z", "0" * 32, "{}", "9" * 40, " 1", "1_0", "Infinity"]),
    st.sampled_from([{"seats": 4}, {"type": "Car", "seats": 4}, {"type": "Bike"}, {"gearCount": 2}, {"type": "Bike", "x": 1}, {"id": 1}]),
    st.sampled_from(
        [
            ["a"],
            ["a", 1],
            ["a", 1, 2],
            [1, 2],
            [],
            [None],
            [[]],
            {"id": 1, "note": None},
            {"inner": {"inner": None, "type": "Left"}, "type": "Right"},
        ]
    ),
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
)
VALUES = st.recursive(
    FORMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["sku", "amount", "name", "branches", "width", "to", "at", "type", "1", "inner", "abcd"]), inner),
    ),
    max_leaves=6,
)
MADE = {name: (made := codec(one(kind)), check_of(made)) for name, kind in KINDS.items()}


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=50, deadline=None)
@given(value=VALUES)
def test_what_the_codec_takes_is_taken(name, value):
    made, check = MADE[name]
    if codec_refusal(made, {"value": value}) is None:
        assert refusal(check, {"value": value}) is None
