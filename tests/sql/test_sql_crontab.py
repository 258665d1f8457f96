"""Crontabs become jobs: once, all or none, and as they ran in cron."""

from __future__ import annotations

import pytest

from rota import Rota
from rota.compat.crontab import LineNotice
from rota.errors import InvalidName, PermissionDenied, SqlError
from rota.model.gate import Actor, Role
from rota.sql import crontab_import
from rota.sql.crontab_import import ALLOWLIST, ImportedCrontab, LineOutcome, import_crontab

CRONTAB = r"""
MAILTO=""
0 2 * * * /usr/bin/backup --all
CRON_TZ=Europe/Berlin
30 2 * * MON-FRI /usr/bin/backup 'it''s "quoted"'; echo \%
A='b c'
@daily /usr/bin/tidy
"""
COMMANDS = {
    "backup": "/usr/bin/backup --all",
    "backup_2": """/bin/sh -c '/usr/bin/backup '"'"'it'"'"''"'"'s "quoted"'"'"'; echo %'""",
    "tidy": "/usr/bin/env 'A=b c' /usr/bin/tidy",
}


def taken(rota: Rota, text: str = CRONTAB, **options) -> ImportedCrontab:
    return import_crontab(rota, text, **{"source": "tab", "timezone": "UTC"} | options)


def outcomes(report: ImportedCrontab) -> dict[str, LineOutcome]:
    return {job.name: job.outcome for job in report.jobs}


def stored(rota: Rota) -> dict[str, str]:
    return dict(rota.sql("SELECT job_name, external_command FROM sys.jobs ORDER BY job_name")[0].rows)


def every(report: ImportedCrontab, outcome: LineOutcome) -> bool:
    return {job.outcome for job in report.jobs} == {outcome}


def test_each_line_becomes_a_job_that_runs_as_it_did_in_cron(rota):
    report = taken(rota)
    assert outcomes(report) == dict.fromkeys(COMMANDS, LineOutcome.CREATED)
    assert report.written
    assert report.complete
    assert stored(rota) == COMMANDS
    assert {state for (state,) in rota.sql("SELECT state FROM sys.jobs")[0].rows} == {"ENABLED"}
    ((_, statement),) = rota.sql("SHOW CREATE JOB backup_2")[0].rows
    for clause in (
        "SCHEDULE = CRON '30 2 * * MON-FRI'",
        "TIMEZONE = 'Europe/Berlin'",
        "CATCH_UP = NONE",
        "OVERLAP = ALLOW",
        "MAX_RETRIES = 0",
        "TIMEOUT = 0 SECONDS",
        "DESCRIPTION = 'Imported from tab, line 5'",
    ):
        assert clause in statement
    assert "Imported from tab, line 3" in rota.sql("SHOW CREATE JOB backup")[0].rows[0][1]


def test_importing_again_adds_nothing_and_names_what_is_there(rota):
    taken(rota)
    again = taken(rota)
    assert outcomes(again) == dict.fromkeys(COMMANDS, LineOutcome.EXISTS)
    assert again.complete
    assert not again.notices
    assert stored(rota) == COMMANDS


def test_lines_that_are_alike_are_several_jobs_and_each_is_found_again(rota):
    text = "0 2 * * * /bin/x\n0 2 * * * /bin/x\n0 3 * * * /bin/x\n"
    assert list(outcomes(taken(rota, text))) == ["x", "x_2", "x_3"]
    assert list(outcomes(taken(rota, text))) == ["x", "x_2", "x_3"]
    assert outcomes(taken(rota, text + "0 2 * * * /bin/x\n"))["x_4"] is LineOutcome.CREATED


def test_a_job_is_found_again_under_another_name_and_in_another_state(rota):
    taken(rota)
    rota.sql("ALTER JOB backup RENAME TO nightly; ALTER JOB tidy SET DESCRIPTION = 'ours'; ALTER JOB tidy SET TIMEOUT = 1 HOUR")
    assert list(outcomes(taken(rota))) == ["nightly", "backup_2", "tidy"]
    assert every(taken(rota), LineOutcome.EXISTS)


def test_a_job_that_is_due_at_other_times_is_compared_and_left_as_it_is(rota):
    taken(rota)
    report = taken(rota, CRONTAB.replace("0 2 * * * ", "0 4 * * * "))
    assert outcomes(report) == {"backup": LineOutcome.DIFFERS, "backup_2": LineOutcome.EXISTS, "tidy": LineOutcome.EXISTS}
    assert not report.complete
    remark = report.jobs[0].remark
    assert "job backup runs this command every day at 02:00 UTC" in remark
    rota.sql(remark.partition("to change it: ")[2])
    assert every(taken(rota, CRONTAB.replace("0 2 * * * ", "0 4 * * * ")), LineOutcome.EXISTS)


