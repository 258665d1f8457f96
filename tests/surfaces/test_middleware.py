"""Middleware surrounds every handler, in the handler's own thread, loop or process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import closing, contextmanager, nullcontext
from importlib import import_module

import pytest

from rota import Retry, Rota, Skip
from rota.errors import InvalidHandler, JobCancelled
from rota.executors import locate
from rota.executors.locate import runs_apart
from rota.local_workers import make_worker
from rota.model.handler import inspect_handler
from rota.ports.executor import Readiness
from tests.engine import outcome_jobs
from tests.support.app_module import HEAD, import_app, write_app
from tests.support.pace import patient
from tests.support.prepared import prepare
from tests.support.runs import run_of
from tests.support.waiting import eventually

HANDLERS = """
def note(ctx, line):
    with open(ctx.params["path"], "a") as file:
        file.write(f"{ctx.template} {line} {os.getpid()} {threading.get_ident()}\\n")

@rota.middleware
def outer(ctx):
    note(ctx, "outer-in")
    try:
        yield
    except BaseException as error:
        note(ctx, f"outer-saw-{type(error).__name__}")
        raise
    finally:
        note(ctx, "outer-out")

@rota.middleware
@contextmanager
def inner(ctx):
    note(ctx, "inner-in")
    try:
        yield
    finally:
        note(ctx, "inner-out")

def plain(ctx, path, fail=False):
    note(ctx, "handler")
    if fail:
        raise KeyError("lost")
    return "plain"

def steps(ctx, path, fail=False):
    yield 10
    note(ctx, "handler")
    if fail:
        raise KeyError("lost")
    yield 20
    return "steps"

async def coroutine(ctx, path, fail=False):
    note(ctx, "handler")
    if fail:
        raise KeyError("lost")
    return "coroutine"

async def async_steps(ctx, path, fail=False):
    yield 10
    note(ctx, "handler")
    if fail:
        raise KeyError("lost")
    yield 20

for place in {places!r}:
    for handler in {handlers}:
        rota.job(handler, name=handler.__name__, executor=place, max_retries=0)
"""

NO_LICENCE = """
if os.getpid() != %d:
    raise ImportError("no licence here")

@rota.middleware
def around(ctx):
    yield
