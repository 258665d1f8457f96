"""A job that follows a group: it waits for the end of every member, and is released once."""

import pytest

from rota.errors import DependencyCycle, GroupRefused, StillNeeded
from rota.model.decide import Completed, Crashed, Failed, Skipped, Stopped
from rota.model.values import SECOND
from rota.stores.verbs import groups
from tests.stores.desk import ANNA, inside

DEAD = Failed("x", permanent=True)


def make(desk, count=3, mode="parallel", on_failure="continue", rule="wait", **fields):
    """Make a group of new jobs; return its id, its members and the job that follows it."""
    rows = [desk.row() for _ in range(count)]
    then = desk.row("then", on_parent_failure=rule, **fields)
    group = desk.grouped(rows, mode, on_failure, then=then)
    return inside(group.id), [row.job_id for row in rows], then.job_id


def state(desk, job_id):
    job = desk.job(job_id)
    return str(job.status), job.blockers


def cancel(desk, job_id):
    desk.store.cancel(job_id, actor=ANNA, now=desk.now)


def retry(desk, job_id):
    desk.store.retry(job_id, new_id=desk.id(), actor=ANNA, now=desk.now)


def test_a_job_that_follows_a_group_waits_for_its_last_member(desk):
    _, _, then = make(desk)
    assert state(desk, then) == ("PENDING", 1)
    desk.run_to(Completed())
    desk.run_to(Completed('"two"'))
    assert state(desk, then) == ("PENDING", 1)
    desk.run_to(Completed())
    assert state(desk, then) == ("QUEUED", 0)


def test_plain_completions_release_it_in_the_turn_that_writes_the_last(desk):
    _, _, then = make(desk)
    jobs = desk.claim(3)
    desk.done(*jobs[1:])
    assert state(desk, then) == ("PENDING", 1)
    turned = desk.done(jobs[0], want=1, types=("then",))
    assert [job.job_id for job in turned.claimed] == [then]


@pytest.mark.parametrize("outcome", [Failed("x"), Crashed()], ids=["failed", "crashed"])
def test_a_member_that_is_tried_again_has_not_ended(desk, outcome):
    _, _, then = make(desk, 1)
    desk.run_to(outcome)
    assert state(desk, then) == ("PENDING", 1)
    desk.advance(600)
    desk.run_to(Completed())
    assert state(desk, then) == ("QUEUED", 0)


@pytest.mark.parametrize(
    ("rule", "ended"), [("wait", ("PENDING", 1)), ("skip", ("SKIPPED", 1)), ("cancel", ("CANCELLED", 1)), ("run", ("QUEUED", 0))]
)
def test_after_a_member_that_failed_the_rule_decides(desk, rule, ended):
    group_id, _, then = make(desk, 2, rule=rule)
    desk.run_to(DEAD)
    assert state(desk, then) == ("PENDING", 1)
    desk.run_to(Completed())
    assert state(desk, then)[0] == ended[0]
    if ended[0] in {"SKIPPED", "CANCELLED"}:
        reason = desk.job(then).reason
        assert group_id[:8] in reason
        assert "PARTIAL" in reason


def test_members_that_were_skipped_are_no_failure(desk):
    _, _, then = make(desk, 2)
    desk.run_to(Skipped("nothing to do"))
    desk.run_to(Completed())
    assert state(desk, then) == ("QUEUED", 0)


def test_one_that_waits_is_released_when_the_failed_member_completes_after_a_retry_by_hand(desk):
    _, ids, then = make(desk, 3)
    desk.run_to(DEAD)
    desk.run_to(Completed())
    desk.run_to(Completed())
    assert state(desk, then) == ("PENDING", 1)
    retry(desk, ids[0])
    desk.run_to(Completed())
    assert state(desk, then) == ("QUEUED", 0)


def test_one_that_was_released_is_not_released_again(desk):
    _, ids, then = make(desk, 2, rule="run")
    desk.run_to(DEAD)
    desk.run_to(Completed())
    desk.run_to(Completed(), types=("then",))
    retry(desk, ids[0])
    desk.run_to(Completed())
    assert desk.status(then) == "COMPLETED"
    assert len(desk.store.chain(then)) == 1


