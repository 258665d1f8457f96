"""Inline: over when submit returns."""

import asyncio
from unittest.mock import Mock

from rota.executors.invoke import inside_handler
from rota.model.decide import Completed, TimedOut


class SlowClock:
    """Every look at it takes a second."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return 1_763_180_759_123_456

    def monotonic(self):
        self.seconds += 1.0
        return self.seconds


def test_jobs_are_over_when_submit_returns(make_rig):
    rig = make_rig("inline")
    rig.executor.submit([rig.job("give", value=1), rig.job("give", value=2)])
    assert [end.outcome for end in rig.ear.ends] == [Completed("1"), Completed("2")]
    assert rig.executor.occupied() == 0
    assert not inside_handler()


def test_a_handler_that_ran_longer_than_its_timeout_is_found_out_afterwards(make_rig):
    rig = make_rig("inline", clock=SlowClock())
    assert rig.outcome("nothing", timeout=0.5) == TimedOut(0.5)
    assert rig.outcome("nothing", timeout=1.5) == Completed(None)


def test_an_async_handler_runs_also_where_a_loop_is_running(make_rig):
    rig = make_rig("inline", module="tests.executors.async_handlers")

    async def main():
        return rig.outcome("give", value=4)

    assert asyncio.run(main()) == Completed("4")
    assert rig.outcome("is_inside") == Completed("true")


def test_log_times_come_from_the_clock(make_rig):
    rig = make_rig("inline", clock=SlowClock())
    job = rig.submit("talk")
    assert rig.log_of(job).startswith("2025-11-15T04:25:59.123456Z INFO copied")


def test_an_error_of_our_own_around_the_handler_ends_the_job_as_failed(make_rig, monkeypatch):
    monkeypatch.setattr("rota.executors.inline.runner", lambda _: Mock(side_effect=RuntimeError("no tracer")))
    rig = make_rig("inline")
    assert rig.outcome("nothing").error == "RuntimeError: no tracer"
    assert rig.executor.occupied() == 0
