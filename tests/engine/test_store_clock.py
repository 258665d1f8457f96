"""A clock that follows the store's own: right whatever the machine's shows, and changed only where it is proven wrong."""

import pytest

from rota import Rota
from rota.errors import StoreUnavailable
from rota.model.values import SECOND
from rota.ports.clock import StoreClock
from tests.support.clock import ManualClock

HOUR = 3600


class Theirs:
    """The store's clock at the end of a line: an answer takes a while, part of it on the way back."""

    def __init__(self, machine, *, ahead_s=0.0):
        self.machine = machine
        self.ahead_s = ahead_s
        self.there_s = self.back_s = 0.0
        self.away = False
        self.asked = 0
        self.start = machine.now(), machine.monotonic()

    @property
    def right(self):
        at, since = self.start
        return at + round((self.machine.monotonic() - since + self.ahead_s) * SECOND)

    def ask(self):
        self.asked += 1
        if self.away:
            raise StoreUnavailable("away")
        self.machine.advance(seconds=self.there_s)
        said = self.right
        self.machine.advance(seconds=self.back_s)
        return said


@pytest.fixture
def machine():
    return ManualClock()


def test_without_another_it_is_the_machines_clock(machine):
    clock = StoreClock(machine)
    clock.follow(None)
    machine.step(days=3)
    assert (clock.now(), clock.monotonic(), clock.skew_s) == (machine.now(), machine.monotonic(), 0)


@pytest.mark.parametrize("wrong_s", [-HOUR, 0, HOUR])
def test_it_shows_what_the_other_shows_however_wrong_the_machine_is(machine, wrong_s):
    theirs, clock = Theirs(machine, ahead_s=-wrong_s), StoreClock(machine)
    clock.follow(theirs.ask)
    assert (clock.now(), clock.skew_s) == (theirs.right, wrong_s)
    machine.advance(seconds=1000)
    assert clock.now() == theirs.right


def test_a_machines_clock_that_is_set_meanwhile_changes_nothing(machine):
    theirs, clock = Theirs(machine), StoreClock(machine)
    clock.follow(theirs.ask)
    for _ in range(3):
        machine.step(hours=5)
        assert clock.now() == theirs.right
        clock.check()
        assert clock.now() == theirs.right


def test_after_a_sleep_which_only_the_wall_clock_has_seen_it_asks_again_at_once(machine):
    theirs, clock = Theirs(machine), StoreClock(machine)
    clock.follow(theirs.ask)
    machine.step(hours=8)
    theirs.ahead_s += 8 * HOUR
    clock.check()
    assert (clock.now(), theirs.asked) == (theirs.right, 2)


def test_it_asks_every_ten_seconds_at_most(machine):
    theirs, clock = Theirs(machine), StoreClock(machine)
    clock.follow(theirs.ask)
    for _ in range(30):
        machine.advance(seconds=1)
        clock.check()
    assert theirs.asked == 4


@pytest.mark.parametrize(("there_s", "back_s"), [(0.0, 4.0), (4.0, 0.0), (2.0, 2.0)])
def test_an_answer_that_took_a_while_does_not_move_a_clock_that_may_be_right(machine, there_s, back_s):
    theirs, clock = Theirs(machine), StoreClock(machine)
    clock.follow(theirs.ask)
    machine.advance(seconds=20)
    theirs.there_s, theirs.back_s = there_s, back_s
    clock.check()
    assert clock.now() == theirs.right


def test_a_first_answer_is_off_by_half_of_what_it_took_at_most_and_a_better_one_mends_that(machine):
    theirs, clock = Theirs(machine, ahead_s=HOUR), StoreClock(machine)
    theirs.back_s = 3.0
    clock.follow(theirs.ask)
    assert abs(clock.now() - theirs.right) == 1.5 * SECOND
    theirs.back_s = 0.01
    machine.advance(seconds=20)
    clock.check()
    assert abs(clock.now() - theirs.right) <= 0.005 * SECOND


def test_while_the_other_is_away_it_goes_on_and_asks_again_later(machine):
    theirs, clock = Theirs(machine, ahead_s=HOUR), StoreClock(machine)
    clock.follow(theirs.ask)
    theirs.away = True
    machine.advance(seconds=60)
    clock.check()
    assert clock.now() == theirs.right
    theirs.away = False
    machine.advance(seconds=60)
    theirs.ahead_s += 5
    clock.check()
    assert clock.now() == theirs.right


def test_somebody_is_told_once_that_the_machines_clock_is_wrong(machine, caplog):
    theirs, clock = Theirs(machine, ahead_s=HOUR), StoreClock(machine)
    clock.follow(theirs.ask)
    machine.advance(seconds=60)
    clock.check()
    assert [record.getMessage() for record in caplog.records] == [
        "this machine's clock is 3600.0 s behind the store's, which is used instead; correct it"
    ]


def test_who_asks_for_the_time_first_lets_it_begin_and_a_beginning_that_fails_is_tried_again(machine):
    theirs, begun = Theirs(machine, ahead_s=HOUR), []

    def begin():
        begun.append(True)
        if len(begun) == 1:
            raise StoreUnavailable("away")
        clock.follow(theirs.ask)

    clock = StoreClock(machine, begin=begin)
    with pytest.raises(StoreUnavailable):
        clock.now()
    assert clock.now() == theirs.right
    assert (clock.now(), len(begun)) == (theirs.right, 2)


def test_a_clock_that_was_given_is_left_alone(tmp_path, machine):
    rota = Rota(tmp_path / "rota.db", clock=machine)
    assert rota._session.follows is None
    rota.close()
