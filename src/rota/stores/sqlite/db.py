"""One connection to a SQLite file and the named statements on it, from the `.sql` files beside this module."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

import apsw
import msgspec

from rota.model.values import Claimed, Instant
from rota.ports.scan import Bound, Compares, Order
from rota.stores.verbs.db import About, load
from rota.stores.verbs.relations import RELATIONS, Kind, Words, owners, scan_text

ARMS_MAX = 100
"""A claim of more lanes than this is another query. The driver keeps no statement prepared that has over 16,384 characters: 115 arms."""

PROGRESS_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the clock: about a millisecond."""
SCANS_MAX = 1000
"""Texts of scans that are kept."""
WORDS = Words(
    shown=dict.fromkeys(Kind, "{}") | {Kind.ID: "lower(hex({}))"},
    given=dict.fromkeys(Kind, "{}") | {Kind.ID: "unhex({})"},
    among=dict.fromkeys(Kind, "IN (SELECT value FROM json_each({}))") | {Kind.ID: "IN (SELECT unhex(value) FROM json_each({}))"},
)
_ANY_TIME = {"created_from": None, "created_until": None}
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
_LIST = re.compile(r"\bjson_(?:each|array_length)\(:([a-z]\w*)")
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE)\b")
_encode = msgspec.json.Encoder().encode
_claimed = msgspec.json.Decoder(list[Claimed])
_numbers = msgspec.json.Decoder(list[int])


