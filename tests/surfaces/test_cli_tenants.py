"""Organizations and users on the command line, and commands given in somebody's name."""

from __future__ import annotations

import ast
import inspect
import json

import pytest

from rota import Rota
from rota.operation import NOUNS
from rota.surfaces.cli.tree import WITHOUT
from tests.surfaces.cli_support import ROOT, Cli, commands

COMMANDS = dict(commands())
LOCAL = {("enqueue.py", "workers.list"), ("serving.py", "workers.list"), ("serving.py", "queues.jobs"), ("workers.py", "connections.list")}
"""Looks that a command takes for itself: for a worker, its own worker's types, jobs of its demo, and connections to serve."""


@pytest.fixture
def cli(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path)
    del made.env["ROTA_ACTOR"]
    monkeypatch.delenv("ROTA_ACTOR", raising=False)
    with Rota(made.store).transaction():
        pass
    yield made
    made.close()


@pytest.fixture
def shared(cli):
    """A store with two organizations, their people, and a template."""
    for name in ("acme", "beta"):
        cli.ok("organization", "create", name)
    cli.ok("user", "create", "root", "--role", "system_manager")
    cli.ok("user", "create", "ada", "--organization", "acme", "--role", "admin")
    cli.ok("user", "create", "bob", "--organization", "acme", "--permission", "reports")
    cli.ok("user", "create", "eve", "--organization", "beta", "--role", "admin")
    rota = Rota(cli.store)
    rota.job(name="greet")(lambda name="you": name)
    rota.enqueue("greet")
    rota.close()
    return cli


def test_an_organization_is_made_listed_changed_and_shown(cli):
    assert "acme  ACTIVE  limits: running 20, queued none, priority 75" in cli.ok(
        "organization", "create", "acme", "--display-name", "Acme [Ltd]", "--max-running", "20", "--max-priority", "high"
    )
    made = cli.json("organization", "update", "acme", "--max-running", "none", "--max-queued", "5")
    assert (made["max_running"], made["max_queued"], made["max_priority"], made["display_name"]) == (None, 5, 75, "Acme [Ltd]")
    assert [each["name"] for each in cli.lines("organization", "list")] == ["acme", "default"]
    assert "Acme [Ltd]" in cli.ok("organization", "list")
    cli.ok("user", "create", "bob", "--organization", "acme")
    shown = cli.json("organization", "get", "acme")
    assert (shown["max_queued"], [user["name"] for user in shown["users"]]) == (5, ["bob"])
    assert "bob (user)" in cli.ok("organization", "get", "acme")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("organization", "create", "acme", "--max-running", "many"), 2, "max_running='many'"),
        (("organization", "create", ""), 1, "invalid_name"),
        (("organization", "update", "acme"), 2, "nothing to change"),
        (("organization", "get", "nope"), 1, "unknown_organization"),
        (("organization", "delete", "default", "--yes"), 1, "can't be removed"),
        (("user", "update", "bob"), 2, "nothing to change"),
        (("user", "create", "bob", "--role", "boss"), 2, "boss"),
        (("user", "delete", "nobody", "--yes"), 3, "not_found"),
    ],
)
def test_what_cannot_be_is_refused_with_its_exit_code(cli, args, code, words):
    result = cli(*args)
    assert result.exit_code == code
    assert words in result.output


def test_an_organization_is_suspended_resumed_and_removed(shared):
    assert "SUSPENDED" in shared.ok("organization", "suspend", "acme", "--yes")
    assert shared("enqueue", "greet", "--organization", "acme").exit_code == 1
    assert "ACTIVE" in shared.ok("organization", "restore", "acme")
    shared.ok("enqueue", "greet", "--organization", "acme")
    shared.ok("organization", "delete", "acme", "--yes")
    assert "acme" not in shared.ok("organization", "list")
    assert "REMOVED" in shared.ok("organization", "list", "--removed")


def test_removing_asks_first(shared):
    for args in (("organization", "delete", "beta"), ("user", "delete", "bob")):
        assert shared.asked(*args, answer="n").exit_code == 1
        refused = shared(*args, stdin="y\n")
        assert (refused.exit_code, "pass --yes to confirm" in refused.stderr) == (1, True)
    assert [each["name"] for each in shared.lines("organization", "list")] == ["acme", "beta", "default"]
    assert shared.asked("user", "delete", "bob", answer="y").exit_code == 0
    assert "bob" not in shared.ok("user", "list")
    assert "deleted" in shared.ok("user", "list", "--removed")


def test_a_user_is_listed_and_changed(shared):
    assert [each["name"] for each in shared.lines("user", "list")] == ["ada", "bob", "eve", "root"]
    assert "bob  admin  of acme  permissions: reports" in shared.ok("user", "update", "bob", "--role", "admin")
    assert shared.json("user", "update", "bob", "--permission", "none", "--organization", "beta")["permissions"] == []


def test_without_a_name_the_shells_user_is_the_manager_and_is_recorded(shared, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "sam")
    job = shared.json("enqueue", "greet", "--organization", "acme")
    assert (job["owner"], job["organization"]) == ("sam", "acme")


def test_a_command_is_given_in_the_name_of_a_user(shared):
    job = shared.json("enqueue", "greet", "--as", "bob")
    assert (job["owner"], job["organization"]) == ("bob", "acme")
    assert shared("job", "update", job["id"], "--priority", "high", "--as", "bob").exit_code == 1
    assert shared.json("job", "update", job["id"], "--priority", "high", "--as", "ada")["priority"] == 75
    assert shared("job", "cancel", job["id"], "--as", "eve", "--yes").exit_code == 3
    assert shared.json("job", "cancel", job["id"], "--as", "bob", "--yes")["status"] == "CANCELLED"


