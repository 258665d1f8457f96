"""Recovery's moves: each case of a torn state, mended once, and twice has the effect of once."""

import msgspec
import pytest

from rota.model.decide import Crashed, Failed, Interrupted, TimedOut
from rota.model.values import SECOND, WorkerProcess, instant
from tests.stores.desk import ANNA, inside
from tests.stores.makers import torn_runs


def again(desk, worker, outcome, held):
    """Recover once more, from what was seen before the first time."""
    return len(desk.store.recover([desk.ending(each.job, outcome) for each in held], held, now=desk.now))


def test_a_worker_runs_as_many_handlers_as_it_has_slots_and_holds_the_rest(desk):
    desk.several(6)
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["t"], now=desk.now, slots=2)
    (idle,) = desk.store.workers()
    assert (idle.slots, idle.running, idle.claimed_ahead, idle.holds) == (2, 0, 0, 0)
    desk.claim(1)
    (one,) = desk.store.workers()
    assert (one.running, one.claimed_ahead, one.holds) == (1, 0, 1)
    desk.claim(4)
    (full,) = desk.store.workers()
    assert (full.running, full.claimed_ahead, full.holds) == (2, 3, 5)
    stats = desk.store.stats(now=desk.now)
    assert (stats.by_status["RUNNING"], stats.running, stats.claimed_ahead) == (5, 2, 3)


def test_all_that_a_worker_without_known_slots_holds_counts_as_running(desk):
    desk.several(3)
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["t"], now=desk.now)
    desk.claim(3)
    (worker,) = desk.store.workers()
    assert (worker.slots, worker.running, worker.claimed_ahead) == (None, 3, 0)
    assert desk.store.stats(now=desk.now).claimed_ahead == 0


def test_running_with_an_unfinished_run_fails_and_goes_on_by_its_budget(desk):
    root = desk.add()
    desk.claim_one()
    desk.advance(5)
    held = desk.held()
    assert [(each.job.job_id, each.run_missing, each.run_ended) for each in held] == [(root, False, None)]
    assert desk.recover(desk.worker, Crashed()) == 1
    first, second = desk.store.chain(root)
    run = desk.store.run(root)
    assert (first.status, run.status, run.error, run.error_type) == ("FAILED", "FAILED", "Scheduler crash recovery", "crash")
    assert (second.status, second.crashes, second.failures, second.position) == ("QUEUED", 1, 0, 100)


@torn_runs
def test_running_without_a_run_gets_a_failed_one(desk, maker):
    root = desk.add()
    job = desk.claim_one()
    maker.lose_run(job.number)
    (held,) = desk.held()
    assert held.run_missing
    assert desk.recover(desk.worker, Crashed()) == 1
    run = desk.store.run(root)
    assert (run.status, run.error) == ("FAILED", "Scheduler crash recovery")
    assert [each.status for each in desk.store.chain(root)] == ["FAILED", "QUEUED"]


@torn_runs
def test_recovery_leaves_the_endings_that_it_is_given_as_they_are(desk, maker):
    root = desk.add()
    maker.lose_run(desk.claim_one().number)
    (held,) = desk.held()
    ending = desk.ending(held.job, Crashed())
    before = msgspec.structs.replace(ending)
    desk.store.recover([ending], [held], now=desk.now)
    assert ending == before
    assert [each.status for each in desk.store.chain(root)] == ["FAILED", "QUEUED"]


@torn_runs
@pytest.mark.parametrize("run_status", ["COMPLETED", "SKIPPED", "CANCELLED"])
def test_running_with_an_ended_run_only_closes_the_job(desk, maker, run_status):
    root = desk.add()
    job = desk.claim_one()
    maker.end_run_only(job.number, run_status, desk.now + SECOND)
    run = desk.store.run(root)
    desk.advance(60)
    (held,) = desk.held()
    assert held.run_ended == run_status
    assert desk.recover(desk.worker, Crashed()) == 1
    (ended,) = desk.store.chain(root)
    assert (ended.status, ended.finished_at) == (run_status, run.finished_at)
    assert desk.store.run(root) == run


