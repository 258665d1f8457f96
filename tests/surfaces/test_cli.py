"""The commands, one by one, in this process."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rota import Rota
from rota.surfaces.cli.app import app
from tests.stores.desk import Desk
from tests.surfaces.cli_support import Cli, commands


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path)
    with handlers(made) as rota, rota.transaction():  # templates are registered, nothing is enqueued
        pass
    return made


class handlers:  # noqa: N801 - reads as a word in the tests
    """A Rota with the application's handlers on the same store, in this process."""

    def __init__(self, cli: Cli) -> None:
        names: dict[str, object] = {}
        exec(compile((cli.folder / "shop.py").read_text(), "shop", "exec"), names)
        self.rota = names["rota"]
        assert isinstance(self.rota, Rota)
        self.rota._session.name_store(str(cli.store))

    def __enter__(self) -> Rota:
        assert isinstance(self.rota, Rota)
        return self.rota

    def __exit__(self, *_: object) -> None:
        self.rota.close()


def turn(cli: Cli) -> None:
    with handlers(cli) as rota:
        rota.turn()


def enqueue(cli: Cli, *args: str) -> dict[str, object]:
    return cli.json("enqueue", *args)


def test_enqueue_prints_the_number_and_keeps_params_and_actor(cli):
    words = cli.ok("enqueue", "greet", "-p", "name=Ada")
    assert words.startswith("JOB-")
    assert "QUEUED" in words
    job = cli.json("job", "get", "1")
    assert (job["params"], job["owner"], job["run"], job["attempts"]) == ({"name": "Ada"}, "tester", None, [job["number"]])


@pytest.mark.parametrize(
    ("given", "params"),
    [
        (["-p", "n=640", "-p", "on=true", "-p", "list=[1]", "-p", "code=\"007\"", "-p", "text=a=b", "-p", "none="],
         {"n": 640, "on": True, "list": [1], "code": "007", "text": "a=b", "none": ""}),
        (["--params", '{"a": 1, "b": 2}', "-p", "b=3"], {"a": 1, "b": 3}),
        (["--params", "{}"], {}),
        ([], {}),
    ],
)  # fmt: skip
def test_params_come_as_json_or_as_pairs(cli, given, params):
    assert enqueue(cli, "greet", *given)["params"] == params


def test_params_come_from_stdin_and_from_a_file(cli):
    assert json.loads(cli("enqueue", "greet", "--params", "-", "--json", stdin='{"name": "in"}').stdout)["params"] == {"name": "in"}
    (cli.folder / "p.json").write_text('{"name": "file"}')
    assert enqueue(cli, "greet", "--params", "@p.json")["params"] == {"name": "file"}


def test_a_job_may_be_delayed_or_given_a_time(cli):
    late = enqueue(cli, "greet", "--in", "1h30m")
    assert late["status"] == "PENDING"
    due = datetime.fromisoformat(str(late["run_at"])) - datetime.fromisoformat(str(late["created_at"]))
    assert abs(due - timedelta(minutes=90)) < timedelta(seconds=1)
    assert enqueue(cli, "greet", "--run-at", "2999-01-01T02:00+02:00")["run_at"] == "2999-01-01T00:00:00Z"
    assert "PENDING for 2999-01-01 00:00:00Z" in cli.ok("enqueue", "greet", "--run-at", "2999-01-01T00:00:00Z")


def test_options_of_a_job_are_kept(cli):
    job = enqueue(cli, "greet", "--priority", "high", "--max-retries", "0", "--timeout", "2m", "--unique-key", "k")
    assert (job["priority"], job["max_retries"], job["timeout"], job["unique_key"]) == (75, 0, 120.0, "k")
    again = enqueue(cli, "greet", "--unique-key", "k")
    assert (again["id"], again["existing"]) == (job["id"], True)
    assert "holds this key already" in cli.ok("enqueue", "greet", "--unique-key", "k")


@pytest.mark.parametrize(
    "args",
    [
        ["enqueue"],
        ["enqueue", "greet", "-p", "name"],
        ["enqueue", "greet", "-p", "=x"],
        ["enqueue", "greet", "--params", "[1]"],
        ["enqueue", "greet", "--params", "{"],
        ["enqueue", "greet", "--params", "@missing.json"],
        ["enqueue", "greet", "--in", "soon"],
        ["enqueue", "greet", "--in", "9999999999999d"],
        ["enqueue", "greet", "--run-at", "tomorrow"],
        ["enqueue", "greet", "--run-at", "2026-08-01"],
        ["enqueue", "greet", "--zone", "Mars/Olympus"],
        ["enqueue", "greet", "--run-at", "2026-08-01T09:00:00Z", "--in", "5m"],
        ["job", "update", "1", "--run-at", "2036-08-01T09:00:00Z", "--in", "5m"],
        ["enqueue", "greet", "--max-retries", "-1"],
        ["job", "list", "--status", "ASLEEP"],
        ["job", "list", "--limit", "0"],
        ["job", "update", "1"],
        ["job", "nothing"],
        ["pause", "--template", "a"],
        ["up", "--demo"],
        ["--nothing"],
    ],
)
def test_a_wrong_command_line_exits_with_2(cli, args):
    result = cli(*args)
    assert result.exit_code == 2
    assert result.stderr
    assert not isinstance(result.exception, ValueError)