def test_the_environment_names_the_user_too_and_the_option_wins(shared):
    shared.env["ROTA_ACTOR"] = "bob"
    assert shared.json("enqueue", "greet")["owner"] == "bob"
    assert shared.json("enqueue", "greet", "--as", "ada")["owner"] == "ada"
    shared.env["ROTA_ACTOR"] = "stranger"
    refused = shared("enqueue", "greet")
    assert (refused.exit_code, "'stranger' is no user of this store" in refused.output) == (1, True)


def test_a_name_given_to_one_command_is_forgotten_by_the_next(shared, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "sam")
    shared.ok("enqueue", "greet", "--as", "bob")
    assert shared.json("enqueue", "greet")["owner"] == "sam"


@pytest.mark.parametrize("command", ["worker", "up"])
def test_only_a_system_manager_starts_a_worker(shared, command):
    shared.env["ROTA_HANDLER_MODULES"] = "rota.samples"
    refused = shared(command, "--as", "ada")
    assert (refused.exit_code, "may not operate" in refused.output) == (1, True)


def test_an_organization_is_paused_by_its_admin(shared):
    assert shared.ok("organization", "pause", "acme", "--as", "ada") == "Paused: organization acme.\n"
    assert shared.ok("organization", "pause", "beta") == "Paused: organization acme, organization beta.\n"
    assert shared.ok("organization", "resume", "acme", "--as", "ada") == "Nothing is paused.\n"
    assert shared("pause", "--as", "ada").exit_code == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_acts_can_be_given_in_somebodys_name(command):
    options = {option for param in COMMANDS[command].params for option in param.opts}
    assert ("--as" in options) == (command.split()[-1] not in WITHOUT)


OF_THE_PROGRAM = {"acting_as", "close", "store.url"}
"""Names of a Rota that ask for nothing of anybody."""
VERBS = {name for name, _ in inspect.getmembers(Rota, inspect.isfunction)}


def asked_of(node: ast.AST) -> str | None:
    """Return the verb that a piece of code asks of a `rota`, as itself or of a noun; None if it does not."""
    match node:
        case ast.Attribute(value=ast.Name(id="rota"), attr=verb) if verb in VERBS:
            return verb
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="rota"), attr=noun), attr=verb) if noun in NOUNS:
            return f"{noun}.{verb}"
    return None


@pytest.mark.parametrize("path", sorted((ROOT / "src/rota/surfaces/cli").rglob("*.py")), ids=lambda path: path.name)
def test_every_call_of_a_command_says_who_asks(path):
    if path.name == "watch.py":
        # The view of a worker shows its whole store, to whoever was allowed to start it.
        return
    silent = {asked_of(node) for node in ast.walk(ast.parse(path.read_text()))} - OF_THE_PROGRAM - {None}
    assert silent == {name for file, name in LOCAL if file == path.name}


def test_nothing_of_another_organization_is_printed(shared):
    secret = "s3cret"
    shared.ok("enqueue", "greet", "-p", f"name={secret}", "--unique-key", secret, "--organization", "beta")
    group = shared.json("group", "create", f'greet:{{"name": "{secret}"}}', "--name", secret, "--organization", "beta")
    number = shared.lines("group", "list")[0]["members"][0]["number"]
    shared.ok("enqueue", "greet", "-p", "name=own", "--as", "bob")
    for actor in ("ada", "bob"):
        for name, command in COMMANDS.items():
            words = name.split()[1:]
            if words[0] in {"up", "worker"} or words[-1] in WITHOUT:
                continue
            arguments = [number for param in command.params if param.param_type_name == "argument"]
            if words[0] == "group" and words[-1] in {"get", "cancel"}:
                arguments = [group["id"]]
            result = shared(*words, *arguments, "--as", actor, *(["--yes"] if "yes" in {each.name for each in command.params} else []))
            assert secret not in result.output, (name, result.output)
            assert result.exception is None or isinstance(result.exception, SystemExit), (name, repr(result.exception))
    assert json.loads(shared.ok("group", "get", group["id"], "--json"))["status"] == "QUEUED"


# ---- roles and grants --------------------------------------------------------------------------------------------------


def test_privileges_are_granted_shown_and_revoked(cli):
    cli.ok("organization", "create", "acme")
    cli.ok("user", "create", "root", "--role", "system_manager")
    cli.ok("user", "create", "ada", "--organization", "acme", "--role", "admin")
    cli.ok("enqueue", "greet", "--app", "shop")
    cli.ok("schedule", "create", "nightly", "greet", "--every", "1h", "--as", "ada")
    cli.ok("role", "create", "ops", "--as", "ada")
    assert "EXECUTE" in cli.ok("grant", "create", "ALL", "ops", "--job", "nightly", "--as", "ada")
    grants = cli.lines("grant", "list", "--as", "ada")
    assert sorted(grant["privilege"] for grant in grants) == ["ALTER", "DROP", "EXECUTE", "VIEW JOB HISTORY"]
    assert "job nightly" in cli.ok("grant", "list", "--job", "nightly", "--as", "ada")
    assert cli("role", "delete", "ops", "--yes", "--as", "ada").exit_code != 0
    for grant in grants:
        cli.ok("grant", "delete", grant["id"], "--yes", "--as", "ada")
    assert "No grants" in cli.ok("grant", "list", "--as", "ada")
    cli.ok("role", "delete", "ops", "--yes", "--as", "ada")
    assert "No roles" in cli.ok("role", "list", "--as", "ada")