@torn_runs
def test_running_with_a_failed_run_closes_the_job_and_gives_it_its_retry(desk, maker):
    root = desk.add()
    job = desk.claim_one()
    maker.end_run_only(job.number, "FAILED", desk.now, "boom")
    assert desk.recover(desk.worker, Crashed()) == 1
    first, second = desk.store.chain(root)
    assert (first.status, second.attempt, second.status.ended) == ("FAILED", 2, False)
    assert desk.store.run(root).error == "boom"


@torn_runs
def test_running_with_a_failed_run_and_no_retries_is_dead(desk, maker):
    root = desk.add(max_retries=0)
    job = desk.claim_one()
    maker.end_run_only(job.number, "FAILED", desk.now, "boom")
    desk.recover(desk.worker, Crashed())
    assert [each.status for each in desk.store.chain(root)] == ["DEAD_LETTER"]


@torn_runs
def test_running_with_a_failed_run_that_was_asked_to_stop_is_not_retried(desk, maker):
    root = desk.add()
    job = desk.claim_one()
    desk.store.cancel(root, actor=ANNA, now=desk.now)
    maker.end_run_only(job.number, "FAILED", desk.now, "boom")
    desk.recover(desk.worker, Crashed())
    assert [each.status for each in desk.store.chain(root)] == ["CANCELLED"]


@torn_runs
@pytest.mark.parametrize(("run_status", "second"), [("COMPLETED", "QUEUED"), ("CANCELLED", "CANCELLED")])
def test_a_closed_job_sets_off_what_its_chains_end_sets_off(desk, maker, run_status, second):
    rows = [desk.row(), desk.row()]
    desk.grouped(rows, "sequential", "stop")
    job = desk.claim_one()
    maker.end_run_only(job.number, run_status, desk.now)
    desk.recover(desk.worker, Crashed())
    desk.turn()
    assert [desk.status(row.job_id) for row in rows] == [run_status, second]


@torn_runs
def test_a_closed_direct_job_releases_the_slot(desk, maker):
    reservation = desk.reserve()
    job = desk.claim_one()
    maker.end_run_only(job.number, "COMPLETED", desk.now)
    desk.recover(desk.worker, Crashed())
    assert desk.status(reservation.job_id) == "COMPLETED"
    assert desk.store.reservation() is None


@pytest.mark.parametrize("status", ["FAILED", "TIMED_OUT"])
def test_failed_without_its_retry_gets_it_once(desk, maker, status):
    root = desk.add()
    job = desk.claim_one()
    maker.end_without_successor(job.number, status, desk.now)
    (torn,) = desk.store.repair(since=0)
    assert (torn.job.job_id, torn.run_ended) == (root, status)
    outcome = TimedOut(300.0) if status == "TIMED_OUT" else Failed("torn")
    endings = [desk.ending(torn.job, outcome)]
    assert desk.store.add_successors(endings, now=desk.now) == 1
    assert [(each.status, each.attempt, each.failures) for each in desk.store.chain(root)] == [(status, 1, 0), ("PENDING", 2, 1)]
    assert desk.store.repair(since=0) == []
    before = desk.snapshot()
    assert desk.store.add_successors([desk.ending(torn.job, outcome)], now=desk.now) == 0
    assert desk.snapshot() == before


def test_repair_looks_no_further_back_than_it_is_told(desk, maker):
    desk.add()
    job = desk.claim_one()
    maker.end_without_successor(job.number, "FAILED", desk.now)
    assert desk.store.repair(since=desk.now + 1) == []
    assert len(desk.store.repair(since=desk.now)) == 1


def test_repair_leaves_every_attempt_alone_that_has_its_successor(desk):
    desk.add()
    desk.run_to(Failed("x"))
    desk.advance(60)
    desk.run_to(Failed("x"))
    assert desk.store.repair(since=0) == []


