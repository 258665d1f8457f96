"""Moving a store, whole and verified, to another place: from a file to a fleet, and back.

The source is only read, under a lock that keeps writers waiting; the target is there whole or not at all. Both are then read back
and compared, table by table and in the queue's order; and only when they are the same is the source closed with a mark that says
where it went. So no job can be accepted by a store that nobody works on any more. See decision 0027.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import msgspec

from rota.errors import CopyRefused, StoreError
from rota.model.local_time import written
from rota.model.settings import Settings
from rota.model.values import WorkerInfo, moment_of
from rota.model.webhooks import sealing_key
from rota.ports.clock import Clock
from rota.ports.copying import Depot, Guard, Moved, Reading, Row, Table, Writing
from rota.ports.liveness import Life, Liveness

LOOK_S = 0.1
PASSING = frozenset({"meta", "workers", "queue_clock"})
"""Tables whose rows are no reason to keep a store."""
SEALED = frozenset({"secrets", "hook_secrets"})
"""Tables with rows that are encrypted with a master key."""
BORN_WITH = {"organizations": 1}
BESIDE_JOBS = frozenset({"lanes", "param_digests"})
"""Tables that come with jobs and templates, and that nobody asks for by name."""
BATCH_ROWS = 2000
BATCH_BYTES = 4 * 1024 * 1024
NUL, INSTEAD = "\0", "\N{REPLACEMENT CHARACTER}"
_NUL_ENCODED = b"\\u0000"
WATCHING, COPYING, VERIFYING, COMMITTING, CLOSING = "watching", "copying", "verifying", "committing", "closing"


class Place(msgspec.Struct, frozen=True):
    """A store as a whole, and what belongs to it on this machine."""

    depot: Depot
    liveness: Liveness
    log_dir: str | None
    """Where the logs of runs are files; None: they are in the store, and are copied with it."""


class Summed(msgspec.Struct, frozen=True):
    """What a table came to: its rows, and a digest of all of them in their order."""

    rows: int
    digest: str


class Step(msgspec.Struct, frozen=True):
    """How far it is: what is done, to which table, and how many rows of all."""

    what: str
    table: str = ""
    done: int = 0
    total: int = 0


Tell: TypeAlias = Callable[[Step], object]


class Promoted(msgspec.Struct, kw_only=True):
    """What was found to be the same on both sides, and how the source was left."""

    source: str
    target: str
    already: bool
    """The target held the same before."""
    closed: bool
    """Whoever opens the source is told where it went."""
    tables: dict[str, Summed]
    queue: Summed
    mended: int = 0
    """Texts in which a character was replaced that the target can't hold."""
    left_out: list[str] = msgspec.field(default_factory=list)
    """Tables beside Rota's."""
    missing_keys: list[str] = msgspec.field(default_factory=list)
    """Master keys that were not here: the secrets that are encrypted with them were left out."""
    logs: str | None = None
    """Where the logs of runs still are; None if the target looks for them there as well."""


