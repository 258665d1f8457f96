"""The bridge in trouble: MongoDB or the store is away, says nothing, or refuses; and two processes of which one is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pymongo.errors import PyMongoError
from typer.testing import CliRunner

from rota import Rota
from rota.compat.monque import Monque
from rota.compat.monque_bridge import Bridge
from rota.compat.monque_collection import as_jobs, create_indexes, open_collection
from rota.errors import InvalidOption, StoreUnavailable, StoreUnusable
from rota.surfaces.cli.app import app as command
from tests.support.mongodb import GuardedSet, ReplicaSet, make_set
from tests.support.proof import size
from tests.support.waiting import eventually

QUICK = {"monque_poll": 0.02, "monque_heartbeat": 0.1, "monque_retry_base": 0.01, "busy_timeout": 2.0}
KILLS, JOBS = size(1, prove=20), 120


@pytest.fixture
def app(live: Rota) -> Rota:
    live.settings = msgspec.structs.replace(live.settings, **QUICK)
    live.job(name="good")(lambda **params: None)
    return live


@contextmanager
def bridged(app: Rota, url: str) -> Iterator[Bridge]:
    made = Bridge(app, url, indexes=False).start()
    try:
        yield made
    finally:
        made.stop()


def has_run(jobs, document) -> bool:
    return bool(jobs.count_documents({"_id": document["_id"], "status": "completed"}))


@contextmanager
def frozen(own: ReplicaSet) -> Iterator[None]:
    """Let a server take requests and answer none."""
    pids = [process.pid for process in own.processes if process is not None]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def own():
    made = make_set()
    yield made
    made.throw_away()


# ---- MongoDB is away -------------------------------------------------------------------------------------------------------


def test_handlers_are_stopped_before_others_take_over_and_the_bridge_works_again_afterwards(app, own):
    app.settings = msgspec.structs.replace(app.settings, monque_lock_timeout=3.0)
    begun: list[str] = []
    stopped: list[str] = []

    @app.job(name="waits")
    async def waits() -> None:
        begun.append("")
        if len(begun) == 1:
            try:
                await asyncio.sleep(3600)
            finally:
                stopped.append("")

    jobs = as_jobs(open_collection(own.url("shop")))
    monque = Monque(jobs)
    made, before = monque.now("waits"), monque.now("good")
    with bridged(app, own.url("shop")):
        eventually(lambda: begun and has_run(jobs, before))
        with frozen(own):
            eventually(lambda: stopped)
        eventually(lambda: has_run(jobs, made), within=20)
        # Handlers in threads too: they were cut off with the others.
        after = monque.now("good")
        eventually(lambda: has_run(jobs, after))
    assert (len(begun), jobs.find_one({"_id": made["_id"]})["failCount"]) == (2, 0)
    jobs.database.client.close()


def test_a_bridge_stops_although_mongodb_does_not_answer(app, own):
    app.settings = msgspec.structs.replace(app.settings, shutdown_grace=0.5, kill_grace=0.2, busy_timeout=0.5)
    bridge = Bridge(app, own.url("shop"), indexes=False).start()
    with frozen(own):
        bridge.stop()
    assert not bridge.running


def test_documents_are_run_while_the_store_is_away_and_recorded_when_it_is_back(app, server, jobs, monkeypatch):
    monque = Monque(jobs)
    with bridged(app, server.url) as bridge:
        adopt = bridge._store.adopt

        def away(*args: Any, **options: Any) -> None:
            raise StoreUnavailable("away")

        monkeypatch.setattr(bridge._store, "adopt", away)
        for count in (1, 5):
            made = [monque.now("good") for _ in range(count)]
            eventually(lambda made=made: all(has_run(jobs, each) for each in made), within=20)
        assert app.jobs.list(job_type="good") == []
        monkeypatch.setattr(bridge._store, "adopt", adopt)
        eventually(lambda: len(app.jobs.list(job_type="good")) == 6)


def test_a_stop_reports_executions_that_could_not_be_recorded(app, server, jobs, monkeypatch, caplog):
    app.settings = msgspec.structs.replace(app.settings, shutdown_grace=0.2)

    def away(*args: Any, **options: Any) -> None:
        raise StoreUnavailable("away")

    with bridged(app, server.url) as bridge:
        monkeypatch.setattr(bridge._store, "adopt", away)
        made = Monque(jobs).now("good")
        eventually(lambda: has_run(jobs, made))
    assert "1 executions were not recorded, because the store is not available" in caplog.text


# ---- MongoDB refuses -------------------------------------------------------------------------------------------------------


def test_one_document_that_mongodb_refuses_to_change_holds_up_no_other(app, server, jobs):
    def fails() -> None:
        raise ValueError("no")

    app.job(name="fails")(fails)
    jobs.database.create_collection(jobs.name)
    monque = Monque(jobs)
    odd, failing = monque.now("good", {"odd": 1}), monque.now("fails")
    rule = {"data.odd": {"$exists": False}, "failReason": {"$exists": False}}
    jobs.database.command("collMod", jobs.name, validator=rule)
    with bridged(app, server.url) as bridge:
        for _ in range(2):
            good = monque.now("good")
            eventually(lambda good=good: has_run(jobs, good))
        eventually(lambda: bridge._claims.unwritable)
        assert jobs.find_one({"_id": odd["_id"]}) == odd
        assert jobs.find_one({"_id": failing["_id"]})["status"] == "processing"
        # Its outcome is kept, and written when it can be.
        jobs.database.command("collMod", jobs.name, validator={})
        eventually(lambda: jobs.count_documents({"_id": failing["_id"], "failCount": {"$gte": 1}}))
        eventually(lambda: has_run(jobs, odd), within=20)


def test_a_view_is_refused_at_the_start_and_by_a_check(app, server, jobs):
    view = f"{jobs.name}_view"
    jobs.database.create_collection(view, viewOn=jobs.name, pipeline=[])
    url = server.url.replace(f"collection={jobs.name}", f"collection={view}")
    try:
        for indexes, error in ((False, StoreUnusable), (True, InvalidOption)):
            with pytest.raises(error, match="is a view"):
                Bridge(app, url, indexes=indexes).start()
        checked = CliRunner().invoke(command, ["bridge", "monque", url, "--check"])
        assert (checked.exit_code, "is a view" in checked.output) == (1, True)
    finally:
        jobs.database.drop_collection(view)


def test_a_key_that_is_there_twice_is_named_when_its_index_cant_be_created(jobs):
    monque = Monque(jobs)
    for _ in range(2):
        jobs.insert_one({**monque.now("good"), "_id": None} | {"_id": os.urandom(4), "uniqueKey": "k"})
    with pytest.raises(InvalidOption, match="End one of the documents that have the same name and uniqueKey"):
        create_indexes(jobs)


def test_a_user_who_may_only_read_is_refused_with_the_reason(app):
    own = GuardedSet(Path(tempfile.mkdtemp(prefix="rota-mongodb-")))
    own.start()
    try:
        jobs = open_collection(own.url("shop"))
        jobs.database.command("createUser", "reader", pwd="reader", roles=["read"])
        jobs.database.client.close()
        with pytest.raises(StoreUnusable, match="not authorized on shop"):
            Bridge(app, own.url("shop", "reader"), indexes=False).start()
        with pytest.raises(InvalidOption, match="not authorized on shop"):
            Bridge(app, own.url("shop", "reader")).start()
        with pytest.raises(StoreUnusable, match="Authentication failed"):
            Bridge(app, own.url("shop", "stranger")).start()
    finally:
        own.throw_away()


# ---- a primary is killed ---------------------------------------------------------------------------------------------------


@pytest.mark.prove
def test_no_document_is_run_twice_or_left_when_the_primary_is_killed(app):
    ran: Counter[int] = Counter()

    @app.job(name="counted")
    async def counted(i: int) -> None:
        ran[i] += 1
        await asyncio.sleep(0.01)

    own = make_set(members=3)
    try:
        jobs = as_jobs(open_collection(own.url("shop")))
        create_indexes(jobs)
        monque = Monque(jobs)
        for number in range(KILLS):
            for i in range(JOBS):
                monque.enqueue("counted", {"i": number * JOBS + i}, run_at=timedelta(seconds=0.5))
            with bridged(app, own.url("shop")), bridged(app, own.url("shop")):
                eventually(lambda number=number: len(ran) > number * JOBS + JOBS // 4, within=30)
                member = own.primary()
                own.kill(member)
                eventually(lambda: over(jobs), within=40)
                own.start_member(member)
            eventually(own.is_whole, within=60)
        assert sorted(ran) == list(range(KILLS * JOBS))
        assert ran.most_common(1)[0][1] == 1
        assert jobs.count_documents({"status": "completed"}) == KILLS * JOBS
        jobs.database.client.close()
    finally:
        own.throw_away()


def over(jobs) -> bool:
    """Say whether nothing is pending or claimed; no, while no primary answers."""
    try:
        return not jobs.count_documents({"status": {"$in": ["pending", "processing"]}})
    except PyMongoError:
        return False
