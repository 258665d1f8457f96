"""A simulation is the real engine on a copy: the same seed tells the same story, and the user's own store is only read."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

import rota as package
from rota import Actor, Rota, Settings
from rota.errors import InvalidOption, PermissionDenied, StoreUnavailable, StoreUnusable
from rota.model.gate import SYSTEM
from rota.simulation import open_for_reading
from tests.support.pace import patient

START = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture
def shop(tmp_path, clock):
    """A store with schedules of several kinds, made by a Rota that is closed again."""
    made = Rota(tmp_path / "shop.db", clock=clock, seed=1)

    @made.job(max_retries=2, timeout=3600)
    def report(seconds=1, fails=False):
        clock.advance(seconds=seconds)
        if fails:
            raise ValueError("as it was told")

    @made.job(timeout=3600)
    def sync(seconds=1, fails=False):
        return report(seconds, fails)

    made.schedules.create("daily", "report", cron="30 2 * * *", timezone="Europe/Berlin")
    made.schedules.create("often", "sync", every="10m")
    made.schedules.create("after", "report", cron="0 4 * * *", depends_on=["daily"])
    made.schedules.create("quiet", "sync", cron="0 * * * *")
    made.schedules.pause("quiet")
    yield made
    made.close()


def told(rota, days=1.0, **options):
    return rota.simulate(days, start=options.pop("start", START), **options)


def of(simulated, name):
    (found,) = [each for each in simulated.schedules if each.schedule == name]
    return found.tally


# ---- the story ---------------------------------------------------------------------------------------------------------


def test_a_simulated_day_fires_what_is_due_and_tells_of_each_schedule(shop):
    day = told(shop)
    assert day.ok
    assert (of(day, "often").due, of(day, "often").completed + of(day, "often").unfinished) == (144, 144)
    assert (of(day, "daily").fired, of(day, "after").completed) == (1, 1)
    assert of(day, "quiet").not_run == {"SKIPPED_PAUSED": 24}
    assert day.totals.due == 144 + 1 + 1 + 24
    assert [line.words for line in day.story if line.schedule == "quiet"] == [
        "24 due times up to 2026-03-03T00:00:00Z: the schedule was paused"
    ]


def test_a_job_that_lasts_longer_than_its_interval_shows_as_overlap(shop):
    lasting(shop, "sync", seconds=500)
    shop.schedules.create("tight", "sync", every="5m")
    day = told(shop)
    assert of(day, "tight").fired == 144
    assert of(day, "tight").not_run == {"SKIPPED_OVERLAP": 144}


@pytest.mark.parametrize(("seconds", "every", "due", "fired"), [(1.2, "1s", 8, 4), (3.3, "2s", 30, 15)])
def test_work_that_is_a_little_longer_than_its_interval_skips_every_other_due_time(shop, seconds, every, due, fired):
    lasting(shop, "sync", seconds=seconds)
    shop.templates.update("sync", max_running=1)
    for other in ("daily", "often", "after", "quiet"):
        shop.schedules.disable(other)
    shop.schedules.create("tight", "sync", every=every)
    shown = told(shop, due * int(every[0]) / 86_400, start=shop.now)
    assert (of(shown, "tight").due, of(shown, "tight").fired) == (due, fired)
    assert of(shown, "tight").not_run == {"SKIPPED_OVERLAP": due - fired}


def test_failures_are_simulated_only_if_they_are_asked_for(shop):
    lasting(shop, "report", seconds=5, failing=9)
    assert told(shop).totals.failed == 0
    assert told(shop, failures=True).totals.failed >= 1
    assert told(shop, failures=True).totals.attempts > told(shop).totals.attempts


def test_jobs_of_a_template_wait_for_its_limit(shop):
    lasting(shop, "sync", seconds=500)
    shop.templates.update("sync", max_running=1)
    shop.schedules.create("too", "sync", every="10m")
    day = told(shop, 0.2)
    assert of(day, "often").not_run or of(day, "too").not_run


def test_a_long_story_leaves_out_what_went_as_it_should_and_the_summary_nothing(shop):
    whole, short = told(shop, limit=1000), told(shop, limit=3)
    assert whole.left_out == 0
    assert len(whole.story) == 144 + 1 + 1 + 1
    assert [line.what for line in short.story] == ["SKIPPED_PAUSED"]
    assert short.left_out == len(whole.story) - 1
    assert short.schedules == whole.schedules
    assert told(shop, limit=0).story == ()


def test_what_a_forecast_says_is_what_a_simulation_fires(shop):
    day = told(shop, 3, start=datetime(2026, 3, 28, tzinfo=UTC))
    foretold = shop.forecast(start=day.start, end=day.end)
    fired = [(line.at, line.schedule) for line in day.story if line.what == "FIRED"]
    assert sorted(fired) == sorted((item.due_at, item.schedule) for item in foretold)


def test_nothing_else_fires_after_its_end_and_nothing_before_its_start(shop):
    day = told(shop, 0.5)
    assert all(day.start < line.at <= day.end for line in day.story)


def test_it_begins_with_this_minute_unless_a_start_is_given(shop, clock):
    clock.advance(seconds=42)
    assert shop.simulate(0.01).start == datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_code_that_has_not_run_yet_counts(tmp_path):
    rota = Rota(tmp_path / "new.db")

    @rota.job(cron="0 * * * *")
    def hourly(): ...

    day = told(rota)
    assert of(day, "hourly").fired == 24
    assert not (tmp_path / "new.db").exists()


def test_progress_is_told_on_the_way(shop):
    heard = []
    told(shop, 3, progress=heard.append)
    assert heard == sorted(heard)
    assert START < heard[0] < START + timedelta(days=3)


# ---- the same seed -----------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_and_another_one_another_story(shop):
    lasting(shop, "sync", seconds=30, failing=2)

    def story(seed):
        return msgspec.json.encode(told(shop, 3, seed=seed, workers=2, faults="all", faults_per_day=6, failures=True))

    assert story(42) == story(42)
    assert story(42) != story(43)


def test_the_same_seed_gives_the_same_bytes_in_processes_that_hash_otherwise(shop):
    shop.close()
    command = (
        "simulate",
        "--days=2",
        "--seed=7",
        "--start=2026-03-02T00:00Z",
        "--workers=2",
        "--faults=all",
        "--faults-per-day=6",
        "--json",
    )

    def story(hash_seed):
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(package.__file__).parents[1]), "ROTA_STORE": shop.store.url}
        done = subprocess.run(
            [sys.executable, "-m", "rota", *command], env=environment, capture_output=True, timeout=patient(50), check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    one = story("1")
    assert one == story("2")
    assert b"crash" in one


# ---- the user's own store ----------------------------------------------------------------------------------------------


def test_the_store_is_not_touched(shop, tmp_path):
    lasting(shop, "sync", seconds=3)
    shop.close()
    store = tmp_path / "shop.db"
    before = store.read_bytes(), store.stat().st_mtime_ns
    assert told(shop, faults="all").totals.fired
    assert (store.read_bytes(), store.stat().st_mtime_ns) == before
    # SQLite puts its log beside a file that is read too: an empty one.
    assert not [path for path in tmp_path.glob("shop.db*") if path.suffix == ".db-wal" and path.stat().st_size]


def test_a_store_that_others_have_open_is_read_as_it_is(shop):
    shop.schedules.create("latest", "sync", every="1h")
    assert of(told(shop), "latest").fired == 24
    shop.schedules.create("still-later", "sync", every="1h")
    assert of(told(shop), "still-later").fired == 24


def test_what_is_opened_for_reading_can_not_be_written(shop):
    shop.close()
    store = open_for_reading(shop.store.url, Settings())
    with pytest.raises(StoreUnavailable):
        store.pause("all", "", actor=SYSTEM, now=0)
    store.close()


def test_a_store_of_an_older_schema_is_refused_and_stays_as_it_is(shop, tmp_path):
    with shop.transaction() as tx:
        tx.execute("UPDATE meta SET value = 2 WHERE key = 'schema'")
    shop.close()
    with pytest.raises(StoreUnusable, match="schema 2"):
        told(Rota(tmp_path / "shop.db"))


# ---- who may ---------------------------------------------------------------------------------------------------------


def test_who_may_not_read_statistics_can_not_simulate(shop):
    with pytest.raises(PermissionDenied):
        told(shop.acting_as(Actor("eve")))


def test_an_administrator_sees_the_schedules_of_its_own_organization_only(shop):
    shop.organizations.create("acme")
    shop.schedules.create("theirs", "sync", every="1h", organization="acme")
    seen = told(shop.acting_as(Actor("ada", "acme", role="admin")))
    assert [each.schedule for each in seen.schedules] == ["theirs"]
    assert len(told(shop).schedules) == 5


def test_a_user_is_known_by_name_without_the_store_being_opened_for_writing(shop):
    shop.organizations.create("acme")
    shop.users.create("root", role="system_manager")
    shop.users.create("ada", organization="acme", role="admin")
    shop.schedules.create("theirs", "sync", every="1h", organization="acme")
    assert [each.schedule for each in told(shop.acting_as("ada")).schedules] == ["theirs"]
    with pytest.raises(PermissionDenied, match="'nobody' is no user"):
        told(shop.acting_as("nobody"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"days": 0}, "days=0"),
        ({"days": 10_000}, "at most 3,660"),
        ({"seed": -1}, "seed=-1"),
        ({"workers": 0}, "workers=0"),
        ({"faults": "fire"}, "'fire' is not one of crash, clock-step, sleep"),
        ({"faults_per_day": 0}, "faults_per_day=0"),
        ({"start": datetime(2026, 3, 1)}, "time zone"),  # noqa: DTZ001 - that is what is refused
        ({"limit": -1}, "limit=-1"),
    ],
)
def test_what_can_not_be_is_refused_by_name(shop, wrong, says):
    with pytest.raises(InvalidOption, match=says):
        shop.simulate(**({"days": 1.0} | wrong))


def lasting(rota, template, *, seconds, failing=0):
    """Let ten jobs of a template run here and now, so that the store knows how long they last, and how many of ten fail."""
    for number in range(10):
        rota.jobs.direct(template, {"seconds": seconds, "fails": number < failing})
