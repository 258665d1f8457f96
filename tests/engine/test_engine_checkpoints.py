"""What a handler reports on the way, with a live worker: progress is seen, states outlive attempts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota import Backoff, Context, Rota, Settings, Status
from tests.engine import checkpointing
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually

EXECUTORS = ["thread", "async", "process"]
QUICK = Backoff(base=0.01, jitter=0)


def register(rota: Rota, name: str, executor: str, **options):
    handler = getattr(checkpointing, f"{name}_async" if executor == "async" else name)
    rota.job(handler, name="work", executor=executor, backoff=QUICK, **options)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_state_is_given_to_the_attempt_after_a_failure(live: Rota, executor):
    register(live, "keep", executor)
    with live.running(concurrency=2):
        job = live.enqueue("work", {"then": "fail"})
        assert live.wait(job.id, timeout=patient(20)).result == {"page": 3}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_state_is_given_to_the_attempt_after_a_timeout(live: Rota, executor):
    register(live, "keep", executor, timeout=0.3)
    with live.running(concurrency=4):
        job = live.enqueue("work", {"then": "hang"})
        assert live.wait(job.id, timeout=patient(20)).result == {"page": 3}
        assert live.jobs.get(job.id).status is Status.TIMED_OUT


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_state_outlives_an_attempt_that_keeps_none(live: Rota, executor):
    register(live, "keep", executor)
    with live.running(concurrency=2):
        job = live.enqueue("work", {"then": "fail twice"})
        assert live.wait(job.id, timeout=patient(20)).result == {"page": 3}
        assert [each.status for each in live.jobs.attempts(job.id)] == ["FAILED", "FAILED", "COMPLETED"]


def test_a_state_outlives_an_attempt_that_never_started(rota: Rota, clock):
    @rota.job
    def work(ctx: Context):
        if ctx.attempt == 1:
            ctx.checkpoint({"page": 3})
            raise ConnectionError
        return ctx.resumed_from

    job = rota.enqueue("work")
    rota.turn()
    rota.jobs.cancel(job.id)
    rota.jobs.retry(job.id)
    rota.turn()
    assert [each.status for each in rota.jobs.attempts(job.id)] == ["FAILED", "CANCELLED", "COMPLETED"]
    assert run_of(rota, rota.jobs.attempts(job.id)[-1].id).result == {"page": 3}


def test_the_newest_state_wins_and_falsy_ones_are_states_too(rota: Rota, clock):
    seen = []

    @rota.job(backoff=Backoff(base=1, jitter=0))
    def work(ctx: Context):
        seen.append(ctx.resumed_from)
        for state in ([1, 2], {"a": None}, [{}, "é", 1.5], 0):
            ctx.checkpoint(state)
        raise ConnectionError

    rota.enqueue("work", max_retries=1)
    rota.turn()
    clock.advance(seconds=2)
    rota.turn()
    assert seen == [None, 0]


@pytest.mark.paired
@pytest.mark.parametrize("executor", EXECUTORS)
def test_progress_and_state_are_in_the_store_while_the_handler_is_still_at_work(live: Rota, tmp_path, executor):
    register(live, "show", executor)
    with live.running(concurrency=2):
        job = live.enqueue("work", {"go": str(tmp_path / "go")})

        def checkpoint():
            run = run_of(live, job.id)
            return run and run.checkpoint

        eventually(lambda: live.jobs.get(job.id).status == "RUNNING", within=20, what="the handler at work")
        eventually(checkpoint, within=20, what="the state")
        run = run_of(live, job.id)
        assert (run.status, run.progress, run.progress_message, run.checkpoint) == (None, 40, "four of ten", 4)
        (tmp_path / "go").touch()
        assert (live.wait(job.id, timeout=patient(10)).progress, run_of(live, job.id).progress_message) == (100, "done")


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_state_that_is_too_large_fails_the_attempt_and_says_so(tmp_path, executor):
    live = Rota(tmp_path / "rota.db", settings=Settings(result_max=1000))
    register(live, "keep_too_much", executor, max_retries=0)
    with live.running(concurrency=2):
        job = live.enqueue("work")
        run = live.wait(job.id, timeout=patient(20))
    live.close()
    assert run.error.startswith("PayloadTooLarge: the checkpoint takes 2,002 bytes; the limit is 1,000 (setting result_max)")
    assert run.checkpoint is None


def test_progress_that_is_no_number_fails_the_attempt_and_names_it(rota: Rota):
    @rota.job(max_retries=0)
    def work(ctx: Context):
        ctx.progress("half")

    job = rota.enqueue("work")
    rota.turn()
    run = run_of(rota, job.id)
    assert (run.error, run.progress) == ("InvalidProgress: progress 'half' is not a number: give one from 0 to 100", None)


def test_progress_out_of_range_is_kept_at_the_edge_and_noted_in_the_log(rota: Rota):
    @rota.job
    def work(ctx: Context):
        ctx.progress(150)
        ctx.progress(-3)

    job = rota.enqueue("work")
    rota.turn()
    assert run_of(rota, job.id).progress == 100
    assert [entry.message for entry in rota.jobs.log(job.id) if entry.level == "WARNING"] == ["progress 150 is outside 0..100: kept as 100"]


def test_progress_is_written_no_more_often_than_it_may(rota: Rota, clock):
    written = []

    @rota.job
    def work(ctx: Context):
        for pct in range(100):
            ctx.progress(pct)
            clock.advance(seconds=timedelta(milliseconds=50).total_seconds())
        ctx.progress(100)

    store = rota._session.open().store
    keep = store.turn
    store.turn = lambda turn: written.extend(report.progress for report in turn.reports) or keep(turn)
    rota.enqueue("work")
    rota.turn()
    assert written[-1] == 100
    assert len(written) <= 12