@pytest.mark.parametrize("where", [(), ("--front", "--before", "1")])
def test_a_move_says_one_place(cli, where):
    enqueue(cli, "greet")
    result = cli("job", "move", "1", *where)
    assert (result.exit_code, "exactly one of" in result.stderr) == (2, True)


def test_what_is_refused_is_one_line_with_its_code_and_its_exit_code(cli):
    for args, exit_code, code in [
        (("enqueue", "nosuch"), 1, "unknown_template"),
        (("enqueue", "greet", "--priority", "101"), 2, "invalid_option"),
        (("enqueue", "greet", "--store", "redis://there"), 2, "invalid_option"),
    ]:
        result = cli(*args)
        assert (result.exit_code, result.stdout) == (exit_code, "")
        assert result.stderr.startswith("error: ")
        assert result.stderr.endswith(f"({code})\n")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "given", ["99", "JOB-2026-00099", "01981c5e-7a10-7000-8000-000000000000", "nonsense", "9" * 30, "²", "x-1", "1.7", "JOB-1999-00001"]
)
def test_what_is_not_there_exits_with_3(cli, given):
    cli.ok("enqueue", "greet")
    for verb in ("get", "explain", "runs", "log", "cancel", "retry"):
        result = cli("job", verb, given, *(["--yes"] if verb == "cancel" else []))
        assert result.exit_code == 3, result.output
        assert result.stderr.endswith("(not_found)\n")


def test_a_group_that_is_not_there_exits_with_3(cli):
    for given in ("42", "01981c5e-7a10-7000-8000-000000000000"):
        assert cli("group", "get", given).exit_code == 3
        assert cli("group", "cancel", given, "--yes").exit_code == 3


def test_a_question_makes_no_store(cli):
    for args in (["job", "list"], ["stats"], ["enqueue", "greet"], ["pause"], ["recover"]):
        result = cli(*args, "--store", "other.db")
        assert result.exit_code == 3
        assert "there is no store at" in result.stderr
    assert not (cli.folder / "other.db").exists()


def test_a_job_is_named_by_id_by_number_or_by_digits(cli):
    job = enqueue(cli, "fails")
    turn(cli)
    for given in (job["id"], job["number"], "1", "1.1", str(job["number"]).lower()):
        assert cli.json("job", "get", str(given))["id"] == job["id"]
    assert cli.json("job", "get", f"{job['number']}.2")["attempt"] == 2


def test_list_filters(cli):
    enqueue(cli, "greet", "-p", "name=Ada")
    enqueue(cli, "fails")
    enqueue(cli, "greet", "-p", "name=Bob", "--in", "1h")
    assert [job["params"] for job in cli.lines("job", "list")] == [{"name": "Bob"}, {}, {"name": "Ada"}]
    assert len(cli.lines("job", "list", "--type", "greet")) == 2
    assert len(cli.lines("job", "list", "--status", "pending", "--status", "QUEUED")) == 3
    assert [job["status"] for job in cli.lines("job", "list", "--status", "pending")] == ["PENDING"]
    assert len(cli.lines("job", "list", "--text", "Ada")) == 1
    assert len(cli.lines("job", "list", "--limit", "2")) == 2
    words = cli.ok("job", "list")
    assert "PENDING" in words
    assert '{"name":"Bob"}' in words
    assert cli.ok("job", "list", "--text", "nobody") == "No jobs.\n"


def test_an_ended_job_shows_its_result_its_runs_and_its_log(cli):
    enqueue(cli, "greet", "-p", "name=Ada")
    turn(cli)
    shown = cli.json("job", "get", "1")
    assert (shown["status"], shown["run"]["result"]) == ("COMPLETED", "Hello, Ada")
    assert '"Hello, Ada"' in cli.ok("job", "get", "1")
    assert [run["run"]["result"] for run in cli.lines("job", "runs", "1")] == ["Hello, Ada"]
    assert '"Hello, Ada"' in cli.ok("job", "runs", "1")
    log = cli.lines("job", "log", "1")
    assert [entry["to_status"] for entry in log if entry["to_status"]] == ["QUEUED", "RUNNING", "COMPLETED"]
    assert "greeting Ada" in cli.ok("job", "log", "1")
    assert cli.ok("job", "log", "1", "--raw").endswith("greeting Ada\n")
    assert "greeting Ada" in cli.json("job", "log", "1", "--raw")["text"]


