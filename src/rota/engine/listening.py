"""Those who listen to live events: each with a bounded queue, and all who ask for the same together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Protocol

import msgspec

from rota.model.events import Change, Event, EventType, View
from rota.model.gate import Scope
from rota.model.states import CHAIN_ENDS


class Teller(Protocol):
    """Who tells."""

    cursor: str
    """Up to where everybody has been told."""

    def leave(self, listener: Listener) -> None:
        """Let go of one who listened."""


class Over(StrEnum):
    """Why nothing more comes."""

    ENDED = "the chain has ended"
    SLOW = "too slow: come back with the id of the last event"
    CLOSED = "this process is going away: come back with the id of the last event"


class Batch(msgspec.Struct):
    """Some events, told together."""

    events: list[Event]
    before: str
    """Where to go on for whoever has not had all of them."""
    after: str
    wire: bytes | None = None
    """What a surface has made of it, once for all who are told the same."""

    def with_ids(self) -> Iterator[Event]:
        """Go through the events, each with the id to go on from."""
        last = len(self.events) - 1
        for place, event in enumerate(self.events):
            yield msgspec.structs.replace(event, id=self.after if place == last else self.before)


class Listener:
    """One who listens: a bounded queue of batches."""

    def __init__(self, feed: Teller, view: View, *, most: int, ready: Callable[[], None] | None) -> None:
        """Begin empty; `ready` is called, from any thread, when there is something to take."""
        self.view = view
        self.over: Over | None = None
        self.ready = ready
        self.begun = feed.cursor
        """Where to go on for whoever has taken nothing."""
        self._feed = feed
        self._most = most
        self._batches: deque[Batch] = deque()
        self._size = 0
        self._change = threading.Condition()

    @property
    def cursor(self) -> str:
        """Where to go on for whoever has taken everything; to be asked before `take`."""
        return self._feed.cursor

    def put(self, batch: Batch) -> None:
        """Tell it; one that has too much waiting is cut off."""
        with self._change:
            if self.over is not None:
                return
            if self._size and self._size + len(batch.events) > self._most:
                self._end(Over.SLOW)
                self._batches.clear()
            else:
                self._batches.append(batch)
                self._size += len(batch.events)
            self._change.notify_all()
        self._ring()

    def put_first(self, batch: Batch) -> None:
        """Tell it something before anything else: it has a bound of its own."""
        with self._change:
            self._batches.appendleft(batch)
            self._change.notify_all()
        self._ring()

    def end(self, why: Over) -> None:
        """Let nothing more come. What waits can still be taken."""
        with self._change:
            self._end(why)
            self._change.notify_all()
        self._ring()

    def take(self, timeout_s: float = 0.0) -> list[Batch]:
        """Return what has come, waiting for it if need be; nothing at all after that means the time is up, or `over` says why."""
        with self._change:
            if not self._batches and self.over is None and timeout_s > 0:
                self._change.wait(timeout_s)
            taken = list(self._batches)
            self._batches.clear()
            self._size = 0
            return taken

    def close(self) -> None:
        """Listen no longer."""
        self._feed.leave(self)

    def _end(self, why: Over) -> None:
        self.over = self.over or why

    def _ring(self) -> None:
        if self.ready is not None:
            self.ready()


class Channel:
    """All who have the same view."""

    def __init__(self, view: View, *, rate: int, now_s: float) -> None:
        """Begin with a second's worth of events to give."""
        self.view = view
        self.listeners: list[Listener] = []
        self.counts: dict[str, int] | None = None
        self._rate = rate
        self._budget = float(rate)
        self._filled_s = now_s
        self._skipped = 0
        self._skipped_s = now_s
        self._waiting: list[Change] = []
        self._extra: list[Event] = []

    @property
    def counting(self) -> Scope | None:
        """Whose jobs are to be counted for it."""
        return self.view.stats if self.view.root_id is None and self.view.wants(EventType.COUNTS) else None

    def offer(self, change: Change) -> None:
        """Take a change if it is one to tell."""
        if self.view.shows(change):
            self._waiting.append(change)

    def add(self, event: Event) -> None:
        """Take what is told without being asked for."""
        self._extra.append(event)

    def flush(self, *, now_s: float, event_at: Callable[..., Event], before: str, after: str) -> None:
        """Tell what was taken, as many as it may be in a second, and how many were not."""
        waiting, self._waiting = self._waiting, []
        self._budget = min(float(self._rate), self._budget + (now_s - self._filled_s) * self._rate)
        self._filled_s = now_s
        told = sample(waiting, int(self._budget))
        self._budget -= len(told)
        self._note_skipped(len(waiting) - len(told), now_s)
        events = [*self._extra, *(change.event() for change in told)]
        self._extra = []
        if self._skipped and now_s - self._skipped_s >= 1.0:
            events.append(event_at(type=EventType.SKIPPED, count=self._skipped))
            self._skipped = 0
        if events:
            batch = Batch(events, before, after)
            for listener in self.listeners:
                listener.put(batch)
        if self.view.root_id is not None and any(is_last(change) for change in told):
            for listener in self.listeners:
                listener.end(Over.ENDED)

    def _note_skipped(self, count: int, now_s: float) -> None:
        if count and not self._skipped:
            self._skipped_s = now_s
        self._skipped += count


def sample(waiting: list[Change], most: int) -> list[Change]:
    """Return at most so many, evenly from all."""
    if len(waiting) <= most:
        return waiting
    return [waiting[place * len(waiting) // most] for place in range(most)]


def is_last(change: Change) -> bool:
    """Say whether a chain ends with this."""
    return change.type is EventType.ENDED and change.job is not None and change.job.status in CHAIN_ENDS
