"""Looking from above: lanes of what waits, what runs, what did not fire, figures. Bounded, and inside the reader's scope."""

from __future__ import annotations

import pytest

from rota.model.decide import Completed, Crashed, Failed
from rota.model.definitions import Organization
from rota.model.gate import EVERYTHING, Scope
from rota.model.schedules import Fate, ScheduleState
from rota.model.values import SECOND, dashed
from rota.ports.executor import Report
from rota.ports.overseeing import MINUTES_KEPT
from rota.ports.store import Where
from tests.stores.desk import ANNA, START, Desk
from tests.stores.timekeeper import Timekeeper

HOUR = 3600 * SECOND


def waiting(desk: Desk, scope: Scope = EVERYTHING, look: int = 10_000):
    return desk.store.waiting(now=desk.now, look=look, scope=scope)


def in_short(lanes):
    return sorted((each.status, each.job_type or "", each.held or "", each.blocked, each.count) for each in lanes)


def park(desk: Desk, word: str):
    from rota.ports.turns import Choice

    desk.claim(10, choose=lambda found, *_: Choice(take=[], park=[(job.number, word) for job in found]))


def test_an_empty_store_has_no_lanes_and_nothing_runs(desk):
    assert waiting(desk) == []
    assert desk.store.running(look=10, limit=10).count == 0
    assert desk.store.unfired(since=0, limit=10) == []
    assert desk.store.dead_lately(since=0, look=10, limit=10) == []
    assert desk.store.shown([]) == {}


def test_ready_jobs_are_lanes_by_type_and_priority_with_the_longest_wait(desk):
    desk.several(3, "a")
    desk.advance(10)
    desk.several(2, "b", priority=75)
    desk.several(4, "b", priority=25)
    assert in_short(waiting(desk)) == [("QUEUED", "a", "", False, 3), ("QUEUED", "b", "", False, 2), ("QUEUED", "b", "", False, 4)]
    assert {each.job_type: each.since for each in waiting(desk)} == {"a": START, "b": START + 10 * SECOND}


def test_what_is_parked_is_told_with_the_word_it_is_parked_under(desk):
    desk.several(3)
    park(desk, "template-limit:t")
    desk.several(1)
    assert in_short(waiting(desk)) == [("QUEUED", "t", "", False, 1), ("QUEUED", "t", "template-limit:t", False, 3)]


def test_what_waits_for_its_time_and_what_waits_for_others_are_told_apart(desk):
    parent = desk.add(delay=60)
    desk.several(2, delay=3600)
    desk.several(3, "child", depends_on=(parent,))
    desk.advance(61)
    due, blocked, later = sorted(waiting(desk), key=lambda each: each.since if not each.blocked else START + 61 * SECOND)
    assert (due.count, due.since, due.blocked) == (1, START + 60 * SECOND, False)
    assert (blocked.count, blocked.job_type, blocked.blocked, blocked.since) == (3, "child", True, START)
    assert (later.count, later.since) == (2, START + 3600 * SECOND)


def test_suspects_that_wait_have_a_lane_of_their_own_while_one_runs(desk):
    chains = desk.several(4)
    desk.claim(4)
    desk.recover(desk.worker, Crashed())
    desk.several(6)
    assert desk.store.suspects() == []
    assert in_short(waiting(desk)) == [("QUEUED", "t", "", False, 10)]
    running = desk.claim_one()
    (suspect,) = desk.store.suspects()
    assert (suspect.worker_id, suspect.number, suspect.executor) == (desk.worker, desk.tail(chains[0]).number, "thread")
    assert running.crashes == 1
    lanes = waiting(desk)
    assert [(lane.suspects, lane.count) for lane in lanes] == [(True, 3), (False, 6)]
    assert desk.store.shown([lanes[0].number])[lanes[0].number].root_id == chains[1]
    scoped = waiting(desk, Scope("default", "nobody"))
    assert scoped == []


def test_counting_stops_at_the_bound_and_says_so(desk):
    desk.several(1200)
    (lane,) = waiting(desk, look=1)
    assert (lane.count, lane.more) == (1000, True)
    (lane,) = waiting(desk, look=5000)
    assert (lane.count, lane.more) == (1200, False)


