"""Jobs without a template on the command line, over HTTP and on the dashboard, and their workers as processes that are killed."""

from __future__ import annotations

import signal
import sys
from contextlib import closing

import pytest
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.surfaces.http import make_app
from tests.support.runs import run_of
from tests.support.waiting import eventually
from tests.surfaces.cli_support import Cli
from tests.surfaces.http.api_support import Callers, code_of
from tests.surfaces.http.pages_support import Browser

LOBBY = """
import pathlib
import time

def hello(name: str = "you") -> str:
    return f"Hello, {name}"

def first_hangs(folder: str) -> str:
    begun = pathlib.Path(folder, "begun")
    if not begun.exists():
        begun.write_text("")
        time.sleep(3600)
    return "the second time"
"""


@pytest.fixture
def lobby(tmp_path, monkeypatch):
    (tmp_path / "lobby.py").write_text(LOBBY)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("lobby", None)
    yield tmp_path
    sys.modules.pop("lobby", None)


@pytest.fixture
def cli(lobby, monkeypatch):
    monkeypatch.chdir(lobby)
    made = Cli(lobby)
    made.env["ROTA_HANDLER_MODULES"] = "lobby"
    monkeypatch.setenv("PYTHONPATH", str(lobby))
    yield made
    made.close()
    sys.modules.pop("shop", None)


def test_the_command_line_enqueues_one_and_says_what_is_wrong(cli):
    cli.ok("template", "list", "--app", "shop:rota")
    job = cli.json("enqueue", "--handler", "lobby:hello", "-p", "name=Ada", "--priority", "high")
    assert (job["job_type"], job["template_id"], job["priority"]) == ("lobby:hello", None, 75)
    assert cli.json("enqueue", "--handler", "lobby:hello", "--job-type", "greeting")["job_type"] == "greeting"
    assert "none: it names its handler" in cli.ok("job", "get", job["id"])
    for words, code in (
        (["--handler", "lobby:nope"], "(invalid_handler)"),
        (["--handler", "os:getpid"], "(invalid_handler)"),
        (["--handler", "lobby"], "(invalid_option)"),
        (["greet", "--handler", "lobby:hello"], "one of the two"),
        ([], "one of the two"),
    ):
        refused = cli("enqueue", *words)
        assert (refused.exit_code != 0, code in refused.stderr) == (True, True), (words, refused.stderr)
    cli.ok("user", "create", "root", "--role", "system_manager")
    cli.ok("user", "create", "ada", "--role", "admin", "--as", "root")
    denied = cli("enqueue", "--handler", "lobby:hello", "--as", "ada")
    assert (denied.exit_code, "(permission_denied)" in denied.stderr) == (1, True)


@pytest.mark.paired
def test_a_worker_that_is_killed_leaves_it_to_another_that_may_import_it(cli, lobby):
    cli.ok("template", "list", "--app", "shop:rota")
    job = cli.json("enqueue", "--handler", "lobby:first_hangs", "-p", f"folder={lobby}")
    culprit = cli.start("worker", "--app", "shop:rota")
    eventually((lobby / "begun").exists, within=40, what="the handler has begun")
    culprit.send_signal(signal.SIGKILL)
    culprit.wait()
    cli.start("worker", "--app", "shop:rota")
    with closing(Rota(cli.store)) as rota:
        eventually(lambda: rota.jobs.attempts(job["id"])[-1].status == "COMPLETED", within=60, what="another worker has run it")
        chain = rota.jobs.attempts(job["id"])
        assert [str(each.status) for each in chain] == ["FAILED", "COMPLETED"]
        assert {each.template_id for each in chain} == {None}
        assert run_of(rota, chain[-1].id).result == "the second time"


@pytest.fixture
def callers(shared: Rota, lobby):
    shared.settings = Settings(handler_modules="lobby")
    with TestClient(make_app(shared)) as client:
        yield Callers(shared, client)


def test_http_takes_one_from_who_may_manage_templates(callers):
    made = callers.manager.post("/jobs", {"handler": "lobby:hello", "params": {"name": "Ada"}, "organization": "acme"})
    assert (made.status_code, made.json()["job_type"], made.json()["template_id"]) == (201, "lobby:hello", None)
    assert callers.manager.post("/jobs", {"handler": "lobby:hello", "job_type": "greeting"}).json()["job_type"] == "greeting"
    assert callers.admin.get(f"/jobs/{made.json()['id']}").status_code == 200
    for caller in (callers.admin, callers.user, callers.of("root", "submit")):
        refused = caller.post("/jobs", {"handler": "lobby:hello"})
        assert (refused.status_code, code_of(refused)) == (403, "permission_denied")
    for body, code in (
        ({"handler": "os:getpid"}, "invalid_handler"),
        ({"handler": "lobby:nope"}, "invalid_handler"),
        ({"handler": "lobby"}, "invalid_option"),
        ({"handler": "lobby:hello", "name": "echo"}, "invalid_option"),
        ({"job_type": "x"}, "invalid_option"),
        ({}, "invalid_option"),
        ({"handler": "lobby:hello", "params": {"nmae": 1}}, "invalid_params"),
    ):
        refused = callers.manager.post("/jobs", body)
        assert (refused.status_code, code_of(refused)) == (422, code), body


def test_http_makes_one_once_for_a_key(callers):
    body = {"handler": "lobby:hello"}
    first, again = (callers.manager("POST", "/jobs", body, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, again.status_code, first.json()["id"]) == (201, 200, again.json()["id"])


def test_the_dashboard_lists_and_shows_it(callers):
    callers.rota.job(lambda: None, name="plain")
    job, plain = callers.rota.enqueue(handler="lobby:hello"), callers.rota.enqueue("plain")
    secret = callers.rota.tokens.create("page", user="root", permits=("read", "submit", "operate", "manage")).secret
    root = Browser(callers.client, secret)
    for path in ("/jobs", "/queue", "/"):
        assert "lobby:hello" in root.get(path).text
    assert "<dt>Template</dt><dd>–</dd>" in root.get(f"/jobs/{job.id}").text
    assert '<dt>Template</dt><dd><a href="/templates/one?name=plain">plain</a></dd>' in root.get(f"/jobs/{plain.id}").text
    assert "lobby:hello" not in root.get("/templates").text


@pytest.mark.parametrize("name", [None, "greeting"])
def test_one_is_enqueued_again_by_the_handler_that_its_type_has(lobby, name):
    with closing(Rota(lobby / "rota.db", settings=Settings(handler_modules="lobby"))) as rota:
        first = rota.enqueue(handler="lobby:hello", job_type=name)
        rota.turn()
        again = rota.jobs.again(first, name="Ada")
        rota.turn()
        assert (again.template_id, again.job_type) == (None, name or "lobby:hello")
        assert run_of(rota, again.id).result == "Hello, Ada"
