"""Which of the candidates a worker takes: pure policy."""

import pytest

from rota.engine.definitions_cache import runnable_types
from rota.engine.in_flight import Slots
from rota.engine.predicates import PREDICATES, InUse, Suspect, Waiting, World, first_block
from rota.engine.turn_request import Dispatcher
from rota.model.templates import Rate
from rota.model.values import Claimed
from rota.ports.turns import Reservation, Starts, Usage


def candidate(number, **fields):
    values = {
        "job_id": f"{number:032x}",
        "root_id": f"{number:032x}",
        "root_number": number,
        "run_id": "",
        "job_type": "t",
        "origin": "api",
        "organization_id": "default",
        "params": "{}",
        "priority": 50,
        "position": number * 100,
        "attempt": 1,
        "failures": 0,
        "crashes": 0,
        "snoozes": 0,
        "max_retries": 3,
        "max_crashes": 3,
        "backoff": "{}",
        "timeout": 0.0,
        "executor": "thread",
        "started_at": 0,
        "checkpoint": None,
    }
    return Claimed(number=number, **(values | fields))


def line(count, **fields):
    return [candidate(number, **fields) for number in range(1, count + 1)]


def slots(**fields):
    values = {"free": 4, "holding": 0, "ahead_s": 0.0, "places": frozenset(), "means": {}}
    return Slots(**(values | fields))


WORLD = World(types=frozenset({"t", "u"}))


def dispatcher(world=WORLD, most=1000, **fields):
    return Dispatcher(world, slots(**fields), most=most)


def taken(candidates, reservation=None, world=WORLD, **fields):
    return numbers(dispatcher(world, **fields).choose(candidates, reservation, Usage()))


def numbers(choice):
    return [job.number for job in choice.take]


def reservation(number):
    return Reservation("r", "anna@here", "w", "j", number, 0, 1)


def test_as_many_are_taken_as_there_are_free_slots_in_their_order():
    assert taken(line(10), free=4) == [1, 2, 3, 4]
    assert taken(line(2), free=4) == [1, 2]
    assert taken(line(5), free=0) == []


# ---- prefetch --------------------------------------------------------------------------------------------------------


def test_nothing_is_claimed_ahead_of_a_type_that_was_never_measured():
    assert taken(line(10), free=2, ahead_s=0.05) == [1, 2]


def test_a_type_that_was_never_measured_is_claimed_ahead_by_a_guess_as_often_as_there_are_guesses():
    known = {"ahead_s": 0.055, "means": {"t": 0.01}}
    strange = line(100, job_type="u")
    assert taken(strange, free=0, guess_s=0.02, guesses=9, **known) == [1, 2]
    assert taken(strange, free=0, guess_s=0.001, guesses=9, **known) == list(range(1, 10))
    assert taken(strange, free=0, guess_s=0.06, guesses=9, **known) == []
    # Into a free slot anything goes, and what is behind a slow one is not claimed ahead of its time.
    assert taken(strange, free=1, quick=1, guess_s=0.06, guesses=9, **known) == [1]
    assert taken(strange, free=2, quick=2, guess_s=0.001, guesses=4, **known) == [1, 2, 3, 4]


def test_nothing_is_claimed_ahead_of_a_type_whose_starts_are_counted():
    world = World(types=WORLD.types, rates={"t": Rate(100, 60.0)})
    assert taken(line(10), world=world, free=2, quick=4, ahead_s=0.05, means={"t": 0.001}) == [1, 2]


def test_work_is_claimed_ahead_up_to_its_bound_in_seconds():
    assert taken(line(100), free=2, ahead_s=0.055, means={"t": 0.01}, places=frozenset({"thread"})) == [1, 2, 3, 4, 5, 6, 7]
    assert taken(line(100), free=0, ahead_s=0.025, means={"t": 0.01}) == [1, 2]
    assert taken(line(100), free=1, ahead_s=0.0, means={"t": 0.01}) == [1]
    assert taken(line(100), free=1, ahead_s=0.05, means={"t": 0.06}) == [1]


def test_a_job_without_retries_is_never_claimed_ahead():
    jobs = line(3, max_retries=0)
    assert taken(jobs, free=1, ahead_s=1.0, means={"t": 0.001}) == [1]
    mixed = [candidate(1), candidate(2, max_retries=0), candidate(3)]
    # and nobody overtakes it
    assert taken(mixed, free=1, ahead_s=1.0, means={"t": 0.001}) == [1]
    assert taken(mixed, free=2, ahead_s=1.0, means={"t": 0.001}) == [1, 2, 3]