class Promotion:
    """One copy of one store."""

    def __init__(
        self,
        source: Place,
        target: Place,
        *,
        clock: Clock,
        settings: Settings,
        keep: bool = False,
        replace: bool = False,
        mend: bool = False,
        key_ids: Callable[[], Collection[str]] = tuple,
        without_secrets: bool = False,
        tell: Tell = lambda _: None,
    ) -> None:
        """Take both places. Keep: leave the source open. Replace: throw away what the target holds. Mend: replace NULs.

        `key_ids` returns the master keys that are here: what is encrypted with another one is refused, or left out without secrets.
        """
        self._source, self._target = source, target
        self._clock, self._settings = clock, settings
        self._keep, self._replace, self._mend = keep, replace, mend
        self._key_ids, self._without_secrets = key_ids, without_secrets
        self._missing: set[str] = set()
        self._tell = tell
        self._done = self._total = self._mended = 0

    def run(self) -> Promoted:
        """Copy, verify, close. Repeated, it finds the same at the target, says so, and closes a source that was left open."""
        source, target = self._source.depot, self._target.depot
        for depot in (source, target):
            depot.prepare(now=self._clock.now())
        if source.identity() == target.identity():
            raise CopyRefused(f"{source.url} and {target.url} are the same store: give another target")
        moved = source.moved()
        seen = self._refuse_living(self._source)
        if target.exists():
            self._refuse_living(self._target)
        with self._guarded(moved) as guard, source.snapshot() as reading:
            # Those who have begun, or have shown that they live, since they were looked for.
            if alive := [worker for worker in _concerned(reading) if seen.get(worker.id) != worker.beat]:
                raise CopyRefused(_living_words(alive, source.url))
            self._look_at_keys(reading)
            done = self._compare(reading, moved) or self._copy(reading, guard)
            if guard is not None:
                self._tell(Step(CLOSING))
                guard.close_store(Moved(self._clock.now(), target.url))
        done.closed = guard is not None or moved is not None
        return done

    @contextmanager
    def _guarded(self, moved: Moved | None) -> Iterator[Guard | None]:
        """Keep writers out of the source, unless it stays open or is closed already."""
        if self._keep or moved is not None:
            yield None
            return
        with self._source.depot.hold() as guard:
            yield guard

    # ---- what is encrypted ------------------------------------------------------------------------------------

    def _look_at_keys(self, reading: Reading) -> None:
        """Refuse secrets that nobody could open at the target, because their master key is not here; or leave them out."""
        tables = [table for table in self._source.depot.tables if table.name in SEALED]
        used = {key for table in tables for row in reading.rows(table) for key in _keys_of(table, row)}
        self._missing = used - set(self._key_ids()) if used else set()
        if self._missing and not self._without_secrets:
            raise CopyRefused(
                f"{self._source.depot.url} has secrets that are encrypted with the master key {', '.join(sorted(self._missing))}, which is "
                "not here, so that nobody could open them: add its line to the key file (master_key_file), or leave these secrets out "
                "(without_secrets=True, --without-secrets); nothing was changed"
            )

    def _rows(self, reading: Reading, table: Table) -> Iterator[Row]:
        """Go through the rows of a table that are copied."""
        rows = reading.rows(table)
        if table.name not in SEALED or not self._missing:
            return rows
        return (row for row in rows if self._missing.isdisjoint(_keys_of(table, row)))

    def _count(self, reading: Reading, table: Table) -> int:
        return sum(1 for _ in self._rows(reading, table)) if table.name in SEALED and self._missing else reading.count(table)

    # ---- who is there -----------------------------------------------------------------------------------------

    def _refuse_living(self, place: Place) -> dict[str, int]:
        """Refuse a store that somebody works on; return the beats of those who have not ended and are dead nevertheless."""
        end = time.monotonic() + self._settings.lease_ttl
        first: dict[str, int] = {}
        while True:
            with place.depot.snapshot() as reading:
                workers = _concerned(reading)
            beats = {worker.id: worker.beat for worker in workers}
            first = beats | first
            lives = {worker.id: _life(place.liveness, worker.id) for worker in workers}
            alive = [worker for worker in workers if lives[worker.id] is Life.ALIVE or beats[worker.id] != first[worker.id]]
            if alive:
                raise CopyRefused(_living_words(alive, place.depot.url))
            # No lock file to be seen: only its beat, watched as long as recovery would, shows that a worker is dead.
            if Life.UNKNOWN not in lives.values() or time.monotonic() >= end:
                return beats
            self._tell(Step(WATCHING, workers[0].id))
            time.sleep(LOOK_S)

    # ---- the same already? ------------------------------------------------------------------------------------

    def _compare(self, reading: Reading, moved: Moved | None) -> Promoted | None:
        """Return what both sides hold if it is the same; None if the target is to be written. Refuse everything else."""
        source, target = self._source.depot, self._target.depot
        held: dict[str, int] = {}
        same, was_moved = None, None
        if target.exists():
            was_moved = target.moved()
            with target.snapshot() as there:
                held = _holds(there, target)
                same = self._same(reading, there) if held else None
        if same is not None:
            if was_moved is not None and moved is None:
                # What had gone from there comes back as it was.
                target.reopen()
            return same
        if moved is not None:
            raise CopyRefused(
                f"{source.url} was moved to {moved.to} on {written(moment_of(moved.at))}, and {target.url} does not hold the same "
                "(any more): promote the store that is worked on, or `rota reopen` this one first if that is lost; nothing was changed"
            )
        if held and not self._replace and was_moved is None:
            raise CopyRefused(
                f"{target.url} holds {_told(held)} that are not those of {source.url}: give an empty one, or throw away what it holds "
                "(replace=True, --replace); nothing was changed"
            )
        return None

    def _same(self, reading: Reading, there: Reading) -> Promoted | None:
        tables = self._source.depot.tables
        counts = {table.name: self._count(reading, table) for table in tables}
        if any(there.count(table) != counts[table.name] for table in tables):
            return None
        self._done, self._total = 0, 2 * sum(counts.values())
        found = {}
        for table in tables:
            found[table.name] = self._sum(self._rows(reading, table), table)
            if self._sum(there.rows(table), table) != found[table.name]:
                return None
        queue = self._sum(reading.order())
        return None if self._sum(there.order()) != queue else self._promoted(found, queue, already=True)

    # ---- the copy ---------------------------------------------------------------------------------------------

    def _copy(self, reading: Reading, guard: Guard | None) -> Promoted:
        source, target = self._source.depot, self._target.depot
        self._mended, self._done = 0, 0
        self._total = 2 * sum(self._count(reading, table) for table in source.tables)
        with target.writing() as writing:
            # It may have been empty when it was looked at, and not any more.
            held = _holds(writing, target)
            if held and not self._replace and target.moved() is None:
                raise CopyRefused(f"{target.url} holds {_told(held)} by now: somebody works on it; nothing was changed")
            writing.clear()
            sums = {table.name: self._sum(self._rows(reading, table), table, writing) for table in source.tables}
            writing.finish()
            for table in source.tables:
                self._refuse_difference(table.name, sums[table.name], self._sum(writing.rows(table), table))
            queue = self._sum(reading.order())
            self._refuse_difference("the queue's order", queue, self._sum(writing.order()))
            if guard is not None:
                guard.check()
            self._tell(Step(COMMITTING))
        return self._promoted(sums, queue, already=False)

    def _refuse_difference(self, what: str, here: Summed, there: Summed) -> None:
        if here != there:
            raise StoreError(
                f"the copy is not the same in {what}: {here.rows:,} rows, {here.digest}, at {self._source.depot.url}, "
                f"but {there.rows:,} rows, {there.digest}, at {self._target.depot.url}. Nothing was changed; please report this"
            )

    def _sum(self, rows: Iterator[Row], table: Table | None = None, writing: Writing | None = None) -> Summed:
        """Go through rows and digest them; write them as well if there is something to write to."""
        what = COPYING if writing is not None else VERIFYING
        digest = Digest(table, takes_nul=self._target.depot.takes_nul, mend=self._mend)
        for batch in batches(rows, digest):
            if writing is not None and table is not None:
                writing.write(table, batch)
            if table is not None:
                self._done += len(batch)
                self._tell(Step(what, table.name, self._done, self._total))
        self._mended += digest.mended if writing is not None else 0
        return Summed(digest.rows, digest.hex())

    def _promoted(self, tables: dict[str, Summed], queue: Summed, *, already: bool) -> Promoted:
        source, target = self._source, self._target
        return Promoted(
            source=source.depot.url,
            target=target.depot.url,
            already=already,
            closed=False,
            tables=tables,
            queue=queue,
            mended=self._mended,
            left_out=source.depot.others(),
            missing_keys=sorted(self._missing),
            logs=None if source.log_dir == target.log_dir else source.log_dir,
        )


