"""Schedules that depend on others: which run is waited for, how long, and that nobody waits for ever."""

import pytest

from rota.errors import StillNeeded
from rota.model.decide import Completed, Failed, Skipped
from rota.model.schedules import Fate, ScheduleState
from rota.model.values import SECOND
from rota.ports.store import Where
from rota.stores.verbs import endings, ledger, recovery
from tests.stores.desk import ANNA, START, inside
from tests.stores.timekeeper import WAIT, Timekeeper

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DEAD = Failed("x", permanent=True)


@pytest.fixture
def desk(store):
    made = Timekeeper(store)
    for name in ("p", "q", "c"):
        made.template(name)
    return made


def family(desk, *, parent=None, child=None):
    """A parent and a child that depends on it, both due every hour unless told otherwise; each has a template of its name."""
    hourly = {"interval": HOUR}
    parent = desk.schedule("parent", template="p", **(hourly | (parent or {})))
    return parent, desk.schedule("child", template="c", depends_on=("parent",), **(hourly | (child or {})))


def jobs(desk, schedule):
    """The first attempts of a schedule, oldest first."""
    found = [job for _, job in desk.store.find(Where(), limit=1000)]
    return [inside(job.id) for job in found[::-1] if inside(job.schedule_id) == schedule.id and job.attempt == 1]


def run(desk, kind, outcome):
    return desk.run_to(outcome, types=[kind])


def by_hand(desk, schedule, kind="p"):
    return desk.add(kind, schedule_id=schedule.id)


# ---- what is taken -----------------------------------------------------------------------------------------------------


def test_both_due_at_the_same_moment_the_parent_fires_first_and_the_child_waits_for_it(desk):
    parent, child = family(desk)
    desk.pass_time(3600)
    (mother,), (kid,) = jobs(desk, parent), jobs(desk, child)
    assert (desk.status(mother), desk.status(kid)) == ("QUEUED", "PENDING")
    desk.advance(60)
    run(desk, "p", Completed(None))
    assert [job.job_id for job in desk.claim(5, types=["c"])] == [kid]


def test_the_order_of_making_does_not_matter(desk):
    first = desk.schedule("first", template="c", interval=HOUR)
    desk.schedule("second", template="p", interval=HOUR)
    desk.change(first.id, depends_on=("second",))
    desk.pass_time(3600)
    assert [each.schedule.name for each in desk.decided[-2:]] == ["second", "first"]
    assert desk.status(jobs(desk, first)[0]) == "PENDING"


def test_a_parent_that_completed_in_the_window_satisfies_at_once(desk):
    parent, child = family(desk, parent={"starts_at": START + 30 * MINUTE})
    desk.pass_time(1800)
    run(desk, "p", Completed(None))
    desk.pass_time(1800)
    assert desk.status(jobs(desk, child)[0]) == "QUEUED"
    assert desk.store.awaited(jobs(desk, child)[0]) == []
    assert len(jobs(desk, parent)) == 1


def test_one_still_under_way_is_waited_for(desk):
    parent, child = family(desk, parent={"starts_at": START + 30 * MINUTE})
    desk.pass_time(1800)
    mother = desk.claim_one(types=["p"])
    desk.pass_time(1800)
    kid = jobs(desk, child)[0]
    assert desk.status(kid) == "PENDING"
    assert desk.store.awaited(kid) == []
    desk.end(mother, Completed(None))
    assert desk.claim_one(types=["c"]).job_id == kid
    assert [mother.job_id] == jobs(desk, parent)


def test_a_run_before_the_window_is_not_taken(desk):
    parent, child = family(desk, parent={"starts_at": START + 30 * MINUTE})
    desk.pass_time(1800)
    run(desk, "p", Completed(None))
    desk.pass_time(1800)
    desk.change(parent.id, state=ScheduleState.DISABLED)
    desk.pass_time(3600)
    assert [desk.status(kid) for kid in jobs(desk, child)] == ["QUEUED", "PENDING"]
    assert desk.store.awaited(jobs(desk, child)[1]) == ["parent"]


def test_of_several_due_times_in_the_window_the_latest_counts(desk):
    parent, child = family(desk, parent={"interval": 20 * MINUTE})
    for _ in range(2):
        desk.pass_time(1200)
        run(desk, "p", Completed(None))
    desk.pass_time(1200)
    (kid,) = jobs(desk, child)
    assert desk.status(kid) == "PENDING"
    run(desk, "p", Completed(None))
    assert desk.claim_one(types=["c"]).job_id == kid
    assert len(jobs(desk, parent)) == 3