def test_names_of_others_are_left_to_them(rota):
    rota.sql("CREATE JOB backup SCHEDULE = EVERY 1 DAY CALL report()")
    # The template report of a program is one of them.
    assert list(outcomes(taken(rota, f"{CRONTAB}@daily /bin/report\n"))) == ["backup_2", "backup_3", "tidy", "report_2"]


def test_a_prefix_keeps_the_crontabs_of_several_machines_apart(rota):
    taken(rota, prefix="web1-")
    assert list(outcomes(taken(rota, prefix="web2-"))) == ["web2-backup", "web2-backup_2", "web2-tidy"]
    assert every(taken(rota, prefix="web1-"), LineOutcome.EXISTS)
    with pytest.raises(InvalidName):
        taken(rota, prefix="x" * 300)


def test_a_dry_run_writes_nothing_and_says_the_same(rota):
    dry = taken(rota, dry_run=True)
    assert every(dry, LineOutcome.NEW)
    assert not dry.written
    assert stored(rota) == {}
    done = taken(rota)
    assert [(job.line, job.name, job.command, job.when) for job in dry.jobs] == [
        (job.line, job.name, job.command, job.when) for job in done.jobs
    ]


def test_nothing_is_written_if_a_line_can_not_be_taken_unless_it_is_left_out(rota):
    text = f"{CRONTAB}@reboot /bin/x\n"
    report = taken(rota, text)
    assert [problem.line for problem in report.problems] == [8]
    assert every(report, LineOutcome.NEW)
    assert not report.written
    assert stored(rota) == {}
    left_out = taken(rota, text, skip=True)
    assert every(left_out, LineOutcome.CREATED)
    assert left_out.written
    assert not left_out.complete
    assert stored(rota) == COMMANDS


def test_a_failure_in_the_middle_leaves_nothing(rota, monkeypatch):
    def meanwhile(*args, **options):
        # Somebody else takes the name of the last job after it was chosen.
        rota.sql("CREATE JOB report_2 SCHEDULE = EVERY 1 DAY CALL report()")
        return run(*args, **options)

    run = crontab_import.run
    monkeypatch.setattr(crontab_import, "run", meanwhile)
    with pytest.raises(SqlError, match="there is a job report_2 already"):
        taken(rota, CRONTAB + "0 1 * * * /bin/report\n")
    assert stored(rota) == {"report_2": None}


def test_jobs_can_be_created_disabled(rota):
    report = taken(rota, disabled=True)
    assert LineNotice((), crontab_import.DISABLED) in report.notices
    assert LineNotice((), crontab_import.ENABLED) not in report.notices
    assert {state for (state,) in rota.sql("SELECT state FROM sys.jobs")[0].rows} == {"DISABLED"}


def test_what_workers_need_and_what_differs_is_named_for_new_lines(rota):
    text = "0 2 * * * root /bin/x\nCRON_TZ=Europe/Berlin\n30 2 * * * ada a | b\n0 9 * * * ada /bin/y\nA=b\n0 9 * * * eve /bin/z\n"
    report = taken(rota, text, system=True, user="ada")
    notices = {notice.text.partition(" ")[0]: notice for notice in report.notices}
    texts = {notice.lines: notice.text for notice in report.notices if ALLOWLIST in notice.text}
    assert {lines: text.partition(" ")[0] for lines, text in texts.items()} == {
        (1,): "/bin/x",
        (3,): "/bin/sh",
        (4,): "/bin/y",
        (6,): "/usr/bin/env",
    }
    assert [lines for lines, text in texts.items() if "anything" in text] == [(3,), (6,)]
    users = {notice.lines: notice.text.partition(":")[0] for notice in report.notices if notice.text.startswith("run as")}
    assert users == {(1,): "run as root by cron", (6,): "run as eve by cron"}
    assert notices["due"].lines == (3,)
    assert "Europe/Berlin jumps over" in notices["due"].text
    assert report.zoneless == [1]
    assert report.notices[-2:] == [LineNotice((), crontab_import.AS_CRON), LineNotice((), crontab_import.ENABLED)]
    assert "line 1, user root" in rota.sql("SHOW CREATE JOB x")[0].rows[0][1]


def test_who_may_not_create_commands_imports_none(rota):
    rota.users.create("ada", role=Role.ADMIN, organization="default")
    for options in ({}, {"dry_run": True}):
        with pytest.raises(PermissionDenied):
            taken(rota.acting_as("ada"), **options)
    rota.sql("GRANT EXECUTE EXTERNAL JOB TO USER ada")
    assert every(taken(rota.acting_as("ada")), LineOutcome.CREATED)


def test_the_import_of_one_organization_does_not_see_the_jobs_of_another(rota):
    rota.organizations.create("acme")
    taken(rota)
    assert every(taken(rota.acting_as(Actor(name="root", role=Role.MANAGER, organization="acme"))), LineOutcome.CREATED)


def test_a_crontab_without_lines_changes_nothing(rota):
    report = taken(rota, "# nothing\n")
    assert report.jobs == []
    assert report.complete