def _keys_of(table: Table, row: Row) -> set[str]:
    """Return the master keys that a row is encrypted with."""
    values = dict(zip(table.names, row, strict=True))
    if table.name == "secrets":
        return {values["key_id"]}
    keys = (sealing_key(text) for text in (values["secret"], values["previous"]) if text is not None)
    return {key for key in keys if key is not None}


def _concerned(reading: Reading) -> list[WorkerInfo]:
    """Return those whose work a copy would tear apart: workers, and who waits for a direct execution."""
    waits = reading.direct()
    return [worker for worker in reading.workers() if worker.kind == "worker" or worker.id == waits]


def _life(liveness: Liveness, worker_id: str) -> Life:
    with liveness.seize(worker_id) as life:
        return life


def _living_words(alive: list[WorkerInfo], url: str) -> str:
    names = ", ".join(f"{worker.id} on {worker.host}" for worker in alive[:5]) + (f" and {len(alive) - 5} more" if len(alive) > 5 else "")
    one = len(alive) == 1
    return (
        f"{'worker' if one else 'workers'} {names} {'is' if one else 'are'} alive on {url}: stop {'it' if one else 'them'} first, with "
        "SIGTERM or Ctrl-C (`rota workers` lists who is there); nothing was changed"
    )


def _holds(reading: Reading, depot: Depot) -> dict[str, int]:
    """Return what there is in a store that somebody could miss."""
    counts = {table.name: reading.count(table) - BORN_WITH.get(table.name, 0) for table in depot.tables if table.name not in PASSING}
    return {name: count for name, count in counts.items() if count > 0}


