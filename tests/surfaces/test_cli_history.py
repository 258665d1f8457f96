"""`rota job list|log`, `rota stats|audit|dead|purge`: the commands about what was."""

from __future__ import annotations

import pytest

from tests.surfaces.cli_support import Cli
from tests.surfaces.test_cli import cli, enqueue, turn  # noqa: F401 - a fixture


@pytest.fixture
def graves(cli: Cli) -> Cli:  # noqa: F811 - the fixture
    """Two dead letters of one kind, one chain of two attempts, and a job that went well."""
    for name in ("gives_up", "gives_up", "fails", "greet"):
        enqueue(cli, name)
    turn(cli)
    cli.ok("job", "list")
    with_retries = cli.lines("job", "list", "--type", "fails")
    while with_retries[0]["status"] != "DEAD_LETTER":
        turn(cli)
        with_retries = cli.lines("job", "list", "--type", "fails")
    return cli


def numbers(lines: list[dict]) -> list[str]:
    return [line["number"].split("-")[2] for line in lines]


def test_a_list_says_how_it_goes_on_and_goes_on_there(graves: Cli):
    first = graves("job", "list", "--limit", "2", "--json")
    cursor = first.stderr.strip().removeprefix("more: --before ")
    rest = graves("job", "list", "--limit", "10", "--before", cursor, "--json")
    assert first.stdout.count("\n") == 2
    assert rest.stdout.count("\n") == 3
    assert rest.stderr == ""


def test_lists_filter_by_owner_organization_time_and_error(graves: Cli):
    assert len(graves.lines("job", "list", "--owner", "tester")) == 5
    assert graves.lines("job", "list", "--owner", "nobody") == []
    assert graves.lines("job", "list", "--organization", "acme") == []
    assert len(graves.lines("job", "list", "--since", "1h")) == 5
    assert graves.lines("job", "list", "--until", "2020-01-01T00:00:00Z") == []
    assert graves.lines("job", "list", "--since", "2h", "--until", "1h") == []
    assert len(graves.lines("job", "list", "--error-type", "permanent")) == 2
    assert len(graves.lines("job", "list", "--text", "no such thing")) == 2


@pytest.mark.parametrize("given", ["soon", "2026-13-01", "99999999999d"])
def test_a_time_that_is_none_is_refused_with_its_text(graves: Cli, given):
    result = graves("job", "list", "--since", given)
    assert result.exit_code == 2
    assert given in result.output


def test_the_log_of_a_chain_numbers_its_attempts(graves: Cli):
    words = graves.ok("job", "log", "3", "--chain")
    assert words.index("#1") < words.index("#2")
    assert "DEAD_LETTER by system" in words
    assert "#1" not in graves.ok("job", "log", "3")
    assert {line["attempt"] for line in graves.lines("job", "log", "3", "--chain")} == {1, 2}


def test_stats_tell_how_types_fared(graves: Cli):
    words = graves.ok("stats", "--hours", "2")
    assert "last 2 hours" in words
    assert "together" in words
    found = {each["job_type"]: each for each in graves.json("stats")["by_type"]}
    assert (found["greet"]["completed"], found["gives_up"]["failed"], found["fails"]["failed"]) == (1, 2, 2)


def test_the_audit_names_who_did_what(graves: Cli):
    graves.ok("job", "retry", "1")
    words = graves.ok("audit", "--subject", "job:1")
    assert "tester" in words
    assert "RUN_RETRIED" in words
    assert graves.lines("audit", "--subject", "job")[0]["action"] == "job.retry"
    assert "No such entries" in graves.ok("audit", "--subject", "schedule")


def test_dead_letters_are_listed_with_what_they_died_of(graves: Cli):
    words = graves.ok("dead", "list")
    assert "PermanentError: never" in words
    assert "permanent" in words
    assert "ValueError: no such thing [today]" in words
    assert numbers(graves.lines("dead", "list", "--type", "gives_up")) == ["00002", "00001"]
    assert numbers(graves.lines("dead", "list", "--error-type", "transient")) == ["00003.2"]
    assert numbers(graves.lines("dead", "list", "--text", "never", "--limit", "1")) == ["00002"]
    assert graves("dead", "list", "--limit", "1").stderr.startswith("more: --before")
    assert "No dead letters" in graves.ok("dead", "list", "--type", "greet")


def test_a_question_stays_out_of_the_json(graves: Cli):
    retried = graves.asked("dead", "retry", "--all", "--json", answer="y")
    assert retried.exit_code == 0
    assert "3 match. Retry every dead letter that matches?" in retried.stderr
    answered = retried.stdout.removeprefix(" y\n")  # the terminal of the test shows what was typed
    assert [line[0] for line in answered.splitlines()] == ["{", "{", "{"]


def test_where_nothing_matches_nothing_is_asked_and_json_stays_json(graves: Cli):
    assert graves("dead", "retry", "--type", "nothing", "--json").output == ""
    assert graves.json("dead", "delete", "--type", "nothing")["chains"] == 0


def test_all_that_match_are_retried_after_one_question(graves: Cli):
    no = graves.asked("dead", "retry", "--type", "gives_up", answer="n")
    assert no.exit_code == 1
    assert "2 match. Retry every dead letter that matches?" in no.output
    assert len(graves.lines("dead", "list")) == 3
    yes = graves.asked("dead", "retry", "--type", "gives_up", answer="y")
    assert yes.exit_code == 0
    assert "2 retried" in yes.output
    assert "1 retried" in graves.ok("dead", "retry", "--all", "--yes")
    assert "No dead letter matches" in graves.ok("dead", "retry", "--all", "--yes")
    assert "No dead letter matches" in graves.ok("dead", "retry", "--all")


