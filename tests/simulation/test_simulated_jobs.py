"""Simulated jobs last as long as their types are known to, and keep the contract of an executor."""

from __future__ import annotations

from random import Random

import pytest

from rota.model.decide import Completed, Failed, Interrupted, Stopped, TimedOut
from rota.model.figures import TypeStats
from rota.model.settings import Settings
from rota.model.values import SECOND, Claimed
from rota.ports.executor import Equipment
from rota.simulation.executor import Manner, Manners, SimulatedClock, SimulatedExecutor


def figures(average_s, p95_s, failure_rate=0.0):
    return TypeStats(job_type="t", completed=100, failed=0, failure_rate=failure_rate, average_s=average_s, p95_s=p95_s)


class Heard(list):
    def ended(self, ended):
        self.append(ended)

    def report(self, report): ...


class Bench:
    """One executor with two slots, jobs that take ten seconds, and a clock."""

    def __init__(self, **known):
        self.clock = SimulatedClock(0)
        self.heard = Heard()
        equipment = Equipment(handlers={}, sink=self.heard, clock=self.clock, settings=Settings(), slots=2, log_dir=None, lock_fd=None)
        self.executor = SimulatedExecutor(equipment, self.clock, Manners([figures(10.0, 10.0, **known)], 1, failures=True))

    def submit(self, *numbers, timeout=300.0):
        self.executor.submit([job(number, timeout) for number in numbers])

    def pass_s(self, seconds):
        self.clock.advance(round(seconds * SECOND))
        self.executor.deliver()
        return [(ended.job.number, type(ended.outcome)) for ended in self.heard]


def job(number, timeout):
    text = dict.fromkeys(("job_id", "root_id", "run_id", "organization_id", "params", "backoff", "executor"), "")
    numbers = dict.fromkeys(("priority", "position", "failures", "crashes", "snoozes", "max_retries", "max_crashes", "started_at"), 0)
    return Claimed(
        number=number, root_number=number, attempt=1, job_type="t", origin="schedule", timeout=timeout, checkpoint=None, **text, **numbers
    )


@pytest.mark.parametrize(("average", "p95"), [(0.02, 0.05), (1.0, 1.0), (12.0, 30.0), (600.0, 1500.0)])
def test_durations_have_the_average_and_the_slowest_twentieth_that_are_known(average, p95):
    manner = Manner.of(figures(average, p95), Random(5), failures=False)
    drawn = sorted(manner.draw()[0] / SECOND for _ in range(20_000))
    assert sum(drawn) / len(drawn) == pytest.approx(average, rel=0.12)
    assert drawn[19_000] == pytest.approx(p95, rel=0.25)


@pytest.mark.parametrize("seconds", [0.004, 1.2, 3.3, 61.875])
def test_durations_are_kept_to_the_millisecond(seconds):
    manner = Manner.of(figures(seconds, seconds * 1.05), Random(5), failures=False)
    assert {manner.draw()[0] for _ in range(100)} == {round(seconds * SECOND)}


def test_a_type_that_nothing_is_known_of_takes_just_under_a_second():
    lasts, outcome = Manners([], 1, failures=True).of("new").draw()
    assert (lasts, outcome) == (999_000, Completed())


def test_failures_are_drawn_at_the_rate_that_is_known():
    manner = Manner.of(figures(1.0, 1.0, failure_rate=0.25), Random(5), failures=True)
    failed = sum(isinstance(manner.draw()[1], Failed) for _ in range(4000))
    assert failed == pytest.approx(1000, rel=0.1)


def test_another_type_more_changes_nothing_for_a_type():
    def drawn(types):
        manners = Manners([figures(10.0, 30.0)], 1, failures=False)
        return [[manners.of(name).draw() for name in types][-1] for _ in range(20)]

    assert drawn(["t"]) == drawn(["other", "t"])


def test_jobs_beyond_the_slots_wait_in_order():
    bench = Bench()
    bench.submit(1, 2, 3)
    assert bench.executor.occupied() == 2
    assert bench.pass_s(9) == []
    assert bench.pass_s(1) == [(1, Completed), (2, Completed)]
    assert bench.executor.occupied() == 1
    assert bench.pass_s(10)[2:] == [(3, Completed)]


def test_a_job_over_its_timeout_ends_timed_out_at_its_timeout():
    bench = Bench()
    bench.submit(1, timeout=4.0)
    assert bench.executor.tick(0.0) == 4.0
    assert bench.pass_s(4) == [(1, TimedOut)]


def test_a_machine_that_sleeps_does_not_work():
    bench = Bench()
    bench.submit(1)
    bench.clock.sleep(3600 * SECOND)
    assert bench.pass_s(9) == []
    assert bench.pass_s(1) == [(1, Completed)]


def test_what_is_cancelled_released_or_interrupted_is_told_once():
    bench = Bench()
    bench.submit(1, 2, 3, 4)
    bench.executor.cancel(3)
    bench.executor.cancel(1)
    assert [job.number for job in bench.executor.release()] == [4]
    bench.executor.interrupt()
    assert bench.pass_s(100) == [(3, Stopped), (1, Stopped), (2, Interrupted)]
