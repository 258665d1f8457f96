"""Work beside the turns, on threads of its own: the report of overdue schedules, the pulse, and the service of a store without a worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rota.engine.overdue import overdue
from rota.engine.parts import Parts
from rota.engine.registry import Registry
from rota.engine.trigger import Trigger
from rota.engine.webhook_delivery import WebhookDelivery
from rota.errors import StoreBusy, StoreUnavailable
from rota.model.fates import Fated
from rota.model.schedules import Fate
from rota.model.settings import Settings
from rota.model.values import Instant
from rota.model.webhooks import error_text
from rota.ports.clock import Clock
from rota.ports.hooks import Gap
from rota.ports.sender import Caller
from rota.ports.store import Store

log = logging.getLogger("rota.worker")
overdue_log = logging.getLogger("rota.trigger")
pulse_log = logging.getLogger("rota.pulse")

AGAIN_S = (0.05, 1.0)
"""Shortest and longest pause after a step that the store did not answer: a quarter of the usual one, within these."""
REST_S = 1.0
"""How long a step that is under way is waited for at the end."""
GAPS_MAX = 10_000
"""Schedules that one look works out."""
REASON = "no worker has recorded an outcome"


class Ticker:
    """Calls `step` again and again until it is stopped. Nothing that the process is busy with, or waits for, delays it."""

    def __init__(self, step: Callable[[], object], *, every_s: float, name: str) -> None:
        """Take what to call and how often; nothing is called before `start`, nor at once."""
        self._step = step
        self._every_s = every_s
        self._name = name
        self._bell = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._live, name=f"rota-{self._name}", daemon=True)
        self._thread.start()

    def soon(self) -> None:
        """Do not wait for the next time."""
        self._bell.set()

    def stop(self) -> None:
        """End. A step that the store does not answer is not waited for."""
        self._ended.set()
        self._bell.set()
        if self._thread is not None:
            self._thread.join(REST_S)

    def _live(self) -> None:
        pause = self._every_s
        while True:
            self._bell.wait(pause)
            self._bell.clear()
            if self._ended.is_set():
                return
            pause = self._every_s
            try:
                self._step()
            except (StoreBusy, StoreUnavailable):
                pause = min(max(AGAIN_S[0], pause / 4), AGAIN_S[1])
            except Exception:
                # One that was under way when the store was closed is no news.
                if not self._ended.is_set():
                    log.exception("%s failed; retrying", self._name)


class OverdueWatch:
    """Looks for overdue schedules. Belongs to one thread."""

    def __init__(self, store: Store, registry: Registry, *, clock: Clock, settings: Settings) -> None:
        """Take what to look at."""
        self._store = store
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self.every_s = settings.lease_ttl / 3
        """How often to look, so that a gap is reported soon after the tolerance of `overdue`, which is `lease_ttl`."""
        self._reported: frozenset[tuple[str, Instant]] = frozenset()
        """Gaps that this process knows to be reported: they cost no further write."""

    def look(self) -> None:
        """Report gaps that are new."""
        now = self._clock.now()
        found = overdue(self._store, self._registry, self._settings, now=now, limit=GAPS_MAX).alarming
        new = [each for each in found if (each.schedule_id, each.due_at) not in self._reported]
        gaps = [
            Gap(
                each.schedule_id,
                Fated(due_at=each.due_at, last_due_at=each.last_due_at, count=each.count, fate=Fate.OVERDUE, reason=REASON),
            )
            for each in new
        ]
        if gaps and self._store.report_overdue(gaps, now=now):
            overdue_log.warning("%d schedules are overdue, %s among them: %s", len(new), new[0].schedule, REASON)
        self._reported = frozenset((each.schedule_id, each.due_at) for each in found)


class Turning(Protocol):
    """A worker, as far as its pulse asks about it."""

    turned_s: float
    """When its last good turn began, on the monotonic clock."""

    trigger: Trigger


class OutsidePulse:
    """Calls the URL of the setting `pulse_url` while all that was due has fired: silence there means that schedules are not running.

    Before each call it makes sure of what the call stands for: that the worker turns, that no due time is late, and that the store
    takes a write. Belongs to one thread.
    """

    def __init__(self, worker: Turning, caller: Caller, store: Store, registry: Registry, *, clock: Clock, settings: Settings) -> None:
        """Take what it asks before a call, and who calls."""
        self._worker = worker
        self._caller = caller
        self._store = store
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._trouble: str | None = None

    def send(self) -> None:
        """Call the URL, unless something that was due has not fired. An error of the store withholds the call."""
        try:
            trouble = self._withheld()
            if trouble is None:
                sent = self._caller.call(self._settings.pulse_url)
                trouble = None if sent.accepted else f"pulse failed: {error_text(sent)}"
        except Exception as error:
            self._note(f"pulse withheld: {error}")
            raise
        self._note(trouble)

    def _withheld(self) -> str | None:
        """Return why there is nothing to say; None if all is well, which the store has acknowledged."""
        now, ttl_s = self._clock.now(), self._settings.lease_ttl
        if self._clock.monotonic() - self._worker.turned_s > ttl_s:
            return f"pulse withheld: no turn was completed for {ttl_s:g} s"
        if self._worker.trigger.unreadable_until > now:
            return "pulse withheld: a schedule can't be read on this machine"
        late = overdue(self._store, self._registry, self._settings, now=now).alarming
        if late:
            return f"pulse withheld: {len(late)} schedules are overdue, {late[0].schedule} among them"
        self._store.write_pulse(now=now)
        return None

    def _note(self, trouble: str | None) -> None:
        """Log a change: a pulse that stays away for hours is one line, not one a minute."""
        if trouble is not None and self._trouble is None:
            pulse_log.warning("%s", trouble)
        elif trouble is None and self._trouble is not None:
            pulse_log.info("pulse resumed")
        self._trouble = trouble


def tickers_of(worker: Turning, parts: Parts) -> list[Ticker]:
    """Return the tickers of a worker; its driver starts and stops them."""
    store, registry, clock, settings = parts.store, parts.registry, parts.clock, parts.settings
    watch = OverdueWatch(store, registry, clock=clock, settings=settings)
    tickers = [Ticker(watch.look, every_s=watch.every_s, name="overdue")]
    if parts.caller is not None:
        pulse = OutsidePulse(worker, parts.caller, store, registry, clock=clock, settings=settings)
        tickers.append(Ticker(pulse.send, every_s=settings.pulse_every, name="pulse"))
    return tickers


class Minder:
    """Serves a store from a process that runs no worker: reports overdue schedules, and sends messages that would wait for a worker.

    Works for the time of a `with` block, on a thread of its own, whenever the process runs no worker.
    """

    def __init__(
        self, watch: OverdueWatch, delivery: WebhookDelivery, *, has_worker: Callable[[], bool], clock: Clock, settings: Settings
    ) -> None:
        """Take what it does; a worker of this process does the same, so `has_worker` lets it rest."""
        self._watch = watch
        self._delivery = delivery
        self._has_worker = has_worker
        self._clock = clock
        self._next_look = clock.monotonic()
        self._ticker = Ticker(self._step, every_s=settings.webhook_interval, name="minder")

    def __enter__(self) -> Self:
        """Begin."""
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End."""
        self._ticker.stop()
        self._delivery.close()

    def _step(self) -> None:
        if self._has_worker():
            self._delivery.close()
            return
        monotonic = self._clock.monotonic()
        self._delivery.tick(monotonic)
        if monotonic >= self._next_look:
            self._next_look = monotonic + self._watch.every_s
            self._watch.look()
