"""`rota enqueue --depends-on` and `rota job graph`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.cli_support import Cli
from tests.surfaces.test_cli import handlers, turn


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path)
    with handlers(made) as rota, rota.transaction():  # templates are registered, nothing is enqueued
        pass
    return made


def test_a_job_can_depend_on_several_by_number_or_id(cli):
    first, second = cli.json("enqueue", "greet"), cli.json("enqueue", "greet")
    child = cli.json("enqueue", "greet", "--depends-on", first["number"], "--depends-on", second["id"], "--on-parent-failure", "skip")
    assert (child["status"], child["blockers"]) == ("PENDING", 2)
    words = cli.ok("enqueue", "greet", "--depends-on", child["id"])
    assert "PENDING until what it depends on has completed" in words
    turn(cli)
    assert cli.json("job", "get", "3")["status"] == "COMPLETED"
    assert cli.json("job", "get", "4")["status"] == "COMPLETED"


def test_a_parent_that_is_not_there_or_a_rule_that_is_none_is_refused(cli):
    unknown = cli("enqueue", "greet", "--depends-on", "019ca945-0a00-7000-8000-000000000000")
    assert unknown.exit_code != 0
    assert "unknown_parent" in unknown.stderr
    parent = cli.json("enqueue", "greet")
    rule = cli("enqueue", "greet", "--depends-on", parent["id"], "--on-parent-failure", "stop")
    assert "wait, skip, cancel" in rule.stderr


def test_the_graph_shows_parents_above_and_children_below(cli):
    cli.ok("enqueue", "greet", "-p", "name=top")
    cli.ok("enqueue", "gives_up", "--depends-on", "1")
    cli.ok("enqueue", "sleeps", "--depends-on", "2", "--on-parent-failure", "skip")
    cli.ok("enqueue", "skips", "--depends-on", "3")
    words = cli.ok("job", "graph", "2")
    rows = words.splitlines()
    place = {name: next(index for index, row in enumerate(rows) if name in row) for name in ("greet", "gives_up", "sleeps", "skips")}
    assert place["greet"] < place["gives_up"] < place["sleeps"] < place["skips"]
    for number, name, status in ((1, "greet", "QUEUED"), (2, "gives_up", "PENDING"), (3, "sleeps", "PENDING"), (4, "skips", "PENDING")):
        assert f"-{number:05d}  {name}  {status}" in rows[place[name]]
    assert "skip if it fails" in rows[place["sleeps"]]
    turn(cli)
    words = cli.ok("job", "graph", "2")
    assert "gives_up  DEAD_LETTER" in words
    assert "sleeps  SKIPPED" in words
    assert "skips  PENDING" in words


def test_the_graph_as_json_has_jobs_and_edges(cli):
    top = cli.json("enqueue", "greet")
    child = cli.json("enqueue", "greet", "--depends-on", "1")
    graph = cli.json("job", "graph", "1")
    assert (graph["root_id"], graph["cut"]) == (top["id"], False)
    assert set(graph["jobs"]) == {top["id"], child["id"]}
    assert [(edge["child"], edge["parent"], edge["source"]) for edge in graph["edges"]] == [(child["id"], top["id"], "user")]


def test_a_job_that_two_ways_lead_to_is_drawn_once(cli):
    cli.ok("enqueue", "greet")
    cli.ok("enqueue", "fails", "--depends-on", "1")
    cli.ok("enqueue", "sleeps", "--depends-on", "1")
    cli.ok("enqueue", "skips", "--depends-on", "2", "--depends-on", "3")
    words = cli.ok("job", "graph", "1")
    assert words.count("skips") == 2
    assert words.count("(drawn elsewhere)") == 1


def test_a_lone_job_is_its_whole_graph(cli):
    cli.ok("enqueue", "greet")
    assert len(cli.ok("job", "graph", "1").splitlines()) == 1
    missing = cli("job", "graph", "42")
    assert "not_found" in missing.stderr
