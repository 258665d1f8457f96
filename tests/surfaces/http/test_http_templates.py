"""Templates over HTTP."""

from __future__ import annotations

import pytest

from tests.surfaces.http.api_support import Callers, callers, code_of

__all__ = ["callers"]


def test_a_manager_sets_fields_and_takes_them_back(callers: Callers):
    said = callers.manager.patch("/templates/echo", {"timeout": "5m", "max_running": 4})
    assert (said.status_code, said.json()["timeout"], said.json()["sources"]["max_running"]) == (200, 300.0, "people")
    taken = callers.manager.patch("/templates/echo", {"max_running": None}).json()
    assert (taken["max_running"], taken["timeout"]) == (None, 300.0)
    assert callers.manager.post("/templates/echo/reset", {"fields": ["timeout"]}).json()["sources"]["timeout"] == "setting"
    assert callers.manager.post("/templates/echo/reset").json()["sources"]["max_running"] == "setting"


def test_a_template_that_is_not_there_is_made_with_a_handler(callers: Callers):
    assert code_of(callers.manager.patch("/templates/new", {"timeout": 5})) == "invalid_option"
    assert callers.manager.patch("/templates/new", {"handler": "shop.mail:send"}).json()["handler"] == "shop.mail:send"
    assert [each["name"] for each in callers.manager.get("/templates").json()["items"]] == ["echo", "new"]


def test_an_edit_says_which_version_it_means(callers: Callers):
    seen = callers.manager.get("/templates/echo").headers["etag"]
    changed = callers.manager("PATCH", "/templates/echo", {"timeout": 5}, headers={"If-Match": seen})
    assert changed.status_code == 200
    assert changed.headers["etag"] != seen
    for method, path, body in [
        ("PATCH", "/templates/echo", {"timeout": 6}),
        ("POST", "/templates/echo/reset", None),
        ("POST", "/templates/echo/disable", None),
        ("POST", "/templates/echo/archive", None),
        ("DELETE", "/templates/echo", None),
    ]:
        late = callers.manager(method, path, body, headers={"If-Match": seen})
        assert (late.status_code, late.json()["code"]) in {(412, "changed_meanwhile"), (409, "template_in_use")}, path
    assert callers.manager.get("/templates/echo").json()["timeout"] == 5.0


@pytest.mark.parametrize("tag", ["*", None])
def test_any_version_will_do_where_none_is_named(callers: Callers, tag):
    headers = {} if tag is None else {"If-Match": tag}
    assert callers.manager("PATCH", "/templates/echo", {"timeout": 5}, headers=headers).status_code == 200


@pytest.mark.parametrize("tag", ["3", 'W/"3"', '"x"', "", '"3", "4"', '"' + "9" * 19 + '"'])
def test_a_tag_that_was_never_given_is_nobodys_version(callers: Callers, tag):
    answer = callers.manager("PATCH", "/templates/echo", {"timeout": 5}, headers={"If-Match": tag})
    assert (answer.status_code, code_of(answer)) == (412, "changed_meanwhile")


def test_states_are_set_again_without_effect(callers: Callers):
    for verb, state in [("disable", "DISABLED"), ("disable", "DISABLED"), ("archive", "ARCHIVED"), ("enable", "ENABLED")]:
        assert callers.manager.post(f"/templates/echo/{verb}").json()["state"] == state
    callers.manager.post("/templates/echo/archive")
    assert callers.manager.get("/templates").json() == {"items": [], "next": None}
    assert len(callers.manager.get("/templates", archived=True).json()["items"]) == 1


def test_a_template_with_jobs_is_not_deleted_and_one_without_is(callers: Callers):
    assert code_of(callers.manager.delete("/templates/echo")) == "template_in_use"
    callers.manager.patch("/templates/new", {"handler": "shop.mail:send"})
    assert callers.manager.delete("/templates/new").status_code == 204
    assert callers.manager.delete("/templates/new").status_code == 404


