"""A Context for tests that call a handler themselves, and drains that fail with the handler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from rota import Cancelled, Context, Rota, Snooze, testing
from rota.errors import InvalidOption, InvalidProgress


@pytest.fixture
def app(tmp_path):
    with closing(Rota(tmp_path / "real.db")) as made:
        yield made


def test_a_handler_is_called_with_a_context_of_its_own(app):
    @app.job
    def greet(ctx: Context, name: str) -> str:
        return f"{ctx.template} {ctx.organization} {name} {ctx.attempt} {ctx.resumed_from} {ctx.meta['by']} {ctx.params}"

    ctx = testing.context(attempt=2, resumed_from=7, meta={"by": "ada"}, template="greet", organization="acme", params={"name": "Bob"})
    assert greet(ctx, "Bob") == "greet acme Bob 2 7 ada {'name': 'Bob'}"
    assert ctx.number.endswith(".2")
    assert ctx.id != ctx.root_id
    assert (first := testing.context()).id == first.root_id


def test_what_the_handler_does_is_kept(app):
    @app.job
    def page(ctx: Context, number: int) -> None:
        ctx.progress(10)
        ctx.progress(20, "on page 2")
        ctx.checkpoint({"page": number})
        ctx.artifact("out.pdf")
        ctx.log.info("page %d\nof many", number)
        ctx.log.warning("slow")
        if number < 9:
            job = ctx.enqueue(page.options(priority="high", run_at=timedelta(minutes=1)).bind(number + 1))
            assert job.job_type == "page"

    ctx = testing.context()
    page(ctx, 3)
    assert ctx.progressed == [(10, None), (20, "on page 2")]
    assert ctx.checkpoints == [{"page": 3}]
    assert ctx.artifacts == ["out.pdf"]
    assert ctx.enqueued == [("page", {"number": 4}, {"priority": "high", "run_at": timedelta(minutes=1)})]
    assert ctx.logged == ["INFO page 3\nof many", "WARNING slow"]


def test_results_are_those_that_were_given(app):
    @app.job
    def part(number: int) -> int:
        return number

    @app.job
    def total(ctx: Context) -> int:
        return sum(ctx.results(part)) + len(list(ctx.results()))

    assert total(testing.context(results=[1, 2, None])) == 6
    with pytest.raises(InvalidOption, match="list of results"):
        testing.context(results="12")


def test_a_handler_that_is_asked_to_stop_stops():
    ctx = testing.context()

    def steps(ctx: Context) -> Iterator[int]:
        yield 1
        ctx.checkpoint()
        yield 2

    running = steps(ctx)
    assert next(running) == 1
    ctx.cancel()
    assert ctx.cancelled
    with pytest.raises(Cancelled):
        next(running)


def test_a_context_refuses_what_a_worker_refuses():
    with pytest.raises(InvalidProgress):
        testing.context().progress("half")
    with pytest.raises(InvalidOption, match="attempt"):
        testing.context(attempt=0)


def test_a_drain_that_raises_errors_ends_with_the_first_failure(app):
    ran = []

    @app.job(max_retries=1)
    def work(what: str) -> None:
        ran.append(what)
        if what == "bad":
            raise LookupError("no such order")
        if what == "later":
            raise Snooze(timedelta(hours=1))

    with testing.use(app) as kit:
        for what in ("good", "later", "bad", "next", "far away"):
            work.enqueue(what)
        with pytest.raises(LookupError, match="no such order") as caught:
            kit.drain(raise_errors=True)
        assert caught.value.__notes__ == ["raised by JOB-2026-00003 (work), attempt 1".replace("JOB-2026", kit.jobs()[2].number[:8])]
        assert ran[:3] == ["good", "later", "bad"]
        assert "far away" not in ran
    assert tuple(app.on.failed) == ()


def test_a_timeout_is_a_failure_without_an_exception(app):
    @app.job(timeout=5, max_retries=0)
    def slow() -> None:
        kit.clock.advance(seconds=6)

    with testing.use(app) as kit:
        slow.enqueue()
        with pytest.raises(AssertionError, match=r"\(slow\), attempt 1 failed: .*5 s"):
            kit.drain(raise_errors=True)
