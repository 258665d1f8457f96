"""The wheel with a clock that is moved by hand: retries, signals, expiry, cancel, recovery by budget."""

from datetime import UTC, datetime, timedelta

import pytest

from rota import Backoff, NewJob, PermanentError, Retry, Skip, Snooze, Status, TransientError
from rota.errors import AlreadyEnded, JobSkipped, StillLive
from rota.model.settings import Settings
from rota.model.values import instant
from rota.surfaces.http.pages.workers import set_pause
from tests.support.runs import run_of

EXACT = Backoff(base=60, factor=2, jitter=0)


def statuses(rota, job):
    return [str(each.status) for each in rota.jobs.attempts(job.id)]


def tail(rota, job):
    return rota.jobs.attempts(job.id)[-1]


@pytest.fixture
def script(rota):
    """A handler that does what the next entry of its script says; returns the script and what was run."""
    plan, ran = [], []

    @rota.job(max_retries=3, backoff=EXACT)
    def act(ctx):
        ran.append((ctx.attempt, rota._session.clock.now()))
        step = plan.pop(0) if plan else None
        if isinstance(step, BaseException):
            raise step
        return step

    return plan, ran


# ---- retry -----------------------------------------------------------------------------------------------------------


def test_a_failed_job_comes_back_after_its_backoff_and_not_before(rota, clock, script):
    plan, ran = script
    plan[:] = [ValueError("one"), ValueError("two"), None]
    job = rota.enqueue("act")
    start = clock.now()
    rota.turn()
    assert statuses(rota, job) == ["FAILED", "PENDING"]
    clock.advance(seconds=59.999)
    rota.turn()
    assert len(ran) == 1
    clock.advance(seconds=0.001)
    rota.turn()
    assert statuses(rota, job) == ["FAILED", "FAILED", "PENDING"]
    clock.advance(seconds=119.999)
    rota.turn()
    assert len(ran) == 2
    clock.advance(seconds=0.001)
    rota.turn()
    assert statuses(rota, job) == ["FAILED", "FAILED", "COMPLETED"]
    assert [(attempt, (at - start) // 1_000_000) for attempt, at in ran] == [(1, 0), (2, 60), (3, 180)]


def test_max_retries_3_is_at_most_4_executions_then_dead_letter(rota, clock, script):
    plan, ran = script
    plan[:] = [ValueError("x")] * 9
    job = rota.enqueue("act")
    for _ in range(9):
        rota.turn()
        clock.advance(hours=1)
    assert len(ran) == 4
    assert statuses(rota, job) == ["FAILED", "FAILED", "FAILED", "DEAD_LETTER"]
    assert rota.store.stats().by_status["DEAD_LETTER"] == 1
    assert rota.wait(job.id, timeout=0).error == "ValueError: x"


def test_max_retries_0_is_one_execution(rota, clock, script):
    plan, ran = script
    plan[:] = [ValueError("x")] * 3
    job = rota.enqueue("act", max_retries=0)
    for _ in range(3):
        rota.turn()
        clock.advance(hours=1)
    assert (len(ran), statuses(rota, job)) == (1, ["DEAD_LETTER"])


def test_the_budget_is_the_jobs_own_also_after_the_template_was_edited(rota, clock, tmp_path, script):
    plan, _ = script
    plan[:] = [ValueError("x")] * 9
    job = rota.enqueue("act")
    rota.turn()
    rota.job(lambda: None, name="other", max_retries=0)
    rota._session.registry._known["act"].code = rota._session.registry._known["other"].code
    rota._session.registry._unsynced = True
    rota._session.registry.sync(rota._session.open().store, clock.now())
    for _ in range(6):
        clock.advance(hours=1)
        rota.turn()
    assert len(statuses(rota, job)) == 4


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermanentError("no"), ["DEAD_LETTER"]),
        (TransientError("maybe"), ["FAILED", "PENDING"]),
        (ValueError("unknown"), ["FAILED", "PENDING"]),
        (SystemExit(3), ["FAILED", "PENDING"]),
        (KeyboardInterrupt(), ["FAILED", "PENDING"]),
        (Skip("nothing to do"), ["SKIPPED"]),
        (Snooze(30), ["SKIPPED", "PENDING"]),
        (Retry(after=5), ["FAILED", "PENDING"]),
    ],
    ids=repr,
)
def test_what_a_handler_raises_says_how_its_chain_goes_on(rota, script, error, expected):
    script[0][:] = [error]
    job = rota.enqueue("act")
    rota.turn()
    assert statuses(rota, job) == expected


