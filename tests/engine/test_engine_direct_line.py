"""A direct execution is the first in line and holds up nobody: who is refused at once, who waits, and that all others go on."""

import threading
import time
from contextlib import closing

import pytest

from rota import Rota, Settings
from rota.errors import ResourceBusy, TemplateUnavailable
from rota.model.gate import Actor, Role
from rota.surfaces.http.pages.workers import set_pause
from tests.engine.test_engine_direct import Call, Gate
from tests.stores.desk import Desk
from tests.support.pace import patient
from tests.support.waiting import eventually

BOB = Actor("bob", "acme", Role.USER)
EVE = Actor("eve", "beta", Role.USER)


@pytest.fixture
def shared(rota):
    """Two organizations, a handler that all may use, and templates that cannot run now."""
    rota.organizations.create("acme")
    rota.organizations.create("beta")
    rota.job(lambda: "done", name="good")
    rota.job(lambda: "done", name="limited", max_running=1)
    rota.job(lambda: "done", name="paused")
    rota.job(lambda: "done", name="closed", max_running=0)
    rota.templates.update("ghost", handler="shop.mail:send")
    rota.templates.pause("paused")
    return rota


def desk_of(rota, *types):
    """Be a worker of these types, at the rota's clock."""
    desk = Desk(rota._session.open().store)
    desk.ids, desk.now = rota._session.ids, rota._session.clock.now()
    desk.worker = desk.id()
    desk.store.register(desk.worker, host="h", kind="worker", job_types=list(types), now=desk.now)
    return desk


# ---- refused at once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ghost", "no live worker has a handler for ghost; start a worker that has it with `rota worker`, or enqueue the job"),
        ("paused", "template paused is paused; try again after `rota template resume paused`, or enqueue the job"),
        ("closed", "0 of at most 0 closed jobs run; raise the limit, or enqueue the job"),
    ],
)
def test_what_nobody_can_run_is_refused_at_once_with_the_reason_and_the_remedy(shared, name, words):
    began = time.monotonic()
    with pytest.raises(ResourceBusy) as refused:
        shared.acting_as(BOB).jobs.direct(name, timeout=patient(100))
    assert str(refused.value) == f"resource busy: {words}"
    assert time.monotonic() - began < patient(20)
    assert (shared.jobs.list(), shared._session.open().store.reservation()) == ([], None)


@pytest.mark.parametrize(
    ("pause", "words"),
    [
        ({}, "everything is paused; try again after `rota resume`, or enqueue the job"),
        ({"organization": "acme"}, "organization acme is paused; try again after `rota organization resume acme`, or enqueue the job"),
    ],
)
def test_a_pause_of_everything_or_of_its_organization_refuses_it_too(shared, pause, words):
    set_pause(shared, paused=True, **pause)
    with pytest.raises(ResourceBusy) as refused:
        shared.acting_as(BOB).jobs.direct("good", timeout=patient(100))
    assert str(refused.value) == f"resource busy: {words}"
    if pause:
        assert shared.acting_as(EVE).jobs.direct("good").result == "done"


@pytest.mark.parametrize("actor", [None, BOB])
def test_one_whose_template_another_process_has_disabled_is_refused(shared, actor):
    assert shared.acting_as(actor).jobs.direct("good").result == "done"
    with closing(Rota(shared.store.url, clock=shared._session.clock)) as other:
        other.templates.disable("good")
    with pytest.raises(TemplateUnavailable):
        shared.acting_as(actor).jobs.direct("good")


def test_a_worker_without_the_handler_leaves_it_to_the_caller_who_has_it(shared):
    desk = desk_of(shared, "other")
    lease = shared._session.open().liveness.take(desk.worker)
    assert shared.acting_as(BOB).jobs.direct("good", timeout=patient(20)).result == "done"
    lease.release(clean=True)


def test_a_worker_that_shuts_down_or_is_dead_can_run_nothing(shared):
    shared.templates.update("elsewhere", handler="shop.mail:send")
    desk = desk_of(shared, "elsewhere")
    lease = shared._session.open().liveness.take(desk.worker)
    desk.store.stopping(desk.worker, now=desk.now)
    with pytest.raises(ResourceBusy, match="no live worker has a handler for elsewhere"):
        shared.jobs.direct("elsewhere", timeout=patient(100))
    lease.release(clean=False)
    dead = desk_of(shared, "elsewhere")
    shared._session.open().liveness.take(dead.worker).release(clean=False)
    with pytest.raises(ResourceBusy, match="no live worker has a handler for elsewhere"):
        shared.jobs.direct("elsewhere", timeout=patient(100))


# ---- while it waits --------------------------------------------------------------------------------------------------


def test_at_a_limit_it_waits_without_a_slot_and_is_the_next_that_has_room(live):
    gate = Gate(live)
    live.templates.update("block", max_running=1)
    try:
        with live.running(concurrency=2):
            live.enqueue("block", {"n": 0})
            assert gate.entered.wait(patient(10))
            later = live.enqueue("block", {"n": 1})
            call = Call(live, "block", params={"n": 99})
            eventually(live._session.open().store.reservation, what="the reservation")
            note = live.enqueue("note", {"n": 2})
            assert live.wait(note.id, timeout=patient(10)).result == 2
            gate.open.set()
            assert call.result(patient(15)).result == 99
            live.wait(later.id, timeout=patient(10))
        assert gate.ran == [0, 2, 99, 1]
    finally:
        gate.open.set()


