"""Limits in force: whatever is limited, workers keep to it and nothing waits longer than it must."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta

import pytest

from rota import Actor, Rota, Settings
from rota.model.gate import Role
from rota.model.values import instant
from tests.stores.desk import Desk
from tests.support.pace import patient
from tests.support.waiting import eventually


class Gauge:
    """Counts the handlers that are inside at once, by key, and keeps the highest count."""

    def __init__(self):
        self._lock = threading.Lock()
        self.inside = Counter()
        self.most = Counter()
        self.done = 0

    def __call__(self, key, wait):
        with self._lock:
            self.inside[key] += 1
            self.most[key] = max(self.most[key], self.inside[key])
        wait()
        with self._lock:
            self.inside[key] -= 1
            self.done += 1


@pytest.fixture
def gauge():
    return Gauge()


@pytest.fixture
def fleet(tmp_path):
    """Several workers on one file, as processes would be: each with its own Rota."""
    with ExitStack() as stack:

        def start(define, workers, **running):
            made = []
            for _ in range(workers):
                rota = Rota(tmp_path / "rota.db", settings=Settings(synchronous="NORMAL"))
                stack.callback(rota.close)
                define(rota)
                made.append(rota)
            for rota in made:
                stack.enter_context(rota.running(**running))
            return made

        yield start


def rest():
    threading.Event().wait(0.003)


# ---- running at once ---------------------------------------------------------------------------------------------------


def test_a_template_runs_no_more_at_once_than_it_may_on_all_workers_together(fleet, gauge):
    def define(rota):
        rota.job(lambda: gauge("act", rest), name="act", max_running=3)

    rotas = fleet(define, 3, concurrency=4)
    rotas[0].enqueue_many(("act", None) for _ in range(120))
    eventually(lambda: gauge.done == 120, within=30)
    assert gauge.most["act"] <= 3


def test_an_organization_runs_no_more_at_once_than_it_may_and_the_others_go_on(fleet, gauge):
    def define(rota):
        rota.job(lambda who: gauge(who, rest), name="act")

    rotas = fleet(define, 2, concurrency=4)
    rotas[0].organizations.create("acme", max_running=2)
    rotas[0].enqueue_many((("act", {"who": "acme"}) for _ in range(60)), organization="acme")
    rotas[1].enqueue_many(("act", {"who": "default"}) for _ in range(60))
    eventually(lambda: gauge.done == 120, within=30)
    assert gauge.most["acme"] <= 2
    assert gauge.most["default"] <= 8


def test_what_is_claimed_ahead_counts_too(fleet, gauge):
    def define(rota):
        rota.job(lambda: gauge("act", lambda: None), name="act", max_running=5)

    (rota,) = fleet(define, 1, concurrency=2)
    store = rota._session.open().store
    turn, seen = store.turn, []

    def watched(request):
        turned = turn(request)
        seen.append(sum(worker.running for worker in store.workers()))
        return turned

    store.turn = watched
    rota.enqueue_many(("act", None) for _ in range(400))
    eventually(lambda: gauge.done == 400, within=30)
    assert max(seen) <= 5


def test_one_worker_holds_no_more_of_a_template_than_its_concurrency_and_fills_the_rest_with_others(fleet, gauge):
    doors = threading.Event()

    def define(rota):
        rota.job(lambda: gauge("few", lambda: doors.wait(patient(10))), name="few", concurrency=2)
        rota.job(lambda: gauge("any", lambda: doors.wait(patient(10))), name="any")

    (rota,) = fleet(define, 1, concurrency=6)
    rota.enqueue_many(("few", None) for _ in range(10))
    rota.enqueue_many(("any", None) for _ in range(4))
    eventually(lambda: (gauge.inside["few"], gauge.inside["any"]) == (2, 4))
    assert rota.jobs.list(status="QUEUED", limit=1)[0].held is None
    doors.set()
    eventually(lambda: gauge.done == 14)
    assert gauge.most["few"] == 2


def test_concurrency_is_for_each_worker_by_itself(fleet, gauge):
    doors = threading.Event()

    def define(rota):
        rota.job(lambda: gauge("few", lambda: doors.wait(patient(10))), name="few", concurrency=1)

    (rota, _) = fleet(define, 2, concurrency=4)
    rota.enqueue_many(("few", None) for _ in range(3))
    eventually(lambda: gauge.inside["few"] == 2)
    waiting = eventually(rota.queues.jobs)
    assert rota.explain(waiting[0].id).summary == "its workers hold 2 of at most 2 few jobs"
    doors.set()
    eventually(lambda: gauge.done == 3)


def test_a_template_that_may_not_run_at_all_waits_until_people_say_otherwise(fleet, gauge):
    (rota,) = fleet(lambda rota: rota.job(lambda: gauge("act", rest), name="act", max_running=0), 1)
    job = rota.enqueue("act")
    assert rota.explain(job.id).summary == "0 of at most 0 act jobs run"
    rota.templates.update("act", max_running=1)
    rota.wait(job.id, timeout=patient(10))


# ---- limits that change ------------------------------------------------------------------------------------------------


def test_a_limit_that_is_raised_or_taken_away_lets_the_waiting_go_on(fleet, gauge):
    doors = threading.Event()
    (rota,) = fleet(lambda rota: rota.job(lambda: gauge("act", lambda: doors.wait(patient(20))), name="act"), 1, concurrency=8)
    rota.templates.update("act", max_running=1)
    rota.enqueue_many(("act", None) for _ in range(8))
    eventually(lambda: len([job for job in rota.queues.jobs() if job.held]) == 7)
    rota.templates.update("act", max_running=3)
    eventually(lambda: gauge.inside["act"] == 3)
    rota.templates.update("act", max_running=None)
    eventually(lambda: gauge.inside["act"] == 8)
    doors.set()


def test_a_limit_that_is_gone_from_the_code_lets_the_waiting_go_on(tmp_path, clock):
    def make(**options):
        rota = Rota(tmp_path / "rota.db", clock=clock, seed=7)
        rota.job(lambda: None, name="act", **options)
        return rota

    old = make(rate_limit="1/1h")
    old.enqueue("act")
    job = old.enqueue("act")
    old.turn()
    assert old.jobs.get(job.id).held == "rate-limit:act"
    old.close()
    new = make()
    new.turn()
    assert new.jobs.get(job.id).status == "COMPLETED"
    new.close()


def test_an_organizations_limit_that_is_raised_lets_the_waiting_go_on(rota):
    rota.organizations.create("acme", max_running=0)
    rota.job(lambda: None, name="act")
    jobs = [rota.enqueue("act", organization="acme") for _ in range(3)]
    rota.turn()
    assert {rota.jobs.get(job.id).held for job in jobs} == {"organization-limit:acme"}
    rota.organizations.update("acme", max_running=1)
    rota.turn()
    assert {rota.jobs.get(job.id).status for job in jobs} == {"COMPLETED"}


def test_what_was_parked_and_forgotten_is_found_again(live):
    ran = threading.Event()
    live.job(ran.set, name="act")
    job = live.enqueue("act", run_at=timedelta(hours=1))
    desk = Desk(live._session.open().store)
    live.jobs.update(job.id, run_at=timedelta())
    with live.transaction() as tx:
        tx.execute("UPDATE jobs SET status = 'QUEUED', queued_at = created_at, held = 'organization-limit:default' WHERE number = 1")
    assert desk.store.peek(types=("act",), worker_id=desk.worker).parked
    with live.running():
        assert ran.wait(patient(10))


def test_where_nothing_is_limited_nothing_is_counted(rota):
    rota.job(lambda: None, name="act")
    store = rota._session.open().store
    turn, counted = store.turn, []

    def watched(request):
        counted.append(request.counting)
        return turn(request)

    store.turn = watched
    for _ in range(3):
        rota.enqueue("act")
        rota.turn()
    # the first turn looks once whether anything was left parked
    assert counted[0].sweep
    assert set(counted[1:]) == {None}


# ---- rates -----------------------------------------------------------------------------------------------------------


def test_starts_beyond_the_rate_wait_and_explain_says_until_when(rota, clock):
    rota.job(lambda: None, name="mail", rate_limit="2/60s")
    jobs = [rota.enqueue("mail") for _ in range(5)]
    rota.turn()
    clock.advance(seconds=48)
    assert rota.explain(jobs[2].id).summary == "2 started in the last 60 s; the next may start in 12 s, at 2026-03-01T12:01:00Z"
    rota.turn()
    assert rota.store.stats().by_status["COMPLETED"] == 2
    clock.advance(seconds=12.1)  # a start is counted a little later than its claim
    rota.turn()
    assert rota.store.stats().by_status["COMPLETED"] == 4
    clock.advance(seconds=60.1)
    rota.turn()
    assert rota.store.stats().by_status["COMPLETED"] == 5


def test_a_worker_wakes_by_itself_when_the_rate_has_room(live):
    live.job(lambda: None, name="mail", rate_limit="2/200ms")
    with live.running():
        jobs = [live.enqueue("mail") for _ in range(7)]
        for job in jobs:
            live.wait(job.id, timeout=patient(20))
    starts = sorted(instant(live.jobs.get(job.id).started_at) for job in jobs)
    assert all(third - first >= 200_000 for first, third in zip(starts, starts[2:], strict=False))
    # it waited for the window, not for a tick of something else
    assert starts[-1] - starts[0] < 3_000_000


def test_a_retry_is_a_start_too(rota, clock):
    def fails():
        raise ValueError("x")

    rota.job(fails, name="mail", rate_limit="1/1h", max_retries=1)
    job = rota.enqueue("mail")
    rota.turn()
    clock.advance(minutes=5)
    rota.turn()
    tail = rota.jobs.attempts(job.id)[-1]
    assert (tail.attempt, tail.status, tail.held) == (2, "QUEUED", "rate-limit:mail")
    clock.advance(minutes=55, seconds=1)
    rota.turn()
    assert rota.jobs.attempts(job.id)[-1].status == "DEAD_LETTER"


def test_a_job_that_could_not_start_soon_after_its_claim_is_given_back_and_has_used_up_no_start(rota, clock):
    starts = []

    def slow():
        starts.append(clock.monotonic())
        clock.advance(seconds=0.2)

    rota.job(slow, name="mail", rate_limit="2/60s")
    jobs = [rota.enqueue("mail") for _ in range(3)]
    rota.turn()  # claims two: the second would start 0.2 s after that
    assert [round(at - starts[0], 1) for at in starts] == [0.0, 0.2]
    assert [job.held for job in rota.queues.jobs()] == ["rate-limit:mail"]
    assert [job.status for job in rota.jobs.attempts(jobs[1].id)] == ["SKIPPED", "COMPLETED"]


def test_a_start_is_counted_from_the_latest_moment_at_which_it_may_happen(rota, clock):
    rota.job(lambda: None, name="mail", rate_limit="1/1s")
    rota.enqueue_many([("mail", {})] * 2)
    rota.turn()
    clock.advance(seconds=1.04)
    rota.turn()
    assert rota.store.stats().by_status["COMPLETED"] == 1
    clock.advance(seconds=0.03)
    rota.turn()
    assert rota.store.stats().by_status["COMPLETED"] == 2


# ---- what is told to whom --------------------------------------------------------------------------------------------


def busy(rota, *types):
    """Let a worker that does nothing hold what may start of these types."""
    desk = Desk(rota._session.open().store)
    desk.ids, desk.now = rota._session.ids, rota._session.clock.now()
    desk.worker = desk.id()
    desk.store.register(desk.worker, host="h", kind="worker", job_types=list(types), now=desk.now)
    return desk


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (None, "2 of at most 2 act jobs run"),
        (Actor("ann", "acme", Role.ADMIN), "template act is at its limit"),
        (Actor("bob", "acme", Role.USER), "template act is at its limit"),
    ],
)
def test_only_a_manager_learns_how_many_of_a_template_run(rota, who, words):
    rota.organizations.create("acme")
    rota.job(lambda: None, name="act", max_running=2)
    desk = busy(rota, "act")
    rota.enqueue("act")
    rota.enqueue("act")
    desk.claim(2, types=("act",))
    job = rota.acting_as(Actor("bob", "acme", Role.USER)).enqueue("act", organization="acme")
    assert rota.acting_as(who).explain(job.id).summary == words


def test_an_organization_learns_its_own_figures(rota):
    rota.organizations.create("acme", max_running=1)
    rota.job(lambda: None, name="act")
    desk = busy(rota, "act")
    rota.enqueue("act", organization="acme")
    desk.claim(1, types=("act",))
    ann = Actor("ann", "acme", Role.ADMIN)
    job = rota.acting_as(ann).enqueue("act")
    assert rota.acting_as(ann).explain(job.id).summary == "organization acme runs 1 of at most 1"


def test_an_explanation_names_nobody_of_another_organization(rota):
    rota.organizations.create("acme")
    rota.organizations.create("secret")
    rota.job(lambda: None, name="act", rate_limit="5/60s")
    desk = busy(rota, "act")
    for _ in range(7):
        rota.acting_as(Actor("spy", "secret")).enqueue("act", organization="secret")
    desk.claim(2, types=("act",))
    ann = Actor("ann", "acme", Role.ADMIN)
    job = rota.acting_as(ann).enqueue("act")
    desk.reserve("act", organization_id="secret")
    told = str(rota.acting_as(ann).explain(job.id))
    for word in ("secret", "spy", "anna@here", desk.worker[:8]):
        assert word not in told
    assert "others are ahead of it" in told
    assert "a direct execution takes the next free slot" in told
    assert "anna@here" in str(rota.explain(job.id))


# ---- a blocked head --------------------------------------------------------------------------------------------------


def test_a_great_many_blocked_jobs_at_the_head_do_not_stop_the_rest(live):
    ran = []
    live.organizations.create("loud")
    live.organizations.create("quiet")

    @live.job
    def act(n):
        ran.append(n)

    live.enqueue_many((("act", {"n": n}) for n in range(30_000)), organization="loud")
    live.organizations.suspend("loud")
    job = live.enqueue("act", {"n": "quiet"}, organization="quiet", priority="low")
    with live.running():
        live.wait(job.id, timeout=patient(30))
    assert ran == ["quiet"]
