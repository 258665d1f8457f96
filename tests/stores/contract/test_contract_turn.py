"""One turn of the wheel: claims, ends, retries, late results, and the same turn twice."""

import threading
from random import Random

import pytest

from rota.model.decide import (
    Completed,
    Crashed,
    Failed,
    Interrupted,
    Released,
    Skipped,
    Snoozed,
    Stopped,
    Successor,
    TimedOut,
    Transition,
    decide_cancelled,
)
from rota.model.states import Status
from rota.model.values import SECOND, instant
from rota.ports.executor import Receipt, Report
from rota.ports.turns import Choice, Ending
from tests.stores.desk import ANNA, Desk, inside
from tests.stores.makers import torn_runs
from tests.support.proof import size

# ---- claim -----------------------------------------------------------------------------------------------------------


def test_a_claim_makes_the_job_running_and_its_run_together(desk):
    job_id = desk.add(params='{"a":1}')
    claimed = desk.claim_one()
    job, run = desk.job(job_id), desk.store.run(job_id)
    assert job.status == "RUNNING"
    assert inside(job.worker_id) == desk.worker
    assert (instant(job.started_at), claimed.started_at) == (desk.now, desk.now)
    assert (inside(run.id), run.status, run.finished_at, run.params) == (claimed.run_id, None, None, {"a": 1})


def test_a_claim_carries_what_an_executor_and_decide_need(desk):
    job_id = desk.add(params='{"a":1}', priority=75, max_retries=9, max_crashes=4, timeout=12.5, organization_id="acme")
    job = desk.claim_one()
    assert (job.job_id, job.root_id, job.root_number, job.attempt) == (job_id, job_id, job.number, 1)
    assert (job.job_type, job.organization_id, job.origin, job.params) == ("t", "acme", "api", '{"a":1}')
    assert (job.priority, job.position, job.max_retries, job.max_crashes, job.timeout) == (75, 100, 9, 4, 12.5)
    assert (job.failures, job.crashes, job.snoozes, job.executor, job.checkpoint) == (0, 0, 0, "thread", None)


def crashed(desk, count, job_type="t"):
    """Have a worker crash under so many new jobs; return the ids of their successors."""
    chains = desk.several(count, job_type)
    victim = desk.id()
    desk.claim(count, types=(job_type,), worker=victim)
    desk.recover(victim, Crashed())
    return [desk.tail_id(each) for each in chains]


@pytest.mark.parametrize("types", [("t",), ("t", "u")])
def test_suspects_are_not_offered_to_a_worker_that_runs_one(desk, types):
    suspects = crashed(desk, 3)
    others = [desk.add(), desk.add(types[-1])]
    assert [job.job_id for job in desk.claim(2, types=types, suspects=False)] == others
    assert [job.job_id for job in desk.claim(5, types=types)] == suspects


@pytest.mark.parametrize("more", [1, 26])
def test_of_very_many_types_the_first_are_offered_in_order_with_suspects_and_without(desk, few_arms, more):
    count = few_arms + more
    types = [f"t{index:03}" for index in range(count)]
    suspects = [each for name in types[:6] for each in crashed(desk, 2, name)]
    others = [desk.add(name, priority=50) for name in reversed(types)]
    first = desk.add(types[10], priority=75)
    assert [job.job_id for job in desk.claim(5, types=types, suspects=False)] == [first, *others[:4]]
    assert [job.job_id for job in desk.claim(5, types=types)] == suspects[:5]
    assert [job.job_id for job in desk.claim(count, types=types, suspects=False)] == others[4:]
    assert [job.job_id for job in desk.claim(count, types=types)] == suspects[5:]


@pytest.mark.parametrize("types", [("t",), ("t", "u")])
def test_what_is_behind_suspects_is_offered_in_the_same_turn_when_one_was_taken(desk, types):
    suspects = crashed(desk, 5)
    others = desk.several(2, types[-1])
    offered = []

    def one_suspect(jobs, _reservation, _usage):
        offered.append([job.job_id for job in jobs])
        take = [job for job in jobs if not job.crashes or job.job_id == suspects[0]]
        return Choice(take, [], again=len(offered) == 1, suspects=False)

    claimed = desk.claim(3, types=types, choose=one_suspect)
    assert offered == [suspects[:3], others]
    assert [job.job_id for job in claimed] == [suspects[0], *others]


@pytest.mark.parametrize("later", [False, True])
def test_where_a_suspect_runs_is_written_with_its_claim_and_nowhere_else(desk, later):
    suspect, other, rounds = crashed(desk, 1)[0], desk.add(), []

    def choose(jobs, _reservation, _usage):
        rounds.append(jobs)
        if later and len(rounds) == 1:
            return Choice([], [], again=True)
        for job in jobs:
            if job.crashes:
                job.executor = "process"
        return Choice(jobs, [])

    assert [job.executor for job in desk.claim(2, choose=choose)] == ["process", "thread"]
    assert (desk.job(suspect).executor, desk.job(other).executor) == ("process", "thread")