def _told(held: dict[str, int]) -> str:
    shown = {name: count for name, count in held.items() if name not in BESIDE_JOBS} or held
    return ", ".join(f"{count:,} {name}" for name, count in list(shown.items())[:4]) + (" and more" if len(shown) > 4 else "")


class Digest:
    """The digest of one table, as far as it has been read. It depends on rows and their order, not on how they were batched."""

    def __init__(self, table: Table | None, *, takes_nul: bool, mend: bool) -> None:
        """Take what the rows are of; NULs in texts are refused or mended where the target can't hold them."""
        self._table = table
        self._takes_nul = takes_nul
        self._mend = mend
        self._hash = hashlib.blake2b(digest_size=16)
        self._encoder = msgspec.json.Encoder()
        self.rows = 0
        self.mended = 0

    def hex(self) -> str:
        """Return the digest of what went through."""
        return self._hash.hexdigest()

    def encode(self, row: Row, into: bytearray) -> Row:
        """Append a row to what is to be digested, and return it as it is to be written."""
        start = len(into)
        self._encoder.encode_into(row, into, -1)
        # A text that speaks of a NUL looks alike: it is looked at, and found harmless.
        if not self._takes_nul and into.find(_NUL_ENCODED, start) >= 0 and self._table is not None:
            row = self._without_nul(row, self._table)
            del into[start:]
            self._encoder.encode_into(row, into, -1)
        into += b"\n"
        return row

    def add(self, rows: int, encoded: bytearray) -> None:
        """Digest a batch."""
        self._hash.update(encoded)
        self.rows += rows

    def _without_nul(self, row: Row, table: Table) -> Row:
        bad = [name for name, value in zip(table.names, row, strict=True) if isinstance(value, str) and NUL in value]
        if bad and not self._mend:
            named = dict(zip(table.names, row, strict=True))
            key = ", ".join(f"{name} {_shown(named[name])}" for name in table.key)
            raise CopyRefused(
                f"table {table.name}, {key}: {bad[0]} has a NUL character, which PostgreSQL can't hold in a text. Have it replaced by "
                f"{INSTEAD} in the copy (mend=True, --mend), or remove what it is a part of; nothing was changed"
            )
        self.mended += len(bad)
        return tuple(value.replace(NUL, INSTEAD) if isinstance(value, str) else value for value in row) if bad else row


def batches(rows: Iterator[Row], of: Digest) -> Iterator[list[Row]]:
    """Give rows in batches that are bounded in number and in bytes, digesting each."""
    batch: list[Row] = []
    encoded = bytearray()
    for row in rows:
        batch.append(of.encode(row, encoded))
        if len(batch) >= BATCH_ROWS or len(encoded) >= BATCH_BYTES:
            of.add(len(batch), encoded)
            yield batch
            batch, encoded = [], bytearray()
    of.add(len(batch), encoded)
    if batch:
        yield batch


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)
