"""The Python surface: what it accepts, what it refuses, and that a refusal leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from rota import Actor, Backoff, Context, NewJob, Rota, Settings, Status, enqueue_async
from rota.errors import (
    InvalidHandler,
    InvalidName,
    InvalidOption,
    InvalidParams,
    JobCancelled,
    NotFound,
    PayloadTooLarge,
    ResourceBusy,
    TransactionMisuse,
    UnknownTemplate,
    WaitTimeout,
)
from rota.submission import submit
from rota.waits import wait_async
from tests.support.pace import patient
from tests.support.runs import run_of


@pytest.fixture
def echo(rota: Rota) -> Rota:
    @rota.job
    def echo(text: str = "hi") -> str:
        return text

    return rota


def count(rota: Rota) -> int:
    return sum(rota.store.stats().by_status.values())


def test_an_enqueued_job_says_who_it_is(echo: Rota):
    job = echo.acting_as("ada").enqueue("echo", {"text": "a"}, priority="high", unique_key="k")
    stored = echo.jobs.get(job.id)
    assert (stored.status, stored.priority, stored.position, stored.attempt, job.existing) == (Status.QUEUED, 75, 100, 1, False)
    assert (stored.owner, stored.params, stored.number, job.number) == ("ada", {"text": "a"}, "JOB-2026-00001", "JOB-2026-00001")


def test_a_job_that_was_just_accepted_is_what_the_store_has(echo: Rota):
    accepted = submit(echo._session, "ada", "echo", {"text": "a"}, priority="high", unique_key="k")
    assert accepted.job() == echo.jobs.get(accepted.job().id)


@pytest.mark.parametrize("text", ["JOB-2026-00001", "job-2026-1", "1", 1])
def test_a_job_is_found_by_its_number_too(echo: Rota, text):
    job = echo.enqueue("echo")
    assert echo.jobs.get(text).id == job.id


@pytest.mark.parametrize("text", ["", "JOB-", "JOB-2026-00001.9", "99", "not-an-id", "-1"])
def test_what_names_no_job_is_not_found(echo: Rota, text):
    echo.enqueue("echo")
    with pytest.raises(NotFound):
        echo.jobs.get(text)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"name": "echo", "params": {"text": object()}}, InvalidParams, "params.text is an object"),
        ({"name": "echo", "params": {"text": float("nan")}}, InvalidParams, "params.text is NaN"),
        ({"name": "echo", "params": [1]}, InvalidParams, "not list"),
        ({"name": "echo", "params": {"txt": "a"}}, InvalidParams, "no parameter 'txt'"),
        ({"name": "echo", "params": {"text": "x" * 2_000_000}}, PayloadTooLarge, "payload_max"),
        ({"name": "nope"}, UnknownTemplate, "known here: echo"),
        ({"name": ""}, InvalidName, "1 to 255"),
        ({"name": "x" * 300}, InvalidName, "300 characters"),
        ({"name": "echo", "priority": 101}, InvalidOption, "0 to 100"),
        ({"name": "echo", "priority": "urgent"}, InvalidOption, "critical"),
        ({"name": "echo", "max_retries": -1}, InvalidOption, "max_retries=-1"),
        ({"name": "echo", "timeout": -1}, InvalidOption, "timeout=-1"),
        ({"name": "echo", "queue_ttl": float("inf")}, InvalidOption, "queue_ttl=inf"),
        ({"name": "echo", "unique_key": ""}, InvalidOption, "unique_key ''"),
        ({"name": "echo", "unique_key": "k" * 1025}, InvalidOption, "1 to 1024"),
        ({"name": "echo", "run_at": datetime(2030, 1, 1)}, InvalidOption, "no time zone"),  # noqa: DTZ001 - that is the mistake
        ({"name": "echo", "run_at": timedelta(days=3_000_000)}, InvalidOption, "9999"),
        ({"name": "echo", "run_at": timedelta.max}, InvalidOption, "9999"),
        ({"name": "echo", "run_at": "tomorrow"}, InvalidOption, "not a moment"),
        ({"name": "echo", "job_id": "7"}, InvalidOption, "UUIDv7"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(echo: Rota, arguments, error, words):
    with pytest.raises(error, match=words):
        echo.enqueue(**arguments)
    assert count(echo) == 0


def test_a_run_at_in_the_past_means_now(echo: Rota):
    assert echo.jobs.get(echo.enqueue("echo", run_at=datetime(1999, 1, 1, tzinfo=UTC))).status is Status.QUEUED
    assert echo.jobs.get(echo.enqueue("echo", run_at=timedelta(seconds=-5))).status is Status.QUEUED


def test_a_job_far_in_the_future_can_be_read_and_cancelled(echo: Rota):
    job = echo.enqueue("echo", run_at=datetime(9999, 12, 31, tzinfo=UTC))
    assert echo.jobs.list()[0].run_at.year == 9999
    assert echo.jobs.cancel(job.id).status is Status.CANCELLED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue_ttl": -5}, "queue_ttl=-5"),
        ({"max_retries": 1.5}, "max_retries=1.5"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"priority": -1}, "priority -1"),
    ],
)
def test_a_template_refuses_options_out_of_range(rota: Rota, options, words):
    with pytest.raises(InvalidOption, match=words):
        rota.job(name="bad", **options)(lambda: None)


def test_a_backoff_that_is_not_a_number_is_refused():
    with pytest.raises(InvalidOption, match="backoff base='x'"):
        Backoff(base="x")


def test_two_functions_of_one_name_are_refused(rota: Rota):
    def send():
        """One."""

    rota.job(send)
    with pytest.raises(InvalidHandler, match="another name with name="):
        rota.job(name="send")(lambda: None)


def test_bulk_takes_pairs_names_and_new_jobs_in_their_order(echo: Rota):
    bulk = echo.enqueue_many([("echo", {"text": "a"}), "echo", NewJob(name="echo", params={"text": "c"}, priority=50)])
    assert (bulk.accepted, bulk.existing, len(bulk)) == (3, 0, 3)
    assert [job.params.get("text") for job in echo.queues.jobs()] == ["a", None, "c"]
    assert list(bulk) == [job.id for job in echo.queues.jobs()]


def test_bulk_keeps_no_ids_of_a_generator(echo: Rota):
    assert echo.enqueue_many(("echo", {}) for _ in range(5)).ids == ()


@pytest.mark.parametrize("settings", [Settings(bulk_chunk=2)])
def test_a_bad_item_says_how_many_before_it_were_accepted(echo: Rota):
    with pytest.raises(InvalidParams, match=r"item 3: .*the 3 jobs before it were accepted"):
        echo.enqueue_many([("echo", {}), ("echo", {}), ("echo", {}), ("echo", {"no": 1}), ("echo", {})])
    assert count(echo) == 3


@pytest.mark.parametrize("settings", [Settings(bulk_chunk=2)])
def test_a_bad_item_inside_a_transaction_takes_the_whole_call_back(echo: Rota):
    with echo.transaction() as tx:
        echo.enqueue("echo", transaction=tx)
        with pytest.raises(InvalidParams, match="none was enqueued"):
            echo.enqueue_many([("echo", {}), ("echo", {}), ("echo", {}), ("echo", {"no": 1})], transaction=tx)
    assert count(echo) == 1


def test_the_same_id_twice_is_one_job(echo: Rota):
    job = echo.enqueue("echo")
    again = echo.enqueue("echo", job_id=job.id)
    assert (again.id, again.existing, count(echo)) == (job.id, True, 1)


def test_an_id_that_was_enqueued_before_hides_in_a_bulk(echo: Rota):
    known = echo.enqueue("echo")
    bulk = echo.enqueue_many([("echo", {}), NewJob(name="echo", job_id=known.id), ("echo", {})])
    assert (bulk.accepted, bulk.existing, count(echo)) == (2, 1, 3)


def test_a_key_taken_twice_in_one_transaction_names_the_first(echo: Rota):
    with echo.transaction() as tx:
        first = echo.enqueue("echo", unique_key="k", transaction=tx)
        second = echo.enqueue("echo", unique_key="k", transaction=tx)
    assert (second.id, second.existing) == (first.id, True)


def give_up_halfway(rota: Rota) -> None:
    with rota.transaction() as tx:
        tx.execute("INSERT INTO orders VALUES (2)")
        rota.enqueue("echo", transaction=tx)
        raise ZeroDivisionError


def test_the_callers_rows_and_jobs_are_committed_together_or_not_at_all(echo: Rota):
    with echo.transaction() as tx:
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        tx.execute("INSERT INTO orders VALUES (?)", (1,))
        echo.enqueue("echo", transaction=tx)
    with pytest.raises(ZeroDivisionError):
        give_up_halfway(echo)
    with echo.transaction() as tx:
        assert list(tx.execute("SELECT id FROM orders")) == [(1,)]
    assert count(echo) == 1


def test_a_plain_enqueue_inside_a_transaction_is_an_error_and_not_a_deadlock(echo: Rota):
    with echo.transaction(), pytest.raises(TransactionMisuse, match="pass transaction=tx"):
        echo.enqueue("echo")
    with echo.transaction(), pytest.raises(TransactionMisuse, match="pass transaction=tx"):
        asyncio.run(enqueue_async(echo, "echo"))


def test_a_transaction_is_over_with_its_block(echo: Rota):
    with echo.transaction() as tx:
        pass
    with pytest.raises(TransactionMisuse, match="over"):
        echo.enqueue("echo", transaction=tx)


def test_asyncio_programs_enqueue_and_wait_without_blocking(live: Rota):
    @live.job
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    async def program() -> list[object]:
        jobs = await asyncio.gather(*(enqueue_async(live, "add", {"a": n, "b": 1}) for n in range(5)))
        runs = [await wait_async(live._session, None, job.id, timeout=patient(20)) for job in jobs]
        return [run.result for run in runs if run]

    with live.running():
        assert asyncio.run(program()) == [1, 2, 3, 4, 5]


def test_threads_enqueue_at_once_and_nothing_is_lost(live: Rota):
    @live.job
    def noop(n: int) -> None:
        """Do nothing."""

    def submit(start: int) -> None:
        for n in range(start, start + 50):
            live.enqueue("noop", {"n": n})

    threads = [threading.Thread(target=submit, args=(start,)) for start in range(0, 400, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(job.params["n"] for job in live.jobs.list(limit=1000)) == list(range(400))
    assert len({job.position for job in live.jobs.list(limit=1000)}) == 400


def test_waiting_for_a_chain_that_goes_on_says_so(echo: Rota):
    job = echo.enqueue("echo", run_at=timedelta(hours=1))
    with pytest.raises(WaitTimeout, match="still PENDING"):
        echo.wait(job.id, timeout=0.01)


def test_the_wait_for_a_chain_that_is_cancelled_says_so(echo: Rota):
    job = echo.enqueue("echo")
    echo.jobs.cancel(job.id)
    with pytest.raises(JobCancelled):
        echo.wait(job.id, timeout=1)


def test_changed_params_must_fit_the_handler(echo: Rota):
    job = echo.enqueue("echo")
    with pytest.raises(InvalidParams, match="no parameter 'nope'"):
        echo.jobs.update(job.id, params={"nope": 1})
    assert echo.jobs.update(job.id, params={"text": "b"}, priority="low").params == {"text": "b"}


def test_the_reason_of_a_cancel_is_kept_also_for_a_running_job(live: Rota):
    started = threading.Event()

    @live.job
    def endless(ctx: Context) -> None:
        started.set()
        while True:
            ctx.checkpoint()

    with live.running():
        job = live.enqueue("endless")
        assert started.wait(patient(10))
        live.acting_as("ada").jobs.cancel(job.id, reason="wrong month")
        with pytest.raises(JobCancelled, match="wrong month"):
            live.wait(job.id, timeout=patient(20))
    ended = live.jobs.get(job.id)
    assert (ended.status, ended.reason, ended.ended_by) == (Status.CANCELLED, "wrong month", "ada")
    assert "asked to stop" in live.jobs.log(job.id)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
def test_lists_refuse_a_limit_that_is_none(echo: Rota, limit):
    with pytest.raises(InvalidOption, match="limit="):
        echo.jobs.list(limit=limit)


def test_a_group_of_another_organization_is_made_like_its_jobs(echo: Rota):
    echo.organizations.create("acme")
    group = echo.acting_as(Actor("ada", "acme")).group([("echo", {})])
    assert echo.jobs.get(group.members[0].root_id).organization == "acme"


def test_direct_execution_without_worker_and_handler_is_refused_at_once(echo: Rota, tmp_path):
    echo.enqueue("echo")
    stranger = Rota(tmp_path / "rota.db")
    with pytest.raises(ResourceBusy, match="no live worker has a handler for echo"):
        stranger.jobs.direct("echo", timeout=patient(30))
    stranger.close()


def test_direct_execution_without_a_worker_gives_up_after_its_timeout(tmp_path):
    rota = Rota(tmp_path / "rota.db")
    rota.job(name="echo", rate_limit="1/1h")(lambda: None)
    rota.enqueue("echo")
    rota.turn()
    with pytest.raises(ResourceBusy, match=r"1 started in the last 3600 s; the next may start in (1 h 00|5[89]) m.*, at"):
        rota.jobs.direct("echo", timeout=0.2)
    assert [job.origin for job in rota.jobs.list(status="CANCELLED")] == ["direct"]
    rota.close()


def test_a_worker_cannot_be_started_inside_a_handler(rota: Rota):
    @rota.job(max_retries=0)
    def nested() -> None:
        rota.start()

    job = rota.enqueue("nested")
    rota.turn()
    assert "can't be started inside a handler" in str(run_of(rota, job.id).error)


@pytest.mark.parametrize("given", [{}, {"before": "x", "front": True}, {"before": "x", "after": "y"}])
def test_a_move_says_exactly_one_place(echo: Rota, given):
    job = echo.enqueue("echo")
    with pytest.raises(InvalidOption, match="exactly one"):
        echo.jobs.move(job.id, **given)


@pytest.mark.parametrize("url", ["mysql://localhost/x", "redis://x"])
def test_a_store_that_is_not_there_yet_is_refused_by_name(url):
    with pytest.raises(InvalidOption, match=url.partition(":")[0]):
        Rota(url).store.stats()


def test_every_dead_letter_that_matches_is_retried_once(rota: Rota):
    broken = {"value": True}

    @rota.job(max_retries=0)
    def fragile(n: int) -> int:
        if broken["value"]:
            raise ValueError(n)
        return n

    @rota.job(max_retries=0)
    def other() -> None:
        raise ValueError

    jobs = [rota.enqueue("fragile", {"n": n}) for n in range(5)]
    untouched = rota.enqueue("other")
    rota.turn()
    rota.jobs.retry(jobs[0].id)
    broken["value"] = False
    assert len(rota.dead_letters.retry(job_type="fragile", limit=3)) == 3
    assert len(rota.dead_letters.retry(job_type="fragile")) == 1
    assert rota.dead_letters.retry(job_type="fragile") == []
    rota.turn()
    assert {rota.jobs.attempts(job.id)[-1].status for job in jobs} == {Status.COMPLETED}
    assert rota.dead_letters.retry(job_type="fragile") == []
    assert len(rota.jobs.attempts(untouched.id)) == 1


@pytest.mark.parametrize("reason", ["x" * 10_001, "a\0b", "a\ud800", 5])
def test_a_reason_that_no_store_could_keep_is_refused_and_nothing_is_cancelled(echo, reason):
    job = echo.enqueue("echo", {"text": "a"})
    for cancel in (lambda: echo.jobs.cancel(job.id, reason=reason), lambda: echo.jobs.cancel_all(job_type="echo", reason=reason)):
        with pytest.raises(InvalidOption, match="reason="):
            cancel()
    assert echo.jobs.get(job.id).status == "QUEUED"


def test_a_rota_that_only_lists_makes_nothing_else(tmp_path):
    rota = Rota(tmp_path / "rota.db")
    assert rota.jobs.list() == []
    session = rota._session
    assert not vars(session).keys() & {"registry", "submitter", "middleware", "on", "calls", "beats", "meter"}
    rota.close()
    assert "calls" not in vars(session)


def test_each_part_of_a_session_is_made_once_whichever_thread_comes_first(tmp_path):
    rota, together, found = Rota(tmp_path / "rota.db"), threading.Barrier(8), []

    def take():
        together.wait()
        session = rota._session
        found.append((session.submitter, session.registry, session.calls, session.on))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert found[0][0].registry is found[0][1]
