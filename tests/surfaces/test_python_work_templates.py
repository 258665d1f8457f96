"""Templates that are SQL or a command: defined, enqueued and changed in Python, and run by a worker."""

from __future__ import annotations

import os
import pickle
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from rota import Actor, Rota, Settings
from rota.errors import (
    DuplicateJob,
    InvalidDefinition,
    InvalidName,
    InvalidOption,
    InvalidParams,
    JobFailed,
    NotFound,
    PermissionDenied,
    Refused,
    TemplateUnavailable,
    UnknownTemplate,
)
from rota.model.gate import Right
from rota.model.states import Status
from rota.testing import use
from tests.runners.external.stage import WAYS, Stage
from tests.support.clock import ManualClock
from tests.support.prepared import prepare
from tests.support.stranger import public_folder

ADMIN = Actor("adam", role="admin")
USER = Actor("uma", role="user")
BY_REGION = "SELECT id, region FROM orders WHERE region = :region ORDER BY id"


@pytest.fixture
def files(tmp_path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "shop.db")) as raw, raw:
        raw.executescript("CREATE TABLE orders (id INTEGER, region TEXT); INSERT INTO orders VALUES (1, 'eu'), (2, 'us'), (3, 'eu');")
    return folder


@pytest.fixture
def settings(files) -> Settings:
    return Settings(sql_paths=str(files), synchronous="NORMAL")


def connected(rota: Rota, files: Path) -> Rota:
    rota.connections.create("shop", f"sqlite:///{files}/shop.db")
    return rota


@pytest.fixture
def shop(rota, files) -> Rota:
    """A Rota with a connection to a database that has orders in it."""
    return connected(rota, files)


@pytest.fixture
def either(url, settings, files):
    """The same, on each store."""
    with closing(Rota(url, clock=ManualClock(), settings=settings, seed=7)) as made:
        yield connected(made, files)


@pytest.fixture
def by_region(shop):
    return shop.templates.sql("by_region", BY_REGION, connection="shop")


def rows(*rows):
    return {"columns": ["id", "region"], "rows": [list(row) for row in rows]}


def count(files: Path) -> int:
    with closing(sqlite3.connect(files / "shop.db")) as raw:
        return raw.execute("SELECT count(*) FROM orders").fetchone()[0]


# ---- enqueueing ------------------------------------------------------------------------------------------------------


def test_a_task_of_sql_binds_its_params_and_returns_its_rows(either):
    task = either.templates.sql("by_region", BY_REGION, connection="shop")
    hostile = task.enqueue(region="' OR 1 = 1 --")
    handle = task.enqueue(region="eu")
    either.turn()
    assert handle.result(timeout=5) == rows((1, "eu"), (3, "eu"))
    assert hostile.result(timeout=5) == rows()


def test_a_job_keeps_the_version_that_it_was_enqueued_with(either, files):
    task = either.templates.sql("by_region", BY_REGION, connection="shop")
    before = task.enqueue(region="us")
    task = either.templates.sql("by_region", "SELECT 'changed' AS region WHERE :region IS NOT NULL", connection="shop")
    after = task.enqueue(region="us")
    either.templates.update("by_region", max_running=5)
    last = task.enqueue(region="us")
    either.turn()
    assert before.result(timeout=5) == rows((2, "us"))
    assert [each.result(timeout=5)["rows"] for each in (after, last)] == [[["changed"]]] * 2


def test_a_retry_has_the_version_of_its_job_and_a_repetition_that_of_now(either):
    task = either.templates.sql("by_region", "SELECT * FROM nowhere", connection="shop", max_retries=0)
    failed = task.enqueue()
    either.turn()
    assert failed.status() is Status.DEAD_LETTER
    either.templates.sql("by_region", BY_REGION, connection="shop")
    retried = either.jobs.retry(failed.id)
    again = either.jobs.again(failed.id, region="us")
    either.turn()
    assert either.jobs.get(retried.id).status is Status.DEAD_LETTER
    assert task.handle(again.id).result(timeout=5) == rows((2, "us"))


