"""Live events over HTTP: a real server, real streams."""

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing

import pytest

from rota import Rota, Settings
from rota.model.gate import Role
from rota.surfaces.http import streams
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually
from tests.surfaces.http.api_support import API
from tests.surfaces.http.sse_support import served


@pytest.fixture
def settings():
    return Settings(synchronous="NORMAL", events_beat=0.3, backoff_base=0.0)


@pytest.fixture
def door(live):
    @live.job
    def echo(value: str = "") -> str:
        return value

    with served(live) as made:
        yield made


def test_a_job_is_told_from_its_making_to_its_end(door):
    ear = door.listen()
    assert ear.answer.status == 200
    assert ear.answer.headers["content-type"].startswith("text/event-stream")
    job = door.rota.enqueue("echo", {"value": "<secret>"})
    created = ear.until("job.created")
    assert created.data["job"]["id"] == job.id
    assert "params" not in created.data["job"]
    with door.rota.running():
        ended = ear.until("job.ended")
    assert (ended.data["job"]["number"], ended.data["job"]["status"]) == (job.number, "COMPLETED")
    assert ended.id


def test_counts_come_at_once_and_when_they_have_changed(door):
    ear = door.listen("/events?type=counts")
    assert ear.until("counts").data["counts"]["QUEUED"] == 0
    door.rota.enqueue("echo")
    assert ear.until("counts").data["counts"]["QUEUED"] == 1


def test_only_what_is_asked_for_is_told(door):
    door.rota.job(name="other")(lambda: None)
    ear = door.listen("/events?type=job.created&job_type=other&status=QUEUED")
    door.rota.enqueue("echo")
    job = door.rota.enqueue("other")
    assert ear.until("job.created", "job.started", "counts").data["job"]["id"] == job.id


def test_whoever_comes_back_is_told_what_happened_meanwhile(door):
    ear = door.listen("/events?type=job.created")
    first = door.rota.enqueue("echo")
    told = ear.until("job.created")
    ear.close()
    missed = [door.rota.enqueue("echo").id for _ in range(3)]
    for again in (
        door.listen("/events?type=job.created", **{"Last-Event-ID": told.id}),
        door.listen(f"/events?type=job.created&after={told.id}"),
    ):
        heard = [again.until("job.created").data["job"]["id"] for _ in range(3)]
        assert heard == missed
        assert first.id not in heard


def test_many_who_come_back_at_once_keep_nobody_else_waiting(door, monkeypatch):
    begun, told, listen = [], threading.Event(), streams.listen

    def slow(ask, **asked):
        begun.append(asked)
        told.wait(patient(20))
        return listen(ask, **asked)

    monkeypatch.setattr(streams, "listen", slow)
    head = f"GET {API}/events?after=6605450c1e2d0.0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {door.secret}\r\n\r\n"
    with ExitStack() as open_:
        open_.callback(told.set)
        for _ in range(60):
            open_.enter_context(socket.create_connection(("127.0.0.1", door.port))).sendall(head.encode())
        eventually(lambda: begun)
        asking = open_.enter_context(closing(http.client.HTTPConnection("127.0.0.1", door.port, timeout=patient(5))))
        for _ in range(20):
            asking.request("GET", f"{API}/ready")
            assert asking.getresponse().read() == b'{"status":"ok","overdue":0}'
        assert len(begun) == 1


def test_an_id_that_is_too_old_gives_a_gap(door):
    ear = door.listen("/events?type=job.created", **{"Last-Event-ID": "1.1"})
    assert "too far back" in ear.until("gap").data["reason"]


@pytest.mark.parametrize("after", ["x", "1", "1.", "zz.1", "1.1.1", "-1.1", "9" * 40, "1.1%00"])
def test_an_id_that_was_never_given_out_is_refused(door, after):
    answer = door.listen(f"/events?after={after}").answer
    assert answer.status == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_stream_of_one_job_tells_how_it_stands_its_progress_and_its_end(door, tmp_path):
    go = tmp_path / "go"

    @door.rota.job
    def slow(ctx) -> None:
        ctx.progress(40, "nearly half")
        eventually(go.exists)

    job = door.rota.enqueue("slow")
    door.rota.enqueue("echo")
    ear = door.listen(f"/jobs/{job.number}/events")
    assert ear.next().type == "job.created"
    with door.rota.running():
        told = ear.until("job.progress").data["job"]
        assert (told["progress"], told["message"]) == (40, "nearly half")
        late = door.listen(f"/jobs/{job.id}/events")
        assert late.until("job.progress").data["job"]["progress"] == 40
        go.touch()
        rest = ear.rest()
    assert [told.type for told in rest[-2:]] == ["job.ended", "over"]
    assert {told.data["job"]["id"] for told in rest[:-1]} == {job.id}
    assert door.listen(f"/jobs/{job.id}/events", **{"Last-Event-ID": rest[-1].id}).answer.status == 204


