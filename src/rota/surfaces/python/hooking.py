"""Webhooks: who is told of ends, and what became of each message."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from rota.compose import make_sender
from rota.errors import InvalidOption, NotFound, Refused
from rota.model.checks import text, whole
from rota.model.gate import Actor, Right, Scope
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
from rota.ports.hooks import EndpointChange
from rota.ports.sender import Message
from rota.resources.webhooks import NewWebhook, Tested
from rota.results import Page
from rota.surfaces.python.base import Base

DESCRIPTION_MAX = 1000
LIST_MAX = 1000
TESTS_MAX = 4
"""Tests at a time in one process: each waits for its receiver on a thread that others need."""
_tests = threading.BoundedSemaphore(TESTS_MAX)


class Hooking(Base):
    """The part of Rota that knows webhooks."""

    def create_webhook(
        self,
        url: str,
        *,
        events: Iterable[Event | str] | None = None,
        job_types: Iterable[str] | None = None,
        with_result: bool = False,
        description: str | None = None,
        secret: str | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
    ) -> NewWebhook:
        """Send these events of these job types to a URL, or the usual events of all types. Its secret is returned here and nowhere else."""
        who = self._session.acts(actor, Right.WEBHOOKS, organization)
        store, now = self._session.open().store, self._session.clock.now()
        self._session.registry.organization(who.organization, store, now)
        made = moment_of(now)
        webhook = Webhook(
            id=dashed(self._session.ids.take(1, now)[0]),
            organization=who.organization,
            url=self._target(url),
            events=events_of(events),
            job_types=job_types_of(job_types, self.settings.name_max),
            with_result=bool(with_result),
            description=None if description is None else text("description", description, DESCRIPTION_MAX),
            created_by=who.name,
            created_at=made,
            updated_at=made,
        )
        chosen = _new_secret() if secret is None else secret_of(secret)
        store.add_endpoint(webhook, chosen, most=self.settings.webhook_max, actor=who, now=now)
        return NewWebhook(webhook, chosen)

    def webhooks(self, *, organization: str | None = None, actor: Actor | str | None = None) -> list[Webhook]:
        """Return the webhooks of organizations, newest first; those of single jobs are not among them."""
        scope = self._session.scope(actor, Right.READ_WEBHOOKS)
        found = self._session.open().store.endpoints(scope=scope)
        return [webhook for webhook in found if organization in {None, webhook.organization}]

    def webhook(self, webhook_id: str, *, actor: Actor | str | None = None) -> Webhook:
        """Return one webhook."""
        return self._webhook(webhook_id, self._session.scope(actor, Right.READ_WEBHOOKS))

    def change_webhook(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        events: Iterable[Event | str] | None = None,
        job_types: Iterable[str] | None = None,
        with_result: bool | None = None,
        description: str | None = None,
        enabled: bool | None = None,
        version: int | None = None,
        actor: Actor | str | None = None,
    ) -> Webhook:
        """Change a webhook; what is None stays as it is. Messages that wait go to its new URL; those of one that is disabled are given up.

        `version`: refused if it has another by now.
        """
        who = self._session.acts(actor, Right.WEBHOOKS)
        found = self._webhook(webhook_id, self._session.scope(actor, Right.WEBHOOKS))
        change = EndpointChange()
        if url is not None:
            change.url = self._target(url)
        if events is not None:
            change.events = events_of(events)
        if job_types is not None:
            change.job_types = job_types_of(job_types, self.settings.name_max)
        if with_result is not None:
            change.with_result = bool(with_result)
        if description is not None:
            change.description = text("description", description, DESCRIPTION_MAX) or None
        if enabled is not None:
            change.state = WebhookState.ENABLED if enabled else WebhookState.DISABLED
        return self._session.open().store.change_endpoint(_id(found), change, version=version, actor=who, now=self._session.clock.now())

    def delete_webhook(self, webhook_id: str, *, actor: Actor | str | None = None) -> None:
        """Delete a webhook and its secret. What was sent to it stays on the record; what was not is given up."""
        who = self._session.acts(actor, Right.DELETE_WEBHOOKS)
        found = self._webhook(webhook_id, self._session.scope(actor, Right.DELETE_WEBHOOKS))
        self._session.open().store.drop_endpoint(_id(found), actor=who, now=self._session.clock.now())

    def rotate_webhook_secret(
        self,
        webhook_id: str | None = None,
        *,
        secret: str | None = None,
        organization: str | None = None,
        actor: Actor | str | None = None,
    ) -> str:
        """Give a webhook another secret, and return it, once. Without one: the organization's, which signs messages of single jobs.

        The one before signs too for `webhook_rotation`, so that receivers can follow one by one.
        """
        who = self._session.acts(actor, Right.WEBHOOKS, organization)
        store, now = self._session.open().store, self._session.clock.now()
        chosen = _new_secret() if secret is None else secret_of(secret)
        if webhook_id is None:
            self._session.registry.organization(who.organization, store, now)
            owner, whose = organization_owner(who.organization), who.organization
        else:
            found = self._webhook(webhook_id, self._session.scope(actor, Right.WEBHOOKS))
            if found.job is not None:
                raise InvalidOption(f"webhook {found.id} is a single job's and is signed with its organization's secret: rotate that")
            owner, whose = owner_of(_id(found)), found.organization
        until = now + round(self.settings.webhook_rotation * SECOND)
        store.set_secret(owner, chosen, organization=whose, previous_until=until, actor=who, now=now)
        return chosen

    def test_webhook(self, webhook_id: str, *, actor: Actor | str | None = None) -> Tested:
        """Send a webhook a message from here, now, once, that only asks whether anybody listens. Nothing is recorded of it."""
        self._session.acts(actor, Right.WEBHOOKS)
        found = self._webhook(webhook_id, self._session.scope(actor, Right.WEBHOOKS))
        sender = make_sender(self.settings)
        if sender is None:
            raise InvalidOption("nothing can be sent from here: install rota[webhooks]")
        now = self._session.clock.now()
        owner = owner_of(_id(found)) if found.job is None else organization_owner(found.organization)
        message = Message(
            url=found.url,
            key=dashed(self._session.ids.take(1, now)[0]),
            payload=test_payload(found.organization, moment_of(now)),
            secrets=self._session.open().store.secrets(owner, now=now),
            at=moment_of(now),
        )
        if not _tests.acquire(blocking=False):
            raise Refused(f"{TESTS_MAX} tests of webhooks are under way here: try again when one has ended")
        try:
            sent: Sent = sender.send(message)
        finally:
            _tests.release()
        return Tested(sent.accepted, sent.status, error_text(sent), sent.took_s)

    def deliveries(
        self,
        *,
        webhook: str | None = None,
        state: DeliveryState | str | None = None,
        limit: int = 50,
        before: int | None = None,
        actor: Actor | str | None = None,
    ) -> Page[Delivery]:
        """Return messages and what became of each, newest first. They are kept for `webhook_retention` after that."""
        scope = self._session.scope(actor, Right.READ_WEBHOOKS)
        whole("limit", limit, least=1, most=LIST_MAX)
        if state is not None and state not in set(DeliveryState):
            raise InvalidOption(f"state={state!r} is not one of {', '.join(DeliveryState)}")
        endpoint_id = None if webhook is None else undashed(webhook)
        if webhook is not None and endpoint_id is None:
            raise _no_webhook(webhook)
        wanted = None if state is None else DeliveryState(state)
        found = self._session.open().store.deliveries(scope=scope, endpoint_id=endpoint_id, state=wanted, before=before, limit=limit + 1)
        return Page(found[:limit], next_=found[limit - 1].id if len(found) > limit else None)

    def redeliver(self, delivery_id: int, *, actor: Actor | str | None = None) -> Delivery:
        """Send a message again, under the same key, with as many retries as at first."""
        who = self._session.acts(actor, Right.WEBHOOKS)
        scope = self._session.scope(actor, Right.WEBHOOKS)
        whole("delivery_id", delivery_id, least=1, most=2**62)
        return self._session.open().store.redeliver(delivery_id, scope=scope, actor=who, now=self._session.clock.now())

    def _webhook(self, webhook_id: str, scope: Scope) -> Webhook:
        endpoint_id = undashed(webhook_id)
        found = None if endpoint_id is None else self._session.open().store.endpoint(endpoint_id)
        if found is None or not scope.holds(found.organization, None):
            raise _no_webhook(webhook_id)
        return found

    def _target(self, url: object) -> str:
        from rota.model.targets import check_url  # noqa: PLC0415 - few programs need it

        settings = self.settings
        return check_url(url, private=settings.webhook_private == "allow", plain_http=settings.webhook_http == "allow")


def _no_webhook(name: object) -> NotFound:
    return NotFound(f"there is no webhook {str(name)[:60]!r}: `rota webhook list` shows them")


def _id(webhook: Webhook) -> str:
    return str(undashed(webhook.id))


def _new_secret() -> str:
    return secret_text(os.urandom(SECRET_BYTES))