def test_work_is_claimed_ahead_for_one_executor_only():
    jobs = [candidate(1), candidate(2, executor="process"), candidate(3)]
    assert taken(jobs, free=1, ahead_s=1.0, means={"t": 0.001}) == [1]
    assert taken(line(3), free=1, ahead_s=1.0, means={"t": 0.001}, places=frozenset({"process"})) == [1]
    assert taken(line(3), free=1, ahead_s=1.0, means={"t": 0.001}, places=frozenset({"thread"})) == [1, 2, 3]


def test_a_fast_type_does_not_carry_a_slow_one_ahead():
    jobs = [candidate(1), candidate(2), candidate(3, job_type="u"), candidate(4)]
    assert taken(jobs, free=1, ahead_s=0.05, means={"t": 0.01, "u": 5.0}) == [1, 2]


# ---- suspects --------------------------------------------------------------------------------------------------------

INSIDE = World(types=WORLD.types, inside={"t": "thread", "u": "thread"})
"""No handler process can import what this worker runs."""


def running_suspect(*, alone):
    return World(types=WORLD.types, suspects=dict.fromkeys(WORLD.types, Suspect("JOB-2026-00009.2", alone)))


def test_a_suspect_runs_in_a_process_beside_the_others():
    jobs = [candidate(1), candidate(2, crashes=1), candidate(3)]
    choice = dispatcher().choose(jobs, None, Usage())
    assert [(job.number, job.executor) for job in choice.take] == [(1, "thread"), (2, "process"), (3, "thread")]


def test_of_suspects_one_is_taken_and_the_others_are_left_where_they_are():
    choice = dispatcher().choose([*line(4, crashes=1), candidate(5), candidate(6, crashes=2)], None, Usage())
    assert (numbers(choice), choice.park) == ([1, 5], [])
    # no more suspects need be offered, and what is behind them may start
    assert (choice.suspects, choice.again) == (False, True)


def test_while_a_suspect_runs_in_its_process_others_start_and_suspects_do_not():
    jobs = [candidate(1, crashes=1), candidate(2), candidate(3)]
    assert taken(jobs, world=running_suspect(alone=False), holding=1) == [2, 3]


def test_after_a_suspect_that_no_process_can_import_nothing_is_started():
    jobs = [candidate(1), candidate(2, crashes=1), candidate(3)]
    chooser = dispatcher(INSIDE)
    choice = chooser.choose(jobs, None, Usage())
    assert [(job.number, job.executor) for job in choice.take] == [(1, "thread"), (2, "thread")]
    assert not choice.again
    assert numbers(chooser.choose([candidate(4)], None, Usage())) == []


def test_while_a_suspect_is_alone_nothing_else_is_taken():
    assert taken(line(4), world=running_suspect(alone=True), holding=1) == []
    assert taken(line(4), alone=True, holding=1) == []


def test_a_suspect_is_passed_over_until_a_process_is_ready_for_it():
    chooser = dispatcher(World(types=WORLD.types, unready=frozenset({"t"})))
    jobs = [candidate(1, crashes=1), candidate(2), candidate(3, job_type="u", crashes=1)]
    assert numbers(chooser.choose(jobs, None, Usage())) == [2, 3]
    assert chooser.unready == {"t"}


def test_a_suspect_is_never_claimed_ahead_and_nothing_is_claimed_ahead_of_it():
    jobs = [candidate(1), candidate(2, crashes=1), candidate(3)]
    assert taken(jobs, free=1, ahead_s=1.0, means={"t": 0.001}) == [1]
    assert taken([candidate(1), candidate(2), candidate(3)], free=1, ahead_s=1.0, means={"t": 0.001}) == [1, 2, 3]


def test_beside_a_suspect_nothing_is_claimed_ahead_of_free_slots():
    jobs = [candidate(1, crashes=1), *(candidate(number) for number in range(2, 20))]
    assert taken(jobs, free=3, ahead_s=1.0, means={"t": 0.001}) == [1, 2, 3]


def test_a_suspect_keeps_within_the_limits_and_counts_against_them():
    world = World(types=WORLD.types, template_limits={"t": 1})
    choice = dispatcher(world).choose([candidate(1, crashes=1), candidate(2)], None, Usage())
    assert (numbers(choice), choice.park) == ([1], [(2, "template-limit:t")])
    choice = dispatcher(world).choose([candidate(1, crashes=1)], None, running(default_t=1))
    assert (numbers(choice), choice.park) == ([], [(1, "template-limit:t")])


# ---- allowed (2.4) ---------------------------------------------------------------------------------------------------


