"""Webhooks: addresses that receive events, and the delivery results."""

from __future__ import annotations

import builtins
import os
import threading
from collections.abc import Iterable
from typing import Annotated

import msgspec

from rota.compose import make_sender, open_signing_secret
from rota.errors import InvalidOption, NotFound, Refused, SecretUnavailable
from rota.model.checks import extra, text, whole, word_of
from rota.model.gate import Right
from rota.model.shapes import NAME_MAX, Limit, Organization, Shape
from rota.model.targets import target_of
from rota.model.values import SECOND, dashed, moment_of, undashed
from rota.model.webhooks import (
    SECRET_BYTES,
    Delivery,
    DeliveryState,
    Event,
    Sent,
    Webhook,
    WebhookState,
    error_text,
    events_of,
    job_types_of,
    organization_owner,
    owner_of,
    secret_of,
    secret_text,
    test_payload,
)
from rota.operation import Ask, Resource, operation
from rota.ports.hooks import EndpointChange
from rota.ports.sender import Message
from rota.resources.filters import check_place
from rota.results import Page

DESCRIPTION_MAX = 1000
LIST_MAX = 1000
TESTS_MAX = 4
"""Tests at a time in one process: each waits for its receiver on a thread that others need."""
_tests = threading.BoundedSemaphore(TESTS_MAX)

WebhookId = Annotated[str, Shape("The webhook's id.", metavar="ID")]
Url = Annotated[str, Shape("The address that receives the messages.", "https://example.com/rota", "URL")]
Events = Annotated[
    Iterable[Event | str] | None,
    Shape("Only these events. Default: all but schedule.skipped_planned.", "run.dead_lettered", "EVENT", "event", wire=list[str]),
]
Types = Annotated[Iterable[str] | None, Shape("Only jobs of these types. Default: all.", metavar="TYPE", option="type", wire=list[str])]
WithResult = Annotated[bool, Shape("Whether messages include the results of jobs.", option="with-result/without-result")]
Description = Annotated[str | None, Shape("What it is for.", metavar="TEXT")]
Secret = Annotated[str | None, Shape("The secret that signs messages. Default: a new random one.", metavar="SECRET")]


class NewWebhook(msgspec.Struct, frozen=True):
    """A webhook, and its secret, which is never shown again."""

    webhook: Webhook
    secret: str


class Tested(msgspec.Struct, frozen=True):
    """The result of a test message."""

    accepted: bool
    status: int | None
    error: str | None
    took_s: float


