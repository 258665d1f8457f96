"""The feed: one thread looks for what is new, as long as somebody listens, and tells everybody what they may see.

Those who ask for the same are told by one `Channel`, which picks, counts and bounds once for all of them. Nothing here can hold the
queue up: it only reads, at most a quarter of the time, and a listener who does not keep up is cut off.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

import msgspec

from rota.engine.event_poller import EventPoller, Gathered, again
from rota.engine.inbox import Inbox
from rota.errors import RotaError, StoreBusy, StoreUnavailable, TooManyListeners
from rota.model.events import Change, Cursor, Event, EventType, View
from rota.model.gate import Scope
from rota.model.settings import Settings
from rota.model.states import CHAIN_ENDS
from rota.model.values import SECOND, moment_of
from rota.ports.clock import Clock
from rota.ports.events import Watching
from rota.ports.wakeup import Wakeup

log = logging.getLogger("rota.events")

QUICK_S = 0.05
"""Between two looks at least, where the last one found nothing: then a hint is answered at once."""
LINGER_S = 5.0
"""How long it goes on looking when the last has left: pages are left for other pages."""
TROUBLE_S = 1.0
COUNTS_S = (1.0, 5.0)
"""How often is counted where something changed, and where nothing seems to have."""
COUNTS_SHARE = 20
"""Counting takes at most this share of the time, as one to so many."""


class Feed:
    """Implements the live part of `Rota.events`. One for each open store of a process."""

    def __init__(self, store: Watching, clock: Clock, settings: Settings, wakeup: Callable[[], Wakeup] | None) -> None:
        """Take what to look at; nothing is looked at before somebody listens."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._wakeup = wakeup
        self._poller = EventPoller(store, clock)
        self._lock = threading.RLock()
        self._replaying = threading.Lock()
        """One at a time goes back: after a restart all come at once, and each may read thousands of rows."""
        self._channels: dict[View, Channel] = {}
        self.listening = 0
        """How many listen."""
        self._left_s = 0.0
        self._bell: Inbox | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._counted_s = self._count_after_s = 0.0
        self._changed = True
        self.cursor = ""
        """Up to where everybody has been told."""

    @property
    def looking(self) -> bool:
        """Say whether its thread is at work."""
        return self._thread is not None

    def listen(self, view: View, *, after: Cursor | None = None, ready: Callable[[], None] | None = None) -> Listener:
        """Let somebody hear everything that is committed from now on; before that, what came after a cursor."""
        listener = self._join(view, ready)
        if after is not None:
            try:
                self._tell_again(listener, after)
            except BaseException:
                listener.close()
                raise
        return listener

    def _join(self, view: View, ready: Callable[[], None] | None) -> Listener:
        with self._lock:
            most = self._settings.events_streams
            if self.listening >= most:
                raise TooManyListeners(f"{most} listen already (setting events_streams): close some, or try again later", 5.0)
            self._begin()
            channel = self._channels.get(view)
            if channel is None:
                channel = Channel(view, rate=self._settings.events_max, now_s=self._clock.monotonic())
                self._channels[view] = channel
                self._changed = True
            listener = Listener(self, view, most=self._settings.events_buffer, ready=ready)
            channel.listeners.append(listener)
            self.listening += 1
            if channel.counts is not None:
                listener.put(Batch([self._event(type=EventType.COUNTS, counts=channel.counts)], self.cursor, self.cursor))
            return listener

    def _tell_again(self, listener: Listener, after: Cursor) -> None:
        """Tell what came after a cursor, as far as the store shows it and it is not too much; say so where it is."""
        now, most = self._clock.now(), self._settings.events_replay_max
        cursor = str(self._poller.cursor)
        with self._replaying:
            changes = again(self._store, after, now, oldest=now - round(self._settings.events_replay * SECOND))
        shown = [change for change in changes or () if listener.view.shows(change)]
        events = [change.event() for change in shown[-most:]]
        if listener.view.wants(EventType.DEFINITIONS):
            events.insert(0, self._event(type=EventType.DEFINITIONS))
        if changes is None or len(shown) > most:
            why = "it lies too far back" if changes is None else f"more than {most} events came after it"
            events.insert(0, self._event(type=EventType.GAP, reason=f"{why}: read the list again"))
        if events:
            listener.put_first(Batch(events, str(after), cursor))

    def leave(self, listener: Listener) -> None:
        """Let go of one who listened. Again: nothing."""
        with self._lock:
            channel = self._channels.get(listener.view)
            if channel is None or listener not in channel.listeners:
                return
            channel.listeners.remove(listener)
            self.listening -= 1
            self._left_s = self._clock.monotonic()
            if not channel.listeners:
                del self._channels[listener.view]

    def close(self) -> None:
        """Look no longer, and tell everybody that nothing more comes."""
        with self._lock:
            self._closed = True
            thread, listeners = self._thread, [each for channel in self._channels.values() for each in channel.listeners]
            if self._bell is not None and thread is not None:
                self._bell.poke()
        for listener in listeners:
            listener.end(Over.CLOSED)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._closed:
            raise RotaError("this Rota is being closed: open another to listen")
        if self._thread is None:
            self._poller.begin()
            self.cursor = str(self._poller.cursor)
            self._bell = Inbox(None if self._wakeup is None else self._wakeup())
            self._thread = threading.Thread(target=self._run, args=(self._bell,), name="rota-feed", daemon=True)
            self._thread.start()

    def _run(self, bell: Inbox) -> None:
        while self._go_on():
            begun_s, poll_s = self._clock.monotonic(), self._settings.events_poll
            try:
                pause_s = poll_s if self.step() else min(QUICK_S, poll_s)
            except (StoreBusy, StoreUnavailable) as error:
                log.warning("the store cannot be read; live events are delayed: %s", error)
                pause_s = TROUBLE_S
            except Exception:
                if not self._closed:
                    log.exception("live events failed; retrying")
                pause_s = TROUBLE_S
            took_s = self._clock.monotonic() - begun_s
            # Hints may come thousands a second: for a while nothing but the end wakes it. Looking takes a quarter of the time at most.
            self._rest(bell, max(pause_s, 3 * took_s), hints=False)
            self._rest(bell, poll_s - pause_s, hints=bell.hinted)
        bell.close()

    def _rest(self, bell: Inbox, seconds: float, *, hints: bool) -> None:
        if seconds > 0 and not self._closed:
            bell.listens = hints
            bell.wait(seconds)

    def _go_on(self) -> bool:
        with self._lock:
            idle = not self.listening and self._clock.monotonic() - self._left_s >= LINGER_S
            if self._closed or idle:
                self._thread = self._bell = None
                return False
            return True

    def step(self) -> bool:
        """Look once, and tell; say whether anything was new."""
        gathered = self._poller.gather()
        now_s = self._clock.monotonic()
        counts = self._count(now_s, changed=bool(gathered.changes))
        before, after = self.cursor, str(self._poller.cursor)
        with self._lock:
            self._hand_out(gathered)
            for channel in self._channels.values():
                found = counts.get(channel.counting.organization) if channel.counting is not None else None
                if found is not None and found != channel.counts:
                    channel.counts = found
                    channel.extra.append(self._event(type=EventType.COUNTS, counts=found))
                channel.flush(now_s=now_s, event_at=self._event, before=before, after=after)
            self.cursor = after
        return bool(gathered.changes)

    def _hand_out(self, gathered: Gathered) -> None:
        if gathered.missed:
            for channel in self._channels.values():
                channel.extra.append(self._event(type=EventType.GAP, reason="more happened than could be told: read the list again"))
        # Channels by what they are about, so that a change finds those it may concern without asking all.
        places: dict[tuple[str | None, str | None, str | None], list[Channel]] = {}
        for channel in self._channels.values():
            view = channel.view
            key = (None, None, view.root_id) if view.root_id is not None else (view.scope.organization, view.scope.owner, None)
            places.setdefault(key, []).append(channel)
        for change in gathered.changes:
            concerned: Iterable[Channel] = self._channels.values()
            if (job := change.job) is not None:
                keys = ((None, None, None), (job.organization, None, None), (job.organization, job.owner, None), (None, None, job.root_id))
                concerned = [channel for key in keys for channel in places.get(key, ())]
            for channel in concerned:
                if channel.view.shows(change):
                    channel.waiting.append(change)

    def _count(self, now_s: float, *, changed: bool) -> dict[str | None, dict[str, int]]:
        """Count jobs for those who may know, by organization, if it is time."""
        self._changed |= changed
        soon_s, late_s = COUNTS_S
        if now_s < self._count_after_s or not (self._changed or now_s - self._counted_s >= late_s):
            return {}
        with self._lock:
            wanted = {channel.counting.organization for channel in self._channels.values() if channel.counting is not None}
        self._changed = False
        found = {organization: self._store.counts(scope=Scope(organization)) for organization in wanted}
        self._counted_s = self._clock.monotonic()
        self._count_after_s = self._counted_s + max(soon_s, COUNTS_SHARE * (self._counted_s - now_s))
        return found

    def _event(self, **fields: object) -> Event:
        return Event(at=moment_of(self._clock.now()), **fields)  # type: ignore[arg-type] # named by who calls


