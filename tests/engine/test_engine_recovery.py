"""Finding workers that are gone: by their lock, by their beat, never by pid."""

import pytest

from rota import Backoff, local_workers
from rota.engine.recovery import EXCUSES_MAX
from rota.model.decide import Completed, Released
from tests.stores.desk import Desk
from tests.support.runs import run_of


@pytest.fixture
def act(rota):
    return rota.job(lambda: None, name="act", max_retries=2, backoff=Backoff(base=60, jitter=0))


def lost_worker(rota, jobs, *, lock="dead", stopping=False):
    """Be a worker that claimed these and is gone: its lock is free ('dead'), taken ('alive') or not there ('none')."""
    opened = rota._session.open()
    desk = Desk(opened.store)
    desk.ids, desk.now = rota._session.ids, rota._session.clock.now()
    desk.worker = desk.id()
    desk.lease = None if lock == "none" else opened.liveness.take(desk.worker)
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["act"], now=desk.now)
    desk.claimed = desk.claim(jobs, types=("act",))
    if stopping:
        desk.store.stopping(desk.worker, now=desk.now)
    if lock == "dead":
        desk.lease.release(clean=False)
    return desk


def statuses(rota, job):
    return [str(each.status) for each in rota.jobs.attempts(job.id)]


def test_what_a_dead_worker_held_fails_and_goes_on_by_its_budget(rota, act):
    jobs = [rota.enqueue("act") for _ in range(3)]
    lost_worker(rota, 2)
    done = rota.store.recover()
    assert (done.workers, done.jobs) == (1, 2)
    assert [statuses(rota, job) for job in jobs] == [["FAILED", "QUEUED"], ["FAILED", "QUEUED"], ["QUEUED"]]
    assert run_of(rota, jobs[0].id).error == "Scheduler crash recovery"
    assert [job.root_id for job in rota.queues.jobs()] == [job.id for job in jobs]
    assert not rota.store.recover()


def test_a_worker_that_was_stopping_interrupts_and_uses_no_budget(rota, act):
    job = rota.enqueue("act")
    lost_worker(rota, 1, stopping=True)
    rota.store.recover()
    tail = rota.jobs.attempts(job.id)[-1]
    assert (run_of(rota, job.id).error, tail.crashes, tail.failures) == ("Interrupted by shutdown", 0, 0)


def test_the_jobs_of_a_worker_that_lives_are_never_touched(rota, clock, act):
    job = rota.enqueue("act")
    desk = lost_worker(rota, 1, lock="alive")
    clock.advance(days=2)
    assert not rota.store.recover()
    rota.turn()
    assert statuses(rota, job) == ["RUNNING"]
    desk.done(desk.claimed[0])
    assert statuses(rota, job) == ["COMPLETED"]
    desk.lease.release(clean=True)


def test_a_worker_without_a_lock_here_is_given_up_when_its_beat_stood_still_for_the_whole_lease(rota, clock, act):
    job = rota.enqueue("act")
    lost_worker(rota, 1, lock="none")
    rota.turn()
    pass_time(rota, clock, 29)
    assert statuses(rota, job) == ["RUNNING"]
    pass_time(rota, clock, 2)
    assert statuses(rota, job)[0] == "FAILED"


def pass_time(rota, clock, seconds):
    """Let time pass while a worker turns, as workers do."""
    for _ in range(seconds):
        clock.advance(seconds=1)
        rota.turn()


def test_an_observer_that_could_not_beat_itself_gives_nobody_up_until_it_has_beaten_for_the_whole_lease(rota, clock, act):
    job = rota.enqueue("act")
    lost_worker(rota, 1, lock="none")
    rota.turn()
    # Everybody was away from the store for a while: who comes back first must not judge the others.
    clock.advance(seconds=40)
    rota.turn()
    pass_time(rota, clock, 29)
    assert statuses(rota, job) == ["RUNNING"]
    pass_time(rota, clock, 2)
    assert statuses(rota, job)[0] == "FAILED"


def test_a_worker_that_beats_in_the_very_moment_it_is_given_up_is_left_alone(rota, clock, act, monkeypatch):
    job = rota.enqueue("act")
    desk = lost_worker(rota, 1, lock="none")
    rota.turn()
    pass_time(rota, clock, 29)
    store = rota._session.open().store
    give_up = type(store).give_up_worker

    def beaten_first(self, worker_id, **given):
        desk.store.beat(desk.worker, job_types=["act"])
        return give_up(self, worker_id, **given)

    monkeypatch.setattr(type(store), "give_up_worker", beaten_first)
    pass_time(rota, clock, 20)
    assert statuses(rota, job) == ["RUNNING"]


