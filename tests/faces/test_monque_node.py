"""Rota beside processes of Node.js on one collection of Monque's: `tests/node/monque.cjs` does there what the library's source does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bson import Decimal128, ObjectId
from typer.testing import CliRunner

from rota import Context, Rota
from rota.compat.faces import monque_document
from rota.compat.monque import Monque, data_of
from rota.compat.monque_bridge import Bridge
from rota.compat.monque_collection import INDEXES, create_indexes, index_findings
from rota.model.findings import State
from rota.model.gate import Right
from rota.operation import ask_for
from rota.surfaces.cli.app import app
from tests.faces.monque_support import ROOT, Shared
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.waiting import eventually

APP = """
import time

from pymongo import MongoClient

from rota import Context, Rota

rota = Rota()
ran = MongoClient({url!r})[{database!r}][{ran!r}]


def note(ctx):
    from bson import Decimal128, ObjectId

    ran.insert_one({{"job": ObjectId(ctx.meta["monque"]["_id"]["$oid"]), "by": "rota"}})


@rota.job(name="shared")
def shared(ctx: Context, i: int) -> None:
    note(ctx)
    time.sleep(0.002)


@rota.job(name="hangs")
def hangs(ctx: Context) -> None:
    note(ctx)
    time.sleep(3600)


@rota.job(name="crosses")
def crosses(ctx: Context) -> None:
    note(ctx)
    raise ValueError("fails in python")
