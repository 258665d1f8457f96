"""A worker that can't show that it lives stops its handlers before others take over; one that nobody elsewhere watches goes on."""

import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota import Rota, Settings
from rota.compose import Opened
from rota.engine.driver import Driver
from rota.engine.heartbeat import EXIT_CUT_OFF
from rota.errors import InvalidOption, StoreUnavailable
from rota.local_workers import make_worker
from rota.model.decide import CUT_OFF_ERROR, Crashed
from rota.ports.liveness import Life
from tests.engine import cut_off
from tests.engine.cut_off import notes
from tests.stores.desk import Desk
from tests.support.pace import pace, patient
from tests.support.runs import run_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

TIMES = min(3.0, pace())
SMALL = {"lease_ttl": 2.0 * TIMES, "lease_guard": 0.8 * TIMES, "beat": 0.1 * TIMES, "recovery_interval": 0.05}


class Elsewhere:
    """Signs of life of a machine on which only our own worker has its lock: all others are of other machines."""

    def __init__(self, real):
        self._real = real
        self._own = set()

    def take(self, worker_id):
        self._own.add(worker_id)
        return self._real.take(worker_id)

    @contextmanager
    def seize(self, worker_id):
        if worker_id not in self._own:
            yield Life.UNKNOWN
            return
        with self._real.seize(worker_id) as life:
            yield life

    def forget(self, worker_id):
        self._real.forget(worker_id)


class Line:
    """A store at the end of a line that can be cut: calls then hang, as in a read from a peer that is gone, or fail, as by a timeout."""

    def __init__(self, store):
        self._store = store
        self._cut = set()
        self._mended = threading.Event()
        self.hangs = True

    def cut(self, *verbs, hangs=True):
        self.hangs = hangs
        self._mended.clear()
        self._cut = set(verbs) or {"everything"}

    def mend(self):
        self._cut = set()
        self._mended.set()

    def __getattr__(self, name):
        verb = getattr(self._store, name)
        if not callable(verb) or name == "close":
            return verb

        def call(*args, **kwargs):
            if self._cut & {name, "everything"}:
                if self.hangs:
                    self._mended.wait(patient(30))
                raise StoreUnavailable("the line was cut")
            return verb(*args, **kwargs)

        return call


class Rig:
    """A worker on a driver's threads, on a line that can be cut, and another machine's row in the store."""

    def __init__(self, folder, *, watched=True, concurrency=4, **settings):
        self.settings = Settings(**(SMALL | settings))
        self.rota = Rota(folder / "rota.db", settings=self.settings, seed=5)
        self.path = str(folder / "notes")
        self.go = str(folder / "go")
        self.rota.job(cut_off.heedful, timeout=0)
        self.rota.job(cut_off.awaiting, timeout=0)
        self.rota.job(cut_off.apart, timeout=0, executor="process")
        self.rota.job(cut_off.deaf, timeout=0)
        self.real = self.rota._session.open()
        self.rota._session.registry.sync(self.real.store, self.rota._session.clock.now())
        self.line = Line(self.real.store)
        opened = Opened(self.line, Elsewhere(self.real.liveness), self.real.log_dir)
        self.driver = Driver(make_worker(self.rota._session, opened, concurrency), self.settings, self.rota._session.clock)
        self.worker = self.driver.worker
        self.left = []
        self.guard._leave = self.left.append
        if watched:
            now = self.rota._session.clock.now()
            self.real.store.register(self.rota._session.ids.take(1, now)[0], host="elsewhere", kind="worker", job_types=[], now=now)
        self.driver.start()

    @property
    def guard(self):
        return self.worker.heartbeat.guard

    def enqueue(self, *names, **params):
        return [self.rota.enqueue(name, {"path": self.path} | params) for name in names]

    def until_noted(self, *what, within=10):
        eventually(lambda: set(what) <= {words for words, _ in notes(self.path)}, within=within, what=f"{what} in {notes(self.path)}")

    def at(self, what):
        return next(at for words, at in notes(self.path) if words == what)

    def chain(self, job):
        return [str(each.status) for each in self.rota.jobs.attempts(job.id)]

    def close(self):
        self.line.mend()
        Path(self.go).touch()
        self.driver.stop(grace_s=2)
        self.rota.close()