@pytest.mark.parametrize("end", [DEAD, Skipped("x")])
def test_a_latest_one_that_is_dead_does_not_satisfy_whatever_came_before(desk, end):
    _, child = family(desk, parent={"interval": 25 * MINUTE})
    desk.pass_time(1500)
    run(desk, "p", Completed(None))
    desk.pass_time(1500)
    run(desk, "p", end)
    desk.pass_time(600)
    (kid,) = jobs(desk, child)
    assert (desk.status(kid), desk.store.awaited(kid)) == ("PENDING", ["parent"])


@pytest.mark.parametrize(("end", "status"), [(Completed(None), "QUEUED"), (DEAD, "PENDING")])
def test_where_the_latest_due_time_did_not_fire_the_latest_chain_that_ended_in_the_window_is_taken(desk, end, status):
    parent, child = family(desk, parent={"interval": 25 * MINUTE})
    desk.pass_time(1500)
    run(desk, "p", end)
    desk.change(parent.id, state=ScheduleState.PAUSED)
    desk.pass_time(1500)
    desk.pass_time(600)
    assert desk.rows(parent.id)[-1].fate is Fate.SKIPPED_PAUSED
    assert desk.status(jobs(desk, child)[0]) == status


def test_a_run_by_hand_in_the_window_counts_where_no_due_time_fired(desk):
    parent, child = family(desk, parent={"state": ScheduleState.DISABLED})
    desk.advance(600)
    by_hand(desk, parent)
    run(desk, "p", Completed(None))
    desk.pass_time(3000)
    assert desk.status(jobs(desk, child)[0]) == "QUEUED"


def test_what_completed_since_the_window_closed_counts_for_one_who_is_late(desk):
    parent, child = family(desk, parent={"state": ScheduleState.DISABLED})
    desk.advance(3600 + 300)
    by_hand(desk, parent)
    run(desk, "p", Completed(None))
    desk.pass_time(300)
    assert desk.status(jobs(desk, child)[0]) == "QUEUED"


def test_all_of_several_are_needed(desk):
    desk.schedule("one", template="p", interval=HOUR)
    desk.schedule("two", template="q", interval=HOUR)
    child = desk.schedule("child", template="c", interval=HOUR, depends_on=("one", "two"))
    desk.pass_time(3600)
    (kid,) = jobs(desk, child)
    run(desk, "p", Completed(None))
    assert desk.status(kid) == "PENDING"
    run(desk, "q", Completed(None))
    assert desk.claim_one(types=["c"]).job_id == kid


def test_a_chain_of_three_due_at_one_moment_runs_one_after_the_other(desk):
    desk.schedule("a", template="p", interval=HOUR)
    desk.schedule("b", template="q", interval=HOUR, depends_on=("a",))
    desk.schedule("c", template="c", interval=HOUR, depends_on=("b",))
    desk.pass_time(3600)
    ran = []
    for _ in range(3):
        job = desk.claim_one(types=["p", "q", "c"])
        assert desk.claim(5, types=["p", "q", "c"]) == []
        desk.end(job, Completed(None))
        ran.append(job.job_type)
    assert ran == ["p", "q", "c"]


def test_a_long_chain_of_dependents_fires_in_order_whatever_the_batch(desk):
    desk.schedule("s0", template="p", interval=HOUR)
    for index in range(1, 30):
        desk.schedule(f"s{index}", template="p", interval=HOUR, depends_on=(f"s{index - 1}",))
    desk.advance(3600)
    while desk.fire(limit=7).unfinished:
        pass
    assert [each.schedule.name for each in desk.decided] == [f"s{index}" for index in range(30)]
    waiting = [job for _, job in desk.store.find(Where(), limit=100) if job.status == "PENDING"]
    assert len(waiting) == 29


# ---- waiting -----------------------------------------------------------------------------------------------------------


def test_a_parent_that_is_retried_is_not_dead(desk):
    _, child = family(desk)
    desk.pass_time(3600)
    (kid,) = jobs(desk, child)
    run(desk, "p", Failed("x"))
    assert (desk.status(kid), desk.store.awaited(kid)) == ("PENDING", [])
    desk.advance(61)
    run(desk, "p", Completed(None))
    assert desk.claim_one(types=["c"]).job_id == kid


