"""`rota sql` with statements from the command line, a file or a pipe: what it prints, and where it stops."""

from __future__ import annotations

import csv
import io
import json
import subprocess

import pytest

from rota.sql.private_database import process
from tests.support.pace import patient
from tests.surfaces.cli_support import Cli
from tests.surfaces.test_cli import cli, handlers

__all__ = ["cli"]
HOURLY = "SCHEDULE = EVERY 1 HOUR CALL greet()"


def run(cli: Cli, *args: str, stdin: str | None = None):
    result = cli("sql", *args, stdin=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result


@pytest.fixture
def jobs(cli: Cli) -> Cli:
    with handlers(cli) as rota:
        rota.sql(f"CREATE JOB nightly {HOURLY}; CREATE JOB weekly {HOURLY}")
    return cli


def test_rows_are_a_table_and_a_change_is_its_tag(jobs):
    text = run(jobs, "-c", "SELECT job_name, timeout_seconds FROM sys.jobs ORDER BY 1; PAUSE JOB weekly").stdout
    assert [line.split() for line in text.splitlines()] == [
        ["job_name", "timeout_seconds"],
        ["─" * 26],
        ["nightly", "3600"],
        ["weekly", "3600"],
        ["(2", "rows)"],
        [],
        ["PAUSE", "JOB"],
    ]


def test_several_texts_are_one_script_that_is_read_before_anything_is_executed(jobs):
    result = run(jobs, "-c", "PAUSE JOB weekly", "-c", "SELEC 1")
    assert result.exit_code == 1
    assert "did you mean SELECT?" in result.stderr
    assert run(jobs, "-c", "SELECT state FROM sys.jobs WHERE job_name = 'weekly'", "--csv").stdout == "state\nENABLED\n"
    assert run(jobs, "-c", "PAUSE JOB weekly", "-c", "RESUME JOB weekly").stdout == "PAUSE JOB\nRESUME JOB\n"


@pytest.mark.parametrize("how", ["file", "dash", "pipe"])
def test_a_script_comes_from_a_file_or_a_pipe(jobs, how):
    text = "\ufeffSELECT 'ä' AS a; -- a remark\nSELECT 2 AS b;\n"
    (jobs.folder / "script.sql").write_text(text)
    args = {"file": ["script.sql"], "dash": ["-"], "pipe": []}[how]
    assert run(jobs, *args, "--csv", stdin=None if how == "file" else text).stdout == "a\nä\n\nb\n2\n"


def test_parameters_are_given_by_name_or_by_place(jobs):
    assert run(jobs, "-c", "SELECT :a AS a, :b AS b", "-p", "a=1", "-p", "b=x=y", "--csv").stdout == "a,b\n1,x=y\n"
    assert run(jobs, "-c", "SELECT ? AS a, ? AS b", "--value", "1.5", "--value", "x", "--csv").stdout == "a,b\n1.5,x\n"
    assert run(jobs, "-c", "SELECT 1", "-p", "a=1").exit_code == 2
    assert run(jobs, "-c", "SELECT ?", "--value", "1", "-p", "a=1").exit_code == 2


def test_json_is_one_document_for_each_statement(jobs):
    shown, queried = map(json.loads, run(jobs, "-c", "SHOW JOBS; SELECT 1 AS one, NULL AS none", "--json").stdout.splitlines())
    assert shown["columns"][0] == "job_name"
    assert [row[0] for row in shown["rows"]] == ["nightly", "weekly"]
    assert shown["rows"][0][shown["columns"].index("next_run_time")].endswith("Z")
    assert queried == {"tag": "SELECT 1", "columns": ["one", "none"], "rows": [[1, None]], "notices": [], "truncated": False}


def test_csv_keeps_every_character(jobs):
    value = 'a,"b"\nc\x1b[31m'
    text = run(jobs, "-c", "SELECT :v AS v", "-p", f"v={json.dumps(value)}", "--csv").stdout
    assert list(csv.reader(io.StringIO(text))) == [["v"], [value]]


def test_a_table_escapes_what_would_steer_a_terminal(jobs):
    text = run(jobs, "-c", "SELECT 'a' || char(27) || '[2Jb' AS \"c\u202ed\", '[bold]x[/]' AS m").stdout
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "a·[2Jb" in text
    assert "[bold]x[/]" in text


def test_expanded_has_a_line_for_each_column(jobs):
    lines = run(jobs, "-x", "-c", "SELECT job_name, description FROM sys.jobs ORDER BY 1").stdout.splitlines()
    assert lines[:3] == ["-[ row 1 ]---", "job_name    | nightly", "description |"]
    assert lines[3:6] == ["-[ row 2 ]---", "job_name    | weekly", "description |"]


def test_wide_letters_stay_in_their_columns(jobs):
    lines = run(jobs, "-c", "SELECT '日本' AS a, 'x' AS b UNION ALL SELECT 'abcd', 'y'").stdout.splitlines()
    assert lines[2].rstrip() == "日本   x"
    assert lines[3].rstrip() == "abcd   y"


def test_an_error_shows_its_place_and_what_was_executed(jobs):
    result = run(jobs, "-c", "PAUSE JOB weekly;\nSELECT nope FROM sys.jobs; RESUME JOB weekly")
    assert result.exit_code == 1
    assert result.stdout == "PAUSE JOB\n"
    error, line, caret = result.stderr.splitlines()
    assert error == (
        "error: 2:8: sys.jobs has no column nope; it has job_uuid, job_name, description, job_class, job_type, job_sql, …"
        " (statement 2 of 3; 1 executed) (unknown_column, SQLSTATE 42703)"
    )
    assert line == "SELECT nope …"
    assert caret.index("^") == line.index("nope")
    assert run(jobs, "-c", "SELECT state FROM sys.jobs WHERE job_name = 'weekly'", "--csv").stdout == "state\nPAUSED\n"


def test_an_error_shows_no_secret(jobs):
    for text in ("CREATE SECRET s VALUE 'hunter2'", "CREATE SECRET s VALUE 'hunter2' x", "CREATE SECRET s VALUE hunter2"):
        result = run(jobs, "-c", text)
        assert result.exit_code == 1
        assert "hunter2" not in result.output


def test_notices_go_to_stderr(jobs):
    result = run(jobs, "-c", "CREATE JOB c SCHEDULE = EVERY 1 HOUR AS 'SELECT 1'")
    assert result.stdout == "CREATE JOB\n"
    assert result.stderr.startswith("notice: ")


def test_who_acts_is_who_is_named(jobs):
    jobs.ok("user", "create", "bob", "--organization", "default")
    assert "(permission_denied, SQLSTATE 42501)" in run(jobs, "-c", f"CREATE JOB x {HOURLY}", "--as", "bob").stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-c", "SELECT 1", "file.sql"], "not both"),
        (["-c", "SELECT 1", "--csv", "--json"], "not both"),
        (["missing.sql"], "can't be read"),
        (["-c", r"\nope"], r"\? lists them"),
    ],
)
def test_a_wrong_command_line_is_refused(jobs, args, words):
    result = run(jobs, *args)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", "").split())


