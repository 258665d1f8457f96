"""One clock of the command line: the machine's zone, or the one that is asked for, in what is shown and what is typed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from rota import Rota, Settings
from rota.errors import InvalidSchedule
from rota.surfaces.cli.zone import machine
from tests.surfaces.cli_support import Cli

TIME = re.compile(r"(?<![\w:+-])(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?![\w:])(?P<after> [A-Z]{3,4}\b)?|\d\d:\d\d\S*Z")
"""A time, with the zone behind it if there is one, or one of UTC."""
COMMANDS = [
    ("job", "get", "1"),
    ("job", "attempts", "1"),
    ("job", "runs", "1"),
    ("job", "log", "1"),
    ("job", "explain", "2"),
    ("job", "explain", "1"),
    ("schedule", "get", "once"),
    ("schedule", "occurrences"),
    ("schedule", "overdue"),
    ("forecast",),
    ("forecast", "--schedule", "once"),
    ("top", "--once"),
    ("audit",),
    ("organization", "get", "acme"),
    ("webhook", "list"),
    ("job", "update", "2", "--run-at", "2037-01-15T09:30"),
]
ZONES = {"Europe/Berlin": {"CET", "CEST"}, "America/St_Johns": {"NST", "NDT"}}


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A store that has all kinds of times in it."""
    monkeypatch.chdir(tmp_path)
    cli = Cli(tmp_path)
    rota = Rota(cli.store)

    @rota.job
    def greet() -> None: ...

    rota.organizations.create("acme")
    rota.enqueue("greet")
    rota.turn()
    rota.enqueue("greet", run_at=timedelta(hours=2))
    rota.schedule("once", "greet", at=datetime.now(UTC) + timedelta(hours=3))
    rota.schedule("soon", "greet", every="1h", starts=datetime.now(UTC) - timedelta(minutes=90), ends=datetime(2037, 3, 1, tzinfo=UTC))
    rota.turn()
    rota.store.pause()
    rota.webhooks.create("https://example.org/hook")
    rota.close()
    return cli


@pytest.mark.parametrize("zone", ZONES)
def test_every_time_that_is_shown_carries_the_zone_of_the_machine(office: Cli, zone: str):
    office.env["TZ"] = zone
    seen = 0
    for words in COMMANDS:
        result = office(*words)
        assert result.exit_code == 0, (words, result.output)
        for line in result.output.splitlines():
            for found in TIME.finditer(line):
                seen += 1
                after = (found["after"] or "").strip()
                # The hours of a forecast have their zone in the heading, and `top` has it in its first line.
                is_headed = f"hour ({zone})" in result.output and re.match(r"\w{3} \d{4}-\d\d-\d\d \d\d:\d\d ", line)
                assert after in ZONES[zone] or is_headed or words[0] == "top", (words, line)
        assert "UTC" not in result.output.replace("UTC+", ""), (words, result.output)
    assert seen > len(COMMANDS)


def test_top_names_its_zone_in_the_first_line(office: Cli):
    office.env["TZ"] = "America/St_Johns"
    shown = office.ok("top", "--once")
    assert re.search(r"\d\d:\d\d:\d\d NST", shown.splitlines()[0])
    due = datetime.now(ZoneInfo("America/St_Johns")) + timedelta(hours=3)
    assert re.search(rf"{due:%H}:[0-5]\d:[0-5]\d +once|{due - timedelta(minutes=1):%H:%M}", shown)


def test_the_zone_is_asked_for_by_an_option_then_by_a_variable(office: Cli):
    office.env |= {"TZ": "Europe/Berlin", "ROTA_ZONE": "Asia/Tokyo"}
    assert " JST" in office.ok("organization", "get", "acme")
    assert " EST" in office.ok("organization", "get", "acme", "--zone", "America/New_York")
    assert re.search(r"created +\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", office.ok("organization", "get", "acme", "--zone", "UTC"))
    wrong = office("organization", "get", "acme", "--zone", "Berlin")
    assert wrong.exit_code == 2
    assert "Europe/Berlin?" in wrong.output
    office.env["ROTA_ZONE"] = "Mars/Olympus"
    assert office("organization", "get", "acme").exit_code != 0


def test_a_setting_that_is_no_zone_is_refused():
    with pytest.raises(InvalidSchedule, match="'Mars/Olympus' is not an IANA name"):
        Settings(zone="Mars/Olympus")


def test_the_zone_of_the_machine_is_that_of_tz_or_utc(monkeypatch):
    for named, zone in {"Europe/Berlin": "Europe/Berlin", ":Asia/Kolkata": "Asia/Kolkata", "": "UTC", "CET-1CEST": "UTC"}.items():
        monkeypatch.setenv("TZ", named)
        assert machine().key == zone
    monkeypatch.delenv("TZ")
    assert machine().key


@pytest.mark.parametrize("zone", ZONES)
def test_json_is_utc_whatever_the_zone(office: Cli, zone: str):
    office.env["TZ"] = zone
    for words in COMMANDS:
        for line in office(*words, "--json").stdout.splitlines():
            texts = re.findall(r'"[^"]*\d\d:\d\d:\d\d[^"]*"', json.dumps(json.loads(line)))
            assert all(re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text) for text in texts), (words, texts)
            assert "CET" not in line


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("2037-01-15T09:30", "2037-01-15T08:30:00Z"),
        ("2037-07-15T09:30", "2037-07-15T07:30:00Z"),
        ("2037-01-15T09:30Z", "2037-01-15T09:30:00Z"),
        ("2037-01-15T09:30-05:00", "2037-01-15T14:30:00Z"),
        ("2037-01-15 09:30", "2037-01-15T08:30:00Z"),
    ],
)
def test_a_time_without_an_offset_is_of_the_zone(office: Cli, typed: str, stored: str):
    office.env["TZ"] = "Europe/Berlin"
    assert office.json("enqueue", "greet", "--run-at", typed)["run_at"] == stored
    assert office.json("job", "update", "2", "--run-at", typed)["run_at"] == stored
    assert office.json("schedule", "create", "again", "greet", "--at", typed)["next_at"] == stored


def test_the_option_decides_also_where_it_comes_last(office: Cli):
    office.env["TZ"] = "Europe/Berlin"
    found = office.json("enqueue", "greet", "--run-at", "2037-01-15T09:30", "--zone", "Asia/Tokyo")
    assert found["run_at"] == "2037-01-15T00:30:00Z"


def test_a_day_is_enough_to_look_back(office: Cli):
    tomorrow = datetime.now(ZoneInfo("Pacific/Kiritimati")) + timedelta(days=1)
    office.env["TZ"] = "Pacific/Kiritimati"
    assert len(office.lines("job", "list", "--until", f"{tomorrow:%Y-%m-%d}")) >= 2
    assert office.lines("job", "list", "--since", f"{tomorrow:%Y-%m-%d}") == []


def test_a_time_that_the_clock_skips_or_shows_twice(office: Cli):
    office.env["TZ"] = "Europe/Berlin"
    skipped = office("job", "update", "2", "--run-at", "2037-03-29T02:30")
    assert skipped.exit_code == 2
    assert "does not exist in Europe/Berlin" in " ".join(skipped.output.replace("│", " ").split())
    twice = office("job", "update", "2", "--run-at", "2037-10-25T02:30", "--json")
    assert twice.exit_code == 0
    assert json.loads(twice.stdout)["run_at"] == "2037-10-25T00:30:00Z"
    assert "note: 2037-10-25 02:30 comes twice in Europe/Berlin" in twice.stderr
    assert "the first is taken: 02:30 CEST" in twice.stderr
