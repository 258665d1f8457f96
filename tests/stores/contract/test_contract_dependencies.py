"""Dependencies: a child waits for all its parents' chains, whatever becomes of them."""

import pytest

from rota.errors import DependencyCycle, IllegalMove, NotFound, UnknownParent
from rota.model.decide import Completed, Crashed, Failed, Interrupted, Released, Skipped, Snoozed, Stopped, TimedOut
from rota.model.values import SECOND
from rota.ports.store import Where
from tests.stores.desk import ANNA, inside, outside
from tests.stores.makers import torn_runs

DEAD = Failed("x", permanent=True)
RETRIED = [Failed("x"), TimedOut(1.0), Crashed(), Interrupted(), Released(), Snoozed(10.0)]
RULES = {"wait": "PENDING", "skip": "SKIPPED", "cancel": "CANCELLED"}


def child(desk, *parents, rule="wait", **fields):
    return desk.add("child", depends_on=tuple(parents), on_parent_failure=rule, **fields)


def depend(desk, job_id, *parents, rule="wait"):
    return desk.store.add_dependencies(job_id, parents, on_failure=rule, actor=ANNA, now=desk.now)


def retry(desk, job_id):
    return inside(desk.store.retry(job_id, new_id=desk.id(), actor=ANNA, now=desk.now).id)


def cancel(desk, job_id):
    desk.store.cancel(job_id, actor=ANNA, now=desk.now)


def end(desk, job_id, outcome):
    """Claim this job, which must be the first in line, and end it so."""
    job = desk.claim_one()
    assert job.root_id == job_id
    return desk.end(job, outcome)


def number(desk, job_id):
    return desk.store.chain(job_id)[0].number


def tail(desk, job_id):
    return str(desk.tail(job_id).status)


def told(desk, **fields):
    """Turn until nobody is left who has to be told."""
    turns = 1
    while desk.turn(**fields).unfinished:
        turns += 1
    return turns


# ---- waiting ---------------------------------------------------------------------------------------------------------


def test_a_child_waits_for_all_its_parents(desk):
    first, second = desk.several(2)
    waits = child(desk, first, second)
    assert (desk.status(waits), desk.job(waits).blockers, desk.job(waits).position) == ("PENDING", 2, 0)
    desk.run_to(Completed())
    assert (desk.status(waits), desk.job(waits).blockers) == ("PENDING", 1)
    desk.run_to(Completed())
    assert (desk.status(waits), desk.job(waits).blockers) == ("QUEUED", 0)
    assert [job.job_id for job in desk.claim(5, types=("t", "child"))] == [waits]


def test_a_child_of_parents_that_have_completed_is_queued_at_once(desk):
    parents = desk.several(2)
    desk.done(*desk.claim(2))
    waits = child(desk, *parents)
    assert (desk.status(waits), desk.job(waits).blockers) == ("QUEUED", 0)
    assert desk.job(waits).queued_at == desk.job(waits).created_at
    (edge, other) = desk.store.graph(waits, limit=10).edges
    assert edge.resolved_at is not None
    assert other.resolved_at is not None


def test_a_child_due_later_waits_for_its_time_too(desk):
    parent = desk.add()
    waits = child(desk, parent, delay=60)
    end(desk, parent, Completed())
    assert (desk.status(waits), desk.job(waits).blockers) == ("PENDING", 0)
    desk.advance(60)
    desk.turn()
    assert desk.status(waits) == "QUEUED"


def test_any_id_of_a_chain_means_the_chain(desk):
    parent = desk.add()
    end(desk, parent, Failed("once"))
    second = desk.tail_id(parent)
    assert second != parent
    waits = child(desk, second, parent)
    assert desk.job(waits).blockers == 1
    desk.advance(60)
    end(desk, parent, Completed())
    assert desk.status(waits) == "QUEUED"
    after = child(desk, parent)
    assert desk.status(after) == "QUEUED"


def test_an_earlier_row_of_the_same_call_can_be_a_parent(desk):
    first = desk.row()
    second = desk.row("child", depends_on=(first.job_id,))
    third = desk.row("child", depends_on=(first.job_id, second.job_id))
    added = desk.put(first, second, third)
    assert [each.status for each in added] == ["QUEUED", "PENDING", "PENDING"]
    assert [desk.job(each.job_id).blockers for each in added] == [0, 1, 2]


def test_a_later_row_of_the_same_call_is_no_parent_yet(desk):
    first = desk.row()
    second = desk.row("child", depends_on=(first.job_id,))
    with pytest.raises(UnknownParent):
        desk.put(second, first)
    assert desk.store.find(Where(), limit=5) == []


