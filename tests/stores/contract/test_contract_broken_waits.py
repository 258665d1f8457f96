"""Waiting rows that are damaged: their neighbours expire, are released or end, the culprit is parked, and `rota repair` counts again."""

from __future__ import annotations

import logging

import pytest

from rota.model.decide import Failed
from tests.stores.contract.test_contract_broken import drain, look
from tests.stores.desk import Desk


def expire_in(desk: Desk, seconds: float) -> dict[str, int]:
    return {"expires_at": desk.now + round(seconds * 1_000_000)}


@pytest.mark.parametrize("status", ["QUEUED", "PENDING"])
def test_a_job_that_can_not_expire_is_parked_and_its_neighbours_expire_and_run(maker, desk, caplog, status):
    ids = [desk.add(delay=50 if status == "PENDING" else 0, **expire_in(desk, 10)) for _ in range(3)]
    take_away = maker.refuse_end(2, "SKIPPED")
    try:
        desk.advance(20)
        later = desk.add()
        with caplog.at_level(logging.ERROR, logger="rota.store"):
            drain(desk)
            drain(desk)
        assert [desk.status(each) for each in ids] == ["SKIPPED", status, "SKIPPED"]
        assert desk.status(later) == "COMPLETED"
        (logged,) = [record.getMessage() for record in caplog.records]
        assert f"job 2 can't be ended and was parked: expired, and {maker.refusal}" in logged
        (problem,) = look(desk)
        assert f"job 2 (expired, and {maker.refusal})" in problem.text
        desk.store.fix(now=desk.now)
        drain(desk)
        assert look(desk)
    finally:
        take_away()
    assert any("2" in each.text for each in desk.store.fix(now=desk.now))
    drain(desk)
    assert desk.status(ids[1]) == "SKIPPED"
    assert look(desk) == []
    assert desk.store.fix(now=desk.now) == []


def test_a_child_that_can_not_be_ended_with_its_parent_is_parked_and_the_others_are_ended(maker, desk, caplog):
    parent = desk.add()
    children = [desk.add(depends_on=(parent,), on_parent_failure="skip") for _ in range(3)]
    take_away = maker.refuse_end(3, "SKIPPED")
    try:
        neighbour = desk.add()
        job = desk.claim_one()
        with caplog.at_level(logging.ERROR, logger="rota.store"):
            desk.end(job, Failed("x", permanent=True))
            drain(desk)
            drain(desk)
        assert desk.status(parent) == "DEAD_LETTER"
        assert [desk.status(each) for each in children] == ["SKIPPED", "PENDING", "SKIPPED"]
        assert desk.status(neighbour) == "COMPLETED"
        (logged,) = [record.getMessage() for record in caplog.records]
        assert f"job 3 can't be ended and was parked: to be skipped with its parent, and {maker.refusal}" in logged
        (problem,) = look(desk)
        assert f"job 3 (to be skipped with its parent, and {maker.refusal})" in problem.text
    finally:
        take_away()
    assert any("3" in each.text for each in desk.store.fix(now=desk.now))
    drain(desk)
    assert desk.status(children[1]) == "SKIPPED"
    assert look(desk) == []
    assert desk.store.fix(now=desk.now) == []


def test_a_child_that_can_not_be_released_keeps_waiting_and_the_others_are_released(maker, desk, caplog):
    parent = desk.add()
    children = [desk.add(depends_on=(parent,)) for _ in range(3)]
    take_away = maker.refuse(3, "PENDING", column="blockers")
    try:
        with caplog.at_level(logging.ERROR, logger="rota.store"):
            drain(desk)
            drain(desk)
        assert [desk.status(each) for each in (parent, *children)] == ["COMPLETED", "COMPLETED", "PENDING", "COMPLETED"]
        assert any(f"job 3 can't be released and stays PENDING: {maker.refusal}" in record.getMessage() for record in caplog.records)
        (problem,) = look(desk)
        assert "job 3 (it waits for 1 jobs and has 0 open edges)" in problem.text
    finally:
        take_away()
    assert any("3" in each.text for each in desk.store.fix(now=desk.now))
    drain(desk)
    assert desk.status(children[1]) == "COMPLETED"
    assert look(desk) == []


def test_a_job_that_waits_for_nothing_although_it_has_open_edges_is_named_and_counted_again(maker, desk):
    parent = desk.add(delay=50)
    child = desk.add(depends_on=(parent,), delay=10)
    maker.damage(f"UPDATE {'jobs' if maker.name == 'sqlite' else 'job_live'} SET blockers = 0 WHERE number = 2")
    (problem,) = look(desk)
    assert "job 2 (it waits for 0 jobs and has 1 open edges)" in problem.text
    (done,) = desk.store.fix(now=desk.now)
    assert "1 PENDING jobs wait for what their edges say again: 2" in done.text
    assert look(desk) == []
    desk.advance(20)
    drain(desk)
    assert desk.status(child) == "PENDING"
    desk.advance(100)
    drain(desk)
    assert [desk.status(parent), desk.status(child)] == ["COMPLETED", "COMPLETED"]


def test_a_job_that_waits_for_a_chain_that_is_gone_is_named_and_cancelled_by_repair(maker, desk):
    parent, other = desk.several(2)
    child = desk.add(depends_on=(parent,))
    neighbour = desk.add(depends_on=(other,))
    tables = ["job_runs", "jobs"] if maker.name == "sqlite" else ["run_notes", "job_live", "job_facts"]
    maker.damage(*(f"DELETE FROM {table} WHERE {'job_number' if 'run' in table else 'number'} = 1" for table in tables))
    drain(desk)
    assert desk.status(neighbour) == "COMPLETED"
    assert desk.status(child) == "PENDING"
    (problem,) = look(desk)
    assert problem.text == "1 PENDING jobs wait for a job that is gone: 3"
    (done,) = desk.store.fix(now=desk.now)
    assert done.text == "ended 1 jobs CANCELLED that waited for a job that is gone: 3; `rota job retry` runs one again"
    assert desk.status(child) == "CANCELLED"
    assert look(desk) == []
    assert desk.store.fix(now=desk.now) == []
