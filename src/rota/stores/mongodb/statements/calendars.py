"""Calendars: days on which schedules do not fire."""

from __future__ import annotations

from rota.stores.mongodb.db import Db, statement
from rota.stores.mongodb.documents import Row, document, rows, setting
from rota.stores.mongodb.schema import LIVING

CALENDAR = ("organization_id", "name", "days", "description")


@statement
def calendar(db: Db, *, organization_id: str, name: str) -> list[Row]:
    """Return the days of a calendar, and its description."""
    columns = ("days", "description")
    return rows(db.find("calendars", {"organization_id": organization_id, "name": name}, columns), columns)


@statement
def calendars(db: Db, *, organization_id: str | None) -> list[Row]:
    """Return the calendars of one organization or of all of them."""
    where = {} if organization_id is None else {"organization_id": organization_id}
    return rows(db.find("calendars", where, CALENDAR, sort=[("organization_id", 1), ("name", 1)]), CALENDAR)


@statement
def put_calendar(db: Db, *, organization_id: str, name: str, description: str | None, days: str, actor: str, now: int) -> int:
    """Create or change a calendar; the same again changes nothing."""
    present = db.first("calendars", {"organization_id": organization_id, "name": name}, ("days", "description"))
    if present is None:
        columns = {"organization_id": organization_id, "name": name, "description": description, "days": days, "created_by": actor}
        return db.insert("calendars", document(**columns, created_at=now, updated_at=now))
    if (present["days"], present.get("description")) == (days, description):
        return 0
    return db.update("calendars", {"_id": present["_id"]}, setting(days=days, description=description, updated_at=now))


@statement
def drop_calendar(db: Db, *, organization_id: str, name: str) -> int:
    """Remove a calendar."""
    return db.delete("calendars", {"organization_id": organization_id, "name": name})


@statement
def users_of_calendar(db: Db, *, organization_id: str, name: str) -> list[Row]:
    """Return the schedules that use a calendar."""
    where = {"organization_id": organization_id, "calendar": name, **LIVING}
    return [(found["name"],) for found in db.find("schedules", where, ("name",), sort=[("name", 1)])]
