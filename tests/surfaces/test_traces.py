"""A trace goes from enqueue to run, over whichever executor; off, it is not there at all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from rota import Context, PermanentError, Rota, Settings, compose
from rota.errors import InvalidOption
from tests.support.pace import patient
from tests.support.waiting import eventually

_exporter = InMemorySpanExporter()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        # A process has one provider, for good.
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_exporter))
        trace.set_tracer_provider(provider)
    _exporter.clear()
    yield _exporter
    _exporter.clear()


@pytest.fixture
def settings() -> Settings:
    return Settings(traces="on")


def which_trace() -> str:
    return f"{trace.get_current_span().get_span_context().trace_id:032x}"


async def which_trace_later() -> str:
    return which_trace()


def run_spans(spans: InMemorySpanExporter, count: int) -> list[ReadableSpan]:
    def ended() -> list[ReadableSpan] | None:
        found = [span for span in spans.get_finished_spans() if span.name.startswith("run ")]
        return found if len(found) >= count else None

    return eventually(ended, what=f"{count} spans of runs")


@pytest.mark.parametrize(
    ("executor", "function"), [("thread", which_trace), ("async", which_trace_later), ("inline", which_trace), ("process", which_trace)]
)
def test_a_handler_runs_in_the_trace_of_its_enqueue(live: Rota, spans, executor, function):
    live.job(executor=executor, name="ask")(function)
    with trace.get_tracer("test").start_as_current_span("request") as request:
        job = live.enqueue("ask")
    live.start()
    run = live.wait(job.id, 30)
    assert run is not None
    assert run.result == f"{request.get_span_context().trace_id:032x}"


def test_a_run_is_a_child_of_its_enqueue_and_linked_to_it(rota: Rota, spans):
    rota.job(name="ask")(which_trace)
    job = rota.enqueue("ask")
    rota.turn()
    (run,) = run_spans(spans, 1)
    (enqueue,) = [span for span in spans.get_finished_spans() if span.name == "enqueue ask"]
    assert (enqueue.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert run.parent.span_id == enqueue.context.span_id
    assert run.context.trace_id == enqueue.context.trace_id
    assert [link.context.span_id for link in run.links] == [enqueue.context.span_id]
    assert run.attributes["messaging.message.id"] == job.id
    assert (run.attributes["rota.job.number"], run.attributes["rota.job.attempt"]) == (job.number, 1)
    assert run.attributes["rota.outcome"] == "completed"
    assert rota.jobs.get(job.id).meta["traceparent"].split("-")[1] == f"{enqueue.context.trace_id:032x}"


def test_each_attempt_is_a_run_of_the_same_trace_and_a_failure_is_an_error(rota: Rota, clock, spans):
    @rota.job(max_retries=1)
    def boom() -> None:
        raise ValueError("no such address")

    rota.enqueue("boom")
    rota.turn()
    clock.advance(hours=1)
    rota.turn()
    first, second = run_spans(spans, 2)
    assert (first.attributes["rota.job.attempt"], second.attributes["rota.job.attempt"]) == (1, 2)
    assert first.parent.span_id == second.parent.span_id
    assert first.context.span_id != second.context.span_id
    assert first.status.status_code is StatusCode.ERROR
    assert "no such address" in first.status.description


def test_what_a_handler_enqueues_belongs_to_its_run(rota: Rota, spans):
    rota.job(name="ask")(which_trace)

    @rota.job
    def outer() -> None:
        rota.enqueue("ask")

    rota.enqueue("outer")
    rota.turn()
    rota.turn()
    runs = {span.name: span for span in run_spans(spans, 2)}
    inner = next(span for span in spans.get_finished_spans() if span.name == "enqueue ask")
    assert inner.parent.span_id == runs["run outer"].context.span_id
    assert len({span.context.trace_id for span in spans.get_finished_spans()}) == 1


def outer_call(ctx: Context) -> list[str]:
    return [which_trace(), ctx.enqueue("ask", meta={"own": 1}).id]


@pytest.mark.parametrize("executor", ["thread", "process", "inline"])
def test_so_does_what_it_enqueues_through_its_context(live: Rota, spans, executor):
    live.job(name="ask")(which_trace)
    live.job(name="outer", executor=executor)(outer_call)
    with live.running(concurrency=2):
        outer, inner = live.wait(live.enqueue("outer").id, timeout=patient(30)).result
        assert live.wait(inner, timeout=patient(30)).result == outer
    assert live.jobs.get(inner).meta["own"] == 1
    # In a handler process the span is that process's own.
    assert len([span for span in spans.get_finished_spans() if span.name == "enqueue ask"]) == (executor != "process")


def test_jobs_that_come_together_share_one_span(rota: Rota, spans):
    rota.job(name="ask")(which_trace)
    rota.enqueue_many([("ask", {}) for _ in range(3)])
    (enqueue,) = [span for span in spans.get_finished_spans() if span.name == "enqueue ask"]
    assert enqueue.attributes["messaging.batch.message_count"] == 3
    rota.turn()
    assert {span.parent.span_id for span in run_spans(spans, 3)} == {enqueue.context.span_id}


@pytest.mark.parametrize("meta", [{"traceparent": "nonsense"}, {"traceparent": 3}, {"other": "kept"}])
def test_what_somebody_has_put_into_meta_stays_and_harms_nobody(rota: Rota, spans, meta):
    rota.job(name="ask")(which_trace)
    job = rota.enqueue("ask", meta=meta)
    rota.turn()
    assert rota.jobs.get(job.id).meta | meta == rota.jobs.get(job.id).meta
    assert len(run_spans(spans, 1)) == 1


def test_a_job_without_a_trace_begins_one(rota: Rota, spans, clock):
    from datetime import timedelta

    rota.job(name="ask")(which_trace)
    rota.schedule("often", "ask", every=timedelta(minutes=1))
    clock.advance(minutes=1)
    rota.turn()
    (run,) = run_spans(spans, 1)
    assert run.parent is None
    assert run.links == ()


def test_a_permanent_failure_keeps_its_status_on_the_event_loop_too(live: Rota, spans):
    @live.job(executor="async", max_retries=0)
    async def boom() -> None:
        raise PermanentError("never")

    job = live.enqueue("boom")
    live.start()
    live.wait(job.id, 30)
    (run,) = run_spans(spans, 1)
    assert run.status.status_code is StatusCode.ERROR


def test_off_nothing_is_carried_and_nothing_recorded(tmp_path, spans):
    rota = Rota(tmp_path / "off.db")
    rota.job(name="ask")(which_trace)
    try:
        with trace.get_tracer("test").start_as_current_span("request"):
            job = rota.enqueue("ask")
        rota.turn()
        assert rota.jobs.get(job.id).meta is None
        assert [span.name for span in spans.get_finished_spans()] == ["request"]
    finally:
        rota.close()


def test_off_opentelemetry_is_not_even_imported(tmp_path):
    code = f"""
import sys
from rota import Rota
rota = Rota({str(tmp_path / "rota.db")!r})
rota.job(name="ask")(lambda: None)
rota.enqueue("ask")
rota.turn()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=patient(50)).stdout == "[]\n"


def test_without_opentelemetry_the_setting_is_refused_with_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "rota.executors.traces", None)
    with pytest.raises(InvalidOption, match=r"install Rota with its extra traces.*\.\[traces\]"):
        compose.make_tracing()
