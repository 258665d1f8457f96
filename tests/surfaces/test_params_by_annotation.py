"""What does not fit an annotation is refused with its place over HTTP and on the command line too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from rota import Rota
from rota.surfaces.http import make_app
from tests.support.annotated import Line
from tests.support.runs import run_of
from tests.surfaces.cli_support import Cli
from tests.surfaces.http.api_support import API

ORDERS = """
from dataclasses import dataclass
from decimal import Decimal

from rota import Rota

rota = Rota()


@dataclass
class Line:
    sku: str
    amount: Decimal = Decimal(1)


@rota.job
def order(lines: list[Line]) -> str:
    return str(sum(line.amount for line in lines))
"""
WRONG = '{"lines": [{"sku": "a"}, {"sku": "b"}, {"sku": "c", "amount": "x"}]}'
WORDS = "params.lines[2].amount: expected decimal, got str 'x'"


@pytest.fixture
def client(live: Rota) -> Iterator[TestClient]:
    @live.job
    def order(lines: list[Line]) -> str:
        return str(sum(line.amount for line in lines))

    secret = live.tokens.create("test", permits=["read", "submit", "operate", "manage"]).secret
    with TestClient(make_app(live), headers={"Authorization": f"Bearer {secret}"}) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/jobs", f'{{"name": "order", "params": {WRONG}}}'),
        ("/jobs/bulk", f'[{{"name": "order", "params": {WRONG}}}]'),
        ("/direct", f'{{"name": "order", "params": {WRONG}}}'),
        ("/groups", f'{{"jobs": [{{"name": "order", "params": {WRONG}}}]}}'),
        ("/schedules", f'{{"name": "hourly", "template": "order", "every": "1h", "params": {WRONG}}}'),
    ],
)
def test_http_answers_422_with_the_place(client, path, body):
    answer = client.post(API + path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "invalid_params"
    assert WORDS in answer.json()["detail"]


def test_http_takes_the_json_form(client, live):
    job = client.post(f"{API}/jobs", json={"name": "order", "params": {"lines": [{"sku": "a", "amount": "2.5"}, {"sku": "b"}]}})
    assert job.status_code == 201, job.text
    live.turn()
    assert run_of(live, job.json()["id"]).result == "3.5"


def test_the_command_line_names_the_place(tmp_path):
    cli = Cli(tmp_path)
    (tmp_path / "orders.py").write_text(ORDERS)
    refused = cli.process("enqueue", "order", "--params", WRONG, "--app", "orders:rota")
    assert refused.returncode != 0
    assert WORDS in refused.stderr
    taken = cli.process("enqueue", "order", "--params", '{"lines": [{"sku": "a", "amount": "2.5"}]}', "--app", "orders:rota")
    assert taken.returncode == 0, taken.stderr


def test_a_worker_names_the_annotation_that_it_cant_resolve_and_does_not_start(tmp_path):
    cli = Cli(tmp_path)
    (tmp_path / "orders.py").write_text("from __future__ import annotations\n" + ORDERS.replace("list[Line]", "list[Lines]"))
    refused = cli.process("worker", "--app", "orders:rota")
    assert refused.returncode != 0
    assert "order(): parameter 'lines' has the annotation 'list[Lines]', which can't be resolved" in refused.stderr
    assert "Traceback" not in refused.stderr