def test_many_children_of_one_shape_are_written_together_and_wait_each_for_itself(desk):
    parent, other = desk.several(2)
    rows = [desk.row("child", params=f'{{"n": {index}}}', depends_on=(parent, other)) for index in range(20)]
    added = desk.put(*rows)
    assert [each.number for each in added] == list(range(added[0].number, added[0].number + 20))
    assert {desk.job(each.job_id).blockers for each in added} == {2}
    assert [desk.job(each.job_id).params["n"] for each in added] == list(range(20))
    desk.done(*desk.claim(2))
    assert [job.job_id for job in desk.claim(50, types=("child",))] == [row.job_id for row in rows]


def test_a_repeated_enqueue_of_a_child_changes_nothing(desk):
    parent = desk.add()
    row = desk.row("child", depends_on=(parent,), chosen=True)
    first = desk.put(row)[0]
    before = desk.snapshot()
    again = desk.put(row)[0]
    assert (again.job_id, again.existing, first.existing) == (row.job_id, True, False)
    assert desk.snapshot() == before
    end(desk, parent, Completed())
    assert desk.status(row.job_id) == "QUEUED"


def test_a_key_is_held_while_its_job_waits_for_others(desk):
    parent = desk.add()
    waits = child(desk, parent, unique_key="k")
    again = desk.put(desk.row("child", unique_key="k"))[0]
    assert (again.job_id, again.existing) == (waits, True)


def test_a_child_of_a_refused_call_leaves_nothing_behind(desk):
    parent = desk.add()
    with pytest.raises(UnknownParent):
        desk.put(desk.row("child", depends_on=(parent,)), desk.row("child", depends_on=(desk.id(),)))
    assert [inside(job.id) for _, job in desk.store.find(Where(), limit=5)] == [parent]
    assert desk.store.graph(parent, limit=5).edges == ()


# ---- a parent is judged at the end of its chain ------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("outcome", RETRIED, ids=lambda each: type(each).__name__)
def test_a_parent_waiting_for_its_retry_is_not_a_failure(desk, rule, outcome):
    parent = desk.add()
    waits = child(desk, parent, rule=rule)
    end(desk, parent, outcome)
    assert desk.status(waits) == "PENDING"
    late = child(desk, parent, rule=rule)
    assert desk.status(late) == "PENDING"
    desk.advance(600)
    end(desk, parent, Completed())
    assert [desk.status(waits), desk.status(late)] == ["QUEUED", "QUEUED"]


