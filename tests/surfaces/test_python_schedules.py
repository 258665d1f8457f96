"""Schedules in Python: made, edited, listed, and what is refused, with which words."""

import re
from datetime import UTC, date, datetime, timedelta

import pytest

from rota import Rota, Settings
from rota.errors import (
    ChangedMeanwhile,
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidSchedule,
    NotFound,
    PermissionDenied,
    ScheduleExists,
    StillNeeded,
    UnknownTemplate,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def settings():
    return Settings(synchronous="NORMAL", retention=0)


@pytest.fixture
def rota(rota):
    rota.job(name="work")(lambda n=0: n)
    rota.job(name="other")(lambda: None)
    return rota


def minutes(rota, clock, count):
    for _ in range(count):
        clock.advance(minutes=1)
        rota.turn()


# ---- making ------------------------------------------------------------------------------------------------------------


def test_a_schedule_is_seen_as_it_was_made(rota):
    rota.calendars.update("off", [date(2026, 12, 25)])
    rota.schedule("before", "work", every=60)
    view = rota.schedules.create(
        "nightly",
        "work",
        cron="30 2 * * MON-FRI",
        timezone="Europe/Berlin",
        starts="2026-03-02T00:00:00Z",
        ends=NOON + timedelta(days=90),
        params={"n": 7},
        priority="high",
        catch_up="all",
        catch_up_lateness="2h",
        catch_up_count=5,
        overlap="queue",
        jitter=timedelta(minutes=5),
        calendar="off",
        depends_on="before",
        description="every working night",
    )
    assert view == rota.schedules.get("nightly")
    assert (view.kind, view.cron, view.timezone, view.state) == ("CRON", "30 2 * * MON-FRI", "Europe/Berlin", "ENABLED")
    assert (view.starts, view.ends) == (datetime(2026, 3, 2, tzinfo=UTC), NOON + timedelta(days=90))
    assert (view.params, view.priority, view.calendar, view.depends_on, view.run_as) == ({"n": 7}, 75, "off", ("before",), None)
    assert (view.catch_up, view.catch_up_lateness, view.catch_up_count, view.overlap, view.jitter) == ("all", 7200, 5, "queue", 300)
    assert (view.next_at, view.last_at, view.cursor_at) == (datetime(2026, 3, 2, 1, 30, tzinfo=UTC), None, NOON)
    assert (view.version, view.created_by, view.created_at, view.declared) == (1, "local", NOON, False)
    assert "02:30" in view.words


def test_defaults_are_last_and_skip_and_utc(rota):
    view = rota.schedule("s", "work", cron="0 9 * * *")
    assert (view.catch_up, view.overlap, view.timezone, view.jitter, view.on_completion) == ("last", "skip", "UTC", 0, "PRESERVE")
    assert (view.next_at, view.declared) == (datetime(2026, 3, 2, 9, tzinfo=UTC), True)


def test_one_can_be_made_without_being_let_loose(rota, clock):
    view = rota.schedules.create("s", "work", every=60, enabled=False)
    assert (view.state, view.next_at) == ("DISABLED", None)
    minutes(rota, clock, 3)
    assert rota.schedules.occurrences() == []


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, InvalidSchedule, "'s' does not say when: give one of cron, at, every"),
        ({"cron": "0 9 * * *", "every": 60}, InvalidSchedule, "cron and every are both given"),
        ({"cron": "61 * * * *"}, InvalidSchedule, "minute"),
        ({"cron": "0 0 30 2 *"}, InvalidSchedule, "30 2"),
        ({"cron": "0 9 * * *", "timezone": "Europe/Berlim"}, InvalidSchedule, "'Europe/Berlim' is not an IANA name"),
        ({"every": 0.5}, InvalidSchedule, "at least 1 second"),
        ({"every": -5}, InvalidSchedule, "every"),
        ({"every": "soon"}, InvalidSchedule, "soon"),
        ({"at": "2026-02-01T00:00:00Z"}, InvalidSchedule, "has passed"),
        ({"at": datetime(2026, 4, 1)}, InvalidSchedule, "has no time zone"),  # noqa: DTZ001 - that is the point
        ({"at": "yesterday"}, InvalidSchedule, "'yesterday' is not a moment"),
        ({"at": NOON, "ends": NOON}, InvalidSchedule, "starts and ends say nothing of an `at`"),
        ({"every": 60, "starts": NOON, "ends": NOON - timedelta(1)}, InvalidSchedule, "ends=2026-02-28T12:00:00Z is before"),
        ({"every": 60, "ends": NOON}, InvalidSchedule, "no due time from now"),
        ({"every": 60, "catch_up": "some"}, InvalidSchedule, "catch_up='some' is not one of none, last, all"),
        ({"every": 60, "catch_up": "all"}, InvalidSchedule, 'give overlap="queue" or "allow"'),
        ({"every": 60, "catch_up_count": 0}, InvalidOption, "catch_up_count"),
        ({"every": 60, "overlap": "never"}, InvalidSchedule, "overlap='never'"),
        ({"every": 60, "jitter": "2d"}, InvalidSchedule, "at most a day"),
        ({"every": 60, "priority": 101}, InvalidOption, "101"),
        ({"every": 60, "calendar": "nothing"}, InvalidSchedule, "calendar='nothing' is not there"),
        ({"every": 60, "depends_on": "nothing"}, InvalidSchedule, "depends_on='nothing'"),
        ({"every": 60, "depends_on": "s"}, InvalidSchedule, "can't depend on itself"),
        ({"every": 60, "params": [1]}, InvalidInput, "params must be an object of names and values"),
        ({"every": 60, "nonsense": 1}, InvalidOption, "no option 'nonsense'"),
    ],
)
def test_what_can_not_be_is_refused_naming_the_value_and_the_remedy(rota, options, error, words):
    with pytest.raises(error, match=re.escape(words)):
        rota.schedules.create("s", "work", **options)
    assert rota.schedules.list() == []


