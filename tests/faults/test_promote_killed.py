"""A promotion that is killed, wherever it is, has lost nothing on either side, and can be repeated."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from rota import Rota, Settings
from rota.compose import open_place
from tests.support.keys import credentials
from tests.support.launch import run, store_of
from tests.support.pace import patient
from tests.support.postgres import shared_server
from tests.support.whole import fill, neutral

PROGRAM = Path(__file__).parent / "programs" / "promoter.py"
SCHEMA = "killed"
SETTINGS = Settings(schema=SCHEMA, lease_ttl=1)
BEFORE = [
    ("watching",),
    ("copying", "meta"),
    ("copying", "jobs"),
    ("copying", "queue_clock"),
    ("verifying", "meta"),
    ("verifying", "jobs"),
    ("committing",),
]


@pytest.fixture(autouse=True)
def known_key(tmp_path, monkeypatch):
    """The key that the secrets of these stores are encrypted with."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials(tmp_path / "credentials")))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "rota.db"
    fill(path)
    return path


@pytest.fixture
def file(filled, tmp_path):
    return shutil.copy(filled, tmp_path / "rota.db")


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield shared_server().url()
    with shared_server().connect() as raw:
        raw.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def is_empty(url):
    depot = open_place(str(url), SETTINGS).depot
    return not depot.exists() or not any(rows for name, rows in neutral(url, SETTINGS).items() if name not in {"meta", "organizations"})


def killed_at(source, target, *step):
    environment = os.environ | {"ROTA_SCHEMA": SCHEMA, "ROTA_LEASE_TTL": "1"}
    if "watching" in step:
        step = ("watching", worker_of(source))
    else:
        leave_lock(source)
    stores = (store_of(source), store_of(target))
    done = run(PROGRAM, str(source), str(target), *step, environment=environment, imports=stores, timeout=patient(50))
    assert done.returncode == -signal.SIGKILL, done


def worker_of(source):
    with open_place(str(source), SETTINGS).depot.snapshot() as reading:
        return next(worker.id for worker in reading.workers() if worker.kind == "worker")


def leave_lock(source):
    """Leave what a worker leaves that was killed on this machine: nobody has to watch its beat then."""
    open_place(str(source), SETTINGS).liveness.take(worker_of(source)).release(clean=False)


def promoted(source, target):
    leave_lock(source)
    return Rota(source, settings=SETTINGS).store.promote(target)


@pytest.mark.parametrize("step", BEFORE, ids=" ".join)
def test_killed_on_the_way_to_postgresql_it_has_changed_nothing_and_can_be_repeated(file, database, step):
    before = neutral(file, SETTINGS)
    killed_at(file, database, *step)
    assert is_empty(database)
    assert neutral(file, SETTINGS) == before
    assert not promoted(file, database).already
    assert neutral(database, SETTINGS) == before


@pytest.mark.parametrize("step", BEFORE[2:5] + BEFORE[-1:], ids=" ".join)
def test_killed_on_the_way_back_it_has_changed_nothing_and_can_be_repeated(file, database, tmp_path, step):
    promoted(file, database)
    before = neutral(database, SETTINGS)
    back = tmp_path / "back.db"
    killed_at(database, back, *step)
    assert not back.exists()
    assert neutral(database, SETTINGS) == before
    assert not promoted(database, back).already
    assert neutral(back, SETTINGS) == before
    assert list(tmp_path.glob("*promoting*")) == []


@pytest.mark.parametrize("step", [("copying", "jobs"), ("verifying", "jobs"), ("committing",)], ids=" ".join)
def test_killed_while_it_writes_over_a_file_that_was_moved_it_has_changed_nothing(file, database, step):
    promoted(file, database)
    old = neutral(file, SETTINGS)
    with shared_server().connect() as raw:
        raw.execute(f"UPDATE {SCHEMA}.meta SET value = value + 1 WHERE key = 'late_results'")
    killed_at(database, file, *step)
    assert neutral(file, SETTINGS) == old
    assert not promoted(database, file).already
    assert neutral(file, SETTINGS) == neutral(database, SETTINGS)


def test_killed_before_the_source_is_closed_the_repetition_closes_it(file, database):
    before = neutral(file, SETTINGS)
    killed_at(file, database, "closing")
    assert neutral(database, SETTINGS) == before
    assert open_place(str(file), SETTINGS).depot.moved() is None
    again = promoted(file, database)
    assert (again.already, again.closed) == (True, True)


def test_killed_between_its_two_names_the_file_is_whole(file, database, tmp_path):
    promoted(file, database)
    back = tmp_path / "back.db"
    killed_at(database, back, "linked")
    assert promoted(database, back).already
    other = tmp_path / "other.db"
    assert not Rota(back, settings=SETTINGS).store.promote(other).already
    assert neutral(back, SETTINGS) == neutral(other, SETTINGS)