def test_a_template_that_is_not_there_is_not_found(callers: Callers):
    for answer in [
        callers.manager.get("/templates/nope"),
        callers.manager.post("/templates/nope/enable"),
        callers.manager.post("/templates/nope/reset"),
    ]:
        assert (answer.status_code, code_of(answer)) == (404, "not_found")


def test_names_may_have_slashes(callers: Callers):
    callers.manager.patch("/templates/mail/enable", {"handler": "shop.mail:send"})
    assert callers.manager.get("/templates/mail/enable").json()["name"] == "mail/enable"
    assert callers.manager.post("/templates/mail/enable/disable").json()["state"] == "DISABLED"
    assert callers.manager.get("/templates/mail%2Fenable").json()["state"] == "DISABLED"


def test_pages_go_on_where_the_one_before_ended(callers: Callers):
    for name in "abc":
        callers.manager.patch(f"/templates/{name}", {"handler": "shop.mail:send"})
    first = callers.manager.get("/templates", limit=2).json()
    callers.manager.delete("/templates/b")
    second = callers.manager.get("/templates", limit=2, cursor=first["next"]).json()
    assert [each["name"] for each in first["items"] + second["items"]] == ["a", "b", "c", "echo"]
    assert second["next"] is None


def test_everybody_reads_templates_and_only_a_manager_sets_them(callers: Callers):
    for caller in (callers.admin, callers.user, callers.other):
        assert caller.get("/templates/echo").status_code == 200
        for answer in [
            caller.patch("/templates/echo", {"timeout": 5}),
            caller.delete("/templates/echo"),
            caller.post("/templates/echo/enable"),
        ]:
            assert (answer.status_code, code_of(answer)) == (403, "permission_denied")


@pytest.mark.parametrize(
    "body", [{"timeout": True}, {"nope": 1}, {}, [], "x", {"max_running": "4"}, {"rate_limit": "often"}, {"rate_limit": {"count": 1}}]
)
def test_what_a_template_can_not_be_is_refused(callers: Callers, body):
    assert callers.manager.patch("/templates/echo", body).status_code == 422


def test_sql_and_commands_are_defined_and_their_text_shown_to_managers_only(callers: Callers):
    path, body = "/templates/by_region/work", {"sql": "SELECT :region", "connection": "shop", "secrets": ["key"], "timeout": "5m"}
    made = callers.manager("PUT", path, body)
    assert (made.status_code, made.json()["kind"], made.json()["timeout"]) == (200, "sql", 300.0)
    seen = callers.manager.get("/templates/by_region")
    assert (seen.json()["body"], seen.json()["connection"], seen.json()["secrets"]) == ("SELECT :region", "shop", ["key"])
    assert callers.admin.get("/templates/by_region").json()["body"] is None
    assert all(each["body"] is None for each in callers.manager.get("/templates").json()["items"])
    late = callers.manager("PUT", path, {"sql": "SELECT 2"}, headers={"If-Match": '"9"'})
    assert (late.status_code, code_of(late)) == (412, "changed_meanwhile")
    changed = callers.manager("PUT", path, {"command": "/usr/bin/true"}, headers={"If-Match": seen.headers["etag"]})
    assert (changed.status_code, changed.json()["kind"], changed.json()["timeout"]) == (200, "external", 300.0)


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("by_region", {}, 422, "invalid_option"),
        ("by_region", {"sql": 3}, 422, "invalid_option"),
        ("by_region", {"sql": "SELECT 1", "handler": "shop.mail:send"}, 422, "invalid_option"),
        ("by_region", {"command": "true"}, 422, "invalid_option"),
        ("kind:sql", {"sql": "SELECT 1"}, 422, "invalid_name"),
        ("echo", {"sql": "SELECT 1"}, 409, "refused"),
    ],
)
def test_what_can_not_be_defined_is_refused(callers: Callers, name, body, status, code):
    refused = callers.manager("PUT", f"/templates/{name}/work", body)
    assert (refused.status_code, code_of(refused)) == (status, code)


def test_only_managers_define(callers: Callers):
    for caller in (callers.admin, callers.user):
        assert caller("PUT", "/templates/by_region/work", {"sql": "SELECT 1"}).status_code == 403
