"""Groups: every mode, every rule."""

import pytest

from rota.errors import GroupRefused, NotFound
from rota.model.decide import Completed, Crashed, Failed, Skipped, Stopped
from rota.model.groups import derive
from rota.model.values import SECOND
from tests.stores.desk import ANNA, inside, outside

DEAD = Failed("x", permanent=True)


def make(desk, count=3, mode="sequential", on_failure="stop", **fields):
    rows = [desk.row(**fields) for _ in range(count)]
    group = desk.grouped(rows, mode, on_failure)
    return inside(group.id), [row.job_id for row in rows]


def tails(desk, ids):
    return [str(desk.tail(job_id).status) for job_id in ids]


def status(desk, group_id):
    group = desk.store.group(group_id)
    assert group.status == derive(group.members)
    return str(group.status)


# ---- made ------------------------------------------------------------------------------------------------------------


def test_a_sequential_group_queues_its_first_and_lets_the_others_wait(desk):
    group_id, ids = make(desk)
    assert tails(desk, ids) == ["QUEUED", "PENDING", "PENDING"]
    assert [desk.job(job_id).blockers for job_id in ids] == [0, 1, 1]
    assert [desk.job(job_id).sequence_number for job_id in ids] == [1, 2, 3]
    assert status(desk, group_id) == "QUEUED"
    assert [inside(job.id) for job in desk.store.blockers(ids[2])] == [ids[1]]


def test_a_parallel_group_queues_all_at_once(desk):
    group_id, ids = make(desk, mode="parallel")
    assert tails(desk, ids) == ["QUEUED"] * 3
    assert [job.job_id for job in desk.claim(9)] == ids
    assert status(desk, group_id) == "RUNNING"


def test_a_group_says_what_it_is(desk):
    rows = [desk.row("t"), desk.row("u")]
    group = desk.grouped(rows, "parallel", "continue", name="nightly")
    assert (group.name, group.mode, group.on_failure, group.status) == ("nightly", "parallel", "continue", "QUEUED")
    assert [(m.sequence_number, inside(m.root_id), m.job_type, m.status, m.attempt, m.started) for m in group.members] == [
        (1, rows[0].job_id, "t", "QUEUED", 1, False),
        (2, rows[1].job_id, "u", "QUEUED", 1, False),
    ]
    assert [each.id for each in desk.store.groups(limit=5)] == [group.id]
    assert desk.store.group(desk.id()) is None


def test_a_repeated_call_makes_nothing_more(desk):
    group_id, rows = desk.id(), [desk.row(), desk.row()]
    first = desk.grouped(rows, group_id=group_id)
    before = desk.snapshot()
    assert desk.grouped([desk.row(), desk.row()], group_id=group_id) == first
    assert desk.snapshot() == before


def test_jobs_that_wait_already_can_be_grouped_with_new_ones(desk):
    pending, queued = desk.add(delay=60), desk.add()
    new = desk.row()
    group = desk.grouped([pending, queued, new], "parallel")
    assert [inside(member.root_id) for member in group.members] == [pending, queued, new.job_id]
    other = desk.add(delay=60)
    sequential = desk.grouped([other, desk.row()], "sequential")
    assert [member.status for member in sequential.members] == ["PENDING", "PENDING"]


def test_a_pending_job_that_joins_a_sequence_waits_for_its_time_and_its_turn(desk):
    first, second = desk.row(), desk.add(delay=10)
    desk.grouped([first, second])
    desk.advance(20)
    assert [job.job_id for job in desk.claim(5)] == [first.job_id]
    assert desk.status(second) == "PENDING"
    desk.turn(done=[(desk.store.holding(desk.worker)[0].number, desk.now)])
    assert [job.job_id for job in desk.claim(5)] == [second]


