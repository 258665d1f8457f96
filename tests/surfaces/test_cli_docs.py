"""The page, the help and the commands say the same."""

from __future__ import annotations

import re

import pytest

from tests.surfaces.cli_support import ROOT, commands

PAGE = (ROOT / "docs/reference/cli.md").read_text()
COMMANDS = dict(commands())


def section(command: str) -> str:
    found = re.search(rf"^### {re.escape(command)}$(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/cli.md has no section '### {command}'"
    return found[1]


def test_docs_describe_no_command_that_is_not_there():
    assert set(re.findall(r"^### (.+)$", PAGE, re.MULTILINE)) == set(COMMANDS)


def test_pages_and_messages_name_only_commands_that_are_there():
    first = {command.split()[1] for command in COMMANDS}
    groups = {command.split()[1] for command in COMMANDS if len(command.split()) > 2}
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/rota/**/*.py"), *ROOT.glob("src/rota/**/*.html")]:
        for word, other in re.findall(r"`rota ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", path.read_text()):
            assert word in first, f"{path}: rota {word}"
            known = any(f"{command} ".startswith(f"rota {word} {other} ") for command in COMMANDS)
            assert word not in groups or not other or known, f"{path}: rota {word} {other}"


@pytest.mark.parametrize("command", COMMANDS)
def test_docs_describe_every_option_of_every_command(command):
    words = section(command)
    for param in COMMANDS[command].params:
        if param.param_type_name == "option" and param.name != "help":
            for option in param.opts:
                assert re.search(rf"`{option}[ `]", words), f"{command}: docs/reference/cli.md does not name {option}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_store_and_json(command):
    options = {option for param in COMMANDS[command].params for option in param.opts}
    assert {"--store", "--json"} <= options


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_and_every_section_of_the_docs_has_an_example(command):
    examples = [line for line in COMMANDS[command].epilog.splitlines() if line.startswith("$ ")]
    assert any(command in example for example in examples)
    for example in examples:
        assert example.removeprefix("$ ") in section(command)


def test_docs_list_every_exit_code():
    table = set(re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE))
    assert table == {"0", "1", "2", "3", "4", "75", "130"}