def test_what_a_worker_held_that_was_given_up_by_one_who_died_then_is_ended_by_the_next_who_looks(rota, clock, act):
    job = rota.enqueue("act")
    desk = lost_worker(rota, 1, lock="none")
    assert desk.store.give_up_worker(desk.worker, beat=0, now=clock.now())
    assert [worker.running for worker in rota.workers.list()] == [1]
    rota.turn()
    assert statuses(rota, job) == ["FAILED", "COMPLETED"]
    assert desk.worker not in {worker.id for worker in rota.workers.list()}


def test_a_recovery_by_hand_gives_nobody_up_who_can_only_be_judged_by_a_beat(rota, clock, act):
    job = rota.enqueue("act")
    lost_worker(rota, 1, lock="none")
    recovery = local_workers._recovery(rota._session, rota._session.open())
    for _ in range(10):
        recovery.sweep(None)
        clock.advance(seconds=10)
    assert statuses(rota, job) == ["RUNNING"]


def test_a_worker_whose_beat_goes_on_is_never_given_up(rota, clock, act):
    job = rota.enqueue("act")
    desk = lost_worker(rota, 1, lock="none")
    for _ in range(10):
        rota.turn()
        clock.advance(seconds=20)
        desk.store.beat(desk.worker, job_types=["act"])
    assert statuses(rota, job) == ["RUNNING"]


def test_a_wall_clock_that_jumps_gives_nobody_up(rota, clock, act):
    job = rota.enqueue("act")
    lost_worker(rota, 1, lock="none")
    rota.turn()
    clock.step(days=400)
    rota.turn()
    assert statuses(rota, job) == ["RUNNING"]


def test_the_third_crash_dead_letters(rota, act):
    job = rota.enqueue("act")
    for _ in range(3):
        lost_worker(rota, 1)
        rota.store.recover()
    assert statuses(rota, job) == ["FAILED", "FAILED", "DEAD_LETTER"]
    assert rota.store.stats().by_status["DEAD_LETTER"] == 1


def crash_beside_another(rota):
    """Lose a worker that holds the next job of the queue, and one that no worker has crashed under before."""
    other = rota.enqueue("act", priority="critical")
    lost_worker(rota, 2)
    rota.store.recover()
    assert [job.crashes for job in rota.jobs.attempts(other.id)] == [0, 1]
    rota.jobs.cancel(other.id)


def test_a_crash_is_not_charged_to_a_suspect_while_others_were_beside_it(rota, act):
    suspect = rota.enqueue("act")
    lost_worker(rota, 1)
    rota.store.recover()
    for _ in range(4):
        crash_beside_another(rota)
    tail = rota.jobs.attempts(suspect.id)[-1]
    assert (tail.status, tail.crashes, tail.attempt) == ("QUEUED", 1, 6)
    assert {run_of(rota, job.id).error for job in rota.jobs.attempts(suspect.id)[:-1]} == {"Scheduler crash recovery"}
    # alone, it is
    lost_worker(rota, 1)
    rota.store.recover()
    assert rota.jobs.attempts(suspect.id)[-1].crashes == 2


def test_a_suspect_that_crashes_its_worker_again_and_again_beside_others_is_dead_lettered_in_the_end(rota, act):
    culprit = rota.enqueue("act")
    for _ in range(EXCUSES_MAX + 3):
        assert rota.jobs.attempts(culprit.id)[-1].status == "QUEUED"
        crash_beside_another(rota)
    assert rota.jobs.attempts(culprit.id)[-1].status == "DEAD_LETTER"
    assert len(rota.jobs.attempts(culprit.id)) == EXCUSES_MAX + 3


@pytest.mark.parametrize("given_back", ["interrupted", "released"])
def test_attempts_that_were_given_back_use_up_no_excuse_of_a_suspect(rota, act, given_back):
    """Every restart of the service stops it or gives it back: these are no crashes, and say nothing of its guilt."""
    suspect = rota.enqueue("act")
    lost_worker(rota, 1)
    rota.store.recover()
    for _ in range(EXCUSES_MAX + 1):
        give_back(rota, given_back)
    for _ in range(EXCUSES_MAX):
        crash_beside_another(rota)
        give_back(rota, given_back)
    tail = rota.jobs.attempts(suspect.id)[-1]
    assert (tail.status, tail.crashes) == ("QUEUED", 1)
    # and they give it no new ones
    for _ in range(2):
        crash_beside_another(rota)
    assert rota.jobs.attempts(suspect.id)[-1].status == "DEAD_LETTER"


