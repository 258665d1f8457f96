"""What a worker keeps of the ids that pass through it: nothing. Interned text is never freed by Python 3.12, and pathlib interns."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest

from rota import Context, Rota
from rota.live import follow_log
from rota.model.gate import Right
from rota.operation import Ask
from tests.engine.suspected import kills_its_process
from tests.support.pace import patient
from tests.support.runs import run_of


@pytest.fixture
def interned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that Python code asks to intern, as `pathlib` does with each part of a path."""
    texts: list[str] = []
    intern = sys.intern

    def noted(text: str) -> str:
        texts.append(text)
        return intern(text)

    monkeypatch.setattr(sys, "intern", noted)
    return texts


def ids_in(texts: list[str], ids: list[str]) -> list[str]:
    return [text for text in texts if any(each in text.replace("-", "") for each in ids)]


def test_writing_reading_and_removing_a_log_keeps_no_id_of_its_run(rota: Rota, clock, interned):
    @rota.job
    def talk(ctx: Context) -> None:
        ctx.log.info("a line")

    jobs = [rota.enqueue("talk") for _ in range(3)]
    rota.turn()
    runs = [run_of(rota, job.id).id.replace("-", "") for job in jobs]
    assert all("a line" in rota.jobs.log(job.id).text for job in jobs)
    assert list(follow_log(Ask(rota._session, None, Right.READ_LOG), jobs[0].id))
    clock.advance(days=31)
    assert rota.store.purge(older_than=timedelta(days=30)).jobs == 3
    assert ids_in(interned, runs) == []


def test_looking_for_the_log_of_a_crashed_handler_process_keeps_no_id_of_its_run(live: Rota, interned):
    live.job(kills_its_process, executor="process", max_crashes=1)
    job = live.enqueue("kills_its_process", {"folder": ""})
    running = live.start()
    assert live.wait(job.id, timeout=patient(20)) is not None
    running.stop()
    assert ids_in(interned, [run_of(live, job.id).id.replace("-", "")]) == []


def test_locking_and_trying_the_lock_of_a_worker_keeps_nothing_of_its_id(rota: Rota, interned):
    locks, ids = rota._session.open().liveness, [f"{number:032x}" for number in range(1, 4)]
    for worker_id in ids:
        lease = locks.take(worker_id)
        with locks.seize(worker_id):
            pass
        lease.release(clean=False)
        locks.forget(worker_id)
    locks.take(ids[0]).release(clean=True)
    assert ids_in(interned, ids) == []