@pytest.fixture
def make_rig(tmp_path):
    rigs = []

    def make(**settings):
        rigs.append(Rig(tmp_path, **settings))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.mark.parametrize("hangs", [True, False], ids=["the line hangs", "the line fails"])
def test_a_worker_that_is_cut_off_stops_its_handlers_of_every_kind_in_time_and_goes_on_under_its_id_when_it_is_back(make_rig, hangs):
    rig = make_rig()
    jobs = rig.enqueue("heedful", "awaiting", "apart")
    rig.until_noted("begin thread 1", "begin async 1", "begin process 1", "alive process 1")
    eventually(lambda: rig.worker.heartbeat.renewal.watched, what="that others are seen")
    before = rig.worker.id
    cut = time.monotonic()
    rig.line.cut(hangs=hangs)
    rig.until_noted("end thread 1", "end async 1")
    eventually(lambda: rig.worker._pool.occupied() == 0, what="the end of the process")
    last = max(at for words, at in notes(rig.path) if words == "alive process 1")
    for end in (rig.at("end thread 1"), rig.at("end async 1"), last):
        assert 0.3 < end - cut < patient(1.5) + TIMES
    assert "end process 1" not in dict(notes(rig.path))

    rig.line.mend()
    rig.until_noted("end thread 2", "end async 2", "end process 2")
    for job in jobs:
        eventually(lambda job=job: rig.chain(job) == ["FAILED", "COMPLETED"], what="the end of the chain")
        assert (run_of(rig.rota, job.id).error, rig.rota.jobs.attempts(job.id)[1].crashes) == (CUT_OFF_ERROR, 0)
    assert rig.worker.id == before
    assert rig.left == []
    assert rig.rota.store.stats().late_results == 0


def test_a_worker_that_nobody_elsewhere_watches_lets_its_handlers_go_on(make_rig):
    rig = make_rig(watched=False)
    [job] = rig.enqueue("deaf", go=rig.go)
    rig.until_noted("begin deaf 1")
    rig.line.cut()
    time.sleep(1.5 * TIMES)
    assert not rig.guard.tripped
    Path(rig.go).touch()
    rig.until_noted("end deaf 1")
    rig.line.mend()
    eventually(lambda: rig.chain(job) == ["COMPLETED"], what="its end")


def test_a_thread_that_heeds_nothing_takes_the_process_along_before_others_take_over(make_rig):
    rig = make_rig()
    rig.enqueue("deaf", go=rig.go)
    rig.until_noted("begin deaf 1")
    eventually(lambda: rig.worker.heartbeat.renewal.watched, what="that others are seen")
    cut = time.monotonic()
    rig.line.cut()
    eventually(lambda: rig.left, what="the end of the process")
    assert rig.left[0] == EXIT_CUT_OFF
    assert time.monotonic() - cut < rig.settings.lease_ttl


def test_beats_wait_for_no_turn(make_rig):
    rig = make_rig()
    jobs = rig.enqueue("deaf", go=rig.go)
    rig.until_noted("begin deaf 1")
    eventually(lambda: rig.worker.heartbeat.renewal.watched, what="that others are seen")
    # Somebody keeps the store to himself for longer than the guard would wait.
    rig.line.cut("turn", "peek", "changed", "workers", "reservation")
    rig.worker.poke()
    time.sleep(1.25 * rig.settings.lease_ttl)
    assert not rig.guard.tripped
    Path(rig.go).touch()
    rig.line.mend()
    eventually(lambda: rig.chain(jobs[0]) == ["COMPLETED"], what="its end")


