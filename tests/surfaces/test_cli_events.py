"""`rota events`: what happens, one line for each."""

import json

import pytest
from typer.testing import CliRunner

from rota.surfaces.cli.app import app


@pytest.fixture
def rota_file(live, tmp_path):
    live.job(name="echo")(lambda: None)
    return str(tmp_path / "rota.db")


def run(*words):
    return CliRunner().invoke(app, ["events", *words])


def test_a_job_is_shown_until_its_chain_has_ended(live, rota_file):
    job = live.enqueue("echo")
    with live.running():
        done = run(job.number, "--store", rota_file)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert "job.ended" in lines[-1]
    assert job.number in lines[-1]
    assert "COMPLETED" in lines[-1]


def test_json_has_an_event_a_line_and_what_was_missed_is_shown_first(live, rota_file):
    with live.events(types="job") as events:
        live.enqueue("echo")
        first = events.next(10)
    job = live.enqueue("echo")
    done = run("--after", first.id, "--type", "job", "--limit", "1", "--json", "--store", rota_file)
    (told,) = map(json.loads, done.stdout.splitlines())
    assert (told["type"], told["job"]["id"]) == ("job.created", job.id)
    assert told["id"]


def test_counts_are_shown_in_words(live, rota_file):
    live.enqueue("echo")
    assert "1 QUEUED" in run("--type", "counts", "--limit", "1", "--store", rota_file).stdout


def test_what_is_no_type_or_no_event_is_refused(live, rota_file):
    live.enqueue("echo")
    assert run("--type", "x", "--store", rota_file).exit_code == 2
    assert run("--after", "x", "--store", rota_file).exit_code == 2
