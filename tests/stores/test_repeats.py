"""Work that is given to a write may run twice: a store may have to undo a transaction and begin again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rota import Rota
from rota.model.decide import Completed
from rota.model.settings import Settings
from rota.stores import sqlite
from tests.stores.desk import Desk, take_all
from tests.stores.repeats import RepeatedStore
from tests.support.prepared import prepare
from tests.support.proof import proving, size

ROOT = Path(__file__).parents[2]
EVERY_CASE = 1_000_000
LEAST = 50


@pytest.fixture
def store(tmp_path):
    store = RepeatedStore(prepare(tmp_path / "rota.db"), Settings(synchronous="NORMAL"))
    yield store
    store.close()


@pytest.mark.prove
@pytest.mark.timeout(1800 if proving() else 120)
def test_the_contract_is_kept_by_a_store_that_begins_work_again():
    cases = size(60, prove=EVERY_CASE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "tests.stores.repeats"]
    # Each case at its usual size.
    environment = {name: value for name, value in os.environ.items() if name not in {"ROTA_TEST_PROVE", "PYTEST_XDIST_WORKER"}}
    environment["ROTA_TEST_CASES"] = str(cases)
    ran = subprocess.run([*command, "tests/stores/contract"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None
    assert int(passed[1]) >= LEAST


def test_a_write_is_done_twice_and_has_the_effect_of_one(store):
    desk, begun = Desk(store), []
    store._write(begun.append)
    assert len(begun) == 2
    assert [each.number for each in desk.put(desk.row(), desk.row())] == [1, 2]
    assert len(store.queue(limit=10)) == 2


def test_where_a_part_fails_all_is_begun_again_and_that_part_fails_at_once(store):
    desk = Desk(store)
    rows = [desk.row() for _ in range(4)]
    desk.put(rows[2])
    assert [each.existing for each in desk.put(*rows)] == [False, False, True, False]
    assert store.begun_again == 1
    assert len(store.queue(limit=10)) == 4


def test_one_result_that_can_not_be_stored_spoils_no_other_where_there_are_no_savepoints(store):
    desk = Desk(store)
    desk.several(3)
    jobs = desk.claim(3)
    results = ['"fine"', '"\ud800"', '"fine"']
    turned = desk.turn(endings=[desk.ending(job, Completed(result)) for job, result in zip(jobs, results, strict=True)])
    assert [number for number, _ in turned.refused] == [jobs[1].number]
    assert [store.job(job.job_id).status for job in jobs] == ["COMPLETED", "DEAD_LETTER", "COMPLETED"]
    assert store.begun_again == 2, "once for the batch, once for the one that spoilt it"


def test_a_worker_is_asked_once_what_it_chooses(store):
    desk, asked = Desk(store), []
    desk.several(3)

    def choose(offered, reservation, usage):
        asked.append(len(offered))
        return take_all(offered, reservation, usage)

    assert len(desk.turn(want=2, choose=choose).claimed) == 2
    assert asked == [2]


# ---- what is called inside the transaction ------------------------------------------------------------------------------


@pytest.fixture
def rota(monkeypatch, tmp_path, clock, settings):
    monkeypatch.setattr(sqlite, "SqliteStore", RepeatedStore)
    with closing(Rota(prepare(tmp_path / "rota.db"), clock=clock, settings=settings, seed=7)) as made:
        made.job(name="work")(lambda: None)
        yield made


def test_room_in_the_queue_is_counted_once_where_firing_is_begun_again(rota, clock):
    rota.organizations.create("acme", max_queued=3)
    for index in range(3):
        rota.schedules.create(f"s{index}", "work", every="5m", organization="acme")
    clock.advance(minutes=5)
    rota.turn()
    assert [row.fate for row in rota.schedules.occurrences()] == ["FIRED"] * 3


@pytest.mark.parametrize("settings", [Settings(catch_up_rate="1/60s")])
def test_late_firings_keep_their_distance_where_firing_is_begun_again(rota, clock):
    for name in ("a", "b"):
        rota.schedules.create(name, "work", every="1h")
    clock.advance(minutes=70)
    rota.turn()
    times = sorted((row.reason or "").partition(" lets it run at ")[2] for row in rota.schedules.occurrences())
    assert times == ["2026-03-01T13:10:00Z", "2026-03-01T13:11:00Z"]


def test_an_edit_that_is_begun_again_reports_each_due_time_once(rota, clock):
    rota.schedules.create("s", "work", every="5m")
    rota.templates.disable("work")
    news = []
    rota.on.not_run(news.append)
    clock.advance(minutes=5)
    rota.schedules.update("s", every="10m")
    assert [each.fate for each in news] == ["REFUSED"]


def test_an_atomic_script_that_is_begun_again_has_the_effect_of_one(rota, clock):
    rota.sql(
        "CREATE JOB a SCHEDULE = EVERY 5 MINUTES CALL work(); EXECUTE JOB a",
    )
    rota.templates.disable("work")
    news = []
    rota.on.not_run(news.append)
    clock.advance(minutes=5)
    script = """
        CREATE JOB b SCHEDULE = EVERY 1 HOUR DISABLED CALL work();
        DISABLE JOB a; ALTER JOB a SET DESCRIPTION = 'x'; RECREATE JOB b SCHEDULE = EVERY 2 HOURS DISABLED CALL work();
        DROP JOB a KEEP HISTORY
    """
    results = rota.sql(script, atomic=True)
    assert [each.tag for each in results] == ["CREATE JOB", "DISABLE JOB", "ALTER JOB", "RECREATE JOB", "DROP JOB"]
    assert [each.notices for each in results] == [()] * 5
    assert [each.schedule for each in news] == ["a"]
    assert [job.status for job in rota.jobs.list()] == ["CANCELLED"]
    events = [each.event for each in reversed(rota.audit.list(subject="schedule"))]
    assert events == [f"JOB_{word}" for word in ["CREATED", "EXECUTED", "CREATED", "MODIFIED", "MODIFIED", "DELETED", "CREATED", "DELETED"]]