def test_errors_with_brackets_are_shown_as_they_are(cli):
    enqueue(cli, "fails", "--max-retries", "0")
    turn(cli)
    for command in ("get", "runs", "explain", "log"):
        assert "no such thing [today]" in cli.ok("job", command, "1"), command
    assert "Traceback" in cli.ok("job", "get", "1")


def test_explain_says_what_is_missing(cli):
    enqueue(cli, "greet")
    words = cli.ok("job", "explain", "1")
    assert "no worker is running" in words
    assert "✗" in words
    explanation = cli.json("job", "explain", "1")
    assert explanation["job"]["status"] == "QUEUED"
    assert not all(reason["met"] for reason in explanation["reasons"])


def test_cancel_goes_on_after_a_refusal_and_the_first_one_gives_the_code(cli):
    enqueue(cli, "greet")
    enqueue(cli, "greet")
    result = cli("job", "cancel", "99", "1", "98", "2", "--reason", "not needed", "--yes")
    assert result.exit_code == 3
    assert result.stdout.count("CANCELLED") == 2
    assert result.stderr.count("error: ") == 2
    job = cli.json("job", "get", "1")
    assert (job["status"], job["reason"], job["ended_by"]) == ("CANCELLED", "not needed", "tester")


def test_retry_brings_an_ended_chain_back(cli):
    enqueue(cli, "gives_up")
    turn(cli)
    assert cli.json("job", "get", "1")["status"] == "DEAD_LETTER"
    (again,) = cli.lines("job", "retry", "1")
    assert (again["number"][-2:], again["status"]) == (".2", "QUEUED")
    refused = cli("job", "retry", "1")
    assert (refused.exit_code, refused.stderr.endswith("(still_live)\n")) == (1, True)


def test_change_replaces_params_or_only_those_named(cli):
    enqueue(cli, "greet", "--params", '{"name": "Ada", "greeting": "Hi"}')
    assert cli.json("job", "update", "1", "-p", "name=Bob")["params"] == {"name": "Bob", "greeting": "Hi"}
    assert cli.json("job", "update", "1", "--params", '{"name": "Eve"}', "--priority", "low")["params"] == {"name": "Eve"}
    assert cli.json("job", "get", "1")["priority"] == 25
    late = enqueue(cli, "greet", "--in", "1h")
    moved = cli.json("job", "update", str(late["id"]), "--in", "5h", "--priority", "critical")
    assert (moved["run_at"] > str(late["run_at"]), moved["priority"]) == (True, 100)
    refused = cli("job", "update", "1", "--in", "5m", "--priority", "high")
    assert refused.exit_code == 1
    assert cli.json("job", "get", "1")["priority"] == 25, "of two changes at once, none is made if the time is refused"
    before = cli.json("job", "get", str(late["id"]))["run_at"]
    assert cli("job", "update", str(late["id"]), "--in", "10h", "--priority", "999").exit_code == 2
    assert cli.json("job", "get", str(late["id"]))["run_at"] == before, "nor if the priority is refused"


def test_move_reorders_the_queue(cli):
    first, second, third = (str(enqueue(cli, "greet")["number"]) for _ in range(3))
    cli.ok("job", "move", third, "--front")
    assert [job["number"] for job in cli.lines("queue", "jobs")] == [third, first, second]
    cli.ok("job", "move", third, "--after", first)
    assert [job["number"] for job in cli.lines("queue", "jobs")] == [first, third, second]
    assert cli.json("job", "move", second, "--before", "1")["number"] == second
    assert [job["number"] for job in cli.lines("queue", "jobs", "--limit", "2")] == [second, first]
    assert second in cli.ok("queue", "jobs")


