"""After a time without workers, late firings of all schedules together keep to a rate, and those in time take no notice."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing
from datetime import timedelta

import pytest

from rota import Rota, Settings
from rota.errors import InvalidOption
from tests.support.clock import ManualClock
from tests.support.postgres import fresh_database

HOURS = 12
STEP_S = 3
LATE = 50
"""Schedules that are due each hour."""
TICKS = 5
"""Schedules that are due each minute."""


@pytest.fixture(params=["file", "server"])
def database(request, tmp_path, monkeypatch):
    if request.param == "file":
        yield tmp_path / "rota.db"
        return
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with fresh_database() as url:
        yield url


class Fleet:
    """Workers that turn one after the other, on one clock; what they start is written down."""

    def __init__(self, database, workers, **settings):
        self.clock = ManualClock()
        self.begin = self.clock.now()
        self.starts = []
        self.rotas = [Rota(database, clock=self.clock, settings=Settings(**settings), seed=seed) for seed in range(workers)]
        for rota in self.rotas:
            rota.job(self.note, name="work")

    def note(self, name):
        self.starts.append((name, self.seconds))

    @property
    def seconds(self):
        return (self.clock.now() - self.begin) / 1e6

    def run(self, seconds):
        """Turn every few seconds, each time with another worker first, up to that moment and with it."""
        for step in range(seconds // STEP_S + 1):
            for rota in self.rotas[step % 2 :] + self.rotas[: step % 2]:
                rota.turn()
            if step < seconds // STEP_S:
                self.clock.advance(seconds=STEP_S)


@pytest.fixture
def make_fleet(database):
    with ExitStack() as stack:

        def make(workers, **settings):
            fleet = Fleet(database, workers, **settings)
            for rota in fleet.rotas:
                stack.enter_context(closing(rota))
            return fleet

        yield make


def most_in_a_minute(moments):
    return max(sum(at <= other < at + 60 for other in moments) for at in moments)


def test_late_firings_keep_to_the_rate_and_those_in_time_take_no_notice(make_fleet):
    fleet = make_fleet(2, catch_up_rate="10/60s", schedule_batch=7)
    first = fleet.rotas[0]
    for number in range(LATE):
        first.schedule(f"late-{number}", "work", every=timedelta(hours=1), params={"name": f"late-{number}"})
    for number in range(TICKS):
        first.schedule(f"tick-{number}", "work", every=timedelta(minutes=1), params={"name": f"tick-{number}"})
    fleet.clock.advance(hours=HOURS, minutes=2)
    back = fleet.seconds
    fleet.run(600)

    late = [at - back for name, at in fleet.starts if name.startswith("late")]
    assert len(late) == LATE
    assert most_in_a_minute(late) <= 10
    assert max(late) <= 60 * (LATE + TICKS) / 10 + STEP_S

    for number in range(TICKS):
        ticks = [at for name, at in fleet.starts if name == f"tick-{number}"]
        in_time = [due for due in range(int(back), int(fleet.seconds), 60) if due % 60 == 0 and due > back]
        assert {due for due in in_time if not any(due <= at < due + 2 * STEP_S for at in ticks)} == set()

    for name, due in [(f"late-{number}", HOURS) for number in range(LATE)] + [("tick-0", int(fleet.seconds // 60))]:
        rows = list(first.schedules.occurrences(name, limit=1000))
        assert sum(row.count for row in rows) == due
    assert all(rota.schedules.verify().ok for rota in fleet.rotas)


def test_the_ledger_says_how_late_a_firing_was_and_when_it_may_run(make_fleet):
    fleet = make_fleet(1, catch_up_rate="1/60s")
    (rota,) = fleet.rotas
    for number in range(2):
        rota.schedule(f"late-{number}", "work", every=timedelta(hours=1), params={"name": "x"})
    fleet.clock.advance(hours=1, minutes=10)
    rota.turn()
    reasons = sorted(row.reason for number in range(2) for row in rota.schedules.occurrences(f"late-{number}"))
    assert [reason.partition(" lets it run at ")[0] for reason in reasons] == ["10 m 00 s late; catch_up_rate"] * 2
    pending = list(rota.jobs.list(status="PENDING"))
    assert [(job.run_at - job.due_at) for job in pending] == [timedelta(minutes=11)]


def test_a_due_time_in_time_stands_for_a_late_one_whose_turn_would_come_after_it(make_fleet):
    fleet = make_fleet(1, catch_up_rate="1/1h")
    (rota,) = fleet.rotas
    for number in range(3):
        rota.schedule(f"every-{number}", "work", every=timedelta(minutes=10), params={"name": f"every-{number}"})
    fleet.clock.advance(hours=1, minutes=5)
    fleet.run(600)
    fates = Counter(
        row.fate for number in range(3) for row in rota.schedules.occurrences(f"every-{number}") if row.last_due_at == row.due_at
    )
    assert fates["FIRED"] == 1 + 3  # one late, and one in time of each
    assert "SKIPPED_OVERLAP" not in fates
    reasons = {row.reason for number in range(3) for row in rota.schedules.occurrences(f"every-{number}") if row.fate == "COALESCED"}
    assert "a later due time stands for it, before catch_up_rate has room for it" in reasons


def test_every_due_time_that_is_caught_up_has_its_own_place(make_fleet):
    fleet = make_fleet(1, catch_up_rate="1/60s")
    (rota,) = fleet.rotas
    rota.schedule("each", "work", every=timedelta(hours=1), params={"name": "each"}, catch_up="all", overlap="allow")
    fleet.clock.advance(hours=3, minutes=10)
    back = fleet.seconds
    fleet.run(300)
    assert [at - back for _, at in fleet.starts] == [0, 60, 120]


def test_without_the_setting_late_firings_are_ready_at_once(make_fleet):
    fleet = make_fleet(1)
    (rota,) = fleet.rotas
    for number in range(20):
        rota.schedule(f"late-{number}", "work", every=timedelta(hours=1), params={"name": "x"})
    fleet.clock.advance(hours=1, minutes=10)
    rota.turn()
    assert len(fleet.starts) == 20
    assert {row.reason for row in rota.schedules.occurrences("late-0")} == {None}


@pytest.mark.parametrize("rate", ["often", "10", "0/60s"])
def test_what_is_not_a_rate_is_refused(rate):
    with pytest.raises(InvalidOption, match="catch_up_rate"):
        Settings(catch_up_rate=rate)