@pytest.mark.parametrize(
    ("state", "mode", "allowed"),
    [
        ("PENDING", "sequential", True),
        ("QUEUED", "sequential", False),
        ("RUNNING", "sequential", False),
        ("COMPLETED", "sequential", False),
        ("BACKOFF", "sequential", False),
        ("PENDING", "parallel", True),
        ("QUEUED", "parallel", True),
        ("RUNNING", "parallel", False),
        ("COMPLETED", "parallel", False),
        ("BACKOFF", "parallel", False),
    ],
)
def test_only_waiting_first_attempts_join(desk, state, mode, allowed):
    root = desk.add(delay=60 if state == "PENDING" else 0)
    if state in {"RUNNING", "COMPLETED", "BACKOFF"}:
        job = desk.claim_one()
        if state == "COMPLETED":
            desk.done(job)
        if state == "BACKOFF":
            desk.end(job, Failed("x"))
    member = desk.tail_id(root)
    before = desk.snapshot()
    if allowed:
        assert desk.grouped([member, desk.row()], mode).members
    else:
        with pytest.raises(GroupRefused, match=outside(member)):
            desk.grouped([desk.row(), member, desk.row()], mode)
        assert desk.snapshot() == before


def test_a_job_already_grouped_can_not_be_put_into_another_group(desk):
    group_id, ids = make(desk, mode="parallel")
    with pytest.raises(GroupRefused, match=f"in group {outside(group_id)} already"):
        desk.grouped([ids[0]], "parallel")


def test_a_job_twice_in_one_group_is_refused(desk):
    job_id = desk.add()
    with pytest.raises(GroupRefused):
        desk.grouped([job_id, job_id], "parallel")
    assert desk.job(job_id).group_id is None


def test_an_unknown_member_and_one_of_another_organization_are_not_found(desk):
    with pytest.raises(NotFound):
        desk.grouped([desk.id()], "parallel")
    with pytest.raises(NotFound):
        desk.grouped([desk.add(organization_id="acme")], "parallel")


def test_a_member_whose_key_is_taken_is_refused(desk):
    holder = desk.add(unique_key="k")
    with pytest.raises(GroupRefused, match="'k' is held by a job outside this group"):
        desk.grouped([desk.row(), desk.row(unique_key="k")])
    assert desk.order() == [holder]


# ---- sequential ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "with result"])
def test_each_starts_only_when_the_one_before_has_ended_well(desk, plain):
    group_id, ids = make(desk)
    for index, job_id in enumerate(ids):
        (job,) = desk.claim(9)
        assert job.job_id == job_id
        assert status(desk, group_id) == "RUNNING"
        if plain:
            desk.done(job)
        else:
            desk.end(job, Completed('"ok"'))
        assert tails(desk, ids)[: index + 1] == ["COMPLETED"] * (index + 1)
    assert status(desk, group_id) == "COMPLETED"


def test_a_member_that_fails_once_and_succeeds_on_retry_leaves_the_group_completed(desk):
    group_id, ids = make(desk, 2)
    desk.run_to(Failed("x"))
    assert tails(desk, ids) == ["PENDING", "PENDING"]
    assert status(desk, group_id) == "RUNNING"
    assert desk.claim(9) == []
    desk.advance(60)
    (job,) = desk.claim(9)
    assert job.root_id == ids[0]
    desk.done(job)
    (job,) = desk.claim(9)
    assert job.root_id == ids[1]
    desk.done(job)
    assert status(desk, group_id) == "COMPLETED"


def test_completed_and_skipped_together_are_completed(desk):
    group_id, ids = make(desk, 3)
    desk.run_to(Skipped("nothing to do"))
    desk.done(desk.claim_one())
    desk.run_to(Skipped("nothing to do"))
    assert tails(desk, ids) == ["SKIPPED", "COMPLETED", "SKIPPED"]
    assert status(desk, group_id) == "COMPLETED"


def test_a_member_that_expired_lets_the_next_one_start(desk):
    rows = [desk.row(expires_at=desk.now + SECOND), desk.row()]
    desk.grouped(rows)
    desk.advance(2)
    assert [job.job_id for job in desk.claim(9)] == [rows[1].job_id]


