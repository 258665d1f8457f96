"""`rota admin job`: jobs that run by a schedule, their runs, and figures, as the tables of sys have them."""

from __future__ import annotations

import pytest

from tests.surfaces.cli_support import Cli
from tests.surfaces.test_cli import cli, handlers

__all__ = ["cli"]


@pytest.fixture
def jobs(cli: Cli) -> Cli:
    with handlers(cli) as rota:
        rota.sql("""
            CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' CALL greet();
            CREATE JOB broken SCHEDULE = EVERY 1 HOUR CALL gives_up();
            CREATE JOB held SCHEDULE = EVERY 1 HOUR CALL greet();
            PAUSE JOB held; EXECUTE JOB nightly; EXECUTE JOB broken
        """)
        rota.turn()
    return cli


def test_jobs_are_listed_with_state_next_run_and_owner(jobs):
    found = {each["job_name"]: each for each in jobs.lines("admin", "job", "list")}
    assert list(found) == ["broken", "held", "nightly"]
    assert found["held"]["state"] == "PAUSED"
    assert found["nightly"]["next_run_time_ts"].endswith("Z")
    text = jobs.ok("admin", "job", "list", "--zone", "Europe/Berlin")
    assert "nightly" in text
    assert "CET" in text
    assert [each["job_name"] for each in jobs.lines("admin", "job", "list", "--state", "paused")] == ["held"]
    assert jobs("admin", "job", "list", "--state", "asleep").exit_code == 2
    assert jobs.ok("admin", "job", "list", "--state", "DISABLED") == "no job is DISABLED\n"


def test_runs_are_listed_newest_first_with_their_message(jobs):
    found = jobs.lines("admin", "job", "runs")
    assert [(each["job_name"], each["state"]) for each in found] == [("broken", "FAILED"), ("nightly", "COMPLETED")]
    assert "never" in found[0]["result_message"]
    assert "never" in jobs.ok("admin", "job", "runs", "broken")
    assert [each["job_name"] for each in jobs.lines("admin", "job", "runs", "--limit", "1")] == ["broken"]
    assert jobs.ok("admin", "job", "runs", "held") == "there are no runs\n"
    refused = jobs("admin", "job", "runs", "nope")
    assert refused.exit_code == 3
    assert "rota admin job list" in refused.stderr


def test_metrics_have_the_names_that_dashboards_ask_for(jobs):
    found = {each["metric"]: each["value"] for each in jobs.lines("admin", "job", "metrics")}
    assert {"scheduler_queue_depth", "jobs_running", "jobs_failed_total", "job_run_latency_ms"} <= set(found)
    assert (found["jobs_running"], found["jobs_failed_total"]) == (0.0, 1.0)
    assert "jobs_failed_total" in jobs.ok("admin", "job", "metrics")


def test_nothing_of_another_organization_is_listed(jobs):
    jobs.ok("organization", "create", "acme")
    jobs.ok("user", "create", "eve", "--organization", "acme", "--role", "admin")
    assert jobs.ok("admin", "job", "list", "--as", "eve") == "there are no jobs\n"
    assert jobs.ok("admin", "job", "runs", "--as", "eve") == "there are no runs\n"


@pytest.mark.parametrize("words", [["admin"], ["admin", "job"]])
def test_a_group_without_a_command_shows_its_commands(cli, words):
    result = cli(*words)
    assert result.exit_code == 0
    assert "job" in result.stdout
