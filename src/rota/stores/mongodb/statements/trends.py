"""How attempts ended, by the minute and by the hour, and how many ended jobs are kept."""

from __future__ import annotations

from collections.abc import Sequence

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, rows
from rota.stores.mongodb.statements.figures import HOUR, MINUTE, TOTAL

FIGURE = ("job_type", "status", "bucket", "count", "total_us")


@statement
def figures(db: Db, *, since: int, organization_id: str | None) -> list[Row]:
    """Return how attempts ended since an hour began, by type, status and bucket."""
    where = document(kind="hour", at={"$gte": since}, organization_id=organization_id)
    sums = {"count": {"$sum": "$count"}, "total_us": {"$sum": "$total_us"}}
    found = db.aggregate("figures", [{"$match": where}, {"$group": {"_id": _key(FIGURE[:3])} | sums}])
    return [(*_values(figure, FIGURE[:3]), figure["count"], figure["total_us"]) for figure in found]


@statement
def hourly(db: Db, *, since: int, organization_id: str | None) -> list[Row]:
    """Return the same by the hour and the organization."""
    columns = (*FIGURE, "at", "organization_id")
    return rows(db.find("figures", document(kind="hour", at={"$gte": since}, organization_id=organization_id), columns), columns)


@statement
def trend_minutes(db: Db, *, since: int, step: int, look: int, job_type: str | None, organization_id: str | None) -> list[Row]:
    """Return figures by the minute: see `_trend`."""
    where = document(kind="minute", job_type=job_type, organization_id=organization_id)
    return _trend(db, where, MINUTE, since=since, step=step, look=look)


@statement
def trend_hours(db: Db, *, since: int, step: int, look: int, job_type: str | None, organization_id: str | None) -> list[Row]:
    """Return figures by the hour: see `_trend`."""
    where = document(kind="hour", job_type=job_type, organization_id=organization_id)
    return _trend(db, where, HOUR, since=since, step=step, look=look)


def _trend(db: Db, where: Document, length: int, *, since: int, step: int, look: int) -> list[Row]:
    """Return figures in three parts.

    First since when there are no more documents than may be looked at (no type, no bucket); then what ended in each period (a type, no
    bucket); then the completed runs of each step that is asked for (no type, a bucket).
    """
    newest_first: list[Document] = [{"$match": {"kind": where["kind"], "at": {"$gte": since}}}, {"$sort": {"at": -1}}]
    cut = db.aggregate("figures", [*newest_first, {"$skip": look}, {"$limit": 1}, {"$project": {"at": 1}}])
    begins = cut[0]["at"] + length if cut else since
    where |= {"at": {"$gte": begins}}
    count = {"count": {"$sum": "$count"}}
    key = ("at", "organization_id", "job_type", "status")
    ends = db.aggregate("figures", [{"$match": where}, {"$group": {"_id": _key(key)} | count}])
    ends.sort(key=lambda end: _values(end, key))
    start = {"$subtract": ["$at", {"$mod": ["$at", step]}]}
    grouped = {"$group": {"_id": {"start": start, "bucket": "$bucket"}} | count}
    took = db.aggregate("figures", [{"$match": where | {"status": "COMPLETED"}}, grouped])
    return [
        (begins, None, None, None, 0),
        *((end["_id"]["at"], end["_id"]["job_type"], end["_id"]["status"], None, end["count"]) for end in ends),
        *((run["_id"]["start"], None, None, run["_id"]["bucket"], run["count"]) for run in took),
    ]


@statement
def kept(db: Db, *, status: str, organization_id: str | None) -> list[Row]:
    """Return how many jobs that ended so are in the store, by type."""
    where = TOTAL | document(status=str(status), organization_id=organization_id)
    grouped = {"$group": {"_id": "$job_type", "count": {"$sum": "$count"}}}
    return rows(db.aggregate("figures", [{"$match": where}, grouped]), ("_id", "count"))


def _key(columns: Sequence[str]) -> Document:
    return {column: f"${column}" for column in columns}


def _values(group: Document, columns: Sequence[str]) -> Row:
    return tuple([group["_id"][column] for column in columns])