def test_nothing_is_claimed_twice(desk, maker):
    desk.several(10)
    other = Desk(maker.open())
    other.ids = desk.ids
    other.worker = desk.id()
    taken = []
    for who in (desk, other) * 3:
        taken += [job.number for job in who.claim(2)]
    assert len(taken) == len(set(taken)) == 10


def test_claimers_at_the_same_time_share_out_the_queue_without_overlap(desk, maker):
    desk.several(60)
    desks = [Desk(maker.open()) for _ in range(3)]
    for index, each in enumerate(desks):
        each.ids = desk.ids
        each.worker = f"{index:032x}"
    taken = [[] for _ in desks]
    start = threading.Barrier(3)

    def work(index):
        start.wait()
        while some := desks[index].claim(3):
            taken[index] += [job.job_id for job in some]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = [job_id for some in taken for job_id in some]
    assert len(together) == len(set(together)) == 60
    assert all(some == sorted(some, key=together.index) for some in taken)


def test_only_types_that_were_asked_for_are_claimed_and_the_others_stay(desk):
    mine, others = desk.add("t"), desk.add("u")
    assert [job.job_id for job in desk.claim(5, types=("t",))] == [mine]
    assert desk.order() == [others]
    assert desk.claim(5, types=()) == []


MANY_TYPES = size(70, prove=2000)
"""More types than a store asks for one by one, where `few_arms` says how many that are."""


def in_many_types(desk, rng):
    """Enqueue jobs of many types: few of most, many of some, of several priorities and organizations, some of which share a position."""
    names = [f"t{n}" for n in range(MANY_TYPES) for _ in range(rng.choice((0, 1, 2)))]
    rows = [desk.row(name, organization_id=rng.choice(("default", "acme", "beta"))) for name in names]
    rows += [
        desk.row(f"t{n}", priority=rng.choice((20, 50, 80)))
        for n in rng.choices(range(0, MANY_TYPES, size(10, prove=50)), k=size(80, prove=400))
    ]
    rng.shuffle(rows)
    desk.put(*rows)
    return {row.job_id: row.job_type for row in rows}


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(3))
def test_jobs_of_very_many_types_are_claimed_in_the_order_of_the_queue(desk, few_arms, seed):
    rng = Random(seed)
    assert few_arms < MANY_TYPES // 2
    types = in_many_types(desk, rng)
    asked = rng.sample(sorted({*types.values(), "unknown"}), MANY_TYPES // 2)
    expected = [job_id for job_id in desk.order() if types[job_id] in asked]
    claimed = []
    while some := desk.claim(rng.choice((1, 7, 90)), types=asked):
        claimed += [job.job_id for job in some]
    assert claimed == expected


@pytest.mark.prove
def test_of_very_many_types_those_behind_parked_ones_are_offered_in_the_order_of_the_queue(desk, few_arms):
    assert few_arms < MANY_TYPES
    types = in_many_types(desk, Random(4))
    order, full = desk.order(), {f"t{n}" for n in range(MANY_TYPES) if n % 4}
    wanted = room = size(20, prove=60)
    rounds = []

    def chooser(candidates, _reservation, _usage):
        nonlocal room
        take = [job for job in candidates if job.job_type not in full][:room]
        rounds.append(len(take))
        room -= len(take)
        return Choice(take=take, park=[(job.number, "organization:default") for job in candidates if job.job_type in full], again=room > 0)

    claimed = [job.job_id for job in desk.claim(wanted, types=sorted(set(types.values())), choose=chooser)]
    assert claimed == [job_id for job_id in order if types[job_id] not in full][:wanted]
    assert len(rounds) > 1


def test_what_the_chooser_leaves_stays_queued_and_what_it_parks_is_not_offered_again(desk):
    first, second, third = desk.several(3)
    offered = []

    def chooser(candidates, reservation, usage):
        offered.append([job.job_id for job in candidates])
        return Choice(take=[candidates[1]], park=[(candidates[0].number, "organization:default")])

    assert [job.job_id for job in desk.claim(3, choose=chooser)] == [second]
    assert offered == [[first, second, third]]
    assert desk.job(first).held == "organization:default"
    assert desk.status(first) == "QUEUED"
    assert [job.job_id for job in desk.claim(3)] == [third]


def test_a_claim_of_a_turn_that_failed_leaves_the_job_queued_without_a_run(desk):
    job_id = desk.add()

    def chooser(candidates, reservation, usage):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        desk.claim(1, choose=chooser)
    assert desk.status(job_id) == "QUEUED"
    assert desk.store.run(job_id) is None


@torn_runs
def test_a_run_id_that_is_taken_claims_nothing_at_all(desk):
    first, second = desk.several(2)
    claimed = desk.claim_one()
    request = desk.request(1)
    request.run_ids = [claimed.run_id] * 2
    with pytest.raises(Exception, match=r"(?i)unique|illegal|duplicate"):
        desk.store.turn(request)
    assert desk.status(second) == "QUEUED"
    assert desk.store.run(second) is None
    assert desk.status(first) == "RUNNING"


def test_nothing_is_claimed_on_older_definitions(desk):
    desk.add()
    old = desk.store.definitions()
    desk.store.pause("template", "x", actor=ANNA, now=desk.now)
    turned = desk.turn(1, definitions=old)
    assert turned.claimed == []
    assert turned.definitions == desk.store.definitions() != old


def test_a_worker_can_ask_what_it_holds(desk):
    desk.several(3, params='{"a":1}')
    claimed = desk.claim(2)
    assert desk.store.holding(desk.worker) == claimed
    assert desk.store.holding(desk.id()) == []
    desk.done(claimed[0])
    assert desk.store.holding(desk.worker) == claimed[1:]


def test_a_worker_that_others_recorded_as_ended_claims_nothing_and_is_told(desk):
    first, second = desk.several(2)
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["t"], now=desk.now)
    assert not desk.turn().given_up
    job = desk.claim_one()
    desk.recover(desk.worker, Crashed())
    desk.store.end_worker(desk.worker, now=desk.now)
    desk.advance(1)
    turned = desk.turn(5, endings=[desk.ending(job, Completed('"late"'))])
    assert (turned.given_up, turned.claimed, turned.late) == (True, [], [job.number])
    assert desk.order() == [desk.tail_id(first), second]
    desk.worker = desk.id()
    assert len(desk.claim(5)) == 2


