"""What people ask of one chain: cancel, change, move, retry; each with its refusals and its audit."""

import pytest

from rota.errors import AlreadyEnded, IllegalMove, InvalidOption, KeyTaken, NotFound, StillLive
from rota.model.decide import Completed, Crashed, Failed, Skipped, Stopped
from rota.model.values import SECOND, instant
from tests.stores.desk import ANNA, inside, outside
from tests.support.proof import size


def cancel(desk, job_id, **fields):
    return desk.store.cancel(job_id, actor=ANNA, now=desk.now, **fields)


def change(desk, job_id, **fields):
    return desk.store.change(job_id, actor=ANNA, now=desk.now, **fields)


def move(desk, job_id, **fields):
    return desk.store.move(job_id, actor=ANNA, now=desk.now, **fields)


def retry(desk, job_id, **fields):
    return desk.store.retry(job_id, new_id=fields.pop("new_id", None) or desk.id(), actor=ANNA, now=desk.now)


def end_chain(desk, how, **fields):
    """Make a chain that ended so; return its root."""
    root = desk.add(**fields)
    if how == "CANCELLED":
        cancel(desk, root)
    else:
        outcome = {"COMPLETED": Completed(), "DEAD_LETTER": Failed("x", permanent=True), "SKIPPED": Skipped("x")}[how]
        desk.run_to(outcome)
    assert desk.status(root) == how
    return root


# ---- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 60])
def test_a_waiting_job_is_cancelled_at_once_and_has_no_run(desk, delay):
    job_id = desk.add(delay=delay)
    desk.advance(1)
    job = cancel(desk, job_id, reason="not needed")
    assert (job.status, job.reason, job.ended_by, job.cancel_requested_by) == ("CANCELLED", "not needed", "anna", "anna")
    assert instant(job.finished_at) == instant(job.cancel_requested_at) == desk.now
    assert desk.store.run(job_id) is None
    assert desk.claim(5) == []


def test_a_running_job_is_asked_to_stop_once(desk):
    job_id = desk.add()
    job = desk.claim_one()
    asked = cancel(desk, job_id)
    assert (asked.status, asked.cancel_requested_by, instant(asked.cancel_requested_at)) == ("RUNNING", "anna", desk.now)
    desk.advance(5)
    assert cancel(desk, job_id) == asked
    desk.end(job, Stopped())
    assert desk.status(job_id) == "CANCELLED"


def test_a_cancel_again_says_the_same_and_changes_nothing(desk):
    job_id = desk.add()
    first = cancel(desk, job_id)
    desk.advance(5)
    assert cancel(desk, job_id) == first


def test_a_chain_waiting_for_its_backoff_is_cancelled_by_any_of_its_ids(desk):
    for pick in (0, 1, 2):
        root = desk.add()
        desk.run_to(Failed("x"))
        desk.advance(60)
        desk.run_to(Failed("x"))
        ids = [inside(job.id) for job in desk.store.chain(root)]
        assert inside(cancel(desk, ids[pick]).id) == ids[2]
        assert [job.status for job in desk.store.chain(root)] == ["FAILED", "FAILED", "CANCELLED"]
        desk.advance(600)
        assert desk.claim(5) == []


def test_a_chain_that_runs_again_is_asked_to_stop_by_its_first_id(desk):
    root = desk.add()
    desk.run_to(Crashed())
    job = desk.claim_one()
    assert inside(cancel(desk, root).id) == job.job_id
    desk.end(job, Failed("x"))
    assert [each.status for each in desk.store.chain(root)] == ["FAILED", "CANCELLED"]


@pytest.mark.parametrize("how", ["COMPLETED", "DEAD_LETTER", "SKIPPED"])
def test_an_ended_chain_is_refused_with_its_end_named(desk, how):
    root = end_chain(desk, how)
    before = desk.snapshot()
    with pytest.raises(AlreadyEnded, match=f"has ended {how}"):
        cancel(desk, root)
    assert desk.snapshot() == before


@pytest.mark.parametrize(
    "verb", [cancel, lambda desk, job_id: change(desk, job_id, priority=1), lambda desk, job_id: move(desk, job_id, front=True), retry]
)
def test_an_unknown_id_is_not_found(desk, verb):
    with pytest.raises(NotFound):
        verb(desk, desk.id())


def test_cancelling_frees_the_key_and_leaves_the_order_of_the_others(desk):
    first, second, third = desk.add(), desk.add(unique_key="k"), desk.add()
    cancel(desk, second)
    assert desk.order() == [first, third]
    assert not desk.put(desk.row(unique_key="k"))[0].existing


