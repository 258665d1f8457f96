"""Figures: every end is counted once, in its hour and among all that are there, and no read needs the history."""

import pytest

from rota.model.decide import Completed, Crashed, Failed, Interrupted, Released, Skipped, Snoozed, TimedOut
from rota.model.gate import Scope
from rota.model.states import Status
from rota.model.values import SECOND
from rota.ports.turns import Choice
from tests.stores.desk import ANNA, inside
from tests.stores.makers import torn_runs


def stats(desk, **options):
    return desk.store.stats(now=desk.now, **options)


def fared(desk, job_type="t", **options):
    return next((each for each in stats(desk, **options).by_type if each.job_type == job_type), None)


def counted(maker):
    """What was counted on the way is what is there."""
    kept, real = maker.totals()
    assert kept == real
    return {status: count for _, _, status, count in real}


# ---- every end, once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Completed('"x"'), "COMPLETED"),
        (Failed("x"), "FAILED"),
        (Failed("x", permanent=True), "DEAD_LETTER"),
        (TimedOut(1.0), "TIMED_OUT"),
        (Skipped("x"), "SKIPPED"),
        (Snoozed(5.0), "SKIPPED"),
        (Released(), "SKIPPED"),
    ],
)
def test_the_end_of_a_run_is_counted(desk, maker, outcome, status):
    desk.add()
    desk.run_to(outcome)
    assert counted(maker) == {status: 1}
    assert stats(desk).by_status[status] == 1


def test_plain_completions_are_counted(desk, maker):
    desk.several(5)
    desk.done(*desk.claim(5))
    assert counted(maker) == {"COMPLETED": 5}


def test_an_ending_whose_reply_was_lost_is_not_counted_again(desk, maker):
    desk.several(4)
    first, second, third, fourth = desk.claim(4)
    plain = desk.request(done=[(first.number, desk.now), (second.number, desk.now)])
    full = desk.request(endings=[desk.ending(third, Failed("x"))])
    for _ in range(3):
        desk.store.turn(plain)
        desk.store.turn(full)
    # Repeated together with one that is new.
    plain.done.append((fourth.number, desk.now))
    desk.store.turn(plain)
    assert counted(maker) == {"COMPLETED": 3, "FAILED": 1}
    assert desk.late() == 0
    assert fared(desk).completed == 3


def test_a_late_result_is_not_counted(desk, maker):
    desk.several(2)
    some = desk.claim(2)
    desk.recover(desk.worker, Crashed())
    desk.advance(1)
    desk.done(*some)
    assert counted(maker) == {"FAILED": 2}
    assert desk.late() == 2


def test_jobs_that_end_waiting_are_counted_without_a_duration(desk, maker):
    cancelled, _ = desk.add(), desk.add(expires_at=desk.now + SECOND)
    desk.store.cancel(cancelled, actor=ANNA, now=desk.now)
    desk.advance(2)
    desk.turn()
    assert counted(maker) == {"CANCELLED": 1, "SKIPPED": 1}
    assert stats(desk).average_s is None


@pytest.mark.parametrize(("rule", "status"), [("stop", "CANCELLED"), ("skip", "SKIPPED")])
def test_members_that_their_groups_rule_ends_are_counted(desk, maker, rule, status):
    desk.grouped([desk.row() for _ in range(3)], on_failure=rule)
    desk.run_to(Failed("x", permanent=True))
    assert counted(maker) == {"DEAD_LETTER": 1, status: 2}


def test_the_cancelled_members_of_a_group_are_counted(desk, maker):
    group = desk.grouped([desk.row() for _ in range(3)])
    desk.store.cancel_group(inside(group.id), actor=ANNA, now=desk.now)
    assert counted(maker) == {"CANCELLED": 3}


def test_children_that_end_because_their_parent_did_are_counted(desk, maker):
    parent = desk.add()
    desk.add(depends_on=(parent,), on_parent_failure="skip")
    desk.add(depends_on=(parent,), on_parent_failure="cancel")
    desk.run_to(Failed("x", permanent=True))
    desk.add(depends_on=(parent,), on_parent_failure="skip")
    assert counted(maker) == {"DEAD_LETTER": 1, "SKIPPED": 2, "CANCELLED": 1}


@pytest.mark.parametrize("outcome", [Crashed(), Interrupted()])
def test_what_recovery_ends_is_counted_and_twice_is_once(desk, maker, outcome):
    desk.several(3)
    desk.claim(3)
    held = desk.held()
    endings = [desk.ending(each.job, outcome) for each in held]
    desk.store.recover(endings, held, now=desk.now)
    desk.store.recover(endings, held, now=desk.now)
    assert counted(maker) == {"FAILED": 3}


@torn_runs
@pytest.mark.parametrize("run_status", ["COMPLETED", "FAILED", "CANCELLED"])
def test_a_job_that_recovery_only_closes_is_counted(desk, maker, run_status):
    desk.add()
    job = desk.claim_one()
    maker.end_run_only(job.number, run_status, desk.now)
    desk.recover(desk.worker, Crashed())
    desk.recover(desk.worker, Crashed())
    assert counted(maker) == {run_status: 1}


def test_a_direct_job_that_was_given_up_is_counted_once_waiting_or_running(desk, maker):
    waiting = desk.reserve()
    desk.store.give_up(waiting.id, now=desk.now, stop_running=False)
    desk.store.give_up(waiting.id, now=desk.now, stop_running=False)
    running = desk.reserve()
    desk.claim_one()
    desk.store.give_up(running.id, now=desk.now, stop_running=True)
    desk.store.give_up(running.id, now=desk.now, stop_running=True)
    assert counted(maker) == {"CANCELLED": 1, "DEAD_LETTER": 1}