def test_tasks_are_bound_grouped_scheduled_and_enqueued_in_numbers(shop, by_region, clock):
    bulk = shop.enqueue_many(by_region.bind(region=region) for region in ("eu", "us"))
    single = shop.enqueue(by_region.bind(region="us"))
    group = shop.group([by_region.bind(region="eu"), ("by_region", {"region": "us"})], then=by_region.bind(region="eu"))
    shop.schedule("hourly", by_region.bind(region="us"), every="1h")
    clock.advance(hours=1)
    for _ in range(4):
        shop.turn()
    assert bulk.accepted == 2
    assert single.result(timeout=5) == rows((2, "us"))
    assert shop.groups.get(group.id).status == "COMPLETED"
    done = list(shop.jobs.list(job_type="by_region", status="COMPLETED"))
    assert len(done) == 2 + 1 + 3 + 1
    assert {job.origin for job in done} == {"api", "group", "schedule"}


def test_a_task_has_options_and_acts_as_others(shop, by_region):
    shop.users.create("uma", role="user")
    handle = by_region.options(priority="high", unique_key="eu", meta={"order": 7}).acting_as("uma").enqueue(region="eu")
    job = shop.jobs.get(handle.id)
    assert (job.owner, job.priority, job.unique_key, job.meta["order"]) == ("uma", 75, "eu", 7)
    shop.turn()
    assert handle.result(timeout=5) == rows((1, "eu"), (3, "eu"))


def test_a_direct_execution_needs_no_worker(shop, by_region):
    assert shop.jobs.direct("by_region", {"region": "us"}).result == rows((2, "us"))


UNKNOWN = r"by_region\(\) has no parameter 'regoin'; it takes: region"
MISSING = r"by_region\(\) needs a parameter 'region'"
WRONG = [({"regoin": "eu"}, UNKNOWN), ({"region": "eu", "regoin": "eu"}, UNKNOWN), ({}, MISSING)]


@pytest.mark.parametrize(("params", "words"), WRONG)
def test_params_that_the_text_does_not_have_or_lacks_are_refused_on_every_way_in(either, params, words):
    task = either.templates.sql("by_region", BY_REGION, connection="shop")
    waiting = task.options(run_at=timedelta(hours=1)).enqueue(region="us")
    either.schedule("good", task.bind(region="us"), every="1h")
    ways = [
        lambda: task.enqueue(**params),
        lambda: either.enqueue("by_region", params),
        lambda: task.options(priority="high").enqueue(**params),
        lambda: either.enqueue_many([("by_region", {"region": "eu"}), ("by_region", params)]),
        lambda: either.group([task.bind(**params)]),
        lambda: either.group([task.bind(region="eu")], then=task.bind(**params)),
        lambda: either.jobs.direct("by_region", params),
        lambda: either.jobs.update(waiting.id, params=params),
        lambda: either.schedule("bad", task.bind(**params), every="1h"),
        lambda: either.schedules.create("bad", "by_region", params=params, every="1h"),
        lambda: either.schedules.update("good", params=params),
    ]
    for way in ways:
        with pytest.raises(InvalidParams, match=words):
            way()
    assert [schedule.name for schedule in either.schedules.list()] == ["good"]
    if "regoin" in params:
        with pytest.raises(InvalidParams, match=words):
            either.schedules.fire("good", params=params)
        with pytest.raises(InvalidParams, match=words):
            either.jobs.again(waiting.id, **params)
    assert either.jobs.get(waiting.id).params == {"region": "us"}
    assert not any("regoin" in job.params for job in either.jobs.list())


def test_names_are_those_of_the_database_of_the_callers_organization(shop, by_region, files):
    text = "SELECT ':a', $b, @c, \"d:e\", 1 /* :f */ -- :g\n"
    mixed = shop.templates.sql("mixed", text, connection="shop")
    with pytest.raises(InvalidParams, match="needs a parameter 'b'"):
        mixed.enqueue(c=1)
    assert mixed.enqueue(b=1, c=2)
    # Another organization's connection of that name is a PostgreSQL, where $ and @ are no placeholders.
    shop.organizations.create("acme")
    shop.connections.create("shop", "postgresql://db.example/shop", login="shop", organization="acme")
    with pytest.raises(InvalidParams, match=r"has no parameter 'b'; it takes: none"):
        shop.enqueue("mixed", {"b": 1}, organization="acme")
    # And where there is none, nobody knows what is a name.
    shop.organizations.create("other")
    assert shop.enqueue("mixed", {"x": 1}, organization="other")


