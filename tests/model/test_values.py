"""Ids, numbers and instants, from inside to outside and back."""

from datetime import UTC, datetime, timedelta, timezone
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.values import dashed, instant, moment, number_text, undashed
from rota.ports.clock import SystemClock, UuidV7

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])
MOMENTS = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 30), timezones=ZONES)  # noqa: DTZ001 - bounds are naive


@given(st.integers(0, instant(datetime(9999, 12, 31, tzinfo=UTC))))
def test_an_instant_survives_the_way_out_and_back(at):
    assert instant(moment(at)) == at


@given(MOMENTS)
def test_a_moment_survives_the_way_in_and_back(at):
    assert moment(instant(at)) == at


@given(MOMENTS, MOMENTS)
def test_instants_are_in_the_order_of_their_moments(one, other):
    assert (instant(one) < instant(other)) == (one < other)


def test_no_instant_is_no_moment():
    assert moment(None) is None


def test_a_moment_is_aware_and_utc():
    assert moment(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert moment(1_500_000).microsecond == 500_000
    assert moment(0).tzinfo is UTC


@given(st.uuids())
def test_an_id_survives_the_way_out_and_back(uuid):
    assert dashed(uuid.hex) == str(uuid)
    assert undashed(str(uuid)) == undashed(uuid.hex) == uuid.hex


@pytest.mark.parametrize("text", ["", "JOB-2026-00042", "zz" * 16, "0" * 31, None, 7, "0192" * 9])
def test_what_is_no_id_is_none(text):
    assert undashed(text) is None


@pytest.mark.parametrize(
    ("number", "attempt", "text"),
    [(42, 1, "JOB-2026-00042"), (42, 3, "JOB-2026-00042.3"), (1, 1, "JOB-2026-00001"), (123_456, 2, "JOB-2026-123456.2")],
)
def test_a_number_is_what_people_see(number, attempt, text):
    root = UuidV7(Random(1)).take(1, instant(datetime(2026, 3, 1, tzinfo=UTC)))[0]
    assert number_text(root, number, attempt) == text


@pytest.mark.parametrize(
    ("at", "year"), [(datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), 2026), (datetime(2027, 1, 1, tzinfo=UTC), 2027)]
)
def test_the_year_in_a_number_is_the_utc_year_of_the_chain(at, year):
    assert number_text(UuidV7(Random(1)).take(1, instant(at))[0], 1, 1).startswith(f"JOB-{year}-")


# ---- ids -------------------------------------------------------------------------------------------------------------

NOW = instant(datetime(2026, 3, 1, tzinfo=UTC))


@given(st.integers(0, 2**48 * 1000 - 1000), st.integers(1, 50))
def test_an_id_is_a_valid_uuid_of_version_7_that_tells_its_millisecond(now, count):
    for text in UuidV7(Random(1)).take(count, now):
        uuid = UUID(text)
        assert len(text) == 32
        assert uuid.version == 7
        assert uuid.variant == "specified in RFC 4122"
        assert abs((uuid.int >> 80) - now // 1000) <= 1


@given(st.lists(st.tuples(st.integers(-10_000_000, 10_000_000), st.integers(0, 5000)), min_size=1, max_size=8))
def test_ids_ascend_also_when_the_clock_stands_still_or_steps_back(steps):
    source, now, taken = UuidV7(Random(1)), NOW, []
    for step, count in steps:
        now += step
        taken += source.take(count, now)
    assert taken == sorted(taken)
    assert len(set(taken)) == len(taken)


def test_more_ids_than_a_millisecond_can_count_still_ascend():
    taken = UuidV7(Random(1)).take(5000, NOW) + UuidV7(Random(1)).take(1, NOW + 10_000)
    assert taken == sorted(taken)


def test_a_seeded_source_gives_the_same_ids_again_and_an_unseeded_one_does_not():
    assert UuidV7(Random(3)).take(3, NOW) == UuidV7(Random(3)).take(3, NOW)
    assert UuidV7().take(3, NOW) != UuidV7().take(3, NOW)


def test_the_system_clock_counts_microseconds_and_its_monotonic_side_never_goes_back():
    clock = SystemClock()
    assert abs(moment(clock.now()) - datetime.now(UTC)) < timedelta(minutes=1)
    assert clock.monotonic() <= clock.monotonic()
