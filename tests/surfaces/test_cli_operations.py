"""Each operation has its command, and each command is that of an operation, or is written by hand for a reason."""

from __future__ import annotations

import re

import pytest

from rota import wire
from rota.app import Rota
from rota.operation import NOUNS, Operation, noun, operations
from rota.surfaces.cli.app import BY_HAND
from rota.surfaces.cli.commands import EXTRAS, MAKES_STORE
from rota.surfaces.cli.examples import EXAMPLES
from tests.surfaces.cli_support import Cli, commands

COMMANDS = {path.removeprefix("rota "): command for path, command in commands()}
OPERATIONS: dict[str, Operation] = {
    str(each.cli): each for owner in (Rota, *map(noun, NOUNS)) for each in operations(owner).values() if each.cli
}
MADE = sorted(OPERATIONS.keys() - BY_HAND.keys())
COMMON = {"store", "as_json", "acts_as", "zone", "help"}
WITHOUT_COMMAND = {
    "group": "`rota group create` is written by hand",
    "schedule": "declares the schedule of a program",
    "events": "`rota events` is written by hand",
    "start": "`rota worker` is written by hand",
    "stop": "as start",
    "run": "as start",
    "turn": "for tests and scripts in Python",
    "Workers.jobs": "`rota job list --status RUNNING` lists them",
    "StoreOperations.measures": "for metrics",
    "StoreOperations.minder": "a context manager",
}
"""Operations without a command, each with the reason."""


def test_every_operation_has_its_command_or_a_reason():
    without = {
        verb if owner is Rota else f"{owner.__name__}.{verb}"
        for owner in (Rota, *map(noun, NOUNS))
        for verb, each in operations(owner).items()
        if not each.cli
    }
    assert without == WITHOUT_COMMAND.keys()
    assert OPERATIONS.keys() <= COMMANDS.keys()


def test_every_command_is_that_of_an_operation_or_written_by_hand_for_a_reason():
    assert set(COMMANDS) == set(MADE) | set(BY_HAND)
    assert all(BY_HAND.values())


def test_tables_of_commands_name_commands():
    assert MAKES_STORE | EXTRAS.keys() <= set(MADE)
    assert set(BY_HAND) <= EXAMPLES.keys() <= set(COMMANDS)


@pytest.mark.parametrize("words", MADE)
def test_every_option_is_a_parameter_of_the_operation(words):
    operation, command = OPERATIONS[words], COMMANDS[words]
    wanted = {field.name for field in operation.fields if wire.reader_of(field).wire is not None and not field.shape.hidden}
    found = {param.name for param in command.params}
    further = {"pairs"} if "params" in wanted else set()
    further |= {"yes"} if operation.confirm else set()
    assert wanted <= found
    assert found - wanted - further - set(EXTRAS.get(words, ())) <= COMMON | {"app"}
    assert {"store", "as_json", "acts_as", "zone"} <= found


@pytest.mark.parametrize("words", MADE)
def test_what_python_takes_by_its_place_is_an_argument(words):
    arguments = {param.name for param in COMMANDS[words].params if param.param_type_name == "argument"}
    objects = {"params"}
    assert arguments == {field.name for field in OPERATIONS[words].fields if field.positional and not field.shape.hidden} - objects


def test_a_secret_is_no_argument_and_no_option():
    hidden = {words: field.name for words in MADE for field in OPERATIONS[words].fields if field.shape.hidden}
    assert hidden == {"connection rotate": "password", "secret create": "value", "secret set": "value"}
    assert all(name not in {param.name for param in COMMANDS[words].params} for words, name in hidden.items())


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_and_every_option_has_its_help(words):
    command = COMMANDS[words]
    assert re.match(r"[A-Z][a-z]+ ", command.help)
    for param in command.params:
        assert param.name == "help" or param.help, f"rota {words}: {param.name} has no help"


