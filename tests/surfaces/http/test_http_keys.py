"""Answers that stay open end with the key that opened them, wherever it ended; a real server, real processes."""

import asyncio
import http.client
import json
import logging
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from rota import Context, Rota, Settings
from rota.admission import Admission
from rota.model.gate import LOCAL
from rota.surfaces.http import streams
from rota.surfaces.http.access import COOKIE
from tests.support.launch import run, store_of
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.waiting import eventually
from tests.surfaces.http.api_support import API
from tests.surfaces.http.sse_support import served

ELSEWHERE = Path(__file__).with_name("elsewhere.py")
WITHIN_S = 1.0
"""What is promised; a busy machine is given more, and no stream here has anything else to end or to speak for."""


@pytest.fixture
def door(url):
    with closing(Rota(url, settings=Settings(synchronous="NORMAL", login_attempts=1))) as rota:

        @rota.job
        def echo(text: str = "") -> str:
            return text

        @rota.job
        def slow(ctx: Context) -> None:
            while not ctx.cancelled:
                time.sleep(0.05)

        rota.users.create("root", role="system_manager")
        rota.users.create("bob", role="admin")
        with served(rota) as made:
            yield made


def elsewhere(url, verb, subject):
    """Do something in another process, and return when it is done."""
    done = run(ELSEWHERE, url, verb, subject, timeout=patient(60), imports=(store_of(url),))
    assert done.returncode == 0, done.stderr


def held_by(door):
    """Return the answers that are open in a server, once it has had any."""
    state = door.server._app.state
    return list(state.streams._held) if hasattr(state, "streams") else []


def wait_for_end(ear, since):
    """Read to the end of a stream, which comes soon and with its reason."""
    ear.rest()
    assert ear.ended
    assert time.monotonic() - since < patient(3 * WITHIN_S)
    assert "this token opens nothing here" in ear.comments[-1]


def test_a_check_and_the_last_words_of_a_stream_fit_into_a_second():
    assert streams.CHECK_S + streams.LAST_S < WITHIN_S


@pytest.mark.parametrize("ending", ["token revoked", "token expired", "user removed", "session closed"])
@pytest.mark.paired
def test_a_stream_ends_with_its_key_in_whichever_process_that_ended(door, url, ending, caplog):
    rota = door.rota
    expires_in = timedelta(seconds=patient(3)) if ending == "token expired" else None
    key = rota.tokens.create("short", user="bob", expires_in=expires_in)
    headers = {}
    if ending == "session closed":
        session = Admission(rota).open_session(key.secret).secret
        headers = {"Authorization": "", "Cookie": f"{COOKIE}={session}"}
    job = rota.acting_as("bob").enqueue("echo")
    ears = [door.listen(path, key.secret, **headers) for path in ("/events", f"/jobs/{job.id}/events", f"/jobs/{job.id}/log?follow=true")]
    stays = door.listen()
    assert {ear.answer.status for ear in ears} == {200}
    match ending:
        case "token revoked":
            elsewhere(url, "revoke", key.token.id)
        case "user removed":
            elsewhere(url, "remove", "bob")
        case "session closed":
            elsewhere(url, "close", session)
        case "token expired":
            time.sleep(max(0.0, (key.token.expires_at - rota.now).total_seconds()))
    since = time.monotonic()
    for ear in ears:
        wait_for_end(ear, since)
    # Others hear on, and nothing of it was a wrong token or an error.
    rota.enqueue("echo")
    assert stays.until("job.created")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info]
    assert door.listen(secret="rota_" + "0" * 64).answer.status == 401


@pytest.mark.paired
def test_a_stream_whose_client_does_not_read_ends_with_its_key_all_the_same(tmp_path):
    with closing(Rota(tmp_path / "rota.db", settings=Settings(synchronous="NORMAL"))) as rota:
        rota.job(name="echo")(lambda text="": text)
        with served(rota, room=4096) as door:
            key = rota.tokens.create("short")
            door.listen(secret=key.secret, room=4096)
            (held,) = eventually(lambda: held_by(door))
            for _ in range(20):
                rota.enqueue_many([("echo", {}) for _ in range(50)])
            rota.tokens.revoke(key.token.id)
            eventually(lambda: not held_by(door), within=3 * WITHIN_S)
            assert held.refused is not None


