"""Crontabs: every line is read as cron reads it, what can't be taken is named, and commands do what they did."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.compat.crontab import CrontabEntry, read_crontab
from rota.compat.crontab_commands import base_name, words_of
from rota.sql.crontab_import import CrontabJob, _statement
from rota.sql.parser import parse
from rota.sql.render import render


def read(*lines: str, system: bool = False):
    return read_crontab("\n".join(lines) + "\n", system=system)


def entry(*lines: str, system: bool = False) -> CrontabEntry:
    """The one line that runs something."""
    found = read(*lines, system=system)
    assert not found.problems
    (only,) = found.entries
    return only


def problem(*lines: str, system: bool = False) -> str:
    """What is wrong with the one line that can't be taken: the last."""
    (only,) = read(*lines, system=system).problems
    assert only.line == len(lines)
    return only.why


def remarks(*lines: str) -> list[str]:
    found = read(*lines)
    assert not found.problems
    return [notice.text for notice in found.notices]


# ---- lines that run something -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "cron", "command"),
    [
        ("0 5 * * * /bin/run", "0 5 * * *", "/bin/run"),
        ("  \t0\t5  * * *\t /bin/run  a ", "0 5 * * *", "/bin/run  a "),
        ("0 5 * * 7 x", "0 5 * * 7", "x"),
        ("0 5 * JAN,mar Mon-Fri x", "0 5 * JAN,mar Mon-Fri", "x"),
        ("0-30/10,45 */2 1-7 * * x", "0-30/10,45 */2 1-7 * *", "x"),
        ("0 5 */2 * MON x", "0 5 */2 * MON", "x"),
        ("0 5 * * sat-sun x", "0 5 * * sat-7", "x"),
        ("0 5 * * mon,5-0 x", "0 5 * * mon,5-7", "x"),
        ("@hourly x", "@hourly", "x"),
        ("@midnight x y", "@midnight", "x y"),
        ("@Annually\tx", "@annually", "x"),
        ("-*/15 * * * * x", "*/15 * * * *", "x"),
        (r"0 5 * * * date +\%F", "0 5 * * *", "date +%F"),
        (r"0 5 * * * echo a\b \\ \%\%", "0 5 * * *", r"echo a\b \\ %%"),
        ("0 5 * * * x # not a comment", "0 5 * * *", "x # not a comment"),
        ("0 5 * * * FOO=bar x", "0 5 * * *", "FOO=bar x"),
        ("0 5 * * * mon", "0 5 * * *", "mon"),
        ("0 0 31 2 1 x", "0 0 31 2 1", "x"),
    ],
)
def test_a_line_is_read_as_cron_reads_it(line, cron, command):
    assert entry(line) == CrontabEntry(line=1, cron=cron, command=command)


def test_comments_and_blank_lines_are_not_lines_that_run_something():
    found = read("# 0 5 * * * x", "", "   ", "\t# y", "0 5 * * * x")
    assert [each.line for each in found.entries] == [5]
    assert not found.problems


def test_a_crontab_without_a_last_line_end_or_with_a_byte_order_mark_is_read_whole():
    assert [each.command for each in read_crontab("\ufeff0 5 * * * x\n@daily y", system=False).entries] == ["x", "y"]


