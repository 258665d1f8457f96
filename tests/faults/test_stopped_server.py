"""A server that is stopped, and not gone: it acknowledges every packet and answers nothing. Nobody waits for it for ever."""

from __future__ import annotations

import signal
import time
from contextlib import closing

import pytest

from tests.faults.stage import Stage
from tests.support.pace import patient
from tests.support.postgres import make_server
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

BUSY_S = 5.0
SETTINGS = {"busy_timeout": BUSY_S, "lease_ttl": 60, "lease_guard": 40}


@pytest.fixture
def pair():
    """A server, and a replica that acknowledges each commit before it counts."""
    primary = make_server()
    replica = make_server(replica_of=primary)
    primary.set("synchronous_standby_names", "*")
    with primary.connect() as raw:
        eventually(lambda: raw.execute("SELECT sync_state FROM pg_stat_replication").fetchall() == [("sync",)], what="the replica in step")
    yield primary, replica
    for server in (primary, replica):
        server.kill()
        server.throw_away()


@pytest.mark.timeout(120)
def test_when_a_server_is_stopped_and_its_replica_promoted_workers_and_callers_continue_there(pair, tmp_path, monkeypatch):
    primary, replica = pair
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/postgres"
    with closing(Stage(tmp_path, url)) as stage:
        workers = [stage.worker(4, **SETTINGS) for _ in range(2)]
        caller = stage.start("patient", stage.accepted_file, 10, "work:2", "work", "work:20", **SETTINGS)
        pids = {str(worker.pid) for worker in workers}
        eventually(lambda: {pid for _, _, pid in stage.entries} == pids, within=30, what=f"work of both\n{stage.said()}")

        primary.freeze()
        replica.promote()
        entered, accepted = len(stage.entries), len(stage.accepted)
        begun = time.monotonic()
        # The bar is for a quiet machine, like every bound on waiting.
        left = BUSY_S + 15
        eventually(lambda: {pid for _, _, pid in stage.entries[entered:]} == pids, within=left, what=f"work of both there\n{stage.said()}")
        took = time.monotonic() - begun
        eventually(lambda: len(stage.accepted) > accepted + 10, within=max(1.0, left - took / patient(1)), what=f"answers\n{stage.said()}")

        caller.send(signal.SIGTERM)
        assert caller.ends(within=BUSY_S + 15) == 0
        stage.database = replica.url()
        assert set(stage.drained().values()) == {"COMPLETED"}
        stage.check()
        assert len(set(stage.executed)) == len(stage.executed)
        assert set(stage.accepted) <= set(stage.executed)
        for worker in workers:
            worker.send(signal.SIGTERM)
        assert [worker.ends() for worker in workers] == [0, 0]
        assert [worker.worker_id in worker.text for worker in workers] == [True, True]
        primary.kill()


@pytest.mark.timeout(120)
def test_a_worker_and_a_caller_whose_only_server_is_stopped_can_be_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    server = make_server()
    try:
        with closing(Stage(tmp_path, server.url() + "?connect_timeout=2")) as stage:
            worker = stage.worker(4, busy_timeout=1, lease_ttl=9, shutdown_grace=1)
            caller = stage.start("patient", stage.accepted_file, 10, "work:2", busy_timeout=1)
            eventually(lambda: len(stage.entries) > 20, within=30, what=f"some work\n{stage.said()}")
            server.freeze()
            time.sleep(0.5)
            worker.send(signal.SIGTERM)
            caller.send(signal.SIGTERM)
            assert worker.ends(within=40) in {0, 1}, stage.said()
            # It calls until the store is there; what it has to show is that each call returns.
            eventually(lambda: not worker.alive, what="the end")
            server.thaw()
            assert caller.ends(within=40) == 0, stage.said()
    finally:
        server.kill()
        server.throw_away()
