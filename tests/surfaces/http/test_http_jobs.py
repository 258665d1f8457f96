"""Jobs over HTTP: made, found, changed, moved, cancelled, retried, looked at; and what each role may."""

from __future__ import annotations

import pytest

from rota import PermanentError
from rota.surfaces.http.api.results import Cursors
from tests.surfaces.http.api_support import API, Caller, Callers, callers, code_of

__all__ = ["callers"]

NOWHERE = "01a00000-0000-7000-8000-000000000000"


@pytest.fixture
def admin(callers: Callers) -> Caller:
    callers.rota.jobs.cancel_all(all=True)
    return callers.admin


def made(caller: Caller, **body: object) -> dict:
    answer = caller.post("/jobs", {"name": "echo", **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


def ids(answer) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["items"]]


# ---- make ----------------------------------------------------------------------------------------------------------


def test_a_job_is_there_when_it_is_answered_for(callers, admin):
    job = made(admin, params={"text": "hello"}, priority="high")
    found = callers.rota.jobs.get(job["id"])
    assert (found.params, found.priority, found.organization, found.owner) == ({"text": "hello"}, 75, "acme", "ada")


def test_many_who_ask_at_once_each_get_their_own(callers):
    from concurrent.futures import ThreadPoolExecutor

    people = [callers.admin, callers.user, callers.other]
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda n: people[n % 3].post("/jobs", {"name": "echo", "params": {"text": str(n)}}), range(60)))
    assert {answer.status_code for answer in answers} == {201}
    jobs = [answer.json() for answer in answers]
    assert [job["params"]["text"] for job in jobs] == [str(n) for n in range(60)]
    assert [job["owner"] for job in jobs] == ["ada", "bob", "eve"] * 20
    assert [callers.rota.jobs.get(job["id"]).params for job in jobs] == [job["params"] for job in jobs]


def test_one_that_is_refused_leaves_those_that_came_with_it(callers):
    from concurrent.futures import ThreadPoolExecutor

    bodies = [{"name": "echo"}, {"name": "nobody"}, {"name": "echo", "params": {"wrong": 1}}, {"name": "echo", "zz": 1}] * 10
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda body: callers.admin.post("/jobs", body), bodies))
    assert [answer.status_code for answer in answers] == [201, 422, 422, 422] * 10
    assert [code_of(answer) for answer in answers[1:4]] == ["unknown_template", "invalid_params", "invalid_request"]


def test_a_param_named_like_the_handlers_context_is_refused_for_jobs_and_schedules(callers):
    callers.rota.job(lambda ctx, **kw: None, name="anything")
    bad = {"params": {"ctx": 1}}
    answers = [
        callers.admin.post("/jobs", {"name": "anything", **bad}),
        callers.admin.post("/schedules", {"name": "hourly", "template": "anything", "every": "1h", **bad}),
    ]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert all("receives its Context in the parameter 'ctx'" in answer.text for answer in answers)


def test_a_unique_key_finds_the_job_that_holds_it(admin):
    first = made(admin, unique_key="only")
    again = admin.post("/jobs", {"name": "echo", "unique_key": "only"})
    assert (again.status_code, again.json()["id"], again.json()["existing"]) == (200, first["id"], True)


def test_a_child_waits_for_what_its_body_names(admin):
    parent = made(admin)
    child = made(admin, depends_on=[parent["number"]], on_parent_failure="skip")
    assert (child["status"], child["blockers"]) == ("PENDING", 1)
    assert code_of(admin.post("/jobs", {"name": "echo", "depends_on": [NOWHERE]})) == "unknown_parent"
    assert admin.post("/jobs", {"name": "echo", "depends_on": ["JOB-2026-99999"]}).status_code == 422


def test_only_a_manager_makes_jobs_for_another_organization(callers):
    assert made(callers.manager, organization="beta")["organization"] == "beta"
    assert callers.admin.post("/jobs", {"name": "echo", "organization": "beta"}).status_code == 403


