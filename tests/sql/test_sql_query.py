"""SELECT over sys.*: what it answers, what it refuses and how, and who sees what."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from rota import Settings
from rota.model.gate import Actor, Right, Role
from rota.model.states import Status
from rota.model.stored_settings import STORABLE
from rota.sql.catalog import STATES, TABLES, error_code_shown, sqlstate_shown
from rota.sql.errors import SqlError, SqlLimitError
from rota.sql.grammar import SYS_TABLES
from rota.sql.private_database import process
from rota.sql.query import select
from tests.sql.conftest import WorldMaker, make_world
from tests.sql.world import ADMIN, MANAGER, STRANGERS, USER, reference
from tests.stores.makers import SqliteMaker
from tests.support.waiting import eventually

# ---- answers ----------------------------------------------------------------------------------------------------------


def test_the_queries_of_the_specification_are_answered(world):
    result = world.result(MANAGER, "SELECT job_name, state, next_run_time FROM sys.jobs ORDER BY next_run_time")
    assert result.columns == ("job_name", "state", "next_run_time")
    assert result.tag == f"SELECT {len(result.rows)}"
    (job_uuid,) = world.asked(ADMIN, "SELECT job_uuid FROM sys.jobs WHERE job_name = 'nightly'")[0]
    runs = world.asked(ADMIN, "SELECT * FROM sys.job_runs WHERE job_uuid = ?", [job_uuid])
    assert len(runs) > 3


def test_an_answer_without_rows_has_its_columns(world):
    assert world.result(MANAGER, "SELECT job_name, 1 AS one FROM sys.jobs WHERE false").columns == ("job_name", "one")


@pytest.mark.parametrize("written", [str, str.upper, lambda text: text.replace("-", ""), lambda text: text.replace("-", "").upper()])
def test_ids_are_compared_however_they_are_written(world, written):
    (job, run), *_ = world.asked(MANAGER, "SELECT job_uuid, job_run_uuid FROM sys.job_runs ORDER BY number")
    assert world.asked(MANAGER, "SELECT job_run_uuid FROM sys.job_runs WHERE job_run_uuid = ?", [written(run)]) == [(run,)]
    assert world.asked(MANAGER, "SELECT job_uuid FROM sys.jobs WHERE job_uuid IN (:id)", {"id": written(job)}) == [(job,)]


def test_parameters_are_given_by_place_or_by_name(world):
    assert world.asked(MANAGER, "SELECT ?, ?", ["a", 2.5]) == [("a", 2.5)]
    assert world.asked(MANAGER, "SELECT :b, :a", {"a": None, "b": b"x"}) == [(b"x", None)]


def test_each_run_belongs_to_a_job_and_has_one_of_five_states(world):
    assert world.asked(MANAGER, "SELECT count(*) FROM sys.job_runs WHERE job_uuid IS NULL OR job_name IS NULL") == [(0,)]
    assert {row[0] for row in world.asked(MANAGER, "SELECT DISTINCT state FROM sys.job_runs")} == set(STATES.values())
    assert set(STATES) == set(Status)


def test_queue_and_history_have_all_jobs_between_them(world):
    plain = reference(world.maker, MANAGER)
    ((live, ended),) = world.asked(MANAGER, "SELECT (SELECT count(*) FROM sys.queue), (SELECT count(*) FROM sys.history)")
    assert live + ended == len(world.rota.jobs.list(limit=1000))
    assert [(live,)] == list(plain.execute("SELECT count(*) FROM sys.queue"))


def test_the_number_of_an_error_is_an_sqlstate_a_code_or_the_exit_code():
    assert error_code_shown("42P01", 1) == sum(((ord(c) - 48) & 63) << 6 * i for i, c in enumerate("42P01"))
    assert error_code_shown("404", 1) == 404
    assert error_code_shown("timeout", 3) == 3
    assert (sqlstate_shown("42P01"), sqlstate_shown("404"), sqlstate_shown(None)) == ("42P01", None, None)


def test_settings_show_their_source_and_no_password(tmp_path, monkeypatch):
    monkeypatch.setenv("ROTA_POLL", "0.5")
    world, _ = make_world(SqliteMaker, tmp_path, pulse_url="https://example.com/x?secret=pa55word", poll=0.5)
    with closing(world.rota):
        rows = {row[0]: row[1:] for row in world.asked(MANAGER, "SELECT name, value, source, description FROM sys.settings")}
    assert rows.keys() == {*Settings.__struct_fields__, *STORABLE}
    assert rows["sql_running"][:2] == ("2", "default")
    assert rows["poll"][:2] == ("0.5", "environment")
    assert rows["pulse_url"][1] == "program"
    assert "pa55word" not in rows["pulse_url"][0]


def test_performance_has_the_metrics_of_the_specification(world):
    metrics = {row[0]: row for row in world.asked(MANAGER, "SELECT metric, labels, value, unit, at FROM sys.performance")}
    assert metrics.keys() >= {"scheduler_queue_depth", "jobs_running", "jobs_failed_total", "job_run_latency_ms"}
    ((running,),) = world.asked(MANAGER, "SELECT sum(value) FROM sys.performance WHERE metric = 'jobs_running'")
    assert [(running,)] == world.asked(MANAGER, "SELECT count(*) FROM sys.job_runs WHERE state = 'RUNNING'")


def test_all_scans_of_a_statement_see_one_moment(world, monkeypatch):
    monkeypatch.setattr(world.rota._session.open().store, "_calm", False)
    made = []

    def meanwhile(*_):
        made.append(world.rota.enqueue("good").id)
        return 0

    session = world.rota._session
    with session.open().store.snapshot(timeout_s=60) as snapshot:
        first = len(list(snapshot.scan("jobs", ("number",))))
        meanwhile()
        assert len(list(snapshot.scan("jobs", ("number",)))) == first
    world.rota.jobs.cancel(made[0])


# ---- refusals ---------------------------------------------------------------------------------------------------------

REFUSED = {
    "SELECT * FROM jobs": ("42P01", "did you mean sys.jobs?"),
    "SELECT count(*) FROM jobs": ("42P01", "did you mean sys.jobs?"),
    "SELECT count(*) FROM main.jobs": ("42P01", "did you mean sys.jobs?"),
    "SELECT * FROM sys.job_run": ("42P01", "did you mean sys.job_runs?"),
    "SELECT * FROM nowhere": ("42P01", "only tables of sys"),
    "SELECT * FROM sqlite_master": ("42P01", "only tables of sys"),
    "SELECT count(*) FROM sqlite_schema": ("42P01", "only tables of sys"),
    "SELECT count(*) FROM sys.sqlite_master": ("42P01", "only tables of sys"),
    "SELECT count(*) FROM temp.sqlite_temp_master": ("42P01", "only tables of sys"),
    "SELECT * FROM pragma_database_list": ("42P01", "only tables of sys"),
    "SELECT nocolumn FROM sys.jobs": ("42703", "no column nocolumn"),
    "SELECT jobname FROM sys.jobs": ("42703", "did you mean job_name?"),
    'SELECT "no such" FROM sys.jobs': ("42703", "no column"),
    "SELECT number FROM sys.job_runs a JOIN sys.job_runs b": ("42702", "ambiguous"),
    "SELECT FROM sys.jobs": ("42601", "syntax error"),
    "SELECT 1 FROM": ("42601", "incomplete"),
    "SELECT 1; SELECT 2": ("42601", "several statements"),
    "SELECT 1 /* /* */ ; SELECT 2 -- */": ("42601", "several statements"),
    "SELECT load_extension('x')": ("42501", "load_extension"),
    "SELECT readfile('/etc/passwd')": ("42883", "readfile"),
    "SELECT randomblob(9)": ("42501", "randomblob"),
    "SELECT zeroblob(9)": ("42501", "zeroblob"),
    "SELECT sqlite_version()": ("42501", "sqlite_version"),
    "SELECT fts5(1)": ("42501", "fts5"),
    "SELECT lower()": ("42883", "wrong number"),
    "SELECT count(count(*)) FROM sys.jobs": ("42803", "misuse"),
    "SELECT json_extract('{', '$.a')": ("22032", "malformed JSON"),
    "UPDATE sys.jobs SET state = 'DISABLED'": ("25006", "may not be modified"),
    "DELETE FROM sys.job_runs": ("25006", "may not be modified"),
    "INSERT INTO sys.jobs (job_name) VALUES (1)": ("25006", "only be read"),
    "CREATE TABLE x (y)": ("25006", "only be read"),
    "CREATE TEMP TABLE x AS SELECT * FROM sys.jobs": ("25006", "only be read"),
    "CREATE VIEW x AS SELECT 1": ("25006", "only be read"),
    "DROP TABLE sys.jobs": ("25006", "only be read"),
    "ALTER TABLE sys.jobs RENAME TO x": ("25006", ""),
    "PRAGMA table_info(jobs)": ("0A000", "only queries"),
    "ATTACH 'x.db' AS x": ("0A000", "only queries"),
    "DETACH sys": ("0A000", "only queries"),
    "BEGIN": ("0A000", "only queries"),
    "SAVEPOINT x": ("0A000", "only queries"),
    "VACUUM INTO 'x.db'": ("0A000", ""),
    "ANALYZE": ("25006", "only be read"),
    "EXPLAIN SELECT 1": ("0A000", "EXPLAIN"),
    "EXPLAIN QUERY PLAN SELECT * FROM sys.jobs": ("0A000", "EXPLAIN"),
    "SELECT ?": ("07001", "parameters"),
    "SELECT printf('%.*c', 900000000, 'x')": ("54000", "sql_bytes_max"),
    "SELECT 1" + " + 1" * 300: ("54000", "too large"),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    world, _ = make_world(SqliteMaker, tmp_path_factory.mktemp("small"), sql_timeout=0.5, sql_rows_max=3)
    yield world
    world.rota.close()


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:60])
def test_a_query_that_does_more_than_read_sys_or_is_wrong_is_refused(small, text):
    sqlstate, reason = REFUSED[text]
    with pytest.raises(SqlError) as refused:
        small.result(MANAGER, text)
    assert (refused.value.sqlstate, reason in str(refused.value)) == (sqlstate, True), refused.value.report()
    assert small.asked(MANAGER, "SELECT count(*) FROM sys.organizations") == [(1,)]


def test_an_error_has_its_place(small):
    with pytest.raises(SqlError) as refused:
        small.result(MANAGER, "SELECT 'ü',\n  nocolumn FROM sys.jobs")
    assert (refused.value.line, refused.value.column) == (2, 3)
    with pytest.raises(SqlError) as refused:
        small.result(MANAGER, "SELECT 1\nFROM sys.jub")
    assert (refused.value.line, refused.value.column) == (2, 6)


def test_values_that_sql_has_not_are_refused(small):
    for value in (object(), 2**70, [1]):
        with pytest.raises(SqlError) as refused:
            small.result(MANAGER, "SELECT ?", [value])
        assert refused.value.sqlstate == "22023"
    with pytest.raises(SqlError) as refused:
        small.result(MANAGER, "SELECT :a", {"b": 1})
    assert refused.value.sqlstate == "07001"


# ---- limits -----------------------------------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def test_a_query_that_takes_too_long_is_ended(small):
    begun = time.monotonic()
    with pytest.raises(SqlLimitError) as late:
        small.result(MANAGER, ENDLESS)
    assert late.value.sqlstate == "57014"
    assert time.monotonic() - begun >= 0.5


@pytest.mark.parametrize("kind", [SqliteMaker, WorldMaker], ids=lambda maker: maker.name)
def test_a_step_of_the_store_that_takes_too_long_is_ended(kind, tmp_path, monkeypatch):
    world, _ = make_world(kind, tmp_path, sql_timeout=0.3)
    slow = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000)"
    slow += " SELECT 'x' AS organization_id, 'x' AS display_name, 'x' AS state, 0 AS max_running, 0 AS max_queued,"
    slow += " 0 AS max_priority, count(*) AS created_at FROM n"
    texts = world.rota._session.open() and __import__(f"rota.stores.{kind.name}.db", fromlist=["db"])
    named = texts.statements() if kind is SqliteMaker else texts.texts()
    monkeypatch.setitem(named, "scan_organizations", slow)
    texts.scan_of.cache_clear()
    with pytest.raises(SqlLimitError) as late:
        world.result(MANAGER, "SELECT created_at FROM sys.organizations")
    assert late.value.sqlstate == "57014"
    monkeypatch.undo()
    texts.scan_of.cache_clear()
    assert world.asked(MANAGER, "SELECT count(*) FROM sys.organizations") == [(1,)]
    world.rota.close()
    world.maker.close()


def test_rows_beyond_the_limit_are_left_out_and_it_is_said(small):
    result = small.result(MANAGER, "SELECT value FROM json_each('[1,2,3,4]')")
    assert (result.rows, result.truncated, result.tag) == (((1,), (2,), (3,)), True, "SELECT 3")
    assert "sql_rows_max" in result.notices[0].message
    assert not small.result(MANAGER, "SELECT value FROM json_each('[1,2,3]')").truncated


def test_an_answer_that_is_too_large_is_cut(tmp_path):
    world, _ = make_world(SqliteMaker, tmp_path, sql_bytes_max=65_536)
    with closing(world.rota):
        result = world.result(MANAGER, "SELECT printf('%.*c', 30000, 'x') FROM json_each('[1,2,3,4]')")
        assert (len(result.rows), result.truncated) == (2, True)
        with pytest.raises(SqlLimitError):
            world.result(MANAGER, "SELECT printf('%.*c', 70000, 'x')")


def test_only_a_few_queries_run_at_a_time_in_a_process(tmp_path):
    world, _ = make_world(SqliteMaker, tmp_path, sql_running=1, sql_timeout=1.0)
    outcomes = []

    def endless():
        try:
            world.result(MANAGER, ENDLESS)
        except SqlLimitError as late:
            outcomes.append(late.sqlstate)

    busy = threading.Thread(target=endless)
    busy.start()
    eventually(lambda: process.databases._running == 1)
    ask = world.ask(MANAGER)
    with closing(world.rota):
        world.rota._session.registry.settings = Settings(sql_running=1, sql_timeout=0.05)
        with pytest.raises(SqlLimitError) as refused:
            select(ask, "SELECT 1")
        assert refused.value.sqlstate == "53300"
        world.rota._session.registry.settings = Settings(sql_running=1, sql_timeout=60.0)
        assert select(ask, "SELECT 1").rows == ((1,),)
        busy.join()
    assert outcomes == ["57014"]


# ---- who sees what ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actor", STRANGERS, ids=lambda actor: actor.name)
def test_nothing_of_another_organization_is_seen_not_even_counted(world, actor):
    for table in ("jobs", "job_runs", "queue", "history", "job_dependencies", "occurrences", "calendars"):
        plain = reference(world.maker, actor)
        counted = world.asked(actor, f"SELECT count(*) FROM sys.{table}")
        assert counted == list(plain.execute(f"SELECT count(*) FROM sys.{table}")), table
        others = world.asked(actor, f"SELECT count(*) FROM sys.{table} WHERE organization <> ?", [actor.organization])
        assert others == [(0,)], table
    if actor.organization == "empty":
        assert world.asked(actor, "SELECT (SELECT count(*) FROM sys.job_runs), (SELECT count(*) FROM sys.jobs)") == [(0, 0)]


def test_ids_of_others_lead_nowhere(world):
    ((run, job),) = world.asked(ADMIN, "SELECT job_run_uuid, job_uuid FROM sys.job_runs LIMIT 1")
    for stranger in STRANGERS:
        assert world.asked(stranger, "SELECT 1 FROM sys.job_runs WHERE job_run_uuid = ?", [run]) == []
        assert world.asked(stranger, "SELECT 1 FROM sys.job_runs WHERE job_uuid = ? OR job_uuid = ?", [job, run]) == []


@pytest.mark.parametrize(
    ("actor", "table"),
    [
        (ADMIN, "workers"),
        (ADMIN, "settings"),
        (USER, "workers"),
        (USER, "audit"),
        (USER, "users"),
        (USER, "performance"),
        (USER, "organizations"),
    ],
    ids=str,
)
def test_a_table_that_no_reach_of_a_role_allows_is_refused(world, actor, table):
    for text in (f"SELECT * FROM sys.{table}", f"SELECT count(*) FROM sys.{table}", f"SELECT 1 WHERE EXISTS (SELECT 1 FROM sys.{table})"):
        # What a manager has asked before makes no difference.
        world.asked(MANAGER, text)
        with pytest.raises(SqlError) as refused:
            world.result(actor, text)
        assert refused.value.sqlstate == "42501"


def test_a_token_that_may_not_read_sees_nothing(world):
    token = Actor("ada", "acme", Role.ADMIN, operations=frozenset({Right.READ}))
    assert world.asked(token, "SELECT count(*) > 0 FROM sys.job_runs") == [(1,)]
    with pytest.raises(SqlError):
        world.result(token, "SELECT * FROM sys.audit")


def test_the_text_of_a_job_is_shown_to_those_who_may_change_it(tmp_path):
    world, _ = make_world(SqliteMaker, tmp_path)
    with closing(world.rota):

        @world.rota.job
        def theirs() -> None: ...

        world.rota.schedule("nightly", "theirs", cron="0 2 * * *")
        world.maker.damage("UPDATE templates SET kind = 'sql', body = 'SELECT secret'", "UPDATE schedules SET created_by = 'uma'")
        query = "SELECT job_type, job_sql, external_command FROM sys.jobs"
        assert world.asked(MANAGER, query) == [("SQL", "SELECT secret", None)]
        assert world.asked(Actor("ada", "default", Role.ADMIN), query) == [("SQL", "SELECT secret", None)]
        assert world.asked(Actor("uma", "default", Role.USER), query) == [("SQL", "SELECT secret", None)], "it is hers"
        assert world.asked(Actor("ada", "default", Role.ADMIN, operations=frozenset({Right.READ})), query) == [("SQL", None, None)]
        reader = Actor("uma", "default", Role.USER, operations=frozenset({Right.READ}))
        assert world.asked(reader, query) == [("SQL", None, None)]
        assert world.asked(reader, "SELECT 1 FROM sys.jobs WHERE job_sql LIKE '%secret%'") == []


# ---- the catalog ------------------------------------------------------------------------------------------------------


def test_the_language_names_the_tables_that_there_are():
    assert set(SYS_TABLES) == TABLES.keys()


def test_every_table_has_a_row_number_or_a_key_of_its_columns():
    for table in TABLES.values():
        names = [column.name for column in table.columns]
        assert len(names) == len(set(names)), table.name
        assert bool(table.number) != bool(table.key), table.name
        assert set(table.key) <= set(names), table.name
        assert all(column.what and not column.what.endswith(".") for column in table.columns), table.name


def test_no_table_has_the_value_of_a_secret():
    names = {f"{table.name}.{column.name}" for table in TABLES.values() for column in table.columns}
    assert not [name for name in names if "secret_value" in name or "token" in name or "hash" in name]


def test_a_query_may_have_comments_inside_comments(world):
    text = "SELECT /* a /* b */ , nothing */ count(*) -- from, ' nowhere\n FROM sys.jobs /* the end */"
    (result,) = world.rota.sql(text)
    assert result.rows == world.rota.sql("SELECT count(*) FROM sys.jobs")[0].rows


def test_the_place_of_an_error_in_a_query_is_that_in_the_script(world):
    with pytest.raises(SqlError) as caught:
        world.rota.sql("SHOW JOBS;\n  SELECT job_name,\n 'é', nocolumn FROM sys.jobs; SHOW JOBS")
    error = caught.value
    assert (error.line, error.column, error.statement, error.executed) == (3, 7, 2, 1)
    assert error.message.endswith("(statement 2 of 3; 1 executed)")
    assert error.position == 37
