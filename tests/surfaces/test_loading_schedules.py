"""Schedules and calendars from a definitions file: checked whole, written once, in any order."""

import json
import re
from datetime import UTC, date, datetime

import pytest

from rota.definitions_file import KINDS
from rota.errors import InvalidDefinition, PermissionDenied
from rota.resources.definitions import Loaded
from tests.docs.pages import page

FILE = """
[schedules.report]
cron = "0 9 * * mon-fri"
timezone = "Europe/Berlin"
calendar = "holidays"
depends_on = ["load"]
params = { to = "ada", since = 2026-01-01 }
priority = "high"
catch_up = "none"
jitter = "5m"
description = "What the night brought."

[schedules.load]
template = "report"
every = "6h"
starts = 2026-01-01T00:00:00Z
ends = 2030-01-01T00:00:00+01:00
overlap = "queue"
enabled = false

[calendars.holidays]
days = [2026-12-25, 2026-12-26]
description = "Christmas"
"""


@pytest.fixture
def shop(rota):
    rota.job(lambda **_: None, name="report")
    return rota


@pytest.fixture
def load(shop, tmp_path):
    def load(text, actor=None, **options):
        (tmp_path / "jobs.toml").write_text(text)
        return shop.acting_as(actor).store.load(tmp_path / "jobs.toml", **options)

    return load


def test_a_file_makes_calendars_and_schedules_whatever_their_order(shop, load):
    assert load(FILE).added == ("calendar holidays", "schedule load", "schedule report")
    report, loaded = shop.schedules.get("report"), shop.schedules.get("load")
    assert (report.template, report.cron, report.timezone, report.calendar) == ("report", "0 9 * * mon-fri", "Europe/Berlin", "holidays")
    assert (report.depends_on, report.params, report.priority) == (("load",), {"to": "ada", "since": "2026-01-01"}, 75)
    assert (report.catch_up, report.jitter, report.state, report.declared) == ("none", 300, "ENABLED", False)
    assert (loaded.every, loaded.starts, loaded.overlap, loaded.state) == (21600, datetime(2026, 1, 1, tzinfo=UTC), "queue", "DISABLED")
    (holidays,) = shop.calendars.list()
    assert (holidays.days, holidays.description) == ({date(2026, 12, 25), date(2026, 12, 26)}, "Christmas")


def test_loading_it_again_changes_nothing(shop, load, clock):
    load(FILE)
    before = shop.schedules.list()
    clock.advance(minutes=10)
    again = load(FILE)
    assert (again.added, again.changed) == ((), ())
    assert again.unchanged == ("calendar holidays", "schedule load", "schedule report")
    assert shop.schedules.list() == before


def test_a_rehearsal_says_what_would_happen_and_writes_nothing(shop, load):
    assert load(FILE, dry_run=True) == Loaded(
        added=("calendar holidays", "schedule load", "schedule report"), changed=(), unchanged=(), dry_run=True
    )
    assert (shop.schedules.list(), shop.calendars.list()) == ([], [])


def test_what_the_file_does_not_name_stays_and_none_takes_an_option_back(shop, load):
    load(FILE)
    shop.schedules.update("report", catch_up="all", overlap="queue")
    loaded = load(
        '[schedules.report]\ncron = "0 7 * * *"\ncalendar = "none"\ndepends_on = []\n[calendars.holidays]\ndescription = "none"\n'
    )
    assert loaded.changed == ("calendar holidays", "schedule report")
    report = shop.schedules.get("report")
    assert (report.cron, report.calendar, report.depends_on) == ("0 7 * * *", None, ())
    assert (report.catch_up, report.overlap, report.timezone) == ("all", "queue", "Europe/Berlin")
    assert (shop.calendars.list()[0].description, len(shop.calendars.list()[0].days)) == (None, 2)


