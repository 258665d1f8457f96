"""Calendars over HTTP."""

from __future__ import annotations

import pytest

from tests.surfaces.http.api_support import Callers, callers, code_of

__all__ = ["callers"]


def test_a_calendar_is_set_as_a_whole_read_and_deleted(callers: Callers):
    days = ["2026-12-26", "2026-12-25"]
    for _ in range(2):
        said = callers.admin.put("/calendars/holidays", {"days": days, "description": "off"})
        assert said.json() == {"name": "holidays", "days": sorted(days), "description": "off"}
    assert callers.admin.get("/calendars/holidays").json() == said.json()
    assert callers.admin.get("/calendars").json() == {"items": [said.json()], "next": None}
    assert callers.manager.delete("/calendars/holidays", organization="acme").status_code == 204
    assert code_of(callers.manager.delete("/calendars/holidays", organization="acme")) == "not_found"
    assert code_of(callers.admin.get("/calendars/holidays")) == "not_found"


def test_a_calendar_that_a_schedule_uses_stays(callers: Callers):
    callers.admin.put("/calendars/holidays", {"days": ["2026-12-25"]})
    callers.admin.post("/schedules", {"name": "daily", "template": "echo", "cron": "0 9 * * *", "calendar": "holidays"})
    assert code_of(callers.manager.delete("/calendars/holidays", organization="acme")) == "still_needed"


def test_calendars_are_their_organizations_own(callers: Callers):
    callers.admin.put("/calendars/holidays", {"days": ["2026-12-25"]})
    assert callers.other.get("/calendars").json()["items"] == []
    assert callers.other.get("/calendars/holidays").status_code == 404
    for answer in [
        callers.other.get("/calendars", organization="acme"),
        callers.user.put("/calendars/mine", {"days": []}),
        callers.admin.delete("/calendars/holidays"),
    ]:
        assert (answer.status_code, code_of(answer)) == (403, "permission_denied")
    assert len(callers.manager.get("/calendars", organization="acme").json()["items"]) == 1


@pytest.mark.parametrize("days", ["2026-12-25", ["2026-02-30"], ["soon"], [20261225], None, [None]])
def test_what_is_no_day_is_refused(callers: Callers, days):
    assert callers.admin.put("/calendars/holidays", {"days": days}).status_code == 422
