"""Where traces meet the engine: rows on their way in, and jobs that were just claimed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rota.errors import StoreError
from rota.model.values import Claimed, NewRow
from rota.ports.store import Store
from rota.ports.tracing import Tracing

log = logging.getLogger("rota.traces")


def carry(tracing: Tracing, rows: Sequence[NewRow]) -> None:
    """Let new jobs carry what their runs go on from: one span for each, or one for all of a type that come together.

    One that carries it already, as what a handler enqueues through its worker does, needs no other.
    """
    by_type: dict[str, list[NewRow]] = {}
    for row in rows:
        if row.meta is not None and tracing.trace_of(row.meta) is not None:
            continue
        by_type.setdefault(row.job_type, []).append(row)
    for job_type, same in by_type.items():
        carrier = tracing.carried(job_type, len(same))
        for row in same:
            row.meta = tracing.with_trace(row.meta, carrier)


def take_up(tracing: Tracing, store: Store, claimed: Sequence[Claimed]) -> None:
    """Look up what claimed jobs carry. A trace that can't be read is none: it must not cost anybody a job."""
    try:
        metas = store.metas([job.number for job in claimed])
    except StoreError as error:
        log.warning("could not read the trace contexts of jobs; they start new traces: %s", error)
        return
    for job in claimed:
        meta = metas.get(job.number)
        job.trace = None if meta is None else tracing.trace_of(meta)
