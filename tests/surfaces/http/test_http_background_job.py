"""A chain as a Background Job over HTTP: what Python gives, with the same rights as the job; and what its refusals carry."""

import http.client
import json
from contextlib import closing

import msgspec
import pytest

from rota import Rota, Settings
from rota.compat.faces import background_job, background_job_log
from rota.model.gate import Right
from rota.operation import Ask
from tests.support.pace import patient
from tests.surfaces.http.api_support import API, callers, code_of  # noqa: F401 - a fixture
from tests.surfaces.http.sse_support import served


@pytest.fixture
def reporting(callers):  # noqa: F811
    @callers.rota.job(max_retries=0)
    def report(month: str) -> dict[str, str]:
        return {"output_reference": f"/files/{month}.pdf"}

    @callers.rota.job(max_retries=0)
    def fail() -> None:
        raise ValueError("no such month")

    return callers


def test_a_job_is_given_as_a_background_job_with_its_log(reporting):
    rota = reporting.rota
    jobs = [
        rota.acting_as("bob").enqueue("report", {"month": "May"}, priority="high"),
        rota.acting_as("bob").enqueue("fail"),
    ]
    rota.turn()
    waiting = rota.acting_as("bob").enqueue("report", {"month": "June"})
    for job in [*jobs, waiting]:
        for name in (job.id, job.number):
            told = reporting.user.get(f"/jobs/{name}/background-job")
            assert (told.status_code, told.json()) == (
                200,
                msgspec.to_builtins(background_job(Ask(rota._session, None, Right.READ), job.id)),
            )
            log = reporting.admin.get(f"/jobs/{name}/background-job/log")
            assert (log.status_code, log.json()["items"]) == (
                200,
                msgspec.to_builtins(background_job_log(Ask(rota._session, None, Right.READ_LOG), job.id)),
            )
    done = reporting.user.get(f"/jobs/{jobs[0].id}/background-job").json()
    assert (done["status"], done["priority"], done["output_reference"]) == ("Completed", "High", "/files/May.pdf")
    assert done["input_parameters"] == {"month": "May"}


def test_only_who_may_read_a_job_reads_it_as_a_background_job(reporting):
    job = reporting.rota.acting_as("bob").enqueue("report", {"month": "May"})
    for path in (f"/jobs/{job.id}/background-job", f"/jobs/{job.id}/background-job/log"):
        assert reporting.other.get(path).status_code == 404
        assert reporting.of("ada", "operate").get(path).status_code == 403
        assert reporting.admin.get(path).status_code == 200
        # A plain user reads what it reads of the job itself.
        plain = "/log" if path.endswith("log") else ""
        assert reporting.user.get(path).status_code == reporting.user.get(f"/jobs/{job.id}{plain}").status_code
        assert reporting.admin.get("/jobs/JOB-2026-99999" + path.partition(job.id)[2]).status_code == 404


def test_a_run_names_the_output_that_its_result_names(reporting):
    rota = reporting.rota
    named, plain = rota.acting_as("bob").enqueue("report", {"month": "May"}), rota.acting_as("bob").enqueue("echo")
    rota.turn()
    assert reporting.user.get(f"/jobs/{named.id}/runs").json()["items"][0]["output_reference"] == "/files/May.pdf"
    # A result that is only a text is no reference.
    assert reporting.user.get(f"/jobs/{plain.id}/runs").json()["items"][0]["output_reference"] is None


def test_a_duplicate_is_refused_with_the_id_of_the_job_that_is_there(tmp_path):
    with closing(Rota(tmp_path / "rota.db", settings=Settings(synchronous="NORMAL"))) as rota:
        rota.job(name="echo", dedup_window=300)(lambda text="": text)
        with served(rota) as door, closing(http.client.HTTPConnection("127.0.0.1", door.port, timeout=patient(10))) as connection:
            told = []
            for _ in range(2):
                headers = {"Authorization": f"Bearer {door.secret}", "Content-Type": "application/json"}
                connection.request("POST", f"{API}/jobs", json.dumps({"name": "echo", "params": {"text": "x"}}), headers)
                answer = connection.getresponse()
                told.append((answer.status, json.loads(answer.read())))
    (first, job), (second, problem) = told
    assert (first, second, problem["code"], problem["job_id"]) == (201, 409, "duplicate_job", job["id"])