# ---- change ----------------------------------------------------------------------------------------------------------


def test_a_new_priority_gives_a_new_last_position(desk):
    first, second = desk.several(2, priority=75)
    job_id = desk.add()
    changed = change(desk, job_id, priority=75)
    assert (changed.priority, changed.position) == (75, 300)
    assert desk.order() == [first, second, job_id]
    assert change(desk, second, priority=25).position == 100


def test_the_same_priority_keeps_the_place(desk):
    first, second = desk.several(2)
    assert change(desk, first, priority=50).position == 100
    assert desk.order() == [first, second]


def test_params_can_change_while_it_waits(desk):
    queued, pending = desk.add(), desk.add(delay=60)
    assert change(desk, queued, params='{"a":1}').params == {"a": 1}
    assert change(desk, pending, params='{"a":2}', priority=75).params == {"a": 2}
    assert desk.claim_one().params == '{"a":1}'


def test_a_pending_job_can_be_given_another_time(desk):
    job_id = desk.add(delay=60)
    changed = change(desk, job_id, run_at=desk.now + 5 * SECOND)
    assert instant(changed.run_at) == desk.now + 5 * SECOND
    desk.advance(5)
    assert desk.claim_one().job_id == job_id


def test_a_pending_job_takes_its_new_priority_along(desk):
    job_id = desk.add(delay=10)
    change(desk, job_id, priority=75)
    other = desk.add()
    desk.advance(10)
    desk.turn()
    assert desk.order() == [job_id, other]


@pytest.mark.parametrize("fields", [{"params": '{"a":1}'}, {"priority": 75}, {"run_at": 5}])
def test_from_running_on_nothing_can_change(desk, fields):
    job_id = desk.add()
    job = desk.claim_one()
    before = desk.snapshot()
    with pytest.raises(IllegalMove, match=f"Cannot modify {next(iter(fields))} after dispatch"):
        change(desk, job_id, **fields)
    assert desk.snapshot() == before
    desk.done(job)
    with pytest.raises(AlreadyEnded, match="has ended COMPLETED"):
        change(desk, job_id, **fields)


def test_a_queued_job_has_no_other_time(desk):
    with pytest.raises(IllegalMove, match="only a PENDING job"):
        change(desk, desk.add(), run_at=desk.now + SECOND)


def test_a_change_acts_on_the_live_job_of_the_chain_and_leaves_the_others(desk):
    root = desk.add(params='{"a":1}')
    desk.run_to(Failed("x"))
    changed = change(desk, root, params='{"a":2}')
    assert changed.attempt == 2
    assert [job.params for job in desk.store.chain(root)] == [{"a": 1}, {"a": 2}]
    assert desk.store.run(root).params == {"a": 1}


def test_a_change_is_audited_with_before_and_after(desk, maker):
    job_id = desk.add()
    change(desk, job_id, priority=75, params='{"a":1}')
    (entry,) = maker.audit()
    assert (entry["actor"], entry["action"], entry["subject"], entry["at"]) == ("anna", "job.change", "job", desk.now)
    assert inside(entry["subject_id"]) == job_id
    assert (entry["before"]["priority"], entry["after"]["priority"]) == (50, 75)
    assert (entry["before"]["params"], entry["after"]["params"]) == ({}, {"a": 1})


def test_the_same_change_again_changes_nothing_more(desk, maker):
    desk.add(priority=75)
    job_id = desk.add()
    changed = change(desk, job_id, priority=75, params='{"a":1}')
    before = desk.snapshot(), maker.audit()
    assert change(desk, job_id, priority=75, params='{"a":1}') == changed
    assert (desk.snapshot(), maker.audit()) == before


# ---- move ------------------------------------------------------------------------------------------------------------


def test_a_job_moves_to_the_front_before_and_after_another(desk):
    a, b, c, d = desk.several(4)
    move(desk, c, front=True)
    assert desk.order() == [c, a, b, d]
    move(desk, d, before=b)
    assert desk.order() == [c, a, d, b]
    move(desk, c, after=d)
    assert desk.order() == [a, d, c, b]
    move(desk, a, after=b)
    assert desk.order() == [d, c, b, a]
    assert [job.job_id for job in desk.claim(9)] == [d, c, b, a]


def test_a_move_in_a_gap_changes_one_row(desk):
    ids = desk.several(4)
    before = {job_id: desk.job(job_id).position for job_id in ids}
    assert move(desk, ids[3], before=ids[1]).position == 150
    after = {job_id: desk.job(job_id).position for job_id in ids}
    assert [job_id for job_id in ids if before[job_id] != after[job_id]] == [ids[3]]