def test_a_late_completion_of_a_chain_that_goes_on_does_not_start_the_next_member(desk):
    _, ids = make(desk, 2)
    job = desk.claim_one()
    desk.recover(desk.worker, Crashed())
    desk.advance(1)
    assert desk.done(job).late == [job.number]
    assert desk.status(ids[1]) == "PENDING"
    assert desk.job(ids[1]).blockers == 1


def test_a_repeated_end_does_not_let_a_later_member_start_early(desk):
    _, ids = make(desk, 3)
    request = desk.request(endings=[desk.ending(desk.claim_one(), Completed('"x"'))])
    desk.store.turn(request)
    desk.store.turn(request)
    assert tails(desk, ids) == ["COMPLETED", "QUEUED", "PENDING"]
    assert [desk.job(job_id).blockers for job_id in ids] == [0, 0, 1]


# ---- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize(
    ("rule", "rest", "reason", "group_status"),
    [("stop", "CANCELLED", "predecessor failed", "PARTIAL"), ("skip", "SKIPPED", "predecessor failed", "PARTIAL")],
)
def test_after_a_dead_chain_those_not_started_end_by_the_rule(desk, mode, rule, rest, reason, group_status):
    group_id, ids = make(desk, 3, mode, rule)
    desk.run_to(DEAD)
    assert tails(desk, ids) == ["DEAD_LETTER", rest, rest]
    assert [desk.job(job_id).reason for job_id in ids[1:]] == [reason] * 2
    assert status(desk, group_id) == group_status
    assert desk.claim(9) == []


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_continue_starts_the_next_whatever_the_end(desk, mode):
    group_id, ids = make(desk, 3, mode, "continue")
    desk.run_to(DEAD)
    desk.run_to(DEAD)
    desk.done(desk.claim_one())
    assert tails(desk, ids) == ["DEAD_LETTER", "DEAD_LETTER", "COMPLETED"]
    assert status(desk, group_id) == "PARTIAL"


def test_a_retry_that_is_still_to_come_stops_nothing(desk):
    group_id, ids = make(desk, 2, "sequential", "stop", max_retries=1)
    desk.run_to(Failed("x"))
    assert tails(desk, ids) == ["PENDING", "PENDING"]
    desk.advance(60)
    desk.run_to(Failed("x"))
    assert tails(desk, ids) == ["DEAD_LETTER", "CANCELLED"]
    assert status(desk, group_id) == "PARTIAL"


def test_those_under_way_finish_when_another_dies(desk):
    group_id, ids = make(desk, 4, "parallel", "stop")
    running, dying, retrying = desk.claim(3)
    desk.end(retrying, Failed("x"))
    desk.end(dying, DEAD)
    assert tails(desk, ids) == ["RUNNING", "DEAD_LETTER", "PENDING", "CANCELLED"]
    desk.done(running)
    desk.advance(60)
    desk.done(desk.claim_one())
    assert tails(desk, ids) == ["COMPLETED", "DEAD_LETTER", "COMPLETED", "CANCELLED"]
    assert status(desk, group_id) == "PARTIAL"


@pytest.mark.parametrize(("rule", "rest"), [("stop", "CANCELLED"), ("skip", "SKIPPED"), ("continue", "PENDING")])
def test_a_member_that_is_cancelled_is_a_bad_end_too(desk, rule, rest):
    _, ids = make(desk, 3, "sequential", rule)
    job = desk.claim_one()
    desk.store.cancel(ids[0], actor=ANNA, now=desk.now)
    desk.end(job, Stopped())
    desk.store.turn(desk.request())
    expected = "QUEUED" if rule == "continue" else rest
    assert tails(desk, ids)[1] == expected
    assert tails(desk, ids)[2] == rest


def test_a_crash_that_is_the_last_allowed_stops_the_group(desk):
    _, ids = make(desk, 2, "sequential", "stop", max_crashes=1)
    job = desk.claim_one()
    assert desk.recover(desk.worker, Crashed()) == 1
    assert tails(desk, ids) == ["DEAD_LETTER", "CANCELLED"]
    assert job.job_id == ids[0]


