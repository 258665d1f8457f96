"""Overdue schedules are reported by whatever process serves the store, once for each gap."""

from __future__ import annotations

from contextlib import ExitStack, closing
from datetime import timedelta

import pytest

from rota import Rota, Settings
from rota.engine.background import OverdueWatch
from rota.model.reports import ScheduleEvent
from tests.support.receiver import receiving
from tests.support.waiting import eventually

OPEN = {"webhook_private": "allow", "webhook_http": "allow", "webhook_interval": 0.05, "lease_ttl": 1.0}


@pytest.fixture
def settings():
    return Settings(**OPEN)


@pytest.fixture
def shop(rota):
    rota.job(name="work")(lambda: None)
    return rota


def watch(rota, clock):
    return OverdueWatch(rota._session.open().store, rota._session.registry, clock=clock, settings=rota.settings)


def reports(rota):
    return [each.report for each in rota._session.open().store.reports_after(0, limit=1000) if each.report.event is ScheduleEvent.OVERDUE]


def test_a_gap_is_reported_once_by_two_processes_and_after_a_restart(shop, clock):
    shop.schedule("often", "work", every=60)
    clock.advance(minutes=5)
    for process in (watch(shop, clock), watch(shop, clock)):
        process.look()
        clock.advance(minutes=5)
        process.look()
    (report,) = reports(shop)
    assert (report.schedule, report.count, report.phase) == ("often", 5, "opened")


def test_the_next_gap_is_reported_again(shop, clock):
    shop.schedule("often", "work", every=60)
    looking = watch(shop, clock)
    for _ in range(2):
        clock.advance(minutes=5)
        looking.look()
        shop.turn()
    first, second = reports(shop)
    assert second.due_at - first.due_at == timedelta(minutes=5) // timedelta(microseconds=1)


def test_a_due_time_that_is_late_by_no_more_than_the_tolerance_is_not_reported(shop, clock):
    shop.schedule("often", "work", every=60)
    clock.advance(seconds=60.5)
    watch(shop, clock).look()
    assert reports(shop) == []


def test_a_paused_schedule_is_not_overdue(shop, clock):
    shop.schedule("often", "work", every=60)
    shop.schedules.pause("often")
    clock.advance(minutes=5)
    watch(shop, clock).look()
    assert reports(shop) == []


def test_a_gap_that_is_known_costs_no_further_write(shop, clock, monkeypatch):
    shop.schedule("often", "work", every=60)
    clock.advance(minutes=5)
    looking = watch(shop, clock)
    looking.look()
    monkeypatch.setattr(type(shop._session.open().store), "report_overdue", lambda *_, **__: pytest.fail("a write"))
    looking.look()


def test_a_process_without_a_worker_reports_and_sends_and_rests_while_it_has_one(tmp_path):
    with receiving() as receiver, ExitStack() as stack:
        one, two = (stack.enter_context(closing(Rota(tmp_path / "rota.db", settings=Settings(**OPEN)))) for _ in range(2))
        for each in (one, two):
            each.job(name="work")(lambda: None)
        one.webhooks.create(receiver.url(), events=["schedule.overdue"])
        one.schedule("often", "work", every=1)
        with one.store.minder(), two.store.minder():
            eventually(lambda: receiver.received, within=30, what="the report of the gap")
            with one.running():
                eventually(lambda: one.schedules.occurrences("often"), within=30, what="outcomes")
    keys = [each.key for each in receiver.received]
    assert receiver.received[0].json["outcome"] == "OVERDUE"
    assert len(set(keys)) == len(keys)
