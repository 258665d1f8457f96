"""What templates allow of submissions: the same params once in a window, this many jobs in a window."""

from __future__ import annotations

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows


@statement
def duplicate_of(db: Db, *, organization_id: str, template_id: bytes, hash: bytes, now: int, until: int) -> list[Row]:  # noqa: A002 - the column
    """Return the job that was submitted with the same params, and until when that counts."""
    where = _key(organization_id, template_id, hash) | {"expires_at": {"$gt": now, "$lte": until}}
    return rows(db.find("dedup", where, ("job_id", "expires_at")), ("job_id", "expires_at"))


@statement
def remember_hash(db: Db, *, organization_id: str, template_id: bytes, hash: bytes, job_id: bytes, expires_at: int) -> int:  # noqa: A002 - the column
    """Remember what was submitted, in the place of an earlier one."""
    key, latest = _key(organization_id, template_id, hash), {"job_id": ident(job_id), "expires_at": expires_at}
    # Not an upsert: a type that is no template yet has no id, and an upsert would write the null it was looked for by.
    return db.update("dedup", key, {"$set": latest}) or db.insert("dedup", document(**key, **latest))


def _key(organization_id: str, template_id: bytes, digest: bytes) -> Document:
    return {"organization_id": organization_id, "template_id": ident(template_id), "hash": digest}


@statement
def submitted(db: Db, *, key: str, since: int, until: int) -> list[Row]:
    """Return how many were submitted in a window."""
    stages = [{"$match": _between(key, since, until)}, {"$group": {"_id": None, "count": {"$sum": "$count"}}}]
    return rows(db.aggregate("rate_log", stages), ("count",)) or [(0,)]


@statement
def submissions(db: Db, *, key: str, since: int, until: int) -> list[Row]:
    """Return the moments of a window at which any were submitted, and how many."""
    return rows(db.find("rate_log", _between(key, since, until), ("at", "count"), sort=[("at", 1)]), ("at", "count"))


def _between(key: str, since: int, until: int) -> Document:
    return {"key": key, "at": {"$gt": since, "$lte": until}}


@statement
def log_submissions(db: Db, *, key: str, now: int, count: int) -> int:
    """Count submissions at a moment."""
    return db.update("rate_log", {"key": key, "at": now}, {"$inc": {"count": count}}, upsert=True)


@statement
def forget_submissions(db: Db, *, key: str, since: int) -> int:
    """Remove what no window counts any more."""
    return db.delete("rate_log", {"key": key, "at": {"$lte": since}})
