"""`rota forecast`, `rota schedule plan` and `rota schedule verify`: looking ahead, and back."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from rota import Rota
from rota.testing import Clock
from tests.support.pace import patient
from tests.surfaces.cli_support import Cli

AUTUMN = ("--start", "2036-10-25T12:00:00Z", "--end", "2036-10-26T12:00:00Z")
"""The night in which clocks in Europe go back."""
CHRISTMAS = ("--start", "2036-12-24T00:00:00Z", "--end", "2036-12-27T00:00:00Z")


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """A store that an application has recorded its templates in."""
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path)
    made.ok("template", "list", "--app", "shop:rota")
    yield made
    made.close()
    sys.modules.pop("shop", None)


def lines_with(words, text):
    return [line for line in text.splitlines() if words in line]


# ---- forecast -----------------------------------------------------------------------------------------------------------


def test_nothing_to_come_is_said(cli):
    shown = cli.ok("forecast")
    assert "0 jobs of 0 schedules" in shown
    assert "Nothing is due." in shown


def test_a_day_has_a_bar_for_each_hour_and_a_line_for_each_due_time(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "0 10 * * *", "--timezone", "Asia/Tokyo")
    cli.ok("schedule", "create", "thrice", "skips", "--cron", "0,20,40 6 * * *")
    shown = cli.ok("forecast", "--start", "2036-03-01T00:00:00Z", "--end", "2036-03-01T23:59:00Z")
    assert "4 jobs of 2 schedules" in shown
    (bar,) = lines_with("Sat 2036-03-01 06h", shown)
    assert bar.split()[-2:] == ["3", "█" * 40]
    assert len([line for line in shown.splitlines() if line.rstrip().endswith("h") or "█" in line]) == 24
    (line,) = lines_with("daily", cli.ok("forecast", "--start", "2036-02-29T22:00:00Z", "--hours", "3"))
    assert line.split() == ["2036-03-01", "01:00Z", "Sat", "10:00", "JST", "daily", "greet"]
    assert len(lines_with("thrice", shown)) == 3


def test_many_hours_have_a_mark_each_and_a_line_for_each_day(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "0,30 9,10 * * *")
    shown = cli.ok("forecast", "--start", "2036-03-01T00:00:00Z", "--hours", "120")
    days = lines_with("██", shown)
    assert len(days) == 5
    assert days[0].split() == ["Sat", "2036-03-01", "4", "██"]


def test_what_is_due_often_is_one_line_with_its_number(cli):
    cli.ok("schedule", "create", "beat", "greet", "--cron", "*/5 * * * *")
    (line,) = lines_with("beat", cli.ok("forecast", "--start", "2036-03-01T00:00:00Z"))
    assert "288 times, the last 2036-03-02 00:00Z: every 5 minutes" in line
    apart = cli.ok("forecast", "--start", "2036-03-01T00:00:00Z", "--schedule", "beat", "--limit", "10")
    assert len(lines_with("beat", apart)) == 10
    assert "and 278 lines more: see --limit" in apart


def test_a_change_of_clocks_is_marked(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "0 9 * * *", "--timezone", "Europe/Berlin")
    (line,) = lines_with("clocks go", cli.ok("forecast", *AUTUMN))
    assert "2036-10-26 01:00Z" in line
    assert "Europe/Berlin: clocks go from UTC+2 to UTC+1" in line
    assert cli.json("forecast", *AUTUMN)["changes"][0]["schedules"] == ["daily"]


def test_excluded_days_are_marked_one_line_each(cli):
    cli.ok("calendar", "update", "holidays", "2036-12-25", "2036-12-26")
    cli.ok("schedule", "create", "hourly", "greet", "--cron", "@hourly", "--calendar", "holidays")
    marks = lines_with("excluded by calendar 'holidays'", cli.ok("forecast", *CHRISTMAS))
    assert [line.split()[0] for line in marks] == ["2036-12-25", "2036-12-26"]
    assert "24 times, the last 2036-12-25 23:00Z" in marks[0]
    found = cli.json("forecast", *CHRISTMAS, "--skipped")
    assert {item["fate"] for item in found["items"]} == {"FIRED", "SKIPPED_CALENDAR"}
    assert {item["fate"] for item in cli.json("forecast", *CHRISTMAS)["items"]} == {"FIRED"}


def test_a_paused_schedule_is_named_below(cli):
    cli.ok("schedule", "create", "beat", "greet", "--cron", "* * * * *")
    cli.ok("schedule", "pause", "beat")
    shown = cli.ok("forecast", "--start", "2036-03-01T00:00:00Z")
    assert "Paused, and skipped: beat (1,440 due times)." in shown
    assert "0 jobs" in shown
    (line,) = lines_with("SKIPPED_PAUSED", cli.ok("forecast", "--start", "2036-03-01T00:00:00Z", "--skipped"))
    assert "1,440 times" in line


def test_jobs_that_a_limit_would_make_wait_are_named(cli):
    rota = Rota(cli.store)
    rota.job(name="slow", max_running=1)(lambda: time.sleep(1.1))
    with rota.running():
        assert rota.wait(rota.enqueue("slow").id, timeout=patient(20))
    rota.close()
    for name in ("one", "two"):
        cli.ok("schedule", "create", name, "slow", "--cron", "0 9 * * *")
    shown = cli.ok("forecast")
    (line,) = lines_with("waits about 1.", shown)
    assert "two" in line
    assert "Before they start, 1 job would wait" in shown


def test_overlaps_are_marked_and_a_bound_that_was_met_is_said(cli, monkeypatch):
    rota = Rota(cli.store)
    rota.job(name="slow")(lambda: time.sleep(1.2))
    with rota.running():
        assert rota.wait(rota.enqueue("slow").id, timeout=patient(20))
    rota.close()
    cli.ok("schedule", "create", "tight", "slow", "--every", "1s")
    window = ("--hours", "0.01")
    shown = cli.ok("forecast", *window)
    assert "18 jobs of 1 schedule" in shown
    (line,) = lines_with("SKIPPED_OVERLAP", shown)
    assert "18 times" in line
    assert "worked out up to" not in shown
    assert cli.json("forecast", *window)["exact_until"] is None
    monkeypatch.setenv("ROTA_FORECAST_SIMULATED_MAX", "10")
    assert "worked out up to" in cli.ok("forecast", *window)
    assert cli.json("forecast", *window)["exact_until"] is not None


def test_a_forecast_as_json_is_one_document(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "0 9 * * *")
    found = cli.json("forecast", "--start", "2036-03-01T00:00:00Z", "--end", "2036-03-03T00:00:00Z", "--schedule", "daily")
    assert (found["start"], found["end"], found["cut"]) == ("2036-03-01T00:00:00Z", "2036-03-03T00:00:00Z", False)
    assert [item["due_at"] for item in found["items"]] == ["2036-03-01T09:00:00Z", "2036-03-02T09:00:00Z"]
    assert found["density"] == [["2036-03-01T09:00:00Z", 1], ["2036-03-02T09:00:00Z", 1]]


def test_a_forecast_that_holds_no_more_says_so(cli, monkeypatch):
    monkeypatch.setenv("ROTA_FORECAST_MAX", "100")
    cli.ok("schedule", "create", "beat", "greet", "--cron", "* * * * *")
    assert "setting forecast_max" in cli.ok("forecast")
    cli.ok("schedule", "pause", "beat")
    assert "Paused, and skipped: beat (at least 100 due times)." in cli.ok("forecast")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("forecast", "--hours", "soon"), 2, "--hours"),
        (("forecast", "--hours", "0"), 2, "hours=0"),
        (("forecast", "--hours", "3", "--end", "2036-01-01T00:00:00Z"), 2, "both given"),
        (("forecast", "--start", "2036-01-02T00:00:00Z", "--end", "2036-01-01T00:00:00Z"), 2, "not after its start"),
        (("forecast", "--start", "noon"), 2, "is not a moment"),
        (("forecast", "--schedule", "nope"), 3, "there is no schedule 'nope'"),
        (("schedule", "verify", "nope"), 3, "not_found"),
        (("schedule", "plan", "nope", "--every", "1h"), 3, "not_found"),
        (("schedule", "plan", "daily", "--every", "1h", "--days", "0"), 2, "days=0"),
        (("schedule", "plan", "daily", "--ends", "never"), 2, "ends='never' is not a moment"),
    ],
)
def test_what_cannot_be_is_refused_with_its_exit_code(cli, args, code, words):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "0 9 * * *")
    result = cli(*args)
    assert result.exit_code == code
    assert words in result.output


# ---- plan ---------------------------------------------------------------------------------------------------------------


def test_a_plan_shows_what_a_change_adds_and_removes_and_changes_nothing(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "0 9 * * *", "--timezone", "Europe/Berlin")
    shown = cli.ok("schedule", "plan", "daily", "--timezone", "Asia/Tokyo", "--days", "3")
    assert "is due    every day at 09:00 Europe/Berlin" in shown
    assert "would be  every day at 09:00 Asia/Tokyo" in shown
    assert "3 added, 3 removed, 0 stay" in shown
    assert all("JST" in line for line in lines_with("  + ", shown))
    assert all("CE" in line for line in lines_with("  − ", shown))
    found = cli.json("schedule", "plan", "daily", "--cron", "0 9 * * MON", "--days", "14")
    assert (found["added"], len(found["removed"]), found["kept"]) == ([], 12, 2)
    assert cli.json("schedule", "get", "daily")["version"] == 1


def test_a_long_plan_is_cut_for_people(cli):
    cli.ok("schedule", "create", "beat", "greet", "--every", "1h")
    shown = cli.ok("schedule", "plan", "beat", "--every", "90m", "--days", "30")
    assert len(lines_with("  + ", shown)) + len(lines_with("  − ", shown)) == 20
    assert "more: --json has them all" in shown


# ---- verify -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def history(cli):
    """A schedule that was paused for two days, and so has a ledger."""
    earlier = Rota(cli.store, clock=Clock(datetime.now(UTC) - timedelta(days=2)))
    earlier.schedules.create("beat", "greet", every="1h")
    earlier.schedules.pause("beat")
    earlier.close()
    cli.ok("schedule", "update", "beat", "--priority", "high")
    return cli


def test_a_ledger_without_gaps_is_well(history):
    shown = history.ok("schedule", "verify")
    assert shown == "All is well: 48 due times of 1 schedule, each with its one fate.\n"
    found = history.json("schedule", "verify", "beat", "--since", "1d")
    assert (found["ok"], found["problems"], found["schedules"]) == (True, [], 1)


def test_a_due_time_that_has_two_fates_is_found_and_gives_the_exit_code(history):
    with Rota(history.store).transaction() as tx:
        tx.execute(
            "INSERT INTO occurrences (schedule_id, due_at, last_due_at, count, fate, recorded_at) "
            "SELECT schedule_id, due_at, due_at, 1, 'MISSED', recorded_at FROM occurrences"
        )
    result = history("schedule", "verify")
    assert (result.exit_code, "beat" in result.stdout, "problem" in result.stdout) == (1, True, True)
    as_json = history("schedule", "verify", "--json")
    assert (as_json.exit_code, '"ok":false' in as_json.stdout) == (1, True)
