"""Who lives is told by the kernel's lock, else by the beat; never by a pid, and never by a clock of somebody else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import apsw
import psutil
import pytest

from rota import Rota
from rota.errors import ResourceBusy
from tests.faults import invariants
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually

ON_A_FILE = pytest.mark.parametrize("stage", ["file"], indirect=True)


@pytest.fixture
def gate(stage):
    return stage.folder / "gate"


@pytest.fixture
def rota(stage):
    with closing(Rota(stage.database)) as made:
        yield made


def hold(stage, rota, gate, count=1, name="hold", **options):
    """Enqueue so many that wait for the gate, and wait until all are entered."""
    before = len(stage.entries)
    jobs = [rota.enqueue(name, {"gate": str(gate)}, **options) for _ in range(count)]
    eventually(lambda: len(stage.entries) == before + count, within=20, what="handlers at work")
    return jobs


def sweeps(rota):
    """Look around several times, as the workers do by themselves in that time (recovery_interval is 0.1 s here)."""
    seen = time.monotonic() + 0.5
    while time.monotonic() < seen:
        rota.store.recover()
        time.sleep(0.05)


def beats(rota):
    """The beat of each worker that is not recorded as ended, by its id as lock files have it."""
    return {worker.id.replace("-", ""): worker.beat for worker in rota.workers.list()}


def worker_of(rota, job):
    return rota.jobs.get(job.id).worker_id.replace("-", "")


def untouched(rota, jobs):
    for job in jobs:
        [only] = rota.jobs.attempts(job.id)
        assert only.status == "RUNNING"
        assert run_of(rota, job.id).status is None


# ---- the lock ------------------------------------------------------------------------------------------------------


def test_jobs_of_a_live_worker_are_never_touched_by_another_that_starts_up(stage, rota, gate):
    first = stage.worker(2)
    jobs = hold(stage, rota, gate, 2)
    others = [stage.worker(2), stage.worker(2)]
    sweeps(rota)

    untouched(rota, jobs)
    assert len({program.worker_id for program in [first, *others]}) == 3
    gate.touch()
    assert set(stage.drained().values()) == {"COMPLETED"}
    stage.check()
    assert len(stage.entries) == 2


def test_a_worker_that_is_started_again_is_a_new_worker(stage, rota, gate):
    first = stage.worker(2)
    [job] = hold(stage, rota, gate)
    first.kill()
    second = stage.worker(2)
    eventually(lambda: len(rota.jobs.attempts(job.id)) == 2, what="recovery by the new one")

    assert second.worker_id != first.worker_id
    eventually(lambda: list(beats(rota)) == [second.worker_id], what="the end of the first in the record")
    assert run_of(rota, job.id).error == "Scheduler crash recovery"
    gate.touch()
    stage.drained()
    assert worker_of(rota, rota.jobs.attempts(job.id)[1]) == second.worker_id
    stage.check()


def test_a_stopped_worker_is_not_given_up_however_long_its_beat_stands_still(stage, rota, gate):
    stopped = stage.worker(1, beat=0.1)
    [job] = hold(stage, rota, gate)
    stage.freeze(stopped)
    other = stage.worker(1, lease_ttl=1, beat=0.1)
    before = beats(rota)[other.worker_id]
    eventually(lambda: beats(rota)[other.worker_id] > before + 15, what="twice the lease")
    untouched(rota, [job])

    stopped.send(signal.SIGCONT)
    gate.touch()
    rota.wait(job.id, timeout=patient(20))
    assert [each.status for each in rota.jobs.attempts(job.id)] == ["COMPLETED"]
    assert len(stage.entries) == 1
    stage.check()


def test_a_stopped_worker_that_is_killed_is_given_up(stage, rota, gate):
    stopped = stage.worker(1)
    [job] = hold(stage, rota, gate)
    stage.freeze(stopped)
    stopped.kill()
    gate.touch()
    stage.worker(1)
    assert rota.wait(job.id, timeout=patient(20)).status == "COMPLETED"
    assert [each.status for each in rota.jobs.attempts(job.id)] == ["FAILED", "COMPLETED"]


@ON_A_FILE
def test_a_worker_in_another_pid_namespace_is_judged_by_its_lock_although_its_pid_is_ours_too(stage, rota, gate):
    apart = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us make a pid namespace; the test on the workers table still stands")
    # Each is pid 1 of its own world: a pid says nothing here.
    one, two = stage.worker(1, prefix=apart), stage.worker(1, prefix=apart)
    jobs = hold(stage, rota, gate, 2)
    assert {pid for _, _, pid in stage.entries} == {"1"}
    sweeps(rota)
    untouched(rota, jobs)

    victim = next(job for job in jobs if worker_of(rota, job) == one.worker_id)
    [process] = [child for child in one.children() if "worker.py" in " ".join(child.cmdline())]
    process.kill()
    eventually(lambda: len(rota.jobs.attempts(victim.id)) == 2, what="the other one to see that it is gone")
    eventually(lambda: list(beats(rota)) == [two.worker_id], what="its end in the record")
    gate.touch()
    assert set(stage.drained().values()) == {"COMPLETED"}
    stage.check()


@ON_A_FILE
def test_the_pid_that_people_are_shown_means_nothing_to_recovery(stage, rota, gate):
    one, two = stage.worker(1), stage.worker(1)
    jobs = hold(stage, rota, gate, 2)
    assert {worker.pid for worker in rota.workers.list() if worker.kind == "worker"} == {one.pid, two.pid}
    # As after a restart of the machine: the first one's pid is nobody's, the second one's is that of a program that runs.
    with closing(apsw.Connection(str(stage.database))) as db:
        db.set_busy_timeout(10_000)
        for program, pid in ((one, 2**31 - 2), (two, os.getpid())):
            db.execute("UPDATE workers SET pid = ? WHERE worker_id = unhex(?)", (pid, program.worker_id))
    sweeps(rota)
    untouched(rota, jobs)

    victim = next(job for job in jobs if worker_of(rota, job) == two.worker_id)
    two.kill()
    eventually(lambda: len(rota.jobs.attempts(victim.id)) == 2, what="recovery of the one whose pid is in use")
    gate.touch()
    assert set(stage.drained().values()) == {"COMPLETED"}
    for lock in stage.locks.iterdir():
        assert str(one.pid) not in lock.read_text()


def test_a_handler_process_that_outlives_its_worker_for_a_moment_keeps_it_alive(stage, rota, gate):
    stage.apart = True
    worker = stage.worker(1)
    [job] = hold(stage, rota, gate, name="hold_apart")
    handler = psutil.Process(int(stage.entries[0][2]))
    handler.suspend()
    try:
        # A stop is not there with the signal: each thread has to come by first.
        eventually(lambda: handler.status() == psutil.STATUS_STOPPED, what="the stop")
        worker.kill()
        sweeps(rota)
        untouched(rota, [job])
    finally:
        handler.resume()
    stage.worker(1)
    eventually(lambda: len(rota.jobs.attempts(job.id)) == 2, what="recovery once the handler is gone too")
    gate.touch()
    assert set(stage.drained().values()) == {"COMPLETED"}
    stage.check()


def test_a_copy_of_the_process_that_a_handler_forked_does_not_keep_its_dead_worker_alive(stage, rota, gate):
    worker = stage.worker(1)
    [job] = hold(stage, rota, gate, name="forks")
    try:
        copy = psutil.Process(int(eventually(lambda: "".join(invariants.lines(stage.folder / "gate.copy")), what="the copy")))
        worker.kill()
        stage.worker(1)
        eventually(lambda: len(rota.jobs.attempts(job.id)) == 2, within=4, what="recovery although the copy lives")
        assert copy.is_running()
    finally:
        (stage.folder / "gate.end").touch()
        gate.touch()
    stage.drained()
    stage.check()


# ---- the beat ------------------------------------------------------------------------------------------------------


def test_a_worker_whose_lock_file_was_deleted_lives_by_its_beat_and_is_given_up_when_that_stands_still(stage, rota, gate):
    nameless = stage.worker(1, beat=0.1)
    [job] = hold(stage, rota, gate)
    (stage.locks / f"{nameless.worker_id}.lock").unlink()
    other = stage.worker(1, lease_ttl=1, beat=0.1)
    before = beats(rota)[other.worker_id]
    eventually(lambda: beats(rota)[other.worker_id] > before + 15, what="longer than the lease")
    untouched(rota, [job])

    nameless.kill()
    died = time.monotonic()
    eventually(lambda: len(rota.jobs.attempts(job.id)) == 2, what="the end of its lease")
    assert time.monotonic() - died > 0.7
    gate.touch()
    assert set(stage.drained().values()) == {"COMPLETED"}
    stage.check()


def test_a_worker_that_was_given_up_and_comes_back_holds_nothing_that_nobody_would_recover(stage, rota, gate):
    lost = stage.worker(1, beat=0.1)
    [first] = hold(stage, rota, gate)
    (stage.locks / f"{lost.worker_id}.lock").unlink()
    stage.freeze(lost)
    other = stage.worker(1, lease_ttl=1)
    eventually(lambda: len(rota.jobs.attempts(first.id)) == 2, within=30, what="the end of its lease")
    gate.touch()
    assert rota.wait(first.id, timeout=patient(20)).status == "COMPLETED"
    other.send(signal.SIGTERM)
    assert other.ends() == 0

    # It wakes: its late result is refused. What it claims from now on must be found when it dies.
    second_gate = stage.folder / "second"
    second = rota.enqueue("hold", {"gate": str(second_gate)})
    lost.send(signal.SIGCONT)
    eventually(lambda: len(stage.entries) == 3 or not lost.alive, within=10, what="a claim by the one that came back, or its end")
    assert rota.store.stats().late_results == 1
    assert [each.status for each in rota.jobs.attempts(first.id)] == ["FAILED", "COMPLETED"]
    lost.kill()
    second_gate.touch()
    stage.worker(1, lease_ttl=1)
    assert rota.wait(second.id, timeout=patient(5)).status == "COMPLETED"
    stage.check()


@ON_A_FILE
def test_a_copied_database_is_recovered_when_the_lease_is_over_and_the_original_is_left_alone(stage, rota, gate):
    stage.worker(1)
    [job] = hold(stage, rota, gate)
    copy = stage.folder / "elsewhere" / "rota.db"
    copy.parent.mkdir()
    with closing(apsw.Connection(str(stage.database))) as source:
        source.execute("VACUUM INTO ?", (str(copy),))
    stage.worker(1, database=copy, lease_ttl=1)
    with closing(Rota(copy)) as other:
        eventually(lambda: len(other.jobs.attempts(job.id)) == 2, what="recovery in the copy")
        untouched(rota, [job])
        gate.touch()
        assert other.wait(job.id, timeout=patient(20)).status == "COMPLETED"
        assert [each.status for each in other.jobs.attempts(job.id)] == ["FAILED", "COMPLETED"]
    rota.wait(job.id, timeout=patient(20))
    assert [each.status for each in rota.jobs.attempts(job.id)] == ["COMPLETED"]
    invariants.check(copy)
    invariants.check(stage.database)


@ON_A_FILE
def test_a_worker_recorded_on_a_folder_that_was_restored_without_its_locks_is_recovered(stage, rota, gate):
    worker = stage.worker(1)
    [job] = hold(stage, rota, gate)
    worker.kill()
    shutil.rmtree(stage.locks)
    stage.worker(1, lease_ttl=1)
    gate.touch()
    assert rota.wait(job.id, timeout=patient(20)).status == "COMPLETED"
    assert [each.status for each in rota.jobs.attempts(job.id)] == ["FAILED", "COMPLETED"]


# ---- direct executions ---------------------------------------------------------------------------------------------


def reservations(stage):
    with invariants.reading(stage.database) as db:
        return [row[0] for row in db.execute("SELECT status FROM direct_reservations ORDER BY reserved_at")]


def test_the_reservation_of_a_caller_killed_while_it_waits_is_expired_and_the_queue_goes_on(stage, rota, gate):
    stage.worker(1)
    hold(stage, rota, gate)
    caller = stage.start("caller", "hold", gate, 50)
    eventually(lambda: reservations(stage) == ["ACTIVE"], what="its reservation")
    caller.kill()
    eventually(lambda: reservations(stage) == ["EXPIRED"], what="the end of its reservation")
    [direct] = rota.jobs.list(status="CANCELLED")
    assert direct.origin == "direct"
    after = rota.enqueue("work", {})
    gate.touch()
    assert rota.wait(after.id, timeout=patient(20)).status == "COMPLETED"
    stage.check()


def test_a_caller_killed_while_its_direct_job_runs_on_a_worker_does_not_block_the_queue(stage, rota, gate):
    stage.worker(2)
    caller = stage.start("caller", "hold", gate, 50)
    eventually(lambda: len(stage.entries) == 1, within=20, what="the direct job at work")
    caller.kill()
    eventually(lambda: reservations(stage) == ["EXPIRED"], what="the end of its reservation")
    after = rota.enqueue("work", {})
    assert rota.wait(after.id, timeout=patient(20)).status == "COMPLETED"
    gate.touch()
    [direct] = [job for job in rota.jobs.list(job_type="hold") if job.origin == "direct"]
    eventually(lambda: rota.jobs.get(direct.id).status.ended, what="the end of the direct job")
    assert len(rota.jobs.attempts(direct.id)) == 1
    stage.check()


def test_a_caller_that_ran_its_direct_job_itself_and_was_killed_is_recovered_and_nothing_is_repeated(stage, rota, gate):
    caller = stage.start("caller", "hold", gate, 50)
    eventually(lambda: len(stage.entries) == 1, within=20, what="the direct job at work in its caller")
    caller.kill()
    gate.touch()
    recovered_once(rota)
    stage.worker(1)
    [direct] = rota.jobs.list()
    assert (direct.status, run_of(rota, direct.id).error) == ("DEAD_LETTER", "Scheduler crash recovery")
    assert reservations(stage) == ["EXPIRED"]
    after = rota.enqueue("work", {})
    assert rota.wait(after.id, timeout=patient(20)).status == "COMPLETED"
    assert len(stage.entries) == 2
    stage.check()


def test_worker_and_caller_killed_while_a_direct_job_runs_expire_its_reservation_and_the_queue_goes_on(stage, rota, gate):
    worker = stage.worker(1)
    caller = stage.start("caller", "hold", gate, 50)
    eventually(lambda: len(stage.entries) == 1, within=20, what="the direct job at work")
    after = rota.enqueue("work", {})
    stage.freeze(worker)  # so that it does not recover from its caller's end first
    caller.kill()
    worker.kill()
    gate.touch()
    recovered_once(rota)
    [direct] = rota.jobs.list(status="DEAD_LETTER")
    assert (direct.origin, run_of(rota, direct.id).error) == ("direct", "Scheduler crash recovery")
    assert reservations(stage) == ["EXPIRED"]
    stage.worker(1)
    assert rota.wait(after.id, timeout=patient(20)).status == "COMPLETED"
    assert len(stage.entries) == 2
    stage.check()


def recovered_once(rota):
    """Recover until nothing is left: each thing once. A program that was being started may keep a killed worker's lock for a moment."""
    done = Counter()

    def all_done():
        found = rota.store.recover()
        done.update(jobs=found.jobs, reservations=found.reservations, successors=found.successors)
        return done["jobs"] and not found

    eventually(all_done, what="the recovery of the job")
    assert done == Counter(jobs=1, reservations=1)


