"""Delivering messages about ends: beside the wheel, on threads of its own, so that no receiver can delay a job.

The wheel only looks, once in a while, whether there is anything to do, and removes what is old. The first message starts the postman: one
thread that takes messages on, hands them to a few that send, and writes down what came of them. What is taken on is on lease: should this
process vanish, another worker sends it again. A message may so arrive twice, and never not at all without being given up on the record.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue

from rota.engine.clock_trust import ClockTrust
from rota.errors import RotaError
from rota.model.checks import extra
from rota.model.settings import Settings
from rota.model.values import SECOND, moment_of
from rota.model.webhooks import Sent, Verdict, organization_of, verdict
from rota.ports.clock import Clock
from rota.ports.hooks import Parcel, Settled
from rota.ports.sender import Message, Sender
from rota.ports.store import Store

log = logging.getLogger("rota.webhooks")

CLOSE_S = 5.0
"""How long a worker that ends waits for what is being sent; what is not written down by then is sent again by others."""
TROUBLE_S = 5.0
"""Pause after an error of the store."""
FORGET_MAX = 500
MakeSender = Callable[[], Sender | None]
NOBODY = "the webhook was disabled or deleted"
UNSIGNED = "there is no secret to sign it with"


class WebhookDelivery:
    """What the wheel knows of messages. All methods belong to the worker's thread."""

    def __init__(
        self, store: Store, make_sender: MakeSender | None, *, clock: Clock, settings: Settings, trust: ClockTrust | None = None
    ) -> None:
        """Take what makes who sends, when there is something to send; without one, messages wait for a worker that has one.

        `trust` is the process's trust in its clock: what is old is removed by it.
        """
        self._store = store
        self._make_sender = make_sender
        self._clock = clock
        self._settings = settings
        self._trust = trust or ClockTrust(store, clock, settings)
        self.next_s = math.inf if make_sender is None else clock.monotonic()
        """When `tick` has something to do (monotonic)."""
        self._next_forget = clock.monotonic()
        self._postman: Postman | None = None

    def tick(self, monotonic: float) -> None:
        """Start the postman when there is something to deliver, and remove what is old; a look costs next to nothing."""
        if self._make_sender is None or monotonic < self.next_s:
            return
        # Before anything can fail: a store in trouble is not asked again at once.
        self.next_s = monotonic + self._settings.webhook_interval
        mail = self._store.mail()
        if self._postman is None and mail.next_at is not None:
            self._postman = Postman(self._store, self._make_sender, clock=self._clock, settings=self._settings)
            self._postman.start()
        now = self._clock.now()
        before = now - round(self._settings.webhook_retention * SECOND)
        if monotonic >= self._next_forget and any(at is not None and at < before for at in (mail.over_at, mail.reported_at)):
            self._next_forget = monotonic + self._settings.retention_interval
            if self._trust.doubt(now) is not None:
                return
            removed = (
                self._store.forget_deliveries(before=before, limit=FORGET_MAX),
                self._store.forget_reports(before=before, limit=FORGET_MAX),
            )
            if FORGET_MAX in removed:
                self._next_forget = monotonic

    def told(self) -> None:
        """Hear that messages were written just now: they need not wait for the next look."""
        if self._postman is not None:
            self._postman.wake()
        elif self._make_sender is not None:
            self.next_s = 0.0

    def close(self) -> None:
        """Send nothing more, and write down what came of what is under way, as far as that ends soon."""
        if self._postman is not None:
            self._postman.close()
            self._postman = None


