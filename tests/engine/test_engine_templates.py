"""Templates as records: who wins, what is refused, what waiting jobs keep, and handlers that only a record names."""

import logging
import sys
from textwrap import dedent

import pytest

from rota import Backoff, Rota, Settings, Status
from rota.errors import InvalidHandler, JobCancelled, PayloadTooLarge, TemplateInUse, TemplateUnavailable, UnknownTemplate
from rota.executors.locate import find_handler, prefixes_of
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually

AT_ONCE = Backoff(base=0, jitter=0)


@pytest.fixture
def other(rota, clock):
    """Another process's view of the same store: it has no handlers."""
    made = Rota(rota.store.url, clock=clock, settings=rota.settings, seed=8)
    yield made
    made.close()


@pytest.fixture
def again(rota, clock, request):
    """Make further Rotas on the same store, as programs that are started again."""
    made = []

    def start(**settings):
        made.append(Rota(rota.store.url, clock=clock, settings=Settings(**settings), seed=9))
        return made[-1]

    yield start
    for each in made:
        each.close()


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.fixture
def send(rota):
    return rota.job(lambda to="": to, name="send", max_retries=3, backoff=AT_ONCE)


def test_a_template_that_nobody_knows_takes_no_job(rota, send):
    with pytest.raises(UnknownTemplate, match="no template 'sned' \\(did you mean 'send'\\?\\); known here: send"):
        rota.enqueue("sned")


def test_a_disabled_template_takes_no_job_until_it_is_enabled(rota, other, send):
    rota.enqueue("send")
    other.templates.disable("send")
    for caller in (rota, other):
        with pytest.raises(TemplateUnavailable, match=r"template 'send' is disabled .*: `rota template enable send`"):
            caller.enqueue("send")
        with pytest.raises(TemplateUnavailable):
            caller.enqueue_many([("send", {})])
    other.templates.enable("send")
    assert rota.jobs.get(rota.enqueue("send")).status is Status.QUEUED


def test_an_archived_template_takes_no_job_and_is_not_named_among_the_known(rota, send):
    rota.job(lambda: None, name="old")
    rota.templates.archive("old")
    with pytest.raises(TemplateUnavailable, match="template 'old' is archived"):
        rota.enqueue("old")
    with pytest.raises(UnknownTemplate, match="known here: send\\."):
        rota.enqueue("new")


def test_jobs_that_wait_for_a_disabled_template_still_run(rota, send):
    job = rota.enqueue("send")
    rota.templates.disable("send")
    rota.turn()
    assert rota.jobs.get(job.id).status is Status.COMPLETED


def test_a_payload_over_the_limit_of_its_template_is_refused_and_one_under_it_is_not(rota, send):
    rota.templates.update("send", payload_max=20)
    with pytest.raises(PayloadTooLarge, match=r"params take 26 bytes; the limit is 20 .*template"):
        rota.enqueue("send", {"to": "x" * 17})
    rota.enqueue("send", {"to": "x" * 11})
    rota.templates.update("send", payload_max=2**21)
    rota.enqueue("send", {"to": "x" * (2**20 + 1)})


def test_a_template_with_jobs_cannot_be_deleted_but_archived(rota, send):
    rota.enqueue("send")
    rota.turn()
    with pytest.raises(TemplateInUse, match=r"template 'send' has jobs .*`rota template archive send`"):
        rota.templates.delete("send")
    rota.templates.archive("send")
    assert rota.templates.list() == []
    assert [view.name for view in rota.templates.list(archived=True)] == ["send"]


# ---- a template edited while jobs wait -------------------------------------------------------------------------------


@pytest.mark.parametrize(("at_first", "edited", "executions"), [(3, 0, 4), (0, 5, 1)])
def test_jobs_that_wait_keep_their_own_policy_when_their_template_is_edited(rota, other, at_first, edited, executions):
    ran = []

    @rota.job(max_retries=at_first, backoff=AT_ONCE)
    def fails(ctx):
        ran.append(ctx.attempt)
        raise ValueError("always")

    job = rota.enqueue("fails")
    other.templates.update("fails", max_retries=edited, timeout=1, priority="low")
    while not rota.jobs.attempts(job.id)[-1].status.ended:
        rota.turn()
    tail = rota.jobs.attempts(job.id)[-1]
    assert (len(ran), tail.status, tail.max_retries, tail.timeout, tail.priority) == (executions, "DEAD_LETTER", at_first, 300.0, 50)
    later = rota.enqueue("fails")
    assert (rota.jobs.get(later).max_retries, rota.jobs.get(later).timeout, rota.jobs.get(later).priority) == (edited, 1.0, 25)


