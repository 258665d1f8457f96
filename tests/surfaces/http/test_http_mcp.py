"""MCP over HTTP, with the official client and a real server: the token decides who asks, and nothing hangs."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from mcp.shared.exceptions import MCPError

from rota import Rota
from rota.surfaces.http.serving import Address, Server
from rota.surfaces.mcp.tools import all_tools
from tests.support.pace import patient
from tests.surfaces.mcp_support import MODES, names, ok, refused, remote, run

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@contextmanager
def serving(rota: Rota) -> Iterator[Server]:
    server = Server(rota, Address("127.0.0.1", 0))
    server.start()
    try:
        yield server
    finally:
        server.stop(grace_s=1)


@pytest.fixture
def server(live: Rota) -> Iterator[Server]:
    @live.job
    def greet(name: str = "you") -> str:
        return f"Hello, {name}"

    live.users.create("root", role="system_manager")
    live.users.create("bob", role="user")
    with serving(live) as made:
        yield made


def token(rota: Rota, user: str | None = None, *permits: str) -> str:
    return rota.tokens.create("a token", user=user, permits=permits or ("read", "submit", "operate", "manage")).secret


def post(server: Server, body: object, **headers: str) -> tuple[int, dict[str, str], bytes]:
    return ask(server, "POST", json.dumps(body), **headers)


def ask(server: Server, method: str, body: str | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=patient(10))
    with closing(connection):
        connection.request(method, "/mcp", body, JSON | headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


# ---- who asks ---------------------------------------------------------------------------------------------------------


@MODES
def test_an_operators_token_has_every_tool(server, live, mode):
    async def story():
        async with remote(server.address.url, token(live), mode=mode) as client:
            assert client.server_info.name == "rota"
            return await names(client)

    assert run(story) == set(all_tools())


@MODES
def test_a_token_that_may_only_read_has_no_tool_that_writes(server, live, mode):
    async def story():
        async with remote(server.address.url, token(live, None, "read"), mode=mode) as client:
            assert "may not submit jobs" in await refused(client, "enqueue", name="greet")
            await ok(client, "overview")
            return await names(client)

    found = run(story)
    assert "jobs_list" in found
    assert all(all_tools()[name].operation.reads for name in found)


def test_a_users_token_has_the_tools_of_the_user(server, live):
    live.enqueue("greet")

    async def story():
        async with remote(server.address.url, token(live, "bob")) as client:
            found = await names(client)
            assert {"jobs_list", "enqueue", "jobs_cancel"} <= found
            assert not {"jobs_update", "tokens_create", "store_pause"} & found
            assert (await ok(client, "jobs_list"))["items"] == []  # the one there is somebody else's
            await ok(client, "enqueue", name="greet")
            return (await ok(client, "jobs_list"))["items"]

    (job,) = run(story)
    assert job["owner"] == "bob"


def test_two_clients_of_one_server_are_kept_apart(server, live):
    async def story():
        async with (
            remote(server.address.url, token(live)) as operator,
            remote(server.address.url, token(live, None, "read")) as reader,
        ):
            return await asyncio.gather(*(names(client) for client in (operator, reader, operator, reader)))

    first, second, third, fourth = run(story)
    assert first == third == set(all_tools())
    assert second == fourth < first


def test_a_token_that_is_revoked_opens_nothing_any_more(server, live):
    made = live.tokens.create("short", permits=["read"])

    async def story():
        async with remote(server.address.url, made.secret, mode="legacy") as client:
            await ok(client, "jobs_list")
            await asyncio.to_thread(live.tokens.revoke, made.token.id)
            with pytest.raises(MCPError):
                await client.call_tool("jobs_list", {})

    run(story)


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic cm9vdDpyb290"}, {"Cookie": "rota_session=nonsense"}],
    ids=["none", "wrong", "basic", "cookie"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_nobody_comes_in_without_a_token(server, method, headers):
    status, answered, body = ask(server, method, json.dumps(PING) if method == "POST" else None, **headers)
    assert status == 401
    assert answered["www-authenticate"] == 'Bearer realm="rota"'
    assert json.loads(body)["code"] == "unauthenticated"


def test_a_session_of_a_browser_must_show_that_its_own_page_asked(server, live):
    from rota.admission import Admission

    session = Admission(live).open_session(token(live))
    status, _, _ = post(server, PING, Cookie=f"rota_session={session.secret}")
    assert status == 403


# ---- the app's own rules ----------------------------------------------------------------------------------------------


def test_a_strangers_host_is_refused(server, live):
    status, _, body = post(server, PING, Authorization=f"Bearer {token(live)}", Host="evil.example")
    assert (status, json.loads(body)["code"]) == (421, "wrong_host")


def test_only_post_is_taken(server, live):
    for method in ("GET", "DELETE", "PUT"):
        status, headers, _ = ask(server, method, Authorization=f"Bearer {token(live)}")
        assert (status, headers["allow"]) == (405, "POST")


def test_an_answer_has_the_headers_of_the_app_and_is_kept_by_nobody(server, live):
    status, headers, body = post(server, PING, Authorization=f"Bearer {token(live)}")
    assert (status, json.loads(body)["result"]) == (200, {})
    assert headers["cache-control"] == "no-store"
    assert headers["content-type"] == "application/json"
    assert "x-request-id" in headers
    assert "mcp-session-id" not in headers


@pytest.mark.parametrize("body", ["", "{", "[]", '{"jsonrpc": "2.0"}', "\x00"])
def test_a_body_that_is_no_message_is_refused(server, live, body):
    status, _, _ = ask(server, "POST", body, Authorization=f"Bearer {token(live)}")
    assert status == 400


def test_without_the_package_the_answer_names_the_extra(server, live, monkeypatch):
    monkeypatch.setattr("rota.surfaces.mcp.http.find_spec", lambda _name: None)
    status, _, body = post(server, PING, Authorization=f"Bearer {token(live)}")
    assert status == 501
    assert "pip install '.[mcp]'" in json.loads(body)["detail"]


# ---- calls ------------------------------------------------------------------------------------------------------------


@MODES
def test_a_read_a_write_and_an_error(server, live, mode):
    async def story():
        async with remote(server.address.url, token(live), mode=mode) as client:
            job = await ok(client, "enqueue", name="greet", params={"name": "Ada"})
            assert (await ok(client, "jobs_get", job=job["number"]))["params"] == {"name": "Ada"}
            assert "there is no job" in await refused(client, "jobs_get", job="999")
            assert "limit='ten'" in await refused(client, "jobs_list", limit="ten")
            return job

    assert live.jobs.get(run(story)["id"]).owner == "local"


def test_twenty_calls_at_once(server, live):
    async def story():
        async with remote(server.address.url, token(live)) as client:
            return await asyncio.gather(*(ok(client, "enqueue", name="greet", params={"name": str(number)}) for number in range(20)))

    assert {job["id"] for job in run(story)} == {job.id for job in live.jobs.list()}
    assert len(live.jobs.list()) == 20


@MODES
def test_a_client_that_cancels_or_goes_away_does_not_hang_the_server(server, live, monkeypatch, mode):
    from rota.resources.jobs import Jobs

    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(*_args, **_keywords):
        begun.release()
        go_on.wait(patient(20))
        return []

    monkeypatch.setattr(Jobs, "attempts", slow)
    secret = token(live)

    async def story():
        async with remote(server.address.url, secret, mode=mode) as client:
            for _ in range(3):
                waiting = asyncio.create_task(client.call_tool("jobs_attempts", {"job": "1"}))
                assert await asyncio.to_thread(begun.acquire, timeout=patient(10))
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await ok(client, "jobs_list")
        async with remote(server.address.url, secret, mode=mode) as other:
            await ok(other, "jobs_list")

    try:
        run(story)
    finally:
        go_on.set()
    assert post(server, PING, Authorization=f"Bearer {secret}")[0] == 200
