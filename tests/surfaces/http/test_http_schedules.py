"""Schedules, their ledger and the forecast over HTTP."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.surfaces.http.api_support import Callers, callers, code_of

__all__ = ["callers"]

DAILY = {"name": "daily", "template": "echo", "cron": "0 9 * * *", "timezone": "Europe/Berlin"}


@pytest.fixture
def daily(callers: Callers) -> Callers:
    assert callers.admin.post("/schedules", DAILY).status_code == 201
    return callers


def test_an_admin_makes_a_schedule_of_its_own_organization(callers: Callers):
    made = callers.admin.post("/schedules", DAILY | {"params": {"text": "x"}, "jitter": "1m", "enabled": False})
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    said = made.json()
    assert (said["organization"], said["created_by"], said["jitter"], said["state"]) == ("acme", "ada", 60.0, "DISABLED")
    again = callers.admin.post("/schedules", DAILY)
    assert (again.status_code, code_of(again)) == (409, "schedule_exists")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"cron": "61 * * * *"}, "invalid_schedule"),
        ({"template": "nope"}, "unknown_template"),
        ({"timezone": "Mars/Olympus"}, "invalid_schedule"),
        ({"every": 60}, "invalid_schedule"),
        ({"calendar": "nope"}, "invalid_schedule"),
        ({"depends_on": ["nope"]}, "invalid_schedule"),
        ({"overlap": "maybe"}, "invalid_schedule"),
        ({"enabled": "yes"}, "invalid_option"),
        ({"params": [1]}, "invalid_option"),
        ({"at": "soon", "cron": None}, "invalid_schedule"),
    ],
)
def test_what_a_schedule_can_not_be_is_refused_with_a_code(callers: Callers, wrong, code):
    answer = callers.admin.post("/schedules", DAILY | wrong)
    assert (answer.status_code, code_of(answer)) == (422, code)


@pytest.mark.parametrize("verb", ["archive", "disable"])
def test_a_schedule_of_a_template_that_takes_no_jobs_is_refused_with_a_code(daily: Callers, verb):
    daily.rota.job(lambda: None, name="other")
    daily.admin.post("/schedules", DAILY | {"name": "off", "enabled": False})
    daily.admin.post("/schedules", DAILY | {"name": "mine", "template": "other"})
    getattr(daily.rota.templates, verb)("echo")
    for answer in (
        daily.admin.post("/schedules", DAILY | {"name": "new"}),
        daily.admin.post("/schedules/off/enable"),
        daily.admin.patch("/schedules/mine", {"template": "echo"}),
    ):
        assert (answer.status_code, code_of(answer)) == (422, "template_unavailable")
        assert "`rota template enable echo`" in answer.json()["detail"]


def test_a_schedule_is_renamed_and_its_etag_goes_on(daily: Callers):
    daily.admin.post("/schedules", DAILY | {"name": "other"})
    seen = daily.admin.get("/schedules/daily").headers["etag"]
    taken = daily.admin("PATCH", "/schedules/daily", {"new_name": "other"}, headers={"If-Match": seen})
    assert (taken.status_code, code_of(taken)) == (409, "schedule_exists")
    done = daily.admin("PATCH", "/schedules/daily", {"new_name": "nightly", "cron": "0 3 * * *"}, headers={"If-Match": seen})
    assert (done.status_code, done.headers["etag"], done.json()["name"], done.json()["cron"]) == (200, '"2"', "nightly", "0 3 * * *")
    assert daily.admin.get("/schedules/daily").status_code == 404
    assert daily.admin.get("/schedules/nightly").json()["id"] == done.json()["id"]
    assert code_of(daily.admin.patch("/schedules/nightly", {"new_name": None})) == "invalid_option"


def test_an_edit_changes_what_is_given_and_null_takes_it_back(daily: Callers):
    daily.admin.patch("/schedules/daily", {"priority": "high", "description": "mail"})
    said = daily.admin.patch("/schedules/daily", {"cron": "0 8 * * *", "priority": None}).json()
    assert (said["cron"], said["priority"], said["description"], said["timezone"]) == ("0 8 * * *", None, "mail", "Europe/Berlin")
    assert code_of(daily.admin.patch("/schedules/daily", {})) == "invalid_option"


def test_an_edit_of_what_somebody_else_has_changed_is_refused(daily: Callers):
    seen = daily.admin.get("/schedules/daily").headers["etag"]
    assert daily.admin("PATCH", "/schedules/daily", {"jitter": 5}, headers={"If-Match": seen}).headers["etag"] == '"2"'
    for method, path, body in [
        ("PATCH", "/schedules/daily", {"jitter": 6}),
        ("POST", "/schedules/daily/pause", None),
        ("POST", "/schedules/daily/disable", None),
        ("POST", "/schedules/daily/enable", None),
        ("DELETE", "/schedules/daily", None),
    ]:
        caller = daily.manager if method == "DELETE" else daily.admin
        late = caller(method, path, body, headers={"If-Match": seen})
        assert (late.status_code, code_of(late)) == (412, "changed_meanwhile"), path
    assert daily.admin.get("/schedules/daily").json()["version"] == 2


def test_states_are_set_again_without_effect(daily: Callers):
    for verb, state in [("pause", "PAUSED"), ("pause", "PAUSED"), ("disable", "DISABLED"), ("enable", "ENABLED"), ("enable", "ENABLED")]:
        assert daily.admin.post(f"/schedules/daily/{verb}").json()["state"] == state
    assert daily.admin.get("/schedules/daily").json()["version"] == 4


def test_firing_makes_a_job_with_params_over_the_schedules_own(daily: Callers):
    job = daily.admin.post("/schedules/daily/fire", {"params": {"text": "now"}})
    assert (job.status_code, job.json()["params"], job.json()["organization"]) == (201, {"text": "now"}, "acme")
    assert daily.admin.post("/schedules/daily/fire").json()["params"] == {}


def test_a_plan_says_what_a_change_would_add_and_remove_and_changes_nothing(daily: Callers):
    plan = daily.admin.post("/schedules/daily/plan", {"cron": "0 8 * * *", "days": 3}).json()
    assert (len(plan["added"]), len(plan["removed"]), plan["kept"]) == (3, 3, 0)
    assert daily.admin.get("/schedules/daily").json()["version"] == 1
    assert code_of(daily.admin.post("/schedules/daily/plan", {"days": 3})) == "invalid_option"


def test_the_ledger_comes_in_pages_with_filters(daily: Callers, clock):
    daily.admin.post("/schedules", DAILY | {"name": "hourly", "cron": "0 * * * *", "catch_up": "none"})
    for _ in range(30):
        clock.advance(hours=1)
        daily.rota.turn()
    every = daily.admin.get("/occurrences", limit=1000).json()["items"]
    assert len(every) == 31
    paged, cursor = [], None
    while True:
        page = daily.admin.get("/occurrences", limit=7, **({"cursor": cursor} if cursor else {})).json()
        paged += page["items"]
        cursor = page["next"]
        if cursor is None:
            break
    assert paged == every
    assert {each["schedule"] for each in daily.admin.get("/occurrences", schedule="daily").json()["items"]} == {"daily"}
    assert daily.admin.get("/occurrences", not_ran=True).json()["items"] == []
    assert daily.admin.get("/occurrences", fate=["MISSED", "REFUSED"]).json()["items"] == []
    since = every[2]["due_at"]
    assert len(daily.admin.get("/occurrences", since=since).json()["items"]) == 3
    said = daily.admin.get("/occurrences/verify").json()
    assert (said["schedules"], said["due"], said["matched"], said["problems"]) == (2, 31, 31, [])
    assert daily.other.get("/occurrences").json()["items"] == []


@pytest.mark.parametrize("cursor", ["x", "!", "W10", "WzEsMiwzXQ", "WzEsIngiLCJGSVJFRCJd", "é", "A" * 5000])
def test_a_cursor_that_is_none_of_ours_is_refused(daily: Callers, cursor):
    assert daily.admin.get("/occurrences", cursor=cursor).status_code == 422
    assert daily.admin.get("/schedules", cursor=cursor).status_code == 422


def test_the_forecast_looks_ahead_by_hours_or_between_two_moments(daily: Callers, clock):
    day = daily.admin.get("/forecast").json()
    assert (len(day["items"]), day["items"][0]["fate"], day["cut"], day["density"][0]["count"]) == (1, "FIRED", False, 1)
    assert len(daily.admin.get("/forecast", hours=72).json()["items"]) == 3
    assert daily.admin.get("/forecast", hours=72, limit=2).json()["cut"] is True
    start = day["end"]
    window = daily.admin.get("/forecast", start=start, end=_later(start, days=2)).json()
    assert (window["start"], len(window["items"])) == (start, 2)
    assert daily.other.get("/forecast").json()["items"] == []
    assert daily.manager.get("/forecast").json()["items"] == day["items"]
    assert code_of(daily.admin.get("/forecast", hours=1, end=start)) == "invalid_option"
    for wrong in (
        {"hours": 0},
        {"hours": "nan"},
        {"start": "2026-01-01"},
        {"end": "2020-01-01T00:00:00Z"},
        {"skipped": "maybe"},
        {"hour": 1},
    ):
        assert daily.admin.get("/forecast", **wrong).status_code == 422, wrong


def _later(moment: str, **span: int) -> str:
    from datetime import datetime

    return (datetime.fromisoformat(moment) + timedelta(**span)).isoformat()


def test_a_schedule_is_deleted_by_a_manager_only_and_not_while_others_need_it(daily: Callers):
    daily.admin.post("/schedules", DAILY | {"name": "after", "depends_on": ["daily"]})
    assert code_of(daily.admin.delete("/schedules/daily")) == "permission_denied"
    assert code_of(daily.manager.delete("/schedules/daily")) == "still_needed"
    assert daily.manager.delete("/schedules/after").status_code == 204
    assert daily.manager.delete("/schedules/daily").status_code == 204
    assert daily.manager.delete("/schedules/daily").status_code == 404


def test_nobody_learns_of_schedules_of_another_organization(daily: Callers):
    for caller in (daily.other, daily.user):
        assert caller.get("/schedules").json()["items"] == []
        assert caller.get("/schedules/daily").status_code == 404
    for answer in [daily.other.post("/schedules/daily/pause"), daily.other.patch("/schedules/daily", {"jitter": 1})]:
        assert (answer.status_code, code_of(answer)) == (404, "not_found")
    assert code_of(daily.other.get("/schedules/daily", organization="acme")) == "not_found"
    assert code_of(daily.other.post("/schedules", DAILY | {"organization": "acme"})) == "permission_denied"
    for answer in [daily.user.post("/schedules", DAILY), daily.user.post("/schedules/daily/fire")]:
        assert (answer.status_code, code_of(answer)) == (403, "permission_denied")


def test_a_name_that_several_organizations_have_is_said_with_its_organization(daily: Callers):
    daily.other.post("/schedules", DAILY)
    assert code_of(daily.manager.get("/schedules/daily")) == "invalid_option"
    assert daily.manager.get("/schedules/daily", organization="beta").json()["organization"] == "beta"
    assert [each["organization"] for each in daily.manager.get("/schedules").json()["items"]] == ["acme", "beta"]
    assert len(daily.manager.get("/schedules", organization="beta").json()["items"]) == 1


def test_a_token_that_may_only_read_changes_nothing(daily: Callers):
    reader = daily.of("ada", "read")
    assert reader.get("/schedules/daily").status_code == 200
    assert reader.post("/schedules/daily/plan", {"jitter": 1}).status_code == 200
    for answer in [
        reader.post("/schedules/daily/pause"),
        reader.post("/schedules/daily/fire"),
        reader.patch("/schedules/daily", {"jitter": 1}),
    ]:
        assert (answer.status_code, code_of(answer)) == (403, "permission_denied")
