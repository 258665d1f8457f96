"""Logs of runs that are kept in the store: read and followed from anywhere, and whole when the run has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from rota import Context, Rota, Settings
from rota.live import follow_log
from rota.model.gate import Right
from rota.operation import ask_for
from tests.engine.log_worker import declare
from tests.stores.makers import MongoMaker, PostgresMaker
from tests.support.pace import patient
from tests.support.postgres import fresh_database
from tests.support.waiting import eventually

WORKER = Path(__file__).with_name("log_worker.py")
on_servers = pytest.mark.parametrize("maker", [PostgresMaker, MongoMaker], indirect=True, ids=["postgres", "mongodb"])
"""Of several machines: a file is on one."""


@pytest.fixture
def rota(url, tmp_path):
    """Make a program whose runs log to the store."""
    with closing(Rota(url, settings=Settings(run_logs="store", log_dir=str(tmp_path / "logs"), recovery_interval=0.2))) as made:
        made.job(max_retries=0)(say)
        yield made


@pytest.fixture
def elsewhere(url, tmp_path):
    """Make a program on another machine: it sees the store, and no folder of the first."""
    with closing(Rota(url, settings=Settings(run_logs="store", log_dir=str(tmp_path / "other")))) as made:
        declare(made)
        yield made


def say(ctx: Context, lines: int, size: int = 10) -> None:
    for number in range(lines):
        ctx.log.info("%d %s", number, "ö" * size)


def files(folder: Path) -> list[Path]:
    return list(folder.rglob("*.log"))


def lines_of(rota: Rota, job_id: str) -> list[str]:
    """Return what the handler wrote, without stamps."""
    return [line.split(" ", 2)[2] for line in rota.jobs.log(job_id).text.splitlines()]


# ---- what is kept ----------------------------------------------------------------------------------------------------


def test_a_log_is_whole_in_the_store_when_its_run_has_ended_and_its_file_is_gone(rota, elsewhere, tmp_path):
    job = rota.enqueue("say", {"lines": 3})
    with rota.running(concurrency=1):
        rota.wait(job.id, timeout=patient(10))
        assert lines_of(elsewhere, job.id) == [f"{number} {'ö' * 10}" for number in range(3)]
    assert "2 öööööööööö" in elsewhere.jobs.log(job.id)
    assert rota.jobs.runs(job.id)[0].log_path is None
    assert files(tmp_path / "logs") == []


def test_a_job_that_logs_nothing_leaves_nothing(rota, tmp_path):
    job = rota.enqueue("say", {"lines": 0})
    rota.turn()
    assert rota.jobs.get(job.id).status == "COMPLETED"
    assert rota.jobs.log(job.id).text == ""
    assert not (tmp_path / "logs").exists()


def test_a_log_of_a_mebibyte_comes_back_byte_for_byte(rota, elsewhere):
    job = rota.enqueue("say", {"lines": 8500, "size": 40})
    rota.turn()
    log = elsewhere.jobs.log(job.id)
    assert 900_000 < len(log.text.encode()) <= 1_048_576
    assert lines_of(elsewhere, job.id) == [f"{number} {'ö' * 40}" for number in range(8500)]
    assert "".join(follow_log(ask_for(elsewhere, Right.READ_LOG), job.id)) == log.text


def test_a_log_is_cut_at_its_bound_and_says_so(url, tmp_path, elsewhere):
    with closing(Rota(url, settings=Settings(run_logs="store", log_dir=str(tmp_path / "logs"), log_max=2000))) as rota:
        rota.job(say)
        job = rota.enqueue("say", {"lines": 100})
        rota.turn()
    text = elsewhere.jobs.log(job.id).text
    assert len(text.encode()) <= 2000
    assert text.endswith(" WARNING the log was cut here: it is over 2000 bytes (setting log_max)\n")


def test_a_log_goes_with_its_run(rota):
    jobs = [rota.enqueue("say", {"lines": 1}) for _ in range(2)]
    rota.turn()
    run_ids = [rota.jobs.runs(job.id)[0].id.replace("-", "") for job in jobs]
    store = rota._session.open().store
    assert all(store.read_log(run_id, after=0) for run_id in run_ids)
    rota.jobs.delete(jobs[0].id)
    rota.store.purge(older_than=0)
    assert not any(store.read_log(run_id, after=0) for run_id in run_ids)


def test_where_the_store_refuses_a_log_it_stays_in_its_file_and_the_job_ends(tmp_path, caplog):
    with closing(Rota(tmp_path / "rota.db", settings=Settings(run_logs="store"))) as rota:
        rota.job(say)
        with rota.transaction() as tx:
            tx.execute("CREATE TRIGGER no_logs BEFORE INSERT ON run_logs BEGIN SELECT RAISE(ABORT, 'not here'); END")
        job = rota.enqueue("say", {"lines": 1})
        rota.turn()
        assert rota.jobs.get(job.id).status == "COMPLETED"
        assert lines_of(rota, job.id) == ["0 öööööööööö"]
        assert rota.jobs.runs(job.id)[0].log_path is not None
    assert "can't be written to the store and stay in files of this machine: not here" in caplog.text


def test_a_store_that_moves_takes_its_logs_along(tmp_path):
    with fresh_database() as database:
        with closing(Rota(tmp_path / "rota.db", settings=Settings(run_logs="store"))) as rota:
            rota.job(say)
            job = rota.enqueue("say", {"lines": 2})
            rota.turn()
            text = rota.jobs.log(job.id).text
            rota.store.promote(database)
        with closing(Rota(database, settings=Settings(log_dir=str(tmp_path / "other")))) as there:
            assert there.jobs.log(job.id).text == text
            there.store.promote(str(tmp_path / "back.db"))
        with closing(Rota(tmp_path / "back.db")) as back:
            assert back.jobs.log(job.id).text == text


# ---- several machines ------------------------------------------------------------------------------------------------


class Workers:
    """Processes of workers, each with a folder of logs of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, run_logs: str = "") -> subprocess.Popen[bytes]:
        command = [sys.executable, str(WORKER), self._url, str(self._folder / name), run_logs]
        self.running.append(subprocess.Popen(command, cwd=self._folder, env={**os.environ, "PYTHONPATH": str(Path.cwd())}))
        return self.running[-1]

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.terminate()
                process.wait(patient(20))


