"""From the end of a command to the outcome of its attempt: exit codes, signals, limits, and why it was stopped."""

from __future__ import annotations

import errno
import os
import signal
from typing import assert_never

import msgspec

from rota.model.decide import CUT_OFF_ERROR, Completed, Crashed, Failed, Interrupted, Outcome, Stopped, TimedOut
from rota.ports.executor import StopReason, forced
from rota.runners.external.config import ExternalConfig
from rota.runners.external.output import Output
from rota.runners.external.program import NOT_FOUND, NOT_RUNNABLE
from rota.runners.external.warden_process import End

PASSING = (errno.EAGAIN, errno.ENOMEM, errno.ETXTBSY, errno.EMFILE, errno.ENFILE, errno.EIO)
"""Errors of a start that may be over by the next attempt."""
STARTED_NOTHING = "bwrap: "
NO_MEMORY = ("memoryerror", "cannot allocate memory", "out of memory", "bad_alloc", "memory exhausted")


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an attempt when nothing of its command is left."""

    config: ExternalConfig
    isolated: bool
    timeout_s: float
    seconds: float
    reason: StopReason | None
    end: End | None
    """None: the warden died."""
    output: Output


def outcome_of(attempt: Attempt) -> Outcome:
    """Return how the attempt ended: by why the command was asked to stop, as `rota.executors.stops` has it for handlers."""
    end, reason = attempt.end, attempt.reason
    if end is None:
        return forced(reason, attempt.timeout_s) if reason else Crashed("the process that watched over the command died")
    if end.lapsed:
        return Interrupted(CUT_OFF_ERROR)
    if attempt.output.is_flood:
        return _flooded(attempt)
    own = _own(attempt, end)
    if reason is None:
        return own
    if end.killed:
        return forced(reason, attempt.timeout_s)
    match reason:
        case StopReason.CANCEL:
            return Stopped() if end.stopped and _signal(attempt, end) == signal.SIGTERM else own
        case StopReason.TIMEOUT:
            return TimedOut(attempt.timeout_s) if end.stopped or attempt.seconds >= attempt.timeout_s else own
        case StopReason.SHUTDOWN | StopReason.LEASE:
            return forced(reason, attempt.timeout_s) if end.stopped and not isinstance(own, Completed) else own
        case _:
            assert_never(reason)


def _own(attempt: Attempt, end: End) -> Outcome:
    """Return what the command itself came to."""
    if end.refused is not None:
        return _not_started(end.refused, end.stage)
    if attempt.isolated and end.exit_code is None and os.waitstatus_to_exitcode(end.status or 0) > 0:
        return _not_isolated(attempt)
    number = _signal(attempt, end)
    if number is not None:
        return Failed(_killed_by(number, attempt, end), exit_code=128 + number)
    code = os.waitstatus_to_exitcode(end.status or 0)
    if code == 0:
        return Completed(attempt.output.result(), message=attempt.output.message() or "exit code 0")
    config = attempt.config
    return Failed(_exit_text(code, attempt), permanent=code in config.permanent and code not in config.retry, exit_code=code)


def _signal(attempt: Attempt, end: End) -> int | None:
    """Return the signal that ended the command; None: it ended itself. Bubblewrap reports a signal as an exit code, as shells do."""
    code = os.waitstatus_to_exitcode(end.status or 0)
    if code < 0:
        return -code
    return code - 128 if attempt.isolated and code - 128 in signal.valid_signals() else None


def _not_started(number: int, stage: str | None) -> Failed:
    text = os.strerror(number).lower()
    if stage == "program":
        code = NOT_FOUND if number == errno.ENOENT else NOT_RUNNABLE
        if number == errno.ENOENT:
            text += " (a script whose interpreter is missing, or a library)"
        return Failed(f"the command can't be run: {text}", permanent=number not in PASSING, exit_code=code)
    return Failed(f"the command could not be started ({stage}): {text}", exit_code=NOT_RUNNABLE)


def _not_isolated(attempt: Attempt) -> Failed:
    said = attempt.output.last_error_line().removeprefix(STARTED_NOTHING)
    if said.startswith("execvp"):
        missing = said.endswith(os.strerror(errno.ENOENT))
        return Failed(f"the command can't be run: {said}", permanent=True, exit_code=NOT_FOUND if missing else NOT_RUNNABLE)
    return Failed(f"the command could not be isolated: {said or 'bubblewrap died'}", exit_code=NOT_RUNNABLE)


def _flooded(attempt: Attempt) -> Failed:
    limit = attempt.config.limits.flood
    return Failed(f"killed: it wrote more than {limit:,} bytes (output_flood): write less, or to a file", exit_code=128 + signal.SIGKILL)


def _killed_by(number: int, attempt: Attempt, end: End) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    limit = _limit_behind(number, attempt, end)
    return f"killed by {name}{f': {limit}' if limit else ''}"


def _limit_behind(number: int, attempt: Attempt, end: End) -> str:
    """Return the limit that a signal speaks of; "": none."""
    limits = attempt.config.limits
    if number == signal.SIGXCPU or (number == signal.SIGKILL and 0 < limits.cpu_seconds <= end.cpu_s):
        return f"a process used more than {limits.cpu_seconds} s of processor time (cpu_seconds)"
    if number == signal.SIGXFSZ:
        return f"a file grew beyond {limits.file_bytes:,} bytes (file_bytes)"
    if number == signal.SIGKILL:
        return "the machine was out of memory, or somebody killed it"
    if number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS) and limits.memory_bytes:
        return f"a fault of the program, or it found no more memory: each process has {limits.memory_bytes:,} bytes (memory_bytes)"
    return ""


def _exit_text(code: int, attempt: Attempt) -> str:
    line, limits = attempt.output.last_error_line(), attempt.config.limits
    text = f"exit code {code}{f': {line}' if line else ''}"
    if limits.memory_bytes and any(words in line.lower() for words in NO_MEMORY):
        return f"{text} (each process has {limits.memory_bytes:,} bytes: memory_bytes)"
    if code - 128 == signal.SIGXFSZ:
        return f"{text} (a file grew beyond {limits.file_bytes:,} bytes: file_bytes)"
    if code - 128 == signal.SIGXCPU:
        return f"{text} (a process used more than {limits.cpu_seconds} s of processor time: cpu_seconds)"
    return text
