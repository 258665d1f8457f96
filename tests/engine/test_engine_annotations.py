"""Params and results by annotation, and `retry_on` and `fail_on`, on every way in and in every executor."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from rota import Backoff, NewJob, Rota, Settings, testing
from rota.errors import DuplicateJob, InvalidHandler, InvalidOption, InvalidParams, RotaError
from rota.model.states import Status
from tests.support.annotated import (
    NOON,
    PARAMS,
    TABLE,
    Line,
    Mail,
    OutOfStockError,
    SoldOutError,
    all_of_them,
    all_of_them_async,
    priced,
    raises,
    raises_async,
    stamped,
)
from tests.support.pace import patient
from tests.support.runs import run_of

if TYPE_CHECKING:
    from somewhere import Absent

EXECUTORS = ["inline", "thread", "async", "process"]
NEVER = Backoff(base=0, jitter=0)


def producer(rota: Rota) -> Rota:
    """Return a Rota on the same store that has none of the handlers."""
    return Rota(rota.store.url, settings=rota.settings)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_annotated_param_arrives_as_it_was_sent(live, executor):
    live.job(name="all", executor=executor)(all_of_them_async if executor == "async" else all_of_them)
    sent = [live.enqueue("all", PARAMS), live.enqueue("all", {f"p{n}": case.form for n, case in enumerate(TABLE.values())})]
    with live.running():
        for job in sent:
            run = live.wait(job.id, timeout=patient(30))
            assert (run.status, run.error) == (Status.COMPLETED, None)
            assert run.result == {"arrived": len(TABLE), "differing": [], "in the context": []}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_params_that_do_not_fit_are_never_tried_again(live, executor):
    live.job(name="all", executor=executor, max_retries=5)(all_of_them_async if executor == "async" else all_of_them)
    live.enqueue("all", PARAMS)
    index = list(TABLE).index("list[dataclass]")
    forms = {f"p{n}": case.form for n, case in enumerate(TABLE.values())}
    with closing(producer(live)) as other:
        job = other.enqueue("all", forms | {f"p{index}": [{"sku": "a"}, {"sku": "b", "amount": "x"}]})
    with live.running():
        run = live.wait(job.id, timeout=patient(30))
    assert [each.status for each in live.jobs.attempts(job.id)] == [Status.DEAD_LETTER]
    assert run.error_type == "permanent"
    assert run.error == f"InvalidParams: params.p{index}[1].amount: expected decimal, got str 'x'"


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_results_that_json_has_no_word_for_are_stored_and_come_back_by_the_return_annotation(live, executor):
    live.job(name="stamped", executor=executor)(stamped)
    live.job(name="priced", executor=executor)(priced)
    typed, untyped = live.enqueue("stamped", {"at": NOON}), live.enqueue("priced")
    with live.running():
        mail = live.wait(typed.id, timeout=patient(30)).result
        prices = live.wait(untyped.id, timeout=patient(30)).result
    assert mail == {"to": "a@b.c", "at": "2026-03-01T13:30:05.250000Z"}
    back = live._session.registry.handlers["stamped"].codec.decode_result(msgspec.json.encode(mail).decode())
    assert back == Mail("a@b.c", NOON + timedelta(hours=1))
    assert prices == {
        "sum": "1.10",
        "paths": ["a"],
        "line": {"sku": "tea", "amount": "1"},
        "order": TABLE["pydantic model"].form,
    }


# ---- every way in ---------------------------------------------------------------------------------------------


def edited_schedule(rota, params):
    rota.schedules.create("hourly", "f", every="1h")
    rota.schedules.update("hourly", params=params)


def fired(rota, params):
    rota.schedules.create("hourly", "f", every="1h")
    rota.schedules.fire("hourly", params)


def default_params(rota, params):
    rota.job(name="g", default_params=params)(rota._session.registry.handlers["f"].function)


WAYS_IN = {
    "enqueue": lambda rota, params: rota.enqueue("f", params),
    "with options": lambda rota, params: rota.enqueue("f", params, priority="high"),
    "pairs": lambda rota, params: rota.enqueue_many([("f", params)]),
    "new jobs": lambda rota, params: rota.enqueue_many([NewJob(name="f", params=params)]),
    "group": lambda rota, params: rota.group([("f", params)]),
    "direct": lambda rota, params: rota.jobs.direct("f", params),
    "schedule": lambda rota, params: rota.schedule("hourly", "f", every="1h", params=params),
    "create_schedule": lambda rota, params: rota.schedules.create("hourly", "f", every="1h", params=params),
    "edit_schedule": edited_schedule,
    "fire": fired,
    "change": lambda rota, params: rota.jobs.update(rota.enqueue("f").id, params=params),
    "default_params": default_params,
}


def order(lines: list[Line] | None = None, at: datetime | None = None, folder: Path | None = None) -> list[str]:
    return [type(value).__name__ for value in (*(lines or ()), at, folder)]


@pytest.mark.parametrize("way", WAYS_IN.values(), ids=WAYS_IN.keys())
def test_what_does_not_fit_is_refused_with_its_place_on_every_way_in(rota, way):
    rota.job(name="f")(order)
    with pytest.raises(RotaError, match=r"params\.lines\[2\]\.amount: expected decimal, got str 'x'"):
        way(rota, {"lines": [{"sku": "a"}, {"sku": "b", "amount": "1"}, {"sku": "c", "amount": "x"}]})
    assert [job.params for job in rota.queues.jobs()] in ([], [{}])


@pytest.mark.parametrize("way", WAYS_IN.values(), ids=WAYS_IN.keys())
def test_values_of_python_are_taken_on_every_way_in(rota, way):
    rota.job(name="f")(order)
    way(rota, {"lines": [Line("a", Decimal(2))], "at": NOON, "folder": Path("in")})


def test_a_schedule_keeps_the_json_form_and_its_jobs_get_the_values(rota, clock):
    rota.job(name="f")(order)
    for _ in range(2):
        rota.schedule("hourly", "f", every="1h", params={"lines": [Line("a")], "at": NOON, "folder": Path("in")})
    assert rota.schedules.get("hourly").params == {
        "lines": [{"sku": "a", "amount": "1"}],
        "at": "2026-03-01T12:30:05.250000Z",
        "folder": "in",
    }
    job = rota.schedules.fire("hourly")
    rota.turn()
    assert run_of(rota, job.id).result == ["Line", "datetime", "PosixPath"]


def test_default_params_are_checked_where_they_are_written_and_under_their_name(rota):
    with pytest.raises(InvalidOption, match=r"^default_params\.at: expected datetime"):
        rota.job(default_params={"at": "soon"})(order)
    rota.job(default_params={"at": NOON, "folder": Path("in")})(order)
    job = rota.enqueue("order")
    rota.turn()
    assert run_of(rota, job.id).result == ["datetime", "PosixPath"]


def test_a_duplicate_is_known_by_its_json_form(rota):
    rota.job(name="f", dedup_window=60)(order)
    rota.enqueue("f", {"at": NOON, "lines": [Line("a", Decimal(2))], "folder": Path("in")})
    with pytest.raises(DuplicateJob):
        rota.enqueue("f", {"folder": "in", "lines": [{"amount": "2", "sku": "a"}], "at": "2026-03-01T12:30:05.250000Z"})


def test_the_testing_kit_takes_values_of_python(rota):
    rota.job(name="f")(order)
    with testing.use(rota) as kit:
        rota.enqueue("f", {"at": NOON, "folder": Path("in")})
        kit.assert_enqueued("f", {"folder": Path("in"), "at": NOON})


# ---- handlers that can't be ------------------------------------------------------------------------------------


def needs_absent(a: Absent) -> None: ...


def test_a_handler_whose_annotation_cant_be_resolved_stops_the_worker_at_its_start_not_a_job(live):
    live.job(needs_absent)
    with pytest.raises(InvalidHandler, match=r"needs_absent\(\): parameter 'a' has the annotation 'Absent'"), live.running():
        raise AssertionError("a worker was started")
    with pytest.raises(InvalidHandler, match="not under TYPE_CHECKING"):
        live.enqueue("needs_absent", {"a": 1})


def test_a_handler_that_only_a_job_names_is_checked_where_it_is_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    rota = Rota(tmp_path / "rota.db", settings=Settings(handler_modules="annotated_elsewhere", max_retries=5))
    with closing(rota):
        job = rota.enqueue(handler="annotated_elsewhere:work", params={"a": 1})
        (tmp_path / "annotated_elsewhere.py").write_text("def work(a: 'Absent'): ...\n")
        rota.turn()
        assert [each.status for each in rota.jobs.attempts(job.id)] == [Status.DEAD_LETTER]
        assert "parameter 'a' has the annotation 'Absent', which can't be resolved" in run_of(rota, job.id).error


def test_a_handler_that_takes_what_cant_be_stored_is_refused(rota):
    @rota.job
    def counts(number: complex): ...

    with pytest.raises(InvalidHandler, match=r"counts\(\): parameter 'number' can't be stored as JSON: there is no JSON form of complex"):
        rota.enqueue("counts", {"number": 1})


# ---- retry_on, fail_on -----------------------------------------------------------------------------------------

RULES = [
    # what is raised, retry_on, fail_on, permanent?
    ("connection", None, None, False),
    ("connection", (ConnectionError,), None, False),
    ("value", (ConnectionError,), None, True),
    ("exit", (ConnectionError,), None, True),
    ("sold out", OutOfStockError, None, False),
    ("sold out", (OutOfStockError,), (SoldOutError,), True),
    ("value", None, (ValueError,), True),
    ("other", None, (ValueError,), False),
    ("value", (), None, True),
    ("permanent", (Exception,), None, True),
    ("transient", (ConnectionError,), (Exception,), False),
    ("retry", (ConnectionError,), (Exception,), False),
]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_retry_on_and_fail_on_decide_what_is_tried_again(live, executor):
    handler = raises_async if executor == "async" else raises
    jobs = []
    for number, (what, retry_on, fail_on, _) in enumerate(RULES):
        options = {"max_retries": 1, "backoff": NEVER, "retry_on": retry_on, "fail_on": fail_on}
        live.job(name=f"raises {number}", executor=executor, **options)(handler)
        jobs.append(live.enqueue(f"raises {number}", {"what": what}))
    with live.running():
        errors = [live.wait(job.id, timeout=patient(60)).error_type for job in jobs]
    attempts = [len(live.jobs.attempts(job.id)) for job in jobs]
    assert list(zip(attempts, errors, strict=True)) == [(1, "permanent") if rule[-1] else (2, "transient") for rule in RULES]


MAIN = """
from rota import Backoff, Rota

