"""The kit for testing programs that use Rota."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rota as package
from rota import Backoff, Context, Rota, Settings, Snooze, Status, testing
from rota.errors import InvalidOption, Refused

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Shop:
    """A program of somebody's own, with one Rota for everything."""

    def __init__(self, path: Path) -> None:
        self.rota = Rota(path)
        self.sent: list[str] = []
        self.rota.job(self.welcome, name="welcome", max_retries=2, backoff=Backoff(base=60, jitter=0), priority="high")
        self.rota.job(self.report, name="report")

    def sign_up(self, to: str) -> None:
        self.rota.enqueue("welcome", {"to": to, "options": {"html": True, "lang": "en"}})

    def welcome(self, ctx: Context, to: str, options: dict | None = None) -> str:
        if to == "down" and ctx.attempt == 1:
            raise ConnectionError("no line")
        self.sent.append(to)
        self.rota.enqueue("report", {"about": to})
        return f"sent to {to}"

    def report(self, about: str | datetime) -> None:
        self.sent.append(f"report about {about}")


@pytest.fixture
def shop(tmp_path):
    made = Shop(tmp_path / "real.db")
    yield made
    made.rota.close()


@pytest.fixture
def kit(shop):
    with testing.use(shop.rota, at=START) as made:
        yield made


def test_what_the_program_enqueues_is_found_and_run_and_its_own_store_is_not_touched(shop, tmp_path):
    with testing.use(shop.rota) as kit:
        shop.sign_up("ada")
        kit.assert_enqueued("welcome", {"to": "ada"})
        kit.drain()
    assert shop.sent == ["ada", "report about ada"]
    assert not (tmp_path / "real.db").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_was_open_before_is_as_it_was_afterwards(shop):
    shop.sign_up("ada")
    before = shop.rota.jobs.list()
    with testing.use(shop.rota) as kit:
        assert shop.rota.jobs.list() == []
        shop.sign_up("bob")
        kit.drain()
        shop.rota.job(name="only_here")(lambda: None)
    assert shop.rota.jobs.list() == before
    assert shop.sent == ["bob", "report about bob"]
    shop.rota.turn()
    assert shop.sent[2:] == ["ada", "report about ada"]
    with pytest.raises(package.RotaError, match="only_here"):
        shop.rota.enqueue("only_here")


def test_the_temporary_store_is_gone_afterwards_also_after_a_failure(shop):
    folders = []

    def fails() -> None:
        with testing.use(shop.rota) as kit:
            shop.sign_up("ada")
            folders.append(Path(kit.app.store.url).parent)
            assert folders[0].exists()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert not folders[0].exists()
    assert shop.rota.store.url.endswith("real.db")


def test_handlers_keep_what_the_code_says_of_them(shop, kit):
    shop.sign_up("ada")
    job = kit.assert_enqueued("welcome")
    assert (job.max_retries, job.priority, job.backoff["base"]) == (2, 75, 60)


def test_settings_are_the_programs_own_unless_others_are_given(tmp_path):
    app = Rota(tmp_path / "real.db", settings=Settings(max_retries=7))
    app.job(name="work")(lambda: None)
    with testing.use(app) as kit:
        app.enqueue("work")
        assert kit.jobs()[0].max_retries == 7
    with testing.use(app, settings=Settings(max_retries=1)) as kit:
        app.enqueue("work")
        assert kit.jobs()[0].max_retries == 1
    assert app.settings.max_retries == 7


def test_handlers_of_every_executor_run_in_this_thread(tmp_path):
    app, seen = Rota(tmp_path / "real.db"), []

    @app.job
    async def waits():
        seen.append("async")

    app.job(name="apart", executor="process")(module_level)
    with testing.use(app) as kit:
        app.enqueue("waits")
        app.enqueue("apart", {"seen": "process"})
        assert [job.status for job in kit.drain()] == [Status.COMPLETED, Status.COMPLETED]
    assert seen == ["async"]


def module_level(seen):
    return seen


