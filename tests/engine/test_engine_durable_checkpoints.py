"""A checkpoint that has returned is on disk; one that can't be written holds up nobody who has to stop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import pytest

from rota import Cancelled, Context, Rota, Settings, Status
from rota.errors import StoreBusy
from rota.model.decide import Crashed
from tests.engine import durable
from tests.stores.desk import Desk
from tests.support.locked import locked
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually

FORMS = {"thread": "", "process": "", "async": "_async", "async, blocking": "_blocking"}
"""Where a handler runs, and how the function is called that does the same there."""
BLOCKED = "this thread is inside `with rota.transaction()`"


def register(rota: Rota, name: str, form: str, **options):
    rota.job(getattr(durable, f"{name}{FORMS[form]}"), name="work", executor=form.partition(",")[0], max_retries=0, **options)


@pytest.fixture
def settings() -> Settings:
    return Settings(busy_timeout=0.1, kill_grace=20.0)


@pytest.mark.parametrize("form", FORMS)
def test_another_program_sees_the_state_once_the_call_has_returned(live: Rota, tmp_path, form):
    register(live, "read_back", form)
    with live.running(concurrency=2):
        job = live.enqueue("work", {"database": str(tmp_path / "rota.db")})
        assert live.wait(job.id, timeout=patient(30)).result == ['{"page":3}']


@pytest.mark.parametrize("form", ["thread", "async", "async, blocking"])
def test_so_it_does_where_the_worker_itself_runs_the_handler(rota: Rota, tmp_path, form):
    register(rota, "read_back", form)
    job = rota.enqueue("work", {"database": str(tmp_path / "rota.db")})
    rota.turn()
    assert run_of(rota, job.id).result == ['{"page":3}']


@pytest.mark.parametrize("form", ["thread", "process"])
def test_inside_a_transaction_of_the_same_store_it_is_refused_and_says_why(live: Rota, tmp_path, form):
    register(live, "inside_a_transaction", form)
    with live.running(concurrency=2):
        job = live.enqueue("work", {"database": str(tmp_path / "rota.db")})
        assert live.wait(job.id, timeout=patient(30)).result.startswith(BLOCKED)


def test_inside_a_transaction_of_the_worker_that_runs_the_handler_it_is_refused_too(rota: Rota, tmp_path):
    register(rota, "inside_a_transaction", "thread")
    job = rota.enqueue("work", {"database": str(tmp_path / "rota.db")})
    rota.turn()
    assert run_of(rota, job.id).result.startswith(BLOCKED)


def test_inside_a_transaction_of_another_store_it_is_taken(live: Rota, tmp_path):
    register(live, "inside_a_transaction", "thread")
    with live.running(concurrency=2):
        job = live.enqueue("work", {"database": str(tmp_path / "other.db")})
        assert live.wait(job.id, timeout=patient(30)).result == "it was taken"


@pytest.mark.parametrize("form", FORMS)
def test_it_waits_through_a_time_in_which_the_store_can_not_be_written(live: Rota, tmp_path, form, caplog):
    register(live, "wait_for_it", form)
    (tmp_path / "hold").touch()
    with live.running(concurrency=2):
        job = live.enqueue("work", {"folder": str(tmp_path)})
        eventually((tmp_path / "waits").exists, within=30, what="the handler")
        with locked(tmp_path / "rota.db"):
            (tmp_path / "hold").unlink()
            eventually(lambda: "the store is unavailable" in caplog.text, within=30, what="trouble")
            assert not (tmp_path / "over").exists()
        live.wait(job.id, timeout=patient(30))
        assert (tmp_path / "over").read_text() == "kept"
        assert run_of(live, job.id).checkpoint == {"page": 3}


@pytest.mark.parametrize("form", FORMS)
def test_a_handler_over_its_timeout_waits_no_longer(live: Rota, tmp_path, form):
    register(live, "wait_for_it", form, timeout=1.0)
    hold = threading.Event()
    with live.running(concurrency=2):
        with stuck(live, hold):
            job = live.enqueue("work", {"folder": str(tmp_path)})
            eventually((tmp_path / "over").exists, within=30, what="the end of the wait")
        assert live.wait(job.id, timeout=patient(30)).status is not Status.COMPLETED
    assert (tmp_path / "over").read_text() == "the job was asked to stop"


@pytest.mark.parametrize("form", FORMS)
def test_a_handler_of_a_worker_that_is_stopped_waits_no_longer(live: Rota, tmp_path, form):
    register(live, "wait_for_it", form)
    hold = threading.Event()
    running = live.start(concurrency=2)
    with stuck(live, hold) as brought:
        live.enqueue("work", {"folder": str(tmp_path)})
        # A handler process that is told to stop before it waits has no wait to end.
        eventually(brought.is_set, within=30, what="the handler at its checkpoint")
        stopping = threading.Thread(target=running.stop, kwargs={"grace_s": 0})
        stopping.start()
        eventually((tmp_path / "over").exists, within=30, what="the end of the wait")
    stopping.join()
    assert (tmp_path / "over").read_text() == "the job was asked to stop"


@contextmanager
def stuck(rota: Rota, hold: threading.Event):
    """Let no checkpoint be written: the store is busy for whoever brings one. Yields an event that is set when one has."""
    store = rota._session.open().store
    turn, brought = store.turn, threading.Event()

    def refuse(request):
        if any(report.checkpoint for report in request.reports) and not hold.is_set():
            brought.set()
            raise StoreBusy("another process holds the lock")
        return turn(request)

    store.turn = refuse
    try:
        yield brought
    finally:
        hold.set()


def test_other_tasks_of_the_loop_run_while_one_waits_for_its_checkpoint(live: Rota):
    hold = threading.Event()

    @live.job
    async def work(ctx: Context):
        await asyncio.gather(ctx.checkpoint_async(1), release())
        return "kept"

    async def release():
        # The store can be written again when the loop has come here: never, if the checkpoint blocked it.
        await asyncio.sleep(0)
        hold.set()

    with stuck(live, hold), live.running(concurrency=2):
        assert live.wait(live.enqueue("work").id, timeout=patient(30)).result == "kept"


def test_checkpoints_that_wait_at_the_same_time_share_a_commit(live: Rota):
    many, gate = 8, threading.Barrier(8)

    @live.job
    def work(ctx: Context):
        gate.wait(patient(30))
        ctx.checkpoint(1)

    store = live._session.open().store
    sizes, turn, first = [], store.turn, threading.Event()

    def counted(request):
        if request.reports:
            if not first.is_set():
                # The first to come holds the others up, as a slow disk does: they are written together after it.
                first.set()
                eventually(lambda: waiting() >= many - len(request.reports), within=30, what="the others at their checkpoints")
            sizes.append(len(request.reports))
        return turn(request)

    def waiting():
        return len(live._session.drivers[0].worker.inbox._checkpoints)

    store.turn = counted
    with live.running(concurrency=many):
        jobs = [live.enqueue("work") for _ in range(many)]
        for job in jobs:
            live.wait(job.id, timeout=patient(30))
    assert sum(sizes) == many
    assert len(sizes) <= 2


@pytest.mark.parametrize("form", FORMS)
def test_a_run_that_others_have_ended_keeps_no_state_and_its_handler_is_stopped(live: Rota, tmp_path, form):
    register(live, "wait_for_it", form)
    store = live._session.open().store
    turn = store.turn

    def ended_by_others(request):
        if request.reports:
            # Another worker takes this one for dead, in the last moment before the write.
            others = Desk(store)
            others.now = request.now
            others.recover(request.worker_id, Crashed())
        return turn(request)

    store.turn = ended_by_others
    with live.running(concurrency=2):
        live.enqueue("work", {"folder": str(tmp_path)})
        eventually((tmp_path / "over").exists, within=30, what="the end of the wait")
        store.turn = turn
    assert (tmp_path / "over").read_text() != "kept"
    assert durable.kept(str(tmp_path / "rota.db")) == []


def test_a_checkpoint_after_the_end_of_the_run_is_refused(rota: Rota):
    kept = []

    @rota.job
    def work(ctx: Context):
        kept.append(ctx)

    rota.enqueue("work")
    rota.turn()
    with pytest.raises(Cancelled, match="the run is over"):
        kept[0].checkpoint(1)