def test_a_template_that_is_not_there_is_refused(rota):
    with pytest.raises(UnknownTemplate, match="'nothing'"):
        rota.schedules.create("s", "nothing", every=60)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\x00b"])
def test_a_name_that_can_not_be_is_refused(rota, name):
    with pytest.raises((InvalidName, InvalidOption)):
        rota.schedules.create(name, "work", every=60)


def test_a_name_that_is_taken_is_refused_to_people_and_not_to_code(rota):
    rota.schedules.create("s", "work", every=60)
    with pytest.raises(ScheduleExists, match="edit it, or choose another name"):
        rota.schedules.create("s", "work", every=60)
    assert rota.schedule("s", "work", every=120).declared


@pytest.mark.parametrize(
    "options",
    [
        {"at": NOON + timedelta(hours=1)},
        {"at": NOON + timedelta(hours=1), "on_completion": "DROP"},
        {"every": 60, "ends": NOON + timedelta(hours=1)},
        {"cron": "* * * * *", "ends": NOON + timedelta(hours=1)},
    ],
)
def test_a_program_that_starts_again_may_say_what_is_over_again(tmp_path, clock, options):
    for start in range(3):
        rota = Rota(tmp_path / "again.db", clock=clock, settings=Settings(synchronous="NORMAL"), seed=start)
        rota.job(name="work")(lambda: None)
        rota.schedule("s", "work", **options)
        rota.turn()
        assert len([row for row in rota.schedules.occurrences() if row.fate == "FIRED"]) == (1 if start else 0)
        rota.close()
        clock.advance(hours=5)


# ---- changing ----------------------------------------------------------------------------------------------------------


def test_an_edit_changes_what_it_names_and_none_takes_back_to_the_default(rota):
    rota.schedules.create("s", "work", every=60, priority=80, description="x", params={"n": 1})
    view = rota.schedules.update("s", priority=None, description="y", template="other", params=None)
    assert (view.priority, view.description, view.template, view.params, view.every, view.version) == (None, "y", "other", {}, 60, 2)


