"""A bulk call: the next chunk is built while those before it are written, several at a time where the store can.

A chunk is begun when the one before it has its place in the queue. So the order is that of the items, however many are under way;
and one that is refused before it has a place, which is how most are, has nothing behind it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from rota.engine.submit import Chunk, Rows, Submitter
from rota.errors import DuplicateJob, InvalidInput, Refused, RotaError, StoreError
from rota.model.gate import Actor
from rota.model.values import Enqueued, Instant, dashed
from rota.ports.clock import Clock
from rota.ports.places import Place
from rota.ports.store import DefinitionsChanged, Store


class Part(msgspec.Struct):
    """A chunk that another thread writes."""

    chunk: Chunk
    built: Rows
    now: Instant
    place: Place
    thread: threading.Thread | None = None
    enqueued: list[Enqueued] | None = None
    """What became of each; None where all are new."""
    error: BaseException | None = None
    over: threading.Event = msgspec.field(default_factory=threading.Event)
    """Set when it is written, or refused. Not by the thread's own end: a `join` that Ctrl-C interrupts takes a thread for ended."""

    @property
    def priority(self) -> int:
        """The one that all of its rows have."""
        return self.built.rows[0].policy.priority

    @property
    def under_way(self) -> bool:
        """Whether it is still being written."""
        return self.thread is not None and self.thread.ident is not None and not self.over.is_set()

    def wait(self) -> None:
        """Return when it is over."""
        if self.thread is not None and self.thread.ident is not None:
            self.over.wait()
            self.thread.join()