def test_line_ends_of_other_systems_are_not_part_of_commands():
    found = read_crontab("A=1\r\n0 5 * * * x\r\n", system=False)
    assert [(each.command, each.environment) for each in found.entries] == [("x", {"A": "1"})]
    assert [notice.lines for notice in found.notices] == [(1, 2)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("@reboot /bin/run", "@reboot is not taken"),
        ("@every_minute x", "'@every_minute' is not one of @hourly, "),
        ("@daily", "no command after @daily"),
        ("0 5 * * *", "five fields and a command"),
        ("hello", "five fields and a command"),
        ("61 * * * * x", "minute 61 is out of range 0-59"),
        ("0 5 * * 8 x", "day of week 8 is out of range"),
        ("0 5 * * sunday x", "'SUNDAY' is not understood"),
        ("*/0 * * * * x", "step of '0'"),
        ("30-10 * * * * x", "runs backwards"),
        ("0 0 30 2 * x", "none of its months has such a day"),
        ("1~9 * * * * x", "'1~9' is a random time"),
        ("~ 5 * * * x", "'~' is a random time"),
        ("H 5 * * * x", "'H' is a time that Jenkins chooses"),
        ("H/15,3 5 * * * x", "'H/15,3' is a time that Jenkins chooses"),
        ("0 0 5 * * * x", "'*' is a sixth field of times"),
        ("*/10 0 5 * * MON-FRI /bin/run", "'MON-FRI' is a sixth field of times"),
        ("0 5 * * * date +%F", "'%' ends the command"),
        (r"0 5 * * * echo \\%", "'%' ends the command"),
        ("0 5 * * * -q x", "'-q' is an option of another cron"),
        ("0 5 * * * root /bin/run", "pass --system"),
        ("0 5 * * * x\0", "NUL"),
        ("0 5 * * * caf\udce9", "not UTF-8"),
        ("0 5 " + ",".join(["1"] * 1000) + " * * x", "at most 1,000"),
        ('FOO="bar', "quotes of the value of FOO do not match"),
        ('FOO="bar" baz', "quotes of the value of FOO do not match"),
        ("FOO-BAR=1", "'FOO-BAR' is not the name of a variable"),
        ("SHELL=bash", "SHELL=bash is not an absolute path"),
        ("CRON_TZ=Mars/Olympus", "CRON_TZ=Mars/Olympus is not an IANA time zone"),
    ],
)
def test_a_line_that_can_not_be_taken_is_named_with_the_reason(line, why):
    assert why in problem("# a remark", line)


def test_a_line_that_can_not_be_taken_leaves_the_others():
    found = read("0 5 * * * a", "@reboot b", "0 6 * * * c")
    assert [each.command for each in found.entries] == ["a", "c"]
    assert [each.line for each in found.problems] == [2]


# ---- system crontabs --------------------------------------------------------------------------------------------------------


def test_a_line_of_a_system_crontab_names_its_user():
    found = read("17 * * * *\troot    cd / && run-parts", "@daily www-data /bin/x", system=True)
    assert [(each.user, each.command) for each in found.entries] == [("root", "cd / && run-parts"), ("www-data", "/bin/x")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("0 5 * * * /bin/run x", "'/bin/run' is not the name of a user"),
        ("0 5 * * * root", "no command after the user root"),
        ("0 0 5 * * * root x", "sixth field of times"),
        ("0 5 * * * root -q x", "option of another cron"),
    ],
)
def test_a_line_without_a_user_is_not_one_of_a_system_crontab(line, why):
    assert why in problem(line, system=True)


# ---- environment lines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("A = b c  ", "b c"),
        ("  A\t=\tb", "b"),
        ("A=", ""),
        ("A=''", ""),
        ('A="  b "  ', "  b "),
        ("A=' \"b\" '", ' "b" '),
        ('"A"=b', "b"),
        ("'A' = 'b'", "b"),
        ("A=$HOME/b", "$HOME/b"),
        ("A=b=c", "b=c"),
        ("A=b # c", "b # c"),
        ("A=it's", "it's"),
    ],
)
def test_a_variable_has_the_value_that_cron_gives_it(line, value):
    assert entry(line, "0 5 * * * x").environment == {"A": value}


def test_variables_hold_for_the_lines_below_them():
    found = read("0 1 * * * a", "A=1", "CRON_TZ=Asia/Tokyo", "0 2 * * * b", "A=2", "SHELL=/bin/bash", "CRON_TZ=", "0 3 * * * c")
    assert [(each.environment, each.timezone, each.shell) for each in found.entries] == [
        ({}, None, "/bin/sh"),
        ({"A": "1"}, "Asia/Tokyo", "/bin/sh"),
        ({"A": "2"}, None, "/bin/bash"),
    ]


def test_a_zone_or_shell_that_is_not_valid_keeps_the_lines_below_it_out():
    found = read("CRON_TZ=Mars", "0 1 * * * a", "CRON_TZ=UTC", "0 2 * * * b", "SHELL=sh", "0 3 * * * c")
    assert [each.line for each in found.problems] == [1, 2, 5, 6]
    assert [each.command for each in found.entries] == ["b"]