@pytest.mark.parametrize("outcome", [DEAD, Skipped("x"), Stopped()], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(("rule", "status"), RULES.items())
def test_a_child_follows_its_rule_when_its_parent_ends_otherwise(desk, rule, status, outcome):
    parent, other = desk.several(2)
    waits = child(desk, parent, other, rule=rule)
    end(desk, parent, outcome)
    job = desk.job(waits)
    assert job.status == status
    if rule == "wait":
        assert job.blockers == 2
        return
    assert job.reason == f"{number(desk, parent)}, which it depends on, ended {tail(desk, parent)}"
    assert (job.error_type, job.ended_by, job.cancel_requested_at, job.blockers) == ("dependency", "system", None, 0)
    assert all(edge.resolved_at for edge in desk.store.graph(waits, limit=5).edges)
    assert desk.store.run(waits) is None


def test_a_parent_that_dies_after_several_attempts_is_noticed(desk):
    parent = desk.add(max_retries=2)
    waits = child(desk, parent, rule="skip")
    for _ in range(2):
        end(desk, parent, Failed("x"))
        assert desk.status(waits) == "PENDING"
        desk.advance(600)
    end(desk, parent, Failed("x"))
    assert (tail(desk, parent), desk.status(waits)) == ("DEAD_LETTER", "SKIPPED")


def test_a_parent_that_dies_in_recovery_is_noticed(desk):
    parent = desk.add(max_crashes=1)
    waits = child(desk, parent, rule="cancel")
    desk.claim_one()
    assert desk.recover(desk.worker, Crashed()) == 1
    assert (tail(desk, parent), desk.status(waits)) == ("DEAD_LETTER", "CANCELLED")


@torn_runs
def test_a_parent_whose_run_had_ended_before_its_worker_was_lost_is_noticed(desk, maker):
    parent = desk.add()
    waits = child(desk, parent)
    maker.end_run_only(desk.claim_one().number, "COMPLETED", desk.now)
    desk.recover(desk.worker, Crashed())
    desk.turn()
    assert desk.status(waits) == "QUEUED"


def test_a_parent_that_is_cancelled_or_expires_is_noticed(desk):
    cancelled, expiring = desk.add(), desk.add(expires_at=desk.now + 5 * SECOND)
    skips, cancels = child(desk, cancelled, rule="skip"), child(desk, expiring, rule="cancel")
    cancel(desk, cancelled)
    assert desk.status(skips) == "SKIPPED"
    desk.advance(10)
    desk.turn()
    assert (desk.status(expiring), desk.status(cancels)) == ("SKIPPED", "CANCELLED")


def test_a_parent_that_is_asked_to_stop_is_judged_by_how_it_ends(desk):
    parent = desk.add()
    waits = child(desk, parent, rule="skip")
    job = desk.claim_one()
    cancel(desk, parent)
    assert desk.status(waits) == "PENDING"
    desk.end(job, Completed())
    assert desk.status(waits) == "QUEUED"


def test_a_direct_job_that_is_given_up_is_noticed(desk):
    reservation = desk.reserve()
    waits = child(desk, reservation.job_id, rule="skip")
    assert desk.claim_one().job_id == reservation.job_id
    desk.store.give_up(reservation.id, now=desk.now, stop_running=True)
    assert desk.status(waits) == "SKIPPED"


# ---- parents that had ended before -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "status"), RULES.items())
def test_a_child_of_a_dead_parent_follows_its_rule_at_once(desk, rule, status):
    dead, live = desk.several(2)
    end(desk, dead, DEAD)
    row = desk.row("child", depends_on=(live, dead), on_parent_failure=rule)
    (added,) = desk.put(row)
    job = desk.job(row.job_id)
    assert (added.status, job.status, added.existing) == (status, status, False)
    if rule != "wait":
        assert job.reason == f"{number(desk, dead)}, which it depends on, ended DEAD_LETTER"
        assert job.error_type == "dependency"


def test_a_call_whose_first_row_is_doomed_takes_those_that_depend_on_it_along(desk):
    dead = desk.add()
    end(desk, dead, DEAD)
    first = desk.row("child", depends_on=(dead,), on_parent_failure="skip")
    second = desk.row("child", depends_on=(first.job_id,), on_parent_failure="cancel")
    third = desk.row("child", depends_on=(second.job_id,))
    added = desk.put(first, second, third, desk.row())
    assert [each.status for each in added] == ["SKIPPED", "CANCELLED", "PENDING", "QUEUED"]
    assert desk.job(second.job_id).reason == f"{number(desk, first.job_id)}, which it depends on, ended SKIPPED"


def test_many_children_of_a_dead_parent_end_at_once(desk, few_told):
    dead = desk.add()
    end(desk, dead, DEAD)
    added = desk.put(*(desk.row("child", depends_on=(dead,), on_parent_failure="skip") for _ in range(2 * few_told)))
    assert {each.status for each in added} == {"SKIPPED"}


@pytest.mark.parametrize("when", ["before it died", "after it died"])
def test_a_waiting_child_goes_on_after_its_parent_is_retried_by_hand(desk, when):
    parent = desk.add()
    waits = child(desk, parent) if when == "before it died" else None
    end(desk, parent, DEAD)
    waits = waits or child(desk, parent)
    assert desk.status(waits) == "PENDING"
    retry(desk, parent)
    end(desk, parent, DEAD)
    assert desk.status(waits) == "PENDING"
    retry(desk, parent)
    assert desk.status(waits) == "PENDING"
    end(desk, parent, Completed())
    assert desk.status(waits) == "QUEUED"


def test_a_child_that_was_skipped_stays_so_when_its_parent_comes_back(desk):
    parent = desk.add()
    waits = child(desk, parent, rule="skip")
    end(desk, parent, DEAD)
    retry(desk, parent)
    end(desk, parent, Completed())
    assert desk.status(waits) == "SKIPPED"


def test_a_child_that_is_retried_by_hand_waits_for_nobody(desk):
    parent, other = desk.several(2)
    waits = child(desk, parent, other, rule="skip")
    end(desk, parent, DEAD)
    again = retry(desk, waits)
    assert (desk.status(again), desk.job(again).blockers) == ("QUEUED", 0)
    end(desk, other, DEAD)
    assert desk.status(again) == "QUEUED"


# ---- down the line ---------------------------------------------------------------------------------------------------


def test_a_child_that_is_skipped_or_cancelled_tells_its_own_children(desk):
    first = desk.add()
    second = child(desk, first, rule="skip")
    third = child(desk, second, rule="cancel")
    fourth = child(desk, third, rule="skip")
    waits = child(desk, second)
    end(desk, first, DEAD)
    assert [desk.status(each) for each in (second, third, fourth, waits)] == ["SKIPPED", "CANCELLED", "SKIPPED", "PENDING"]
    assert desk.job(fourth).reason == f"{number(desk, third)}, which it depends on, ended CANCELLED"


def test_a_child_that_a_person_cancels_tells_its_own_children(desk):
    first = desk.add()
    second = child(desk, first)
    third = child(desk, second, rule="skip")
    cancel(desk, second)
    assert [desk.status(each) for each in (first, second, third)] == ["QUEUED", "CANCELLED", "SKIPPED"]
    end(desk, first, Completed())
    assert desk.status(second) == "CANCELLED"


def test_a_long_line_of_dependents_falls_without_end_of_stack(desk, maker):
    # The way along the line is the verbs', so it is the same in every store; on a server each step takes some thirty questions.
    length = {"mongodb": 40, "postgres": 150}.get(maker.name, 2000)
    first = desk.row()
    rows = [first]
    for _ in range(length):
        rows.append(desk.row("child", depends_on=(rows[-1].job_id,), on_parent_failure="skip"))
    desk.put(*rows)
    end(desk, first.job_id, DEAD)
    assert told(desk) > length // 1000
    assert {job.status for _, job in desk.store.find(Where(job_type="child"), limit=10_000)} == {"SKIPPED"}


def test_a_doomed_member_takes_its_group_along_by_the_groups_rule(desk):
    parent = desk.add()
    rows = [desk.row("child", depends_on=(parent,), on_parent_failure="cancel"), desk.row("child"), desk.row("child")]
    desk.grouped(rows, "sequential", "stop")
    after = child(desk, rows[2].job_id, rule="skip")
    end(desk, parent, DEAD)
    assert [desk.status(row.job_id) for row in rows] == ["CANCELLED"] * 3
    assert desk.job(rows[1].job_id).reason == "predecessor failed"
    assert desk.status(after) == "SKIPPED"


@pytest.mark.parametrize(("on_failure", "rest"), [("stop", "CANCELLED"), ("skip", "SKIPPED"), ("continue", "QUEUED")])
def test_a_group_whose_first_member_is_doomed_when_it_is_made_follows_its_rule(desk, on_failure, rest):
    dead = desk.add()
    end(desk, dead, DEAD)
    rows = [desk.row("child", depends_on=(dead,), on_parent_failure="cancel"), desk.row("child"), desk.row("child")]
    desk.grouped(rows, "sequential", on_failure)
    desk.turn()
    third = "PENDING" if rest == "QUEUED" else rest
    assert [desk.status(row.job_id) for row in rows] == ["CANCELLED", rest, third]


def test_a_member_waits_for_its_turn_and_for_its_parents(desk):
    parent = desk.add()
    rows = [desk.row("child"), desk.row("child", depends_on=(parent,))]
    desk.grouped(rows)
    assert desk.job(rows[1].job_id).blockers == 2
    end(desk, parent, Completed())
    assert desk.status(rows[1].job_id) == "PENDING"
    desk.done(*desk.claim(1, types=("child",)))
    assert desk.status(rows[1].job_id) == "QUEUED"


def test_a_member_that_depends_on_the_one_before_it_needs_its_success(desk):
    first = desk.row("child")
    rows = [first, desk.row("child", depends_on=(first.job_id,), on_parent_failure="wait")]
    desk.grouped(rows, "sequential", "continue")
    assert desk.job(rows[1].job_id).blockers == 1
    (edge,) = desk.store.graph(first.job_id, limit=5).edges
    assert (edge.needs, edge.source) == ("success", "user")
    desk.end(desk.claim_one(types=("child",)), DEAD)
    assert desk.status(rows[1].job_id) == "PENDING"


# ---- a hundred thousand children ---------------------------------------------------------------------------------------


def blockers(desk):
    """Return how many jobs the children wait for in all."""
    return sum(job.blockers for _, job in desk.store.find(Where(job_type="child"), limit=10_000))


def test_each_turn_tells_no_more_than_its_limit_and_all_are_told(desk):
    parent = desk.add()
    rows = [desk.row("child", depends_on=(parent,)) for _ in range(200)]
    desk.put(*rows)
    job = desk.claim_one()

    turned = desk.done(job, limit=20)
    still = blockers(desk)
    assert (turned.unfinished, still) == (True, 180)
    assert desk.store.peek(types=(), worker_id=desk.worker).next_due is not None
    turns = 0
    while turned.unfinished:
        turned = desk.turn(limit=20)
        turns += 1
        now_still = blockers(desk)
        assert still - now_still <= 20
        still = now_still
    assert (still, turns) == (0, 10)
    while len(desk.order()) < 200:
        desk.turn(limit=20)
    assert desk.order() == [row.job_id for row in rows]


def test_a_parent_with_many_children_does_not_let_the_children_of_others_wait(desk):
    many, few = desk.several(2)
    desk.put(*(desk.row("child", depends_on=(many,)) for _ in range(400)))
    own = child(desk, few)
    desk.done(*desk.claim(2), limit=20)
    assert desk.status(own) == "QUEUED"


def test_a_cancel_tells_a_bounded_number_and_the_wheel_the_rest(desk, few_told):
    parent = desk.add()
    desk.put(*(desk.row("child", depends_on=(parent,), on_parent_failure="skip") for _ in range(3 * few_told)))
    cancel(desk, parent)
    waiting = Where(status=("PENDING",))
    assert len(desk.store.find(waiting, limit=1000)) == 2 * few_told
    peek = desk.store.peek(types=(), worker_id=desk.worker)
    assert peek.next_due is not None
    assert peek.next_due <= desk.now
    assert told(desk, limit=few_told) in {2, 3}
    assert desk.store.find(waiting, limit=5) == []


def test_a_parent_that_is_retried_before_all_were_told_is_a_live_one_again(desk, few_told):
    parent = desk.add()
    rows = [desk.row("child", depends_on=(parent,), on_parent_failure="skip") for _ in range(few_told + 8)]
    desk.put(*rows)
    cancel(desk, parent)
    retry(desk, parent)
    late = child(desk, parent, rule="skip")
    told(desk)
    assert [desk.status(row.job_id) for row in rows] == ["SKIPPED"] * few_told + ["PENDING"] * 8
    assert desk.status(late) == "PENDING"
    end(desk, parent, Completed())
    told(desk)
    assert [desk.status(row.job_id) for row in rows[few_told:]] == ["QUEUED"] * 8
    assert desk.status(late) == "QUEUED"


# ---- refused ---------------------------------------------------------------------------------------------------------


def refusal(desk, **fields):
    with pytest.raises(UnknownParent) as caught:
        desk.put(desk.row("child", **fields))
    return str(caught.value)


def test_an_unknown_parent_and_one_of_another_organization_are_refused_in_the_same_words(desk):
    foreign, unknown = desk.add(organization_id="acme"), desk.id()
    words = [refusal(desk, depends_on=(each,)).replace(outside(each), "X") for each in (foreign, unknown)]
    assert words[0] == words[1]
    assert "acme" not in words[0]
    desk.put(desk.row("child", depends_on=(foreign,), organization_id="acme"))
    later = child(desk, desk.add())
    for each in (foreign, unknown):
        with pytest.raises(UnknownParent) as caught:
            depend(desk, later, each)
        assert str(caught.value).replace(outside(each), "X") == words[0]


def test_a_job_that_depends_on_itself_is_refused(desk):
    row = desk.row(chosen=True)
    row.depends_on = (row.job_id,)
    with pytest.raises(DependencyCycle) as caught:
        desk.put(row)
    assert caught.value.path == (outside(row.job_id), outside(row.job_id))
    with pytest.raises(DependencyCycle):
        desk.put(desk.row(), row, desk.row(depends_on=row.depends_on))
    row.chosen = False
    with pytest.raises(DependencyCycle):
        desk.put(row, desk.row(depends_on=row.depends_on))
    assert desk.store.find(Where(), limit=5) == []


# ---- added later -----------------------------------------------------------------------------------------------------


def test_a_pending_job_can_be_made_to_wait_for_more(desk):
    parent, waits = desk.add(), desk.add("child", delay=10)
    job = depend(desk, waits, parent)
    assert (inside(job.id), job.blockers) == (waits, 1)
    desk.advance(10)
    desk.turn()
    assert desk.status(waits) == "PENDING"
    end(desk, parent, Completed())
    assert desk.status(waits) == "QUEUED"


def test_what_it_waits_for_already_changes_nothing_and_is_not_audited_again(desk, maker):
    parent, other, waits = desk.add(), desk.add(), desk.add("child", delay=10)
    depend(desk, waits, parent, parent, rule="skip")
    before = desk.snapshot()
    depend(desk, waits, parent, rule="cancel")
    assert desk.snapshot() == before
    assert desk.store.graph(waits, limit=5).edges[0].on_failure == "skip"
    depend(desk, waits, parent, other)
    assert desk.job(waits).blockers == 2
    entries = [(each["actor"], each["action"], each["subject_id"], each["after"]) for each in maker.audit()]
    assert entries == [
        ("anna", "job.depend", waits, {"depends_on": [number(desk, parent)], "on_failure": "skip"}),
        ("anna", "job.depend", waits, {"depends_on": [number(desk, other)], "on_failure": "wait"}),
    ]


@pytest.mark.parametrize(("rule", "status"), RULES.items())
def test_a_parent_added_later_that_is_dead_applies_at_once(desk, rule, status):
    parent, waits = desk.add(), desk.add("child", delay=10)
    end(desk, parent, DEAD)
    assert depend(desk, waits, parent, rule=rule).status == status


def test_a_parent_added_later_that_has_completed_is_no_wait(desk):
    parent, waits = desk.add(), desk.add("child", delay=10)
    end(desk, parent, Completed())
    assert depend(desk, waits, parent).blockers == 0


def test_an_attempt_that_waits_for_its_backoff_can_be_made_to_wait_for_more(desk):
    waits = desk.add()
    end(desk, waits, Failed("x"))
    parent = desk.add("parent")
    assert inside(depend(desk, waits, parent).id) == desk.tail_id(waits)
    desk.advance(600)
    desk.turn()
    assert tail(desk, waits) == "PENDING"
    desk.done(desk.claim_one(types=("parent",)))
    assert tail(desk, waits) == "QUEUED"


@pytest.mark.parametrize("status", ["QUEUED", "RUNNING", "COMPLETED", "CANCELLED"])
def test_only_a_pending_job_can_be_made_to_wait(desk, status):
    job, parent = desk.add(), desk.add()
    if status in {"RUNNING", "COMPLETED"}:
        held = desk.claim_one()
        if status == "COMPLETED":
            desk.done(held)
    elif status == "CANCELLED":
        cancel(desk, job)
    before = desk.snapshot()
    with pytest.raises(IllegalMove, match=f"{number(desk, job)} is {status}: only a PENDING job"):
        depend(desk, job, parent)
    assert desk.snapshot() == before


def test_a_job_that_is_not_there_can_wait_for_nothing(desk):
    with pytest.raises(NotFound):
        depend(desk, desk.id(), desk.add())


def test_a_wait_for_the_end_of_a_member_can_become_one_for_its_success(desk):
    rows = [desk.row("child"), desk.row("child", delay=60)]
    desk.grouped(rows, "sequential", "continue")
    depend(desk, rows[1].job_id, rows[0].job_id)
    assert desk.job(rows[1].job_id).blockers == 1
    desk.end(desk.claim_one(types=("child",)), DEAD)
    assert desk.job(rows[1].job_id).blockers == 1
    retry(desk, rows[0].job_id)
    desk.done(desk.claim_one(types=("child",)))
    assert desk.job(rows[1].job_id).blockers == 0


def test_a_wait_for_the_end_that_is_over_opens_again_for_a_success(desk):
    rows = [desk.row("child"), desk.row("child", delay=60)]
    desk.grouped(rows, "sequential", "continue")
    desk.end(desk.claim_one(types=("child",)), DEAD)
    assert desk.job(rows[1].job_id).blockers == 0
    assert depend(desk, rows[1].job_id, rows[0].job_id).blockers == 1


# ---- circles ---------------------------------------------------------------------------------------------------------


def refused_circle(desk, *jobs):
    """What the error says of a circle through these jobs, in the order of waiting."""
    return tuple(number(desk, job) for job in (*jobs, jobs[0]))


def test_a_circle_through_several_jobs_is_refused_with_its_path(desk):
    first = desk.add("child", delay=60)
    second = child(desk, first)
    third = child(desk, second)
    before = desk.snapshot()
    with pytest.raises(DependencyCycle) as caught:
        depend(desk, first, third)
    assert caught.value.path == refused_circle(desk, first, third, second)
    assert " → ".join(caught.value.path) in str(caught.value)
    assert desk.snapshot() == before
    assert len(desk.store.graph(first, limit=9).edges) == 2


def test_a_job_can_t_be_made_to_wait_for_its_own_chain(desk):
    job = desk.add()
    end(desk, job, Failed("x"))
    with pytest.raises(DependencyCycle) as caught:
        depend(desk, job, desk.tail_id(job))
    assert caught.value.path == (number(desk, job), number(desk, job))


def test_two_ways_to_one_parent_are_no_circle(desk):
    top = desk.add("child", delay=60)
    left, right = child(desk, top), child(desk, top)
    bottom = child(desk, left)
    depend(desk, bottom, right, top)
    below = child(desk, bottom)
    depend(desk, bottom, desk.add("child"))
    assert desk.job(bottom).blockers == 4
    assert desk.job(below).blockers == 1


def test_a_circle_through_a_retry_that_waits_is_found(desk):
    first = desk.add()
    end(desk, first, Failed("x"))
    second = child(desk, first)
    with pytest.raises(DependencyCycle):
        depend(desk, first, second)


def test_a_circle_through_the_order_of_a_group_is_refused(desk):
    rows = [desk.row("child", delay=60), desk.row("child", delay=60), desk.row("child")]
    desk.grouped(rows)
    first, second, third = (row.job_id for row in rows)
    with pytest.raises(DependencyCycle) as caught:
        depend(desk, first, third)
    assert caught.value.path == refused_circle(desk, first, third, second)


def test_a_group_whose_order_closes_a_circle_is_refused_with_its_path(desk):
    first = desk.add("child", delay=60)
    second = child(desk, first)
    before = desk.snapshot()
    with pytest.raises(DependencyCycle) as caught:
        desk.grouped([second, first])
    assert set(caught.value.path) == {number(desk, first), number(desk, second)}
    assert desk.snapshot() == before
    desk.grouped([first, second])
    assert desk.job(second).blockers == 1


def test_a_group_of_new_and_old_jobs_whose_order_closes_a_circle_is_refused(desk):
    old, last = desk.add("child", delay=60), desk.add("child", delay=60)
    new = desk.row("child", depends_on=(last,))
    with pytest.raises(DependencyCycle) as caught:
        desk.grouped([new, old, last])
    assert len(caught.value.path) == 4
    assert desk.store.groups(limit=5) == []


def test_who_has_ended_closes_no_circle(desk):
    first = desk.add("child", delay=60)
    second = child(desk, first)
    cancel(desk, second)
    assert depend(desk, first, second).blockers == 1


# ---- the graph -------------------------------------------------------------------------------------------------------


def shape_of(desk, graph):
    names = {root: job.number for root, job in graph.jobs.items()}
    return set(names.values()), {(names[edge.child], names[edge.parent]) for edge in graph.edges}


def test_the_graph_has_what_a_job_waits_for_and_what_waits_for_it_near_and_far(desk):
    top = desk.add()
    left, right = child(desk, top), child(desk, top)
    middle = child(desk, left, rule="skip")
    bottom = child(desk, middle, right, top)
    child(desk, right)
    graph = desk.store.graph(middle, limit=100)
    wanted = {top, left, middle, bottom}
    edges = {(left, top), (middle, left), (bottom, middle), (bottom, top)}
    assert shape_of(desk, graph) == (
        {number(desk, each) for each in wanted},
        {(number(desk, one), number(desk, other)) for one, other in edges},
    )
    assert (inside(graph.root_id), graph.cut) == (middle, False)
    (edge,) = [edge for edge in graph.edges if inside(edge.child) == middle]
    assert (edge.needs, edge.on_failure, edge.source, edge.resolved_at) == ("success", "skip", "user", None)


def test_the_graph_shows_the_tail_of_each_chain_under_its_root(desk):
    parent = desk.add()
    waits = child(desk, parent)
    end(desk, parent, Failed("x"))
    graph = desk.store.graph(desk.tail_id(parent), limit=10)
    assert inside(graph.root_id) == parent
    assert graph.jobs[outside(parent)].attempt == 2
    assert set(graph.jobs) == {outside(parent), outside(waits)}
    assert desk.store.graph(waits, limit=10).jobs[outside(parent)].status == "PENDING"


def test_the_graph_names_the_source_of_each_edge(desk):
    rows = [desk.row("child"), desk.row("child", depends_on=(desk.add(),))]
    desk.grouped(rows)
    graph = desk.store.graph(rows[1].job_id, limit=10)
    assert sorted(edge.source for edge in graph.edges) == ["group", "user"]


def test_the_graph_is_cut_where_there_is_more_than_asked_for(desk):
    parent = desk.add()
    desk.put(*(desk.row("child", depends_on=(parent,)) for _ in range(50)))
    graph = desk.store.graph(parent, limit=10)
    assert (len(graph.jobs), len(graph.edges), graph.cut) == (10, 9, True)
    whole = desk.store.graph(parent, limit=51)
    assert (len(whole.jobs), len(whole.edges), whole.cut) == (51, 50, False)


def test_a_job_that_nobody_waits_for_is_a_graph_of_its_own(desk):
    job = desk.add()
    graph = desk.store.graph(job, limit=10)
    assert (list(graph.jobs), graph.edges, graph.cut) == ([outside(job)], (), False)
    assert desk.store.graph(desk.id(), limit=10) is None


def test_what_a_job_waits_for_can_be_asked_also_of_parents_that_ended_otherwise(desk):
    dead, retrying, live = desk.several(3)
    waits = child(desk, dead, retrying, live)
    end(desk, dead, DEAD)
    end(desk, retrying, Failed("x"))
    found = {job.number: str(job.status) for job in desk.store.blockers(waits)}
    assert found == {number(desk, dead): "DEAD_LETTER", f"{number(desk, retrying)}.2": "PENDING", number(desk, live): "QUEUED"}


# ---- a child that runs however its parents end -----------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Completed(), DEAD, Skipped("x"), Stopped()], ids=lambda outcome: type(outcome).__name__)
def test_with_the_rule_run_a_child_starts_when_all_parents_have_ended_however_they_ended(desk, outcome):
    first, second = desk.several(2)
    waits = child(desk, first, second, rule="run")
    end(desk, first, outcome)
    assert (desk.status(waits), desk.job(waits).blockers) == ("PENDING", 1)
    end(desk, second, Completed())
    assert (desk.status(waits), desk.job(waits).blockers, desk.job(waits).reason) == ("QUEUED", 0, None)


@pytest.mark.parametrize("outcome", RETRIED, ids=lambda outcome: type(outcome).__name__)
def test_with_the_rule_run_an_attempt_that_is_followed_by_another_is_no_end(desk, outcome):
    parent = desk.add()
    waits = child(desk, parent, rule="run")
    end(desk, parent, outcome)
    assert (desk.status(waits), desk.job(waits).blockers) == ("PENDING", 1)


def test_with_the_rule_run_a_child_of_parents_that_have_ended_is_queued_at_once(desk):
    parents = desk.several(2)
    end(desk, parents[0], DEAD)
    end(desk, parents[1], Completed())
    waits = child(desk, *parents, rule="run")
    assert (desk.status(waits), desk.job(waits).blockers) == ("QUEUED", 0)


def test_with_the_rule_run_a_child_follows_a_parent_that_was_cancelled_or_expired_while_it_waited(desk):
    cancelled, expiring = desk.add(delay=60), desk.add(expires_at=desk.now + 5 * SECOND)
    waits = child(desk, cancelled, expiring, rule="run")
    cancel(desk, cancelled)
    desk.advance(6)
    desk.turn()
    assert (desk.status(waits), desk.job(waits).blockers) == ("QUEUED", 0)


def test_with_the_rule_run_a_child_of_a_cancelled_parent_does_not_wait_for_those_that_its_parent_waited_for(desk):
    first = desk.add()
    middle = child(desk, first, rule="run")
    last = child(desk, middle, rule="run")
    cancel(desk, middle)
    assert (desk.status(last), desk.job(last).blockers) == ("PENDING", 0)
    desk.turn()
    assert desk.status(last) == "QUEUED"


def test_in_a_sequence_a_child_with_the_rule_run_still_waits_for_its_turn(desk):
    first, second = desk.row(), desk.row(delay=60)
    third = desk.row("child", depends_on=(second.job_id,), on_parent_failure="run")
    desk.grouped([first, second, third], "sequential", "continue")
    cancel(desk, second.job_id)
    desk.turn()
    assert (desk.status(third.job_id), desk.job(third.job_id).blockers) == ("PENDING", 1)
    end(desk, first.job_id, Completed())
    assert desk.status(third.job_id) == "QUEUED"


def test_a_job_can_be_made_to_wait_for_the_end_of_others_later(desk):
    waits, parent = desk.add("child", delay=60), desk.add()
    depend(desk, waits, parent, rule="run")
    before = desk.store.audit(limit=50)
    depend(desk, waits, parent, rule="run")
    depend(desk, waits, parent, rule="cancel")
    assert (desk.job(waits).blockers, desk.store.audit(limit=50)) == (1, before)
    end(desk, parent, DEAD)
    assert (desk.status(waits), desk.job(waits).blockers) == ("PENDING", 0)


def test_the_graph_shows_the_rule_run(desk):
    parent = desk.add()
    waits = child(desk, parent, rule="run")
    (edge,) = desk.store.graph(waits, limit=10).edges
    assert (edge.needs, edge.on_failure, edge.source) == ("end", "run", "user")
    assert [inside(job.id) for job in desk.store.blockers(waits)] == [parent]
