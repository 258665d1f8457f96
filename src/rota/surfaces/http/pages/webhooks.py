"""Webhooks and their deliveries. A secret is shown once, in the answer to the form that made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from rota.model.gate import Right
from rota.model.webhooks import USUAL_EVENTS, Event
from rota.surfaces.http.pages.context import Visit
from rota.surfaces.http.pages.routes import Before, Verb, chosen, page

PAGE = 50

WebhookId = Annotated[str, Meta(max_length=64)]


@page("GET /webhooks")
def find(visit: Visit, before: Before = None) -> Response:
    """Show the webhooks and the latest deliveries."""
    return _page(visit, before)


@page("POST /webhooks")
def create(visit: Visit) -> Response:
    """Make a webhook and show its secret, this once."""
    form = visit.form
    made = visit.rota.webhooks.create(
        form.need("url"),
        events=[value for name, value in form.pairs if name == "event"] or None,
        job_types=form.words("job_types") or None,
        with_result=form.text("with_result") == "yes",
        description=form.text("description"),
        organization=form.text("organization"),
    )
    return _page(visit, None, secret=made.secret, about=f"The webhook to {made.webhook.url} is created")


@page("POST /webhooks/{webhook_id}/rotate")
def rotate(visit: Visit, webhook_id: WebhookId) -> Response:
    """Give a webhook another secret and show it, this once."""
    url = _url(visit, webhook_id, Right.WEBHOOKS)
    visit.sure(f"Give the webhook to {url} another secret? The old one signs too for a while.", "Give it another secret")
    secret = visit.rota.webhooks.rotate(webhook_id)
    return _page(visit, None, secret=secret, about=f"The webhook to {url} has another secret")


@page("POST /webhooks/redeliver/{delivery_id}")
def redeliver(visit: Visit, delivery_id: Annotated[int, Meta(ge=1, le=2**62)]) -> Response:
    """Send a message again."""
    visit.rota.webhooks.redeliver(delivery_id)
    return visit.done("The message will be sent again.", "/webhooks")


@page("POST /webhooks/{webhook_id}/{verb}")
def act(visit: Visit, webhook_id: WebhookId, verb: Verb) -> Response:
    """Enable, disable, test or delete a webhook."""
    return visit.done(chosen(ACTS, verb, "a webhook")(visit, webhook_id), "/webhooks")


def _enable(visit: Visit, webhook_id: str) -> str:
    done = visit.rota.webhooks.update(webhook_id, enabled=True)
    return f"{done.url} is told again."


def _disable(visit: Visit, webhook_id: str) -> str:
    url = _url(visit, webhook_id, Right.WEBHOOKS)
    visit.sure(f"Disable the webhook to {url}? Messages that wait for it are given up.", "Disable it")
    visit.rota.webhooks.update(webhook_id, enabled=False)
    return f"{url} is not told any more."


def _test(visit: Visit, webhook_id: str) -> str:
    found = visit.rota.webhooks.test(webhook_id)
    return f"It answered well ({found.status})." if found.accepted else f"It did not answer well: {found.error or found.status}."


def _delete(visit: Visit, webhook_id: str) -> str:
    url = _url(visit, webhook_id, Right.DELETE_WEBHOOKS)
    visit.sure(f"Delete the webhook to {url} and its secret? What was not sent is given up.", "Delete it")
    visit.rota.webhooks.delete(webhook_id)
    return f"The webhook to {url} is deleted."


def _url(visit: Visit, webhook_id: str, right: Right) -> str:
    """Return the address of a webhook to ask about; what would be refused is refused before anybody is asked."""
    visit.must(right)
    return visit.rota.webhooks.get(webhook_id).url


def _page(visit: Visit, before: int | None, *, secret: str = "", about: str = "") -> Response:
    sent: Any = visit.rota.webhooks.deliveries(limit=PAGE, before=before)
    return visit.page(
        "webhooks.html",
        found=visit.rota.webhooks.list(),
        sent=sent,
        next=sent.next,
        first=before is not None,
        events_known=list(Event),
        events_usual=USUAL_EVENTS,
        secret=secret,
        about=about,
    )


ACTS: dict[str, Callable[[Visit, str], str]] = {"enable": _enable, "disable": _disable, "test": _test, "delete": _delete}
