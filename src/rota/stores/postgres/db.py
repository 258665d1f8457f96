"""One connection to a PostgreSQL database and the named statements on it, with their parameters numbered and typed."""

from __future__ import annotations

import re
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from itertools import count
from typing import Any

import msgspec
import psycopg
from psycopg import errors, pq
from psycopg.adapt import AdaptersMap, Buffer, Dumper
from psycopg.types.numeric import Int8Dumper

from rota.model.values import Claimed, Instant
from rota.ports.scan import Bound, Compares, Order
from rota.stores.verbs.db import About, load
from rota.stores.verbs.relations import KEYED, RELATIONS, Kind, Words, owners, scan_text

ARMS_MAX = 200
"""Of more types than this only the first that are ready are asked for, and without an arm for each: a plan grows with its arms."""
FEW, FEW_GROWS = 4, 8
"""How many times its share each of very many types is asked for, and how much more if all of these are among the first."""
SPARE_MAX, SPARE_FADES = 16, 8
"""A claim of several types looks at most so many times as far as it wants; what it looks further shrinks by an eighth each time."""
WAITS = frozenset({pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR})
"""A transaction that waits for the next statement."""
CHUNK_FIRST, CHUNK_GROWS, CHUNK_MAX = 50, 4, 20_000
"""Rows that a scan asks the server for at first, how many times more each time, and at most."""
SCANS_MAX = 1000
"""Texts of scans that are kept."""
SCAN_WORDS = Words(
    shown=dict.fromkeys(Kind, "{}") | {Kind.ID: "hex({})"},
    given={Kind.TEXT: "{}::text", Kind.WHOLE: "{}::bigint", Kind.REAL: "{}::double precision", Kind.ID: "{}::uuid"},
    among={
        Kind.TEXT: "= ANY (ARRAY(SELECT json_array_elements_text({}::json)))",
        Kind.WHOLE: "= ANY (translate({}::text, '[]', '{{}}')::bigint[])",
        Kind.ID: "= ANY (ARRAY(SELECT json_array_elements_text({}::json)::uuid))",
    },
    # Not so that an index of those that have it seems to be what was asked for.
    present="({} IS NULL) IS FALSE",
    sorts_keyed=True,
)
FACTS_KEYS = frozenset({"job_id", "schedule_id"})
"""Columns by which a scan of jobs begins at their facts."""
ONE_EACH = frozenset({"number", "job_id"})
"""Columns of which a value has one row."""
_scans = count(1)
_encode = msgspec.json.Encoder().encode
_numbers = msgspec.json.Decoder(list[int])


