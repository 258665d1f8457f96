"""Reads the logs of runs, wherever they are: in the store, in a file of this machine, or on another one, which it names."""

from __future__ import annotations

import os

from rota.model.values import Job, Run, log_path, undashed
from rota.ports.store import Store

CHUNK_BYTES = 65_536
"""Bytes of a file that are read at a time."""


class LogReader:
    """Reads logs of one store."""

    def __init__(self, store: Store, log_dir: str, *, in_store: bool, shared: bool) -> None:
        """Take where to look: `in_store` and `shared` say whether workers bring logs to the store, or keep them in a folder for all."""
        self._store = store
        self._log_dir = log_dir
        self._everywhere = in_store or shared

    def read(self, run: Run, *, after: int) -> bytes:
        """Return what a log has from this byte on, up to a bound; empty if there is nothing more to be read from here.

        A file that is on its way to the store has the same bytes, and more of them.
        """
        run_id = str(undashed(run.id))
        return self._store.read_log(run_id, after=after) or self._of_file(run_id, after)

    def text(self, run: Run) -> str:
        """Return a whole log."""
        data = bytearray()
        while piece := self.read(run, after=len(data)):
            data += piece
        return data.decode(errors="replace")

    def elsewhere(self, run: Run, job: Job) -> str | None:
        """Say on which machine the log of a run is of which nothing can be read from here; None if it has none, or may have none yet."""
        if run.log_path is None and (run.finished_at is not None or self._everywhere):
            return None
        worker = next((worker for worker in self._store.workers(live=False) if worker.id == job.worker_id), None)
        if worker is None or worker.host == os.uname().nodename:
            return None
        return (
            f"the log of this run is kept on {worker.host} and can't be read from here: set run_logs=store, or log_dir to a folder that"
            " all machines share"
        )

    def _of_file(self, run_id: str, after: int) -> bytes:
        try:
            with open(log_path(self._log_dir, run_id), "rb") as file:  # noqa: PTH123 - see `log_path`
                file.seek(after)
                return file.read(CHUNK_BYTES)
        except OSError:
            return b""
