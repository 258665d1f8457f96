"""Webhooks: addresses that are told of ends, and what became of each message. A secret leaves once, in the answer that makes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path, Query
from pydantic import ConfigDict, Field

from rota.errors import ChangedMeanwhile, NotFound, Refused
from rota.model.targets import URL_MAX
from rota.model.webhooks import Delivery, Event, Webhook
from rota.resources.webhooks import NewWebhook, Tested
from rota.surfaces.http.access import Served, Who
from rota.surfaces.http.answers import Answer
from rota.surfaces.http.api.asking import TEXT
from rota.surfaces.http.api.bodies import Body, Name, Text
from rota.surfaces.http.api.keyset import Cursor, Limit, cut
from rota.surfaces.http.api.paging import Cursor as PlaceCursor
from rota.surfaces.http.api.paging import Limit as PageLimit
from rota.surfaces.http.api.paging import Paged
from rota.surfaces.http.api.strict import strict_router
from rota.surfaces.http.api.versions import IfMatch, etag, seen
from rota.surfaces.http.describing import gives, nothing, page_of, refuses

router = strict_router("Webhooks", "")

WebhookId = Annotated[str, Path(description="The webhook's id.", examples=["01980c5e-7a10-7000-8000-000000000001"], max_length=64)]
DeliveryId = Annotated[int, Path(description="The delivery's id.", examples=[42], ge=1, le=2**62)]
Of = Annotated[str | None, Query(max_length=255, pattern=TEXT, description="Whose webhooks are meant; else all that you may see.")]
Url = Annotated[str, Field(max_length=URL_MAX, description="https://…, public.")]
EventWord = Annotated[Event, Field(strict=False)]
Events = Annotated[list[EventWord], Field(min_length=1, max_length=len(Event), description="The events that it receives.")]
Types = Annotated[list[Name], Field(max_length=100, description="Only jobs of these types; empty: all.")]
NO_STORE = {"Cache-Control": "no-store"}


class NewSecret(msgspec.Struct, frozen=True):
    """A secret, which is never shown again."""

    secret: str


class WebhookOrder(Body):
    """A webhook to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"url": "https://example.com/hooks", "events": ["run.dead_lettered"]}]})

    url: Url
    events: Events | None = Field(None, description="None: all but `schedule.skipped_planned`.")
    job_types: Types | None = None
    with_result: bool = Field(default=False, description="Messages carry what the handler returned.")
    description: Text | None = None
    organization: Name | None = Field(None, description="Another than your own: for system managers.")


class WebhookEdit(Body):
    """What to change of a webhook; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"enabled": False}]})

    url: Url | None = None
    events: Events | None = None
    job_types: Types | None = None
    with_result: bool | None = None
    description: Text | None = None
    enabled: bool | None = Field(None, description="False: it is told of nothing, and what waits for it is given up.")


class SecretOrder(Body):
    """Whose secret is to be made anew."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}]})

    organization: Name | None = Field(None, description="Another than your own: for system managers.")


@router.post(
    "/webhooks",
    summary="Create a webhook",
    status_code=201,
    responses=gives(NewWebhook, status=201, what="The webhook, and its secret, which is never shown again."),
)
def create(body: WebhookOrder, rota: Served, who: Who) -> Answer:
    """Send run and schedule events to an address. Its secret is in this answer and nowhere else."""
    made = rota.acting_as(who).webhooks.create(**body.given())
    return Answer(made, status_code=201, headers=NO_STORE)


@router.get("/webhooks", summary="List webhooks", responses=gives(page_of(Webhook)))
def find(rota: Served, who: Who, *, organization: Of = None, limit: Limit = 100, cursor: Cursor = None) -> Answer:
    """Return webhooks: never their secrets. Those of single jobs are not among them."""
    found = sorted(rota.acting_as(who).webhooks.list(organization=organization), key=_place)
    return Answer(cut(found, _place, limit=limit, cursor=cursor))


@router.get("/webhooks/{webhook_id}", summary="Get a webhook", responses=gives(Webhook, etag=True) | refuses(NotFound))
def get(webhook_id: WebhookId, rota: Served, who: Who) -> Answer:
    """Return one webhook."""
    found = rota.acting_as(who).webhooks.get(webhook_id)
    return Answer(found, headers=etag(found.version))


@router.patch(
    "/webhooks/{webhook_id}", summary="Change a webhook", responses=gives(Webhook, etag=True) | refuses(NotFound, ChangedMeanwhile)
)
def change(webhook_id: WebhookId, body: WebhookEdit, rota: Served, who: Who, *, if_match: IfMatch = None) -> Answer:
    """Change what is given. Messages that wait go to its new address."""
    changed = rota.acting_as(who).webhooks.if_match(seen(if_match)).update(webhook_id, **body.given())
    return Answer(changed, headers=etag(changed.version))


