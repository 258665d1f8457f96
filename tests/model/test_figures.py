"""Durations in buckets."""

import random
from math import floor, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.figures import NO_RUN, Fared, percentile_s, together


def bucketed(durations_us):
    buckets = {}
    for each in durations_us:
        bucket = floor(8 * log2(max(each, 1)))
        buckets[bucket] = buckets.get(bucket, 0) + 1
    return buckets


def test_nothing_has_no_percentile_and_no_average():
    assert percentile_s({}, 0.95) is None
    assert (Fared().average_s, Fared().p95_s, Fared().failure_rate) == (None, None, 0.0)


def test_ends_without_a_run_have_no_duration():
    fared = Fared()
    fared.add(bucket=NO_RUN, completed=True, count=3, total_us=0)
    assert (fared.completed, fared.average_s, fared.p95_s) == (3, None, None)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_within_a_tenth_of_the_exact_one(durations_us, share):
    ranked = sorted(durations_us)
    exact = ranked[max(0, -(-len(ranked) * share // 1).__int__() - 1)] / 1e6
    found = percentile_s(bucketed(durations_us), share)
    # The exact one lies in the same bucket, and a bucket is as wide as 2^(1/8).
    assert exact / 1.0906 <= found <= exact * 1.0906


def test_ninety_five_in_a_hundred_stay_within_the_95th_percentile():
    rng = random.Random(1)
    durations = [rng.lognormvariate(10, 2) for _ in range(100_000)]
    within = percentile_s(bucketed(durations), 0.95) * 1e6
    assert sum(each <= within for each in durations) / len(durations) == pytest.approx(0.95, abs=0.005)


def test_figures_of_types_add_up():
    one, other = Fared(), Fared()
    one.add(bucket=80, completed=True, count=3, total_us=3_000_000)
    one.add(bucket=80, completed=False, count=1, total_us=9)
    other.add(bucket=90, completed=True, count=1, total_us=5_000_000)
    whole = together([one, other])
    assert (whole.completed, whole.failed, whole.failure_rate, whole.average_s) == (4, 1, 0.2, 2.0)
    assert one.of("t").failure_rate == 0.25
