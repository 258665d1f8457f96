"""How requests are read: one way for all operations. Parameters in the address or in the body, pages, words, and what is refused."""

from __future__ import annotations

import re

import pytest

from rota.surfaces.http.openapi import operations
from tests.docs.http_page import document
from tests.surfaces.http.api_support import API, Callers, callers, code_of

__all__ = ["callers"]


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("/jobs", {"stauts": "QUEUED"}, "query.stauts: there is no such parameter; it takes chain, cursor,"),
        ("/templates/echo", {"x": "1"}, "it takes none"),
        ("/jobs", {"limit": "0"}, "limit='0' is not allowed: give a whole number from 1 to 1,000"),
        ("/jobs", {"limit": "1001"}, "from 1 to 1,000"),
        ("/templates", {"limit": "many"}, "from 1 to 1,000"),
        ("/templates", {"archived": "maybe"}, "archived='maybe': expected bool"),
        ("/jobs", {"owner": ["ada", "bob"]}, "query.owner: it is given 2 times: give it once"),
        ("/stats", {"hours": "null"}, "query.hours: 'null' is not a value of it: leave it out"),
        ("/jobs", {"text": "a\0b"}, "text has a NUL character"),
        ("/jobs", {"status": "LOST"}, "status 'LOST' is not one of PENDING, QUEUED"),
        ("/jobs", {"since": "yesterday"}, "since: 'yesterday' is neither a moment"),
        ("/jobs", {"since": "2026-03-01T09:00:00"}, "has no time zone: add Z"),
        ("/jobs", {"cursor": "x"}, "cursor 'x' is not of this list"),
        ("/schedules", {"cursor": "WyJ4Il0"}, "is not of this list"),
    ],
)
def test_a_wrong_parameter_is_refused_with_its_name_and_the_remedy(callers: Callers, path, query, words):
    answer = callers.manager.get(path, **query)
    assert (answer.status_code, code_of(answer)) == (422, "invalid_option")
    assert words in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("PATCH", "/templates/echo", {"timeuot": 3}, "body.timeuot: there is no such field; templates.update takes"),
        ("PATCH", "/templates/echo", {"name": "other"}, "body.name: there is no such field"),
        ("PATCH", "/templates/echo", {"max_running": "three"}, "max_running='three': expected int | null, got str"),
        ("PATCH", "/templates/echo", {"executor": "fork"}, "executor='fork' is not one of thread, async, process, inline"),
        ("POST", "/schedules", {"template": "echo"}, "name is missing: create needs it (The schedule's name.)"),
        ("POST", "/templates/echo/enable", {"now": True}, "templates.enable takes no body: send none"),
        ("GET", "/templates/echo", {"name": "x"}, "templates.get takes no body: send none"),
    ],
)
def test_a_wrong_field_is_refused_with_its_name_and_the_remedy(callers: Callers, method, path, body, words):
    answer = callers.manager(method, path, body)
    assert (answer.status_code, code_of(answer)) == (422, "invalid_option")
    assert words in answer.json()["detail"]
    assert callers.manager(method if method == "GET" else "POST", "/templates/echo", {}).status_code in {200, 405}


def test_parameters_of_an_act_are_not_taken_from_the_address(callers: Callers):
    answer = callers.manager("PATCH", "/templates/echo", {"timeout": 3}, max_running="1")
    assert "query.max_running: there is no such parameter; it takes none" in answer.json()["detail"]


def test_a_header_that_a_route_would_ignore_is_refused_on_every_route(callers: Callers):
    for path, method, said in operations(document()):
        read = {each["name"] for each in said.get("parameters", ()) if each["in"] == "header"}
        for header in sorted({"If-Match", "Idempotency-Key"} - read):
            answer = callers.manager(method.upper(), re.sub(r"{\w+}", "1", path.removeprefix(API)), headers={header: '"3"'})
            assert (answer.status_code, code_of(answer)) == (422, "invalid_option"), (method, path, header)
            assert f"header.{header}: " in answer.json()["detail"]
            assert "leave it out" in answer.json()["detail"]


