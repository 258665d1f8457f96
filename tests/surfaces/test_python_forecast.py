"""What will run, whether all that was due got its fate, and what a change would change, as a program asks for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota import Rota, Settings, testing
from rota.errors import InvalidOption, InvalidSchedule, NotFound
from rota.local_workers import make_worker
from rota.model.fates import stretches
from rota.model.gate import LOCAL
from rota.model.schedules import Fate, lattice_of
from rota.model.values import instant, moment
from rota.testing import Kit
from tests.support.clock import ManualClock
from tests.support.pace import patient
from tests.support.proof import size

NIGHT = datetime(2026, 3, 28, 12, tzinfo=UTC)
"""The noon before Berlin's clock goes from UTC+1 to UTC+2."""


def program() -> Rota:
    app = Rota("never-opened.db")

    @app.job
    def work() -> None:
        """Do nothing, at once."""

    @app.job(max_running=1)
    def narrow() -> None:
        """Do nothing, one at a time."""

    return app


@pytest.fixture
def kit() -> Iterator[Kit]:
    with testing.use(program(), at=NIGHT) as made:
        yield made


def clock_at(clock: ManualClock) -> datetime:
    found = moment(clock.now())
    assert found is not None
    return found


def shown(forecast: Any) -> list[str]:
    return [f"{item.schedule} {item.due_at:%d %H:%M} {item.fate}" for item in forecast]


# ---- forecast -------------------------------------------------------------------------------------------------------


def test_a_forecast_tells_what_will_run_in_the_next_day(kit: Kit):
    kit.app.schedule("daily", "work", cron="0 9 * * *", timezone="Europe/Berlin")
    kit.app.schedule("often", "work", every="8h")
    found = kit.app.forecast()
    assert shown(found) == ["often 28 20:00 FIRED", "often 29 04:00 FIRED", "daily 29 07:00 FIRED", "often 29 12:00 FIRED"]
    assert (found.start, found.end, found.cut) == (NIGHT, NIGHT + timedelta(days=1), False)
    first = found[0]
    assert (first.organization, first.template, first.note, first.starts_at, first.wait_s) == (
        "default",
        "work",
        None,
        first.due_at,
        0.0,
    )


def test_a_window_leaves_its_start_out_and_has_its_end(kit: Kit):
    kit.app.schedule("hourly", "work", cron="0 * * * *")
    found = kit.app.forecast(start=NIGHT, end=NIGHT + timedelta(hours=2))
    assert shown(found) == ["hourly 28 13:00 FIRED", "hourly 28 14:00 FIRED"]
    assert len(kit.app.forecast(0.5)) == 0


def test_a_window_in_the_past_tells_what_was_due_by_the_definitions_of_now(kit: Kit):
    kit.app.schedule("daily", "work", cron="0 9 * * *")
    found = kit.app.forecast(48, start=NIGHT - timedelta(days=2))
    assert shown(found) == ["daily 27 09:00 FIRED", "daily 28 09:00 FIRED"]


def test_changes_of_zones_are_told_with_whom_they_concern(kit: Kit):
    kit.app.schedule("night", "work", cron="30 2 * * *", timezone="Europe/Berlin")
    kit.app.schedule("day", "work", cron="0 9 * * *", timezone="Europe/Berlin")
    kit.app.schedule("yearly", "work", cron="0 9 1 7 *", timezone="Europe/Berlin")
    kit.app.schedule("utc", "work", cron="0 9 * * *")
    found = kit.app.forecast()
    assert shown(found) == ["day 29 07:00 FIRED", "utc 29 09:00 FIRED"]
    assert [(each.at, each.timezone, each.before, each.after, each.schedules) for each in found.changes] == [
        (datetime(2026, 3, 29, 1, tzinfo=UTC), "Europe/Berlin", "UTC+1", "UTC+2", ("day", "night"))
    ]
    assert [item.note for item in found] == ["the clock of Europe/Berlin goes from UTC+1 to UTC+2 at 2026-03-29T01:00:00Z", None]
    assert next((item.schedule, item.fate, item.note) for item in kit.app.forecast(skipped=True)) == (
        "night",
        Fate.SKIPPED_DST_GAP,
        "the clock of Europe/Berlin jumps over it",
    )


