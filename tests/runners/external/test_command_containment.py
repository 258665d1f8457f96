"""What hostile commands can't do: survive, flood, take the machine, read what is not theirs.

Each as a worker that is root and as one that is not, in namespaces and without.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from rota.model.decide import CUT_OFF_ERROR, Completed, Crashed, Failed, Interrupted, Stopped, TimedOut
from rota.ports.executor import StopReason
from tests.runners.external.stage import (
    GRACE_S,
    ISOLATED,
    OPPOSITE,
    children,
    in_namespace,
    is_gone,
    order,
    processes,
    wait_for_processes,
)
from tests.support.command_control import CommandControl
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.waiting import eventually

pytestmark = pytest.mark.paired

SETSID = "setsid sleep 600 & sleep 0.05; echo ready; "
STUBBORN = """setsid sh -c "trap '' TERM; (sleep 600 &); (setsid sleep 600 &); sleep 600" >/dev/null 2>&1 & sleep 0.05; echo ready; """
HOLDS_OUTPUT = "sleep 600 & echo ready; "
IGNORES_TERM = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
CLOSES_OUTPUT = "echo ready; exec >&- 2>&-; sleep 600"
FORKS = "i=0; while [ $i -lt 300 ]; do sleep 600 & i=$((i+1)); done; echo made $i; wait"
CHAIN = "$| = 1; $SIG{TERM} = 'IGNORE'; print 'ready'; while (1) { exit if fork }"


# ---- nothing is left ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [SETSID, STUBBORN, HOLDS_OUTPUT], ids=["setsid", "double-fork-ignores-term", "holds-output"])
def test_what_a_command_leaves_behind_ends_with_it(stage, left):
    ran = stage.run(stage.script(f"readlink /proc/self/ns/pid; {left} exit 0"))
    assert isinstance(ran.outcome, Completed)
    assert ran.seconds < patient(5)
    assert processes(ran.run_uuid) == []
    if ran.isolated:
        assert in_namespace(ran.out.split("\n")[0]) == []


@pytest.mark.parametrize(
    "text", [IGNORES_TERM, CLOSES_OUTPUT, STUBBORN + "sleep 600"], ids=["ignores-term", "closes-output", "stubborn-children"]
)
def test_a_command_over_its_timeout_is_over_within_a_second_of_it(stage, text):
    ran = stage.run(stage.script(text), timeout_s=0.3)
    assert ran.outcome == TimedOut(0.3)
    assert 0.3 <= ran.seconds < 0.3 + GRACE_S + patient(1)
    assert not ran.forced
    assert processes(ran.run_uuid) == []


def test_a_command_that_is_cancelled_and_ignores_it_is_killed_after_its_grace(stage):
    ran = stage.run(stage.script(IGNORES_TERM), stop=StopReason.CANCEL)
    assert ran.outcome == Stopped()
    assert ran.seconds < GRACE_S + patient(1)
    assert processes(ran.run_uuid) == []


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_the_executor_can_shorten_the_grace(stage):
    ran = stage.run(stage.script(IGNORES_TERM), stop=StopReason.CANCEL, grace_s=0.05, grace_seconds=100)
    assert ran.outcome == Stopped()
    assert ran.forced
    assert ran.seconds < patient(2)
    assert processes(ran.run_uuid) == []


def test_a_command_that_only_forks_and_exits_is_caught(stage):
    ran = stage.run(stage.script(CHAIN, shell="/usr/bin/perl"), timeout_s=0.3)
    assert isinstance(ran.outcome, Completed), ran
    assert ran.seconds < patient(5)
    assert processes(ran.run_uuid) == []


@pytest.mark.prove
def test_no_round_leaves_a_survivor(stage):
    script = stage.script(f"readlink /proc/self/ns/pid; {SETSID}{STUBBORN}{HOLDS_OUTPUT}{IGNORES_TERM}")
    for _ in range(size(1, prove=200)):
        ran = stage.run(script, stop=StopReason.CANCEL, grace_seconds=0.05)
        assert ran.outcome == Stopped()
        assert processes(ran.run_uuid) == []
        assert not ran.isolated or in_namespace(ran.out.split("\n")[0]) == []


def test_a_killed_worker_leaves_nothing_running(stage):
    run_uuid = str(uuid4())
    body = stage.script(STUBBORN + IGNORES_TERM)
    with stage.worker(lambda: stage.runner(grace_seconds=100).run(order(body, run_uuid), CommandControl())) as worker:
        wait_for_processes(run_uuid, 4)
        warden = eventually(lambda: children(worker.pid))
        worker.kill()
        eventually(lambda: not processes(run_uuid), within=5, what="no process of the run is left")
        eventually(lambda: all(map(is_gone, warden)), within=5, what="the warden is gone")


@pytest.mark.parametrize("stage", ISOLATED, ids=str, indirect=True)
def test_in_namespaces_nothing_is_left_of_a_command_whose_warden_is_killed(stage):
    run_uuid = str(uuid4())
    body = stage.script(STUBBORN + IGNORES_TERM)
    with stage.worker(lambda: stage.runner().run(order(body, run_uuid), CommandControl())) as worker:
        wait_for_processes(run_uuid, 4)
        for warden in children(worker.pid):
            os.kill(warden, signal.SIGKILL)
        assert isinstance(worker.result(), Crashed)
        eventually(lambda: not processes(run_uuid), within=5, what="no process of the run is left")


def test_a_command_ends_with_the_lease_of_a_worker_that_is_stopped(stage):
    run_uuid = str(uuid4())
    body = stage.script(STUBBORN + IGNORES_TERM)

    def work():
        runner = stage.runner()
        runner.renew(time.monotonic() + 600)
        run = threading.Thread(target=lambda: outcomes.append(runner.run(order(body, run_uuid), CommandControl())))
        outcomes = []
        run.start()
        wait_for = Path(stage.work) / "stopped"
        while not wait_for.exists():
            time.sleep(0.01)
        runner.renew(time.monotonic() + 0.3)
        (Path(stage.work) / "renewed").touch()
        run.join()
        return outcomes[0]

    with stage.worker(work) as worker:
        wait_for_processes(run_uuid, 4)
        (stage.work / "stopped").touch()
        eventually((stage.work / "renewed").exists)
        worker.kill(signal.SIGSTOP)
        eventually(lambda: not processes(run_uuid), within=3, what="the lease ends the run")
        worker.kill(signal.SIGCONT)
        assert worker.result() == Interrupted(CUT_OFF_ERROR)


@pytest.mark.parametrize("stage", OPPOSITE[:1], ids=str, indirect=True)
def test_a_lease_that_is_renewed_or_lifted_ends_nothing(stage):
    def work():
        runner = stage.runner()
        runner.renew(time.monotonic() + 0.4)
        control = CommandControl()
        outcomes = []
        run = threading.Thread(target=lambda: outcomes.append(runner.run(order(stage.script("echo ready; sleep 0.5")), control)))
        run.start()
        control.wait_for(b"ready", within=patient(10))
        runner.renew(None)
        run.join()
        return outcomes[0]

    assert isinstance(stage.do(work), Completed)


# ---- limits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_output_beyond_the_cap_is_dropped_and_counted(stage):
    ran = stage.run(stage.script("head -c 5000 /dev/zero | tr '\\0' a; echo; echo end"), output_bytes=1000)
    assert isinstance(ran.outcome, Completed)
    assert ran.out == "a" * 1000
    assert ran.err == "\n[4,005 bytes of output were dropped: output_bytes is 1,000]\n"
    assert ran.outcome.result == '"' + "a" * 1000 + '"'
    assert ran.outcome.message.endswith("end\n[4,005 bytes of output were dropped: output_bytes is 1,000]")


def test_a_flood_of_output_ends_the_command(stage):
    ran = stage.run(stage.script("yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), output_bytes=100_000)
    assert ran.outcome == Failed("killed: it wrote more than 1,000,000 bytes (output_flood): write less, or to a file", exit_code=137)
    assert len(ran.out) == 100_000
    assert ran.seconds < patient(5)
    assert processes(ran.run_uuid) == []


def test_memory_is_limited(stage):
    ran = stage.run(stage.script("$n = 900 << 20; $x = 'a' x $n; print 'got it'", shell="/usr/bin/perl"), memory_bytes=256 << 20)
    assert isinstance(ran.outcome, Failed)
    assert "(each process has 268,435,456 bytes: memory_bytes)" in ran.outcome.error, ran
    assert "got it" not in ran.out


def test_the_size_of_files_is_limited(stage):
    ran = stage.run(stage.script("exec dd if=/dev/zero of=/tmp/rota-$ROTA_JOB_RUN_UUID bs=1M count=64"), file_bytes=1 << 20)
    Path(f"/tmp/rota-{ran.run_uuid}").unlink(missing_ok=True)
    assert ran.outcome == Failed("killed by SIGXFSZ: a file grew beyond 1,048,576 bytes (file_bytes)", exit_code=153)


@pytest.mark.parametrize("stage", OPPOSITE[1:], ids=str, indirect=True)
def test_processor_time_is_limited(stage):
    ran = stage.run(stage.script("while :; do :; done"), cpu_seconds=1)
    assert ran.outcome == Failed("killed by SIGXCPU: a process used more than 1 s of processor time (cpu_seconds)", exit_code=152)


def test_forks_are_limited(stage):
    ran = stage.run(stage.script(FORKS), timeout_s=20, processes=threads_of_nobody() + 40)
    assert isinstance(ran.outcome, Failed)
    assert "ork" in ran.outcome.error, ran
    assert "made" not in ran.out
    assert processes(ran.run_uuid) == []


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_descriptors_are_limited(stage):
    ran = stage.run(stage.script("ulimit -n"), open_files=33)
    assert ran.out == "33\n"


def threads_of_nobody() -> int:
    """Return how many processes and threads the commands' user has: the limit counts them all."""
    uid = 65_534 if os.geteuid() == 0 else os.geteuid()
    return sum(len(list((path / "task").iterdir())) for path in Path("/proc").glob("[0-9]*") if _is_of(path, uid))


def _is_of(path: Path, uid: int) -> bool:
    try:
        return path.stat().st_uid == uid
    except OSError:
        return False
