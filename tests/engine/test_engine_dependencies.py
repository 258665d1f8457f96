"""Jobs that depend on others, through the engine: from enqueue to explain, with real workers and at any width."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from rota import Actor, Backoff, NewJob, PermanentError
from rota.errors import (
    AlreadyEnded,
    DependencyCycle,
    IllegalMove,
    InvalidOption,
    NotFound,
    PermissionDenied,
    UnknownParent,
)
from rota.model.gate import Role
from rota.model.settings import Settings
from rota.model.values import undashed
from rota.ports.turns import Turn
from tests.faults import invariants
from tests.stores.desk import Desk, inside
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.steps import counted


@pytest.fixture
def ran(rota):
    """Handlers that note their names: `act` completes, `dies` is dead-lettered at once, `flaky` fails the first time."""
    seen = []

    @rota.job
    def act(name: str = ""):
        seen.append(name)

    @rota.job(max_retries=0)
    def dies(name: str = ""):
        seen.append(name)
        raise PermanentError("x")

    @rota.job(backoff=Backoff(base=60, jitter=0))
    def flaky(ctx, name: str = ""):
        seen.append(name)
        if ctx.attempt == 1:
            raise ValueError("x")

    return seen


def status(rota, job):
    return str(rota.jobs.attempts(job.id)[-1].status)


# ---- enqueue -----------------------------------------------------------------------------------------------------------


def test_a_job_runs_after_the_jobs_it_depends_on(rota, ran):
    first = rota.enqueue("act", {"name": "a"})
    second = rota.enqueue("act", {"name": "b"}, priority="high", depends_on=[first])
    third = rota.enqueue("act", {"name": "c"}, priority="critical", depends_on=[first.id, second.number])
    assert (rota.jobs.get(second).status, rota.jobs.get(second).blockers, rota.jobs.get(third).status, rota.jobs.get(third).blockers) == (
        "PENDING",
        1,
        "PENDING",
        2,
    )
    rota.turn()
    assert ran == ["a", "b", "c"]


@pytest.mark.parametrize("form", ["a job", "an id", "a number", "a list", "a tuple of ids", "what enqueue_many gave"])
def test_what_a_job_depends_on_can_be_given_in_every_form(rota, ran, form):
    parent = rota.enqueue("act", run_at=timedelta(minutes=1))
    forms = {
        "a job": parent,
        "an id": parent.id,
        "a number": parent.number,
        "a list": [parent],
        "a tuple of ids": (parent.id, parent.id.replace("-", "")),
        "what enqueue_many gave": rota.enqueue_many([NewJob(name="act", run_at=timedelta(minutes=1))]),
    }
    assert rota.jobs.get(rota.enqueue("act", depends_on=forms[form])).blockers == 1


@pytest.mark.parametrize("given", [None, [], ()])
def test_a_job_that_depends_on_nothing_waits_for_nothing(rota, ran, given):
    assert rota.jobs.get(rota.enqueue("act", depends_on=given)).status == "QUEUED"


def test_a_parent_waiting_for_its_retry_is_not_a_failure(rota, ran, clock):
    parent = rota.enqueue("flaky", {"name": "p"})
    child = rota.enqueue("act", {"name": "c"}, depends_on=parent, on_parent_failure="skip")
    rota.turn()
    assert (status(rota, parent), status(rota, child)) == ("PENDING", "PENDING")
    clock.advance(minutes=1)
    rota.turn()
    assert ran == ["p", "p", "c"]


@pytest.mark.parametrize(("rule", "end"), [(None, "PENDING"), ("wait", "PENDING"), ("skip", "SKIPPED"), ("cancel", "CANCELLED")])
@pytest.mark.parametrize("order", ["child first", "parent first"])
def test_a_dead_parent_is_followed_by_the_childs_rule(rota, ran, rule, end, order):
    parent = rota.enqueue("dies")
    if order == "parent first":
        rota.turn()
    child = rota.enqueue("act", {"name": "c"}, depends_on=parent, on_parent_failure=rule)
    if order == "parent first":
        assert rota.jobs.get(child).status == end
    rota.turn()
    child = rota.jobs.get(child.id)
    assert child.status == end
    assert "c" not in ran
    if end != "PENDING":
        assert child.reason == f"{parent.number}, which it depends on, ended DEAD_LETTER"
        assert rota.explain(child.id).summary.endswith(child.reason)


def test_after_a_manual_retry_of_the_parent_a_waiting_child_goes_on(rota, ran):
    broken = [True]

    @rota.job(max_retries=0)
    def mended():
        if broken:
            raise PermanentError(broken.pop())

    parent = rota.enqueue("mended")
    child = rota.enqueue("act", {"name": "c"}, depends_on=parent)
    rota.turn()
    assert status(rota, child) == "PENDING"
    rota.jobs.retry(parent.id)
    rota.turn()
    assert (status(rota, parent), status(rota, child)) == ("COMPLETED", "COMPLETED")


def test_a_bulk_call_can_hold_parents_and_their_children(rota, ran):
    ids = rota._session.ids.take(3, rota._session.clock.now())
    jobs = [
        NewJob(name="act", params={"name": "a"}, job_id=ids[0]),
        NewJob(name="act", params={"name": "b"}, job_id=ids[1], depends_on=[ids[0]]),
        NewJob(name="act", params={"name": "c"}, job_id=ids[2], depends_on=ids[:2], on_parent_failure="skip"),
    ]
    assert rota.enqueue_many(jobs).accepted == 3
    assert rota.enqueue_many(jobs).existing == 3
    rota.turn()
    assert ran == ["a", "b", "c"]


def test_a_child_in_the_callers_own_transaction_is_seen_with_its_parent_or_not_at_all(rota, ran):
    with suppress(ZeroDivisionError), rota.transaction() as tx:
        parent = rota.enqueue("act", {"name": "p"}, transaction=tx)
        child = rota.enqueue("act", {"name": "c"}, depends_on=parent, transaction=tx)
        assert rota._session.open().store.job(undashed(child.id), transaction=tx).blockers == 1
        raise ZeroDivisionError
    assert rota.jobs.list() == []
    with rota.transaction() as tx:
        parent = rota.enqueue("act", {"name": "p"}, transaction=tx)
        rota.enqueue("act", {"name": "c"}, depends_on=parent, transaction=tx)
    rota.turn()
    assert ran == ["p", "c"]


def test_a_refused_parent_can_be_caught_inside_a_transaction_that_goes_on(rota, ran):
    with rota.transaction() as tx:
        kept = rota.enqueue("act", {"name": "kept"}, transaction=tx)
        with pytest.raises(UnknownParent):
            rota.enqueue("act", depends_on=rota._session.ids.take(1, rota._session.clock.now()), transaction=tx)
    assert [job.id for job in rota.jobs.list()] == [kept.id]


def test_a_rule_that_is_none_is_refused_before_anything_is_written(rota, ran):
    parent = rota.enqueue("act")
    with pytest.raises(InvalidOption, match="on_parent_failure='stop' is not one of wait, skip, cancel"):
        rota.enqueue("act", depends_on=parent, on_parent_failure="stop")
    assert len(rota.jobs.list()) == 1


@pytest.mark.parametrize("settings", [Settings(parents_max=2)])
def test_more_parents_than_the_setting_allows_are_refused(rota, ran):
    parents = [rota.enqueue("act") for _ in range(3)]
    with pytest.raises(InvalidOption, match="3 parents are over the limit of 2"):
        rota.enqueue("act", depends_on=parents)
    with pytest.raises(InvalidOption, match="parents_max"):
        rota.jobs.depend(rota.enqueue("act", run_at=timedelta(1)).id, parents)


def test_a_parent_that_is_not_there_is_refused(rota, ran):
    with pytest.raises(UnknownParent):
        rota.enqueue("act", depends_on=inside(rota._session.ids.take(1, rota._session.clock.now())[0]))
    with pytest.raises((UnknownParent, NotFound)):
        rota.enqueue("act", depends_on="JOB-2026-00042")
    with pytest.raises((UnknownParent, NotFound)):
        rota.enqueue("act", depends_on="nonsense")
    assert rota.jobs.list() == []


# ---- depend and graph ----------------------------------------------------------------------------------------------------


def test_a_job_that_waits_can_be_made_to_wait_for_more(rota, ran, clock):
    child = rota.enqueue("act", {"name": "c"}, run_at=timedelta(seconds=1))
    parent = rota.enqueue("flaky", {"name": "p"})
    assert rota.jobs.depend(child.id, parent).blockers == 1
    assert rota.jobs.depend(child.id, [parent.id]).blockers == 1
    clock.advance(seconds=1)
    rota.turn()
    assert ran == ["p"]
    clock.advance(minutes=1)
    rota.turn()
    assert ran == ["p", "p", "c"]


def test_what_can_t_be_made_to_wait_is_refused(rota, ran):
    queued, later = rota.enqueue("act"), rota.enqueue("act", run_at=timedelta(1))
    with pytest.raises(IllegalMove, match=f"{queued.number} is QUEUED: only a PENDING job"):
        rota.jobs.depend(queued.id, later)
    with pytest.raises(InvalidOption, match="nothing to wait for"):
        rota.jobs.depend(later.id, [])
    with pytest.raises(InvalidOption, match="on_failure='stop'"):
        rota.jobs.depend(later.id, queued, on_failure="stop")
    with pytest.raises(DependencyCycle):
        rota.jobs.depend(later.id, later)
    with pytest.raises(NotFound):
        rota.jobs.depend("JOB-2026-00099", later)


def test_a_circle_is_refused_with_its_path_in_numbers(rota, ran):
    first = rota.enqueue("act", run_at=timedelta(1))
    second = rota.enqueue("act", depends_on=first)
    group = rota.group([second, NewJob(name="act")])
    third = group.members[1]
    with pytest.raises(DependencyCycle) as caught:
        rota.jobs.depend(first.id, third.root_id)
    assert caught.value.path == (first.number, third.number, second.number, first.number)
    assert str(caught.value).startswith(f"{first.number} → {third.number} → {second.number} → {first.number}: ")


def test_the_graph_of_a_job_shows_both_directions(rota, ran):
    top = rota.enqueue("act")
    middle = rota.enqueue("dies", depends_on=top)
    bottom = rota.enqueue("act", depends_on=middle, on_parent_failure="skip")
    graph = rota.jobs.graph(middle.number)
    assert graph.root_id == middle.id
    assert [graph.jobs[each.id].job_type for each in (top, middle, bottom)] == ["act", "dies", "act"]
    assert {(edge.child, edge.parent, edge.on_failure) for edge in graph.edges} == {
        (middle.id, top.id, "wait"),
        (bottom.id, middle.id, "skip"),
    }
    rota.turn()
    graph = rota.jobs.graph(middle.id)
    assert [str(graph.jobs[each.id].status) for each in (top, middle, bottom)] == ["COMPLETED", "DEAD_LETTER", "SKIPPED"]
    assert all(edge.resolved_at is not None for edge in graph.edges)
    with pytest.raises(NotFound):
        rota.jobs.graph("JOB-2026-00099")


@pytest.mark.parametrize("settings", [Settings(graph_max=3)])
def test_a_graph_is_cut_at_the_setting(rota, ran):
    top = rota.enqueue("act")
    for _ in range(5):
        rota.enqueue("act", depends_on=top)
    graph = rota.jobs.graph(top.id)
    assert (len(graph.jobs), graph.cut) == (3, True)


def test_the_gate_keeps_dependencies_inside_an_organization_and_a_users_own_graph_to_itself(rota, ran):
    rota.organizations.create("acme")
    admin, user, other = (Actor(name, "acme", role) for name, role in (("ada", Role.ADMIN), ("uwe", Role.USER), ("ute", Role.USER)))
    foreign = rota.enqueue("act", run_at=timedelta(1))
    own, others = rota.acting_as(user).enqueue("act", run_at=timedelta(1)), rota.acting_as(other).enqueue("act", run_at=timedelta(1))
    rota.acting_as(admin).jobs.depend(own.id, others)
    assert len(rota.acting_as(admin).jobs.graph(own.id).jobs) == 2
    assert list(rota.acting_as(user).jobs.graph(own.id).jobs) == [own.id]
    with pytest.raises(NotFound):
        rota.acting_as(user).jobs.graph(others.id)
    with pytest.raises(PermissionDenied):
        rota.acting_as(user).jobs.depend(own.id, others)
    with pytest.raises(NotFound):
        rota.acting_as(admin).jobs.depend(foreign.id, own)
    with pytest.raises(UnknownParent):
        rota.acting_as(admin).jobs.depend(own.id, foreign)
    with pytest.raises(UnknownParent):
        rota.acting_as(user).enqueue("act", depends_on=foreign)


# ---- explain -------------------------------------------------------------------------------------------------------------


def test_a_child_says_whom_it_waits_for(rota, ran):
    first, second = rota.enqueue("act"), rota.enqueue("flaky")
    child = rota.enqueue("act", depends_on=[first, second])
    words = rota.explain(child.id).summary
    assert words.startswith("waits for ")
    assert set(words.removeprefix("waits for ").split("; ")[0].replace("), ", ")|").split("|")) == {
        f"{first.number} (act, QUEUED)",
        f"{second.number} (flaky, QUEUED)",
    }


def test_a_child_of_a_dead_parent_says_what_can_be_done(rota, ran):
    dead, retrying = rota.enqueue("dies"), rota.enqueue("flaky")
    child = rota.enqueue("act", depends_on=[dead, retrying])
    rota.turn()
    words = rota.explain(child.id).summary
    assert words == f"{dead.number} ended DEAD_LETTER: retry it, or cancel this job; waits for {retrying.number}.2 (flaky, PENDING)"


def test_a_child_of_very_many_parents_names_some_of_them(rota, ran):
    parents = [rota.enqueue("act") for _ in range(40)]
    assert rota.explain(rota.enqueue("act", depends_on=parents).id).summary.endswith(" and 30 more")


def test_a_child_that_has_yet_to_be_told_says_that_it_goes_on(rota, ran):
    parent = rota.enqueue("act")
    rota.enqueue_many([NewJob(name="act", depends_on=parent) for _ in range(600)])
    desk = Desk(rota._session.open().store)
    desk.now = rota._session.clock.now()
    desk.done(desk.claim_one(types=("act",)), limit=100)
    child = next(job for job in rota.jobs.list(status="PENDING", limit=600) if job.blockers)
    assert rota.explain(child.id).summary == f"{parent.number} has completed, and the next turn lets this job go on"


# ---- with real workers ---------------------------------------------------------------------------------------------------


@pytest.mark.paired
def test_a_child_enqueued_in_the_instant_its_parent_ends_is_never_forgotten(live):
    """Parents end while their children come in: whichever is first, every child runs."""
    live.job(lambda: None, name="act")
    children = []

    def come_in():
        for _ in range(150):
            parent = live.enqueue("act")
            children.append(live.enqueue("act", depends_on=parent))
            children.append(live.enqueue("act", depends_on=parent, on_parent_failure="skip"))

    with live.running(concurrency=4):
        threads = [threading.Thread(target=come_in) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for child in children:
            live.wait(child.id, timeout=patient(20))
    assert len(children) == 600
    assert {status(live, child) for child in children} == {"COMPLETED"}


@pytest.mark.paired
def test_a_parent_that_is_cancelled_while_children_come_in_forgets_none(live):
    live.job(lambda: None, name="act")
    parents = [live.enqueue("act", run_at=timedelta(1)) for _ in range(60)]
    children = []

    def come_in():
        children.extend(live.enqueue("act", depends_on=parent, on_parent_failure="skip") for parent in parents)

    thread = threading.Thread(target=come_in)
    thread.start()
    for parent in parents:
        with suppress(AlreadyEnded):
            live.jobs.cancel(parent.id)
    thread.join()
    assert {status(live, child) for child in children} == {"SKIPPED"}


def untold(path):
    """How many wait for an edge that is still open."""
    with invariants.reading(path) as db:
        [[count]] = db.execute("SELECT count(*) FROM job_edges INDEXED BY edges_open WHERE resolved_at IS NULL")
    return count


@pytest.mark.prove
def test_any_number_of_children_of_one_parent_does_not_stop_the_wheel(rota):
    """Each turn is short and bounded while they are told; work of others goes on between them."""
    rota.job(lambda: None, name="act")
    parent = rota.enqueue("act", run_at=timedelta(seconds=1))
    store = rota._session.open().store
    desk = Desk(store)
    desk.ids, desk.now = rota._session.ids, rota._session.clock.now()
    row = desk.row("child", depends_on=(inside(parent.id),))
    for _ in range(CHILDREN // 1000):
        store.enqueue([msgspec.structs.replace(row, job_id=each) for each in desk.ids.take(1000, desk.now)], now=desk.now)
    desk.advance(1)
    (job,) = desk.claim(1, types=("act",))
    # A new lane advances the definitions: that of the jobs below is there before the first turn is put together.
    desk.add("act")
    desk.done(*desk.claim(1, types=("act",)))

    others, took, waiting, path = 0, [], CHILDREN, Path(rota.store.url.removeprefix("sqlite:///"))
    turn = desk.request(1, types=("act",), done=[(job.number, desk.now)])
    while waiting or desk.store.peek(types=(), worker_id=desk.worker).next_due is not None:
        desk.add("act")
        with counted(store) as found:
            turned = store.turn(turn)
        took.append(found.steps)
        others += len(turned.claimed)
        left = untold(path)
        assert waiting - left <= turn.limit
        waiting = left
        turn = desk.request(1, types=("act",))
    assert others == len(took)
    with invariants.reading(path) as db:
        [[queued]] = db.execute("SELECT count(*) FROM jobs WHERE job_type = 'child' AND status = 'QUEUED'")
    assert queued == CHILDREN
    assert len(took) <= CHILDREN // Turn(now=0, worker_id="").limit + 2
    assert max(took) <= STEPS_MAX * turn.limit, "a turn costs what it tells, whatever is left to be told"


CHILDREN = size(20_000, prove=200_000)
STEPS_MAX = 750
"""Of SQLite's machine, for each child that is told."""