def test_the_last_member_may_be_cancelled_or_expire_or_be_lost(desk):
    for last in ("cancel", "expire", "recover", "stop"):
        rows = [desk.row(), desk.row(expires_at=desk.now + 5 * SECOND if last == "expire" else None, max_crashes=1)]
        then = desk.row("then", on_parent_failure="run")
        desk.grouped(rows, "parallel", "continue", then=then)
        desk.run_to(Completed())
        if last == "cancel":
            cancel(desk, rows[1].job_id)
        elif last == "expire":
            desk.advance(6)
        elif last == "recover":
            desk.claim_one()
            desk.recover(desk.worker, Crashed())
        else:
            desk.run_to(Stopped())
        desk.turn()
        assert state(desk, then.job_id) == ("QUEUED", 0), last
        desk.run_to(Completed(), types=("then",))


def test_a_sequence_that_stops_ends_with_the_member_that_failed(desk):
    _, ids, then = make(desk, 3, "sequential", "stop", rule="run")
    desk.run_to(DEAD)
    assert [desk.status(job_id) for job_id in ids] == ["DEAD_LETTER", "CANCELLED", "CANCELLED"]
    assert state(desk, then) == ("QUEUED", 0)


def test_an_empty_group_runs_its_follower_at_once(desk):
    group_id, _, then = make(desk, 0)
    assert state(desk, then) == ("QUEUED", 0)
    group = desk.store.group(group_id)
    assert (group.status, inside(group.then.root_id)) == ("COMPLETED", then)


def test_cancelling_the_group_cancels_a_follower_that_waits(desk):
    group_id, ids, then = make(desk, 2, rule="run")
    running = desk.claim_one()
    desk.store.cancel_group(group_id, actor=ANNA, now=desk.now)
    assert (desk.status(then), desk.job(then).reason) == ("CANCELLED", "group cancelled")
    desk.end(running, Stopped())
    assert [desk.status(job_id) for job_id in ids] == ["CANCELLED", "CANCELLED"]
    assert len(desk.store.chain(then)) == 1


def test_a_group_names_its_follower_and_a_repeated_call_makes_no_other(desk):
    group_id, rows, then = desk.id(), [desk.row(), desk.row()], desk.row("then", on_parent_failure="run")
    first = desk.grouped(rows, "parallel", then=then, group_id=group_id)
    assert (inside(first.then.root_id), first.then.job_type, first.then.status, first.then.on_parent_failure) == (
        then.job_id,
        "then",
        "PENDING",
        "run",
    )
    before = desk.snapshot()
    assert desk.grouped([desk.row()], "parallel", then=desk.row("then"), group_id=group_id) == first
    assert desk.snapshot() == before


def test_a_follower_says_which_group_it_waits_for(desk):
    group_id, _, then = make(desk, 3)
    desk.run_to(Completed())
    (awaited,) = desk.store.awaited_groups(then)
    assert (inside(awaited.id), len(awaited.members), awaited.status) == (group_id, 3, "RUNNING")
    desk.run_to(Completed())
    desk.run_to(Completed())
    assert desk.store.awaited_groups(then) == []


def test_a_follower_may_depend_on_other_jobs_as_well(desk):
    other = desk.add("other")
    _, _, then = make(desk, 1, depends_on=(other,))
    assert state(desk, then) == ("PENDING", 2)
    desk.run_to(Completed())
    assert state(desk, then) == ("PENDING", 1)
    desk.run_to(Completed(), types=("other",))
    assert state(desk, then) == ("QUEUED", 0)


def test_a_follower_whose_key_is_taken_refuses_the_whole_group(desk):
    desk.add("then", unique_key="k")
    before = desk.snapshot()
    with pytest.raises(GroupRefused, match="'k'"):
        make(desk, 2, unique_key="k")
    assert desk.snapshot() == before


def test_a_member_that_would_wait_for_its_follower_is_refused(desk):
    rows, then = [desk.row(), desk.row(delay=60)], desk.row("then")
    desk.grouped(rows, "parallel", then=then)
    after = desk.add("after", depends_on=(then.job_id,))
    for parent in (then.job_id, after):
        with pytest.raises(DependencyCycle, match="group"):
            desk.store.add_dependencies(rows[1].job_id, [parent], on_failure="wait", actor=ANNA, now=desk.now)


