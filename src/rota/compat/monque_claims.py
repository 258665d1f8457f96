"""The claims of one bridge on documents of Monque's collection: taken, renewed and ended as the library does."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, WriteError
from pymongo.read_concern import ReadConcern

from rota.compat.monque_collection import CLAIM_FIELDS, OWN_FIELDS, Documents, Fields
from rota.errors import InvalidSchedule
from rota.faces.monque import DocumentStatus
from rota.model.cron import next_due, read_cron
from rota.model.values import moment_of
from rota.model.zones import zone_of

WINDOW = 200
"""Due documents among which the priority decides; beyond that the one that is due longest comes first, as in the library."""
JITTER = 0.25
ENDED = dict.fromkeys((*CLAIM_FIELDS, *OWN_FIELDS), "")
FAIL_COUNT_MAX = 2**31 - 1
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
REASON_MAX = 8192
"""Characters of `failReason`."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the library that its documents do not carry: they must be the same in all processes."""

    max_retries: int
    base_s: float
    max_s: float
    heartbeat_s: float
    lock_timeout_s: float
    timezone: str

    def delay_s(self, fail_count: int, rng: Random) -> float:
        """Return the delay before the next attempt, after this many failures."""
        delay = min(2.0 ** min(fail_count, 64) * self.base_s, self.max_s)
        return min(delay + delay * JITTER * (2 * rng.random() - 1), self.max_s)

    def next_run(self, document: Mapping[str, Any], now: datetime) -> datetime | None:
        """Return when a document that recurs is due again, after now; None: never."""
        zone = ZoneInfo(document.get("timezone") or self.timezone)
        at = next_due(read_cron(document["repeatInterval"]), zone, int(now.timestamp()))
        return None if at is None else moment_of(at * 1_000_000)


class End(msgspec.Struct, kw_only=True):
    """How the claim on one document ends."""

    status: DocumentStatus
    at: datetime
    next_run_at: datetime | None = None
    failed: str | None = None
    """The reason of a failure, which is counted."""
    forget: bool = False
    """It was successful: the reason of an earlier failure is removed."""
    starts_over: bool = False
    """It recurs: failures count from 0 again."""

    def update(self, fail_count: int) -> Fields:
        """Return the update of a document that has failed this often before."""
        fields: Fields = {"status": str(self.status), "updatedAt": self.at}
        if self.next_run_at is not None:
            fields["nextRunAt"] = self.next_run_at
        if self.failed is not None:
            fields |= {"failCount": fail_count + 1, "failReason": self.failed[:REASON_MAX]}
        elif self.starts_over:
            fields["failCount"] = 0
        # A checkpoint is kept for the next attempt.
        kept = {"rotaCheckpoint"} if self.status is DocumentStatus.PENDING and not self.starts_over else set()
        gone = {name: text for name, text in ENDED.items() if name not in kept}
        return {"$set": fields, "$unset": gone | ({"failReason": ""} if self.forget else {})}