def test_an_edit_of_nothing_is_refused_and_of_the_same_changes_nothing(rota):
    rota.schedules.create("s", "work", every=60, description="x")
    with pytest.raises(InvalidOption, match="nothing to change"):
        rota.schedules.update("s")
    assert rota.schedules.update("s", description="x").version == 1


def test_another_rule_takes_the_place_of_the_old_one(rota):
    rota.schedules.create("s", "work", every=60)
    view = rota.schedules.update("s", cron="0 9 * * *")
    assert (view.kind, view.cron, view.every) == ("CRON", "0 9 * * *", None)
    view = rota.schedules.update("s", at=NOON + timedelta(hours=1))
    assert (view.kind, view.at, view.cron, view.next_at) == ("AT", NOON + timedelta(hours=1), None, NOON + timedelta(hours=1))


def test_states_are_set_and_set_again_without_effect(rota):
    rota.schedules.create("s", "work", every=60)
    for verb, state in ((rota.schedules.pause, "PAUSED"), (rota.schedules.disable, "DISABLED"), (rota.schedules.enable, "ENABLED")):
        assert verb("s").state == state
        assert verb("s").version == rota.schedules.get("s").version
    assert rota.schedules.get("s").version == 4


def test_what_is_not_there_is_not_found_by_any_verb(rota):
    for verb in (
        rota.schedules.get,
        rota.schedules.fire,
        rota.schedules.enable,
        rota.schedules.disable,
        rota.schedules.pause,
        rota.schedules.delete,
        rota.schedules.occurrences,
        lambda name: rota.schedules.update(name, every=60),
    ):
        with pytest.raises(NotFound, match="no schedule 'nothing': `rota schedule list` shows them"):
            verb("nothing")


def test_changes_are_in_the_trail_with_who_made_them(rota):
    rota.users.create("ada", role="admin")
    rota.acting_as("ada").schedules.create("s", "work", every=60)
    rota.schedules.update("s", every=90)
    rota.acting_as("ada").schedules.pause("s")
    rota.schedules.delete("s")
    trail = [(entry.actor, entry.action, entry.subject_id) for entry in rota.audit.list(limit=20) if entry.subject == "schedule"]
    assert trail[::-1] == [
        ("ada", "schedule.create", "s"),
        ("local", "schedule.edit", "s"),
        ("ada", "schedule.edit", "s"),
        ("local", "schedule.delete", "s"),
    ]


# ---- who may -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def people(rota):
    rota.organizations.create("acme")
    rota.users.create("chief", role="system_manager")
    rota.users.create("ada", role="admin", organization="acme")
    rota.users.create("uwe", role="user", organization="acme")
    return rota


def test_an_admin_makes_and_edits_and_a_manager_deletes(people):
    rota = people
    rota.acting_as("ada").schedules.create("s", "work", every=60)
    assert rota.acting_as("ada").schedules.update("s", every=90).organization == "acme"
    rota.acting_as("ada").calendars.update("off", [])
    for verb in (lambda: rota.acting_as("ada").schedules.delete("s"), lambda: rota.acting_as("ada").calendars.delete("off")):
        with pytest.raises(PermissionDenied):
            verb()
    rota.acting_as("chief").schedules.delete("s", organization="acme")
    rota.acting_as("chief").calendars.delete("off", organization="acme")


def test_a_user_makes_none(people):
    rota = people
    rota.acting_as("ada").schedules.create("s", "work", every=60)
    for verb in (
        lambda: rota.acting_as("uwe").schedules.create("x", "work", every=60),
        lambda: rota.acting_as("uwe").schedule("x", "work", every=60),
        lambda: rota.acting_as("uwe").schedules.update("s", every=90),
        lambda: rota.acting_as("uwe").schedules.pause("s"),
        lambda: rota.acting_as("uwe").schedules.fire("s"),
        lambda: rota.acting_as("uwe").calendars.update("off", []),
    ):
        with pytest.raises((PermissionDenied, NotFound)):
            verb()


