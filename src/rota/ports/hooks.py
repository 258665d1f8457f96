"""Webhooks, as a store keeps them: who is told, and the outbox. A part of the contract of `rota.ports.store`.

That an end is told is no verb here: whatever ends a run writes its messages in the same transaction, as a part of the move. So does
whatever gives a due time an outcome.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from rota.model.fates import Fated
from rota.model.gate import EVERYTHING, Actor, Scope
from rota.model.values import Instant
from rota.model.webhooks import Delivery, DeliveryState, Sent, Verdict, Webhook, WebhookState


class Mail(msgspec.Struct, frozen=True):
    """What there is to do about messages."""

    next_at: Instant | None
    """When the next wants to be sent."""
    over_at: Instant | None
    """When the oldest of those that are over was delivered or given up."""
    reported_at: Instant | None = None
    """When the oldest report of a schedule was written that retention may remove."""


class Parcel(msgspec.Struct, kw_only=True):
    """One message that this worker is to send before its lease is over; then others may."""

    id: int
    lease: Instant
    endpoint_id: str | None
    lane: str
    event: str
    key: str
    payload: str
    attempts: int
    """How often it was sent before."""
    url: str | None
    """None: nobody is to be told any more."""
    owner: str = ""
    """Whose secrets they are: part of what encrypted ones are opened with."""
    secrets: tuple[str, ...] = ()
    """Signed with each. As they are stored: encrypted or not."""


class Taken(msgspec.Struct, frozen=True):
    """Messages taken on, and after which lane to look next."""

    parcels: list[Parcel]
    after: str


class Settled(msgspec.Struct, kw_only=True):
    """What came of sending a message."""

    parcel: Parcel
    sent: Sent
    verdict: Verdict
    at: Instant


class Gap(msgspec.Struct, frozen=True):
    """Due times of a schedule that have no outcome although they are late."""

    schedule_id: str
    row: Fated


class EndpointChange(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is to be different about a webhook; UNSET stays as it is."""

    url: str | msgspec.UnsetType = msgspec.UNSET
    events: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    job_types: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    with_result: bool | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType | None = msgspec.UNSET
    state: WebhookState | msgspec.UnsetType = msgspec.UNSET


class Hooks(Protocol):
    """Endpoints, their secrets, and the outbox. A secret never leaves but inside a parcel."""

    def add_endpoint(self, webhook: Webhook, secret: str, *, most: int, actor: Actor, now: Instant) -> None:
        """Keep a new webhook and its secret, which may be encrypted. Audited. The same id again: nothing more.

        Raise InvalidOption if there are `most` already.
        """

    def endpoint(self, endpoint_id: str) -> Webhook | None:
        """Return a webhook that was not deleted."""

    def endpoints(self, *, scope: Scope = EVERYTHING) -> list[Webhook]:
        """Return the webhooks of organizations, newest first; those of single jobs are not among them."""

    def change_endpoint(self, endpoint_id: str, change: EndpointChange, *, version: int | None, actor: Actor, now: Instant) -> Webhook:
        """Change a webhook. Audited. Raise NotFound, or ChangedMeanwhile if it has another version than this.

        One that is enabled again begins without its failures; the messages of one that is disabled are given up.
        """

    def drop_endpoint(self, endpoint_id: str, *, actor: Actor, now: Instant) -> None:
        """Delete a webhook and its secret. Audited. Its messages stay as a log; those not yet delivered are given up. Raise NotFound."""

    def set_secret(self, owner: str, secret: str, *, organization: str, previous_until: Instant, actor: Actor, now: Instant) -> None:
        """Sign with another secret from now on, and with the one before it too until a moment. Audited, without either."""

    def secrets(self, owner: str, *, now: Instant) -> tuple[str, ...]:
        """Return what messages are signed with now, newest first, as it is stored. For who sends, and for nobody else."""

    def mail(self) -> Mail:
        """Look at the outbox. Costs three looks at the ends of indexes."""

    def take_mail(
        self,
        settled: Sequence[Settled],
        *,
        now: Instant,
        until: Instant,
        limit: int,
        each: int,
        busy: Collection[str] = (),
        after: str = "",
    ) -> Taken:
        """Write what came of messages, then take on up to `limit` that are due, at most `each` of a lane and none of a busy one.

        What is taken on is nobody else's until `until`. What was settled after its lease, and is another's by then, changes nothing.
        A receiver that is gone (410) is disabled.
        """

    def deliveries(
        self,
        *,
        scope: Scope = EVERYTHING,
        endpoint_id: str | None = None,
        state: DeliveryState | None = None,
        before: int | None = None,
        limit: int,
    ) -> list[Delivery]:
        """Return messages, newest first, below an id if one is given."""

    def redeliver(self, delivery_id: int, *, scope: Scope, actor: Actor, now: Instant) -> Delivery:
        """Send a message again, as if it had never been tried. Audited. Raise NotFound, also beyond the scope."""

    def forget_deliveries(self, *, before: Instant, limit: int) -> int:
        """Remove messages that were delivered or given up before a moment; return how many."""

    def report_overdue(self, gaps: Sequence[Gap], *, now: Instant) -> int:
        """Report schedules that are overdue, once for each gap; return how many are new.

        A gap is known by its first due time. One that has its outcome by now, or whose schedule is gone, is left out.
        """

    def write_pulse(self, *, now: Instant) -> None:
        """Commit a small write as `fire` would, with the store to itself: an answer means that due times can be fired."""

    def forget_reports(self, *, before: Instant, limit: int) -> int:
        """Remove reports of schedules written before a moment; return how many. Those of due times without an outcome stay."""