class Over(StrEnum):
    """Why nothing more comes."""

    ENDED = "the chain has ended"
    SLOW = "too slow: come back with the id of the last event"
    CLOSED = "this process is going away: come back with the id of the last event"


class Batch(msgspec.Struct):
    """Some events, told together."""

    events: list[Event]
    before: str
    """Where a subscriber continues that has not received all of them."""
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

    def __init__(self, feed: Feed, view: View, *, most: int, ready: Callable[[], None] | None) -> None:
        """Begin empty; `ready` is called, from any thread, when there is something to take."""
        self.view = view
        self.over: Over | None = None
        self.ready = ready
        self.begun = feed.cursor
        """Where a subscriber continues that has taken nothing."""
        self._feed = feed
        self._most = most
        self._batches: deque[Batch] = deque()
        self._size = 0
        self._change = threading.Condition()

    @property
    def cursor(self) -> str:
        """Where a subscriber continues that has taken everything; ask for it before `take`."""
        return self._feed.cursor

    def put(self, batch: Batch) -> None:
        """Tell it; one that has too much waiting is cut off."""
        with self._change:
            if self.over is not None:
                return
            if self._size and self._size + len(batch.events) > self._most:
                self.over = Over.SLOW
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
            self.over = self.over or why
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
        self.waiting: list[Change] = []
        """Changes to tell, as far as the rate allows."""
        self.extra: list[Event] = []
        """What is told in any case."""

    @property
    def counting(self) -> Scope | None:
        """Whose jobs are to be counted for it."""
        return self.view.stats if self.view.root_id is None and self.view.wants(EventType.COUNTS) else None

    def flush(self, *, now_s: float, event_at: Callable[..., Event], before: str, after: str) -> None:
        """Tell what was taken, as many as it may be in a second, and how many were not."""
        waiting, self.waiting = self.waiting, []
        self._budget = min(float(self._rate), self._budget + (now_s - self._filled_s) * self._rate)
        self._filled_s = now_s
        told = sample(waiting, int(self._budget))
        self._budget -= len(told)
        if len(told) < len(waiting) and not self._skipped:
            self._skipped_s = now_s
        self._skipped += len(waiting) - len(told)
        events = [*self.extra, *(change.event() for change in told)]
        self.extra = []
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


def sample(waiting: list[Change], most: int) -> list[Change]:
    """Return at most so many, evenly from all."""
    if len(waiting) <= most:
        return waiting
    return [waiting[place * len(waiting) // most] for place in range(most)]


def is_last(change: Change) -> bool:
    """Say whether a chain ends with this."""
    return change.type is EventType.ENDED and change.job is not None and change.job.status in CHAIN_ENDS