def test_params_are_matched_as_far_as_they_are_given(shop, kit):
    shop.sign_up("ada")
    shop.sign_up("bob")
    assert kit.assert_enqueued("welcome", {"options": {"lang": "en"}}).params["to"] == "bob"
    assert [job.params["to"] for job in kit.jobs("welcome")] == ["ada", "bob"]
    assert [job.params["to"] for job in kit.jobs("welcome", {"to": "ada"})] == ["ada"]
    assert kit.jobs("report") == []
    kit.assert_enqueued("welcome", count=2)
    kit.assert_not_enqueued("report")
    kit.assert_not_enqueued("welcome", {"to": "eve"})


def test_params_are_compared_as_json(shop, kit):
    shop.rota.enqueue("report", {"about": datetime(2026, 1, 1, tzinfo=UTC)})
    kit.assert_enqueued("report", {"about": datetime(2026, 1, 1, tzinfo=UTC)})
    kit.assert_enqueued("report", {"about": "2026-01-01T00:00:00Z"})


def test_a_failed_assertion_shows_what_was_enqueued_instead(shop, kit):
    with pytest.raises(AssertionError) as empty:
        kit.assert_enqueued("welcome")
    assert str(empty.value) == "a job 'welcome' was not enqueued. Nothing was enqueued."
    shop.sign_up("ada")
    with pytest.raises(AssertionError) as other:
        kit.assert_enqueued("welcome", {"to": "eve"})
    first, second = str(other.value).splitlines()
    assert first == 'a job \'welcome\' with {"to":"eve"} was not enqueued. There are:'
    assert second == '  JOB-2026-00001  welcome  {"to":"ada","options":{"html":true,"lang":"en"}}  QUEUED'


def test_a_count_that_is_not_met_says_both(shop, kit):
    shop.sign_up("ada")
    with pytest.raises(AssertionError, match="a job 'welcome' was enqueued once, not 2 times"):
        kit.assert_enqueued("welcome", count=2)
    with pytest.raises(InvalidOption):
        kit.assert_enqueued("welcome", count=0)


def test_what_should_not_have_been_enqueued_is_shown(shop, kit):
    shop.sign_up("ada")
    with pytest.raises(AssertionError, match="a job 'welcome' was enqueued once:\n  JOB-2026-00001"):
        kit.assert_not_enqueued("welcome")
    with pytest.raises(AssertionError, match="a job was enqueued once"):
        kit.assert_not_enqueued()


def test_many_jobs_are_listed_with_a_bound(shop, kit):
    for number in range(30):
        shop.sign_up(str(number))
    with pytest.raises(AssertionError) as failed:
        kit.assert_enqueued("report")
    assert len(str(failed.value).splitlines()) == 22
    assert str(failed.value).endswith("and 10 more")


def test_jobs_are_run_one_by_one_in_their_order(shop, kit):
    shop.sign_up("ada")
    shop.rota.enqueue("report", {"about": "nobody"}, priority="low")
    first = kit.run_next()
    assert (first.job_type, first.status) == ("welcome", Status.COMPLETED)
    assert shop.sent == ["ada"]
    assert [kit.run_next().params["about"] for _ in range(2)] == ["ada", "nobody"]
    with pytest.raises(AssertionError, match="nothing is ready to run"):
        kit.run_next()


def test_drain_returns_what_ran_in_its_order_and_leaves_the_rest_waiting(shop, kit):
    shop.sign_up("down")
    shop.rota.enqueue("report", {"about": "later"}, run_at=timedelta(hours=1))
    assert [(job.job_type, job.status) for job in kit.drain()] == [("welcome", Status.FAILED)]
    assert [(job.job_type, job.status, job.attempt) for job in kit.jobs()] == [("welcome", "PENDING", 2), ("report", "PENDING", 1)]


def test_the_clock_is_moved_by_hand(shop, kit):
    shop.sign_up("down")
    kit.drain()
    kit.clock.advance(seconds=59)
    assert kit.drain() == []
    kit.clock.advance(seconds=1)
    assert [job.job_type for job in kit.drain()] == ["welcome", "report"]
    kit.clock.set(datetime(2026, 3, 2, tzinfo=UTC))
    shop.sign_up("ada")
    assert kit.jobs("welcome")[-1].created_at == datetime(2026, 3, 2, tzinfo=UTC) == kit.clock.at


