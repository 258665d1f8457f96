"""A store as a whole: the counters that are copied, the mark of a store that was moved, and the rules that a copy must keep."""

from __future__ import annotations

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, rows
from rota.stores.mongodb.schema import THERE, WHEEL
from rota.stores.mongodb.statements.joining import unmatched

OWN = ("schema", "definitions_version")
"""What belongs to one store alone."""
UNRUN: Document = {"started_at": THERE, "run_id": None}


@statement
def counters(db: Db) -> list[Row]:
    """Return the counters of a store. Numbers were given up to where their counter is."""
    given = db.first("counters", {"_id": "job_numbers"}, ("value",)) or {"value": 0}
    return [*rows(db.find("meta", {"_id": {"$nin": OWN}}, ("value",)), ("_id", "value")), ("numbers", given["value"])]


@statement
def moved(db: Db) -> list[Row]:
    """Return when a store was moved, and where to."""
    return rows(db.find("locks", {"_id": WHEEL, "moved": THERE}, ("moved_at", "moved")), ("moved_at", "moved"))


@statement
def broken_rules(db: Db) -> list[Row]:
    """Return which rules a copy breaks, and how often."""
    return [
        ("jobs has a job that was started and has no run", db.size("job_live", UNRUN) + db.size("job_ends", UNRUN)),
        ("job_edges has an edge of no job", sum(1 for _ in unmatched(db, "job_edges", "child", ("job_facts",)))),
    ]
