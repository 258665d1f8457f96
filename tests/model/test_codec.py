"""Params by annotation: one table of encodings, each refusal with its place, and a schema for each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidHandler, InvalidParams, PayloadTooLarge
from rota.model.codec import Codec
from rota.model.handler import inspect_handler
from tests.support.annotated import NOON, TABLE, Color, Line, Mail, Order, Point, Tree, one

if TYPE_CHECKING:
    from somewhere import Absent


def codec(function: Callable[..., Any], name: str = "f") -> Codec:
    return inspect_handler(name, function, None).codec


def of(kind: Any) -> Codec:
    return codec(one(kind))


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_value_is_stored_in_its_json_form_and_comes_back_as_it_was(case):
    text = of(case.kind).encode({"value": case.value})
    assert msgspec.json.decode(text) == {"value": case.form}
    back = of(case.kind).decode(text)["value"]
    assert back == case.value
    assert type(back) is type(case.value)


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_the_json_form_is_taken_as_well_and_stored_as_it_is(case):
    assert msgspec.json.decode(of(case.kind).encode({"value": case.form})) == {"value": case.form}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_the_schema_says_what_is_taken(case):
    schema = of(case.kind).schema
    definitions = schema.get("$defs", {})
    assert schema["required"] == ["value"]
    assert schema["additionalProperties"] is False
    found = schema["properties"]["value"]
    if case.kind is Order:
        assert (found["title"], sorted(found["properties"]), sorted(definitions)) == ("Order", ["parts", "placedAt"], ["Part"])
        return
    assert found == case.schema
    for name in msgspec.json.encode(found).decode().split("#/$defs/")[1:]:
        assert name.partition('"')[0] in definitions


def test_a_schema_shows_defaults_and_what_double_starred_parameters_take():
    def f(ctx, name: str, times: int = 1, at: datetime = NOON, hook=print, **more: int): ...

    schema = codec(f, "mail.send").schema
    assert schema["title"] == "mail.send"
    assert schema["required"] == ["name"]
    assert schema["properties"]["times"] == {"type": "integer", "default": 1}
    assert schema["properties"]["at"]["default"] == "2026-03-01T12:30:05.250000Z"
    assert schema["properties"]["hook"] == {}
    assert schema["additionalProperties"] == {"type": "integer"}


def test_a_schema_states_the_format_of_times_wherever_they_are():
    class Stop(msgspec.Struct):
        at: datetime
        opens: Annotated[time, msgspec.Meta(description="local")]
        seen: list[datetime] | None = None
        by: dict[str, tuple[int, datetime]] | int | None = None

    schema = of(dict[str, Stop | Order]).schema
    stop = schema["$defs"]["Stop"]["properties"]
    moment = {"type": "string", "format": "date-time"}
    assert stop["at"] == moment
    assert stop["opens"] == {"type": "string", "format": "time", "description": "local"}
    assert stop["seen"]["anyOf"][0] == {"type": "array", "items": moment}
    (by,) = [option for option in stop["by"]["anyOf"] if option["type"] == "object"]
    assert by["additionalProperties"]["prefixItems"] == [{"type": "integer"}, moment]
    assert of(Tree).schema["$defs"]["Tree"]["properties"]["branches"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}


LINES = {"lines": [{"sku": "a", "amount": "1"}, {"sku": "b", "amount": "2"}, {"sku": "c", "amount": "x"}]}


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, "7", "params.value: expected int, got str '7'"),
        (int, None, "params.value: expected int, got null"),
        (int, True, "params.value: expected int, got bool True"),
        (str, b"x", "params.value: expected str, got bytes b'x'"),
        (str, NOON, "params.value: expected str, got datetime "),
        (Decimal, "x", "params.value: expected decimal, got str 'x'"),
        (UUID, "x", "params.value: expected UUID, got str 'x'"),
        (datetime, "soon", "params.value: expected datetime in ISO 8601, got str 'soon'"),
        (date, "soon", "params.value: expected date in ISO 8601, got str 'soon'"),
        (time, "soon", "params.value: expected time in ISO 8601, got str 'soon'"),
        (timedelta, "soon", "params.value: expected duration in ISO 8601, got str 'soon'"),
        (timedelta, 5, "params.value: expected duration, got int 5"),
        (bytes, "*", "params.value: expected bytes in base64, got str '*'"),
        (Path, 3, "params.value: expected text, got int 3"),
        (Color, "green", "params.value: invalid enum value 'green'"),
        (list[int], [1, "a"], "params.value[1]: expected int, got str 'a'"),
        (tuple[int, str], [1], "params.value: expected array of length 2, got array of length 1"),
        (dict[int, int], {"a": 1}, "a key of params.value: expected int, got str"),
        (dict[str, Line], {"a": {"sku": 1}}, "params.value[...].sku: expected str"),
        (Line, {"amount": "1"}, "params.value: object missing required field sku"),
        (Line, Line("a", "x"), "params.value.amount: expected decimal, got str 'x'"),  # type: ignore[arg-type] # on purpose
        (Tree, {"name": "a", "branches": [{"name": 1}]}, "params.value.branches[0].name: expected str, got int 1"),
        (list[Mail], [Mail("a", "soon")], "params.value[0].at: expected datetime in ISO 8601, got str 'soon'"),  # type: ignore[arg-type]
        (Order, {"placedAt": "2026-03-01", "parts": [{"amount": 1}, {"amount": "x"}]}, "params.value.parts[1].amount: "),
        (Order, {"parts": []}, "params.value.placedAt: field required"),
        (datetime | timedelta, 3, "params.value: expected datetime or duration, got int 3"),
        (list[str | Path | None], ["a", 3], "params.value[1]: expected str or text, got int 3"),
        (Line | Tree, {"name": "a", "branches": 3}, "params.value.branches: expected array, got int 3"),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "params.value: expected int >= 1, got int 0"),
        (str, "x" * 10 + "\ud800", "params.value holds text that is not valid Unicode"),
        (float, float("nan"), "params.value is NaN or infinite"),
        (str, float("nan"), "params.value is NaN or infinite"),
        (str, object(), "params.value is an object, which JSON can't hold"),
        (int, "7" * 1000, "params.value: expected int, got str '7777"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place_and_value(kind, value, words):
    with pytest.raises(InvalidParams) as refusal:
        of(kind).encode({"value": value})
    assert words in str(refusal.value)
    assert len(str(refusal.value)) < 250


def test_a_place_deep_inside_is_named_at_both_ends():
    def order(lines: list[Line]): ...

    words = r"^params\.lines\[2\]\.amount: expected decimal, got str 'x'$"
    with pytest.raises(InvalidParams, match=words):
        codec(order).encode(LINES)
    with pytest.raises(InvalidParams, match=words):
        codec(order).decode(msgspec.json.encode(LINES).decode())


def test_names_come_before_values_in_todays_words():
    def f(ctx, a: int, b: int = 1): ...

    for refuse in (codec(f).encode, lambda params: codec(f).decode(msgspec.json.encode(params).decode())):
        with pytest.raises(InvalidParams, match=r"f\(\) needs a parameter 'a', which params do not have"):
            refuse({"b": "x"})
        with pytest.raises(InvalidParams, match=r"f\(\) has no parameter 'c'; it takes: a, b"):
            refuse({"a": "x", "c": 1})
        with pytest.raises(InvalidParams, match=r"f\(\) receives its Context in the parameter 'ctx'"):
            refuse({"a": "x", "ctx": 1})


def test_none_at_all_are_checked_without_looking_at_annotations():
    def needs(a: Absent): ...
    def takes(a: Absent = 1): ...

    assert codec(takes).encode(None) == "{}"
    assert codec(takes).decode("{}") == {}
    with pytest.raises(InvalidParams, match="needs a parameter 'a'"):
        codec(needs).encode({})
    with pytest.raises(InvalidParams, match="not list"):
        codec(takes).encode([])  # type: ignore[arg-type] # on purpose


def test_an_absent_param_stays_absent_so_that_the_call_applies_its_default():
    def f(a: int, at: datetime = NOON, b=None, when: datetime | timedelta = NOON): ...

    assert codec(f).decode('{"a":1}') == {"a": 1}


def test_a_default_of_none_lets_none_be_passed():
    def f(a: int = None, b: datetime | timedelta = None, c: Line = None): ...  # noqa: RUF013 - as people write it

    assert codec(f).decode(codec(f).encode({"a": None, "b": None, "c": None})) == {"a": None, "b": None, "c": None}


def test_without_annotations_any_json_is_taken_as_before():
    def f(ctx, a, b=1, **more): ...

    params = {"a": [1, {"b": None}], "b": "x", "c": 2}
    assert codec(f).decode(codec(f).encode(params)) == params
    assert codec(f).encode({"a": {"when": NOON}}) == '{"a":{"when":"2026-03-01T12:30:05.250000Z"}}'


def test_double_starred_parameters_are_converted_by_their_annotation():
    def f(ctx, a: int, **more: datetime): ...

    text = codec(f).encode({"a": 1, "x": NOON})
    assert codec(f).decode(text) == {"a": 1, "x": NOON}
    for refuse in (codec(f).encode, lambda params: codec(f).decode(msgspec.json.encode(params).decode())):
        with pytest.raises(InvalidParams, match=r"params\.x: expected datetime in ISO 8601, got str 'soon'"):
            refuse({"a": 1, "x": "soon"})
        with pytest.raises(InvalidParams, match="receives its Context"):
            refuse({"a": 1, "ctx": "soon"})

    def lines(**more: Line): ...

    with pytest.raises(InvalidParams, match=r"params\.x\.amount: expected decimal, got str 'x'"):
        codec(lines).encode({"x": Line("a", "x")})  # type: ignore[arg-type] # on purpose


def test_python_values_and_json_forms_may_be_mixed():
    def f(at: datetime, ids: list[UUID], by: Mapping[int, str]): ...

    text = codec(f).encode({"at": "2026-03-01T12:00:00Z", "ids": [UUID(int=1), str(UUID(int=2))], "by": {1: "a", "2": "b"}})
    assert codec(f).decode(text) == {
        "at": datetime(2026, 3, 1, 12, tzinfo=UTC),
        "ids": [UUID(int=1), UUID(int=2)],
        "by": {1: "a", 2: "b"},
    }


def test_the_limit_holds_for_the_stored_text():
    with pytest.raises(PayloadTooLarge, match="the limit is 10"):
        of(bytes).encode({"value": b"x" * 10}, limit_bytes=10)


def test_a_value_that_contains_itself_is_refused():
    loop: list[Any] = []
    loop.append(loop)
    for kind in (Any, list[Any], Tree):
        with pytest.raises(InvalidParams, match=r"params(\.value)?"):
            of(kind).encode({"value": loop})


def test_values_that_are_not_finite_are_found_inside_of_classes():
    class Weight(msgspec.Struct):
        kilos: float
        name: str | None = None

    class Model(pydantic.BaseModel):
        kilos: float

    for value in (Weight(float("inf")), Model(kilos=float("inf"))):
        with pytest.raises(InvalidParams, match=r"params\.value\[0\]\.kilos is NaN or infinite"):
            of(Any).encode({"value": [value]})


def test_of_a_union_text_is_the_last_resort_and_classes_are_told_by_their_names():
    assert of(str | datetime).decode('{"value":"2026-03-01T12:00:00Z"}') == {"value": datetime(2026, 3, 1, 12, tzinfo=UTC)}
    assert of(str | datetime).decode('{"value":"soon"}') == {"value": "soon"}
    assert of(str | Path).decode('{"value":"a"}') == {"value": "a"}
    assert of(Path | str).decode('{"value":"a"}') == {"value": Path("a")}
    assert of(list[Line | Order | None]).decode('{"value":[null,{"sku":"a"},{"placedAt":"2026-03-01T12:00:00Z","parts":[]}]}') == {
        "value": [None, Line("a"), Order(placedAt=datetime(2026, 3, 1, 12, tzinfo=UTC), parts=[])]
    }


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (type, "no JSON form of type"),
        (Callable[[], None], "no JSON form of Callable"),
        (complex, "no JSON form of complex"),
        (Iterator[int], "no JSON form of Iterator"),
        (list[complex], "no JSON form of complex"),
        (int | complex, "no JSON form of complex"),
        (dict[tuple[int, int], str], "the keys of an object are text or numbers"),
    ],
)
def test_an_annotation_that_cant_be_stored_is_refused_naming_the_parameter(kind, words):
    with pytest.raises(InvalidHandler, match=rf"f\(\): parameter 'value' can't be stored as JSON: .*{words}.* or with Any"):
        of(kind).build()


def test_an_annotation_that_cant_be_resolved_is_refused_with_the_remedy():
    def f(a: int, b: Absent): ...

    with pytest.raises(InvalidHandler, match=r"f\(\): parameter 'b' has the annotation 'Absent', which can't be resolved: .*TYPE_CHECKING"):
        codec(f).build()


def test_a_class_that_is_defined_after_the_handler_is_found_at_first_use():
    handler = codec(_before)
    assert handler.decode('{"later":{"a":1}}') == {"later": Later(1)}


def _before(later: Later): ...


class Later(msgspec.Struct):
    a: int


def test_the_context_and_the_result_need_not_be_resolved():
    def f(ctx: rota.Context, a: int) -> Absent: ...  # noqa: F821 - as under TYPE_CHECKING

    assert codec(f).decode('{"a":1}') == {"a": 1}
    assert codec(f).decode_result('{"b":1}') == {"b": 1}


def test_partials_methods_callables_and_wrapped_functions_are_read_through():
    class Mailer:
        def send(self, at: datetime): ...
        def __call__(self, at: datetime): ...

    def send(at: datetime, to: str): ...

    @wraps(_before)
    def wrapped(**params): ...

    for function in (Mailer().send, Mailer(), partial(send, to="x")):
        assert codec(function).decode('{"at":"2026-03-01T12:00:00Z"}') == {"at": datetime(2026, 3, 1, 12, tzinfo=UTC)}
    assert codec(wrapped).decode('{"later":{"a":1}}') == {"later": Later(1)}


def test_an_iterable_is_a_list():
    assert of(Iterable[date]).decode('{"value":["2026-03-01"]}') == {"value": [date(2026, 3, 1)]}


# ---- results --------------------------------------------------------------------------------------------------


def plain() -> datetime: ...
async def coroutine() -> datetime: ...
def steps() -> Generator[int, None, datetime]: ...
def steps_of_nothing() -> Iterator[int]:
    yield 1


def _steps() -> Generator[int, None, datetime]:
    yield 1
    return NOON


async def async_steps() -> AsyncIterator[int]:
    yield 1


def unsaid(): ...
def callback() -> Callable[[], None]: ...


@pytest.mark.parametrize("function", [plain, coroutine, _steps], ids=["function", "coroutine", "generator"])
def test_a_result_is_converted_by_the_return_annotation(function):
    assert codec(function).decode_result('"2026-03-01T12:30:05.250000Z"') == NOON


@pytest.mark.parametrize("function", [unsaid, callback, steps_of_nothing, async_steps])
def test_a_result_that_nothing_is_said_of_stays_json(function):
    assert codec(function).decode_result('["x"]') == ["x"]
    assert codec(function).decode_result(None) is None


def test_a_result_that_does_not_fit_its_annotation_stays_json():
    assert codec(plain).decode_result("7") == 7


def test_a_result_may_be_a_class():
    def f() -> list[Line | Point]: ...

    assert codec(f).decode_result('[{"sku":"a","amount":"2"},[1,2]]') == [Line("a", Decimal(2)), Point(1, 2)]


# ---- digests --------------------------------------------------------------------------------------------------


def test_a_digest_is_of_the_names_alone_and_the_same_in_every_process():
    def f(ctx, b: int, a: str = ""): ...
    def other_types_and_order(a: bytes = b"", *, b: datetime): ...
    def other_name(ctx, b: int, c: str = ""): ...
    def other_need(ctx, b: int, a: str): ...
    def anything(ctx, b: int, a: str = "", **more): ...

    digests = [codec(each).digest for each in (f, other_name, other_need, anything)]
    assert len(set(digests)) == 4
    assert codec(other_types_and_order).digest == codec(f).digest
    program = "from rota.model.handler import inspect_handler\ndef g(b, a=1): ...\nprint(inspect_handler('g', g, None).codec.digest)"
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"})
    assert there.stdout.strip() == codec(f).digest


# ---- at random ------------------------------------------------------------------------------------------------

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    bytes: st.binary(),
    datetime: st.datetimes() | st.datetimes(timezones=st.just(UTC)),
    date: st.dates(),
    time: st.times(),
    timedelta: st.timedeltas(),
    UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False),
    Color: st.sampled_from(Color),
    Path: st.text(alphabet="abc/.", min_size=1).map(Path),
}


@given(st.data())
def test_scalars_survive_the_way_through_json(data):
    kind = data.draw(st.sampled_from(list(SCALARS)))
    value = data.draw(SCALARS[kind])
    for wanted, given_value in ((kind, value), (kind | None, None), (list[kind], [value, value]), (dict[str, kind], {"a": value})):
        assert of(wanted).decode(of(wanted).encode({"value": given_value})) == {"value": given_value}


@given(st.data())
def test_what_is_accepted_at_enqueue_is_accepted_before_the_call(data):
    """Whatever the value and whatever the annotation: no job is written that its handler can't be called with."""
    value = data.draw(st.one_of(*SCALARS.values()))
    wanted = of(data.draw(st.sampled_from([*SCALARS, datetime | timedelta, str | Path | None, Line, list[Decimal]])))
    try:
        text = wanted.encode({"value": value})
    except InvalidParams:
        return
    wanted.decode(text)


@pytest.mark.parametrize("value", [Decimal("1.5"), Decimal("Infinity")])
def test_a_decimal_is_refused_where_a_float_is_wanted_because_its_json_form_is_text(value):
    with pytest.raises(InvalidParams, match=r"params\.value: expected float"):
        of(float).encode({"value": value})


def test_what_a_class_of_the_program_raises_is_told_as_params_that_do_not_fit():
    @dataclass
    class Odd:
        a: int

        def __post_init__(self) -> None:
            {}[self.a]

    with pytest.raises(InvalidParams, match="KeyError: 1"):
        of(Odd).encode({"value": {"a": 1}})


def test_a_model_that_hides_a_field_in_its_json_form_is_refused():
    class Login(pydantic.BaseModel):
        name: str
        password: pydantic.SecretStr

    with pytest.raises(InvalidParams, match=r"params\.value\.password is a SecretStr, which JSON can't hold"):
        of(Login).encode({"value": Login(name="ada", password="secret")})