class Webhooks(Resource):
    """The webhooks of organizations, and those of single jobs."""

    __slots__ = ()

    @operation(Right.READ_WEBHOOKS, http="GET /webhooks", cli="webhook list")
    def list(self, ask: Ask, *, organization: Organization = None) -> builtins.list[Webhook]:
        """Return the webhooks of organizations, newest first; those of single jobs are not among them."""
        return [webhook for webhook in ask.store.endpoints(scope=ask.scope) if organization in {None, webhook.organization}]

    @operation(Right.READ_WEBHOOKS, http="GET /webhooks/{webhook}", cli="webhook get", etag=True)
    def get(self, ask: Ask, webhook: WebhookId) -> Webhook:
        """Return one webhook."""
        return _known(ask, webhook)

    @operation(Right.WEBHOOKS, http="POST /webhooks", cli="webhook create", status=201)
    def create(
        self,
        ask: Ask,
        url: Url,
        *,
        events: Events = None,
        job_types: Types = None,
        with_result: WithResult = False,
        description: Description = None,
        secret: Secret = None,
        organization: Organization = None,
    ) -> NewWebhook:
        """Send these events of these job types to a URL, or the usual events of all types. Its secret is returned only here."""
        who = ask.within(organization)
        store, now = ask.store, ask.now
        ask.registry.organization(who.organization, store, now)
        created_at = moment_of(now)
        webhook = Webhook(
            id=dashed(ask.session.ids.take(1, now)[0]),
            organization=who.organization,
            url=target_of(url, ask.settings),
            events=events_of(events),
            job_types=job_types_of(job_types, ask.settings.name_max),
            with_result=bool(with_result),
            description=None if description is None else text("description", description, DESCRIPTION_MAX),
            created_by=who.name,
            created_at=created_at,
            updated_at=created_at,
        )
        chosen = _new_secret() if secret is None else secret_of(secret)
        stored = _sealed(ask, owner_of(_id(webhook)), chosen)
        store.add_endpoint(webhook, stored, most=ask.settings.webhook_max, actor=who, now=now)
        return NewWebhook(webhook, chosen)

    @operation(Right.WEBHOOKS, http="PATCH /webhooks/{webhook}", cli="webhook update", etag=True)
    def update(
        self,
        ask: Ask,
        webhook: WebhookId,
        *,
        url: Url | None = None,
        events: Events = None,
        job_types: Types = None,
        with_result: WithResult | None = None,
        description: Description = None,
        enabled: Annotated[
            bool | None, Shape("Whether it receives messages; disabled, those that wait are dropped.", option="enabled/disabled")
        ] = None,
    ) -> Webhook:
        """Change a webhook; what is not given stays. Waiting messages go to its new URL; those of a disabled webhook are dropped."""
        present = _known(ask, webhook)
        change = EndpointChange()
        if url is not None:
            change.url = target_of(url, ask.settings)
        if events is not None:
            change.events = events_of(events)
        if job_types is not None:
            change.job_types = job_types_of(job_types, ask.settings.name_max)
        if with_result is not None:
            change.with_result = bool(with_result)
        if description is not None:
            change.description = text("description", description, DESCRIPTION_MAX) or None
        if enabled is not None:
            change.state = WebhookState.ENABLED if enabled else WebhookState.DISABLED
        return ask.store.change_endpoint(_id(present), change, version=ask.version, actor=ask.who, now=ask.now)

    @operation(
        Right.DELETE_WEBHOOKS,
        http="DELETE /webhooks/{webhook}",
        cli="webhook delete",
        status=204,
        confirm="Delete webhook {webhook} and its secret? Messages that wait are dropped.",
    )
    def delete(self, ask: Ask, webhook: WebhookId) -> None:
        """Delete a webhook and its secret. The record of sent messages stays; messages that wait are dropped."""
        ask.store.drop_endpoint(_id(_known(ask, webhook)), actor=ask.who, now=ask.now)

    @operation(Right.WEBHOOKS, http="POST /webhooks/{webhook}/secret", cli="webhook rotate", status=201)
    def rotate(self, ask: Ask, webhook: WebhookId | None = None, *, secret: Secret = None, organization: Organization = None) -> str:
        """Replace the secret of a webhook, and return it, once. Without one: the organization's, which signs messages of single jobs.

        The previous secret signs too for `webhook_rotation`, so that receivers can be changed one by one.
        """
        who = ask.within(organization)
        store, now = ask.store, ask.now
        chosen = _new_secret() if secret is None else secret_of(secret)
        if webhook is None:
            ask.registry.organization(who.organization, store, now)
            owner, whose = organization_owner(who.organization), who.organization
        else:
            present = _known(ask, webhook)
            if present.job is not None:
                raise InvalidOption(f"webhook {present.id} is a single job's and is signed with its organization's secret: rotate that")
            owner, whose = owner_of(_id(present)), present.organization
        until = now + round(ask.settings.webhook_rotation * SECOND)
        if not _signs_with(ask, owner, chosen):
            store.set_secret(owner, _sealed(ask, owner, chosen), organization=whose, previous_until=until, actor=who, now=now)
        return chosen

    @operation(Right.WEBHOOKS, http="POST /webhooks/{webhook}/test", cli="webhook test")
    def test(self, ask: Ask, webhook: WebhookId) -> Tested:
        """Send a test message from this process, now and once. It is not recorded."""
        present = _known(ask, webhook)
        sender = make_sender(ask.settings)
        if sender is None:
            raise InvalidOption(f"nothing can be sent from here: {extra('webhooks')}")
        now = ask.now
        owner = owner_of(_id(present)) if present.job is None else organization_owner(present.organization)
        message = Message(
            url=present.url,
            key=dashed(ask.session.ids.take(1, now)[0]),
            payload=test_payload(present.organization, moment_of(now)),
            owner=owner,
            secrets=ask.store.secrets(owner, now=now),
            at=moment_of(now),
        )
        if not _tests.acquire(blocking=False):
            raise Refused(f"{TESTS_MAX} tests of webhooks are under way here: try again when one has finished")
        try:
            sent: Sent = sender.send(message)
        finally:
            _tests.release()
        return Tested(sent.accepted, sent.status, error_text(sent), sent.took_s)

    @operation(Right.READ_WEBHOOKS, http="GET /deliveries", cli="webhook deliveries")
    def deliveries(
        self,
        ask: Ask,
        *,
        webhook: Annotated[str | None, Shape("Only messages to this webhook.", metavar="ID", most=NAME_MAX)] = None,
        state: Annotated[
            DeliveryState | str | None, Shape("Only messages in this state.", metavar="STATE", wire=str, most=NAME_MAX)
        ] = None,
        limit: Limit = 50,
        before: Annotated[int | None, Shape("Continue after this place: `next` of the previous page.", metavar="CURSOR")] = None,
    ) -> Page[Delivery]:
        """Return messages and their delivery results, newest first. They are kept for `webhook_retention`."""
        whole("limit", limit, least=1, most=LIST_MAX)
        if before is not None:
            check_place(before)
        endpoint_id = None if webhook is None else undashed(webhook)
        if webhook is not None and endpoint_id is None:
            raise _no_webhook(webhook)
        wanted = None if state is None else word_of(DeliveryState, "state", state)
        rows = ask.store.deliveries(scope=ask.scope, endpoint_id=endpoint_id, state=wanted, before=before, limit=limit + 1)
        return Page(rows[:limit], next_=rows[limit - 1].id if len(rows) > limit else None)

    @operation(Right.WEBHOOKS, http="POST /deliveries/{delivery}/redeliver", cli="webhook redeliver")
    def redeliver(self, ask: Ask, delivery: Annotated[int, Shape("The message's number.", 42, "ID")]) -> Delivery:
        """Send a message again, under the same key, with the same number of retries."""
        whole("delivery_id", delivery, least=1, most=2**62)
        return ask.store.redeliver(delivery, scope=ask.scope, actor=ask.who, now=ask.now)


