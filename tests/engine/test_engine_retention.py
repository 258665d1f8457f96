"""Retention beside the wheel: bounded batches, at a tenth of the time, with the logs, and off when it is off."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from rota import Backoff, Context, Rota, Settings
from rota.admission import Admission
from rota.engine.retention import SHARE, Retention
from rota.errors import StoreUnavailable, Unauthenticated
from rota.model.values import Purged
from tests.support.clock import ManualClock
from tests.support.runs import run_of

DAYS = 86_400


KEEP = Settings(retention=30 * DAYS, retention_interval=60, retention_batch=10)


@pytest.fixture
def settings() -> Settings:
    """The workers of these tests remove nothing by themselves: the hand of the test does."""
    return Settings(retention=0, retention_batch=10)


def retention_of(rota: Rota, settings: Settings = KEEP) -> Retention:
    opened = rota._session.open()
    return Retention(opened.store, clock=rota._session.clock, settings=settings, log_dir=opened.log_dir, trust=opened.trust)


def tick(retention: Retention, clock: ManualClock, *, seconds: float = 60) -> None:
    clock.advance(seconds=seconds)
    retention.tick(clock.monotonic())


def left(rota: Rota) -> int:
    return len(rota.jobs.list(limit=10_000))


def finish(rota: Rota, count: int) -> None:
    if "noop" not in rota._session.registry.handlers:
        rota.job(lambda: None, name="noop")
    rota.enqueue_many([("noop", {})] * count)
    rota.turn()


def test_old_chains_go_after_the_interval_batch_by_batch(rota, clock):
    finish(rota, 25)
    clock.advance(days=31)
    finish(rota, 5)
    retention = retention_of(rota)
    seen = []
    for _ in range(6):
        tick(retention, clock)
        seen.append(left(rota))
    assert seen == [20, 10, 5, 5, 5, 5]


def test_while_there_is_more_it_goes_on_soon_and_then_rests(rota, clock):
    """A batch that takes a second is followed by ten seconds for the wheel; when all is done, by the interval."""
    finish(rota, 25)
    clock.advance(days=31)
    retention = retention_of(rota)
    inner, calls = rota._session.open().store, []

    class Slow:
        def forget_sessions(self, **_options: object) -> int:
            return 0

        def purge_dropped(self, **_options: object) -> Purged:
            return Purged()

        def purge(self, **options: object) -> Purged:
            calls.append(clock.monotonic())
            clock.advance(seconds=1)
            return inner.purge(**options)

    retention._store = Slow()
    clock.advance(seconds=5)
    start = clock.monotonic()
    while clock.monotonic() < start + 150:
        retention.tick(clock.monotonic())
        clock.advance(seconds=0.5)
    gaps = [round(later - earlier) for earlier, later in pairwise(calls)]
    assert gaps[:2] == [1 + SHARE, 1 + SHARE]
    assert all(gap >= 60 for gap in gaps[2:])


def test_one_tick_is_one_batch_however_late_it_is(rota, clock):
    finish(rota, 25)
    clock.advance(days=400)
    tick(retention_of(rota), clock, seconds=100_000)
    assert left(rota) == 15


def test_it_does_nothing_before_its_time_and_soon_after_the_start_it_looks_first(rota, clock):
    finish(rota, 5)
    clock.advance(days=31)
    retention = retention_of(rota)
    retention.tick(clock.monotonic())
    assert left(rota) == 5
    tick(retention, clock, seconds=1)
    assert left(rota) == 0


def test_retention_zero_keeps_everything(rota, clock):
    finish(rota, 5)
    clock.advance(days=10_000)
    tick(retention_of(rota, Settings(retention=0, retention_interval=1)), clock)
    assert left(rota) == 5


def test_the_logs_of_removed_runs_go_with_them_and_others_stay(rota, clock):
    @rota.job
    def talk(ctx: Context, word: str) -> None:
        ctx.log.info(word)

    old = rota.enqueue("talk", {"word": "old"})
    rota.turn()
    clock.advance(days=31)
    young = rota.enqueue("talk", {"word": "young"})
    rota.turn()
    paths = [Path(run_of(rota, job.id).log_path) for job in (old, young)]
    files = [Path(rota._session.open().log_dir) / path.parent.name / path.name for path in paths]
    assert [file.exists() for file in files] == [True, True]
    tick(retention_of(rota), clock)
    assert [file.exists() for file in files] == [False, True]
    assert "young" in rota.jobs.log(young.id).text


def test_a_store_in_trouble_is_not_asked_again_at_once(rota, clock):
    finish(rota, 5)
    clock.advance(days=31)
    retention = retention_of(rota)
    asked = []

    class Broken:
        def forget_sessions(self, **_: object) -> int:
            return 0

        def purge_dropped(self, **_: object) -> Purged:
            return Purged()

        def purge(self, **_: object) -> Purged:
            asked.append(1)
            raise StoreUnavailable("full")

    inner, retention._store = retention._store, Broken()
    clock.advance(seconds=60)
    with pytest.raises(StoreUnavailable):
        retention.tick(clock.monotonic())
    retention.tick(clock.monotonic())
    assert len(asked) == 1
    retention._store = inner
    tick(retention, clock)
    assert left(rota) == 0


def test_old_figures_go_and_young_ones_stay(rota, clock):
    finish(rota, 3)
    clock.advance(days=401)
    finish(rota, 2)
    retention = retention_of(rota)
    for _ in range(3):
        tick(retention, clock)
    assert sum(each.completed for each in rota.store.stats(hours=9600).by_type) == 2


def test_what_is_needed_stays_and_the_wheel_goes_on_with_it(rota, clock):
    @rota.job(max_retries=0)
    def parent() -> None:
        raise ValueError("x")

    @rota.job
    def child() -> None: ...

    dead = rota.enqueue("parent")
    waiting = rota.enqueue("child", depends_on=[dead.id])
    rota.turn()
    clock.advance(days=100)
    tick(retention_of(rota), clock)
    assert rota.jobs.get(dead.id).status == "DEAD_LETTER"
    assert rota.jobs.get(waiting.id).status == "PENDING"


def test_recovery_finds_nothing_to_revive_after_a_purge(rota, clock):
    @rota.job(max_retries=2, backoff=Backoff(base=1, jitter=0))
    def fail() -> None:
        raise ValueError("x")

    rota.enqueue_many([("fail", {})] * 7)
    for _ in range(4):
        rota.turn()
        clock.advance(seconds=60)
    clock.advance(days=31)
    rota.store.purge(older_than=timedelta(days=30))
    assert left(rota) == 0
    assert not rota.store.recover()
    rota.turn()
    assert left(rota) == 0


def test_a_purge_by_hand_tells_how_far_it_is(rota, clock):
    finish(rota, 25)
    clock.advance(days=3)
    finish(rota, 5)
    told = []
    would = rota.store.purge(older_than=timedelta(days=2), dry_run=True)
    done = rota.store.purge(older_than=timedelta(days=2), progress=lambda so_far: told.append(so_far.chains))
    assert (would.chains, done.chains, left(rota)) == (25, 25, 5)
    assert told == [10, 20, 25]


def test_a_worker_removes_what_is_old_beside_its_work(tmp_path, clock):
    with_worker = Rota(tmp_path / "kept.db", clock=clock, settings=KEEP, seed=7)
    finish(with_worker, 25)
    clock.advance(days=31)
    for _ in range(4):
        finish(with_worker, 1)
        clock.advance(seconds=61)
    finish(with_worker, 1)
    assert left(with_worker) == 5
    with_worker.close()


@pytest.mark.parametrize("retention_s", [0.0, 86_400.0])
def test_sessions_whose_time_is_over_go_whether_chains_are_kept_or_not(tmp_path, clock, retention_s):
    rota = Rota(tmp_path / "sessions.db", clock=clock, settings=Settings(retention=retention_s, session_ttl=60), seed=7)
    secret = rota.tokens.create("mine", permits=["manage"]).secret
    old = Admission(rota).open_session(secret)
    clock.advance(seconds=30)
    young = Admission(rota).open_session(secret)
    tick(retention_of(rota, rota.settings), clock, seconds=31)
    assert rota._session.open().store.forget_sessions(before=clock.now(), limit=10) == 0
    with pytest.raises(Unauthenticated):
        Admission(rota).session(old.secret)
    assert Admission(rota).session(young.secret).name == "local"
    rota.close()


def test_the_history_of_a_dropped_job_goes_batch_by_batch_without_waiting_for_the_interval(rota, clock, monkeypatch):
    rota.job(lambda: None, name="noop")
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 DAY CALL noop()")
    for _ in range(25):
        rota.sql("EXECUTE JOB a")
        rota.turn()

    def killed(*_arguments: object, **_options: object) -> Purged:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(rota._session.open().store), "purge_dropped", killed)
        with pytest.raises(KeyboardInterrupt):
            rota.sql("DROP JOB a")
    retention = retention_of(rota, Settings(retention=0, retention_interval=60, retention_batch=10))
    tick(retention, clock)
    assert left(rota) == 15
    for _ in range(3):
        tick(retention, clock, seconds=1)
    assert left(rota) == 0
