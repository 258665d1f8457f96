"""`rota serve`, `rota up` with its front door, and `rota token`, as people start and type them."""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import signal
from contextlib import closing
from datetime import UTC, datetime

import pytest

from rota import Rota
from rota.model.access import Permit, is_token
from rota.surfaces.cli.serving import opened
from rota.surfaces.cli.workers import Where
from rota.surfaces.http.serving import Address
from tests.support.pace import patient
from tests.support.receiver import receiving
from tests.support.waiting import eventually
from tests.surfaces.cli_support import Cli


@pytest.fixture
def cli(tmp_path):
    made = Cli(tmp_path)
    yield made
    made.close()


def ask(url: str, path: str, secret: str) -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=patient(10))
    connection.request("GET", path, headers={"Authorization": f"Bearer {secret}"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def until(process, words: str) -> str:
    """Read lines until one has these words; return it."""
    said = []
    for line in process.stdout:
        said.append(line)
        if words in line:
            return line
    raise AssertionError("".join(said))


def stop(process) -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=patient(20))
    return process.returncode


# ---- starting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["serve", "up"])
def test_the_first_start_prints_a_link_that_opens_the_door_once(cli, command):
    process = cli.start(command, "--port", "0")
    login = until(process, "/login#token=").strip()
    url, secret = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/login#token=(.+)", login).groups()
    assert is_token(secret)
    assert ask(url, "/api/v1/jobs", secret) == 200
    assert url in until(process, "dashboard at")
    assert stop(process) == 0

    again = cli.start(command, "--port", "0")
    assert "token" not in until(again, "dashboard at")
    assert stop(again) == 0


def test_json_has_the_address_and_the_token_in_one_line(cli):
    process = cli.start("serve", "--port", "0", "--json")
    said = json.loads(process.stdout.readline())
    assert said["login"] == f"{said['url']}/login#token={said['token']}"
    assert ask(said["url"], "/api/v1/jobs", said["token"]) == 200
    assert stop(process) == 0


def test_without_http_there_is_no_door_and_no_token(cli):
    process = cli.start("up", "--no-http")
    assert "worker" in until(process, "is up on")
    assert stop(process) == 0
    assert cli.lines("token", "list", "--revoked") == []


@pytest.mark.parametrize("command", ["serve", "up"])
def test_a_port_in_use_is_one_line_and_nothing_has_begun(cli, command):
    taken = Address("127.0.0.1", 0)
    result = cli(command, "--port", str(taken.port))
    assert result.exit_code == 1
    assert re.fullmatch(rf"error: 127\.0\.0\.1:{taken.port} is in use .*--port.* \(refused\)\n", result.stderr)
    assert not cli.store.exists()
    taken.close()


def test_an_address_that_others_can_reach_is_refused_until_there_are_users(cli):
    result = cli("serve", "--host", "0.0.0.0", "--port", "0")
    assert result.exit_code == 1
    assert "rota user create" in result.stderr
    assert "127.0.0.1" in result.stderr
    cli.ok("user", "create", "tester", "--role", "system_manager")
    process = cli.start("serve", "--host", "0.0.0.0", "--port", "0")
    assert "127.0.0.1" in until(process, "dashboard at")
    assert stop(process) == 0
    assert cli.lines("token", "list", "--revoked") == []


def test_who_may_not_operate_the_store_may_not_serve_it(cli):
    cli.ok("user", "create", "tester", "--role", "system_manager")
    cli.ok("user", "create", "bob")
    result = cli("serve", "--port", "0", "--as", "bob")
    assert (result.exit_code, "permission_denied" in result.stderr) == (1, True)


def test_without_the_extra_a_worker_goes_on_and_serving_is_refused(cli, tmp_path, monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "starlette" else found(name, *more))
    result = cli("serve", "--port", "0")
    assert result.exit_code == 1
    assert "pip install '.[server]'" in result.stderr
    rota = Rota(tmp_path / "rota.db")
    with opened(rota, Where(), as_json=False, needed=False) as server:
        assert server is None
    assert capsys.readouterr().err.count("\n") == 1
    rota.close()


# ---- tokens ---------------------------------------------------------------------------------------------------------


def test_a_secret_stands_alone_on_stdout(cli):
    result = cli("token", "create", "laptop")
    assert is_token(result.stdout.strip())
    assert "laptop" in result.stderr
    quiet = cli("token", "create", "other", "--quiet")
    assert is_token(quiet.stdout.strip())
    assert quiet.stderr == ""


def test_a_token_is_made_as_the_options_say(cli):
    cli.ok("user", "create", "tester", "--role", "system_manager")
    cli.ok("user", "create", "bob")
    made = cli.json("token", "create", "shop", "--user", "bob", "--permit", "submit", "--permit", "read", "--expires", "30d")
    assert is_token(made.pop("secret"))
    assert (made["name"], made["user"], made["permits"], made["created_by"]) == ("shop", "bob", ["read", "submit"], "tester")
    lasts = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert lasts.days == 30
    assert cli.lines("token", "list") == [made]
    line = cli.ok("token", "list")
    for words in ("shop", "bob", "read, submit", "never", "open"):
        assert words in line


def test_a_token_that_was_revoked_is_listed_only_if_asked_for(cli):
    made = cli.json("token", "create", "laptop")
    revoked = cli.json("token", "revoke", made["id"], "--yes")
    assert datetime.fromisoformat(revoked["revoked_at"]) <= datetime.now(UTC)
    assert "secret" not in revoked
    assert cli.lines("token", "list") == []
    assert cli.lines("token", "list", "--revoked") == [revoked]
    assert "revoked" in cli.ok("token", "list", "--revoked")
    assert "No tokens" in cli.ok("token", "list")


def test_a_token_is_revoked_by_its_name_if_only_one_valid_token_has_it(cli):
    first = cli.json("token", "create", "laptop")
    assert cli.json("token", "revoke", "laptop", "--yes")["id"] == first["id"]
    second, third = cli.json("token", "create", "laptop"), cli.json("token", "create", "laptop")
    refused = cli("token", "revoke", "laptop", "--yes")
    assert (refused.exit_code, "2 tokens are named 'laptop'" in refused.stderr) == (2, True)
    cli.ok("token", "revoke", second["id"], "--yes")
    assert cli.json("token", "revoke", "laptop", "--yes")["id"] == third["id"]
    assert cli("token", "revoke", "laptop", "--yes").exit_code == 3


def test_wrong_words_are_refused_with_the_right_ones(cli):
    for args, code, words in (
        (("token", "create", "x", "--permit", "fly"), 2, "manage"),
        (("token", "create", "x", "--expires", "soon"), 2, "'soon' is not a length of time"),
        (("token", "create", "x", "--expires", "0s"), 2, "time to come"),
        (("token", "create", "x", "--user", "nobody"), 3, "rota user create"),
        (("token", "revoke", "x", "--yes"), 3, "rota token list"),
    ):
        result = cli(*args)
        assert (result.exit_code, words in result.output) == (code, True), (args, result.output)


def test_every_permit_can_be_named(cli):
    for permit in Permit:
        assert cli.json("token", "create", permit, "--permit", permit)["permits"] == [permit]


def test_a_server_without_any_worker_reports_overdue_schedules_and_sends_the_message(cli):
    cli.env |= {"ROTA_LEASE_TTL": "1", "ROTA_WEBHOOK_PRIVATE": "allow", "ROTA_WEBHOOK_HTTP": "allow", "ROTA_WEBHOOK_INTERVAL": "0.1"}
    with closing(Rota(cli.store)) as rota:
        rota.job(name="greet")(lambda: None)
        rota.schedule("often", "greet", every=1)
    with receiving() as receiver:
        cli.ok("webhook", "create", receiver.url(), "--event", "schedule.overdue")
        process = cli.start("serve", "--port", "0")
        eventually(lambda: receiver.received, within=30, what="the message")
        assert stop(process) == 0
        (message,) = receiver.received
    assert (message.json["event"], message.json["schedule"]["name"]) == ("schedule.overdue", "often")
    assert [each["key"] for each in cli.lines("webhook", "deliveries")] == [message.key]