BAD_BODIES = [
    (b"", 422),
    (b"{", 400),
    (b"[]", 422),
    (b'{"name": "echo"} x', 400),
    (b'{"name": "echo", "name": "echo"}', 400),
    (b'{"name": "echo", "params": {"text": 1, "text": 2}}', 400),
    (b'{"name": "echo", "params": {"text": {"a": 1, "\\u0061": 2}}}', 400),
    (b'{"name": "echo", "name": "echo", "run_at": "2030-01-01T00:00:00+0100"}', 400),
    (b'{"name": "echo", "name": "echo", "run_at": "2030-01-01T00:00:00.5\\u002b0100"}', 400),
    (b'{"name": "echo", "params": {"text": NaN}}', 400),
    (b'{"name": "echo", "params": {"text": -Infinity}}', 400),
    (b'{"name": "echo", "params": {"text": 1e999}}', 422),
    (b'{"name": "echo", "params": {"text": 1' + b"0" * 6000 + b"}}", 422),
    (b'{"name": "echo", "params": {"text": "\\ud800"}}', 400),
    (b'{"name": "echo", "params": {"text": "\xed\xa0\x80"}}', 400),
    (b'{"name": "echo", "params": {"text": ' + b"[" * 600 + b"]" * 600 + b"}}", 422),
    (b'{"name": "echo", "params": {"text": ' + b"[" * 200_000, 400),
    (b'{"name": "\\u0000"}', 422),
    (b'{"name": "echo", "unique_key": "a\\u0000"}', 422),
    (b'{"name": "echo", "run_at": "9999-12-31T23:59:59-12:00"}', 422),
    (b'{"name": "echo", "run_at": "2026-01-01T00:00:00"}', 422),
    (b'{"name": "echo", "priority": 101}', 422),
    (b'{"name": "echo", "max_retries": -1}', 422),
    (b'{"name": "echo", "timeout": 1e300}', 422),
    (b'{"name": "echo", "params": [1]}', 422),
    (b'{"name": "echo", "colour": "blue"}', 422),
]


def test_a_body_that_is_not_right_is_refused(callers):
    headers = callers.admin._headers | {"content-type": "application/json"}
    for body, status in BAD_BODIES:
        answer = callers.client.post(f"{API}/jobs", content=body, headers=headers)
        assert answer.status_code == status, (body[:80], answer.text)
        assert code_of(answer)


def test_a_body_of_another_kind_is_not_read(callers):
    answer = callers.client.post(f"{API}/jobs", content=b"name=echo", headers=callers.admin._headers | {"content-type": "text/plain"})
    assert answer.status_code == 415


def test_params_over_the_limit_are_too_large(callers):
    answer = callers.admin.post("/jobs", {"name": "echo", "params": {"text": "x" * (callers.rota.settings.payload_max + 1)}})
    assert (answer.status_code, code_of(answer)) == (413, "payload_too_large")


def test_a_limit_of_submissions_says_when_to_try_again(callers):
    @callers.rota.job(submit_limit="1/60s")
    def rare() -> None: ...

    assert callers.admin.post("/jobs", {"name": "rare"}).status_code == 201
    answer = callers.admin.post("/jobs", {"name": "rare"})
    assert (answer.status_code, code_of(answer)) == (429, "rate_limited")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert 0 < answer.json()["retry_after_s"] <= 60


def test_a_duplicate_names_the_job_that_was_submitted_before(callers):
    @callers.rota.job(dedup_window=60)
    def once() -> None: ...

    job = callers.admin.post("/jobs", {"name": "once"}).json()
    answer = callers.admin.post("/jobs", {"name": "once"})
    assert (answer.status_code, code_of(answer), answer.json()["job_id"]) == (409, "duplicate_job", job["id"])


# ---- look ----------------------------------------------------------------------------------------------------------


