"""Queues on the command line: where a job waits, who serves what, and what is paused."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from tests.surfaces.cli_support import Cli
from tests.surfaces.test_cli import handlers


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path)
    with handlers(made) as rota:
        rota.enqueue("greet")
    made.ok("enqueue", "greet", "--queue", "mail")
    yield made
    made.close()


def test_jobs_are_listed_by_queue_and_shown_with_it(cli: Cli):
    (job,) = cli.lines("job", "list", "--queue", "mail")
    assert job["queue"] == "mail"
    assert "mail" in cli.ok("job", "get", job["number"])


def test_queues_are_listed_with_who_serves_them(cli: Cli):
    found = {each["name"]: each for each in cli.lines("queue", "list")}
    assert {name: each["waiting"] for name, each in found.items()} == {"default": 1, "mail": 1}
    assert "not served" in cli.ok("queue", "list")
    assert len(cli.lines("queue", "jobs")) == 2
    assert cli("queue", "lost").exit_code == 2


def test_a_queue_is_paused_and_resumed(cli: Cli):
    assert cli.ok("queue", "pause", "mail") == "Paused: queue mail.\n"
    assert cli.ok("queue", "resume", "mail") == "Nothing is paused.\n"
    assert cli("pause", "--queue", "mail").exit_code == 2


def test_a_worker_serves_the_queues_that_it_is_told_to(cli: Cli):
    worker = cli.start("worker", "--app", "shop:rota", "--queue", "mail", "--exclude", "fails")
    try:
        eventually(lambda: [job["status"] for job in cli.lines("job", "list", "--queue", "mail")] == ["COMPLETED"], within=20)
        (info,) = cli.lines("workers")
        assert info["queues"] == ["mail"]
        assert "fails" not in info["job_types"]
        assert [job["status"] for job in cli.lines("job", "list", "--queue", "default")] == ["QUEUED"]
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)