def test_groups_are_made_listed_shown_and_cancelled(cli):
    waiting = enqueue(cli, "greet", "--in", "1h")
    group = cli.json("group", "create", "greet", 'greet:{"name": "Ada"}', str(waiting["number"]), "--name", "night", "--on-failure", "skip")
    assert [member["job_type"] for member in group["members"]] == ["greet"] * 3
    assert (group["mode"], group["on_failure"], group["name"], group["status"]) == ("sequential", "skip", "night", "QUEUED")
    assert [each["id"] for each in cli.lines("group", "list")] == [group["id"]]
    assert "0/3" in cli.ok("group", "list")
    assert cli.json("group", "get", group["id"])["id"] == group["id"]
    assert len(cli.lines("job", "list", "--group", group["id"])) == 3
    assert cli.json("group", "cancel", group["id"], "--yes")["status"] == "CANCELLED"
    assert "CANCELLED" in cli.ok("group", "get", group["id"])
    parallel = cli.json("group", "create", "greet", "--mode", "parallel")
    assert (parallel["mode"], parallel["on_failure"]) == ("parallel", "continue")
    assert cli.json("group", "create", "greet", "--mode", "parallel", "--on-failure", "stop")["on_failure"] == "stop"
    assert cli.json("group", "create", "greet")["on_failure"] == "stop"
    assert cli("group", "create", "greet", "--mode", "sideways").exit_code == 2
    followed = cli.json("group", "create", "greet", "--then", 'greet:{"name": "Ada"}', "--on-parent-failure", "run")
    assert (followed["then"]["job_type"], followed["then"]["on_parent_failure"]) == ("greet", "run")
    assert f"then {followed['then']['number']}" in cli.ok("group", "get", followed["id"])
    assert cli("group", "create", "greet", "--on-parent-failure", "run").exit_code == 2
    assert cli("group", "create", "greet:{").exit_code == 2


def test_pause_and_resume_say_what_is_paused(cli):
    cli.ok("organization", "create", "acme")
    assert cli.ok("pause") == "Paused: everything.\n"
    assert cli.json("template", "pause", "greet")["paused"] == ["everything", "template greet"]
    assert cli.json("organization", "pause", "acme")["paused"] == ["everything", "organization acme", "template greet"]
    assert "everything" in cli.ok("stats")
    assert cli.json("pauses")["paused"] == ["everything", "organization acme", "template greet"]
    cli.ok("organization", "resume", "acme")
    assert cli.ok("resume") == "Paused: template greet.\n"
    assert cli.ok("template", "resume", "greet") == "Nothing is paused.\n"
    assert cli.ok("pauses") == "Nothing is paused.\n"


def test_stats_count(cli):
    enqueue(cli, "greet", "--priority", "high")
    enqueue(cli, "greet", "--in", "1h")
    stats = cli.json("stats")
    assert (stats["by_status"]["QUEUED"], stats["by_status"]["PENDING"]) == (1, 1)
    assert (stats["by_priority"], stats["waiting_by_type"], stats["paused"]) == ({"75": 1}, {"greet": 1}, [])
    assert "greet: 1" in cli.ok("stats")


def test_workers_are_listed(cli):
    assert cli.lines("workers") == []
    assert "No worker is running" in cli.ok("workers")
    with handlers(cli) as rota, rota.running(concurrency=1):
        (worker,) = cli.lines("workers")
        assert "greet" in worker["job_types"]
        assert (worker["running"], worker["claimed_ahead"], worker["slots"]) == (0, 0, 1)
        assert worker["id"] in cli.ok("workers")
        assert "0 of 1" in cli.ok("workers")
        assert f"pid {os.getpid()}, " in cli.ok("workers")
        assert worker["memory"] > 2**20
        assert " MiB" in cli.ok("workers")


def test_what_a_worker_has_claimed_ahead_is_not_said_to_run(cli):
    with handlers(cli) as rota:
        for _ in range(5):
            rota.enqueue("greet")
        desk = Desk(rota._session.open().store)
        desk.ids, desk.now = rota._session.ids, rota._session.clock.now()
        desk.worker = desk.id()
        lease = rota._session.open().liveness.take(desk.worker)
        desk.store.register(desk.worker, host="here", kind="worker", job_types=["greet"], now=desk.now, slots=2)
        desk.claim(5, types=("greet",))
        assert "2 of 2, 3 ahead" in cli.ok("workers")
        stats = cli.ok("stats")
        assert re.search(r"running\s+2$", stats, re.MULTILINE)
        assert re.search(r"claimed ahead\s+3$", stats, re.MULTILINE)
        top = cli.ok("top", "--once")
        assert "2 running · 3 claimed ahead" in top
        assert re.search(r"Running\s+2, 3 claimed ahead", top)
        lease.release(clean=True)


def test_recover_says_what_it_did(cli):
    assert cli.ok("recover") == "Nothing to recover.\n"
    assert cli.json("recover") == {"workers": 0, "jobs": 0, "successors": 0, "reservations": 0}


