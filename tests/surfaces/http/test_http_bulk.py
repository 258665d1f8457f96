"""Many jobs with one request, creates that come twice, groups, and direct execution."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from rota import Rota, Settings
from rota.model.gate import LOCAL
from rota.surfaces.http.api import bulk
from rota.surfaces.http.api.requests import Creation
from rota.surfaces.http.serving import Address, Server
from rota.surfaces.http.streams import Held
from tests.support.pace import patient
from tests.surfaces.http.api_support import API, Caller, Callers, callers, code_of

__all__ = ["callers"]


@contextmanager
def serving(rota: Rota) -> Iterator[int]:
    """Serve a Rota by a real server; give its port."""
    server = Server(rota, Address("127.0.0.1", 0))
    server.start()
    try:
        yield server.address.port
    finally:
        server.stop()


LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture
def admin(callers: Callers) -> Caller:
    callers.rota.jobs.cancel_all(all=True)
    return callers.admin


def lines(callers: Callers, text: bytes, **headers: str):
    return callers.client.post(f"{API}/jobs/bulk", content=text, headers=callers.admin._headers | LINES | headers)


def texts(callers: Callers) -> list[object]:
    return [job.params.get("text") for job in callers.rota.acting_as("ada").queues.jobs(limit=10_000)]


# ---- bulk ----------------------------------------------------------------------------------------------------------


def test_an_array_becomes_jobs_in_its_order(callers, admin):
    answer = admin.post("/jobs/bulk", [{"name": "echo", "params": {"text": str(n)}} for n in range(5)])
    assert (answer.status_code, answer.json()["accepted"], answer.json()["existing"]) == (200, 5, 0)
    assert [job.id for job in callers.rota.acting_as("ada").queues.jobs()] == answer.json()["ids"]
    assert texts(callers) == list("01234")


def test_lines_become_jobs_and_blank_ones_nothing(callers, admin):
    answer = lines(callers, b'{"name": "echo"}\n\n  \r\n{"name": "echo", "unique_key": "k"}\n{"name": "echo", "unique_key": "k"}')
    assert (answer.json()["accepted"], answer.json()["existing"], len(answer.json()["ids"])) == (2, 1, 3)
    assert admin.post("/jobs/bulk", []).json() == {"accepted": 0, "existing": 0, "ids": []}
    assert lines(callers, b"").json()["accepted"] == 0


def test_a_bad_item_says_which_it_is_and_what_was_accepted(callers, admin):
    good = {"name": "echo"}
    for bad, status, code in [
        ({"name": "nobody"}, 422, "unknown_template"),
        ({"name": "echo", "params": {"wrong": 1}}, 422, "invalid_params"),
        ({"name": "echo", "colour": 1}, 422, "invalid_request"),
        ({"name": "echo", "organization": "beta"}, 422, "invalid_request"),
        ({"name": "echo", "depends_on": ["JOB-2026-99999"]}, 422, "unknown_parent"),
        (17, 422, "invalid_request"),
    ]:
        answers = [admin.post("/jobs/bulk", [good, good, bad, good])]
        answers.append(lines(callers, b"\n".join(json.dumps(each).encode() for each in [good, good, bad, good])))
        for answer in answers:
            assert (answer.status_code, code_of(answer)) == (status, code), answer.text
            assert (answer.json()["item"], answer.json()["accepted"]) == (2, 2), answer.text
    assert len(texts(callers)) == 6 * 2 * 2


def test_what_is_no_json_ends_the_lines_before_it(callers, admin):
    for bad in [b"{", b'{"name": "echo", "name": "echo"}', b'{"name": "echo", "params": {"text": NaN}}', b"\xff"]:
        answer = lines(callers, b'{"name": "echo"}\n' + bad + b'\n{"name": "echo"}')
        assert (answer.status_code, answer.json()["item"], answer.json()["accepted"]) == (400, 1, 1), answer.text
    assert admin.post("/jobs/bulk", {"name": "echo"}).status_code == 422
    assert callers.client.post(f"{API}/jobs/bulk", content=b"x", headers=admin._headers | {"content-type": "text/csv"}).status_code == 415


def test_a_manager_says_for_whom_all_are(callers):
    answer = callers.manager.post("/jobs/bulk", [{"name": "echo"}], organization="beta")
    assert callers.rota.jobs.get(answer.json()["ids"][0]).organization == "beta"
    assert callers.admin.post("/jobs/bulk", [{"name": "echo"}], organization="beta").status_code == 403


def test_a_long_stream_is_taken_in_as_it_comes(tmp_path):
    """By a real server: while the client has not sent the end, what it sent before is in the queue already."""
    rota = Rota(tmp_path / "rota.db", settings=Settings(bulk_chunk=500, synchronous="NORMAL"))
    rota.job(lambda text="": None, name="noop")
    token = rota.tokens.create("t", permits=["submit"]).secret
    line = b'{"name": "noop", "params": {"text": "x"}}\n'
    with serving(rota) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patient(20))
        connection.putrequest("POST", f"{API}/jobs/bulk")
        for name, value in {"Authorization": f"Bearer {token}", "Transfer-Encoding": "chunked", **LINES}.items():
            connection.putheader(name, value)
        connection.endheaders()

        def send(data: bytes) -> None:
            connection.send(b"%x\r\n%s\r\n" % (len(data), data))

        for _ in range(12):
            send(line * 1000 + line[:10])
            send(line[10:])
        wait_for(rota, 10_000)
        connection.send(b"0\r\n\r\n")
        answer = json.loads(connection.getresponse().read())
        assert answer == {"accepted": 12_012, "existing": 0, "ids": None}
        connection.close()
    rota.close()


def wait_for(rota: Rota, count: int) -> None:
    end = time.monotonic() + patient(10)
    while sum(rota.store.stats().by_status.values()) < count:
        assert time.monotonic() < end, f"{count} jobs did not come"
        time.sleep(0.01)


def test_lines_are_not_waited_for_when_the_server_has_gone(monkeypatch):
    monkeypatch.setattr(bulk, "MARGIN_S", 0.01)
    gone = asyncio.new_event_loop()
    items = bulk.Streamed(Held(b"", LOCAL, asyncio.Event()), None, gone, patience_s=0.01)
    assert (list(items), items.error.status_code) == ([], 408)
    gone.run_until_complete(asyncio.sleep(0))
    gone.close()


def test_a_client_that_goes_in_the_middle_leaves_whole_lines_only(tmp_path):
    rota = Rota(tmp_path / "rota.db", settings=Settings(bulk_chunk=500, synchronous="NORMAL", http_patience=5))
    rota.job(lambda text="": None, name="noop")
    token = rota.tokens.create("t", permits=["submit"]).secret
    with serving(rota) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patient(20))
        connection.putrequest("POST", f"{API}/jobs/bulk")
        for name, value in {"Authorization": f"Bearer {token}", "Content-Length": "1000000", **LINES}.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b'{"name": "noop"}\n' * 10_500 + b'{"na')
        wait_for(rota, 10_000)
        connection.close()
        wait_for(rota, 10_500)
        assert sum(rota.store.stats().by_status.values()) == 10_500
    rota.close()


# ---- creates that come twice ---------------------------------------------------------------------------------------


def keyed(caller: Caller, path: str, body: object, key: str = "k-1"):
    return caller("POST", path, body, headers={"Idempotency-Key": key})


def test_a_create_that_comes_again_makes_nothing_more(callers, admin):
    body = {"name": "echo", "params": {"text": "once"}}
    first, again = keyed(admin, "/jobs", body), keyed(admin, "/jobs", body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (None, "true")
    assert texts(callers) == ["once"]
    assert first.json()["number"].startswith("JOB-2026-")


def test_a_key_goes_with_its_body(admin):
    assert keyed(admin, "/jobs", {"name": "echo"}).status_code == 201
    assert keyed(admin, "/jobs", {"name": "echo", "params": {"text": "other"}}).status_code == 422
    assert keyed(admin, "/jobs", {"name": "echo"}, "k-2").status_code == 201


def test_a_key_is_its_actors_own(callers, admin):
    body = {"name": "echo"}
    made = {keyed(caller, "/jobs", body).json()["id"] for caller in (admin, callers.user, callers.other, callers.manager)}
    assert len(made) == 4


def test_a_token_that_may_only_submit_gets_its_answer_again(callers):
    submits = callers.of("bob", "submit")
    for path, body in [("/jobs", {"name": "echo"}), ("/jobs/bulk", [{"name": "echo"}]), ("/groups", {"jobs": [{"name": "echo"}]})]:
        first, again = keyed(submits, path, body), keyed(submits, path, body)
        assert again.status_code == 200, again.text
        assert first.json() == again.json()


def test_a_repeat_finds_the_job_also_when_it_could_not_be_made_any_more(callers, admin):
    body = {"name": "echo"}
    first = keyed(admin, "/jobs", body)
    callers.rota.jobs.update(first.json()["id"], params={"text": "changed"})
    callers.rota.templates.disable("echo")
    again = keyed(admin, "/jobs", body)
    assert (again.status_code, again.json()["params"]) == (200, {"text": "changed"})


def test_many_at_once_with_one_key_make_one_job(callers, admin):
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: keyed(admin, "/jobs", {"name": "echo"}), range(24)))
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum(answer.status_code == 201 for answer in answers) == 1


def test_a_bulk_that_comes_again_makes_nothing_more(callers, admin):
    body = [{"name": "echo", "params": {"text": str(n)}} for n in range(20)]
    first, again = keyed(admin, "/jobs/bulk", body), keyed(admin, "/jobs/bulk", body)
    assert first.json() == again.json()
    assert len(texts(callers)) == 20
    assert keyed(admin, "/jobs/bulk", body[:5]).status_code == 422
    assert keyed(admin, "/jobs/bulk", [{"name": "echo", "unique_key": "x"}], "k-2").status_code == 422
    assert len(texts(callers)) == 20


def test_a_key_is_for_as_many_as_one_chunk_holds(callers, admin):
    body = [{"name": "echo"}] * (callers.rota.settings.bulk_chunk + 1)
    assert keyed(admin, "/jobs/bulk", body).status_code == 422
    assert texts(callers) == []


def test_what_a_key_makes_ascends_and_is_of_its_year(callers):
    request = Creation(callers.rota._session.actor("ada"), "bulk", "key", b"")
    ids = [request.id(2026, step) for step in range(3)]
    assert ids == sorted(ids)
    assert all(each[14] == "7" for each in ids)
    millisecond = int(ids[0].replace("-", "")[:12], 16)
    assert datetime.fromtimestamp(millisecond / 1000, UTC).year == 2026
    assert len(request.ids(datetime(2026, 6, 1, tzinfo=UTC))) == 1
    assert request.ids(datetime(2027, 1, 1, 3, tzinfo=UTC))[1] == ids[0]


# ---- groups --------------------------------------------------------------------------------------------------------


def test_a_group_is_made_read_and_cancelled(callers, admin):
    waiting = admin.post("/jobs", {"name": "echo", "run_at": "2030-01-01T00:00:00Z"}).json()
    body = {"jobs": [{"name": "echo"}, waiting["id"]], "name": "pair", "on_failure": "continue"}
    group = admin.post("/groups", body)
    assert (group.status_code, [member["root_id"] for member in group.json()["members"]][1]) == (201, waiting["id"])
    assert admin.get(f"/groups/{group.json()['id']}").json() == group.json()
    assert [each["id"] for each in admin.get("/groups").json()["items"]] == [group.json()["id"]]
    assert callers.other.get(f"/groups/{group.json()['id']}").status_code == 404
    assert admin.post(f"/groups/{group.json()['id']}/cancel").json()["status"] == "CANCELLED"
    assert code_of(admin.get("/groups/nope")) == "not_found"
    assert admin.post("/groups", {"jobs": ["JOB-2026-99999"]}).status_code == 422
    assert admin.post("/groups", {"jobs": []}).status_code == 422


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ({}, "stop"),
        ({"mode": "parallel"}, "continue"),
        ({"mode": "parallel", "on_failure": "stop"}, "stop"),
        ({"on_failure": "skip"}, "skip"),
    ],
)
def test_the_rule_for_a_failure_follows_from_the_mode_unless_it_is_given(admin, said, rule):
    body = {"jobs": [{"name": "echo"}], **said}
    assert admin.post("/groups", body).json()["on_failure"] == rule
    first, again = keyed(admin, "/groups", body), keyed(admin, "/groups", body)
    assert (first.status_code, again.status_code, first.json()) == (201, 200, again.json())


def test_a_group_that_comes_again_is_the_same(callers, admin):
    body = {"jobs": [{"name": "echo", "params": {"text": "a"}}, {"name": "echo"}]}
    first, again = keyed(admin, "/groups", body), keyed(admin, "/groups", body)
    assert (first.status_code, again.status_code, first.json()) == (201, 200, again.json())
    assert keyed(admin, "/groups", {"jobs": [{"name": "echo", "params": {"text": "b"}}, {"name": "echo"}]}).status_code == 422
    assert keyed(admin, "/groups", {**body, "mode": "parallel"}).status_code == 422
    assert len(callers.rota.groups.list()) == 1


def test_a_key_of_a_group_goes_with_its_members_also_where_all_are_there_already(callers, admin):
    one, two = (admin.post("/jobs", {"name": "echo", "run_at": "2999-01-01T00:00:00Z"}).json() for _ in range(2))
    first, again = (keyed(admin, "/groups", {"jobs": [one[said]]}) for said in ("id", "number"))
    assert (first.status_code, again.status_code, first.json()) == (201, 200, again.json())
    for other in (two["id"], two["number"], "JOB-2026-99999"):
        assert keyed(admin, "/groups", {"jobs": [other]}).status_code == 422, other
    assert len(callers.rota.groups.list()) == 1


def test_a_member_is_named_by_its_number_and_never_taken_for_a_template(callers, admin):
    waiting = admin.post("/jobs", {"name": "echo", "run_at": "2999-01-01T00:00:00Z"}).json()
    group = admin.post("/groups", {"jobs": [waiting["number"]]})
    assert (group.status_code, group.json()["members"][0]["root_id"]) == (201, waiting["id"])
    assert admin.post("/groups", {"jobs": ["echo"]}).status_code == 422
    assert len(callers.rota.groups.list()) == 1


def test_a_group_of_another_is_not_told_by_its_id(callers, admin):
    theirs = callers.rota.acting_as("eve").group([("echo", {})], group_id="01900000-0000-7000-8000-000000000001")
    with pytest.raises(ValueError, match="taken already"):
        callers.rota.acting_as("ada").group([("echo", {})], group_id=theirs.id)


# ---- direct --------------------------------------------------------------------------------------------------------


def test_a_direct_execution_answers_with_its_run(live):
    @live.job
    def double(n: int) -> int:
        return 2 * n

    @live.job
    def breaks() -> None:
        raise RuntimeError("broken")

    caller = direct_caller(live)
    run = caller.post("/direct", {"name": "double", "params": {"n": 21}})
    assert (run.status_code, run.json()["status"], run.json()["result"], run.json()["log_path"]) == (200, "COMPLETED", 42, None)
    failed = caller.post("/direct", {"name": "breaks"}).json()
    assert (failed["status"], failed["error"]) == ("FAILED", "RuntimeError: broken")
    first, again = (keyed(caller, "/direct", {"name": "double", "params": {"n": 1}}) for _ in range(2))
    assert (first.json()["id"], again.headers["idempotency-replayed"]) == (again.json()["id"], "true")
    assert keyed(caller, "/direct", {"name": "double", "params": {"n": 2}}).status_code == 422
    assert code_of(caller.post("/direct", {"name": "nobody"})) == "unknown_template"


def test_a_direct_execution_that_takes_long_goes_on_under_its_id(tmp_path):
    rota = Rota(tmp_path / "rota.db", settings=Settings(http_direct_wait=0.2, synchronous="NORMAL"))
    go = threading.Event()

    @rota.job
    def slow() -> str:
        go.wait(patient(10))
        return "at last"

    try:
        with rota.running(concurrency=1):
            caller = direct_caller(rota)
            late = keyed(caller, "/direct", {"name": "slow"})
            assert (late.status_code, code_of(late)) == (504, "wait_timeout")
            job_id = late.json()["job_id"]
            assert rota.jobs.get(job_id).status == "RUNNING"
            assert keyed(caller, "/direct", {"name": "slow"}).json()["job_id"] == job_id
            go.set()
            assert rota.wait(job_id, 10).result == "at last"
            assert keyed(caller, "/direct", {"name": "slow"}).json()["result"] == "at last"
    finally:
        go.set()
        rota.close()


def test_a_direct_execution_that_nobody_can_run_is_refused_at_once(live):
    live.templates.update("elsewhere", handler="shop.mail:send")
    live.job(lambda: None, name="paused")
    live.templates.pause("paused")
    caller = direct_caller(live)
    for name, words in {"elsewhere": "no live worker has a handler for elsewhere", "paused": "template paused is paused"}.items():
        busy = caller.post("/direct", {"name": name, "timeout": 3600})
        assert (busy.status_code, code_of(busy)) == (409, "resource_busy")
        assert words in busy.json()["detail"]
    assert caller.get("/jobs").json()["items"] == []


def direct_caller(rota: Rota) -> Caller:
    from starlette.testclient import TestClient

    from rota.surfaces.http import make_app

    return Caller(TestClient(make_app(rota), raise_server_exceptions=False), rota.tokens.create("t", permits=["manage"]).secret)
