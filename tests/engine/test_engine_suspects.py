"""Jobs that a worker crashed under run in a process of their own, whatever executor they were declared for, as they would anywhere."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from rota import Rota
from rota.engine.executor_pool import Suspects
from rota.engine.predicates import World
from rota.engine.turn_request import Dispatcher
from rota.model.decide import Crashed
from rota.ports.executor import Readiness, Report
from rota.ports.turns import Usage
from tests.engine import suspected
from tests.engine.test_engine_dispatch import candidate, slots
from tests.stores.desk import Desk
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually

KINDS = sorted(suspected.HANDLERS)


def crash(rota, job_type, *, checkpoint=None):
    """Have a worker crash under what is next of a type."""
    desk = Desk(rota._session.open().store)
    desk.ids, desk.now = rota._session.ids, rota._session.clock.now()
    desk.worker = desk.id()
    desk.store.register(desk.worker, host="h", kind="worker", job_types=[job_type], now=desk.now)
    (claimed,) = desk.claim(1, types=(job_type,))
    if checkpoint is not None:
        desk.turn(reports=[Report(claimed.number, checkpoint=checkpoint)])
    desk.recover(desk.worker, Crashed())
    desk.store.end_worker(desk.worker, now=desk.now)


def declare(rota, kind, function, **options):
    executor = kind if kind in {"thread", "inline", "async", "process"} else None
    rota.job(function, name="act", executor=executor, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_suspect_has_all_that_a_handler_has_in_a_process_of_its_own(live: Rota, tmp_path: Path, kind: str):
    declare(live, kind, suspected.HANDLERS[kind][0])
    job = live.enqueue("act", {"folder": str(tmp_path)})
    crash(live, "act", checkpoint='{"from": 1}')
    with live.running(concurrency=2):
        run = live.wait(job.id, timeout=patient(30))
    tail = live.jobs.attempts(job.id)[-1]
    assert (run.status, tail.executor, tail.crashes) == ("COMPLETED", "process", 1)
    assert run.result["pid"] != os.getpid()
    assert run.result == {"pid": run.result["pid"], "attempt": 2, "state": {"from": 1}, "folder": str(tmp_path)}
    assert (run.checkpoint, run.artifacts) == ({"seen": 2}, ["report.pdf"])
    assert f"in process {run.result['pid']}" in Path(run.log_path).read_text()
    assert (run.progress, run.progress_message) == ((90, "nearly done") if kind == "steps" else (40, "nearly half"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_suspect_can_be_cancelled(live: Rota, tmp_path: Path, kind: str):
    declare(live, kind, suspected.HANDLERS[kind][1])
    job = live.enqueue("act", {"folder": str(tmp_path)})
    crash(live, "act")
    with live.running(concurrency=2):
        eventually((tmp_path / "entered").exists, within=30, what="its handler at work")
        live.jobs.cancel(job.id)
        eventually(lambda: live.jobs.attempts(job.id)[-1].status == "CANCELLED", within=30, what="its end")


@pytest.mark.parametrize("kind", KINDS)
def test_a_suspect_is_stopped_at_its_timeout(live: Rota, tmp_path: Path, kind: str):
    declare(live, kind, suspected.HANDLERS[kind][1], timeout=0.2, max_retries=1)
    job = live.enqueue("act", {"folder": str(tmp_path)})
    crash(live, "act")
    with live.running(concurrency=2):
        eventually(lambda: len(live.jobs.attempts(job.id)) == 3, within=30, what="its end")
    assert [each.status for each in live.jobs.attempts(job.id)[:2]] == ["FAILED", "TIMED_OUT"]


def test_a_suspect_that_kills_its_process_is_dead_lettered_by_its_own_crashes_and_the_worker_lives(live: Rota, tmp_path: Path):
    live.job(suspected.kills_its_process, name="act", max_crashes=3)
    live.job(suspected.quick, name="quick")
    job = live.enqueue("act", {"folder": str(tmp_path)})
    crash(live, "act")
    with live.running(concurrency=2):
        others = [live.enqueue("quick") for _ in range(20)]
        eventually(lambda: live.jobs.attempts(job.id)[-1].status == "DEAD_LETTER", within=30, what="its end")
        assert {live.wait(each.id, timeout=patient(20)).result for each in others} == {os.getpid()}
    chain = live.jobs.attempts(job.id)
    assert [each.crashes for each in chain] == [0, 1, 2]
    assert [run_of(live, each.id).error for each in chain[1:]] == ["handler process died: exited with code 7"] * 2
    assert {each.crashes for other in others for each in live.jobs.attempts(other.id)} == {0}


def test_a_handler_that_a_process_fails_to_import_runs_in_the_worker(live: Rota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # It can be imported here and not there: it needs what this program has set up.
    (tmp_path / "needy.py").write_text(
        "import os, sys\nassert sys.modules.get('set_up_by_the_program')\ndef act():\n    return os.getpid()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "set_up_by_the_program", suspected)
    live.job(import_module("needy").act, name="act")
    job = live.enqueue("act")
    crash(live, "act")
    with live.running(concurrency=2):
        assert live.wait(job.id, timeout=patient(30)).result == os.getpid()
    assert live.jobs.attempts(job.id)[-1].executor == "thread"


def test_no_process_is_started_as_long_as_no_worker_has_crashed(live: Rota):
    live.job(suspected.quick, name="quick")
    with live.running(concurrency=2):
        live.wait(live.enqueue("quick").id, timeout=patient(20))
        assert list(live._session.drivers[0].worker._pool._executors) == ["thread"]


class Slow:
    """A pool whose process never comes."""

    def readiness(self, _job_type):
        return Readiness.LATER


def test_a_suspect_does_not_wait_for_ever_for_a_process(rota: Rota, clock):
    rota.job(suspected.quick, name="quick")
    parts = SimpleNamespace(clock=clock, handlers=rota._session.registry.handlers, runs_apart=lambda _: True, inline=False)
    suspects = Suspects(parts, Slow())
    suspects.passed({"quick"}, saw_all=True)
    assert not suspects.look()
    assert suspects.inside() == {}
    clock.advance(seconds=31)
    assert suspects.look()
    assert suspects.inside() == {"quick": "thread"}


def test_a_suspect_that_a_busy_worker_did_not_come_to_has_waited_all_the_same(rota: Rota, clock):
    """Every slot was in use, or was taken by jobs before it: that says nothing of how long it has waited for a process."""
    rota.job(suspected.quick, name="quick")
    parts = SimpleNamespace(clock=clock, handlers=rota._session.registry.handlers, runs_apart=lambda _: True, inline=False)
    suspects = Suspects(parts, Slow())
    world = World(types=frozenset({"quick"}), unready=frozenset({"quick"}))
    suspect, others = candidate(9, job_type="quick", crashes=1), [candidate(number, job_type="quick") for number in (1, 2)]
    for free, candidates in ((1, [suspect]), (0, []), (1, others[:1]), (1, [*others, suspect])):
        claim = Dispatcher(world, slots(free=free), most=free)
        claim.choose(candidates, None, Usage())
        suspects.passed(claim.unready, saw_all=claim.has_room)
        assert not suspects.look()
        clock.advance(seconds=8)
    assert suspects.look()


def test_a_suspect_that_waits_only_for_a_slot_is_not_looked_for_all_the_time(rota: Rota, clock):
    """A full worker that made fifty turns a second until a slot is free would be a busy loop."""
    rota.job(suspected.quick, name="quick")
    parts = SimpleNamespace(clock=clock, handlers=rota._session.registry.handlers, runs_apart=lambda _: True, inline=False)
    suspects = Suspects(parts, Slow())
    suspects.passed({"quick"}, saw_all=True)
    assert suspects.awaits_process
    clock.advance(seconds=31)
    for _ in range(3):
        assert suspects.look()
        suspects.passed(set(), saw_all=False)
        assert not suspects.awaits_process


def test_a_suspect_that_is_gone_is_not_waited_for(rota: Rota, clock):
    rota.job(suspected.quick, name="quick")
    parts = SimpleNamespace(clock=clock, handlers=rota._session.registry.handlers, runs_apart=lambda _: True, inline=False)
    suspects = Suspects(parts, Slow())
    suspects.passed({"quick"}, saw_all=True)
    clock.advance(seconds=20)
    suspects.passed(set(), saw_all=True)
    clock.advance(seconds=20)
    suspects.passed({"quick"}, saw_all=True)
    assert not suspects.look()