rota = Rota("main.db")


class Gone(Exception): ...


class Away(Gone): ...


@rota.job(executor="process", max_retries=2, backoff=Backoff(base=0, jitter=0), retry_on=(Gone,), fail_on=Away)
def fetch(away: bool):
    raise Away("for good") if away else Gone("for a while")


if __name__ == "__main__":
    jobs = [rota.enqueue("fetch", {"away": away}) for away in (True, False)]
    with rota.running():
        for job in jobs:
            rota.wait(job.id)
    print([len(rota.jobs.attempts(job.id)) for job in jobs])
"""


def test_errors_that_the_main_program_defines_are_known_in_handler_processes(tmp_path):
    (tmp_path / "main.py").write_text(MAIN)
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=patient(60), check=False, env=os.environ
    )
    assert done.stdout.strip() == "[1, 3]", done.stderr


@pytest.mark.parametrize("option", ["retry_on", "fail_on"])
@pytest.mark.parametrize("wrong", ["ConnectionError", ("ConnectionError",), (ValueError("x"),), int, 7, (ValueError, int)])
def test_what_is_not_an_exception_class_is_refused_at_decoration(rota, option, wrong):
    with pytest.raises(InvalidOption, match=rf"{option}: .* is not an exception class; use classes, such as {option}=\(ConnectionError,\)"):
        rota.job(**{option: wrong})(order)
    assert rota._session.registry.find("order") is None


def test_the_testing_kit_keeps_the_rules(rota):
    rota.job(name="raises", retry_on=(ConnectionError,))(raises)
    with testing.use(rota) as kit:
        rota.enqueue("raises", {"what": "value"})
        kit.drain()
        (job,) = kit.jobs("raises")
        assert (job.status, job.attempt) == (Status.DEAD_LETTER, 1)


def test_a_refusal_is_of_the_kind_that_callers_catch(rota):
    rota.job(name="f")(order)
    with pytest.raises(InvalidParams):
        rota.enqueue("f", {"at": "soon"})