def test_a_chain_is_told_through_its_attempts(door):
    tries = []

    @door.rota.job(max_retries=2)
    def fails_once() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")

    job = door.rota.enqueue("fails_once")
    ear = door.listen(f"/jobs/{job.id}/events")
    with door.rota.running():
        ended = [(told.data["job"]["attempt"], told.data["job"]["status"]) for told in ear.rest() if told.type == "job.ended"]
    assert ended == [(1, "FAILED"), (2, "COMPLETED")]


def test_a_job_that_has_ended_is_told_and_the_stream_is_over(door):
    job = door.rota.enqueue("echo")
    with door.rota.running():
        door.rota.wait(job.id)
    assert [told.type for told in door.listen(f"/jobs/{job.id}/events").rest()] == ["job.created", "job.started", "job.ended", "over"]
    assert door.listen("/jobs/JOB-2026-99999/events").answer.status == 404


def test_a_log_can_be_followed_while_it_grows(door, tmp_path):
    go = tmp_path / "go"

    @door.rota.job
    def talks(ctx) -> None:
        ctx.log.info("<b>first</b>")
        eventually(go.exists)
        ctx.log.info("second")

    job = door.rota.enqueue("talks")
    ear = door.listen(f"/jobs/{job.id}/log?follow=true")
    with door.rota.running():
        assert "<b>first</b>" in ear.until("log").data["text"]
        go.touch()
        rest = ear.rest()
    assert [told.type for told in rest] == ["log", "over"]
    assert rest[0].data["text"].count("\n") == 1
    assert "second" in rest[0].data["text"]
    assert door.listen(f"/jobs/{job.id}/log?follow=true", **{"Last-Event-ID": rest[-1].id}).answer.status == 204


def test_an_idle_stream_shows_that_it_lives_and_where_to_go_on(door):
    ear = door.listen("/events?type=gap")
    door.rota.enqueue("echo")
    eventually(lambda: _read_line(ear).startswith(": still here"))
    assert _read_line(ear).startswith("id: ")


def _read_line(ear):
    return ear.answer.readline().decode()


def test_a_token_that_is_revoked_ends_its_streams(door):
    made = door.rota.tokens.create("short")
    ear = door.listen(secret=made.secret)
    ear.until("counts")
    door.rota.tokens.revoke(made.token.id)
    ear.rest()
    assert ear.ended
    assert "this token opens nothing here" in ear.comments[-1]


def test_a_user_whose_organization_is_removed_hears_nothing_more(door):
    door.rota.organizations.create("acme")
    door.rota.users.create("root", role=Role.MANAGER)
    door.rota.users.create("ada", organization="acme", role=Role.ADMIN)
    ear = door.listen(secret=door.rota.tokens.create("ada's", user="ada").secret)
    ear.until("counts")
    door.rota.acting_as("root").organizations.delete("acme")
    ear.rest()
    assert ear.ended


def test_a_token_that_may_not_read_hears_nothing(door):
    made = door.rota.tokens.create("submits", permits=("submit",))
    assert door.listen(secret=made.secret).answer.status == 403
    assert door.listen(secret="rota_" + "0" * 64).answer.status == 401