class Db:
    """One connection and the named statements on it: see `rota.stores.verbs.db`."""

    __slots__ = ("_open", "_savepoint", "_told", "raw")
    conflict: tuple[type[Exception], ...] = (apsw.ConstraintError,)
    ends_apart = False
    hops = False
    refused: tuple[type[Exception], ...] = (apsw.ConstraintError, apsw.TooBigError)
    unwritable: tuple[type[Exception], ...] = (apsw.ConstraintError, apsw.SQLError, apsw.TooBigError, ValueError, TypeError, KeyError)

    def __init__(self, raw: apsw.Connection) -> None:
        """Wrap an open connection."""
        self.raw = raw
        self._told = 0
        self._open: list[apsw.Cursor] = []
        """Scans that may not have been read to their end."""
        self._savepoint = _Savepoint(raw)
        raw.create_scalar_function("told", self._tell, 1)  # type: ignore[arg-type] # it is called with the one value

    def _tell(self, value: int) -> int:
        """Take note of a value that a statement comes by."""
        self._told = value
        return value

    def add_at_once(self, text: str, values: tuple[Any, ...]) -> tuple[int, int]:
        """Run a statement that adds a job and tells its position: return its number and that."""
        self.raw.execute(text, values)
        return self.raw.last_insert_rowid(), self._told

    def rows(self, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run a named statement and return its rows."""
        what = statement(name)
        try:
            return list(self.raw.execute(what.text, what.values(values)))
        except UnicodeDecodeError:
            return self._torn(what, values)

    def _torn(self, what: Statement, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        r"""Read rows of which a text is not UTF-8: each byte that is not is written as `\xNN`, which no JSON may have.

        So text can be shown, and JSON with such an escape is refused when it is decoded: nothing runs with a guessed value.
        """
        if _WRITES.search(what.text):
            raise  # noqa: PLE0704 - the caller handles the error
        count = len(self.raw.execute(what.text, what.values(values)).get_description())
        names = ", ".join(f"c{place}" for place in range(count))
        columns = ", ".join(
            f"iif(typeof(c{place}) = 'text', CAST(c{place} AS BLOB), c{place}), typeof(c{place}) = 'text'" for place in range(count)
        )
        text = f"WITH torn ({names}) AS (\n{what.text.rstrip().removesuffix(';')}\n) SELECT {columns} FROM torn"  # noqa: S608 - a statement of ours
        return [
            tuple(value.decode(errors="backslashreplace") if is_text else value for value, is_text in zip(row[::2], row[1::2], strict=True))
            for row in self.raw.execute(text, what.values(values))
        ]

    def row(self, name: str, /, **values: Any) -> tuple[Any, ...] | None:
        """Run a named statement and return its first row."""
        # Read to the end: a statement left in the middle does not go back to the cache and is prepared again.
        rows = self.rows(name, **values)
        return rows[0] if rows else None

    def value(self, name: str, /, **values: Any) -> Any:
        """Run a named statement and return the first column of its first row."""
        rows = self.rows(name, **values)
        return rows[0][0] if rows else None

    def change(self, name: str, /, **values: Any) -> int:
        """Run a named statement and return how many rows it changed."""
        what = statement(name)
        self.raw.execute(what.text, what.values(values))
        return self.raw.changes()

    def along(self, name: str, source: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run a named statement over one of its sources."""
        what = over_source(name, source)
        try:
            return list(self.raw.execute(what.text, what.values(values)))
        except UnicodeDecodeError:
            return self._torn(what, values)

    def stream(
        self, relation: str, source: str | None, columns: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None, /, **values: Any
    ) -> Iterator[tuple[Any, ...]]:
        """Read a relation as rows are asked for."""
        shapes = tuple((bound.column, bound.compares) for bound in bounds)
        what = scan_of(relation, source, columns, shapes, order)
        values = _ANY_TIME | values | {f"b{place}": bound.value for place, bound in enumerate(bounds)} | owners(bounds)
        cursor = self.raw.cursor()
        self._open.append(cursor)
        return iter(cursor.execute(what.text, what.values(values)))

    @contextmanager
    def limit_steps(self, timeout_s: float) -> Iterator[None]:
        """Interrupt a step that takes longer."""
        end = time.monotonic() + timeout_s
        self.raw.set_progress_handler(lambda: time.monotonic() > end, PROGRESS_STEPS)
        try:
            yield
        finally:
            self.raw.set_progress_handler(None)
            cursors, self._open = self._open, []
            for cursor in cursors:
                cursor.close(force=True)

    def added(self, name: str, count: int, /, **values: Any) -> Sequence[int]:
        """Run a statement that adds jobs; SQLite numbers them one after the other."""
        what = statement(name)
        self.raw.execute(what.text, what.values(values))
        last = self.raw.last_insert_rowid()
        return range(last - count + 1, last + 1)

    def bodies(self, params: Sequence[str]) -> str:
        """Return params as one JSON array."""
        return f"[{','.join(params)}]"

    def added_each(self, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        """Add jobs one after the other: no answer is waited for between two."""
        what = statement("insert_job_due" if "schedule_id" in rows[0] else "insert_job")
        self.raw.executemany(what.text, map(what.values, rows))
        last = self.raw.last_insert_rowid()
        return range(last - len(rows) + 1, last + 1)

    def candidates(self, lanes: tuple[int, ...], want: int, *, slim: bool, suspects: bool) -> list[Claimed]:
        """Return ready jobs; fewer than wanted if they are very large."""
        many = len(lanes) > ARMS_MAX
        text = candidates_of_many(slim=slim, suspects=suspects) if many else candidates(len(lanes), slim=slim, suspects=suspects)
        known = (_encode(lanes).decode(),) if many else lanes
        try:
            # Read to the end: a statement left in the middle does not go back to the cache and is prepared again.
            found: list[Claimed] = _claimed.decode(list(self.raw.execute(text, (*known, want)))[0][0])  # noqa: RUF015
        except apsw.TooBigError:
            if want == 1:
                raise
            return self.candidates(lanes, want // 2, slim=slim, suspects=suspects)
        return found

    def look(self, worker_id: bytes, done: Sequence[tuple[int, Instant]] = ()) -> tuple[Any, ...]:
        """Return what a turn asks first of the whole store."""
        del done
        what = statement("turn_look")
        # Read to the end, so that the statement goes back to the cache.
        rows: list[tuple[Any, ...]] = list(self.raw.execute(what.text, what.values({"worker_id": worker_id})))
        return rows[0]

    def end_plain(self, done: dict[int, Instant], worker_id: bytes) -> tuple[list[int], str]:
        """Complete jobs, then their runs."""
        text = _encode(done).decode()
        fresh = list(done)
        if self.change("finish_jobs_plain", done=text, worker_id=worker_id) != len(done):
            fresh = _numbers.decode(self.value("open_runs", numbers=_encode(fresh).decode(), worker_id=worker_id))
            text = _encode({number: done[number] for number in fresh}).decode()
        self.change("finish_runs_plain", done=text)
        return fresh, self.value("ends", numbers=_encode(fresh).decode())

    def start(self, jobs: Sequence[Claimed], clocks: dict[int, int], *, now: Instant, worker_id: bytes) -> None:
        """Make runs, start their jobs, and move the clocks on."""
        numbers = _encode([job.number for job in jobs]).decode()
        self.change("insert_runs", numbers=numbers, ids=bytes.fromhex("".join([job.run_id for job in jobs])), now=now)
        self.change("start_jobs", numbers=numbers, now=now, worker_id=worker_id)
        for priority, position in clocks.items():
            self.change("clock_advance", priority=priority, position=position)

    def adopt(self, rows: Sequence[tuple[Any, ...]], adopter_id: str) -> None:
        """Make runs, then start their jobs."""
        self.change("adopt_runs", rows=rows)
        self.change("adopt_starts", rows=rows, adopter_id=adopter_id)

    def tally(self, numbers: Sequence[int]) -> None:
        """Count ended jobs: they are looked at once, and written into three tables."""
        self.count(self.value("ends", numbers=numbers))

    def finish(self, runs: Sequence[tuple[Any, ...]], jobs: Sequence[tuple[Any, ...]]) -> None:
        """End runs, then their jobs."""
        self.change("finish_runs", rows=runs)
        self.change("finish_jobs", rows=jobs)

    def count(self, figures: str) -> None:
        """Write figures into three tables."""
        self.change("tally_minutely", ends=figures)
        self.change("tally_hourly", ends=figures)
        self.change("tally_total", ends=figures)

    def savepoint(self, about: About = ()) -> AbstractContextManager[None]:
        """Undo what is written in the block, and only that, if it raises."""
        del about
        return self._savepoint

    def snapshot(self) -> AbstractContextManager[object]:
        """Let all reads of the block see one moment."""
        return self._savepoint


class _Savepoint:
    """The block of `Db.savepoint`, also inside another.

    A generator that a signal left suspended would end it later, in the middle of another's work.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: apsw.Connection) -> None:
        self._raw = raw

    def __enter__(self) -> None:
        self._raw.execute("SAVEPOINT rota_part")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # An error of the disk has undone the whole transaction already: it is to be heard of, not that there is no savepoint any more.
            if not self._raw.in_transaction:
                return
            self._raw.execute("ROLLBACK TO rota_part")
        self._raw.execute("RELEASE rota_part")


class Statement(msgspec.Struct, frozen=True):
    """One statement with its parameters numbered: the driver would look each name up, at every call, and takes twice as long for it."""

    text: str
    names: tuple[str, ...]
    values: Callable[[dict[str, Any]], Sequence[Any]]
    """Puts values that are given by name into the parameters' order, lists as the JSON text that `json_each` reads."""


@cache
def statement(name: str) -> Statement:
    """Return a statement by its name."""
    return compiled(statements()[name])


def compiled(text: str) -> Statement:
    """Give the parameters of a text numbers, the same name the same number. At every call the driver reads the text: it is kept short."""
    text = "\n".join(line.strip() for line in text.splitlines())
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    numbered = _PARAMETER.sub(lambda match: f"?{names.index(match[1]) + 1}", text)
    lists = tuple(dict.fromkeys(_LIST.findall(text)))
    return Statement(numbered, names, itemgetter(*names) if len(names) > 1 and not lists else _ordered(names, lists))


def _ordered(names: tuple[str, ...], lists: tuple[str, ...]) -> Callable[[dict[str, Any]], Sequence[Any]]:
    """Return what encodes the lists of a call, unless they are text or NULL already, and puts its values into the parameters' order."""

    def values(given: dict[str, Any]) -> Sequence[Any]:
        for name in lists:
            value = given[name]
            if value is not None and value.__class__ is not str:
                given[name] = _encode(value).decode()
        return [given[name] for name in names]

    return values


@cache
def statements() -> dict[str, str]:
    """Return every statement by its name."""
    return load(__package__)


@cache
def over_source(name: str, source: str) -> Statement:
    """Return a statement over one source, put together from the pieces in reads.sql."""
    text = statements()
    return compiled(text[name].replace("{source}", text[f"source_{source}"]))


@lru_cache(SCANS_MAX)
def scan_of(
    relation: str, source: str | None, columns: tuple[str, ...], shapes: tuple[tuple[str, Compares], ...], order: Order | None
) -> Statement:
    """Return the scan of a relation, along one of its sources if it has several, from the pieces in scan.sql and reads.sql."""
    text = statements()[f"scan_{relation}"]
    if source is not None:
        text = text.replace("{source}", statements()[f"source_{source}"])
    bounds = [Bound(column, compares) for column, compares in shapes]
    return compiled(scan_text(text, RELATIONS[relation], WORDS, columns=columns, bounds=bounds, order=order))


@cache
def candidates(lanes: int, *, slim: bool, suspects: bool = True) -> str:
    """Return the claim's query for this number of lanes: parameters are the lanes in order, then :want."""
    arms = " UNION ALL ".join([statements()["arm"]] * lanes)
    return _over_first(statements()["first_of_lanes"].replace("{arms}", arms), slim=slim, suspects=suspects)


@cache
def candidates_of_many(*, slim: bool, suspects: bool = True) -> str:
    """Return the same query for any number of lanes: parameters are a JSON array of the lanes, then :want."""
    return _over_first(statements()["first_of_many_lanes"], slim=slim, suspects=suspects)


def _over_first(first: str, *, slim: bool, suspects: bool) -> str:
    if not suspects:
        first = first.replace("held IS NULL", f"held IS NULL AND {statements()['no_suspect']}")
    text = statements()["candidates_slim" if slim else "candidates"].replace("{first}", first)
    return text.replace(":want", "?")