def test_what_will_not_run_says_why(kit: Kit):
    app = kit.app
    app.calendars.update("feasts", ["2026-03-29"])
    app.schedule("off", "work", cron="0 1 * * *", calendar="feasts")
    app.schedule("paused", "work", cron="0 2 * * *")
    app.schedules.pause("paused")
    app.schedule("yearly", "work", cron="0 0 1 1 *")
    app.schedule("waits", "work", cron="0 3 * * *", depends_on=["yearly"])
    app.schedule("refused", "narrow", cron="0 4 * * *")
    app.templates.disable("narrow")
    assert app.forecast() == []
    assert [(item.schedule, str(item.fate), item.note, item.starts_at) for item in app.forecast(skipped=True)] == [
        ("off", "SKIPPED_CALENDAR", "excluded by calendar 'feasts'", None),
        ("paused", "SKIPPED_PAUSED", "the schedule is paused", None),
        ("waits", "SKIPPED_DEPENDENCY", "what it depends on does not complete in time", None),
        ("refused", "REFUSED", "template 'narrow' is disabled: `rota template enable narrow` changes that", None),
    ]


def test_one_that_waits_for_another_says_so(kit: Kit):
    kit.app.schedule("load", "work", cron="30 13 * * *")
    kit.app.schedule("report", "work", cron="0 13 * * *", depends_on=["load"])
    item = kit.app.forecast(2, schedule="report")[0]
    assert (item.note, item.wait_s) == ("waits for load until 2026-03-28T13:30:00Z", 1800.999)


def test_limits_make_jobs_wait_by_how_long_they_took_lately():
    app = Rota("never-opened.db")

    @app.job(max_running=1)
    def narrow() -> None:
        kit.clock.advance(seconds=90)

    def waits() -> list[float]:
        return [item.wait_s for item in app.forecast(2)]

    with testing.use(app, at=NIGHT) as kit:
        for name in ("a", "b", "c"):
            app.schedule(name, "narrow", cron="0 13 * * *")
        assert waits() == [0.0, 0.999, 1.998]
        app.enqueue("narrow")
        kit.drain()
        assert waits() == [0.0, 90.0, 180.0]
        app.templates.update("narrow", max_running=2)
        assert waits() == [0.0, 0.0, 90.0]
        app.organizations.update("default", max_running=1)
        assert waits() == [0.0, 90.0, 180.0]
        app.organizations.update("default", max_running=0)
        assert [item.starts_at for item in app.forecast(2)] == [None, None, None]


@pytest.mark.parametrize(("seconds", "every", "due", "runs"), [(1.2, 1, 8, 4), (3.3, 2, 30, 15)])
def test_work_that_is_a_little_longer_than_its_interval_runs_every_other_time(seconds, every, due, runs):
    app = Rota("never-opened.db")

    @app.job(max_running=1)
    def tight() -> None:
        kit.clock.advance(seconds=seconds)

    with testing.use(app, at=NIGHT) as kit:
        app.enqueue("tight")
        kit.drain()
        app.schedule("tight", "tight", every=timedelta(seconds=every), overlap="skip")
        start, end = kit.clock.at, kit.clock.at + timedelta(seconds=due * every)
        assert len(app.forecast(start=start, end=end)) == runs
        found = app.forecast(start=start, end=end, skipped=True)
        assert [item.fate for item in found] == [Fate.FIRED, Fate.SKIPPED_OVERLAP] * runs
        assert found[1].note == "the job of an earlier due time is not over"
        assert found.exact_until is None


def test_slots_that_do_not_suffice_make_jobs_wait():
    with testing.use(program(), at=NIGHT, settings=Settings(concurrency=2)) as kit:
        for name in ("a", "b", "c", "d"):
            kit.app.schedule(name, "work", cron="0 13 * * *")
        assert [item.wait_s for item in kit.app.forecast(2)] == [0.0, 0.0, 0.999, 0.999]
        assert [item.wait_s for item in kit.app.forecast(2, schedule="d")] == [0.999]


