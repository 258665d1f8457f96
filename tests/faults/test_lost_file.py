"""Workers whose file is deleted, renamed or replaced under them, and put back."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest

from rota import Rota
from rota.errors import StoreFileLost
from tests.faults import invariants
from tests.support.pace import patient
from tests.support.prepared import prepare
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired


@pytest.fixture
def rota(file_stage):
    with closing(Rota(file_stage.database)) as made:
        made.job(name="work")(lambda ms=0: None)
        made.job(name="hold")(lambda gate: None)
        yield made


def rename(path):
    path.rename(path.with_name("away.db"))


def delete(path):
    # A second name lets the test look into the file that the path does not lead to any more.
    path.with_name("away.db").hardlink_to(path)
    path.unlink()


def replace_by_a_store(path):
    path.with_name("away.db").hardlink_to(path)
    prepare(path.with_name("other.db")).replace(path)


def replace_by_garbage(path):
    path.with_name("away.db").hardlink_to(path)
    garbage = path.with_name("garbage")
    garbage.write_bytes(b"garbage " * 4096)
    garbage.replace(path)


@pytest.mark.parametrize("lose", [rename, delete, replace_by_a_store, replace_by_garbage], ids=lambda lose: lose.__name__)
def test_a_worker_claims_and_ends_nothing_while_its_file_is_lost_and_goes_on_when_it_is_back(file_stage, rota, lose):
    path, gate = file_stage.database, file_stage.folder / "gate"
    held = rota.enqueue("hold", {"gate": str(gate)})
    worker = file_stage.worker(2)
    eventually(lambda: len(file_stage.entries) == 1, within=20, what="the handler at work")
    lose(path)
    with pytest.raises(StoreFileLost):
        rota.enqueue("work")
    # The handler ends while the file is lost: its outcome is kept, and nothing is claimed.
    gate.touch()
    eventually(lambda: "the store is unavailable" in worker.text and "put the file back" in worker.text, what="a line in the log")
    path.with_name("away.db").replace(path)
    assert rota.wait(held.id, timeout=patient(20)).status == "COMPLETED"
    assert [job.status for job in rota.jobs.attempts(held.id)] == ["COMPLETED"]
    assert rota.wait(rota.enqueue("work").id, timeout=patient(20)).status == "COMPLETED"
    assert worker.alive
    assert len(file_stage.entries) == 2
    file_stage.check()


def test_a_worker_does_not_serve_the_store_that_took_the_place_of_its_own(file_stage, rota):
    path = file_stage.database
    first = rota.enqueue("work")
    worker = file_stage.worker(2)
    assert rota.wait(first.id, timeout=patient(20)).status == "COMPLETED"
    other = path.with_name("other.db")
    with closing(Rota(other)) as theirs:
        theirs.job(name="work")(lambda ms=0: None)
        job = theirs.enqueue("work")
    path.with_name("away.db").hardlink_to(path)
    for ending in ("-wal", "-shm"):
        # As somebody does who restores a backup with care, while a worker still runs.
        shutil.move(f"{path}{ending}", f"{path.with_name('away.db')}{ending}")
    other.replace(path)
    eventually(lambda: "another file is at its path now" in worker.text, what="a line in the log")
    worker.kill()
    with closing(Rota(path)) as theirs:
        assert theirs.jobs.get(job.id).status == "QUEUED"
        assert [each for each in theirs.workers.list() if each.id == worker.worker_id] == []
    assert len(file_stage.entries) == 1
    invariants.check(path.with_name("away.db"))
