"""Another user of the same machine, for real: it reads nothing, keeps no dead worker alive, and stops no writer."""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from rota import Rota
from rota.stores.paths import workers_folder
from tests.faults import raw
from tests.faults.stage import Stage
from tests.support.pace import patient
from tests.support.postgres import fresh_database
from tests.support.stranger import NOBODY, as_stranger, busy_stranger, public_folder
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

WRITE_LOCK = 120
"""The byte of the shared memory that a writer has to itself."""


@pytest.fixture(params=[0o000, 0o022], ids="umask {:03o}".format)
def folder(request):
    """A folder that every user may enter, and programs that hide nothing by their umask."""
    before = os.umask(request.param)
    with public_folder() as made:
        yield made
    os.umask(before)


@pytest.fixture(params=["file", "server"])
def stage(request, folder, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    if request.param == "file":
        made = Stage(folder, folder / "rota.db")
        yield made
        made.close()
    else:
        with fresh_database() as url:
            made = Stage(folder, url)
            yield made
            made.close()


def private(stage):
    """Return every file that belongs to the store, or to its workers on this machine."""
    return [each for each in stage.folder.rglob("*") if each.is_file() and each.suffix in {".lock", ".log", ".db", ".db-wal", ".db-shm"}]


def openable(path, flags):
    try:
        os.close(os.open(path, flags))
    except PermissionError:
        return False
    return True


def test_a_stranger_can_open_no_file_of_a_store_and_can_not_keep_a_dead_worker_alive(stage):
    stage.settings["run_logs"] = "folder"
    with closing(Rota(str(stage.database))) as rota:
        rota.job(name="hold")(lambda gate: None)
        gate = stage.folder / "gate"
        victim = stage.worker(1)
        job = rota.enqueue("hold", {"gate": str(gate)})
        eventually(lambda: rota.jobs.get(job.id).status == "RUNNING", what="the claim")
        talks = rota.enqueue("talk")
        other = stage.worker(2)
        assert rota.wait(talks.id, timeout=patient(20)).status == "COMPLETED"
        files = private(stage)
        wanted = {".lock", ".log"} | ({".db", ".db-wal", ".db-shm"} if isinstance(stage.database, Path) else set())
        assert {each.suffix for each in files} == wanted
        attempts = [(each, flags) for each in files for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)]
        assert as_stranger(lambda: [path for path, flags in attempts if openable(path, flags)]) == "[]"

        lock = stage.locks / f"{victim.worker_id}.lock"
        end = stage.folder / "over"
        with busy_stranger(lambda tell, over: lay_hands_on(lock, stage.database, end, tell, over)) as said:
            victim.kill()
            gate.touch()
            assert rota.wait(job.id, timeout=patient(20)).status == "COMPLETED"
            rota.enqueue("hold", {"gate": str(gate)})
            end.touch()
            assert said() == "nothing"
        assert [each.status for each in rota.jobs.attempts(job.id)] == ["FAILED", "COMPLETED"]
        assert other.alive
    stage.drained()
    stage.check()


def lay_hands_on(lock, database, end, tell, over):
    """Try, again and again, to hold a worker's lock and the write lock of the log; tell what could be had when the test says so."""
    got = []
    held = []
    while not (over() or end.exists()):
        for path in (lock, *([Path(f"{database}-shm")] if isinstance(database, Path) else [])):
            try:
                fd = os.open(path, os.O_RDONLY)
            except (PermissionError, FileNotFoundError):
                continue
            held.append(fd)
            with suppress(BlockingIOError, PermissionError):
                if path == lock:
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                else:
                    fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, WRITE_LOCK, 1, 0))
                got.append(path.name)
        time.sleep(0.002)
    tell(" ".join(sorted(set(got))) or "nothing")


# ---- the folder for temporary files ---------------------------------------------------------------------------------


@pytest.fixture
def database():
    with fresh_database() as url:
        yield url


@pytest.fixture
def temporary(database, monkeypatch):
    """A folder for temporary files as machines have it: anybody may create files there, and remove only their own."""
    del database  # its server keeps files where they were before
    with public_folder() as folder:
        folder.chmod(0o1777)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setenv("TMPDIR", str(folder))
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield folder


@pytest.fixture
def server(database, temporary, tmp_path, monkeypatch):
    del temporary
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Stage(tmp_path, database)
    yield made
    made.close()


def link(place, tmp_path):
    """A link to a folder of the victim's own."""
    (tmp_path / "own").mkdir(mode=0o700)
    assert as_stranger(lambda: place.symlink_to(tmp_path / "own")) == "None"
    return "it is a symbolic link"


def file(place, _):
    assert as_stranger(place.touch) == "None"
    return "it is not a folder"


def foreign(place, _):
    assert as_stranger(lambda: place.mkdir(mode=0o777)) == "None"
    return f"it belongs to user {NOBODY}"


def wide_open(place, _):
    place.mkdir()
    place.chmod(0o755)
    return "its mode 0755 lets other users in"


OBSTACLES = pytest.mark.parametrize("put", [link, file, foreign, wide_open], ids=lambda put: put.__name__)


@OBSTACLES
def test_a_worker_refuses_a_lock_folder_that_a_stranger_put_in_its_way_and_says_what_to_do(server, temporary, tmp_path, monkeypatch, put):
    place = temporary / f"rota-{os.getuid()}"
    why = put(place, tmp_path)
    before = sorted(each.name for each in tmp_path.rglob("*"))
    refused = server.start("worker", 1)
    assert refused.ends() != 0
    assert "StoreUnusable" in refused.text
    assert f"{place}, which can't be trusted: {why}" in refused.text
    assert "Remove it, or set XDG_RUNTIME_DIR" in refused.text
    assert sorted(each.name for each in tmp_path.rglob("*") if not each.name.endswith(".out")) == [
        name for name in before if not name.endswith(".out")
    ]

    # The remedies help. Who only enqueues needs no lock, and is not kept from it.
    with closing(Rota(str(server.database))) as rota:
        rota.job(name="work")(lambda ms=0: None)
        job = rota.enqueue("work")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        server.worker(1)
        assert rota.wait(job.id, timeout=patient(20)).status == "COMPLETED"


def test_without_a_runtime_folder_a_worker_keeps_its_locks_in_a_folder_of_its_own_that_is_closed_to_others(server, temporary):
    before = os.umask(0)
    try:
        worker = server.worker(1)
    finally:
        os.umask(before)
    place = temporary / f"rota-{os.getuid()}"
    folder = workers_folder(raw.where(server.database).name)
    lock = folder / f"{worker.worker_id}.lock"
    assert [each.stat().st_mode & 0o777 for each in (place, folder, lock)] == [0o700, 0o700, 0o600]
    assert as_stranger(lambda: openable(lock, os.O_RDONLY)) == "False"