class HttpError(Exception):
    def __init__(self, status):
        super().__init__(f"HTTP {status}")
        self.status_code = status


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_an_http_error_that_may_pass_is_retried(rota, script, status):
    script[0][:] = [HttpError(status)]
    job = rota.enqueue("act")
    rota.turn()
    assert statuses(rota, job) == ["FAILED", "PENDING"]
    assert run_of(rota, job.id).error_code == str(status)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_any_other_4xx_is_permanent(rota, script, status):
    script[0][:] = [HttpError(status)]
    job = rota.enqueue("act")
    rota.turn()
    assert statuses(rota, job) == ["DEAD_LETTER"]
    assert tail(rota, job).error_type == "permanent"


def test_retry_after_is_obeyed_and_uses_the_budget(rota, clock, script):
    plan, ran = script
    plan[:] = [Retry(after=7), Retry(after=timedelta(minutes=10)), Retry(after=1), Retry(after=1), None]
    job = rota.enqueue("act")
    rota.turn()
    assert tail(rota, job).run_at == rota.jobs.get(job.id).finished_at + timedelta(seconds=7)
    clock.advance(seconds=7)
    rota.turn()
    clock.advance(minutes=9, seconds=59)
    rota.turn()
    assert len(ran) == 2
    for _ in range(5):
        clock.advance(minutes=1)
        rota.turn()
    assert statuses(rota, job) == ["FAILED", "FAILED", "FAILED", "DEAD_LETTER"]


def test_snoozing_uses_no_budget(rota, clock, script):
    plan, ran = script
    plan[:] = [Snooze(30)] * 6 + [ValueError("x")] * 3 + ["done"]
    job = rota.enqueue("act")
    for _ in range(12):
        rota.turn()
        clock.advance(hours=2)
    assert statuses(rota, job) == ["SKIPPED"] * 6 + ["FAILED"] * 3 + ["COMPLETED"]
    assert (tail(rota, job).snoozes, tail(rota, job).failures) == (6, 3)
    assert len(ran) == 10


def test_a_snooze_of_nothing_waits_a_second_and_does_not_spin(rota, clock, script):
    plan, ran = script
    plan[:] = [Snooze(0)] * 3
    rota.enqueue("act")
    rota.turn()
    rota.turn()
    assert len(ran) == 1
    clock.advance(seconds=1)
    rota.turn()
    assert len(ran) == 2


def test_a_skip_tells_its_reason(rota, script):
    script[0][:] = [Skip("already sent")]
    job = rota.enqueue("act")
    rota.turn()
    assert tail(rota, job).reason == "already sent"


def test_a_dead_letter_can_be_retried_by_hand_with_a_fresh_budget(rota, clock, script):
    plan, ran = script
    plan[:] = [PermanentError("no"), ValueError("x"), "done"]
    job = rota.enqueue("act")
    rota.turn()
    new = rota.jobs.retry(job.id)
    assert (new.attempt, new.failures) == (2, 0)
    with pytest.raises(StillLive, match=new.id):
        rota.jobs.retry(job.id)
    rota.turn()
    clock.advance(minutes=1)
    rota.turn()
    assert statuses(rota, job) == ["DEAD_LETTER", "FAILED", "COMPLETED"]
    assert [attempt for attempt, _ in ran] == [1, 2, 3]
    with pytest.raises(AlreadyEnded, match="COMPLETED"):
        rota.jobs.retry(job.id)


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["timedelta", "datetime"])
def test_a_job_runs_at_its_time_and_not_before(rota, clock, script, form):
    _, ran = script
    when = timedelta(hours=2) if form == "timedelta" else datetime(2026, 3, 1, 14, 0, tzinfo=UTC)
    job = rota.enqueue("act", run_at=when)
    assert rota.jobs.get(job).status is Status.PENDING
    clock.advance(hours=1, minutes=59, seconds=59)
    rota.turn()
    assert ran == []
    clock.advance(seconds=1)
    rota.turn()
    assert statuses(rota, job) == ["COMPLETED"]


