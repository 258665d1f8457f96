"""One database as a whole: read as of one moment, written beside the store until it is whole, closed by a mark.

No transaction lasts as long as a copy may take: `marks` says what keeps others out, and how a copy takes the place of what was there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from pymongo import InsertOne, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from rota.errors import CopyRefused, StoreError, StoreMoved, StoreUnavailable
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.ports.copying import Kind, Moved, Row, Table
from rota.stores.mongodb.address import address
from rota.stores.mongodb.connection import Connections
from rota.stores.mongodb.db import Db
from rota.stores.mongodb.documents import Document
from rota.stores.mongodb.errors import DUPLICATE_KEY, translated
from rota.stores.mongodb.marks import BESIDE, REOPENED, WHOLE, Mark, Staged, in_transaction, moved, names_beside, put_in_place
from rota.stores.mongodb.migrate import create_indexes, wait_until_seen
from rota.stores.mongodb.schema import COLLECTIONS, COUNTERS, FIGURES, KEYS, RULES, THERE, VERSION
from rota.stores.mongodb.statements.figures import TOTAL
from rota.stores.mongodb.statements.jobs import states
from rota.stores.mongodb.statements.joining import among
from rota.stores.mongodb.store import MongoStore
from rota.stores.mongodb.transaction import Idle, Transactions
from rota.stores.verbs import copying
from rota.stores.verbs.store import Hold
from rota.stores.verbs.tables import JOBS, META, RUNS, TABLES

FACTS, LIVE, ENDS, NOTES = "job_facts", "job_live", "job_ends", "run_notes"
IN_PLACE = ("locks", "bell")
"""Collections that stay when a copy takes the place of a store: locks keep others out, and the bell is watched."""
STATE = (
    *("status", "held", "priority", "position", "run_at", "expires_at", "queued_at", "started_at", "worker_id"),
    *("cancel_requested_at", "cancel_requested_by", "reason"),
)
"""What changes of a job."""
AT_END = ("finished_at", "ended_by", "error_type")
PARTS = {
    FACTS: tuple(name for name in JOBS.names if name not in {*STATE, *AT_END, "blockers"}),
    LIVE: (
        *("number", "job_id", "root_id", "attempt", "organization_id", "job_type", "created_at", "schedule_id", "unique_key", "lane"),
        *("blockers", *STATE),
    ),
    ENDS: ("number", "job_type", "created_at", *STATE, *AT_END),
    NOTES: tuple(name for name in RUNS.names if name not in {"run_id", "template_id", "status", "started_at", "finished_at"}),
}
"""The columns of a job and its run, by the collection that has them."""
NUMBERED = {"audit": "audit", "lanes": "lanes", "outbox": "outbox", "schedule_reports": "schedule_reports"}
"""The collections whose keys come from a counter, by its name."""
TORN, RUN_OF_NO_JOB = "job_runs has a run that is not what its job says", "job_runs refers to what is not in jobs"
AS_RUN = {"TIMED_OUT": "FAILED", "DEAD_LETTER": "FAILED"}
"""How a run ended, where its job ended by another word."""
WINDOW = 1000
"""Jobs that are looked up at a time, all but what may be large of them."""
QUEUE: list[Document] = [
    {"$match": {"status": "QUEUED"}},
    {"$project": {"priority": 1, "position": 1, "created_at": 1, "job_id": 1}},
    {"$sort": {"priority": -1, "position": 1, "created_at": 1, "job_id": 1}},
]
TOO_OLD = 239
"""The server keeps a moment for minutes only."""


class MongoDepot:
    """Implements `rota.ports.copying.Depot` on one database of a replica set."""

    tables = TABLES
    takes_nul = True

    def __init__(self, url: str, settings: Settings) -> None:
        """Take where it is."""
        self.address = address(url)
        self._url = url
        self._settings = settings
        self._held = False
        self.url = self.address.shown

    def identity(self) -> str:
        """Return which database of which replica set this is, in the words of its members."""
        with self._connected() as database:
            hello = database.client.admin.command("hello")
            return f"{hello.get('setName', self.url)} {sorted(hello.get('hosts', ()))} {database.name}"

    def exists(self) -> bool:
        """Say whether the database has our collections."""
        with self._connected() as database:
            return database[META.name].find_one({"_id": "schema"}) is not None

    def prepare(self, *, now: Instant) -> None:
        """Bring the collections up to date, making them if they are not there."""
        store = MongoStore(self._url, self._settings)
        try:
            store.migrate(now=now)
        except StoreMoved:
            return
        finally:
            store.close()

    def moved(self) -> Moved | None:
        """Return the mark, if there is one."""
        with self._connected() as database:
            return copying.moved_of(Db(database, None))

    def others(self) -> list[str]:
        """Return collections that are not Rota's."""
        with self._connected() as database:
            names = database.list_collection_names()
            return sorted(name for name in names if name not in COLLECTIONS and not name.startswith((BESIDE, "system.")))

    @contextmanager
    def snapshot(self) -> Iterator[Reading]:
        """Read as of one moment; where nobody can write, for as long as it takes."""
        still = self._held or self.moved() is not None
        with self._connected() as database, database.client.start_session(snapshot=not still, causal_consistency=still) as session:
            try:
                yield Reading(Db(database, session))
            except OperationFailure as error:
                if error.code != TOO_OLD:
                    raise
                raise CopyRefused(
                    f"{self.url} shows one moment for minSnapshotHistoryWindowInSeconds at most, and the copy took longer: raise that "
                    "parameter of its servers, or promote without keep (--keep), so that nobody writes; nothing was changed"
                ) from error

    @contextmanager
    def hold(self) -> Iterator[Guard]:
        """Keep others from writing by a mark."""
        with self._connected() as database, self._marked(database) as mark:
            self._held = True
            try:
                yield Guard(database, mark)
            finally:
                self._held = False

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """Write beside the store, and take its place when the copy is whole."""
        with self._connected() as database, self._marked(database) as mark:
            try:
                yield Writing(database, self.url, mark)
            except BaseException:
                with suppress(PyMongoError):
                    # Without the mark, what is there may be another's copy.
                    if mark.is_there():
                        _drop_beside(database)
                raise
            if not _replaced(database, mark, WHOLE):
                raise _lost(self.url)
            put_in_place(database)
            wait_until_seen(database)

    def reopen(self) -> None:
        """Take the mark off."""
        with self._connected() as database:
            in_transaction(database, lambda session: database["locks"].update_many({}, REOPENED, session=session))

    @contextmanager
    def _connected(self) -> Iterator[Database[Document]]:
        """Lend the database with a client of this block's own."""
        connections = Connections(self.address, self._settings, long=True)
        try:
            with translated(self.address):
                yield connections.client[self.address.database]
        finally:
            connections.close()

    @contextmanager
    def _marked(self, database: Database[Document]) -> Iterator[Mark]:
        """Wait until nobody writes, also in transactions of their own, and mark the store. One that was moved has nobody who does."""
        mark = Mark(database)
        try:
            Transactions(database.client, self.address, self._settings, Idle()).run(lambda db: mark.put(db.session), Hold.STILL)
        except StoreMoved:
            if not mark.put(where={"copying": None}):
                mark.take_off()
                raise CopyRefused(f"another copy is being written to {self.url}: wait for its end; nothing was changed") from None
        with mark:
            yield mark