def test_workers_of_different_size_have_the_slots_that_they_have(tmp_path, clock):
    rota = Rota(tmp_path / "sizes.db", clock=clock, seed=1)
    rota.job(lambda: None, name="work")
    for name in ("a", "b", "c", "d"):
        rota.schedule(name, "work", cron="0 13 * * *")
    workers = [make_worker(rota._session, rota._session.open(), slots) for slots in (1, 2)]
    for worker in workers:
        worker.start()
    assert [item.wait_s for item in rota.forecast(2)] == [0.0, 0.0, 0.0, 0.999]
    for worker in workers:
        worker.finish()
    rota.close()


def test_a_job_that_runs_now_is_in_the_way_of_the_next_due_time(tmp_path, clock):
    rota = Rota(tmp_path / "now.db", clock=clock, seed=1)

    @rota.job
    def slow(seconds: float = 0.0) -> None:
        clock.advance(seconds=seconds)

    rota.jobs.direct("slow", {"seconds": 90.0})
    rota.schedule("often", "slow", every="60s", overlap="skip")
    clock.advance(seconds=60)
    worker = make_worker(rota._session, rota._session.open(), 1)
    worker.start()
    rota._session.open().store.fire(worker.trigger.decider(clock.now()), now=clock.now(), limit=10, ahead=clock.now())
    fates = [item.fate for item in rota.forecast(start=clock_at(clock), end=clock_at(clock) + timedelta(minutes=4), skipped=True)]
    assert fates == [Fate.SKIPPED_OVERLAP, Fate.FIRED, Fate.SKIPPED_OVERLAP, Fate.FIRED]
    worker.begin_stop()
    worker.finish()
    rota.close()


def test_a_simulated_forecast_is_bounded_and_says_up_to_where():
    with testing.use(program(), at=NIGHT, settings=Settings(forecast_simulated_max=10)) as kit:
        kit.app.schedule("a", "narrow", cron="* * * * *")
        kit.app.schedule("b", "narrow", cron="* * * * *")
        found = kit.app.forecast(1)
        assert found.exact_until == NIGHT + timedelta(minutes=6) - timedelta(microseconds=1)
        assert [item.wait_s for item in found] == [0.0, 0.999] * 5 + [0.0] * 110
        kit.app.schedules.delete("b")
        assert kit.app.forecast(1).exact_until is None


def test_a_forecast_is_cut_at_the_setting_and_fast():
    few = Settings(forecast_max=5000, forecast_simulated_max=300)
    with testing.use(program(), at=NIGHT, settings=few) as kit:
        for number in range(100):
            kit.app.schedules.create(f"m{number}", "work", cron="* * * * *", timezone="Europe/Berlin")
        began = time.monotonic()
        found = kit.app.forecast(24 * 365 * 20)
        took = time.monotonic() - began
        assert (len(found), found.cut, found[-1].due_at) == (5000, True, NIGHT + timedelta(minutes=50))
        assert found.density == [(NIGHT, 5000)]
        # A walk over all of it would take hours.
        assert took < patient(10)


def test_density_counts_what_runs_by_the_hour(kit: Kit):
    kit.app.schedule("often", "work", cron="*/20 13,15 * * *")
    assert kit.app.forecast().density == [(NIGHT + timedelta(hours=1), 3), (NIGHT + timedelta(hours=3), 3)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hours": 0}, "hours=0"),
        ({"hours": -1}, "hours=-1"),
        ({"hours": 10**7}, "hundred years"),
        ({"hours": 1, "end": NIGHT}, "pass one of them"),
        ({"start": datetime(2026, 1, 1)}, "start=.*time zone"),  # noqa: DTZ001 - that is what is refused
        ({"end": NIGHT - timedelta(hours=1)}, "not after its start"),
        ({"start": datetime(1960, 1, 1, tzinfo=UTC)}, "out of range"),
        ({"end": datetime(9999, 12, 31, tzinfo=UTC)}, "out of range"),
    ],
)
def test_a_window_that_cannot_be_is_refused(kit: Kit, given, words):
    with pytest.raises(InvalidOption, match=words):
        kit.app.forecast(**given)


def test_the_ends_of_time_can_be_looked_at(kit: Kit):
    kit.app.schedule("yearly", "work", cron="0 0 1 1 *", timezone="Europe/Berlin")
    first = kit.app.forecast(start=datetime(1970, 1, 2, tzinfo=UTC), end=datetime(1990, 1, 1, tzinfo=UTC))
    last = kit.app.forecast(start=datetime(9990, 1, 2, tzinfo=UTC), end=datetime(9998, 11, 25, tzinfo=UTC))
    assert (len(first), len(last), last[-1].due_at) == (20, 8, datetime(9997, 12, 31, 23, tzinfo=UTC))