class Postman:
    """Takes messages on and has them sent, a bounded number at a time."""

    def __init__(self, store: Store, make_sender: MakeSender, *, clock: Clock, settings: Settings) -> None:
        """Start nothing yet."""
        self._store = store
        self._make_sender = make_sender
        self._sender: Sender | None = None
        self._clock = clock
        self._settings = settings
        self._most = settings.webhook_senders
        self._per_lane = max(1, self._most // 2)
        self._per_organization = max(1, self._most - self._most // 4)
        self._lease_us = round((settings.webhook_timeout + settings.webhook_lease) * SECOND)
        self._after = ""
        self._under_way: dict[int, Parcel] = {}
        self._unsettled: list[Settled] = []
        self._to_send: SimpleQueue[Parcel | None] = SimpleQueue()
        self._came: SimpleQueue[Settled] = SimpleQueue()
        self._senders = 0
        self._woken = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="rota-webhooks", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Look at once. From any thread."""
        self._woken.set()

    def close(self) -> None:
        """Take nothing more on; wait a while for what is under way."""
        self._closing = True
        self.wake()
        self._thread.join(CLOSE_S)
        for _ in range(self._senders):
            self._to_send.put(None)

    def _run(self) -> None:
        # Here, and not where the wheel turns: what it needs is imported now, which takes a while.
        self._sender = self._make_sender()
        if self._sender is None:
            log.warning("webhook messages are waiting and this worker cannot send them; %s", extra("webhooks"))
            return
        while not (self._closing and not self._under_way and not self._unsettled):
            try:
                delay_s = self.step()
            except RotaError as error:
                if self._closing:
                    return  # others send it again
                log.warning("webhook deliveries could not be claimed or recorded; retrying: %s", error)
                delay_s = TROUBLE_S
            except Exception:
                log.exception("webhook delivery failed; retrying")
                delay_s = TROUBLE_S
            if self._woken.wait(delay_s):
                self._woken.clear()

    def step(self) -> float:
        """Write down what came, take on what is due and hand it out; return in how many seconds to look again."""
        while not self._came.empty():
            settled = self._came.get()
            self._under_way.pop(settled.parcel.id, None)
            self._unsettled.append(settled)
        now = self._clock.now()
        free = 0 if self._closing else self._most - len(self._under_way)
        next_at = self._store.mail().next_at if free else None
        is_due = next_at is not None and next_at <= now
        if not self._unsettled and not is_due:
            return self._pause_s(None if next_at is None else (next_at - now) / SECOND)
        taken = self._store.take_mail(
            self._unsettled,
            now=now,
            until=now + self._lease_us,
            limit=free if is_due else 0,
            each=self._per_lane,
            busy=self._busy(),
            after=self._after,
        )
        wrapped, self._after = bool(self._after), taken.after
        self._unsettled = []
        for parcel in taken.parcels:
            self._hand_out(parcel)
        return 0.0 if taken.parcels or wrapped else self._pause_s(None)

    def _pause_s(self, due_s: float | None) -> float:
        longest = self._settings.webhook_interval
        return longest if due_s is None else min(longest, max(0.0, due_s))

    def _busy(self) -> set[str]:
        """Return the lanes and organizations that have as many under way as they may: one that hangs keeps no other waiting."""
        lanes = Counter(parcel.lane for parcel in self._under_way.values())
        whose = Counter(organization_of(parcel.lane) for parcel in self._under_way.values())
        return {lane for lane, count in lanes.items() if count >= self._per_lane} | {
            f" {name}" for name, count in whose.items() if count >= self._per_organization
        }

    def _hand_out(self, parcel: Parcel) -> None:
        self._under_way[parcel.id] = parcel
        if self._senders < min(self._most, len(self._under_way)):
            self._senders += 1
            threading.Thread(target=self._send_all, name=f"rota-send-{self._senders}", daemon=True).start()
        self._to_send.put(parcel)

    def _send_all(self) -> None:
        while (parcel := self._to_send.get()) is not None:
            self._came.put(self._deliver(parcel))
            self.wake()

    def _deliver(self, parcel: Parcel) -> Settled:
        if parcel.url is None or not parcel.secrets:
            why = NOBODY if parcel.url is None else UNSIGNED
            return Settled(parcel=parcel, sent=Sent(error=why), verdict=Verdict(gave_up=True), at=self._clock.now())
        assert self._sender is not None  # noqa: S101 - nothing is taken on without one
        at = moment_of(self._clock.now())
        try:
            sent = self._sender.send(
                Message(url=parcel.url, key=parcel.key, payload=parcel.payload, owner=parcel.owner, secrets=parcel.secrets, at=at)
            )
        except Exception as error:
            log.exception("webhook message %d could not be sent", parcel.id)
            sent = Sent(error=f"could not be sent: {type(error).__name__}")
        now = self._clock.now()
        settled = verdict(sent, attempts=parcel.attempts, now=now, delays_s=self._settings.webhook_delays_s)
        if settled.gave_up:
            log.warning("webhook message %d to %s abandoned after %d attempts", parcel.id, parcel.endpoint_id, parcel.attempts + 1)
        return Settled(parcel=parcel, sent=sent, verdict=settled, at=now)