def test_drain_until_goes_from_one_due_time_to_the_next(shop, kit):
    shop.sign_up("down")
    shop.rota.enqueue("report", {"about": "soon"}, run_at=timedelta(minutes=30))
    shop.rota.enqueue("report", {"about": "late"}, run_at=timedelta(hours=2))
    ran = kit.drain(until=timedelta(hours=1))
    assert [(job.job_type, job.attempt) for job in ran] == [("welcome", 1), ("welcome", 2), ("report", 1), ("report", 1)]
    assert shop.sent == ["down", "report about down", "report about soon"]
    assert kit.clock.at == START + timedelta(hours=1)
    kit.drain(until=START + timedelta(hours=2))
    assert shop.sent[-1] == "report about late"


def test_the_clock_goes_to_the_next_due_time(shop, kit):
    assert kit.advance_to_next() is None
    shop.rota.enqueue("report", {"about": "x"}, run_at=timedelta(minutes=30))
    assert kit.advance_to_next() == START + timedelta(minutes=30) == kit.clock.at
    assert kit.run_next().job_type == "report"


def test_the_clock_goes_to_the_due_time_of_a_schedule_and_its_job_runs(shop, kit):
    shop.rota.schedules.create("hourly", "report", every="1h", params={"about": "the hour"})
    shop.rota.enqueue("report", {"about": "x"}, run_at=timedelta(minutes=90))
    assert kit.advance_to_next() == START + timedelta(hours=1) == kit.clock.at
    assert kit.run_next().params == {"about": "the hour"}
    assert kit.advance_to_next() == START + timedelta(minutes=90)


def test_schedules_fire_on_the_way_and_what_they_make_runs_in_its_time(shop, kit):
    shop.rota.schedules.create("daily", "report", cron="0 6 * * *", params={"about": "the day"})
    shop.rota.schedules.create("once", "welcome", at=START + timedelta(days=1), params={"to": "down"})
    ran = kit.drain(until=timedelta(days=2))
    day = START.replace(hour=6)
    assert [(job.job_type, job.attempt, job.started_at) for job in ran] == [
        ("report", 1, day + timedelta(days=1)),
        ("welcome", 1, START + timedelta(days=1)),
        ("welcome", 2, START + timedelta(days=1, minutes=1)),
        ("report", 1, START + timedelta(days=1, minutes=1)),
        ("report", 1, day + timedelta(days=2)),
    ]
    assert kit.clock.at == START + timedelta(days=2)
    assert kit.drain() == []


def test_a_schedule_that_makes_no_jobs_keeps_nobody_waiting(shop, kit):
    shop.rota.schedules.create("hourly", "report", every="1h")
    shop.rota.schedules.pause("hourly")
    assert kit.drain(until=timedelta(days=1)) == []
    assert [(each.fate, each.count) for each in shop.rota.schedules.occurrences()] == [("SKIPPED_PAUSED", 24)]


def test_schedules_of_decorators_are_due_from_the_beginning_of_the_block_and_the_programs_own_store_has_none(tmp_path):
    app, fired = Rota(tmp_path / "real.db"), []
    app.job(name="tick", every="10m")(lambda: fired.append(app._session.clock.now()))
    with testing.use(app, at=START) as kit:
        kit.clock.advance(minutes=25)
        kit.drain()
        assert len(fired) == 1
        kit.drain(until=timedelta(minutes=5))
        assert [job.due_at for job in kit.jobs("tick")] == [START + timedelta(minutes=20), START + timedelta(minutes=30)]
    assert not (tmp_path / "real.db").exists()
    assert [each.name for each in app.schedules.list()] == ["tick"]
    app.close()


def test_jobs_that_enqueue_each_other_for_ever_are_found_out(tmp_path):
    app = Rota(tmp_path / "real.db")
    app.job(name="again")(lambda: app.enqueue("again") and None)
    with testing.use(app) as kit:
        app.enqueue("again")
        with pytest.raises(AssertionError, match="25 attempts ran and more are ready: do jobs enqueue each other"):
            kit.drain(limit=25)