def test_what_fired_while_the_clock_was_ahead_is_not_forecast_again(kit: Kit):
    kit.app.schedule("hourly", "work", cron="0 * * * *")
    kit.clock.advance(hours=3)
    kit.drain()
    kit.clock.set(NIGHT)
    kit.drain()
    ahead = shown(kit.app.forecast(4))
    before = {item.id for item in kit.jobs()}
    kit.drain(until=timedelta(hours=4))
    assert [f"hourly {job.due_at:%d %H:%M} FIRED" for job in kit.jobs() if job.id not in before] == ahead
    assert kit.app.schedules.verify().ok


# ---- a forecast is what happens -------------------------------------------------------------------------------------

MOMENTS = [
    datetime(2026, 3, 28, 3, tzinfo=UTC),
    datetime(2026, 10, 24, 1, 30, tzinfo=UTC),
    datetime(2026, 3, 7, 12, 7, 11, tzinfo=UTC),
    datetime(2026, 10, 31, 9, tzinfo=UTC),
    datetime(2026, 7, 1, tzinfo=UTC),
]
CRONS = [
    "30 2 * * *",
    "0 * * * *",
    "0 */3 * * *",
    "15 1,2,3 * * *",
    "30 2 29 3 *",
    "0 0 * * SUN",
    "45 23 * * *",
    "*/40 * * * *",
    "0 9 * * MON-FRI",
]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kolkata"]
TAIL = timedelta(hours=50)
"""How long the clock goes on after the window: what waits for others then has its fate."""


@st.composite
def worlds(draw: st.DrawFn) -> tuple[datetime, list[date], list[dict[str, Any]], timedelta, timedelta, timedelta]:
    """A moment, days off, schedules that may depend on those before them, how long they run first, and when and how long a window is."""
    at = draw(st.sampled_from(MOMENTS))
    days = [at.date() + timedelta(days=day) for day in draw(st.sets(st.integers(0, 4), max_size=3))]
    schedules: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["cron", "cron", "every", "at"]))
        said: dict[str, Any] = {"name": f"s{number}", "enabled": draw(st.integers(0, 9)) > 0, "paused": draw(st.integers(0, 9)) == 0}
        if kind == "at":
            said |= {"at": at + timedelta(minutes=draw(st.integers(1, 4000))), "on_completion": draw(st.sampled_from(["DROP", "PRESERVE"]))}
        elif kind == "every":
            said["every"] = draw(st.sampled_from([1800, 3600, 5400, 7 * 3600, 86_400]))
        else:
            said |= {"cron": draw(st.sampled_from(CRONS)), "timezone": draw(st.sampled_from(ZONES))}
        if kind != "at" and draw(st.booleans()):
            said["starts"] = at + timedelta(hours=draw(st.integers(-30, 40)))
        if kind == "every" and draw(st.booleans()):
            said["ends"] = at + timedelta(hours=draw(st.integers(70, 90)))
        if draw(st.integers(0, 2)) == 0:
            said["calendar"] = "off"
        if number and draw(st.booleans()):
            said["depends_on"] = sorted(draw(st.sets(st.sampled_from([f"s{other}" for other in range(number)]), min_size=1, max_size=2)))
        schedules.append(said)
    before, begins, length = (timedelta(hours=draw(st.sampled_from(hours))) for hours in ([0, 0, 13, 29], [0, 0, 7, 20], [6, 30, 60]))
    return at, days, schedules, before, begins, length