def test_an_ending_that_could_not_be_stored_is_counted_as_what_it_became(desk, maker):
    desk.several(2)
    good, bad = desk.claim(2)
    turned = desk.turn(endings=[desk.ending(good, Completed('"x"')), desk.ending(bad, Failed("\ud800"))])
    assert [number for number, _ in turned.refused] == [bad.number]
    assert counted(maker) == {"COMPLETED": 1, "DEAD_LETTER": 1}


# ---- what they say ---------------------------------------------------------------------------------------------------


def test_every_state_is_counted_and_none_is_left_out(desk):
    desk.several(3)
    parent = desk.add(priority=90)
    desk.add(delay=60)
    desk.add(depends_on=(parent,))
    running, done = desk.claim(2)
    desk.done(done)
    del running
    by_status = stats(desk).by_status
    assert set(by_status) == set(map(str, Status))
    assert (by_status["PENDING"], by_status["QUEUED"], by_status["RUNNING"], by_status["COMPLETED"]) == (2, 2, 1, 1)


def test_averages_and_failure_rates_are_of_attempts_by_type(desk):
    for outcome, seconds in ((None, 1), (None, 3), (Failed("x"), 100), (TimedOut(1.0), 100)):
        desk.add("mail")
        job = desk.claim_one(types=["mail"])
        desk.advance(seconds)
        if outcome is None:
            desk.done(job)
        else:
            desk.end(job, outcome)
    desk.add("scan")
    desk.end(desk.claim_one(types=["scan"]), Failed("x", permanent=True))
    mail, scan = fared(desk, "mail"), fared(desk, "scan")
    assert (mail.completed, mail.failed, mail.failure_rate, mail.average_s) == (2, 2, 0.5, 2.0)
    assert mail.p95_s == pytest.approx(3.0, rel=0.1)
    assert (scan.completed, scan.failed, scan.failure_rate, scan.average_s, scan.p95_s) == (0, 1, 1.0, None, None)
    whole = stats(desk)
    assert (whole.average_s, whole.failure_rate, whole.hours) == (2.0, 0.6, 24)


def test_figures_look_back_as_far_as_they_are_asked_to(desk):
    desk.add()
    desk.done(desk.claim_one())
    desk.advance(3 * 3600)
    desk.add()
    desk.done(desk.claim_one())
    assert fared(desk, hours=1).completed == 1
    assert fared(desk, hours=4).completed == 2
    desk.advance(30 * 3600)
    assert fared(desk) is None
    assert stats(desk).by_status["COMPLETED"] == 2


def test_a_clock_that_stepped_back_makes_no_negative_duration(desk):
    desk.add()
    job = desk.claim_one()
    desk.advance(-60)
    desk.done(job)
    assert fared(desk).average_s == 0.0


def test_an_organization_sees_its_own_figures_and_nothing_of_the_rest(desk):
    for organization in ("acme", "default", "other"):
        desk.several(2, organization_id=organization)
        desk.add("late", delay=60, organization_id=organization)
        desk.add("blocked", depends_on=(desk.add(organization_id=organization),), organization_id=organization)
    desk.advance(5)
    claimed = desk.claim(9)
    desk.done(*(job for job in claimed if job.organization_id != "acme"))
    desk.done(*[job for job in claimed if job.organization_id == "acme"][:1])
    own = stats(desk, scope=Scope("acme"))
    assert {status: count for status, count in own.by_status.items() if count} == {"PENDING": 2, "RUNNING": 2, "COMPLETED": 1}
    assert fared(desk, scope=Scope("acme")).completed == 1
    desk.add(organization_id="acme")
    own = stats(desk, scope=Scope("acme"))
    assert (own.by_priority, own.waiting_by_type) == ({50: 1}, {"t": 1})
    assert (own.workers, own.late_results) == (0, 0)
    nobody = stats(desk, scope=Scope("nobody"))
    assert (sum(nobody.by_status.values()), nobody.by_type, nobody.oldest_waiting_s) == (0, (), None)


def test_parked_jobs_wait_too(desk):
    desk.several(2)
    desk.claim(1, choose=lambda jobs, _reservation, _usage: Choice(take=[], park=[(jobs[0].number, "organization:default")]))
    found = stats(desk)
    assert (found.by_status["QUEUED"], found.waiting_by_type, found.by_priority) == (2, {"t": 2}, {50: 2})


def test_the_oldest_wait_is_that_of_the_longest_queued_not_of_the_first_in_line(desk):
    desk.add()
    desk.advance(50)
    desk.add(priority=75)
    desk.store.move(desk.add(), actor=ANNA, now=desk.now, front=True)
    desk.advance(10)
    assert stats(desk).oldest_waiting_s == 60.0


def test_stats_count_by_state_priority_and_type_and_know_the_oldest(desk):
    assert stats(desk).oldest_waiting_s is None
    desk.several(2)
    desk.add("u", priority=75)
    desk.add(delay=60)
    desk.claim(1)
    desk.advance(30)
    desk.add()
    found = stats(desk)
    assert (found.by_status["QUEUED"], found.by_status["PENDING"], found.by_status["RUNNING"], found.by_status["FAILED"]) == (3, 1, 1, 0)
    assert list(found.by_priority.items()) == [(75, 1), (50, 2)]
    assert list(found.waiting_by_type.items()) == [("t", 2), ("u", 1)]
    assert (found.oldest_waiting_s, found.late_results) == (30.0, 0)
