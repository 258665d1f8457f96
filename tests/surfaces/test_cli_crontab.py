"""`rota import crontab`: what it prints, what it writes, and how it exits."""

from __future__ import annotations

import json
import re

import pytest

from tests.docs.pages import ROOT, blocks
from tests.surfaces.cli_support import Cli

CRONTAB = """# nightly work
MAILTO=ops@example.org
0 2 * * * /usr/bin/backup --all
CRON_TZ=Europe/Berlin
30 2 * * 1-5 cd /srv && ./report | mail ops
"""


@pytest.fixture
def cli(tmp_path):
    made = Cli(tmp_path)
    yield made
    made.close()


@pytest.fixture
def crontab(tmp_path):
    """Write a crontab and return its path."""

    def write(text: str = CRONTAB) -> str:
        file = tmp_path / "crontab"
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        return str(file)

    return write


def rows(text: str) -> list[list[str]]:
    """The rows of the table."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if re.match(r"\s*\d+  ", line)]


def names(cli: Cli) -> list[str]:
    return sorted(schedule["name"] for schedule in cli.lines("schedule", "list"))


def test_a_process_of_its_own_imports_a_crontab_and_prints_a_table_and_notes(cli, crontab):
    done = cli.process("import", "crontab", crontab())
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout) == [
        ["3", "backup", "every day at 02:00 UTC", "/usr/bin/backup --all", "created"],
        ["5", "report", "every weekday at 02:30 Europe/Berlin", "/bin/sh -c 'cd /srv && ./report | mail ops'", "created"],
    ]
    assert done.stdout.endswith("2 lines: 2 created.\n")
    notes = done.stderr.splitlines()
    assert "note: line 3: no CRON_TZ, so due in UTC, the time zone of this machine; --timezone sets another" in notes
    assert any(note.startswith("note: line 2: MAILTO=ops@example.org: Rota sends no mail") for note in notes)
    assert any(note.startswith("note: line 5: /bin/sh must be on the allowlist of the workers (ROTA_EXTERNAL_FILE)") for note in notes)
    assert any(note.startswith("note: the new jobs are ENABLED") for note in notes)
    assert names(cli) == ["backup", "report"]


def test_importing_again_says_what_is_there(cli, crontab):
    cli.ok("import", "crontab", crontab())
    again = cli("import", "crontab", crontab())
    assert again.exit_code == 0
    assert [row[-1] for row in rows(again.stdout)] == ["exists", "exists"]
    assert "2 lines: 2 already there." in again.stdout
    assert names(cli) == ["backup", "report"]


def test_a_job_that_differs_is_named_and_the_exit_code_says_so(cli, crontab):
    cli.ok("import", "crontab", crontab())
    changed = cli("import", "crontab", crontab(CRONTAB.replace("0 2 * * *", "0 3 * * *")))
    assert changed.exit_code == 1
    assert "line 3: job backup runs this command every day at 02:00 UTC and was left as it is" in changed.stderr
    assert "ALTER JOB backup SET SCHEDULE = CRON '0 3 * * *' SET TIMEZONE = 'UTC';" in changed.stderr


def test_lines_that_can_not_be_taken_are_listed_first_and_nothing_is_written(cli, crontab):
    file = crontab(f"@reboot /bin/x\n{CRONTAB}0 5 * * * date +%F\n")
    refused = cli("import", "crontab", file)
    assert refused.exit_code == 1
    assert [line[:8] for line in refused.stderr.splitlines()[:2]] == ["line 1: ", "line 7: "]
    assert "2 lines: 2 to be created. Nothing was written: 2 lines can't be taken." in refused.stdout
    assert names(cli) == []
    left_out = cli("import", "crontab", file, "--skip")
    assert left_out.exit_code == 1
    assert "2 lines: 2 created. 2 lines left out." in left_out.stdout
    assert names(cli) == ["backup", "report"]


def test_a_dry_run_prints_what_would_be_done_and_writes_nothing(cli, crontab):
    assert cli("import", "crontab", crontab(), "--dry-run").exit_code == 3, "there is no store yet"
    cli.ok("template", "load", "--samples")
    shown = cli.ok("import", "crontab", crontab(), "--dry-run")
    assert [row[-1] for row in rows(shown)] == ["new", "new"]
    assert "2 to be created. This was a dry run: nothing was written." in shown
    assert names(cli) == []


def test_a_system_crontab_from_a_pipe(cli):
    text = "0 2 * * * root /bin/x\n0 3 * * * www-data /bin/y\n"
    done = cli("import", "crontab", "-", "--system", "--user", "root", "--prefix", "web1_", "--disabled", stdin=text)
    assert done.exit_code == 0
    assert [row[1] for row in rows(done.stdout)] == ["web1_x", "web1_y"]
    assert "line 2: run as www-data by cron" in done.stderr
    assert "run as root" not in done.stderr
    assert "Imported from standard input, line 2, user www-data" in cli.ok("sql", "-c", "SHOW CREATE JOB web1_y")


@pytest.mark.parametrize("file", ["/etc/crontab", "/etc/cron.d/php"])
def test_a_file_of_the_system_is_not_read_as_that_of_a_user(cli, file):
    refused = cli("import", "crontab", file)
    assert refused.exit_code == 2
    assert "pass --system" in refused.stderr


def test_the_zone_is_that_of_the_machine_unless_one_is_given(cli, crontab, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    cli.ok("import", "crontab", crontab("0 2 * * * /bin/x\n"))
    given = cli("import", "crontab", crontab("0 2 * * * /bin/y\n"), "--timezone", "Asia/Tokyo")
    assert "due in Asia/Tokyo; --timezone sets another" in given.stderr
    zones = {schedule["name"]: schedule["timezone"] for schedule in cli.lines("schedule", "list")}
    assert zones == {"x": "America/New_York", "y": "Asia/Tokyo"}
    assert cli("import", "crontab", crontab(), "--timezone", "Mars").exit_code == 2


def test_the_report_as_json(cli, crontab):
    done = cli("import", "crontab", crontab(f"{CRONTAB}@reboot x\n"), "--skip", "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 1
    assert [(job["line"], job["name"], job["outcome"]) for job in report["jobs"]] == [(3, "backup", "created"), (5, "report", "created")]
    assert [problem["line"] for problem in report["problems"]] == [6]
    assert (report["written"], report["dry_run"], report["zoneless"]) == (True, False, [3])


def test_a_file_that_is_not_there_or_not_text_is_refused(cli, crontab, tmp_path):
    assert cli("import", "crontab", str(tmp_path / "none")).exit_code == 2
    refused = cli("import", "crontab", crontab("0 5 * * * caf\udce9\n"))
    assert refused.exit_code == 1
    assert "line 1: it has a NUL character, or is not UTF-8" in refused.stderr
    empty = cli("import", "crontab", crontab("# nothing\n"))
    assert empty.exit_code == 0
    assert "There is no line to import." in empty.stdout


def test_no_command_of_a_crontab_steers_the_terminal(cli, crontab):
    done = cli("import", "crontab", crontab("A=\x1b[2J\nMAILTO=\x1b[2J\n0 5 * * * echo \x1b]0;x\x07\n"))
    assert done.exit_code == 0
    assert not [each for each in done.output if not each.isprintable() and each not in "\n\t"]


def test_the_page_shows_what_an_import_prints(cli, crontab):
    shown = {block.info[1]: block.text for block in blocks(ROOT / "docs/guide/cron.md")}
    printed = cli.ok("import", "crontab", crontab(shown["crontab"]))
    assert [line.rstrip() for line in printed.splitlines()] == shown["imported"].splitlines()
