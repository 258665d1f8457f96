"""What a check-up asks of every relational store alike."""

from __future__ import annotations

from collections.abc import Iterator

from rota.model.findings import Finding, advice, ok, problem, span_text
from rota.model.settings import Settings
from rota.model.values import SECOND, Instant, dashed
from rota.stores.verbs.db import Db

OVERDUE_S = 60
"""A job whose time has come is queued within a second where a worker turns: this late, none does."""

SHOWN = 5


def overdue(db: Db, now: Instant) -> Iterator[Finding]:
    """Look for PENDING jobs whose time came long ago, and that nothing holds up."""
    earliest = min((at for _, at in db.rows("due_priorities")), default=now)
    late_s = (now - earliest) / SECOND
    if late_s <= OVERDUE_S:
        yield ok("due jobs", "each is queued when its time comes")
    else:
        yield problem(
            "due jobs",
            f"a PENDING job was due {span_text(late_s)} ago and was not queued",
            "start a worker (`rota workers` lists those that run); if there are some, see their logs and clocks",
        )


def outbox(db: Db, now: Instant) -> Iterator[Finding]:
    """Look for messages that should have been delivered."""
    count, oldest = db.rows("outbox_backlog", before=now - OVERDUE_S * SECOND)[0]
    if not count:
        yield ok("outbox", "no message is overdue")
    else:
        late = span_text((now - oldest) / SECOND)
        yield advice("outbox", f"{count:,} messages are overdue, the oldest by {late}", "see whether their targets answer, and worker logs")


def webhooks(db: Db, settings: Settings, now: Instant) -> Iterator[Finding]:
    """Look for webhooks that have failed for long."""
    failing = db.rows("failing_endpoints", before=now - round(settings.webhook_failing * SECOND), limit=SHOWN)
    for endpoint_id, organization, since, error in failing:
        text = f"webhook {dashed(endpoint_id)} of {organization} has failed for {span_text((now - since) / SECOND)}: {error or 'no answer'}"
        yield advice("webhooks", text, "see its receiver; `rota webhook deliveries` says more, `rota webhook update ID --disabled` ends it")
    if not failing:
        yield ok("webhooks", "none has failed for long")
