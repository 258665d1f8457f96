"""Runs tests in several processes that are forked from the one that has collected them.

Collecting twenty thousand tests takes longer than most files of them do, so it is done once. `--crew 4` has four processes take file after
file; what they report is counted and shown by the first.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import traceback
from collections import deque
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the number of processes."""
    parser.addoption("--crew", type=int, default=0, help="processes that run the tests, each a file at a time; 0: this one does")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run what was collected in processes of their own, if there are to be some."""
    if not session.config.option.crew or session.config.option.collectonly or session.testsfailed:
        return None
    Crew(session).run()
    return True


class Crew:
    """The first process: it hands out files, and takes in what is reported."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._config = session.config
        self._parts = deque(parts_of(session.items))
        self._members: dict[Connection, Member] = {}
        self._number = 0

    def run(self) -> None:
        try:
            for _ in range(min(self._config.option.crew, len(self._parts))):
                self._engage()
            while self._members:
                for pipe in wait(list(self._members)):
                    assert isinstance(pipe, Connection)
                    self._hear(pipe)
        finally:
            for member in self._members.values():
                os.kill(member.pid, signal.SIGKILL)
                os.waitpid(member.pid, 0)

    def _engage(self) -> None:
        ours, theirs = Pipe()
        self._number += 1
        base = self._config._tmp_path_factory.getbasetemp()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for pipe in (ours, *self._members):
                pipe.close()
            be_member(self._session, theirs, base / f"member-{self._number}")
        theirs.close()
        self._members[ours] = Member(pid)

    def _hear(self, pipe: Connection) -> None:
        member = self._members[pipe]
        try:
            word, value = pipe.recv()
        except (EOFError, ConnectionError):
            self._bury(pipe)
            return
        if word == "next":
            member.part = self._parts.popleft() if self._parts else None
            pipe.send(member.part)
        elif word == "begins":
            member.at = value
        else:
            report = self._config.hook.pytest_report_from_serializable(config=self._config, data=value)
            self._config.hook.pytest_runtest_logreport(report=report)

    def _bury(self, pipe: Connection) -> None:
        """Take leave of a process. One that dies in a test has failed it, and another one runs the rest of its file."""
        member = self._members.pop(pipe)
        pipe.close()
        _, status = os.waitpid(member.pid, 0)
        if status == 0:
            return
        item = self._session.items[member.at]
        code = os.waitstatus_to_exitcode(status)
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", f"the process that ran it died with {code}", "call")
        self._config.hook.pytest_runtest_logreport(report=report)
        end = next(end for start, end in parts_of(self._session.items) if start <= member.at < end)
        if member.part is not None and member.part[0] > member.at:
            self._parts.appendleft(member.part)  # it was handed out, and not begun
        if member.at + 1 < end:
            self._parts.appendleft((member.at + 1, end))
        if self._parts:
            self._engage()


class Member:
    """What the first process knows of another."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.at = 0
        """The test that it runs."""
        self.part: tuple[int, int] | None = None
        """The last tests that it was handed."""


def parts_of(items: list[pytest.Item]) -> list[tuple[int, int]]:
    """Return where the tests of each file begin and end."""
    starts = [at for at, item in enumerate(items) if at == 0 or item.path != items[at - 1].path]
    return list(zip(starts, [*starts[1:], len(items)], strict=True))


def be_member(session: pytest.Session, pipe: Connection, folder: Any) -> None:
    """Be another process: run what is handed out, and end."""
    code = 1
    try:
        atexit._clear()  # what the first process will do at its end is not ours to do
        config = session.config
        capture_apart(config)
        folder.mkdir(mode=0o700)
        config._tmp_path_factory._basetemp = folder
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(Reporter(config, pipe), "crew")
        work(session, pipe)
        atexit._run_exitfuncs()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def capture_apart(config: pytest.Config) -> None:
    """Let what is printed go to files of this process alone. The objects stay: a module may have kept `sys.stderr` since its import."""
    capturing = config.pluginmanager.getplugin("capturemanager")._global_capturing
    for stream, descriptor in ((capturing.out, 1), (capturing.err, 2)):
        if stream is not None and hasattr(stream, "tmpfile"):
            with tempfile.TemporaryFile() as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno())
                os.dup2(own.fileno(), descriptor)


def work(session: pytest.Session, pipe: Connection) -> None:
    """Run part after part. The next one is asked for before the last test of a part: what both need is not torn down between them."""
    part = ask(pipe)
    while part is not None:
        start, end = part
        for at in range(start, end):
            if at + 1 == end:
                part = ask(pipe)
            following = at + 1 if at + 1 < end else None if part is None else part[0]
            item, nextitem = session.items[at], None if following is None else session.items[following]
            pipe.send(("begins", at))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)


def ask(pipe: Connection) -> tuple[int, int] | None:
    """Ask the first process for more."""
    pipe.send(("next", None))
    part: tuple[int, int] | None = pipe.recv()
    return part


class Reporter:
    """Sends reports to the first process."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config = config
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._pipe.send(("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report)))
