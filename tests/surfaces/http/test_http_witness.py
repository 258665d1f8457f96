"""Every request has an id that its log lines share; a line about it never has its query, and is one line whatever is asked for."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.resources.store import StoreOperations
from rota.surfaces.asked import request_id
from rota.surfaces.cli.journal import JsonLines, Lines
from rota.surfaces.http import make_app


@pytest.fixture
def settings() -> Settings:
    return Settings(http_log="yes")


@pytest.fixture
def client(rota: Rota) -> Iterator[TestClient]:
    with TestClient(make_app(rota), client=("192.0.2.7", 1234)) as made:
        yield made


@pytest.fixture
def lines() -> Iterator[list[dict]]:
    """What loggers of ours write, as JSON."""
    found: list[dict] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(JsonLines().format(record)))

    logger, handler = logging.getLogger("rota"), Keep()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_a_request_is_a_line_without_its_query(client, lines):
    client.get("/api/v1/health?token=rota_secret&x=1", headers={"Authorization": "Bearer rota_secret"})
    (line,) = [line for line in lines if line["logger"] == "rota.http.access"]
    request = line["request"]
    assert (request["method"], request["path"], request["route"], request["status"]) == ("GET", "/api/v1/health", "/api/v1/health", 200)
    assert request["client"] == "192.0.2.7"
    assert request["ms"] > 0
    assert "secret" not in json.dumps(lines)


def test_a_path_can_not_begin_a_line_or_steer_a_terminal(client, lines):
    client.get("/x%0aERROR%20forged%1b[2J")
    (line,) = [line for line in lines if line["logger"] == "rota.http.access"]
    assert line["request"]["path"] == "/x%0AERROR%20forged%1B%5B2J"
    assert "\n" not in line["message"]


def test_an_answer_has_the_id_that_its_lines_have(client, lines):
    answer = client.get("/api/v1/health")
    assert [line["request_id"] for line in lines] == [answer.headers["x-request-id"]]


@pytest.mark.parametrize(("given", "kept"), [("abc-123", True), ("a" * 65, False), ("a b", False), ("<script>", False), ("", False)])
def test_a_decent_id_that_a_request_comes_with_is_kept(client, given, kept):
    answered = client.get("/api/v1/health", headers={"X-Request-Id": given}).headers["x-request-id"]
    assert (answered == given) is kept
    assert answered


def test_what_goes_wrong_inside_is_told_with_the_id_of_the_request(client, lines, rota, monkeypatch):
    def fails(*_args: object, **_more: object) -> None:
        raise RuntimeError("surprise")

    monkeypatch.setattr(StoreOperations, "pauses", fails)
    answer = client.get("/api/v1/ready")
    assert answer.status_code == 500
    wrong = [line for line in lines if line["level"] == "ERROR"]
    assert wrong
    assert all(line["request_id"] == answer.headers["x-request-id"] for line in wrong)
    assert "surprise" in wrong[0]["traceback"]


def test_there_is_no_id_outside_of_a_request(client):
    client.get("/api/v1/health")
    assert request_id.get() is None


def test_without_the_setting_no_line_is_written(tmp_path, lines):
    rota = Rota(tmp_path / "other.db")
    try:
        with TestClient(make_app(rota)) as client:
            client.get("/api/v1/health")
        assert lines == []
    finally:
        rota.close()


def test_a_line_of_json_holds_whatever_it_is_given():
    record = logging.LogRecord("rota.jobs", logging.WARNING, "", 0, "a %s\nb", ("\x1b",), None)
    record.job, record.attempt, record.worker = "0190", 2, object()
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["level"], line["job"], line["attempt"]) == ("a \x1b\nb", "WARNING", "0190", 2)
    assert "traceback" not in line
    assert "\n" not in JsonLines().format(record)
    assert Lines().format(record).startswith(line["at"][:10])


def test_a_traceback_that_came_as_text_is_written_as_it_is():
    record = logging.LogRecord("rota.jobs", logging.ERROR, "", 0, "failed", (), (ValueError, ValueError("x"), None))
    record.exc_text = "Traceback:\n  here\x1b\nValueError: x"
    assert json.loads(JsonLines().format(record))["traceback"] == record.exc_text
    assert Lines().format(record).endswith("rota.jobs  failed\nTraceback:\n  here·\nValueError: x")
