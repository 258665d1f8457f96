"""What a group is, from the tails of its members' chains."""

from itertools import product

import pytest

from rota.model.groups import REST_ENDS, Member, OnFailure, derive
from rota.model.states import CHAIN_ENDS, Status


def member(status, *, started=None, attempt=1):
    status = Status(status)
    ran = status in {"RUNNING", "COMPLETED", "FAILED", "TIMED_OUT", "DEAD_LETTER"} if started is None else started
    return Member(1, "r", "JOB-2026-00001", "t", status, attempt, ran)


@pytest.mark.parametrize(
    ("tails", "status"),
    [
        ("PENDING PENDING", "QUEUED"),
        ("QUEUED PENDING", "QUEUED"),
        ("RUNNING PENDING", "RUNNING"),
        ("COMPLETED PENDING", "RUNNING"),
        ("COMPLETED RUNNING", "RUNNING"),
        ("CANCELLED QUEUED", "RUNNING"),
        ("DEAD_LETTER QUEUED", "RUNNING"),
        ("COMPLETED COMPLETED", "COMPLETED"),
        ("COMPLETED SKIPPED", "COMPLETED"),
        ("SKIPPED SKIPPED", "COMPLETED"),
        ("CANCELLED CANCELLED", "CANCELLED"),
        ("COMPLETED CANCELLED", "PARTIAL"),
        ("SKIPPED CANCELLED", "PARTIAL"),
        ("DEAD_LETTER CANCELLED", "PARTIAL"),
        ("DEAD_LETTER DEAD_LETTER", "PARTIAL"),
        ("COMPLETED DEAD_LETTER", "PARTIAL"),
    ],
)
def test_the_status_of_a_group_follows_the_tails_of_its_chains(tails, status):
    assert derive([member(tail) for tail in tails.split()]) == status


def test_a_member_waiting_for_its_retry_makes_the_group_running_not_queued():
    assert derive([member("PENDING", started=True, attempt=2), member("PENDING")]) == "RUNNING"


@pytest.mark.parametrize("tails", list(product(sorted(CHAIN_ENDS), repeat=3)))
def test_a_group_whose_chains_have_all_ended_has_ended_too(tails):
    assert derive([member(tail) for tail in tails]) in {"COMPLETED", "PARTIAL", "CANCELLED"}


@pytest.mark.parametrize("tails", list(product(["PENDING", "QUEUED", "RUNNING", "COMPLETED", "CANCELLED"], repeat=2)))
def test_a_group_with_a_live_chain_has_not_ended(tails):
    if any(not Status(tail).ended for tail in tails):
        assert derive([member(tail) for tail in tails]) in {"QUEUED", "RUNNING"}


def test_stop_cancels_the_rest_skip_skips_it_and_continue_lets_it_be():
    assert REST_ENDS == {OnFailure.STOP: Status.CANCELLED, OnFailure.SKIP: Status.SKIPPED}