def test_while_it_is_cut_off_nothing_is_claimed_and_outcomes_are_kept(make_rig):
    rig = make_rig(concurrency=2)
    [job] = rig.enqueue("heedful")
    rig.until_noted("begin thread 1")
    eventually(lambda: rig.worker.heartbeat.renewal.watched, what="that others are seen")
    # Beats get lost, everything else arrives: it could claim, and must not.
    rig.line.cut("beat", hangs=False)
    rig.until_noted("end thread 1")
    eventually(lambda: rig.chain(job)[0] == "FAILED", what="its end in the record")
    [waiting] = rig.enqueue("heedful")
    time.sleep(0.5)
    assert [rig.chain(each)[-1] for each in (job, waiting)] == ["QUEUED", "QUEUED"]
    rig.line.mend()
    eventually(lambda: rig.chain(job) == ["FAILED", "COMPLETED"], what="that it goes on")


def test_one_that_was_given_up_meanwhile_goes_on_under_another_id_and_its_late_result_is_refused(make_rig):
    rig = make_rig()
    [job] = rig.enqueue("heedful")
    rig.until_noted("begin thread 1")
    before = rig.worker.id
    rig.line.cut()
    rig.until_noted("end thread 1")
    store, now = rig.real.store, rig.rota._session.clock.now()
    (seen,) = [worker for worker in store.workers() if worker.id == before]
    assert store.give_up_worker(before, beat=seen.beat, now=now)
    desk = Desk(store)
    desk.ids, desk.now, desk.worker = rig.rota._session.ids, now, before
    desk.recover(before, Crashed())
    rig.line.mend()
    eventually(lambda: rig.worker.id != before, what="another id")
    eventually(lambda: rig.chain(job) == ["FAILED", "COMPLETED"], what="that it goes on")
    assert run_of(rig.rota, job.id).error == "Scheduler crash recovery"
    assert rig.worker.id in {worker.id for worker in rig.rota.workers.list()}


def test_one_that_was_given_up_while_a_handler_runs_learns_it_from_its_beat_and_stops_the_handler(make_rig):
    rig = make_rig()
    [job] = rig.enqueue("heedful")
    rig.until_noted("begin thread 1")
    before = rig.worker.id
    eventually(lambda: rig.worker.heartbeat.renewal.watched, what="that others are seen")
    eventually(
        lambda: any(
            rig.real.store.give_up_worker(before, beat=worker.beat, now=rig.rota._session.clock.now())
            for worker in rig.real.store.workers()
            if worker.id == before
        ),
        what="a moment between two beats",
    )
    rig.until_noted("end thread 1", within=2)
    # What it held under its old id it ends itself, if nobody else does.
    eventually(lambda: rig.chain(job) == ["FAILED", "COMPLETED"], what="that it goes on")
    assert rig.worker.id != before


def test_handler_processes_have_their_lease_from_the_start_and_under_another_id_and_not_from_the_next_beat_on(make_rig):
    rig = make_rig(lease_ttl=60.0, lease_guard=30.0, beat=60.0, recovery_interval=60.0)
    pool, before = rig.worker._pool, rig.worker.id
    eventually(lambda: pool._until is not None, within=2, what="a lease at the start")
    [seen] = [worker for worker in rig.real.store.workers() if worker.id == before]
    assert rig.real.store.give_up_worker(before, beat=seen.beat, now=rig.rota._session.clock.now())
    first = pool._until
    rig.worker.heartbeat.beat_soon()
    eventually(lambda: rig.worker.id != before, what="another id")
    eventually(lambda: pool._until > first, within=2, what="a lease of that id")
    pool.close()
    assert pool._until > first


def test_the_guard_is_below_the_lease():
    with pytest.raises(InvalidOption, match=r"lease_guard=30 is not below lease_ttl=30.*0 for two thirds"):
        Settings(lease_guard=30)
    assert Settings().guard_s == 20
    assert Settings(lease_ttl=3).guard_s == 2
    assert Settings(lease_ttl=3, lease_guard=1.5).guard_s == 1.5