def test_a_past_run_at_means_now(rota, script):
    job = rota.enqueue("act", run_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert rota.jobs.get(job).status is Status.QUEUED
    rota.turn()
    assert statuses(rota, job) == ["COMPLETED"]


def test_a_rescheduled_job_runs_at_its_new_time(rota, clock, script):
    job = rota.enqueue("act", run_at=timedelta(hours=5))
    rota.jobs.update(job.id, run_at=timedelta(minutes=1))
    clock.advance(minutes=1)
    rota.turn()
    assert statuses(rota, job) == ["COMPLETED"]


def test_a_clock_that_steps_back_delays_and_loses_nothing(rota, clock, script):
    plan, _ = script
    plan[:] = [ValueError("x"), "done"]
    job = rota.enqueue("act")
    rota.turn()
    clock.step(hours=-1)
    rota.turn()
    assert statuses(rota, job) == ["FAILED", "PENDING"]
    clock.advance(hours=1, minutes=1)
    rota.turn()
    assert statuses(rota, job) == ["FAILED", "COMPLETED"]


def test_a_job_not_started_within_its_queue_ttl_ends_skipped(rota, clock, script):
    _, ran = script
    rota.templates.pause("act")
    job = rota.enqueue("act", queue_ttl=30)
    fresh = rota.enqueue("act", queue_ttl=90)
    rota.turn()
    clock.advance(seconds=31)
    rota.turn()
    assert statuses(rota, job) == ["SKIPPED"]
    assert "queue_ttl" in rota.jobs.get(job.id).reason
    with pytest.raises(JobSkipped, match="queue_ttl") as skipped:
        rota.wait(job.id, timeout=0)
    assert skipped.value.run is None
    rota.templates.resume("act")
    rota.turn()
    assert len(ran) == 1
    rota.turn()
    assert statuses(rota, fresh) == ["COMPLETED"]


def test_a_queue_ttl_counts_from_run_at(rota, clock, script):
    job = rota.enqueue("act", run_at=timedelta(hours=1), queue_ttl=30)
    clock.advance(hours=1)
    rota.turn()
    assert statuses(rota, job) == ["COMPLETED"]


def test_a_handler_over_its_timeout_is_timed_out_and_retried_by_budget(rota, clock):
    @rota.job(timeout=5, max_retries=1, backoff=EXACT)
    def slow():
        clock.advance(seconds=6)

    job = rota.enqueue("slow")
    rota.turn()
    assert statuses(rota, job) == ["TIMED_OUT", "PENDING"]
    assert (run_of(rota, job.id).status, run_of(rota, job.id).error_type) == ("FAILED", "timeout")
    clock.advance(minutes=1)
    rota.turn()
    assert statuses(rota, job) == ["TIMED_OUT", "DEAD_LETTER"]


# ---- order, keys, groups ---------------------------------------------------------------------------------------------


def test_jobs_run_by_priority_then_in_the_order_they_came(rota):
    ran = []

    @rota.job
    def note(n):
        ran.append(n)

    for n, priority in enumerate(["low", "normal", "critical", "normal", "high", 0, 100]):
        rota.enqueue("note", {"n": n}, priority=priority)
    rota.turn()
    assert ran == [2, 6, 4, 1, 3, 0, 5]


def test_more_jobs_than_slots_all_run_in_one_call_and_in_order(rota):
    ran = []

    @rota.job
    def note(n):
        ran.append(n)

    rota.enqueue_many([("note", {"n": n}) for n in range(300)])
    rota.turn()
    assert ran == list(range(300))


def test_a_unique_key_is_held_while_the_chain_lives_and_free_afterwards(rota, clock, script):
    plan, _ = script
    plan[:] = [ValueError("x"), "done"]
    first = rota.enqueue("act", unique_key="invoice-7")
    assert rota.enqueue("act", unique_key="invoice-7").existing
    rota.turn()
    again = rota.enqueue("act", unique_key="invoice-7")
    assert (again.existing, rota.jobs.get(again).root_id) == (True, first.id)
    clock.advance(minutes=1)
    rota.turn()
    assert not rota.enqueue("act", unique_key="invoice-7").existing


def test_a_sequential_group_runs_one_after_the_other_through_a_retry(rota, clock):
    ran = []

    @rota.job(max_retries=1, backoff=EXACT)
    def step(ctx, n):
        ran.append((n, ctx.attempt))
        if n == 2 and ctx.attempt == 1:
            raise ValueError("once")

    group = rota.group([("step", {"n": n}) for n in (1, 2, 3)])
    rota.turn()
    assert ran == [(1, 1), (2, 1)]
    assert rota.groups.get(group.id).status == "RUNNING"
    clock.advance(minutes=1)
    rota.turn()
    assert ran == [(1, 1), (2, 1), (2, 2), (3, 1)]
    assert rota.groups.get(group.id).status == "COMPLETED"


def test_a_stopped_group_is_partial_and_never_starts_its_rest(rota):
    ran = []

    @rota.job
    def step(n):
        ran.append(n)
        raise PermanentError("no")

    group = rota.group([NewJob(name="step", params={"n": n}) for n in (1, 2, 3)], on_failure="stop")
    rota.turn()
    assert ran == [1]
    found = rota.groups.get(group.id)
    assert (found.status, [str(member.status) for member in found.members]) == ("PARTIAL", ["DEAD_LETTER", "CANCELLED", "CANCELLED"])


def test_a_parallel_group_continues_after_a_failure_unless_told_otherwise(rota):
    @rota.job(max_running=1)  # so that none is claimed before the first has ended
    def step(n):
        if n == 1:
            raise PermanentError("no")

    jobs = [NewJob(name="step", params={"n": n}) for n in (1, 2, 3)]
    usual, stopped = rota.group(jobs, mode="parallel"), rota.group(jobs, mode="parallel", on_failure="stop")
    assert (usual.on_failure, stopped.on_failure, rota.group(jobs).on_failure) == ("continue", "stop", "stop")
    rota.turn()
    ends = [[str(member.status) for member in rota.groups.get(group.id).members] for group in (usual, stopped)]
    assert ends == [["DEAD_LETTER", "COMPLETED", "COMPLETED"], ["DEAD_LETTER", "CANCELLED", "CANCELLED"]]


# ---- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pick", [0, 1])
def test_a_chain_waiting_for_its_backoff_is_cancelled_by_any_of_its_ids(rota, clock, script, pick):
    plan, ran = script
    plan[:] = [ValueError("x")] * 5
    job = rota.enqueue("act")
    rota.turn()
    rota.jobs.cancel(rota.jobs.attempts(job.id)[pick].id)
    clock.advance(hours=1)
    rota.turn()
    assert statuses(rota, job) == ["FAILED", "CANCELLED"]
    assert len(ran) == 1


def test_a_handler_that_cancels_its_own_job_and_fails_is_not_retried(rota, clock):
    @rota.job(max_retries=5)
    def suicidal(ctx):
        rota.jobs.cancel(ctx.job.id if hasattr(ctx.job, "id") else ctx.root_id)
        raise ValueError("in that very instant")

    job = rota.enqueue("suicidal")
    rota.turn()
    clock.advance(days=1)
    rota.turn()
    assert statuses(rota, job) == ["CANCELLED"]
    assert run_of(rota, job.id).error == "ValueError: in that very instant"


def test_a_handler_that_is_asked_to_stop_and_finishes_keeps_its_result(rota):
    @rota.job
    def finishes(ctx):
        rota.jobs.cancel(ctx.root_id)
        return "done"

    job = rota.enqueue("finishes")
    rota.turn()
    assert (statuses(rota, job), run_of(rota, job.id).result) == (["COMPLETED"], "done")


# ---- pauses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause", [{}, {"template": "act"}, {"organization": "default"}], ids=["all", "template", "organization"])
def test_what_is_paused_waits_and_goes_on_in_its_order_when_resumed(rota, script, pause):
    _, ran = script
    set_pause(rota, paused=True, **pause)
    jobs = [rota.enqueue("act") for _ in range(3)]
    rota.turn()
    assert ran == []
    assert [job.id for job in rota.queues.jobs()] == [job.id for job in jobs]
    set_pause(rota, paused=False, **pause)
    rota.turn()
    assert len(ran) == 3
    started = [rota.jobs.get(job.id).started_at for job in jobs]
    assert started == sorted(started)


def test_a_turn_after_a_resume_also_writes_the_ends_of_what_it_ran(rota, script):
    rota.templates.pause("act")
    job = rota.enqueue("act")
    rota.turn()
    rota.templates.resume("act")
    rota.turn()
    assert statuses(rota, job) == ["COMPLETED"]


def test_a_pause_of_one_template_lets_the_others_run(rota, script):
    _, ran = script
    rota.job(lambda: None, name="other")
    rota.templates.pause("other")
    waits = rota.enqueue("other")
    rota.enqueue("act")
    rota.turn()
    assert len(ran) == 1
    assert rota.jobs.get(waits.id).status is Status.QUEUED


# ---- progress, artifacts, results ------------------------------------------------------------------------------------


def test_what_a_handler_reports_is_kept_with_its_run(rota):
    @rota.job
    def work(ctx):
        ctx.progress(40, "almost")
        ctx.progress(100, "there")
        ctx.artifact("report.csv")
        ctx.artifact("report.pdf")
        return {"rows": 7}

    job = rota.enqueue("work")
    rota.turn()
    run = run_of(rota, job.id)
    assert (run.progress, run.progress_message, run.artifacts, run.result) == (100, "there", ["report.csv", "report.pdf"], {"rows": 7})


def test_a_checkpoint_is_given_to_the_next_attempt(rota, clock):
    seen = []

    @rota.job(backoff=EXACT)
    def resume(ctx):
        seen.append(ctx.resumed_from)
        if len(seen) == 1:
            ctx.checkpoint({"page": 7})
        raise ValueError("x")

    rota.enqueue("resume")
    for _ in range(3):
        rota.turn()
        clock.advance(minutes=5)
    assert seen == [None, {"page": 7}, {"page": 7}]


def test_a_result_that_can_not_be_stored_spoils_only_its_own_job(rota):
    @rota.job
    def odd(n):
        return object() if n == 1 else "\ud800" if n == 2 else n

    jobs = [rota.enqueue("odd", {"n": n}) for n in range(4)]
    rota.turn()
    assert [statuses(rota, job)[-1] for job in jobs] == ["COMPLETED", "DEAD_LETTER", "DEAD_LETTER", "COMPLETED"]
    assert run_of(rota, jobs[1].id).error.startswith("result could not be stored")


def test_a_result_over_its_limit_spoils_only_its_own_job(tmp_path, clock):
    from rota import Rota

    small = Rota(tmp_path / "small.db", clock=clock, settings=Settings(result_max=100), seed=1)
    small.job(lambda n: "x" * n, name="big")
    jobs = [small.enqueue("big", {"n": n}) for n in (5, 500, 50)]
    small.turn()
    assert [str(small.jobs.get(job.id).status) for job in jobs] == ["COMPLETED", "DEAD_LETTER", "COMPLETED"]
    small.close()


def test_the_order_is_the_same_after_a_restart(rota, tmp_path, clock, script):
    from rota import Rota

    for priority in ("low", "high", "normal", "high", "low"):
        rota.enqueue("act", priority=priority)
    rota.jobs.move(rota.queues.jobs()[-1].id, front=True)
    before = [job.id for job in rota.queues.jobs()]
    rota.close()
    again = Rota(tmp_path / "rota.db", clock=clock, seed=8)
    assert [job.id for job in again.queues.jobs()] == before
    again.close()


def test_times_of_a_job_tell_its_story_in_order(rota, clock, script):
    job = rota.enqueue("act", run_at=timedelta(seconds=10))
    clock.advance(seconds=15)
    rota.turn()
    done = rota.jobs.get(job.id)
    assert done.created_at < done.queued_at <= done.started_at <= done.finished_at
    assert instant(done.queued_at) == clock.now()