def test_at_a_limit_until_its_timeout_it_says_which(live):
    gate = Gate(live)
    live.templates.update("block", max_running=1)
    try:
        with live.running(concurrency=2):
            live.enqueue("block", {"n": 0})
            assert gate.entered.wait(patient(10))
            with pytest.raises(ResourceBusy, match=r"^resource busy: 1 of at most 1 block jobs run; try again$"):
                live.jobs.direct("block", {"n": 1}, timeout=0.2)
            gate.open.set()
    finally:
        gate.open.set()


@pytest.mark.parametrize("pause", [{}, {"template": "block"}, {"organization": "default"}], ids=["all", "template", "organization"])
def test_paused_while_it_waits_it_is_given_up_soon(tmp_path, pause):
    rota = Rota(tmp_path / "rota.db", settings=Settings(recovery_interval=0.1, synchronous="NORMAL"))
    gate = Gate(rota)
    try:
        with rota.running(concurrency=1):
            rota.enqueue("block", {"n": 0})
            assert gate.entered.wait(patient(10))
            call = Call(rota, "block", params={"n": 1}, timeout=patient(100))
            eventually(rota._session.open().store.reservation, what="the reservation")
            set_pause(rota, paused=True, **pause)
            refused = call.result(patient(15))
            assert isinstance(refused, ResourceBusy)
            assert "paused" in str(refused)
            assert rota._session.open().store.reservation() is None
            assert [job.status for job in rota.jobs.list() if job.origin == "direct"] == ["CANCELLED"]
            gate.open.set()
    finally:
        gate.open.set()
        rota.close()


def test_many_callers_that_wait_write_nothing(live, monkeypatch):
    gate = Gate(live)
    store, asked = live._session.open().store, []
    reserve = store.reserve
    monkeypatch.setattr(store, "reserve", lambda *args, **fields: asked.append(1) or reserve(*args, **fields))
    try:
        with live.running(concurrency=2):
            first = Call(live, "block", params={"n": 0})
            assert gate.entered.wait(patient(10))
            others = [Call(live, "note", params={"n": n}, timeout=0.5) for n in range(5)]
            assert {type(call.result(patient(15))) for call in others} == {ResourceBusy}
            assert len(asked) == 1
            gate.open.set()
            first.result(patient(15))
    finally:
        gate.open.set()


def test_one_that_nobody_answers_for_any_more_is_ended_by_the_next_caller(shared):
    desk = desk_of(shared)
    desk.reserve("good")
    shared._session.open().liveness.take(desk.worker).release(clean=False)
    assert shared.jobs.direct("good", timeout=patient(20)).result == "done"


# ---- claimed ahead ---------------------------------------------------------------------------------------------------


def test_it_does_not_wait_behind_a_deep_queue_of_quick_jobs(tmp_path):
    """Work is claimed ahead for 50 ms: a direct execution comes before all but that."""
    ended, before = [], 4_000
    with closing(Rota(tmp_path / "deep.db", settings=Settings(synchronous="NORMAL"))) as rota:
        rota.job(lambda: ended.append(1), name="quick")
        rota.job(lambda: len(ended), name="look")
        rota.enqueue_many([("quick", None)] * before)
        with rota.running(concurrency=1):
            eventually(lambda: len(ended) > 500, what="the queue at work")
            seen = rota.jobs.direct("look", timeout=patient(20)).result
            assert seen < before
            eventually(lambda: len(ended) == before, within=60, what="the rest of the queue")


# ---- others' pace ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ghost", "paused", "limited", "closed", "good"])
def test_whatever_one_organization_reserves_the_jobs_of_another_take_as_many_turns_as_ever(shared, name):
    """By the store's port: also a reservation that was made just before a pause holds nobody."""
    worker = desk_of(shared, "good", "limited", "closed", "paused")
    if name == "limited":
        shared.acting_as(BOB).enqueue("limited")
        worker.claim(1, types=("limited",))
    for _ in range(20):
        reservation = worker.reserve(name, organization_id="acme", owner="bob")
        job = shared.acting_as(EVE).enqueue("good")
        shared.turn()
        assert shared.jobs.get(job.id).status == "COMPLETED"
        worker.store.give_up_waiting(reservation.id, now=worker.now)


def test_one_organization_that_calls_directly_in_a_loop_leaves_another_its_slots(live):
    """Bob's calls take one slot at the most: with two, eve's jobs are done while bob is at it all the time."""
    for name in ("acme", "beta"):
        live.organizations.create(name)
    live.job(lambda: time.sleep(0.01), name="slow")
    live.job(lambda: time.sleep(0.01), name="limited", max_running=1)
    live.job(lambda: None, name="paused")
    live.templates.pause("paused")
    live.templates.update("ghost", handler="shop.mail:send")
    live.job(lambda: "done", name="good")
    stop, calls = threading.Event(), {"ghost": 0, "paused": 0, "limited": 0, "slow": 0}

    def loop(name):
        while not stop.is_set():
            try:
                live.acting_as(BOB).jobs.direct(name, timeout=patient(5))
            except ResourceBusy:
                time.sleep(0.001)
            calls[name] += 1

    callers = [threading.Thread(target=loop, args=(name,), daemon=True) for name in calls]
    try:
        with live.running(concurrency=2):
            for caller in callers:
                caller.start()
            eventually(lambda: all(calls.values()), within=30, what="bob's calls")
            for _ in range(20):
                assert live.wait(live.acting_as(EVE).enqueue("good").id, timeout=patient(10)).result == "done"
            stop.set()
            for caller in callers:
                caller.join(patient(20))
    finally:
        stop.set()