def test_variables_of_cron_itself_are_not_passed_on():
    assert entry("MAILTO=''", "LOGNAME=x", "RANDOM_DELAY=0", "PATH=/bin", "HOME=/srv", "TZ=UTC", "0 5 * * * x").environment == {
        "PATH": "/bin",
        "HOME": "/srv",
        "TZ": "UTC",
    }


def test_mail_is_named_once_for_each_address_with_the_remedy():
    found = read("MAILTO=ops@example.org", "0 1 * * * x", "MAILTO=''", 'MAILTO="ops@example.org"', "MAILTO=dev@example.org")
    assert [(notice.lines, notice.text.partition(":")[0]) for notice in found.notices] == [
        ((1, 4), "MAILTO=ops@example.org"),
        ((5,), "MAILTO=dev@example.org"),
    ]
    assert "`rota webhook create`" in found.notices[0].text
    assert "`rota.on.failed`" in found.notices[0].text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("TZ=Asia/Tokyo", "does not change when they are due"),
        ("RANDOM_DELAY=45", "SET JITTER = 45 MINUTES"),
        ("MAILFROM=x@example.org", "for cron's mail"),
        ("DB_PASSWORD=hunter2", "DB_PASSWORD looks like a secret"),
    ],
)
def test_a_variable_that_means_something_else_here_is_named(line, words):
    (remark,) = remarks(line)
    assert words in remark
    assert "hunter2" not in remark


# ---- where cron and Rota differ ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ("5/15 * * * *", "minute 5/15: Rota takes it as 5-59/15; cron refuses the step or ignores it"),
        ("0 0 * * MON/2", "day of week MON/2: Rota takes it as MON-7/2"),
        ("*/60 * * * *", "minute */60: the step is larger than the range: Rota takes 0 alone"),
        ("0 0 * jan-mar/6 *", "month JAN-MAR/6: the step is larger than the range: Rota takes 1 alone"),
        ("0 0 L * *", "day of month L: Rota understands it, cron does not"),
        ("0 0 * * 5#2", "day of week 5#2: Rota understands it, cron does not"),
        ("0 0 * * friL", "day of week FRIL: Rota understands it, cron does not"),
    ],
)
def test_an_expression_that_cron_reads_differently_is_named(times, words):
    (remark,) = remarks(f"{times} x")
    assert words in remark


@pytest.mark.parametrize(
    "times", ["*/2 0 */2 * */3", "0 0 */2 * MON", "0-59/59 * * * *", "*/59 */23 */30 */11 */7", "5-5/9 * * * sun-0/3", "@weekly"]
)
def test_an_expression_that_both_read_alike_is_not_named(times):
    assert remarks(f"{times} x") == []


# ---- commands ---------------------------------------------------------------------------------------------------------------

ARGUMENTS = [
    "/usr/bin/printf [%s] a  b\tc",
    "/usr/bin/printf [%s] 'a b' \"c d\" '' x'y'z",
    "/usr/bin/printf [%s] --x=1 a@b,c+d:e/f é",
    "/usr/bin/printf [%s] '$HOME' \"it's\"",
]


@pytest.mark.parametrize("command", [each.replace("[%s]", "'[%s]'") for each in ARGUMENTS])
def test_a_program_whose_arguments_need_no_shell_is_run_itself_with_the_same_arguments(command):
    words = words_of(CrontabEntry(line=1, cron="@daily", command=command))
    assert words[0] == "/usr/bin/printf"
    assert _output(words) == _output(["/bin/sh", "-c", command])


@pytest.mark.parametrize(
    "command",
    [
        "printf %s x",
        "/usr/bin/printf %s $HOME",
        '/usr/bin/printf %s "$HOME"',
        "/usr/bin/printf %s a | cat",
        "/usr/bin/printf %s a > /dev/null",
        "/usr/bin/printf %s a\\ b",
        "/usr/bin/printf %s a # b",
        "/usr/bin/printf %s /bi*",
        "/usr/bin/printf %s ~",
        "/usr/bin/printf %s a; /usr/bin/printf b",
        "A=b /usr/bin/printf %s x",
        "(/usr/bin/printf %s x)",
        "~/x 2> /dev/null || printf %s y",
    ],
)
def test_any_other_line_is_run_by_its_shell(command):
    words = words_of(CrontabEntry(line=1, cron="@daily", command=command))
    assert words == ["/bin/sh", "-c", command]
    # What is stored is split again.
    assert _output(shlex.split(shlex.join(words))) == _output(["/bin/sh", "-c", command])