def test_a_create_with_a_header_that_it_would_ignore_creates_nothing(callers: Callers):
    body = {"name": "x", "template": "echo", "cron": "0 9 * * *"}
    for header in ("If-Match", "Idempotency-Key"):
        assert code_of(callers.manager("POST", "/schedules", body, headers={header: '"3"'})) == "invalid_option"
    assert callers.manager.get("/schedules").json()["items"] == []


def test_every_text_in_an_address_has_a_bound(callers: Callers):
    forms = {"since", "until", "start", "end", "older_than", "hours"}
    for path, method, said in operations(document()):
        for each in said.get("parameters", ()):
            if each["in"] != "query" or each["schema"].get("type") != "string" or "enum" in each["schema"] or each["name"] in forms:
                continue
            most = each["schema"]["maxLength"]
            if each["name"] in {"cursor", "after"}:
                continue
            place = re.sub(r"{\w+}", "1", path.removeprefix(API))
            answer = callers.manager(method.upper(), place, **{each["name"]: "é" * (most + 1)})
            assert answer.status_code == 422, (path, each["name"])
            assert each["name"] in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/jobs/cancel", "/dead-letters/retry", "/dead-letters/delete"])
@pytest.mark.parametrize(("name", "most"), [("text", 1_000), ("job_type", 255), ("organization", 255)])
def test_the_filters_of_an_act_have_the_bounds_of_a_list(callers: Callers, path, name, most):
    answer = callers.manager.post(path, {name: "x" * (most + 1)})
    assert (answer.status_code, code_of(answer)) == (422, "invalid_option")
    assert f"{name}='xxx" in answer.json()["detail"]
    assert f"length <= {most}" in answer.json()["detail"]
    assert len(answer.json()["detail"]) < 200
    assert callers.manager.post(path, {name: "x" * most}).status_code == 200


def test_words_are_taken_in_any_letter_case_and_lengths_of_time_as_text(callers: Callers):
    assert len(callers.manager.get("/jobs", status=["queued", "Running"], since="2h").json()["items"]) == 1
    assert callers.manager.patch("/templates/echo", {"priority": "HIGH", "timeout": "1m30s"}).json()["timeout"] == 90
    assert callers.manager.get("/scheduler/retention", older_than="7d").status_code == 200
    assert callers.manager.get("/scheduler/retention", older_than="60").status_code == 200


def test_a_name_may_have_slashes_and_the_words_of_other_paths(callers: Callers):
    for name in ("a/b", "a/enable", "daily/fire", "x/y/plan"):
        assert callers.manager.post("/schedules", {"name": name, "template": "echo", "cron": "0 9 * * *"}).status_code == 201
        assert callers.manager.post(f"/schedules/{name}/pause").json()["state"] == "PAUSED"
        assert callers.manager.get(f"/schedules/{name}").json()["name"] == name
        assert callers.manager.patch(f"/schedules/{name}", {"cron": "0 8 * * *"}).json()["version"] == 3
        assert callers.manager.post(f"/schedules/{name}/plan", {"cron": "0 7 * * *", "days": 2}).json()["schedule"] == name
        assert callers.manager.delete(f"/schedules/{name}").status_code == 204