# ---- ends (DESIGN 2.2) -----------------------------------------------------------------------------------------------


def test_a_plain_completion_ends_job_and_run(desk):
    job_id = desk.add()
    job = desk.claim_one()
    desk.advance(2)
    turned = desk.done(job)
    ended, run = desk.job(job_id), desk.store.run(job_id)
    assert (ended.status, run.status) == ("COMPLETED", "COMPLETED")
    assert instant(ended.finished_at) == instant(run.finished_at) == desk.now
    assert (turned.late, turned.refused, turned.chains_ended) == ([], [], True)
    assert ended.ended_by == "system"


def test_a_completion_keeps_result_and_log(desk):
    job_id = desk.add()
    job = desk.claim_one()
    desk.turn(endings=[desk.ending(job, Completed('{"sent":3}'), log_path="/logs/x.log")])
    run = desk.store.run(job_id)
    assert (run.status, run.result, run.log_path) == ("COMPLETED", {"sent": 3}, "/logs/x.log")


def test_a_failure_keeps_everything_that_is_known_of_it(desk):
    job_id = desk.add()
    desk.run_to(Failed("boom", traceback="line 1\nline 2", error_code="503", exit_code=3))
    job, run = desk.job(job_id), desk.store.run(job_id)
    assert (job.status, job.error_type, run.status) == ("FAILED", "transient", "FAILED")
    assert (run.error, run.error_type, run.traceback, run.error_code, run.exit_code) == ("boom", "transient", "line 1\nline 2", "503", 3)


@pytest.mark.parametrize(
    ("outcome", "status", "run_status"),
    [
        (Completed(), "COMPLETED", "COMPLETED"),
        (Failed("x"), "FAILED", "FAILED"),
        (TimedOut(1.0), "TIMED_OUT", "FAILED"),
        (Failed("x", permanent=True), "DEAD_LETTER", "FAILED"),
        (Crashed(), "FAILED", "FAILED"),
        (Interrupted(), "FAILED", "FAILED"),
        (Released(), "SKIPPED", "SKIPPED"),
        (Snoozed(5.0), "SKIPPED", "SKIPPED"),
        (Skipped("x"), "SKIPPED", "SKIPPED"),
        (Stopped(), "CANCELLED", "CANCELLED"),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, str) else each,
)
def test_every_end_is_written_on_job_and_run(desk, outcome, status, run_status):
    job_id = desk.add()
    desk.run_to(outcome)
    assert (desk.status(job_id), desk.store.run(job_id).status) == (status, run_status)


def test_ends_of_one_turn_are_ended_before_its_claims(desk):
    first, second = desk.several(2)
    job = desk.claim_one()
    turned = desk.done(job, want=1)
    assert desk.status(first) == "COMPLETED"
    assert [each.job_id for each in turned.claimed] == [second]


def test_a_finished_job_is_never_counted_as_running(desk):
    desk.several(3)
    jobs = desk.claim(3)
    desk.store.register(desk.worker, host="h", kind="worker", job_types=["t"], now=desk.now)
    assert [worker.running for worker in desk.store.workers()] == [3]
    desk.done(*jobs[:2])
    desk.end(jobs[2], Failed("x"))
    assert [worker.running for worker in desk.store.workers()] == [0]
    assert desk.store.stats(now=desk.now).by_status["RUNNING"] == 0