def test_a_paused_organization_is_parked_under_its_name_and_the_others_go_on():
    world = World(types=WORLD.types, pauses=frozenset({("organization", "acme")}))
    jobs = [candidate(1, organization_id="acme"), candidate(2), candidate(3, organization_id="acme")]
    choice = dispatcher(world, free=1).choose(jobs, None, Usage())
    assert numbers(choice) == [2]
    assert choice.park == [(1, "organization:acme"), (3, "organization:acme")]


def test_a_suspended_organization_is_parked_under_another_word():
    world = World(types=WORLD.types, suspended=frozenset({"acme"}))
    choice = dispatcher(world).choose([candidate(1, organization_id="acme"), candidate(2)], None, Usage())
    assert (numbers(choice), choice.park) == ([2], [(1, "suspended:acme")])


def test_a_paused_template_is_not_offered_at_all():
    assert runnable_types(WORLD) == ("t", "u")
    assert runnable_types(World(types=WORLD.types, pauses=frozenset({("template", "t")}))) == ("u",)
    assert runnable_types(World(types=WORLD.types, pauses=frozenset({("all", "")}))) == ()
    assert runnable_types(World(types=WORLD.types, pauses=frozenset({("organization", "default")}))) == ("t", "u")


def test_a_pause_that_came_in_between_takes_nothing_and_parks_nothing():
    world = World(types=WORLD.types, pauses=frozenset({("template", "t")}))
    choice = dispatcher(world).choose(line(3), None, Usage())
    assert (choice.take, choice.park) == ([], [])


def test_a_type_without_handler_is_not_taken():
    assert taken([candidate(1, job_type="x"), candidate(2)]) == [2]


def test_a_direct_execution_takes_one_slot_and_the_queue_the_others():
    chooser = dispatcher(free=3)
    assert numbers(chooser.choose([candidate(9, max_retries=0)], reservation(9), Usage())) == [9]
    assert numbers(chooser.choose(line(4), None, Usage())) == [1, 2]


def test_a_direct_execution_waits_for_a_free_slot_and_nothing_is_claimed_ahead_of_it():
    quick = {"free": 0, "ahead_s": 1.0, "means": {"t": 0.001}}
    chooser = dispatcher(**quick)
    assert numbers(chooser.choose([candidate(9, max_retries=2)], reservation(9), Usage())) == []
    assert numbers(chooser.choose(line(4), None, Usage())) == []
    assert taken(line(4), **quick) == [1, 2, 3, 4]


def test_a_direct_execution_at_a_limit_holds_up_nobody_else():
    chooser = dispatcher(World(types=WORLD.types, template_limits={"u": 0}), free=3)
    assert numbers(chooser.choose([candidate(9, job_type="u")], reservation(9), Usage())) == []
    assert numbers(chooser.choose(line(4), None, Usage())) == [1, 2, 3]


def test_the_first_predicate_that_does_not_hold_is_named():
    world = World(types=frozenset({"t"}), pauses=frozenset({("all", ""), ("organization", "default")}))
    assert first_block(Waiting("x", "default"), world)[1] == "type:x"
    assert first_block(Waiting("t", "default"), world)[1] == "all:"
    world = World(types=frozenset({"t"}), pauses=frozenset({("template", "t")}))
    assert first_block(Waiting("t", "default"), world)[1] == "template:t"
    world = running_suspect(alone=False)
    assert first_block(Waiting("t", "default", 1), world)[1] == "suspect:JOB-2026-00009.2"
    assert first_block(Waiting("t", "default"), world) is None
    assert first_block(Waiting("t", "default"), running_suspect(alone=True))[1] == "alone:JOB-2026-00009.2"


def test_the_order_of_the_predicates_is_the_designs():
    assert [predicate.name for predicate in PREDICATES] == [
        "a worker has its handler",
        "not paused",
        "organization open",
        "a worker serves its queue",
        "a worker takes its parameters",
        "template below its limit",
        "organization below its limit",
        "rate limit has room",
        "a worker has room for its template",
        "no suspect in its way",
    ]


@pytest.mark.parametrize("free", [0, 1, 3])
@pytest.mark.parametrize("ahead_s", [0.0, 0.05])
def test_what_is_taken_is_never_more_than_slots_and_prefetch_allow(free, ahead_s):
    jobs = line(50)
    count = len(taken(jobs, free=free, ahead_s=ahead_s, means={"t": 0.007}))
    assert count <= free + int(ahead_s / 0.007)


# ---- limits ----------------------------------------------------------------------------------------------------------


def running(**counts):
    """Count as a store does: running(acme_t=2) is two of type t of organization acme."""
    return Usage(running={tuple(name.split("_")): count for name, count in counts.items()})


