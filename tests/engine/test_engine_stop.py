"""Timeouts and cancels that really stop the work, with a live worker."""

from __future__ import annotations

from contextlib import suppress

import psutil
import pytest

from rota import Rota, Status
from rota.errors import AlreadyEnded, JobCancelled
from tests.engine import checkpointing, stopping
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually

HANDLERS = {"thread": stopping.on_a_thread, "async": stopping.on_the_loop, "process": stopping.in_a_process}


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.paired
@pytest.mark.parametrize("executor", HANDLERS)
def test_a_job_over_its_timeout_is_timed_out_within_a_second_and_waits_for_its_retry(live: Rota, tmp_path, executor):
    live.job(HANDLERS[executor], name="slow", executor=executor, timeout=0.5, max_retries=1)
    marker = tmp_path / "marker"
    with live.running(concurrency=2):
        job = live.enqueue("slow", {"marker": str(marker)})
        eventually(lambda: len(live.jobs.attempts(job.id)) == 2, what="the retry")
        first, second = live.jobs.attempts(job.id)
        assert (first.status, second.status, second.failures) == (Status.TIMED_OUT, Status.PENDING, 1)
        # A process is started before the clock of its handler runs: its start is not in the limit.
        started = marker.stat().st_mtime if executor == "process" else first.started_at.timestamp()
        assert 0.4 < first.finished_at.timestamp() - started < 1.5
        if executor == "process":
            eventually(lambda: gone(int(marker.read_text())), what="the end of the program that the handler started")
        live.jobs.cancel(job.id)


@pytest.mark.paired
@pytest.mark.parametrize("executor", ["async", "process"])
def test_a_running_job_that_is_cancelled_is_stopped_within_two_seconds_and_never_retried(live: Rota, tmp_path, executor):
    live.job(HANDLERS[executor], name="slow", executor=executor)
    marker = tmp_path / "marker"
    with live.running(concurrency=2):
        job = live.enqueue("slow", {"marker": str(marker)})
        # That of a process writes the id of its program into it.
        eventually(lambda: marker.exists() and (executor != "process" or marker.read_text()), within=20, what="the handler at work")
        live.jobs.cancel(job.id)
        with pytest.raises(JobCancelled):
            live.wait(job.id, timeout=patient(4))
        ended = live.jobs.get(job.id)
        assert ended.status is Status.CANCELLED
        assert (ended.finished_at - ended.cancel_requested_at).total_seconds() < 2
        assert len(live.jobs.attempts(job.id)) == 1
        if executor == "process":
            eventually(lambda: gone(int(marker.read_text())), what="the end of the program that the handler started")


@pytest.mark.paired
@pytest.mark.parametrize("executor", HANDLERS)
def test_a_handler_that_looks_is_stopped_within_two_seconds_of_the_cancel(live: Rota, tmp_path, executor):
    live.job(_handler("look", executor), name="slow", executor=executor)
    ended = _cancelled_at_work(live, tmp_path)
    assert ended.status is Status.CANCELLED
    assert (ended.finished_at - ended.cancel_requested_at).total_seconds() < 2
    assert len(live.jobs.attempts(ended.id)) == 1


@pytest.mark.paired
@pytest.mark.parametrize("executor", HANDLERS)
def test_a_handler_that_fails_in_the_instant_of_the_cancel_is_not_retried(live: Rota, tmp_path, executor):
    live.job(_handler("fail_when_asked", executor), name="slow", executor=executor, max_retries=5)
    ended = _cancelled_at_work(live, tmp_path)
    assert (ended.status, ended.ended_by, len(live.jobs.attempts(ended.id))) == (Status.CANCELLED, "ada", 1)
    assert run_of(live, ended.id).error == "RuntimeError: in that very instant"


@pytest.mark.paired
@pytest.mark.parametrize("executor", HANDLERS)
def test_a_handler_that_finishes_before_it_is_stopped_keeps_its_result(live: Rota, tmp_path, executor):
    live.job(_handler("finish_when_asked", executor), name="slow", executor=executor)
    ended = _cancelled_at_work(live, tmp_path)
    assert (ended.status, run_of(live, ended.id).result) == (Status.COMPLETED, "finished first")
    with pytest.raises(AlreadyEnded, match="COMPLETED"):
        live.jobs.cancel(ended.id)


def _handler(name: str, executor: str):
    return getattr(checkpointing, f"{name}_async" if executor == "async" else name)


def _cancelled_at_work(live: Rota, tmp_path):
    marker = tmp_path / "marker"
    with live.running(concurrency=2):
        job = live.enqueue("slow", {"marker": str(marker)})
        eventually(marker.exists, within=20, what="the handler at work")
        live.acting_as("ada").jobs.cancel(job.id)
        with suppress(JobCancelled):
            live.wait(job.id, timeout=patient(10))
    return live.jobs.get(job.id)
