from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest

from rota.runners.result_sets import ResultSet, plain


class Odd:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (True, True), (3, 3), (2**70, 2**70), (1.5, 1.5), (float("nan"), "NaN"), (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"), ("é", "é"), ("\ud800", "?"), (b"\x00\xff", "AP8="), (memoryview(b"ab"), "YWI="),
        (Decimal("1.10"), "1.10"), (date(2026, 1, 2), "2026-01-02"), (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
        (time(3, 4), "03:04:00"), (timedelta(hours=1), "PT3600S"), (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([1, (Decimal(2), None)], [1, ["2", None]]), ({"a": {1: b""}}, {"a": {"1": ""}}), (Odd(), "<Odd>"),
    ],
)  # fmt: skip
def test_every_value_becomes_json(value, expected):
    assert json.loads(json.dumps(plain(value))) == expected


def test_a_result_set_is_json_text():
    kept = ResultSet(["a", "b"], rows_max=2, bytes_max=1000)
    assert kept.add([1, "x"])
    assert kept.text() == '{"columns":["a","b"],"rows":[[1,"x"]]}'


def test_rows_beyond_the_number_are_left_out_and_it_says_so():
    kept = ResultSet(["a"], rows_max=2, bytes_max=1000)
    assert [kept.add([number]) for number in range(4)] == [True, True, False, False]
    assert kept.text() == '{"columns":["a"],"rows":[[0],[1]],"truncated":true}'


@pytest.mark.parametrize("bytes_max", range(2, 200, 7))
def test_the_text_is_never_larger_than_its_bound(bytes_max):
    kept = ResultSet(["a"], rows_max=100, bytes_max=bytes_max)
    for _ in range(100):
        kept.add(["ü" * 5])
    text = kept.text()
    assert text is None or len(text.encode()) <= bytes_max
    assert kept.is_truncated
