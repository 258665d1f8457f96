"""`rota sql` on a terminal: a real process on a pseudo-terminal, and what it keeps in its history."""

from __future__ import annotations

import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from rota.sql.grammar import KEYWORDS
from rota.surfaces.cli.sql_console import is_complete
from rota.surfaces.cli.sql_history import ENTRIES_MAX, Completer, History
from tests.surfaces.cli_support import Cli
from tests.surfaces.test_cli_live import Terminal

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n;"


class Prompt(Terminal):
    """A person at the prompt."""

    def __init__(self, folder: Path, *args: str, columns: int = 100) -> None:
        cli = Cli(folder)
        env = cli.environment() | {"TERM": "xterm", "XDG_STATE_HOME": str(folder / "state"), "ROTA_SQL_TIMEOUT": "60"}
        del env["COLUMNS"], env["PYTHONUNBUFFERED"]
        super().__init__([sys.executable, "-m", "rota", "sql", *args], cwd=folder, env=env, columns=columns, rows=40)
        self.history = folder / "state" / "rota" / "sql_history"
        self.see("rota=> ")

    def type(self, line: str, *seen: str) -> None:
        """Type a line, and see these texts, then a prompt."""
        self.written = b""
        os.write(self._master, line.encode() + b"\n")
        for words in seen:
            self.see(words)

    def see(self, words: str) -> None:
        self.read_until(lambda written: words.encode() in written)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert Cli(tmp_path).process("enqueue", "greet", "--app", "shop:rota").returncode == 0
    return tmp_path


@pytest.mark.serial
def test_a_session(folder):
    with Prompt(folder) as prompt:
        prompt.type("SELECT 41 + 1", "rota-> ")
        prompt.type("  AS answer;", "answer", "42", "(1 row)", "rota=> ")
        prompt.type(r"\d", "sys.job_runs", "rota=> ")
        prompt.type(r"\d job_runs", "job_run_uuid", "UUID", "rota=> ")
        prompt.type(r"\x", "expanded display is on", "rota=> ")
        prompt.type("SELECT 7 AS seven;", "-[ row 1 ]", "seven | 7", "rota=> ")
        prompt.type(r"\timing", "timing is on", "rota=> ")
        prompt.type("SHOW JOBS;", "took ", "rota=> ")
        prompt.type("SELECT nope FROM sys.jobs;", "SQLSTATE 42703", "^", "rota=> ")
        (folder / "more.sql").write_text("SELECT 'from a file' AS w;")
        prompt.type(r"\i more.sql", "from a file", "rota=> ")
        prompt.type(r"\i missing.sql", "can't be read", "rota=> ")
        prompt.type(r"\?", "list the tables of sys", "rota=> ")
        prompt.type(r"\nope", "is not a command", "rota=> ")
        os.write(prompt._master, b"\x04")
        assert prompt.finish() == 0
    assert b"Traceback" not in prompt.written


@pytest.mark.serial
def test_ctrl_c_clears_a_statement_and_cancels_a_query(folder):
    with Prompt(folder) as prompt:
        prompt.type("SELECT 1", "rota-> ")
        prompt.written = b""
        prompt.process.send_signal(signal.SIGINT)
        prompt._read(1.0)
        while b"rota=> " not in prompt.written:
            # One that comes between the prompt and the wait for keys is seen with the next key only: so it is with every program in Python.
            os.write(prompt._master, b"\n")
            prompt._read(1.0)
        prompt.type(f"SELECT 40 + 2 AS first; {ENDLESS}", "42", "(1 row)")
        prompt.process.send_signal(signal.SIGINT)
        prompt.see("cancelled")
        prompt.see("rota=> ")
        prompt.type("SELECT 5 * 5 AS x;", "25", "rota=> ")
        prompt.type(r"\q")
        assert prompt.finish() == 0
    assert b"Traceback" not in prompt.written


@pytest.mark.serial
def test_ctrl_c_ends_a_script(folder):
    cli = Cli(folder)
    cli.env["ROTA_SQL_TIMEOUT"] = "60"
    script = cli.start("sql", "--csv", "-c", f"SELECT 'first' AS a; {ENDLESS} SELECT 'last'")
    assert script.stdout is not None
    assert [script.stdout.readline() for _ in range(2)] == ["a\n", "first\n"]
    script.send_signal(signal.SIGINT)
    rest = script.stdout.read()
    cli.close()
    assert script.returncode == 130
    assert "last" not in rest
    assert "Traceback" not in rest


