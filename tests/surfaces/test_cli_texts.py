"""Texts that handlers, callers and other tenants chose, on the terminal of whoever looks at them: they can't steer it, break it or hide."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from rota.app import Rota
from rota.surfaces.cli import main
from rota.surfaces.cli.journal import Lines
from rota.surfaces.cli.options import point_in_time
from rota.surfaces.cli.output import escaped, plain, show_error, show_pairs, status
from tests.support.pace import patient
from tests.surfaces.cli_support import Cli

STEERS = "\x1b]0;title\x07\x1b[2J\x9b31m\r\u202e"
CLOSES = "see the list[/]"
OTHER_SCRIPT = "仕事"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """Return the command on a store of three dead letters, with what a hostile caller and handler would say."""
    cli = Cli(tmp_path_factory.mktemp("texts"))
    rota = Rota(cli.store)

    @rota.job(max_retries=0)
    def says(ctx, text: str) -> None:  # type: ignore[no-untyped-def]
        ctx.log.info(text)
        ctx.progress(50, text)
        raise ValueError(text)

    with rota.running():
        for text in (STEERS, CLOSES, OTHER_SCRIPT):
            rota.wait(rota.enqueue("says", {"text": text}, unique_key=f"key {text}").id, timeout=patient(10))
    rota.close()
    return cli


COMMANDS = ("job list", "job get {}", "job get {} --face background-job", "job log {}", "job runs {}", "job explain {}", "job graph {}")


@pytest.mark.parametrize("command", [*COMMANDS, "dead list"])
@pytest.mark.parametrize("number", ["1", "2"])
def test_no_text_steers_the_terminal_or_breaks_a_command(texts, command, number):
    shown = texts.ok(*command.format(number).split())
    assert not [each for each in shown if not each.isprintable() and each not in "\n\t"]


def test_a_text_that_looks_like_the_end_of_markup_is_shown_as_it_is(texts):
    assert CLOSES in texts.ok("dead", "list")
    assert f"ValueError: {CLOSES}" in texts.ok("job", "get", "2")
    assert f"ValueError: {CLOSES}" in texts.ok("job", "get", "2")
    assert f"key {CLOSES}" in texts.ok("job", "get", "2")


def test_what_a_handler_wrote_can_still_be_had_as_it_is(texts):
    run = texts.json("job", "get", "1")["run"]
    assert "\x1b[2J" in texts.ok("job", "log", "1", "--raw")
    assert texts.ok("job", "log", "1", "--raw") == Path(run["log_path"]).read_bytes().decode()
    assert texts.json("job", "get", "1")["params"] == {"text": STEERS}


def test_lines_and_tabs_of_a_text_stay_and_what_steers_a_terminal_is_marked():
    assert plain("a\n\tb\u3000c") == "a\n\tb c"
    assert plain("a\x1b[31mb\x07\x9b\r\u202e") == "a·[31mb·· ·"
    assert plain("déjà 漢字 🎉") == "déjà 漢字 🎉"


def test_only_markup_of_our_own_is_taken_for_markup(capsys):
    show_pairs([("state", status("COMPLETED")), ("text", "[red]a[/]"), ("other", escaped("[/]"))])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["state", "COMPLETED"],
        ["text", "[red]a[/]"],
        ["other", "[/]"],
    ]


def test_a_log_line_that_repeats_what_others_say_steers_nothing():
    record = logging.LogRecord("rota", logging.WARNING, "", 0, "job 1: %s", ("\x1b[2Jgone",), None)
    assert Lines().format(record).endswith("WARNING rota  job 1: ·[2Jgone")


def test_an_error_is_one_line_that_steers_nothing(capsys):
    show_error("a\n  b \x1b[2J c", "refused")
    assert capsys.readouterr().err == "error: a b ·[2J c (refused)\n"


def test_a_terminal_without_a_sign_for_a_character_shows_a_question_mark(texts, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "iso-8859-1")
    shown = texts.process("job", "get", "3")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "ValueError: ??" in shown.stdout
    assert json.loads(texts.process("job", "get", "3", "--json").stdout)["params"] == {"text": OTHER_SCRIPT}


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_stream_that_was_closed_is_no_reason_to_fail(texts, closed, monkeypatch):
    monkeypatch.setattr(sys, closed, None)
    monkeypatch.setattr(sys, "argv", ["rota", "job", "list"])
    for name, value in texts.env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as end:
        main()
    getattr(sys, closed).close()
    assert end.value.code == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("2026-08-01", "is a day without a time: use for example 2026-08-01T09:00"),
        ("nine", "use 2026-08-01T09:00 for a time of"),
        ("0001-01-01T00:00:00+14:00", "is beyond the years 1 to 9999 in UTC"),
        ("9999-12-31T23:59:59-14:00", "is beyond the years 1 to 9999 in UTC"),
    ],
)
def test_a_time_that_can_not_be_taken_says_how_to_give_it(given, words):
    with pytest.raises(typer.BadParameter, match=re.escape(words)):
        point_in_time(given)


@pytest.mark.parametrize(
    "args",
    [
        ["job", "list", "--type", "\udcff"],
        ["job", "list", "--text", "a\udcff"],
        ["job", "cancel", "1", "--yes", "--reason", "\udcff"],
        ["enqueue", "says", "--unique-key", "\udcff"],
        ["template", "pause", "\udcff"],
        ["stats", "--store", "\udcff.db"],
    ],
)
def test_bytes_that_are_no_text_are_refused_with_2(texts, args):
    refused = texts(*args)
    assert refused.exit_code == 2
    assert "is not UTF-8" in refused.stderr
    assert "udcff" in refused.stderr


# How deep is too deep for the decoder depends on the version of Python: a thousand levels, or ten thousand.
@pytest.mark.parametrize("args", [["--params", '{"text":' * 50_000], ["-p", "text=" + "[" * 50_000]], ids=["params", "p"])
def test_params_that_are_nested_too_deep_are_refused_with_2(texts, args):
    refused = texts("enqueue", "says", *args)
    assert refused.exit_code == 2
    assert "is nested too deep" in refused.stderr


def test_params_are_read_as_utf_8_whatever_the_terminal_speaks(texts, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "iso-8859-1")
    (texts.folder / "params.json").write_text('{"text": "仕事"}', encoding="utf-8")
    with (texts.folder / "params.json").open() as params:
        command = texts.command("enqueue", "says", "--params", "-", "--json")
        said = subprocess.run(
            command, cwd=texts.folder, env=texts.environment(), stdin=params, capture_output=True, timeout=patient(50), check=True
        )
    assert json.loads(said.stdout)["params"] == {"text": "仕事"}
