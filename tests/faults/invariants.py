"""What must hold of a store whatever happened to the processes that used it. Reads it raw: Rota has no say here."""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rota.model.states import CHAIN_ENDS, RUN_END, Status
from tests.faults.raw import Database, damage, locks_folder, reading

ENDED = {status.value for status in Status if status.ended}
ATTEMPT_ENDS = ENDED - {status.value for status in CHAIN_ENDS}


def lines(path: Path) -> list[str]:
    """The whole lines of an append-only file: a line without its end was not written yet."""
    text = path.read_text() if path.exists() else ""
    return [line for line in text.split("\n")[:-1] if line]


def check(database: Database, *, accepted: Iterable[str] = (), executed: Iterable[str] = ()) -> Counter[str]:
    """Fail, naming everything that is wrong; return how many jobs there are of each status.

    `accepted`: ids that enqueue returned. `executed`: a job id for each time that a handler was entered. Read both
    before this is called: what came later is in the file, what came before must be.
    """
    with reading(database) as db:
        wrong = damage(database, db)
        jobs = list(
            db.execute(
                "SELECT lower(hex(j.job_id)), lower(hex(j.root_id)), nullif(lower(hex(j.retry_of)), ''), j.attempt, j.status,"
                " j.started_at IS NOT NULL, r.run_id IS NOT NULL, r.status, w.worker_id IS NOT NULL AND w.ended_at IS NULL"
                " FROM jobs AS j LEFT JOIN job_runs AS r ON r.job_number = j.number LEFT JOIN workers AS w ON w.worker_id = j.worker_id"
                " ORDER BY j.root_id, j.attempt"
            )
        )
        open_edges = dict(db.execute("SELECT child, count(*) FROM job_edges WHERE resolved_at IS NULL GROUP BY child"))
        wrong += [
            f"job number {number} has {blockers} blockers and {open_edges.get(number, 0)} open edges"
            for number, blockers in db.execute("SELECT number, blockers FROM jobs WHERE status = 'PENDING'")
            if blockers != open_edges.get(number, 0)
        ]
        twice = "SELECT unique_key FROM jobs WHERE finished_at IS NULL AND unique_key IS NOT NULL GROUP BY 1 HAVING count(*) > 1"
        wrong += [f"two live jobs hold key {row[0]!r}" for row in db.execute(twice)]
        kinds = "organization_id, job_type, status"
        counted = set(db.execute(f"SELECT {kinds}, count FROM stats_total"))
        real = set(db.execute(f"SELECT {kinds}, count(*) FROM jobs WHERE finished_at IS NOT NULL GROUP BY {kinds}"))
        wrong += [f"counted and not there, or there and not counted: {row}" for row in counted ^ real]
    wrong += _chains(jobs)
    wrong += [text for row in jobs for text in _alone(row)]
    roots = {job_id for job_id, root_id, retry_of, *_ in jobs if retry_of is None and job_id == root_id}
    wrong += [f"accepted and not in the store: {job_id}" for job_id in accepted if job_id.replace("-", "") not in roots]
    wrong += _executions(jobs, executed)
    assert not wrong, f"{len(wrong)} violations:\n" + "\n".join(wrong[:20])
    return Counter(row[4] for row in jobs)


def tails(database: Database) -> dict[str, str]:
    """The status of the last job of each chain, by the chain's root."""
    with reading(database) as db:
        return dict(db.execute("SELECT lower(hex(root_id)), status FROM jobs ORDER BY attempt"))


def uncharged(database: Database, roots: Iterable[str]) -> dict[str, int]:
    """How many attempts of these chains ended in a crash that was not charged to the chain: its successor counts no more than it did."""
    wanted = set(roots)
    with reading(database) as db:
        rows = db.execute("SELECT lower(hex(root_id)), crashes FROM jobs WHERE attempt > 1 ORDER BY root_id, attempt")
        found = Counter((root, crashes) for root, crashes in rows)
    return {root: sum(count - 1 for (each, _), count in found.items() if each == root) for root in wanted}


def any_live(database: Database) -> bool:
    """Whether a chain waits or runs."""
    with reading(database) as db:
        live = "jobs WHERE finished_at IS NULL" if isinstance(database, Path) else "job_live"
        return bool(list(db.execute(f"SELECT 1 FROM {live} LIMIT 1")))