def test_one_name_in_several_organizations_is_asked_about(people):
    rota = people
    rota.acting_as("ada").schedules.create("s", "work", every=60)
    rota.organizations.create("beta")
    rota.schedules.create("s", "work", every=60, organization="beta")
    with pytest.raises(InvalidOption, match="several organizations have a schedule 's' \\(acme, beta\\)"):
        rota.acting_as("chief").schedules.get("s")
    assert rota.acting_as("chief").schedules.get("s", organization="beta").organization == "beta"
    assert rota.acting_as("ada").schedules.get("s").organization == "acme"
    assert [view.organization for view in rota.acting_as("ada").schedules.list()] == ["acme"]
    assert [view.organization for view in rota.schedules.list(organization="beta")] == ["beta"]


# ---- the ledger --------------------------------------------------------------------------------------------------------


def test_occurrences_are_filtered_by_words_people_use(rota, clock):
    rota.schedule("s", "work", every=60)
    minutes(rota, clock, 3)
    rota.schedules.pause("s")
    minutes(rota, clock, 3)
    assert [row.fate for row in rota.schedules.occurrences("s")] == ["SKIPPED_PAUSED", "FIRED", "FIRED", "FIRED"]
    assert len(rota.schedules.occurrences(fate="fired")) == 3
    assert len(rota.schedules.occurrences(fate=["SKIPPED_PAUSED", "MISSED"])) == 1
    assert len(rota.schedules.occurrences(since=timedelta(minutes=4))) == 3
    assert len(rota.schedules.occurrences(until=NOON + timedelta(minutes=2))) == 1
    assert [row.ran for row in rota.schedules.occurrences(not_ran=True)] == [False]
    with pytest.raises(InvalidOption, match="fate='LOST' is not one of FIRED"):
        rota.schedules.occurrences(fate="LOST")
    with pytest.raises(InvalidOption, match="limit"):
        rota.schedules.occurrences(limit=0)


def test_occurrences_are_read_page_by_page(rota, clock):
    rota.schedule("s", "work", every=60)
    minutes(rota, clock, 10)
    found, page = [], rota.schedules.occurrences(limit=3)
    while page:
        found += page
        page = rota.schedules.occurrences(limit=3, before=page[-1].cursor)
    assert found == rota.schedules.occurrences(limit=100)
    assert len(found) == 10


def test_a_row_shows_its_job_in_the_form_that_other_methods_take(rota, clock):
    rota.schedule("s", "work", every=60)
    minutes(rota, clock, 1)
    (row,) = rota.schedules.occurrences()
    assert rota.jobs.get(row.job_id).due_at == row.due_at == NOON + timedelta(minutes=1)
    assert (row.status, row.ran, row.count, row.last_due_at, row.recorded_at) == ("COMPLETED", True, 1, row.due_at, row.due_at)


def test_the_ledger_of_a_deleted_schedule_is_still_told(rota, clock):
    rota.schedule("s", "work", every=60)
    minutes(rota, clock, 2)
    rota.schedules.delete("s")
    assert [row.schedule for row in rota.schedules.occurrences()] == ["s", "s"]


# ---- by hand, calendars ------------------------------------------------------------------------------------------------


def test_a_job_fired_by_hand_belongs_to_who_fired_it(rota):
    rota.users.create("ada", role="admin")
    rota.schedules.create("s", "work", every=60, params={"n": 1}, priority=80)
    job = rota.acting_as("ada").schedules.fire("s", {"n": 2})
    assert (job.owner, job.params, job.priority, job.origin, job.status) == ("ada", {"n": 2}, 80, "schedule", "QUEUED")
    assert job.schedule_id == rota.schedules.get("s").id


def test_calendars_are_set_listed_and_deleted(rota):
    made = rota.calendars.update("off", ["2026-12-25", date(2026, 12, 26)], description="Christmas")
    assert rota.calendars.list() == [made]
    assert made.days == {date(2026, 12, 25), date(2026, 12, 26)}
    rota.schedules.create("s", "work", cron="0 9 * * *", calendar="off")
    with pytest.raises(StillNeeded, match="used by 's'"):
        rota.calendars.delete("off")
    rota.schedules.update("s", calendar=None)
    rota.calendars.delete("off")
    assert rota.calendars.list() == []


