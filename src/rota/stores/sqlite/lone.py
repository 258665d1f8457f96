"""One plain job, the shortest way into the queue: its values stand in the order of their statement, and nothing is looked up by name."""

from __future__ import annotations

from typing import Any

from rota.model.ordering import GAP
from rota.model.values import Enqueued, Instant, NewRow
from rota.stores.sqlite.connection import Db
from rota.stores.sqlite.statements import statement
from rota.stores.verbs import queue

PLACES = (
    *("job_id", "params", "definitions", "organization_id", "priority", "gap", "template_id", "job_type", "origin", "run_at"),
    *("expires_at", "unique_key", "owner", "max_retries", "max_crashes", "backoff", "timeout", "executor", "meta", "lane", "now"),
)
"""What `insert_job_at_once` takes, in its order: that of `values`."""


def values(row: NewRow, now: Instant, definitions: int) -> tuple[Any, ...] | None:
    """Return what the statement takes for one job; None for one that needs a second look."""
    if row.run_at > now or not row.lane or row.tags is not None or not queue.is_single(row):
        return None
    policy, template_id = row.policy, row.template_id
    return (
        bytes.fromhex(row.job_id),
        row.params,
        definitions,
        row.organization_id,
        policy.priority,
        GAP,
        None if template_id is None else bytes.fromhex(template_id),
        row.job_type,
        row.origin,
        row.run_at,
        row.expires_at,
        row.unique_key,
        row.owner,
        policy.max_retries,
        policy.max_crashes,
        policy.backoff,
        policy.timeout,
        policy.executor,
        row.meta,
        row.lane,
        now,
    )


def add(db: Db, row: NewRow, given: tuple[Any, ...]) -> Enqueued | None:
    """Write a job by the one statement; None, and nothing is written, where something needs a second look."""
    # While a statement writes nobody else does: whoever has its key already has committed, and the index refuses it.
    try:
        number, position = db.add_at_once(statement("insert_job_at_once").text, given)
    except db.conflict:
        # The gate is shut, or it is there already: the way that looks at each will say.
        return None
    return Enqueued(row.job_id, row.job_id, number, "QUEUED", position, existing=False)
