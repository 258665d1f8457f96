"""`rota template`: what people type, what they see, what it says when it refuses."""

from __future__ import annotations

import json
import sys

import pytest

from tests.surfaces.cli_support import Cli

TOML = """
[templates.greet]
timeout = "10s"
max_running = 2

[templates.resize]
handler = "shop_images:resize"
rate_limit = "10/60s"
"""


@pytest.fixture
def cli(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path)
    (tmp_path / "jobs.toml").write_text(TOML)
    yield made
    made.close()
    for name in ("shop", "empty"):
        sys.modules.pop(name, None)


@pytest.fixture
def known(cli):
    """A store that an application has recorded its templates in."""
    cli.ok("template", "list", "--app", "shop:rota")
    return cli


def test_list_shows_what_is_in_force_with_limits_and_handlers(known):
    known.ok(
        "template",
        "update",
        "greet",
        "--max-running",
        "2",
        "--rate-limit",
        "10/60s",
        "--description",
        "Says hello.",
        "--dedup-window",
        "5m",
    )
    shown = known.ok("template", "list")
    (line,) = [line for line in shown.splitlines() if line.startswith("greet")]
    for words in ("ENABLED", "50", "5m 00s", "2 at once, starts 10/60s, dedup 5m 00s", "shop:greet", "Says hello."):
        assert words in line
    assert [each["name"] for each in known.lines("template", "list")] == ["fails", "gives_up", "greet", "skips", "sleeps"]


def test_list_leaves_archived_ones_out_unless_asked_for(known):
    assert known.ok("template", "archive", "skips", "--yes") == "template skips is ARCHIVED\n"
    assert "skips" not in known.ok("template", "list")
    assert "skips" in known.ok("template", "list", "--archived")


def test_list_says_where_templates_come_from_when_there_are_none(cli):
    (cli.folder / "empty.py").write_text("from rota import Rota\n\nrota = Rota()\n")
    cli.ok("template", "list", "--app", "empty:rota")
    assert "a worker records those of its application" in cli.ok("template", "list")


def test_show_says_whose_word_each_field_is(known):
    known.ok("template", "update", "fails", "--timeout", "90")
    lines = [line.split() for line in known.ok("template", "get", "fails").splitlines()]
    assert ["timeout", "1m", "30s", "people"] in lines
    assert ["max_retries", "1", "code"] in lines
    assert ["max_running", "none", "setting"] in lines
    assert ["payload_max", "1,048,576", "bytes", "setting"] in lines
    assert ["backoff", "base", "0.01,", "factor", "2,", "cap", "86400,", "jitter", "0", "code"] in lines
    document = known.json("template", "get", "fails")
    assert (document["timeout"], document["sources"]["timeout"], document["handled_here"]) == (90.0, "people", False)
    assert known.json("template", "get", "fails", "--app", "shop:rota")["handled_here"]


def test_set_and_reset_change_what_new_jobs_get(known):
    known.ok("template", "update", "greet", "--max-retries", "1", "--timeout", "1m", "--priority", "high")
    job = known.json("enqueue", "greet")
    assert (job["max_retries"], job["timeout"], job["priority"]) == (1, 60.0, 75)
    known.ok("template", "reset", "greet", "timeout")
    assert known.json("enqueue", "greet")["timeout"] == 300.0
    known.ok("template", "reset", "greet")
    assert known.json("enqueue", "greet")["max_retries"] == 5


def test_default_params_are_set_as_json_shown_as_json_and_taken_away(known):
    known.ok("template", "update", "greet", "--default-params", '{"name": "Ada"}')
    assert [line.split()[0::2] for line in known.ok("template", "get", "greet").splitlines() if "default_params" in line] == [
        ["default_params", "people"]
    ]
    assert '{"name":"Ada"}' in known.ok("template", "get", "greet")
    assert known.json("template", "get", "greet")["default_params"] == {"name": "Ada"}
    assert known.json("enqueue", "greet")["params"] == {"name": "Ada"}
    assert known.json("enqueue", "greet", "-p", "name=Bob")["params"] == {"name": "Bob"}
    known.ok("template", "update", "greet", "--default-params", "none")
    assert known.json("template", "get", "greet")["default_params"] is None
    refused = known("template", "update", "greet", "--default-params", "Ada")
    assert (refused.exit_code, "'Ada' is not JSON" in refused.stderr) == (2, True)


def test_jobs_of_a_schedule_are_listed_by_its_name(known):
    (known.folder / "more.toml").write_text('[schedules.hourly]\ntemplate = "greet"\nevery = "1h"\n')
    assert known.ok("template", "load", "more.toml") == "added: schedule hourly\n"
    known.ok("enqueue", "greet")
    fired = known.json("schedule", "fire", "hourly")
    assert [job["id"] for job in known.lines("job", "list", "--schedule", "hourly")] == [fired["id"]]
    assert [job["id"] for job in known.lines("job", "list", "--schedule", fired["schedule_id"])] == [fired["id"]]
    refused = known("job", "list", "--schedule", "daily")
    assert "there is no schedule 'daily'" in refused.stderr


