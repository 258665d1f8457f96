"""The table of legal moves, walked pair by pair."""

from itertools import product

import pytest

from rota.model.states import BORN, CHAIN_ENDS, MOVES, RETRYABLE_ENDS, RUN_END, TERMINAL, RunStatus, Status, is_legal

WAITING = {"PENDING": {"QUEUED", "CANCELLED", "SKIPPED"}, "QUEUED": {"RUNNING", "CANCELLED", "SKIPPED"}}
RUNNING_ENDS = {"COMPLETED", "FAILED", "TIMED_OUT", "DEAD_LETTER", "SKIPPED", "CANCELLED"}
DRAWN: dict[str, set[str]] = WAITING | {"RUNNING": RUNNING_ENDS}
"""The diagram of DESIGN 2.2, written down a second time, by hand."""


@pytest.mark.parametrize(("before", "after"), list(product(Status, Status)))
def test_a_move_is_legal_exactly_where_the_diagram_has_an_arrow(before, after):
    assert is_legal(before, after) is (after in DRAWN.get(before, set()))


@pytest.mark.parametrize("status", Status)
def test_a_job_is_born_pending_or_queued_and_nothing_else(status):
    assert is_legal(None, status) is (status in {"PENDING", "QUEUED"})


@pytest.mark.parametrize("status", Status)
def test_nothing_leaves_a_terminal_state_and_everything_else_can_be_left(status):
    leaves = any(is_legal(status, after) for after in Status)
    assert status.ended is not leaves
    assert status.ended is (status in TERMINAL)


def test_no_state_moves_to_itself():
    assert not any(is_legal(status, status) for status in Status)


def test_queued_never_goes_back_to_pending_nor_running_to_queued():
    assert not is_legal(Status.QUEUED, Status.PENDING)
    assert not is_legal(Status.RUNNING, Status.QUEUED)
    assert not is_legal(Status.RUNNING, Status.PENDING)


def test_every_state_can_be_reached_from_birth():
    reached, fresh = set(BORN), set(BORN)
    while fresh:
        fresh = {after for before in fresh for after in MOVES.get(before, ())} - reached
        reached |= fresh
    assert reached == set(Status)


def test_a_chain_never_ends_failed_or_timed_out():
    ends = {"CANCELLED", "COMPLETED", "DEAD_LETTER", "SKIPPED"}
    assert ends == set(CHAIN_ENDS)


def test_a_person_may_retry_every_chain_end_but_completed():
    assert CHAIN_ENDS - {Status.COMPLETED} == RETRYABLE_ENDS


def test_every_end_of_a_started_job_says_how_its_run_ends():
    assert set(RUN_END) == TERMINAL
    assert set(RUN_END.values()) == set(RunStatus)
    assert {end for end, run in RUN_END.items() if run is RunStatus.FAILED} == {"FAILED", "TIMED_OUT", "DEAD_LETTER"}