def test_default_params_and_secrets_are_values_of_names_and_need_not_be_used(shop):
    task = shop.templates.sql(
        "report", "SELECT :region, :key", connection="shop", secrets=["key"], default_params={"region": "eu", "colour": "red"}
    )
    assert shop.jobs.get(task.enqueue().id).params == {"region": "eu", "colour": "red"}
    assert task.enqueue(colour="blue", region="us")
    with pytest.raises(InvalidParams, match=r"has no parameter 'color'; it takes: region"):
        task.enqueue(color="blue")
    shop.templates.update("report", default_params={"colour": "red"})
    with pytest.raises(InvalidParams, match="needs a parameter 'region'"):
        task.enqueue()
    shop.schedule("hourly", task.bind(region="us"), every="1h")


def test_a_command_takes_no_params(shop):
    task = shop.templates.command("backup", "/usr/bin/true")
    with pytest.raises(InvalidParams, match=r"backup\(\) has no parameter 'target'; it takes: none"):
        task.enqueue(target="disk")
    with pytest.raises(InvalidParams, match=r"backup\(\) has no parameter 'target'"):
        shop.schedule("nightly", task.bind(target="disk"), every="1h")
    assert task.enqueue()


def test_a_job_is_changed_within_the_text_that_it_was_enqueued_with(shop, by_region):
    waiting = by_region.enqueue(region="us")
    shop.templates.sql("by_region", "SELECT id, region FROM orders WHERE id = :id", connection="shop")
    with pytest.raises(InvalidParams, match="no parameter 'id'; it takes: region"):
        shop.jobs.update(waiting.id, params={"id": 1})
    shop.jobs.update(waiting.id, params={"region": "eu"})
    shop.turn()
    assert waiting.result(timeout=5) == rows((1, "eu"), (3, "eu"))


def test_a_task_can_not_be_called_and_says_why(by_region):
    with pytest.raises(Refused, match=r"'by_region' is not a Python function.*by_region.enqueue"):
        by_region(region="eu")
    with pytest.raises(Refused, match=r"by_region\.enqueue"):
        by_region("eu")


def test_a_task_takes_params_by_name_and_does_not_pickle(by_region):
    assert repr(by_region) == "<WorkTask by_region(**params)>"
    with pytest.raises(Exception, match="too many positional arguments"):
        by_region.enqueue("eu")
    with pytest.raises(pickle.PicklingError, match="Pass its name"):
        pickle.dumps(by_region)


# ---- what every template has -----------------------------------------------------------------------------------------


def test_limits_windows_queues_and_pauses_hold(shop, clock):
    task = shop.templates.sql(
        "by_region", BY_REGION, connection="shop", dedup_window="5m", max_running=0, queue="reports", default_params={"region": "us"}
    )
    handle = task.enqueue()
    with pytest.raises(DuplicateJob):
        task.enqueue()
    assert shop.jobs.get(handle.id).queue == "reports"
    shop.turn()
    assert handle.status() is Status.QUEUED
    shop.templates.update("by_region", max_running=1)
    shop.templates.pause("by_region")
    shop.turn()
    assert handle.status() is Status.QUEUED
    shop.templates.resume("by_region")
    shop.turn()
    assert handle.result(timeout=5) == rows((2, "us"))


def test_a_disabled_one_takes_no_jobs_and_one_without_jobs_is_deleted(shop, by_region):
    shop.templates.disable("by_region")
    with pytest.raises(TemplateUnavailable):
        by_region.enqueue(region="eu")
    shop.templates.delete("by_region")
    with pytest.raises(UnknownTemplate):
        by_region.enqueue(region="eu")


def test_a_definition_replaces_the_one_before_and_leaves_what_operators_have_set(shop, by_region):
    shop.templates.update("by_region", timeout="90s")
    shop.templates.define("by_region", sql=BY_REGION, connection="shop", max_retries=1, timeout="10s")
    view = shop.templates.define("by_region", sql=BY_REGION, connection="shop", timeout="10s")
    assert (view.timeout, view.max_retries) == (90, shop.settings.max_retries)
    again = shop.templates.define("by_region", sql=BY_REGION, connection="shop", timeout="10s")
    assert again.version == view.version
    assert shop.templates.reset("by_region").timeout == 10


def test_a_template_may_become_another_kind(shop, by_region):
    waiting = by_region.enqueue(region="us")
    view = shop.templates.define("by_region", command="/usr/bin/true")
    assert (view.kind, view.connection) == ("external", None)
    # Who serves no commands does not take them, whatever they were.
    shop.turn()
    assert waiting.status() is Status.QUEUED
    shop.templates.define("by_region", sql="SELECT 1", connection="shop")
    shop.turn()
    assert waiting.result(timeout=5) == rows((2, "us"))


