"""One broken row stops nobody else: not the worker, not its recovery, not the trigger, not retention."""

import logging
from contextlib import nullcontext

import pytest

from rota import Backoff
from rota.errors import ResourceBusy, TemplateUnavailable
from rota.model.findings import State
from tests.engine.test_engine_recovery import lost_worker, statuses
from tests.stores.makers import SqliteMaker
from tests.support.pace import patient
from tests.support.runs import run_of


@pytest.fixture
def damage(rota):
    """Return what writes into the store of `rota` what no rule lets anybody write."""
    rota._session.open()
    maker = SqliteMaker.__new__(SqliteMaker)
    maker.path = rota._session.open().store.path
    return maker.damage


@pytest.fixture
def act(rota):
    return rota.job(lambda: None, name="act", max_retries=2, backoff=Backoff(base=60, jitter=0))


def problems(rota, name="rows"):
    return [each.text for each in rota.store.doctor(full=True) if each.name == name and each.state is State.PROBLEM]


def test_a_worker_runs_the_neighbours_of_a_broken_row_and_says_once_which_it_is(rota, act, damage, caplog):
    jobs = [rota.enqueue("act") for _ in range(5)]
    damage("INSERT INTO job_runs (job_number, run_id, started_at) VALUES (2, randomblob(16), 1)")
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            rota.turn()
    assert [statuses(rota, job) for job in jobs] == [["COMPLETED"], ["QUEUED"], ["COMPLETED"], ["COMPLETED"], ["COMPLETED"]]
    (logged,) = [record.getMessage() for record in caplog.records]
    assert logged == (
        "job 2 can't be started and was parked: UNIQUE constraint failed: job_runs.job_number. `rota repair` repairs what can be repaired"
    )
    said = rota.explain(jobs[1].id).summary
    assert "its row is broken: UNIQUE constraint failed: job_runs.job_number" in said
    assert "rota repair" in said
    assert len(problems(rota)) == 2
    states = {each.state for each in rota.store.repair() if each.name == "rows"}
    assert states == {State.REPAIRED, State.OK}
    assert problems(rota) == []
    rota.turn()
    assert statuses(rota, jobs[1]) == ["COMPLETED"]


def test_what_runs_under_a_worker_that_is_not_registered_is_recovered_and_counted(rota, act, damage):
    jobs = [rota.enqueue("act") for _ in range(3)]
    desk = lost_worker(rota, 2, lock="none")
    damage("DELETE FROM workers")
    (problem,) = problems(rota)
    assert problem == f"2 jobs are RUNNING under workers that are not registered: {desk.worker}"
    assert rota.store.recover().jobs == 2
    assert [statuses(rota, job) for job in jobs] == [["FAILED", "QUEUED"], ["FAILED", "QUEUED"], ["QUEUED"]]
    assert not rota.store.recover()
    assert problems(rota) == []


def test_a_worker_that_lives_and_has_lost_its_row_keeps_its_jobs(rota, act, damage):
    job = rota.enqueue("act")
    desk = lost_worker(rota, 1, lock="alive")
    damage("DELETE FROM workers")
    assert not rota.store.recover()
    assert statuses(rota, job) == ["RUNNING"]
    desk.lease.release(clean=False)
    assert rota.store.recover().jobs == 1


def test_of_a_dead_workers_jobs_one_that_can_not_be_read_keeps_no_other_from_being_recovered(rota, act, damage):
    jobs = [rota.enqueue("act") for _ in range(3)]
    lost_worker(rota, 3)
    damage("UPDATE jobs SET timeout = 9e999 WHERE number = 2")
    assert rota.store.recover().jobs == 3
    assert [statuses(rota, job)[0] for job in jobs] == ["FAILED", "DEAD_LETTER", "FAILED"]


def test_a_job_whose_organization_is_gone_ends_and_its_neighbours_run(rota, act, damage):
    jobs = [rota.enqueue("act") for _ in range(3)]
    damage("UPDATE jobs SET organization_id = 'nowhere' WHERE number = 2")
    for _ in range(3):
        rota.turn()
    assert [statuses(rota, job)[0] for job in jobs] == ["COMPLETED", "DEAD_LETTER", "COMPLETED"]


def test_a_job_whose_params_are_not_json_ends_and_its_neighbours_run(rota, act, damage):
    jobs = [rota.enqueue("act") for _ in range(3)]
    damage("UPDATE jobs SET params = 'not JSON', executor = 'unknown' WHERE number = 2")
    assert len(list(rota.jobs.list())) == 3
    for _ in range(3):
        rota.turn()
    assert [statuses(rota, job)[0] for job in jobs] == ["COMPLETED", "DEAD_LETTER", "COMPLETED"]
    assert run_of(rota, jobs[1].id) is not None


def test_a_job_whose_backoff_can_not_be_read_is_tried_again_like_any_other(rota, damage):
    def fail():
        raise RuntimeError("boom")

    rota.job(fail, name="fail", max_retries=2)
    job = rota.enqueue("fail")
    damage("UPDATE jobs SET backoff = 'no backoff' WHERE number = 1")
    for _ in range(3):
        rota.turn()
    assert statuses(rota, job) == ["FAILED", "PENDING"]