def test_a_used_up_gap_is_made_wider_and_the_order_does_not_change(desk):
    first, last, *others = desk.several(40)
    for job_id in others:
        wanted = [each for each in desk.order() if each != job_id]
        wanted.insert(wanted.index(last), job_id)
        move(desk, job_id, before=last)
        assert desk.order() == wanted
    positions = desk.positions()
    assert positions == sorted(set(positions))
    assert desk.order()[0] == first


@pytest.mark.prove
def test_hundreds_of_moves_to_one_place_stay_exact(desk):
    ids = desk.several(size(60, prove=300))
    wanted = list(ids)
    for job_id in ids[2:]:
        move(desk, job_id, after=ids[0])
        wanted.remove(job_id)
        wanted.insert(1, job_id)
    assert desk.order() == wanted


def test_only_the_smallest_run_of_neighbours_is_renumbered(desk):
    first, _, *others = desk.several(9)
    for job_id in others[:6]:
        move(desk, job_id, after=first)
    assert desk.positions()[:8] == [100, 101, 103, 106, 112, 125, 150, 200]
    order, before = desk.order(), {job_id: desk.job(job_id).position for job_id in desk.order()}
    move(desk, others[6], after=first)
    after = {job_id: desk.job(job_id).position for job_id in order}
    # one neighbour steps aside: the one behind has free room after it
    assert {job_id for job_id in order if before[job_id] != after[job_id]} == {others[5], others[6]}
    assert desk.positions()[:8] == [100, 101, 102, 103, 106, 112, 125, 150]
    assert [job_id for job_id in desk.order() if job_id != others[6]] == [job_id for job_id in order if job_id != others[6]]


def test_a_move_reorders_the_organizations_own_jobs_and_leaves_those_of_others(desk):
    mine = desk.several(3, organization_id="mine")
    others = desk.several(3, organization_id="others")
    before = {job_id: desk.job(job_id).position for job_id in others}
    move(desk, mine[2], front=True)
    move(desk, mine[0], after=mine[1])
    own = [inside(job.id) for job in desk.store.queue(limit=10) if job.organization == "mine"]
    assert own == [mine[2], mine[1], mine[0]]
    assert {job_id: desk.job(job_id).position for job_id in others} == before


def test_a_lone_job_can_be_moved_to_the_front(desk):
    job_id = desk.add()
    move(desk, job_id, front=True)
    assert desk.order() == [job_id]


def test_only_a_queued_job_moves_and_only_next_to_a_queued_one_of_its_own(desk):
    running = desk.add()
    job = desk.claim_one()
    queued, pending, other_priority, foreign = desk.add(), desk.add(delay=60), desk.add(priority=75), desk.add(organization_id="acme")
    ended = end_chain(desk, "CANCELLED")
    before = desk.snapshot()
    for job_id, where, refusal in (
        (pending, {"front": True}, IllegalMove),
        (running, {"front": True}, IllegalMove),
        (ended, {"front": True}, AlreadyEnded),
        (queued, {"before": running}, IllegalMove),
        (queued, {"after": pending}, IllegalMove),
        (queued, {"before": other_priority}, IllegalMove),
        (queued, {"before": foreign}, IllegalMove),
        (queued, {"before": ended}, AlreadyEnded),
        (queued, {"before": queued}, InvalidOption),
        (queued, {"before": desk.id()}, NotFound),
    ):
        with pytest.raises(refusal):
            move(desk, job_id, **where)
    assert desk.snapshot() == before
    desk.done(job)


def test_a_move_is_audited_and_again_changes_nothing_more(desk, maker):
    a, _b, c = desk.several(3)
    moved = move(desk, c, before=a)
    (entry,) = maker.audit()
    assert (entry["action"], entry["actor"], entry["before"], entry["after"]) == ("job.move", "anna", {"position": 300}, {"position": 0})
    before = desk.snapshot(), maker.audit()
    assert move(desk, c, before=a) == moved
    assert (desk.snapshot(), maker.audit()) == before


# ---- retry -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["DEAD_LETTER", "CANCELLED", "SKIPPED"])
def test_an_ended_chain_gets_one_more_attempt_of_its_tail_with_a_fresh_budget(desk, how):
    root = end_chain(desk, how, params='{"a":1}', unique_key="k")
    other = desk.add()
    new = retry(desk, root)
    assert (new.status, new.attempt, inside(new.root_id), inside(new.retry_of)) == ("QUEUED", 2, root, root)
    assert (new.failures, new.crashes, new.snoozes, new.params, new.unique_key) == (0, 0, 0, {"a": 1}, "k")
    assert desk.order() == [other, inside(new.id)]