class BulkCall:
    """One call."""

    def __init__(
        self,
        submit: Submitter,
        store: Store,
        actor: Actor,
        *,
        clock: Clock,
        transaction: Any,
        keep_ids: bool,
        discreet: Callable[[DuplicateJob, Actor], DuplicateJob],
        poke: Callable[[], None],
    ) -> None:
        """Take who asks and where; `discreet` says of a duplicate what the actor may know, `poke` wakes local workers."""
        self._submit = submit
        self._store = store
        self._actor = actor
        self._clock = clock
        self._transaction = transaction
        self._discreet = discreet
        self._poke = poke
        self.accepted = 0
        self.existing = 0
        self.ids: list[str] | None = [] if keep_ids else None
        self._parts: deque[Part] = deque()

    def take(self, jobs: Iterable[Any]) -> None:
        """Write them all, or raise the first thing that went wrong, when nothing is under way any more."""
        with self._settling():
            for chunk in self._submit.chunks(jobs):
                now = self._clock.now()
                with self._naming(chunk):
                    built = self._submit.rows(chunk, self._store, self._actor, now)
                if not self._start(chunk, built, now):
                    self._settle()
                    self._write(chunk, built, now)
            self._settle()

    # ---- one by one -----------------------------------------------------------------------------------------------

    def _write(self, chunk: Chunk, built: Rows, now: Instant, place: Place | None = None) -> None:
        """Write a chunk here; if the definitions it was built from have changed meanwhile, build it anew."""
        with self._naming(chunk):
            while built.rows:
                try:
                    enqueued = self._store.enqueue(
                        built.rows, now=now, definitions=built.definitions, transaction=self._transaction, place=place
                    )
                except DefinitionsChanged:
                    now = self._clock.now()
                    built, place = self._submit.rows(chunk, self._store, self._actor, now), None
                except DuplicateJob as error:
                    raise self._discreet(error, self._actor) from error
                else:
                    self._count(built, enqueued)
                    if self._transaction is None:
                        if not all(row.lane for row in built.rows):
                            # The next job of such a type then takes the shorter way.
                            self._submit.registry.sync(self._store, now)
                        self._poke()
                    break
        if built.error is not None:
            raise self._placed(built.error, f"item {chunk.first + len(built.rows)}")

    def _count(self, built: Rows, enqueued: list[Enqueued] | None) -> None:
        known = sum([each.existing for each in enqueued or ()])
        self.existing += known
        self.accepted += len(built.rows) - known
        if self.ids is not None:
            self.ids += [dashed(each.job_id) for each in enqueued or built.rows]

    # ---- side by side ---------------------------------------------------------------------------------------------

    def _start(self, chunk: Chunk, built: Rows, now: Instant) -> bool:
        """Have a chunk written by another thread, if it may be and there is a session for it."""
        if not self._may_start(chunk, built, now) or not self._session():
            return False
        part = Part(chunk, built, now, Place())
        part.place.behind = next((each.place.last or 0 for each in reversed(self._parts) if each.priority == part.priority), 0)
        part.thread = threading.Thread(target=self._write_beside, args=(part,), name="rota-bulk")
        # First: whatever comes in between, what has begun is waited for.
        self._parts.append(part)
        try:
            part.thread.start()
        except RuntimeError:
            # The system gives no more threads, or Python is about to exit.
            self._parts.pop()
            self._submit.sessions.release()
            return False
        # Now, and not before the next one: while this thread builds, what the other has to say to the server waits for Python's lock.
        if part.place.wait() is None:
            self._settle()
        return True

    def _may_start(self, chunk: Chunk, built: Rows, now: Instant) -> bool:
        if self._transaction is not None or built.error is not None or built.bounded or not built.rows:
            return False
        if not self._parts and len(chunk.items) < self._submit.chunk_size:
            return False  # it is the only one, or the last
        # Inside its own transaction a thread may not write elsewhere: `enqueue` will say so.
        return self._store.side_by_side(built.rows, now=now) and not self._store.transacting()

    def _session(self) -> bool:
        """Wait for one of this call's own sessions if all are taken; False if others have them all."""
        if any(part.error is not None for part in self._parts):
            self._settle()
        self._finish(self._submit.sessions_max - 1)
        while not self._submit.sessions.acquire(blocking=False):
            if not self._parts:
                return False
            self._finish(len(self._parts) - 1)
        return True

    def _write_beside(self, part: Part) -> None:
        built = part.built
        try:
            if not self._store.pour(built.rows, now=part.now, definitions=built.definitions, place=part.place):
                part.enqueued = self._store.enqueue(built.rows, now=part.now, definitions=built.definitions, place=part.place)
            self._poke()
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            part.error = error
        finally:
            self._submit.sessions.release()
            part.place.give_up()
            part.over.set()

    def _settle(self) -> None:
        """Wait until nothing is under way."""
        self._finish(0)

    def _finish(self, left: int) -> None:
        """Count those that are written, and wait until at most so many are under way."""
        while self._parts and (len(self._parts) > left or not self._parts[0].under_way):
            part = self._parts[0]
            part.wait()
            self._parts.popleft()
            if part.error is None:
                self._count(part.built, part.enqueued)
            elif isinstance(part.error, DefinitionsChanged):
                self._write_anew(part)
            else:
                with self._naming(part.chunk):
                    raise part.error

    def _write_anew(self, part: Part) -> None:
        """Write a chunk that was refused for what it was built from. Its place stays, where others rely on it."""
        now = self._clock.now()
        with self._naming(part.chunk):
            built = self._submit.rows(part.chunk, self._store, self._actor, now)
        kept = part.place.last is not None and len(built.rows) == len(part.built.rows)
        kept = kept and built.rows[0].policy.priority == part.priority and self._store.side_by_side(built.rows, now=now)
        self._write(part.chunk, built, now, part.place if kept else None)

    # ---- what went wrong ------------------------------------------------------------------------------------------

    @contextmanager
    def _settling(self) -> Iterator[None]:
        """Leave nothing under way when the block is left."""
        try:
            yield
        except Exception:
            # All before it is to be written, as if it went one by one. What hinders that came first, and is raised instead.
            self._settle()
            raise
        except BaseException:
            with suppress(Exception):
                self._settle()
            raise

    @contextmanager
    def _naming(self, chunk: Chunk) -> Iterator[None]:
        """Have an error say which items it is about and, when that is known, what became of the others."""
        try:
            yield
        except (InvalidInput, Refused, StoreError) as error:
            behind: list[str] = []
            if self._parts and self._parts[0].chunk.first > chunk.first:
                behind = self._written_behind()
            self._settle()
            raise self._placed(error, _items(chunk), behind) from error.__cause__

    def _written_behind(self) -> list[str]:
        """Wait for those behind one that failed, and return which items of theirs were written."""
        behind: list[str] = []
        while self._parts:
            part = self._parts[0]
            part.wait()
            self._parts.popleft()
            if part.error is None:
                self._count(part.built, part.enqueued)
                behind.append(_items(part.chunk))
        return behind

    def _placed(self, error: RotaError, items: str, behind: Sequence[str] = ()) -> RotaError:
        """Return the same error, saying which items it is about and what became of the others."""
        if self._transaction is not None:
            became = "none was enqueued"
        elif behind:
            became = f"{self.accepted:,} jobs were accepted: all before it and, behind it, {', '.join(behind)}"
        else:
            became = f"the {self.accepted:,} jobs before it were accepted"
        error.args = (f"{items}: {error} ({became})", *error.args[1:])
        error.item, error.accepted = int(items.split()[1]), self.accepted
        return error


def _items(chunk: Chunk) -> str:
    return f"items {chunk.first} to {chunk.first + len(chunk.items) - 1}"
