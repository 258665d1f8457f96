"""The examples do what they show."""

from datetime import UTC, datetime, timedelta

import pytest

from rota import testing


@pytest.fixture
def tour(tmp_path, monkeypatch):
    monkeypatch.setenv("ROTA_STORE", str(tmp_path / "tour.db"))
    from examples import tour  # it names its store when it is imported

    return tour


def test_the_tour_has_schedules_that_make_jobs_by_themselves(tour):
    with testing.use(tour.rota, at=datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)) as kit:
        assert {each.name: each.words for each in tour.rota.schedules.list()} == {
            "check_disk": "every 10 seconds",
            "minute_report": "every minute Europe/Berlin",
        }
        kit.drain(until=timedelta(minutes=1))
        assert len(kit.jobs("check_disk", status="COMPLETED")) == 6
        (report,) = kit.jobs("minute_report", status="COMPLETED")
        assert (report.params, report.due_at.second) == ({"kind": "short"}, 0)
