"""A worker's other hands: threads that make turns while its own goes on.

Only where the store does its work elsewhere. Then a server ends one batch while it claims the next, and this process meanwhile hands a
third to its executors. A worker that has little to do needs no second hand: one turn that does everything costs less.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from rota.engine.holding import Holding
from rota.ports.store import Store
from rota.ports.turns import Turn, Turned

MANY = 64
"""From so many jobs on, ends and claims are worth a transaction each."""
CLOSE_S = 5.0
"""How long a worker that ends waits for what is still under way."""


class Hands:
    """One for ends, one for claims; none where the store works here. All methods belong to the worker's thread."""

    def __init__(self, store: Store, hold: Holding, wake: Callable[[], None]) -> None:
        """Start nothing yet; `wake` is called when one of them has finished."""
        self._able = store.beside
        self._hold = hold
        self._refused: frozenset[int] = frozenset()
        """Completions that could not be written."""
        self._ends = Hand(store, wake, name="rota-ends")
        self._claims = Hand(store, wake, name="rota-claims")

    @property
    def ending(self) -> bool:
        """Say whether completions are being written."""
        return self._ends.busy

    @property
    def claiming(self) -> bool:
        """Say whether a claim is under way."""
        return self._claims.busy

    @property
    def may_end(self) -> bool:
        """Say whether there are completions worth a turn of their own, and a hand is free for it.

        What could not be written is the worker's own to try again: it knows how to wait for a store that is away.
        """
        plain = self._hold.plain
        return self._able and len(plain) >= MANY and not self._ends.busy and not any(number in plain for number in self._refused)

    @property
    def reach(self) -> int:
        """Return from how many jobs on claims are worth a turn of their own; out of reach where there is no other hand."""
        return MANY if self._able and self._hold.jobs else sys.maxsize

    def end(self, turn: Turn) -> None:
        """Have the plain completions written by this turn, which has nothing else to do."""
        turn.done = self._hold.hand_over()
        self._ends.make(turn)

    def claim(self, turn: Turn) -> bool:
        """Have a turn made that does nothing but claim many; say whether it is one."""
        if turn.want < self.reach or turn.done or turn.endings or turn.reports:
            return False
        self._claims.make(turn)
        return True

    def ended(self) -> Turned | None:
        """Return what came of completions, once. Those that could not be written are held as before: the next turn writes them."""
        if (made := self._ends.take()) is None:
            return None
        if isinstance(made[1], Exception):
            self._refused = frozenset(number for number, _ in made[0].done)
            self._hold.put_back()
            return None
        self._refused = frozenset()
        self._hold.written_beside()
        return made[1]

    def claimed(self) -> tuple[Turn, Turned | Exception] | None:
        """Return what came of a claim, once."""
        return self._claims.take()

    def close(self) -> None:
        """Wait for what is under way, for a while, and let go of the threads. From here on the worker has its own hand only."""
        self._able = False
        self._ends.close()
        self._claims.close()


class Hand:
    """Makes one turn at a time. All methods belong to the worker's thread."""

    def __init__(self, store: Store, wake: Callable[[], None], *, name: str) -> None:
        """Start nothing yet."""
        self._store = store
        self._wake = wake
        self._name = name
        self._turn: Turn | None = None
        self._came: Turned | Exception | None = None
        self._call = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def busy(self) -> bool:
        """Say whether a turn was given whose outcome was not taken yet."""
        return self._turn is not None

    def make(self, turn: Turn) -> None:
        """Begin to make a turn. Not to be called while busy."""
        self._turn = turn
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._call.set()

    def take(self) -> tuple[Turn, Turned | Exception] | None:
        """Return the turn and what came of it, once; None: none was given, or it is still under way."""
        turn, came = self._turn, self._came
        if turn is None or came is None:
            return None
        self._turn = self._came = None
        return turn, came

    def close(self) -> None:
        """Wait for what is under way, for a while, and end."""
        self._closed = True
        self._call.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while True:
            self._call.wait()
            self._call.clear()
            turn = self._turn
            if turn is not None and self._came is None:
                try:
                    self._came = self._store.turn(turn)
                except Exception as error:  # noqa: BLE001 - it is the worker's, which takes it as if it had made the turn itself
                    self._came = error
                self._wake()
            if self._closed:
                return
