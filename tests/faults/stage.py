"""Real processes on a real store: started here, and ended here by their own pids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.faults import invariants, raw
from tests.support.launch import Launched, launch, store_of
from tests.support.pace import patient
from tests.support.waiting import eventually

PROGRAMS = Path(__file__).parent / "programs"
SOURCE = Path(__file__).parents[2] / "src"
FROM_NOTHING = ("forker",)
"""Programs that are not launched from a process that has imported Rota: what they are about is forks."""


class Program:
    """One process and what it said."""

    def __init__(self, popen: subprocess.Popen[bytes] | Launched, out: Path) -> None:
        self.popen = popen
        self._out = out
        self.worker_id = ""

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def text(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def says(self, word: str, *, within: float = 20.0) -> str:
        """Wait for a line that begins with this word and return the rest of it."""

        def found() -> str | None:
            whole = [line for line in self.text.split("\n")[:-1] if line.split(" ")[0] == word]
            assert whole or self.alive, f"it ended ({self.popen.returncode}) and never said {word!r}:\n{self.text[-2000:]}"
            return f"{whole[0]} " if whole else None

        return eventually(found, within=within, what=f"{word!r} in\n{self.text[-2000:]}").strip().partition(" ")[2]

    def send(self, number: int) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        """SIGKILL this process alone, and reap it."""
        self.popen.kill()
        self.popen.wait(patient(10))

    def ends(self, *, within: float = 20.0) -> int:
        try:
            return self.popen.wait(patient(within))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.popen.args} did not end within {within:g} s:\n{self.text[-2000:]}") from None

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)


class Stage:
    """A store, its processes, and the two ledgers kept outside of it: what was accepted, what was executed."""

    def __init__(self, folder: Path, database: raw.Database) -> None:
        self.folder = folder
        self.database = database
        self.accepted_file = folder / "accepted"
        self.executed_file = folder / "executed"
        self.settings: dict[str, object] = {"recovery_interval": 0.1, "max_crashes": 1000}
        self.apart = False
        """Programs have handlers that run in processes."""
        self._programs: list[Program] = []

    # ---- processes ----------------------------------------------------------------------------------------

    def start(
        self, program: str, *args: object, prefix: tuple[str, ...] = (), database: raw.Database | None = None, **settings: object
    ) -> Program:
        out = self.folder / f"{len(self._programs)}-{program}.out"
        environment = os.environ | {
            "FAULTS_DB": str(database or self.database),
            "FAULTS_EXECUTED": str(self.executed_file),
            "FAULTS_APART": "yes" if self.apart else "",
            "FAULTS_LOCKS": str(self.locks),
            "PYTHONPATH": str(SOURCE),
            "PYTHONUNBUFFERED": "1",
            "ROTA_TEST_HARD_S": str(patient(60)),
            **{f"ROTA_{name.upper()}": str(value) for name, value in (self.settings | settings).items()},
        }
        path, words = PROGRAMS / f"{program}.py", [str(each) for each in args]
        with out.open("wb") as sink:
            popen: subprocess.Popen[bytes] | Launched
            if prefix or program in FROM_NOTHING:
                command = [*prefix, sys.executable, str(path), *words]
                popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=environment)
            else:
                popen = launch(path, *words, sink=sink, environment=environment, imports=(store_of(database or self.database),))
        started = Program(popen, out)
        self._programs.append(started)
        return started

    def worker(self, concurrency: int = 4, **options: object) -> Program:
        """Start a worker and wait until it is registered."""
        return self.introduced(self.start("worker", concurrency, **options))

    def introduced(self, worker: Program) -> Program:
        worker.worker_id = worker.says("registered")
        return worker

    def producer(self, count: int, *kinds: str, pause_ms: float = 0) -> Program:
        return self.start("producer", self.accepted_file, count, pause_ms, *kinds)

    def freeze(self, program: Program) -> None:
        """SIGSTOP a program outside of a write: one stopped inside would keep the others out, which is another story."""
        while True:
            program.send(signal.SIGSTOP)
            eventually(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED, what="the stop")
            try:
                with raw.locked(self.database, wait_s=0):
                    return
            except raw.BUSY:
                program.send(signal.SIGCONT)
                time.sleep(0.01)

    def close(self) -> None:
        for program in self._programs:
            if program.alive:
                descendants = program.children()
                program.send(signal.SIGCONT)
                program.kill()
                for each in descendants:
                    # Only what this program started, and only if its pid is still that very process.
                    if each.is_running():
                        each.kill()

    @property
    def locks(self) -> Path:
        """Where workers keep their lock files."""
        return raw.locks_folder(self.database)

    # ---- ledgers ------------------------------------------------------------------------------------------

    @property
    def accepted(self) -> list[str]:
        return [each.replace("-", "") for each in invariants.lines(self.accepted_file)]

    @property
    def entries(self) -> list[list[str]]:
        """Each execution as job, chain, pid."""
        return [line.split(" ") for line in invariants.lines(self.executed_file)]

    @property
    def executed(self) -> list[str]:
        return [job_id for job_id, _, _ in self.entries]

    def check(self) -> Counter[str]:
        """Check the store against the ledgers, which are read first."""
        return invariants.check(self.database, accepted=self.accepted, executed=self.executed)

    def recovered(self, *, within: float = 20.0) -> None:
        eventually(lambda: invariants.held_by_the_dead(self.database) == 0, within=within, what="recovery of what dead workers held")

    def drained(self, *, within: float = 40.0) -> dict[str, str]:
        """Wait until no chain is live any more; return how each ended."""
        try:
            eventually(lambda: not invariants.any_live(self.database), within=within, what="the end of every chain")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{Counter(invariants.tails(self.database).values())}\n{self.said()}") from None
        return invariants.tails(self.database)

    def said(self) -> str:
        """The last words of the programs that were started last."""
        return "\n".join(f"--- {program.popen.args} {program.popen.poll()}\n{program.text[-2000:]}" for program in self._programs[-4:])
