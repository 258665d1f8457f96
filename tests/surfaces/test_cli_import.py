"""`rota import monque`, and chains shown in the words of other systems."""

from __future__ import annotations

import json

import pytest

from tests.faces.documents import FAILED, PENDING, PROCESSING, RECURRING, SAMPLES, changed
from tests.surfaces.cli_support import Cli


@pytest.fixture
def cli(tmp_path):
    made = Cli(tmp_path)
    yield made
    made.close()


@pytest.fixture
def export(tmp_path):
    """An export of the four samples, one document a line."""
    file = tmp_path / "jobs.jsonl"
    file.write_text("\n".join(map(json.dumps, SAMPLES)))
    return str(file)


def test_the_samples_are_taken_over_and_the_report_says_what_became_of_each(cli, export):
    report = cli.json("import", "monque", export, "--make-templates")
    assert (report["documents"], report["waiting"], report["recovered"], report["dead"]) == (4, 1, 1, 1)
    assert report["schedules"] == {"daily-report": "0 0 * * *"}
    assert report["templates_made"] == [each["name"] for each in SAMPLES]
    assert {job["status"] for job in cli.lines("job", "list", "--type", "process-payment")} == {"DEAD_LETTER"}


def test_the_report_for_people_names_the_schedules(cli, export):
    words = cli.ok("import", "monque", export, "--make-templates")
    assert "daily-report (0 0 * * *)" in words
    assert "already here" not in words
    again = cli.ok("import", "monque", export)
    assert "already here" in again


def test_a_dry_run_writes_nothing(cli, export):
    assert "nothing was written" in cli.ok("import", "monque", export, "--make-templates", "--dry-run")
    assert cli.lines("job", "list") == []


def test_names_without_a_template_are_refused_unless_they_may_be_made(cli, export):
    cli.ok("import", "monque", export, "--make-templates", "--dry-run")
    refused = cli("import", "monque", export)
    assert refused.exit_code == 1
    assert "'send-email' (first on line 1)" in refused.stderr
    assert "(unknown_template)" in refused.stderr


def test_a_bad_line_keeps_everything_out_and_is_named(cli, tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text(f"{json.dumps(PENDING)}\n{json.dumps(changed(FAILED, failCount='many'))}\n")
    refused = cli("import", "monque", str(file), "--make-templates", "--all-or-nothing")
    assert (refused.exit_code, refused.stderr.count("line 2: failCount")) == (1, 1)
    assert cli.lines("job", "list") == []


def test_bad_lines_can_be_left_out_and_the_exit_code_still_tells(cli, tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text(f"{json.dumps(PENDING)}\nnonsense\n{json.dumps(RECURRING)}\n")
    done = cli("import", "monque", str(file), "--make-templates", "--skip-bad")
    assert done.exit_code == 1
    assert "line 2: not JSON" in done.stderr
    assert [job["job_type"] for job in cli.lines("job", "list")] == ["send-email"]


def test_documents_come_through_a_pipe(cli):
    done = cli("import", "monque", "-", "--make-templates", "--max-retries", "7", "--json", stdin=json.dumps([PROCESSING]))
    assert json.loads(done.stdout)["recovered"] == 1
    assert {job["max_retries"] for job in cli.lines("job", "list")} == {7}


def test_a_zone_that_was_assumed_is_said_and_can_be_passed(cli, export):
    done = cli("import", "monque", export, "--make-templates", "--dry-run")
    assert "no time zone in the documents of daily-report: they are due by UTC" in done.stderr
    assert "pass --timezone" in done.stderr
    assert cli("import", "monque", export, "--make-templates", "--timezone", "Europe/Berlin").stderr == ""
    assert cli.json("schedule", "get", "daily-report")["timezone"] == "Europe/Berlin"


def test_a_file_that_is_not_there_is_refused(cli, tmp_path):
    refused = cli("import", "monque", str(tmp_path / "nowhere.jsonl"), "--make-templates")
    assert refused.exit_code == 1
    assert "can't be read" in refused.stderr


def test_completed_ones_come_as_history_if_asked_for(cli, tmp_path):
    file = tmp_path / "done.jsonl"
    file.write_text(json.dumps(changed(PENDING, status="completed")))
    assert cli.json("import", "monque", str(file), "--make-templates")["left_out"] == 1
    assert cli.json("import", "monque", str(file), "--with-completed")["completed"] == 1


def test_a_job_is_shown_as_a_background_job_and_as_a_document(cli, export):
    cli.ok("import", "monque", export, "--make-templates")
    job_id = cli.lines("job", "list", "--type", "process-payment")[0]["id"]
    record = cli.json("job", "get", job_id, "--face", "background-job")
    assert (record["status"], record["error_message"], record["retry_count"]) == ("Dead Letter", FAILED["failReason"], 9)
    assert record["created_at"] == "2025-12-16 09:00:00"
    assert cli.json("job", "get", job_id, "--face", "monque")["failCount"] == 10
    assert "Dead Letter" in cli.ok("job", "get", job_id, "--face", "background-job")


def test_a_schedule_is_shown_as_a_document_of_monque(cli, export):
    cli.ok("import", "monque", export, "--make-templates")
    shown = cli.json("schedule", "get", "daily-report", "--face", "monque")
    assert (shown["name"], shown["status"], shown["repeatInterval"]) == ("daily-report", "pending", "0 0 * * *")
    assert "repeatInterval" in cli.ok("schedule", "get", "daily-report", "--face", "monque")
    assert "is not one of monque" in cli("schedule", "get", "daily-report", "--face", "celery").stderr
