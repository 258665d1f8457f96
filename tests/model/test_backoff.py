"""How long a chain waits before its next attempt."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidOption
from rota.model.backoff import Backoff


def plain(**fields):
    return Backoff(**({"base": 60.0, "factor": 2.0, "cap": 86_400.0, "jitter": 0.0} | fields))


def test_base_60_factor_2_gives_60_120_240():
    assert [plain().delay(k, Random(1)) for k in (1, 2, 3)] == [60.0, 120.0, 240.0]


def test_the_cap_holds():
    assert [plain(cap=100).delay(k, Random(1)) for k in (1, 2, 9)] == [60.0, 100.0, 100.0]


def test_a_factor_of_one_waits_the_same_each_time():
    assert {plain(factor=1).delay(k, Random(1)) for k in range(1, 50)} == {60.0}


def test_a_base_of_zero_retries_at_once():
    assert plain(base=0).delay(5, Random(1)) == 0.0


@pytest.mark.parametrize("retry", [1024, 2000, 10_000_000])
@pytest.mark.parametrize("factor", [2, 2.0, 1e300])
def test_a_delay_that_no_float_can_hold_is_the_cap(retry, factor):
    assert plain(factor=factor).delay(retry, Random(1)) == 86_400.0


def test_a_seeded_source_makes_the_delay_exact():
    delays = [Backoff(jitter=0.2).delay(k, Random(7)) for k in (1, 2, 3)]
    expected = [base + Random(7).uniform(-0.2 * base, 0.2 * base) for base in (60.0, 120.0, 240.0)]
    assert delays == expected


def test_without_jitter_no_chance_is_drawn():
    rng = Random(7)
    plain().delay(3, rng)
    assert rng.random() == Random(7).random()


@given(
    base=st.floats(0, 1e6),
    factor=st.floats(1, 10),
    cap=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
    retry=st.integers(1, 5000),
    seed=st.integers(),
)
def test_a_delay_stays_within_its_jitter_its_cap_and_zero(base, factor, cap, jitter, retry, seed):
    backoff = Backoff(base, factor, cap, jitter)
    delay, middle = backoff.delay(retry, Random(seed)), Backoff(base, factor, cap, 0).delay(retry, Random(seed))
    assert 0 <= delay <= cap
    assert abs(delay - middle) <= middle * jitter * (1 + 1e-9) + 1e-9


@given(retry=st.integers(1, 100))
def test_without_jitter_a_later_retry_never_waits_less(retry):
    assert plain().delay(retry, Random(1)) <= plain().delay(retry + 1, Random(1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base", -1),
        ("base", math.nan),
        ("base", math.inf),
        ("factor", 0.5),
        ("factor", math.nan),
        ("factor", math.inf),
        ("cap", -1),
        ("cap", math.nan),
        ("cap", math.inf),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("jitter", math.nan),
    ],
)
def test_what_would_make_a_delay_negative_or_endless_is_refused_by_name(field, value):
    with pytest.raises(InvalidOption, match=f"backoff {field}="):
        Backoff(**{field: value})
