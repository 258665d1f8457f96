"""Limits by parking: what is counted, what is parked, and when it comes back. The chooser is the engine's own."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rota.engine.definitions_cache import counting_of
from rota.engine.in_flight import Slots
from rota.engine.predicates import World
from rota.engine.turn_request import Dispatcher
from rota.model.decide import Completed, Crashed, Failed, Interrupted, Released
from rota.model.templates import Rate
from rota.model.values import SECOND
from rota.ports.turns import Counting, Starts
from rota.stores.verbs import limits, turn
from tests.stores.desk import ANNA, Desk, inside
from tests.stores.makers import SqliteMaker
from tests.support.proof import size

TYPES = ("t", "u")


class Office:
    """A worker at a store, with limits in force and as many slots as it is told."""

    def __init__(self, desk, **world):
        self.desk = desk
        self.world = World(types=frozenset(TYPES), **world)
        self.running = {}

    def set(self, **world):
        self.world = msgspec.structs.replace(self.world, **world)

    def turn(self, most=100, *, types=TYPES, sweep=False, within=0, **fields):
        slots = Slots(free=most, holding=0, ahead_s=0.0, places=frozenset(), means={})
        counting = msgspec.structs.replace(counting_of(self.world), sweep=sweep, within=within)
        choose = Dispatcher(self.world, slots, most=most).choose
        turned = self.desk.turn(most, types=types, choose=choose, counting=counting, **fields)
        self.running |= {job.job_id: job for job in turned.claimed}
        return turned

    def take(self, most=100, **fields):
        """Turn as often as the store asks for it; return what was claimed, in order."""
        taken, sweep = [], fields.pop("sweep", False)
        while True:
            turned = self.turn(most - len(taken), sweep=sweep, **fields)
            taken += [job.job_id for job in turned.claimed]
            if not turned.unfinished or len(taken) == most:
                return taken
            sweep = True

    def finish(self, *job_ids, outcome=None):
        """End these (all that run, if none is named) in a turn that claims nothing."""
        jobs = [self.running.pop(job_id) for job_id in job_ids or list(self.running)]
        if outcome is None:
            self.desk.done(*jobs)
        else:
            self.desk.turn(endings=[self.desk.ending(job, outcome) for job in jobs])


def held(desk):
    return {inside(job.id): job.held for job in desk.store.queue(limit=10_000) if job.held}


def usage(desk, **counting):
    return desk.store.usage(Counting(running=True, **counting), now=desk.now)


# ---- counting --------------------------------------------------------------------------------------------------------


def test_running_jobs_are_counted_by_organization_and_type(desk):
    desk.several(3, "t", organization_id="acme")
    desk.several(2, "u", organization_id="acme")
    desk.add("t")
    desk.add("t", delay=60)
    jobs = desk.claim(5, types=TYPES)
    assert usage(desk).running == Counter((job.organization_id, job.job_type) for job in jobs)


@pytest.mark.parametrize("outcome", [Completed(), Completed('"r"'), Failed("x"), Failed("x", permanent=True), Released(), Interrupted()])
def test_what_has_ended_is_not_counted(desk, outcome):
    desk.several(2)
    first, _ = desk.claim(2)
    desk.end(first, outcome)
    assert usage(desk).running == {("default", "t"): 1}


def test_a_crash_leaks_no_slot(desk):
    office = Office(desk, template_limits={"t": 2})
    desk.several(4)
    assert len(office.take()) == 2
    desk.recover(desk.worker, Crashed())
    assert usage(desk).running == {}
    # a suspect, and one beside it that is none
    assert [desk.job(each).crashes for each in office.take()] == [1, 0]


def test_nothing_is_counted_that_was_not_asked_for(desk):
    desk.add()
    desk.claim_one()
    assert desk.store.usage(Counting(running=False), now=desk.now).running == {}


# ---- templates and organizations -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "word"),
    [({"template_limits": {"t": 2}}, "template-limit:t"), ({"organization_limits": {"default": 2}}, "organization-limit:default")],
)
def test_what_is_over_a_limit_is_parked_and_comes_back_one_by_one_in_its_order(desk, world, word):
    office = Office(desk, **world)
    jobs = desk.several(6)
    assert office.take() == jobs[:2]
    assert held(desk) == dict.fromkeys(jobs[2:], word)
    office.finish(jobs[1])
    assert office.take() == [jobs[2]]
    office.finish(jobs[0], jobs[2])
    assert office.take() == jobs[3:5]
    office.finish()
    assert office.take() == [jobs[5]]


def test_the_limit_holds_over_all_workers(desk, maker):
    other = Office(Desk(maker.open()), template_limits={"t": 3})
    other.desk.worker = other.desk.id()
    office = Office(desk, template_limits={"t": 3})
    jobs = desk.several(8)
    assert office.take(2) == jobs[:2]
    assert other.take(2) == jobs[2:3]
    other.finish()
    assert office.take(2) == jobs[3:4]
    assert other.take(2) == []


def test_an_end_and_the_claim_of_the_next_are_one_turn(desk):
    office = Office(desk, organization_limits={"default": 1})
    jobs = desk.several(3)
    (first,) = office.turn().claimed
    turned = office.turn(done=[(first.number, desk.now)])
    assert [job.job_id for job in turned.claimed] == [jobs[1]]


def test_organizations_at_their_limit_are_not_in_the_way_of_others(desk):
    office = Office(desk, organization_limits={"loud": 1})
    loud = desk.several(50, organization_id="loud")
    quiet = desk.several(3, organization_id="quiet")
    assert set(office.take(4)) == {loud[0], *quiet}


def test_a_new_job_of_higher_priority_goes_before_what_was_parked(desk):
    office = Office(desk, template_limits={"t": 1})
    jobs = desk.several(3)
    office.take()
    urgent = desk.add(priority=75)
    office.finish()
    assert office.take() == [urgent]
    office.finish()
    assert office.take() == [jobs[1]]


def test_parked_jobs_keep_their_place_before_those_that_came_later(desk):
    office = Office(desk, organization_limits={"default": 1})
    jobs = desk.several(3)
    office.take()
    later = desk.several(2)
    order = []
    for _ in range(4):
        office.finish()
        order += office.take()
    assert order == [*jobs[1:], *later]


@pytest.mark.parametrize("outcome", [Failed("x"), Failed("x", permanent=True), Interrupted(), Released(), Completed('"r"')])
def test_every_end_of_a_run_gives_its_place_to_one_who_waits(desk, outcome):
    office = Office(desk, organization_limits={"default": 1})
    jobs = desk.several(2)
    office.take()
    office.finish(outcome=outcome)
    (taken,) = office.take()
    # what keeps its place goes first, and the other is still there
    assert taken in {jobs[1], desk.tail_id(jobs[0])}
    office.finish()
    assert len(office.take()) <= 1


def test_a_lost_worker_gives_its_places_to_those_who_wait(desk):
    office = Office(desk, template_limits={"t": 2})
    jobs = desk.several(4, max_retries=0)
    office.take()
    desk.recover(desk.worker, Crashed())
    assert office.take() == jobs[2:]


def test_a_ready_job_that_is_cancelled_leaves_its_place_to_the_next(desk):
    office = Office(desk, template_limits={"t": 1})
    jobs = desk.several(4)
    office.take()
    office.finish()
    desk.store.cancel(jobs[1], actor=ANNA, now=desk.now)
    assert office.take() == [jobs[2]]


def test_a_ready_job_that_expires_leaves_its_place_to_the_next(desk):
    office = Office(desk, organization_limits={"default": 1})
    running, short = desk.add(), desk.add(expires_at=desk.now + 5 * SECOND)
    last = desk.add()
    assert office.take() == [running]
    office.finish()
    desk.advance(5)
    assert office.take() == [last]
    assert desk.status(short) == "SKIPPED"


def test_ready_jobs_dropped_by_their_group_leave_their_places_to_the_next(desk):
    office = Office(desk, template_limits={"t": 2})
    first, second = desk.several(2, max_retries=0)
    group = desk.grouped([desk.row(max_retries=0) for _ in range(2)], "parallel", "stop")
    last = desk.add()
    assert office.take() == [first, second]
    office.finish(first)
    members = [inside(member.root_id) for member in group.members]
    assert office.take(1) == members[:1]
    office.finish(second)
    office.finish(members[0], outcome=Failed("x", permanent=True))
    assert desk.status(members[1]) == "CANCELLED"
    assert office.take() == [last]


def test_a_parked_job_that_is_cancelled_takes_nobodys_place(desk):
    office = Office(desk, template_limits={"t": 1})
    jobs = desk.several(4)
    office.take()
    desk.store.cancel(jobs[1], actor=ANNA, now=desk.now)
    assert held(desk) == dict.fromkeys(jobs[2:], "template-limit:t")


def test_a_parked_job_that_is_made_more_urgent_goes_first(desk):
    office = Office(desk, template_limits={"t": 1})
    jobs = desk.several(4)
    office.take()
    office.finish()
    desk.store.change(jobs[3], actor=ANNA, now=desk.now, priority=75)
    assert office.take() == [jobs[3]]
    assert held(desk) == dict.fromkeys(jobs[1:3], "template-limit:t")


@pytest.mark.parametrize("moved", [1, 3], ids=["the ready one back", "a parked one forward"])
def test_a_move_of_a_ready_or_a_parked_job_decides_who_is_next(desk, moved):
    office = Office(desk, organization_limits={"default": 1})
    jobs = desk.several(4)
    office.take()
    office.finish()
    if moved == 1:
        desk.store.move(jobs[1], actor=ANNA, now=desk.now, after=jobs[3])
    else:
        desk.store.move(jobs[3], actor=ANNA, now=desk.now, front=True)
    assert office.take() == [jobs[2] if moved == 1 else jobs[3]]


def test_a_type_at_its_limit_does_not_keep_the_place_of_its_organizations_others(desk):
    office = Office(desk, template_limits={"t": 1}, organization_limits={"acme": 2})
    first = desk.add("t", organization_id="acme")
    second = desk.add("u", organization_id="acme")
    blocked, free = desk.add("t", organization_id="acme"), desk.add("u", organization_id="acme")
    assert office.take() == [first, second]
    office.finish(second)
    assert office.take() == [free]
    office.finish(first)
    assert office.take() == [blocked]


def test_a_type_that_no_worker_runs_does_not_keep_the_place_of_its_organizations_others(desk):
    office = Office(desk, organization_limits={"acme": 1})
    running = desk.add("u", organization_id="acme")
    stranded, other = desk.add("t", organization_id="acme"), desk.add("u", organization_id="acme")
    assert office.take() == [running]
    assert set(held(desk)) == {stranded, other}
    office.finish()
    assert office.take(types=("u",)) == [other]


def test_an_organization_at_its_limit_does_not_keep_its_templates_place_from_others(desk):
    office = Office(desk, template_limits={"t": 2}, organization_limits={"acme": 1})
    acme = desk.several(20, organization_id="acme")
    others = desk.several(2, priority=25)
    assert office.take() == [acme[0], others[0]]
    office.finish(others[0])
    assert office.take() == [others[1]]


def test_a_direct_execution_is_never_parked_and_keeps_within_the_limit(desk):
    office = Office(desk, template_limits={"t": 1})
    desk.add()
    (running,) = office.take()
    reservation = desk.reserve()
    assert office.take() == []
    assert desk.job(reservation.job_id).held == "direct"
    office.finish(running)
    assert office.take() == [reservation.job_id]


# ---- the net ---------------------------------------------------------------------------------------------------------


def test_a_limit_that_is_gone_gives_back_what_it_parked(desk):
    office = Office(desk, template_limits={"t": 1}, organization_limits={"acme": 0})
    jobs, others = desk.several(3), desk.several(2, organization_id="acme")
    office.take()
    office.set(template_limits={}, organization_limits={})
    assert office.take() == []
    assert set(office.take(sweep=True)) == {*jobs[1:], *others}


def test_a_limit_that_was_raised_gives_back_as_many_as_may_start(desk):
    office = Office(desk, template_limits={"t": 1})
    jobs = desk.several(6)
    office.take()
    office.set(template_limits={"t": 3})
    assert office.take(sweep=True) == jobs[1:3]
    assert held(desk) == dict.fromkeys(jobs[3:], "template-limit:t")


def test_a_sweep_leaves_alone_what_is_closed_and_what_is_direct(desk):
    office = Office(desk, suspended=frozenset({"acme"}), pauses=frozenset({("organization", "beta")}))
    suspended, paused = desk.add(organization_id="acme"), desk.add(organization_id="beta")
    desk.add()
    office.take()
    assert office.take(sweep=True) == []
    assert held(desk) == {suspended: "suspended:acme", paused: "organization:beta"}
    direct = desk.reserve().job_id
    office.turn(0, sweep=True)
    assert held(desk)[direct] == "direct"


def test_a_sweep_is_bounded_and_asks_to_be_repeated(desk):
    office = Office(desk, suspended=frozenset({"default"}))
    jobs = desk.several(45)
    office.take()
    office.set(suspended=frozenset())
    turned = office.turn(1, sweep=True, limit=20)
    assert [job.job_id for job in turned.claimed] == jobs[:1]
    assert turned.unfinished
    assert set(held(desk)) == set(jobs[20:])
    assert office.take(sweep=True) == jobs[1:]


def test_a_peek_tells_whether_anything_is_parked(desk):
    def parked():
        return desk.store.peek(types=TYPES, worker_id=desk.worker).parked

    assert not parked()
    desk.reserve()
    assert not parked()
    desk.store.give_up(desk.store.reservation().id, now=desk.now, stop_running=False)
    office = Office(desk, template_limits={"t": 0})
    desk.add()
    office.take()
    assert parked()


# ---- rates -----------------------------------------------------------------------------------------------------------


RATE = Rate(3, 60.0)


def test_starts_beyond_the_rate_wait_until_the_window_has_room(desk):
    office = Office(desk, rates={"t": RATE})
    jobs = desk.several(8)
    assert office.take(2) == jobs[:2]
    desk.advance(10)
    assert office.take() == jobs[2:3]
    assert held(desk) == dict.fromkeys(jobs[3:], "rate-limit:t")
    desk.advance(49.999999)
    assert office.take() == []
    desk.advance(0.000001)
    assert office.take() == jobs[3:5]
    desk.advance(10)
    assert office.take() == jobs[5:6]


def test_a_turn_says_when_the_rate_has_room_again(desk):
    office = Office(desk, rates={"t": RATE})
    desk.several(4)
    start = desk.now
    assert office.turn(2).room_at is None
    desk.advance(10)
    turned = office.turn()
    assert turned.room_at == turned.next_due == start + 60 * SECOND
    desk.advance(50)
    assert office.turn().room_at is None


def test_what_is_due_before_the_rate_has_room_comes_first(desk):
    office = Office(desk, rates={"t": RATE})
    desk.several(5)
    desk.add(delay=5)
    turned = office.turn()
    assert (turned.next_due, turned.room_at) == (desk.now + 5 * SECOND, desk.now + 60 * SECOND)


def test_the_starts_of_a_window_and_the_next_moment_can_be_asked_for(desk):
    office = Office(desk, rates={"t": RATE})
    desk.several(5)
    start = desk.now
    office.take(1)
    assert usage(desk, rates={"t": RATE, "u": RATE}).starts == {"t": Starts(1), "u": Starts(0)}
    desk.advance(20)
    office.take()
    assert usage(desk, rates={"t": RATE}).starts == {"t": Starts(3, start + 60 * SECOND)}
    desk.advance(40)
    assert usage(desk, rates={"t": RATE}).starts == {"t": Starts(2)}


def test_a_rate_counts_starts_not_ends_and_of_all_workers(desk, maker):
    office, other = Office(desk, rates={"t": RATE}), Office(Desk(maker.open()), rates={"t": RATE})
    jobs = desk.several(6)
    assert office.take(2) == jobs[:2]
    office.finish()
    assert other.take() == jobs[2:3]
    other.finish()
    assert office.take() == []


def test_a_claim_that_is_undone_leaves_no_start_behind(desk):
    office = Office(desk, rates={"t": RATE})
    desk.several(2)
    office.turn(1)
    with pytest.raises(Exception, match=r"fromhex|surrogate"):
        desk.store.turn(msgspec.structs.replace(desk.request(1, counting=counting_of(office.world)), run_ids=["\ud800"] * 2))
    assert usage(desk, rates={"t": RATE}).starts == {"t": Starts(1)}


def test_a_counted_start_that_did_not_happen_is_taken_back_once(desk):
    office = Office(desk, rates={"t": RATE})
    desk.several(3)
    jobs = office.turn(2).claimed
    endings = [msgspec.structs.replace(desk.ending(job, Released()), unstarted=("t", job.counted_at)) for job in jobs[:1]]
    for _ in range(2):
        # The answer to the first may have been lost.
        desk.turn(endings=endings)
        assert usage(desk, rates={"t": RATE}).starts == {"t": Starts(1)}
    desk.turn(endings=[msgspec.structs.replace(desk.ending(jobs[1], Released()), unstarted=("t", jobs[1].counted_at))])
    assert usage(desk, rates={"t": RATE}).starts == {"t": Starts(0)}


@pytest.mark.parametrize("window", [0.01, 60.0])
def test_a_start_is_counted_at_the_latest_moment_at_which_it_may_happen(desk, window):
    rate = Rate(1, window)
    office = Office(desk, rates={"t": rate})
    desk.several(2)
    claimed = office.turn(within=2 * SECOND).claimed
    assert [job.counted_at for job in claimed] == [desk.now + 2 * SECOND]
    desk.advance(2 + window / 2)
    assert office.take() == []
    desk.advance(window / 2)
    assert len(office.take()) == 1


def test_a_clock_that_was_wrong_does_not_stop_a_rate_for_years(desk):
    office = Office(desk, rates={"t": RATE})
    jobs = desk.several(5)
    desk.advance(4 * 365 * 86_400)
    office.take()
    desk.advance(-4 * 365 * 86_400)
    assert office.take() == jobs[3:]


def test_a_clock_that_steps_back_a_little_lets_no_more_start(desk):
    office = Office(desk, rates={"t": RATE})
    desk.several(5)
    office.take()
    desk.advance(-30)
    assert office.take() == []


def test_a_rate_of_many_never_lets_more_start_than_it_says(desk, monkeypatch):
    monkeypatch.setattr(limits, "STEPS_MAX", 100)
    rate = Rate(120, 600.0)
    office = Office(desk, rates={"t": rate})
    desk.several(200)
    moments = []
    for _ in range(44):
        moments += [desk.now] * len(office.take(12))
        desk.advance(30)
    windows = [sum(start - rate.window < each <= start for each in moments) for start in set(moments)]
    assert max(windows) <= rate.count
    assert len(moments) == 200


def test_a_rate_and_a_limit_of_one_template_hold_together(desk):
    office = Office(desk, rates={"t": RATE}, template_limits={"t": 2})
    jobs = desk.several(6)
    assert office.take() == jobs[:2]
    office.finish()
    assert office.take() == jobs[2:3]
    desk.advance(60)
    assert office.take() == jobs[3:4]
    office.finish()
    assert office.take() == jobs[4:]


# ---- a blocked head --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "world", [{"suspended": frozenset({"loud"})}, {"organization_limits": {"loud": 0}}, {"template_limits": {"u": 0}}], ids=str
)
def test_many_blocked_jobs_at_the_head_do_not_stop_the_rest(desk, monkeypatch, world):
    # A tenth of what a turn looks at and parks, and a tenth of the jobs.
    monkeypatch.setattr(turn, "RUN_LEAST", turn.RUN_LEAST // 10)
    monkeypatch.setattr(turn, "RUN_MAX", turn.RUN_MAX // 10)
    office = Office(desk, **world)
    desk.put(*(desk.row("u", organization_id="loud", priority=75) for _ in range(1000)))
    quiet = desk.several(3, priority=25)
    turns = 0
    while not office.running:
        turns += 1
        turned = office.turn(3, limit=50)
        assert turned.claimed or turned.unfinished
    assert set(office.running) == set(quiet)
    assert turns <= 4


def test_rows_that_are_only_looked_at_come_back_whole_when_they_are_taken(desk):
    office = Office(desk, organization_limits={"loud": 0})
    desk.several(10, organization_id="loud", priority=75)
    desk.add(params='{"n":7}')
    (job,) = office.turn(2).claimed
    assert (job.params, job.organization_id) == ('{"n":7}', "default")


# ---- everything together ------------------------------------------------------------------------------------------------


ORGANIZATIONS = ("default", "acme", "beta")
PICK = st.integers(0, 10_000)
LIMIT = st.sampled_from([None, 0, 1, 2, 3])


class LimitsMachine(RuleBasedStateMachine):
    """Whatever happens: a claim takes the first that may start, in the order of the queue, and exactly those."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="rota-limits-"))
        self.maker = SqliteMaker(self.folder)
        self.desk = Desk(self.maker.open())
        self.office = Office(self.desk)
        self.starts = []
        self.sweep = False

    def teardown(self):
        self.maker.close()
        shutil.rmtree(self.folder)

    @initialize(t=LIMIT, acme=LIMIT, beta=LIMIT, rate=st.booleans())
    def begin(self, t, acme, beta, rate):
        self._limit("template_limits", "t", t)
        self._limit("organization_limits", "acme", acme)
        self._limit("organization_limits", "beta", beta)
        self.office.set(rates={"u": Rate(2, 10.0)} if rate else {})

    @rule(
        job_type=st.sampled_from(TYPES),
        organization=st.sampled_from(ORGANIZATIONS),
        priority=st.sampled_from([25, 50, 75]),
        count=st.integers(1, 4),
        ttl=st.sampled_from([None, None, 7]),
    )
    def enqueue(self, job_type, organization, priority, count, ttl):
        expires_at = None if ttl is None else self.desk.now + ttl * SECOND
        self.desk.several(count, job_type, organization_id=organization, priority=priority, expires_at=expires_at)

    @rule(most=st.sampled_from([1, 2, 3, 50]), types=st.sampled_from([TYPES, TYPES, ("t",), ("u",)]))
    def claim(self, most, types):
        expected = self._expected(most, types)
        taken = self.office.take(most, types=types, sweep=self.sweep)
        self.sweep = self.sweep and set(types) != set(TYPES)
        assert taken == expected
        self._note(taken)

    @precondition(lambda self: self.office.running)
    @rule(pick=PICK, count=st.integers(1, 3), outcome=st.sampled_from([None, None, Failed("x", permanent=True), Released(), Failed("x")]))
    def end(self, pick, count, outcome):
        running = list(self.office.running)
        first = pick % len(running)
        self.office.finish(*running[first : first + count], outcome=outcome)

    @rule()
    def lose_the_worker(self):
        self.desk.recover(self.desk.worker, Interrupted())
        self.office.running.clear()
        self.desk.worker = self.desk.id()

    @rule(pick=PICK)
    def cancel(self, pick):
        self._with_queued(pick, lambda job: self.desk.store.cancel(inside(job.id), actor=ANNA, now=self.desk.now))

    @rule(pick=PICK, priority=st.sampled_from([25, 50, 75]))
    def change(self, pick, priority):
        self._with_queued(pick, lambda job: self.desk.store.change(inside(job.id), actor=ANNA, now=self.desk.now, priority=priority))

    @rule(pick=PICK, other=PICK)
    def move(self, pick, other):
        def move_it(job):
            queued = self.desk.store.queue(limit=1000)
            own = [each for each in queued if (each.organization, each.priority) == (job.organization, job.priority) and each.id != job.id]
            where = {"after": inside(own[other % len(own)].id)} if own and other % 2 else {"front": True}
            self.desk.store.move(inside(job.id), actor=ANNA, now=self.desk.now, **where)

        self._with_queued(pick, move_it)

    @rule(seconds=st.sampled_from([1, 3, 9, 10]))
    def pass_time(self, seconds):
        self.desk.advance(seconds)

    @rule(which=st.sampled_from(["t", "acme", "beta"]), limit=LIMIT)
    def set_limit(self, which, limit):
        self._limit("template_limits" if which == "t" else "organization_limits", which, limit)

    @rule(name=st.sampled_from(ORGANIZATIONS))
    def open_or_close(self, name):
        suspended = self.office.world.suspended
        self.office.set(suspended=suspended ^ {name})
        self.sweep = True

    # ---- what may start, counted by hand --------------------------------------------------------------------------

    def _expected(self, most, types):
        world, now = self.office.world, self.desk.now
        running = Counter(job.job_type for job in self.office.running.values())
        by_organization = Counter(job.organization_id for job in self.office.running.values())
        started = sum(now - at < 10 * SECOND for at in self.starts) if world.rates else 0
        taken = []
        for job in self.desk.store.queue(limit=1000):
            if job.job_type not in types or job.organization in world.suspended or len(taken) == most:
                continue
            if job.expires_at is not None and job.expires_at.timestamp() * SECOND <= now:
                continue
            if running[job.job_type] >= world.template_limits.get(job.job_type, 1000):
                continue
            if by_organization[job.organization] >= world.organization_limits.get(job.organization, 1000):
                continue
            if world.rates and job.job_type == "u" and started >= 2:
                continue
            taken.append(inside(job.id))
            running[job.job_type] += 1
            by_organization[job.organization] += 1
            started += job.job_type == "u"
        return taken

    def _note(self, taken):
        if self.office.world.rates:
            self.starts += [self.desk.now for job_id in taken if self.office.running[job_id].job_type == "u"]

    def _limit(self, kind, name, limit):
        limits = dict(getattr(self.office.world, kind))
        limits.pop(name, None)
        self.office.set(**{kind: limits if limit is None else limits | {name: limit}})
        self.sweep = True

    def _with_queued(self, pick, act):
        queued = self.desk.store.queue(limit=1000)
        if queued:
            act(queued[pick % len(queued)])


TestLimitsMachine = pytest.mark.prove(LimitsMachine.TestCase)
TestLimitsMachine.settings = settings(
    max_examples=size(25, prove=1000),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
