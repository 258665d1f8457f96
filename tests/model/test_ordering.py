"""The order of the queue and how room is made in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidOption
from rota.model.ordering import GAP, PRIORITIES, Room, make_room, order_key, priority_of


@pytest.mark.parametrize(
    ("given_", "priority"),
    [("low", 25), ("normal", 50), ("high", 75), ("critical", 100), ("High", 75), (0, 0), (100, 100), ("0", 0), ("42", 42), (7, 7)],
)
def test_a_priority_is_a_word_or_a_number(given_, priority):
    assert priority_of(given_) == priority


@pytest.mark.parametrize("given_", [-1, 101, "101", "urgent", "", "-1", "5.5", 5.5, True, None, "²", "1e1", b"low"])
def test_any_other_priority_is_refused_with_the_value_and_what_is_allowed(given_):
    with pytest.raises(InvalidOption) as refusal:
        priority_of(given_)
    assert "0 to 100" in str(refusal.value)
    assert all(word in str(refusal.value) for word in PRIORITIES)


def test_order_is_priority_down_then_position_then_age_then_id():
    jobs = [(50, 200, 1, "a"), (75, 900, 9, "z"), (50, 100, 5, "c"), (50, 100, 5, "b"), (50, 100, 4, "d")]
    assert sorted(jobs, key=lambda job: order_key(*job)) == [
        (75, 900, 9, "z"),
        (50, 100, 4, "d"),
        (50, 100, 5, "b"),
        (50, 100, 5, "c"),
        (50, 200, 1, "a"),
    ]


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(), st.integers(0), st.text("0123456789abcdef", min_size=32, max_size=32))))
def test_jobs_of_different_ids_are_never_tied(jobs):
    by_id = {job[3]: job for job in jobs}
    assert len({order_key(*job) for job in by_id.values()}) == len(by_id)


def test_into_an_empty_line_goes_the_first_position():
    assert make_room([], []) == Room(GAP)


def test_at_the_front_and_at_the_end_there_is_always_room():
    assert make_room([], [100]) == Room(0)
    assert make_room([300, 200], []) == Room(400)


def test_between_two_with_a_gap_it_stands_in_the_middle_and_nobody_moves():
    assert make_room([100], [200]) == Room(150)
    assert make_room([100], [102]) == Room(101)


def test_when_the_gap_is_used_up_the_shorter_run_of_neighbours_steps_aside():
    assert make_room([100, 99, 98], [101, 200]) == Room(101, after=(102,))
    assert make_room([100, 0], [101, 102, 103]) == Room(100, before=(99,))


POSITIONS = st.lists(st.integers(-40, 40), max_size=30)


def split(positions, place):
    ordered = sorted(positions)
    place = min(place, len(ordered))
    return ordered[:place][::-1], ordered[place:]


@given(POSITIONS, st.integers(0, 30))
def test_the_new_place_lies_strictly_between_its_neighbours_and_their_order_never_changes(positions, place):
    before, after = split(positions, place)
    room = make_room(before, after)
    ahead = list(room.before) + before[len(room.before) :]
    behind = list(room.after) + after[len(room.after) :]
    # neighbours may be tied with each other, as they may have been before, but never with the newcomer
    assert ahead == sorted(ahead, reverse=True)
    assert behind == sorted(behind)
    assert all(position < room.position for position in ahead)
    assert all(position > room.position for position in behind)
    # those that were apart stay apart
    for old, new in ((before, ahead), (after, behind)):
        for index in range(len(old) - 1):
            if old[index] != old[index + 1]:
                assert new[index] != new[index + 1]


def fewest_on_one_side(taken, neighbours, step):
    """Count, the slow way, how many neighbours must leave if this place is taken and each goes to the nearest free one."""
    count = 0
    for position in neighbours:
        if (position - taken) * step > 0:
            return count
        taken += step
        count += 1
    return count


@given(POSITIONS, st.integers(0, 30))
def test_only_one_side_moves_and_it_is_the_side_with_fewer_to_move(positions, place):
    before, after = split(positions, place)
    room = make_room(before, after)
    assert not (room.before and room.after)
    moved = len(room.before) + len(room.after)
    if not before or not after or after[0] - before[0] >= 2:
        assert moved == 0
    else:
        up = fewest_on_one_side(before[0] + 1, after, +1)
        down = fewest_on_one_side(after[0] - 1, before, -1)
        assert moved == min(up, down)


@given(POSITIONS, st.integers(0, 30))
def test_every_neighbour_that_is_given_a_new_position_really_moves_away(positions, place):
    before, after = split(positions, place)
    room = make_room(before, after)
    assert all(new < old for new, old in zip(room.before, before, strict=False))
    assert all(new > old for new, old in zip(room.after, after, strict=False))
