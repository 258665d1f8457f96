"""What answers show to a token that may act and not read: that its act has worked, and nothing that somebody else has said."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from rota import PermanentError
from rota.surfaces.http import make_app
from rota.surfaces.redaction import WITHOUT_READ
from tests.surfaces.http.api_support import API, Caller

MARK = "s3cret"
SHOWN = {kind.__name__: set(names) for kind, names in WITHOUT_READ.items()}


@pytest.fixture
def served(rota):
    @rota.job(max_retries=0)
    def echo(text: str = "hi") -> str:
        return text

    @rota.job(max_retries=0)
    def fail(text: str = "hi") -> None:
        raise PermanentError(MARK)

    rota.templates.update("echo", default_params={"text": MARK})
    rota.templates.update("fail", default_params={"text": MARK})
    rota.schedules.create("daily", "echo", cron="0 9 * * *", params={"text": MARK}, description=MARK)
    with TestClient(make_app(rota), raise_server_exceptions=False) as client:
        yield client


class Requests:
    """A request that is valid for each operation that shows jobs, runs, templates or schedules, on something of its own."""

    def __init__(self, rota):
        self._rota = rota
        self.bodies = {
            "POST /jobs": {"name": "echo"},
            "PATCH /jobs/{job}": {"priority": 60},
            "POST /jobs/{job}/move": {"front": True},
            "POST /jobs/{job}/depend": {"on": [rota.enqueue("echo").id]},
            "POST /direct": {"name": "echo"},
            "POST /dead-letters/retry": {"all": True},
            "PATCH /templates/{name}": {"priority": 60},
            "POST /schedules": {"name": "new", "template": "echo", "cron": "0 9 * * *", "params": {"text": MARK}},
            "PATCH /schedules/{name}": {"priority": 60},
        }

    def path(self, operation):
        path = operation.partition(" ")[2]
        name = "daily" if path.startswith("/schedules") else "echo"
        return path.replace("{name}", name).replace("{job}", self._job(operation)) if "{" in path else path

    def _job(self, operation):
        if "dead-letters" in operation or operation.startswith("GET"):
            job = self._rota.enqueue("fail")
            self._rota.turn()
            return job.id
        if operation.endswith("depend"):
            return self._rota.enqueue("echo", depends_on=[self._rota.enqueue("echo").id]).id
        job = self._rota.enqueue("echo", {"text": MARK}, meta={"why": MARK}, unique_key=None)
        if operation.endswith("retry"):
            self._rota.jobs.cancel(job.id, reason=MARK)
        return job.id


def shown_by(document, schema, seen):
    """Return the names of everything that a schema is made of."""
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name == "$ref" and (kind := value.rpartition("/")[2]) not in seen:
                seen.add(kind)
                shown_by(document, document["components"]["schemas"][kind], seen)
            else:
                shown_by(document, value, seen)
    elif isinstance(schema, list):
        for each in schema:
            shown_by(document, each, seen)
    return seen


def operations(document):
    """Yield every operation of the API that gives a job, a run, a log, a template or a schedule, and which of them."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = [answer.get("content") for status, answer in operation["responses"].items() if status.startswith("2")]
            kinds = shown_by(document, content, set()) & {*SHOWN, "LogEntry", "BackgroundJob", "ExecutionLogEntry"}
            if kinds and path.startswith(API):
                yield f"{method.upper()} {path.removeprefix(API)}", kinds


@pytest.mark.parametrize("permit", ["operate", "submit", "read", "read operate"])
def test_only_a_token_that_may_read_is_shown_what_jobs_are_called_with(rota, served, permit):
    caller = Caller(served, rota.tokens.create("some", permits=permit.split()).secret)
    requests, answered = Requests(rota), {}
    for operation, kinds in operations(served.get(f"{API}/openapi.json").json()):
        path = requests.path(operation)
        with rota.running() if "submit" in permit and operation == "POST /direct" else nullcontext():
            answer = caller(operation.partition(" ")[0], path, requests.bodies.get(operation))
        # A route that is new needs a request here that is valid, or it would not be known what it shows.
        assert answer.status_code in {200, 201, 403}, (operation, answer.text)
        if answer.status_code == 403:
            continue
        answered[operation] = answer
        if "read" in permit.split():
            continue
        assert MARK not in answer.text, operation
        (kind,) = kinds
        for one in answer.json().get("items", [answer.json()]):
            assert set(one) == SHOWN[kind], operation
        assert "etag" not in answer.headers or kind != "Job"
    acts = {operation for operation in answered if not operation.startswith("GET")}
    if "operate" in permit:
        assert {"PATCH /jobs/{job}", "POST /jobs/{job}/cancel", "POST /schedules/{name}/fire", "PATCH /schedules/{name}"} <= acts
    if "submit" in permit:
        assert acts == {"POST /jobs"}
    if permit == "read operate":
        assert MARK in answered["POST /jobs/{job}/cancel"].text
        assert answered["PATCH /jobs/{job}"].headers["etag"]
    if permit == "read":
        assert not acts


def test_jobs_that_are_made_together_show_a_token_that_only_submits_no_more(rota, served):
    caller = Caller(served, rota.tokens.create("some", permits=["submit"]).secret)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: caller.post("/jobs", {"name": "echo"}), range(40)))
    assert {answer.status_code for answer in answers} == {201}
    assert {frozenset(answer.json()) for answer in answers} == {frozenset(SHOWN["Job"])}


def test_a_token_that_only_submits_is_told_of_duplicates_of_its_own_jobs(rota, served):
    rota.job(lambda to=0: None, name="once", dedup_window=3600)
    caller = Caller(served, rota.tokens.create("some", permits=["submit"]).secret)
    first, again = (caller.post("/jobs", {"name": "echo", "unique_key": "nightly"}) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert (again.json()["id"], again.json()["existing"], set(again.json())) == (first.json()["id"], True, SHOWN["Job"])
    caller.post("/jobs", {"name": "once"})
    assert caller.post("/jobs", {"name": "once"}).json()["code"] == "duplicate_job"


def test_the_guide_says_what_a_token_that_may_not_read_is_shown():
    page = (Path(__file__).parents[3] / "docs/guide/access.md").read_text()
    table = dict(re.findall(r"^\| an? (\w+) \| (.*?) \|$", page, re.MULTILINE))
    told = {name: set(re.findall(r"`(\w+)`", fields)) for name, fields in table.items()}
    assert told == {"job": SHOWN["Job"], "run": SHOWN["Run"], "schedule": SHOWN["ScheduleView"], "template": SHOWN["TemplateView"]}
