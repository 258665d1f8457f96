"""What handlers take, by digest: recorded with their templates, and read by whoever compares a job with a handler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rota.model.definitions import Template
from rota.model.lanes import NewestParams, ParamNames, Takes
from rota.model.values import Instant
from rota.stores.verbs import lanes
from rota.stores.verbs.db import Db

_encode = msgspec.json.Encoder(order="sorted").encode
_names = msgspec.json.Decoder(ParamNames)


def stated_by(templates: Sequence[Template]) -> dict[str, Takes]:
    """Return what the handlers of templates take, by job type, where it is stated."""
    return {each.job_type: each.takes for each in templates if each.takes is not None}


def unrecorded(db: Db, stated: Mapping[str, Takes]) -> dict[str, Takes]:
    """Return those whose parameters the store does not know, or knows as older ones, or without the schema that is stated."""
    if not stated:
        return {}
    rows = db.rows("param_digests", with_schema=int(any(takes.schema is not None for takes in stated.values())))
    known = {(job_type, digest): (recorded_at, schema) for job_type, digest, recorded_at, schema in rows}
    newest: dict[str, tuple[Instant, str]] = {}
    for (job_type, digest), (recorded_at, _) in known.items():
        newest[job_type] = max(newest.get(job_type, (-1, "")), (recorded_at, digest))
    return {job_type: takes for job_type, takes in stated.items() if _is_news(job_type, takes, known, newest)}


def _is_news(
    job_type: str, takes: Takes, known: dict[tuple[str, str], tuple[Instant, str | None]], newest: dict[str, tuple[Instant, str]]
) -> bool:
    found = known.get((job_type, takes.digest))
    if found is None:
        return True
    return takes.schema is not None and (found[1] != takes.schema or newest[job_type][1] != takes.digest)


def record(db: Db, stated: Mapping[str, Takes], now: Instant) -> None:
    """Record what handlers take, by job type, and add the lane that their jobs will wait in."""
    for job_type, takes in stated.items():
        values = {"job_type": job_type, "digest": takes.digest, "schema": takes.schema, "now": now}
        if not db.change("add_param_digest", param_names=_encode(takes.names).decode(), **values) and takes.schema is not None:
            db.change("set_param_schema", **values)
        lanes.find(db, job_type, takes.queue, takes.digest)


def lane_for(db: Db, number: int, takes: Takes, now: Instant) -> int:
    """Return the lane of a job's type and queue for these parameters, adding what is not there."""
    job_type, queue = db.rows("type_and_queue", number=number)[0]
    db.change(
        "add_param_digest", job_type=job_type, digest=takes.digest, param_names=_encode(takes.names).decode(), schema=takes.schema, now=now
    )
    return lanes.find(db, job_type, queue, takes.digest)


def newest(db: Db, job_type: str) -> NewestParams | None:
    """Return what the handler takes that was recorded last."""
    row = db.row("newest_params", job_type=job_type)
    return None if row is None else NewestParams(row[0], _names.decode(row[1]), None if row[2] is None else msgspec.json.decode(row[2]))
