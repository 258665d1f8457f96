"""The bench prints no figure that others made: ratios on a busy machine, a server's housekeeping as a worker's, a compiler's time."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.waiting import eventually

BENCH = Path(__file__).parents[2] / "bench"
BURN = "while True: pass"


@pytest.fixture(autouse=True)
def harness(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))


def rows(rota_others, peer_others):
    from harness.figures import Figure, Unit

    row = {"topic": "drain", "work": "100 jobs", "unit": Unit.PER_SECOND}
    return [
        Figure(system="Rota", values=(300.0,), others=rota_others, **row),
        Figure(system="Peer", values=(100.0,), others=peer_others, **row),
        Figure(system="Rota, twice", values=(600.0,), others=0.0, baseline="Rota", **row),
    ]


def test_a_ratio_is_printed_where_the_run_had_the_machine_to_itself():
    from harness.figures import as_json, table

    figures = rows(0.02, 0.15)
    assert "Rota 3.00× its rate" in table(figures)
    assert [row["compared"] for row in as_json(figures)] == ["", "Rota 3.00× its rate", "2.00× of Rota"]


@pytest.mark.parametrize("shares", [(0.02, 0.31), (0.31, 0.02)])
def test_no_ratio_is_printed_where_others_had_the_cores_during_either_row(shares):
    from harness.figures import as_json, table

    figures = rows(*shares)
    assert "no ratio: others had 31% of the cores" in table(figures)
    assert "Rota 3.00×" not in table(figures)
    assert as_json(figures)[1]["compared"] == "no ratio: others had 31% of the cores"


def test_a_row_that_was_not_watched_for_others_still_has_its_ratio():
    from harness.figures import as_json

    assert as_json(rows(None, None))[1]["compared"] == "Rota 3.00× its rate"


def test_others_are_what_the_run_has_not_started_itself(monkeypatch):
    from harness import usage

    now = {"at": 1000.0, "machine": 100.0, "own": 20.0}
    monkeypatch.setattr(usage.time, "monotonic", lambda: now["at"])
    monkeypatch.setattr(usage, "machine_cpu_s", lambda: now["machine"])
    monkeypatch.setattr(usage, "cpu_s", lambda pid: now["own"] if pid == os.getpid() else 0.0)
    monkeypatch.setattr(usage.os, "cpu_count", lambda: 2)
    others = usage.Others()
    now |= {"at": 1010.0, "machine": 110.0, "own": 26.0}
    assert others.share() == pytest.approx(0.2)


def test_cpu_is_taken_by_process_and_in_small_parts():
    from harness.usage import descendants, fine_cpu_s, title

    burns = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        eventually(lambda: fine_cpu_s(burns.pid) > 0.1, what="some CPU")
        assert burns.pid in descendants(os.getpid())
        assert BURN in title(burns.pid)
        assert fine_cpu_s(burns.pid) % 0.01  # finer than the ticks of the clock
    finally:
        burns.kill()
        burns.wait()
    assert fine_cpu_s(burns.pid) == 0.0
    assert title(burns.pid) == ""


def test_only_sessions_that_were_opened_since_then_count_as_a_workers(monkeypatch):
    from harness import compare

    titles = {
        2: "postgres: checkpointer ",
        3: "postgres: postgres rota 127.0.0.1(40100) idle",
        4: "postgres: postgres rota 127.0.0.1(40101) idle",
        5: "postgres: autovacuum worker rota",
    }
    monkeypatch.setattr(compare.usage, "descendants", lambda _: set(titles))
    monkeypatch.setattr(compare.usage, "title", titles.get)
    assert compare.sessions_since(1, {3}) == {4}
    assert compare.sessions_since(None, set()) == set()


def test_an_idle_workers_cpu_is_its_own_its_childrens_and_its_sessions(monkeypatch):
    """Session 5 is another's, child 11 ends on the way, session 6 is opened on the way."""
    from types import SimpleNamespace

    from harness import compare
    from harness.lab import ROTA_PG

    cpu = {1: 5.0, 5: 9.0, 7: 3.0, 10: 1.0, 11: 2.0}
    started = {10: {11}, 1: {5, 7}}
    monkeypatch.setattr(compare.usage, "descendants", lambda pid: started[pid])
    monkeypatch.setattr(compare.usage, "title", lambda pid: f"postgres: postgres rota 127.0.0.1({pid}) idle")
    monkeypatch.setattr(compare.usage, "fine_cpu_s", lambda pid: cpu.get(pid, 0.0))
    meter = compare._IdleMeter(SimpleNamespace(servers={"postgres": 1}), ROTA_PG, SimpleNamespace(pid=10), {5})
    cpu |= {1: 50.0, 5: 90.0, 6: 0.25, 7: 3.5, 10: 1.5, 11: 2.25}
    started[1] = {5, 6, 7}
    meter.read()
    started[10] = set()
    del cpu[11]
    meter.read()
    assert meter.used() == (0.75, 0.75)


