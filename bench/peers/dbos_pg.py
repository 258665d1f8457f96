"""DBOS on PostgreSQL: a queue of workflows that do nothing, enqueued by its client."""

from __future__ import annotations

import signal
from importlib.metadata import version

import sqlalchemy
from common import Payload, Peer, main, started
from dbos import DBOS, DBOSClient
from postgres import Asked, chunks, fresh_database, url_of

DATABASE, QUEUE = "dbos", "bench"
CONCURRENCY = 100
POLL_S = 0.1
CONFIG = {
    "name": "bench",
    "system_database_url": url_of(DATABASE),
    "log_level": "ERROR",
    "application_version": "1",
    "run_admin_server": False,
}
OPTIONS = {"queue_name": QUEUE, "workflow_name": "noop", "app_version": "1"}


@DBOS.workflow(name="noop")
def noop(job: Payload) -> None:
    """Do nothing but be counted."""
    started(job)


class Dbos(Peer):
    """A hundred workflows at once; its queue is polled ten times as often as by default."""

    settings = (
        f"worker_concurrency={CONCURRENCY}, polled every {POLL_S} s (default 1); one workflow a job; bulk is many in one transaction; kept"
    )
    unopened = ("reset", "work", "watch", "left")

    def __init__(self) -> None:
        self._asked = Asked(DATABASE)

    def version(self) -> str:
        """Return DBOS's version."""
        return version("dbos")

    def reset(self) -> None:
        """Make an empty database with its schema and its queue."""
        fresh_database(DATABASE)
        _launch()
        DBOS.destroy()

    def open(self) -> None:
        """Connect its client."""
        self._client = DBOSClient(system_database_url=url_of(DATABASE))

    def send(self, job: Payload) -> None:
        """Enqueue one workflow."""
        self._client.enqueue(OPTIONS, job)  # type: ignore[arg-type]

    def bulk(self, jobs: int) -> None:
        """Enqueue in transactions of a chunk each: it has no call for many."""
        engine = sqlalchemy.create_engine(url_of(DATABASE).replace("postgresql://", "postgresql+psycopg://"))
        for chunk in chunks(jobs):
            with engine.begin() as connection:
                for job in chunk:
                    self._client.enqueue_in_transaction(connection, OPTIONS, job)  # type: ignore[arg-type]

    def left(self) -> int:
        """Return the workflows that wait or run."""
        return self._asked.value("SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')")

    def work(self) -> None:
        """Work until SIGTERM."""
        _launch()
        signal.pause()


def _launch() -> None:
    DBOS(config=CONFIG)  # type: ignore[arg-type]
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=POLL_S)


if __name__ == "__main__":
    main(Dbos())
