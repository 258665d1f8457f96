"""Moves of many live jobs: from one state to the next, or to their end. Each has its condition, and all of them are made or none.

Inside a transaction MongoDB 6 reads the description of the collection twice for each of its indexes when a document is updated, also for
those that the document is not in. Removed and inserted, a job costs less than half of that: so a job that moves is written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rota.model.values import Instant
from rota.stores.mongodb.db import Db
from rota.stores.mongodb.documents import Document
from rota.stores.mongodb.statements.joining import in_chunks


def move(db: Db, where: Document, jobs: Sequence[Document], to: str = "job_live") -> None:
    """Write documents in the place of live jobs, or among the ends; all of the live ones still have to match."""
    if not jobs:
        return
    refusal = f"a job that is not {_named(where['status'])} cannot make this move"
    db.remove("job_live", where | {"_id": {"$in": [job["_id"] for job in jobs]}}, len(jobs), refusal)
    db.insert(to, *jobs)


def _named(status: str | dict[str, list[str]]) -> str:
    return status if isinstance(status, str) else " or ".join(status["$in"])


def started(live: Document, run_id: str, at: Instant, worker_id: str | None) -> Document:
    """Return a live job as it is when it has started."""
    job = live | {"status": "RUNNING", "started_at": at, "worker_id": worker_id, "run_id": run_id}
    job.pop("held", None)
    return job


def rewrite(db: Db, where: Document, numbers: Iterable[int], changed: Callable[[Document], Document]) -> int:
    """Change live jobs, as far as they match, and return how many did."""
    count = 0
    for some in in_chunks(numbers):
        jobs = db.find("job_live", where | {"_id": {"$in": some}})
        move(db, where, [changed(job) for job in jobs])
        count += len(jobs)
    return count
