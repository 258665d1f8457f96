"""What hostile commands can't do: survive, flood, take the machine, read what is not theirs.

Each as a worker that is root and as one that is not, in namespaces and without.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from rota.model.decide import CUT_OFF_ERROR, Completed, Crashed, Failed, Interrupted, Stopped, TimedOut
from rota.model.settings import Settings
from rota.ports.executor import StopReason
from rota.runners.external import guard_process
from tests.runners.external.stage import (
    BARE,
    GRACE_S,
    ISOLATED,
    OPPOSITE,
    WAYS,
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
SWAP = """
import os, select, sys
good, evil, link = sys.argv[1:]
while not select.select([0], [], [], 0)[0]:
    for target in (evil, good):
        os.symlink(target, link + ".new")
        os.rename(link + ".new", link)
"""
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


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
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


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
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


# ---- what it can see ------------------------------------------------------------------------------------------


def test_the_environment_of_its_parent_is_closed_to_a_command(stage):
    ran = stage.run(stage.script("cat /proc/$PPID/environ /proc/$PPID/mem >/dev/null && echo read; echo done"))
    assert "read" not in ran.out
    assert "done" in ran.out


@pytest.mark.parametrize("stage", [way for way in BARE if not way.root], ids=str, indirect=True)
def test_a_guarded_worker_is_closed_to_a_command_of_the_same_user(stage):
    body = stage.script('tr "\\0" "\\n" < /proc/$1/environ >/dev/null && echo read; true')

    def work():
        guard_process()
        control = CommandControl()
        stage.runner().run(order(f"{body} {os.getpid()}"), control)
        return control.out.decode(), control.err.decode()

    with stage.worker(work) as worker:
        out, err = worker.result()
    assert out == ""
    assert "Permission denied" in err


def test_a_command_has_its_own_variables_and_no_others(stage, monkeypatch):
    monkeypatch.setenv("SECRET_OF_WORKER", "hidden")
    monkeypatch.setenv("ROTA_STORE", "postgresql://rota:hidden@db/rota")
    monkeypatch.setenv("ALLOWED", "shown")
    ran = stage.run(stage.script("exec env"), config='environment = ["ALLOWED", "ABSENT"]\nset = {FIXED = "a b"}')
    variables = dict(line.split("=", 1) for line in ran.out.splitlines())
    assert variables.pop("PWD", str(stage.work)) == str(stage.work)
    assert variables == {
        "ALLOWED": "shown",
        "FIXED": "a b",
        "ROTA_JOB_UUID": "0190-job",
        "ROTA_JOB_RUN_UUID": ran.run_uuid,
        "ROTA_JOB_NAME": "nightly",
        "ROTA_ATTEMPT": "2",
    }


def test_a_command_inherits_no_descriptor_of_its_worker(stage):
    ours, theirs = socket.socketpair()
    with ours, theirs, (stage.work / "lock").open("w") as lock:
        for each in (ours, theirs, lock):
            os.set_inheritable(each.fileno(), True)
        ran = stage.run(stage.script("ls /proc/self/fd; readlink /proc/self/fd/0"))
    # Those of `ls` itself, and without namespaces the program's own.
    expected = ["0", "1", "2", "3", "/dev/null"] if ran.isolated else ["0", "1", "2", "3", "4", "/dev/null"]
    assert ran.out.split() == expected


def test_the_network_is_closed_in_namespaces_unless_it_is_allowed(stage):
    connect = "use Socket; socket($s, PF_INET, SOCK_STREAM, 0); connect($s, sockaddr_in($ARGV[0], INADDR_LOOPBACK)) && print 'connected'"
    body = stage.script(connect, shell="/usr/bin/perl")
    with socket.create_server(("127.0.0.1", 0)) as server:
        body = f"{body} {server.getsockname()[1]}"
        assert stage.run(body).out == ("" if stage.way.isolation == "require" else "connected")
        assert stage.run(body, config="network = true").out == "connected"


def test_only_what_is_shown_is_there_in_namespaces(stage):
    store = stage.folder / "rota.db"
    store.write_bytes(b"SQLite format 3\0")
    store.chmod(0o644)
    shared = stage.folder / "shared"
    shared.mkdir(mode=0o755)
    (shared / "note").write_text("note\n")
    script = stage.script(f"cat {shared}/note; head -c 15 {store}; ls {stage.folder}; ls /etc /root /home")
    ran = stage.run(script, config=f'readable = ["{shared}"]')
    assert ran.out.startswith("note\n")
    assert ("SQLite format 3" in ran.out) == (not ran.isolated)
    if ran.isolated:
        assert ran.out.split()[1:4] == ["commands", "shared", "work"]
        assert "shadow" not in ran.out


@pytest.mark.parametrize("stage", ISOLATED, ids=str, indirect=True)
def test_in_namespaces_only_what_is_writable_can_be_written_and_tmp_has_a_size(stage):
    shelf = stage.folder / "shelf"
    shelf.mkdir()
    shelf.chmod(0o777)
    text = f"""