class Claims:
    """What one bridge holds. Any thread may call it: the driver is safe, and nothing is kept here but what can't be read."""

    def __init__(self, documents: Documents, rules: Rules, *, owner: str, now: Callable[[], datetime], rng: Random) -> None:
        """Take the collection, and under which name documents are claimed in it."""
        self._documents = documents
        # If a failover undid a claim, its document would run here and again at its next claimer.
        self._settled = documents.with_options(read_concern=ReadConcern("majority"))
        self.rules = rules
        self.owner = owner
        self._now = now
        self._rng = rng
        self.unreadable: dict[Any, str] = {}
        """Documents that can't be claimed here, with the reason: they are left to the library."""
        self.unwritable: dict[Any, str] = {}
        """Documents that are claimed here and whose end MongoDB refuses to write, with the reason. They stay claimed."""

    def _mine(self, **more: Any) -> Fields:
        return {"claimedBy": self.owner, "status": str(DocumentStatus.PROCESSING), **more}

    def claim(self, rooms: Mapping[str, int], want: int, held: Collection[Any]) -> list[Fields]:
        """Claim documents that are due: `want` at most, and of each name as many as it has room for.

        Return all that are claimed and not held, also those of an earlier claim whose answer was lost.
        """
        now = self._now()
        due = {"status": str(DocumentStatus.PENDING), "nextRunAt": {"$lte": now}, "claimedBy": None}
        chosen = self._choose(rooms, want, due)
        if chosen:
            claim = {
                "status": str(DocumentStatus.PROCESSING),
                "claimedBy": self.owner,
                "claimId": uuid.uuid4().hex,
                "lockedAt": now,
                "lastHeartbeat": now,
                "heartbeatInterval": round(self.rules.heartbeat_s * 1000),
                "updatedAt": now,
            }
            self._take(due, chosen, {"$set": claim, "$unset": {"leaseExpiresAt": ""}})
        mine = list(self._settled.find(self._mine(_id={"$nin": [*held, *self.unwritable]})))
        return sorted(mine, key=_urgency)

    def _take(self, due: Fields, chosen: list[Any], claim: Fields) -> None:
        """Claim documents in one update; one by one if MongoDB refuses to change one of them, so that this one is left out."""
        try:
            self._documents.update_many({**due, "_id": {"$in": chosen}}, claim)
        except WriteError:
            for document_id in chosen:
                try:
                    self._documents.update_one({**due, "_id": document_id}, claim)
                except WriteError as error:
                    self.unreadable[document_id] = f"MongoDB refuses its claim: {error.details and error.details.get('errmsg')}"

    def _choose(self, rooms: Mapping[str, int], want: int, due: Fields) -> list[Any]:
        names = [name for name, room in rooms.items() if room > 0]
        if want <= 0 or not names:
            return []
        fields = ("name", "nextRunAt", "priority", "repeatInterval", "timezone")
        # Ids of these types can't be told apart here; the library uses ObjectIds.
        ids = {"$nin": list(self.unreadable), "$not": {"$type": ["object", "decimal"]}}
        found = self._documents.find({**due, "name": {"$in": names}, "_id": ids}, fields).sort("nextRunAt", 1).limit(max(WINDOW, want))
        left = dict(rooms)
        chosen: list[Any] = []
        for document in sorted(found, key=_urgency):
            if len(chosen) < want and self._is_readable(document, left) and left[document["name"]] > 0:
                left[document["name"]] -= 1
                chosen.append(document["_id"])
        return chosen

    def _is_readable(self, document: Fields, names: Collection[str]) -> bool:
        """Say whether a document can be run here: it has one of these names, and its next due time can be found, if it recurs.

        One whose next due time can't be found must not lose its recurrence here.
        """
        name = document["name"]
        if not isinstance(name, str) or name not in names:
            # An array that contains a name, or a name of other case in a collection whose collation ignores case.
            self.unreadable[document["_id"]] = f"its name is {name!r:.80}, which is not exactly that of a handler"
            return False
        if document.get("repeatInterval") is None:
            return True
        try:
            read_cron(document["repeatInterval"])
            zone_of(document.get("timezone") or self.rules.timezone)
        except (InvalidSchedule, AttributeError, TypeError) as error:
            self.unreadable[document["_id"]] = f"it recurs by a rule that Rota can't read: {error}"
            return False
        return True

    def beat(self, held: Collection[Any]) -> set[Any]:
        """Renew the claims, and return which of those held are not ours any more.

        `lockedAt` is renewed too: the library recovers by it alone, whatever `lastHeartbeat` says.
        """
        now = self._now()
        self._documents.update_many(self._mine(), {"$set": {"lastHeartbeat": now, "lockedAt": now, "updatedAt": now}})
        ours = {each["_id"] for each in self._documents.find(self._mine(), ("_id",))} if held else set()
        return set(held) - ours

    def sweep(self) -> int:
        """Give documents back whose claim was not renewed for the lock timeout, and whose lease has run out if they have one."""
        # Somebody may have corrected them in the meantime. Another thread may be reading the old ones.
        self.unreadable = {}
        now = self._now()
        stale = {
            "status": str(DocumentStatus.PROCESSING),
            "lockedAt": {"$lt": now - timedelta(seconds=self.rules.lock_timeout_s)},
            "$or": [{"leaseExpiresAt": None}, {"leaseExpiresAt": {"$lt": now}}],
        }
        gone = {name: "" for name in ENDED if name != "rotaCheckpoint"}
        back = self._documents.update_many(stale, {"$set": {"status": str(DocumentStatus.PENDING), "updatedAt": now}, "$unset": gone})
        return back.modified_count

    def keep(self, document_id: Any, checkpoint: str) -> bool:
        """Keep a checkpoint in a document; False: it is not ours any more."""
        kept = self._documents.update_one(self._mine(_id=document_id), {"$set": {"rotaCheckpoint": checkpoint, "updatedAt": self._now()}})
        return kept.matched_count == 1

    def end(self, ends: Sequence[tuple[Fields, End]]) -> set[Any]:
        """End claims, all in one request; return the ids of those that were not ours any more, which were left as they are.

        `unwritable` has those that were not written because of what is in them: they may be tried again.
        """
        updates = [
            UpdateOne(self._mine(_id=document["_id"], claimId=document.get("claimId")), end.update(fail_count_of(document)))
            for document, end in ends
        ]
        try:
            modified, refusals = self._documents.bulk_write(updates, ordered=False).modified_count, []
        except BulkWriteError as error:
            if not error.details["writeErrors"]:
                raise
            modified, refusals = error.details["nModified"], error.details["writeErrors"]
        for document, _ in ends:
            self.unwritable.pop(document["_id"], None)
        for each in refusals:
            self.unwritable[ends[each["index"]][0]["_id"]] = str(each["errmsg"])
        if modified == len(updates):
            return set()
        return self._refused([(document, end) for document, end in ends if document["_id"] not in self.unwritable])

    def _refused(self, ends: Sequence[tuple[Fields, End]]) -> set[Any]:
        """Return which of some ends were refused. One that was written, now or by a try whose answer was lost, has left its moment."""
        at = {document["_id"]: end.at for document, end in ends}
        found = self._documents.find({"_id": {"$in": list(at)}, "claimedBy": None}, ("updatedAt",))
        return set(at) - {each["_id"] for each in found if each.get("updatedAt") == at[each["_id"]]}

    # ---- what follows from an outcome ---------------------------------------------------------------------------------

    def succeeded(self, document: Fields) -> End:
        """Return the end of a success: one that recurs waits for its next due time, counted from now."""
        now = self._now()
        at = None if document.get("repeatInterval") is None else self.rules.next_run(document, now)
        if at is None:
            return End(status=DocumentStatus.COMPLETED, at=now, forget=True)
        return End(status=DocumentStatus.PENDING, at=now, next_run_at=at, forget=True, starts_over=True)

    def failed(self, document: Fields, reason: str, *, permanent: bool = False, after_s: float | None = None) -> End:
        """Return the end of a failure: another attempt after a delay, or none."""
        now, fail_count = self._now(), fail_count_of(document) + 1
        if permanent or fail_count >= self.rules.max_retries:
            return End(status=DocumentStatus.FAILED, at=now, failed=reason)
        delay_s = self.rules.delay_s(fail_count, self._rng) if after_s is None else max(0.0, after_s)
        return End(status=DocumentStatus.PENDING, at=now, next_run_at=now + timedelta(seconds=delay_s), failed=reason)

    def given_back(self, delay_s: float | None = None) -> End:
        """Return the end of a claim that is given back: nothing is counted."""
        now = self._now()
        return End(status=DocumentStatus.PENDING, at=now, next_run_at=None if delay_s is None else now + timedelta(seconds=delay_s))


def fail_count_of(document: Fields) -> int:
    """Return how often a document has failed; 0 if what it says is not a count."""
    count = document.get("failCount")
    return int(count) if isinstance(count, int | float) and 0 <= count <= FAIL_COUNT_MAX else 0


def _urgency(document: Fields) -> tuple[float, datetime]:
    priority, due_at = document.get("priority"), document.get("nextRunAt")
    rank = -priority if isinstance(priority, int | float) and math.isfinite(priority) else 0.0
    # One whose due time can't be read is claimed as well, to be refused with its reason.
    return rank, due_at if isinstance(due_at, datetime) else LONG_AGO
