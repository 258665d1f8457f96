"""A producer without the handler's code: what does not fit the recorded schema is refused at enqueue, on every surface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from decimal import Decimal

import pytest
from starlette.testclient import TestClient

from rota import Rota
from rota.errors import InvalidParams
from rota.surfaces.http import make_app
from tests.support.annotated import Line
from tests.support.runs import run_of
from tests.surfaces.cli_support import Cli
from tests.surfaces.http.api_support import API

RIGHT = {"lines": [{"sku": "a", "amount": "2.5"}, {"sku": "b"}]}
WRONG = {"lines": [{"sku": "a"}, {"sku": "b"}, {"sku": "c", "amount": "x"}]}
WORDS = "params.lines[2].amount: expected decimal, got str 'x'"


def order(lines: list[Line], note: str = "") -> str:
    return str(sum(line.amount for line in lines))


def anything(**params: object) -> int:
    return len(params)


@pytest.fixture
def worker(url) -> Iterator[Rota]:
    """The program that has the code. A turn of it records the schemas."""
    made = Rota(url)
    made.job(order, name="order")
    made.job(anything, name="anything")
    made.turn()
    yield made
    made.close()


@pytest.fixture
def producer(worker, url) -> Iterator[Rota]:
    made = Rota(url)
    yield made
    made.close()


def test_what_fits_is_taken_in_both_forms_and_runs(worker, producer):
    jobs = [producer.enqueue("order", RIGHT), producer.enqueue("order", {"lines": [Line("a", Decimal("2.5")), {"sku": "b"}]})]
    jobs += [producer.enqueue("anything", {"a": 1, "b": None}), producer.enqueue("anything")]
    worker.turn()
    assert [run_of(worker, job.id).result for job in jobs] == ["3.5", "3.5", 2, 0]


DOORS: dict[str, Callable[[Rota], object]] = {
    "enqueue": lambda rota: rota.enqueue("order", WRONG),
    "enqueue with options": lambda rota: rota.enqueue("order", WRONG, priority="high"),
    "enqueue_many": lambda rota: rota.enqueue_many([("order", RIGHT), ("order", WRONG)]),
    "group": lambda rota: rota.group([("order", RIGHT), ("order", WRONG)]),
    "then": lambda rota: rota.group([("order", RIGHT)], then=("order", WRONG)),
    "direct": lambda rota: rota.jobs.direct("order", WRONG),
    "again": lambda rota: rota.jobs.again(rota.enqueue("order", RIGHT), **WRONG),
    "update": lambda rota: rota.jobs.update(rota.enqueue("order", RIGHT), params=WRONG),
    "schedule": lambda rota: rota.schedule("daily", "order", every="1d", params=WRONG),
    "schedule update": lambda rota: rota.schedules.update(rota.schedule("daily", "order", every="1d").name, params=WRONG),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_what_does_not_fit_is_refused_at_every_door(producer, door):
    with pytest.raises(InvalidParams) as refusal:
        door(producer)
    assert WORDS in str(refusal.value)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (None, "order() needs a parameter 'lines', which params do not have"),
        ({"m": 3, "lines": []}, "order() has no parameter 'm'; it takes: lines, note"),
        ({"lines": 3}, "params.lines: expected array, got int 3"),
    ],
)
def test_the_words_are_those_of_the_process_that_has_the_code(worker, producer, params, words):
    for rota in (worker, producer):
        with pytest.raises(InvalidParams) as refusal:
            rota.enqueue("order", params)
        assert str(refusal.value) == words


def test_default_params_of_the_template_count(producer):
    producer.templates.update("order", default_params=RIGHT)
    producer.enqueue("order")
    producer.enqueue("order", {"note": "thanks"})
    with pytest.raises(InvalidParams, match=r"^params.note: expected str, got int 3$"):
        producer.enqueue("order", {"note": 3})


def test_a_schedule_may_leave_out_params(producer):
    producer.schedule("daily", "order", every=timedelta(days=1), params={"note": "thanks"})


def test_a_template_that_no_worker_has_had_takes_anything_until_one_comes(url):
    with closing(Rota(url)) as program, closing(Rota(url)) as producer:
        program.job(order, name="order")
        program.templates.get("order")
        producer.enqueue("order", WRONG)
        program.turn()
        with pytest.raises(InvalidParams):
            producer.enqueue("order", WRONG)


def test_a_changed_type_is_known_at_once(url, producer):
    def newer(lines: list[str], note: str = "") -> None: ...

    producer.enqueue("order", RIGHT)
    with closing(Rota(url)) as program:
        program.job(newer, name="order")
        program.turn()
        producer.enqueue("order", {"lines": ["a"]})
        with pytest.raises(InvalidParams, match="expected str, got object"):
            producer.enqueue("order", RIGHT)


def test_a_changed_type_is_known_also_when_the_worker_is_gone_again(url, worker, producer):
    def newer(lines: list[str], note: str = "") -> None: ...

    producer.enqueue("order", RIGHT)
    worker.close()
    with closing(Rota(url)) as program:
        program.job(newer, name="order")
        program.turn()
    producer.enqueue("order", {"lines": ["a"]})
    with pytest.raises(InvalidParams, match="expected str, got object"):
        producer.enqueue("order", RIGHT)


def test_the_schema_is_kept_between_jobs_and_is_not_read_where_the_handler_is(worker, producer, monkeypatch):
    reads = []
    for rota in (worker, producer):
        store = rota._session.open().store
        read = store.newest_params
        monkeypatch.setattr(store, "newest_params", lambda name, read=read, rota=rota: (reads.append(rota), read(name))[1])
        # The first job of a lane adds it, which is a new version of the definitions.
        rota.enqueue("order", RIGHT)
        rota.enqueue("order", RIGHT)
    assert set(reads) == {producer}
    reads.clear()
    for rota in (worker, producer):
        for _ in range(3):
            rota.enqueue("order", RIGHT)
        rota.enqueue_many([("order", RIGHT)] * 3)
    assert not reads


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/jobs", {"name": "order", "params": WRONG}),
        ("/jobs/bulk", [{"name": "order", "params": WRONG}]),
        ("/direct", {"name": "order", "params": WRONG}),
        ("/groups", {"jobs": [{"name": "order", "params": WRONG}]}),
        ("/schedules", {"name": "hourly", "template": "order", "every": "1h", "params": WRONG}),
    ],
)
def test_a_server_without_the_app_answers_422_with_the_place(producer, path, body):
    secret = producer.tokens.create("test", permits=["read", "submit", "operate", "manage"]).secret
    with TestClient(make_app(producer), headers={"Authorization": f"Bearer {secret}"}) as client:
        answer = client.post(API + path, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "invalid_params"
    assert WORDS in answer.json()["detail"]


def test_the_command_line_without_the_app_names_the_place(tmp_path):
    cli = Cli(tmp_path)
    with closing(Rota(str(cli.store))) as worker:
        worker.job(order, name="order")
        worker.turn()
    refused = cli("enqueue", "order", "--params", '{"lines": [{"sku": "a"}, {"sku": "b"}, {"sku": "c", "amount": "x"}]}')
    assert refused.exit_code == 1
    assert WORDS in refused.stderr
    refused = cli("enqueue", "order", "-p", "m=3", "-p", "lines=[]")
    assert refused.exit_code == 1
    assert "order() has no parameter 'm'; it takes: lines, note" in refused.stderr
    cli.ok("enqueue", "order", "-p", "lines=[]")