def test_a_parent_that_dies_while_it_is_waited_for_leaves_the_child_waiting_for_any_other(desk):
    parent, child = family(desk)
    desk.pass_time(3600)
    (kid,) = jobs(desk, child)
    run(desk, "p", DEAD)
    assert (desk.status(kid), desk.store.awaited(kid)) == ("PENDING", ["parent"])
    by_hand(desk, parent)
    run(desk, "p", DEAD)
    assert desk.status(kid) == "PENDING"
    by_hand(desk, parent)
    run(desk, "p", Completed(None))
    assert desk.claim_one(types=["c"]).job_id == kid
    assert desk.store.awaited(kid) == []


def test_a_dead_parent_that_is_retried_by_hand_and_completes_lets_the_child_go_on(desk):
    parent, child = family(desk)
    desk.pass_time(3600)
    (kid,), (mother,) = jobs(desk, child), jobs(desk, parent)
    run(desk, "p", DEAD)
    desk.store.retry(mother, new_id=desk.id(), actor=ANNA, now=desk.now)
    run(desk, "p", Completed(None))
    assert desk.claim_one(types=["c"]).job_id == kid


def test_a_cancelled_parent_leaves_the_child_waiting_for_any_other(desk):
    parent, child = family(desk)
    desk.pass_time(3600)
    (kid,), (mother,) = jobs(desk, child), jobs(desk, parent)
    desk.store.cancel(mother, actor=ANNA, now=desk.now, reason=None)
    assert (desk.status(kid), desk.store.awaited(kid)) == ("PENDING", ["parent"])


def test_one_that_finishes_late_is_honoured_until_the_next_due_time(desk):
    _, child = family(desk)
    desk.pass_time(3600)
    mother = desk.claim_one(types=["p"])
    desk.pass_time(3599)
    desk.end(mother, Completed(None))
    desk.pass_time(1)
    assert desk.status(jobs(desk, child)[0]) == "QUEUED"
    assert [row.fate for row in desk.rows(child.id)] == ["FIRED", "FIRED"]


def test_one_that_ends_in_the_very_moment_of_giving_up_is_honoured(desk):
    _, child = family(desk)
    desk.pass_time(3600)
    mother = desk.claim_one(types=["p"])
    desk.advance(3600)
    desk.end(mother, Completed(None))
    desk.fire()
    assert [row.fate for row in desk.rows(child.id)] == ["FIRED", "FIRED"]


def test_at_the_next_due_time_the_one_that_still_waits_is_given_up(desk):
    parent, child = family(desk)
    desk.pass_time(3600)
    mother = desk.claim_one(types=["p"])
    desk.advance(3600)
    fired = desk.fire()
    first, second = jobs(desk, child)
    assert [(row.fate, row.status) for row in desk.rows(child.id)] == [("SKIPPED_DEPENDENCY", "SKIPPED"), ("FIRED", "PENDING")]
    assert desk.rows(child.id)[0].reason == desk.job(first).reason == "parent did not complete in time"
    told = [(each.schedule.name, row.fate, row.due_at) for each in fired.settled for row in each.rows]
    assert told == [("child", "SKIPPED_DEPENDENCY", START + HOUR)]
    assert desk.rows(child.id)[0].job_id == first
    desk.end(mother, Completed(None))
    assert (desk.status(first), desk.status(second)) == ("SKIPPED", "PENDING")
    assert len(jobs(desk, parent)) == 2


def test_the_beat_tells_when_somebody_is_to_be_given_up(desk):
    desk.schedule("parent", template="p", interval=HOUR, state=ScheduleState.DISABLED)
    desk.schedule("child", template="c", at=START + HOUR, depends_on=("parent",))
    desk.pass_time(3600)
    assert desk.store.beat_of_schedules().next_at == START + HOUR + WAIT
    desk.now = START + HOUR + WAIT
    desk.fire()
    assert desk.store.beat_of_schedules().next_at is None
    assert [(row.fate, row.status) for row in desk.rows()] == [("SKIPPED_DEPENDENCY", "SKIPPED")]