@pytest.fixture
def workers(url, tmp_path):
    made = Workers(url, tmp_path)
    yield made
    made.close()


@on_servers
def test_logs_of_workers_on_two_machines_are_followed_from_a_third(url, tmp_path, workers, elsewhere):
    done = tmp_path / "done"
    workers.start("one"), workers.start("two")
    jobs = [elsewhere.enqueue(name, {"until": str(done)}) for name in ("talk", "talk_apart")]
    for job in jobs:
        tail = follow_log(ask_for(elsewhere, Right.READ_LOG), job.id)
        eventually(tail.read, within=15, what="the first lines")
        for _ in range(2):
            written = time.time()
            line = eventually(lambda tail=tail: tail.read().splitlines()[-1:], within=5, what="the next line")[0]
            assert time.time() - max(written, float(line.rsplit(" ", 1)[1])) < patient(2)
    done.touch()
    for job in jobs:
        assert elsewhere.wait(job.id, timeout=patient(10)).status == "COMPLETED"
        assert lines_of(elsewhere, job.id)[0] == "begun by 1"
        assert lines_of(elsewhere, job.id)[-1] == "done"
    assert sum(len(files(tmp_path / name)) for name in ("one", "two")) == 0


@on_servers
def test_a_worker_that_is_killed_loses_at_most_the_last_second_and_nothing_on_its_own_machine(url, tmp_path, workers, elsewhere):
    worker = workers.start("one", "store")
    jobs = [elsewhere.enqueue(name, {"until": str(tmp_path / "never")}) for name in ("talk", "talk_apart")]
    for job in jobs:
        eventually(lambda job=job: len(lines_of(elsewhere, job.id)) > 5, within=15, what="lines in the store")
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    killed = time.time()
    # Recovered from another machine, which has no file of it.
    eventually(lambda: elsewhere.store.recover().jobs, within=10, what="the recovery")
    written = {}
    for file in files(tmp_path / "one"):
        (job,) = [job for job in jobs if elsewhere.jobs.runs(job.id)[0].id.replace("-", "") in file.name.replace("-", "")]
        written[job.id] = [line.split(" ", 2)[2] for line in file.read_text().splitlines()]
    assert written.keys() == {job.id for job in jobs}
    for job in jobs:
        assert elsewhere.jobs.get(job.id).status == "DEAD_LETTER"
        seen = lines_of(elsewhere, job.id)
        assert killed - float(seen[-1].rsplit(" ", 1)[1]) < patient(1.5)
        assert written[job.id][: len(seen)] == seen
    # The next worker of that machine brings the rest.
    workers.start("one", "store")
    eventually(lambda: not files(tmp_path / "one"), within=15, what="the rest in the store")
    assert {job.id: lines_of(elsewhere, job.id) for job in jobs} == written


def test_a_recovery_on_the_machine_of_the_dead_worker_brings_in_all_of_its_log(rota, elsewhere, url, tmp_path, workers):
    worker = workers.start("logs", "store")
    job = elsewhere.enqueue("talk", {"until": str(tmp_path / "never")})
    eventually(lambda: lines_of(elsewhere, job.id), within=15, what="lines in the store")
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    (file,) = files(tmp_path / "logs")
    written = [line.split(" ", 2)[2] for line in file.read_text().splitlines()]
    eventually(lambda: rota.store.recover().jobs, within=10, what="the recovery")
    assert lines_of(elsewhere, job.id) == written
    assert not file.exists()


@on_servers
def test_a_log_in_a_folder_of_another_machine_is_named_by_its_host(maker, url, tmp_path):
    with closing(Rota(url, settings=Settings(run_logs="folder", log_dir=str(tmp_path / "one")))) as rota:
        rota.job(say)
        job = rota.enqueue("say", {"lines": 1})
        silent = rota.enqueue("say", {"lines": 0})
        rota.turn()
        assert lines_of(rota, job.id) == ["0 öööööööööö"]
        maker.damage("UPDATE workers SET host = 'far-away'")
    with closing(Rota(url, settings=Settings(run_logs="folder", log_dir=str(tmp_path / "two")))) as reader:
        log = reader.jobs.log(job.id)
        words = "the log of this run is kept on far-away and can't be read from here: set run_logs=store"
        assert log.text == ""
        assert next(entry.message for entry in log if entry.to_status is None).startswith(words)
        assert words in "".join(follow_log(ask_for(reader, Right.READ_LOG), job.id))
        assert str(tmp_path) not in str(log)
        assert all(entry.to_status is not None for entry in reader.jobs.log(silent.id))