def test_an_idle_workers_cpu_on_mongodb_is_its_own_and_the_primarys(monkeypatch):
    from types import SimpleNamespace

    from harness import compare
    from harness.lab import ROTA_MONGO

    cpu = {1: 5.0, 3: 9.0, 10: 1.0}
    monkeypatch.setattr(compare.usage, "descendants", lambda _: set())
    monkeypatch.setattr(compare.usage, "fine_cpu_s", cpu.get)
    meter = compare._IdleMeter(SimpleNamespace(servers={"postgres": 3, "mongodb": 1}), ROTA_MONGO, SimpleNamespace(pid=10), set())
    cpu |= {1: 5.5, 3: 90.0, 10: 1.25}
    meter.read()
    assert meter.used() == (0.25, 0.5)


def test_a_load_names_the_server_that_had_it():
    from harness.draining import Load, describe_load

    load = Load(worker=0.2, server=0.9, workers=1, cpu_us=(40.0, 180.0), peak_mib=50.0, alone_mib=50.0, server_name="MongoDB")
    assert describe_load([load, load]) == "worker 0.20, MongoDB 0.90 cores: MongoDB is the limit"
    assert describe_load([replace(load, server=None)]) == ""


def test_each_kind_of_store_has_a_rota_and_its_peers_know_where_the_server_is(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH / "peers"))
    from common import mongodb_url
    from harness.compare import ROTAS
    from harness.lab import PREFIX, SERVERS, SYSTEMS

    assert [rota.store for rota in ROTAS] == list(PREFIX)
    assert {system.store for system in SYSTEMS} == set(PREFIX) == {"sqlite", *SERVERS}
    assert all((BENCH / "peers" / system.file).is_file() for system in SYSTEMS)
    monkeypatch.setenv("BENCH_MONGODB", "mongodb://127.0.0.1:1,127.0.0.1:2/?replicaSet=bench")
    assert mongodb_url("rota") == "mongodb://127.0.0.1:1,127.0.0.1:2/rota?replicaSet=bench"


def test_a_replica_set_has_three_members_whose_journals_count_and_is_gone_afterwards(tmp_path):
    from harness import mongodb
    from harness.children import Children
    from pymongo import MongoClient

    with Children(os.environ, tmp_path / "log") as children:
        with mongodb.serving(children, tmp_path) as server, MongoClient(server.url) as client:
            config = client.admin.command("replSetGetConfig")["config"]
            hello = client.admin.command("hello")
            port = int(hello["me"].partition(":")[2])
            assert f"--port {port} " in Path(f"/proc/{server.process.pid}/cmdline").read_text().replace("\0", " ")
            assert (len(config["members"]), config["writeConcernMajorityJournalDefault"]) == (3, True)
        assert server.process.poll() is not None
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_children_keep_what_they_have_compiled():
    from harness.children import clean

    given = {"PATH": "/bin", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": "/nowhere"}
    assert clean(given) == {"PATH": "/bin"}
