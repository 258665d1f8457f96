"""Messages of ends in SQL: written in the transaction of the move, by whatever ends a run.

Every end of a job passes here, as it passes the figures. Where nobody is to be told, nothing is asked for it: a turn knows it from its
first look, and ends that belong to no turn from theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from rota.errors import InvalidOption
from rota.model.states import Status
from rota.model.values import Instant, NewRow
from rota.model.webhooks import ERROR_MAX, RUN_EVENTS, EndedRun, event_of, lane_of, payload_of
from rota.stores.relational.db import Db
from rota.stores.relational.queue import numbers_json

_encode = msgspec.json.Encoder().encode
_FACTS = len(EndedRun.__struct_fields__)


def tell_of(db: Db, numbers: Sequence[int], now: Instant, *, hooked: bool | None = None) -> bool:
    """Write the messages of jobs that have just ended, successors and all; say whether there were any.

    `hooked`: whether there is any webhook at all, if the caller knows it already.
    """
    if not numbers or not (db.value("any_endpoints") if hooked is None else hooked):
        return False
    rows = [row for found in db.rows("hooked_ends", numbers=numbers_json(numbers), most=ERROR_MAX + 1) if (row := _message(found))]
    if rows:
        db.change("add_mail", rows=_encode(rows).decode(), now=now)
    return bool(rows)


def _message(found: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return one row of the outbox; None if the endpoint does not want to know of this end."""
    result, endpoint_id, url, events, job_types = found[_FACTS:]
    end = EndedRun(*found[:_FACTS])
    end.goes_on = bool(end.goes_on)
    event = event_of(Status(end.status), goes_on=end.goes_on)
    if event is None or not wants(events, job_types, event, end.job_type):
        return None
    payload = payload_of(event, end, result)
    return event, end.job_id, end.run_id, url, payload, endpoint_id, end.organization_id, lane_of(url, end.organization_id)


def wants(events: str, job_types: str, event: str, job_type: str) -> bool:
    """Say whether an endpoint with these filters wants an event about jobs of this type."""
    wanted, types = _filters(events, job_types)
    return event in wanted and (not types or job_type in types)


@lru_cache(maxsize=1000)
def _filters(events: str, job_types: str) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(msgspec.json.decode(events, type=list[str])), frozenset(msgspec.json.decode(job_types, type=list[str]))


def attach(db: Db, row: NewRow, now: Instant) -> None:
    """Let a URL be told of the ends of a chain that has just been added. The endpoint has the id of the chain."""
    if not db.value("signs", organization_id=row.organization_id):
        raise InvalidOption(
            f"organization {row.organization_id!r} has no secret to sign the messages of single jobs with: "
            "`rota webhook rotate --organization` makes one and shows it once"
        )
    db.change(
        "add_endpoint",
        endpoint_id=row.job_id,
        organization_id=row.organization_id,
        chain=row.job_id,
        url=row.webhook,
        description=None,
        events=_ALL,
        kinds="[]",
        with_result=0,
        actor=row.owner,
        now=now,
    )


_ALL = _encode(RUN_EVENTS).decode()