def test_the_last_due_time_of_a_schedule_that_ended_waits_its_time_and_no_longer(desk):
    _, child = family(desk, parent={"state": ScheduleState.DISABLED}, child={"ends_at": START + HOUR})
    desk.pass_time(3600)
    desk.now += WAIT - SECOND
    desk.fire()
    assert desk.status(jobs(desk, child)[0]) == "PENDING"
    desk.pass_time(1)
    assert desk.status(jobs(desk, child)[0]) == "SKIPPED"


@pytest.mark.parametrize("state", [ScheduleState.PAUSED, ScheduleState.DISABLED])
def test_a_child_that_waits_is_given_up_also_when_its_schedule_has_stopped(desk, state):
    _, child = family(desk, parent={"state": ScheduleState.DISABLED})
    desk.pass_time(3600)
    desk.change(child.id, state=state)
    desk.pass_time(3600)
    assert desk.status(jobs(desk, child)[0]) == "SKIPPED"
    assert desk.rows(child.id)[0].fate is Fate.SKIPPED_DEPENDENCY


def test_a_child_that_waits_is_given_up_also_when_both_schedules_are_gone(desk):
    parent, child = family(desk)
    desk.pass_time(3600)
    desk.drop(child.id)
    desk.drop(parent.id)
    desk.pass_time(3600)
    assert desk.status(jobs(desk, child)[0]) == "SKIPPED"
    assert "parent" in desk.rows(child.id)[0].reason


def test_a_parent_can_not_be_dropped_before_its_child(desk):
    parent, _ = family(desk)
    with pytest.raises(StillNeeded, match="'child'"):
        desk.drop(parent.id)


def test_the_wait_of_a_job_that_was_cancelled_is_over(desk):
    _, child = family(desk)
    desk.pass_time(3600)
    desk.store.cancel(jobs(desk, child)[0], actor=ANNA, now=desk.now, reason=None)
    assert desk.store.beat_of_schedules().next_at == START + 2 * HOUR
    desk.pass_time(3600)
    first = desk.rows(child.id)[0]
    assert (first.fate, first.status) == ("FIRED", "CANCELLED")


def test_who_waits_for_somebody_given_up_goes_on_waiting_for_the_next(desk):
    desk.schedule("a", template="p", interval=HOUR, state=ScheduleState.DISABLED)
    desk.schedule("b", template="q", interval=HOUR, depends_on=("a",))
    late = desk.schedule("c", template="c", interval=2 * HOUR, depends_on=("b",))
    desk.pass_time(7200)
    (kid,) = jobs(desk, late)
    assert desk.status(kid) == "PENDING"
    desk.pass_time(3600)
    assert desk.store.awaited(kid) == ["b"]
    by_hand(desk, desk.store.schedules(name="a")[0])
    run(desk, "p", Completed(None))
    run(desk, "q", Completed(None))
    assert desk.claim_one(types=["c"]).job_id == kid


def test_more_than_are_told_at_once_who_wait_for_one_schedule_are_all_told(desk, monkeypatch):
    for module in (endings, ledger, recovery):
        monkeypatch.setattr(module, "SETTLE_MAX", 50)
    children = 120
    parent = desk.schedule("parent", template="p", interval=HOUR)
    for index in range(children):
        desk.schedule(f"c{index}", template="c", interval=HOUR, depends_on=("parent",))
    desk.advance(3600)
    while desk.fire(limit=70).unfinished:
        pass
    run(desk, "p", DEAD)
    by_hand(desk, parent)
    run(desk, "p", Completed(None))
    ran = 0
    while some := desk.claim(200, types=["c"]):
        desk.done(*some)
        ran += len(some)
    assert ran == children


def test_retention_keeps_a_chain_that_a_live_child_of_another_schedule_waits_for(desk):
    parent, child = family(desk, child={"interval": 100 * 24 * HOUR}, parent={"interval": 100 * 24 * HOUR})
    desk.pass_time(100 * 86_400)
    (mother,), (kid,) = jobs(desk, parent), jobs(desk, child)
    run(desk, "p", Completed(None))
    desk.turn()
    assert desk.status(kid) == "QUEUED"
    desk.advance(40 * 86_400)
    desk.store.purge(before=desk.now - 30 * 24 * HOUR, limit=100, now=desk.now, dry_run=False)
    assert desk.store.job(mother) is not None
    run(desk, "c", Completed(None))
    desk.advance(40 * 86_400)
    desk.store.purge(before=desk.now - 30 * 24 * HOUR, limit=100, now=desk.now, dry_run=False)
    assert desk.store.job(mother) is None