def test_a_direct_execution_that_waits_is_given_up_when_the_last_worker_that_could_run_it_is_killed(stage, rota, gate):
    worker = stage.worker(1)
    hold(stage, rota, gate)
    with ThreadPoolExecutor() as pool:
        call = pool.submit(rota.jobs.direct, "work", timeout=patient(50))
        eventually(lambda: reservations(stage) == ["ACTIVE"], what="its reservation")
        worker.kill()
        with pytest.raises(ResourceBusy, match="no live worker has a handler for work"):
            call.result(patient(20))
    assert reservations(stage) == ["EXPIRED"]
    [direct] = rota.jobs.list(status="CANCELLED")
    assert (direct.origin, run_of(rota, direct.id)) == ("direct", None)


def test_whatever_one_organization_calls_directly_in_a_loop_the_jobs_of_another_run(stage, rota, gate):
    stage.worker(2)
    for name in ("acme", "beta"):
        rota.organizations.create(name)
    rota.templates.update("ghost", handler="shop.mail:send")
    rota.templates.update("once", max_running=1)
    rota.templates.pause("flaky")
    hold(stage, rota, gate, name="once", organization="acme")
    for name, args in {"ghost": "", "flaky": "", "once": gate, "work": ""}.items():
        loop = stage.start("direct_loop", name, args, patient(50))
        loop.says("calling")
        if name == "once":
            eventually(lambda: "ACTIVE" in reservations(stage), what="its reservation")
        elif name != "work":
            loop.says("refused")
        for _ in range(5):
            job = rota.enqueue("work", {}, organization="beta")
            assert rota.wait(job.id, timeout=patient(20)).status == "COMPLETED"
        loop.kill()
        rota.store.recover()
    gate.touch()
    stage.drained()


def test_a_caller_whose_only_worker_was_killed_gets_an_answer(stage, rota, gate):
    worker = stage.worker(1, reservation_ttl=2)
    caller = stage.start("caller", "hold", gate, 2, reservation_ttl=2)
    eventually(lambda: len(stage.entries) == 1, within=20, what="the direct job at work")
    worker.kill()

    assert caller.ends(within=6) == 0

    assert "ended FAILED" in caller.text or "refused ResourceBusy" in caller.text
    assert not invariants.any_live(stage.database)


def test_a_caller_waits_for_a_free_slot_of_a_live_worker_and_is_told_who_holds_it(stage, rota, gate):
    worker = stage.worker(1)
    hold(stage, rota, gate)
    caller = stage.start("caller", "work", "", 0.5)
    assert caller.ends() == 0
    assert "refused ResourceBusy" in caller.text
    assert worker.worker_id[:8] in caller.text
    gate.touch()
    stage.drained()
    stage.check()
