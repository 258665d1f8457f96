"""Jobs and their runs as people read them, one by one and by chains, and what happened to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, ident, row
from rota.stores.mongodb.statements.jobs import chains, chains_of, job_rows, root_numbers, states, whole
from rota.stores.mongodb.statements.joining import among

RUN = (
    "run_id",
    "run_status",
    "template_id",
    "started_at",
    "finished_at",
    "exit_code",
    "error",
    "error_type",
    "error_code",
    "traceback",
    "result",
    "result_message",
    "rows_affected",
    "output_reference",
    "artifacts",
    "log_path",
    "progress",
    "progress_message",
    "checkpoint",
    "params",
)
FACTS_OF_RUN = ("job_id", "template_id", "params")
STATE_OF_RUN = ("run_id", "status", "started_at", "finished_at")
RUN_STATUS = {"TIMED_OUT": "FAILED", "DEAD_LETTER": "FAILED"}
"""How runs ended whose jobs have another word for it."""
LINE = ("job_id", "root_id", "attempt")

# ---- jobs ------------------------------------------------------------------------------------------------------------


@statement
def job(db: Db, *, job_id: str | bytes) -> list[Row]:
    """Return one job."""
    return job_rows(db, whole(db, db.find("job_facts", {"job_id": ident(job_id)})))


@statement
def job_by_number(db: Db, *, number: int) -> list[Row]:
    """Return the first attempt that has this number."""
    return job_rows(db, whole(db, db.find("job_facts", {"_id": number, "attempt": 1})))


@statement
def chain(db: Db, *, job_id: str) -> list[Row]:
    """Return all attempts of the chain that a job belongs to."""
    return job_rows(db, whole(db, chains_of(db, [job_id]).get(job_id, [])))


@statement
def tails(db: Db, *, ids: Sequence[str]) -> list[Row]:
    """Return the last jobs of the chains that these ids belong to. Only a job that has finished can have a successor."""
    asked = {fact["job_id"]: fact for fact in among(db, "job_facts", "job_id", ids, LINE)}
    state = states(db, [fact["_id"] for fact in asked.values()], ("status", "finished_at"))
    last = _last_attempts(db, {fact["root_id"] for fact in asked.values() if "finished_at" in state.get(fact["_id"], {})})
    found = {
        job_id: max(fact, last.get(fact["root_id"], fact), key=lambda attempt: int(attempt["attempt"])) for job_id, fact in asked.items()
    }
    state |= states(db, [fact["_id"] for fact in found.values() if fact["_id"] not in state], ("status", "finished_at"))
    roots = root_numbers(db, found.values())
    rows: list[Row] = []
    for job_id, fact in found.items():
        now = state.get(fact["_id"], {})
        names = (fact["job_id"], fact["root_id"], roots.get(fact["root_id"]), fact["attempt"])
        rows.append((job_id, *names, now.get("status"), "finished_at" in now))
    return rows


def _last_attempts(db: Db, roots: Iterable[str]) -> dict[str, Document]:
    """Return the last attempts of chains that have more than one, by the id of the first."""
    last: dict[str, Document] = {}
    for fact in among(db, "job_facts", "root_id", roots, LINE, attempt={"$gt": 1}):
        known = last.setdefault(fact["root_id"], fact)
        if known["attempt"] < fact["attempt"]:
            last[fact["root_id"]] = fact
    return last


@statement
def blockers(db: Db, *, job_id: str | bytes) -> list[Row]:
    """Return the tails of the chains that a job waits for: live ones, and those that ended otherwise than it needs."""
    child = db.first("job_facts", {"job_id": ident(job_id)}, ())
    if child is None:
        return []
    edges = db.find("job_edges", {"child": child["_id"], "resolved_at": None}, ("parent_root",), sort=[("parent_root", 1)])
    lines = chains(db, [edge["parent_root"] for edge in edges])
    return job_rows(db, whole(db, [line[-1] for line in lines.values() if line]))


# ---- runs ------------------------------------------------------------------------------------------------------------


@statement
def run(db: Db, *, job_id: str | bytes) -> list[Row]:
    """Return the run of a job."""
    return [columns[1:] for columns in _runs(db, [ident(job_id) or ""])]


@statement
def runs(db: Db, *, ids: Sequence[str]) -> list[Row]:
    """Return the runs of jobs, each behind the id of its job."""
    return list(_runs(db, ids))


def _runs(db: Db, job_ids: Sequence[str]) -> Iterator[Row]:
    facts = list(among(db, "job_facts", "job_id", job_ids, FACTS_OF_RUN))
    numbers = [fact["_id"] for fact in facts]
    state = states(db, numbers, STATE_OF_RUN)
    notes = {note["_id"]: note for note in among(db, "run_notes", "_id", numbers, None)}
    for fact in facts:
        now = state.get(fact["_id"], {})
        if "run_id" in now:
            ended = {"run_status": RUN_STATUS.get(now["status"], now["status"])} if "finished_at" in now else {}
            yield fact["job_id"], *row({"artifacts": "[]"} | notes.get(fact["_id"], {}) | fact | now | ended, RUN)


# ---- what happened ---------------------------------------------------------------------------------------------------


@statement
def log(db: Db, *, job_id: str) -> list[Row]:
    """Return the moves of a chain: when, the attempt, a message, the status before and after, and who."""
    jobs = whole(db, chains_of(db, [job_id]).get(job_id, []))
    numbers = [job["_id"] for job in jobs if "finished_at" in job and "reason" not in job]
    errors = {note["_id"]: note.get("error") for note in among(db, "run_notes", "_id", numbers, ("error",))}
    retried = [job["retry_of"] for job in jobs if "retry_of" in job]
    retries = among(db, "audit", "subject_id", retried, ("subject_id", "actor"), subject="job", action="job.retry")
    by = {entry["subject_id"]: entry["actor"] for entry in retries}
    moves: list[Row] = []
    for job in jobs:
        maker = job["owner"] if job["attempt"] == 1 else by.get(job.get("retry_of"), "system")
        moves += ((at, job["attempt"], *move) for at, *move in _moves(job, maker, errors.get(job["_id"])))
    return moves


def _moves(job: Document, maker: str, error: str | None) -> Iterator[Row]:
    """Return the moves of one job in the order in which they must have happened."""
    created_at, queued_at, started_at, asked_at = (job.get(f"{move}_at") for move in ("created", "queued", "started", "cancel_requested"))
    yield created_at, None, None, "QUEUED" if queued_at == created_at else "PENDING", maker
    if queued_at not in {None, created_at}:
        yield queued_at, None, "PENDING", "QUEUED", "system"
    if started_at is not None:
        yield started_at, f"worker {job['worker_id']}" if "worker_id" in job else None, "QUEUED", "RUNNING", "system"
        if asked_at is not None:
            yield asked_at, "asked to stop", "RUNNING", "RUNNING", job.get("cancel_requested_by")
    if "finished_at" in job:
        before = "PENDING" if queued_at is None else "QUEUED" if started_at is None else "RUNNING"
        yield job["finished_at"], job.get("reason", error), before, job.get("status"), job.get("ended_by")