@pytest.mark.prove
@settings(max_examples=size(8, prove=1000), deadline=None)
@given(worlds())
def test_a_forecast_is_what_a_clock_that_goes_on_really_fires(world):
    at, days, schedules, before, begins, length = world
    with testing.use(program(), at=at, settings=Settings(dependency_wait=3600.0)) as kit:
        app = kit.app
        # Work takes time. While the kit's clock stands still it would end at the very moment it was due, which never is so in a simulation.
        app.job(name="brief")(lambda: kit.clock.advance(milliseconds=1))
        app.enqueue("brief")
        kit.drain()
        app.calendars.update("off", days)
        for said in schedules:
            options = {name: value for name, value in said.items() if name not in {"name", "paused"}}
            app.schedules.create(said["name"], "brief", **options)
            if said["paused"]:
                app.schedules.pause(said["name"])
        kit.drain(until=before)
        start = kit.clock.at + begins
        end = start + length
        forecast = app.forecast(start=start, end=end, skipped=True)
        assert [item for item in forecast if item.fate is Fate.FIRED] == app.forecast(start=start, end=end)
        defined = {each.name: each for each in app._session.open().store.schedules()}
        kit.drain(until=end + TAIL)
        happened = _happened(app, defined, start, end)
        known = _known(app, defined, kit.clock.at)
        foretold = [(item.due_at, item.schedule, item.fate) for item in forecast]
        assert sorted(each for each in foretold if known(*each)) == sorted(each for each in happened if known(*each))
        assert app.schedules.verify().problems == ()


def _happened(app: Rota, defined: dict[str, Any], start: datetime, end: datetime) -> list[tuple[datetime, str, Fate]]:
    """Return what the ledger says of a window, each due time for itself."""
    calendars = {calendar.name: calendar for calendar in app.calendars.list()}
    found = []
    for row in app.schedules.occurrences(limit=10_000, since=start, until=end + timedelta(seconds=1)):
        schedule = defined[row.schedule]
        if row.count == 1:
            found.append((row.due_at, row.schedule, row.fate))
            continue
        for low, high, excluded in stretches(
            schedule, calendars.get(schedule.calendar or ""), instant(row.due_at) - 1, instant(row.last_due_at)
        ):
            if excluded == (row.fate is Fate.SKIPPED_CALENDAR):
                points = [moment(point.at) for point in lattice_of(schedule.timing).points(low, high) if not point.gap]
                found += [(at, row.schedule, row.fate) for at in points if at is not None]
    return [each for each in found if start < each[0] <= end]


def _known(app: Rota, defined: dict[str, Any], now: datetime):
    """Return a test for due times whose last word has been said: what waits for others is given up at its next due time."""
    cursors = {each.name: each.cursor_at for each in app._session.open().store.schedules()}

    def known(due_at: datetime, name: str, fate: Fate) -> bool:
        schedule = defined[name]
        if fate is Fate.SKIPPED_DST_GAP:
            # Written down with the next real due time, be it a year later.
            return instant(due_at) <= cursors.get(name, 0)
        given_up = lattice_of(schedule.timing).next(instant(due_at)) if schedule.depends_on else None
        return given_up is None or given_up <= instant(now)

    return known


# ---- verify ---------------------------------------------------------------------------------------------------------


def test_all_that_was_due_is_verified(kit: Kit):
    app = kit.app
    app.schedule("hourly", "work", cron="0 * * * *")
    app.schedule("night", "work", cron="30 2 * * *", timezone="Europe/Berlin")
    kit.drain(until=timedelta(hours=30))
    app.schedules.pause("hourly")
    kit.clock.advance(days=30)
    kit.drain()
    app.schedules.update("hourly", cron="15 * * * *")
    app.schedules.enable("hourly")
    kit.clock.advance(days=1)
    kit.drain()
    found = app.schedules.verify()
    assert (found.ok, found.schedules, found.due, found.matched) == (True, 2, 32 * 24 + 6 + 32, 32 * 24 + 6 + 32)
    assert (found.since, found.until) == (None, kit.clock.at)
    one = app.schedules.verify("night", since=NIGHT + timedelta(days=1))
    assert (one.ok, one.schedules, one.due) == (True, 1, 31)


def test_a_job_that_was_lost_is_found(kit: Kit):
    app = kit.app
    app.schedule("hourly", "work", cron="0 * * * *")
    kit.drain(until=timedelta(hours=5))
    lost = kit.jobs()[2]
    app.jobs.delete(lost.id)
    found = app.schedules.verify()
    assert (found.ok, found.due, found.matched) == (False, 5, 4)
    assert [(each.schedule, each.due_at, each.what) for each in found.problems] == [
        ("hourly", lost.due_at, f"it fired, and its job {lost.id} is not there")
    ]


