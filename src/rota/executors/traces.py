"""Traces from enqueue to run, by OpenTelemetry: imported only where the setting `traces` is on.

What a trace goes on from travels in the job's `meta` as `traceparent`, the text of the W3C. A run is a child of the enqueue that
made its job, and linked to it; each attempt of a chain is a run of its own. Which spans are kept, and where they go, is for the
program to say: without a provider of its own nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, StatusCode

from rota.executors.attempt import Attempt
from rota.executors.invoke import run
from rota.model.decide import Crashed, Failed, Outcome, TimedOut
from rota.model.handler import Handler
from rota.model.settings import Settings
from rota.model.values import Claimed, dashed, number_text

FIELDS = ("traceparent", "tracestate")
"""What of a job's meta is a trace's."""
_meta = msgspec.json.Decoder(dict[str, object])


class OpenTelemetry:
    """Implements `rota.ports.tracing.Tracing`."""

    def carried(self, name: str, count: int) -> Mapping[str, str]:
        """Open a span of the caller's trace and return it as W3C text."""
        attributes: dict[str, str | int] = {"messaging.system": "rota", "messaging.destination.name": name}
        if count > 1:
            attributes["messaging.batch.message_count"] = count
        with trace.get_tracer("rota").start_as_current_span(f"enqueue {name}", kind=SpanKind.PRODUCER, attributes=attributes):
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
        return {field: carrier[field] for field in FIELDS if field in carrier}

    def with_trace(self, meta: str | None, carrier: Mapping[str, str]) -> str | None:
        """Put it into a job's meta."""
        if not carrier:
            return meta
        return msgspec.json.encode({**carrier, **(_meta.decode(meta) if meta else {})}).decode()

    def trace_of(self, meta: str) -> str | None:
        """Take it out again."""
        try:
            kept = _meta.decode(meta)
        except msgspec.MsgspecError:
            # Somebody wrote it past us.
            return None
        found = {field: value for field in FIELDS if isinstance(value := kept.get(field), str)}
        return msgspec.json.encode(found).decode() if found else None


def carried_meta(name: object, meta: Mapping[str, object] | None) -> dict[str, object]:
    """Return the meta of a job that a handler enqueues through its worker, with the context that continues its trace."""
    return {**OpenTelemetry().carried(str(name), 1), **(meta or {})}


def run_traced(handler: Handler, job: Claimed, attempt: Attempt | None, settings: Settings) -> Outcome:
    """Call a handler as `run` does, inside a span."""
    with running(job) as ended:
        outcome = run(handler, job, attempt, settings)
        ended(outcome)
    return outcome


@contextmanager
def running(job: Claimed) -> Iterator[Callable[[Outcome], None]]:
    """Open the span of a run; what is yielded takes the outcome. What the handler opens, or enqueues, belongs to it."""
    carrier = {} if job.trace is None else {field: str(value) for field, value in _meta.decode(job.trace).items()}
    before = propagate.extract(carrier, context=context.Context())
    begun = trace.get_current_span(before).get_span_context()
    links = [Link(begun)] if begun.is_valid else []
    tracer = trace.get_tracer("rota")
    with tracer.start_as_current_span(
        f"run {job.job_type}", context=before, kind=SpanKind.CONSUMER, attributes=_attributes(job), links=links
    ) as span:
        yield lambda outcome: _note(span, outcome)


def _attributes(job: Claimed) -> dict[str, str | int]:
    return {
        "messaging.system": "rota",
        "messaging.destination.name": job.job_type,
        "messaging.message.id": dashed(job.job_id),
        "rota.job.number": number_text(job.root_id, job.root_number, job.attempt),
        "rota.job.attempt": job.attempt,
        "rota.job.organization": job.organization_id,
        "rota.run.id": dashed(job.run_id),
    }


def _note(span: Span, outcome: Outcome) -> None:
    span.set_attribute("rota.outcome", type(outcome).__name__.lower())
    if isinstance(outcome, Failed):
        span.set_status(StatusCode.ERROR, outcome.error)
    elif isinstance(outcome, Crashed | TimedOut):
        span.set_status(StatusCode.ERROR, type(outcome).__name__)
