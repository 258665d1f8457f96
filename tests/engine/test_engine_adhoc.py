"""Jobs without a template: a function that is named when the job is enqueued, within what the settings allow."""

from __future__ import annotations

import sys
from contextlib import closing
from textwrap import dedent

import pytest

from rota import Actor, NewJob, Rota, Settings
from rota.errors import InvalidHandler, InvalidOption, InvalidParams, PermissionDenied, TransactionMisuse, UnknownTemplate
from rota.stores.verbs import definitions
from tests.stores.desk import ANNA
from tests.support.pace import patient
from tests.support.runs import run_of
from tests.support.waiting import eventually

CODE = """
    import os
    from rota import Context

    ran = []

    def hello(name: str = "you") -> str:
        ran.append(name)
        return f"Hello, {name}"

    async def later(name: str) -> str:
        return f"later, {name}"

    def fails() -> None:
        raise ValueError("no")

    def tells(ctx: Context) -> int:
        ctx.progress(50, "half")
        ctx.log.info("told")
        return ctx.attempt
"""
ALLOWED = Settings(handler_modules="lobby", max_retries=1, backoff_base=0.0, backoff_jitter=0.0, poll=0.1)


@pytest.fixture
def lobby(tmp_path, monkeypatch):
    """The code that jobs name, as a module on the path."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "lobby.py").write_text(dedent(CODE))
    monkeypatch.syspath_prepend(folder)
    sys.modules.pop("lobby", None)
    yield folder
    for name in ("lobby", "absent"):
        sys.modules.pop(name, None)


@pytest.fixture
def start(url):
    """Make programs on the same store, with settings of their own."""
    made = []

    def start(**settings):
        made.append(Rota(url, settings=ALLOWED if not settings else Settings(**settings)))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_job_names_its_function_and_has_no_template(start, lobby):
    rota = start()
    job = rota.enqueue(handler="lobby:hello", params={"name": "Ada"})
    assert (rota.jobs.get(job).job_type, rota.jobs.get(job).template_id, rota.jobs.get(job).max_retries, rota.jobs.get(job).priority) == (
        "lobby:hello",
        None,
        1,
        50,
    )
    rota.turn()
    run = run_of(rota, job.id)
    assert (rota.jobs.get(job.id).status, run.result, run.template_id) == ("COMPLETED", "Hello, Ada", None)
    assert [each.name for each in rota.templates.list()] == []
    with pytest.raises(UnknownTemplate):
        rota.enqueue("lobby:hello")


def test_a_type_of_its_own_keeps_its_handler(start, lobby):
    rota = start()
    job = rota.enqueue(handler="lobby:hello", job_type="greeting")
    assert rota.jobs.get(rota.enqueue(handler="lobby:hello", job_type="greeting")).job_type == "greeting"
    with pytest.raises(InvalidOption, match="jobs of type 'greeting' call lobby:hello: choose another job_type for lobby:fails"):
        rota.enqueue(handler="lobby:fails", job_type="greeting")
    rota.job(lambda: None, name="plain")
    with pytest.raises(InvalidOption, match="'plain' is a template: enqueue it by its name"):
        rota.enqueue(handler="lobby:hello", job_type="plain")
    rota.turn()
    assert rota.jobs.get(job.id).status == "COMPLETED"
    assert rota.store.stats().by_type[0].job_type == "greeting"


def test_a_live_worker_learns_a_new_handler_and_runs_it(start, lobby):
    producer, worker = start(), start()
    with worker.running(concurrency=2):
        first = producer.enqueue(handler="lobby:hello", params={"name": "Ada"})
        assert producer.wait(first.id, timeout=patient(20)).result == "Hello, Ada"
        second = producer.enqueue(handler="lobby:later", params={"name": "Bob"})
        assert producer.wait(second.id, timeout=patient(20)).result == "later, Bob"
        eventually(lambda: {"lobby:hello", "lobby:later"} <= set(producer.workers.list()[0].job_types), within=20, what="announced")


def test_a_worker_that_may_not_import_it_leaves_it_and_explain_and_the_doctor_say_so(start, lobby):
    producer, other = start(), start(handler_modules="elsewhere", poll=0.1, beat=0.2)
    other.job(lambda: None, name="plain")
    with other.running():
        job = producer.enqueue(handler="lobby:hello")
        plain = other.enqueue("plain")
        other.wait(plain.id, timeout=patient(20))
        assert producer.jobs.get(job.id).status == "QUEUED"
        assert producer.explain(job.id).summary == (
            "no live worker has a handler for lobby:hello; it has no template, so a worker must be allowed to import its module: "
            "see the setting handler_modules"
        )
        (found,) = [each for each in producer.store.doctor() if each.name == "queue"]
        assert "lobby:hello (1)" in found.text
        assert "handler_modules" in found.remedy
    other.turn()
    assert producer.jobs.get(job.id).status == "QUEUED"
    producer.turn()
    assert producer.jobs.get(job.id).status == "COMPLETED"


def test_a_template_that_is_given_the_name_of_a_type_takes_it_over(rota, lobby):
    rota = Rota(rota.store.url, settings=ALLOWED)
    rota.enqueue(handler="lobby:hello", job_type="greet")
    with closing(Rota(rota.store.url, settings=ALLOWED)) as other:
        other.job(lambda: "of the template", name="greet")
        other.templates.list()
    # Its job would call the function of the template.
    with pytest.raises(InvalidOption, match="'greet' is a template: enqueue it by its name"):
        rota.enqueue(handler="lobby:hello", job_type="greet")
    assert len(rota.jobs.list()) == 1
    rota.close()


@pytest.mark.parametrize(
    ("handler", "error", "words"),
    [
        ("lobby", InvalidOption, "is not the place of a function"),
        ("lobby.hello", InvalidOption, "use module:function"),
        ("lobby:", InvalidOption, "is not the place of a function"),
        ("lobby:a b", InvalidOption, "is not the place of a function"),
        ("", InvalidOption, "handler=''"),
        (3, InvalidOption, "handler"),
        ("os:getpid", InvalidHandler, "module 'os' is not under handler_modules (lobby): set handler_modules"),
        ("lobbyist:x", InvalidHandler, "is not under handler_modules"),
        ("lobby:os.getpid", InvalidHandler, "which is not under handler_modules (lobby)"),
        ("lobby:nope", InvalidHandler, "module lobby has no nope"),
        ("lobby:ran", InvalidHandler, "lobby.ran is not a function: its type is list"),
    ],
)
def test_a_bad_handler_is_refused_when_it_is_enqueued(rota, lobby, handler, error, words):
    rota = Rota(rota.store.url, settings=ALLOWED)
    with pytest.raises(error) as refused:
        rota.enqueue(handler=handler)
    assert words in str(refused.value)
    assert rota.jobs.list() == []
    assert rota._session.open().store.adhoc_types() == {}
    rota.close()


def test_what_can_not_be_said_together_is_refused(rota, lobby):
    rota.settings = ALLOWED
    for wrong in (
        rota.enqueue,
        lambda: rota.enqueue("x", handler="lobby:hello"),
        lambda: rota.enqueue("x", job_type="y"),
        lambda: rota.enqueue(job_type="y"),
    ):
        with pytest.raises(InvalidOption):
            wrong()
    with pytest.raises(InvalidParams, match="no parameter 'nmae'"):
        rota.enqueue(handler="lobby:hello", params={"nmae": 1})


def test_nothing_is_allowed_by_default(rota, lobby):
    with pytest.raises(InvalidHandler, match="while handler_modules is empty"):
        rota.enqueue(handler="lobby:hello")


def test_only_who_may_manage_templates_names_functions(start, lobby):
    rota = start()
    for actor in (Actor("ada", role="admin"), Actor("bob", role="user")):
        for call in (
            lambda actor=actor: rota.acting_as(actor).enqueue(handler="lobby:hello"),
            lambda actor=actor: rota.acting_as(actor).enqueue_many([NewJob(handler="lobby:hello")]),
            lambda actor=actor: rota.acting_as(actor).group([NewJob(handler="lobby:hello")]),
        ):
            with pytest.raises(PermissionDenied, match="may not manage templates"):
                call()
    assert rota._session.open().store.adhoc_types() == {}
    assert rota.jobs.get(rota.acting_as(Actor("root", role="system_manager")).enqueue(handler="lobby:hello")).owner == "root"


def test_code_that_is_missing_where_it_is_enqueued_is_the_workers_matter(start, lobby):
    rota = start(handler_modules="lobby,absent", max_retries=5)
    later = rota.enqueue(handler="absent:work")
    (lobby / "absent.py").write_text("def other(): ...\n")
    worker = start(handler_modules="absent", max_retries=5)
    worker.turn()
    (only,) = rota.jobs.attempts(later.id)
    assert only.status == "DEAD_LETTER"
    assert run_of(rota, later.id).error == "PermanentError: absent:work: module absent has no work"


def test_a_module_that_can_not_be_imported_ends_its_jobs_for_good(start, lobby):
    (lobby / "absent.py").write_text("import nothing_of_that_name\n")
    rota = start(handler_modules="absent", max_retries=5)
    job = rota.enqueue(handler="absent:work", params={"any": 1})
    rota.turn()
    assert [each.status for each in rota.jobs.attempts(job.id)] == ["DEAD_LETTER"]
    assert "No module named 'nothing_of_that_name'" in run_of(rota, job.id).error


def test_what_every_job_has_it_has_too(start, lobby):
    rota = start()
    one = rota.enqueue(handler="lobby:hello", unique_key="k", priority="high", timeout=5, max_retries=3, meta={"for": "test"})
    assert rota.enqueue(handler="lobby:hello", unique_key="k").id == one.id
    assert (rota.jobs.get(one).priority, rota.jobs.get(one).timeout, rota.jobs.get(one).max_retries) == (75, 5.0, 3)
    child = rota.enqueue(handler="lobby:tells", depends_on=[one])
    failing = rota.enqueue(handler="lobby:fails")
    group = rota.group([NewJob(handler="lobby:hello"), NewJob(name="named", handler="lobby:tells")])
    many = rota.enqueue_many([NewJob(handler="lobby:hello", params={"name": str(n)}) for n in range(3)])
    for _ in range(5):
        rota.turn()
    assert {rota.jobs.get(each).status for each in (one.id, child.id, *many.ids)} == {"COMPLETED"}
    assert [each.status for each in rota.jobs.attempts(failing.id)] == ["FAILED", "DEAD_LETTER"]
    assert {each.template_id for each in rota.jobs.attempts(failing.id)} == {None}
    assert rota.groups.get(group.id).status == "COMPLETED"
    assert [each.job_type for each in rota.groups.get(group.id).members] == ["lobby:hello", "named"]
    assert "told" in str(rota.jobs.log(child.id))
    assert rota.jobs.retry(failing.id).template_id is None
    rota.templates.pause("lobby:hello")
    held = rota.enqueue(handler="lobby:hello")
    rota.turn()
    assert rota.explain(held.id).summary == "template lobby:hello is paused"
    rota.templates.resume("lobby:hello")
    rota.turn()
    assert rota.jobs.get(held.id).status == "COMPLETED"


def test_a_template_of_the_same_name_wins_from_then_on(start, lobby):
    rota = start()
    rota.enqueue(handler="lobby:hello", job_type="greet")
    rota.job(lambda: "the template's", name="greet")
    job = rota.enqueue("greet")
    rota.turn()
    assert run_of(rota, job.id).result == "the template's"


def test_a_function_is_refused_under_the_name_of_a_template_that_would_call_another(start, lobby):
    rota = start()
    rota.enqueue(handler="lobby:hello", job_type="greet")
    rota.job(lambda: "the template's", name="greet")
    rota.enqueue("greet")
    with pytest.raises(InvalidOption, match="'greet' is a template: enqueue it by its name, or choose another job_type"):
        rota.enqueue(handler="lobby:hello", job_type="greet")
    with rota.transaction() as tx, pytest.raises(InvalidOption, match="'greet' is a template"):
        rota.enqueue(handler="lobby:hello", job_type="greet", transaction=tx)
    assert len(rota.jobs.list()) == 2


def test_in_a_transaction_the_handler_must_be_known_already(start, lobby):
    rota = start()
    with rota.transaction() as tx, pytest.raises(TransactionMisuse, match="is new here"):
        rota.enqueue(handler="lobby:hello", transaction=tx)
    rota.enqueue(handler="lobby:hello")
    with rota.transaction() as tx:
        job = rota.enqueue(handler="lobby:hello", params={"name": "tx"}, transaction=tx)
    rota.turn()
    assert rota.jobs.get(job.id).status == "COMPLETED"


def test_a_type_that_no_live_job_has_makes_room_for_another(start, lobby, monkeypatch):
    monkeypatch.setattr(definitions, "ADHOC_MAX", 2)
    rota = start()
    rota.enqueue(handler="lobby:hello", job_type="kept")
    rota._session.open().store.put_adhoc_type("unused", "lobby:hello", actor=ANNA, now=1)
    rota.enqueue(handler="lobby:hello", job_type="new")
    assert set(rota._session.open().store.adhoc_types()) == {"kept", "new"}
    with pytest.raises(InvalidOption, match="at most 2 types"):
        rota.enqueue(handler="lobby:hello", job_type="more")


def test_a_crowd_of_plain_jobs_keeps_no_worker_from_learning(start, lobby):
    rota = start()
    rota.job(lambda: None, name="plain")
    rota.enqueue_many([("plain", {})] * 300)
    with rota.running(concurrency=4):
        job = rota.enqueue(handler="lobby:hello", priority="high")
        assert rota.wait(job.id, timeout=patient(20)).result == "Hello, you"


def test_a_store_that_is_promoted_takes_it_along(start, lobby, tmp_path):
    rota = start()
    job = rota.enqueue(handler="lobby:hello", job_type="greeting", params={"name": "Ada"})
    rota.store.promote(tmp_path / "moved.db", keep=True)
    moved = Rota(tmp_path / "moved.db", settings=ALLOWED)
    moved.turn()
    assert (moved.jobs.get(job.id).status, run_of(moved, job.id).result) == ("COMPLETED", "Hello, Ada")
    moved.close()


def test_it_goes_when_its_time_is_over_and_its_figures_stay(start, lobby):
    rota = start(handler_modules="lobby", retention=0.001)
    job = rota.enqueue(handler="lobby:hello")
    rota.turn()
    eventually(lambda: rota.store.purge().jobs > 0 or rota.jobs.list() == [], within=20, what="its chain is removed")
    assert rota.jobs.list() == []
    assert {each.job_type: each.completed for each in rota.store.stats().by_type} == {"lobby:hello": 1}
    assert rota.enqueue(handler="lobby:hello").id != job.id