def test_jobs_that_a_clock_ahead_fired_by_an_older_definition_are_accounted_for(kit: Kit):
    app = kit.app
    app.schedule("often", "work", every="30m")
    kit.drain(until=timedelta(hours=20))
    kit.clock.set(NIGHT)
    kit.drain()
    app.schedules.update("often", every="40m")
    app.enqueue("work")
    kit.drain(until=timedelta(hours=30))
    assert app.schedules.verify().problems == ()


# ---- plan -----------------------------------------------------------------------------------------------------------


def test_a_plan_says_what_a_change_would_change_and_changes_nothing(kit: Kit):
    app = kit.app
    app.calendars.update("feasts", ["2026-03-29"])
    before = app.schedule("daily", "work", cron="0 9 * * *", calendar="feasts")
    found = app.plan("daily", days=3, cron="0 9,18 * * MON-FRI")
    assert [f"{at:%d %H}" for at in found.added] == ["30 18"]
    assert found.removed == ()
    assert (found.kept, found.start, found.end) == (2, NIGHT, NIGHT + timedelta(days=3))
    assert (found.words_before, found.words_after) == ("every day at 09:00 UTC", "every weekday at 09:00 and 18:00 UTC")
    assert [f"{at:%d %H}" for at in app.plan("daily", days=3, calendar=None).added] == ["29 09"]
    assert app.schedules.get("daily") == before


def test_a_plan_of_a_paused_schedule_is_told_as_if_it_were_enabled(kit: Kit):
    kit.app.schedule("daily", "work", cron="0 9 * * *")
    kit.app.schedules.disable("daily")
    assert len(kit.app.plan("daily", days=2, cron="0 10 * * *").added) == 2


def test_a_plan_of_more_than_can_be_told_says_how_far_it_reaches():
    with testing.use(program(), at=NIGHT, settings=Settings(forecast_max=100)) as kit:
        kit.app.schedule("often", "work", cron="0 * * * *")
        found = kit.app.plan("often", cron="* * * * *")
        assert NIGHT + timedelta(minutes=100) <= found.end < NIGHT + timedelta(minutes=101)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, InvalidOption, "nothing to change"),
        ({"colour": "red"}, InvalidOption, "no option 'colour'"),
        ({"cron": "61 * * * *"}, InvalidSchedule, "minute 61"),
        ({"calendar": "nope"}, InvalidSchedule, "calendar='nope' is not there"),
        ({"depends_on": ["nope"]}, InvalidSchedule, "depends_on='nope'"),
        ({"at": NIGHT - timedelta(days=1)}, InvalidSchedule, "has passed"),
        ({"days": 0, "cron": "0 1 * * *"}, InvalidOption, "days=0"),
    ],
)
def test_a_plan_refuses_what_the_change_would_be_refused_for(kit: Kit, options, error, words):
    kit.app.schedule("daily", "work", cron="0 9 * * *")
    with pytest.raises(error, match=words):
        kit.app.plan("daily", **options)


# ---- who may ask ----------------------------------------------------------------------------------------------------


def test_nothing_of_another_organization_shows(shared: Rota):
    shared.acting_as("ada").schedule("ours", "echo", cron="0 9 * * *", organization="acme")
    shared.acting_as("eve").schedule("theirs", "echo", cron="0 9 * * *", timezone="Europe/Berlin", organization="beta")
    for actor, names in (("ada", {"ours"}), ("eve", {"theirs"}), ("bob", set()), ("root", {"ours", "theirs"}), (LOCAL, {"ours", "theirs"})):
        assert {item.schedule for item in shared.acting_as(actor).forecast(48)} == names
        assert shared.acting_as(actor).schedules.verify().schedules == len(names)
    assert shared.acting_as("ada").forecast(48, organization="beta") == []
    assert {item.schedule for item in shared.forecast(48, organization="beta")} == {"theirs"}
    for ask in (shared.acting_as("ada").forecast, shared.acting_as("ada").schedules.verify):
        with pytest.raises(NotFound, match="no schedule 'theirs'"):
            ask(schedule="theirs")
    with pytest.raises(NotFound, match="no schedule 'theirs'"):
        shared.acting_as("ada").plan("theirs", cron="0 1 * * *")
