"""What a worker expects of the jobs it holds, and of those it does not know yet."""

from __future__ import annotations

from rota.engine.in_flight import GUESS_LEAST, InFlight
from rota.engine.predicates import World
from rota.engine.turn_request import Dispatcher
from rota.model.decide import Completed
from rota.model.settings import Settings
from rota.ports.executor import Ended
from rota.ports.turns import Turn, Usage
from tests.engine.test_engine_dispatch import candidate

QUICK_S, SLOW_S = 0.00001, 2.0


def run(hold: InFlight, jobs, seconds) -> None:
    """Hold jobs, end each after the seconds of its type, and have the ends written."""
    for job in jobs:
        hold.add([job])
    for job in jobs:
        hold.end([Ended(job, Completed(), 1, seconds(job.job_type))])
    turn = Turn(now=1, worker_id="0" * 32)
    hold.add_done(turn)
    hold.written(turn)


def measured(count: int, seconds=lambda _: QUICK_S) -> InFlight:
    """Return what a worker knows that has run one job of each of so many types."""
    hold = InFlight(4, Settings())
    run(hold, [candidate(number, job_type=f"t{number}") for number in range(count)], seconds)
    return hold


def guessed(hold: InFlight) -> tuple[int, float]:
    slots = hold.slots(0, ahead=True)
    return slots.guesses, slots.guess_s


def test_until_some_types_are_measured_nothing_is_expected_of_the_others():
    assert guessed(measured(GUESS_LEAST - 1)) == (0, 0.0)


def test_then_a_type_is_expected_to_take_as_long_as_the_others_do_on_average():
    count, seconds = guessed(measured(GUESS_LEAST, lambda name: 0.03 if name == "t0" else 0.0))
    assert (count, seconds) == (0, 0.0)  # what took no time was not measured
    count, seconds = guessed(measured(GUESS_LEAST, lambda name: 0.16 if name == "t0" else QUICK_S))
    assert count == GUESS_LEAST
    assert 0.01 < seconds < 0.0101


def test_jobs_of_unknown_types_that_are_held_count_as_slow_until_there_is_a_guess():
    for count, quick in ((GUESS_LEAST - 1, 3), (GUESS_LEAST, 4)):
        hold = measured(count)
        hold.add([candidate(99, job_type="strange")])
        assert hold.slots(0, ahead=True).quick == quick


def test_where_a_slow_type_is_among_the_measured_none_is_claimed_ahead_by_a_guess():
    hold = measured(GUESS_LEAST, lambda name: SLOW_S if name == "t0" else QUICK_S)
    assert taken(hold, [candidate(n, job_type=f"u{n}") for n in range(50)]) == 4


def taken(hold: InFlight, candidates) -> int:
    slots = hold.slots(0, ahead=True)
    world = World(types=frozenset(job.job_type for job in candidates))
    dispatcher = Dispatcher(world, slots, most=hold.want(slots))
    return len(dispatcher.choose(candidates, None, Usage()).take)


def test_thousands_of_types_are_learned_in_a_few_turns():
    """Each turn claims ahead as many unknown ones as are known: that doubles what is known."""
    hold, waiting, turns = measured(GUESS_LEAST), [candidate(n, job_type=f"u{n}") for n in range(2000)], 0
    while waiting:
        count = taken(hold, waiting[:500])
        run(hold, waiting[:count], lambda _: QUICK_S)
        waiting, turns = waiting[count:], turns + 1
    assert turns < 15


def test_types_of_which_nothing_is_held_leave_nothing_behind_that_a_turn_goes_through():
    hold = measured(100)
    assert (hold.by_type(), hold.slots(0, ahead=True).places) == ({}, frozenset())