class Db:
    """One connection and the named statements on it: see `rota.stores.verbs.db`."""

    __slots__ = ("_cursor", "_first", "_open", "_spare", "raw")
    prepares = True
    ends_apart = True
    hops = False
    conflict: tuple[type[Exception], ...] = (psycopg.IntegrityError,)
    refused: tuple[type[Exception], ...] = (psycopg.IntegrityError, psycopg.DataError, errors.RaiseException)
    unwritable: tuple[type[Exception], ...] = (psycopg.IntegrityError, psycopg.DataError, ValueError, TypeError, KeyError)

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        """Wrap an open connection."""
        self.raw = raw
        self._spare = 0
        """How many ready jobs others were just claiming, as far as claims on this connection have met them."""
        self._cursor = psycopg.RawCursor(raw)
        self._first = psycopg.RawCursor(raw)
        self._open: list[psycopg.RawServerCursor[Any]] = []
        """Scans that may not have been read to their end."""
        # Ours alone: the caller's own connection keeps its ways.
        register(self._cursor.adapters)

    def rows(self, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run a named statement and return its rows."""
        return self._run(statement(name), values).fetchall()

    def row(self, name: str, /, **values: Any) -> tuple[Any, ...] | None:
        """Run a named statement and return its first row."""
        return self._run(statement(name), values).fetchone()

    def value(self, name: str, /, **values: Any) -> Any:
        """Run a named statement and return the first column of its first row."""
        row = self._run(statement(name), values).fetchone()
        return None if row is None else row[0]

    def rows_behind(self, first: str, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run a named statement behind a fixed text, as one transaction of their own, for which the server is asked once."""
        before = sys.exception()
        try:
            with self.raw.pipeline():
                self._first.execute(first, prepare=self.prepares)
                cursor = self._run(statement(name), values)
        except psycopg.OperationalError as error:
            # Interrupted while it ends, a pipeline stumbles over what is still under way.
            if isinstance(error.__context__, KeyboardInterrupt) and error.__context__ is not before:
                raise error.__context__ from None
            raise
        return cursor.fetchall()

    def change(self, name: str, /, **values: Any) -> int:
        """Run a named statement and return how many rows it changed."""
        return self._run(statement(name), values).rowcount

    def along(self, name: str, source: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run a named statement over one of its sources."""
        return self._run(over_source(name, source), values).fetchall()

    def stream(
        self, relation: str, source: str | None, columns: tuple[str, ...], bounds: tuple[Bound, ...], order: Order | None, /, **values: Any
    ) -> Iterator[tuple[Any, ...]]:
        """Read a relation in chunks, each larger than the one before, with a cursor of the server's."""
        del values  # bounds have them all
        shapes = tuple((bound.column, bound.compares) for bound in bounds)
        what = scan_of(relation, source, columns, shapes, order)
        given = {f"b{place}": _bound_value(bound) for place, bound in enumerate(bounds)} | owners(bounds)
        if any(bound.column in ONE_EACH and bound.compares in KEYED for bound in bounds):
            # Few rows: they come at once, by a plan that is kept.
            yield from self._run(what, given).fetchall()
            return
        if relation == "ends":
            yield from self._in_steps(what, given)
            return
        cursor: psycopg.RawServerCursor[tuple[Any, ...]] = psycopg.RawServerCursor(self.raw, f"rota_scan_{next(_scans)}")
        self._open.append(cursor)
        cursor.execute(what.text, [given[name] for name in what.names])
        size = CHUNK_FIRST
        while rows := cursor.fetchmany(size):
            yield from rows
            if len(rows) < size:
                break
            size = min(size * CHUNK_GROWS, CHUNK_MAX)
        cursor.close()

    def _in_steps(self, what: Statement, given: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        """Read ends in the order of time, the first few, then more: most types are asked for no more than their first.

        Those of one moment may come in another order the next time: each number is returned once.
        """
        seen: set[int] = set()
        size = CHUNK_FIRST
        while True:
            rows = self._run(limited(what), given | {"want": size}).fetchall()
            for row in rows:
                if row[1] not in seen:
                    seen.add(row[1])
                    yield row
            if len(rows) < size:
                return
            size *= CHUNK_GROWS

    @contextmanager
    def limit_steps(self, timeout_s: float) -> Iterator[None]:
        """Have the server cancel a step that takes longer."""
        self._cursor.execute("SELECT set_config('statement_timeout', $1, true)", [f"{max(1, round(timeout_s * 1000))}ms"])
        try:
            yield
        finally:
            cursors, self._open = self._open, []
            for cursor in cursors:
                with suppress(psycopg.Error):
                    cursor.close()

    def added(self, name: str, count: int, /, **values: Any) -> Sequence[int]:
        """Run a statement that adds jobs, and have it return their numbers."""
        del count
        return [row[0] for row in self._run(numbered(name), values).fetchall()]

    def bodies(self, params: Sequence[str]) -> Bodies:
        """Return params as an array of texts."""
        return Bodies(params)

    def added_each(self, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
        """Add jobs by one statement."""
        bodies = Bodies([row.pop("params") for row in rows])
        plain = [{name: value.hex() if type(value) is bytes else value for name, value in row.items() if value is not None} for row in rows]
        name = "insert_jobs_due_each" if "schedule_id" in rows[0] else "insert_jobs_each"
        return self.added(name, len(rows), rows=plain, bodies=bodies)

    def candidates(self, lanes: tuple[int, ...], want: int, *, slim: bool, suspects: bool) -> list[Claimed]:
        """Return ready jobs, by another query if the lanes are very many."""
        if len(lanes) <= ARMS_MAX:
            return self._offered(lanes, want, slim=slim, suspects=suspects)
        return self._offered_of_many(self._first_lanes(lanes, want, suspects=suspects), want, slim=slim, suspects=suspects)

    def _first_lanes(self, lanes: tuple[int, ...], want: int, *, suspects: bool) -> tuple[int, ...]:
        """Return those of very many lanes whose first ready jobs come first: as many as jobs are wanted, for all of these are of them.

        Never fewer than one query asks for: others may be claiming the first of some.
        """
        known = frozenset(lanes)
        ready = [lane for (lane,) in self._run(ready_now(suspects=suspects), {}).fetchall() if lane in known]
        return tuple(ready[: max(ARMS_MAX, want + self._spare)])

    def _offered_of_many(self, lanes: tuple[int, ...], want: int, *, slim: bool, suspects: bool) -> list[Claimed]:
        """Return ready jobs of very many lanes: of each a few, and more of those lanes that would have given more.

        What others are just claiming of a lane may hide the rest of it until the next claim.
        """
        if not lanes:
            return []
        what = candidates_of_many(slim=slim, suspects=suspects)
        limits: dict[int, int] = {}
        while True:
            most = want + self._spare
            few = FEW * (1 + most // len(lanes))
            limits = {lane: max(few, limits.get(lane, 0)) for lane in lanes}
            values = {
                "lanes": lanes,
                "limits": list(limits.values()),
                "want": want,
                "spare": self._spare,
            }
            rows = self._run(what, values).fetchall()
            jobs = [Claimed(*row[:-1]) for row in rows]
            offered = Counter([job.lane for job in jobs])
            cut_short = [lane for lane, count in offered.items() if limits[lane] <= count < most]
            for lane in cut_short:
                limits[lane] *= FEW_GROWS
            if not cut_short and (len(rows) == want or not self._more_behind(want, rows)):
                self._spare -= self._spare // SPARE_FADES
                return jobs

    def _offered(self, lanes: tuple[int, ...], want: int, *, slim: bool, suspects: bool) -> list[Claimed]:
        """Return ready jobs of these lanes, by a query with an arm for each."""
        what = candidates(len(lanes), slim=slim, suspects=suspects)
        values: dict[str, Any] = {f"lane_{index}": lane for index, lane in enumerate(lanes)} | {"want": want}
        while True:
            # Rows, and not one JSON text as elsewhere: that would be half of what a claim costs the server.
            rows = self._run(what, values | {"spare": self._spare}).fetchall()
            if len(rows) == want or len(lanes) == 1 or not self._more_behind(want, rows):
                self._spare -= self._spare // SPARE_FADES
                return [Claimed(*row[:-1]) for row in rows]

    def _more_behind(self, want: int, rows: list[tuple[Any, ...]]) -> bool:
        """Say whether so many were in others' hands that more may be ready behind them, and look further from now on."""
        seen = rows[0][-1] if rows else want + self._spare
        if seen < want + self._spare or self._spare >= SPARE_MAX * want:
            return False
        self._spare = min(SPARE_MAX * want, max(want, 2 * self._spare))
        return True

    def _run(self, what: Statement, values: dict[str, Any]) -> psycopg.RawCursor[tuple[Any, ...]]:
        if what.packs:
            packs = (name for name in what.names if PARAMETERS.get(name) == PACKED and isinstance(values[name], bytes))
            values |= {name: Ids(values[name]) for name in packs}
        return self._cursor.execute(what.text, [values[name] for name in what.names], prepare=self.prepares)

    def execute(self, text: str) -> None:
        """Run a fixed text of one or more commands that have no values."""
        self._cursor.execute(text, prepare=False)

    def look(self, worker_id: bytes, done: Sequence[tuple[int, Instant]] = ()) -> tuple[Any, ...]:
        """Return what a turn asks first of the whole store."""
        del done
        return self.rows("turn_look", worker_id=worker_id)[0]

    def end_plain(self, done: dict[int, Instant], worker_id: bytes) -> tuple[list[int], str]:
        """Complete jobs with their runs in one statement, which also says what there is to count."""
        numbers, moments = list(done), list(done.values())
        ((fresh, figures),) = self.rows("end_plain", numbers=numbers, moments=moments, count=len(done), worker_id=worker_id)
        return numbers if fresh is None else _numbers.decode(fresh), figures

    def finish(self, runs: Sequence[tuple[Any, ...]], jobs: Sequence[tuple[Any, ...]]) -> None:
        """End runs, then their jobs."""
        self.change("finish_runs", rows=runs)
        self.change("finish_jobs", rows=jobs)

    def count(self, figures: str) -> None:
        """Write figures into three tables, in one statement."""
        self.change("count_figures", figures=figures)

    def start(self, jobs: Sequence[Claimed], clocks: dict[int, int], *, now: Instant, worker_id: bytes) -> None:
        """Start jobs and move the clocks on, in one statement; another if retries carry checkpoints on."""
        numbers = [job.number for job in jobs]
        ids = f"{{{','.join([job.run_id for job in jobs])}}}"
        self.change("start", numbers=numbers, ids=ids, clocks=clocks, now=now, worker_id=worker_id)
        checkpoints = {job.number: job.checkpoint for job in jobs if job.checkpoint is not None}
        if checkpoints:
            self.change("carry_checkpoints", checkpoints=checkpoints)

    def adopt(self, rows: Sequence[tuple[Any, ...]], adopter_id: str) -> None:
        """Start jobs with their runs, in one statement."""
        self.change("adopt_starts", rows=rows, adopter_id=adopter_id)

    def tally(self, numbers: Sequence[int]) -> None:
        """Count ended jobs, in one statement."""
        self.change("tally", numbers=numbers)

    @contextmanager
    def savepoint(self, about: About = ()) -> Iterator[None]:
        """Undo what is written in the block, and only that, if it raises."""
        del about
        self.execute("SAVEPOINT rota_part")
        try:
            yield
        except BaseException:
            self.undo_part()
            raise
        self.execute("RELEASE rota_part")

    def undo_part(self) -> None:
        """Undo what was written since the savepoint, unless the connection is gone, or stuck in a statement, and all is undone anyway."""
        if self._listens():
            self.execute("ROLLBACK TO rota_part; RELEASE rota_part")

    def _listens(self) -> bool:
        """Say whether the connection is in a transaction that the next statement can be said in."""
        return self.raw.info.transaction_status in WAITS

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all reads of the block see one moment."""
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            if self._listens():
                # Nothing was written; and after a ROLLBACK psycopg would forget every statement that it has prepared.
                self.execute("COMMIT")


_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)(::)?")


class Statement(msgspec.Struct, frozen=True):
    """One statement as the server takes it, and the names of its values in order."""

    text: str
    names: tuple[str, ...]
    packs: bool
    """Some of the values are many ids in one."""


def compiled(text: str) -> Statement:
    """Give the parameters of a text numbers, the same name the same number, and types."""
    names: list[str] = []

    def place(match: re.Match[str]) -> str:
        name = match[1]
        if name not in names:
            names.append(name)
        number = names.index(name) + 1
        # A type that stands there is the statement's own word.
        return f"${number}::" if match[2] else typed(name, number)

    whole = _PARAMETER.sub(place, text)
    return Statement(whole, tuple(names), any(PARAMETERS.get(name) == PACKED for name in names))


@cache
def texts() -> dict[str, str]:
    """Return every text by its name, pieces put in."""
    return load(__package__)


@cache
def statement(name: str) -> Statement:
    """Return a statement by its name."""
    return compiled(texts()[name])


@cache
def numbered(name: str) -> Statement:
    """Return a statement that adds jobs, and returns their numbers."""
    return compiled(f"{texts()[name]}\nRETURNING number")


@cache
def over_source(name: str, source: str) -> Statement:
    """Return a statement over one source, put together from the pieces in reads.sql."""
    return compiled(texts()[name].replace("{source}", texts()[f"source_{source}"]))


@lru_cache(SCANS_MAX)
def _bound_value(bound: Bound) -> Any:
    return msgspec.json.encode(bound.value).decode() if bound.compares in {Compares.AMONG, Compares.OWNED} else bound.value


def limited(what: Statement) -> Statement:
    """Return a scan of the first rows: parameters are those of the scan, and `want`."""
    return Statement(f"{what.text}\n LIMIT {typed('want', len(what.names) + 1)}", (*what.names, "want"), what.packs)


@lru_cache(SCANS_MAX)
def scan_of(
    relation: str, source: str | None, columns: tuple[str, ...], shapes: tuple[tuple[str, Compares], ...], order: Order | None
) -> Statement:
    """Return the scan of a relation, along one of its sources if it has several, from the pieces in scan.sql."""
    keyed = "_of_key" if any(column in FACTS_KEYS and compares is Compares.EQUAL for column, compares in shapes) else ""
    text = texts()[f"scan_{relation}" if source is None else f"scan_{relation}_{source}{keyed if source != 'clock_back' else ''}"]
    bounds = [Bound(column, compares) for column, compares in shapes]
    return compiled(scan_text(text, RELATIONS[relation], SCAN_WORDS, columns=columns, bounds=bounds, order=order))


@cache
def candidates(lanes: int, *, slim: bool, suspects: bool = True) -> Statement:
    """Return the claim's query for this many lanes: parameters are `lane_0` and so on, `want` and `spare`."""
    first = texts()["first_of_lane"]
    if lanes > 1:
        arms = " UNION ALL ".join(texts()["arm"].replace(":lane", f":lane_{index}") for index in range(lanes))
        first = texts()["first_of_lanes"].replace("{arms}", arms)
    if not suspects:
        first = first.replace("lane = :lane_", f"{texts()['no_suspect']} AND lane = :lane_")
    return compiled(texts()["candidates_slim" if slim else "candidates"].replace("{first}", first))


@cache
def candidates_of_many(*, slim: bool, suspects: bool = True) -> Statement:
    """Return the claim's query for any number of lanes: parameters are `lanes`, `limits`, `want` and `spare`."""
    arms = texts()["arms_of_many"]
    if not suspects:
        arms = arms.replace("job_live.lane = t.lane", f"{texts()['no_suspect']} AND job_live.lane = t.lane")
    first = texts()["first_of_lanes"].replace("{arms}", arms)
    return compiled(texts()["candidates_slim" if slim else "candidates"].replace("{first}", first))


@cache
def ready_now(*, suspects: bool = True) -> Statement:
    """Return the query for the lanes that have something ready."""
    text = texts()["ready_now"]
    return compiled(text if suspects else text.replace("held IS NULL", f"held IS NULL AND {texts()['no_suspect']}"))


# The type of each parameter of a statement, by its name; it is said nowhere else. PostgreSQL wants to know before it sees a value.
# A statement may say otherwise where it uses one: `:until::uuid`. Ids come as hexadecimal text, or as bytes that the connection turns
# into that; lists come as JSON; many ids that are packed into bytes (`PACKED`), and the params of many jobs, come as arrays.
WHOLE = "{}::bigint"
FLAG = "({}::bigint <> 0)"
REAL = "{}::double precision"
TEXT = "{}::text"
ID = "{}::uuid"
# Nobody's id is empty text: recovery, which is no worker, has none.
PERHAPS_ID = "nullif({}::text, '')::uuid"
DIGEST = "decode({}::text, 'hex')"
NUMBERS = "translate({}::text, '[]', '{{}}')::bigint[]"
WORDS = "ARRAY(SELECT json_array_elements_text({}::json))"
IDS = "ARRAY(SELECT json_array_elements_text({}::json)::uuid)"
PACKED = "{}::uuid[]"
TEXTS = "{}::text[]"

_NAMES = {
    WHOLE: (
        "after ahead at beat before before_at before_id blockers catch_up_count catch_up_lateness child count created_at created_from"
        " code created_until cursor_at definitions delivered_at due_at earliest ends_at exit_code expires_at few first floor gap gave_up_at"
        " interval jitter job_number lane last last_at last_due_at latest lease limit look made most max_crashes max_priority max_queued"
        " max_retries max_running moved newest next_at now number passed position priority progress queued_at recorded_at requested_at"
        " resolved_at rowid rules run_at sent sequence_number since slots span spare starts_at step times until version want with_result"
        " memory pid grant_option multi"
    ),
    FLAG: "depends dropped ended failed fresh not_ran told",
    REAL: "timeout",
    ID: (
        "adopter_id after_id chain connection_id endpoint_id grant_id group_id job_id named new_id parent reservation_id role_id root_id"
        " run_id schedule_id secret_id token_id"
    ),
    PERHAPS_ID: "before_schedule template_id user_id worker_id",
    DIGEST: "hash job_hash sealed_body wrapped",
    NUMBERS: "children lanes limits moments numbers rowids tails",
    WORDS: "fates names statuses types",
    IDS: "granted groups roots run_ids secret_ids",
    PACKED: "ids schedules",
    TEXTS: "bodies",
}

PARAMETERS: dict[str, str] = {name: template for template, names in _NAMES.items() for name in names.split()}


def typed(name: str, place: int) -> str:
    """Return a parameter's place in a statement, with its type."""
    return PARAMETERS.get("lane" if name.startswith("lane_") else name, TEXT).format(f"${place}")


TEXT_OID, UUID_OID, TEXTS_OID, UUIDS_OID = 25, 2950, 1009, 2951
"""The types' numbers, which are the same on every server."""
_LENGTH = struct.Struct("!I")
_HEAD = struct.Struct("!5I")
"""Of an array: one dimension, no nulls, the type of its elements, how many, the first is number one."""


class HexDumper(Dumper):
    """Bytes as hexadecimal text: ids and digests, which the statements turn into what they are."""

    oid = 0

    def dump(self, obj: bytes) -> Buffer:
        """Return the text."""
        return obj.hex().encode()


class ListDumper(Dumper):
    """Lists as JSON text, which the statements turn into what they are: see `PARAMETERS`."""

    oid = 0

    def dump(self, obj: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> Buffer:
        """Return the text."""
        return _encode(obj)


class Ids:
    """Many ids of 16 bytes each, one behind the other."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes) -> None:
        """Take them."""
        self.packed = packed


class IdsDumper(Dumper):
    """Ids as the server has them: it need not read their digits."""

    format = pq.Format.BINARY
    oid = UUIDS_OID

    def dump(self, obj: Ids) -> Buffer:
        """Return the array."""
        packed, length = obj.packed, _LENGTH.pack(16)
        head = _HEAD.pack(1, 0, UUID_OID, len(packed) // 16, 1)
        return head + b"".join([length + packed[start : start + 16] for start in range(0, len(packed), 16)])


class Bodies:
    """The params of many jobs: as texts, which they stay."""

    __slots__ = ("params",)

    def __init__(self, params: Sequence[str]) -> None:
        """Take them."""
        self.params = params


class BodiesDumper(Dumper):
    """Params as the server has them: it need not read them as JSON to tell where one ends."""

    format = pq.Format.BINARY
    oid = TEXTS_OID

    def dump(self, obj: Bodies) -> Buffer:
        """Return the array."""
        # In UTF-8, as every session that is used here.
        texts = [text.encode() for text in obj.params]
        return _HEAD.pack(1, 0, TEXT_OID, len(texts), 1) + b"".join([_LENGTH.pack(len(text)) + text for text in texts])


def register(adapters: AdaptersMap) -> None:
    """Let values go as the statements expect them."""
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(bytes, HexDumper)
    for kind in (list, tuple, dict):
        adapters.register_dumper(kind, ListDumper)
    adapters.register_dumper(Ids, IdsDumper)
    adapters.register_dumper(Bodies, BodiesDumper)
