"""Webhooks and delivery results. A secret is printed once, when it is created or replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rota.errors import Refused
from rota.model.webhooks import USUAL_EVENTS, Delivery, Event, Webhook
from rota.resources.webhooks import NewWebhook, Tested
from rota.surfaces.cli.output import clock_time, show_pairs
from rota.surfaces.cli.views import View, listing

if TYPE_CHECKING:
    from rota.surfaces.cli.commands import Called

SECRET_ONCE = "It is shown only once: store it where the receiver can read it."  # noqa: S105 - words about one


def show_new(new: NewWebhook, _called: Called) -> None:
    """Print a webhook and its secret."""
    show_pairs([*_pairs(new.webhook), ("secret", new.secret)])
    typer.echo(SECRET_ONCE, err=True)


def show_secret(secret: str, _called: Called) -> None:
    """Print a secret, alone on stdout."""
    typer.echo(secret)
    typer.echo(SECRET_ONCE, err=True)


def show_tested(tested: Tested, _called: Called) -> None:
    """Print the answer to a test message."""
    if tested.accepted:
        typer.echo(f"it answered {tested.status} after {tested.took_s:.2f} s")


def refuse_unless_accepted(tested: Tested) -> None:
    """Fail if the receiver did not accept the message."""
    if not tested.accepted:
        raise Refused(f"the webhook did not accept it: {tested.error}")


def _pairs(webhook: Webhook) -> list[tuple[str, object]]:
    return [
        ("webhook", webhook.id),
        ("organization", webhook.organization),
        ("url", webhook.url),
        ("events", _events(webhook)),
        ("job types", ", ".join(webhook.job_types) or "all"),
        ("results", "sent too" if webhook.with_result else None),
        ("what for", webhook.description),
        ("state", _state(webhook)),
    ]


def _events(webhook: Webhook) -> str:
    if webhook.events == USUAL_EVENTS:
        return f"all but {', '.join(event for event in Event if event not in USUAL_EVENTS)}"
    return "all" if len(webhook.events) == len(Event) else ", ".join(webhook.events)


def _state(webhook: Webhook) -> str:
    if webhook.reason is not None:
        return f"{webhook.state}: {webhook.reason}"
    if webhook.failing_since is None:
        return str(webhook.state)
    return f"failing since {clock_time(webhook.failing_since)}: {webhook.last_error or webhook.last_status}"


WEBHOOKS = listing(
    "No webhooks: `rota webhook create https://example.com/hooks` creates one.",
    "id organization url+ events+ types+ state+",
    events=_events,
    types=lambda webhook: webhook.job_types or "all",
    state=_state,
)
DELIVERIES = listing(
    "No deliveries: a message is written when an event happens that a webhook receives.",
    "id> created event state attempts> answer+ next=next_attempt_at",
    id=lambda delivery: str(delivery.id),
    created=lambda delivery: clock_time(delivery.created_at),
    answer=lambda delivery: delivery.last_error or ("" if delivery.last_status is None else str(delivery.last_status)),
)
VIEWS: dict[str | type, View] = {
    Webhook: View(lambda webhook, _called: show_pairs(_pairs(webhook))),
    Delivery: View(lambda delivery, _called: typer.echo(f"delivery {delivery.id} waits for a worker to send it again")),
    "webhook list": View(WEBHOOKS),
    "webhook create": View(show_new),
    "webhook rotate": View(show_secret, lambda secret, _called: {"secret": secret}),
    "webhook test": View(show_tested, check=refuse_unless_accepted),
    "webhook deliveries": View(DELIVERIES),
}