def test_what_runs_everywhere_counts_against_the_limit_of_a_template():
    world = World(types=WORLD.types, template_limits={"t": 3})
    choice = dispatcher(world).choose(line(4), None, running(default_t=1, acme_t=1))
    assert (numbers(choice), choice.park) == ([1], [(number, "template-limit:t") for number in (2, 3, 4)])


def test_what_is_taken_counts_too_and_others_are_not_in_its_way():
    world = World(types=WORLD.types, organization_limits={"acme": 1})
    jobs = [candidate(1, organization_id="acme"), candidate(2, organization_id="acme", job_type="u"), candidate(3)]
    choice = dispatcher(world).choose(jobs, None, Usage())
    assert (numbers(choice), choice.park) == ([1, 3], [(2, "organization-limit:acme")])


def test_a_limit_of_none_at_all_lets_nothing_start():
    world = World(types=WORLD.types, template_limits={"t": 0})
    assert taken(line(2), world=world) == []


def test_no_more_start_than_the_rate_has_left():
    world = World(types=WORLD.types, rates={"t": Rate(5, 60.0)})
    choice = dispatcher(world).choose(line(4), None, Usage(starts={"t": Starts(3)}))
    assert (numbers(choice), choice.park) == ([1, 2], [(3, "rate-limit:t"), (4, "rate-limit:t")])


def test_a_worker_holds_no_more_of_a_template_than_it_may_and_parks_nothing():
    world = World(types=WORLD.types, concurrency={"t": 3}, in_use=InUse(here={"t": 2}))
    choice = dispatcher(world).choose([*line(3), candidate(4, job_type="u")], None, Usage())
    assert (numbers(choice), choice.park, choice.leave) == ([1, 4], [], {"t"})


def test_the_first_limit_in_the_order_of_the_predicates_is_the_word():
    world = World(types=WORLD.types, template_limits={"t": 0}, organization_limits={"default": 0}, rates={"t": Rate(1, 1.0)})
    assert dispatcher(world).choose(line(1), None, Usage()).park == [(1, "template-limit:t")]
    world = World(types=WORLD.types, organization_limits={"default": 0}, rates={"t": Rate(1, 1.0)}, pauses=frozenset())
    assert dispatcher(world).choose(line(1), None, Usage()).park == [(1, "organization-limit:default")]


def test_types_that_are_full_need_not_be_offered_again_and_organizations_say_nothing_of_types():
    world = World(types=WORLD.types, template_limits={"t": 1}, organization_limits={"acme": 0})
    choice = dispatcher(world).choose([*line(2), candidate(3, job_type="u", organization_id="acme")], None, Usage())
    assert choice.leave == {"t"}


def test_more_is_asked_for_only_where_something_was_in_the_way_and_room_is_left():
    world = World(types=WORLD.types, template_limits={"t": 1})
    assert not dispatcher(world).choose(line(1), None, Usage()).again
    assert dispatcher(world).choose(line(2), None, Usage()).again
    assert not dispatcher(world, free=1).choose([candidate(1), candidate(2, job_type="u"), candidate(3)], None, Usage()).again


def test_what_one_round_took_counts_in_the_next():
    world = World(types=WORLD.types, organization_limits={"acme": 3})
    chooser = dispatcher(world, free=5)
    first = chooser.choose([candidate(1, organization_id="acme"), candidate(2, organization_id="acme")], None, running(acme_t=1))
    second = chooser.choose([candidate(3, organization_id="acme"), candidate(4)], None, running(acme_t=1))
    assert (numbers(first), numbers(second), second.park) == ([1, 2], [4], [(3, "organization-limit:acme")])


def test_rounds_together_take_no_more_than_was_wanted():
    chooser = dispatcher(most=3, free=10)
    assert numbers(chooser.choose(line(2), None, Usage())) == [1, 2]
    choice = chooser.choose([candidate(3), candidate(4)], None, Usage())
    assert (numbers(choice), choice.again) == ([3], False)


def test_of_several_rounds_one_takes_a_suspect():
    chooser = dispatcher()
    assert numbers(chooser.choose([candidate(1), candidate(2, crashes=1)], None, Usage())) == [1, 2]
    assert numbers(chooser.choose([candidate(3, crashes=1), candidate(4)], None, Usage())) == [4]


def test_a_direct_execution_keeps_within_the_limits():
    world = World(types=WORLD.types, template_limits={"t": 1})
    direct = [candidate(2, max_retries=0)]
    assert numbers(dispatcher(world).choose(direct, reservation(2), Usage())) == [2]
    assert numbers(dispatcher(world).choose(direct, reservation(2), running(default_t=1))) == []