class Reading(copying.Reading):
    """Implements `rota.ports.copying.Reading` on a session."""

    _db: Db

    def order(self) -> Iterator[Row]:
        """Go through the queue in its order."""
        return ((bytes.fromhex(job["job_id"]),) for job in self._db.pipeline(LIVE, QUEUE))

    def _count(self, table: Table) -> int:
        if table == RUNS:
            return self._db.size(LIVE, {"run_id": THERE}) + self._db.size(ENDS, {"run_id": THERE})
        return self._db.size(FACTS if table == JOBS else _collection(table.name), _kind(table.name))

    def _rows(self, table: Table) -> Iterator[Row]:
        of = _RowOf(table)
        if table == JOBS:
            return map(of, self._jobs())
        if table == RUNS:
            return map(of, self._runs())
        order = [(_column(table.name, name), 1) for name in table.key]
        return map(of, self._db.cursor(_collection(table.name), _kind(table.name), sort=order))

    def _jobs(self) -> Iterator[Document]:
        for numbers in self._windows():
            found = states(self._db, numbers)
            for fact in self._db.cursor(FACTS, _between(numbers), sort=[("_id", 1)]):
                yield fact | {"blockers": 0} | found.get(fact["_id"], {})

    def _runs(self) -> Iterator[Document]:
        for numbers in self._windows():
            found = states(self._db, numbers, ("run_id", "status", "started_at", "finished_at"))
            templates = {fact["_id"]: fact for fact in self._db.cursor(FACTS, _between(numbers), ("template_id",))}
            notes = iter(self._db.cursor(NOTES, _between(numbers), sort=[("_id", 1)]))
            note = next(notes, None)
            for number in numbers:
                while note is not None and note["_id"] < number:
                    note = next(notes, None)
                run = found.get(number, {})
                if "run_id" not in run:
                    continue
                status = AS_RUN.get(run["status"], run["status"]) if "finished_at" in run else None
                left = note if note is not None and note["_id"] == number else {}
                yield templates[number] | {"artifacts": "[]"} | left | run | {"status": status}

    def _windows(self) -> Iterator[list[int]]:
        """Go through the numbers of all jobs."""
        last = 0
        while numbers := [fact["_id"] for fact in self._db.find(FACTS, {"_id": {"$gt": last}}, (), sort=[("_id", 1)], limit=WINDOW)]:
            last = numbers[-1]
            yield numbers


