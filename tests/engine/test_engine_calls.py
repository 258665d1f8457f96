"""A handler that enqueues, reads the results of what it waited for, and reads its meta: in all four executors."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from rota import Backoff, Context, Rota, Settings
from rota.errors import InvalidOption
from tests.engine import calling
from tests.support.locked import locked
from tests.support.pace import patient
from tests.support.proof import size
from tests.support.runs import run_of
from tests.support.waiting import eventually

FORMS = {"thread": "", "process": "", "async": "_async", "async, blocking": "_blocking"}
"""Where a handler runs, and how the function is called that does the same there."""
AT_ONCE = Backoff(base=0, jitter=0)


def register(rota: Rota, name: str, form: str, **options):
    rota.job(getattr(calling, f"{name}{FORMS[form]}"), name="work", executor=form.partition(",")[0], max_retries=0, **options)
    rota.job(name="other")(lambda text="": text)
    rota.job(calling.gives, name="gives")


def ran(rota: Rota, params: dict | None = None, **options):
    """Run one job of this form on a worker and return its run."""
    with rota.acting_as(None).running(concurrency=2):
        job = rota.enqueue("work", params, **options)
        run = rota.wait(job.id, timeout=patient(60))
    assert run.status == "COMPLETED", run.error
    return run


@pytest.mark.parametrize("form", FORMS)
def test_a_job_that_a_handler_enqueues_is_on_disk_when_the_call_has_returned(live: Rota, tmp_path, form):
    register(live, "enqueue", form)
    job_id, number, status, types = ran(live, {"database": str(tmp_path / "rota.db")}).result
    made = live.jobs.get(job_id)
    assert (made.number, made.status, made.job_type, made.priority, made.params) == (number, status, "other", 75, {"text": "ä"})
    assert types == ["work", "other"]
    assert made.run_at > datetime.now(UTC) + timedelta(minutes=30)
    assert list(made.meta) == ["from"]


@pytest.mark.parametrize("form", ["thread", "async", "async, blocking"])
def test_so_it_is_where_the_worker_itself_runs_the_handler(rota: Rota, tmp_path, form):
    register(rota, "enqueue", form)
    job = rota.enqueue("work", {"database": str(tmp_path / "rota.db")})
    rota.turn()
    assert rota.jobs.get(run_of(rota, job.id).result[0]).job_type == "other"


@pytest.mark.parametrize("form", ["thread", "process"])
def test_the_new_job_belongs_to_the_callers_organization_and_owner(live: Rota, tmp_path, form):
    register(live, "enqueue", form)
    live.organizations.create("acme")
    live.users.create("ada", organization="acme", role="user")
    run = ran(live.acting_as("ada"), {"database": str(tmp_path / "rota.db")})
    made = live.jobs.get(run.result[0])
    assert (made.organization, made.owner) == ("acme", "ada")


@pytest.mark.parametrize("form", ["thread", "process"])
def test_a_handler_can_enqueue_a_job_that_waits_for_another(live: Rota, form):
    register(live, "chained", form)
    child = live.jobs.get(ran(live, {"moment": (datetime.now(UTC) + timedelta(days=1)).isoformat()}).result)
    assert (child.status, child.blockers) == ("PENDING", 1)
    assert [edge.on_failure for edge in live.jobs.graph(child).edges] == ["run"]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_refused_is_raised_in_the_handler_as_the_same_error(live: Rota, form):
    register(live, "refused", form)
    name, text, _ = ran(live, {"name": "nobody"}).result
    with pytest.raises(Exception, match="nobody") as own:
        live.enqueue("nobody")
    assert (name, text) == (type(own.value).__name__, str(own.value))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"params": {"wrong": 1}}, "InvalidParams", "wrong"),
        ({"params": [1]}, "InvalidParams", "params must be an object"),
        ({"options": {"priority": "hihg"}}, "InvalidOption", "hihg"),
        ({"options": {"proirity": 1}}, "InvalidOption", "'proirity'"),
        ({"options": {"depends_on": "JOB-2026-99999"}}, "NotFound", "99999"),
        ({"options": {"actor": "eve"}}, "InvalidOption", "'actor'"),
    ],
)
@pytest.mark.parametrize("form", ["thread", "process"])
def test_bad_input_of_a_handler_is_named(live: Rota, form, given, error, words):
    register(live, "refused", form)
    name, text, _ = ran(live, given).result
    assert name == error
    assert words in text


@pytest.mark.parametrize("form", ["thread", "process"])
def test_an_error_keeps_what_it_knows(live: Rota, form):
    register(live, "refused", form)
    live.job(name="limited", submit_limit="1/1h")(lambda: None)
    live.enqueue("limited")
    name, _, members = ran(live, {"name": "limited"}).result
    assert name == "RateLimited"
    assert members["retry_after_s"] > 0


@pytest.mark.parametrize("form", ["thread", "process"])
def test_params_that_json_can_not_hold_are_refused_where_they_are_given(live: Rota, form):
    register(live, "unfit", form)
    assert ran(live).result.startswith("InvalidParams: params.text")


@pytest.mark.parametrize("form", ["thread", "process"])
def test_inside_a_transaction_of_the_same_store_it_is_refused(live: Rota, tmp_path, form):
    register(live, "inside_a_transaction", form)
    result = ran(live, {"database": str(tmp_path / "rota.db")}).result
    assert result.startswith("TransactionMisuse: this thread is inside `with rota.transaction()`")
    assert "ctx.enqueue" in result


@pytest.mark.parametrize("form", FORMS)
def test_results_of_parents_come_in_the_order_in_which_they_were_named(live: Rota, form):
    register(live, "results", form)
    with live.running(concurrency=2):
        parents = [live.enqueue("gives", {"value": value}) for value in ("a", {"b": [2]}, None)]
        job = live.enqueue("work", depends_on=[parents[1], parents[2], parents[0]])
        assert live.wait(job.id, timeout=patient(60)).result == [{"b": [2]}, None, "a"]


@pytest.mark.parametrize("form", FORMS)
def test_what_follows_a_group_reads_the_results_of_its_members(live: Rota, form):
    register(live, "results", form)
    with live.running(concurrency=2):
        group = live.group([("gives", {"value": n}) for n in range(3)], mode="parallel", then=("work", {}))
        assert live.wait(group.then.root_id, timeout=patient(60)).result == [0, 1, 2]


def test_a_job_that_waited_for_nobody_reads_no_results(rota: Rota):
    register(rota, "results", "thread")
    job = rota.enqueue("work")
    rota.turn()
    assert run_of(rota, job.id).result == []


@pytest.mark.parametrize("form", FORMS)
def test_results_are_selected_and_typed_by_a_task_or_a_handle(live: Rota, form):
    register(live, "typed", form)
    for task in (calling.build, calling.measure):
        live.job(task.__wrapped__, name=task.name, max_retries=0)
    with live.running(concurrency=2):
        parts = [live.enqueue("build", {"name": name}) for name in ("door", "broken", "wall")]
        widths = [live.enqueue("measure", {"width": width}) for width in (3, 0, 5)]
        parents = [parts[2], widths[0], parts[1], widths[1], parts[0], widths[2]]
        job = live.enqueue("work", {"one": parts[0].id}, depends_on=parents, on_parent_failure="run")
        run = live.wait(job.id, timeout=patient(60))
    assert run.result == ["wall 3.00 01.03.", "door 3.00 01.03.", "door 1.50", "3", "5"], run.error


@pytest.mark.parametrize("by", ["id", "number", "attempt"])
def test_a_handle_names_the_job_whose_result_is_read(rota: Rota, by):
    @rota.job(max_retries=1)
    def build(ctx: Context, name: str) -> calling.Part:
        if ctx.attempt == 1:
            raise ConnectionError("try again")
        return calling.Part(name, Decimal(1))

    @rota.job(max_retries=0)
    def use(ctx: Context, job: str) -> str:
        (part,) = ctx.results(build.handle(job))
        assert type(part) is calling.Part
        return part.name

    rota.job(calling.gives, name="gives")
    parents = [build.options(backoff=AT_ONCE).enqueue("door"), build.options(backoff=AT_ONCE).enqueue("wall")]
    while not all(parent.status().ended for parent in parents):
        rota.turn()
    attempts = rota.jobs.attempts(parents[1])
    job = {"id": parents[1].id, "number": parents[1].number, "attempt": attempts[1].id}[by]
    handle = use.options(depends_on=parents).enqueue(job)
    rota.turn()
    assert handle.result(timeout=0) == "wall"


def test_a_handle_without_a_task_has_plain_json(rota: Rota):
    rota.job(calling.build.__wrapped__, name="build")
    parent = rota.enqueue("build", {"name": "door"})

    @rota.job(max_retries=0)
    def use(ctx: Context) -> object:
        return list(ctx.results(parent))

    handle = use.options(depends_on=parent).enqueue()
    rota.turn(), rota.turn()
    assert handle.result(timeout=0) == [{"name": "door", "price": "1.50", "made": "2026-03-01"}]


def test_a_follower_of_a_group_selects_members_by_their_task(rota: Rota):
    @rota.job
    def width(value: int) -> int:
        return value

    @rota.job
    def color(value: str) -> str:
        return value

    @rota.job
    def report(ctx: Context) -> list[object]:
        return [sum(ctx.results(width)), ", ".join(ctx.results(color))]

    members = [width.bind(n) if n % 2 else color.bind(str(n)) for n in range(250)]
    group = rota.group(members, mode="parallel", then=report.bind())
    while not rota.jobs.get(group.then.root_id).status.ended:
        rota.turn()
    total, colors = rota.wait(group.then.root_id, timeout=0).result
    assert total == sum(range(1, 250, 2))
    assert colors == ", ".join(str(n) for n in range(0, 250, 2))


def test_what_was_not_waited_for_is_refused(rota: Rota):
    @rota.job
    def width(value: int) -> int:
        return value

    stranger = width.enqueue(1)
    errors = []

    @rota.job(max_retries=0)
    def use(ctx: Context) -> None:
        for given in (stranger, width.handle("JOB-2026-99999"), "width", width.bind(1), 3):
            try:
                list(ctx.results(given))
            except InvalidOption as error:
                errors.append(str(error))

    use.enqueue()
    rota.turn()
    assert [error.partition(":")[0] for error in errors] == [
        f"this job did not wait for {stranger.id}, so it has no result of it",
        "this job did not wait for JOB-2026-99999, so it has no result of it",
        "ctx.results('width')",
        "ctx.results(width.bind(value=1))",
        "ctx.results(3)",
    ]
    assert errors[-1].endswith("pass a task or a handle, or nothing for the results of all jobs that this one waited for")


@pytest.mark.parametrize("form", FORMS)
def test_a_handler_reads_its_meta_and_can_not_change_it(live: Rota, form):
    register(live, "meta", form)
    meta, words = ran(live, meta={"from": "anna", "n": 3}).result
    assert meta == {"from": "anna", "n": 3}
    assert "does not support item assignment" in words


def test_a_job_without_meta_has_none(rota: Rota):
    register(rota, "meta", "thread")
    job = rota.enqueue("work")
    rota.turn()
    assert run_of(rota, job.id).result[0] == {}


@pytest.fixture
def settings() -> Settings:
    return Settings(group_max=10_000, busy_timeout=0.1)


@pytest.mark.prove
def test_a_large_group_is_followed_and_summed_up(live: Rota):
    members = size(400, prove=10_000)
    live.job(calling.gives, name="gives")
    live.job(calling.sums, name="sums")
    with live.running(concurrency=4):
        group = live.group([("gives", {"value": n}) for n in range(members)], mode="parallel", then=("sums", {}))
        assert live.wait(group.then.root_id, timeout=patient(size(60, prove=300))).result == sum(range(members))
    assert [str(job.status) for job in live.jobs.attempts(group.then.root_id)] == ["COMPLETED"]


@pytest.mark.parametrize("form", ["thread", "process"])
def test_it_waits_through_a_time_in_which_the_store_can_not_be_written(live: Rota, tmp_path, form):
    register(live, "wait_for_it", form)
    with live.running(concurrency=2):
        job = live.enqueue("work", {"folder": str(tmp_path)})
        eventually((tmp_path / "waits").exists, within=30, what="the handler")
        with locked(tmp_path / "rota.db"):
            (tmp_path / "go").touch()
            time.sleep(0.2)
            assert not (tmp_path / "over").exists()
        live.wait(job.id, timeout=patient(60))
    assert (tmp_path / "over").read_text() == "enqueued"


@pytest.mark.parametrize("form", ["thread", "process"])
def test_a_handler_over_its_timeout_waits_no_longer(live: Rota, tmp_path, form):
    register(live, "wait_for_it", form, timeout=1)
    with live.running(concurrency=2):
        live.enqueue("work", {"folder": str(tmp_path)})
        eventually((tmp_path / "waits").exists, within=30, what="the handler")
        with locked(tmp_path / "rota.db"):
            (tmp_path / "go").touch()
            eventually((tmp_path / "over").exists, within=30, what="the end of its wait")


@pytest.mark.parametrize("how", ["task", "call"])
def test_a_handler_enqueues_a_task_or_a_call_with_its_options(rota: Rota, how):
    @rota.job(max_retries=0)
    def page(number: int) -> int:
        return number

    @rota.job(max_retries=0)
    def crawl(ctx: Context) -> str:
        before = page.options(run_at=timedelta(hours=1)).enqueue(1)
        call = page.options(priority="high", timeout=timedelta(minutes=5), depends_on=[before], meta={"a": 1}).bind(3)
        return (ctx.enqueue(call) if how == "call" else ctx.enqueue(page, {"number": 3}, priority="high", timeout="5m")).id

    handle = crawl.enqueue()
    rota.turn()
    made = rota.jobs.get(handle.result())
    assert (made.job_type, made.params, made.priority, made.timeout) == ("page", {"number": 3}, 75, 300.0)
    assert made.meta == ({"a": 1} if how == "call" else None)


def test_a_task_keeps_its_options_and_one_that_acts_as_somebody_is_refused(rota: Rota):
    @rota.job(max_retries=0)
    def page() -> None: ...

    @rota.job(max_retries=0)
    def crawl(ctx: Context) -> list[str]:
        made = ctx.enqueue(page.options(priority="high", unique_key="k"))
        try:
            ctx.enqueue(page.acting_as("bob"))
        except InvalidOption as error:
            return [made.id, str(error)]
        return [made.id, "taken"]

    handle = crawl.enqueue()
    rota.turn()
    made, refused = handle.result()
    assert (rota.jobs.get(made).priority, rota.jobs.get(made).unique_key) == (75, "k")
    assert "leave acting_as out" in refused