@pytest.mark.parametrize("words", MADE)
def test_help_speaks_of_commands_and_not_of_python(words):
    assert not re.search(r"\bReturn|\breturn|\bNone (takes|removes)|=True|=…", COMMANDS[words].help)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A store with two jobs that wait and a dead letter."""
    cli = Cli(tmp_path_factory.mktemp("shop"))
    for _ in range(2):
        assert cli.process("enqueue", "greet", "--in", "1h", "--app", "shop:rota").returncode == 0
    rota = Rota(cli.store)
    rota.job(name="gives_up", max_retries=0)(lambda: 1 / 0)
    rota.enqueue("gives_up")
    rota.turn()
    rota.close()
    return cli


@pytest.mark.parametrize("words", [words for words in MADE if OPERATIONS[words].confirm])
def test_what_can_not_be_undone_is_refused_without_a_terminal(shop, words):
    fields = OPERATIONS[words].fields
    refused = shop(*words.split(), *("x" for field in fields if field.required), *("--all" for field in fields if field.name == "all"))
    assert refused.exit_code == 1
    assert "There is no terminal to ask on: pass --yes to confirm (refused)" in refused.stderr


@pytest.mark.parametrize("words", ["job list", "job cancel-all --yes", "dead list", "dead retry --yes", "dead delete --yes"])
@pytest.mark.parametrize(("option", "name", "most"), [("--text", "text", 1_000), ("--type", "job_type", 255)])
def test_a_filter_that_is_too_long_is_refused_with_its_name(shop, words, option, name, most):
    refused = shop(*words.split(), option, "x" * (most + 1))
    assert refused.exit_code == 2
    assert f"{name}='xxx" in refused.stderr
    assert shop(*words.split(), option, "x" * most).exit_code == 0


def test_several_jobs_are_asked_about_once(tmp_path):
    cli = Cli(tmp_path)
    for _ in range(2):
        assert cli.process("enqueue", "greet", "--app", "shop:rota").returncode == 0
    asked = cli.asked("job", "cancel", "1", "2", answer="y")
    assert asked.stderr.count("Cancel 1, 2 for good?") == 1
    assert asked.stdout.count("CANCELLED") == 2


def test_single_params_are_refused_if_the_job_changed_since_they_were_read(tmp_path, monkeypatch):
    cli = Cli(tmp_path)
    assert cli.process("enqueue", "greet", "--in", "1h", "--app", "shop:rota").returncode == 0
    from rota.surfaces.cli.views import job as view

    real = view.tag_of

    def late(job, tail):
        tag = real(job, tail)
        other = Rota(cli.store)
        other.jobs.update(job.id, params={"name": "Eve"})
        other.close()
        return tag

    monkeypatch.setattr(view, "tag_of", late)
    refused = cli("job", "update", "1", "-p", "name=Bob")
    assert (refused.exit_code, "(changed_meanwhile)" in refused.stderr) == (1, True)
    assert cli.json("job", "get", "1")["params"] == {"name": "Eve"}


def test_a_job_is_enqueued_with_tags_and_a_backoff(tmp_path):
    cli = Cli(tmp_path)
    assert cli.process("enqueue", "greet", "--tag", "eu", "--tag", "vip", "--app", "shop:rota").returncode == 0
    assert cli.json("job", "get", "1")["tags"] == ["eu", "vip"]
    for given in ("base=5,factor=3", '{"base": 5, "factor": 3}'):
        job = cli.json("enqueue", "fails", "--backoff", given)
        assert job["status"] == "QUEUED"
    refused = cli("enqueue", "fails", "--backoff", "base=-1")
    assert (refused.exit_code, "backoff" in refused.stderr) == (2, True)


def test_a_secret_is_read_from_a_file(tmp_path):
    cli = Cli(tmp_path)
    cli.ok("user", "create", "tester", "--role", "system_manager")
    secret = cli.json("webhook", "create", "https://example.com/hooks")["secret"]
    (tmp_path / "secret").write_text(f"{secret}\n")
    assert cli.json("webhook", "rotate", "--secret", f"@{tmp_path / 'secret'}")["secret"] == secret
    assert cli("webhook", "rotate", "--secret", "@nowhere").exit_code == 2


def test_params_of_any_name_are_replaced_when_a_job_is_enqueued_again(tmp_path):
    cli = Cli(tmp_path)
    rota = Rota(cli.store)
    rota.job(name="any")(lambda **params: params)
    rota.enqueue("any", {"job": "old", "other": 1})
    rota.close()
    given = {"job": "a", "self": "b", "ask": "c", "params": "d"}
    again = cli.json("job", "again", "1", *(word for name, value in given.items() for word in ("-p", f"{name}={value}")))
    assert again["params"] == {**given, "other": 1}


def test_a_job_that_was_enqueued_again_and_one_that_waits_for_another(tmp_path):
    cli = Cli(tmp_path)
    assert cli.process("enqueue", "greet", "-p", "name=Ada", "--app", "shop:rota").returncode == 0
    again = cli.json("job", "again", "1", "-p", "name=Bob")
    assert (again["params"], again["meta"]["again_of"]) == ({"name": "Bob"}, cli.json("job", "get", "1")["id"])
    assert cli.json("enqueue", "greet", "--in", "1h")["status"] == "PENDING"
    assert cli.json("job", "depend", "3", "1", "2", "--on-failure", "skip")["blockers"] == 2
    assert [job["number"] for job in cli.lines("job", "attempts", "1")] == [cli.json("job", "get", "1")["number"]]