@pytest.mark.parametrize("days", ["2026-12-25", ["2026-13-01"], [5], [datetime(2026, 1, 1, tzinfo=UTC)]])
def test_days_that_are_none_are_refused(rota, days):
    with pytest.raises(InvalidSchedule, match="calendar 'off'"):
        rota.calendars.update("off", days)


def test_a_calendar_has_a_bound(tmp_path, clock):
    rota = Rota(tmp_path / "small.db", clock=clock, settings=Settings(calendar_max=2))
    with pytest.raises(InvalidSchedule, match="at most 2 are allowed \\(setting calendar_max\\)"):
        rota.calendars.update("off", ["2026-01-01", "2026-01-02", "2026-01-03"])
    rota.close()


def test_on_a_day_off_nothing_is_due_and_days_may_change(rota, clock):
    rota.calendars.update("off", ["2026-03-01"])
    rota.schedule("s", "work", every="6h", calendar="off")
    clock.advance(hours=6)
    rota.turn()
    rota.calendars.update("off", [])
    clock.advance(hours=5)
    rota.turn()
    clock.advance(hours=1)
    rota.turn()
    assert [row.fate for row in rota.schedules.occurrences()] == ["FIRED", "SKIPPED_CALENDAR"]


# ---- another name ------------------------------------------------------------------------------------------------------


def test_a_schedule_is_renamed_with_its_ledger_its_due_times_and_what_depends_on_it(rota, clock):
    rota.job(lambda: None, name="send")
    made = rota.schedules.create("hourly", "send", every="1h")
    rota.schedules.create("after", "send", every="1h", depends_on="hourly")
    clock.advance(hours=1)
    rota.turn()
    renamed = rota.schedules.if_match(1).update("hourly", new_name="each hour")
    assert (renamed.id, renamed.name, renamed.every, renamed.version) == (made.id, "each hour", 3600, 2)
    assert [each.schedule for each in rota.schedules.occurrences("each hour")] == ["each hour"]
    assert rota.schedules.get("after").depends_on == ("each hour",)
    clock.advance(hours=1)
    rota.turn()
    assert [str(each.fate) for each in rota.schedules.occurrences("each hour")] == ["FIRED", "FIRED"]
    assert [each.status for each in rota.schedules.occurrences("after")] == ["COMPLETED", "COMPLETED"]
    with pytest.raises(NotFound):
        rota.schedules.get("hourly")
    with pytest.raises(ChangedMeanwhile):
        rota.schedules.if_match(1).update("each hour", new_name="x")
    for name in ("", "a\nb", None, 3):
        with pytest.raises(InvalidName):
            rota.schedules.update("each hour", new_name=name)
    assert rota.schedules.update("each hour", new_name="each hour").version == 2


def test_a_declared_schedule_keeps_the_name_that_its_code_knows(rota):
    rota.job(lambda: None, name="send")
    rota.schedule("hourly", "send", every="1h")
    with pytest.raises(InvalidSchedule, match=r"'hourly' is declared by code.*rename it in the code"):
        rota.schedules.update("hourly", new_name="x")
    assert rota.schedule("hourly", "send", every="1h").name == "hourly"
    assert [each.name for each in rota.schedules.list()] == ["hourly"]


def test_code_that_depends_on_a_renamed_schedule_by_its_old_name_changes_nothing(rota):
    rota.job(lambda: None, name="send")
    rota.schedules.create("first", "send", every="1h")
    rota.schedule("second", "send", every="1h", depends_on="first")
    rota.schedules.update("first", new_name="one")
    assert rota.schedule("second", "send", every="1h", depends_on="first").depends_on == ("one",)
    assert rota.schedule("second", "send", every="2h", depends_on="first").depends_on == ("one",)