def test_members_are_kept_while_their_follower_has_not_ended(desk):
    _, ids, then = make(desk, 2)
    desk.run_to(Completed("1"))
    desk.run_to(Completed("2"))
    desk.advance(1000)
    with pytest.raises(StillNeeded, match=desk.job(then).number):
        desk.store.discard(ids[0], actor=ANNA, now=desk.now)
    assert desk.store.purge(before=desk.now, limit=100, now=desk.now, dry_run=False).jobs == 0
    desk.run_to(Completed(), types=("then",))
    desk.advance(1000)
    assert desk.store.purge(before=desk.now, limit=100, now=desk.now, dry_run=False).jobs == 3
    assert desk.store.groups(limit=5) == []


def test_an_empty_group_goes_with_its_follower(desk):
    make(desk, 0)
    desk.run_to(Completed(), types=("then",))
    desk.advance(1000)
    desk.store.purge(before=desk.now, limit=100, now=desk.now, dry_run=False)
    assert desk.store.groups(limit=5) == []


def test_the_doctor_finds_nothing_wrong_with_a_follower(desk):
    make(desk, 2)
    findings = desk.store.checkup(now=desk.now, machine=lambda: desk.now, full=True)
    assert [each for each in findings if each.name == "rows" and each.state != "ok"] == []


def test_a_group_whose_members_end_from_the_last_to_the_first_is_looked_at_once_per_end(desk):
    _, ids, then = make(desk, 10)
    jobs = {job.job_id: job for job in desk.claim(10)}
    for job_id in reversed(ids):
        assert state(desk, then) == ("PENDING", 1)
        desk.done(jobs[job_id])
    assert state(desk, then) == ("QUEUED", 0)


def test_results_come_in_the_order_of_the_parents_and_of_the_members(desk):
    first, second, third = desk.several(3)
    child = desk.add("child", depends_on=(third, first, second), on_parent_failure="run")
    for outcome in (Completed('"one"'), DEAD, Completed('{"n": 3}')):
        desk.run_to(outcome)
    page = desk.store.results_before(child, after=None, limit=2)
    assert page.results == ['{"n": 3}', '"one"']
    page = desk.store.results_before(child, after=page.next, limit=2)
    assert (page.results, page.next) == ([None], None)


def test_a_follower_reads_the_results_of_the_members_page_by_page_also_after_a_retry(desk):
    _, _, then = make(desk, 5, rule="run")
    for value in range(4):
        desk.run_to(Completed(str(value)))
    desk.run_to(Failed("x"))
    desk.advance(600)
    desk.run_to(Completed("4"))
    desk.run_to(Failed("x"), types=("then",))
    retried = desk.tail_id(then)
    found, after = [], None
    while True:
        page = desk.store.results_before(retried, after=after, limit=2)
        found += page.results
        after = page.next
        if after is None:
            break
    assert found == ["0", "1", "2", "3", "4"]


def test_results_are_selected_by_template_or_by_parent(desk):
    letters = [desk.add("letter"), desk.add("letter")]
    number = desk.add("number")
    child = desk.add("child", depends_on=(letters[1], number, letters[0]))
    for kind, text in (("letter", '"a"'), ("letter", '"b"'), ("number", "1")):
        desk.run_to(Completed(text), types=(kind,))

    def read(limit: int, **selection: str) -> list[str | None]:
        found, after = [], None
        while True:
            page = desk.store.results_before(child, after=after, limit=limit, **selection)
            found += page.results
            if (after := page.next) is None:
                return found

    for limit in (1, 2, 3, 10):
        assert read(limit) == ['"b"', "1", '"a"']
        assert read(limit, template="letter") == ['"b"', '"a"']
        assert read(limit, template="number") == read(limit, parent=number) == ["1"]
        assert read(limit, parent=letters[0]) == ['"a"']
        assert read(limit, template="nobody") == read(limit, parent=child) == []


def test_large_results_make_a_page_shorter_and_never_empty(desk, monkeypatch):
    monkeypatch.setattr(groups, "RESULTS_MAX", 4000)
    _, _, then = make(desk, 3)
    for _ in range(3):
        desk.run_to(Completed('"' + "x" * 3000 + '"'))
    page = desk.store.results_before(then, after=None, limit=100)
    assert len(page.results) == 1
    assert page.next is not None


def test_a_job_that_waited_for_nobody_has_no_results(desk):
    page = desk.store.results_before(desk.add(), after=None, limit=10)
    assert (page.results, page.next) == ([], None)