def test_nobody_hears_of_jobs_of_others(door):
    rota = door.rota
    for name in ("acme", "beta"):
        rota.organizations.create(name)
    rota.users.create("root", role=Role.MANAGER)
    for name, organization, role in (("ada", "acme", "admin"), ("bob", "acme", "user"), ("eve", "beta", "admin")):
        rota.users.create(name, organization=organization, role=role)
    ears = {name: door.listen(secret=rota.tokens.create(name, user=name).secret) for name in ("root", "ada", "bob", "eve")}
    mine = {name: rota.acting_as(name).enqueue("echo").id for name in ("ada", "bob", "eve")}
    rota.acting_as("root").organizations.pause("beta")
    with rota.running():
        rota.wait(mine["bob"])
        rota.wait(mine["ada"])
    last = rota.acting_as("ada").schedule("acme's own", "echo", every=60)
    heard = {"root": {"ada", "bob", "eve"}, "ada": {"ada", "bob"}, "bob": {"bob"}, "eve": {"eve"}}
    marks = {name: rota.acting_as(name).enqueue("echo").id for name in ("ada", "bob", "eve")}
    for name, ear in ears.items():
        wanted = {marks[each] for each in heard[name]}
        told = []
        while not wanted <= {each.data["job"]["id"] for each in told if each.type == "job.created"}:
            told.append(ear.next())
        jobs = {each.data["job"]["id"] for each in told if each.type.startswith("job.")}
        assert jobs == {mine[each] for each in heard[name]} | wanted
        named = [each.data.get("name") for each in told if each.type == "definitions"]
        assert (last.name in named) is (name in {"root", "ada"})
        assert ("beta" in named) is (name in {"root", "eve"})
        if name == "bob":
            assert not [each for each in told if each.type == "counts"]
        if name == "eve":
            assert all(each.data["counts"]["COMPLETED"] == 0 for each in told if each.type == "counts")


def test_streams_end_with_the_server_and_within_its_grace(live):
    with served(live) as door:
        ears = [door.listen() for _ in range(5)]
        for ear in ears:
            ear.until("counts")
        begun = time.monotonic()
        door.server.stop(grace_s=5.0)
        assert time.monotonic() - begun < patient(3)
        for ear in ears:
            ear.rest()
            assert "going away" in ear.comments[-1]


def test_more_streams_than_are_allowed_are_refused_and_one_that_was_closed_makes_room(tmp_path):
    rota = Rota(tmp_path / "rota.db", settings=Settings(events_streams=2, events_beat=0.2))
    with served(rota) as door:
        ears = [door.listen() for _ in range(2)]
        for ear in ears:
            ear.until("counts")
        refused = door.listen().answer
        assert (refused.status, json.loads(refused.read())["code"]) == (429, "too_many_listeners")
        assert refused.headers["retry-after"]
        ears[0].close()
        eventually(lambda: rota._session.feed.listening == 1)
        assert door.listen().answer.status == 200
    rota.close()


def test_a_client_who_does_not_read_is_cut_off_and_holds_nobody_up(tmp_path):
    rota = Rota(tmp_path / "rota.db", settings=Settings(synchronous="NORMAL", events_max=100_000, events_buffer=100))
    rota.job(name="n" * 200)(lambda: None)
    with served(rota, room=4096) as door:
        deaf, other = door.listen(room=4096), door.listen("/events?type=definitions")
        deaf.until("counts")
        listener = next(each for view, channel in rota._session.feed._channels.items() if not view.types for each in channel.listeners)
        while listener.over is None:
            rota.enqueue_many([("n" * 200, {})] * 1000)
        rota.store.pause()
        while other.until("definitions").data.get("action") != "pause":
            pass
        deaf.rest()
        assert "too slow" in deaf.comments[-1]
    rota.close()


def test_a_client_who_never_reads_again_is_let_go(tmp_path):
    rota = Rota(tmp_path / "rota.db", settings=Settings(synchronous="NORMAL", events_max=100_000, http_patience=1))
    rota.job(name="n" * 200)(lambda: None)
    with served(rota, room=4096) as door:
        door.listen(room=4096).until("counts")
        while rota._session.feed.listening:
            rota.enqueue_many([("n" * 200, {})] * 200)
            time.sleep(0.05)
    rota.close()


WORKER = """
import sys
from rota import Rota
rota = Rota(sys.argv[1])
@rota.job
def echo():
    pass
@rota.job
def another():
    return rota.enqueue("echo").id
rota.run()
"""


def test_what_other_processes_commit_is_told_within_a_second(url):
    rota = Rota(url)
    for name in ("echo", "another"):
        rota.job(name=name)(lambda: None)
    with subprocess.Popen([sys.executable, "-c", WORKER, url]) as worker, served(rota) as door:
        ear = door.listen("/events?type=job.created&type=job.ended")
        eventually(rota.workers.list, within=20)
        for _ in range(3):
            job = rota.enqueue("another")
            told = [ear.until("job.ended") for _ in range(2)]
            seen_at = rota.now
            ids = {job.id, run_of(rota, job.id).result}
            assert {each.data["job"]["id"] for each in told} == ids
            assert all((seen_at - rota.jobs.get(each).finished_at).total_seconds() < 1.0 for each in ids)
        worker.terminate()
    rota.close()
