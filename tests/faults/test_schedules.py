"""Schedules and real processes: every due time has one fate and, if it fired, one job, whatever happens to those who fire it."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from contextlib import closing
from itertools import pairwise

import pytest

from rota import Rota, Settings
from rota.errors import StoreBusy
from rota.model.values import SECOND, instant
from tests.faults import invariants
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired


@pytest.fixture
def rota(stage):
    with closing(Rota(stage.database)) as made:
        made.job(name="work")(lambda ctx, ms=0: None)
        yield made


def fired(stage) -> int:
    with invariants.reading(stage.database) as db:
        return next(iter(db.execute("SELECT count(*) FROM occurrences WHERE fate = 'FIRED'")))[0]


def some_fired(stage, more):
    before = fired(stage)
    eventually(lambda: fired(stage) >= before + more, within=20, what=f"{more} more due times fired")


class Ledger:
    """What stands in the store of one schedule, read raw."""

    def __init__(self, stage, name: str) -> None:
        with invariants.reading(stage.database) as db:
            row = next(iter(db.execute("SELECT schedule_id, cursor_at, starts_at, interval_us FROM schedules WHERE name = ?", (name,))))
            self.id, self.cursor, self.anchor, self.interval = row
            query = "SELECT due_at, last_due_at, count, fate, job_id FROM occurrences WHERE schedule_id = ? ORDER BY due_at"
            self.rows = list(db.execute(query, (self.id,)))
            query = "SELECT due_at, job_id FROM jobs WHERE schedule_id = ? AND retry_of IS NULL AND due_at IS NOT NULL"
            self.jobs = list(db.execute(query, (self.id,)))

    def points(self, after: int, until: int) -> list[int]:
        return [at for at in range(self.anchor, until + 1, self.interval) if at > after]

    def check(self, expected: list[int]) -> Counter[str]:
        """Each of these due times has one fate, nothing else has any, and those that fired have a job each."""
        fates: Counter[str] = Counter()
        covered: Counter[int] = Counter()
        for due_at, last_due_at, count, fate, _ in self.rows:
            inside = [at for at in expected if due_at <= at <= last_due_at]
            assert len(inside) == count, (fate, due_at, last_due_at, count, inside)
            covered.update(inside)
            fates[fate] += count
        assert covered == Counter(expected)
        of_rows = {(due_at, job_id) for due_at, _, _, _, job_id in self.rows if job_id is not None}
        assert of_rows == set(self.jobs)
        assert len(of_rows) == len(self.jobs) == fates["FIRED"]
        return fates


def check_all(stage, names) -> Counter[str]:
    """Check schedules that were never edited."""
    fates: Counter[str] = Counter()
    for name in names:
        ledger = Ledger(stage, name)
        fates += ledger.check(ledger.points(ledger.anchor, ledger.cursor))
    return fates


def every_second(rota, count, **options):
    names = [f"s{index}" for index in range(count)]
    for name in names:
        rota.schedules.create(name, "work", every=1, overlap="allow", **options)
    return names


def test_a_schedule_made_in_another_process_fires_within_a_poll(stage, rota):
    worker = stage.worker(2)
    eventually(rota.templates.list, what="the worker's templates")
    view = rota.schedules.create("soon", "work", every=1)
    due = instant(view.next_at)
    eventually(lambda: stage.entries, within=10, what="the first execution")
    with invariants.reading(stage.database) as db:
        ((recorded,),) = db.execute("SELECT min(recorded_at) FROM occurrences")
    assert 0 <= recorded - due < patient(1) * SECOND
    assert worker.alive


@pytest.mark.parametrize(("stage", "processes"), [("file", 2), ("file", 8), ("server", 4)], indirect=["stage"])
def test_any_number_of_processes_fire_every_due_time_once(stage, rota, processes):
    workers = [stage.start("worker", 2) for _ in range(processes)]
    for worker in workers:
        stage.introduced(worker)
    names = every_second(rota, 20)
    eventually(lambda: fired(stage) >= 40, within=20, what="two rounds")
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [worker.ends() for worker in workers] == [0] * processes
    fates = check_all(stage, names)
    assert fates["FIRED"] >= 40
    stage.check()
    assert "Traceback" not in "".join(worker.text for worker in workers)


@pytest.mark.prove
def test_workers_killed_again_and_again_while_they_fire_lose_and_double_no_due_time(stage, rota):
    rng = random.Random(5)
    workers = [stage.worker(2), stage.worker(2)]
    names = every_second(rota, 10) + every_second_caught_up(rota)
    for _ in range(size(4, prove=50)):
        some_fired(stage, 3)
        time.sleep(rng.random() * 0.3)
        victim = rng.randrange(2)
        workers[victim].kill()
        workers[victim] = stage.start("worker", 2)
    for worker in workers:
        stage.introduced(worker)
    some_fired(stage, 10)
    for name in names:
        rota.schedules.disable(name)
    for worker in workers:
        worker.send(signal.SIGTERM)
        worker.ends()
    check_all(stage, names)
    assert rota.schedules.verify().problems == ()
    # Nobody was there for a moment at most: what is caught up in full has fired in full.
    assert set(check_all(stage, ["all"])) == {"FIRED"}
    stage.check()


def every_second_caught_up(rota):
    rota.schedules.create("all", "work", every=1, catch_up="all", overlap="queue")
    return ["all"]


@pytest.mark.parametrize("stage", ["file", "server"], indirect=True)
def test_when_the_last_worker_is_killed_what_is_due_is_overdue_until_the_next_one_records_it(stage, rota):
    worker = stage.worker(2)
    names = every_second(rota, 3)
    some_fired(stage, 3)
    worker.kill()
    with closing(Rota(stage.database, settings=Settings(lease_ttl=1))) as watch:
        eventually(lambda: {each.schedule for each in watch.schedules.overdue()} == set(names), within=20, what="all of them are overdue")
        seen, listed = watch.overview(), watch.schedules.occurrences(fate="OVERDUE")
        assert {row.name for row in seen.not_run if row.fate == "OVERDUE"} == {row.schedule for row in listed} == set(names)
        assert seen.health.level == "trouble"
        assert not watch.schedules.verify().ok
        assert [each.state for each in watch.store.doctor() if each.name == "schedules"] == ["problem"]
        stage.worker(2)
        eventually(lambda: watch.schedules.overdue() == [], within=20, what="a worker has recorded them")
        for row in listed:
            # The ledger goes on where it was silent.
            assert row.due_at in {each.due_at for each in watch.schedules.occurrences(row.schedule, limit=1000)}
    for name in names:
        rota.schedules.disable(name)
    check_all(stage, names)


def test_a_worker_that_is_stopped_leaves_the_firing_to_others_and_repeats_nothing_when_it_wakes(stage, rota):
    workers = [stage.worker(2), stage.worker(2)]
    names = every_second(rota, 5)
    some_fired(stage, 5)
    stage.freeze(workers[0])
    some_fired(stage, 8)
    workers[0].send(signal.SIGCONT)
    some_fired(stage, 5)
    for worker in workers:
        worker.send(signal.SIGTERM)
        worker.ends()
    assert set(check_all(stage, names)) <= {"FIRED", "COALESCED"}
    stage.check()


def test_in_a_storm_of_edits_every_due_time_follows_one_definition_or_the_other(stage, rota):
    """Each edit closes the ledger up to its own moment by the definition before it: so what is expected can be told exactly."""
    workers = [stage.worker(2), stage.worker(2)]
    first = rota.schedules.create("s", "work", every=1, overlap="allow")
    spans = [(instant(first.cursor_at), first)]
    rng, end = random.Random(3), time.monotonic() + 3.5
    while time.monotonic() < end:
        time.sleep(rng.random() * 0.2)
        change = rng.choice(
            [
                lambda: rota.schedules.update("s", every=rng.choice([1, 2, 1.5])),
                lambda: rota.schedules.update("s", description=f"{rng.random()}"),
                lambda: rota.schedules.pause("s"),
                lambda: rota.schedules.disable("s"),
                lambda: rota.schedules.enable("s"),
            ]
        )
        view = change()
        if view.version != spans[-1][1].version:
            spans.append((instant(view.cursor_at), view))
    rota.schedules.disable("s")
    for worker in workers:
        worker.send(signal.SIGTERM)
        worker.ends()
    ledger = Ledger(stage, "s")
    spans.append((ledger.cursor, None))
    expected = []
    for (since, view), (until, _) in pairwise(spans):
        if view.state != "DISABLED":
            ledger.interval, ledger.anchor = round(view.every * SECOND), instant(view.starts)
            expected += [at for at in ledger.points(since, until) if at > since]
    assert len(spans) > 8
    ledger.check(expected)
    assert rota.schedules.verify().problems == ()
    stage.check()


def test_processes_that_declare_the_same_schedule_at_once_make_one(stage):
    rotas = [Rota(stage.database) for _ in range(6)]
    for each in rotas:
        each.job(name="work")(lambda ctx, ms=0: None)
    barrier, errors = threading.Barrier(len(rotas)), []

    def declare(each):
        try:
            each.store.stats()
            barrier.wait()
            for _ in range(5):
                each.schedule("s", "work", every=1)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=declare, args=(each,)) for each in rotas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [(view.name, view.version) for view in rotas[0].schedules.list()] == [("s", 1)]
    for each in rotas:
        each.close()


def test_a_locked_database_delays_a_firing_and_loses_none(stage, rota):
    worker = stage.worker(2, busy_timeout=0.2)
    names = every_second(rota, 3)
    some_fired(stage, 3)
    locker = stage.start("locker", 1.5)
    locker.says("locked")
    with closing(Rota(stage.database, settings=Settings(busy_timeout=0.1))) as impatient, pytest.raises(StoreBusy):
        impatient.schedules.pause("s0")
    assert locker.ends() == 0
    some_fired(stage, 3)
    worker.send(signal.SIGTERM)
    worker.ends()
    check_all(stage, names)
    stage.check()