# ---- successors ------------------------------------------------------------------------------------------------------


def test_a_failed_attempt_gets_a_successor_that_waits_for_its_time(desk):
    root = desk.add(params='{"a":1}', priority=75, timeout=9.5, organization_id="acme", owner="bob", meta='{"trace":1}')
    job = desk.run_to(Failed("boom"))
    before, after = desk.store.chain(root)
    assert (after.status, after.attempt, after.failures, after.crashes) == ("PENDING", 2, 1, 0)
    assert (inside(after.retry_of), inside(after.root_id)) == (root, root)
    assert instant(after.run_at) == desk.now + 60 * SECOND
    same = ("params", "priority", "timeout", "organization", "owner", "max_retries", "max_crashes", "backoff", "executor", "job_type")
    assert [getattr(before, name) for name in same] == [getattr(after, name) for name in same]
    assert after.number == f"{before.number}.2"
    assert desk.claim(5) == []
    desk.advance(60)
    (retried,) = desk.claim(5)
    assert (retried.attempt, retried.root_id, retried.failures, retried.root_number) == (2, root, 1, job.number)


def test_the_earlier_job_and_run_stay_as_they_were(desk):
    root = desk.add()
    desk.run_to(Failed("boom"))
    kept = desk.job(root), desk.store.run(root)
    desk.advance(60)
    desk.run_to(Failed("again"))
    desk.advance(120)
    desk.done(desk.claim_one())
    assert (desk.job(root), desk.store.run(root)) == kept
    assert [job.status for job in desk.store.chain(root)] == ["FAILED", "FAILED", "COMPLETED"]
    assert [job.attempt for job in desk.store.chain(root)] == [1, 2, 3]


@pytest.mark.parametrize("outcome", [Crashed(), Interrupted(), Released()], ids=lambda each: type(each).__name__)
def test_crashed_interrupted_and_released_jobs_keep_their_place(desk, outcome):
    first, second, third = desk.several(3)
    jobs = desk.claim(2)
    desk.end(jobs[1], outcome)
    desk.end(jobs[0], outcome)
    assert desk.order() == [desk.tail_id(first), desk.tail_id(second), third]
    assert desk.positions() == [100, 200, 300]


def test_a_snoozed_job_comes_back_at_its_time_at_the_end_of_the_line(desk):
    root = desk.add()
    desk.run_to(Snoozed(30.0))
    assert (desk.tail(root).snoozes, desk.tail(root).failures) == (1, 0)
    others = desk.several(2)
    desk.advance(29.9)
    assert desk.order() == others
    desk.advance(0.1)
    desk.turn()
    assert desk.order() == [*others, desk.tail_id(root)]


def test_a_checkpoint_is_given_to_the_successor(desk):
    root = desk.add()
    job = desk.claim_one()
    desk.turn(reports=[Report(job.number, checkpoint='{"page":7}')])
    desk.end(job, Crashed())
    (again,) = desk.claim(1)
    assert again.checkpoint == '{"page":7}'
    assert desk.store.run(root).checkpoint == {"page": 7}
    assert desk.store.holding(desk.worker) == [again]


@pytest.mark.parametrize("outcome", [Released(), Crashed(), Snoozed(5.0), Failed("x")], ids=lambda each: type(each).__name__)
def test_a_checkpoint_survives_an_attempt_that_made_none(desk, outcome):
    desk.add()
    job = desk.claim_one()
    desk.turn(reports=[Report(job.number, checkpoint='{"page":7}')])
    desk.end(job, Crashed())
    desk.run_to(outcome)
    desk.advance(600)
    assert desk.claim_one().checkpoint == '{"page":7}'


def test_a_newer_checkpoint_takes_the_place_of_the_older(desk):
    desk.add()
    for page in (1, 2):
        job = desk.claim_one()
        desk.turn(reports=[Report(job.number, checkpoint=str(page))])
        desk.end(job, Interrupted())
    assert desk.claim_one().checkpoint == "2"


def test_a_checkpoint_of_a_run_that_is_over_is_refused_and_another_beside_it_is_kept(desk):
    desk.several(2)
    lost, kept = desk.claim(2)
    desk.end(lost, Crashed())
    turned = desk.turn(reports=[Report(lost.number, checkpoint="1"), Report(kept.number, checkpoint="2")])
    assert turned.unkept == {lost.number: Receipt.REFUSED}
    assert [desk.store.run(job.job_id).checkpoint for job in (lost, kept)] == [None, 2]


