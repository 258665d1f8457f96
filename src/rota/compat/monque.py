"""A producer for Monque: jobs as documents of its collection, for workers of the library and for `rota bridge monque`.

    from pymongo import MongoClient
    from rota.compat.monque import Monque

    monque = Monque(MongoClient().shop["monque_jobs"])
    monque.enqueue("send-email", {"to": "ada@example.com"}, unique_key="ada")

Nothing of it needs a store of Rota's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec
from bson import Decimal128, ObjectId
from bson.binary import UuidRepresentation
from bson.errors import InvalidDocument
from bson.json_util import RELAXED_JSON_OPTIONS, loads
from pymongo import ReturnDocument
from pymongo.errors import DocumentTooLarge, DuplicateKeyError

from rota.compat.monque_collection import CLAIM_FIELDS, COLLECTION, LIVE, OWN_FIELDS, Documents, Fields, as_jobs, create_indexes
from rota.errors import InvalidName, InvalidOption, InvalidParams, InvalidSchedule, NotFound, PayloadTooLarge, Refused, StoreBusy
from rota.faces.monque import META, WRAPPED, DocumentStatus
from rota.model.cron import next_due, read_cron
from rota.model.values import moment_of
from rota.model.zones import zone_of

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession

    from rota.executors.context import Context

__all__ = ["COLLECTION", "Monque", "data_of"]

NAME_MAX, KEY_MAX = 255, 1024
PRIORITY_MAX = 2**53 - 1
LEVELS_MAX = 100
"""Of nested data: what MongoDB promises to keep."""
FIRST_YEAR = 1970
TYPED = RELAXED_JSON_OPTIONS.with_options(tz_aware=True, tzinfo=UTC, uuid_representation=UuidRepresentation.STANDARD)
TRIES = 10
"""How often an enqueue looks again for the document that holds its key, which may end at any moment."""


class Monque:
    """Writes jobs into a collection of Monque's. Any thread may use it. `session` makes a call part of the caller's transaction."""

    def __init__(self, collection: Documents) -> None:
        """Take the collection, which `monque_jobs` is the usual name of."""
        self._documents = as_jobs(collection)

    def create_indexes(self) -> None:
        """Create the indexes of the library that are missing, under its names."""
        create_indexes(self._documents)

    def enqueue(
        self,
        name: str,
        data: Any = None,
        *,
        unique_key: str | None = None,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        session: ClientSession | None = None,
    ) -> Fields:
        """Add a job and return its document; if a pending or processing one of this name has the key, return that one instead."""
        now = _now()
        fields = _new(name, data, now, unique_key=unique_key, next_run_at=_moment(run_at, now), priority=priority)
        return self._add(fields, session)

    def now(self, name: str, data: Any = None, *, session: ClientSession | None = None) -> Fields:
        """Add a job that is due now."""
        return self.enqueue(name, data, session=session)

    def schedule(
        self,
        cron: str,
        name: str,
        data: Any = None,
        *,
        timezone: str | None = None,
        unique_key: str | None = None,
        priority: int | None = None,
        session: ClientSession | None = None,
    ) -> Fields:
        """Add a job that recurs by a cron expression of five fields.

        Without `timezone` its first due time is by UTC, and later ones by the zone of the process that runs it. Give a `unique_key`:
        without one, each call adds another job.
        """
        given: dict[str, object] = {"cron": cron, "timezone": "UTC" if timezone is None else timezone}
        for option, value in given.items():
            if not isinstance(value, str):
                raise InvalidSchedule(f"{option}={value!r:.80} is not a text")
        now, zone = _now(), zone_of("UTC" if timezone is None else timezone)
        first = next_due(read_cron(cron), ZoneInfo(zone.key), int(now.timestamp()))
        if first is None:
            raise InvalidOption(f"{cron!r} is never due again")
        fields = _new(name, data, now, unique_key=unique_key, next_run_at=moment_of(first * 1_000_000), priority=priority)
        fields["repeatInterval"] = cron.strip()
        if timezone is not None:
            fields["timezone"] = timezone
        return self._add(fields, session)

    def get(self, job: Any, *, session: ClientSession | None = None) -> Fields:
        """Return the document of a job."""
        found = self._documents.find_one({"_id": _id_of(job)}, session=session)
        if found is None:
            raise NotFound(f"there is no document {_id_of(job)} in {self._documents.name}")
        return found

    def cancel(self, job: Any, *, session: ClientSession | None = None) -> Fields:
        """Cancel a pending job. One that is cancelled already is returned as it is; any other is refused."""
        changed = self._move(job, ("pending",), {"status": "cancelled", "updatedAt": _now()}, (), session)
        if changed is not None:
            return changed
        found = self.get(job, session=session)
        if found.get("status") == "cancelled":
            return found
        raise Refused(f"document {_id_of(job)} is {found.get('status')}: only a pending one can be cancelled")

    def retry(self, job: Any, *, session: ClientSession | None = None) -> Fields:
        """Let a failed or cancelled job be due now, with a fresh count of failures."""
        now = _now()
        fresh = {"status": "pending", "failCount": 0, "nextRunAt": now, "updatedAt": now}
        try:
            changed = self._move(job, ("failed", "cancelled"), fresh, ("failReason", *CLAIM_FIELDS, *OWN_FIELDS), session)
        except DuplicateKeyError:
            raise Refused(f"another pending or processing document has the uniqueKey of {_id_of(job)}") from None
        if changed is not None:
            return changed
        found = self.get(job, session=session)
        raise Refused(f"document {_id_of(job)} is {found.get('status')}: only a failed or cancelled one can be retried")

    def delete(self, job: Any, *, session: ClientSession | None = None) -> bool:
        """Delete the document of a job, whatever its state; a handler that runs is stopped at its next heartbeat. False: there was none."""
        return self._documents.delete_one({"_id": _id_of(job)}, session=session).deleted_count == 1

    def _move(
        self, job: Any, states: tuple[str, ...], fields: Fields, gone: tuple[str, ...], session: ClientSession | None
    ) -> Fields | None:
        update = {"$set": fields, **({"$unset": dict.fromkeys(gone, "")} if gone else {})}
        return self._documents.find_one_and_update(
            {"_id": _id_of(job), "status": {"$in": list(states)}}, update, return_document=ReturnDocument.AFTER, session=session
        )

    def _add(self, fields: Fields, session: ClientSession | None) -> Fields:
        try:
            if "uniqueKey" in fields:
                return self._upsert(fields, session)
            self._documents.insert_one(fields, session=session)
        except DocumentTooLarge as error:
            raise PayloadTooLarge(
                f"the document is larger than MongoDB's 16 MiB ({error}): keep the data elsewhere, and its name here"
            ) from None
        except InvalidDocument as error:
            raise InvalidParams(f"data can't be kept in MongoDB: {error}") from None
        return fields

    def _upsert(self, fields: Fields, session: ClientSession | None) -> Fields:
        held = {"name": fields["name"], "uniqueKey": fields["uniqueKey"], "status": LIVE}
        tries = 1 if session is not None and session.in_transaction else TRIES
        for left in reversed(range(tries)):
            try:
                found = self._documents.find_one_and_update(
                    held, {"$setOnInsert": fields}, upsert=True, return_document=ReturnDocument.AFTER, session=session
                )
            except DuplicateKeyError:
                # Two callers saw none, and the other's is there now. A transaction is over by that: its owner repeats it.
                if not left:
                    raise
            else:
                if found is not None:
                    return found
        raise StoreBusy(f"the uniqueKey {fields['uniqueKey']!r} of {fields['name']} changes hands all the time: try again")


def data_of(ctx: Context, params: Mapping[str, Any]) -> Any:
    """Return the data of the document that a handler runs for, with MongoDB's types: datetime, ObjectId, Decimal128, Binary.

    `params` have these as text; they are returned if there are none of these types, and for a job that did not come from Monque.
    """
    kept = ctx.meta.get(META)
    if not isinstance(kept, Mapping):
        return dict(params)
    if "data" in kept:
        return loads(msgspec.json.encode(kept["data"]), json_options=TYPED)
    return params.get(WRAPPED) if kept.get("wrapped") else dict(params)


def _new(name: str, data: Any, now: datetime, *, unique_key: str | None, next_run_at: datetime, priority: int | None) -> Fields:
    if not _is_text(name, NAME_MAX) or any(letter.isspace() for letter in name):
        raise InvalidName(f"{name!r:.80} is not a job name of Monque: use 1 to {NAME_MAX} characters without spaces")
    if unique_key is not None and not _is_text(unique_key, KEY_MAX):
        raise InvalidOption(f"unique_key={unique_key!r:.80} is not valid: use 1 to {KEY_MAX} characters")
    if priority is not None and not _is_rank(priority):
        raise InvalidOption(f"priority={priority!r:.80} is not a whole number that JavaScript can hold")
    fields: Fields = {
        "name": name,
        "data": _bson({} if data is None else data),
        "status": str(DocumentStatus.PENDING),
        "nextRunAt": next_run_at,
        "failCount": 0,
        "createdAt": now,
        "updatedAt": now,
    }
    optional = {"uniqueKey": unique_key, "priority": priority}
    return fields | {field: value for field, value in optional.items() if value is not None}


def _is_text(value: object, limit: int) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= limit and _is_whole(value)


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= PRIORITY_MAX


def _is_whole(text: str) -> bool:
    """Say whether a text has no half of a surrogate pair, which no database keeps."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _bson(value: Any) -> Any:
    """Return data as MongoDB takes it: Decimal as Decimal128, tuples as arrays; refuse what has no form there, naming its place."""
    return _checked(value, "data", 0)