def line(database: Database) -> list[str]:
    """The chains that wait or run, in the order of the queue."""
    with reading(database) as db:
        rows = db.execute(
            "SELECT lower(hex(root_id)) FROM jobs WHERE status IN ('QUEUED', 'RUNNING')"
            " ORDER BY priority DESC, position, created_at, job_id"
        )
        return [row[0] for row in rows]


def held_by_the_dead(database: Database) -> int:
    """RUNNING jobs whose worker is recorded as ended, unknown, or has let go of its lock: recovery has yet to see them."""
    with reading(database) as db:
        rows = list(
            db.execute(
                "SELECT lower(hex(j.worker_id)), count(*), w.ended_at IS NULL AND w.worker_id IS NOT NULL FROM jobs AS j"
                " LEFT JOIN workers AS w ON w.worker_id = j.worker_id WHERE j.status = 'RUNNING' GROUP BY j.worker_id, w.worker_id"
            )
        )
    return sum(count for worker_id, count, registered in rows if not registered or not lock_is_held(database, worker_id))


def lock_is_held(database: Database, worker_id: str) -> bool:
    """Whether the kernel says that this worker, or a child that inherited its lock, lives."""
    try:
        fd = os.open(locks_folder(database) / f"{worker_id}.lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def errors(database: Database) -> Counter[tuple[str, str]]:
    """How many runs ended with each kind of error and text."""
    with reading(database) as db:
        rows = db.execute("SELECT error_type, error, count(*) FROM job_runs WHERE error_type IS NOT NULL GROUP BY 1, 2")
        return Counter({(kind, text): count for kind, text, count in rows})


def _chains(jobs: list[tuple]) -> list[str]:
    """A chain is a line from attempt 1 on, each made from the one before, live at its tail only."""
    wrong = []
    before: tuple | None = None
    for row in jobs:
        job_id, root_id, retry_of, attempt = row[:4]
        first = before is None or before[1] != root_id
        if first:
            if attempt != 1 or retry_of is not None or job_id != root_id:
                wrong.append(f"chain {root_id} begins with attempt {attempt}, job {job_id}, retry of {retry_of}")
        else:
            if attempt != before[3] + 1 or retry_of != before[0]:
                wrong.append(f"chain {root_id}: attempt {attempt} follows {before[3]}, retry of {retry_of} and not of {before[0]}")
            if before[4] not in ENDED:
                wrong.append(f"chain {root_id}: attempt {before[3]} is {before[4]} although there is a later one")
            if before[4] == "COMPLETED":
                wrong.append(f"chain {root_id}: attempt {attempt} follows a COMPLETED one")
        if before is not None and first and before[4] in ATTEMPT_ENDS:
            wrong.append(f"job {before[0]} is {before[4]} and has no successor")
        before = row
    if before is not None and before[4] in ATTEMPT_ENDS:
        wrong.append(f"job {before[0]} is {before[4]} and has no successor")
    return wrong


def _alone(row: tuple) -> list[str]:
    """What a job and its own run must agree on."""
    job_id, _, _, _, status, started, has_run, run_status, worker_lives = row
    if status == "RUNNING":
        wrong = [] if has_run and run_status is None else [f"job {job_id} is RUNNING, its run is {run_status if has_run else 'missing'}"]
        return wrong if worker_lives else [*wrong, f"job {job_id} is RUNNING and its worker is recorded as ended, or not at all"]
    if status not in ENDED:
        return [f"job {job_id} is {status} and has a run"] if has_run else []
    if has_run:
        return [] if run_status == RUN_END[Status(status)] else [f"job {job_id} ended {status}, its run {run_status}"]
    return [f"job {job_id} ended {status} and has no run"] if started or status not in {"CANCELLED", "SKIPPED"} else []


def _executions(jobs: list[tuple], executed: Iterable[str]) -> list[str]:
    """A job is entered once at most, and only after it was claimed."""
    counts = Counter(executed)
    runs = {row[0] for row in jobs if row[6]}
    wrong = [f"job {job_id} was executed {count} times" for job_id, count in counts.items() if count > 1]
    return wrong + [f"job {job_id} was executed and has no run" for job_id in counts if job_id not in runs]
