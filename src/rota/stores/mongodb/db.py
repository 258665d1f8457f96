"""One session with a MongoDB database, and the functions that are this dialect's statements: see `rota.stores.verbs.db`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar

from bson.errors import BSONError
from pymongo import DeleteMany, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.command_cursor import CommandCursor
from pymongo.cursor import Cursor
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DocumentTooLarge, DuplicateKeyError, OperationFailure, PyMongoError
from pymongo.write_concern import WriteConcern

from rota.model.values import Claimed, Instant
from rota.ports.scan import Bound, Order
from rota.stores.mongodb.documents import Document, Row
from rota.stores.mongodb.errors import Refused, content_error, first_line, refusal
from rota.stores.verbs.db import About

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", Cursor[Document], CommandCursor[Document])
OPEN_MAX = 100
"""Cursors that are kept until somebody looks which of them are read to their end."""

BATCH = 10_000
"""Documents that come with the answer where all of them are wanted: without this the server sends 101, and waits to be asked for more."""

STATEMENTS: dict[str, Callable[..., Any]] = {}
"""The functions by name. A function takes the `Db` and the values by name, and returns rows or a count, as its callers expect."""
SOURCES: dict[str, Any] = {}
"""The sources of lists by name: see `statements.lists`."""
AT_ONCE = WriteConcern(1, j=False)
"""For counters and notes: acknowledged before they are on another server."""


def statement(function: F) -> F:
    """Register a function as the statement of its name. A name that is there twice is a mistake."""
    name = function.__name__
    if name in STATEMENTS:
        raise AssertionError(f"statement {name!r} is registered twice, again in {function.__module__}")
    STATEMENTS[name] = function
    return function


class Undone(Exception):  # noqa: N818 - a signal to the transaction, not an error of anybody
    """A part of the work failed, and with it the whole transaction: it is begun again, and that part fails before it has done anything."""

    def __init__(self, about: About, error: Exception) -> None:
        """Take which part, and what it failed with."""
        super().__init__(about)
        self.about = about
        self.error = error


class Removal(NamedTuple):
    """Documents that are to be removed, and have to be there."""

    collection: str
    where: Document
    size: int
    refusal: str
    """What is said if they are not."""

    def concerns(self, where: Document) -> bool:
        """Say whether one of them may match: not where both ask for another status."""
        own, other = self.where.get("status"), where.get("status")
        return not (isinstance(own, str) and isinstance(other, str) and own != other)


class Db:
    """One session and the statements in it. A session reads one moment, in a transaction or without."""

    __slots__ = (
        *("_ahead", "_database", "_failed", "_max_time_ms", "_open", "_removals"),
        *("is_chosen", "offered", "session", "trips", "writes"),
    )
    ends_apart = True
    hops = True
    conflict: tuple[type[Exception], ...] = (DuplicateKeyError,)
    refused: tuple[type[Exception], ...] = (DuplicateKeyError, Refused)
    unwritable: tuple[type[Exception], ...] = (
        DuplicateKeyError,
        Refused,
        DocumentTooLarge,
        BSONError,
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
    )

    def __init__(
        self, database: Database[Document], session: ClientSession | None, *, failed: dict[About, Exception] | None = None
    ) -> None:
        """Take the session; `failed` has the parts of the work that failed when it was tried before."""
        self._database = database
        self.session = session
        self._failed = {} if failed is None else failed
        self._max_time_ms: int | None = None
        self._open: list[Cursor[Document] | CommandCursor[Document]] = []
        self._ahead: tuple[Document, int, list[Document]] | None = None
        self._removals: list[Removal] = []
        self.offered: dict[int, Document] = {}
        """The live jobs that `candidates` has offered last, as they are: `start` need not read them again."""
        self.is_chosen = False
        """A worker has been offered jobs to choose from: it counts what it has chosen, so the work can't be begun again."""
        self.trips = 0
        """How often the server was asked."""
        self.writes = 0
        """How often it was asked to change something, or is to be asked."""

    # ---- what the verbs ask ------------------------------------------------------------------------------------

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        found: list[Row] = STATEMENTS[name](self, **values)
        return found

    def row(self, name: str, /, **values: Any) -> Row | None:
        """Run a statement and return its first row."""
        found = self.rows(name, **values)
        return found[0] if found else None

    def value(self, name: str, /, **values: Any) -> Any:
        """Run a statement and return the first column of its first row."""
        found = self.rows(name, **values)
        return found[0][0] if found else None

    def change(self, name: str, /, **values: Any) -> int:
        """Run a statement and return how many documents it changed."""
        changed: int = STATEMENTS[name](self, **values)
        return changed

    def along(self, name: str, source: str, /, **values: Any) -> list[Row]:
        """Run a statement over one of its sources."""
        found: list[Row] = STATEMENTS[name](self, SOURCES[source], **values)
        return found

    def stream(
        self, relation: str, source: str | None, columns: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None, /, **values: Any
    ) -> Iterator[Row]:
        """Read a relation as rows are asked for."""
        scanned: Iterator[Row] = STATEMENTS["scan"](self, relation, source, columns, bounds, order, **values)
        return scanned

    @contextmanager
    def limit_steps(self, timeout_s: float) -> Iterator[None]:
        """Have the server break off a step that takes longer, and end what was not read to its end."""
        self._max_time_ms = max(1, round(timeout_s * 1000))
        try:
            yield
        finally:
            self._max_time_ms = None
            cursors, self._open = self._open, []
            for cursor in cursors:
                cursor.close()

    def added(self, name: str, count: int, /, **values: Any) -> Sequence[int]:
        """Run a statement that adds jobs, and return their numbers."""
        numbers: Sequence[int] = STATEMENTS[name](self, count=count, **values)
        return numbers

    def bodies(self, params: Sequence[str]) -> Sequence[str]:
        """Return the params of many jobs as they are."""
        return params

    def added_each(self, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        """Add jobs, each with its own values."""
        numbers: Sequence[int] = STATEMENTS["insert_jobs_each"](self, rows)
        return numbers

    def candidates(self, lanes: tuple[int, ...], want: int, *, slim: bool, suspects: bool) -> list[Claimed]:
        """Return the first ready jobs of these lanes."""
        found: list[Claimed] = STATEMENTS["candidates"](self, lanes, want, slim=slim, suspects=suspects)
        return found

    def look(self, worker_id: bytes, done: Sequence[tuple[int, Instant]] = ()) -> Row:
        """Return what a turn asks first, and read those ahead that it is about to end."""
        seen: Row = STATEMENTS["turn_look"](self, worker_id, [number for number, _ in done])
        return seen

    def end_plain(self, done: dict[int, Instant], worker_id: bytes) -> tuple[list[int], str]:
        """Complete jobs of this worker that left nothing behind."""
        ended: tuple[list[int], str] = STATEMENTS["end_plain"](self, done, worker_id)
        return ended

    def finish(self, runs: Sequence[tuple[Any, ...]], jobs: Sequence[tuple[Any, ...]]) -> None:
        """End runs and their jobs."""
        STATEMENTS["finish"](self, runs, jobs)

    def count(self, figures: str) -> None:
        """Add to the figures."""
        STATEMENTS["count_figures"](self, figures)

    def start(self, jobs: Sequence[Claimed], clocks: dict[int, int], *, now: Instant, worker_id: bytes) -> None:
        """Start jobs, and move the clocks of their priorities on."""
        STATEMENTS["start"](self, jobs, clocks, now=now, worker_id=worker_id)

    def adopt(self, rows: Sequence[tuple[Any, ...]], adopter_id: str) -> None:
        """Start jobs as another system has."""
        STATEMENTS["adopt_starts"](self, rows, adopter_id)

    def tally(self, numbers: Sequence[int]) -> None:
        """Count jobs that have just ended into the figures."""
        STATEMENTS["tally"](self, numbers)

    @contextmanager
    def savepoint(self, about: About) -> Iterator[None]:
        """Let a part of the work fail without the rest: the server undoes all of it, so it is begun again without the part."""
        if about in self._failed:
            raise self._failed[about]
        before = self.writes
        try:
            yield
            # What the part has put off belongs to it too.
            self.flush()
        except Undone:
            raise
        except Exception as error:
            # What has only read has nothing to undo, and what the server says of the whole transaction is not the part's.
            is_of_part = isinstance(error, (*self.unwritable, *self.refused)) or not isinstance(error, PyMongoError)
            if self.writes == before or not is_of_part:
                raise
            raise Undone(about, error) from error

    def snapshot(self) -> AbstractContextManager[object]:
        """Return nothing to do: every session reads one moment."""
        return nullcontext()

    # ---- what statements are written with ------------------------------------------------------------------------

    def find(
        self,
        collection: str,
        where: Document,
        columns: Iterable[str] | None = None,
        *,
        sort: Sequence[tuple[str, int]] = (),
        limit: int = 0,
        hint: str | None = None,
    ) -> list[Document]:
        """Return the documents that match, or these columns of them; `_id` is always among them."""
        return list(self.cursor(collection, where, columns, sort=sort, limit=limit, hint=hint).batch_size(BATCH))

    def cursor(
        self,
        collection: str,
        where: Document,
        columns: Iterable[str] | None = None,
        *,
        sort: Sequence[tuple[str, int]] = (),
        limit: int = 0,
        hint: str | None = None,
    ) -> Cursor[Document]:
        """Return the documents that match, as they are asked for."""
        if any(removal.collection == collection and removal.concerns(where) for removal in self._removals):
            self.flush()
        self.trips += 1
        projected = None if columns is None else dict.fromkeys(columns, 1) or {"_id": 1}
        cursor = self._database[collection].find(where, projected, session=self.session)
        if sort:
            cursor = cursor.sort(list(sort))
        if limit:
            cursor = cursor.limit(limit)
        if hint is not None:
            cursor = cursor.hint(hint)
        if self._max_time_ms is not None:
            cursor = cursor.max_time_ms(self._max_time_ms)
        return self._noted(cursor)

    def _noted(self, cursor: C) -> C:
        """Keep a cursor for the end of a block of limited steps; those that are read to their end are forgotten."""
        if self._max_time_ms is not None:
            if len(self._open) >= OPEN_MAX:
                self._open = [other for other in self._open if other.alive]
            self._open.append(cursor)
        return cursor

    def first(
        self,
        collection: str,
        where: Document,
        columns: Iterable[str] | None = None,
        *,
        sort: Sequence[tuple[str, int]] = (),
        hint: str | None = None,
    ) -> Document | None:
        """Return the first document that matches."""
        found = self.find(collection, where, columns, sort=sort, limit=1, hint=hint)
        return found[0] if found else None

    def has(self, collection: str, where: Document) -> bool:
        """Say whether a document matches."""
        return self.first(collection, where, ()) is not None

    def size(self, collection: str, where: Document, *, limit: int = 0, hint: str | None = None) -> int:
        """Return how many documents match; with a limit, as far as that is worth counting."""
        stages: list[Document] = [{"$match": where}, *([{"$limit": limit}] if limit else []), {"$count": "n"}]
        found = self.aggregate(collection, stages, hint=hint)
        return int(found[0]["n"]) if found else 0

    def aggregate(self, collection: str, stages: Sequence[Document], *, hint: str | None = None) -> list[Document]:
        """Return what a pipeline gives."""
        return list(self.pipeline(collection, stages, hint=hint, batch=BATCH))

    def pipeline(
        self, collection: str, stages: Sequence[Document], *, hint: str | None = None, batch: int | None = None
    ) -> CommandCursor[Document]:
        """Return what a pipeline gives, as it is asked for; `batch` says how many documents come first."""
        # It may look into any collection.
        self.flush()
        self.trips += 1
        given = {"maxTimeMS": self._max_time_ms, "hint": hint, "batchSize": batch}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return self._noted(self._database[collection].aggregate(list(stages), session=self.session, **options))

    def insert(self, collection: str, *documents: Document) -> int:
        """Add documents and return how many."""
        if not documents:
            return 0
        self._begin(collection)
        with _content_errors():
            if len(documents) == 1:
                self._database[collection].insert_one(documents[0], session=self.session)
            else:
                self._database[collection].insert_many(documents, session=self.session)
        return len(documents)

    def update(self, collection: str, where: Document, change: Document | list[Document], *, upsert: bool = False) -> int:
        """Change the documents that match, and return how many did. An upsert changes one, or adds it."""
        self._begin(collection)
        with _content_errors():
            if upsert:
                done = self._database[collection].update_one(where, change, upsert=True, session=self.session)
                return done.matched_count or int(done.upserted_id is not None)
            return self._database[collection].update_many(where, change, session=self.session).matched_count

    def take(self, collection: str, where: Document, change: Document | list[Document], *, before: bool = False) -> Document | None:
        """Change one document and return it as it is then, or as it was before."""
        self._begin(collection)
        with _content_errors():
            found: Document | None = self._database[collection].find_one_and_update(
                where, change, return_document=not before, session=self.session
            )
        return found

    def write_each(self, collection: str, changes: Sequence[UpdateOne]) -> int:
        """Carry out many updates, each with its own filter, and return how many documents matched or were added."""
        if not changes:
            return 0
        self._begin(collection)
        with _content_errors():
            done = self._database[collection].bulk_write(changes, ordered=False, session=self.session)
        return done.matched_count + done.upserted_count

    def delete(self, collection: str, where: Document) -> int:
        """Remove the documents that match, and return how many did."""
        self._begin(collection)
        return self._database[collection].delete_many(where, session=self.session).deleted_count

    def remove(self, collection: str, where: Document, count: int, refusal: str) -> None:
        """Remove documents of which this many are known to match: together with others, before anybody could see that they are there."""
        self.writes += 1
        self._removals.append(Removal(collection, where, count, refusal))

    def flush(self) -> None:
        """Remove what is to be removed. If anything of it does not match any more, the work is refused."""
        removals, self._removals = self._removals, []
        for collection in dict.fromkeys(removal.collection for removal in removals):
            own = [removal for removal in removals if removal.collection == collection]
            self.trips += 1
            with _content_errors():
                removed = self._database[collection].bulk_write([DeleteMany(removal.where) for removal in own], session=self.session)
            if removed.deleted_count != sum(removal.size for removal in own):
                raise Refused(", or ".join(dict.fromkeys(removal.refusal for removal in own)))

    def _begin(self, collection: str) -> None:
        """Count a change of a collection, before which nothing is left to be removed there."""
        if any(removal.collection == collection for removal in self._removals):
            self.flush()
        self.trips += 1
        self.writes += 1

    def read_ahead(self, where: Document, jobs: list[Document]) -> None:
        """Keep the live jobs that match, read with something else, for `live`."""
        self._ahead = (where, self.writes, jobs)

    def live(self, where: Document) -> list[Document]:
        """Return the live jobs that match: those that were read ahead, if that is what was asked for and nothing was written since."""
        if self._ahead is not None and self._ahead[:2] == (where, self.writes):
            return self._ahead[2]
        return self.find("job_live", where)

    def next_numbers(self, counter: str, count: int = 1) -> int:
        """Take this many numbers from a counter and return the first. They are gone also if the transaction is undone."""
        self.trips += 1
        counters = self._database["counters"].with_options(write_concern=AT_ONCE)
        counted: Any = counters.find_one_and_update({"_id": counter}, {"$inc": {"value": count}}, return_document=True, upsert=True)
        return int(counted["value"]) - count + 1


@contextmanager
def _content_errors() -> Iterator[None]:
    """Raise what a batch was refused for as a single write raises it, and what a rule refused as `Refused`."""
    try:
        yield
    except BulkWriteError as error:
        raise content_error(error) from error
    except DuplicateKeyError:
        raise
    except OperationFailure as error:
        if (refused := refusal(error.code, first_line(error))) is not None:
            raise refused from error
        raise
