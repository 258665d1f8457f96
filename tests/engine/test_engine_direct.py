"""Direct execution: ahead of the queue, one at a time, bounded, never retried."""

import threading
import time

import pytest

from rota import PermanentError, Rota, Settings, Snooze
from rota.errors import Refused, ResourceBusy, StoreUnavailable
from rota.executors.invoke import enter_handlers, leave_handlers
from rota.model.values import moment
from tests.engine import suspected
from tests.stores.desk import Desk, inside
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually


@pytest.fixture
def add(rota):
    return rota.job(lambda a, b: a + b, name="add")


class Gate:
    """A handler that blocks until it is let through; what ran stands in `ran`."""

    def __init__(self, rota):
        self.open, self.entered, self.ran = threading.Event(), threading.Event(), []

        @rota.job(max_retries=0)
        def block(n):
            self.ran.append(n)
            self.entered.set()
            self.open.wait(patient(20))
            return n

        @rota.job
        def note(n):
            self.ran.append(n)
            return n


@pytest.fixture
def gate(live):
    made = Gate(live)
    yield made
    made.open.set()


class Call(threading.Thread):
    """A direct call on a thread of its own."""

    def __init__(self, rota, name, **fields):
        super().__init__(daemon=True)
        self.rota, self.name_, self.fields = rota, name, fields
        self.value = None
        self.start()

    def run(self):
        try:
            self.value = self.rota.jobs.direct(self.name_, **self.fields)
        except Exception as error:
            self.value = error

    def result(self, within=15):
        self.join(within)
        assert not self.is_alive(), "the direct call did not return"
        return self.value


# ---- idle ------------------------------------------------------------------------------------------------------------


def test_with_nobody_else_there_it_runs_at_once_in_the_caller(rota, add):
    run = rota.jobs.direct("add", {"a": 2, "b": 3})
    assert (run.status, run.result) == ("COMPLETED", 5)
    job = rota.jobs.get(run.job_id)
    assert (job.status, job.origin, job.attempt) == ("COMPLETED", "direct", 1)
    assert rota.workers.list() == [worker for worker in rota.workers.list() if worker.kind == "client"]


def test_it_leaves_the_queue_as_it_was(rota, add):
    waiting = [rota.enqueue("add", {"a": 1, "b": n}).id for n in range(3)]
    rota.jobs.direct("add", {"a": 2, "b": 3})
    assert [job.id for job in rota.queues.jobs()] == waiting


def test_it_runs_nobody_elses_job_in_the_callers_thread(rota):
    ran = []
    rota.job(lambda n: ran.append(n) or n, name="note")
    rota.enqueue("note", {"n": 1})
    rota.jobs.direct("note", {"n": 99})
    assert ran == [99]


def test_one_that_is_paused_is_refused_at_once_and_runs_when_it_is_resumed(rota, add):
    rota.templates.pause("add")
    with pytest.raises(ResourceBusy, match=r"^resource busy: template add is paused; try again after `rota template resume add`"):
        rota.jobs.direct("add", {"a": 1, "b": 1})
    assert rota.jobs.list() == []
    rota.templates.resume("add")
    assert rota.jobs.direct("add", {"a": 1, "b": 1}).result == 2


def test_one_after_the_other_is_no_conflict(rota, add):
    assert [rota.jobs.direct("add", {"a": n, "b": 1}).result for n in range(3)] == [1, 2, 3]


def test_an_idle_worker_runs_it(live, gate):
    with live.running(concurrency=2):
        run = live.jobs.direct("note", {"n": 7})
        assert run.result == 7
        (worker,) = [worker for worker in live.workers.list() if worker.kind == "worker"]
        assert inside(live.jobs.get(run.job_id).worker_id) == inside(worker.id)


def test_one_of_a_rate_limited_template_runs_although_its_process_takes_a_while_to_start(live):
    live.job(suspected.quick, name="act", executor="process", rate_limit="5/1s")
    with live.running(concurrency=2):
        assert live.jobs.direct("act", timeout=patient(30)).status == "COMPLETED"


def test_one_of_a_rate_limited_template_runs_although_the_reply_to_its_claim_was_lost(rota, monkeypatch):
    rota.job(suspected.quick, name="act", rate_limit="5/1s")
    store = rota._session.open().store
    turn, lost = store.turn, []

    def lose(request):
        turned = turn(request)
        if turned.claimed and not lost:
            lost.append(request)
            raise StoreUnavailable("the reply was lost")
        return turned

    monkeypatch.setattr(store, "turn", lose)
    assert rota.jobs.direct("act").status == "COMPLETED"
    assert lost


def test_after_a_turn_by_hand_it_still_runs_at_once(rota, add):
    rota.turn()
    assert rota.jobs.direct("add", {"a": 1, "b": 1}, timeout=0.3).result == 2


# ---- busy ------------------------------------------------------------------------------------------------------------


def test_with_no_free_slot_it_runs_when_one_frees_before_the_rest_of_the_queue(live, gate):
    with live.running(concurrency=1):
        live.enqueue("block", {"n": 0})
        assert gate.entered.wait(patient(10))
        for n in (1, 2):
            live.enqueue("note", {"n": n})
        call = Call(live, "note", params={"n": 99})
        eventually(live._session.open().store.reservation, what="the reservation")
        assert gate.ran == [0]
        gate.open.set()
        assert call.result().result == 99
        eventually(lambda: len(gate.ran) == 4, what="the rest of the queue")
    assert gate.ran == [0, 99, 1, 2]


