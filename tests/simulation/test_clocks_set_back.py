"""What simulations have found, reduced: ledgers under clocks that are set back into what was written before."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota import Rota, testing

MARCH_1 = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def kit(tmp_path):
    app = Rota(tmp_path / "unused.db")

    @app.job
    def work(): ...

    with testing.use(app, at=MARCH_1) as made:
        yield made


def at(kit, day, hour, minute=30):
    """Show this moment of March (or, before the first, of February), and do what is to be done."""
    kit.clock.set(datetime(2026, 3, day, hour, minute, tzinfo=UTC) if day > 0 else datetime(2026, 2, 28 + day, hour, minute, tzinfo=UTC))
    kit.drain()


def rows(kit):
    return [
        (row.fate, row.due_at.day, row.due_at.hour, row.last_due_at.day, row.last_due_at.hour, row.count)
        for row in kit.app.schedules.occurrences()
    ]


def test_a_span_that_is_cut_does_not_end_with_a_due_time_that_fired_inside_it(kit):
    kit.app.schedules.create("hourly", "work", cron="0 * * * *")
    for hour in range(13, 17):
        at(kit, 1, hour)
    at(kit, -1, 16)
    # An edit rests on the clock as it is: what was due since has its fates anew when the clock is right again.
    kit.app.schedules.update("hourly", description="edited")
    at(kit, 1, 18)
    assert ("COALESCED", 27, 17, 1, 17, 45) in rows(kit)
    at(kit, 1, 15)
    assert ("COALESCED", 27, 17, 1, 12, 44) in rows(kit)
    assert kit.app.schedules.verify().ok


def test_a_clock_that_was_wrong_for_a_while_changes_nothing_of_what_was_told(kit):
    kit.app.schedules.create("hourly", "work", cron="0 * * * *")
    at(kit, 1, 13)
    at(kit, 1, 18)
    kit.app.schedules.pause("hourly")
    at(kit, 1, 21)
    kit.app.schedules.enable("hourly")
    at(kit, 1, 22)
    before = rows(kit)
    assert [row[0] for row in before] == ["FIRED", "SKIPPED_PAUSED", "FIRED", "COALESCED", "FIRED"]
    for wrong in ((-20, 1), (1, 16), (1, 20)):
        at(kit, *wrong, minute=5)
        at(kit, 1, 22)
        assert rows(kit) == before
        assert kit.app.schedules.verify().ok
    at(kit, -5, 3)
    at(kit, -25, 3)
    at(kit, 1, 23)
    assert rows(kit)[1:] == before
    assert len(kit.jobs("work")) == 4


def test_an_hour_on_the_wrong_clock_is_told_as_it_was_and_the_rest_comes_back(kit):
    kit.app.schedules.create("hourly", "work", cron="0 * * * *", catch_up="none")
    at(kit, 1, 20)
    assert rows(kit) == [("MISSED", 1, 13, 1, 20, 8)]
    at(kit, 1, 16)
    at(kit, 1, 17, minute=0)
    assert rows(kit) == [("FIRED", 1, 17, 1, 17, 1), ("MISSED", 1, 13, 1, 16, 4)]
    at(kit, 1, 20, minute=40)
    assert rows(kit) == [("MISSED", 1, 18, 1, 20, 3), ("FIRED", 1, 17, 1, 17, 1), ("MISSED", 1, 13, 1, 16, 4)]
    assert kit.app.schedules.verify().ok


def test_a_row_does_not_go_on_over_a_due_time_that_is_another_rows(kit):
    kit.app.calendars.update("off", ["2026-03-03", "2026-03-05"])
    kit.app.schedules.create("daily", "work", cron="0 12 * * *", calendar="off", catch_up="none")
    at(kit, 4, 13)
    assert sorted(rows(kit)) == [("MISSED", 2, 12, 4, 12, 2), ("SKIPPED_CALENDAR", 3, 12, 3, 12, 1)]
    at(kit, 5, 13)
    assert ("SKIPPED_CALENDAR", 5, 12, 5, 12, 1) in rows(kit)
    at(kit, 4, 14)
    assert sorted(rows(kit)) == [("MISSED", 2, 12, 4, 12, 2), ("SKIPPED_CALENDAR", 3, 12, 3, 12, 1)]
    assert kit.app.schedules.verify().ok


def test_a_pause_is_one_row_however_often_it_is_looked_at(kit):
    kit.app.schedules.create("hourly", "work", cron="0 * * * *")
    kit.app.schedules.pause("hourly")
    for hour in range(13, 20):
        at(kit, 1, hour)
    assert rows(kit) == [("SKIPPED_PAUSED", 1, 13, 1, 19, 7)]


def test_what_has_fired_is_not_excluded_by_a_calendar_that_came_later(kit):
    kit.app.calendars.update("off", ["2026-03-09"])
    kit.app.schedules.create("hourly", "work", cron="0 * * * *", calendar="off")
    at(kit, 2, 9)
    at(kit, 2, 10)
    kit.app.calendars.update("off", ["2026-03-02"])
    at(kit, 1, 12)
    kit.app.schedules.update("hourly", description="edited")
    at(kit, 2, 12)
    assert ("FIRED", 2, 10, 2, 10, 1) in rows(kit)
    assert ("SKIPPED_CALENDAR", 2, 0, 2, 12, 11) in rows(kit)
    assert kit.app.schedules.verify().ok
