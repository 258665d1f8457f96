"""Reports: due times that did not run, written with their outcome, for webhooks and live events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from pymongo import UpdateOne

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Document, Row, document, ident, rows, setting
from rota.stores.mongodb.schema import OPEN
from rota.stores.mongodb.statements.joining import among, in_chunks

KEY = ("schedule_id", "due_at", "outcome", "phase")
REPORT = ("event", "schedule_id", "organization_id", "due_at", "last_due_at", "count", "outcome", "phase", "reason")
MESSAGE = ("event", "schedule_id", "message_key", "target", "payload", "endpoint_id", "organization_id", "lane")
AT_A_TIME = 500
"""Old reports that are looked at together."""


@statement
def add_reports(db: Db, *, rows: Iterable[Sequence[Any]], now: int) -> list[Row]:
    """Write reports, but for those that were written before, and return the keys of the new ones.

    Each row has the columns of `REPORT`.
    """
    reports = {_key(report): report for report in (_document(REPORT, row, created_at=now) for row in rows)}
    schedules, due = {key[0] for key in reports}, {key[1] for key in reports}
    present = {_key(report) for report in among(db, "schedule_reports", "schedule_id", schedules, KEY, due_at={"$in": list(due)})}
    added = [report for key, report in reports.items() if key not in present]
    if not added:
        return []
    first = db.next_numbers("schedule_reports", len(added))
    db.insert("schedule_reports", *({"_id": number} | report for number, report in enumerate(added, first)))
    return [_key(report) for report in added]


def _document(columns: Sequence[str], row: Sequence[Any], **more: int) -> Document:
    """Return the document of a row. A word of an enumeration is a text here."""
    plain = (str(value) if isinstance(value, str) else ident(value) if isinstance(value, bytes) else value for value in row)
    return document(**dict(zip(columns, plain, strict=True)), **more)


def _key(report: Document) -> Row:
    return tuple([report[column] for column in KEY])


@statement
def mark_spans(db: Db, *, rows: Iterable[tuple[str | bytes, int | None, str | None]]) -> int:
    """Record the span of each schedule that can still grow: its first due time and its fate, or None of both."""
    changes = [
        UpdateOne({"_id": ident(schedule_id)}, setting(open_due_at=due_at, open_fate=None if fate is None else str(fate)))
        for schedule_id, due_at, fate in rows
    ]
    return db.write_each("schedules", changes)


@statement
def open_span(db: Db, *, schedule_id: str | bytes) -> list[Row]:
    """Return the span of a schedule that can still grow."""
    columns = ("open_due_at", "open_fate")
    return rows(db.find("schedules", {"_id": ident(schedule_id)}, columns), columns)


@statement
def reported_row(db: Db, *, schedule_id: str | bytes, due_at: int, fate: str) -> list[Row]:
    """Return a row of the ledger."""
    columns = ("last_due_at", "count", "reason")
    return rows(db.find("occurrences", {"schedule_id": ident(schedule_id), "due_at": due_at, "fate": str(fate)}, columns), columns)


@statement
def endpoints_of(db: Db, *, organization_id: str) -> list[Row]:
    """Return the webhooks that an organization's schedules may be reported to."""
    where = {"organization_id": organization_id, "root_id": None, "state": "ENABLED", "dropped_at": None}
    return rows(db.find("endpoints", where, ("url", "events", "job_types")), ("_id", "url", "events", "job_types"))


@statement
def add_report_mail(db: Db, *, rows: Sequence[Sequence[Any]], now: int) -> int:
    """Add messages. Each row has the columns of `MESSAGE`."""
    first = db.next_numbers("outbox", len(rows))
    common = {"attempts": 0, "next_attempt_at": now, "created_at": now} | OPEN
    return db.insert("outbox", *(_document(MESSAGE, row, _id=number, **common) for number, row in enumerate(rows, first)))


@statement
def reports_after(db: Db, *, after: int, limit: int) -> list[Row]:
    """Return the reports after one, in the order of their numbers."""
    return _numbered(db, db.find("schedule_reports", {"_id": {"$gt": after}}, sort=[("_id", 1)], limit=limit))


@statement
def reports_since(db: Db, *, since: int, limit: int) -> list[Row]:
    """Return the first reports since a moment, in the order of their numbers."""
    found = db.find("schedule_reports", {"created_at": {"$gte": since}}, sort=[("created_at", 1)], limit=limit)
    return _numbered(db, sorted(found, key=lambda report: int(report["_id"])))


def _numbered(db: Db, reports: Sequence[Document]) -> list[Row]:
    """Return reports whose schedules are there: the number, then the fields of `rota.model.reports.ScheduleReport`."""
    columns = ("name", "created_by", "template_id")
    schedules = {
        schedule["_id"]: schedule for schedule in among(db, "schedules", "_id", {report["schedule_id"] for report in reports}, columns)
    }
    template_ids = {schedule["template_id"] for schedule in schedules.values()}
    templates = {template["_id"]: template["name"] for template in among(db, "templates", "_id", template_ids, ("name",))}
    found: list[Row] = []
    for report in reports:
        schedule = schedules.get(report["schedule_id"], {})
        template = templates.get(schedule.get("template_id"))
        if template is not None:
            get = (report | {"schedule": schedule["name"], "owner": schedule["created_by"], "template": template}).get
            found.append(tuple([get(column) for column in NUMBERED]))
    return found


NUMBERED = (
    "_id",
    "event",
    "phase",
    "schedule_id",
    "schedule",
    "organization_id",
    "owner",
    "template",
    "outcome",
    "due_at",
    "last_due_at",
    "count",
    "reason",
    "created_at",
)


@statement
def forget_reports(db: Db, *, before: int, limit: int) -> int:
    """Remove old reports, but for the newest, and for those of due times that have no outcome yet: else they would be repeated."""
    newest = db.first("schedule_reports", {}, (), sort=[("_id", -1)])
    if newest is None:
        return 0
    where = {"created_at": {"$lt": before}, "_id": {"$lt": newest["_id"]}}
    old = db.cursor("schedule_reports", where, ("schedule_id", "due_at"), sort=[("created_at", 1)], hint="reports_time")
    numbers = list(islice((report["_id"] for chunk in in_chunks(old, AT_A_TIME) for report in _with_outcome(db, chunk)), limit))
    return db.delete("schedule_reports", {"_id": {"$in": numbers}}) if numbers else 0


def _with_outcome(db: Db, reports: Sequence[Document]) -> list[Document]:
    """Return the reports of due times that their schedule has passed, and of schedules that are gone."""
    live = among(db, "schedules", "_id", {report["schedule_id"] for report in reports}, ("cursor_at",), dropped_at=None)
    cursors = {schedule["_id"]: schedule["cursor_at"] for schedule in live}
    return [report for report in reports if cursors.get(report["schedule_id"], report["due_at"]) >= report["due_at"]]


@statement
def write_pulse(db: Db, *, now: int) -> int:
    """Write a moment, so that there is something to commit."""
    return db.update("meta", {"_id": "pulse_at"}, {"$set": {"value": now}})