@pytest.mark.parametrize("outcome", [Crashed(), Interrupted()], ids=lambda each: type(each).__name__)
def test_recovery_twice_is_recovery_once(desk, outcome):
    desk.add()
    desk.add()
    desk.claim_one()
    recover_twice(desk, outcome)


@torn_runs
@pytest.mark.parametrize("outcome", [Crashed(), Interrupted()], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("damage", ["lose_run", "COMPLETED", "FAILED"])
def test_recovery_of_a_torn_run_twice_is_recovery_once(desk, maker, outcome, damage):
    desk.add()
    desk.add()
    job = desk.claim_one()
    if damage == "lose_run":
        maker.lose_run(job.number)
    else:
        maker.end_run_only(job.number, damage, desk.now)
    recover_twice(desk, outcome)


def recover_twice(desk, outcome):
    """Recover what is held, the first of two jobs, and see that nothing changes after that."""
    root = desk.held()[0].job.root_id
    held = desk.held()
    assert again(desk, desk.worker, outcome, held) == 1
    before = desk.snapshot()
    assert again(desk, desk.worker, outcome, held) == 0
    assert desk.recover(desk.worker, outcome) == 0
    assert desk.snapshot() == before
    assert desk.late() == 0
    assert len([each for each in desk.store.chain(root) if not each.status.ended]) <= 1


def test_a_running_job_that_was_asked_to_stop_is_cancelled_when_its_worker_is_lost(desk):
    root = desk.add()
    desk.claim_one()
    desk.store.cancel(root, actor=ANNA, now=desk.now)
    desk.recover(desk.worker, Crashed())
    assert [each.status for each in desk.store.chain(root)] == ["CANCELLED"]


def test_jobs_of_other_workers_are_never_touched(desk):
    mine, others = desk.several(2)
    desk.claim(1)
    other = desk.id()
    desk.claim(1, worker=other)
    assert desk.recover(desk.worker, Crashed()) == 1
    assert (desk.status(mine), desk.status(others)) == ("FAILED", "RUNNING")
    assert [each.job.job_id for each in desk.held(other)] == [others]


def test_what_a_worker_ended_in_time_is_left_alone(desk):
    root = desk.add()
    job = desk.claim_one()
    held = desk.held()
    desk.done(job)
    assert again(desk, desk.worker, Crashed(), held) == 0
    assert [each.status for each in desk.store.chain(root)] == ["COMPLETED"]


def test_held_by_is_bounded_and_in_order(desk):
    ids = desk.several(5)
    desk.claim(5)
    assert [each.job.job_id for each in desk.store.held_by(desk.worker, limit=3)] == ids[:3]
    assert desk.store.held_by(desk.id(), limit=3) == []


def test_an_attempt_carries_on_what_its_crashed_run_knew(desk):
    desk.add()
    job = desk.claim_one()
    (held,) = desk.held()
    assert (held.job.run_id, held.job.started_at, held.job.attempt) == (job.run_id, job.started_at, 1)


def test_each_recovery_says_when_the_one_before_it_was(desk):
    assert desk.store.recovered(now=1000) == 0
    assert desk.store.recovered(now=2000) == 1000
    assert desk.store.recovered(now=3000) == 2000


# ---- workers ---------------------------------------------------------------------------------------------------------


def test_a_worker_is_registered_beats_stops_and_ends(desk):
    store, worker = desk.store, desk.worker
    store.register(worker, host="h", kind="worker", job_types=["a", "b"], now=desk.now)
    (seen,) = store.workers()
    assert (seen.id, seen.host, seen.kind, seen.beat, seen.job_types, seen.running) == (worker, "h", "worker", 0, ("a", "b"), 0)
    store.beat(worker, job_types=["a"])
    store.beat(worker, job_types=["a"])
    (seen,) = store.workers()
    assert (seen.beat, seen.job_types) == (2, ("a",))
    store.stopping(worker, now=desk.now)
    desk.advance(5)
    store.stopping(worker, now=desk.now)
    assert instant(store.workers()[0].stopping_at) == desk.now - 5 * SECOND
    store.end_worker(worker, now=desk.now)
    assert store.workers() == []
    (ended,) = store.workers(live=False)
    assert instant(ended.ended_at) == desk.now
    store.beat(worker, job_types=["z"])
    store.end_worker(worker, now=desk.now + 9)
    assert store.workers(live=False) == [ended]


def test_a_worker_shows_its_process_and_its_memory_as_of_its_last_beat(desk):
    store, worker = desk.store, desk.worker
    store.register(worker, host="h", kind="worker", job_types=[], now=desk.now, process=WorkerProcess(4711, "1.2.3", 50_000_000))
    (seen,) = store.workers()
    assert (seen.pid, seen.version, seen.memory) == (4711, "1.2.3", 50_000_000)
    store.beat(worker, job_types=[], memory=6_000_000_000)
    store.beat(worker, job_types=[])
    assert store.workers()[0].memory == 6_000_000_000
    store.register(desk.id(), host="h", kind="client", job_types=[], now=desk.now)
    assert [(each.pid, each.version, each.memory) for each in store.workers() if each.kind == "client"] == [(None, None, None)]


def test_a_beat_says_whether_the_worker_is_still_in_the_record(desk):
    desk.store.register(desk.worker, host="h", kind="worker", job_types=[], now=desk.now)
    assert desk.store.beat(desk.worker, job_types=[]) is True
    desk.store.end_worker(desk.worker, now=desk.now)
    assert desk.store.beat(desk.worker, job_types=[]) is False
    assert desk.store.beat(desk.id(), job_types=[]) is False


def test_a_worker_is_given_up_only_while_its_beat_is_the_one_that_was_seen(desk):
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["a"], now=desk.now)
    desk.store.beat(desk.worker, job_types=["a"])
    assert not desk.store.give_up_worker(desk.worker, beat=0, now=desk.now)
    assert desk.store.beat(desk.worker, job_types=["a"])
    assert desk.store.give_up_worker(desk.worker, beat=2, now=desk.now)
    assert not desk.store.give_up_worker(desk.worker, beat=2, now=desk.now)
    assert not desk.store.beat(desk.worker, job_types=["a"])