def test_an_edit_by_another_process_holds_for_the_next_job(rota, other, send):
    assert rota.jobs.get(rota.enqueue("send")).timeout == 300.0
    other.templates.update("send", timeout="5s", queue_ttl=60)
    job = rota.enqueue("send")
    assert (rota.jobs.get(job).timeout, (rota.jobs.get(job).expires_at - rota.jobs.get(job).created_at).total_seconds()) == (5.0, 60.0)
    other.templates.reset("send", "timeout")
    assert rota.jobs.get(rota.enqueue("send")).timeout == 300.0


# ---- who wins --------------------------------------------------------------------------------------------------------


def test_what_people_set_stays_on_top_when_the_code_starts_again_and_says_otherwise(rota, again, send):
    rota.templates.update("send", max_retries=1)
    later = again()
    later.job(lambda to="": to, name="send", max_retries=9, timeout=9)
    job = later.enqueue("send")
    assert (later.jobs.get(job).max_retries, later.jobs.get(job).timeout) == (1, 9.0)
    later.templates.reset("send")
    assert later.jobs.get(later.enqueue("send")).max_retries == 9


def test_what_the_code_no_longer_says_is_the_settings_again(rota, again, send):
    rota.enqueue("send")
    later = again(max_retries=2)
    later.job(lambda to="": to, name="send")
    assert later.jobs.get(later.enqueue("send")).max_retries == 2


def test_the_code_decides_its_function_and_where_it_runs_wherever_it_is(rota, other, send):
    rota.enqueue("send")
    other.templates.update("send", executor="process", handler="nowhere.at:all", timeout=3)
    job = rota.enqueue("send")
    assert (rota.jobs.get(job).executor, rota.jobs.get(job).timeout) == ("thread", 3.0)
    here, there = rota.templates.get("send"), other.templates.get("send")
    assert (here.handler, here.sources["handler"], here.handled_here) == (f"{__name__}:send.<locals>.<lambda>", "code", True)
    assert (there.handler, there.sources["handler"], there.handled_here) == ("nowhere.at:all", "people", False)


def test_the_first_line_of_a_docstring_describes_the_template(rota):
    @rota.job
    def documented():
        """Say what it is for.

        And more, which is not for lists.
        """

    @rota.job(description="Something else.")
    def described():
        """Say what it is for."""

    assert {view.name: view.description for view in rota.templates.list()} == {
        "documented": "Say what it is for.",
        "described": "Something else.",
    }


def test_a_template_that_was_deleted_comes_back_when_its_code_is_used(rota, other, send):
    rota.templates.list()
    rota.templates.update("send", timeout=1)
    other.templates.delete("send")
    assert other.templates.list() == []
    assert rota.jobs.get(rota.enqueue("send")).timeout == 300.0
    assert [view.name for view in other.templates.list()] == ["send"]


# ---- handlers that a record names ------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write modules that can be imported, and forget them afterwards.

    No others: what Rota imported for the first time in the meantime would be imported again, and have every class twice.
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    written = set()

    def write(name, text):
        written.add(name.partition(".")[0])
        path = tmp_path.joinpath(*name.split("."))
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".py").write_text(dedent(text))

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] in written]:
        del sys.modules[name]


HELLO = """
import os


def hello(name="you"):
    return f"Hello, {name}"


async def later(name="you"):
    return f"Later, {name}"


def where():
    return os.getpid()


class Desk:
    @staticmethod
    def bell():
        return "ding"
"""


FAILS = """
from rota import JobSet

jobs = JobSet()


@jobs.job(retry_on=(OSError,))
def fails(kind):
    raise {"os": OSError, "value": ValueError}[kind]("no")
"""


def result(rota, job):
    rota.turn()
    run = run_of(rota, job.id)
    return run and run.result


@pytest.mark.parametrize("path", ["lobby.desk:hello", "lobby.desk.hello"])
def test_a_worker_imports_the_handler_that_a_record_names(again, module, path):
    module("lobby.desk", HELLO)
    rota = again(handler_modules="lobby, other")
    rota.templates.update("greet", handler=path, max_retries=0)
    job = rota.enqueue("greet", {"name": "Ada"})
    assert result(rota, job) == "Hello, Ada"
    view = rota.templates.get("greet")
    assert (view.handler, view.handled_here, view.executor) == (path, True, "thread")


def test_a_record_that_names_a_task_brings_the_rules_of_the_task(again, module):
    module("lobby.tasks", FAILS)
    rota = again(handler_modules="lobby")
    rota.templates.update("fails", handler="lobby.tasks:fails", max_retries=1)
    tried = {kind: rota.enqueue("fails", {"kind": kind}) for kind in ("os", "value")}
    rota.turn()
    assert {kind: len(rota.jobs.attempts(job.id)) for kind, job in tried.items()} == {"os": 2, "value": 1}