@pytest.mark.serial
def test_the_history_is_private_and_keeps_no_secret(folder):
    with Prompt(folder) as prompt:
        prompt.type("SELECT 1", "rota-> ")
        prompt.type("  AS kept;", "kept", "(1 row)", "rota=> ")
        prompt.type("CREATE SECRET s VALUE 'hunter2';", "secret_unavailable", "rota=> ")
        prompt.type("CREATE CONNECTION c URL = 'postgresql://ada:hunter2@db/x';", "rota=> ")
        prompt.type(r"\d", "sys.jobs", "rota=> ")
        prompt.type(r"\q")
        assert prompt.finish() == 0
    kept = prompt.history.read_text()
    assert kept == "SELECT 1\\n  AS kept;\n\\\\d\n\\\\q\n"
    assert stat.S_IMODE(prompt.history.stat().st_mode) == 0o600
    assert stat.S_IMODE(prompt.history.parent.stat().st_mode) == 0o700
    with Prompt(folder) as prompt:
        prompt.written = b""
        os.write(prompt._master, b"\x1b[A\x1b[A\x1b[A\n")  # three times up
        prompt.see("(1 row)")
        prompt.type(r"\q")
        assert prompt.finish() == 0


@pytest.mark.serial
def test_a_narrow_terminal_shows_many_columns_one_below_the_other_and_cuts_texts(folder):
    with Prompt(folder, columns=60) as prompt:
        prompt.type(f"SELECT '{'long ' * 40}' AS text, 1 AS number;", "…", "(1 row)", "rota=> ")
        shown = prompt.written.decode().split("number", 2)[2]
        assert all(len(line.rstrip("\r")) <= 60 for line in shown.split("\n"))
        prompt.type("SELECT * FROM sys.queue;", "-[ row 1 ]", "(1 row)", "rota=> ")
        prompt.type("SELECT char(27) || '[31mred' AS c;", "·[31mred", "rota=> ")
        prompt.type(r"\q")
        assert prompt.finish() == 0


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT 1;", True),
        ("SELECT 1", False),
        ("SELECT 1; -- done", True),
        ("SELECT 1; SELECT 2", False),
        ("SELECT ';", False),
        ("SELECT ';'", False),
        ("SELECT ';';", True),
        ('SELECT ";";', True),
        ("CREATE JOB a SCHEDULE = EVERY 1 H AS $$ SELECT 1;", False),
        ("CREATE JOB a SCHEDULE = EVERY 1 H AS $$ SELECT 1; $$;", True),
        ("SELECT 1 /* ; ", False),
        ("", False),
        (";", True),
    ],
)
def test_a_statement_ends_with_a_semicolon_of_its_own(text, whole):
    assert is_complete(text) is whole


def test_tab_completes_keywords_tables_and_columns():
    completer = Completer(sorted({*KEYWORDS, "sys.jobs", "sys.job_runs", "job_name"}))
    assert [completer("sys.job_", number) for number in range(2)] == ["sys.job_runs", None]
    assert completer("sched", 0) == "schedule"
    assert completer("SCHED", 0) == "SCHEDULE"
    assert completer("job_n", 0) == "job_name"
    assert completer("zzz", 0) is None


def test_the_history_is_bounded_and_a_home_that_cannot_be_written_to_is_none(tmp_path):
    history = History(tmp_path / "state" / "h")
    for number in range(ENTRIES_MAX + 5):
        history.add(f"SELECT {number};")
    entries = list(history._entries())
    assert len(entries) == ENTRIES_MAX
    assert entries[-1] == f"SELECT {ENTRIES_MAX + 4};"
    (tmp_path / "file").write_text("")
    History(tmp_path / "file" / "h").add("SELECT 1;")


def test_an_entry_comes_back_as_it_was(tmp_path):
    history = History(tmp_path / "h")
    for text in ("SELECT 1\n;", r"SELECT '\n';", r"\d", "SELECT 'ä';"):
        history.add(text)
    assert list(history._entries()) == ["SELECT 1\n;", r"SELECT '\n';", r"\d", "SELECT 'ä';"]
