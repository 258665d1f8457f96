"""`rota webhook create|list|change|delete|rotate|deliveries|redeliver|test`: who is told of ends, and what became of each message."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.errors import Refused
from rota.model.webhooks import USUAL_EVENTS, DeliveryState, Event, Webhook
from rota.surfaces.cli.options import JsonOption, StoreOption, examples
from rota.surfaces.cli.output import (
    age,
    clock_time,
    escaped,
    one_line,
    show_json,
    show_json_lines,
    show_next,
    show_pairs,
    show_table,
    table,
)
from rota.surfaces.cli.session import actor, session

WebhookArgument = Annotated[str, typer.Argument(metavar="ID", help="The webhook's id.")]
EventsOption = Annotated[
    list[Event] | None,
    typer.Option(
        "--event", metavar="EVENT", help="Report this event; repeat the option for several. Default: all but schedule.skipped_planned."
    ),
]
TypesOption = Annotated[
    list[str] | None, typer.Option("--type", metavar="NAME", help="Only of jobs of this type; may be given several times. Else of all.")
]
OfOption = Annotated[str | None, typer.Option("--organization", metavar="NAME", help="Of this organization.")]
DescriptionOption = Annotated[str | None, typer.Option("--description", metavar="TEXT", help="What it is for.")]
SECRET_ONCE = "It is shown this once: keep it where the receiver can read it."  # noqa: S105 - words about one


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "create",
        epilog=examples(
            "rota webhook create https://example.com/hooks",
            "rota webhook create https://example.com/dead --event run.dead_lettered --event schedule.missed",
        ),
    )(create)
    app.command("list", epilog=examples("rota webhook list"))(list_webhooks)
    app.command("change", epilog=examples("rota webhook change ID --disable", "rota webhook change ID --url https://example.com/new"))(
        change
    )
    app.command("delete", epilog=examples("rota webhook delete ID"))(delete)
    app.command("rotate", epilog=examples("rota webhook rotate ID", "rota webhook rotate --organization acme"))(rotate)
    app.command("test", epilog=examples("rota webhook test ID"))(send_test)
    app.command("deliveries", epilog=examples("rota webhook deliveries", "rota webhook deliveries --state 'gave up'"))(deliveries)
    app.command("redeliver", epilog=examples("rota webhook redeliver 42"))(redeliver)


def create(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where messages go: https://…")],
    *,
    event: EventsOption = None,
    job_type: TypesOption = None,
    with_result: Annotated[bool, typer.Option("--with-result", help="Messages carry what the handler returned.")] = False,
    description: DescriptionOption = None,
    organization: OfOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send run and schedule events to a URL, and show the secret that messages are signed with, once."""
    with session(store) as rota:
        made = rota.acting_as(actor()).webhooks.create(
            url,
            events=event or None,
            job_types=job_type or None,
            with_result=with_result,
            description=description,
            organization=organization,
        )
    if as_json:
        return show_json(made)
    show_pairs([*_pairs(made.webhook), ("secret", made.secret)])
    return typer.echo(SECRET_ONCE, err=True)


def list_webhooks(*, organization: OfOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List webhooks, never their secrets; those of single jobs are not among them."""
    with session(store) as rota:
        found = rota.acting_as(actor()).webhooks.list(organization=organization)
    if as_json:
        return show_json_lines(found)
    made = table("id", "organization", "url", "events", "types", "state", soft=("url", "events", "types", "state"))
    for webhook in found:
        made.add_row(
            webhook.id,
            escaped(webhook.organization),
            escaped(webhook.url),
            _events(webhook),
            escaped(", ".join(webhook.job_types) or "all"),
            escaped(_state(webhook)),
        )
    return show_table(made, "No webhooks: `rota webhook create https://example.com/hooks` makes one.")


def change(
    webhook: WebhookArgument,
    *,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Another URL; messages that wait go there.")] = None,
    event: EventsOption = None,
    job_type: TypesOption = None,
    all_types: Annotated[bool, typer.Option("--all-types", help="Of jobs of all types again.")] = False,
    with_result: Annotated[bool | None, typer.Option("--with-result/--without-result", help="Whether messages carry results.")] = None,
    description: DescriptionOption = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether it is told at all; what waits for one that is not is given up.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a webhook; what is not given stays."""
    if all_types and job_type:
        raise typer.BadParameter("give --type or --all-types, not both")
    with session(store) as rota:
        changed = rota.acting_as(actor()).webhooks.update(
            webhook,
            url=url,
            events=event or None,
            job_types=[] if all_types else job_type or None,
            with_result=with_result,
            description=description,
            enabled=enabled,
        )
    if as_json:
        return show_json(changed)
    return show_pairs(_pairs(changed))


def delete(
    webhook: WebhookArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a webhook and its secret, after a question. What it was sent stays on the record."""
    with session(store) as rota:
        if not yes:
            typer.confirm(f"Delete webhook {webhook}?", abort=True, err=True)
        rota.acting_as(actor()).webhooks.delete(webhook)
    if as_json:
        return show_json({"deleted": webhook})
    return typer.echo(f"webhook {webhook} is deleted")


def rotate(
    webhook: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The webhook's id. Without one: the organization's secret.", show_default=False)
    ] = None,
    *,
    organization: OfOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new secret and show it, once. Without ID it is the organization's, which messages of single jobs are signed with.

    The one before it signs too for a day (webhook_rotation), so that receivers can follow.
    """
    with session(store) as rota:
        secret = rota.acting_as(actor()).webhooks.rotate(webhook, organization=organization)
    if as_json:
        return show_json({"secret": secret})
    typer.echo(secret)
    return typer.echo(SECRET_ONCE, err=True)


def send_test(webhook: WebhookArgument, *, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Send a webhook a message from here that only asks whether anybody listens."""
    with session(store) as rota:
        tested = rota.acting_as(actor()).webhooks.test(webhook)
    if as_json:
        show_json(tested)
    elif tested.accepted:
        typer.echo(f"it answered {tested.status} after {tested.took_s:.2f} s")
    if not tested.accepted:
        raise Refused(f"webhook {webhook} did not take it: {tested.error}")


def deliveries(
    *,
    webhook: Annotated[str | None, typer.Option("--webhook", metavar="ID", help="Only of this webhook.")] = None,
    state: Annotated[DeliveryState | None, typer.Option("--state", help="Only those.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many.")] = 50,
    before: Annotated[int | None, typer.Option("--before", metavar="ID", help="Older than this one.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List messages and what became of each, newest first."""
    with session(store) as rota:
        found = rota.acting_as(actor()).webhooks.deliveries(webhook=webhook, state=state, limit=limit, before=before)
    if as_json:
        show_json_lines(found)
    else:
        made = table("id", "made", "event", "state", "attempts", "answer", "next", right=("id", "attempts"), soft=("answer",))
        for each in found:
            answer = each.last_error or ("" if each.last_status is None else str(each.last_status))
            made.add_row(
                str(each.id),
                clock_time(each.created_at),
                escaped(each.event),
                each.state,
                str(each.attempts),
                escaped(one_line(answer)),
                age(each.next_attempt_at),
            )
        show_table(made, "No deliveries: a message is written when an event happens that a webhook receives.")
    show_next(found.next)


def redeliver(
    delivery: Annotated[int, typer.Argument(metavar="ID", help="The delivery's id.")],
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a message again, under the same key, as if it had never been tried."""
    with session(store) as rota:
        found = rota.acting_as(actor()).webhooks.redeliver(delivery)
    if as_json:
        return show_json(found)
    return typer.echo(f"delivery {found.id} waits for a worker to send it again")


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
