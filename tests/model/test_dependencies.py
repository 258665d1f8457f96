"""Circles of waiting: found wherever they are, named in the order of waiting."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rota.errors import DependencyCycle, UnknownParent
from rota.model.dependencies import SHOWN_MAX, circle, find_circle, unknown_parent


def test_no_circle_is_found_where_there_is_none():
    assert find_circle([], "a") is None
    assert find_circle([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], "a") is None


def test_a_circle_is_found_from_where_it_is_entered():
    assert find_circle([("a", "a")], "a") == ["a", "a"]
    assert find_circle([("a", "b"), ("b", "c"), ("c", "a")], "a") == ["a", "b", "c", "a"]
    assert find_circle([("a", "b"), ("b", "c"), ("c", "b")], "a") == ["b", "c", "b"]
    assert find_circle([("a", "b"), ("b", "c"), ("c", "b")], "z") is None


def test_a_very_long_circle_needs_no_stack():
    line = [(str(number), str(number + 1)) for number in range(50_000)]
    assert find_circle(line, "0") is None
    assert len(find_circle([*line, ("50000", "0")], "0")) == 50_002


@given(edges=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_what_is_found_is_a_circle_and_nothing_is_missed(edges):
    waits = [(str(child), str(parent)) for child, parent in edges]
    found = find_circle(waits, "0")
    if found is not None:
        assert found[0] == found[-1]
        assert set(pairwise(found)) <= set(waits)
        assert len(set(found)) == len(found) - 1
        return
    # Without a circle everything above the start can be put into an order.
    above, left = {"0"}, {"0"}
    while left:
        left = {parent for child, parent in waits if child in left} - above
        above |= left
    order = set(above)
    while order:
        free = {each for each in order if not any(child == each and parent in order for child, parent in waits)}
        assert free
        order -= free


def test_the_words_name_the_path_and_cut_a_long_one():
    error = circle(["JOB-1", "JOB-2", "JOB-1"])
    assert isinstance(error, DependencyCycle)
    assert str(error) == "JOB-1 → JOB-2 → JOB-1: these jobs would wait for each other for ever"
    assert str(circle(["JOB-1", "JOB-1"])) == "JOB-1 can't wait for itself"
    path = [f"JOB-{number}" for number in range(100)]
    assert str(circle(path)).count("→") == SHOWN_MAX
    assert circle(path).path == tuple(path)


def test_an_unknown_parent_is_named_and_nothing_else():
    error = unknown_parent("JOB-7")
    assert isinstance(error, UnknownParent)
    assert "JOB-7" in str(error)