def test_a_schedule_that_can_not_be_decoded_is_disabled_and_the_others_fire(rota, act, clock, damage, caplog):
    rota.schedules.create("good", "act", cron="* * * * *")
    rota.schedules.create("bad", "act", cron="* * * * *")
    rota.turn()
    damage("UPDATE schedules SET param_overrides = 'not JSON' WHERE name = 'bad'")
    assert any("schedule bad of default can't be read" in each for each in problems(rota))
    clock.advance(minutes=2)
    with caplog.at_level(logging.ERROR, logger="rota.store"):
        for _ in range(4):
            rota.turn()
    assert {str(job.status) for job in rota.jobs.list()} == {"COMPLETED"}
    (logged,) = [record.getMessage() for record in caplog.records]
    assert logged.startswith("schedule bad of default can't be read and was disabled: ")
    assert problems(rota) == []
    # What can't be read of it is gone, so that it can be shown and put right.
    assert rota.schedules.get("bad").state == "DISABLED"
    assert rota.schedules.get("bad").description.startswith("broken row: ")
    rota.schedules.enable("bad")


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [("cron_expression", "not a cron", "'not a cron' has 3 fields"), ("timezone", "No/Where", "timezone 'No/Where' is not an IANA name")],
)
def test_a_schedule_whose_times_can_not_be_computed_is_named_and_hides_nothing_else(rota, act, clock, damage, column, value, why):
    for name in ("good", "bad"):
        rota.schedules.create(name, "act", cron="0 * * * *")
    damage(f"UPDATE schedules SET {column} = '{value}' WHERE name = 'bad'")
    (problem,) = problems(rota)
    assert problem.startswith(f"schedule bad of default can't fire: {why}")
    assert [each.name for each in rota.schedules.list()] == ["bad", "good"]
    assert {each.schedule for each in rota.forecast(24)} == {"good"}
    assert {each.schedule for each in rota.overview().ahead.items} == {"good"}
    assert rota.schedules.get("bad").state == "ENABLED"
    # Another machine may know the time zone, so a repair must not disable the schedule.
    rota.store.repair()
    assert rota.schedules.get("bad").state == "ENABLED"
    rota.schedules.update("bad", cron="0 * * * *", timezone="UTC")
    assert problems(rota) == []
    assert {each.schedule for each in rota.forecast(24)} == {"bad", "good"}


def test_retention_says_once_which_chain_it_can_not_remove(rota, act, clock, damage, caplog):
    jobs = [rota.enqueue("act") for _ in range(3)]
    lost_worker(rota, 1, lock="none")
    # Nobody has to watch for a beat of a worker that has ended.
    damage("UPDATE jobs SET status = 'COMPLETED', finished_at = 9 WHERE number = 1", "UPDATE workers SET ended_at = 9")
    for _ in range(3):
        rota.turn()
    clock.advance(days=1)
    with caplog.at_level(logging.ERROR, logger="rota.retention"):
        assert rota.store.purge(older_than=60).chains == 2
    (logged,) = [record.getMessage() for record in caplog.records]
    assert "the chain of job 1 is old enough to be removed and can't be" in logged
    assert problems(rota) == ["1 jobs have ended and their runs have not: 1"]
    rota.store.repair()
    assert rota.store.purge(older_than=60).chains == 1
    assert not list(rota.jobs.list())
    assert len(jobs) == 3


@pytest.mark.parametrize("served", [False, True], ids=["in the calling process", "by a worker"])
def test_the_caller_of_a_direct_execution_whose_row_is_broken_is_told_so_and_it_never_runs(live, served):
    live.job(lambda: None, name="act")
    maker = SqliteMaker.__new__(SqliteMaker)
    maker.path = live._session.open().store.path
    take_away = maker.refuse(1, "RUNNING")
    with live.running() if served else nullcontext(), pytest.raises(ResourceBusy, match="its row is broken: not on my watch"):
        live.jobs.direct("act", timeout=patient(100))
    (job,) = live.jobs.list()
    assert (job.status, job.started_at) == ("CANCELLED", None)
    take_away()
    assert live.jobs.direct("act").status == "COMPLETED"


@pytest.mark.parametrize(
    ("column", "content"),
    [("overrides", "not JSON"), ("overrides", '{"max_running": "many"}'), ("overrides", '{"backoff": 7}'), ("defaults", "not JSON")],
)
def test_a_template_that_can_not_be_read_keeps_its_own_jobs_waiting_and_no_others(rota, act, damage, column, content):
    rota.job(lambda: None, name="other")
    broken, whole = rota.enqueue("act"), rota.enqueue("other")
    damage(
        f"UPDATE templates SET {column} = '{content}' WHERE name = 'act'",
        "UPDATE meta SET value = value + 1 WHERE key = 'definitions_version'",
    )
    for _ in range(3):
        rota.turn()
    assert statuses(rota, whole) == ["COMPLETED"]
    assert {each.name for each in rota.templates.list()} == {"act", "other"}
    rota.enqueue("other")
    assert statuses(rota, broken) == ["QUEUED"]
    assert "template act can't be read, so its jobs wait" in rota.explain(broken.id).summary
    with pytest.raises(TemplateUnavailable, match=f"its {column} can't be read"):
        rota.enqueue("act")
    assert problems(rota) == [f"template act can't be used, and its jobs wait: its {column} can't be read"]
    rota.templates.update("act", max_running=3)
    assert problems(rota) == []
    rota.turn()
    assert statuses(rota, broken) == ["COMPLETED"]
