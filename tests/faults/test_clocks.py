"""A worker whose wall clock is a year ahead, from the start or for some seconds: nothing is deleted, and what it wrote comes back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rota import Rota, Settings, Status
from rota.errors import DuplicateJob
from tests.support.faketime import WrongClock
from tests.support.pace import patient
from tests.support.receiver import receiving
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

APP = """
from rota import Rota

rota = Rota()


@rota.job
def noop() -> None: ...


@rota.job(dedup_window=5)
def once(name: str) -> None: ...
"""
HISTORY = 20
YEAR = "+365d"
OPEN = {"webhook_private": "allow", "webhook_http": "allow", "webhook_interval": 0.05, "webhook_retries": "5,1"}


class Shop:
    """A store with a history, and workers and commands on it that have the wrong clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = WrongClock(folder)
        (folder / "shop.py").write_text(APP)
        self.rota = Rota(folder / "rota.db", settings=Settings(**OPEN))
        self.rota.job(lambda: None, name="noop")
        self.rota.job(lambda name: None, name="once", dedup_window=5)
        self.output = folder / "output"
        self._processes: list[subprocess.Popen[bytes]] = []

    def make_history(self) -> None:
        jobs = self.rota.enqueue_many([("noop", {})] * HISTORY)
        with self.rota.running():
            for job in jobs:
                self.rota.wait(job, timeout=patient(20))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the command with the wrong clock, with a retention that looks five times a second."""
        settings = OPEN | {"retention_interval": 0.2, "recovery_interval": 0.1}
        environment = self.clock.environment | {f"ROTA_{name.upper()}": str(value) for name, value in settings.items()}
        with self.output.open("ab") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "rota", *arguments, "--store", str(self.folder / "rota.db")],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
            )
        self._processes.append(process)
        return process

    def start_worker(self) -> None:
        self.start("worker", "--app", "shop:rota")
        eventually(lambda: "noop" in {name for each in self.rota.workers.list() for name in each.job_types}, within=20, what="a worker")

    def run(self, *arguments: str) -> int:
        """Run a command to its end."""
        return self.start(*arguments).wait(patient(30))

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def chains(self) -> int:
        return len(self.rota.jobs.list(job_type="noop", limit=1000))

    def runs_a_job(self) -> None:
        """See that the worker turns, under whatever clock it has."""
        job = self.rota.enqueue("noop")
        self.rota.wait(job, timeout=patient(20))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.rota.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.close()


def test_a_worker_that_starts_with_a_clock_a_year_ahead_deletes_nothing(shop):
    shop.make_history()
    shop.clock.set(YEAR)
    shop.start_worker()
    eventually(lambda: "nothing is deleted by age" in shop.text or shop.chains() < HISTORY, within=20, what=shop.text)
    shop.runs_a_job()
    assert shop.chains() == HISTORY + 1


def test_a_clock_that_jumps_a_year_ahead_and_back_deletes_nothing_and_is_logged_once(shop):
    shop.make_history()
    shop.start_worker()
    shop.runs_a_job()
    shop.clock.set(YEAR)
    eventually(lambda: "nothing is deleted by age" in shop.text or shop.chains() < HISTORY, within=20, what=shop.text)
    # A chain of a year ahead must not vouch for its clock.
    shop.runs_a_job()
    time.sleep(1)
    shop.clock.set("+0")
    eventually(lambda: "deletes by age again" in shop.text, within=20, what=shop.text)
    assert shop.chains() == HISTORY + 2
    assert shop.text.count("nothing is deleted by age") == 1


def test_doctor_and_a_purge_name_both_moments_while_the_clock_is_in_doubt(shop):
    shop.make_history()
    shop.clock.set(YEAR)
    year = str((datetime.now(UTC) + timedelta(days=365)).year)
    assert shop.run("purge", "--older-than", "30d", "--yes") != 0
    assert shop.run("purge", "--older-than", "30d", "--dry-run") != 0
    assert shop.run("doctor") == 0
    refused, counted, *looked = [line for line in shop.text.splitlines() if year in line and str(datetime.now(UTC).year) in line]
    assert "--trust-clock" in refused
    assert "--trust-clock" in counted
    assert looked
    assert shop.chains() == HISTORY
    assert shop.run("purge", "--older-than", "30d", "--trust-clock", "--yes") == 0
    assert shop.chains() == 0


def test_a_job_put_off_for_a_second_by_a_clock_ahead_runs_when_the_clock_is_right_and_an_absolute_moment_stays(shop):
    shop.rota.turn()
    later = (datetime.now(UTC) + timedelta(days=500)).replace(microsecond=0)
    shop.clock.set(YEAR)
    assert shop.run("enqueue", "noop", "--in", "1s") == 0
    assert shop.run("enqueue", "noop", "--run-at", later.isoformat()) == 0
    shop.clock.set("+0")
    # A job that the right clock put off for longer hides neither.
    shop.rota.enqueue("noop", run_at=timedelta(days=800))
    shop.start_worker()
    put_off, absolute, _ = shop.rota.jobs.list(job_type="noop", limit=10)[::-1]
    shop.rota.wait(put_off.id, timeout=patient(20))
    found = shop.rota.jobs.get(absolute.id)
    assert (found.status, found.run_at) == (Status.PENDING, later)


def test_a_window_against_duplicates_that_a_clock_ahead_opened_refuses_nothing_when_the_clock_is_right(shop):
    shop.rota.turn()
    shop.clock.set(YEAR)
    assert shop.run("enqueue", "once", "-p", "name=Ada") == 0
    shop.rota.enqueue("once", {"name": "Ada"})
    with pytest.raises(DuplicateJob):
        shop.rota.enqueue("once", {"name": "Ada"})


def test_a_message_that_waits_for_its_next_attempt_is_sent_soon_after_the_clock_is_right(shop):
    with receiving() as receiver:
        receiver.script[:] = [500]
        shop.rota.webhooks.create(receiver.url("/script"))
        shop.clock.set(YEAR)
        shop.start_worker()
        job = shop.rota.enqueue("noop")
        eventually(lambda: any(each.attempts == 1 for each in shop.rota.webhooks.deliveries()), within=20, what="the first attempt")
        shop.clock.set("+0")
        eventually(lambda: len(receiver.received) >= 2, within=20, what="the second attempt")
        assert {json.loads(each.body)["job"]["id"] for each in receiver.received} == {job.id}