def test_a_retry_of_a_used_up_chain_starts_its_budget_again_and_counts_attempts_on(desk):
    root = desk.add(max_retries=1)
    desk.run_to(Failed("x"))
    desk.advance(60)
    desk.run_to(Failed("x"))
    assert [job.status for job in desk.store.chain(root)] == ["FAILED", "DEAD_LETTER"]
    new = retry(desk, root)
    assert (new.attempt, new.failures) == (3, 0)
    desk.run_to(Failed("x"))
    assert [job.status for job in desk.store.chain(root)] == ["FAILED", "DEAD_LETTER", "FAILED", "PENDING"]


def test_any_id_of_the_chain_will_do(desk):
    root = desk.add(max_retries=1)
    desk.run_to(Failed("x"))
    desk.advance(60)
    desk.run_to(Failed("x"))
    middle = desk.tail_id(root)
    assert inside(retry(desk, middle).retry_of) == middle


def test_two_clicks_on_retry_make_one_job(desk):
    root = end_chain(desk, "DEAD_LETTER")
    new = retry(desk, root)
    before = desk.snapshot()
    with pytest.raises(StillLive, match=new.id):
        retry(desk, root)
    assert desk.snapshot() == before


def test_a_repeated_retry_of_the_same_id_says_the_same(desk, maker):
    root, new_id = end_chain(desk, "DEAD_LETTER"), desk.id()
    first = retry(desk, root, new_id=new_id)
    before = desk.snapshot(), maker.audit()
    assert retry(desk, root, new_id=new_id) == first
    assert (desk.snapshot(), maker.audit()) == before


@pytest.mark.parametrize("state", ["PENDING", "QUEUED", "RUNNING", "BACKOFF"])
def test_a_live_chain_is_refused_naming_its_live_job(desk, state):
    root = desk.add(delay=60 if state == "PENDING" else 0)
    if state in {"RUNNING", "BACKOFF"}:
        job = desk.claim_one()
    if state == "BACKOFF":
        desk.end(job, Failed("x"))
    live = desk.tail(root)
    with pytest.raises(StillLive, match=f"{live.id} is {live.status}"):
        retry(desk, root)


def test_a_completed_chain_is_not_retried(desk):
    with pytest.raises(AlreadyEnded, match="ended COMPLETED"):
        retry(desk, end_chain(desk, "COMPLETED"))


def test_a_key_that_another_chain_took_meanwhile_is_refused_naming_the_holder(desk):
    root = end_chain(desk, "DEAD_LETTER", unique_key="k")
    holder = desk.add(unique_key="k")
    with pytest.raises(KeyTaken, match=outside(holder)):
        retry(desk, root)
    desk.done(desk.claim_one())
    assert retry(desk, root).status == "QUEUED"


def test_a_retry_is_audited(desk, maker):
    root = end_chain(desk, "DEAD_LETTER")
    new = retry(desk, root)
    (entry,) = maker.audit()
    assert (entry["action"], inside(entry["subject_id"]), entry["before"]) == ("job.retry", root, {"status": "DEAD_LETTER"})
    assert entry["after"] == {"successor": new.id}


def test_a_retried_direct_execution_is_an_ordinary_job(desk):
    reservation = desk.reserve()
    job = desk.claim_one()
    desk.end(job, Failed("x"))
    new = retry(desk, reservation.job_id)
    assert (new.origin, new.held) == ("api", None)
    assert desk.claim_one().job_id == inside(new.id)


# ---- a look that is taken with the edit --------------------------------------------------------------------------------


def test_a_check_is_given_the_chain_and_may_refuse_the_edit(desk):
    root = desk.add()
    before = desk.store.job(root)
    chains = []
    change(desk, root, priority=60, check=chains.append)
    assert [job.id for job in chains[0]] == [outside(root)]
    assert all(chain == [before] for chain in chains), "as it stood before the edit, however often that is begun"

    def refuse(_chain):
        raise NotFound("not as I have seen it")

    seen = desk.store.job(root)
    for edit in (
        lambda: change(desk, root, priority=70, check=refuse),
        lambda: move(desk, root, front=True, check=refuse),
        lambda: cancel(desk, root, check=refuse),
    ):
        with pytest.raises(NotFound, match="as I have seen"):
            edit()
        assert desk.store.job(root) == seen