def test_what_a_template_in_python_has_is_refused(shop, by_region):
    for field, value in {"handler": "shop.mail:send", "executor": "process"}.items():
        with pytest.raises(InvalidOption, match=f"{field}=.*is SQL, and only Python has"):
            shop.templates.update("by_region", **{field: value})
        with pytest.raises(InvalidOption, match=field):
            shop.templates.define("by_region", sql="SELECT 1", **{field: value})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "pass one of sql and command"),
        ({"sql": "SELECT 1", "command": "/bin/true"}, "pass one of sql and command"),
        ({"sql": "  "}, "sql is empty"),
        ({"sql": "x" * 1_000_001}, "at most 1,000,000"),
        ({"command": "true"}, "begins with 'true': use the absolute path"),
        ({"command": "/bin/echo 'a"}, "not closed"),
        ({"command": "/bin/true", "connection": "shop"}, "a command uses no connection"),
        ({"sql": "SELECT 1", "connection": ""}, "connection name"),
        ({"sql": "SELECT 1", "secrets": ["a b"]}, "a b"),
        ({"sql": "SELECT 1", "max_running": -1}, "max_running"),
        ({"sql": "SELECT 1", "colour": "red"}, "colour"),
    ],
)
def test_what_can_not_be_defined_is_refused_saying_why(rota, said, words):
    with pytest.raises((InvalidOption, InvalidName), match=words):
        rota.templates.define("report", **said)
    assert rota.templates.list() == []


def test_a_schedule_of_it_has_no_template_of_its_own(either):
    task = either.templates.sql("by_region", BY_REGION, connection="shop")
    either.schedule("hourly", task.bind(region="us"), every="1h")
    either.schedules.update("hourly", every="2h")
    job = either.schedules.fire("hourly")
    either.turn()
    assert task.handle(job.id).result(timeout=5) == rows((2, "us"))
    either.schedules.delete("hourly")
    assert either.templates.get("by_region").body == BY_REGION


# ---- names -----------------------------------------------------------------------------------------------------------


def test_the_name_of_a_template_in_python_is_refused(rota):
    @rota.job
    def report() -> None: ...

    with pytest.raises(Refused, match="'report' is Python: choose another name"):
        rota.templates.sql("report", "SELECT 1")
    assert rota.templates.get("report").kind == "python"


def test_a_function_with_the_name_of_a_template_of_sql_is_refused_where_it_would_be_used(either, settings):
    either.templates.sql("report", BY_REGION, connection="shop")
    version = either.templates.get("report").version
    with closing(Rota(either.store.url, settings=settings)) as other:

        @other.job
        def report() -> None: ...

        @other.job
        def another() -> None: ...

        for use_it in (report.enqueue, another.enqueue, other.turn):
            with pytest.raises(Refused, match=r"'report' is SQL, and this process has a function of that name: .*@rota.job\(name="):
                use_it()
    assert either.templates.get("report").version == version
    assert either.templates.get("report").body == BY_REGION


def test_a_running_worker_yields_its_function_to_a_template_of_sql(shop, settings, clock, caplog):
    with closing(Rota(shop.store.url, settings=settings, clock=clock, seed=8)) as other:

        @other.job
        def report(**params: str) -> str:
            return "Python"

        other.turn()
        shop.templates.delete("report")
        task = shop.templates.sql("report", BY_REGION, connection="shop")
        handle = task.enqueue(region="us")
        other.turn()
        assert handle.result(timeout=5) == rows((2, "us"))
        assert "template report is not Python any more" in caplog.text


@pytest.mark.parametrize("name", ["kind:sql:default/shop", "kind:external", "kind:other"])
def test_names_that_begin_like_a_kind_are_refused_everywhere(rota, tmp_path, name):
    with pytest.raises(InvalidName, match="begins with 'kind:'"):
        rota.templates.sql(name, "SELECT 1")
    with pytest.raises(InvalidName, match="begins with 'kind:'"):
        rota.templates.update(name, handler="shop.mail:send")
    with pytest.raises(InvalidName, match="begins with 'kind:'"):
        rota.job(name=name)(lambda: None)
    with pytest.raises(UnknownTemplate, match="no template 'kind:"):
        rota.enqueue(name)
    with pytest.raises(UnknownTemplate, match="no template 'kind:"):
        rota.enqueue_many([(name, {})])
    with pytest.raises(InvalidName, match="begins with 'kind:'"):
        rota.enqueue(handler="shop.mail:send", job_type=name)
    with pytest.raises(UnknownTemplate, match="no template 'kind:"):
        rota.jobs.direct(name)
    file = tmp_path / "jobs.toml"
    file.write_text(f'[templates."{name}"]\nsql = "SELECT 1"\n')
    with pytest.raises(InvalidDefinition, match="begins with 'kind:'"):
        rota.store.load(file)


