"""A handle: a job, its retries, and what came of them."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from datetime import timedelta

import pytest

from rota import Backoff, Context, Job, JobCancelled, JobFailed, JobSkipped, PermanentError, Rota, Run, Skip, Status, WaitTimeout
from rota.errors import NotFound, RotaError
from rota.surfaces.cli.exits import report
from rota.surfaces.http.problems import status_of
from tests.support.pace import patient
from tests.support.waiting import eventually


@pytest.fixture
def flaky(rota: Rota):
    """A task that fails until it is told otherwise."""
    works = threading.Event()

    @rota.job(max_retries=1, backoff=Backoff(base=10, jitter=0))
    def flaky(ctx: Context, word: str = "done") -> str:
        ctx.log.info("attempt %d", ctx.attempt)
        if not works.is_set():
            raise ConnectionError("no line")
        return word

    flaky.works = works
    return flaky


def fail(rota, clock, handle):
    rota.turn()
    clock.advance(minutes=1)
    rota.turn()
    assert handle.status() is Status.DEAD_LETTER


def test_a_handle_says_what_it_is_of(rota, flaky):
    handle = flaky.options(unique_key="k").enqueue()
    job = rota.jobs.get(handle.id)
    assert (handle.number, handle.existing, handle.status(), handle.run()) == (job.number, False, Status.QUEUED, None)
    again = flaky.options(unique_key="k").enqueue()
    assert again.existing
    assert again == handle
    assert len({again, handle}) == 1
    assert again != handle.id
    assert repr(handle) == f"<Handle flaky {job.number}>"
    assert "worker" in str(handle.explain().summary)


def test_a_handle_is_found_again_by_id_or_number(rota, flaky):
    flaky.works.set()
    made = flaky.enqueue()
    rota.turn()
    for given in (made.id, made.number):
        assert flaky.handle(given).result(timeout=0) == "done"
        assert flaky.handle(given).number == made.number
    with pytest.raises(NotFound, match="neither the id of a job nor its number"):
        flaky.handle("nothing").status()


def test_status_run_and_log_follow_the_chain(rota, clock, flaky):
    handle = flaky.enqueue()
    rota.turn()
    assert handle.status() is Status.PENDING
    first = handle.run()
    assert isinstance(first, Run)
    assert first.job_id == handle.id
    clock.advance(minutes=1)
    rota.turn()
    assert handle.run().id != first.id
    assert "attempt 1" in str(handle.log())
    assert "attempt 2" in str(handle.log())


def test_a_handle_cancels(rota, flaky):
    handle = flaky.enqueue()
    assert isinstance(handle.cancel(reason="wrong month"), Job)
    with pytest.raises(JobCancelled, match=r"\(flaky\) was cancelled: wrong month") as refusal:
        handle.result(timeout=0)
    assert refusal.value.job.status is Status.CANCELLED
    assert refusal.value.run is None


def test_the_failure_of_a_job_says_what_when_and_where(rota, clock, flaky):
    handle = flaky.enqueue()
    fail(rota, clock, handle)
    with pytest.raises(JobFailed, match=r"JOB-\d+-\d+\.2 \(flaky\) failed after 2 attempts: ConnectionError: no line") as refusal:
        handle.result(timeout=0)
    error = refusal.value
    assert (error.job.attempt, error.run.job_id) == (2, error.job.id)
    assert 'raise ConnectionError("no line")' in error.traceback
    assert error.traceback.strip() in error.__notes__[0]


def test_the_errors_of_a_wait_can_be_pickled(rota, clock, flaky):
    handle = flaky.enqueue()
    fail(rota, clock, handle)
    with pytest.raises(JobFailed) as refusal:
        handle.result(timeout=0)
    copy = pickle.loads(pickle.dumps(refusal.value))
    assert (str(copy), copy.run.id, copy.traceback) == (str(refusal.value), refusal.value.run.id, refusal.value.traceback)
    assert copy.__notes__ == refusal.value.__notes__


def test_a_result_is_found_after_a_retry_by_hand(rota, clock, flaky):
    handle = flaky.enqueue("again")
    fail(rota, clock, handle)
    with pytest.raises(JobFailed):
        handle.result(timeout=0)
    flaky.works.set()
    rota.jobs.retry(handle)
    with pytest.raises(WaitTimeout, match="is still QUEUED after 0 s"):
        handle.result(timeout=0)
    rota.turn()
    assert handle.result(timeout=0) == "again"
    assert rota.wait(handle, timeout=0).status == "COMPLETED"


def test_a_cancelled_chain_that_is_retried_has_a_result(rota, flaky):
    flaky.works.set()
    handle = flaky.enqueue("late")
    handle.cancel()
    rota.jobs.retry(handle.id)
    rota.turn()
    assert handle.result(timeout=0) == "late"


def test_a_result_is_waited_for_through_retries(live: Rota):
    @live.job(max_retries=3, backoff=Backoff(base=0, jitter=0))
    def third(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("no line")
        return ctx.attempt

    with live.running():
        assert third.enqueue().result(timeout=patient(30)) == 3
        assert asyncio.run(third.enqueue().result_async(timeout=patient(30))) == 3


def test_an_awaited_result_raises_what_a_result_would(live: Rota):
    @live.job(max_retries=0)
    def fails() -> None:
        raise PermanentError("never")

    async def both():
        handle = await fails.enqueue_async()
        with pytest.raises(WaitTimeout):
            await handle.result_async(timeout=0)
        with live.running():
            with pytest.raises(JobFailed, match="PermanentError: never"):
                await handle.result_async(timeout=patient(20))
            cancelled = await fails.options(run_at=timedelta(hours=1)).enqueue_async()
            cancelled.cancel()
            with pytest.raises(JobCancelled):
                await cancelled.result_async(timeout=patient(20))

    asyncio.run(both())


def test_a_job_that_skips_itself_has_no_result_but_a_run(rota):
    @rota.job
    def skips() -> None:
        raise Skip("nothing to do")

    handle = skips.enqueue()
    rota.turn()
    with pytest.raises(JobSkipped, match=r"\(skips\) was skipped: nothing to do") as refusal:
        handle.result(timeout=0)
    assert refusal.value.run.status == "SKIPPED"


def test_a_job_that_expired_was_skipped(rota, clock, flaky):
    handle = flaky.options(queue_ttl="5s").enqueue()
    clock.advance(minutes=1)
    rota.turn()
    with pytest.raises(JobSkipped, match="expired"):
        handle.result(timeout=0)


def test_wait_takes_an_id_a_number_a_job_or_a_handle_and_never_returns_none(rota, clock, flaky):
    flaky.works.set()
    handle = flaky.enqueue()
    job = rota.enqueue("flaky")
    rota.turn()
    for given in (handle, handle.id, handle.number, job, job.id):
        assert rota.wait(given, timeout=0).result == "done"
    late = flaky.options(run_at=timedelta(minutes=1)).enqueue()
    with pytest.raises(WaitTimeout, match="is still PENDING after 0 s; it continues, wait again"):
        rota.wait(late, timeout=0)
    late.cancel()
    with pytest.raises(JobCancelled):
        rota.wait(late)


def test_wait_returns_the_run_of_a_job_that_failed(rota, clock, flaky):
    handle = flaky.enqueue()
    fail(rota, clock, handle)
    assert (rota.wait(handle, timeout=0).status, rota.wait(handle, timeout=0).error) == ("FAILED", "ConnectionError: no line")


def test_a_chain_whose_run_is_gone_is_not_found(rota, flaky):
    flaky.works.set()
    handle = flaky.enqueue()
    rota.turn()
    rota._session.open().store.run = lambda job_id: None
    with pytest.raises(NotFound, match="its run is not in the store any more"):
        rota.wait(handle, timeout=0)


def test_a_wait_timeout_is_a_timeout_error(live: Rota):
    @live.job
    def never() -> None: ...

    with pytest.raises(TimeoutError):
        never.enqueue().result(timeout=0.01)


@pytest.mark.parametrize("kind", [JobFailed, JobCancelled, JobSkipped])
def test_the_end_of_a_job_has_a_status_in_http_and_an_exit_code(kind):
    assert issubclass(kind, RotaError)
    assert status_of(kind("x")) == 409
    assert report(kind("x")) == 1


def test_a_result_of_a_job_that_is_cancelled_while_it_runs_is_a_cancellation(live: Rota):
    @live.job
    def endless(ctx: Context) -> None:
        while True:
            ctx.checkpoint()
            time.sleep(0.01)

    with live.running():
        handle = endless.enqueue()
        eventually(lambda: handle.status() is Status.RUNNING, within=patient(20))
        handle.cancel()
        with pytest.raises(JobCancelled) as refusal:
            handle.result(timeout=patient(20))
    assert refusal.value.run.status == "CANCELLED"


def test_a_permanent_failure_is_not_said_to_have_been_tried_again(rota):
    @rota.job
    def fails() -> None:
        raise PermanentError("never")

    handle = fails.enqueue()
    rota.turn()
    with pytest.raises(JobFailed, match=r"\(fails\) failed: PermanentError: never"):
        handle.result(timeout=0)