def test_a_line_runs_in_the_shell_of_the_crontab_and_with_its_variables():
    one = entry("SHELL=/bin/bash", "A='b c'", "PATH=/usr/bin:/bin", '0 5 * * * printf \\%s "$A $0 $PATH"')
    words = words_of(one)
    assert words == ["/usr/bin/env", "A=b c", "PATH=/usr/bin:/bin", "/bin/bash", "-c", 'printf %s "$A $0 $PATH"']
    assert _output(words) == b"b c /bin/bash /usr/bin:/bin"


def test_a_shell_that_is_none_is_asked_all_the_same():
    assert words_of(entry("SHELL=/bin/false", "0 5 * * * /bin/true")) == ["/bin/false", "-c", "/bin/true"]


def test_a_path_that_env_would_take_for_a_variable_is_run_by_the_shell():
    assert words_of(entry("A=b", "0 5 * * * /opt/x=y/run")) == ["/usr/bin/env", "A=b", "/bin/sh", "-c", "/opt/x=y/run"]


def _output(words: list[str]) -> bytes:
    return subprocess.run(words, capture_output=True, check=False, timeout=20, env={"HOME": "/nowhere", "PATH": os.defpath}).stdout


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/backup --all", "backup"),
        ("/opt/app/bin/nightly-report.sh", "nightly_report"),
        ("cd / && run-parts --report /etc/cron.hourly", "run_parts"),
        ("test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }", "run_parts"),
        ("[ -x /usr/lib/php/sessionclean ] && if [ ! -d /run/systemd/system ]; then /usr/lib/php/sessionclean; fi", "sessionclean"),
        ("/usr/bin/python3 /srv/app/send_mail.py --now", "send_mail"),
        ("/usr/bin/python3 -m app.tasks", "python3"),
        ("A=b C='d e' exec /srv/run", "run"),
        ("( /srv/run ) > /dev/null 2>&1", "run"),
        ("echo 'it is' | mail ops", "echo"),
        ("echo it's", "echo"),
        ("/srv/größe", "größe"),
        ("/srv/" + "x" * 300, "x" * 60),
        ("$RUN", "RUN"),
        ('"" ', "command"),
        ("cd /srv", "command"),
    ],
)
def test_a_job_is_named_after_the_program_of_its_line(command, name):
    assert base_name(CrontabEntry(line=1, cron="@daily", command=command)) == name


TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\n"), min_size=1)


@given(TEXTS, TEXTS, TEXTS)
def test_whatever_a_line_holds_its_statement_is_read_again_as_it_was(command, value, source):
    one = CrontabEntry(line=1, cron="@daily", command=command, environment={"A": value})
    words = words_of(one)
    job = CrontabJob(line=1, name=base_name(one), cron=one.cron, timezone="UTC", when="", command=shlex.join(words), user=None)
    statement = _statement(job, source, disabled=True)
    assert parse(render(statement)) == statement
    assert shlex.split(statement.clauses.body.command) == words


@given(TEXTS)
def test_no_text_breaks_the_reader_and_each_of_its_lines_is_told_of_at_most_once(text):
    for system in (False, True):
        found = read_crontab(text.replace("\x0b", "\n"), system=system)
        lines = [each.line for each in found.entries] + [each.line for each in found.problems]
        assert len(lines) == len(set(lines))
        assert all(read_crontab(f"{each.cron} x", system=False).entries for each in found.entries)


def test_the_crontab_of_a_usual_system_is_read():
    text = (Path(__file__).parent / "crontab.txt").read_text()
    found = read_crontab(text, system=True)
    assert not found.problems
    assert [(each.line, base_name(each)) for each in found.entries] == [
        (14, "run_parts"),
        (15, "run_parts"),
        (16, "run_parts"),
        (17, "run_parts"),
    ]