def test_a_manual_retry_of_a_dead_member_can_still_complete_it(desk):
    group_id, ids = make(desk, 2, "sequential", "continue")
    desk.run_to(DEAD)
    desk.done(desk.claim_one())
    assert status(desk, group_id) == "PARTIAL"
    desk.store.retry(ids[0], new_id=desk.id(), actor=ANNA, now=desk.now)
    assert status(desk, group_id) == "RUNNING"
    desk.done(desk.claim_one())
    assert status(desk, group_id) == "COMPLETED"


# ---- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_group_that_has_not_started_is_cancelled_whole(desk, mode):
    group_id, ids = make(desk, 3, mode)
    group = desk.store.cancel_group(group_id, actor=ANNA, now=desk.now)
    assert tails(desk, ids) == ["CANCELLED"] * 3
    assert group.status == "CANCELLED"
    assert {desk.job(job_id).ended_by for job_id in ids} == {"anna"}


@pytest.mark.parametrize("rule", ["stop", "continue", "skip"])
def test_cancelling_asks_the_running_to_stop_and_ends_the_waiting(desk, rule):
    group_id, ids = make(desk, 3, "parallel", rule)
    done, running = desk.claim(2)
    desk.done(done)
    group = desk.store.cancel_group(group_id, actor=ANNA, now=desk.now)
    assert tails(desk, ids) == ["COMPLETED", "RUNNING", "CANCELLED"]
    assert group.status == "RUNNING"
    assert desk.store.peek(types=("t",), worker_id=desk.worker).cancelling == (running.number,)
    desk.end(running, Failed("x"))
    assert tails(desk, ids) == ["COMPLETED", "CANCELLED", "CANCELLED"]
    assert status(desk, group_id) == "PARTIAL"


def test_cancelling_reaches_a_member_that_waits_for_its_backoff(desk):
    group_id, ids = make(desk, 2)
    desk.run_to(Failed("x"))
    assert desk.store.cancel_group(group_id, actor=ANNA, now=desk.now).status == "CANCELLED"
    desk.advance(600)
    assert desk.claim(9) == []
    assert tails(desk, ids) == ["CANCELLED", "CANCELLED"]


def test_cancelling_again_changes_nothing_more(desk, maker):
    group_id, _ = make(desk, 3, "parallel")
    desk.claim(1)
    first = desk.store.cancel_group(group_id, actor=ANNA, now=desk.now)
    before = desk.snapshot(), maker.audit()
    desk.advance(5)
    assert desk.store.cancel_group(group_id, actor=ANNA, now=desk.now) == first
    assert [(job.id, job.finished_at, job.cancel_requested_at) for job in desk.snapshot()[0]] == [
        (job.id, job.finished_at, job.cancel_requested_at) for job in before[0][0]
    ]
    assert maker.audit() == before[1]
    assert [entry["action"] for entry in maker.audit()] == ["group.cancel"]


def test_an_unknown_group_is_not_found(desk):
    with pytest.raises(NotFound):
        desk.store.cancel_group(desk.id(), actor=ANNA, now=desk.now)


def test_groups_are_listed_newest_first(desk):
    made = [make(desk, 1)[0] for _ in range(3)]
    assert [inside(group.id) for group in desk.store.groups(limit=2)] == made[::-1][:2]


def test_a_member_cancelled_in_a_sequence_ends_only_those_after_it(desk):
    group = desk.grouped([desk.row() for _ in range(4)])
    third = group.members[2].root_id
    desk.store.cancel(inside(third), actor=ANNA, now=desk.now)
    statuses = [member.status for member in desk.store.group(inside(group.id)).members]
    assert statuses == ["QUEUED", "PENDING", "CANCELLED", "CANCELLED"]


# ---- turns -------------------------------------------------------------------------------------------------------------


def cancel(desk, job_id):
    desk.store.cancel(job_id, actor=ANNA, now=desk.now)


