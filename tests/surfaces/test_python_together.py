"""Several callers with one commit, all that match, and ids of the caller's own: what servers stand on."""

from __future__ import annotations

import pytest

from rota import NewJob
from rota.errors import DuplicateId, InvalidOption, InvalidParams, PermissionDenied, QueueFull, UnknownTemplate
from rota.submission import submit_each


def test_each_of_several_callers_gets_its_own(shared):
    jobs = submit_each(shared._session, None, [("echo", {"text": "a"}, "ada"), ("echo", None, "eve"), ("echo", {"text": "b"}, "bob")])
    assert [(job.owner, job.organization) for job in jobs] == [("ada", "acme"), ("eve", "beta"), ("bob", "acme")]
    assert [shared.jobs.get(job.id) for job in jobs] == jobs
    assert submit_each(shared._session, None, []) == []


def test_what_is_wrong_with_one_stands_in_its_place(shared):
    given = [("echo", {}, "ada"), ("nobody", {}, "ada"), ("echo", {"wrong": 1}, "ada"), ("echo", {}, "stranger"), "echo", ("echo", {})]
    found = submit_each(shared._session, "bob", given)
    kinds = [type(each) for each in found]
    assert kinds[1:5] == [UnknownTemplate, InvalidParams, PermissionDenied, InvalidParams]
    assert [each.owner for each in (found[0], found[5])] == ["ada", "bob"]


def test_one_that_the_store_refuses_does_not_undo_the_others(shared):
    shared.organizations.update("beta", max_queued=1)
    found = submit_each(shared._session, None, [("echo", {}, "eve"), ("echo", {}, "ada"), ("echo", {}, "eve"), ("echo", {}, "bob")])
    assert [isinstance(each, QueueFull) for each in found] == [False, False, True, False]
    assert len(shared.queues.jobs()) == 3


def test_a_template_that_is_new_is_seen_by_those_who_come_together(shared):
    submit_each(shared._session, None, [("echo", {})])
    shared.templates.update("echo", priority=90)
    assert [job.priority for job in submit_each(shared._session, None, [("echo", {}), ("echo", {})])] == [90, 90]


def test_all_that_match_are_cancelled_but_nobody_elses(shared):
    for actor in ("ada", "bob", "bob", "eve"):
        shared.acting_as(actor).enqueue("echo")
    with pytest.raises(InvalidOption, match="no filter is given: pass one, or `all`"):
        shared.acting_as("bob").jobs.cancel_all(limit=2, reason="a filter was lost on the way")
    assert shared.acting_as("bob").jobs.cancel_all(all=True).done == 2
    assert shared.acting_as("root").jobs.cancel_all(job_type="echo", limit=1) == shared.jobs.cancel_all(job_type="none").__class__(1, 1)
    assert shared.jobs.cancel_all(status="COMPLETED").done == 0
    assert [job.owner for job in shared.queues.jobs()] == ["ada"]


def test_meta_is_kept_with_a_job_and_not_given_to_its_handler(shared):
    job = shared.enqueue("echo", meta={"request": "abc"})
    assert (shared.jobs.get(job).meta, shared.jobs.get(job.id).meta, shared.jobs.get(job).params) == (
        {"request": "abc"},
        {"request": "abc"},
        {},
    )
    shared.enqueue_many([NewJob(name="echo", meta={"n": 1})])
    assert shared.queues.jobs()[-1].meta == {"n": 1}
    with pytest.raises(ValueError, match="meta take"):
        shared.enqueue("echo", meta={"n": "x" * 5000})


def test_an_id_is_for_one_direct_execution(shared):
    job = shared.enqueue("echo", {"text": "queued"})
    with pytest.raises(DuplicateId):
        shared.jobs.direct("echo", {"text": "direct"}, job_id=job.id)
    assert shared.jobs.get(job.id).status == "QUEUED"
    other = "01900000-0000-7000-8000-000000000009"
    assert shared.jobs.direct("echo", {"text": "direct"}, job_id=other).job_id == other


def test_change_is_all_or_nothing(shared):
    job = shared.enqueue("echo")
    with pytest.raises(Exception, match="PENDING"):
        shared.jobs.update(job.id, priority=3, run_at=shared.now)
    assert shared.jobs.get(job.id).priority == 50