def give_back(rota, how):
    """Claim the next job of the queue, and give it back: as a worker that is stopped before it started it, or while it ran."""
    if how == "interrupted":
        lost_worker(rota, 1, stopping=True)
        rota.store.recover()
    else:
        desk = lost_worker(rota, 1, lock="alive")
        desk.end(desk.claimed[0], Released())
        desk.store.end_worker(desk.worker, now=desk.now)
        desk.lease.release(clean=True)


@pytest.mark.parametrize("end", ["dead-lettered", "cancelled"])
def test_excuses_begin_anew_when_a_chain_is_tried_again_by_hand(rota, act, end):
    suspect = rota.enqueue("act")
    for _ in range(EXCUSES_MAX + (3 if end == "dead-lettered" else 1)):
        crash_beside_another(rota)
    if end == "cancelled":
        rota.jobs.cancel(suspect.id)
    rota.jobs.retry(suspect.id)
    lost_worker(rota, 1)
    rota.store.recover()
    crash_beside_another(rota)
    tail = rota.jobs.attempts(suspect.id)[-1]
    assert (tail.status, tail.crashes) == ("QUEUED", 1)


def test_a_job_without_retries_is_dead_after_one_crash_or_interruption(rota, act):
    crashed = rota.enqueue("act", max_retries=0)
    lost_worker(rota, 1)
    rota.store.recover()
    interrupted = rota.enqueue("act", max_retries=0)
    lost_worker(rota, 1, stopping=True)
    rota.store.recover()
    assert (statuses(rota, crashed), statuses(rota, interrupted)) == (["DEAD_LETTER"], ["DEAD_LETTER"])


def test_a_job_that_crashed_runs_alone_and_the_innocent_ones_after_it(rota, act):
    ran = []

    @rota.job(max_retries=3)
    def watch(ctx):
        ran.append((ctx.attempt, rota.store.stats().by_status["RUNNING"]))

    suspect = rota.enqueue("act")
    lost_worker(rota, 1)
    rota.store.recover()
    rota.enqueue_many([("watch", {})] * 5)
    rota.turn()
    assert statuses(rota, suspect) == ["FAILED", "COMPLETED"]
    assert len(ran) == 5


def test_a_late_result_of_a_given_up_worker_is_refused_and_counted(rota, clock, act):
    job = rota.enqueue("act")
    desk = lost_worker(rota, 1)
    rota.store.recover()
    desk.now = clock.now() + 1
    assert desk.end(desk.claimed[0], Completed('"late"')).late == [desk.claimed[0].number]
    assert rota.store.stats().late_results == 1
    assert statuses(rota, job)[0] == "FAILED"


def test_recovery_of_many_jobs_goes_on_in_bounded_batches(tmp_path, clock):
    from rota import Rota, Settings

    rota = Rota(tmp_path / "many.db", clock=clock, settings=Settings(batch=7), seed=3)
    rota.job(lambda: None, name="act")
    rota.enqueue_many([("act", {})] * 50)
    order = [job.id for job in rota.queues.jobs()]
    lost_worker(rota, 50)
    assert rota.store.recover().jobs == 50
    assert [job.root_id for job in rota.queues.jobs()] == order
    rota.close()


def test_a_worker_starting_up_recovers_before_it_claims(rota, clock, act):
    job = rota.enqueue("act")
    lost_worker(rota, 1)
    rota.turn()
    assert statuses(rota, job) == ["FAILED", "COMPLETED"]
    assert [worker.running for worker in rota.workers.list()] == [0]


def test_a_worker_that_was_given_up_while_it_lives_goes_on_under_another_id(rota, clock, act):
    rota.turn()
    (before,) = rota.workers.list()
    store = rota._session.open().store
    store.end_worker(before.id.replace("-", ""), now=clock.now())
    job = rota.enqueue("act")
    for _ in range(3):
        rota.turn()
    assert statuses(rota, job) == ["COMPLETED"]
    (after,) = rota.workers.list()
    assert after.id != before.id


def test_a_failure_without_its_retry_is_mended_when_a_worker_starts(rota, clock, act, tmp_path):
    from tests.stores.makers import SqliteMaker

    job = rota.enqueue("act")
    desk = lost_worker(rota, 1, lock="alive")
    SqliteMaker(tmp_path).end_without_successor(desk.claimed[0].number, "FAILED", clock.now())
    assert rota.store.recover().successors == 1
    assert statuses(rota, job) == ["FAILED", "PENDING"]
    assert not rota.store.recover()
    clock.advance(minutes=2)
    rota.turn()
    assert statuses(rota, job) == ["FAILED", "COMPLETED"]
