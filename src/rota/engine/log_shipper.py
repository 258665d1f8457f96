"""Brings the logs of runs from their files into the store, where that keeps them: while they run, at their end, after a worker's death.

Handlers write to files of their machine in any case: a line costs them no more, and a job that logs nothing costs nothing. Each piece is
added where the log in the store ends, so whoever finds a file can continue it, and doing so twice has the effect of once.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from rota.engine.background import Ticker
from rota.errors import StoreBusy, StoreUnavailable
from rota.model.values import Claimed, log_path, undashed
from rota.ports.clock import Clock
from rota.ports.executor import Ended
from rota.ports.run_logs import Piece
from rota.ports.store import Store

log = logging.getLogger("rota.worker")

EVERY_S = 0.5
"""How often the files of running jobs are looked at."""
PIECE_BYTES = 65_536
"""The largest piece."""
BATCH_BYTES = 1_048_576
"""What is written in one transaction."""
FILES = 200
"""Files that were left behind, and are looked at at a time."""


class LogShipper:
    """Ships the logs of one worker's runs, and what dead workers of the same machine left. Thread-safe."""

    def __init__(self, store: Store, log_dir: str | None, *, clock: Clock, running: Callable[[], Collection[Claimed]] = tuple) -> None:
        """Take where the files are, None if they stay there; `running` returns the jobs whose logs may grow."""
        self._store = store
        self._log_dir = log_dir or ""
        self.ships = log_dir is not None
        self._clock = clock
        self._running = running
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        """How much of each log is in the store, by run, as far as this process knows."""
        self._whole: set[str] = set()
        """Runs that have ended and are shipped to their last byte: their files go when the end is written."""
        self._left: Iterator[str] | None = None
        """The runs whose files are here, as far as they are still to be looked at."""
        self._trouble = ""
        self._ticker = Ticker(self.look, every_s=EVERY_S, name="logs")

    def start(self) -> None:
        """Begin to ship what running jobs write, and what was left behind, on a thread of its own."""
        if self.ships:
            self.look_back()
            self._ticker.start()

    def stop(self) -> None:
        """End the thread."""
        self._ticker.stop()

    def look(self) -> None:
        """Ship what is new in the logs of running jobs, and some of what was left behind."""
        running = {job.run_id: job.number for job in self._running()}
        with self._lock:
            self._sizes = {run_id: size for run_id, size in self._sizes.items() if run_id in running}
        self._ship(running)
        left = self._left
        if left is not None:
            try:
                self._ship_left(left, running)
            except BaseException:
                self.look_back()
                raise

    def look_back(self) -> None:
        """Look again for files that were left behind."""
        self._left = _runs_in(self._log_dir)

    def finish(self, ended: Collection[Ended]) -> None:
        """Ship the rest of these logs, before their ends are written: who reads that a run has ended finds all of its log."""
        whole = self._ship({each.job.run_id: each.job.number for each in ended if each.job.run_id not in self._whole})
        if whole:
            self._whole |= whole
            for each in ended:
                if each.job.run_id in whole:
                    each.log_path = None

    def rescue(self, jobs: Sequence[Claimed]) -> None:
        """Ship what a dead worker's runs have left on this machine, before their ends are written."""
        self._whole |= self._ship({job.run_id: job.number for job in jobs if job.run_id})

    def written(self) -> None:
        """Remove the files of what was finished or rescued: the ends of those runs are written."""
        self._remove(tuple(self._whole))

    # ---- inside -----------------------------------------------------------------------------------------------

    def _ship(self, runs: dict[str, int]) -> set[str]:
        """Ship all that the files of these runs have, given with the numbers of their jobs; return those that have a file and are shipped.

        What the store refuses for good stays in its file: a log keeps no job from its end.
        """
        try:
            with self._lock:
                self._append({run_id: number for run_id, number in runs.items() if self._bytes_left(run_id) > 0})
                shipped = {run_id for run_id in runs if run_id in self._sizes and self._bytes_left(run_id) <= 0}
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - a role without the right, for one
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("logs of runs can't be written to the store and stay in files of this machine: %s", error)
            return set()
        return shipped

    def _append(self, behind: dict[str, int]) -> None:
        while behind:
            pieces: list[Piece] = []
            left = BATCH_BYTES
            for run_id, number in tuple(behind.items()):
                start = self._sizes.get(run_id, 0)
                data = self._read(run_id, start, left)
                if not data:
                    del behind[run_id]
                pieces += [Piece(run_id, number, start + at, data[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES)]
                left -= len(data)
                if left <= 0:
                    break
            sizes = self._store.append_logs(pieces, now=self._clock.now()) if pieces else {}
            for run_id in {piece.run_id for piece in pieces}:
                before, self._sizes[run_id] = self._sizes.get(run_id, 0), sizes.get(run_id, 0)
                # Nothing is added where the run is gone.
                if self._sizes[run_id] == before or self._bytes_left(run_id) <= 0:
                    del behind[run_id]

    def _read(self, run_id: str, start: int, limit: int) -> bytes:
        try:
            with open(log_path(self._log_dir, run_id), "rb") as file:  # noqa: PTH123 - see `log_path`
                file.seek(start)
                return file.read(limit)
        except OSError as error:
            log.warning("could not read the log of run %s: %s", run_id, error)
            return b""

    def _bytes_left(self, run_id: str) -> int:
        """Return how much of a file is not in the store, as far as is known; 0 if there is no file."""
        try:
            return os.stat(log_path(self._log_dir, run_id)).st_size - self._sizes.get(run_id, 0)  # noqa: PTH116 - see `log_path`
        except OSError:
            return 0

    def _ship_left(self, left: Iterator[str], running: dict[str, int]) -> None:
        """Ship some of what was left behind by runs that have ended, and remove it."""
        run_ids = list(islice(left, FILES))
        if not run_ids and self._left is left:
            self._left = None
        ended = self._store.ended_logs([run_id for run_id in run_ids if run_id not in running]) if run_ids else {}
        if ended:
            self._remove(self._ship(ended))

    def _remove(self, run_ids: Iterable[str]) -> None:
        with self._lock:
            for run_id in run_ids:
                self._whole.discard(run_id)
                self._sizes.pop(run_id, None)
                with suppress(OSError):
                    os.unlink(log_path(self._log_dir, run_id))  # noqa: PTH108 - see `log_path`


def _runs_in(log_dir: str) -> Iterator[str]:
    """Go through the runs that have a file in a folder of logs."""
    with suppress(OSError):
        for folder in os.listdir(log_dir):  # noqa: PTH208 - see `log_path`
            with suppress(OSError):
                for name in os.listdir(f"{log_dir}/{folder}"):  # noqa: PTH208 - see `log_path`
                    run_id = name.removesuffix(".log")
                    if run_id != name and run_id == undashed(run_id):
                        yield run_id