def test_an_edit_by_a_file_closes_the_ledger_by_what_held_before(shop, load, clock):
    load('[schedules.report]\nevery = "1h"\ncatch_up = "none"\n')
    clock.advance(hours=5, minutes=30)
    load('[schedules.report]\nevery = "2h"\n')
    assert [(each.fate, each.count) for each in shop.schedules.occurrences("report")] == [("MISSED", 5)]


@pytest.mark.parametrize(
    ("word", "state"), [('state = "paused"', "PAUSED"), ("enabled = false", "DISABLED"), ("enabled = true", "ENABLED")]
)
def test_a_file_says_the_state_in_one_of_two_ways(shop, load, word, state):
    load('[schedules.report]\nevery = "1h"\n')
    load(f"[schedules.report]\n{word}\n")
    assert shop.schedules.get("report").state == state
    assert load(f"[schedules.report]\n{word}\n").changed == ()


@pytest.mark.parametrize("state", ["", "enabled = true\n"])
def test_a_moment_is_written_as_toml_has_it_and_may_have_passed_when_the_file_is_loaded_again(shop, load, clock, state):
    text = f'[schedules.once]\ntemplate = "report"\nat = 2026-03-01T13:00:00Z\n{state}'
    load(text)
    clock.advance(hours=2)
    shop.turn()
    assert shop.schedules.get("once").state == "DISABLED"
    assert load(text).unchanged == ("schedule once",)


def test_dependencies_may_turn_round_from_one_file_to_the_next(shop, load):
    one = '[schedules.a]\ntemplate = "report"\ncron = "@daily"\ndepends_on = ["b"]\n[schedules.b]\ntemplate = "report"\ncron = "@daily"\n'
    load(one)
    load('[schedules.b]\ndepends_on = ["a"]\n[schedules.a]\ndepends_on = []\n')
    assert {each.name: each.depends_on for each in shop.schedules.list()} == {"a": (), "b": ("a",)}


def test_everything_a_file_has_may_stand_in_it_for_the_first_time(shop, load):
    shop.users.create("root", role="system_manager")
    text = """
        [schedules.nightly]
        organization = "acme"
        template = "fresh"
        cron = "@daily"
        calendar = "days"

        [calendars.days]
        organization = "acme"
        days = []

        [templates.fresh]
        handler = "shop.jobs:fresh"

        [organizations.acme]
    """
    load(text, dry_run=True, actor="root")
    load(text, actor="root")
    (view,) = shop.schedules.list()
    assert (view.organization, view.template, view.created_by) == ("acme", "fresh", "root")
    assert load(text, actor="root").changed == ()


def test_json_has_the_same_tables(shop, tmp_path):
    file = tmp_path / "jobs.json"
    file.write_text(
        json.dumps({"schedules": {"report": {"every": 3600, "params": {"a": [1, None]}}}, "calendars": {"c": {"days": ["2026-12-25"]}}})
    )
    assert shop.store.load(file).added == ("calendar c", "schedule report")
    assert shop.store.load(file).unchanged == ("calendar c", "schedule report")
    assert shop.schedules.get("report").params == {"a": [1, None]}


