"""The bridge to Monque: its documents run with Rota's handlers, end by the library's rules, and are recorded in the store."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from bson import Decimal128, ObjectId
from pymongo.errors import AutoReconnect

from rota import Context, PermanentError, Retry, Rota, Skip, Snooze
from rota.compat.faces import monque_document
from rota.compat.monque import Monque, data_of
from rota.compat.monque_bridge import Bridge
from rota.errors import InvalidOption, StoreUnavailable
from rota.model.gate import Right
from rota.operation import ask_for
from tests.faces.monque_support import Shared
from tests.support.runs import run_of
from tests.support.waiting import eventually

QUICK = {"monque_poll": 0.02, "monque_heartbeat": 0.2, "monque_lock_timeout": 60.0, "monque_retry_base": 0.01}


@pytest.fixture
def monque(jobs):
    return Monque(jobs)


@pytest.fixture
def app(live: Rota) -> Rota:
    live.settings = msgspec.structs.replace(live.settings, **QUICK)
    return live


@contextmanager
def bridged(app: Rota, server: Shared, **options: Any):
    made = Bridge(app, server.url, indexes=False, **options).start()
    try:
        yield made
    finally:
        made.stop()


def ended(monque: Monque, document: Any, *states: str):
    """Wait until a document is in one of these states, and return it."""
    wanted = states or ("completed", "failed")
    return eventually(lambda: found if (found := monque.get(document))["status"] in wanted else None)


def recorded(app: Rota, name: str, count: int = 1):
    """Wait until this many executions of a name are recorded; return their first attempts, oldest first."""

    def look():
        found = [job for job in app.jobs.list(job_type=name, limit=1000) if job.attempt == 1]
        return found[::-1] if len(found) >= count else None

    return eventually(look)


def test_a_document_is_run_completed_and_recorded_as_a_chain_that_has_ended(app, server, monque):
    @app.job(name="send-email", timeout="5s")
    def send(ctx: Context, to: str, copies: int = 1) -> list[str]:
        assert ctx.attempt == 1
        return [to] * copies

    made = monque.enqueue("send-email", {"to": "ada", "copies": 2}, priority=70)
    with bridged(app, server):
        after = ended(monque, made)
        (job,) = recorded(app, "send-email")
    assert (after["status"], after["failCount"]) == ("completed", 0)
    assert not after.keys() & {"claimedBy", "lockedAt", "lastHeartbeat", "claimId"}
    assert (job.status, job.params, job.priority) == ("COMPLETED", {"to": "ada", "copies": 2}, 70)
    run = run_of(app, job.id)
    assert (run.status, run.result) == ("COMPLETED", ["ada", "ada"])
    assert job.started_at <= job.finished_at
    assert job.meta["monque"]["_id"] == {"$oid": str(made["_id"])}
    assert [each.id for each in app.jobs.list(tag=f"monque:{made['_id']}")] == [job.id]
    assert any(each.action == "job.adopt" for each in app.audit.list())
    # Nothing waits here: a worker of Rota's finds no work.
    app.turn()
    assert len(app.jobs.list(job_type="send-email")) == 1


def test_a_failure_is_retried_by_the_document_and_each_execution_is_a_chain(app, server, monque):
    seen: list[tuple[int, str]] = []

    @app.job(name="flaky", max_retries=0)
    def flaky(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.root_id))
        if len(seen) < 3:
            raise ValueError(f"no line {len(seen)}")

    made = monque.now("flaky")
    with bridged(app, server):
        after = ended(monque, made)
        first, second, third = recorded(app, "flaky", 3)
    assert (after["status"], after["failCount"]) == ("completed", 2)
    assert "failReason" not in after
    assert [attempt for attempt, _ in seen] == [1, 2, 3]
    assert len({root for _, root in seen}) == 1
    assert (first.status, second.status, third.status) == ("FAILED", "FAILED", "COMPLETED")
    assert run_of(app, first.id).error == "ValueError: no line 1"
    assert "no line 1" in run_of(app, first.id).traceback
    tail = app.jobs.attempts(first.id)[-1]
    assert (tail.status, tail.reason) == ("SKIPPED", "Monque retries its document")
    assert list(app.dead_letters.list()) == []


def test_the_last_failure_is_a_dead_letter_and_a_permanent_one_is_the_last(app, server, monque):
    app.settings = msgspec.structs.replace(app.settings, monque_max_retries=2)

    @app.job(name="fails")
    def fails() -> None:
        raise ValueError("always")

    @app.job(name="never")
    def never() -> None:
        raise PermanentError("not like this")

    with bridged(app, server):
        after = ended(monque, monque.now("fails"))
        assert (after["status"], after["failCount"], after["failReason"]) == ("failed", 2, "ValueError: always")
        assert [job.status for job in recorded(app, "fails", 2)] == ["FAILED", "DEAD_LETTER"]
        after = ended(monque, monque.now("never"))
        assert (after["status"], after["failCount"]) == ("failed", 1)
        assert recorded(app, "never")[0].status == "DEAD_LETTER"


def test_retry_snooze_skip_and_timeout_mean_the_same_as_elsewhere(app, server, monque):
    @app.job(name="again")
    def again() -> None:
        raise Retry("busy", after=3600)

    @app.job(name="later")
    def later() -> None:
        raise Snooze(3600)

    @app.job(name="nothing")
    def nothing() -> None:
        raise Skip("nothing to do")

    @app.job(name="slow", timeout="0.1s")
    async def slow() -> None:
        import asyncio

        await asyncio.sleep(30)

    app.settings = msgspec.structs.replace(app.settings, monque_max_retries=2)
    made = {name: monque.now(name) for name in ("again", "later", "nothing", "slow")}
    with bridged(app, server):
        for name, count in (("again", 1), ("later", 0)):
            after = eventually(
                lambda name=name: found if (found := monque.get(made[name]))["nextRunAt"] > made[name]["nextRunAt"] else None
            )
            assert (after["status"], after["failCount"]) == ("pending", count)
            assert timedelta(minutes=59) < after["nextRunAt"] - datetime.now(UTC) <= timedelta(hours=1)
        assert ended(monque, made["nothing"])["status"] == "completed"
        assert recorded(app, "nothing")[0].status == "SKIPPED"
        assert "timed out after 0.1 s" in ended(monque, made["slow"])["failReason"]
        assert [job.status for job in recorded(app, "slow", 2)] == ["TIMED_OUT", "DEAD_LETTER"]


def test_a_recurring_document_is_re_armed_and_stops_when_it_fails_for_good(app, server, monque, jobs):
    app.settings = msgspec.structs.replace(app.settings, monque_max_retries=1)
    fine = True

    @app.job(name="daily")
    def daily(of: str) -> None:
        if not fine:
            raise ValueError("no")

    made = monque.schedule("0 0 * * *", "daily", {"of": "sales"}, timezone="Europe/Berlin")
    with bridged(app, server):
        jobs.update_one({"_id": made["_id"]}, {"$set": {"nextRunAt": datetime.now(UTC)}})
        recorded(app, "daily")
        after = monque.get(made)
        assert (after["status"], after["nextRunAt"], after["repeatInterval"]) == ("pending", made["nextRunAt"], "0 0 * * *")
        fine = False
        jobs.update_one({"_id": made["_id"]}, {"$set": {"nextRunAt": datetime.now(UTC)}})
        assert ended(monque, made, "failed")["repeatInterval"] == "0 0 * * *"


def test_types_of_mongodb_reach_the_handler_as_its_annotations_say_and_survive(app, server, monque):
    seen: dict[str, Any] = {}

    @app.job(name="typed")
    def typed(ctx: Context, at: datetime, amount: Decimal, who: str, data: bytes) -> None:
        seen.update(at=at, amount=amount, who=who, data=data, exact=data_of(ctx, {}))

    at, who = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC), ObjectId()
    made = monque.now("typed", {"at": at, "amount": Decimal("12.30"), "who": who, "data": b"hello"})
    with bridged(app, server):
        assert ended(monque, made)["data"] == made["data"]
        (job,) = recorded(app, "typed")
    assert (seen["at"], seen["amount"], seen["who"], seen["data"]) == (at, Decimal("12.30"), str(who), b"hello")
    assert seen["exact"] == {"at": at, "amount": Decimal128("12.30"), "who": who, "data": b"hello"}
    shown = monque_document(ask_for(app, Right.READ), job.id)
    assert shown["_id"] == {"$oid": str(made["_id"])}
    assert shown["data"] == {
        "at": {"$date": "2026-01-02T03:04:05.678Z"},
        "amount": {"$numberDecimal": "12.30"},
        "who": {"$oid": str(who)},
        "data": {"$binary": {"base64": "aGVsbG8=", "subType": "00"}},
    }


def test_data_that_does_not_fit_the_handler_fails_at_once_and_bad_documents_too(app, server, monque, jobs):
    @app.job(name="strict")
    def strict(number: int) -> None: ...

    wrong, broken = monque.now("strict", {"nmber": 1}), monque.now("strict", {"number": 1})
    jobs.update_one({"_id": broken["_id"]}, {"$unset": {"createdAt": ""}})
    with bridged(app, server):
        assert "needs a parameter 'number'" in ended(monque, wrong)["failReason"]
        assert "createdAt" in ended(monque, broken)["failReason"]
    assert app.jobs.list(job_type="strict") == []


def test_handlers_run_in_their_executors_and_resume_from_checkpoints(app, server, monque):
    seen: list[Any] = []

    @app.job(name="steps")
    def steps(ctx: Context) -> None:
        seen.append(ctx.resumed_from)
        ctx.checkpoint({"done": len(seen)})
        if len(seen) == 1:
            raise ValueError("half-way")

    @app.job(name="awaits")
    async def awaits(ctx: Context, n: int) -> int:
        return n + 1

    @app.job(name="asks")
    def asks(ctx: Context) -> str:
        return ctx.enqueue("awaits", {"n": 5}).number

    with bridged(app, server):
        ended(monque, monque.now("steps"))
        ended(monque, monque.now("awaits", {"n": 1}))
        ended(monque, monque.now("asks"))
        assert run_of(app, recorded(app, "awaits")[0].id).result == 2
        recorded(app, "asks")
    assert seen == [None, {"done": 1}]
    # What a handler enqueues is a job of Rota's own.
    assert any(job.status == "QUEUED" and job.params == {"n": 5} for job in app.jobs.list(job_type="awaits"))


def test_no_more_than_its_share_of_one_name_runs_at_once(app, server, monque):
    app.settings = msgspec.structs.replace(app.settings, monque_concurrency=2)
    now, most = 0, 0

    @app.job(name="busy")
    async def busy() -> None:
        import asyncio

        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.03)
        now -= 1

    made = [monque.now("busy") for _ in range(8)]
    with bridged(app, server, concurrency=8):
        for each in made:
            ended(monque, each)
    assert most == 2


def test_a_stop_lets_running_handlers_finish_and_gives_back_what_cannot(app, server, monque):
    app.settings = msgspec.structs.replace(app.settings, shutdown_grace=0.3, kill_grace=0.3)
    begun: list[str] = []

    @app.job(name="waits")
    async def waits(seconds: float) -> None:
        import asyncio

        begun.append("")
        await asyncio.sleep(seconds)

    quick, slow = monque.now("waits", {"seconds": 0.1}), monque.now("waits", {"seconds": 60})
    with bridged(app, server):
        eventually(lambda: len(begun) == 2)
    assert monque.get(quick)["status"] == "completed"
    back = monque.get(slow)
    assert (back["status"], back["failCount"], "claimedBy" in back) == ("pending", 0, False)


def test_a_handler_is_stopped_when_its_document_is_taken_over_and_its_outcome_is_not_kept(app, server, monque, jobs):
    begun: list[str] = []

    @app.job(name="taken")
    async def taken() -> None:
        import asyncio

        begun.append("")
        await asyncio.sleep(60)

    made = monque.now("taken")
    with bridged(app, server):
        eventually(lambda: begun)
        jobs.update_one({"_id": made["_id"]}, {"$set": {"claimedBy": "node", "lockedAt": datetime.now(UTC)}, "$unset": {"claimId": ""}})
        (job,) = recorded(app, "taken")
    assert (job.status, "taken over" in job.reason) == ("CANCELLED", True)
    assert monque.get(made)["claimedBy"] == "node"


def test_a_claim_that_runs_longer_than_the_lock_timeout_stays_ours(app, server, monque):
    app.settings = msgspec.structs.replace(app.settings, monque_lock_timeout=0.6, monque_heartbeat=0.1)
    runs: list[str] = []

    @app.job(name="long")
    def long() -> None:
        runs.append("")
        time.sleep(1.5)

    made = monque.now("long")
    with bridged(app, server), bridged(app, server):
        assert ended(monque, made)["failCount"] == 0
    assert len(runs) == 1


def test_outcomes_are_kept_while_mongodb_or_the_store_is_away(app, server, monque, monkeypatch):
    @app.job(name="work")
    def work() -> None: ...

    with bridged(app, server) as bridge:
        claims, store = bridge._claims, bridge._store
        fails = [2, 2]
        end, adopt = claims.end, store.adopt

        def away(number, call, error):
            def tried(*args, **options):
                if fails[number]:
                    fails[number] -= 1
                    raise error
                return call(*args, **options)

            return tried

        monkeypatch.setattr(claims, "end", away(0, end, AutoReconnect("away")))
        monkeypatch.setattr(store, "adopt", away(1, adopt, StoreUnavailable("away")))
        assert ended(monque, monque.now("work"))["status"] == "completed"
        assert recorded(app, "work")[0].status == "COMPLETED"
        assert fails == [0, 0]


def test_a_bridge_that_is_at_home_before_its_stop_is_heard_stops_without_an_error(app, server, monkeypatch):
    app.job(name="work")(lambda: None)
    bridge = Bridge(app, server.url, indexes=False).start()
    write = os.write

    def late(fd: int, data: bytes) -> int:
        if threading.current_thread() is threading.main_thread():
            # Its thread is fast, and this one slow.
            bridge._thread.join(0.5)
        return write(fd, data)

    monkeypatch.setattr("rota.engine.inbox.os.write", late)
    bridge.stop()
    bridge.hurry()
    assert not bridge.running


def test_a_bridge_without_handlers_is_refused(app, server):
    with pytest.raises(InvalidOption, match="--app"):
        Bridge(app, server.url)