def test_a_list_is_gone_through_page_by_page(admin):
    numbers = [made(admin)["id"] for _ in range(7)]
    seen, cursor = [], None
    while True:
        answer = admin.get("/jobs", status="QUEUED", limit=3, **({} if cursor is None else {"cursor": cursor}))
        seen += ids(answer)
        cursor = answer.json()["next"]
        if cursor is None:
            break
    assert seen == numbers[::-1]


def test_every_filter_of_find_filters(callers, admin, clock):
    callers.rota.job(lambda: None, name="other")
    wanted = made(admin, params={"text": "needle"})
    made(admin)
    assert admin.post("/jobs", {"name": "other"}).status_code == 201
    group = admin.post("/groups", {"jobs": [{"name": "echo"}]}).json()
    at = wanted["created_at"]
    clock.advance(seconds=10)
    late = made(admin)
    assert ids(admin.get("/jobs", text="needle")) == [wanted["id"]]
    assert {job["job_type"] for job in admin.get("/jobs", job_type="other").json()["items"]} == {"other"}
    assert ids(admin.get("/jobs", group=group["id"])) == [group["members"][0]["root_id"]]
    assert ids(admin.get("/jobs", chain=wanted["number"])) == [wanted["id"]]
    assert ids(admin.get("/jobs", since=late["created_at"])) == [late["id"]]
    assert late["id"] not in ids(admin.get("/jobs", until=late["created_at"], since=at))
    assert ids(admin.get("/jobs", owner="nobody")) == []
    assert ids(admin.get("/jobs", organization="beta")) == []
    assert ids(admin.get("/jobs", error_type="timeout")) == []
    assert code_of(admin.get("/jobs", schedule="never")) == "not_found"


def test_a_cursor_that_nobody_gave_is_refused(admin):
    for cursor in ["", "x", "AAAA", "é", "0", "-1", "'; DROP", "a" * 101, "A" * 19]:
        assert admin.get("/jobs", cursor=cursor).status_code == 422, cursor


def test_a_cursor_goes_with_its_filters_only(admin):
    for _ in range(3):
        made(admin)
    cursor = admin.get("/jobs", limit=1).json()["next"]
    assert admin.get("/jobs", limit=2, cursor=cursor).status_code == 200
    assert admin.get("/jobs", limit=1, cursor=cursor, job_type="echo").status_code == 422
    assert admin.get("/dead-letters", cursor=cursor).status_code == 422
    changed = ("B" if cursor[3] != "B" else "C").join([cursor[:3], cursor[4:]])
    assert admin.get("/jobs", limit=1, cursor=changed).status_code == 422


def test_a_parameter_that_nobody_knows_is_refused(admin):
    for path in ["/jobs", "/queue", "/groups", "/dead-letters", "/jobs/1", "/jobs/1/log"]:
        answer = admin.get(path, stauts="QUEUED")
        assert (answer.status_code, code_of(answer)) == (422, "invalid_option")
        assert "stauts" in answer.json()["detail"]


NO_JOBS = ["nope", NOWHERE, "JOB-2026-99999", "0", "%00", "..", "%F0%9F%90%B8", "JOB-2026-00001.9", "9" * 30, "{}", "%ff", "*"]


def test_what_is_no_job_is_not_found(admin):
    for job_id in NO_JOBS:
        for rest in ["", "/runs", "/attempts", "/log", "/log?chain=true", "/explain", "/graph"]:
            answer = admin.get(f"/jobs/{job_id}{rest}")
            assert answer.status_code == 404, (job_id, answer.text)
            assert "rota.db" not in answer.text


def test_an_id_that_is_too_long_is_not_found(admin):
    assert admin.get(f"/jobs/{'x' * 65}").status_code == 404


def test_the_queue_shows_the_order(admin):
    low, high, normal = made(admin, priority="low"), made(admin, priority="high"), made(admin)
    assert ids(admin.get("/queue")) == [high["id"], normal["id"], low["id"]]