def test_settings_say_value_default_and_variable(cli):
    cli.env["ROTA_CONCURRENCY"] = "32"
    rows = {row["name"]: row for row in cli.lines("settings")}
    assert (rows["concurrency"]["value"], rows["concurrency"]["default"], rows["concurrency"]["variable"]) == (32, 8, "ROTA_CONCURRENCY")
    assert rows["store"]["value"] == str(cli.store)
    assert "handlers one worker runs at once" in cli.ok("settings")
    cli.env["ROTA_CONCURRENCY"] = "many"
    result = cli("settings")
    assert (result.exit_code, "ROTA_CONCURRENCY" in result.stderr) == (2, True)


def test_version_says_what_a_bug_report_needs(cli):
    found = cli.json("version")
    assert {"rota", "python", "sqlite", "store"} <= set(found)
    assert found["rota"] in cli.ok("version")
    assert cli.json("version", "--store", "no.db")["store_exists"] is False


def test_times_in_json_are_utc_with_a_z(cli):
    at = str(enqueue(cli, "greet")["created_at"])
    assert at.endswith("Z")
    assert abs(datetime.fromisoformat(at) - datetime.now(UTC)) < timedelta(minutes=1)


def test_without_rota_actor_the_user_of_the_system_asks(cli, monkeypatch):
    cli.env["ROTA_ACTOR"] = ""
    monkeypatch.setenv("LOGNAME", "grace")
    assert enqueue(cli, "greet")["owner"] == "grace"


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("nosuch:rota", "there is no module 'nosuch'"),
        ("shop:nothing", "no attribute 'nothing'; its Rota is shop:rota"),
        ("shop:not_a_rota", "'not_a_rota' is an int, not a Rota"),
        ("shop.py:rota", "give a module, not a file, as in --app shop:rota"),
        ("broken", "importing it failed with ZeroDivisionError: division by zero (broken.py, line 1)"),
        ("needs", "importing it failed with ModuleNotFoundError: No module named 'not_installed' (needs.py, line 1)"),
        ("leaves", "importing it failed with SystemExit: 3"),
    ],
)
def test_an_application_that_cannot_be_loaded_says_why(cli, app, words):
    (cli.folder / "broken.py").write_text("1 / 0\n")
    (cli.folder / "needs.py").write_text("import not_installed\n")
    (cli.folder / "leaves.py").write_text("raise SystemExit(3)\n")
    result = cli.process("enqueue", "greet", "--app", app)
    assert (result.returncode, result.stdout) == (2, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_every_command_prints_help_with_an_example():
    from typer.testing import CliRunner

    from rota.surfaces.cli.app import app

    for path, _ in commands():
        result = CliRunner().invoke(app, [*path.split()[1:], "--help"])
        assert result.exit_code == 0
        assert f"$ {path}" in result.output.replace("\n", " ")


@pytest.mark.parametrize("words", [words.split()[1:] for words, _ in commands()] + [[], ["job"]], ids=" ".join)
def test_help_shows_no_python_types(words):
    shown = CliRunner(env={"TERM": "dumb", "COLUMNS": "200"}).invoke(app, [*words, "--help"]).stdout
    found = re.findall(r"<[a-z\[\] |]+>|list\[\w*\]?|\{[A-Z.]+\}|\[\[", shown)
    assert found == []
    usage = next(line for line in shown.splitlines() if "Usage:" in line)
    assert "....." not in usage


def test_the_usage_of_a_command_names_its_arguments_plainly():
    runner = CliRunner(env={"TERM": "dumb", "COLUMNS": "200"})
    for words, usage in (
        ("job cancel", "rota job cancel [OPTIONS] JOB..."),
        ("group create", "rota group create [OPTIONS] MEMBER..."),
        ("schedule delete", "rota schedule delete [OPTIONS] NAME"),
    ):
        shown = runner.invoke(app, [*words.split(), "--help"], prog_name="rota").stdout
        assert usage in [line.strip().removeprefix("Usage: ") for line in shown.splitlines()]


@pytest.mark.parametrize("words", ["stats", "job list", "top --once", "forecast", "workers"])
def test_a_command_finds_the_store_of_an_application(cli, words):
    program = "from rota import Rota\n\nrota = Rota('elsewhere.db')\n\n\n@rota.job\ndef only_there(): ...\n"
    (cli.folder / "elsewhere.py").write_text(program)
    del cli.env["ROTA_STORE"]
    with closing(Rota(cli.folder / "elsewhere.db")) as rota:
        rota.job(name="only_there")(lambda: None)
        rota.enqueue("only_there")
        rota.schedule("only_there", "only_there", every="1h")
    shown = cli.process(*words.split(), "--app", "elsewhere:rota")
    assert shown.returncode == 0, shown.stderr
    assert words == "workers" or "only_there" in shown.stdout
