"""Who is told when a due time did not run, and how; and what the rules of time zones have to do with it."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from rota import NotRun, Rota, testing
from rota.errors import InvalidSchedule
from rota.model.schedules import Fate, ScheduleState
from rota.ports import clock as clocks

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
HOUR = 3600 * 1_000_000


@pytest.fixture
def app(tmp_path):
    app = Rota(tmp_path / "unused.db")
    app.job(name="good")(lambda: None)

    @app.job(max_retries=0)
    def bad():
        raise ValueError("no")

    return app


@pytest.fixture
def kit(app):
    with testing.use(app, at=START) as kit:
        yield kit


@pytest.fixture
def told(app):
    news: list[NotRun] = []
    app.on.not_run(news.append)
    return news


def test_a_due_time_whose_job_is_dead_is_told_with_its_job(app, told, kit):
    app.schedule("hourly", "bad", every="1h")
    [job] = kit.drain(until=timedelta(hours=1))
    [news] = told
    assert (news.schedule, news.fate, news.job_id, news.due_at) == ("hourly", Fate.FIRED, job.id, START + timedelta(hours=1))
    assert job.number in (news.reason or "")


def test_a_retry_that_is_still_to_come_is_no_news(app, told, kit):
    @app.job(max_retries=1)
    def shaky():
        raise ValueError("again")

    app.schedule("hourly", "shaky", every="1h", overlap="allow")
    kit.drain(until=timedelta(hours=1))
    assert told == []
    kit.drain(until=timedelta(minutes=30))
    assert [news.fate for news in told] == [Fate.FIRED]


def test_missed_due_times_are_told_as_one_span(app, told, kit):
    app.schedule("hourly", "good", every="1h", catch_up="none")
    kit.clock.advance(hours=5, minutes=30)
    kit.drain()
    [news] = told
    assert (news.fate, news.count, news.due_at) == (Fate.MISSED, 5, START + timedelta(hours=1))
    assert news.last_due_at == START + timedelta(hours=5)


def test_what_somebody_asked_for_is_no_news(app, told, kit):
    app.calendars.update("holidays", ["2026-03-02"])
    app.schedule("off", "good", every="1h", calendar="holidays")
    app.schedule("still", "good", every="1h")
    app.schedules.pause("still")
    kit.clock.advance(hours=3)
    kit.drain()
    assert told == []
    assert {each.fate for each in app.schedules.occurrences()} == {Fate.SKIPPED_CALENDAR, Fate.SKIPPED_PAUSED}


def test_a_hook_that_fails_keeps_nobody_else_from_hearing(app, kit, caplog):
    heard = []
    app.on.not_run(lambda _news: 1 / 0)
    app.on.not_run(heard.append)
    app.schedule("hourly", "good", every="1h", catch_up="none")
    kit.clock.advance(hours=2, minutes=30)
    with caplog.at_level(logging.WARNING):
        kit.drain()
    assert len(heard) == 1
    assert "an alert hook failed" in caplog.text
    assert "hourly did not run" in caplog.text


def test_what_an_edit_closes_is_told_too(app, told, kit):
    app.schedule("hourly", "good", every="1h", catch_up="none")
    kit.clock.advance(hours=3, minutes=30)
    app.schedules.update("hourly", every="2h")
    assert [(news.fate, news.count) for news in told] == [(Fate.MISSED, 3)]


def test_an_at_that_is_over_stays_over_when_something_else_of_it_is_edited(app, kit):
    app.schedules.create("once", "good", at=START + timedelta(hours=1))
    kit.clock.advance(hours=2)
    edited = app.schedules.update("once", description="it was due before this edit")
    assert (edited.state, edited.next_at) == (ScheduleState.DISABLED, None)
    assert [each.fate for each in app.schedules.occurrences("once")] == [Fate.FIRED]


def test_an_at_that_is_moved_when_it_was_just_due_fires_at_both_times(app, kit):
    app.schedules.create("once", "good", at=START + timedelta(hours=1))
    kit.clock.advance(hours=2)
    edited = app.schedules.update("once", at=START + timedelta(hours=5))
    assert (edited.state, edited.next_at) == (ScheduleState.ENABLED, START + timedelta(hours=5))
    kit.drain(until=timedelta(hours=4))
    assert [each.fate for each in app.schedules.occurrences("once")] == [Fate.FIRED, Fate.FIRED]


def test_enabling_what_has_no_due_time_left_is_refused(app, kit):
    app.schedules.create("once", "good", at=START + timedelta(hours=1))
    kit.drain(until=timedelta(hours=2))
    with pytest.raises(InvalidSchedule, match="no due time left"):
        app.schedules.enable("once")


def test_due_times_follow_the_rules_of_zones_when_those_are_updated(app, kit, monkeypatch):
    app.schedule("berlin", "good", cron="0 12 * * *", timezone="Europe/Berlin")
    app.schedule("plain", "good", cron="0 12 * * *")
    store = app._session.open().store
    kit.drain()
    berlin, plain = (schedule.next_at for schedule in store.schedules())
    # As if it had been worked out by rules under which Berlin was an hour further west.
    store._write(lambda db: db.raw.execute("UPDATE schedules SET next_trigger_at = next_trigger_at + 3600000000"))
    kit.drain()
    assert store.schedules()[0].next_at == berlin + HOUR, "nothing says that the rules have changed"
    monkeypatch.setattr("rota.engine.trigger.zone_rules", lambda: 12345)
    kit.drain()
    assert [schedule.next_at for schedule in store.schedules()] == [berlin, plain + HOUR], "UTC has no rules that could change"
    assert store.follow_zones(12345) == 0


def test_a_due_time_that_the_clock_jumps_over_is_told_in_its_own_night(app, told, kit):
    app.schedule("yearly", "good", cron="30 2 29 3 *", timezone="Europe/Berlin")
    kit.drain(until=datetime(2026, 3, 29, 2, 0, tzinfo=UTC))
    [news] = told
    assert (news.fate, news.due_at) == (Fate.SKIPPED_DST_GAP, datetime(2026, 3, 29, 1, 30, tzinfo=UTC))
    assert app.schedules.get("yearly").next_at == datetime(2027, 3, 29, 0, 30, tzinfo=UTC)


def test_a_moment_that_has_passed_is_no_edit(app, kit):
    app.schedules.create("once", "good", at=START + timedelta(hours=1))
    with pytest.raises(InvalidSchedule, match="has passed"):
        app.schedules.update("once", at=START)


def test_an_at_that_fired_and_was_dropped_is_not_made_anew_when_the_program_starts_again(app, kit):
    said = {"at": START + timedelta(hours=1), "on_completion": "DROP"}
    first = app.schedule("once", "good", **said)
    assert len(kit.drain(until=timedelta(days=3))) == 1
    assert app.schedules.list() == []
    again = app.schedule("once", "good", **said)
    assert again.id == first.id
    assert app.schedules.list() == []
    with pytest.raises(InvalidSchedule, match="has passed"):
        app.schedule("once", "good", at=START + timedelta(hours=2), on_completion="DROP")


def test_this_machine_can_name_the_rules_it_has():
    assert clocks.zone_rules() > 0


def test_a_retry_made_when_the_clock_was_ahead_does_not_keep_its_schedule_silent(app, kit):
    well = []

    @app.job(max_retries=5)
    def flaky():
        if not well:
            raise ValueError("not yet")

    app.schedule("hourly", "flaky", every="1h")
    kit.clock.set(datetime(2030, 1, 1, tzinfo=UTC))
    kit.drain()
    well.append(True)
    kit.clock.set(START + timedelta(minutes=30))
    kit.drain(until=timedelta(hours=3))
    assert [each.ran for each in app.schedules.occurrences("hourly", until=START + timedelta(days=1))] == [True] * 3
    assert all(job.status == "COMPLETED" for job in kit.jobs("flaky"))