def test_a_member_that_is_cancelled_before_its_turn_lets_nobody_overtake_those_before_it(desk):
    _, ids = make(desk, 4, on_failure="continue")
    first = desk.claim_one()
    cancel(desk, ids[1])
    cancel(desk, ids[2])
    assert desk.claim(9) == []
    assert [inside(job.id) for job in desk.store.blockers(ids[3])] == [ids[0]]
    desk.done(first)
    assert [job.job_id for job in desk.claim(9)] == [ids[3]]


def test_members_that_expire_together_before_their_turn_let_nobody_overtake(desk):
    rows = [desk.row(), desk.row(expires_at=desk.now + SECOND), desk.row(expires_at=desk.now + SECOND), desk.row(), desk.row()]
    desk.grouped(rows)
    first = desk.claim_one()
    desk.advance(2)
    assert desk.claim(9) == []
    assert [desk.job(row.job_id).blockers for row in rows] == [0, 0, 0, 1, 1]
    desk.end(first, Failed("x"))
    assert desk.claim(9) == []
    desk.advance(60)
    desk.done(desk.claim_one())
    assert [job.job_id for job in desk.claim(9)] == [rows[3].job_id]


def test_a_member_that_is_skipped_for_a_parent_before_its_turn_lets_nobody_overtake(desk):
    parent = desk.add("other")
    rows = [desk.row(), desk.row(depends_on=(parent,), on_parent_failure="skip"), desk.row()]
    desk.grouped(rows)
    first = desk.claim_one()
    cancel(desk, parent)
    assert tails(desk, [row.job_id for row in rows]) == ["RUNNING", "SKIPPED", "PENDING"]
    assert desk.claim(9) == []
    desk.done(first)
    assert [job.job_id for job in desk.claim(9)] == [rows[2].job_id]


def test_a_member_that_depends_on_one_before_it_hands_its_turn_on_as_well(desk):
    first = desk.row()
    rows = [first, desk.row(depends_on=(first.job_id,)), desk.row()]
    desk.grouped(rows, "sequential", "continue")
    running = desk.claim_one()
    cancel(desk, rows[1].job_id)
    assert desk.claim(9) == []
    desk.end(running, DEAD)
    assert [job.job_id for job in desk.claim(9)] == [rows[2].job_id]


def test_a_member_that_falls_with_the_one_before_it_hands_on_the_turn_of_both(desk):
    second = desk.row()
    rows = [desk.row(), second, desk.row(depends_on=(second.job_id,), on_parent_failure="skip"), desk.row()]
    desk.grouped(rows, "sequential", "continue")
    running = desk.claim_one()
    cancel(desk, second.job_id)
    assert tails(desk, [row.job_id for row in rows]) == ["RUNNING", "CANCELLED", "SKIPPED", "PENDING"]
    assert desk.claim(9) == []
    desk.done(running)
    assert [job.job_id for job in desk.claim(9)] == [rows[3].job_id]


def test_a_member_cancelled_after_those_before_it_ended_lets_the_next_one_start(desk):
    first = desk.row()
    rows = [first, desk.row(depends_on=(first.job_id,)), desk.row()]
    desk.grouped(rows, "sequential", "continue")
    desk.end(desk.claim_one(), DEAD)
    cancel(desk, rows[1].job_id)
    assert [job.job_id for job in desk.claim(9)] == [rows[2].job_id]


def test_members_of_a_large_group_are_added_together_each_with_its_place(desk):
    rows = [desk.row(("a", "b")[place % 2], delay=place % 3) for place in range(600)]
    rows[7].unique_key = "k"
    members = desk.grouped(rows, "parallel").members
    assert [member.sequence_number for member in members] == list(range(1, 601))
    assert [inside(member.root_id) for member in members] == [row.job_id for row in rows]
    assert [member.status for member in members[:3]] == ["QUEUED", "PENDING", "PENDING"]


def test_a_member_whose_id_is_taken_refuses_the_group(desk):
    taken = desk.add()
    rows = [desk.row() for _ in range(5)]
    rows[2].job_id = taken
    with pytest.raises(GroupRefused):
        desk.grouped(rows, "parallel")
    assert desk.store.groups(limit=10) == []