def _known(ask: Ask, webhook: str) -> Webhook:
    """Return a webhook in the scope."""
    endpoint_id = undashed(webhook)
    present = None if endpoint_id is None else ask.store.endpoint(endpoint_id)
    if present is None or not ask.scope.holds(present.organization, None):
        raise _no_webhook(webhook)
    return present


def _no_webhook(name: object) -> NotFound:
    return NotFound(f"there is no webhook {str(name)[:60]!r}: `rota webhook list` shows them")


def _id(webhook: Webhook) -> str:
    return str(undashed(webhook.id))


def _sealed(ask: Ask, owner: str, secret: str) -> str:
    """Return a secret as it is to be stored: encrypted, where there is a master key."""
    if not ask.session.has_key_file():
        return secret
    from rota.vault import seal_signing  # noqa: PLC0415 - few programs have a master key

    return seal_signing(ask.session.keyring(), owner, secret)


def _signs_with(ask: Ask, owner: str, secret: str) -> bool:
    """Say whether messages are signed with this secret already: encrypted twice, it would look like another one."""
    newest = next(iter(ask.store.secrets(owner, now=ask.now)), None)
    if newest is None:
        return False
    try:
        return open_signing_secret(ask.settings, owner, newest) == secret
    except SecretUnavailable:
        # One that nobody can open any more is replaced.
        return False


def _new_secret() -> str:
    return secret_text(os.urandom(SECRET_BYTES))