def _collection(table: str) -> str:
    """Return the collection that has the rows of a table."""
    return "figures" if table in FIGURES else table


def _kind(table: str) -> Document:
    """Return what the documents of a table's rows have in common, in its collection."""
    kind = FIGURES.get(table)
    return {} if kind is None else TOTAL if kind == "total" else {"kind": kind}


def _column(name: str, column: str) -> str:
    """Return what a column of a table, or of a part of one, is called in documents."""
    if name in FIGURES:
        return "at" if column == FIGURES[name] else column
    return "_id" if column == KEYS.get(name) else column


def _between(numbers: Sequence[int]) -> Document:
    return {"_id": {"$gte": numbers[0], "$lte": numbers[-1]}}


class _RowOf:
    """Turns documents into rows of a table."""

    def __init__(self, table: Table) -> None:
        name = FACTS if table == JOBS else NOTES if table == RUNS else table.name
        self._columns = [(_column(name, column.name), CONVERTED[column.kind]) for column in table.columns]

    def __call__(self, document: Document) -> Row:
        get = document.get
        return tuple([None if (value := get(name)) is None else convert(value) for name, convert in self._columns])


CONVERTED: dict[Kind, Callable[[Any], Any]] = {
    Kind.ID: bytes.fromhex,
    Kind.DIGEST: bytes,
    # The driver has a class of its own for large numbers.
    Kind.WHOLE: int,
    Kind.REAL: float,
    Kind.TEXT: str,
}


