"""Only schedules whose jobs would meet are to be simulated: those that overlap, and all that share a limit or a dependency with them."""

from __future__ import annotations

import pytest

from rota.model.contention import SLOTS, Demand, contended, fits

TEMPLATE = ("template", "t")


def demand(lasts: int = 5, **fields) -> Demand:
    return Demand(lasts=lasts, **fields)


def chosen(due: list[tuple[int, int]], *demands: Demand, slots: int = 100, **rooms: int) -> set[int]:
    return set(contended(due, demands, {SLOTS: slots, **({TEMPLATE: rooms["limit"]} if "limit" in rooms else {})}))


def test_schedules_whose_jobs_are_over_in_time_are_left_to_arithmetic():
    assert chosen([(0, 0), (0, 1), (6, 0), (9, 1)], demand(), demand()) == set()


@pytest.mark.parametrize("next_at", [3, 5])
def test_one_that_overlaps_itself_is_simulated_alone(next_at):
    assert chosen([(0, 0), (0, 1), (next_at, 0)], demand(), demand()) == {0}


def test_one_whose_jobs_may_overlap_is_not_simulated_for_that():
    assert chosen([(0, 0), (3, 0)], demand(allows=True)) == set()


def test_those_that_share_a_limit_are_simulated_together_if_it_is_exceeded():
    shared = demand(shares=(TEMPLATE,))
    assert chosen([(0, 0), (1, 1), (2, 2)], shared, shared, demand(), limit=2) == set()
    assert chosen([(0, 0), (1, 1), (2, 2)], shared, shared, demand(), limit=1) == {0, 1}


def test_who_shares_a_limit_with_one_that_overlaps_is_simulated_with_it():
    shared = demand(shares=(TEMPLATE,))
    assert chosen([(0, 0), (3, 0), (100, 1)], shared, shared, demand(), limit=9) == {0, 1}


def test_what_depends_on_others_is_simulated_with_them():
    assert chosen([(0, 0), (50, 1)], demand(), demand(awaits=(0,)), demand()) == {0, 1}


def test_what_is_certain_to_be_simulated_is():
    assert chosen([(0, 0), (0, 1)], demand(certain=True), demand()) == {0}


def test_all_are_simulated_if_slots_do_not_suffice():
    assert chosen([(0, 0), (1, 1), (50, 2)], demand(), demand(), demand(), slots=1) == {0, 1, 2}


def test_runs_fit_if_no_moment_needs_more_slots_than_there_are():
    assert fits([(0, 5), (6, 9), (1, 20)], 2)
    assert not fits([(0, 5), (4, 9), (1, 20)], 2)