@pytest.mark.parametrize("path", ["lobby.desk:Desk.bell", "lobby.desk.Desk.bell"])
def test_a_handler_may_be_inside_a_class(again, module, path):
    module("lobby.desk", HELLO)
    rota = again(handler_modules="lobby.desk")
    rota.templates.update("ring", handler=path)
    assert result(rota, rota.enqueue("ring")) == "ding"


def test_a_worker_learns_of_new_handlers_when_the_definitions_change(again, module):
    module("lobby.desk", HELLO)
    rota, client = again(handler_modules="lobby"), again()
    rota.turn()
    client.templates.update("greet", handler="lobby.desk:hello")
    job = client.enqueue("greet")
    assert result(rota, job) == "Hello, you"
    client.templates.update("greet", handler="lobby.desk:Desk.bell")
    job = client.enqueue("greet")
    assert result(rota, job) == "ding"


@pytest.mark.parametrize("handler_modules", ["", "lob", "lobby.desk.hello", "rota"])
def test_nothing_is_imported_that_the_setting_does_not_allow(again, module, handler_modules):
    module("lobby.desk", HELLO)
    rota = again(handler_modules=handler_modules)
    rota.templates.update("greet", handler="lobby.desk:hello")
    job = rota.enqueue("greet")
    rota.turn()
    assert rota.jobs.get(job.id).status is Status.QUEUED
    assert "lobby.desk" not in sys.modules
    assert "no live worker has a handler for greet" in str(rota.explain(job.id))


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("import nothing_of_that_name", "lobby.desk:hello", "importing lobby.desk failed with ModuleNotFoundError"),
        ("raise SystemExit(3)", "lobby.desk:hello", "importing lobby.desk failed with SystemExit: 3"),
        (HELLO, "lobby.desk:goodbye", "module lobby.desk has no goodbye"),
        (HELLO, "lobby.desk:os.getpid", "is not under handler_modules (lobby)"),
        (HELLO, "lobby.desk:__name__", "is not a function"),
        (HELLO, "lobby.bar:hello", "No module named 'lobby.bar'"),
        (HELLO, "lobby.bar.hello", "module lobby has no bar.hello"),
    ],
)
def test_a_handler_that_cannot_be_imported_is_told_once_and_its_jobs_wait(again, module, caplog, text, path, words):
    module("lobby.desk", text)
    rota = again(handler_modules="lobby")
    rota.templates.update("greet", handler=path)
    job = rota.enqueue("greet")
    rota.turn()
    rota.templates.pause("something_else")
    rota.turn()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 1
    assert words in told[0]
    assert "`rota template update greet --handler MODULE:FUNCTION`" in told[0]
    assert rota.jobs.get(job.id).status is Status.QUEUED


def test_a_worker_tries_again_when_the_template_was_changed(again, module, caplog):
    module("lobby.desk", HELLO)
    rota = again(handler_modules="lobby")
    rota.templates.update("greet", handler="lobby.desk:helo")
    job = rota.enqueue("greet")
    rota.turn()
    assert rota.jobs.get(job.id).status is Status.QUEUED
    rota.templates.update("greet", handler="lobby.desk:hello")
    assert result(rota, job) == "Hello, you"
    rota.templates.update("greet", handler="lobby.desk:gone")
    job = rota.enqueue("greet")
    rota.turn()
    assert rota.jobs.get(job.id).status is Status.QUEUED


def test_people_decide_where_a_handler_that_they_named_runs(again, module):
    module("lobby.desk", HELLO)
    client, worker = again(), again(handler_modules="lobby")
    client.templates.update("greet", handler="lobby.desk:hello")
    worker.turn()
    assert worker.templates.get("greet").executor == "thread"
    client.templates.update("greet", executor="process")
    worker.turn()
    assert (worker.templates.get("greet").executor, client.jobs.get(client.enqueue("greet")).executor) == ("process", "process")
    client.templates.reset("greet", "executor")
    worker.turn()
    assert (worker.templates.get("greet").executor, client.jobs.get(client.enqueue("greet")).executor) == ("thread", "thread")


def test_a_handler_that_is_named_out_of_bounds_is_no_longer_run(again, module):
    module("lobby.desk", HELLO)
    rota = again(handler_modules="lobby")
    rota.templates.update("greet", handler="lobby.desk:hello")
    assert result(rota, rota.enqueue("greet")) == "Hello, you"
    rota.templates.update("greet", handler="outside.desk:hello")
    job = rota.enqueue("greet")
    rota.turn()
    assert rota.jobs.get(job.id).status is Status.QUEUED
    assert not rota.templates.get("greet").handled_here


