"""`rota schedule` and `rota calendar`: what people type, what they see, what it says when it refuses."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from rota import Rota
from rota.model.schedule_options import OPTIONS, TIMES
from rota.operation import operations
from rota.resources.schedules import Schedules
from rota.testing import Clock
from tests.surfaces.cli_support import Cli


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """A store that an application has recorded its templates in."""
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path)
    made.ok("template", "list", "--app", "shop:rota")
    yield made
    made.close()
    sys.modules.pop("shop", None)


@pytest.fixture
def earlier(cli):
    """The same store as it was used two days ago."""
    rota = Rota(cli.store, clock=Clock(datetime.now(UTC) - timedelta(days=2)))
    yield rota
    rota.close()


def fire_what_is_due(cli, *, until):
    """Let a worker give due times their fates and run what fires, until it shows."""
    rota = Rota(cli.store)
    rota.job(name="greet")(lambda name="you": name)
    rota.job(name="gives_up", max_retries=0)(_give_up)
    with rota.running():
        deadline = datetime.now(UTC) + timedelta(seconds=20)
        while not until(rota) and datetime.now(UTC) < deadline:
            time.sleep(0.01)
    rota.close()


def _give_up():
    raise ValueError("no such [table]")


# ---- making -----------------------------------------------------------------------------------------------------------


def test_a_schedule_is_made_and_says_in_words_when_it_is_due(cli):
    words = cli.ok("schedule", "create", "daily", "greet", "--cron", "0 9 * * MON-FRI", "--timezone", "Europe/Berlin")
    assert words.startswith("schedule daily is ENABLED: every weekday at 09:00 Europe/Berlin; in ")


def test_every_option_of_a_schedule_is_a_flag():
    assert set(OPTIONS) <= {field.name for field in operations(Schedules)["create"].fields}


def test_a_schedule_takes_no_role(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily")
    for command in (("create", "other", "greet", "--cron", "@daily"), ("update", "daily"), ("plan", "daily")):
        refused = cli("schedule", *command, "--run-as", "root")
        assert refused.exit_code != 0
        assert "run_as='root' is not available" in " ".join(refused.stderr.split())
    assert [each["name"] for each in cli.lines("schedule", "list")] == ["daily"]


def test_a_template_may_be_given_by_its_id(cli):
    found = cli.json("enqueue", "greet")["template_id"]
    assert cli.json("enqueue", found)["job_type"] == "greet"
    assert "greet" in cli.ok("template", "get", found)
    cli.ok("schedule", "create", "daily", found, "--cron", "@daily")
    assert [each["template"] for each in cli.lines("schedule", "list")] == ["greet"]


def test_all_flags_reach_the_schedule(cli):
    cli.ok("calendar", "update", "holidays", "2030-12-25")
    cli.ok("schedule", "create", "first", "greet", "--every", "1h")
    made = cli.json(
        *("schedule", "create", "all", "greet", "--cron", "@daily", "--timezone", "Asia/Tokyo"),
        *("--starts", "2030-01-01T00:00:00Z", "--ends", "2031-01-01T00:00:00+01:00", "--calendar", "holidays", "--jitter", "30s"),
        *("--params", '{"name": "ada"}', "-p", "times=2", "--priority", "high", "--catch-up", "all", "--catch-up-lateness", "2d"),
        *("--catch-up-count", "5", "--overlap", "queue", "--depends-on", "first", "--description", "All [of it]"),
    )
    wanted = {
        "cron": "@daily",
        "timezone": "Asia/Tokyo",
        "starts": "2030-01-01T00:00:00Z",
        "ends": "2030-12-31T23:00:00Z",
        "calendar": "holidays",
        "jitter": 30.0,
        "params": {"name": "ada", "times": 2},
        "priority": 75,
        "catch_up": "all",
        "catch_up_lateness": 172_800.0,
        "catch_up_count": 5,
        "overlap": "queue",
        "depends_on": ["first"],
        "run_as": None,
        "description": "All [of it]",
        "state": "ENABLED",
    }
    assert {name: made[name] for name in wanted} == wanted


def test_an_at_and_an_every_are_made(cli):
    at = cli.json("schedule", "create", "launch", "greet", "--at", "2036-12-01T09:00:00+01:00", "--on-completion", "drop")
    assert (at["kind"], at["at"], at["on_completion"], at["next_at"]) == ("AT", "2036-12-01T08:00:00Z", "DROP", "2036-12-01T08:00:00Z")
    every = cli.json("schedule", "create", "beat", "greet", "--every", "1h30m")
    assert (every["kind"], every["every"], every["words"]) == ("EVERY", 5400.0, "every 1 hour 30 minutes")


def test_one_that_is_made_disabled_is_not_due_until_it_is_enabled(cli):
    assert cli.ok("schedule", "create", "beat", "greet", "--every", "1h", "--disabled") == "schedule beat is DISABLED: every hour\n"
    assert cli.json("schedule", "get", "beat")["next_at"] is None
    assert cli.ok("schedule", "enable", "beat").startswith("schedule beat is ENABLED: every hour; in ")


def test_an_application_brings_its_templates_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli = Cli(tmp_path)
    assert cli.json("schedule", "create", "beat", "greet", "--every", "1h", "--app", "shop:rota")["template"] == "greet"
    sys.modules.pop("shop", None)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "does not say when: give one of cron, at, every"),
        (("--cron", "61 * * * *"), "'61 * * * *': minute 61 is out of range 0-59"),
        (("--cron", "0 0 30 2 *"), "day of month"),
        (("--cron", "0 9 * *"), "has 4 fields: give five"),
        (("--cron", ""), "is not a cron expression"),
        (("--cron", "@daily", "--timezone", "Berlin"), "timezone 'Berlin' is not an IANA name"),
        (("--cron", "@daily", "--every", "1h"), "cron and every are both given"),
        (("--every", "soon"), "every: 'soon' is not a length of time"),
        (("--every", "0s"), "every=0"),
        (("--at", "tomorrow"), "at='tomorrow' is not a moment"),
        (("--at", "2036-01-01"), "is a day without a time"),
        (("--at", "2001-01-01T00:00:00Z"), "has passed"),
        (("--every", "1h", "--starts", "noon"), "starts='noon' is not a moment"),
        (("--every", "1h", "--starts", "2031-01-01T00:00:00Z", "--ends", "2030-01-01T00:00:00Z"), "ends"),
        (("--every", "1h", "--overlap", "maybe"), "overlap='maybe' is not one of allow, queue, skip"),
        (("--every", "1h", "--catch-up", "some"), "catch_up='some' is not one of none, last, all"),
        (("--every", "1h", "--catch-up", "all"), 'with overlap="skip"'),
        (("--every", "1h", "--catch-up-lateness", "-1"), "catch_up_lateness: '-1' is not a length of time"),
        (("--every", "1h", "--catch-up-count", "0"), "catch_up_count=0"),
        (("--every", "1h", "--jitter", "3d"), "jitter=259200 seconds is not allowed: use at most a day"),
        (("--every", "1h", "--priority", "urgent"), "priority 'urgent'"),
        (("--every", "1h", "--on-completion", "KEEP"), "on_completion='KEEP' is not one of PRESERVE, DROP"),
        (("--every", "1h", "--calendar", "nope"), "calendar='nope' is not there"),
        (("--every", "1h", "--depends-on", "nope"), "depends_on='nope'"),
    ],
)
def test_a_bad_value_is_refused_in_one_line_that_names_it(cli, flags, words):
    for args in (("create", "new", "greet"), ("update", "there"), ("plan", "there")):
        if args[0] == "update":
            cli.ok("schedule", "create", "there", "greet", "--cron", "@hourly")
        if args[0] != "create" and not flags:
            words = "nothing to change"
        result = cli("schedule", *args, *flags)
        assert (result.exit_code, result.stdout) == (2, ""), (args, result.output)
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
        assert words in line


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("create", "beat", "greet", "--every", "1h"), 1, "schedule_exists"),
        (("create", "new", "nobody", "--every", "1h"), 1, "unknown_template"),
        (("create", "", "greet", "--every", "1h"), 1, "invalid_name"),
        (("create", "new", "greet", "--every", "1h", "-p", "name"), 2, "is not key=value"),
        (("update", "beat"), 2, "nothing to change"),
        (("update", "beat", "--unset", "ends"), 2, "No such option"),
        (("update", "beat", "--template", "nobody"), 1, "unknown_template"),
        (("update", "beat", "--depends-on", "after"), 1, "beat → after → beat"),
        (("delete", "beat", "--yes"), 1, "needed by 'after'"),
        (("update", "nope", "--every", "1h"), 3, "there is no schedule 'nope'"),
        (("get", "nope"), 3, "not_found"),
        (("enable", "nope"), 3, "not_found"),
        (("fire", "nope"), 3, "not_found"),
        (("delete", "nope", "--yes"), 3, "not_found"),
        (("occurrences", "nope"), 3, "not_found"),
        (("occurrences", "--before", "yesterday"), 2, "is not a valid cursor"),
        (("occurrences", "--since", "tomorrow"), 2, "nor a length of time"),
        (("occurrences", "--fate", "LOST"), 2, "LOST"),
    ],
)
def test_what_cannot_be_is_refused_with_its_exit_code(cli, args, code, words):
    cli.ok("schedule", "create", "beat", "greet", "--every", "1h")
    cli.ok("schedule", "create", "after", "greet", "--every", "1h", "--depends-on", "beat")
    result = cli("schedule", *args)
    assert result.exit_code == code
    assert words in result.output


# ---- changing ---------------------------------------------------------------------------------------------------------


def test_what_is_given_changes_and_the_rest_stays(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily", "--priority", "high", "-p", "name=ada", "-p", "times=2")
    changed = cli.json("schedule", "update", "daily", "--cron", "0 8 * * *", "-p", "name=bob", "--template", "skips")
    assert (changed["words"], changed["priority"], changed["params"]) == ("every day at 08:00 UTC", 75, {"name": "bob", "times": 2})
    assert changed["template"] == "skips"
    assert cli.json("schedule", "update", "daily", "--params", "{}")["params"] == {}


def test_an_option_is_taken_back_to_its_default(cli):
    cli.ok("calendar", "update", "holidays", "2030-12-25")
    cli.ok(*("schedule", "create", "daily", "greet", "--cron", "@daily", "--ends", "2036-01-01T00:00:00Z", "--calendar", "holidays"))
    changed = cli.json("schedule", "update", "daily", "--ends", "none", "--calendar", "none")
    assert (changed["ends"], changed["calendar"]) == (None, None)
    cli.ok("schedule", "update", "daily", "--catch-up-lateness", "2d")
    assert cli.json("schedule", "update", "daily", "--catch-up-lateness", "none")["catch_up_lateness"] is None


@pytest.mark.parametrize("option", [option for option in OPTIONS if option not in {"template", *TIMES}])
def test_everything_that_has_a_default_can_be_taken_back(cli, option):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily")
    cli.ok("schedule", "update", "daily", f"--{option.replace('_', '-')}", "none")


def test_a_schedule_is_paused_disabled_and_enabled(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily")
    assert "is PAUSED: every day at 00:00 UTC; skips in " in cli.ok("schedule", "pause", "daily")
    assert cli.ok("schedule", "disable", "daily") == "schedule daily is DISABLED: every day at 00:00 UTC\n"
    assert cli.json("schedule", "enable", "daily")["state"] == "ENABLED"


def test_firing_by_hand_makes_a_job_and_leaves_the_due_times_alone(cli):
    before = cli.json("schedule", "create", "daily", "greet", "--cron", "@daily", "-p", "name=ada", "-p", "times=1")
    job = cli.json("schedule", "fire", "daily", "-p", "name=bob")
    assert (job["status"], job["params"], job["schedule_id"]) == ("QUEUED", {"name": "bob", "times": 1}, before["id"])
    assert cli.json("schedule", "get", "daily")["next_at"] == before["next_at"]
    assert cli.ok("schedule", "fire", "daily").startswith("JOB-")


def test_deleting_asks_once(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily")
    asked = cli.asked("schedule", "delete", "daily", answer="n")
    assert (asked.exit_code, "Delete schedule daily? Its jobs and its ledger stay." in asked.stderr) == (1, True)
    refused = cli("schedule", "delete", "daily", stdin="y\n")
    assert (refused.exit_code, "There is no terminal to ask on: pass --yes to confirm (refused)" in refused.stderr) == (1, True)
    assert "schedule daily is deleted" in cli.asked("schedule", "delete", "daily", answer="y").stdout
    assert cli("schedule", "get", "daily").exit_code == 3
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily")
    assert cli.json("schedule", "delete", "daily", "--yes") == {"deleted": "daily"}


# ---- looking ----------------------------------------------------------------------------------------------------------


def test_list_says_when_in_words_and_when_next(cli, earlier):
    assert "No schedules" in cli.ok("schedule", "list")
    cli.ok("schedule", "create", "daily [1]", "greet", "--cron", "0 9 * * MON-FRI", "--timezone", "Europe/Berlin")
    cli.ok("schedule", "create", "paused", "skips", "--every", "2h")
    cli.ok("schedule", "pause", "paused")
    cli.ok("schedule", "create", "off", "greet", "--every", "1h", "--disabled")
    earlier.schedules.create("over", "greet", every="1h", ends=datetime.now(UTC) - timedelta(days=1))
    earlier.schedules.pause("over")
    cli.ok("schedule", "enable", "over")
    earlier.schedules.create("overdue", "greet", every="1h")
    lines = {line.split("  ")[0]: line for line in cli.ok("schedule", "list").splitlines()}
    assert "every weekday at 09:00 Europe/Berlin" in lines["daily [1]"]
    assert " in " in lines["daily [1]"]
    assert "PAUSED" in lines["paused"]
    assert "skips in " in lines["paused"]
    assert "DISABLED" in lines["off"]
    assert "ENDED" in lines["over"]
    assert "due 1d " in lines["overdue"]
    assert [each["name"] for each in cli.lines("schedule", "list", "--template", "skips")] == ["paused"]


def test_the_list_shows_the_last_ten_outcomes_as_marks_and_in_words(cli, earlier):
    earlier.job(name="greet")(lambda name="you": name)
    earlier.job(name="gives_up", max_retries=0)(_give_up)
    earlier.schedule("good", "greet", every="1h")
    earlier.schedule("bad", "gives_up", every="1h")
    clock = earlier._session.clock
    for _ in range(11):
        clock.advance(hours=1)
        earlier.turn()
        earlier.turn()
    for name in ("good", "bad"):
        earlier.schedules.disable(name)  # else the two days since then are overdue
    lines = {line.split()[0]: line for line in cli.ok("schedule", "list").splitlines()}
    assert "✓" * 10 in lines["good"]
    assert "✗" * 10 in lines["bad"]
    words = {each["name"]: each["last_outcomes"] for each in cli.lines("schedule", "list")}
    assert words == {"good": ["completed"] * 10, "bad": ["failed"] * 10}


def test_list_keeps_its_words_whole_where_the_line_is_short(cli):
    cli.env["COLUMNS"] = "80"
    cli.ok("schedule", "create", "quarter", "greet", "--cron", "0 18 L 3,6,9,12 *", "--timezone", "Asia/Kolkata")
    shown = cli.ok("schedule", "list")
    assert "…" not in shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert " ".join(shown.split()).count("Asia/Kolkata") == 1


def test_list_names_organizations_where_there_are_several(cli):
    cli.ok("organization", "create", "acme")
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily")
    assert "acme" not in cli.ok("schedule", "list")
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily", "--organization", "acme")
    assert "acme" in cli.ok("schedule", "list")
    assert [each["organization"] for each in cli.lines("schedule", "list", "--organization", "acme")] == ["acme"]
    assert cli.json("schedule", "pause", "daily", "--organization", "acme")["organization"] == "acme"
    assert [each["state"] for each in cli.lines("schedule", "list")] == ["PAUSED", "ENABLED"]


def test_show_tells_what_comes_where_it_is_and_in_utc(cli):
    cli.ok("calendar", "update", "holidays", "2030-01-02")
    cli.ok(
        *("schedule", "create", "daily", "greet", "--cron", "0 9 * * *", "--timezone", "Asia/Tokyo", "--calendar", "holidays"),
        *("--starts", "2030-01-01T00:00:00Z", "-p", "name=ada", "--description", "Says [hello]"),
    )
    shown = cli.ok("schedule", "get", "daily")
    for words in ("every day at 09:00 Asia/Tokyo", "(cron 0 9 * * *)", '{"name":"ada"}', "Says [hello]", "days of calendar holidays"):
        assert words in shown
    coming = [line for line in shown.splitlines() if "JST" in line]
    assert len(coming) == 5
    assert "Tue 2030-01-01 09:00 JST" in coming[0]
    assert "2030-01-01 00:00:00Z" in coming[0]
    assert "SKIPPED_CALENDAR: excluded by calendar 'holidays'" in coming[1]
    fates = [each["fate"] for each in cli.json("schedule", "get", "daily")["coming"]]
    assert fates == ["FIRED", "SKIPPED_CALENDAR", "FIRED", "FIRED", "FIRED"]


def test_show_finds_due_times_that_are_far_apart(cli):
    cli.ok("schedule", "create", "leap", "greet", "--cron", "0 0 29 2 *")
    days = [each["due_at"][4:10] for each in cli.json("schedule", "get", "leap")["coming"]]
    assert days == ["-02-29"] * 5


def test_show_of_one_that_is_disabled_has_nothing_to_come(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily", "--disabled")
    assert "next due times" not in cli.ok("schedule", "get", "daily")
    assert cli.json("schedule", "get", "daily")["coming"] == []


def test_show_tells_what_it_depends_on_and_what_depends_on_it(cli):
    cli.ok("schedule", "create", "extract", "greet", "--every", "1h")
    cli.ok("schedule", "create", "load", "greet", "--every", "1h", "--depends-on", "extract")
    assert "depends on" in cli.ok("schedule", "get", "load")
    assert cli.json("schedule", "get", "load")["depends_on"] == ["extract"]
    assert cli.json("schedule", "get", "extract")["needed_by"] == ["load"]


# ---- what became of due times -------------------------------------------------------------------------------------------


def test_a_pause_is_one_line_with_its_number(cli, earlier):
    earlier.schedules.create("beat", "greet", every="1m")
    earlier.schedules.pause("beat")
    cli.ok("schedule", "enable", "beat")
    (line,) = [line for line in cli.ok("schedule", "occurrences").splitlines() if "SKIPPED" in line]
    assert "SKIPPED_PAUSED ×2,880" in line
    assert "the schedule was paused" in line
    (row,) = cli.lines("schedule", "occurrences", "beat", "--not-ran", "--fate", "skipped_paused", "--since", "1h")
    assert (row["schedule"], row["count"], row["ran"]) == ("beat", 2880, False)
    assert cli.lines("schedule", "occurrences", "--until", "3d") == []


def test_occurrences_tell_which_job_and_what_it_died_of(cli, earlier):
    earlier.schedules.create("good", "greet", every="1h")
    earlier.schedules.create("bad", "gives_up", every="1h")

    def over(rota):
        found = rota.schedules.occurrences(fate="FIRED")
        return len(found) == 2 and all(each.ran is not None for each in found)

    fire_what_is_due(cli, until=over)
    good, bad = (cli.ok("schedule", "occurrences", name) for name in ("good", "bad"))
    assert "COALESCED ×47" in good
    assert "COMPLETED" in good
    assert "DEAD_LETTER" in bad
    assert "ValueError: no such [table]" in bad
    assert "ValueError: no such [table]" in cli.ok("schedule", "get", "bad")
    assert {each["schedule"] for each in cli.lines("schedule", "occurrences", "--fate", "FIRED", "--not-ran")} == {"bad"}


def test_a_long_list_goes_on_where_it_ended(cli, earlier):
    for name in ("one", "two", "three"):
        earlier.schedules.create(name, "greet", every="1h")
        earlier.schedules.pause(name)
        cli.ok("schedule", "enable", name)
    first = cli("schedule", "occurrences", "--limit", "2", "--json")
    assert (first.exit_code, len(first.stdout.splitlines())) == (0, 2)
    more = first.stderr.split()
    assert more[:2] == ["more:", "--before"]
    rest = cli("schedule", "occurrences", "--limit", "2", "--before", more[2], "--json")
    assert (len(rest.stdout.splitlines()), rest.stderr) == (1, "")
    assert not set(first.stdout.splitlines()) & set(rest.stdout.splitlines())


def test_nothing_due_is_said(cli):
    assert cli.ok("schedule", "occurrences") == "No due times.\n"


# ---- calendars ----------------------------------------------------------------------------------------------------------


def test_a_calendar_is_set_listed_shown_and_deleted(cli):
    assert "No calendars" in cli.ok("calendar", "list")
    days = ("2036-12-25", "2036-12-26", "2037-01-01")
    assert cli.ok("calendar", "update", "holidays", *days, "--description", "Bank [days]") == "calendar holidays has 3 days\n"
    (line,) = [line for line in cli.ok("calendar", "list").splitlines() if line.startswith("holidays")]
    assert "Thu 2036-12-25" in line
    assert "Bank [days]" in line
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily", "--calendar", "holidays")
    shown = cli.ok("calendar", "get", "holidays")
    assert "Thu 2036-12-25 to Fri 2036-12-26" in shown
    assert "daily" in shown
    assert cli.json("calendar", "get", "holidays") == {
        "name": "holidays",
        "days": list(days),
        "description": "Bank [days]",
        "schedules": ["daily"],
    }
    assert cli("calendar", "delete", "holidays", "--yes").exit_code == 1
    cli.ok("schedule", "update", "daily", "--calendar", "none")
    assert cli.asked("calendar", "delete", "holidays", answer="n").exit_code == 1
    assert cli.ok("calendar", "delete", "holidays", "--yes") == "calendar holidays is deleted\n"
    assert cli.lines("calendar", "list") == []


def test_the_days_of_a_calendar_come_from_a_file_too_and_its_description_stays(cli):
    cli.ok("calendar", "update", "holidays", "2036-12-25", "--description", "Bank holidays")
    (cli.folder / "days.txt").write_text("# next year\n2037-01-01   # New Year\n\n2037-05-01\n")
    made = cli.json("calendar", "update", "holidays", "@days.txt")
    assert (made["days"], made["description"]) == (["2037-01-01", "2037-05-01"], "Bank holidays")
    piped = cli("calendar", "update", "holidays", "-", "--json", stdin="2038-01-01\n")
    assert '"2038-01-01"' in piped.stdout


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("update", "holidays"), 2, "Missing argument"),
        (("update", "holidays", "@nope.txt"), 2, "can't be read"),
        (("update", "holidays", "@/dev/null"), 2, "/dev/null is empty"),
        (("update", "holidays", "2036-02-30"), 2, "'2036-02-30' is not a day"),
        (("get", "nope"), 3, "there is no calendar 'nope'"),
        (("delete", "nope", "--yes"), 3, "not_found"),
    ],
)
def test_what_is_no_calendar_is_refused(cli, args, code, words):
    result = cli("calendar", *args)
    assert result.exit_code == code
    assert words in result.output


# ---- in somebody's name -------------------------------------------------------------------------------------------------


def test_schedules_and_calendars_of_another_organization_are_not_there(cli):
    for name in ("acme", "beta"):
        cli.ok("organization", "create", name)
    cli.ok("user", "create", "root", "--role", "system_manager")
    cli.env["ROTA_ACTOR"] = "root"
    cli.ok("user", "create", "ada", "--organization", "acme", "--role", "admin")
    cli.ok("user", "create", "eve", "--organization", "beta", "--role", "admin")
    cli.env["ROTA_ACTOR"] = "eve"
    cli.ok("calendar", "update", "secret", "2036-12-25")
    cli.ok("schedule", "create", "secret", "greet", "--every", "1h", "--calendar", "secret")
    assert cli.json("calendar", "get", "secret")["schedules"] == ["secret"]
    cli.env["ROTA_ACTOR"] = "ada"
    assert cli.lines("schedule", "list") == cli.lines("calendar", "list") == cli.lines("schedule", "occurrences") == []
    for args in (("schedule", "get"), ("schedule", "fire"), ("schedule", "pause"), ("schedule", "occurrences"), ("calendar", "get")):
        assert cli(*args, "secret").exit_code == 3
    cli.ok("schedule", "create", "secret", "greet", "--every", "2h")
    assert cli.json("schedule", "get", "secret")["organization"] == "acme"
    cli.env["ROTA_ACTOR"] = "root"
    assert cli.json("calendar", "get", "secret", "--organization", "beta")["schedules"] == ["secret"]
    ambiguous = cli("schedule", "get", "secret")
    assert (ambiguous.exit_code, "several organizations" in ambiguous.stderr) == (2, True)


def test_a_schedule_is_renamed(cli):
    cli.ok("schedule", "create", "daily", "greet", "--cron", "@daily")
    cli.ok("schedule", "create", "after", "greet", "--cron", "@daily", "--depends-on", "daily")
    assert cli.ok("schedule", "update", "daily", "--new-name", "nightly").startswith("schedule nightly is ENABLED")
    assert cli.json("schedule", "get", "after")["depends_on"] == ["nightly"]
    assert cli("schedule", "get", "daily").exit_code == 3
    taken = cli("schedule", "update", "after", "--new-name", "nightly")
    assert (taken.exit_code, "(schedule_exists)" in taken.stderr) == (1, True)
    assert cli("schedule", "update", "after", "--new-name", "a\nb").exit_code != 0
    (row,) = [each for each in cli.lines("audit") if each["action"] == "schedule.edit"]
    assert (row["before"]["name"], row["after"]["name"]) == ("daily", "nightly")