@pytest.mark.paired
def test_without_a_slot_in_time_it_is_cancelled_and_names_who_holds_them(live, gate):
    with live.running(concurrency=1):
        live.enqueue("block", {"n": 0})
        assert gate.entered.wait(patient(10))
        waits = live.enqueue("note", {"n": 1})
        with pytest.raises(ResourceBusy, match=r"no slot became free in time; held by .*\(1 running\)"):
            live.jobs.direct("note", {"n": 99}, timeout=0.2)
        assert live._session.open().store.reservation() is None
        (cancelled,) = live.jobs.list(status="CANCELLED")
        assert cancelled.origin == "direct"
        gate.open.set()
        live.wait(waits.id, timeout=patient(10))
    assert gate.ran == [0, 1]


@pytest.mark.paired
def test_a_second_one_waits_and_then_says_whose_is_under_way(live, gate):
    with live.running(concurrency=2):
        call = Call(live.acting_as("anna"), "block", params={"n": 0})
        assert gate.entered.wait(patient(10))
        with pytest.raises(ResourceBusy, match=r"resource busy: the direct execution .* by anna@.* is under way"):
            live.jobs.direct("note", {"n": 1}, timeout=0.2)
        assert gate.ran == [0]
        second = Call(live, "note", params={"n": 2}, timeout=10)
        gate.open.set()
        assert (call.result().result, second.result().result) == (0, 2)


def test_while_it_runs_the_other_slots_are_the_queues(live, gate):
    with live.running(concurrency=2):
        call = Call(live, "block", params={"n": 0})
        assert gate.entered.wait(patient(10))
        job = live.enqueue("note", {"n": 1})
        assert live.wait(job.id, timeout=patient(10)).result == 1
        assert live.jobs.list(status="RUNNING")[0].origin == "direct"
        gate.open.set()
        call.result()


# ---- failed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("x"), PermanentError("x"), Snooze(5), SystemExit(3)], ids=repr)
def test_a_failed_direct_run_is_recorded_and_never_retried_not_after_a_restart_either(rota, clock, tmp_path, error):
    ran = []

    def register(target):
        @target.job(max_retries=5)
        def fails():
            ran.append(1)
            raise error

    register(rota)
    run = rota.jobs.direct("fails")
    assert run.status == "FAILED"
    assert rota.jobs.get(run.job_id).status == "DEAD_LETTER"
    rota.close()
    again = Rota(tmp_path / "rota.db", clock=clock, seed=8)
    register(again)
    for _ in range(3):
        clock.advance(hours=12)
        again.store.recover()
        again.turn()
    assert len(again.jobs.attempts(run.job_id)) == 1
    assert len(ran) == 1
    again.close()


def test_a_direct_call_whose_caller_died_is_not_run_after_a_restart(rota, clock, tmp_path, add):
    store = rota._session.open().store
    desk = Desk(store)
    desk.ids, desk.now = rota._session.ids, clock.now()
    desk.worker = desk.id()
    store.register(desk.worker, host="h", kind="client", job_types=[], now=clock.now())
    reservation = desk.reserve("add", params='{"a":1,"b":1}')
    lease = rota._session.open().liveness.take(desk.worker)
    lease.release(clean=False)
    rota.store.recover()
    assert (rota.jobs.get(reservation.job_id).status, store.reservation()) == ("CANCELLED", None)
    rota.turn()
    assert run_of(rota, reservation.job_id) is None


@pytest.mark.paired
def test_its_expiry_is_enforced_while_it_runs(tmp_path):
    rota = Rota(tmp_path / "short.db", settings=Settings(reservation_ttl=1.0))
    gate = Gate(rota)
    try:
        with rota.running(concurrency=1):
            began = time.monotonic()
            run = rota.jobs.direct("block", {"n": 0}, timeout=patient(10))
            assert run.status == "FAILED"
            assert 0.9 <= time.monotonic() - began < patient(8)
            assert rota._session.open().store.reservation() is None
            gate.open.set()
            job = rota.enqueue("note", {"n": 1})
            assert rota.wait(job.id, timeout=patient(10)).result == 1
    finally:
        gate.open.set()
        rota.close()


def test_an_expired_reservation_is_given_up_by_whoever_looks(rota, clock, add):
    desk = Desk(rota._session.open().store)
    desk.ids, desk.now = rota._session.ids, clock.now()
    reservation = desk.reserve("add", ttl=60, params='{"a":1,"b":1}')
    waiting = rota.enqueue("add", {"a": 1, "b": 2})
    clock.advance(seconds=61)
    assert rota.store.recover().reservations == 1
    assert rota.jobs.get(reservation.job_id).status == "CANCELLED"
    rota.turn()
    assert rota.jobs.get(waiting.id).status == "COMPLETED"


def test_from_inside_a_handler_it_is_refused_and_the_attempt_is_not_repeated(rota, add):
    @rota.job(max_retries=5)
    def nested():
        rota.jobs.direct("add", {"a": 1, "b": 1})

    job = rota.enqueue("nested")
    rota.turn()
    assert "direct execution from inside a handler" in run_of(rota, job.id).error
    assert [each.status for each in rota.jobs.attempts(job.id)] == ["DEAD_LETTER"]
    token = enter_handlers()
    try:
        with pytest.raises(Refused):
            rota.jobs.direct("add", {"a": 1, "b": 1})
    finally:
        leave_handlers(token)


def test_a_handler_may_catch_the_refusal(rota, add):
    @rota.job
    def nested():
        try:
            rota.jobs.direct("add", {"a": 1, "b": 1})
        except Refused as refused:
            return refused.code

    job = rota.enqueue("nested")
    rota.turn()
    assert run_of(rota, job.id).result == "refused"


def test_its_run_has_its_times(rota, clock, add):
    run = rota.jobs.direct("add", {"a": 1, "b": 1})
    assert run.started_at == moment(clock.now())