GOOD = '[schedules.good]\ntemplate = "report"\nevery = "1h"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[schedules.x]\ntemplate = "report"\n', "[schedules.x]: schedule 'x' does not say when: give one of cron, at, every"),
        ('[schedules.x]\ntemplate = "report"\ncron = "61 * * * *"\n', "[schedules.x]: '61 * * * *': minute 61 is out of range 0-59"),
        ('[schedules.x]\ntemplate = "report"\ncron = "@daily"\nevery = 5\n', "cron and every are both given"),
        ('[schedules.x]\ncron = "@daily"\n', "[schedules.x]: template='x' is neither in the store"),
        ('[schedules.report]\ncron = "@daily"\ncalendar = "c"\n', "calendar='c' is neither in the store, for organization 'default'"),
        ('[schedules.report]\ncron = "@daily"\ndepends_on = "y"\n', "depends_on='y' is neither in the store"),
        ('[schedules.report]\ncron = "@daily"\norganization = "acme"\n', "organization='acme' is neither in the store nor in this file"),
        ('[schedules.report]\ncron = "@daily"\norganization = 1\n', "organization=1 is not allowed"),
        ('[schedules.report]\ncron = "@daily"\nzone = "UTC"\n', "[schedules.report]: there is no key 'zone': it has template, cron"),
        ('[schedules.report]\ncron = "@daily"\nstate = "off"\n', "state='off' is not one of enabled, disabled, paused"),
        ('[schedules.report]\ncron = "@daily"\nenabled = 1\n', "enabled=1 is not allowed: give true or false"),
        ('[schedules.report]\ncron = "@daily"\nenabled = true\nstate = "paused"\n', "state and enabled are both given"),
        ("[schedules.report]\nat = 2026-01-01T00:00:00Z\n", "has passed: give a moment to come"),
        ("[schedules.report]\nat = 2027-01-01T00:00:00\n", "has no time zone"),
        ('[schedules.report]\ncron = "@daily"\nparams = 1\n', "[schedules.report]: params must be an object"),
        ('[schedules.report]\ncron = "@daily"\ncatch_up = "all"\n', "would skip what it catches up"),
        ('[calendars.c]\ndescription = "x"\n', "[calendars.c]: days is missing"),
        ("[calendars.c]\ndays = [7]\n", "[calendars.c]: calendar 'c': 7 is not a day"),
        ('[calendars.c]\ndays = []\norganization = "acme"\n', "[calendars.c]: organization='acme' is neither"),
        ("[calendars.c]\ndates = []\n", "[calendars.c]: there is no key 'dates': it has days, description, organization"),
        ("[schedules]\nx = 1\n", "[schedules.x]: is not a table"),
        (
            "[timers.x]\n",
            "there is no [timers]: it has [templates.NAME], [organizations.NAME], [users.NAME], [connections.NAME], [calendars.NAME]",
        ),
    ],
)
def test_a_file_with_one_bad_thing_is_refused_whole_naming_the_place(shop, load, text, words):
    with pytest.raises(InvalidDefinition) as refused:
        load(GOOD + text)
    assert "jobs.toml, [" in str(refused.value) or "jobs.toml: " in str(refused.value)
    assert words in str(refused.value)
    assert (shop.schedules.list(), shop.calendars.list()) == ([], [])


def test_a_circle_is_found_before_anything_is_written_also_through_what_is_there(shop, load):
    shop.schedules.create("b", "report", cron="@daily")
    shop.schedules.create("a", "report", cron="@daily", depends_on="b")
    with pytest.raises(InvalidDefinition, match=r"\[schedules.b\]: schedules can't depend on each other in a circle: . → . → ."):
        load(GOOD + '[schedules.b]\ndepends_on = ["a"]\n')
    assert [each.name for each in shop.schedules.list()] == ["a", "b"]


def test_only_a_manager_loads_a_file(shared, tmp_path):
    (tmp_path / "jobs.toml").write_text('[schedules.echo]\nevery = "1h"\norganization = "acme"\n')
    with pytest.raises(PermissionDenied):
        shared.acting_as("ada").store.load(tmp_path / "jobs.toml")
    shared.acting_as("root").store.load(tmp_path / "jobs.toml")
    assert [each.name for each in shared.acting_as("ada").schedules.list()] == ["echo"]


def test_what_a_file_changes_stays_though_the_code_says_it_again(shop, load):
    shop.schedule("report", "report", cron="@daily")
    load('[schedules.report]\ncron = "@hourly"\n')
    assert shop.schedule("report", "report", cron="@daily").cron == "@hourly"


def test_the_file_in_the_reference_can_be_loaded_and_has_every_kind_of_table(rota, load):
    (text,) = re.findall(r"```toml\n(.*?)```", page("docs/reference/definitions-file.md"), re.DOTALL)
    assert all(f"[{kind}." in text for kind in KINDS)
    assert len(load(text).added) == 9
    assert len(load(text).unchanged) == 9
    assert rota.schedules.get("reminder").state == "PAUSED"