def test_a_queue_ttl_is_kept_by_a_released_job_and_over_for_one_that_started(desk):
    released, failed = desk.several(2, expires_at=desk.now + 30 * SECOND)
    one, other = desk.claim(2)
    desk.end(one, Released())
    desk.end(other, Failed("x"))
    assert desk.tail(released).expires_at is not None
    assert desk.tail(failed).expires_at is None


# ---- the same turn again, and late results ---------------------------------------------------------------------------

ENDS = [
    Completed(),
    Completed('"result"'),
    Failed("x"),
    Failed("x", permanent=True),
    TimedOut(1.0),
    Crashed(),
    Interrupted(),
    Released(),
    Snoozed(5.0),
    Skipped("x"),
    Stopped(),
]


@pytest.mark.parametrize("outcome", ENDS, ids=repr)
def test_the_same_ending_again_changes_nothing_and_is_not_late(desk, outcome):
    desk.add()
    job = desk.claim_one()
    request = desk.request(endings=[desk.ending(job, outcome)])
    desk.store.turn(request)
    before = desk.snapshot()
    turned = desk.store.turn(request)
    assert (turned.late, turned.refused) == ([], [])
    assert desk.snapshot() == before
    assert desk.late() == 0


@pytest.mark.parametrize("outcome", ENDS, ids=repr)
def test_an_ending_decided_anew_after_a_lost_reply_is_not_late_either(desk, outcome):
    root = desk.add()
    job = desk.claim_one()
    at = desk.now
    first = desk.ending(job, outcome)
    desk.turn(endings=[first])
    desk.advance(1)
    again = desk.ending(job, outcome)
    again.at = at
    turned = desk.turn(endings=[again])
    assert (turned.late, desk.late()) == ([], 0)
    assert len(desk.store.chain(root)) == (2 if first.transition.successor else 1)


@pytest.mark.parametrize("outcome", ENDS, ids=repr)
def test_the_same_ending_of_a_cancelled_job_again_changes_nothing_and_is_not_late(desk, outcome):
    job_id = desk.add()
    job = desk.claim_one()
    desk.store.cancel(job_id, actor=ANNA, now=desk.now)
    request = desk.request(endings=[desk.ending(job, outcome)])
    desk.store.turn(request)
    before = desk.snapshot()
    assert desk.store.turn(request).late == []
    assert desk.snapshot() == before


def test_the_same_plain_completions_again_change_nothing_and_are_not_late(desk):
    desk.several(3)
    jobs = desk.claim(3)
    request = desk.request(done=[(job.number, desk.now) for job in jobs])
    desk.store.turn(request)
    before = desk.snapshot()
    assert desk.store.turn(request).late == []
    assert desk.snapshot() == before


def test_a_repeated_turn_claims_others_and_the_lost_ones_are_found_by_asking(desk):
    desk.several(4)
    request = desk.request(2)
    lost = desk.store.turn(request).claimed
    fresh = desk.request(2)
    assert not {job.number for job in desk.store.turn(fresh).claimed} & {job.number for job in lost}
    assert len(desk.store.holding(desk.worker)) == 4


def test_the_same_reports_again_are_kept_once(desk):
    job_id = desk.add()
    job = desk.claim_one()
    request = desk.request(
        reports=[Report(job.number, artifact="a.csv"), Report(job.number, progress=40, message="m"), Report(job.number, checkpoint="[1]")]
    )
    desk.store.turn(request)
    before = desk.snapshot()
    desk.store.turn(request)
    assert desk.snapshot() == before
    assert desk.store.run(job_id).artifacts == ["a.csv"]


LATE = [Completed(), Completed('"late"'), Failed("late"), Failed("late", permanent=True), TimedOut(1.0), Skipped("late"), Stopped()]


@pytest.mark.parametrize("late", LATE, ids=repr)
@pytest.mark.parametrize("recovered", [Crashed(), Interrupted()], ids=lambda each: type(each).__name__)
def test_a_late_result_of_a_worker_that_was_given_up_is_refused_and_counted(desk, late, recovered):
    job_id = desk.add()
    job = desk.claim_one()
    desk.advance(60)
    assert desk.recover(desk.worker, recovered) == 1
    desk.advance(1)
    before = desk.snapshot()
    turned = desk.end(job, late)
    assert turned.late == [job.number]
    assert desk.late() == 1
    after = desk.snapshot()
    assert after[:4] == before[:4]
    assert desk.status(job_id) == "FAILED"


def test_a_late_plain_completion_is_refused_and_counted(desk):
    job_id = desk.add()
    job = desk.claim_one()
    desk.recover(desk.worker, Crashed())
    desk.advance(1)
    turned = desk.done(job)
    assert (turned.late, desk.late(), desk.status(job_id)) == ([job.number], 1, "FAILED")