def test_what_is_not_a_text_is_refused_as_a_name(rota):
    with pytest.raises(InvalidName, match="3 is not a template name"):
        rota.enqueue_many([(3, {})])


def test_a_run_of_a_job_that_sql_created_is_not_repeated_as_if_it_were_of_a_template(shop):
    shop.sql("CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' CONNECTION shop AS 'SELECT 1'")
    shop.sql("EXECUTE JOB nightly")
    (job,) = shop.jobs.list()
    with pytest.raises(Refused, match="EXECUTE JOB"):
        shop.jobs.again(job.id)


# ---- rights ----------------------------------------------------------------------------------------------------------


def test_only_those_who_manage_templates_define_and_read_them(shop, by_region):
    assert shop.templates.get("by_region").body == BY_REGION
    assert shop.templates.list()[0].body is None
    for actor in (ADMIN, USER):
        view = shop.acting_as(actor).templates.get("by_region")
        assert (view.kind, view.connection, view.body) == ("sql", "shop", None)
        with pytest.raises(PermissionDenied):
            shop.acting_as(actor).templates.define("by_region", sql="SELECT 2")
    entry = next(each for each in shop.audit.list() if each.action == "template.define")
    assert entry.after["connection"] == "shop"
    assert "orders" not in str(entry)


def test_the_right_to_run_commands_is_asked_for_at_definition_and_at_the_start(shop):
    manager = Actor("mia", role="system_manager", operations=frozenset({Right.MANAGE_TEMPLATES, Right.READ}))
    with pytest.raises(PermissionDenied):
        shop.acting_as(manager).templates.define("backup", command="/usr/bin/true")
    assert shop.acting_as(manager).templates.define("report", sql="SELECT 1").kind == "sql"


def test_a_template_of_somebody_who_is_gone_does_not_run(shop):
    for name in ("max", "mia"):
        shop.users.create(name, role="system_manager")
    task = shop.acting_as("mia").templates.sql("by_region", BY_REGION, connection="shop")
    assert shop.jobs.get(task.enqueue(region="eu").id).owner == "mia"
    shop.users.delete("mia")
    handle = shop.enqueue("by_region", {"region": "eu"})
    shop.turn()
    assert handle.status() is Status.DEAD_LETTER
    assert "mia" in handle.run().error


def test_a_connection_that_is_not_there_fails_the_job_at_once(shop):
    handle = shop.templates.sql("report", "SELECT 1", connection="nowhere").enqueue()
    shop.turn()
    with pytest.raises(JobFailed, match="there is no connection 'nowhere'"):
        handle.result(timeout=5)


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="commands")
def test_a_command_is_enqueued_and_its_outcome_kept(tmp_path):
    with public_folder() as folder:
        stage = Stage(folder, next(way for way in WAYS if way.root is (os.geteuid() == 0)))
        script = stage.script("echo made it; exit $1")
        settings = Settings(external_file=stage.config(), synchronous="NORMAL")
        with closing(Rota(prepare(tmp_path / "rota.db"), settings=settings)) as rota:
            good = rota.templates.command("good", f"{script} 0").enqueue()
            bad = rota.templates.command("bad", f"{script} 3", max_retries=0).enqueue()
            rota.turn()
            assert good.status() is Status.COMPLETED
            assert "made it" in str(good.log())
            assert (bad.status(), bad.run().exit_code) == (Status.DEAD_LETTER, 3)


# ---- tests -----------------------------------------------------------------------------------------------------------


def test_a_test_has_the_templates_too_and_no_connection_of_theirs(shop, by_region):
    shop.turn()
    with use(shop) as kit:
        handle = by_region.enqueue(region="eu")
        kit.drain()
        assert "there is no connection 'shop'" in handle.run().error
    with pytest.raises(NotFound):
        shop.jobs.get(handle.id)


def test_a_simulation_takes_them_in(shop, by_region):
    shop.schedule("hourly", by_region.bind(region="us"), every="1h")
    shop.turn()
    assert shop.simulate(days=0.2)


def test_timedeltas_are_options_too(shop):
    view = shop.templates.define("report", sql="SELECT 1", timeout=timedelta(minutes=2))
    assert view.timeout == 120
