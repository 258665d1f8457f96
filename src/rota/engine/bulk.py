"""A bulk call: the next chunk is built while those before it are written, several at a time where the store can."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from rota.engine.submit import Chunk, Rows, Submitter
from rota.errors import DuplicateJob, InvalidInput, Refused, RotaError, StoreError
from rota.model.gate import Actor
from rota.model.values import Enqueued, Instant, dashed
from rota.ports.clock import Clock
from rota.ports.places import Place
from rota.ports.store import DefinitionsChanged, Store

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class Part(msgspec.Struct):
    """A chunk that is being written beside others."""

    chunk: Chunk
    first: int
    """Which item of the call its first is."""
    priority: int
    place: Place
    written: Future[list[Enqueued]]

    @property
    def items(self) -> str:
        """Which items it is made of, as an error says it."""
        return _items(self.first, len(self.chunk.items))


class BulkCall:
    """One call, in order. A chunk begins when the one before it has its place: so a refusal that comes earlier leaves nothing behind."""

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
        self._threads: ThreadPoolExecutor | None = None
        # What is under way on this thread's own transaction keeps it from writing elsewhere: see the refusal in `enqueue`.
        self._beside = transaction is None and not store.transacting()

    def take(self, jobs: Iterable[Any]) -> None:
        """Write them all, or raise the first thing that went wrong when nothing is under way any more."""
        first = 0
        with self._settling():
            for chunk in self._submit.chunks(jobs):
                self._take(chunk, first)
                first += len(chunk.items)
            self._settle()

    def _take(self, chunk: Chunk, first: int) -> None:
        now = self._clock.now()
        with self._naming(_items(first, len(chunk.items))):
            built = self._submit.rows(chunk, self._store, self._actor, now)
        if not self._start(chunk, first, built, now):
            self._settle()
            self._write(chunk, first, built, now)

    # ---- one by one -----------------------------------------------------------------------------------------------

    def _write(self, chunk: Chunk, first: int, built: Rows | None, now: Instant) -> None:
        """Write a chunk while nothing else is; if the definitions it was built from have changed meanwhile, build it anew."""
        with self._naming(_items(first, len(chunk.items))):
            while True:
                built = built or self._submit.rows(chunk, self._store, self._actor, now)
                try:
                    if built.rows:
                        self._count(self._store.enqueue(built.rows, now=now, definitions=built.definitions, transaction=self._transaction))
                        if self._transaction is None:
                            self._poke()
                    break
                except DefinitionsChanged:
                    built, now = None, self._clock.now()
                except DuplicateJob as error:
                    raise self._discreet(error, self._actor) from error
        if built.error is not None:
            raise self._placed(built.error, f"item {first + len(built.rows)}")

    def _count(self, enqueued: list[Enqueued]) -> None:
        known = sum([each.existing for each in enqueued])
        self.existing += known
        self.accepted += len(enqueued) - known
        if self.ids is not None:
            self.ids += [dashed(each.job_id) for each in enqueued]

    # ---- side by side ---------------------------------------------------------------------------------------------

    def _start(self, chunk: Chunk, first: int, built: Rows, now: Instant) -> bool:
        """Have a chunk written by another thread, if its place can be told from those before it."""
        rows, sessions = built.rows, self._submit.sessions
        lone = not self._parts and len(chunk.items) < self._submit.chunk_size
        if not self._beside or lone or built.error is not None or built.bounded or not self._store.side_by_side(rows, now=now):
            return False
        self._finish(self._submit.sessions_max - 1)
        if self._parts and self._parts[-1].place.wait() is None:
            # It was not even begun: nothing may come behind it before that is mended.
            self._settle()
        while not sessions.acquire(blocking=False):
            if not self._parts:
                return False
            self._finish(len(self._parts) - 1)
        priority = rows[0].policy.priority
        place = Place(next((part.place.last or 0 for part in reversed(self._parts) if part.priority == priority), 0))
        written = self._pool().submit(self._write_beside, built, now, place)
        self._parts.append(Part(chunk, first, priority, place, written))
        return True

    def _write_beside(self, built: Rows, now: Instant, place: Place) -> list[Enqueued]:
        try:
            enqueued = self._store.enqueue(built.rows, now=now, definitions=built.definitions, place=place)
        finally:
            place.give_up()
            self._submit.sessions.release()
        self._poke()
        return enqueued

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - most calls are over after one chunk

            self._threads = ThreadPoolExecutor(self._submit.sessions_max, "rota-bulk")
        return self._threads

    def _settle(self) -> None:
        """Wait until nothing is under way."""
        self._finish(0)

    def _finish(self, left: int) -> None:
        """Count those that are written, and wait until at most so many are under way."""
        while self._parts and (len(self._parts) > left or self._parts[0].written.done()):
            part = self._parts[0]
            error = part.written.exception()
            self._parts.popleft()
            if error is None:
                self._count(part.written.result())
            elif isinstance(error, DefinitionsChanged):
                # Refused before it had a place: nothing has begun behind it.
                self._write(part.chunk, part.first, None, self._clock.now())
            else:
                behind = self._written_behind()
                raise self._placed(error, part.items, behind) if isinstance(error, RotaError) else error

    def _written_behind(self) -> list[str]:
        """Wait for those behind one that failed, and return which items of theirs were written."""
        behind: list[str] = []
        while self._parts:
            part = self._parts[0]
            error = part.written.exception()
            self._parts.popleft()
            if error is None:
                self._count(part.written.result())
                behind.append(part.items)
        return behind

    # ---- what went wrong ------------------------------------------------------------------------------------------

    @contextmanager
    def _settling(self) -> Iterator[None]:
        """Leave nothing under way when the block is left, and no thread behind."""
        try:
            yield
        except Exception:
            # All before it is to be written, as if it went one by one. What keeps it from that came first, and is raised instead.
            self._settle()
            raise
        except BaseException:
            with suppress(Exception):
                self._settle()
            raise
        finally:
            if self._threads is not None:
                self._threads.shutdown()

    @contextmanager
    def _naming(self, items: str) -> Iterator[None]:
        """Have an error say which items it is about."""
        try:
            yield
        except (InvalidInput, Refused, StoreError) as error:
            self._settle()
            raise self._placed(error, items) from error.__cause__

    def _placed(self, error: RotaError, items: str, behind: Sequence[str] = ()) -> RotaError:
        """Return the same error, saying which items it is about and what became of the others."""
        if self._transaction is not None:
            became = "none was enqueued"
        elif behind:
            became = f"{self.accepted:,} jobs were accepted: all before it and, behind it, {', '.join(behind)}"
        else:
            became = f"the {self.accepted:,} jobs before it were accepted"
        error.args = (f"{items}: {error} ({became})", *error.args[1:])
        return error


def _items(first: int, count: int) -> str:
    return f"items {first} to {first + count - 1}"