def test_a_late_result_of_a_cancelled_job_that_recovery_ended_is_late_too(desk):
    job_id = desk.add()
    job = desk.claim_one()
    desk.store.cancel(job_id, actor=ANNA, now=desk.now)
    desk.recover(desk.worker, Crashed())
    desk.advance(1)
    assert desk.end(job, Failed("late")).late == [job.number]
    assert desk.status(job_id) == "CANCELLED"


def test_late_and_timely_results_of_one_turn_are_told_apart(desk):
    desk.several(4)
    jobs = desk.claim(4)
    held = [each for each in desk.held() if each.job.number in {jobs[0].number, jobs[2].number}]
    desk.store.recover([desk.ending(each.job, Crashed()) for each in held], held, now=desk.now)
    desk.advance(1)
    turned = desk.turn(
        done=[(jobs[0].number, desk.now), (jobs[1].number, desk.now)],
        endings=[desk.ending(jobs[2], Completed('"x"')), desk.ending(jobs[3], Completed('"x"'))],
    )
    assert sorted(turned.late) == sorted([jobs[0].number, jobs[2].number])
    assert [desk.status(job.job_id) for job in jobs] == ["FAILED", "COMPLETED", "FAILED", "COMPLETED"]
    assert desk.late() == 2


@pytest.mark.parametrize("plain", [True, False])
def test_a_worker_can_not_end_what_another_holds(desk, plain):
    job_id = desk.add()
    job = desk.claim_one()
    other = desk.id()
    if plain:
        turned = desk.turn(done=[(job.number, desk.now)], worker=other)
    else:
        turned = desk.turn(endings=[desk.ending(job, Completed('"x"'))], worker=other)
    assert turned.late == [job.number]
    assert (desk.status(job_id), desk.store.run(job_id).status) == ("RUNNING", None)
    desk.done(job)
    assert desk.status(job_id) == "COMPLETED"


def test_an_ending_of_an_unknown_job_is_late_and_nothing_else(desk):
    turned = desk.turn(endings=[Ending(999, desk.now, Transition(Status.COMPLETED), decide_cancelled(Completed()), desk.id())])
    assert turned.late == [999]


# ---- ends that can't be written --------------------------------------------------------------------------------------


def bad_endings(desk, job):
    good = desk.ending(job, Failed("x"))
    surrogate = "lone \ud800 surrogate"
    illegal = Transition(Status.QUEUED)
    return {
        "error": Ending(job.number, desk.now, Transition(Status.DEAD_LETTER, error=surrogate), good.if_cancelled, desk.id()),
        "result": Ending(job.number, desk.now, Transition(Status.COMPLETED, result=surrogate), good.if_cancelled, desk.id()),
        "traceback": Ending(
            job.number,
            desk.now,
            Transition(Status.FAILED, error="x", traceback=surrogate, successor=Successor(desk.now, 1, 0, 0)),
            good.if_cancelled,
            desk.id(),
        ),
        "reason": Ending(job.number, desk.now, Transition(Status.SKIPPED, reason=surrogate), good.if_cancelled, desk.id()),
        "log_path": Ending(job.number, desk.now, Transition(Status.COMPLETED), good.if_cancelled, desk.id(), surrogate),
        "illegal move": Ending(job.number, desk.now, illegal, good.if_cancelled, desk.id()),
        "successor id": Ending(job.number, desk.now, good.transition, good.if_cancelled, ""),
        "successor time": Ending(
            job.number, desk.now, Transition(Status.FAILED, error="x", successor=Successor(2**70, 1, 0, 0)), good.if_cancelled, desk.id()
        ),
    }


def test_a_turn_says_what_was_written_otherwise_than_decided_also_when_it_is_repeated(desk):
    ids = desk.several(4)
    failed, completed, bad, stopped = jobs = desk.claim(4)
    for job_id in (ids[0], ids[1], ids[3]):
        desk.store.cancel(job_id, actor=ANNA, now=desk.now)
    endings = [
        desk.ending(failed, Failed("boom")),
        desk.ending(completed, Completed('"kept"')),
        bad_endings(desk, bad)["result"],
        desk.ending(stopped, Stopped()),
    ]
    written = {failed.number: "CANCELLED", bad.number: "DEAD_LETTER", stopped.number: "CANCELLED"}
    assert desk.turn(endings=endings).as_written == written
    again = desk.turn(endings=endings)
    assert (again.as_written, again.late) == (written | {completed.number: "COMPLETED"}, [])
    assert [desk.status(job_id) for job_id in ids] == [again.as_written[job.number] for job in jobs]