def test_a_job_tells_what_happened(callers, admin):
    job = made(admin, params={"text": "done"})
    assert admin.get(f"/jobs/{job['id']}/runs").json()["items"] == []
    assert admin.get(f"/jobs/{job['id']}/explain").json()["job"]["id"] == job["id"]
    callers.rota.turn()
    (run,) = admin.get(f"/jobs/{job['number']}/runs").json()["items"]
    assert (run["status"], run["result"], run["log_path"]) == ("COMPLETED", "done", None)
    assert admin.get(f"/jobs/{job['id']}/runs").json()["items"] == [run]
    assert ids(admin.get(f"/jobs/{job['id']}/attempts")) == [job["id"]]
    moves = [entry["to_status"] for entry in admin.get(f"/jobs/{job['id']}/log").json()["items"]]
    assert moves == ["QUEUED", "RUNNING", "COMPLETED"]
    last = admin.get(f"/jobs/{job['id']}/log", chain=True, last=1).json()
    assert ([entry["to_status"] for entry in last["items"]], last["cut"]) == (["COMPLETED"], True)
    text = admin("GET", f"/jobs/{job['id']}/log", headers={"Accept": "text/plain"})
    assert text.headers["content-type"].startswith("text/plain")
    assert text.text.splitlines()[0].endswith("QUEUED by ada")
    assert job["id"] in admin.get(f"/jobs/{job['id']}/graph").json()["jobs"]


# ---- change --------------------------------------------------------------------------------------------------------


def test_a_job_that_waits_can_be_changed(admin):
    job = made(admin, run_at="2030-01-01T00:00:00Z")
    changed = admin.patch(f"/jobs/{job['id']}", {"priority": 10, "params": {"text": "new"}, "run_at": "2031-01-01T00:00:00Z"}).json()
    assert (changed["priority"], changed["params"], changed["run_at"]) == (10, {"text": "new"}, "2031-01-01T00:00:00Z")
    assert code_of(admin.patch(f"/jobs/{job['id']}", {})) == "invalid_option"
    queued = made(admin)
    assert code_of(admin.patch(f"/jobs/{queued['id']}", {"priority": 3, "run_at": "2031-01-01T00:00:00Z"})) == "illegal_move"
    assert admin.get(f"/jobs/{queued['id']}").json()["priority"] == 50, "all that is given, or nothing"


def test_a_job_can_be_moved(admin):
    first, second, third = made(admin), made(admin), made(admin)
    assert admin.post(f"/jobs/{third['id']}/move", {"front": True}).status_code == 200
    assert admin.post(f"/jobs/{first['id']}/move", {"after": second["id"]}).status_code == 200
    assert ids(admin.get("/queue")) == [third["id"], second["id"], first["id"]]
    assert code_of(admin.post(f"/jobs/{first['id']}/move", {})) == "invalid_option"
    assert code_of(admin.post(f"/jobs/{first['id']}/move", {"before": NOWHERE})) == "not_found"


def test_an_edit_of_what_has_changed_meanwhile_is_refused(admin):
    job = made(admin)
    seen = admin.get(f"/jobs/{job['id']}").headers["etag"]
    first = admin("PATCH", f"/jobs/{job['id']}", {"priority": 60}, headers={"If-Match": seen})
    assert first.status_code == 200
    for method, path, body in [("PATCH", "", {"priority": 70}), ("POST", "/move", {"front": True}), ("POST", "/cancel", {})]:
        answer = admin(method, f"/jobs/{job['id']}{path}", body, headers={"If-Match": seen})
        assert (answer.status_code, code_of(answer)) == (412, "changed_meanwhile")
    assert admin("POST", f"/jobs/{job['id']}/move", {"front": True}, headers={"If-Match": first.headers["etag"]}).status_code == 200
    assert admin("POST", f"/jobs/{job['id']}/cancel", headers={"If-Match": "*"}).status_code == 200


def test_what_was_seen_already_is_not_sent_again(callers, admin):
    job = made(admin)
    seen = admin.get(f"/jobs/{job['id']}").headers["etag"]
    again = admin("GET", f"/jobs/{job['id']}", headers={"If-None-Match": f'"other", {seen}'})
    assert (again.status_code, again.content) == (304, b"")
    callers.rota.turn()
    assert admin("GET", f"/jobs/{job['id']}", headers={"If-None-Match": seen}).status_code == 200