def test_set_makes_a_template_that_names_its_handler(known):
    document = known.json("template", "update", "resize", "--handler", "shop_images:resize", "--max-running", "none")
    assert (document["handler"], document["max_running"], document["sources"]["max_running"]) == ("shop_images:resize", None, "people")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("update", "greet"), 2, "nothing to change: use --display-name"),
        (("update", "greet", "--timeot", "1"), 2, "No such option: --timeot"),
        (("update", "greet", "--max-running", "many"), 2, "max_running='many'"),
        (("update", "resize", "--timeout", "1"), 2, "template 'resize' is not there yet and needs a handler"),
        (("get", "nobody"), 1, "there is no template 'nobody'"),
        (("reset", "greet", "timeot"), 2, "a template has no field 'timeot'"),
        (("load",), 2, "pass a file of definitions, or samples"),
        (("load", "jobs.toml", "--samples"), 2, "pass a file of definitions, or samples"),
        (("load", "none.toml"), 1, "none.toml: can't be read"),
    ],
)
def test_a_refusal_is_one_line_and_an_exit_code(known, args, code, words):
    result = known("template", *args)
    assert result.exit_code == code
    assert words in result.stderr


def test_a_disabled_template_takes_no_job_until_it_is_enabled(known):
    assert known.json("template", "disable", "greet")["state"] == "DISABLED"
    result = known("enqueue", "greet")
    assert (result.exit_code, "(template_unavailable)" in result.stderr) == (1, True)
    known.ok("template", "enable", "greet")
    known.ok("enqueue", "greet")


def test_a_template_with_jobs_cannot_be_deleted(known):
    known.ok("enqueue", "greet")
    result = known("template", "delete", "greet", "--yes")
    assert (result.exit_code, "(template_in_use)" in result.stderr) == (1, True)
    assert known.ok("template", "delete", "skips", "--yes") == "template skips is deleted\n"
    assert known.json("template", "delete", "fails", "--yes") == {"deleted": "fails"}


def test_load_says_what_it_added_changed_and_left(known):
    assert known.ok("template", "load", "jobs.toml", "--dry-run").splitlines() == [
        "would be added: template resize",
        "would be changed: template greet",
    ]
    assert known.json("template", "load", "jobs.toml") == {
        "added": ["template resize"],
        "changed": ["template greet"],
        "unchanged": [],
        "dry_run": False,
    }
    assert known.ok("template", "load", "jobs.toml").splitlines() == ["unchanged: template greet", "unchanged: template resize"]


def test_load_makes_a_store_that_is_not_there_and_a_dry_run_does_not(cli):
    (cli.folder / "types.json").write_text(json.dumps([{"doctype": "Job Type", "type_name": "fax", "handler_method": "shop.fax.send"}]))
    assert cli("template", "load", "types.json", "--dry-run").exit_code == 3
    assert not cli.store.exists()
    assert cli.ok("template", "load", "types.json") == "added: template fax\n"


def test_the_sample_job_is_loaded_enqueued_and_run_from_the_command_line(cli):
    shown = cli.ok("template", "load", "--samples")
    assert shown.startswith("added: template sample_job\n")
    assert "ROTA_HANDLER_MODULES=rota.samples rota up" in shown
    cli.env["ROTA_HANDLER_MODULES"] = "rota.samples"
    cli.start("worker")
    done = cli.process("enqueue", "sample_job", "-p", "seconds=0.1", "--wait", "--wait-timeout", "30s", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"]["result"] == {"steps": 5, "attempt": 1}


def test_sql_and_commands_are_defined_listed_and_shown(known):
    sql = "SELECT id\n  FROM orders WHERE region = :region"
    made = known.ok("template", "define", "by_region", "--sql", sql, "--connection", "shop", "--secrets", "a", "--secrets", "b")
    assert "kind        SQL" in made
    assert "handler" not in made
    known.ok("template", "define", "backup", "--command", "/usr/bin/backup --all", "--timeout", "1h")
    listed = known.ok("template", "list").splitlines()
    assert [line.split()[:2] for line in listed if line.startswith(("backup", "by_region", "greet"))] == [
        ["backup", "command"],
        ["by_region", "SQL"],
        ["greet", "Python"],
    ]
    shown = known.ok("template", "get", "by_region")
    assert "secrets     a, b" in shown
    assert "text        SELECT id" in shown
    assert json.loads(known.ok("template", "get", "by_region", "--json"))["body"] == sql


def test_what_can_not_be_defined_is_refused_with_its_reason(known):
    assert "pass one of sql and command" in known("template", "define", "x").stderr
    assert "use the absolute path" in known("template", "define", "x", "--command", "true").stderr
    assert "'greet' is Python" in known("template", "define", "greet", "--sql", "SELECT 1").stderr
