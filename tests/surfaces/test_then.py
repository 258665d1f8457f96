"""A job that follows a group, from Python: made, shown, explained, cancelled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota import NewJob, PermanentError, Rota
from rota.errors import InvalidOption, InvalidParams, UnknownTemplate
from rota.model.settings import Settings


@pytest.fixture
def ran(rota: Rota) -> list[str]:
    """Handlers that note their names."""
    names: list[str] = []

    @rota.job
    def step(name: str = "") -> None:
        names.append(name)

    @rota.job(max_retries=0)
    def dies() -> None:
        raise PermanentError("no")

    return names


def test_what_follows_a_group_runs_after_its_last_member(rota: Rota, ran: list[str]):
    group = rota.group([("step", {"name": "a"}), ("step", {"name": "b"})], then=("step", {"name": "then"}), mode="parallel")
    assert (group.then.status, group.then.job_type, group.then.on_parent_failure) == ("PENDING", "step", "wait")
    rota.turn()
    assert ran == ["a", "b", "then"]
    assert rota.groups.get(group.id).then.status == "COMPLETED"
    assert rota.jobs.get(group.then.root_id).number == group.then.number


@pytest.mark.parametrize(("rule", "status"), [(None, "PENDING"), ("skip", "SKIPPED"), ("cancel", "CANCELLED"), ("run", "COMPLETED")])
def test_the_rule_of_dependencies_says_what_becomes_of_it_if_a_member_failed(rota: Rota, ran: list[str], rule: str | None, status: str):
    group = rota.group([("dies", {}), ("step", {})], then=("step", {"name": "then"}), on_parent_failure=rule, mode="parallel")
    same = rota.group([("dies", {}), ("step", {})], then=NewJob(name="step", on_parent_failure=rule), mode="parallel")
    rota.turn()
    assert [rota.groups.get(each.id).then.status for each in (group, same)] == [status] * 2
    assert ("then" in ran) == (rule == "run")


def test_an_empty_group_runs_what_follows_it_at_once(rota: Rota, ran: list[str]):
    group = rota.group([], then=("step", {"name": "then"}))
    assert (group.status, group.then.status) == ("COMPLETED", "QUEUED")
    rota.turn()
    assert ran == ["then"]


def test_explain_says_which_group_it_waits_for_and_how_many_are_open(rota: Rota, ran: list[str]):
    group = rota.group([("step", {}), ("dies", {}), ("step", {})], then=("step", {}), mode="parallel", name="nightly")
    assert rota.explain(group.then.root_id).summary == "waits for group nightly: 3 of 3 members have not ended"
    rota.jobs.cancel(group.members[0].root_id)
    assert "waits for group nightly: 2 of 3 members have not ended" in str(rota.explain(group.then.root_id))
    rota.turn()
    assert rota.explain(group.then.root_id).summary == "group nightly ended PARTIAL: retry the members that failed, or cancel this job"


def test_explain_says_of_a_job_that_runs_however_its_parents_end_whom_it_waits_for(rota: Rota, ran: list[str]):
    parent = rota.enqueue("step", run_at=None, priority="low")
    child = rota.enqueue("step", depends_on=parent, on_parent_failure="run")
    assert rota.explain(child).summary == f"waits for {parent.number} (step, QUEUED)"
    assert [(edge.needs, edge.on_failure) for edge in rota.jobs.graph(child).edges] == [("end", "run")]


@pytest.mark.parametrize(("rule", "words"), [("run", "releases this job"), ("skip", "ends this job")])
def test_explain_knows_the_rule_of_a_job_that_has_not_been_told_of_its_parents_end(rota: Rota, ran: list[str], rule: str, words: str):
    parent = rota.enqueue("step", run_at=timedelta(hours=1))
    # More than are told in the transaction that ends the parent.
    ids = rota.enqueue_many([NewJob(name="step", depends_on=parent, on_parent_failure=rule)] * 501).ids
    rota.jobs.cancel(parent)
    waiting = [job for job in map(rota.jobs.get, ids) if job.blockers]
    assert rota.explain(waiting[0]).summary == f"{parent.number} ended CANCELLED, and the next turn {words}"


def test_cancelling_the_group_cancels_what_waits_for_it(rota: Rota, ran: list[str]):
    group = rota.group([("step", {})], then=("step", {}), on_parent_failure="run")
    assert rota.groups.cancel(group.id).then.status == "CANCELLED"
    rota.turn()
    assert ran == []


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, InvalidOption, "pass then="),
        ({"on_parent_failure": "run"}, InvalidOption, "pass then="),
        ({"then": ("step", {}), "on_parent_failure": "perhaps"}, InvalidOption, "wait, skip, cancel, run"),
        ({"then": ("nobody", {})}, UnknownTemplate, "nobody"),
        ({"then": ("step", {"wrong": 1})}, InvalidParams, "wrong"),
        ({"then": 7}, InvalidParams, "7"),
    ],
)
def test_what_can_not_follow_a_group_is_refused_and_nothing_is_made(rota: Rota, ran: list[str], options, error, words: str):
    with pytest.raises(error, match=words):
        rota.group([("step", {})] if options.get("then") else [], **options)
    assert rota.groups.list() == []


@pytest.fixture
def settings() -> Settings:
    return Settings(group_max=20)
