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
        (row.fate, row.due_at.day, row.due_at.hour, row.last_due_at.day, row.last_due_at.hour, row.count) for row in kit.app.occurrences()
    ]


def test_a_span_that_is_cut_does_not_end_with_a_due_time_that_fired_inside_it(kit):
    kit.app.create_schedule("hourly", "work", cron="0 * * * *")
    for hour in range(13, 17):
        at(kit, 1, hour)
    at(kit, -1, 16)
    at(kit, 1, 18)
    assert ("COALESCED", 27, 17, 1, 17, 45) in rows(kit)
    at(kit, 1, 15)
    assert ("COALESCED", 27, 17, 1, 12, 44) in rows(kit)
    assert kit.app.verify_schedules().ok


def test_a_row_does_not_go_on_over_a_due_time_that_is_another_rows(kit):
    kit.app.set_calendar("off", ["2026-03-03", "2026-03-05"])
    kit.app.create_schedule("daily", "work", cron="0 12 * * *", calendar="off", catch_up="none")
    at(kit, 4, 13)
    assert sorted(rows(kit)) == [("MISSED", 2, 12, 4, 12, 2), ("SKIPPED_CALENDAR", 3, 12, 3, 12, 1)]
    at(kit, 5, 13)
    assert ("SKIPPED_CALENDAR", 5, 12, 5, 12, 1) in rows(kit)
    at(kit, 4, 14)
    assert sorted(rows(kit)) == [("MISSED", 2, 12, 4, 12, 2), ("SKIPPED_CALENDAR", 3, 12, 3, 12, 1)]
    assert kit.app.verify_schedules().ok


def test_a_pause_is_one_row_however_often_it_is_looked_at(kit):
    kit.app.create_schedule("hourly", "work", cron="0 * * * *")
    kit.app.pause_schedule("hourly")
    for hour in range(13, 20):
        at(kit, 1, hour)
    assert rows(kit) == [("SKIPPED_PAUSED", 1, 13, 1, 19, 7)]