"""

SYNC, ASYNC = "(plain, steps)", "(coroutine, async_steps)"
PLACES = {
    "inline": (["inline"], "(plain, steps, coroutine, async_steps)"),
    "thread": (["thread"], SYNC),
    "async": (["async"], ASYNC),
    "process": (["process"], "(plain, steps, coroutine, async_steps)"),
}


def run_all(app, place: str, **params) -> dict[str, object]:
    """Run each handler of the app once; return their runs by name."""
    names = sorted(app.rota._session.registry.handlers)
    jobs = {name: app.rota.enqueue(name, params) for name in names}
    if place == "inline":
        app.rota.turn()
        return {name: run_of(app.rota, job.id) for name, job in jobs.items()}
    with app.rota.running(concurrency=2):
        return {name: app.rota.wait(job.id, timeout=patient(30)) for name, job in jobs.items()}


@pytest.mark.parametrize("place", PLACES)
def test_it_surrounds_every_kind_of_handler_where_the_handler_runs(tmp_path, monkeypatch, place):
    places, handlers = PLACES[place]
    app = import_app(monkeypatch, tmp_path, HANDLERS.replace("{places!r}", repr(places)).replace("{handlers}", handlers))
    notes = tmp_path / "notes"
    runs = run_all(app, place, path=str(notes))
    failed = run_all(app, place, path=str(notes), fail=True)
    app.rota.close()
    assert {name: run.result for name, run in runs.items()} == {name: None if name == "async_steps" else name for name in runs}
    lines = [line.split() for line in notes.read_text().splitlines()]
    for name in runs:
        mine = [words for words in lines if words[0] == name]
        trail = ["outer-in", "inner-in", "handler", "inner-out"]
        assert [words[1] for words in mine] == [*trail, "outer-out", *trail, "outer-saw-KeyError", "outer-out"], name
        half = mine[:5]
        assert len({tuple(words[2:]) for words in half}) == 1, "all in one process and one thread"
        assert (half[0][2] != str(os.getpid())) is (place == "process")
        assert (failed[name].status, "KeyError" in failed[name].error) == ("FAILED", True)
        assert failed[name].traceback.splitlines()[1].endswith(f"in {name}"), "the traceback begins in the handler"


def test_the_first_registered_is_the_outermost_and_one_registered_twice_is_called_once(rota: Rota):
    trail: list[str] = []

    def named(name: str):
        def around(ctx):
            trail.append(f"{name} {ctx.template} {ctx.attempt} {ctx.organization} {ctx.number} {ctx.id}")
            yield
            trail.append(name)

        return around

    first = rota.middleware(named("first"))
    rota.middleware(named("second"))
    rota.middleware(first)
    rota.job(lambda: None, name="act")
    job = rota.enqueue("act")
    rota.turn()
    facts = f"act 1 default {job.number} {job.id}"
    assert trail == [f"first {facts}", f"second {facts}", "second", "first"]


def test_a_class_with_enter_and_exit_is_middleware_too(rota: Rota):
    seen = []

    @rota.middleware
    class Seen:
        def __init__(self, ctx) -> None:
            self.ctx = ctx

        def __enter__(self) -> None:
            seen.append(self.ctx.template)

        def __exit__(self, kind, error, frames) -> None:
            seen.append(kind)

    @rota.job(max_retries=0)
    def fails() -> None:
        raise OSError("no disk")

    rota.enqueue("fails")
    rota.turn()
    assert seen == ["fails", OSError]


@pytest.mark.parametrize(
    ("raised", "status"), [(ValueError("no tenant"), "DEAD_LETTER"), (Skip("not today"), "SKIPPED"), (Retry("busy", after=60), "FAILED")]
)
def test_what_it_raises_counts_as_the_handlers_own(rota: Rota, raised, status):
    entered = []

    @rota.middleware
    def outer(ctx):
        try:
            yield
        finally:
            entered.append("outer left")

    @rota.middleware
    def refuses(ctx):
        raise raised
        yield

    rota.job(lambda: entered.append("handler"), name="act", max_retries=1 if status == "FAILED" else 0)
    job = rota.enqueue("act")
    rota.turn()
    assert str(rota.jobs.get(job.id).status) == status
    assert entered == ["outer left"]
    if status == "DEAD_LETTER":
        run = run_of(rota, job.id)
        assert run.error == "ValueError: no tenant"
        assert "in refuses" in run.traceback
        assert "rota/executors" not in run.traceback


def test_it_may_turn_an_exception_into_another_or_suppress_it(rota: Rota):
    @rota.middleware
    def translates(ctx):
        try:
            yield
        except KeyError as error:
            raise Skip(f"gone: {error}") from error
        except OSError:
            pass

    @rota.job
    def fails(kind: str):
        raise {"key": KeyError("7"), "os": OSError("no disk")}[kind]

    @rota.job
    def fails_late():
        yield 1
        raise OSError("no disk")

    jobs = [rota.enqueue("fails", {"kind": "key"}), rota.enqueue("fails", {"kind": "os"}), rota.enqueue("fails_late")]
    rota.turn()
    assert [str(rota.jobs.get(job.id).status) for job in jobs] == ["SKIPPED", "COMPLETED", "COMPLETED"]
    assert run_of(rota, jobs[2].id).result is None


def test_a_generator_that_yields_no_progress_fails_inside_its_middleware(rota: Rota):
    seen = []

    @rota.middleware
    def watches(ctx):
        try:
            yield
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    @rota.job(max_retries=0)
    def odd():
        yield "half"

    rota.enqueue("odd")
    rota.turn()
    assert seen == ["InvalidProgress"]


def test_params_that_do_not_fit_never_reach_it(rota: Rota, clock):
    seen = []

    @rota.middleware
    def watches(ctx):
        seen.append(ctx.params)
        yield

    with closing(Rota(rota.store.url, clock=clock)) as producer:
        producer.job(lambda size: None, name="act")
        jobs = [producer.enqueue("act", {"size": 3})]
    rota.job(lambda: None, name="act", max_retries=0)
    jobs.append(rota.enqueue("act"))
    rota.turn()
    assert [str(rota.jobs.get(job.id).status) for job in jobs] == ["QUEUED", "COMPLETED"]
    assert seen == [{}]


def test_what_is_no_middleware_is_refused_with_the_remedy(rota: Rota):
    async def later(ctx):
        yield

    with pytest.raises(InvalidHandler, match=r"later\(\) is async.*write it as `def`"):
        rota.middleware(later)
    with pytest.raises(InvalidHandler, match="can't be called"):
        rota.middleware("timing")
    rota.middleware(lambda ctx: None)
    rota.job(lambda: None, name="act", max_retries=0)
    job = rota.enqueue("act")
    rota.turn()
    assert "returned None: yield once, or return a context manager" in run_of(rota, job.id).error


def test_a_cancelled_task_is_seen_as_cancelled_and_middleware_is_left(live: Rota):
    seen, waiting = [], threading.Event()

    @live.middleware
    def watches(ctx):
        try:
            yield
        except BaseException as error:
            seen.append(type(error))
            raise

    @live.job
    async def sleeps() -> None:
        waiting.set()
        await asyncio.sleep(3600)

    job = live.enqueue("sleeps")
    with live.running():
        assert waiting.wait(patient(20))
        live.jobs.cancel(job.id)
        with pytest.raises(JobCancelled):
            live.wait(job.id, timeout=patient(20))
    assert seen == [asyncio.CancelledError]
    assert str(live.jobs.get(job.id).status) == "CANCELLED"


def test_without_middleware_a_plain_handler_takes_not_one_step_more(live: Rota):
    live.job(lambda: None, name="act")
    counts = {}
    for registered in (False, True):
        if registered:
            live.middleware(lambda ctx: nullcontext())
        jobs = live.enqueue_many([("act", {})] * 20)
        with counted_calls("rota.middleware", "rota.executors.attempt", "rota.hooks") as calls, live.running(concurrency=1):
            assert all(live.wait(job, timeout=patient(20)) for job in jobs)
        counts[registered] = len(calls)
    assert (counts[False], counts[True] >= 20) == (0, True)


@contextmanager
def counted_calls(*modules: str):
    """Note each call of a function of these modules by threads that start in the block."""
    calls: list[str] = []

    def note(frame, event, _argument) -> None:
        if event == "call" and frame.f_globals.get("__name__") in modules:
            calls.append(frame.f_code.co_qualname)

    threading.setprofile(note)
    try:
        yield calls
    finally:
        threading.setprofile(None)


# ---- handler processes ----------------------------------------------------------------------------------------


def test_a_handler_process_without_the_rota_refuses_to_start(live: Rota):
    live.middleware(lambda ctx: nullcontext())
    live.job(outcome_jobs.fine, executor="process")
    with pytest.raises(InvalidHandler, match=r"can't find the middleware.*at the module level"):
        live.start()


def test_a_suspect_is_not_run_in_a_process_that_lacks_the_middleware(live: Rota):
    handler = inspect_handler("fine", outcome_jobs.fine, "thread")
    assert runs_apart(handler, live)
    live.middleware(lambda ctx: nullcontext())
    assert not runs_apart(handler, live)


def test_the_rota_is_looked_for_once_however_many_handlers_there_are(live: Rota, monkeypatch):
    searches = []
    monkeypatch.setattr(locate, "locate_app", searches.append)
    live.middleware(lambda ctx: nullcontext())
    for number in range(50):
        assert not runs_apart(inspect_handler(f"fine{number}", outcome_jobs.fine, "thread"), live)
    assert len(searches) == 1


def test_no_job_runs_in_a_process_that_can_not_import_the_rota(tmp_path, monkeypatch):
    app = import_app(monkeypatch, tmp_path, NO_LICENCE % os.getpid())
    app.rota.job(outcome_jobs.fine, executor="process", max_retries=0)
    job = app.rota.enqueue("fine")
    with app.rota.running(concurrency=1):
        run = app.rota.wait(job.id, timeout=patient(30))
    app.rota.close()
    assert run.status == "FAILED"
    assert run.error == "handler could not be loaded: ImportError: no licence here"


def test_a_process_that_can_not_import_the_rota_takes_no_suspect(tmp_path, monkeypatch):
    app = import_app(monkeypatch, tmp_path, NO_LICENCE % os.getpid())
    app.rota.job(outcome_jobs.fine)
    worker = make_worker(app.rota._session, app.rota._session.open(), 1)
    worker.start()
    try:
        eventually(lambda: worker._pool.readiness("fine") is Readiness.NEVER, within=30, what="the import fails")
    finally:
        worker.begin_stop()
        worker.finish()
        app.rota.close()


def test_process_start_is_called_once_in_each_process_before_its_first_job(tmp_path, monkeypatch):
    app = import_app(
        monkeypatch,
        tmp_path,
        f"""