def test_a_worker_that_was_given_up_claims_nothing_and_is_seen_for_as_long_as_it_holds_something(desk):
    desk.several(2, "a")
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["a"], now=desk.now)
    (job,) = desk.claim(1, types=("a",))
    assert desk.store.give_up_worker(desk.worker, beat=0, now=desk.now)
    assert desk.claim(1, types=("a",)) == []
    (seen,) = desk.store.workers()
    assert (seen.id, seen.running, instant(seen.ended_at)) == (desk.worker, 1, desk.now)
    desk.recover(desk.worker, Crashed())
    assert desk.store.workers() == []
    assert desk.store.job(job.job_id).status == "FAILED"


def test_registering_again_changes_nothing(desk):
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["a"], now=desk.now)
    desk.store.beat(desk.worker, job_types=["a"])
    before = desk.store.workers()
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["a"], now=desk.now)
    assert desk.store.workers() == before


def test_workers_and_clients_are_told_apart_and_only_workers_are_counted(desk):
    desk.store.register(desk.worker, host="h", kind="worker", job_types=[], now=desk.now)
    desk.store.register(desk.id(), host="h", kind="client", job_types=[], now=desk.now)
    assert sorted(worker.kind for worker in desk.store.workers()) == ["client", "worker"]
    assert desk.store.stats(now=desk.now).workers == 1


def test_a_successor_keeps_the_root_and_never_forks_the_chain(desk):
    root = desk.add()
    for _ in range(2):
        desk.claim_one()
        desk.recover(desk.worker, Crashed())
    chain = desk.store.chain(root)
    assert [inside(job.root_id) for job in chain] == [root] * 3
    assert [job.attempt for job in chain] == [1, 2, 3]
    assert [job.crashes for job in chain] == [0, 1, 2]
    desk.claim_one()
    desk.recover(desk.worker, Crashed())
    assert [job.status for job in desk.store.chain(root)] == ["FAILED", "FAILED", "DEAD_LETTER"]
