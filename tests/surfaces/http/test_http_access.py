"""What stands before every route: keys, names, bounds and headers (L)."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.admission import Admission
from rota.errors import TooManyAttempts, Unauthenticated
from rota.surfaces.http import access, make_app, middleware
from rota.surfaces.http.access import COOKIE, CSRF_HEADER, Throttle
from rota.surfaces.http.api import jobs
from rota.surfaces.http.api.requests import BadRequest, read
from rota.surfaces.http.middleware import HEADERS, Body, Hosts
from tests.support.pace import patient

ASK = "/api/v1/ask"


def app_of(rota, **options):
    """Return an app with a route that says who asks, one that fails, and one that reads a body."""
    app = make_app(rota, **options)

    def ask(request: Request) -> Response:
        return JSONResponse({"name": request.app.state.door.who(request).name})

    def fail(_request: Request) -> Response:
        raise ZeroDivisionError("the secret of the house")

    async def count(request: Request) -> Response:
        return JSONResponse({"bytes": len(await request.body())})

    def own(_request: Request) -> Response:
        return Response("x", headers={"Cache-Control": "max-age=60"})

    app.router.routes += [
        Route("/api/v1/ask", ask, methods=["GET", "POST"]),
        Route("/api/v1/fail", fail),
        Route("/api/v1/count", count, methods=["POST"]),
        Route("/api/v1/own", own),
    ]
    return app


@pytest.fixture
def client(rota):
    with TestClient(app_of(rota)) as made:
        yield made


@pytest.fixture
def secret(rota):
    return rota.tokens.create("x").secret


def bearer(secret, scheme="Bearer"):
    return {"Authorization": f"{scheme} {secret}"}


# ---- who ------------------------------------------------------------------------------------------------------------


def test_a_token_lets_a_program_in(client, secret):
    assert client.get(ASK, headers=bearer(secret)).json() == {"name": "local"}
    assert client.get(ASK, headers=bearer(secret, "bEARER")).json() == {"name": "local"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": b"Bearer \xff\xfe"},
        bearer("rota_" + "0" * 64),
        bearer("x", "Basic"),
    ],
)
def test_without_a_token_that_is_open_nobody_comes_in(client, headers):
    answer = client.get(ASK, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="rota"'


def test_a_session_lets_a_browser_look(client, rota, secret):
    client.cookies.set(COOKIE, Admission(rota).open_session(secret).secret)
    assert client.get(ASK).json() == {"name": "local"}


def test_a_session_changes_something_only_from_a_page_of_ours(client, rota, secret):
    session, other = Admission(rota).open_session(secret), Admission(rota).open_session(secret)
    client.cookies.set(COOKIE, session.secret)
    for wrong in ({}, {CSRF_HEADER: ""}, {CSRF_HEADER: "x"}, {CSRF_HEADER: other.csrf}):
        assert client.post(ASK, headers=wrong).status_code == 403
    assert client.post(ASK, headers={CSRF_HEADER: session.csrf}).json() == {"name": "local"}


def test_a_token_needs_no_word_of_a_form(client, secret):
    assert client.post(ASK, headers=bearer(secret)).json() == {"name": "local"}


def test_an_old_cookie_does_not_stand_in_the_way_of_a_token(client, secret):
    client.cookies.set(COOKIE, "old")
    assert client.get(ASK).status_code == 401
    assert client.get(ASK, headers=bearer(secret)).status_code == 200


def test_a_session_is_not_asked_where_a_token_should_be(client, rota, secret):
    session = Admission(rota).open_session(secret).secret
    client.cookies.set(COOKIE, session)
    assert client.get(ASK, headers={"Authorization": " "}).status_code == 200
    for header in ("Bearer", "Bearer ", "Basic", "x"):
        assert client.get(ASK, headers={"Authorization": header}).status_code == 401, header


def test_of_requests_that_go_together_each_is_its_senders_own(rota, secret):
    session, app = Admission(rota).open_session(secret), make_app(rota)
    own = [(b"cookie", f"{COOKIE}={session.secret}".encode()), (CSRF_HEADER.encode(), session.csrf.encode())]
    asked = [
        (Request({"type": "http", "app": app, "method": "POST", "headers": [(b"authorization", b"Bearer"), *more]}), b'{"name": "x"}')
        for more in (own, [])
    ]
    assert [type(each) for each in jobs.create_together(asked)] == [Unauthenticated, Unauthenticated]


# ---- wrong tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [Settings(login_attempts=3, login_window=60)])
def test_who_comes_with_wrong_tokens_has_to_wait(client, secret):
    wrong = bearer("rota_" + "0" * 64)
    assert [client.get(ASK, headers=wrong).status_code for _ in range(5)] == [401, 401, 401, 429, 429]
    answer = client.get(ASK, headers=wrong)
    assert answer.json()["code"] == "too_many_attempts"
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert 0 < answer.json()["after_s"] <= 60
    # Others may come from the same address.
    assert client.get(ASK, headers=bearer(secret)).status_code == 200


@pytest.mark.parametrize("asked_by", ["bearer", "login"])
def test_a_right_token_logs_in_although_others_at_its_address_guess_wrong(client, rota, secret, asked_by):
    revoked = rota.tokens.create("gone")
    rota.tokens.revoke(revoked.token.id)
    guesses = ["rota_" + "0" * 64, "nonsense", revoked.secret]

    def attempt(guess):
        return client.get(ASK, headers=bearer(guess)) if asked_by == "bearer" else client.post("/login", data={"token": guess})

    for _ in range(6):
        for guess in guesses:
            attempt(guess)
    throttled = [attempt(guess) for guess in guesses]
    assert {answer.status_code for answer in throttled} == {429}
    # Whether such a token exists is not told: only how long to wait may differ, by the seconds between the requests.
    assert len({re.sub(r"[0-9]+(\.[0-9]+)?", "", answer.text) for answer in throttled}) == 1
    assert len({tuple(sorted(answer.headers)) for answer in throttled}) == 1
    assert client.get(ASK, headers=bearer(secret)).status_code == 200
    entered = client.post("/login", data={"token": secret}, follow_redirects=False)
    assert (entered.status_code, COOKIE in entered.cookies) == (303, True)
    # A success does not open the door for the guesses.
    assert {attempt(guess).status_code for guess in guesses} == {429}


@pytest.mark.parametrize("settings", [Settings(login_attempts=3)])
def test_an_old_cookie_is_no_attempt(client):
    client.cookies.set(COOKIE, "old")
    assert {client.get(ASK).status_code for _ in range(9)} == {401}


def test_a_wrong_token_counts_for_as_long_as_the_window(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(access.time, "monotonic", lambda: now[0])
    throttle = Throttle(2, 10)
    for now[0] in (1.0, 2.0):
        throttle.note("here")
    throttle.note("there")
    with pytest.raises(TooManyAttempts, match="wait 9 s"):
        throttle.note("here")
    now[0] = 12.0
    throttle.note("here")


def test_places_are_remembered_up_to_a_number(monkeypatch):
    monkeypatch.setattr(access, "PLACES_MAX", 3)
    throttle = Throttle(1, 60)
    for number in range(10):
        throttle.note(str(number))
    for number in (7, 8, 9):
        with pytest.raises(TooManyAttempts):
            throttle.note(str(number))
    throttle.note("6")
    assert len(throttle._wrong) == 3


# ---- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "ours"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:8420", True),
        ("[::1]:8420", True),
        ("::1", True),
        ("10.1.2.3:8420", True),
        ("localhost:8420", True),
        ("LocalHost", True),
        ("rota.localhost", True),
        ("jobs.example.org", True),
        ("Jobs.Example.ORG.:443", True),
        ("evil.example.org", False),
        ("jobs.example.org.evil.org", False),
        ("localhost.evil.org", False),
        ("127.0.0.1.evil.org:8420", False),
        ("evil:org:8420", False),
        ("", False),
        ("[", False),
        ("\xff", False),
    ],
)
def test_only_names_of_our_own_are_served(header, ours):
    assert Hosts(["", " jobs.example.org "]).holds(header) is ours


def test_a_star_lets_every_name_in():
    assert Hosts(["*"]).holds("evil.example.org")


def test_a_page_of_a_stranger_that_leads_here_is_refused(rota, secret):
    client = TestClient(app_of(rota, hosts=Hosts([])), base_url="http://evil.example.org:8420")
    answer = client.get(ASK, headers=bearer(secret))
    assert (answer.status_code, answer.json()["code"]) == (421, "wrong_host")
    assert "http_hosts" in answer.json()["detail"]
    assert TestClient(app_of(rota, hosts=Hosts([])), base_url="http://127.0.0.1").get(ASK, headers=bearer(secret)).status_code == 200


# ---- headers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/health", ASK, "/api/v1/nowhere", "/api/v1/fail", "/api/v1/openapi.json", "/nowhere"])
def test_every_answer_is_strict_with_browsers(client, path):
    answer = client.get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "server" not in answer.headers


def test_the_policy_lets_a_page_use_nothing_but_our_own():
    rules = dict(rule.split(" ", 1) for rule in middleware.POLICY.split("; "))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert {rules[name] for name in ("style-src", "script-src", "img-src", "connect-src", "form-action")} == {"'self'"}
    assert "unsafe" not in middleware.POLICY


def test_an_answer_may_say_how_long_it_can_be_kept(client):
    assert client.get("/api/v1/own").headers["Cache-Control"] == "max-age=60"


def test_a_surprise_is_logged_and_tells_nothing(client, caplog):
    answer = client.get("/api/v1/fail")
    assert (answer.status_code, answer.json()["code"]) == (500, "error")
    assert "the secret of the house" not in answer.text
    assert "the secret of the house" in caplog.text


# ---- bodies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [Settings(http_body_max=1024)])
@pytest.mark.parametrize("in_parts", [False, True])
def test_a_body_over_the_limit_is_refused_whether_it_says_so_or_not(client, in_parts):
    def body(size):
        return iter([b"x" * (size - 1), b"x"]) if in_parts else b"x" * size

    assert client.post("/api/v1/count", content=body(1024)).json() == {"bytes": 1024}
    answer = client.post("/api/v1/count", content=body(1025))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert "1,024 bytes" in answer.json()["detail"]


def test_an_object_of_many_names_is_looked_through_once():
    names = ",".join(f'"a{n}":0' for n in range(50_000))
    begun = time.perf_counter()
    with pytest.raises(BadRequest, match="'z' stands twice"):
        read(f'{{{names},"z":0,"z":0}}'.encode(), object)
    assert time.perf_counter() - begun < patient(5), "each name was compared with all others"


def test_of_a_stranger_no_more_than_a_little_is_read(client, secret):
    body, headers = b"[" * 100_000, {"Content-Type": "application/json"}
    for path in ("/jobs", "/jobs/bulk", "/jobs/cancel", "/users", "/groups", "/direct"):
        assert client.post(f"/api/v1{path}", content=body, headers=headers).status_code == 401, path
        # Who may come in is read to the end, and told what is wrong with it.
        assert client.post(f"/api/v1{path}", content=body, headers=headers | bearer(secret)).status_code in {400, 403, 422}, path


def test_the_body_of_a_stranger_is_not_held():
    read, refused = [], Unauthenticated("nobody")

    def admit(_request):
        raise refused

    async def app(_scope, receive, _send):
        while (message := await receive())["more_body"]:
            read.append(len(message["body"]))

    async def receive():
        return {"type": "http.request", "body": b"x" * 16_384, "more_body": True}

    async def story():
        await app(None, Body({"type": "http", "headers": []}, receive, most=2**30, patience_s=5, admit=admit).receive, None)

    with pytest.raises(Unauthenticated):
        asyncio.run(story())
    assert sum(read) == middleware.UNKNOWN_MAX


@pytest.mark.parametrize("length", ["-1", "9" * 400, "²", "1_0", ""])
def test_a_length_that_is_none_harms_nobody(client, length):
    assert client.post("/api/v1/count", content=b"x", headers={"Content-Length": length.encode()}).status_code < 500


def test_a_body_that_does_not_come_is_not_waited_for_and_what_comes_after_it_is():
    """Streams listen for their client's going, long after the body."""
    said = []

    async def app(_scope, receive, _send):
        said.append(await receive())
        said.append(await receive())

    async def never(_scope, receive, _send):
        await receive()

    async def story():
        parts = [{"type": "http.request", "body": b"x", "more_body": False}]

        async def receive():
            if parts:
                return parts.pop()
            await asyncio.sleep(0.1)
            return {"type": "http.disconnect"}

        scope = {"type": "http", "headers": []}
        await app(scope, Body(scope, receive, most=10, patience_s=0.01).receive, None)
        with pytest.raises(Exception, match="did not come within") as slow:
            await never(scope, Body(scope, receive, most=10, patience_s=0.01).receive, None)
        assert slow.value.status_code == 408

    asyncio.run(story())
    assert said[-1] == {"type": "http.disconnect"}


def test_one_app_serves_a_rota_that_somebody_else_closes(tmp_path):
    rota = Rota(tmp_path / "rota.db")
    with TestClient(make_app(rota)) as client:
        assert client.get("/api/v1/ready").status_code == 200
    assert rota.tokens.list() == []
    rota.close()
