"""Stored settings and events of the audit trail on the command line and over HTTP: the same operations, the same words."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from rota import Rota
from rota.surfaces.http import make_app
from tests.surfaces.cli_support import Cli


@pytest.fixture
def cli(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path)
    rota = Rota(made.store)
    rota.store.pauses()
    rota.close()
    return made


def test_the_command_line_sets_shows_and_resets_a_setting(cli):
    assert "scheduler.enabled is false (store)" in cli.ok("setting", "set", "scheduler.enabled", "false")
    (shown,) = [each for each in cli.lines("setting", "list") if each["name"] == "scheduler.enabled"]
    assert (shown["value"], shown["source"], shown["set_by"]) == ("false", "store", "tester")
    (own,) = [each for each in cli.lines("settings") if each["name"] == "schedules"]
    assert (own["value"], own["source"]) == ("off", "store")
    assert "store" in cli.ok("settings")
    assert "scheduler.enabled is true (default)" in cli.ok("setting", "reset", "enabled")
    assert [each["event"] for each in cli.lines("audit", "--event", "SETTING_CHANGED")] == ["SETTING_CHANGED"] * 2


def test_the_command_line_says_what_takes_precedence(cli):
    cli.env["ROTA_CONCURRENCY"] = "5"
    result = cli("setting", "set", "max_concurrent_jobs", "3")
    assert result.exit_code == 0
    assert "ROTA_CONCURRENCY takes precedence over the store" in result.output


def test_settings_without_a_store_make_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Cli(tmp_path).ok("settings")
    assert not (tmp_path / "rota.db").exists()


def test_the_same_over_http(tmp_path):
    rota = Rota(tmp_path / "rota.db")
    secret = rota.tokens.create("ops", permits=["manage"]).secret
    with TestClient(make_app(rota), headers={"Authorization": f"Bearer {secret}"}) as client:
        answer = client.put("/api/v1/settings/scheduler.default_max_retries", json={"value": "9"})
        assert (answer.status_code, answer.json()["value"], answer.json()["source"]) == (200, "9", "store")
        assert client.put("/api/v1/settings/scheduler.enabeld", json={"value": "1"}).status_code == 404
        assert client.put("/api/v1/settings/enabled", json={"value": "perhaps"}).status_code == 422
        items = client.get("/api/v1/settings").json()["items"]
        assert {each["name"]: each["source"] for each in items}["scheduler.default_max_retries"] == "store"
        assert client.delete("/api/v1/settings/default_max_retries").json()["source"] == "default"
        entries = client.get("/api/v1/audit", params={"event": "SETTING_CHANGED"}).json()["items"]
        assert [each["event"] for each in entries] == ["SETTING_CHANGED"] * 2
        assert client.get("/audit", params={"event": "JOB_CANCELLED"}).status_code in {200, 303}
    rota.close()


def test_a_token_that_may_not_is_refused_and_entered(tmp_path):
    rota = Rota(tmp_path / "rota.db")
    secret = rota.tokens.create("reader", permits=["read"]).secret
    with TestClient(make_app(rota), headers={"Authorization": f"Bearer {secret}"}) as client:
        for _ in range(3):
            assert client.put("/api/v1/settings/enabled", json={"value": "false"}).status_code == 403
    (entry,) = rota.audit.list(event="ACCESS_DENIED")
    assert (entry.outcome, entry.subject_id) == ("denied", "OPERATE")
    rota.close()
