"""Params as JSON: every refusal says where."""

import math
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidParams, PayloadTooLarge
from rota.model.params import EMPTY, decode, decode_params, encode, encode_params

LIMIT = 1024 * 1024
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


def text(params):
    return encode_params(params, limit_bytes=LIMIT)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_what_json_can_hold_comes_back_as_it_was(params):
    assert decode_params(text(params)) == params


@pytest.mark.parametrize("params", [None, {}, OrderedDict()])
def test_no_params_are_an_empty_object(params):
    assert text(params) == EMPTY


def test_dates_and_decimals_become_text():
    assert decode_params(text({"at": datetime(2026, 3, 1, tzinfo=UTC), "sum": Decimal("1.10")})) == {
        "at": "2026-03-01T00:00:00Z",
        "sum": "1.10",
    }


def test_null_is_a_value_like_any_other():
    assert decode_params(text({"a": None, "b": [None], "c": "null"})) == {"a": None, "b": [None], "c": "null"}


class Opaque:
    """Something JSON has no word for."""


LOOP: dict[str, object] = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"a": Opaque()}, "params.a is an Opaque"),
        ({"a": {"b": [1, Opaque()]}}, "params.a.b[1] is an Opaque"),
        ({"a": 1j}, "params.a is a complex"),
        ({"a": ({"b": Opaque()},)}, "params.a[0].b is an Opaque"),
        ({"a": math.nan}, "params.a is NaN or infinite"),
        ({"a": [0, {"b": -math.inf}]}, "params.a[1].b is NaN or infinite"),
        ({"a": "\ud800"}, "params.a holds text that is not valid Unicode"),
        ({"a": ["ok", "\udfff"]}, "params.a[1] holds text that is not valid Unicode"),
        ({(1, 2): 3}, "a key of params"),
        ({"a": {None: 1}}, "a key of params.a"),
        (LOOP, "params is nested too deeply, or contains itself"),
    ],
    ids=range(11),
)
def test_a_refusal_says_where_json_ends(params, where):
    with pytest.raises(InvalidParams) as refusal:
        text(params)
    assert where in str(refusal.value)


@pytest.mark.parametrize("params", [[], [1], "text", 7, 0, (), False])
def test_params_that_are_no_object_are_refused_by_their_type(params):
    with pytest.raises(InvalidParams, match=f"not {type(params).__name__}"):
        text(params)


def test_a_lone_surrogate_in_a_key_is_refused():
    with pytest.raises(InvalidParams):
        text({"\ud800": 1})


def test_the_limit_counts_bytes_not_characters():
    assert encode_params({"a": "x" * 92}, limit_bytes=100)
    with pytest.raises(PayloadTooLarge, match="params take 101 bytes; the limit is 100"):
        encode_params({"a": "x" * 93}, limit_bytes=100)
    with pytest.raises(PayloadTooLarge, match=r"params take \d+ bytes"):
        encode_params({"a": "é" * 60}, limit_bytes=100)
    assert encode_params({"a": "é" * 46}, limit_bytes=100)


def test_a_refusal_of_size_names_the_setting_to_change():
    with pytest.raises(PayloadTooLarge, match="payload_max"):
        encode_params({"a": "x" * 100}, limit_bytes=50)


def test_any_value_can_be_encoded_under_its_own_name():
    assert encode([1, "a"], "result") == '[1,"a"]'
    with pytest.raises(InvalidParams, match=r"result\[0\] is an Opaque"):
        encode([Opaque()], "result")


def test_nothing_decodes_to_nothing_and_null_to_none():
    assert decode(None) is None
    assert decode("null") is None
    assert decode("[1]") == [1]


def test_text_that_is_no_object_is_not_taken_for_params():
    with pytest.raises(msgspec.ValidationError):
        decode_params("[1]")


def nested(levels):
    value = 1
    for _ in range(levels - 1):
        value = [value]
    return {"a": value}


def test_params_nested_beyond_reason_are_refused():
    encode_params(nested(500), limit_bytes=10_000)
    with pytest.raises(InvalidParams, match="nested too deeply: at most 500"):
        encode_params(nested(502), limit_bytes=10_000)


def test_many_levels_side_by_side_are_not_deep():
    assert encode_params({"a": [[]] * 2000}, limit_bytes=10_000)
