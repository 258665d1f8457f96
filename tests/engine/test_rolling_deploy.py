"""Two live workers of different code: every job runs on the one whose handler takes its parameters, and none is dead-lettered."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from rota import NewJob, Rota
from tests.support.proof import size
from tests.support.runs import run_of
from tests.support.waiting import eventually

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]

JOBS = size(60, prove=1000)
"""Of both versions and all kinds together."""
PROGRAM = """
import sys
from rota import Rota

rota = Rota(sys.argv[1])


@rota.job(max_retries=2)
def added({added}):
    return "{version}"


@rota.job(max_retries=2)
def removed({removed}):
    return "{version}"


@rota.job(max_retries=2)
def renamed({renamed}):
    return "{version}"


names = {{"added": "{added}", "removed": "{removed}", "renamed": "{renamed}"}}
params = {{job: dict.fromkeys(text.split(", "), 1) for job, text in names.items()}}
for number in range(int(sys.argv[2])):
    for job, given in params.items():
        rota.enqueue(job, given, meta={{"version": "{version}"}})
rota.run(concurrency=4)
"""
VERSIONS = {
    "older": {"added": "a", "removed": "a, b", "renamed": "a"},
    "newer": {"added": "a, b", "removed": "a", "renamed": "c"},
}


@contextmanager
def worker(folder, url, version, count):
    """Run a program of a version, which enqueues and then works, until the block is over."""
    program = folder / f"{version}.py"
    program.write_text(PROGRAM.format(version=version, **VERSIONS[version]))
    process = subprocess.Popen([sys.executable, program, url, str(count)], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def params_of(version, name):
    return dict.fromkeys(VERSIONS[version][name].split(", "), 1)


def has_schemas(client):
    """Say whether a worker has recorded what its handlers take."""
    names = [each.name for each in client.templates.list()]
    return len(names) == 3 and all(client.templates.get(name).params_schema for name in names)


def test_no_job_is_dead_while_a_worker_that_takes_it_lives_and_explain_names_the_mismatch(tmp_path, url):
    each = max(1, JOBS // 12)
    kinds = [(version, name) for version in VERSIONS for name in ("added", "removed", "renamed")]
    client = Rota(url)
    try:
        with worker(tmp_path, url, "older", each) as older:
            eventually(lambda: has_schemas(client), within=30)
            with worker(tmp_path, url, "newer", each):
                eventually(lambda: len(client.workers.list()) == 2 and len(client.templates.list()) == 3, within=30)
                client.enqueue_many(
                    NewJob(name=name, params=params_of(version, name), meta={"version": version})
                    for _ in range(each)
                    for version, name in kinds
                )
                ended = each * len(kinds) * 2
                eventually(lambda: client.store.stats().by_status["COMPLETED"] == ended, within=60)
            assert older.poll() is None
            counts = client.store.stats().by_status
            assert (counts["DEAD_LETTER"], counts["FAILED"], counts["TIMED_OUT"], counts["CANCELLED"]) == (0, 0, 0, 0)
            for job in client.jobs.list(status="COMPLETED", limit=ended):
                assert run_of(client, job.id).result == job.meta["version"]
            eventually(lambda: len(client.workers.list()) == 1, within=30)
            job = client.enqueue("renamed", {"c": 1})
            eventually(lambda: len(client.jobs.attempts(job.id)) == 2, within=30)
            assert client.explain(job.id).summary == (
                "it was enqueued for renamed(c), and live workers have renamed(a): it waits for a worker that takes its parameters"
            )
            with worker(tmp_path, url, "newer", 0):
                eventually(lambda: client.jobs.attempts(job.id)[-1].status == "COMPLETED", within=30)
    finally:
        client.close()
