"""How commands end: exit codes, signals, and why they were stopped."""

from __future__ import annotations

from base64 import b64encode

import pytest

from rota.model.decide import CUT_OFF_ERROR, Completed, Failed, Interrupted, Stopped, TimedOut
from rota.model.settings import Settings
from rota.ports.executor import StopReason
from tests.runners.external.stage import OPPOSITE, order, processes
from tests.support.command_control import CommandControl

pytestmark = [pytest.mark.paired, pytest.mark.parametrize("stage", OPPOSITE, ids=str, indirect=True)]

CODES = 'exit_codes = {retry = [75], permanent = [3, "64-78"]}'
SLEEPS = "echo ready; exec sleep 600"
CLEANS_UP = "trap 'echo cleaned; exit {code}' TERM; echo ready; sleep 600 & wait; sleep 600"


@pytest.mark.parametrize(
    ("code", "permanent"), [(1, False), (2, False), (3, True), (64, True), (75, False), (78, True), (79, False), (126, False), (255, False)]
)
def test_an_exit_code_is_a_failure_and_permanent_where_the_file_says_so(stage, code, permanent):
    ran = stage.run(stage.script(f"echo first >&2; echo ' why it failed ' >&2; echo >&2; exit {code}"), config=CODES)
    assert ran.outcome == Failed(f"exit code {code}: why it failed", permanent=permanent, exit_code=code)


def test_an_exit_code_without_output_is_named_alone(stage):
    assert stage.run(stage.script("exit 9")).outcome == Failed("exit code 9", exit_code=9)


def test_exit_code_0_is_a_result(stage):
    ran = stage.run(stage.script("echo 'päivää \"x\"'; echo warned >&2; sleep 0.05; echo end"))
    assert ran.outcome == Completed('"päivää \\"x\\"\\nend\\n"', message='päivää "x"\nwarned\nend')
    assert stage.run(stage.script("exit 0")).outcome == Completed('""', message="exit code 0")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (9, "killed by SIGKILL: the machine was out of memory, or somebody killed it"),
        (15, "killed by SIGTERM"),
        (
            11,
            "killed by SIGSEGV: a fault of the program, or it found no more memory: each process has 1,073,741,824 bytes (memory_bytes)",
        ),
    ],
)
def test_a_signal_that_nobody_here_sent_is_named(stage, number, text):
    assert stage.run(stage.script(f"kill -{number} $$")).outcome == Failed(text, exit_code=128 + number)


def test_a_command_that_cleans_up_when_it_is_cancelled_keeps_its_outcome(stage):
    ran = stage.run(stage.script(CLEANS_UP.format(code=0)), stop=StopReason.CANCEL, grace_seconds=20)
    assert ran.outcome == Completed('"ready\\ncleaned\\n"', message="ready\ncleaned")
    ran = stage.run(stage.script(CLEANS_UP.format(code=7)), stop=StopReason.CANCEL, grace_seconds=20)
    assert ran.outcome == Failed("exit code 7", exit_code=7)
    assert processes(ran.run_uuid) == []


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (StopReason.CANCEL, Stopped()),
        (StopReason.TIMEOUT, TimedOut(0.0)),
        (StopReason.SHUTDOWN, Interrupted()),
        (StopReason.LEASE, Interrupted(CUT_OFF_ERROR)),
    ],
)
def test_a_command_that_ends_because_it_was_asked_to_has_the_outcome_of_the_reason(stage, reason, outcome):
    assert stage.run(stage.script(SLEEPS), stop=reason, grace_seconds=20).outcome == outcome


@pytest.mark.parametrize("reason", [StopReason.SHUTDOWN, StopReason.LEASE])
def test_a_result_within_the_grace_of_a_shutdown_stands(stage, reason):
    ran = stage.run(stage.script(CLEANS_UP.format(code=0)), stop=reason, grace_seconds=20)
    assert isinstance(ran.outcome, Completed)
    ran = stage.run(stage.script(CLEANS_UP.format(code=7)), stop=reason, grace_seconds=20)
    assert isinstance(ran.outcome, Interrupted)


def test_a_result_after_the_timeout_is_still_a_timeout(stage):
    ran = stage.run(stage.script(CLEANS_UP.format(code=0)), timeout_s=0.3, grace_seconds=20)
    assert ran.outcome == TimedOut(0.3)


def test_a_command_that_was_to_stop_before_it_began_is_not_started(stage):
    def work():
        control = CommandControl()
        control.stop(StopReason.SHUTDOWN)
        return stage.runner().run(order(stage.script("echo started > started")), control), control.pieces

    assert stage.do(work) == (Interrupted(), 0)


SECRET = "hunter2-" + "0123456789abcdef" * 4
CUTS = {
    "the end of the message begins inside of it": f"cat <&9 >&2; head -c {64 * 1024 - 40} /dev/zero | tr '\\0' x >&2",
    "the result ends inside of it": f"head -c {2000 - 40} /dev/zero | tr '\\0' x; cat <&9",
    "the log ends inside of it": f"head -c {5000 - 40} /dev/zero | tr '\\0' x; cat <&9; head -c 100 /dev/zero",
    "the last line of the error begins inside of it": f"cat <&9 >&2; head -c {4096 - 40} /dev/zero | tr '\\0' x >&2; exit 3",
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", ["plain", "base64"])
def test_no_part_of_a_secret_is_left_where_output_is_cut(stage, cut, form):
    """What is cut is the output without secrets: a part of one would not be recognized."""
    shown = {"plain": SECRET, "base64": b64encode(SECRET.encode()).decode()}[form]
    text = f"exec 9<<END\n{shown}\nEND\n{CUTS[cut]}".replace("cat <&9", "head -c 1000 <&9 | tr -d '\\n'")
    limits = {"output_bytes": 5000 if "log" in cut else 1_000_000}
    ran = stage.run(stage.script(text), secrets={"key": SECRET}, settings=Settings(result_max=2000), **limits)
    everything = " ".join(
        filter(None, [ran.out, ran.err, *(str(getattr(ran.outcome, name, "")) for name in ("result", "message", "error"))])
    )
    parts = {shown[at : at + 12] for at in range(len(shown) - 12)}
    assert not [part for part in parts if part in everything]
    assert "xxx" in everything
