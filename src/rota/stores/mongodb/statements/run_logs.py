"""What handlers wrote, in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Row, ident, rows
from rota.stores.mongodb.statements.joining import among
from rota.stores.mongodb.statements.questions import answers

END = {"$add": ["$start", {"$binarySize": "$data"}]}


@statement
def append_logs(db: Db, *, rows: Sequence[tuple[str, int, int, str]], now: int) -> int:
    """Add pieces; each is its run, the number of its job, the byte it begins at, and its data in hexadecimal digits.

    A piece that does not begin where its log ends is left out: it is there already, or one before it is missing.
    So is one whose run is gone.
    """
    numbers = [number for _, number, _, _ in rows]
    runs = {job["_id"]: job.get("run_id") for kept in ("job_ends", "job_live") for job in among(db, kept, "_id", numbers, ("run_id",))}
    sizes = _sizes(db, [run_id for run_id, _, _, _ in rows])
    pieces = [
        {"run_id": run_id, "start": start, "job_number": number, "at": now, "data": bytes.fromhex(data)}
        for run_id, number, start, data in rows
        if runs.get(number) == run_id and start == sizes.get(run_id, 0)
    ]
    return db.insert("run_logs", *pieces)


@statement
def log_sizes(db: Db, *, run_ids: Sequence[str]) -> list[Row]:
    """Return how long the logs of runs are; None for one that has no log."""
    sizes = _sizes(db, run_ids)
    return [(run_id, sizes.get(run_id)) for run_id in run_ids]


def _sizes(db: Db, run_ids: Sequence[str]) -> dict[str, int]:
    last = ({"$sort": {"start": -1}}, {"$limit": 1}, {"$project": {"end": END}})
    found = answers(db, [("run_logs", [{"$match": {"run_id": run_id}}, *last]) for run_id in run_ids])
    return {run_id: own[0]["end"] for run_id, own in zip(run_ids, found, strict=True) if own}


@statement
def log_after(db: Db, *, run_id: str | bytes, after: int, limit: int) -> list[Row]:
    """Return the pieces of a log from the one on that has the byte `after`."""
    own = {"run_id": ident(run_id)}
    first = db.first("run_logs", own | {"start": {"$lte": after}}, ("start",), sort=[("start", -1)])
    pieces = db.find(
        "run_logs",
        own | {"start": {"$gte": 0 if first is None else first["start"]}, "$expr": {"$gt": [END, after]}},
        ("start", "data"),
        sort=[("start", 1)],
        limit=limit,
    )
    return rows(pieces, ("start", "data"))


@statement
def ended_logs(db: Db, *, run_ids: Sequence[str]) -> list[Row]:
    """Return those of some runs that have ended and have a log, with the numbers of their jobs."""
    number_of = {
        piece["run_id"]: piece["job_number"] for piece in among(db, "run_logs", "run_id", run_ids, ("run_id", "job_number"), start=0)
    }
    ended = {end["_id"] for end in among(db, "job_ends", "_id", number_of.values())}
    return [(run_id, number) for run_id, number in number_of.items() if number in ended]


@statement
def remove_logs(db: Db, *, numbers: Sequence[int]) -> int:
    """Remove the logs of the runs of ended jobs."""
    runs = [end["run_id"] for end in among(db, "job_ends", "_id", numbers, ("run_id",)) if "run_id" in end]
    return db.delete("run_logs", {"run_id": {"$in": runs}}) if runs else 0