def test_a_job_that_snoozes_is_run_again_only_when_its_time_has_come(tmp_path):
    app, tries = Rota(tmp_path / "real.db"), []

    @app.job
    def patient(ctx: Context):
        tries.append(ctx.attempt)
        if len(tries) < 3:
            raise Snooze(3600)

    with testing.use(app, at=START) as kit:
        app.enqueue("patient")
        kit.drain()
        assert tries == [1]
        kit.drain(until=timedelta(hours=5))
        assert tries == [1, 2, 3]
        assert kit.jobs(status="COMPLETED")[0].attempt == 3


def test_time_far_ahead_takes_no_job_out_of_sight(shop, kit):
    shop.sign_up("ada")
    kit.drain()
    kit.clock.advance(days=365)
    kit.drain()
    assert len(kit.jobs()) == 2


def test_a_clock_that_is_set_back_never_takes_back_time_that_has_passed():
    clock = testing.Clock(START)
    clock.advance(hours=1)
    clock.set(START)
    assert (clock.at, clock.monotonic()) == (START, 3600.0)


def test_a_clock_without_a_zone_is_refused():
    with pytest.raises(InvalidOption, match="give an aware datetime"):
        testing.Clock(datetime(2026, 1, 1))  # noqa: DTZ001 - that is what it is about


def test_a_state_that_does_not_exist_is_refused(kit):
    with pytest.raises(InvalidOption, match="'DONE' is not one of"):
        kit.jobs(status="DONE")


def test_kits_can_be_used_one_inside_the_other(shop):
    with testing.use(shop.rota) as outer:
        shop.sign_up("ada")
        with testing.use(shop.rota) as inner:
            inner.assert_not_enqueued()
        outer.assert_enqueued("welcome", count=1)


def test_chance_comes_from_a_seed(tmp_path):
    app = Rota(tmp_path / "real.db")

    @app.job(backoff=Backoff(base=60, jitter=0.5))
    def fails():
        raise ValueError

    due = []
    for _ in range(2):
        with testing.use(app, at=START) as kit:
            app.enqueue("fails")
            kit.drain()
            due.append(kit.jobs()[0].run_at)
    assert due[0] == due[1]


def test_importing_rota_does_not_import_the_kit():
    code = "import sys, rota; print('rota.testing' in sys.modules)"
    source = str(Path(package.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": source})
    assert done.stdout.strip() == "False"


def test_pytest_collects_nothing_of_the_kit():
    assert not [name for name in vars(testing) if name.lower().startswith("test")]


def test_retention_that_is_passed_is_kept_and_the_applications_is_off(tmp_path):
    app = Rota(tmp_path / "real.db")
    app.job(name="work")(lambda: None)
    with testing.use(app, at=START) as kit:
        assert kit.app.settings.retention == 0
    with testing.use(app, at=START, settings=Settings(retention=60)) as kit:
        app.enqueue("work")
        kit.drain()
        kit.clock.advance(days=60)
        assert app.store.purge().jobs == 1
        assert kit.jobs() == []


def test_a_purge_trusts_a_clock_that_the_test_has_moved_by_months(tmp_path):
    app = Rota(tmp_path / "own.db")
    app.job(lambda: None, name="act")
    with testing.use(app) as kit:
        for _ in range(3):
            app.enqueue("act")
            kit.drain()
            assert app.store.purge(older_than=timedelta(days=30)).jobs == 0
            kit.clock.advance(days=20)
            app.enqueue("act")
            kit.drain()
            kit.clock.advance(days=60)
            assert app.store.purge(older_than=timedelta(days=30)).jobs == 2


def test_the_program_has_its_own_store_again_although_the_temporary_one_could_not_be_closed(tmp_path, monkeypatch):
    with closing(Rota(tmp_path / "own.db")) as rota:
        with pytest.raises(ZeroDivisionError), testing.use(rota) as kit:
            monkeypatch.setattr(kit.app._session.open().store, "close", lambda: 1 / 0)
        assert rota.store.url.endswith("own.db")


def test_a_program_whose_worker_is_running_is_refused(tmp_path):
    with closing(Rota(tmp_path / "own.db")) as rota, rota.running(), pytest.raises(Refused, match="stop it first"), testing.use(rota):
        pass
