"""The feed: one thread looks for what is new, as long as somebody listens, and tells everybody what they may see.

Those who ask for the same are told by one `Channel`, which picks, counts and bounds once for all of them. Nothing here can hold the
queue up: it only reads, at most a quarter of the time, and a listener who does not keep up is cut off.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from rota.engine.gathering import Gathered, Gatherer, again
from rota.engine.listening import Batch, Channel, Listener, Over
from rota.engine.sink import Inbox
from rota.errors import RotaError, StoreBusy, StoreUnavailable, TooManyListeners
from rota.model.events import Change, Cursor, Event, EventType, View
from rota.model.gate import Scope
from rota.model.settings import Settings
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
        self._gatherer = Gatherer(store, clock)
        self._lock = threading.RLock()
        self._replaying = threading.Lock()
        """One at a time goes back: after a restart all come at once, and each may read thousands of rows."""
        self._channels: dict[View, Channel] = {}
        self._listening = 0
        self._left_s = 0.0
        self._bell: Inbox | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._counted_s = self._count_after_s = 0.0
        self._changed = True
        self.cursor = ""
        """Up to where everybody has been told."""

    @property
    def listening(self) -> int:
        """How many listen."""
        return self._listening

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
            if self._listening >= most:
                raise TooManyListeners(f"{most} listen already (setting events_streams): close some, or try again later", 5.0)
            self._begin()
            channel = self._channels.get(view)
            if channel is None:
                channel = Channel(view, rate=self._settings.events_max, now_s=self._clock.monotonic())
                self._channels[view] = channel
                self._changed = True
            listener = Listener(self, view, most=self._settings.events_buffer, ready=ready)
            channel.listeners.append(listener)
            self._listening += 1
            if channel.counts is not None:
                listener.put(Batch([self._event(type=EventType.COUNTS, counts=channel.counts)], self.cursor, self.cursor))
            return listener

    def _tell_again(self, listener: Listener, after: Cursor) -> None:
        """Tell what came after a cursor, as far as the store shows it and it is not too much; say so where it is."""
        now, most = self._clock.now(), self._settings.events_replay_max
        cursor = str(self._gatherer.cursor)
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
            self._listening -= 1
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
            self._gatherer.begin()
            self.cursor = str(self._gatherer.cursor)
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
            idle = not self._listening and self._clock.monotonic() - self._left_s >= LINGER_S
            if self._closed or idle:
                self._thread = self._bell = None
                return False
            return True

    def step(self) -> bool:
        """Look once, and tell; say whether anything was new."""
        gathered = self._gatherer.gather()
        now_s = self._clock.monotonic()
        counts = self._count(now_s, changed=bool(gathered.changes))
        before, after = self.cursor, str(self._gatherer.cursor)
        with self._lock:
            self._hand_out(gathered)
            for channel in self._channels.values():
                found = counts.get(channel.counting.organization) if channel.counting is not None else None
                if found is not None and found != channel.counts:
                    channel.counts = found
                    channel.add(self._event(type=EventType.COUNTS, counts=found))
                channel.flush(now_s=now_s, event_at=self._event, before=before, after=after)
            self.cursor = after
        return bool(gathered.changes)

    def _hand_out(self, gathered: Gathered) -> None:
        if gathered.missed:
            for channel in self._channels.values():
                channel.add(self._event(type=EventType.GAP, reason="more happened than could be told: read the list again"))
        places = _places(self._channels.values())
        for change in gathered.changes:
            for channel in _concerned(change, places, self._channels):
                channel.offer(change)

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


_Places = dict[tuple[str | None, str | None, str | None], list[Channel]]


def _places(channels: Iterable[Channel]) -> _Places:
    """Sort channels by what they are about, so that a change finds those it may concern without asking all."""
    places: _Places = {}
    for channel in channels:
        view = channel.view
        key = (None, None, view.root_id) if view.root_id is not None else (view.scope.organization, view.scope.owner, None)
        places.setdefault(key, []).append(channel)
    return places


def _concerned(change: Change, places: _Places, channels: dict[View, Channel]) -> Iterable[Channel]:
    job = change.job
    if job is None:
        return channels.values()
    keys = ((None, None, None), (job.organization, None, None), (job.organization, job.owner, None), (None, None, job.root_id))
    return [channel for key in keys for channel in places.get(key, ())]
