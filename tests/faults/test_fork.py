"""os.fork: a Rota used before it works on both sides, each with a connection of its own, and the store is not harmed."""

from __future__ import annotations

import pytest

from tests.faults import invariants


def told(program, word):
    return [line.partition(" ")[2] for line in program.text.splitlines() if line.startswith(f"{word} ")]


@pytest.fixture
def fork(stage):
    """Run one story of programs/forker.py to its end; both sides must have ended well."""

    def run(story, *, children=1):
        program = stage.start("forker", story)
        assert program.ends(within=40) == 0, program.text
        assert told(program, "exit") == ["0"] * children, program.text
        accepted = [each.replace("-", "") for each in told(program, "accepted")]
        assert len(set(accepted)) == len(accepted)
        invariants.check(stage.database, accepted=accepted, executed=stage.executed)
        return program

    return run


def test_parent_and_child_enqueue_at_the_same_time(fork):
    assert len(told(fork("both_enqueue"), "accepted")) == 121


def test_parent_and_child_await_and_enqueue_with_threads_of_their_own(fork, stage):
    program = fork("awaited_on_both_sides")
    assert told(program, "child") == told(program, "parent") == ["COMPLETED"]
    assert set(invariants.tails(stage.database).values()) == {"COMPLETED"}


def test_the_threads_of_a_worker_import_nothing(fork):
    """The lock of a module that is being imported is copied by a fork, and nobody gives it back in the child."""
    assert told(fork("imports_of_a_worker", children=0), "imported") == []


def test_a_child_enqueues_for_the_worker_of_its_parent_which_goes_on(fork, stage):
    assert told(fork("worker_in_parent"), "workers") == ["1"]
    assert set(invariants.tails(stage.database).values()) == {"COMPLETED"}


def test_a_child_runs_a_worker_of_its_own(fork, stage):
    program = fork("worker_in_child")
    assert told(program, "workers") == ["1"]
    assert told(program, "left") == ["0"]
    assert set(invariants.tails(stage.database).values()) == {"COMPLETED"}


def test_a_child_that_turns_the_wheel_is_not_the_worker_that_its_parent_is(fork):
    program = fork("turn_on_both_sides")
    [(status, worker)] = [line.split(" ") for line in told(program, "parent")]
    [(status_in_child, worker_in_child)] = [line.split(" ") for line in told(program, "child")]
    [(status_after, worker_after)] = [line.split(" ") for line in told(program, "after")]
    assert {status, status_in_child, status_after} == {"COMPLETED"}
    assert worker_after == worker
    assert worker_in_child != worker


def test_a_child_that_closes_what_its_parent_opened_does_not_end_the_parents_worker(fork):
    program = fork("child_closes_at_once")
    assert told(program, "same") == ["True"]
    assert told(program, "ended") == ["COMPLETED"]


def test_a_child_that_closes_does_not_take_back_the_sign_of_life_of_its_parent(fork):
    assert told(fork("child_closes_the_callers_sign"), "same") == ["True True"]


def test_a_child_that_leaves_the_running_block_of_its_parent_does_not_end_the_parents_worker(fork):
    program = fork("child_leaves_the_block_of_its_parent")
    assert told(program, "same") == ["True"]
    assert told(program, "ended") == ["COMPLETED"]


def test_a_child_that_calls_directly_is_another_caller_than_its_parent(fork):
    program = fork("client_of_direct")
    assert told(program, "parent") == told(program, "child") == told(program, "after") == ["COMPLETED"]
    assert told(program, "same") == ["True True"]


@pytest.mark.parametrize("stage", ["file"], indirect=True)
def test_what_a_child_accepts_after_its_parent_has_closed_is_there(fork):
    program = fork("child_outlives_its_parents_connection")
    assert len(told(program, "accepted")) == 3
    assert told(program, "locks") != ["0"]


def test_a_fork_while_other_threads_enqueue_leaves_a_child_that_can(fork):
    assert len(told(fork("many_threads", children=15), "accepted")) == 15