@rota.on.process_start
def begin(event):
    with open({str(tmp_path / "starts")!r}, "a") as file:
        file.write(f"{{event.pid}} {{os.getpid()}} {{event.worker_pid}}\\n")
    os.environ["PREPARED"] = "yes"

@rota.on.process_start
def bad(event):
    raise RuntimeError("no cache")

@rota.job(executor="process")
def prepared():
    return [os.getpid(), os.environ.get("PREPARED")]
""",
    )
    jobs = [app.rota.enqueue("prepared") for _ in range(4)]
    with app.rota.running(concurrency=2):
        results = [app.rota.wait(job.id, timeout=patient(30)).result for job in jobs]
    app.rota.close()
    starts = [[int(word) for word in line.split()] for line in (tmp_path / "starts").read_text().splitlines()]
    assert all(pid == own and parent == os.getpid() for pid, own, parent in starts)
    pids = [pid for pid, *_ in starts]
    assert len(pids) == len(set(pids))
    assert {pid for pid, _ in results} <= set(pids)
    assert {word for _, word in results} == {"yes"}


def test_middleware_of_a_script_reaches_its_handler_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        HEAD.format(store=str(prepare(tmp_path / "rota.db")))
        + f"""
import contextvars
tenant = contextvars.ContextVar("tenant", default="nobody")

