"""Organizations, users and tokens over HTTP."""

from __future__ import annotations

import pytest

from tests.surfaces.http.api_support import Caller, Callers, callers, code_of

__all__ = ["callers"]


# ---- organizations -------------------------------------------------------------------------------------------------


def test_an_organization_is_made_once_and_changed_field_by_field(callers: Callers):
    new = {"name": "gamma", "max_running": 3, "max_priority": "high"}
    assert [callers.manager.post("/organizations", new).status_code for _ in range(2)] == [201, 201]
    assert code_of(callers.manager.post("/organizations", new | {"max_running": 4})) == "refused"
    said = callers.manager.patch("/organizations/gamma", {"display_name": "Gamma", "max_running": None}).json()
    assert (said["display_name"], said["max_running"], said["max_priority"]) == ("Gamma", None, 75)


def test_an_organization_is_suspended_resumed_removed_and_brought_back(callers: Callers):
    for verb, state in [("suspend", "SUSPENDED"), ("suspend", "SUSPENDED"), ("restore", "ACTIVE")]:
        assert callers.manager.post(f"/organizations/beta/{verb}").json()["state"] == state
    assert [callers.manager.delete("/organizations/beta").json()["state"] for _ in range(2)] == ["REMOVED", "REMOVED"]
    assert callers.other.get("/schedules").status_code == 403
    assert [each["name"] for each in callers.manager.get("/organizations").json()["items"]] == ["acme", "default"]
    assert len(callers.manager.get("/organizations", removed=True).json()["items"]) == 3
    assert callers.manager.post("/organizations/beta/restore").json()["state"] == "ACTIVE"
    assert callers.other.get("/schedules").status_code == 200
    assert code_of(callers.manager.delete("/organizations/default")) == "refused"


def test_a_suspended_organization_may_read_and_nothing_else(callers: Callers):
    callers.manager.post("/organizations/acme/suspend")
    assert callers.admin.get("/organizations/acme").json()["state"] == "SUSPENDED"
    answer = callers.admin.put("/calendars/x", {"days": []})
    assert (answer.status_code, code_of(answer)) == (403, "organization_unavailable")


def test_an_organization_sees_itself_and_no_other(callers: Callers):
    assert [each["name"] for each in callers.admin.get("/organizations").json()["items"]] == ["acme"]
    assert callers.admin.get("/organizations/acme").status_code == 200
    hidden, missing = callers.admin.get("/organizations/beta"), callers.admin.get("/organizations/gamma")
    assert (hidden.status_code, missing.status_code) == (404, 404)
    assert hidden.json()["detail"].replace("beta", "gamma") == missing.json()["detail"]
    assert code_of(callers.user.get("/organizations")) == "permission_denied"
    for caller in (callers.admin, callers.user):
        for answer in [
            caller.post("/organizations", {"name": "x"}),
            caller.patch("/organizations/acme", {"max_running": 1}),
            caller.delete("/organizations/acme"),
            caller.post("/organizations/acme/suspend"),
        ]:
            assert (answer.status_code, code_of(answer)) == (403, "permission_denied")


@pytest.mark.parametrize("verb", ["suspend", "restore", "pause", "resume", None])
def test_an_organization_that_is_not_there_is_not_found(callers: Callers, verb):
    answer = (
        callers.manager.post(f"/organizations/nope/{verb}") if verb else callers.manager.patch("/organizations/nope", {"max_running": 1})
    )
    assert (answer.status_code, code_of(answer)) == (404, "not_found")


# ---- users ---------------------------------------------------------------------------------------------------------