for path in / /dev /etc /usr {stage.work} {shelf} /tmp; do touch $path/x 2>/dev/null && echo $path; done
head -c 3000000 /dev/zero > /tmp/big || echo full
echo '# more' >> "$0" || echo kept
unshare -U true || echo no namespaces inside
"""
    ran = stage.run(stage.script(text), config=f'writable = ["{shelf}"]', tmp_bytes=1_000_000)
    assert ran.out == f"{shelf}\n/tmp\nfull\nkept\nno namespaces inside\n"
    assert (shelf / "x").exists()


def test_a_command_runs_as_its_user_without_groups_and_gains_no_rights(stage):
    ran = stage.run(stage.script("id -u; id -G; grep -E 'NoNewPrivs|CapEff' /proc/self/status; umask; ulimit -c; pwd"))
    uid = 65_534 if os.geteuid() == 0 else os.geteuid()
    gid = 65_534 if os.geteuid() == 0 else os.getegid()
    assert ran.out.splitlines() == [str(uid), str(gid), "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "0077", "0", str(stage.work)]


# ---- the program that was checked is the one that runs ----------------------------------------------------------


@pytest.mark.prove
@pytest.mark.parametrize("stage", [way for way in WAYS if way.root] or WAYS, ids=str, indirect=True)
def test_a_link_that_is_swapped_never_runs_another_program(stage):
    good = stage.script("echo good", "good")
    evil = stage.folder / "evil"
    evil.write_text("#!/bin/sh\necho EVIL\n")
    evil.chmod(0o755)
    link = stage.commands / "link"
    link.symlink_to(good)
    ran = refused = 0
    # A process of its own: a thread would only swap while this one waits.
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAP, good, evil, link], stdin=subprocess.PIPE) as swapper:
        runner = stage.runner()
        while ran < size(10, prove=1000):
            control = CommandControl()
            outcome = runner.run(order(str(link)), control)
            if isinstance(outcome, Failed):
                assert "is not a command that this worker runs" in outcome.error
                refused += 1
            else:
                assert control.out == b"good\n"
                ran += 1
        assert swapper.poll() is None
        swapper.stdin.close()
    print(f"{stage.way}: {ran} ran, {refused} refused")
    assert refused


def test_a_file_that_is_neither_program_nor_script_is_refused_for_good(stage):
    path = stage.commands / "data"
    path.write_text("echo run by a shell\n")
    path.chmod(0o755)
    ran = stage.run(str(path))
    assert isinstance(ran.outcome, Failed)
    assert (ran.outcome.permanent, ran.outcome.exit_code) == (True, 126)
    assert "exec format error" in ran.outcome.error
    assert ran.out == ""


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_a_script_without_its_interpreter_is_refused_for_good(stage):
    ran = stage.run(stage.script("", shell="/nonexistent/interpreter"))
    assert isinstance(ran.outcome, Failed)
    assert (ran.outcome.permanent, ran.outcome.exit_code) == (True, 127)


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_words_of_the_command_line_are_arguments_and_no_shell_sees_them(stage):
    ran = stage.run(stage.script('for word; do echo "<$word>"; done') + """ 'a b' "c  d" ; rm -rf / $(id) `id` * > file""")
    assert ran.out.split("\n")[:-1] == ["<a b>", "<c  d>", "<;>", "<rm>", "<-rf>", "</>", "<$(id)>", "<`id`>", "<*>", "<>>", "<file>"]


# ---- secrets --------------------------------------------------------------------------------------------------


def test_secrets_come_by_a_descriptor_and_are_nowhere_else(stage):
    text = """
cat <&$ROTA_SECRETS_FD
cat /proc/self/environ /proc/$PPID/environ /proc/self/cmdline /proc/$PPID/cmdline 2>/dev/null | grep -c TOPSECRET
echo more >> /proc/self/fd/$ROTA_SECRETS_FD || echo sealed
echo "it was TOPSECRET-value" >&2
exit 3
"""
    ran = stage.run(stage.script(text), secrets={"api": "TOPSECRET-value", "ö": "ü" * 100_000}, output_bytes=1 << 20)
    document, end = json.JSONDecoder().raw_decode(ran.out)
    assert document == {"api": "TOPSECRET-value", "ö": "ü" * 100_000}
    assert ran.out[end:].split() == ["0", "sealed"]
    assert ran.outcome == Failed("exit code 3: it was ****", exit_code=3)


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_results_are_cut_and_undecodable_bytes_replaced(stage):
    ran = stage.run(stage.script(r"""printf 'a\377\000b"%s' $(head -c 300 /dev/zero | tr '\0' x)"""), settings=Settings(result_max=100))
    assert isinstance(ran.outcome, Completed)
    assert len(ran.outcome.result.encode()) <= 100
    assert ran.outcome.result.startswith('"a��b\\"xxx')


@pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)
def test_output_comes_while_the_command_runs(stage):
    def work():
        control = CommandControl()
        stage.runner().run(order(stage.script("echo first; sleep 0.4; echo second >&2")), control)
        return control.pieces, bytes(control.out), bytes(control.err), time.monotonic() - control.first_output_at

    pieces, out, err, ago = stage.do(work)
    assert (pieces, out, err) == (2, b"first\n", b"second\n")
    assert ago >= 0.4