@router.delete("/webhooks/{webhook_id}", summary="Delete a webhook", status_code=204, responses=nothing() | refuses(NotFound))
def delete(webhook_id: WebhookId, rota: Served, who: Who) -> None:
    """Remove a webhook and its secret. What was sent to it stays on the record; what was not is given up."""
    rota.acting_as(who).webhooks.delete(webhook_id)


@router.post(
    "/webhooks/{webhook_id}/secret",
    summary="Rotate a webhook's secret",
    status_code=201,
    responses=gives(NewSecret, status=201) | refuses(NotFound),
)
def rotate(webhook_id: WebhookId, rota: Served, who: Who) -> Answer:
    """Give a webhook another secret. The one before signs too for a while, so that receivers can follow."""
    return Answer(NewSecret(rota.acting_as(who).webhooks.rotate(webhook_id)), status_code=201, headers=NO_STORE)


@router.post("/webhooks/{webhook_id}/test", summary="Test a webhook", responses=gives(Tested) | refuses(NotFound, Refused))
def test(webhook_id: WebhookId, rota: Served, who: Who) -> Answer:
    """Send a message that only asks whether anybody listens, now and once, and return what came of it."""
    return Answer(rota.acting_as(who).webhooks.test(webhook_id))


@router.post("/webhook-secret", summary="Rotate an organization's secret", status_code=201, responses=gives(NewSecret, status=201))
def rotate_organization(body: SecretOrder, rota: Served, who: Who) -> Answer:
    """Make the secret that messages of single jobs are signed with anew. The one before signs too for a while."""
    return Answer(NewSecret(rota.acting_as(who).webhooks.rotate(**body.given())), status_code=201, headers=NO_STORE)


@router.get("/deliveries", summary="List deliveries", responses=gives(page_of(Delivery)) | refuses(NotFound))
def deliveries(
    rota: Served,
    who: Who,
    *,
    webhook: Annotated[str | None, Query(max_length=64, pattern=TEXT, description="Only of this webhook.")] = None,
    state: Annotated[Literal["waiting", "delivered", "gave up"] | None, Query()] = None,
    limit: PageLimit = 50,
    cursor: PlaceCursor = None,
) -> Answer:
    """Return messages and what became of each, newest first."""
    paged = Paged("deliveries", webhook=webhook, state=state)
    return paged.answer(rota.acting_as(who).webhooks.deliveries(webhook=webhook, state=state, limit=limit, before=paged.place(cursor)))


@router.post("/deliveries/{delivery_id}/redeliver", summary="Deliver again", responses=gives(Delivery) | refuses(NotFound))
def redeliver(delivery_id: DeliveryId, rota: Served, who: Who) -> Answer:
    """Send a message again, under the same `webhook-id`."""
    return Answer(rota.acting_as(who).webhooks.redeliver(delivery_id))


def _place(webhook: Webhook) -> tuple[str, ...]:
    return (webhook.id,)


_AT = "2026-03-01T09:00:00Z"
_ID = "01980c5e-7a10-7000-8000-000000000001"
_WEBHOOK: dict[str, Any] = {
    "id": _ID,
    "organization": "acme",
    "url": "https://example.com/hooks",
    "events": ["run.dead_lettered"],
    "job_types": [],
    "job": None,
    "with_result": False,
    "description": "pages whoever is on duty",
    "state": "ENABLED",
    "reason": None,
    "failing_since": None,
    "last_status": None,
    "last_error": None,
    "version": 1,
    "created_by": "ada",
    "created_at": _AT,
    "updated_at": _AT,
}
SHAPES: dict[type, Any] = {
    Webhook: _WEBHOOK,
    NewWebhook: {"webhook": _WEBHOOK, "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="},
    NewSecret: {"secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="},
    Tested: {"accepted": True, "status": 204, "error": None, "took_s": 0.08},
    Delivery: {
        "id": 42,
        "webhook": _ID,
        "organization": "acme",
        "event": "run.dead_lettered",
        "key": _ID,
        "job": _ID,
        "schedule": None,
        "url": "https://example.com/hooks",
        "state": "delivered",
        "attempts": 1,
        "next_attempt_at": None,
        "last_attempt_at": _AT,
        "last_status": 200,
        "last_error": None,
        "created_at": _AT,
        "delivered_at": _AT,
        "gave_up_at": None,
    },
}
"""Every value that this part gives, with an example."""
