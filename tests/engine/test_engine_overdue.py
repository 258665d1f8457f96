"""What is overdue: worked out by the trigger's own decision, while nobody is there to record it."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from rota import Rota, Settings
from rota.engine.overdue import overdue
from rota.errors import InvalidSchedule
from rota.model import schedules
from rota.model.gate import Scope
from rota.model.schedules import Fate
from rota.model.values import SECOND, instant, undashed
from tests.support.clock import ManualClock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def rota(url):
    made = Rota(url, clock=ManualClock(NOON), settings=Settings(synchronous="NORMAL", retention=0), seed=7)
    made.job(name="work")(lambda: None)
    made.job(name="held")(lambda: None)
    made.templates.pause("held")
    yield made
    made.close()


@pytest.fixture
def clock(rota):
    return rota._session.clock


def look(rota, **options):
    store = rota._session.open().store
    return overdue(store, rota._session.registry, rota.settings, now=rota._session.clock.now(), **options)


def found(rota, **options):
    return [(each.schedule, each.count) for each in look(rota, **options).schedules]


def test_due_times_without_an_outcome_are_overdue_with_their_first_last_and_number(rota, clock):
    view = rota.schedule("s", "work", every="5s")
    clock.advance(seconds=92)
    (each,) = look(rota).schedules
    assert (each.schedule, each.schedule_id, each.organization) == ("s", undashed(view.id), "default")
    assert (each.due_at, each.last_due_at, each.count) == (instant(NOON) + 5 * SECOND, instant(NOON) + 90 * SECOND, 18)
    assert each.outcomes == {Fate.FIRED: 1, Fate.COALESCED: 17}
    assert (each.expected, each.bounded) == (18, False)


def test_one_schedule_is_worked_out_in_line_with_the_others_that_share_the_rate_of_catching_up(tmp_path):
    clock = ManualClock(NOON)
    with closing(Rota(tmp_path / "rota.db", clock=clock, settings=Settings(retention=0, catch_up_rate="1/600s"))) as rota:
        rota.job(name="work")(lambda: None)
        rota.schedule("first", "work", every="1000s")
        second = undashed(rota.schedule("second", "work", every="1010s").id)
        clock.advance(seconds=3500)
        _, among_all = look(rota).schedules
        (alone,) = look(rota, schedule_id=second).schedules
        (in_scope,) = [each for each in look(rota, scope=Scope("default")).schedules if each.schedule_id == second]
        rota.turn()
        recorded = sum(row.count for row in rota.schedules.occurrences(schedule="second") if row.fate is Fate.COALESCED)
    assert [each.outcomes for each in (among_all, alone, in_scope)] == [{Fate.COALESCED: recorded}] * 3


def test_nothing_is_overdue_once_a_worker_has_recorded_it(rota, clock):
    rota.schedule("s", "work", every="5s")
    clock.advance(seconds=92)
    rota.turn()
    assert look(rota, tolerance=0).schedules == ()


def test_what_a_worker_may_still_record_in_time_is_not_overdue(rota, clock):
    rota.schedule("s", "work", every="5s")
    clock.advance(seconds=5 + rota.settings.lease_ttl - 0.001)
    assert found(rota) == []
    clock.advance(seconds=0.001)
    assert found(rota) == [("s", 7)]
    assert found(rota, tolerance=0) == [("s", 7)]


def test_where_nothing_is_due_nothing_is_worked_out(rota, clock, monkeypatch):
    rota.schedule("s", "work", every="5m")
    clock.advance(seconds=299)

    def never(*_args):
        raise AssertionError

    monkeypatch.setattr("rota.engine.overdue.Decider", never)
    monkeypatch.setattr(type(rota._session.registry), "sync", never)
    assert look(rota, tolerance=0).schedules == ()


def test_a_look_writes_nothing(rota, clock):
    rota.schedule("s", "work", every="5s")
    clock.advance(seconds=92)
    before = rota.schedules.get("s")
    assert look(rota) == look(rota)
    assert rota.schedules.get("s") == before
    assert rota.jobs.list() == []


def test_a_disabled_and_a_deleted_schedule_are_never_overdue(rota, clock):
    for name in ("off", "gone", "there"):
        rota.schedule(name, "work", every="5s")
    rota.schedules.disable("off")
    rota.schedules.delete("gone")
    clock.advance(seconds=92)
    assert found(rota) == [("there", 18)]


def test_due_times_that_nobody_expects_to_run_are_counted_and_not_expected(rota, clock):
    rota.calendars.update("off", ["2026-03-01"])
    rota.schedule("excluded", "work", every="1h", calendar="off")
    rota.schedule("paused", "work", every="1h")
    rota.schedules.pause("paused")
    clock.advance(hours=14)
    by_name = {each.schedule: each for each in look(rota).schedules}
    assert (by_name["paused"].count, by_name["paused"].expected) == (14, 0)
    assert (by_name["excluded"].count, by_name["excluded"].expected) == (14, 3)
    assert [each.schedule for each in look(rota).alarming] == ["excluded"]
    assert look(rota).expected == 3


def test_what_stands_in_the_way_of_a_firing_is_told_as_the_trigger_would_decide_it(rota, clock):
    rota.schedule("busy", "held", every="1m")
    rota.schedule("refused", "work", every="1m")
    clock.advance(minutes=1)
    rota.turn()
    rota.templates.disable("work")
    clock.advance(minutes=2)
    assert {each.schedule: each.outcomes for each in look(rota).schedules} == {
        "busy": {Fate.COALESCED: 1, Fate.SKIPPED_OVERLAP: 1},
        "refused": {Fate.COALESCED: 1, Fate.REFUSED: 1},
    }


def test_what_fired_already_when_the_clock_was_ahead_is_not_overdue_again(rota, clock):
    rota.schedule("s", "work", every="1m")
    clock.advance(minutes=5)
    rota.turn()
    clock.step(minutes=-3)
    rota.turn()
    clock.advance(minutes=5)
    # Minute 5 has fired; 3, 4, 6 and 7 have no outcome.
    assert found(rota) == [("s", 4)]


def test_an_organization_sees_what_is_its_own_and_an_owner_what_it_made(rota, clock):
    rota.organizations.create("shop")
    rota.schedule("theirs", "work", every="5s", organization="shop")
    rota.schedule("ours", "work", every="5s")
    clock.advance(seconds=92)
    assert sorted(found(rota)) == [("ours", 18), ("theirs", 18)]
    assert found(rota, scope=Scope("shop")) == [("theirs", 18)]
    owner = rota.schedules.get("ours").created_by
    assert found(rota, scope=Scope("default", owner)) == [("ours", 18)]
    assert found(rota, scope=Scope("default", "nobody")) == []


def test_one_schedule_can_be_asked_for(rota, clock):
    views = [rota.schedule(name, "work", every="5s") for name in ("a", "b")]
    clock.advance(seconds=92)
    assert found(rota, schedule_id=undashed(views[1].id)) == [("b", 18)]
    clock.step(seconds=-80)
    assert found(rota, schedule_id=undashed(views[1].id)) == []


def test_no_more_schedules_are_worked_out_than_asked_for_and_it_says_so(rota, clock):
    for number in range(5):
        rota.schedule(f"s{number}", "work", every="5s")
        clock.advance(seconds=1)
    clock.advance(minutes=2)
    few = look(rota, limit=3)
    assert ([each.schedule for each in few.schedules], few.more) == (["s0", "s1", "s2"], True)
    assert (len(look(rota, limit=5).schedules), look(rota, limit=5).more) == (5, False)


def test_a_schedule_that_can_not_be_read_here_is_overdue_from_what_the_store_knows(rota, clock, monkeypatch):
    rota.schedule("s", "work", cron="*/5 * * * *", timezone="Europe/Berlin")
    rota.schedule("fine", "work", every="5m")
    clock.advance(minutes=11)

    def unknown(name):
        raise InvalidSchedule(f"timezone={name!r}")

    for cached in (schedules.lattice_of, schedules.next_due, schedules.next_look):
        cached.cache_clear()
    monkeypatch.setattr(schedules, "zone_of", unknown)
    by_name = {each.schedule: each for each in look(rota).schedules}
    assert (by_name["s"].count, by_name["s"].bounded, by_name["s"].expected) == (1, True, 1)
    assert by_name["s"].due_at == instant(NOON + timedelta(minutes=5))
    assert (by_name["fine"].count, by_name["fine"].bounded) == (2, False)
