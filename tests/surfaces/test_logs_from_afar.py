"""Logs that are kept in the store, on every surface of a machine that has no folder of the worker's: over HTTP, as commands, as a page."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from rota import Context, Rota, Settings
from tests.support.pace import patient
from tests.support.waiting import eventually
from tests.surfaces.cli_support import Cli
from tests.surfaces.http.pages_support import browsing
from tests.surfaces.http.sse_support import served


@pytest.fixture
def cli(tmp_path):
    made = Cli(tmp_path)
    made.env |= {"ROTA_LOG_DIR": str(tmp_path / "here")}
    yield made
    made.close()


@pytest.fixture
def reader(cli, tmp_path):
    with closing(Rota(cli.store, settings=Settings(log_dir=str(tmp_path / "here")))) as made:
        yield made


@pytest.fixture
def job(cli, tmp_path):
    """Have a job run on a worker with another folder, which says something, and something more when a file is there."""
    go = tmp_path / "go"
    with closing(Rota(cli.store, settings=Settings(run_logs="store", log_dir=str(tmp_path / "there")))) as rota:

        @rota.job
        def talks(ctx: Context) -> None:
            ctx.log.info("the first line \x1b[31m")
            eventually(go.exists)
            ctx.log.info("second")

        with rota.running(concurrency=1):
            yield rota.enqueue("talks")
            go.touch()


@pytest.fixture
def go(tmp_path):
    return tmp_path / "go"


def test_a_log_is_followed_over_http(reader, job, go):
    with served(reader) as door:
        ear = door.listen(f"/jobs/{job.id}/log?follow=true")
        assert "the first line" in ear.until("log").data["text"]
        go.touch()
        rest = ear.rest()
        assert [told.type for told in rest] == ["log", "over"]
        assert "second" in rest[0].data["text"]


def test_a_log_is_followed_on_the_command_line(cli, job, go):
    following = cli.start("job", "log", job.id, "--follow")
    first = following.stdout.readline()
    assert first.endswith("INFO the first line ·[31m\n")
    assert following.poll() is None
    go.touch()
    assert following.stdout.read().endswith("INFO second\n")
    assert following.wait(patient(10)) == 0
    assert cli.ok("job", "log", job.id, "--raw", "--follow") == cli.ok("job", "log", job.id, "--raw")
    (piece,) = cli.ok("job", "log", job.id, "--follow", "--json").splitlines()
    assert json.loads(piece)["text"].count("\n") == 2


def test_several_attempts_are_not_followed(cli, job, go):
    go.touch()
    refused = cli("job", "log", job.id, "--follow", "--chain")
    assert (refused.exit_code, "--follow is for one attempt: leave --chain out" in refused.stderr) == (2, True)


def test_the_page_of_a_job_shows_its_log_and_looks_again_while_it_runs(reader, job, go):
    with browsing(reader) as browser:
        window = browser(None)
        path = f"/jobs/{job.id}"
        running = eventually(lambda: page if "the first line" in (page := window.get(path).text) else None, within=5)
        assert "data-grows" in running
        go.touch()
        reader.wait(job.id, timeout=patient(10))
        ended = window.get(path).text
        assert ("second" in ended, "data-grows" in ended) == (True, False)
