"""How a worker notices what another process commits: by the kernel's hint, and by polling underneath."""

from __future__ import annotations

import os

import pytest

from rota import Rota, Settings
from rota.stores.sqlite.watch import LogWatch
from tests.support.pace import patient
from tests.support.waiting import eventually


@pytest.fixture
def stranger(live: Rota, tmp_path):
    """Another Rota on the same file: its enqueues poke nobody here, as another process's don't."""
    live.job(name="echo")(lambda: "seen")
    other = Rota(tmp_path / "rota.db")
    yield other
    other.close()


@pytest.mark.parametrize("settings", [Settings(poll=50, poll_hinted=50, beat=1000, recovery_interval=1000)])
def test_a_hint_alone_wakes_an_idle_worker(live: Rota, stranger: Rota):
    with live.running(concurrency=1):
        eventually(live.workers.list, what="the worker")
        for _ in range(20):
            assert stranger.wait(stranger.enqueue("echo").id, timeout=patient(20)).result == "seen"


@pytest.mark.parametrize("settings", [Settings(poll=0.02)])
def test_without_hints_a_worker_polls(live: Rota, stranger: Rota, monkeypatch):
    monkeypatch.setattr(LogWatch, "fileno", lambda _: None)
    with live.running(concurrency=1):
        for _ in range(5):
            assert stranger.wait(stranger.enqueue("echo").id, timeout=patient(20)).result == "seen"


def test_a_log_that_is_deleted_and_made_again_is_watched_again(tmp_path):
    log = tmp_path / "rota.db-wal"
    watch = LogWatch(tmp_path / "rota.db")
    assert watch.fileno() is None
    log.write_bytes(b"one")
    descriptor = watch.fileno()
    assert descriptor is not None
    log.unlink()
    watch.drain()
    assert watch.fileno() is None
    log.write_bytes(b"two")
    assert watch.fileno() == descriptor
    log.write_bytes(b"three")
    assert os.read(descriptor, 1024)
    watch.close()