def test_a_handler_that_is_registered_wins_over_one_that_is_named(again, module):
    module("lobby.desk", HELLO)
    rota = again(handler_modules="lobby")
    rota.job(lambda: "mine", name="greet")
    rota.templates.update("greet", handler="lobby.desk:hello")
    assert result(rota, rota.enqueue("greet")) == "mine"


def test_a_module_that_registers_its_handlers_when_it_is_imported_is_heard(again, module, monkeypatch):
    rota = again(handler_modules="lobby")
    module("lobby.desk", "import lobby_rota\n@lobby_rota.rota.job\ndef greet():\n    return 'registered'\n")
    monkeypatch.setitem(sys.modules, "lobby_rota", type(sys)("lobby_rota"))
    sys.modules["lobby_rota"].rota = rota
    rota.templates.update("greet", handler="lobby.desk:greet")
    job = rota.enqueue("greet")
    assert result(rota, job) == "registered"


def test_a_client_learns_from_the_record_where_a_named_handler_runs(again, module):
    module("lobby.desk", HELLO)
    client, worker = again(), again(handler_modules="lobby")
    client.templates.update("greet", handler="lobby.desk:later")
    early = client.enqueue("greet")
    worker.turn()
    assert client.jobs.get(client.enqueue("greet")).executor == "async"
    assert client.templates.get("greet").sources["executor"] == "code"
    assert run_of(worker, early.id).result == "Later, you"


def test_a_named_handler_is_forgotten_with_its_template(again, module):
    module("lobby.desk", HELLO)
    client, worker = again(), again(handler_modules="lobby")
    client.templates.update("greet", handler="lobby.desk:hello")
    worker.turn()
    assert worker.templates.get("greet").handled_here
    client.templates.delete("greet")
    worker.turn()
    assert worker.templates.list() == client.templates.list() == []


@pytest.mark.parametrize(("function", "answer"), [("hello", "Hello, you"), ("later", "Later, you")])
def test_named_handlers_run_on_a_live_worker_also_those_of_jobs_that_were_there_before(live, module, function, answer):
    module("lobby.desk", HELLO)
    live.settings = Settings(handler_modules="lobby")
    live.templates.update("greet", handler=f"lobby.desk:{function}")
    early = live.enqueue("greet")
    with live.running():
        assert live.wait(early.id, 20).result == answer
        assert live.workers.list()[0].job_types == ("greet",)
        live.templates.update("other", handler="lobby.desk:hello")
        assert live.wait(live.enqueue("other").id, 20).result == "Hello, you"
        eventually(lambda: live.workers.list()[0].job_types == ("greet", "other"), what="the worker shows what it has learnt")


def test_a_named_handler_runs_in_a_process_of_its_own(live, module):
    module("lobby.desk", HELLO)
    live.settings = Settings(handler_modules="lobby")
    live.templates.update("where", handler="lobby.desk:where", executor="process")
    with live.running():
        import os

        assert live.wait(live.enqueue("where").id, 30).result != os.getpid()


def test_prefixes_are_whole_names_of_modules(module):
    module("lobby.desk", HELLO)
    assert prefixes_of(" shop.jobs ,, lobby. ,") == ("shop.jobs", "lobby")
    assert find_handler("lobby.desk:hello", ("lobby.des",)) is None
    assert find_handler("lobby.desk:hello", ("lobby.desk",))() == "Hello, you"
    with pytest.raises(InvalidHandler, match="'posix', which is not under"):
        find_handler("lobby.desk:os.getpid", ("lobby",))


# ---- the sample ------------------------------------------------------------------------------------------------------


def test_the_sample_job_runs_reports_and_fails_as_it_is_told(again):
    rota = again(handler_modules="rota.samples")
    rota.store.load(samples=True)
    well, badly, never = (rota.enqueue("sample_job", {"steps": 2, "seconds": 0, "fail": fail}) for fail in (False, True, "permanent"))
    rota.turn()
    run = run_of(rota, well.id)
    assert (run.result, run.progress, run.progress_message) == ({"steps": 2, "attempt": 1}, 100, "done")
    assert [rota.jobs.get(job.id).status for job in (well, badly, never)] == ["COMPLETED", "FAILED", "DEAD_LETTER"]
    assert rota.jobs.get(badly.id).max_retries == 3
    assert "asked to fail in step 2" in run_of(rota, badly.id).error


def test_the_sample_job_can_be_stopped(live):
    live.settings = Settings(handler_modules="rota.samples")
    live.store.load(samples=True)
    with live.running():
        job = live.enqueue("sample_job", {"seconds": 50})
        eventually(lambda: live.jobs.get(job.id).status is Status.RUNNING)
        live.jobs.cancel(job.id)
        with pytest.raises(JobCancelled):
            live.wait(job.id, patient(10))
    assert live.jobs.get(job.id).status is Status.CANCELLED