def test_tables_are_described_without_a_prompt(jobs):
    assert "sys.job_runs" in run(jobs, "-c", r"\d").stdout
    assert "Its name, unique in its organization" in run(jobs, "-c", r"\d sys.jobs").stdout


def test_without_a_store_there_is_nothing_to_ask(tmp_path):
    assert Cli(tmp_path)("sql", "-c", "SELECT 1").exit_code == 3


def test_a_pipe_that_closes_is_no_traceback(jobs):
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i FROM n"
    for form in ([], ["--csv"], ["--json"], ["-x"]):
        command = jobs.command("sql", "-c", f"{many}; {many}", *form)
        with subprocess.Popen(
            command, cwd=jobs.folder, env=jobs.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as ended:
            assert ended.stdout is not None
            assert ended.stderr is not None
            ended.stdout.read(5)
            ended.stdout.close()
            assert "Traceback" not in ended.stderr.read()
            ended.wait(patient(50))


def test_no_query_is_left_running(jobs):
    run(jobs, "-c", "SELECT 1")
    assert process.databases._running == 0


def test_an_atomic_script_is_carried_out_whole_or_not_at_all(jobs):
    failed = run(jobs, "--atomic", "-c", f"CREATE JOB one {HOURLY}; CREATE JOB one {HOURLY}")
    assert failed.exit_code == 1
    assert "(statement 2 of 2; nothing was changed)" in " ".join(failed.stderr.split())
    assert run(jobs, "--atomic", "-c", f"CREATE JOB one {HOURLY}; CREATE JOB two DEPENDS ON one {HOURLY}").exit_code == 0
    assert "can't be part of an atomic script" in " ".join(run(jobs, "--atomic", "-c", "SELECT 1").stderr.split())
