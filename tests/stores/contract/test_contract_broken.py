"""Damaged stores: one broken row stops nobody else, `rota doctor` names it, and `rota repair` repairs what it says it repairs."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
import pytest

from rota.model.decide import Crashed, Failed
from rota.model.findings import Finding, State
from rota.ports.store import Where
from tests.stores.desk import ANNA, Desk
from tests.stores.makers import PostgresMaker, SqliteMaker
from tests.stores.timekeeper import Timekeeper

VICTIM = 3
LOST = "0123456789abcdef0123456789abcdef"
END_OF_NO_JOB = """INSERT INTO job_ends (number, job_type, status, created_at, finished_at, priority, position, run_at)
                   VALUES (77, 't', 'CANCELLED', 1, 1, 1, 1, 1)"""
END_OF_LIVE_JOB = """INSERT INTO job_ends (number, job_type, status, created_at, finished_at, priority, position, run_at, started_at,
                                           run_id, worker_id)
                     SELECT number, job_type, 'COMPLETED', created_at, 9, priority, position, run_at, started_at, run_id, worker_id
                       FROM job_live WHERE number = 3"""


class Damage(msgspec.Struct, kw_only=True):
    """One kind of damage: to whom, how it is done to each store, what is said of it, and what becomes of the job."""

    name: str
    victim: str = "queued"
    sqlite: tuple[str, ...] = ()
    postgres: tuple[str, ...] = ()
    doctor: str
    repair: str = ""
    after: str = "COMPLETED"


DAMAGES = [
    Damage(
        name="a run of a job that has not started",
        sqlite=("INSERT INTO job_runs (job_number, run_id, started_at) VALUES (3, randomblob(16), 1)",),
        doctor="job 3 (UNIQUE constraint failed",
        repair="removed the run of job 3",
    ),
    Damage(
        name="a run that has ended of a job that has not started",
        sqlite=(
            "INSERT INTO job_runs (job_number, run_id, started_at, finished_at, status) VALUES (3, randomblob(16), 1, 2, 'COMPLETED')",
        ),
        doctor="job 3 (UNIQUE constraint failed",
        repair="ended job 3 CANCELLED",
        after="CANCELLED",
    ),
    Damage(
        name="a timeout that no number can hold",
        sqlite=("UPDATE jobs SET timeout = 9e999 WHERE number = 3",),
        doctor="job 3 (",
        repair="ended job 3 CANCELLED, which can't be read",
        after="CANCELLED",
    ),
    Damage(
        name="a retry whose first attempt is gone",
        victim="retry",
        sqlite=("DELETE FROM job_runs WHERE job_number = 3", "DELETE FROM jobs WHERE number = 3"),
        doctor="1 jobs can't be started",
        repair="CANCELLED, which can't be read",
        after="CANCELLED",
    ),
    Damage(
        name="a job that runs under a worker nobody knows",
        victim="running",
        sqlite=(f"UPDATE jobs SET worker_id = x'{LOST}' WHERE number = 3",),
        postgres=(f"UPDATE job_live SET worker_id = '{LOST}' WHERE number = 3",),
        doctor=f"1 jobs are RUNNING under workers that are not registered: {LOST}",
        after="recovered",
    ),
    Damage(
        name="a job that runs under no worker",
        victim="running",
        sqlite=("UPDATE jobs SET worker_id = NULL WHERE number = 3",),
        doctor="1 jobs are RUNNING under workers that are not registered: none",
        after="recovered",
    ),
    Damage(
        name="a job that runs under a worker nobody knows, and has no run",
        victim="running",
        sqlite=(f"UPDATE jobs SET worker_id = x'{LOST}' WHERE number = 3", "DELETE FROM job_runs WHERE job_number = 3"),
        doctor="not registered",
        after="recovered",
    ),
    Damage(
        name="a job that runs and can't be read",
        victim="running",
        sqlite=(f"UPDATE jobs SET worker_id = x'{LOST}', timeout = 9e999 WHERE number = 3",),
        doctor="not registered",
        after="recovered",
    ),
    Damage(
        name="a job that has completed over a run that has not",
        victim="running",
        sqlite=("UPDATE jobs SET status = 'COMPLETED', finished_at = 9 WHERE number = 3",),
        doctor="1 jobs have ended and their runs have not: 3",
        repair="ended 1 runs as their jobs had: 3",
    ),
    Damage(
        name="a status that is none",
        sqlite=("UPDATE jobs SET status = 'BOGUS' WHERE number = 3",),
        doctor="job 3 has the status 'BOGUS'",
        repair="ended job 3 CANCELLED",
        after="CANCELLED",
    ),
    Damage(
        name="a job that waits for more than it has edges",
        victim="pending",
        sqlite=("UPDATE jobs SET blockers = 1 WHERE number = 3",),
        postgres=("UPDATE job_live SET blockers = 1 WHERE number = 3",),
        doctor="job 3 (it waits for 1 jobs and has 0 open edges)",
        repair="1 PENDING jobs wait for what their edges say again: 3",
    ),
    Damage(
        name="a run of no job",
        sqlite=("INSERT INTO job_runs (job_number, run_id, started_at, error) VALUES (77, randomblob(16), 1, 'left here')",),
        postgres=("INSERT INTO run_notes (job_number, error) VALUES (77, 'left here')",),
        doctor="1 rows of runs belong to no job: 77",
        repair="left here",
    ),
    Damage(
        name="an edge of no job",
        sqlite=(
            f"INSERT INTO job_edges (child, parent_root, needs, on_failure, source) VALUES (77, x'{LOST}', 'success', 'wait', 'user')",
        ),
        postgres=(
            f"INSERT INTO job_edges (child, parent_root, needs, on_failure, source) VALUES (77, '{LOST}', 'success', 'wait', 'user')",
        ),
        doctor="1 rows of job_edges belong to no job: 77",
        repair="removed 1 rows of job_edges",
    ),
    Damage(
        name="an end of no job",
        postgres=(END_OF_NO_JOB,),
        doctor="1 rows of job_ends belong to no job: 77",
        repair="removed 1 rows of job_ends",
    ),
    Damage(
        name="a job that is neither live nor ended",
        postgres=("DELETE FROM job_live WHERE number = 3",),
        doctor="1 jobs have no status: 3",
        repair="ended 1 jobs CANCELLED that had no status: 3",
        after="CANCELLED",
    ),
    Damage(
        name="a job that runs and has ended as well",
        victim="running",
        postgres=(END_OF_LIVE_JOB,),
        doctor="1 jobs are RUNNING and have ended as well: 3",
        repair="1 jobs that had ended are not RUNNING any more: 3",
    ),
]

CASES = [
    pytest.param(maker, damage, id=f"{damage.name}-{maker.name}")
    for damage in DAMAGES
    for maker in (SqliteMaker, PostgresMaker)
    if getattr(damage, maker.name)
]


@pytest.mark.parametrize(("maker", "damage"), CASES, indirect=["maker"])
def test_a_damaged_store_is_named_and_repaired_and_nobody_else_waits_for_it(maker, desk, damage):
    neighbours = prepare(desk, damage.victim)
    victim = desk.store.by_number(VICTIM)
    maker.damage(*getattr(damage, maker.name))
    drain(desk)
    assert {desk.status(each) for each in neighbours} == {"COMPLETED"}
    desk.store.find(Where(), limit=100), desk.store.queue(limit=100)  # pages are shown all the same

    problems = look(desk)
    assert any(damage.doctor in each.text for each in problems), problems
    if damage.after == "recovered":
        recover_lost(desk)
    done = desk.store.fix(now=desk.now)
    assert all(each.state is State.REPAIRED for each in done)
    assert any(damage.repair in each.text for each in done) == bool(damage.repair), done

    assert look(desk) == []
    assert desk.store.fix(now=desk.now) == []
    desk.advance(100)
    drain(desk)
    if damage.after == "recovered":
        assert desk.tail(victim.id.replace("-", "")).status in {"COMPLETED", "DEAD_LETTER"}
    elif damage.victim == "retry":
        assert [str(job.status) for _, job in desk.store.find(Where(), limit=100)].count("CANCELLED") == 1
    else:
        assert str(desk.store.job(victim.id.replace("-", "")).status) == damage.after
    assert {desk.status(each) for each in neighbours} == {"COMPLETED"}


def prepare(desk: Desk, victim: str) -> list[str]:
    """Make five jobs, the third of them as the damage wants it; return the ids of the others."""
    desk.store.register(desk.worker, host="here", kind="worker", job_types=["t"], now=desk.now)
    ids = desk.several(2)
    if victim in {"running", "retry"}:
        desk.done(*desk.claim(2))
        ids.append(desk.add())
        job = desk.claim_one()
        if victim == "retry":
            desk.end(job, Failed("x"))
            desk.advance(100)
    else:
        ids.append(desk.add(delay=50 if victim == "pending" else 0))
        if victim == "pending":
            desk.advance(0)
    ids += desk.several(2)
    return [each for index, each in enumerate(ids, 1) if index != VICTIM]


def drain(desk: Desk) -> None:
    """Turn as a worker does until nothing is claimed any more."""
    for _ in range(20):
        turned = desk.turn(10)
        if turned.claimed:
            desk.done(*turned.claimed)
        elif not turned.unfinished:
            return


def look(desk: Desk) -> list[Finding]:
    found = desk.store.checkup(now=desk.now, machine=lambda: desk.now, full=True)
    return [each for each in found if each.name == "rows" and each.state is State.PROBLEM]


def recover_lost(desk: Desk) -> None:
    for worker_id, _ in desk.store.unregistered():
        held = desk.store.held_by(worker_id, limit=10)
        assert desk.store.recover([desk.ending(each.job, Crashed()) for each in held], held, now=desk.now)


@pytest.mark.parametrize(("status", "victim"), [("RUNNING", "queued"), ("QUEUED", "pending")])
def test_a_job_that_somebodys_trigger_refuses_is_parked_and_released_when_the_trigger_is_gone(maker, desk, caplog, status, victim):
    neighbours = prepare(desk, victim)
    take_away: Callable[[], None] = maker.refuse(VICTIM, status)
    try:
        desk.advance(100)
        with caplog.at_level(logging.ERROR, logger="rota.store"):
            drain(desk)
            drain(desk)
        assert {desk.status(each) for each in neighbours} == {"COMPLETED"}
        (logged,) = [record.getMessage() for record in caplog.records]
        assert f"job 3 can't be started and was parked: {maker.refusal}" in logged
        (problem,) = look(desk)
        assert f"job 3 ({maker.refusal})" in problem.text
        # Nothing but the trigger is in its way, and that is somebody's: it stays parked.
        desk.store.fix(now=desk.now)
        drain(desk)
        assert look(desk)
    finally:
        take_away()
    assert any("3" in each.text for each in desk.store.fix(now=desk.now))
    assert look(desk) == []
    drain(desk)
    assert {str(job.status) for _, job in desk.store.find(Where(), limit=100)} == {"COMPLETED"}


def test_one_culprit_among_many_is_found_and_all_others_are_claimed_in_their_order(maker, desk):
    ids = desk.several(100)
    take_away = maker.refuse(50, "RUNNING")
    try:
        assert desk.turn(100).claimed == []
        claimed = desk.claim(100)
    finally:
        take_away()
    assert [job.job_id for job in claimed] == ids[:49] + ids[50:]


def test_completions_of_a_turn_whose_claim_fails_are_written_by_it(maker, desk):
    (first, *_) = desk.several(3)
    job = desk.claim_one()
    take_away = maker.refuse(2, "RUNNING")
    try:
        turned = desk.turn(2, done=[(job.number, desk.now)])
    finally:
        take_away()
    assert desk.status(first) == "COMPLETED"
    assert turned.unfinished
    assert turned.claimed == []


def test_a_completion_that_is_refused_keeps_no_other_from_being_written(maker, desk):
    ids = desk.several(3)
    jobs = desk.claim(3)
    if maker.name == "postgres":
        maker.damage(END_OF_LIVE_JOB.replace("= 3", "= 2"))
        take_away = None
    else:
        take_away = maker.refuse(2, "COMPLETED")
    desk.done(*jobs)
    assert [desk.status(ids[0]), desk.status(ids[2])] == ["COMPLETED", "COMPLETED"]
    if take_away is not None:
        take_away()


def test_a_direct_execution_that_can_not_start_gives_the_next_slot_back(maker, desk):
    reservation = desk.reserve()
    assert reservation is not None
    neighbour = desk.add()
    take_away = maker.refuse(reservation.job_number, "RUNNING")
    try:
        drain(desk)
    finally:
        take_away()
    assert desk.status(neighbour) == "COMPLETED"
    assert maker.reservation_status(reservation.id) == "EXPIRED"
    assert desk.job(reservation.job_id).held == f"broken:{maker.refusal}"


def test_a_repair_does_not_start_a_direct_execution_whose_caller_is_gone(maker, desk):
    reservation = desk.reserve()
    assert reservation is not None
    take_away = maker.refuse(reservation.job_number, "RUNNING")
    drain(desk)
    take_away()
    (done,) = desk.store.fix(now=desk.now)
    assert done.text == "ended job 1 CANCELLED: nobody waits for this direct execution any more"
    drain(desk)
    assert (desk.status(reservation.job_id), desk.store.run(reservation.job_id)) == ("CANCELLED", None)


@pytest.mark.parametrize("maker", [PostgresMaker], indirect=True, ids=["postgres"])
def test_a_live_row_that_has_lost_its_job_is_named_and_parked(maker, desk):
    ids = desk.several(3)
    maker.damage("DELETE FROM job_facts WHERE number = 1")
    (problem,) = look(desk)
    assert problem.text == "1 rows of job_live have lost their job: 1"
    (done,) = desk.store.fix(now=desk.now)
    assert done.text == "parked 1 rows of job_live that have lost their job: 1"
    assert desk.store.fix(now=desk.now) == []
    assert [job.job_id for job in desk.claim(1)] == ids[1:2]


@pytest.mark.parametrize("maker", [PostgresMaker], indirect=True, ids=["postgres"])
def test_a_repair_does_not_claim_to_remove_the_notes_of_a_job_that_never_started(maker, desk):
    ids = desk.several(2)
    maker.damage("INSERT INTO run_notes (job_number, error) VALUES (1, 'left here')")
    take_away = maker.refuse(1, "RUNNING")
    drain(desk)
    assert desk.store.fix(now=desk.now) == []
    take_away()
    assert [each.text for each in desk.store.fix(now=desk.now)] == ["released job 1: it can be started again"]
    drain(desk)
    assert desk.status(ids[0]) == "COMPLETED"


@pytest.mark.parametrize("maker", [SqliteMaker], indirect=True, ids=["sqlite"])
def test_retention_removes_the_neighbours_of_a_chain_that_can_not_be_removed_and_names_that(maker, desk):
    prepare(desk, "running")
    maker.damage("UPDATE jobs SET status = 'COMPLETED', finished_at = 9 WHERE number = 3")
    drain(desk)
    desk.advance(1000)
    purged = desk.store.purge(before=desk.now, limit=100, now=desk.now, dry_run=False)
    assert (purged.chains, list(purged.broken)) == (4, [3])
    with pytest.raises(Exception, match=r"can't be discarded.*rota doctor"):
        desk.store.discard(desk.store.by_number(3).id.replace("-", ""), actor=ANNA, now=desk.now)
    desk.store.fix(now=desk.now)
    assert desk.store.purge(before=desk.now, limit=100, now=desk.now, dry_run=False).chains == 1


def test_a_page_shows_a_job_that_can_not_be_read_as_broken(maker, desk):
    ids = desk.several(3)
    table = "jobs" if maker.name == "sqlite" else "job_facts"
    maker.damage(f"UPDATE {table} SET params = 'not JSON', backoff = 'neither' WHERE number = 2")
    (broken,) = [job for _, job in desk.store.find(Where(), limit=10) if job.reason]
    assert broken.reason == "broken row: its params can't be read, its backoff can't be read"
    assert desk.job(ids[1]).params == {}
    assert len(desk.store.queue(limit=10)) == 3


@pytest.mark.parametrize("change", ["cron_expression = 'not a cron'", "timezone = 'No/Where'"])
def test_a_schedule_whose_times_can_not_be_computed_is_named_and_left_as_it_is(maker, desk, change):
    times = Timekeeper(desk.store)
    times.schedule("good", cron="0 * * * *")
    bad = times.schedule("bad", cron="0 * * * *")
    maker.damage(f"UPDATE schedules SET {change} WHERE name = 'bad'")
    (found,) = look(desk)
    assert found.text.startswith("schedule bad of default can't fire: ")
    # Another machine may know the time zone.
    assert desk.store.fix(now=desk.now) == []
    assert desk.store.schedule(bad.id).state == "ENABLED"


def test_a_healthy_store_has_no_broken_rows_and_nothing_to_repair(desk):
    prepare(desk, "retry")
    drain(desk)
    assert look(desk) == []
    assert desk.store.fix(now=desk.now) == []
