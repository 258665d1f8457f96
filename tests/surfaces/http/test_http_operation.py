"""Workers, the scheduler, statistics, the audit trail and the doctor over HTTP."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from rota import Rota
from rota.errors import PermissionDenied
from rota.model.states import Status
from rota.surfaces.cli.serving import Stopper
from rota.surfaces.http import make_app
from tests.support.pace import patient
from tests.surfaces.http.api_support import Caller, Callers, callers, code_of

__all__ = ["callers"]

EVERYTHING = ["/workers", "/queues", "/scheduler/retention", "/doctor"]


def counts(caller) -> dict[str, int]:
    return {status: count for status, count in caller.get("/stats", hours=1).json()["by_status"].items() if count}


@pytest.mark.parametrize("path", EVERYTHING)
def test_what_concerns_the_whole_store_is_for_its_manager(callers: Callers, path):
    assert callers.manager.get(path).status_code == 200
    for caller in (callers.admin, callers.user, callers.of("root", "read", "submit", "operate")):
        assert (code_of(caller.get(path)), caller.get(path).status_code) == ("permission_denied", 403)


def test_workers_are_listed_while_they_run(callers: Callers):
    assert callers.manager.get("/workers").json()["items"] == []
    callers.rota.turn()
    worker = callers.manager.get("/workers").json()["items"][0]
    assert (worker["job_types"], worker["running"]) == (["echo"], 0)


def test_queues_are_listed_jobs_are_narrowed_to_one_and_one_is_paused(callers: Callers):
    job = callers.manager.post("/jobs", {"name": "echo", "queue": "mail", "tags": ["eu"]}).json()
    assert (job["queue"], job["tags"]) == ("mail", ["eu"])
    for query in ({"queue": "mail"}, {"tag": "eu"}):
        assert [each["id"] for each in callers.manager.get("/jobs", **query).json()["items"]] == [job["id"]]
    assert callers.manager.get("/jobs", queue="other").json()["items"] == []
    assert callers.manager.post("/queues/mail/pause").status_code == 204
    assert callers.manager.get("/scheduler/pauses").json()["items"] == [{"kind": "queue", "name": "mail"}]
    callers.rota.turn()
    found = {each["name"]: each for each in callers.manager.get("/queues").json()["items"]}
    assert (found["mail"]["waiting"], found["mail"]["paused"], found["mail"]["workers"]) == (1, True, 1)
    assert callers.manager.post("/queues/mail/resume").status_code == 204
    assert callers.manager.get("/scheduler").json()["pauses"] == []


def test_statistics_are_of_what_the_caller_may_see(callers: Callers):
    callers.rota.turn()
    callers.rota.acting_as("eve").enqueue("echo")
    assert counts(callers.manager) == {"COMPLETED": 1, "QUEUED": 1}
    assert counts(callers.admin) == {"COMPLETED": 1}
    assert callers.other.get("/stats").json()["waiting_by_type"] == {"echo": 1}
    assert code_of(callers.user.get("/stats")) == "permission_denied"
    assert callers.manager.get("/stats", hours=0).status_code == 422


def test_everything_a_template_or_an_organization_is_paused_and_resumed(callers: Callers):
    assert [callers.manager.post(f"{each}/pause").status_code for each in ("/scheduler", "/templates/echo")] == [204, 204]
    said = callers.manager.get("/scheduler").json()
    assert (said["paused"], said["pauses"]) == (True, [{"kind": "all", "name": ""}, {"kind": "template", "name": "echo"}])
    assert callers.admin.post("/organizations/acme/pause").status_code == 204
    assert callers.admin.get("/scheduler").json()["workers"] is None
    callers.rota.turn()
    assert counts(callers.admin) == {"QUEUED": 1}
    for paused in ("/scheduler", "/templates/echo", "/organizations/acme", "/organizations/acme"):
        assert callers.manager.post(f"{paused}/resume").status_code == 204
    assert callers.manager.get("/scheduler").json()["pauses"] == []
    callers.rota.turn()
    assert counts(callers.admin) == {"COMPLETED": 1}


def test_a_pause_reaches_as_far_as_its_callers_right(callers: Callers):
    for answer in [
        callers.admin.post("/scheduler/pause"),
        callers.admin.post("/templates/echo/pause"),
        callers.admin.post("/queues/mail/pause"),
        callers.admin.post("/organizations/beta/pause"),
        callers.user.post("/organizations/acme/pause"),
    ]:
        assert (answer.status_code, code_of(answer)) == (403, "permission_denied")
    callers.other.post("/organizations/beta/pause")
    assert callers.admin.get("/scheduler").json()["pauses"] == []
    assert code_of(callers.manager.post("/organizations/nope/pause")) == "not_found"
    assert code_of(callers.manager.post("/scheduler/pause", {"organization": "acme"})) == "invalid_option"


def test_a_process_without_a_worker_says_how_to_get_one(callers: Callers):
    assert callers.manager.get("/scheduler").json()["here"] is None
    for verb in ("start", "stop"):
        answer = callers.manager.post(f"/scheduler/{verb}")
        assert (answer.status_code, code_of(answer)) == (409, "refused")
        assert "rota worker" in answer.json()["detail"]
        assert code_of(callers.admin.post(f"/scheduler/{verb}")) == "permission_denied"


def test_the_worker_of_the_process_that_serves_is_stopped_and_started(live: Rota):
    @live.job
    def echo() -> str:
        return "hi"

    manager = live.tokens.create("tests", permits=("manage",)).secret
    with (
        Stopper(live.start, 5.0, stop=live.stop) as worker,
        TestClient(make_app(live), raise_server_exceptions=False) as client,
    ):
        client.app.state.worker = worker
        call = Caller(client, manager)
        said = call.get("/scheduler").json()
        assert (said["here"], said["workers"]) == (True, 1)
        assert [call.post("/scheduler/stop").json()["here"] for _ in range(2)] == [False, False]
        assert (worker.done, call.get("/workers").json()["items"]) == (False, [])
        job = live.enqueue("echo")
        assert live.jobs.get(job.id).status is Status.QUEUED
        assert [call.post("/scheduler/start").json()["here"] for _ in range(2)] == [True, True]
        assert live.wait(job.id, timeout=patient(20)).result == "hi"
        live.users.create("ada")
        assert Caller(client, live.tokens.create("hers", user="ada").secret).get("/scheduler").json()["here"] is None


def test_recovery_is_asked_for_by_a_manager(callers: Callers):
    assert callers.manager.post("/scheduler/recover").json() == {"workers": 0, "jobs": 0, "successors": 0, "reservations": 0}
    assert code_of(callers.admin.post("/scheduler/recover")) == "permission_denied"


def test_retention_is_counted_and_nothing_is_removed(callers: Callers, clock):
    callers.rota.turn()
    clock.advance(hours=1)
    assert callers.manager.get("/scheduler/retention").json() == {"retention_s": 2592000.0, "chains": 0, "jobs": 0, "kept": 0}
    for _ in range(2):
        assert callers.manager.get("/scheduler/retention", older_than=60).json()["chains"] == 1


def test_what_retention_would_remove_is_not_counted_by_a_clock_that_has_leapt_unless_somebody_vouches_for_it(callers: Callers, clock):
    callers.rota.turn()
    clock.step(days=365)
    refused = callers.manager.get("/scheduler/retention", older_than=60)
    assert (refused.status_code, code_of(refused)) == (409, "clock_in_doubt")
    assert "2027-03-01" in refused.json()["detail"]
    assert callers.manager.get("/scheduler/retention", older_than=60, trust_clock="true").json()["chains"] == 1


def test_the_audit_trail_comes_in_pages_and_by_subject(callers: Callers):
    for seconds in (5, 6, 7):
        callers.manager.patch("/templates/echo", {"timeout": seconds})
    first = callers.manager.get("/audit", subject="template:echo", limit=2).json()
    second = callers.manager.get("/audit", subject="template:echo", limit=2, cursor=first["next"]).json()
    assert [each["after"]["timeout"] for each in first["items"] + second["items"]] == [7.0, 6.0, 5.0]
    assert (second["next"], first["items"][0]["actor"]) == (None, "root")
    assert callers.manager.get("/audit", cursor=first["next"]).status_code == 422
    assert code_of(callers.manager.get("/audit", subject="job:nope")) == "not_found"


def test_an_organization_reads_its_own_trail_only(callers: Callers):
    callers.other.put("/calendars/secret", {"days": []})
    assert "secret" not in callers.admin.get("/audit").text
    assert "secret" in callers.other.get("/audit").text
    assert code_of(callers.user.get("/audit")) == "permission_denied"


def test_the_doctor_says_what_it_found(callers: Callers):
    found = callers.manager.get("/doctor").json()["items"]
    assert found
    assert {each["state"] for each in found} <= {"ok", "advice", "problem"}


def test_a_body_is_json_as_its_rfc_has_it(callers: Callers):
    def send(body: bytes, kind: str = "application/json"):
        return callers.manager._client.patch(
            "/api/v1/templates/echo", content=body, headers=callers.manager._headers | {"Content-Type": kind}
        )

    for body in (
        b'{"timeout": NaN}',
        b"{",
        b'{"timeout": 1, "timeout": 2}',
        b"\xff",
        b'{"description": "\\ud800"}',
        b'{"timeout": ' + b"[" * 100_000,
    ):
        answer = send(body)
        assert (answer.status_code, code_of(answer)) == (400, "bad_request"), body[:40]
    assert (send(b"{}", "text/plain").status_code, send(b"").status_code) == (415, 422)


def test_what_the_gate_refuses_is_one_error(callers: Callers):
    with pytest.raises(PermissionDenied):
        callers.rota.acting_as("ada").store.doctor()