def _checked(value: Any, place: str, level: int) -> Any:
    if level > LEVELS_MAX:
        raise InvalidParams(f"data is nested more than {LEVELS_MAX} levels deep")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or not _is_whole(key):
                raise InvalidParams(f"{place} has the key {key!r:.60}: keys must be text")
        return {key: _checked(each, f"{place}.{key}", level + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_checked(each, f"{place}[{number}]", level + 1) for number, each in enumerate(value)]
    if isinstance(value, Decimal):
        try:
            return Decimal128(value)
        except ArithmeticError:
            raise InvalidParams(f"{place} is {value!r:.80}, which has more digits than MongoDB's 34: use a text") from None
    reason = _reason_against(value)
    if reason is not None:
        raise InvalidParams(f"{place} is {reason}")
    return value


def _reason_against(value: Any) -> str | None:
    if isinstance(value, datetime) and value.tzinfo is None:
        return "a time without its zone: use an aware datetime"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}, which JSON can't hold"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "a number of more than 64 bits: use a text"
    if isinstance(value, str) and not _is_whole(value):
        return "a text with half of a surrogate pair"
    return None


def _moment(given: object, now: datetime) -> datetime:
    if given is None:
        return now
    if not isinstance(given, datetime | timedelta):
        raise InvalidOption(f"run_at={given!r:.80} is not a time: use an aware datetime, or a timedelta from now")
    try:
        at = now + given if isinstance(given, timedelta) else given
        if at.tzinfo is None:
            raise InvalidOption(f"run_at={given} has no time zone: use an aware datetime, or a timedelta from now")
        at = at.astimezone(UTC)
    except OverflowError:
        raise InvalidOption(f"run_at={given} is after the year 9999") from None
    if at.year < FIRST_YEAR:
        raise InvalidOption(f"run_at={given} is before the year {FIRST_YEAR}")
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _id_of(job: Any) -> Any:
    """Return the id that is meant: of a document, an ObjectId, or its text."""
    given = job["_id"] if isinstance(job, Mapping) else job
    return ObjectId(given) if isinstance(given, str) and ObjectId.is_valid(given) else given


def _now() -> datetime:
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