def test_a_stream_that_begins_while_keys_are_checked_is_not_judged_by_that_check(monkeypatch):
    monkeypatch.setattr(streams, "CHECK_S", 0.01)
    asked, begun, go, again = [], threading.Event(), threading.Event(), threading.Event()

    def still_admitted(keys):
        asked.append(set(keys))
        (begun if len(asked) == 1 else again).set()
        assert go.wait(patient(10))
        return dict.fromkeys(keys, LOCAL)

    async def story():
        door = SimpleNamespace(key=lambda request: request, admission=SimpleNamespace(still_admitted=still_admitted))
        watched = streams.Streams(door, threading.Event())
        with watched.holding(b"old", LOCAL, asyncio.Event()):
            assert await asyncio.to_thread(begun.wait, patient(10))
            with watched.holding(b"new", LOCAL, asyncio.Event()) as new:
                go.set()
                assert await asyncio.to_thread(again.wait, patient(10))
                assert new.refused is None

    asyncio.run(story())
    assert asked[:2] == [{b"old"}, {b"old", b"new"}]


@pytest.mark.prove
def test_keys_of_many_streams_are_checked_with_as_many_statements_as_one(door, maker, monkeypatch):
    statements = Counter()
    for verb in ("rows", "row", "value", "change"):
        monkeypatch.setattr(maker.db, verb, _counted(getattr(maker.db, verb), statements))
    checks = Counter()
    still_admitted = Admission.still_admitted

    def counted(admission, keys):
        before = statements.total()
        found = still_admitted(admission, keys)
        checks[len(keys), statements.total() - before] += 1
        return found

    monkeypatch.setattr(Admission, "still_admitted", counted)
    keys = [door.rota.tokens.create(f"key {place}", user="bob") for place in range(4)]
    ears = [door.listen("/events?type=job.ended", keys[0].secret)]
    eventually(lambda: sum(checks.values()) >= 2)
    secrets = [keys[place % len(keys)].secret for place in range(size(200, prove=900))]
    ears += [door.listen("/events?type=job.ended", secret) for secret in secrets]
    eventually(lambda: any(asked == len(keys) for asked, _ in checks), within=20)
    assert len({count for _, count in checks}) == 1, checks
    assert set(statements) == {"tokens_behind", "definitions_version"}
    since, before = time.monotonic(), sum(checks.values())
    eventually(lambda: sum(checks.values()) >= before + 3, within=20)
    # Never more often than the interval says, however many are open.
    assert sum(checks.values()) - before <= (time.monotonic() - since) / streams.CHECK_S + 1
    door.rota.tokens.revoke(keys[1].token.id)
    for place, ear in enumerate(ears[1:]):
        if place % len(keys) == 1:
            ear.rest()
            assert ear.ended


def _counted(method, statements):
    def run(self, name, /, **values):
        if threading.current_thread().name.startswith("asyncio_"):
            statements[name] += 1
        return method(self, name, **values)

    return run


@pytest.mark.paired
def test_a_direct_execution_is_waited_for_no_longer_than_its_key_is_open(door, url):
    key = door.rota.tokens.create("short", permits=["submit", "read"])
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=patient(20))
    with door.rota.running():
        connection.request(
            "POST",
            f"{API}/direct",
            json.dumps({"name": "slow"}),
            {"Authorization": f"Bearer {key.secret}", "Content-Type": "application/json"},
        )
        eventually(lambda: [job for job in door.rota.jobs.list() if job.started_at], within=20)
        elsewhere(url, "revoke", key.token.id)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["code"]) == (401, "unauthenticated")
        job = door.rota.jobs.list()[0]
        assert not job.status.ended
        door.rota.jobs.cancel(job.id)
    connection.close()


@pytest.mark.paired
def test_of_many_jobs_no_more_are_accepted_when_their_key_has_ended(door, url):
    key = door.rota.tokens.create("short", permits=["submit"])
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=patient(20))
    connection.putrequest("POST", f"{API}/jobs/bulk")
    for name, value in {
        "Authorization": f"Bearer {key.secret}",
        "Content-Type": "application/x-ndjson",
        "Transfer-Encoding": "chunked",
    }.items():
        connection.putheader(name, value)
    connection.endheaders()

    def send(lines):
        connection.send(b"%x\r\n%b\r\n" % (len(lines), lines))

    send(b'{"name": "echo"}\n' * 5)
    eventually(lambda: held_by(door))
    elsewhere(url, "revoke", key.token.id)
    # The answer comes although the body does not end.
    answer = connection.getresponse()
    told = json.loads(answer.read())
    assert (answer.status, told["code"], told["accepted"]) == (401, "unauthenticated", 5)
    connection.close()
