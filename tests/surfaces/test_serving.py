"""The server on real sockets: it starts or says why not, is patient with nobody, and stops in time."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

from rota import Rota, Settings
from rota.errors import InvalidOption, Refused
from rota.surfaces.http.serving import Address, Server
from tests.support.pace import patient
from tests.support.waiting import eventually

HEALTH = "/api/v1/health"


@contextmanager
def serving(rota: Rota, host: str = "127.0.0.1", root: str | None = None) -> Iterator[Server]:
    server = Server(rota, Address(host, 0), root)
    server.start()
    try:
        yield server
    finally:
        server.stop(grace_s=1)


def ask(server: Server, path: str = HEALTH, host: str = "127.0.0.1", **headers: str) -> tuple[int, dict]:
    connection = http.client.HTTPConnection(host, server.address.port, timeout=patient(10))
    with closing(connection):
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def raw(server: Server) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.address.port), timeout=patient(10))
    made.settimeout(10)
    return made


# ---- start ----------------------------------------------------------------------------------------------------------


def test_a_server_answers_when_it_has_started_and_not_when_it_has_stopped(live):
    with serving(live) as server:
        assert server.running
        assert ask(server) == (200, {"status": "ok"})
        assert server.address.url == f"http://127.0.0.1:{server.address.port}"
    assert not server.running
    with pytest.raises(ConnectionRefusedError):
        ask(server)


@pytest.mark.parametrize("prefix", ["", "/rota"], ids=["the proxy removes the path", "the proxy leaves it"])
def test_a_server_below_a_path_takes_requests_with_the_path_and_without(live, prefix):
    token = live.tokens.create("browser", permits=["manage"]).secret
    with serving(live, root="/rota/") as server:
        assert server.url == f"{server.address.url}/rota"
        assert ask(server, f"{prefix}{HEALTH}") == (200, {"status": "ok"})
        browser = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=patient(10))
        with closing(browser):
            browser.request("POST", f"{prefix}/login", f"token={token}", {"content-type": "application/x-www-form-urlencoded"})
            entered = browser.getresponse()
            entered.read()
            cookie = entered.headers["set-cookie"]
            assert (entered.status, entered.headers["location"], "Path=/rota;" in cookie) == (303, "/rota/", True)
            browser.request("GET", f"{prefix}/jobs", headers={"accept": "text/html", "cookie": cookie.partition(";")[0]})
            jobs = browser.getresponse()
            page = jobs.read().decode()
    assert jobs.status == 200
    assert 'href="/rota/jobs"' in page
    assert 'src="/rota/static/' in page


@pytest.mark.parametrize("root", ["rota", "/a b", "/rota?x", "//rota", "https://example.org/rota"])
def test_a_root_path_that_is_no_path_is_refused(live, root):
    with closing(Address("127.0.0.1", 0)) as address, pytest.raises(InvalidOption, match="is not a path: use for example /rota"):
        Server(live, address, root)
    with pytest.raises(InvalidOption, match="setting http_root_path"):
        Settings(http_root_path=root)


def test_a_server_can_be_followed_by_another_on_the_same_port_at_once(live):
    with serving(live) as server:
        ask(server)
        port = server.address.port
    Address("127.0.0.1", port).close()


def test_a_port_in_use_is_named_with_what_to_do():
    taken = Address("127.0.0.1", 0)
    with pytest.raises(Refused, match=rf"127\.0\.0\.1:{taken.port} is in use .* --port or \$ROTA_HTTP_PORT"):
        Address("127.0.0.1", taken.port)
    taken.close()


@pytest.mark.parametrize(("host", "error"), [("no.such.name.invalid", InvalidOption), ("192.0.2.1", Refused), ("\ud800", InvalidOption)])
def test_an_address_that_is_not_this_machines_is_refused(host, error):
    with pytest.raises(error, match="address"):
        Address(host, 0)


@pytest.mark.parametrize(("host", "local"), [("127.0.0.1", True), ("localhost", True), ("127.0.0.7", True), ("0.0.0.0", False)])
def test_whether_others_can_reach_an_address_is_asked_of_the_address_itself(host, local):
    address = Address(host, 0)
    assert address.local is local
    address.close()


def test_one_that_listens_everywhere_is_shown_as_a_browser_here_can_use_it():
    address = Address("0.0.0.0", 0)
    assert address.url == f"http://127.0.0.1:{address.port}"
    address.close()


def test_what_keeps_the_app_from_starting_is_said(live, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("no loop today")

    server = Server(live, Address("127.0.0.1", 0))
    monkeypatch.setattr(server._server, "run", fails)
    with pytest.raises(Refused, match="no loop today"):
        server.start()


# ---- who asks, and under which name -----------------------------------------------------------------------------------


def test_only_its_own_names_are_answered(live):
    with serving(live) as server:
        assert ask(server, Host="localhost:1")[0] == 200
        assert ask(server, Host="evil.example.org")[0] == 421


@pytest.mark.parametrize("settings", [Settings(http_hosts="jobs.example.org, rota.example.org")])
def test_further_names_are_a_setting(live):
    with serving(live) as server:
        assert ask(server, Host="rota.example.org")[0] == 200
        assert ask(server, Host="evil.example.org")[0] == 421


@pytest.mark.parametrize(
    ("settings", "believed"),
    [(Settings(), False), (Settings(http_proxies="10.0.0.0/8"), False), (Settings(http_proxies="127.0.0.1,10.0.0.0/8"), True)],
    ids=["nobody's", "another's", "this one's"],
)
def test_what_a_proxy_says_is_believed_only_of_a_proxy_that_is_named(live, believed):
    with serving(live) as server:

        def seen(request: Request) -> JSONResponse:
            return JSONResponse({"client": request.client.host, "scheme": request.url.scheme})

        server._app.add_route("/seen", seen)
        said = ask(server, "/seen", X_Forwarded_For="203.0.113.9", X_Forwarded_Proto="https")[1]
    assert said == ({"client": "203.0.113.9", "scheme": "https"} if believed else {"client": "127.0.0.1", "scheme": "http"})


# ---- slow clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [Settings(http_patience=1)])
@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nX: ", b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"],
    ids=["nothing", "half a head", "a second one"],
)
def test_a_client_that_does_not_finish_its_request_is_cut_off(live, begun):
    with serving(live) as server, raw(server) as slow:
        start = time.monotonic()
        slow.sendall(begun)
        while slow.recv(65536):
            pass
        assert 0.5 < time.monotonic() - start < patient(9)


@pytest.mark.parametrize("settings", [Settings(http_patience=1)])
def test_a_body_that_trickles_is_answered_before_it_is_whole(live):
    secret = live.tokens.create("x", permits=["manage"]).secret
    with serving(live) as server, raw(server) as slow:
        slow.sendall(
            f"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{".encode()
        )
        assert slow.recv(65536).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("settings", [Settings(http_connections=3)])
def test_beyond_so_many_connections_others_are_told_to_come_back(live):
    with serving(live) as server:
        held = [raw(server) for _ in range(3)]
        connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=patient(10))
        with closing(connection):
            connection.request("GET", HEALTH)
            assert connection.getresponse().status == 503
        for each in held:
            each.close()
        eventually(lambda: ask_or_none(server) == 200)


def ask_or_none(server: Server) -> int | None:
    try:
        return ask(server)[0]
    except ValueError:
        return None


# ---- stop -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["idle", "half a request", "a stream that does not listen"])
def test_a_server_stops_in_time_whoever_is_still_there(live, kind):
    server = Server(live, Address("127.0.0.1", 0))

    async def endless(_request: Request) -> StreamingResponse:
        import asyncio

        async def drops():
            while True:
                yield b"x\n"
                await asyncio.sleep(0.05)

        return StreamingResponse(drops())

    server._app.add_route("/endless", endless)
    server.start()
    with raw(server) as client:
        if kind == "idle":
            client.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(65536)
        elif kind == "half a request":
            client.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost")
        else:
            client.sendall(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(65536)
        start = time.monotonic()
        server.stop(grace_s=1)
        assert time.monotonic() - start < patient(3)
        assert not server.running


def test_a_request_that_is_under_way_is_answered_before_the_server_is_gone(live):
    server, inside, go = Server(live, Address("127.0.0.1", 0)), threading.Event(), threading.Event()

    def slow(_request: Request) -> JSONResponse:
        inside.set()
        go.wait(patient(10))
        return JSONResponse({"status": "done"})

    server._app.add_route("/slow", slow)
    server.start()
    said = []
    asking = threading.Thread(target=lambda: said.append(ask(server, "/slow")))
    asking.start()
    assert inside.wait(patient(10))
    stopping = threading.Thread(target=server.stop, kwargs={"grace_s": 10})
    stopping.start()
    assert server._app.state.closing.wait(patient(10))
    go.set()
    stopping.join()
    asking.join()
    assert said == [(200, {"status": "done"})]


@pytest.mark.parametrize("kind", ["its own thread", "the server's"])
def test_a_request_that_never_ends_is_left_behind(live, caplog, kind):
    server, inside, go = Server(live, Address("127.0.0.1", 0)), threading.Event(), threading.Event()

    def stuck(_request: Request) -> JSONResponse:
        inside.set()
        go.wait(patient(30))
        return JSONResponse({})

    async def worse(request: Request) -> JSONResponse:
        return stuck(request)

    server._app.add_route("/stuck", stuck if kind == "its own thread" else worse)
    server.start()
    with raw(server) as client:
        client.sendall(b"GET /stuck HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert inside.wait(patient(10))
        start = time.monotonic()
        server.stop(grace_s=0.5)
        assert time.monotonic() - start < patient(5)
    assert ("left behind" in caplog.text) is (kind == "the server's")
    assert "Traceback" not in caplog.text
    go.set()
    server._thread.join(patient(10))
    assert not server.running


# ---- what it costs those who don't need it ----------------------------------------------------------------------------


def test_the_server_is_imported_only_when_it_is_needed():
    look = "import sys, rota, rota.surfaces.cli.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=patient(30), check=True)
    assert {"starlette", "uvicorn", "jinja2", "httpx2"}.isdisjoint(done.stdout.split())