class Writing(Reading):
    """Implements `rota.ports.copying.Writing` on collections beside those of a store that is marked."""

    def __init__(self, database: Database[Document], url: str, mark: Mark) -> None:
        """Write to this database as long as it has this mark. What is there is read until it is cleared."""
        super().__init__(Db(database, None))
        self._mark = mark
        self._database = database
        self._staged = Staged(database.client, database.name, database.codec_options)
        self._url = url
        self._broken: Counter[str] = Counter()
        self._schedules = 0
        self._jobs_of = [_Part(name, JOBS) for name in (FACTS, LIVE, ENDS)]
        self._notes = _Part(NOTES, RUNS)
        self._finished_at = JOBS.names.index("finished_at")

    def clear(self) -> None:
        """Begin with empty collections. Their indexes are made when they are full, which is faster."""
        _drop_beside(self._database)
        for name in COLLECTIONS:
            if name not in IN_PLACE:
                self._database.create_collection(BESIDE + name)
        self._db = Db(self._staged, None)

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows as they are."""
        if not self._mark.is_there():
            raise _lost(self._url)
        if table == META:
            self._write_counters(rows)
        elif table == JOBS:
            facts, live, ends = self._jobs_of
            ended = self._finished_at
            self._add(facts, rows)
            self._add(live, [row for row in rows if row[ended] is None])
            self._add(ends, [row for row in rows if row[ended] is not None])
        elif table == RUNS:
            self._write_runs(rows)
        else:
            self._add(_Part(table.name, table), rows)

    def finish(self) -> None:
        """Make the indexes, let numbers continue, and look at the rules that a copy must keep."""
        self._refuse_torn()
        try:
            create_indexes(self._staged)
            for name, rule in RULES.items():
                # A job is whole once its run was copied too, so the rules come last.
                self._database.command("collMod", BESIDE + name, validator=rule)
        except OperationFailure as error:
            if error.code == DUPLICATE_KEY:
                raise StoreError(f"{self._url} would not be whole: {error}. Nothing was changed") from error
            raise
        copying.refuse_broken(self._db, self._url)
        for name, counter in NUMBERED.items():
            last = self._db.first(name, {}, (), sort=[("_id", -1)])
            self._count_on(counter, 0 if last is None else last["_id"])
        self._count_on("schedules", self._schedules)
        # Who has this store open reads its definitions anew.
        present = self._database["meta"].find_one({"_id": "definitions_version"}) or {"value": 0}
        self._db.insert("meta", {"_id": "definitions_version", "value": present["value"] + 1}, {"_id": "schema", "value": VERSION})

    def _write_counters(self, rows: Sequence[Row]) -> None:
        self._db.insert("counters", *({"_id": name, "value": 0} for name in COUNTERS))
        for key, value in rows:
            if key == "numbers":
                self._count_on("job_numbers", value)
            else:
                self._db.insert("meta", {"_id": key, "value": value})

    def _count_on(self, counter: str, value: int) -> None:
        self._db.update("counters", {"_id": counter}, {"$set": {"value": value}})

    def _add(self, part: _Part, rows: Sequence[Row]) -> None:
        documents = [part.document(row) for row in rows]
        if part.collection == ENDS:
            for end in documents:
                if end["finished_at"] < end.get("started_at", 0):
                    end["clock_back"] = 1
        elif part.collection == "outbox":
            for message in documents:
                message["over_at"] = message.get("delivered_at") or message.get("gave_up_at") or 0
        elif part.collection == "schedules":
            for schedule in documents:
                self._schedules += 1
                schedule["row_id"] = self._schedules
        self._insert(part.collection, documents)

    def _insert(self, collection: str, documents: list[Document]) -> None:
        if documents:
            self._staged[collection].bulk_write([InsertOne(document) for document in documents], ordered=False)

    def _write_runs(self, rows: Sequence[Row]) -> None:
        """Give runs to their jobs. A run is a part of its job here, so nothing of it may be otherwise than its job has it."""
        runs = [dict(zip(RUNS.names, row, strict=True)) for row in rows]
        given = sum(
            self._db.write_each(collection, [UpdateOne(_same_run(run), {"$set": {"run_id": run["run_id"].hex()}}) for run in part])
            for collection, part in (
                (LIVE, [run for run in runs if run["finished_at"] is None]),
                (ENDS, [run for run in runs if run["finished_at"] is not None]),
            )
        )
        if given < len(runs):
            known = sum(1 for _ in among(self._db, FACTS, "_id", [run["job_number"] for run in runs]))
            self._broken[RUN_OF_NO_JOB] += len(runs) - known
            self._broken[TORN] += known - given
        noted = [note for note in map(self._notes.document, rows) if note.keys() - {"_id", "artifacts"} or note["artifacts"] != "[]"]
        self._insert(NOTES, noted)

    def _refuse_torn(self) -> None:
        broken = [f"{words} ({count})" for words, count in self._broken.items() if count]
        if broken:
            raise StoreError(f"{self._url} would not be whole: {'; '.join(broken)}. Nothing was changed")


def _same_run(run: dict[str, Any]) -> Document:
    """Return the filter for the job of a run: it has started, and ended, as the run has."""
    if run["finished_at"] is None:
        return {"_id": run["job_number"], "started_at": run["started_at"]}
    words = [run["status"], *(word for word, as_run in AS_RUN.items() if as_run == run["status"])]
    return {"_id": run["job_number"], "started_at": run["started_at"], "finished_at": run["finished_at"], "status": {"$in": words}}


class _Part:
    """What of a row goes into one collection, and how."""

    def __init__(self, name: str, table: Table) -> None:
        self.collection = _collection(name)
        self._common = _kind(name)
        wanted = set(PARTS.get(name, table.names))
        self._columns = [
            (place, _column(name, column.name), column.kind is Kind.ID)
            for place, column in enumerate(table.columns)
            if column.name in wanted
        ]

    def document(self, row: Row) -> Document:
        columns = {name: row[place].hex() if is_id else row[place] for place, name, is_id in self._columns if row[place] is not None}
        return self._common | columns


class Guard:
    """Implements `rota.ports.copying.Guard`: the mark keeps others out as long as it is prolonged."""

    def __init__(self, database: Database[Document], mark: Mark) -> None:
        """Guard by this mark."""
        self._database = database
        self._mark = mark

    def check(self) -> None:
        """See that the mark is still ours."""
        if not self._mark.is_there():
            raise StoreUnavailable("the source's lock was lost while it was copied: nothing was changed, promote again")

    def close_store(self, moved_to: Moved) -> None:
        """Mark it as moved, and refuse every write from now on."""
        if not _replaced(self._database, self._mark, moved(moved_to.to, moved_to.at)):
            raise StoreUnavailable("the source's lock was lost before it could be closed: promote again")


def _replaced(database: Database[Document], mark: Mark, change: Document) -> bool:
    """Change the mark for another, all or none; say whether it was still there."""

    def work(session: ClientSession) -> bool:
        if mark.replace(session, change):
            return True
        session.abort_transaction()
        return False

    with database.client.start_session() as session:
        return session.with_transaction(work)


def _lost(url: str) -> StoreUnavailable:
    return StoreUnavailable(f"{url} was open to others while it was written: nothing was changed, promote again")


def _drop_beside(database: Database[Document]) -> None:
    for name in names_beside(database):
        database.drop_collection(name)