def test_a_new_attempt_changes_the_tag_of_the_chain(callers, admin):
    job = made(admin)
    admin.post(f"/jobs/{job['id']}/cancel")
    seen = admin.get(f"/jobs/{job['id']}").headers["etag"]
    retried = admin.post(f"/jobs/{job['id']}/retry")
    assert (retried.status_code, retried.json()["attempt"]) == (201, 2)
    assert admin("POST", f"/jobs/{job['id']}/cancel", {}, headers={"If-Match": seen}).status_code == 412


def test_a_job_is_cancelled_once_and_can_be_retried(admin):
    job = made(admin)
    cancelled = admin.post(f"/jobs/{job['id']}/cancel", {"reason": "not wanted"}).json()
    assert (cancelled["status"], cancelled["reason"]) == ("CANCELLED", "not wanted")
    assert admin.post(f"/jobs/{job['id']}/cancel").status_code == 200, "it is cancelled already: that is what was asked for"
    assert admin.post(f"/jobs/{job['id']}/retry").status_code == 201
    assert code_of(admin.post(f"/jobs/{job['id']}/retry")) == "still_live"


def test_all_that_match_are_cancelled_in_parts(callers, admin):
    for n in range(7):
        made(admin, params={"text": f"take {n}" if n < 5 else "leave"})
    other = callers.rota.acting_as("root").enqueue("echo", {"text": "take"}, organization="beta")
    assert admin.post("/jobs/cancel", {"text": "take", "limit": 3}).json() == {"done": 3, "left": 2, "more": False}
    assert admin.post("/jobs/cancel", {"text": "take", "status": ["COMPLETED"]}).json() == {"done": 0, "left": 0, "more": False}
    assert admin.post("/jobs/cancel", {"text": "take"}).json() == {"done": 2, "left": 0, "more": False}
    assert callers.rota.jobs.get(other.id).status == "QUEUED"
    assert len(callers.rota.acting_as("ada").queues.jobs()) == 2


def test_a_job_can_be_made_to_wait_for_more(admin):
    parent, child = made(admin), made(admin, run_at="2030-01-01T00:00:00Z")
    assert admin.post(f"/jobs/{child['id']}/depend", {"on": [parent["number"]]}).json()["blockers"] == 1
    cycle = admin.post(f"/jobs/{child['id']}/depend", {"on": [child["id"]]})
    assert (cycle.status_code, code_of(cycle)) == (422, "dependency_cycle")
    assert cycle.json()["path"] == [child["number"]] * 2


def test_only_a_manager_discards(callers, admin):
    job = made(admin)
    assert callers.manager.delete(f"/jobs/{job['id']}").status_code == 409
    admin.post(f"/jobs/{job['id']}/cancel")
    assert admin.delete(f"/jobs/{job['id']}").status_code == 403
    gone = callers.manager.delete(f"/jobs/{job['id']}")
    assert (gone.status_code, gone.json()) == (200, {"chains": 1, "jobs": 1, "kept": 0})
    assert admin.get(f"/jobs/{job['id']}").status_code == 404


# ---- dead letters --------------------------------------------------------------------------------------------------


@pytest.fixture
def dead(callers: Callers, admin: Caller) -> list[str]:
    @callers.rota.job
    def doomed(text: str = "") -> None:
        raise PermanentError(f"no {text}")

    made_ids = [admin.post("/jobs", {"name": "doomed", "params": {"text": f"t{n}"}}).json()["id"] for n in range(4)]
    callers.rota.turn()
    return made_ids