@pytest.fixture
def shared(desk):
    desk.store.put_organization(Organization(name="acme", display_name="Acme"), actor=ANNA, now=desk.now)
    for organization, owner, count in (("default", "x", 5), ("acme", "ada", 2), ("acme", "bob", 1)):
        desk.several(count, organization_id=organization, owner=owner)
        desk.several(count, organization_id=organization, owner=owner, delay=600)
        desk.several(
            count, organization_id=organization, owner=owner, depends_on=(desk.add("parent", organization_id=organization, delay=900),)
        )
    return desk


@pytest.mark.parametrize(("scope", "count"), [(Scope("acme"), 3), (Scope("acme", "bob"), 1), (Scope("acme", "x"), 0), (Scope("none"), 0)])
def test_a_scope_counts_its_own_and_nobody_elses(shared, scope, count):
    found = [lane for lane in waiting(shared, scope) if lane.job_type == "t" or (lane.status == "PENDING" and not lane.blocked)]
    by = {kind: sum(lane.count for lane in found if (lane.status, lane.blocked) == kind) for kind in (("QUEUED", False), ("PENDING", True))}
    assert by == {("QUEUED", False): count, ("PENDING", True): count}


def test_examples_of_a_scope_are_its_own(shared):
    numbers = [lane.number for lane in waiting(shared, Scope("acme", "bob"))]
    jobs = [shared.store.job(each.id.replace("-", "")) for each in shared.store.shown(numbers).values()]
    assert jobs
    assert {(job.organization, job.owner) for job in jobs} == {("acme", "bob")}


def test_a_job_is_shown_by_its_chain_and_attempt(desk):
    job_id = desk.add()
    desk.run_to(Failed("x"))
    desk.advance(100)
    desk.turn()
    (lane,) = waiting(desk)
    shown = desk.store.shown([lane.number])[lane.number]
    assert (shown.root_id, shown.attempt, shown.id) == (job_id, 2, dashed(desk.tail_id(job_id)))


def test_what_runs_comes_longest_first_with_its_progress(desk):
    first = desk.add()
    job = desk.claim_one()
    desk.turn(reports=[Report(job.number, progress=40, message="four of ten")])
    desk.advance(5)
    desk.several(3)
    desk.claim(3)
    found = desk.store.running(look=100, limit=2)
    assert (found.count, found.more, len(found.jobs)) == (4, False, 2)
    assert found.jobs[0].job.id == dashed(first)
    assert (found.jobs[0].progress, found.jobs[0].message) == (40, "four of ten")
    assert found.jobs[1].progress is None
    assert desk.store.running(look=2, limit=2).more
    assert desk.store.running(look=9, limit=9, scope=Scope("acme")).count == 0
    assert desk.store.running(look=9, limit=9, scope=Scope("default", "nobody")).jobs == []


def test_dead_letters_come_with_what_they_died_of_until_they_are_retried(desk):
    job_id = desk.add(max_retries=0)
    desk.run_to(Failed("ValueError: boom"))
    (dead,) = desk.store.dead_lately(since=START, look=10, limit=10)
    assert (dead.job.id, dead.reason, dead.at, dead.organization) == (dashed(job_id), "ValueError: boom", START, "default")
    assert desk.store.dead_lately(since=START + 1, look=10, limit=10) == []
    assert desk.store.dead_lately(since=START, look=10, limit=10, scope=Scope("acme")) == []
    desk.store.retry(job_id, new_id=desk.id(), actor=ANNA, now=desk.now)
    assert desk.store.dead_lately(since=START, look=10, limit=10) == []


def test_due_times_that_did_not_fire_are_told_latest_first(store):
    keeper = Timekeeper(store)
    keeper.schedule("paused", state=ScheduleState.PAUSED)
    keeper.schedule("fires")
    for _ in range(5):
        keeper.pass_time(60)
    (row,) = store.unfired(since=START, limit=10)
    assert (row.schedule, row.fate, row.organization) == ("paused", Fate.SKIPPED_PAUSED, "default")
    assert row.count == 5
    assert row.last_due_at == START + 300 * SECOND
    assert store.unfired(since=keeper.now + 1, limit=10) == []
    assert store.unfired(since=START, limit=10, scope=Scope("acme")) == []
    assert store.unfired(since=START, limit=10, scope=Scope("default", "bob")) == []