"""
SETTINGS = {
    "ROTA_MONQUE_POLL": "0.02",
    "ROTA_MONQUE_HEARTBEAT": "0.2",
    "ROTA_MONQUE_RETRY_BASE": "0.05",
    "ROTA_MONQUE_LOCK_TIMEOUT": "1.5",
    "ROTA_MONQUE_CONCURRENCY": "8",
    "ROTA_SHUTDOWN_GRACE": "1",
    "ROTA_KILL_GRACE": "0.2",
}

JOBS = size(400, prove=10_000)
ROUNDS = size(2, prove=20)


@pytest.fixture
def shared():
    made = Shared()
    yield made
    made.close()


class Bridges:
    """Bridges as processes of their own."""

    def __init__(self, folder: Path, shared: Shared) -> None:
        self.folder = folder
        self.shared = shared
        self.settings = SETTINGS
        url = shared.url.partition("&collection=")[0]
        (folder / "shop.py").write_text(APP.format(url=url, database=shared.jobs.database.name, ran=shared.ran.name))
        self._processes: list[subprocess.Popen[str]] = []

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "rota", "bridge", "monque", self.shared.url, *words]

    @property
    def env(self) -> dict[str, str]:
        return os.environ | self.settings | {"PYTHONPATH": str(ROOT / "src"), "ROTA_STORE": str(self.folder / "rota.db")}

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = self.command("--app", "shop:rota", *words)
        process = subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._processes.append(process)
        assert process.stdout is not None
        said = []
        while "is up on" not in (line := process.stdout.readline()):
            said.append(line)
            assert line, "".join(said)
        return process

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def bridges(tmp_path, shared):
    made = Bridges(tmp_path, shared)
    yield made
    made.close()


def left(shared: Shared) -> int:
    return shared.jobs.count_documents({"status": {"$in": ["pending", "processing"]}})


def recorded(bridges: Bridges) -> int:
    rota = Rota(str(bridges.folder / "rota.db"))
    try:
        return rota.store.stats().by_status.get("COMPLETED", 0)
    finally:
        rota.close()


# ---- indexes and types ---------------------------------------------------------------------------------------------------


def test_either_side_creates_the_indexes_and_the_other_finds_them(shared):
    names = {"_id_", *(index.name for index in INDEXES)}
    assert set(shared.node("init")["indexes"]) == names
    create_indexes(shared.jobs)
    assert [each.state for each in index_findings(shared.jobs)] == [State.OK]
    shared.jobs.drop()
    create_indexes(shared.jobs)
    assert set(shared.node("init")["indexes"]) == names
    shared.jobs.drop()
    shared.jobs.create_index([("status", 1), ("nextRunAt", 1)], name="due")
    assert "different name" in shared.node("init")["error"]


def test_types_survive_from_python_to_node(shared):
    who = ObjectId()
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    Monque(shared.jobs).now("typed", {"at": at, "who": who, "amount": Decimal("12.30"), "bytes": b"hello"})
    read = shared.node("read", names=["typed"])
    assert read == {"at": "2026-01-02T03:04:05.678Z", "who": str(who), "amount": "12.30", "bytes": "hello", "id": True}


def test_types_survive_from_node_to_a_handler_and_to_the_document_face(shared, live):
    seen = []

    @live.job(name="typed")
    def typed(ctx: Context, at: datetime, amount: Decimal, **more: Any) -> None:
        seen.append((at, amount, more["who"], data_of(ctx, more)))

    live.settings = msgspec.structs.replace(live.settings, monque_poll=0.02)
    made = shared.node("types", names=["typed"])["id"]
    bridge = Bridge(live, shared.url).start()
    try:
        (job,) = eventually(lambda: live.jobs.list(job_type="typed"))
    finally:
        bridge.stop()
    moment, who = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC), ObjectId("6760a1234567890abcdef123")
    ((at, amount, text, exact),) = seen
    assert (at, amount, text) == (moment, Decimal("12.30"), str(who))
    kept = {"at": moment, "who": who, "amount": Decimal128("12.30"), "bytes": b"hello", "whole": 7, "part": 1.5, "text": "x"}
    assert exact == kept | {"many": [{"at": datetime(1970, 1, 1, tzinfo=UTC)}]}
    shown = monque_document(ask_for(live, Right.READ), job.id)
    assert (shown["_id"], shown["data"]["who"], shown["data"]["whole"]) == ({"$oid": made}, {"$oid": str(who)}, 7)


# ---- side by side --------------------------------------------------------------------------------------------------------


@pytest.mark.prove
def test_four_hundred_jobs_are_shared_with_node_none_twice_none_left(shared, bridges):
    create_indexes(shared.jobs)
    node = shared.start_node(names=["shared"], drains=False, slow=3)
    bridge = bridges.start()
    monque = Monque(shared.jobs)
    for i in range(JOBS // 2):
        monque.now("shared", {"i": i})
    assert shared.node("produce", names=["shared"], count=JOBS // 2)["produced"] == JOBS // 2
    eventually(lambda: left(shared) == 0, within=40)
    runs = shared.runs()
    assert (len(runs), sum(count > 1 for count in runs.values())) == (JOBS, 0)
    assert shared.by_status() == {"completed": JOBS}
    by = shared.ran_by()
    assert min(by.get("rota", 0), by.get("node", 0)) > 0
    bridge.send_signal(signal.SIGTERM)
    assert bridge.wait(patient(20)) == 0
    node.kill()
    assert recorded(bridges) == by["rota"]


@pytest.mark.prove
@pytest.mark.parametrize("victim", ["rota", "node"])
def test_four_hundred_jobs_survive_the_kill_of_either_side_and_only_what_it_held_runs_again(shared, bridges, victim):
    create_indexes(shared.jobs)
    bridges.settings = SETTINGS | {"ROTA_MONQUE_LOCK_TIMEOUT": "5"}
    monque = Monque(shared.jobs)

    def start(side: str) -> subprocess.Popen[str]:
        return bridges.start() if side == "rota" else shared.start_node(names=["shared"], drains=False, slow=3, lockTimeout=5000)

    sides = {side: start(side) for side in ("rota", "node")}
    held: set[ObjectId] = set()
    for number in range(ROUNDS):
        for i in range(JOBS // ROUNDS):
            monque.now("shared", {"i": number * JOBS + i})
            if i == JOBS // ROUNDS // 2:
                its = {"claimedBy": {"$regex": f"-{sides[victim].pid}(-|$)"}, "status": "processing"}
                eventually(lambda its=its: shared.jobs.count_documents(its))
                sides[victim].kill()
                sides[victim].wait()
                held |= {each["_id"] for each in shared.jobs.find(its)}
        sides[victim] = start(victim)
    eventually(lambda: left(shared) == 0, within=60)
    runs = shared.runs()
    assert len(runs) == JOBS
    assert shared.by_status() == {"completed": JOBS}
    assert {job for job, count in runs.items() if count > 1} <= held
    assert len(held) <= ROUNDS * 8
    assert min(shared.ran_by().get(side, 0) for side in sides) > 0


def test_a_failure_in_python_is_retried_by_node(shared, bridges):
    create_indexes(shared.jobs)
    bridge = bridges.start()
    monque = Monque(shared.jobs)
    for _ in range(5):
        monque.now("crosses")
    eventually(lambda: shared.jobs.count_documents({"failCount": {"$gte": 1}}) == 5)
    bridge.send_signal(signal.SIGTERM)
    assert bridge.wait(patient(20)) == 0
    reasons = shared.jobs.distinct("failReason")
    node = shared.start_node(names=["crosses"], drains=True)
    node.wait(patient(20))
    assert reasons == ["ValueError: fails in python"]
    assert shared.by_status() == {"completed": 5}
    assert shared.jobs.count_documents({"failReason": {"$exists": True}}) == 0


def test_a_bridge_that_is_killed_loses_nothing_node_runs_its_documents_after_the_lock_timeout(shared, bridges):
    create_indexes(shared.jobs)
    made = Monque(shared.jobs).now("hangs")
    bridge = bridges.start()
    eventually(lambda: shared.ran_by().get("rota") == 1)
    # It holds on to its claim for longer than the timeout while it lives.
    assert shared.node("init", lockTimeout=1500)["recovered"] == 0
    bridge.kill()
    bridge.wait()
    locked = shared.jobs.find_one({"_id": made["_id"]})
    assert (locked["status"], locked["claimedBy"].startswith("rota-")) == ("processing", True)

    def recovered() -> bool:
        return shared.node("init", lockTimeout=300)["recovered"] == 1

    eventually(recovered)
    shared.start_node(names=["hangs"], drains=True).wait(patient(20))
    assert shared.by_status() == {"completed": 1}
    assert shared.runs()[made["_id"]] == 2


def test_a_node_process_that_is_killed_loses_nothing_the_bridge_recovers_its_documents(shared, bridges):
    create_indexes(shared.jobs)
    made = [Monque(shared.jobs).now("shared", {"i": i}) for i in range(3)]
    node = shared.start_node(names=["shared"], hang=True)
    eventually(lambda: shared.ran_by().get("node") == 3)
    node.kill()
    node.wait()
    bridges.start()
    eventually(lambda: left(shared) == 0)
    assert shared.by_status() == {"completed": 3}
    assert [shared.runs()[each["_id"]] for each in made] == [2, 2, 2]
    assert shared.ran_by() == {"node": 3, "rota": 3}


def test_a_bridge_that_is_killed_is_recovered_by_another_and_indexes_are_created_unless_it_is_told_not_to(shared, bridges):
    Monque(shared.jobs).now("hangs")
    first = bridges.start("--no-indexes")
    eventually(lambda: shared.ran_by().get("rota") == 1)
    assert [each["name"] for each in shared.jobs.list_indexes()] == ["_id_"]
    bridges.start()
    assert len(list(shared.jobs.list_indexes())) == 11
    first.kill()
    eventually(lambda: shared.ran_by().get("rota") == 2, within=20)


def test_a_second_signal_interrupts_the_handlers_and_their_documents_are_pending_again(shared, bridges):
    bridges.settings = SETTINGS | {"ROTA_SHUTDOWN_GRACE": "3600"}
    made = Monque(shared.jobs).now("hangs")
    bridge = bridges.start()
    eventually(lambda: shared.ran_by().get("rota") == 1)
    bridge.send_signal(signal.SIGTERM)
    assert bridge.stdout is not None
    while "may finish" not in (line := bridge.stdout.readline()):
        assert line
    assert shared.jobs.find_one({"_id": made["_id"]})["status"] == "processing"
    bridge.send_signal(signal.SIGTERM)
    assert bridge.wait(patient(20)) == 0
    after = shared.jobs.find_one({"_id": made["_id"]})
    assert (after["status"], after["failCount"], "claimedBy" in after) == ("pending", 0, False)


def test_check_compares_the_indexes_and_exits_with_one_on_a_problem(shared):
    checked = CliRunner().invoke(app, ["bridge", "monque", shared.url, "--check"])
    assert (checked.exit_code, "name_1_uniqueKey_1 is missing" in checked.output) == (1, True)
    create_indexes(shared.jobs)
    checked = CliRunner().invoke(app, ["bridge", "monque", shared.url, "--check", "--json"])
    assert (checked.exit_code, json.loads(checked.output)["state"]) == (0, "ok")
