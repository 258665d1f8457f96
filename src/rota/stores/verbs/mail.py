"""Messages of ends in SQL: written in the transaction of the move, by whatever ends a run.

Every end of a job passes here, as it passes the figures. Where nobody is to be told, nothing is asked for it: a turn knows it from its
first look, and ends that belong to no turn from theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec

from rota.errors import InvalidOption
from rota.model.states import Status
from rota.model.values import Instant, NewRow, dashed
from rota.model.webhooks import ERROR_MAX, RUN_EVENTS, EndedRun, event_of, lane_of, payload_of
from rota.stores.verbs.db import Db
from rota.stores.verbs.queue import numbers_json

log = logging.getLogger("rota.store")
_encode = msgspec.json.Encoder().encode
_strings = msgspec.json.Decoder(list[str]).decode
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
    if event is None:
        return None
    lane = lane_for((endpoint_id, url, events, job_types), event, end.job_type, end.organization_id)
    if lane is None:
        return None
    return event, end.job_id, end.run_id, url, payload_of(event, end, result), endpoint_id, end.organization_id, lane


def lane_for(endpoint: tuple[str, str, str, str], event: str, job_type: str, organization: str) -> str | None:
    """Return the lane of a message to an endpoint (its id, URL, events and job types); None if it does not want it or can't be read."""
    endpoint_id, url, events, job_types = endpoint
    try:
        wanted, types = _filters(events, job_types)
        return lane_of(url, organization) if event in wanted and (not types or job_type in types) else None
    except ValueError:
        log_skipped(endpoint_id, ", ".join(name_flaws(url, events, job_types)))
        return None


@lru_cache(maxsize=1000)
def _filters(events: str, job_types: str) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(_strings(events)), frozenset(_strings(job_types))


@lru_cache(maxsize=1000)
def log_skipped(endpoint_id: str, why: str) -> None:
    """Log once that an endpoint gets no messages."""
    log.error("webhook %s gets no messages: %s. `rota repair` disables it", dashed(endpoint_id), why)


def name_flaws(url: str, events: str, job_types: str) -> dict[str, str]:
    """Return what can't be read of an endpoint: what is said of it, and the name of the column."""
    flaws: dict[str, str] = {}
    for name, read, value in (("url", urlsplit, url), ("events", _strings, events), ("job_types", _strings, job_types)):
        try:
            read(value)
        except ValueError:
            flaws[f"its {name} can't be read"] = name
    return flaws


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
