"""Connections to one PostgreSQL database: how they are opened, and the named statements on them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import msgspec
import psycopg
from psycopg import errors, pq

from rota.errors import RotaError, StoreUnusable
from rota.model.settings import Settings
from rota.model.values import Claimed, Instant
from rota.stores.postgres.address import Address
from rota.stores.postgres.errors import ENDED, is_lost, refused, translate
from rota.stores.postgres.parameters import PACKED, PARAMETERS
from rota.stores.postgres.session import Session
from rota.stores.postgres.statements import Statement, candidates, candidates_of_many, numbered, over_source, ready_now, statement
from rota.stores.postgres.values import Bodies, Ids, register

ARMS_MAX = 200
"""Of more types than this only the first that are ready are asked for, and without an arm for each: a plan grows with its arms."""
FEW, FEW_GROWS = 4, 8
"""How many times its share each of very many types is asked for, and how much more if all of these are among the first."""
SPARE_MAX, SPARE_FADES = 16, 8
"""A claim of several types looks at most so many times as far as it wants; what it looks further shrinks by an eighth each time."""
PREPARED_MAX = 1000
WAITS = frozenset({pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR})
"""A transaction that waits for the next statement."""
OLDEST_SERVER = 130000
SET_UP_S = 10.0
"""Longest silence of the server while a session is set up that may wait without end later."""
REOPEN_S = 0.1
"""Pause before a session that the server has ended is opened again."""

# A plan is made once, and is the one for which the indexes are there: it depends neither on values nor on statistics, which for a
# queue are wrong most of the time. Joins go row by row along an index, as a turn's batches ask for.
PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Turned off by whoever runs a database, as nested loops are for reports, they would leave nothing but what is turned off here.
    "enable_nestloop": "on",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_sort": "on",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
SESSION = PLANS | {
    "default_transaction_isolation": "read committed",
    "client_min_messages": "warning",
    "idle_in_transaction_session_timeout": "0",
    # A machine that is gone without a word does not keep its sessions for hours.
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "15",
    "tcp_keepalives_count": "4",
}


_encode = msgspec.json.Encoder().encode
_numbers = msgspec.json.Decoder(list[int])


class Db:
    """One connection and the named statements on it: see `rota.stores.verbs.db`."""

    __slots__ = ("_cursor", "_first", "_spare", "raw")
    prepares = True
    ends_apart = True
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
        return self.added("insert_jobs_each", len(rows), rows=_encode(plain).decode(), bodies=bodies)

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
                "lanes": _encode(lanes).decode(),
                "limits": _encode(list(limits.values())).decode(),
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

    def end_plain(self, done: dict[int, Instant], worker_id: bytes) -> tuple[list[int], str]:
        """Complete jobs with their runs in one statement, which also says what there is to count."""
        numbers = list(done)
        moments = _encode(list(done.values())).decode()
        ((fresh, figures),) = self.rows(
            "end_plain", numbers=_encode(numbers).decode(), moments=moments, count=len(done), worker_id=worker_id
        )
        return numbers if fresh is None else _numbers.decode(fresh), figures

    def count(self, figures: str) -> None:
        """Write figures into two tables, in one statement."""
        self.change("count_figures", figures=figures)

    def start(self, jobs: Sequence[Claimed], clocks: dict[int, int], *, now: Instant, worker_id: bytes) -> None:
        """Start jobs and move the clocks on, in one statement; another if retries carry checkpoints on."""
        numbers = _encode([job.number for job in jobs]).decode()
        ids = f"{{{','.join([job.run_id for job in jobs])}}}"
        self.change("start", numbers=numbers, ids=ids, clocks=_encode(clocks).decode(), now=now, worker_id=worker_id)
        checkpoints = {job.number: job.checkpoint for job in jobs if job.checkpoint is not None}
        if checkpoints:
            self.change("carry_checkpoints", checkpoints=_encode(checkpoints).decode())

    def adopt(self, rows: str, adopter_id: str) -> None:
        """Start jobs with their runs, in one statement."""
        self.change("adopt_starts", rows=rows, adopter_id=adopter_id)

    def tally(self, numbers: str) -> None:
        """Count ended jobs, in one statement."""
        self.change("tally", numbers=numbers)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what is written in the block, and only that, if it raises."""
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


def beat_silence_s(settings: Settings) -> float:
    """Return how long a beat may go without an answer: the two after it come before the worker has to stop its handlers."""
    return max(1.0, settings.guard_s / 3)


def open_connection(address: Address, settings: Settings, *, silence_s: float | None = None) -> Session:
    """Open a connection with what every one of this store has. A silence of the server ends it; None: no silence does.

    A session that the server ends before it could be used is opened again, for as long as `busy_timeout`.
    """
    end = time.monotonic() + settings.busy_timeout
    while True:
        try:
            return _opened(address, settings, silence_s)
        except _Ended as ended:
            failed = ended.error
        if time.monotonic() + REOPEN_S > end:
            raise failed
        time.sleep(REOPEN_S)


def _opened(address: Address, settings: Settings, silence_s: float | None) -> Session:
    raw = _connect(address)
    try:
        _check_server(raw, address)
        raw.silence_s = SET_UP_S if silence_s is None else silence_s
        wait_ms = max(1, round(settings.busy_timeout * 1000))
        session = SESSION | {"search_path": address.search_path, "lock_timeout": f"{wait_ms}ms"}
        # Said in the session, not at its start: a pooler between us and the server takes nothing else.
        raw.execute("SELECT " + ", ".join(["set_config(%s, %s, false)"] * len(session)), [*chain(*session.items())])
    except psycopg.Error as error:
        failed, lost = translate(error, address), is_lost(error, raw)
        failed.__cause__ = error
        raw.close()
        raise _Ended(failed) if lost else failed from error
    except BaseException:
        raw.close()
        raise
    raw.silence_s = silence_s
    raw.prepare_threshold = 0
    raw.prepared_max = PREPARED_MAX
    return raw


class _Ended(Exception):  # noqa: N818 - a word to the caller, who may try again
    def __init__(self, error: RotaError) -> None:
        self.error = error


def _connect(address: Address) -> Session:
    try:
        raw = Session.connect(address.conninfo(), autocommit=True, options=address.options)
    except psycopg.Error as error:
        ended = ENDED in str(error)
        failed = refused(error, address)
    else:
        address.note_answer(raw.info.host, raw.info.port)
        return raw
    # Not from inside the `except`: the driver's error and its frames hold the password.
    raise _Ended(failed) if ended else failed


def _check_server(raw: psycopg.Connection[Any], address: Address) -> None:
    found = raw.info.server_version
    if found < OLDEST_SERVER:
        raise StoreUnusable(
            f"{address.shown} is PostgreSQL {found // 10000}; Rota needs {OLDEST_SERVER // 10000} or later: upgrade the server"
        )
    encoding = raw.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnusable(
            f"{address.shown} keeps texts as {encoding}, which can't hold every letter: give a database with the encoding UTF8"
        )