def test_a_cursor_of_a_place_that_no_store_has_is_refused(admin):
    lists = {"jobs.list": "/jobs", "dead_letters.list": "/dead-letters", "audit.list": "/audit", "webhooks.deliveries": "/deliveries"}
    for name, path in lists.items():
        assert admin.get(path, cursor=Cursors(name, {}).seal(1)).status_code == 200, path
        for place in (0, 2**63, 2**64 - 1, -1, 10**30, "1", None, [1]):
            assert admin.get(path, cursor=Cursors(name, {}).seal(place)).status_code == 422, (path, place)


def test_a_token_that_may_act_and_not_read_is_told_what_came_of_its_act(callers, admin, dead):
    acts = callers.of("ada", "operate")
    job = admin.post("/jobs", {"name": "echo"}).json()
    cancelled = acts.post(f"/jobs/{job['id']}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "CANCELLED")
    retried = acts.post("/dead-letters/retry", {"all": True, "limit": 1}).json()["items"]
    assert [(job["attempt"], "params" in job) for job in retried] == [(2, False)]
    assert [acts.post(f"/organizations/acme/{verb}").status_code for verb in ("pause", "resume")] == [204, 204]
    for path in ("/scheduler", "/dead-letters", f"/jobs/{job['id']}"):
        assert acts.get(path).status_code == 403, path


def test_params_of_any_name_are_replaced_when_a_job_is_enqueued_again(callers):
    callers.rota.job(name="any")(lambda **params: params)
    job = callers.manager.post("/jobs", {"name": "any", "params": {"job": "old", "other": 1}}).json()
    given = {"job": "a", "self": "b", "ask": "c", "params": "d"}
    again = callers.manager.post(f"/jobs/{job['id']}/again", {"params": given})
    assert again.status_code == 201, again.text
    assert again.json()["params"] == {**given, "other": 1}


def test_dead_letters_are_listed_and_retried(callers, admin, dead):
    assert ids(admin.get("/dead-letters")) == dead[::-1]
    first = admin.get("/dead-letters", limit=3, error_type="permanent").json()
    assert len(first["items"]) == 3
    assert ids(admin.get("/dead-letters", limit=3, error_type="permanent", cursor=first["next"])) == [dead[0]]
    assert admin.post(f"/jobs/{dead[0]}/retry").status_code == 201
    assert len(admin.post("/dead-letters/retry", {"all": True, "limit": 2}).json()["items"]) == 2
    assert admin.post("/dead-letters/retry").status_code == 400, "who means all of them says so"
    assert [len(admin.post("/dead-letters/retry", {"all": True}).json()["items"]) for _ in range(2)] == [1, 0]
    assert ids(admin.get("/dead-letters")) == []


def test_dead_letters_are_discarded_by_managers_and_an_act_without_a_filter_says_all(callers, admin, dead):
    assert admin.post("/dead-letters/delete", {}).status_code == 403
    assert callers.manager.delete(f"/jobs/{dead[0]}").status_code == 200
    missing = callers.manager.post("/dead-letters/delete")
    assert (missing.status_code, '{"all": true} for everything' in missing.json()["detail"]) == (400, True)
    waiting = made(callers.manager)["id"]
    for path in ("/dead-letters/delete", "/dead-letters/retry", "/jobs/cancel"):
        assert '{"all": true} for everything' in callers.manager.post(path).json()["detail"]
        for body in ({}, {"limit": 5}, {"all": False}, {"text": None}):
            refused = callers.manager.post(path, body)
            assert (refused.status_code, "no filter is given" in refused.json()["detail"]) == (422, True), (path, body)
    assert len(ids(callers.manager.get("/dead-letters"))) == 3
    assert callers.manager.get(f"/jobs/{waiting}").json()["status"] == "QUEUED"
    assert callers.manager.post("/dead-letters/delete", {"text": "no t1"}).json()["chains"] == 1
    assert callers.manager.post("/dead-letters/delete", {"organization": "acme"}).json() == {"chains": 2, "jobs": 2, "kept": 0}


# ---- who may -------------------------------------------------------------------------------------------------------


def test_a_user_sees_its_own_jobs_and_may_not_steer(callers, admin):
    mine, hers = made(callers.user), made(admin)
    assert ids(callers.user.get("/jobs")) == [mine["id"]]
    assert callers.user.get(f"/jobs/{hers['id']}").status_code == 404
    assert callers.user.post(f"/jobs/{hers['id']}/cancel").status_code == 404
    assert callers.user.patch(f"/jobs/{mine['id']}", {"priority": 1}).status_code == 403
    assert callers.user.get("/queue").status_code == 403
    assert callers.user.post("/jobs/cancel", {"all": True}).json()["done"] == 1


def test_a_token_may_do_what_it_was_made_for(callers):
    submits, reads = callers.of("ada", "submit"), callers.of("ada", "read")
    job = made(submits)
    assert submits.get(f"/jobs/{job['id']}").status_code == 403
    assert reads.get(f"/jobs/{job['id']}").status_code == 200
    assert reads.post("/jobs", {"name": "echo"}).status_code == 403
    assert reads.post(f"/jobs/{job['id']}/cancel").status_code == 403


def test_without_a_token_nothing_is_told(callers):
    answer = callers.client.post(f"{API}/jobs", content=b"{", headers={"content-type": "application/json"})
    assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert callers.client.get(f"{API}/jobs").status_code == 401
    assert callers.client.post(f"{API}/jobs/bulk", json=[]).status_code == 401
    assert callers.client.post(f"{API}/direct", json={"name": "echo"}).status_code == 401


def test_of_two_edits_of_one_state_one_is_refused(callers, admin):
    from concurrent.futures import ThreadPoolExecutor

    job = made(admin)
    for _ in range(3):
        seen = admin.get(f"/jobs/{job['id']}").headers["etag"]
        now = callers.rota.jobs.get(job["id"]).priority

        def edit(step, seen=seen, now=now):
            return admin("PATCH", f"/jobs/{job['id']}", {"priority": (now + step) % 100}, headers={"If-Match": seen}).status_code

        with ThreadPoolExecutor(6) as threads:
            assert sorted(threads.map(edit, range(1, 7))) == [200] + [412] * 5


# ---- what follows a group, and who runs however its parents end ---------------------------------------------------------


def test_a_group_is_made_with_a_job_that_follows_it(callers, admin):
    body = {"jobs": [{"name": "echo"}], "then": {"name": "echo", "params": {"text": "then"}, "on_parent_failure": "run"}}
    answer = admin.post("/groups", body)
    assert answer.status_code == 201, answer.text
    then = answer.json()["then"]
    assert (then["job_type"], then["status"], then["on_parent_failure"]) == ("echo", "PENDING", "run")
    assert admin.get(f"/groups/{answer.json()['id']}").json()["then"] == then
    assert callers.rota.jobs.get(then["root_id"]).params == {"text": "then"}


def test_an_empty_group_needs_a_job_that_follows_it(admin):
    assert admin.post("/groups", {"jobs": []}).status_code == 422
    made_empty = admin.post("/groups", {"jobs": [], "then": {"name": "echo"}}).json()
    assert (made_empty["status"], made_empty["then"]["status"]) == ("COMPLETED", "QUEUED")


def test_a_key_that_made_another_follower_is_refused(admin):
    key = {"Idempotency-Key": "one-follower"}
    first = admin.post("/groups", {"jobs": [], "then": {"name": "echo"}}, headers=key)
    assert admin.post("/groups", {"jobs": [], "then": {"name": "echo"}}, headers=key).json()["id"] == first.json()["id"]
    assert admin.post("/groups", {"jobs": [], "then": {"name": "echo", "priority": 1}}, headers=key).status_code == 422


def test_a_job_can_be_made_to_run_however_its_parents_end(admin):
    parent = made(admin)
    child = made(admin, depends_on=[parent["id"]], on_parent_failure="run")
    assert child["status"] == "PENDING"
    (edge,) = admin.get(f"/jobs/{child['id']}/graph").json()["edges"]
    assert edge["on_failure"] == "run"
