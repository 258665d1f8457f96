"""The tour of the HTTP guide is done as printed, by a reader who knows what curl's options mean."""

from __future__ import annotations

import shlex

import pytest
from starlette.testclient import TestClient

from rota import Rota
from rota.surfaces.http import make_app
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs/guide/http.md"
COMMANDS = [line for block in blocks(PAGE) if block.info == ("sh", "curl") for line in block.text.splitlines()]


@pytest.fixture
def tour(tmp_path):
    rota = Rota(tmp_path / "rota.db")

    @rota.job
    def send_email(to: str) -> str:
        return to

    secret = rota.tokens.create("tour", permits=["manage"]).secret
    with TestClient(make_app(rota)) as client:
        yield client, secret
    rota.close()


def request_of(command: str, secret: str) -> tuple[str, str, dict[str, str], bytes | None]:
    program, *words = shlex.split(command.replace("$AUTH", f"Authorization: Bearer {secret}").replace("$API", "/api/v1"))
    assert program == "curl"
    method, headers, body, rest = None, {}, None, []
    while words:
        match words.pop(0):
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-X":
                method = words.pop(0)
            case "--json":
                body = words.pop(0).encode()
                headers |= {"Content-Type": "application/json"}
            case "--data-binary":
                body = words.pop(0).encode()
            case word:
                rest.append(word)
    assert len(rest) == 1, command
    return method or ("GET" if body is None else "POST"), rest[0], headers, body


def test_every_command_of_the_tour_does_what_it_says(tour):
    client, secret = tour
    assert len(COMMANDS) > 15
    for command in COMMANDS:
        method, path, headers, body = request_of(command, secret)
        answer = client.request(method, path, headers=headers, content=body)
        assert answer.status_code in {200, 201}, (command, answer.text)
    assert answer.headers["idempotency-replayed"] == "true"