def test_figures_add_up_over_hours_and_hourly_ones_tell_them_apart(desk):
    for _ in range(2):
        desk.several(2)
        done = desk.claim(2)
        desk.advance(1)
        desk.done(*done)
        desk.advance(3600)
    desk.add(max_retries=0)
    desk.run_to(Failed("x"))
    by_status = {}
    for figure in desk.store.figures(since=START):
        by_status[figure.status] = by_status.get(figure.status, 0) + figure.count
    assert by_status == {"COMPLETED": 4, "DEAD_LETTER": 1}
    assert {figure.hour for figure in desk.store.hourly(since=START)} == {START, START + HOUR, START + 2 * HOUR}
    assert {figure.organization for figure in desk.store.hourly(since=START)} == {"default"}
    assert desk.store.hourly(since=START, scope=Scope("acme")) == desk.store.figures(since=START, scope=Scope("acme")) == []
    assert desk.store.kept("DEAD_LETTER") == {"t": 1}
    assert desk.store.kept("DEAD_LETTER", scope=Scope("acme")) == {}


def test_what_is_kept_with_jobs_is_told_of_those_that_have_something(desk):
    desk.put(desk.row(meta='{"a": 1}'), desk.row())
    numbers = [job.number for job in desk.claim(2)]
    assert list(desk.store.metas(numbers).values()) == ['{"a": 1}']


def test_a_trend_adds_figures_up_by_minutes_and_by_hours_and_says_where_it_is_cut(desk):
    for wait_s, outcome, job_type in ((0, Completed(), "t"), (70, Completed(), "u"), (30, Failed("x"), "t"), (3600, Completed(), "t")):
        desk.advance(wait_s)
        desk.add(job_type, max_retries=0)
        desk.run_to(outcome, types=("t", "u"))

    def seen(step_s: int, **options):
        found = desk.store.trend(since=START, step=step_s * SECOND, **{"look": 100, **options})
        assert sum(map(sum, map(dict.values, found.took.values()))) == sum(each.count for each in found.ends if each.status == "COMPLETED")
        return sorted(((each.period - START) // SECOND, each.job_type, each.status, each.count) for each in found.ends), found.more

    by_minute = [(0, "t", "COMPLETED", 1), (60, "t", "DEAD_LETTER", 1), (60, "u", "COMPLETED", 1), (3660, "t", "COMPLETED", 1)]
    assert seen(60) == (by_minute, False)
    by_hour = [(0, "t", "COMPLETED", 1), (0, "t", "DEAD_LETTER", 1), (0, "u", "COMPLETED", 1), (3600, "t", "COMPLETED", 1)]
    assert seen(900) == seen(3600) == (by_hour, False)
    assert desk.store.trend(since=START, step=3600 * SECOND, look=1).since == START + HOUR
    assert seen(60, job_type="u") == ([by_minute[2]], False)
    assert seen(60, look=1) == ([by_minute[-1]], True)
    assert seen(60, scope=Scope("acme")) == ([], False)
    desk.advance(MINUTES_KEPT // SECOND - 3600)
    for _ in range(3):
        desk.store.purge(before=0, limit=100, now=desk.now, figures_before=0, dry_run=False)
    assert seen(60) == ([by_minute[-1]], False)
    assert len(seen(3600)[0]) == 4


def test_errors_of_attempts_are_told_of_those_that_have_one(desk):
    desk.add(max_retries=0)
    desk.run_to(Failed("ValueError: " + "x" * 600))
    desk.add()
    desk.run_to(Completed())
    numbers = [number for number, _ in desk.store.find(Where(), limit=10)]
    assert desk.store.errors(numbers) == {numbers[-1]: "ValueError: " + "x" * 488}
    assert desk.store.errors([]) == {}


def test_a_pause_is_told_with_since_when_and_by_whom(desk):
    desk.store.pause("template", "t", actor=ANNA, now=desk.now)
    desk.advance(5)
    desk.store.pause("all", "", actor=ANNA, now=desk.now)
    first, second = desk.store.paused()
    assert (first.kind, first.name, first.at, first.by) == ("template", "t", START, "anna")
    assert (second.kind, second.at) == ("all", START + 5 * SECOND)