def test_a_limit_is_said_before_and_kept(graves: Cli):
    asked = graves.asked("dead", "retry", "--all", "--limit", "2", answer="y")
    assert "More than 2 match." in asked.stderr
    assert "2 retried" in asked.stdout
    assert len(graves.lines("dead", "list")) == 1


def test_dead_letters_are_deleted(graves: Cli):
    assert "deleted (2 jobs)" in graves.ok("job", "delete", "3", "--yes")
    assert graves("job", "get", "3").exit_code == 3
    assert "2 match. Delete every dead letter" in graves("dead", "delete", "--all").stderr
    assert graves.json("dead", "delete", "--all", "--yes")["chains"] == 2
    assert graves("job", "delete", "1", "--yes").exit_code == 3
    assert "No dead letter matches" in graves.ok("dead", "delete", "--all", "--yes")


@pytest.mark.parametrize("verb", ["retry", "delete"])
@pytest.mark.parametrize("options", [("--yes",), (), ("--limit", "2", "--yes")])
def test_an_act_on_all_dead_letters_needs_a_filter_or_all(graves: Cli, verb, options):
    refused = graves.asked("dead", verb, *options, answer="y")
    assert refused.exit_code == 2
    assert "no filter is given: pass one, or `all` (`--all`, `all=True`)" in refused.stderr
    assert "match" not in refused.stderr
    assert len(graves.lines("dead", "list")) == 3


@pytest.mark.parametrize("options", [("--yes",), (), ("--limit", "2", "--reason", "old", "--yes")])
def test_a_cancel_of_all_jobs_needs_a_filter_or_all(graves: Cli, options):
    enqueue(graves, "greet")
    refused = graves.asked("job", "cancel-all", *options, answer="y")
    assert refused.exit_code == 2
    assert "no filter is given: pass one, or `all` (`--all`, `all=True`)" in refused.stderr
    assert graves.ok("job", "cancel-all", "--all", "--yes") == "1 job cancelled\n"


def test_the_question_before_a_cancel_counts_only_what_it_would_cancel(graves: Cli):
    assert graves("job", "cancel-all", "--all").output == "No job matches.\n"
    graves.ok("enqueue", "greet", "--in", "1h")
    assert "1 matches. Cancel every job" in graves.asked("job", "cancel-all", "--all", answer="n").stderr
    assert (
        "1 matches. Cancel every job"
        in graves.asked("job", "cancel-all", "--status", "pending", "--status", "completed", answer="n").stderr
    )
    assert graves("job", "cancel-all", "--status", "completed").output == "No job matches.\n"


def test_several_jobs_are_deleted_and_the_first_refusal_gives_the_code(graves: Cli):
    enqueue(graves, "greet")
    result = graves("job", "delete", "99", "5", "1", "4", "--yes")
    assert result.exit_code == 3
    assert result.stderr.count("error: ") == 2
    assert result.stdout.splitlines() == ["1  deleted (1 job)", "4  deleted (1 job)"]


def test_all_that_match_are_cancelled(graves: Cli):
    for _ in range(3):
        enqueue(graves, "greet", "--tag", "eu")
    refused = graves("job", "cancel-all", "--tag", "eu")
    assert (refused.exit_code, "3 match. Cancel every job that matches?" in refused.stderr) == (1, True)
    assert graves.ok("job", "cancel-all", "--tag", "eu", "--limit", "2", "--yes") == "2 jobs cancelled; 1 more match\n"
    assert graves.json("job", "cancel-all", "--tag", "eu", "--status", "queued", "--yes")["done"] == 1


def test_a_purge_counts_first_and_then_removes(graves: Cli):
    assert "0 chains" in graves.ok("purge", "--dry-run")
    assert graves.json("purge", "--older-than", "0s", "--dry-run") == {"chains": 4, "jobs": 5, "kept": 0, "dry_run": True}
    assert len(graves.lines("job", "list")) == 5
    assert graves("purge", "--older-than", "0s").exit_code == 1
    assert "4 chains (5 jobs) deleted." in graves.ok("purge", "--older-than", "0s", "--yes")
    assert graves.lines("job", "list") == []


def test_a_purge_shows_a_bar_on_a_terminal(graves: Cli, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    graves.env |= {"FORCE_COLOR": "1", "TERM": "xterm"}
    assert "deleted" in graves.ok("purge", "--older-than", "0s", "--yes")


def test_a_list_of_failed_jobs_shows_the_error(graves: Cli):
    told = graves.ok("job", "list", "--status", "DEAD_LETTER")
    assert "no such thing [today]" in told
    assert told.count("never") == 2


def test_a_waiting_retry_says_its_last_error_and_is_made_due(cli: Cli):  # noqa: F811 - the fixture
    job = enqueue(cli, "fails", "--backoff", "base=3000,jitter=0")
    turn(cli)
    retry = cli.lines("job", "attempts", str(job["number"]))[-1]["number"]
    assert "no such thing [today]" in cli.ok("job", "get", retry)
    assert cli.ok("job", "explain", retry).count("due in") == 1
    cli.ok("job", "update", retry, "--in", "0s")
    turn(cli)
    assert cli.json("job", "get", retry)["status"] == "DEAD_LETTER"
