"""Nothing fails in silence: each outcome is one record of the logger `rota.jobs`, by the worker that wrote it."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator

import pytest

from rota import Backoff, PermanentError, Rota, Settings
from rota.engine.outcome_log import FIELDS
from rota.errors import StoreUnavailable
from rota.model.decide import Completed, Crashed
from rota.model.values import dashed
from tests.engine import outcome_jobs
from tests.engine.outcome_jobs import OutOfStock
from tests.engine.test_engine_recovery import lost_worker
from tests.stores.desk import Desk
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually

PLACES = ("inline", "thread", "process", "async")


class Records(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append(record)

    def of(self, status: str) -> list[logging.LogRecord]:
        return [record for record in self.all if record.status == status]


@pytest.fixture
def records() -> Iterator[Records]:
    logger, kept = logging.getLogger("rota.jobs"), Records()
    logger.addHandler(kept)
    yield kept
    logger.removeHandler(kept)
    logger.setLevel(logging.NOTSET)


def at(record: logging.LogRecord) -> tuple[str, str]:
    return record.levelname, record.status


def run_one(rota: Rota, place: str, **options: object) -> str:
    """Have one job fail for good, where handlers run; return its id."""
    handler = outcome_jobs.out_of_stock_async if place == "async" else outcome_jobs.out_of_stock
    rota.job(handler, name="restock", executor="thread" if place == "inline" else place, max_retries=0, **options)
    job = rota.enqueue("restock")
    if place == "inline":
        rota.turn()
    else:
        with rota.running(concurrency=2):
            rota.wait(job.id, timeout=patient(30))
    return job.id


@pytest.mark.parametrize("place", PLACES)
def test_a_dead_letter_is_one_error_with_its_exception(live, records, place):
    job_id = run_one(live, place)
    (record,) = records.all
    job, run = live.jobs.get(job_id), run_of(live, job_id)
    assert (record.name, *at(record)) == ("rota.jobs", "ERROR", "DEAD_LETTER")
    assert (record.job, record.number, record.template, record.attempt) == (job.id, job.number, "restock", 1)
    assert (record.worker, record.organization, record.retry_at) == (job.worker_id, job.organization, None)
    assert record.duration >= 0
    assert record.getMessage().startswith(f"{job.number} restock failed permanently after ")
    assert "OutOfStock: no tea" in record.getMessage()
    assert "\n" not in record.getMessage()
    kind, error, _ = record.exc_info
    assert (kind.__name__, kind.__module__) == ("OutOfStock", "tests.engine.outcome_jobs")
    assert (type(error) is OutOfStock) is (place != "process")
    assert str(error).startswith("no tea")
    assert record.exc_text == run.traceback.rstrip("\n")
    assert "outcome_jobs.py" in "".join(traceback.format_exception(*record.exc_info))
    assert "rota/executors" not in record.exc_text


def test_a_handler_at_error_as_of_an_error_tracker_sees_one_record(rota, records):
    tracker = Records()
    tracker.setLevel(logging.ERROR)
    logging.getLogger().addHandler(tracker)
    try:
        rota.job(outcome_jobs.out_of_stock, name="restock", max_retries=1, backoff=Backoff(base=0, jitter=0))
        rota.enqueue("restock")
        rota.turn()
        rota.turn()
    finally:
        logging.getLogger().removeHandler(tracker)
    assert [at(record) for record in records.all] == [("WARNING", "FAILED"), ("ERROR", "DEAD_LETTER")]
    (record,) = tracker.all
    assert isinstance(record.exc_info[1], OutOfStock)


def test_a_failed_attempt_is_a_warning_that_says_when_it_is_retried(rota, records):
    rota.job(outcome_jobs.out_of_stock, name="restock", max_retries=1, backoff=Backoff(base=90, jitter=0))
    job = rota.enqueue("restock")
    rota.turn()
    (record,) = records.all
    assert at(record) == ("WARNING", "FAILED")
    assert record.retry_at == f"{rota.jobs.attempts(job.id)[-1].run_at:%Y-%m-%dT%H:%M:%SZ}" == "2026-03-01T12:01:30Z"
    assert record.getMessage().endswith("; retrying at 2026-03-01T12:01:30Z")


def test_it_is_logged_when_it_is_written_and_before_the_retry_starts(rota, records):
    seen = []
    rota.job(lambda: seen.append(len(records.all)) or 1 / 0, name="act", max_retries=1, backoff=Backoff(base=0, jitter=0))
    job = rota.enqueue("act")
    written = []
    records.emit = lambda record: (records.all.append(record), written.append(str(rota.jobs.get(record.job).status)))
    rota.turn()
    rota.turn()
    assert (seen, written) == ([0, 1], ["FAILED", "DEAD_LETTER"])
    assert [str(each.status) for each in rota.jobs.attempts(job.id)] == written


def test_completions_are_logged_at_debug_only(rota, records):
    rota.job(lambda: None, name="plain")
    rota.job(outcome_jobs.fine, name="fine")
    rota.enqueue("plain")
    rota.enqueue("fine")
    rota.turn()
    assert records.all == []
    logging.getLogger("rota.jobs").setLevel(logging.DEBUG)
    jobs = [rota.enqueue("plain"), rota.enqueue("fine")]
    rota.turn()
    assert sorted((*at(record), record.job) for record in records.all) == sorted(("DEBUG", "COMPLETED", job.id) for job in jobs)
    assert all(" completed after " in record.getMessage() for record in records.all)


def test_a_skip_and_a_cancellation_are_information_and_a_snooze_is_a_detail(live, records):
    logging.getLogger("rota.jobs").setLevel(logging.DEBUG)
    for handler in (outcome_jobs.skips, outcome_jobs.snoozes, outcome_jobs.holds):
        live.job(handler, name=handler.__name__)
    live.enqueue("skips")
    live.enqueue("snoozes")
    held = live.enqueue("holds")
    with live.running():
        eventually(lambda: run_of(live, held.id) and run_of(live, held.id).progress == 1, what="it runs")
        live.jobs.cancel(held.id)
        eventually(lambda: len(records.all) == 3, what="three outcomes are logged")
    found = {record.template: (*at(record), record.exc_info) for record in records.all}
    assert found == {
        "skips": ("INFO", "SKIPPED", None),
        "snoozes": ("DEBUG", "SKIPPED", None),
        "holds": ("INFO", "CANCELLED", None),
    }
    words = {record.template: record.getMessage() for record in records.all}
    assert words["skips"].endswith(": nothing to do")
    assert ": not yet; runs again at 20" in words["snoozes"]
    assert "was cancelled after" in words["holds"]


def test_a_handler_process_that_dies_and_a_timeout_are_failures(live, records):
    live.job(outcome_jobs.dies, executor="process", max_retries=0)
    live.job(outcome_jobs.holds, timeout=0.2, max_retries=1, backoff=Backoff(base=900, jitter=0))
    live.enqueue("dies")
    live.enqueue("holds")
    with live.running():
        eventually(lambda: len(records.all) == 2, within=30, what="both are logged")
    died, slow = sorted(records.all, key=lambda record: record.template)
    assert (*at(died), died.exc_info) == ("ERROR", "DEAD_LETTER", None)
    assert "handler process died" in died.getMessage()
    assert (*at(slow), slow.exc_info) == ("WARNING", "TIMED_OUT", None)
    assert "timed out after 0.2 s; retrying at 20" in slow.getMessage()


def test_a_lost_workers_attempt_is_logged_by_the_worker_that_recovers_it(rota, records):
    rota.job(lambda: None, name="act", max_retries=2)
    jobs = [rota.enqueue("act") for _ in range(2)]
    desk = lost_worker(rota, 2)
    rota.turn()
    assert [(*at(record), record.job, record.worker, record.duration) for record in records.all] == [
        ("WARNING", "FAILED", job.id, desk.worker, None) for job in jobs
    ]
    assert records.all[0].getMessage() == f"{jobs[0].number} act failed: Scheduler crash recovery; retrying now"
    assert not rota.store.recover()
    assert len(records.all) == 2


def test_what_a_lost_worker_was_asked_to_stop_is_logged_as_cancelled(rota, records):
    logging.getLogger("rota.jobs").setLevel(logging.DEBUG)
    rota.job(lambda: None, name="act", max_retries=2)
    job = rota.enqueue("act")
    lost_worker(rota, 1)
    rota.jobs.cancel(job.id)
    rota.store.recover()
    assert [at(record) for record in records.all] == [("INFO", "CANCELLED")]


def test_a_result_that_came_too_late_is_no_outcome(rota, clock, records):
    logging.getLogger("rota.jobs").setLevel(logging.DEBUG)

    def act() -> str:
        desk = Desk(rota._session.open().store)
        desk.recover(rota._session.inline.id, Crashed())  # as another worker that takes this one for dead
        clock.advance(seconds=1)
        return "late"

    rota.job(act, max_retries=0)
    job = rota.enqueue("act")
    rota.turn()
    assert (str(rota.jobs.get(job.id).status), rota.store.stats().late_results) == ("DEAD_LETTER", 1)
    assert records.all == []


def test_a_direct_execution_that_fails_or_outlives_its_reservation_is_logged(rota, clock, records):
    rota.job(outcome_jobs.out_of_stock, name="restock")
    assert rota.jobs.direct("restock").status == "FAILED"
    desk = Desk(rota._session.open().store)
    desk.ids, desk.now, desk.worker = rota._session.ids, clock.now(), rota._session.ids.take(1, clock.now())[0]
    desk.store.register(desk.worker, host="here", kind="worker", job_types=["restock"], now=desk.now)
    reservation = desk.reserve("restock", ttl=60)
    desk.claim_one(types=("restock",))
    clock.advance(seconds=61)
    rota.store.recover()
    failed, expired = records.all
    assert [at(failed), at(expired)] == [("ERROR", "DEAD_LETTER")] * 2
    assert isinstance(failed.exc_info[1], OutOfStock)
    assert (expired.job, expired.worker, expired.template) == (dashed(reservation.job_id), desk.worker, "restock")
    assert "its reservation expired" in expired.getMessage()
    assert {name for name in FIELDS if hasattr(expired, name)} == set(FIELDS)


def test_a_turn_whose_reply_was_lost_is_logged_once(rota, records, monkeypatch):
    rota.job(outcome_jobs.out_of_stock, name="restock", max_retries=0)
    jobs = [rota.enqueue("restock") for _ in range(3)]
    store = rota._session.open().store
    turn, lost = store.turn, []

    def lose(request):
        turned = turn(request)
        if request.endings and not lost:
            lost.append(request)
            raise StoreUnavailable("the reply was lost")
        return turned

    monkeypatch.setattr(store, "turn", lose)
    for _ in range(5):
        rota.turn()
    assert lost
    assert sorted(record.job for record in records.all) == sorted(job.id for job in jobs)


def test_a_result_that_the_store_refuses_is_an_error(rota, records, monkeypatch):
    monkeypatch.setattr("rota.executors.invoke.keep_result", lambda _value, _settings: Completed("\ud800"))
    rota.job(outcome_jobs.fine)
    job = rota.enqueue("fine")
    rota.turn()
    assert str(rota.jobs.get(job.id).status) == "DEAD_LETTER"
    (record,) = records.all
    assert (*at(record), record.exc_info) == ("ERROR", "DEAD_LETTER", None)
    assert "result could not be stored" in record.getMessage()


def test_an_exception_without_a_text_or_with_a_huge_one_is_logged_within_bounds(rota, records):
    for handler in (outcome_jobs.speechless, outcome_jobs.verbose):
        rota.job(handler, max_retries=0)
        rota.enqueue(handler.__name__)
    rota.turn()
    odd, huge = sorted(records.all, key=lambda record: record.template)
    assert "UnspeakableError" in odd.getMessage()
    assert "UnspeakableError" in logging.Formatter().format(odd)
    assert huge.getMessage().startswith(f"{huge.number} verbose failed permanently after")
    assert len(huge.getMessage()) < 1_200
    assert huge.exc_info[0].__name__ == "ValueError"
    assert len(logging.Formatter().format(huge)) < 2 * Settings().error_max
    assert len("".join(traceback.format_exception(*huge.exc_info))) < 3 * Settings().error_max


def test_params_are_not_logged(rota, records):
    rota.job(lambda token: 1 / 0, name="secretive", max_retries=0)
    rota.job(lambda: None, name="strict", max_retries=0)
    rota.enqueue("secretive", {"token": "hunter2"})
    rota.turn()
    (record,) = records.all
    assert "hunter2" not in logging.Formatter().format(record) + repr(record.__dict__)


def test_a_logging_handler_that_raises_breaks_no_turn(rota, records, capsys):
    def fail(_record):
        raise OSError("the disk of the log is full")

    records.emit = fail
    rota.job(outcome_jobs.out_of_stock, name="restock", max_retries=0)
    jobs = [rota.enqueue("restock") for _ in range(3)]
    rota.turn()
    assert [str(rota.jobs.get(job.id).status) for job in jobs] == ["DEAD_LETTER"] * 3
    assert capsys.readouterr().err.count("OSError: the disk of the log is full") == 3


def test_a_slow_logging_handler_only_delays(live, records):
    entered, go = threading.Event(), threading.Event()

    def wait(_record):
        entered.set()
        go.wait(patient(30))

    records.emit = wait
    live.job(outcome_jobs.out_of_stock, name="restock", max_retries=0)
    live.job(outcome_jobs.fine)
    live.enqueue("restock")
    with live.running():
        assert entered.wait(patient(30))
        fine = live.enqueue("fine")
        go.set()
        assert live.wait(fine.id, timeout=patient(30)).result == "fine"


@pytest.mark.parametrize("place", ["inline", "thread", "async"])
def test_no_exception_outlives_the_write_of_its_outcome(live, place, monkeypatch):
    monkeypatch.setattr(logging.getLogger("rota.jobs"), "propagate", False)  # pytest keeps every record that reaches the root
    alive: list[weakref.ref[BaseException]] = []

    class HeavyError(Exception):
        def __init__(self) -> None:
            super().__init__("heavy")
            alive.append(weakref.ref(self))

    def fails() -> None:
        raise HeavyError

    async def fails_async() -> None:
        raise HeavyError

    live.job(fails_async if place == "async" else fails, name="act", max_retries=0, executor="async" if place == "async" else "thread")
    job = live.enqueue("act")
    gc.disable()
    try:
        if place == "inline":
            live.turn()
            assert [ref() for ref in alive] == [None]
        else:
            with live.running(concurrency=1):
                live.wait(job.id, timeout=patient(30))
                eventually(lambda: [ref() for ref in alive] == [None], what="the exception is gone")
    finally:
        gc.enable()


def test_an_exception_that_is_permanent_is_logged_as_one(rota, records):
    rota.job(lambda: (_ for _ in ()).throw(PermanentError("never")), name="act", max_retries=5)
    rota.enqueue("act")
    rota.turn()
    assert [(*at(record), record.exc_info[0]) for record in records.all] == [("ERROR", "DEAD_LETTER", PermanentError)]


def test_without_any_logging_set_up_a_failure_is_seen_on_standard_error(tmp_path):
    program = """
from rota import Rota
rota = Rota("jobs.db")
@rota.job(max_retries=0)
def fails():
    raise ValueError("boom")
rota.enqueue("fails")
rota.turn()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=True)
    assert "fails failed permanently" in done.stderr
    assert "ValueError: boom" in done.stderr.splitlines()[-1]
