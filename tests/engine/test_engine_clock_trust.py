"""A clock that is far past the one before deletes nothing by age until it has gone on, undisputed, for an hour. On every store."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from rota import Rota, Settings
from rota.admission import Admission
from rota.engine.clock_trust import LEAP_MAX_S, WAIT_S, ClockTrust
from rota.engine.retention import Retention
from rota.engine.webhook_delivery import WebhookDelivery
from rota.errors import ClockInDoubt
from rota.model.findings import State
from rota.model.values import SECOND
from rota.model.webhooks import Sent, Verdict
from rota.ports.hooks import Settled
from tests.support.clock import ManualClock

HISTORY = 20
KEEP = Settings(retention=30 * 86_400, retention_interval=60, synchronous="NORMAL")


class Shop:
    """A store in which twenty chains have just ended, and a process whose clock is moved by hand."""

    def __init__(self, url: object, clock: ManualClock) -> None:
        self.clock = clock
        self.rota = Rota(url, clock=clock, settings=KEEP)
        self.rota.job(lambda: None, name="noop")
        self.add(HISTORY)
        self.store = self.rota._session.open().store
        self.trust = self.rota._session.open().trust
        self.retention = self.new_retention(clock)

    def add(self, count: int) -> None:
        self.rota.enqueue_many([("noop", {})] * count)
        self.rota.turn()

    def new_retention(self, clock: ManualClock, trust: ClockTrust | None = None) -> Retention:
        """Be a worker: of this process, or of another if a clock of its own is given."""
        trust = (trust or self.trust) if clock is self.clock else ClockTrust(self.store, clock, KEEP)
        return Retention(self.store, clock=clock, settings=KEEP, log_dir=None, trust=trust)

    def tick(self, *, seconds: float = 60) -> int:
        """Let time pass, tick, and return how many chains are left."""
        self.clock.advance(seconds=seconds)
        self.retention.tick(self.clock.monotonic())
        return self.left

    @property
    def left(self) -> int:
        return len(self.rota.jobs.list(limit=1000))

    @property
    def finding(self):
        (found,) = [each for each in self.rota.store.doctor() if each.name == "retention"]
        return found


@pytest.fixture
def shop(url, tmp_path, clock, monkeypatch) -> Iterator[Shop]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Shop(url, clock)
    yield made
    made.rota.close()


def test_a_clock_that_leaps_a_year_deletes_nothing_and_is_trusted_after_an_hour(shop, caplog):
    assert shop.tick() == HISTORY
    shop.clock.step(days=365)
    with caplog.at_level(logging.INFO, "rota.retention"):
        for _ in range(59):
            assert shop.tick() == HISTORY
        (warning,) = [each for each in caplog.records if each.levelno == logging.WARNING]
        assert "2027-03-01" in warning.getMessage()
        assert "2026-03-01" in warning.getMessage()
        assert shop.finding.state is State.ADVICE
        shop.tick()
        shop.tick()
    assert shop.tick() == 0
    assert shop.finding.state is State.OK


def test_a_clock_that_was_a_year_ahead_for_a_while_has_deleted_nothing(shop, caplog):
    shop.tick()
    shop.clock.step(days=365)
    shop.tick()
    # Jobs of a year ahead don't vouch for their clock.
    shop.add(1)
    assert shop.tick() == HISTORY + 1
    shop.clock.step(days=-365)
    assert shop.tick() == HISTORY + 1
    assert shop.store.retention_clock() < shop.clock.now()
    assert shop.finding.state is State.OK
    assert shop.finding.remedy == ""


def test_a_process_that_starts_with_a_clock_a_year_ahead_deletes_nothing_although_no_clock_was_ever_trusted(shop):
    shop.clock.step(days=365)
    shop.retention = shop.new_retention(shop.clock, ClockTrust(shop.store, shop.clock, KEEP))
    assert shop.tick() == HISTORY
    shop.add(1)
    assert shop.tick() == HISTORY + 1


def test_a_machine_that_was_off_over_a_long_weekend_goes_on_at_once_and_says_nothing(shop, caplog):
    shop.tick()
    shop.clock.advance(days=29)
    shop.tick()
    shop.clock.step(seconds=LEAP_MAX_S - 600)
    shop.retention = shop.new_retention(shop.clock, ClockTrust(shop.store, shop.clock, KEEP))
    assert shop.tick() == 0
    assert [each for each in caplog.records if each.name == "rota.retention" and each.levelno > logging.INFO] == []


def test_time_that_a_process_has_measured_itself_is_no_leap(shop):
    shop.clock.advance(days=365)
    assert shop.tick() == 0


def test_another_process_that_moves_the_mark_makes_the_wait_begin_again(shop):
    shop.tick()
    right = ManualClock()
    right.advance(seconds=60)
    other = shop.new_retention(right)
    shop.clock.step(days=365)
    for _ in range(5):
        for _ in range(int(WAIT_S / 120)):
            assert shop.tick(seconds=60) == HISTORY
            right.advance(seconds=60)
        other.tick(right.monotonic())
    assert shop.store.retention_clock() == right.now()
    # Left alone, the clock that leapt is trusted in the end.
    assert [shop.tick(seconds=WAIT_S / 2) for _ in range(4)][-1] == 0


def test_a_clock_that_is_back_takes_the_mark_back_so_that_the_next_leap_is_seen(shop):
    shop.clock.step(days=365)
    shop.trust.trust(shop.clock.now())
    shop.clock.step(days=-365)
    shop.tick()
    assert shop.store.retention_clock() == shop.clock.now()
    shop.clock.step(days=365)
    assert shop.tick() == HISTORY


def test_messages_sessions_and_figures_stay_as_well_and_go_when_the_clock_is_trusted(shop):
    shop.rota.webhooks.create("https://example.org/x")
    shop.add(1)
    (parcel,) = shop.store.take_mail([], now=shop.clock.now(), until=shop.clock.now() + SECOND, limit=1, each=1).parcels
    sent = Settled(parcel=parcel, sent=Sent(status=200), verdict=Verdict(delivered=True), at=shop.clock.now())
    shop.store.take_mail([sent], now=shop.clock.now(), until=0, limit=0, each=1)
    Admission(shop.rota).open_session(shop.rota.tokens.create("mine", permits=["manage"]).secret)
    delivering = WebhookDelivery(shop.store, lambda: None, clock=shop.clock, settings=KEEP, trust=shop.trust)
    shop.tick()
    shop.clock.step(days=500)
    shop.tick()
    delivering.tick(shop.clock.monotonic())
    hours = {figure.hour for figure in shop.store.hourly(since=0)}
    assert len(shop.rota.webhooks.deliveries()) == 1
    assert hours
    shop.trust.trust(shop.clock.now())
    shop.tick(seconds=120)
    delivering.tick(shop.clock.monotonic())
    assert shop.rota.webhooks.deliveries() == []
    assert {figure.hour for figure in shop.store.hourly(since=0)} == set()
    assert shop.store.forget_sessions(before=shop.clock.now(), limit=10) == 0


def test_a_purge_by_hand_is_refused_in_doubt_and_goes_on_if_somebody_vouches_for_the_clock(shop):
    shop.tick()
    shop.clock.step(days=365)
    for dry_run in (True, False):
        with pytest.raises(ClockInDoubt, match=r"2027-03-01T.* 2026-03-01T.*trust_clock=True"):
            shop.rota.store.purge(dry_run=dry_run)
    assert shop.rota.store.purge(dry_run=True, trust_clock=True).chains == HISTORY
    assert shop.finding.state is State.ADVICE
    assert shop.rota.store.purge(trust_clock=True).chains == HISTORY
    # Workers trust it then, too.
    assert shop.finding.state is State.OK
    assert abs(shop.store.retention_clock() - shop.clock.now()) < SECOND


def test_an_idle_process_moves_the_mark_now_and_then_and_not_at_every_tick(shop, monkeypatch):
    moved = []
    write = type(shop.store).set_retention_clock
    monkeypatch.setattr(type(shop.store), "set_retention_clock", lambda self, now: (moved.append(now), write(self, now)))
    for _ in range(60):
        shop.tick()
    assert len(moved) == 1 + 59 * 60 // 660