def test_what_has_not_changed_is_not_sent_again(callers: Callers):
    job = callers.manager.post("/jobs", {"name": "echo"}).json()["id"]
    for path in ("/templates/echo", f"/jobs/{job}"):
        seen = callers.manager.get(path).headers["etag"]
        again = callers.manager("GET", path, headers={"If-None-Match": f'W/{seen}, "x"'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", seen)
        assert callers.manager("GET", path, headers={"If-None-Match": '"x"'}).status_code == 200


def test_pages_of_a_list_in_memory_continue_after_the_last_one(callers: Callers):
    for name in "edbca":
        callers.manager.put(f"/calendars/{name}", {"days": ["2026-12-25"]})
    first = callers.manager.get("/calendars", limit=2).json()
    assert [each["name"] for each in first["items"]] == ["a", "b"]
    callers.manager.delete("/calendars/b")
    rest = callers.manager.get("/calendars", limit=3, cursor=first["next"]).json()
    assert ([each["name"] for each in rest["items"]], rest["next"]) == (["c", "d", "e"], None)
    assert callers.manager.get("/calendars", limit=2, cursor=first["next"], organization="acme").status_code == 422


def test_a_job_takes_the_delays_between_its_retries(callers: Callers):
    own = {"base": 5.0, "factor": 1.0, "cap": 9.0, "jitter": 0.0}
    job = callers.manager.post("/jobs", {"name": "echo", "backoff": own}).json()
    assert job["backoff"] == callers.manager.get(f"/jobs/{job['id']}").json()["backoff"] == own
    (many,) = callers.manager.post("/jobs/bulk", [{"name": "echo", "backoff": {"base": 7}}]).json()["ids"]
    assert callers.manager.get(f"/jobs/{many}").json()["backoff"]["base"] == 7
    for wrong, words in (({"base": -1}, "backoff base=-1"), ({"bsae": 1}, "unknown field `bsae`")):
        answer = callers.manager.post("/jobs", {"name": "echo", "backoff": wrong})
        assert (answer.status_code, words in answer.json()["detail"]) == (422, True), answer.text


def test_a_field_of_a_backoff_that_there_is_not_is_refused_and_changes_nothing(callers: Callers):
    callers.manager.patch("/templates/echo", {"backoff": {"base": 5, "factor": 3}})
    answer = callers.manager.patch("/templates/echo", {"backoff": {"Base": 7}})
    assert (answer.status_code, "Base" in answer.json()["detail"]) == (422, True)
    assert callers.manager.get("/templates/echo").json()["backoff"]["factor"] == 3


@pytest.mark.parametrize("depth", [2, 480, 900])
def test_lists_in_lists_are_a_wrong_value(callers: Callers, depth):
    deep: object = "x"
    for _ in range(depth):
        deep = [deep]
    for field in ("text", "status", "reason"):
        answer = callers.manager.post("/jobs/cancel", {field: deep})
        assert answer.status_code in {400, 422}, (field, answer.text)


@pytest.mark.parametrize("body", [{"status": []}, {"text": ""}, {"text": "  "}, {"limit": 10_001}])
def test_an_act_on_all_that_match_refuses_filters_that_filter_nothing_and_too_many(callers: Callers, body):
    for path in ("/jobs/cancel", "/dead-letters/retry", "/dead-letters/delete"):
        if "status" not in body or path == "/jobs/cancel":
            assert callers.manager.post(path, body).status_code == 422, path
    assert callers.manager.get("/jobs").json()["items"][0]["status"] == "QUEUED"


def test_tokens_and_webhooks_are_listed_newest_first_page_by_page(callers: Callers):
    newest = [each.id for each in callers.rota.tokens.list()]
    seen, cursor = [], {}
    while True:
        page = callers.manager.get("/tokens", limit=2, **cursor).json()
        seen += [each["id"] for each in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == newest
    for number in range(3):
        callers.rota.acting_as("ada").webhooks.create(f"https://example.com/{number}")
    assert [each["url"][-1] for each in callers.admin.get("/webhooks").json()["items"]] == ["2", "1", "0"]


def test_only_the_methods_that_the_document_has_are_answered(callers: Callers):
    for path in ("/events", "/jobs", "/templates/echo"):
        assert callers.manager("HEAD", path).status_code == 405


def test_a_token_for_nobody_is_refused_with_the_remedy(callers: Callers):
    answer = callers.manager.post("/tokens", {"name": "x", "user": "nobody"})
    assert (answer.status_code, "`rota user create`" in answer.json()["detail"]) == (404, True)