def test_a_user_is_added_changed_removed_and_comes_back(callers: Callers):
    new = {"name": "max", "organization": "acme", "role": "admin", "permissions": ["pay", "pay", "mail"]}
    assert [callers.manager.post("/users", new).status_code for _ in range(2)] == [201, 201]
    assert callers.manager.get("/users/max").json()["permissions"] == ["mail", "pay"]
    assert code_of(callers.manager.post("/users", new | {"role": "user"})) == "refused"
    said = callers.manager.patch("/users/max", {"role": "user"}).json()
    assert (said["role"], said["organization"], said["permissions"]) == ("user", "acme", ["mail", "pay"])
    assert callers.manager.delete("/users/max").json()["removed"] is True
    assert callers.manager.get("/users/max").json()["removed"] is True
    assert "max" not in str(callers.manager.get("/users").json())
    assert callers.manager.patch("/users/max", {"role": "user"}).status_code == 404
    assert callers.manager.post("/users", new).status_code == 201


def test_an_admin_sees_its_own_people_only(callers: Callers):
    assert {each["name"] for each in callers.admin.get("/users").json()["items"]} == {"ada", "bob", "ben"}
    assert callers.admin.get("/users/eve").status_code == 404
    assert code_of(callers.user.get("/users")) == "permission_denied"
    for answer in [
        callers.admin.post("/users", {"name": "x"}),
        callers.admin.patch("/users/bob", {"role": "admin"}),
        callers.admin.delete("/users/bob"),
    ]:
        assert (answer.status_code, code_of(answer)) == (403, "permission_denied")


@pytest.mark.parametrize(
    "wrong", [{"role": "king"}, {"organization": None}, {"permissions": "pay"}, {"organization": "nope"}, {"name": "x"}]
)
def test_what_a_user_can_not_be_is_refused(callers: Callers, wrong):
    assert callers.manager.patch("/users/bob", wrong).status_code == 422


# ---- tokens --------------------------------------------------------------------------------------------------------


def test_a_tokens_secret_is_in_the_answer_that_makes_it_and_nowhere_else(callers: Callers):
    made = callers.manager.post("/tokens", {"name": "ci", "user": "ada", "permits": ["submit", "read"], "expires_in": 3600})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    secret, token = made.json()["secret"], made.json()["token"]
    assert token["permits"] == ["read", "submit"]
    assert Caller(callers.client, secret).get("/schedules").status_code == 200
    everywhere = callers.manager.get("/tokens", revoked=True).text + callers.manager.get("/audit").text
    assert secret not in everywhere
    assert token["id"] in everywhere


def test_a_token_that_was_revoked_opens_nothing(callers: Callers):
    made = callers.manager.post("/tokens", {"name": "ci", "user": "ada"}).json()
    assert [callers.manager.delete(f"/tokens/{made['token']['id']}").status_code for _ in range(2)] == [200, 200]
    assert code_of(Caller(callers.client, made["secret"]).get("/schedules")) == "unauthenticated"
    names = [each["name"] for each in callers.manager.get("/tokens").json()["items"]]
    assert "ci" not in names
    assert "ci" in str(callers.manager.get("/tokens", revoked=True).json())


def test_only_a_manager_whose_token_may_manage_makes_tokens(callers: Callers):
    for caller in (callers.admin, callers.user, callers.of("root", "read", "submit", "operate")):
        for answer in [caller.post("/tokens", {"name": "x"}), caller.get("/tokens"), caller.delete("/tokens/x")]:
            assert (answer.status_code, code_of(answer)) == (403, "permission_denied")


@pytest.mark.parametrize(
    "wrong", [{"permits": []}, {"permits": ["all"]}, {"expires_in": 0}, {"expires_in": -1}, {"expires_in": 1e300}, {"name": ""}]
)
def test_what_a_token_can_not_be_is_refused(callers: Callers, wrong):
    assert callers.manager.post("/tokens", {"name": "ci"} | wrong).status_code == 422


def test_a_token_of_nobody_is_not_made_and_one_that_is_not_there_not_revoked(callers: Callers):
    assert code_of(callers.manager.post("/tokens", {"name": "ci", "user": "nobody"})) in {"not_found", "permission_denied"}
    for name in ("x", "01980c5e-7a10-7000-8000-000000000001", "%00"):
        assert callers.manager.delete(f"/tokens/{name}").status_code in {404, 422}