@rota.middleware
def bind(ctx):
    token = tenant.set(ctx.organization)
    yield
    tenant.reset(token)

@rota.job(executor="process")
def who():
    return [tenant.get(), os.getpid()]

if __name__ == "__main__":
    job = rota.enqueue("who")
    with rota.running(concurrency=1):
        print(rota.wait(job.id, timeout={patient(30)}).result[0])
    rota.close()
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=patient(60), check=False)
    assert (done.stdout, done.returncode) == ("default\n", 0), done.stderr


def test_rota_worker_runs_the_middleware_of_its_app_in_handler_processes(tmp_path):
    name = write_app(
        tmp_path,
        """
@rota.middleware
def around(ctx):
    os.environ["AROUND"] = ctx.template
    yield

@rota.job(executor="process")
def asks():
    return os.environ.get("AROUND")
""",
    )
    command = [sys.executable, "-m", "rota", "worker", "--app", f"{name}:rota"]
    worker = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    try:
        with closing(Rota(tmp_path / "rota.db")) as rota:
            eventually(lambda: "asks" in {template.name for template in rota.templates.list()}, within=30, what="the app is registered")
            assert rota.wait(rota.enqueue("asks").id, timeout=patient(30)).result == "asks"
    finally:
        worker.terminate()
        worker.wait(patient(30))


JOB = """
@rota.job(executor="process", max_retries=0)
def act() -> str:
    return os.environ.get("AROUND", "alone")
"""
AROUND = """
import os
from {app} import rota


@rota.middleware
def around(ctx):
    os.environ["AROUND"] = "surrounded"
    yield
"""


def test_a_handler_process_has_middleware_that_another_module_registered(tmp_path, monkeypatch):
    app = import_app(monkeypatch, tmp_path, JOB)
    (tmp_path / f"{app.__name__}_around.py").write_text(AROUND.format(app=app.__name__))
    import_module(f"{app.__name__}_around")
    job = app.rota.enqueue("act")
    with closing(app.rota), app.rota.running(concurrency=1):
        assert app.rota.wait(job.id, timeout=patient(30)).result == "surrounded"


def test_no_job_runs_in_a_process_that_was_started_before_its_middleware_was_registered(tmp_path, monkeypatch):
    app = import_app(monkeypatch, tmp_path, JOB)
    with closing(app.rota), app.rota.running(concurrency=1):
        assert app.rota.wait(app.rota.enqueue("act").id, timeout=patient(30)).result == "alone"
        app.rota.middleware(lambda ctx: nullcontext())
        run = app.rota.wait(app.rota.enqueue("act").id, timeout=patient(30))
    assert run.status == "FAILED"
    assert "the worker has 1 middleware and this handler process 0" in run.error
