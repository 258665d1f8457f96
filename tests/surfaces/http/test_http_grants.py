"""Roles and grants over HTTP: created, listed, revoked, refused; a log that is followed ends with its privilege."""

from __future__ import annotations

import pytest

from rota.errors import NotFound, PermissionDenied
from rota.live import follow_log
from rota.model.gate import Right
from rota.operation import ask_for
from tests.surfaces.http.api_support import callers, code_of

__all__ = ["callers"]


@pytest.fixture
def nightly(callers):
    callers.rota.acting_as("ada").schedules.create("nightly", "echo", every=3600)
    return callers


def test_a_role_is_created_listed_and_deleted(callers):
    made = callers.admin.post("/roles", {"name": "ops"})
    assert made.status_code == 201
    assert (made.json()["name"], made.json()["organization"], made.json()["created_by"]) == ("ops", "acme", "ada")
    assert [role["name"] for role in callers.admin.get("/roles").json()["items"]] == ["ops"]
    assert callers.other.get("/roles").json()["items"] == []
    again = callers.admin.post("/roles", {"name": "ops"})
    assert (again.status_code, code_of(again)) == (409, "refused")
    assert code_of(callers.user.get("/roles")) == "permission_denied"
    assert code_of(callers.user.post("/roles", {"name": "mine"})) == "permission_denied"
    assert code_of(callers.other.delete("/roles/ops")) == "not_found"
    assert callers.admin.delete("/roles/ops").status_code == 204


def test_a_privilege_is_granted_listed_and_revoked(nightly):
    made = nightly.admin.post("/grants", {"privilege": "EXECUTE", "grantee": "bob", "job": "nightly", "grant_option": True})
    assert made.status_code == 201
    (grant,) = made.json()["items"] if isinstance(made.json(), dict) else made.json()
    assert (grant["grantee"], grant["privilege"], grant["target"], grant["granted_by"]) == ("bob", "EXECUTE", "nightly", "ada")
    nightly.rota.users.create("cid", organization="acme")
    assert nightly.user.post("/grants", {"privilege": "EXECUTE", "grantee": "cid", "job": "nightly"}).status_code == 201
    assert code_of(nightly.user.post("/grants", {"privilege": "ALTER", "grantee": "cid", "job": "nightly"})) == "permission_denied"
    assert len(nightly.admin.get("/grants").json()["items"]) == 2
    assert nightly.other.get("/grants").json()["items"] == []
    refused = nightly.admin.delete(f"/grants/{grant['id']}")
    assert (refused.status_code, code_of(refused)) == (409, "still_needed")
    assert code_of(nightly.other.delete(f"/grants/{grant['id']}")) == "not_found"
    assert nightly.admin.delete(f"/grants/{grant['id']}", cascade="true").status_code == 204
    assert nightly.admin.get("/grants").json()["items"] == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"privilege": "EXECUTE", "grantee": "bob"}, "invalid_option"),
        ({"privilege": "CREATE JOB", "grantee": "bob", "job": "nightly"}, "invalid_option"),
        ({"privilege": "DANCE", "grantee": "bob"}, "invalid_option"),
        ({"privilege": "USE", "grantee": "bob", "connection": "c", "secret_name": "s"}, "invalid_option"),
        ({"privilege": "CREATE JOB", "grantee": "nobody"}, "not_found"),
        ({"privilege": "CREATE JOB", "grantee": ""}, "not_found"),
        ({"privilege": "CREATE JOB", "grantee": "bob", "kind": "ROLE"}, "not_found"),
        ({"privilege": "CREATE JOB", "grantee": "eve"}, "not_found"),
        ({"privilege": "EXECUTE", "grantee": "bob", "job": "nothing"}, "not_found"),
    ],
)
def test_what_can_not_be_granted_is_refused(nightly, body, code):
    assert code_of(nightly.admin.post("/grants", body)) == code
    assert nightly.admin.get("/grants").json()["items"] == []


@pytest.mark.parametrize("has_another", [False, True])
def test_a_log_that_is_followed_ends_with_the_privilege(nightly, has_another):
    rota = nightly.rota
    job = rota.acting_as("ada").schedules.fire("nightly")
    rota.turn()
    with pytest.raises(PermissionDenied):
        ask_for(rota.acting_as("bob"), Right.READ_LOG)
    if has_another:
        rota.acting_as("ada").schedules.create("other", "echo", every=3600)
        rota.grants.create("VIEW JOB HISTORY", "bob", job="other", organization="acme")
    (grant,) = rota.grants.create("VIEW JOB HISTORY", "bob", job="nightly", organization="acme")
    tail = follow_log(ask_for(rota.acting_as("bob"), Right.READ_LOG), job.id)
    tail.read()
    rota.grants.delete(grant.id)
    with pytest.raises((NotFound, PermissionDenied)):
        tail.read()


def test_live_events_show_what_the_role_reaches(nightly):
    rota = nightly.rota
    job = rota.acting_as("ada").schedules.fire("nightly")
    rota.grants.create("VIEW JOB HISTORY", "bob", organization="acme")
    assert rota.acting_as("bob").jobs.get(job.id).owner == "ada"
    with pytest.raises(NotFound):
        rota.acting_as("bob").events(job=job.id)
