"""The first screen as people meet it: five answers, each inside what its reader may see, and the same over HTTP."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta

import msgspec
import pytest

from rota import Context, PermanentError, Rota, Settings
from rota.model.gate import Actor, Role
from rota.model.overview import Level, Why
from tests.support.clock import ManualClock
from tests.support.pace import patient
from tests.support.waiting import eventually

ADA, BOB, EVE = Actor("ada", "acme", Role.ADMIN), Actor("bob", "acme", Role.USER), Actor("eve", "beta", Role.ADMIN)


@pytest.fixture
def shop(rota: Rota) -> Rota:
    @rota.job
    def mail(to: str = "you") -> None:
        pass

    @rota.job
    def boom() -> None:
        raise PermanentError("no such address")

    return rota


def groups(rota: Rota, **options: object) -> dict[Why, tuple[int, str]]:
    return {each.why: (each.count, each.words) for each in rota.overview(**options).stuck}


def test_an_empty_store_without_a_worker_is_to_be_watched(shop: Rota):
    found = shop.overview()
    assert (found.health.level, found.health.sentence) == (Level.WATCH, "No worker is running.")
    assert (found.not_run, found.stuck, found.running.jobs, found.ahead.items) == ((), (), (), ())
    assert found.organization is None


def test_jobs_that_nobody_runs_are_stuck_for_want_of_a_worker(shop: Rota, clock: ManualClock):
    job = shop.enqueue("mail")
    shop.enqueue("mail")
    clock.advance(seconds=90)
    found = shop.overview()
    assert found.health.sentence == "No worker is running, and 2 jobs wait."
    (stuck,) = found.stuck
    assert (stuck.why, stuck.count, stuck.more, stuck.oldest_s) == (Why.NO_WORKER, 2, False, 90.0)
    assert (stuck.example.id, stuck.example.number, stuck.example.job_type) == (job.id, job.number, "mail")


def test_what_waits_is_grouped_by_the_reason_that_explain_gives(live: Rota):
    @live.job
    def mail() -> None:
        pass

    live.store.pause()
    live.start()
    first = live.enqueue("mail")
    for _ in range(3):
        live.enqueue("mail")
    assert groups(live) == {Why.PAUSED: (4, live.explain(first.id).summary)}
    assert live.overview().health.sentence.startswith("Everything is paused since")


def test_what_waits_for_its_time_a_live_parent_or_a_slot_is_not_stuck(shop: Rota, clock: ManualClock):
    parent = shop.enqueue("mail", run_at=timedelta(hours=1))
    child = shop.enqueue("mail", depends_on=[parent])
    store, lease = shop._session.open().store, shop._session.open().liveness.take("0" * 31 + "2")
    store.register("0" * 31 + "2", host="here", kind="worker", job_types=["mail"], now=clock.now())
    shop.enqueue("mail")
    assert groups(shop) == {}
    clock.advance(seconds=Settings().waiting_warn + 1)
    assert groups(shop) == {Why.TURN: (1, "ready: they start as slots get free")}
    shop.jobs.cancel(parent.id)
    assert groups(shop)[Why.PARENT] == (1, shop.explain(child.id).summary)
    lease.release(clean=True)


def test_a_type_that_no_live_worker_has_is_trouble_and_named(live: Rota, tmp_path):
    @live.job
    def mail() -> None:
        pass

    other = Rota(tmp_path / "rota.db")

    @other.job
    def elsewhere() -> None:
        pass

    other.enqueue("elsewhere")
    other.close()
    live.start()
    found = live.overview()
    assert found.health.level is Level.TROUBLE
    assert found.health.sentence == "No live worker has a handler for elsewhere, and such jobs wait."
    assert [(each.why, each.job_type) for each in found.stuck] == [(Why.NO_WORKER, "elsewhere")]


def test_dead_letters_of_the_last_day_did_not_run_and_say_what_of(shop: Rota, clock: ManualClock):
    job = shop.enqueue("boom")
    shop.enqueue("boom")
    shop.turn()
    clock.advance(seconds=60)
    found = shop.overview()
    (row,) = found.not_run
    assert (row.kind, row.name, row.fate, row.count, row.planned) == ("job", "boom", "DEAD_LETTER", 2, False)
    assert row.reason == "PermanentError: no such address"
    assert row.example is not None
    assert "2 jobs were dead-lettered in the last hour" in [each.what for each in found.health.concerns]
    clock.advance(seconds=2 * 3600)
    assert "dead-lettered" not in str(shop.overview().health.concerns)
    shop.jobs.retry(job.id)
    assert shop.overview().not_run[0].count == 1
    clock.advance(seconds=86_400)
    assert shop.overview().not_run == ()


def test_due_times_that_did_not_fire_are_told_by_schedule_and_fate(shop: Rota, clock: ManualClock):
    shop.schedule("daily", "mail", every=timedelta(hours=1))
    shop.schedules.pause("daily")
    clock.advance(seconds=3 * 3600 + 60)
    shop.turn()
    (row,) = shop.overview().not_run
    assert (row.kind, row.name, row.fate, row.count) == ("schedule", "daily", "SKIPPED_PAUSED", 3)
    assert row.first_at < row.last_at
    assert "1 due time did not run in the last hour" in [each.what for each in shop.overview().health.concerns]


def test_of_a_long_pause_only_the_last_day_is_counted(shop: Rota, clock: ManualClock):
    shop.schedule("hourly", "mail", every=timedelta(hours=1))
    shop.schedules.pause("hourly")
    clock.advance(days=10, minutes=1)
    shop.turn()
    (row,) = shop.overview().not_run
    assert row.count == 24


def test_what_is_planned_not_to_run_is_no_concern(shop: Rota, clock: ManualClock):
    today = datetime.fromtimestamp(clock.now() / 1e6, UTC)
    shop.calendars.update("off", [today.date() + timedelta(days=n) for n in range(3)])
    shop.schedule("daily", "mail", every=timedelta(hours=1), calendar="off")
    clock.advance(seconds=3700)
    shop.turn()
    (row,) = shop.overview().not_run
    assert (row.fate, row.planned) == ("SKIPPED_CALENDAR", True)
    assert "did not run" not in str(shop.overview().health.concerns)


def test_what_runs_is_told_with_its_progress_and_how_long_it_usually_takes(live: Rota):
    go, begun = threading.Event(), threading.Event()

    @live.job
    def slow(ctx: Context, wait: bool = False) -> None:
        if wait:
            ctx.progress(40, "four of ten")
            begun.set()
            go.wait(patient(20))

    live.start()
    live.wait(live.enqueue("slow").id, 10)
    job = live.enqueue("slow", {"wait": True})
    assert begun.wait(patient(10))
    try:
        current = eventually(lambda: next((each for each in live.overview().running.jobs if each.progress == 40), None))
        assert (current.id, current.message, current.attempt, current.timeout_s) == (job.id, "four of ten", 1, 300.0)
        assert current.usual_s is not None
        assert current.long_s is not None
        assert current.slow == (current.elapsed_s > current.long_s)
        found = live.overview()
        assert found.running.count == 1
        assert found.counts is not None
        assert (found.counts.running, found.counts.completed, found.counts.workers) == (1, 1, 1)
        assert found.health.sentence.startswith("All is well: 1 worker is up, 1 job runs, nothing waits")
    finally:
        go.set()


def test_what_comes_next_has_its_hours_and_the_changes_of_clocks(shop: Rota, clock: ManualClock):
    clock.step(days=27, minutes=30)
    shop.schedule("report", "mail", cron="*/30 * * * *", timezone="Europe/Berlin")
    ahead = shop.overview().ahead
    assert (ahead.count, ahead.more, len(ahead.hours)) == (48, False, 25)
    assert ahead.hours[0].begins_at == datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert sum(hour.count for hour in ahead.hours) == 48
    assert [(item.schedule, item.more) for item in ahead.items] == [("report", 0), ("report", 0), ("report", 45)]
    (change,) = ahead.changes
    assert (change.timezone, change.before, change.after, change.schedules) == ("Europe/Berlin", "UTC+1", "UTC+2", ("report",))


def test_every_hour_of_a_busy_day_is_counted_to_its_end(shop: Rota):
    for index in range(5):
        shop.schedule(f"busy {index}", "mail", every=timedelta(seconds=1))
    ahead = shop.overview().ahead
    assert (ahead.count, ahead.more) == (5 * 86_400, False)
    assert [hour.count for hour in ahead.hours] == [5 * 3599, *[5 * 3600] * 23, 5]
    assert [(item.schedule, item.more) for item in ahead.items[-5:]] == [(f"busy {index}", 86_397) for index in range(5)]


def test_what_comes_next_counts_nothing_that_is_paused_or_excluded(shop: Rota, clock: ManualClock):
    shop.calendars.update("off", [clock.now() // 86_400_000_000 * timedelta(days=1) + date(1970, 1, 1)])
    shop.schedule("paused", "mail", every=timedelta(minutes=1))
    shop.schedules.pause("paused")
    shop.schedule("off", "mail", cron="0 * * * *", calendar="off")
    ahead = shop.overview().ahead
    assert {item.schedule for item in ahead.items} == {"off"}
    assert ahead.count == sum(hour.count for hour in ahead.hours if hour.begins_at.date() > ahead.start.date()) == 13


def test_more_schedules_than_are_counted_are_said_to_be_more(shop: Rota, monkeypatch):
    monkeypatch.setattr("rota.resources.overview.AHEAD_SCHEDULES", 2)
    for index in range(3):
        shop.schedule(f"busy {index}", "mail", every=timedelta(minutes=1))
    ahead = shop.overview().ahead
    assert (ahead.count, ahead.more) == (2 * 1440, True)


def test_a_worker_that_died_is_told_of(shop: Rota, clock: ManualClock):
    store = shop._session.open().store
    store.register("0" * 31 + "1", host="gone", kind="worker", job_types=["mail"], now=clock.now())
    folder = shop._session.open().liveness
    folder.take("0" * 31 + "1").release(clean=False)
    found = shop.overview()
    assert "a worker was lost without a word" in [each.what for each in found.health.concerns]


# ---- who sees what -------------------------------------------------------------------------------------------------


@pytest.fixture
def two(shared: Rota) -> Rota:
    for name, count in (("ada", 2), ("bob", 1), ("eve", 4)):
        for _ in range(count):
            shared.acting_as(name).enqueue("echo")
            shared.acting_as(name).enqueue("echo", run_at=timedelta(hours=1))
    shared.schedule("theirs", "echo", every=timedelta(hours=1), organization="beta")
    return shared


@pytest.mark.parametrize(("actor", "count"), [(None, 7), (ADA, 3), (BOB, 1), (EVE, 4)])
def test_each_reader_is_told_of_what_it_may_read(two: Rota, actor: Actor | None, count: int):
    found = two.acting_as(actor).overview()
    assert {each.why: each.count for each in found.stuck} == {Why.NO_WORKER: count}
    assert found.organization == (None if actor is None else actor.organization)
    assert bool(found.ahead.items) == (actor in {None, EVE})
    assert (found.counts is None) == (actor is BOB)


def test_workers_are_counted_for_nobody_of_one_organization(two: Rota):
    found = two.acting_as(ADA).overview()
    assert found.counts is not None
    assert found.counts.workers is None
    assert two.overview().counts.workers == 0


def test_nothing_of_one_organization_is_named_to_another(two: Rota):
    two.organizations.pause("beta")
    text = msgspec.json.encode(two.acting_as(ADA).overview()).decode()
    for word in ("beta", '"eve"', '"fay"', "theirs"):
        assert word not in text


def test_a_token_that_may_only_submit_is_shown_nothing_and_refused_nothing(two: Rota):
    who = msgspec.structs.replace(ADA, operations=frozenset())
    found = two.acting_as(who).overview()
    assert (found.health.sentence, found.stuck, found.counts) == ("There is nothing here that you may read.", (), None)


def test_settings_say_how_long_a_wait_is_a_concern(tmp_path, clock: ManualClock):
    rota = Rota(tmp_path / "rota.db", clock=clock, settings=Settings(waiting_warn=5))

    @rota.job
    def mail() -> None:
        pass

    try:
        rota.enqueue("mail")
        store = rota._session.open().store
        lease = rota._session.open().liveness.take("0" * 31 + "2")
        store.register("0" * 31 + "2", host="here", kind="worker", job_types=["mail"], now=clock.now())
        assert rota.overview().health.level is Level.WELL
        clock.advance(seconds=6)
        assert rota.overview().health.sentence == "The oldest ready job has waited for 6 s."
        lease.release(clean=True)
    finally:
        rota.close()