@pytest.mark.parametrize("what", ["error", "result", "traceback", "reason", "log_path", "illegal move", "successor id", "successor time"])
def test_an_outcome_that_can_not_be_written_spoils_only_its_own_job(desk, what):
    ids = desk.several(5)
    jobs = desk.claim(5)
    bad = bad_endings(desk, jobs[2])[what]
    turned = desk.turn(
        done=[(jobs[0].number, desk.now)],
        endings=[desk.ending(jobs[1], Completed('"kept"')), bad, desk.ending(jobs[3], Failed("kept"))],
        want=1,
    )
    assert [number for number, _ in turned.refused] == [jobs[2].number]
    assert turned.late == []
    assert [desk.status(job_id) for job_id in ids] == ["COMPLETED", "COMPLETED", "DEAD_LETTER", "FAILED", "RUNNING"]
    run = desk.store.run(ids[2])
    assert run.status == "FAILED"
    assert run.error.startswith("result could not be stored")
    assert len(desk.store.chain(ids[3])) == 2
    assert len(desk.store.chain(ids[2])) == 1


def test_a_refused_outcome_again_changes_nothing_and_is_not_late(desk):
    desk.add()
    job = desk.claim_one()
    request = desk.request(endings=[bad_endings(desk, job)["result"]])
    desk.store.turn(request)
    before = desk.snapshot()
    turned = desk.store.turn(request)
    assert turned.late == []
    assert desk.snapshot() == before


def test_a_refused_outcome_does_not_make_the_turn_forget_who_was_late(desk):
    desk.several(3)
    jobs = desk.claim(3)
    held = [each for each in desk.held() if each.job.number == jobs[0].number]
    desk.store.recover([desk.ending(jobs[0], Crashed())], held, now=desk.now)
    desk.advance(1)
    turned = desk.turn(done=[(jobs[0].number, desk.now)], endings=[bad_endings(desk, jobs[1])["result"]])
    assert turned.late == [jobs[0].number]
    assert desk.late() == 1


def test_a_nul_in_a_text_spoils_at_most_its_own_job(desk):
    ids = desk.several(2)
    jobs = desk.claim(2)
    desk.turn(endings=[desk.ending(jobs[0], Failed("before\0after", permanent=True)), desk.ending(jobs[1], Completed('"a\\u0000b"'))])
    assert desk.status(ids[0]) == "DEAD_LETTER"
    assert desk.status(ids[1]) in {"COMPLETED", "DEAD_LETTER"}
    if desk.status(ids[1]) == "COMPLETED":
        assert desk.store.run(ids[1]).result == "a\0b"


def test_texts_of_any_script_come_back_as_they_were(desk):
    words = "žluťoučký 🐎 \u2028 'quotes' \"double\" \\ back \n\t 你好"
    job_id = desk.add()
    desk.run_to(Failed(words, permanent=True, traceback=words))
    run = desk.store.run(job_id)
    assert (run.error, run.traceback) == (words, words)


@pytest.mark.parametrize(
    "report",
    [
        lambda number: Report(number, progress=150),
        lambda number: Report(number, progress=10, message="lone \ud800"),
        lambda number: Report(number, artifact="lone \ud800"),
        lambda number: Report(number, checkpoint="lone \ud800"),
    ],
    ids=["progress", "message", "artifact", "checkpoint"],
)
def test_a_report_that_can_not_be_written_spoils_nothing(desk, report):
    ids = desk.several(3)
    jobs = desk.claim(2)
    turned = desk.turn(1, reports=[report(jobs[0].number), Report(jobs[1].number, progress=20)], done=[(jobs[0].number, desk.now)])
    assert desk.status(ids[0]) == "COMPLETED"
    assert desk.store.run(ids[1]).progress == 20
    assert [job.job_id for job in turned.claimed] == [ids[2]]


# ---- reports ---------------------------------------------------------------------------------------------------------


def test_progress_never_goes_back_and_the_newest_message_stays(desk):
    job_id = desk.add()
    job = desk.claim_one()
    desk.turn(reports=[Report(job.number, progress=40, message="one")])
    desk.turn(reports=[Report(job.number, progress=10, message="two")])
    desk.turn(reports=[Report(job.number, progress=60)])
    run = desk.store.run(job_id)
    assert (run.progress, run.progress_message) == (60, "two")


def test_artifacts_only_grow(desk):
    job_id = desk.add()
    job = desk.claim_one()
    desk.turn(reports=[Report(job.number, artifact="a.csv"), Report(job.number, artifact='b "q".csv')])
    desk.turn(reports=[Report(job.number, artifact="c.csv")])
    assert desk.store.run(job_id).artifacts == ["a.csv", 'b "q".csv', "c.csv"]


def test_what_is_reported_with_the_end_is_kept_and_what_comes_after_it_is_not(desk):
    job_id = desk.add()
    job = desk.claim_one()
    desk.turn(reports=[Report(job.number, artifact="a"), Report(job.number, progress=100)], done=[(job.number, desk.now)])
    desk.turn(reports=[Report(job.number, artifact="late"), Report(job.number, progress=1, message="late", checkpoint="1")])
    run = desk.store.run(job_id)
    assert (run.artifacts, run.progress, run.progress_message, run.checkpoint) == (["a"], 100, None, None)


# ---- cancel and the finishing write ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome", [Failed("x"), Failed("x", permanent=True), TimedOut(1.0), Crashed(), Interrupted(), Released(), Snoozed(5.0)], ids=repr
)
def test_a_handler_that_fails_in_the_instant_of_the_cancel_is_not_retried(desk, outcome):
    job_id = desk.add()
    job = desk.claim_one()
    decided = desk.ending(job, outcome)
    desk.store.cancel(job_id, actor=ANNA, now=desk.now)
    desk.turn(endings=[decided])
    (ended,) = desk.store.chain(job_id)
    assert (ended.status, ended.reason, ended.ended_by) == ("CANCELLED", "cancelled", "anna")
    assert desk.store.run(job_id).status == "CANCELLED"


@pytest.mark.parametrize("result", [None, '"kept"'])
def test_a_handler_that_finishes_first_keeps_its_result(desk, result):
    job_id = desk.add()
    job = desk.claim_one()
    desk.store.cancel(job_id, actor=ANNA, now=desk.now, reason="not needed")
    if result is None:
        desk.done(job)
    else:
        desk.end(job, Completed(result))
    ended = desk.job(job_id)
    # it ended by itself: who asked it to stop is on record, but did not end it, and the reason was not used
    assert (ended.status, ended.ended_by, ended.reason, ended.cancel_requested_by) == ("COMPLETED", "system", None, "anna")
    assert desk.store.run(job_id).result == ("kept" if result else None)


def test_the_reason_of_a_cancel_is_the_reason_of_the_end(desk):
    job_id = desk.add()
    job = desk.claim_one()
    desk.store.cancel(job_id, actor=ANNA, now=desk.now, reason="not needed")
    desk.end(job, Failed("x"))
    assert (desk.job(job_id).status, desk.job(job_id).reason, desk.job(job_id).ended_by) == ("CANCELLED", "not needed", "anna")


# ---- queue_ttl -------------------------------------------------------------------------------------------------------


def test_a_job_not_started_in_time_ends_skipped_with_the_reason(desk):
    waiting = desk.add(expires_at=desk.now + 30 * SECOND)
    pending = desk.add(delay=20, expires_at=desk.now + 30 * SECOND)
    parked = desk.add(expires_at=desk.now + 30 * SECOND)
    desk.claim(1, choose=lambda jobs, _reservation, _usage: Choice(take=[], park=[(jobs[-1].number, "organization:default")]))
    desk.advance(29)
    desk.turn()
    assert desk.status(waiting) == "QUEUED"
    desk.advance(1)
    assert desk.claim(5) == []
    for job_id in (waiting, pending, parked):
        job = desk.job(job_id)
        assert (job.status, job.reason) == ("SKIPPED", "expired: not started within its queue_ttl")
        assert desk.store.run(job_id) is None


def test_a_job_that_started_in_time_does_not_expire(desk):
    job_id = desk.add(expires_at=desk.now + 30 * SECOND)
    job = desk.claim_one()
    desk.advance(60)
    desk.turn()
    assert desk.status(job_id) == "RUNNING"
    desk.done(job)


def test_expiry_is_bounded_per_turn_and_frees_the_key(desk):
    for index in range(5):
        desk.add(unique_key=f"k{index}", expires_at=desk.now + SECOND)
    desk.advance(2)
    desk.turn(limit=2)
    assert len(desk.order()) == 3
    desk.turn(limit=2)
    desk.turn(limit=2)
    assert desk.order() == []
    assert not desk.put(desk.row(unique_key="k0"))[0].existing


def test_a_turn_and_a_peek_say_when_the_next_one_expires(desk):
    desk.add(expires_at=desk.now + 30 * SECOND)
    assert desk.store.peek(types=("t",), worker_id=desk.worker).next_due == desk.now + 30 * SECOND
    assert desk.turn().next_due == desk.now + 30 * SECOND


# ---- peek ------------------------------------------------------------------------------------------------------------


def test_a_peek_tells_what_is_ready_for_these_types(desk):
    def ready(*types):
        return desk.store.peek(types=types, worker_id=desk.worker).ready

    assert not ready("t")
    desk.add("t")
    assert ready("t")
    assert ready("u", "t")
    assert not ready("u")
    assert not ready()
    desk.claim(1)
    assert not ready("t")


def test_a_peek_names_this_workers_jobs_that_were_asked_to_stop(desk):
    ids = desk.several(2)
    jobs = desk.claim(2)
    desk.store.cancel(ids[1], actor=ANNA, now=desk.now)
    assert desk.store.peek(types=("t",), worker_id=desk.worker).cancelling == (jobs[1].number,)
    assert desk.store.peek(types=("t",), worker_id=desk.id()).cancelling == ()
    desk.end(jobs[1], Stopped())
    assert desk.store.peek(types=("t",), worker_id=desk.worker).cancelling == ()
