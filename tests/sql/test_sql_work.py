"""Jobs that are SQL, procedures and commands, from CREATE JOB to what a real worker has recorded of them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from rota import Rota, Settings
from rota.errors import InvalidParams, SqlError
from rota.model.states import Status
from tests.runners.external.stage import WAYS, Stage, processes
from tests.sql.sql_support import create_connection, executed, make_file, rows, runs_of
from tests.stores.makers import MAKERS, PostgresMaker, SqliteMaker
from tests.support.clock import ManualClock
from tests.support.pace import patient
from tests.support.postgres import EMPTY, fresh_database
from tests.support.stranger import public_folder
from tests.support.waiting import eventually

BARE = next(way for way in WAYS if way.isolation == "off")
HOURLY = "SCHEDULE = EVERY 1 HOUR"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
"""Runs until it is stopped."""
WAREHOUSE = """
CREATE ROLE etl LOGIN; CREATE ROLE reporting; GRANT reporting TO etl;
"""
TABLES = """
CREATE TABLE sales (a int PRIMARY KEY, b text CHECK (b <> 'bad'));
INSERT INTO sales SELECT n, 'x' FROM generate_series(1, 5) AS n;
GRANT ALL ON sales TO etl; GRANT SELECT ON sales TO reporting;
CREATE PROCEDURE take(n int) LANGUAGE plpgsql AS $$ BEGIN DELETE FROM sales WHERE a <= n; RAISE NOTICE 'took %', n; END $$;
CREATE PROCEDURE fails() LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'sold out'; END $$;
"""


class Plant:
    """A store, a database that jobs write, and a folder of commands."""

    def __init__(self, where: object, folder: Path, commands: Stage, warehouse: str, **options: Any) -> None:
        self.where, self.folder, self.commands, self.warehouse = where, folder, commands, warehouse
        self.options = {"sql_paths": str(folder), "external_file": commands.config(), "synchronous": "NORMAL"}
        self.rota = self.open(**options)
        self._numbers = itertools.count(1)
        self.data = folder / "data.db"
        if "data" not in {each.name for each in self.rota.connections.list()}:
            create_connection(self.rota, "data", self.data, "t (x, y)", multi=True)
            self.rota.sql(f"CREATE CONNECTION ware URL '{warehouse}' USER 'etl'")

    def open(self, *, settings: dict[str, object] | None = None, **options: Any) -> Rota:
        return Rota(self.where, settings=Settings(**self.options | (settings or {})), seed=7, **options)

    def job(self, clauses: str) -> str:
        name = f"j{next(self._numbers)}"
        self.rota.sql(f"CREATE JOB {name} {HOURLY} {clauses}")
        return name

    def ran(self, clauses: str, params: str | None = None) -> dict[str, Any]:
        """Create a job, have it run, and return the run."""
        return executed(self.rota, self.job(clauses), params)

    def command(self, script: str) -> str:
        return self.commands.script(script, f"c{next(self._numbers)}")


@pytest.fixture(scope="module")
def warehouse() -> Iterator[str]:
    """The address of a database of somebody else's, without a user."""
    with fresh_database(like=EMPTY) as url:
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute(f"DO $$ BEGIN {WAREHOUSE} EXCEPTION WHEN duplicate_object THEN NULL; END $$")
            raw.execute(TABLES)
        yield url.replace("postgres@", "")


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.name)
def plant(request, tmp_path_factory, warehouse) -> Iterator[Plant]:
    folder = tmp_path_factory.mktemp("plant")
    with ExitStack() as stack:
        maker = stack.enter_context(closing(request.param(folder)))
        commands = Stage(stack.enter_context(public_folder()), BARE)
        made = Plant(maker.url, folder, commands, warehouse)
        stack.enter_context(closing(made.rota))
        yield made


def seen(run: dict[str, Any], names: str = "state result_message rows_affected result_data error_code sqlstate") -> tuple[Any, ...]:
    return tuple(run[name] for name in names.split())


# ---- what a run gives back --------------------------------------------------------------------------------------------

SQLITE_RUNS = {
    "SELECT 1 AS one": ("COMPLETED", "SELECT: 1 row", 0, '{"columns":["one"],"rows":[[1]]}', None, None),
    "INSERT INTO t VALUES (1, ''a''), (2, ''b'')": ("COMPLETED", "2 rows affected", 2, None, None, None),
    "CREATE TABLE IF NOT EXISTS made (x)": ("COMPLETED", "0 rows affected", 0, None, None, None),
    "INSERT INTO t VALUES (3, ''c''); SELECT count(*) AS n FROM t WHERE x = 3": (
        "COMPLETED", "1 row affected; SELECT: 1 row", 1, '{"columns":["n"],"rows":[[1]]}', None, None),
    "SELECT abs(-9223372036854775808)": ("FAILED", "integer overflow", None, None, 1, None),
}  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), SQLITE_RUNS.items())
def test_sql_on_sqlite_leaves_message_rows_result_and_code(plant, body, expected):
    with closing(apsw.Connection(str(plant.data))) as raw:
        raw.execute("DELETE FROM t")
    assert seen(plant.ran(f"CONNECTION data AS '{body}'")) == expected


WARE_RUNS = {
    "AS 'SELECT a FROM sales WHERE a = 5'": ("COMPLETED", "SELECT: 1 row", 0, '{"columns":["a"],"rows":[[5]]}', None, None),
    "AS 'UPDATE sales SET b = ''y'' WHERE a > 3'": ("COMPLETED", "2 rows affected", 2, None, None, None),
    "CALL take(0)": ("COMPLETED", "CALL", 0, None, None, None),
}


@pytest.mark.parametrize(("body", "expected"), WARE_RUNS.items())
def test_sql_and_procedures_on_postgresql_leave_message_rows_result(plant, body, expected):
    assert seen(plant.ran(f"CONNECTION ware {body}")) == expected


@pytest.mark.parametrize(
    ("body", "sqlstate", "message"),
    [
        ("AS 'INSERT INTO sales VALUES (9, ''bad'')'", "23514", "violates check constraint"),
        ("AS 'SELECT 1 / (a - a) FROM sales'", "22012", "division by zero"),
        ("CALL fails()", "P0001", "sold out"),
    ],
)
def test_an_error_of_postgresql_is_shown_with_its_sqlstate_and_its_number(plant, body, sqlstate, message):
    run = plant.ran(f"MAX_RETRIES = 0 CONNECTION ware {body}")
    assert (run["state"], run["sqlstate"], message in run["result_message"]) == ("FAILED", sqlstate, True)
    assert run["error_code"] == sum(((ord(letter) - 48) & 63) << 6 * place for place, letter in enumerate(sqlstate))


@pytest.mark.parametrize(
    ("script", "expected", "exit_code"),
    [
        ("echo hello; echo beside >&2", ("COMPLETED", "hello\nbeside", '"hello\\n"', None), None),
        ("exit 3", ("FAILED", "exit code 3", None, 3), 3),
        ("kill -9 $$", ("FAILED", None, None, 137), 137),
    ],
)
def test_a_command_leaves_its_output_and_its_exit_code(plant, script, expected, exit_code):
    run = plant.ran(f"MAX_RETRIES = 0 EXEC '{plant.command(script)}'")
    state, message, data, code = expected
    assert (run["state"], run["result_data"], run["error_code"]) == (state, data, code)
    assert message in {None, run["result_message"]}
    assert plant.rota.jobs.runs(run["job_run_uuid"])[-1].exit_code == exit_code


def test_output_of_a_command_and_notices_of_a_database_are_in_the_log_of_the_run(plant):
    command = plant.ran(f"EXEC '{plant.command('echo one; echo two >&2; printf three')}'")
    lines = plant.rota.jobs.log(command["job_run_uuid"]).text.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["OUTPUT one", "OUTPUT two", "OUTPUT three"]
    call = plant.ran("CONNECTION ware CALL take(0)")
    assert "OUTPUT NOTICE: took 0" in plant.rota.jobs.log(call["job_run_uuid"]).text


def test_a_run_knows_its_job_its_run_and_its_name(plant):
    selects = {
        "data": "SELECT rota_job_uuid(), rota_job_run_uuid(), rota_job_name()",
        "ware": "SELECT " + ", ".join(f"current_setting(''rota.{name}'')" for name in ("job_uuid", "job_run_uuid", "job_name")),
    }
    for connection, text in selects.items():
        run = plant.ran(f"CONNECTION {connection} AS '{text}'")
        assert json.loads(run["result_data"])["rows"] == [[run["job_uuid"], run["job_run_uuid"], run["job_name"]]]
    run = plant.ran(f"EXEC '{plant.command('env')}'")
    variables = dict(line.split("=", 1) for line in json.loads(run["result_data"]).splitlines())
    assert [variables[f"ROTA_JOB_{name}"] for name in ("UUID", "RUN_UUID", "NAME")] == [
        run[name] for name in ("job_uuid", "job_run_uuid", "job_name")
    ]


def test_a_job_runs_as_the_login_of_its_connection_or_as_the_role_that_it_names(plant):
    plant.rota.sql("CREATE ROLE reporting") if "reporting" not in {each.name for each in plant.rota.roles.list()} else None
    for clauses, who in [("", ["etl", "etl"]), ("RUN AS reporting", ["etl", "reporting"])]:
        run = plant.ran(f"CONNECTION ware {clauses} AS 'SELECT session_user, current_user'")
        assert json.loads(run["result_data"])["rows"] == [who]
    run = plant.ran("CONNECTION ware RUN AS reporting AS 'DELETE FROM sales'")
    assert (run["status"], run["sqlstate"]) == ("DEAD_LETTER", "42501")


def test_params_of_the_job_and_of_the_run_are_bound_by_name(plant):
    job = plant.job("CONNECTION data PARAMS = '{\"x\": 1, \"y\": [2]}' AS 'SELECT :x, :y'")
    assert json.loads(executed(plant.rota, job)["result_data"])["rows"] == [[1, "[2]"]]
    assert json.loads(executed(plant.rota, job, '{"x": "z"}')["result_data"])["rows"] == [["z", "[2]"]]


def test_a_body_is_one_transaction(plant):
    job = plant.job("MAX_RETRIES = 0 CONNECTION data AS 'INSERT INTO t VALUES (''half'', 1); SELECT abs(-9223372036854775808)'")
    assert executed(plant.rota, job)["state"] == "FAILED"
    assert rows(plant.data, "SELECT * FROM t WHERE x = 'half'") == []


def test_runs_keep_the_version_that_they_were_made_with(plant):
    job = plant.job("CONNECTION data AS 'SELECT ''old'''")
    plant.rota.sql(f"EXECUTE JOB {job}; ALTER JOB {job} SET AS 'SELECT ''new'''; EXECUTE JOB {job}")
    plant.rota.sql(f"ALTER JOB {job} SET CONNECTION NONE SET EXEC '{plant.command('echo newest')}'; EXECUTE JOB {job}")
    plant.rota.turn()
    assert [json.loads(run["result_data"]) for run in runs_of(plant.rota, job)] == [
        {"columns": ["'old'"], "rows": [["old"]]},
        {"columns": ["'new'"], "rows": [["new"]]},
        "newest\n",
    ]


# ---- retries ----------------------------------------------------------------------------------------------------------


def test_a_run_that_fails_is_retried_by_the_budget_of_the_job_without_jitter(plant):
    """Exit code 75 and a database that does not answer are worth another try; so is every other exit code."""
    clock = ManualClock()
    with closing(plant.open(clock=clock)) as rota:
        make_file(plant.folder / "gone.db")
        rota.sql(f"CREATE CONNECTION gone{id(clock)} URL 'sqlite:///{plant.folder / 'gone.db'}'")
        names = {"gone": f"CONNECTION gone{id(clock)} AS 'SELECT 1'", "tired": f"EXEC '{plant.command('exit 75')}'"}
        for name, clauses in names.items():
            rota.sql(f"CREATE JOB {name} SCHEDULE = EVERY 1 DAY {clauses}; EXECUTE JOB {name}")
        (plant.folder / "gone.db").unlink()
        waits: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(4):
            rota.turn()
            pending = {name: job for name in names for job in rota.jobs.list(schedule=name) if job.status is Status.PENDING}
            for name, job in pending.items():
                waits[name].append((job.run_at - rota.now).total_seconds())
            clock.advance(seconds=max((each[-1] for each in waits.values()), default=0))
        assert waits == {"gone": [60, 120, 240], "tired": [60, 120, 240]}
        for name in names:
            assert [(run["state"], run["retry_count"]) for run in runs_of(rota, name)] == [("FAILED", count) for count in range(4)]
            assert runs_of(rota, name)[-1]["status"] == "DEAD_LETTER"
            rota.sql(f"DROP JOB {name}")
        rota.sql(f"DROP CONNECTION gone{id(clock)}")


# ---- stops ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def endless(plant) -> dict[str, str]:
    """Jobs that run until they are stopped, by what they are; each has begun when its command or its database says so."""
    return {
        "sqlite": plant.job(f"TIMEOUT = 1 MAX_RETRIES = 0 CONNECTION data AS '{ENDLESS}'"),
        "postgres": plant.job("TIMEOUT = 1 MAX_RETRIES = 0 CONNECTION ware AS 'SELECT pg_sleep(600)'"),
        "command": plant.job(f"TIMEOUT = 1 MAX_RETRIES = 0 EXEC '{plant.command('sleep 600 & wait')}'"),
    }


def running(rota: Rota, jobs: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the runs of jobs as soon as all of them have begun."""

    def all_run() -> dict[str, dict[str, Any]] | None:
        runs = {kind: runs_of(rota, name)[-1] for kind, name in jobs.items()}
        return runs if all(run["state"] == "RUNNING" for run in runs.values()) else None

    return eventually(all_run, within=20)


def sessions(plant: Plant) -> int:
    with psycopg.connect(plant.warehouse.replace("//", "//postgres@"), autocommit=True) as raw:
        return int(raw.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'etl' AND state = 'active'").fetchone()[0])


def test_a_run_over_its_timeout_fails_saying_so_and_leaves_nothing_running(plant, endless):
    with plant.rota.running():
        for name in endless.values():
            plant.rota.sql(f"EXECUTE JOB {name}")
        runs = running(plant.rota, endless)
        ended = eventually(lambda: _ended(plant.rota, endless), within=20)
    for kind, run in ended.items():
        assert (run["state"], run["status"], run["result_message"]) == ("FAILED", "DEAD_LETTER", "timed out after 1 s"), kind
    assert sessions(plant) == 0
    assert processes(runs["command"]["job_run_uuid"]) == []


def test_a_run_that_is_cancelled_stops_its_statement_and_its_command(plant, endless):
    for name in endless.values():
        plant.rota.sql(f"ALTER JOB {name} SET TIMEOUT = 600")
    with plant.rota.running():
        for name in endless.values():
            plant.rota.sql(f"EXECUTE JOB {name}")
        runs = running(plant.rota, endless)
        eventually(lambda: sessions(plant) == 1, what="the statement")
        for run in runs.values():
            plant.rota.sql(f"CANCEL JOB RUN '{run['job_run_uuid']}'")
        ended = eventually(lambda: _ended(plant.rota, endless), within=20)
    assert {run["state"] for run in ended.values()} == {"CANCELLED"}
    assert sessions(plant) == 0
    assert processes(runs["command"]["job_run_uuid"]) == []


def _ended(rota: Rota, jobs: dict[str, str]) -> dict[str, dict[str, Any]] | None:
    runs = {kind: runs_of(rota, name)[-1] for kind, name in jobs.items()}
    return runs if all(run["state"] not in {"PENDING", "RUNNING"} for run in runs.values()) else None


# ---- definitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connection", "body", "sqlstate", "place"),
    [
        ("data", "SELECT 1\n  FRM, FROM t", "42601", "line 2, column"),
        ("data", "SELECT nosuch FROM t", "42703", "line 1, column 8"),
        ("data", "SELECT :missing", "42P02", "line 1, column 8"),
        ("data", "ATTACH ''x'' AS y", "42501", ""),
        ("ware", "SELECT 1,\n  FROM sales WHERE", "42601", "line 2, column"),
        ("ware", "SELECT *\nFROM nosuch", "42P01", "line 2, column 6"),
        ("ware", "BEGIN", "", ""),
    ],
)
def test_a_text_that_its_database_does_not_take_is_refused_with_the_place_in_it(plant, connection, body, sqlstate, place):
    good = plant.job(f"CONNECTION {connection} AS 'SELECT 1'")
    for statement in (f"CREATE JOB bad {HOURLY} CONNECTION {connection} AS '{body}'", f"ALTER JOB {good} SET AS '{body}'"):
        with pytest.raises(SqlError) as refused:
            plant.rota.sql(statement)
        assert refused.value.sqlstate.startswith(sqlstate), refused.value
        assert place in str(refused.value), refused.value
        assert statement[refused.value.position - 1 :].lstrip("AS ").startswith("'"), "it points at the text"
    assert dict(plant.rota.sql(f"SHOW JOB {good}")[0].rows)["body"] == "SELECT 1"
    assert "bad" not in [row[0] for row in plant.rota.sql("SHOW JOBS")[0].rows]


def test_a_database_that_does_not_answer_is_a_notice(plant):
    plant.rota.sql(f"CREATE CONNECTION away{id(plant)} URL 'postgresql://127.0.0.1:1/x' USER 'app'")
    (result,) = plant.rota.sql(f"CREATE JOB away {HOURLY} CONNECTION away{id(plant)} AS 'SELEC 1'")
    assert "was not checked" in result.notices[0].message
    (altered,) = plant.rota.sql("ALTER JOB away SET AS 'SELECT 1'")
    assert "could not be asked" in altered.notices[0].message
    plant.rota.sql(f"DROP JOB away; DROP CONNECTION away{id(plant)}")


def test_an_atomic_script_asks_no_other_database(plant):
    (result,) = plant.rota.sql(f"CREATE JOB whole {HOURLY} CONNECTION data AS 'SELEC 1'", atomic=True)
    assert "an atomic script asks no other database" in result.notices[0].message
    run = executed(plant.rota, "whole")
    assert (run["status"], 'near "SELEC"' in run["result_message"]) == ("DEAD_LETTER", True)
    plant.rota.sql("DROP JOB whole")


@pytest.mark.parametrize("text", ["CREATE TABLE later (x); INSERT INTO later VALUES (1)", "SELECT 1; SELECT * FROM not_there_yet"])
def test_statements_after_the_first_may_need_what_it_creates(plant, text):
    assert plant.job(f"CONNECTION data AS '{text}'")


# ---- workers ----------------------------------------------------------------------------------------------------------


def test_explain_says_when_nobody_serves_a_job_and_when_somebody_does(plant):
    sql, command = plant.job("CONNECTION data AS 'SELECT 1'"), plant.job(f"EXEC '{plant.command('true')}'")

    def is_served(name: str) -> tuple[bool, str]:
        return next((met, detail) for condition, met, detail in plant.rota.sql(f"EXPLAIN JOB {name}")[0].rows if "live worker" in condition)

    plant.rota.close()
    assert is_served(sql) == (
        False,
        "no live worker serves connection 'data' of organization 'default': start one that does, or create the connection",
    )
    assert is_served(command)[0] is False
    assert "ROTA_EXTERNAL_FILE" in is_served(command)[1]
    run = plant.rota.sql(f"EXECUTE JOB {command}")[0].rows[0][0]
    with closing(plant.open(settings={"external_file": ""})) as other, other.running():
        eventually(lambda: is_served(sql)[0])
        assert any("ROTA_EXTERNAL_FILE" in str(row) for row in plant.rota.sql(f"EXPLAIN JOB RUN '{run}'")[0].rows)
    with plant.rota.running():
        eventually(lambda: is_served(sql)[0] and is_served(command)[0])
        eventually(lambda: runs_of(plant.rota, command)[-1]["state"] == "COMPLETED")


def test_a_worker_without_a_file_of_commands_runs_none(plant):
    job = plant.job(f"EXEC '{plant.command('true')}'")
    with closing(plant.open(settings={"external_file": ""})) as rota:
        assert executed(rota, job)["state"] == "PENDING"
    assert executed(plant.rota, job)["state"] == "COMPLETED"


def test_a_connection_that_is_created_later_is_served_without_a_restart(plant):
    with closing(plant.open()) as worker, worker.running():
        name = f"late{id(worker)}"
        create_connection(plant.rota, name, plant.folder / f"{name}.db", "t (x)")
        job = plant.job(f"CONNECTION {name} AS 'INSERT INTO t VALUES (1)'")
        plant.rota.sql(f"EXECUTE JOB {job}")
        eventually(lambda: runs_of(plant.rota, job)[-1]["state"] == "COMPLETED")
        plant.rota.sql(f"DROP JOB {job}; DROP CONNECTION {name}")
        assert f"kind:sql:default/{name}" not in worker._session.registry.handlers or eventually(
            lambda: f"kind:sql:default/{name}" not in worker._session.registry.handlers
        )


@pytest.mark.parametrize(
    ("serving", "expected"),
    [
        ({"types": ["kind:sql:default/data"]}, {"data": "COMPLETED", "ware": "PENDING", "command": "PENDING"}),
        ({"types": ["kind:sql:*"]}, {"data": "COMPLETED", "ware": "COMPLETED", "command": "PENDING"}),
        ({"exclude": ["kind:external", "kind:sql:default/ware"]}, {"data": "COMPLETED", "ware": "PENDING", "command": "PENDING"}),
        ({"types": ["kind:external"]}, {"data": "PENDING", "ware": "PENDING", "command": "COMPLETED"}),
    ],
)
def test_a_worker_serves_the_kinds_and_connections_that_it_is_started_for(plant, serving, expected):
    jobs = {
        "data": plant.job("CONNECTION data AS 'SELECT 1'"),
        "ware": plant.job("CONNECTION ware AS 'SELECT 1'"),
        "command": plant.job(f"EXEC '{plant.command('true')}'"),
    }
    for name in jobs.values():
        plant.rota.sql(f"EXECUTE JOB {name}")
    with closing(plant.open()) as rota, rota.running(**serving):
        done = {kind for kind, state in expected.items() if state == "COMPLETED"}
        eventually(lambda: all(runs_of(rota, jobs[kind])[-1]["state"] == "COMPLETED" for kind in done))
        time.sleep(0.05)
        assert {kind: runs_of(rota, name)[-1]["state"] for kind, name in jobs.items()} == expected
    for name in jobs.values():
        plant.rota.sql(f"DROP JOB {name}")


# No earlier version has a store on MongoDB.
@pytest.mark.parametrize("plant", [SqliteMaker, PostgresMaker], indirect=True, ids=["sqlite", "postgres"])
def test_a_job_that_an_earlier_version_has_stored_can_be_enabled(plant, where_raw):
    """Before there were runners all SQL jobs had the type kind:sql."""
    job = plant.job("DISABLED AS 'SELECT 1'")
    where_raw(f"UPDATE templates SET job_type = 'kind:sql' WHERE name = '{job}'")
    where_raw("UPDATE template_versions SET job_type = 'kind:sql' WHERE template_id = (SELECT template_id FROM templates WHERE"
              f" name = '{job}')")  # fmt: skip
    folder = Path(sys.modules["rota"].__file__).parent / "stores" / ("postgres" if "postgres" in str(plant.where) else "sqlite")
    (migration,) = (folder / "migrations").glob("*_kinds.sql")
    for statement in migration.read_text().split(";"):
        if statement.strip():
            where_raw(statement)
    with closing(plant.open()) as rota:
        (disabled,) = rota.sql(f"ENABLE JOB {job}")
        assert disabled.notices
        create_connection(rota, "default", plant.folder / "default.db")
        (enabled,) = rota.sql(f"ENABLE JOB {job}")
        assert enabled.notices == ()
        assert executed(rota, job)["state"] == "COMPLETED"


@pytest.fixture
def where_raw(plant):
    """What executes a statement on the store behind Rota's back."""

    def execute(statement: str) -> None:
        if "postgres" in str(plant.where):
            with psycopg.connect(plant.where, autocommit=True, options="-c search_path=rota") as raw:
                raw.execute(statement)
        else:
            with closing(apsw.Connection(str(plant.where))) as raw:
                raw.set_busy_timeout(5000)
                raw.execute(statement)

    return execute


# ---- kill -9 ----------------------------------------------------------------------------------------------------------

WORKER = """
import json, os, sys
from rota import Rota, Settings
rota = Rota(sys.argv[1], settings=Settings(**json.loads(sys.argv[2])))
print("started", flush=True)
rota.run(concurrency=4)
"""


def test_a_worker_that_is_killed_leaves_nothing_running_and_commits_nothing_twice(plant):
    """Both runs have written when their worker is killed: SQL is undone, a command ends, and both run again from the beginning."""
    create_connection(plant.rota, f"kept{id(plant)}", plant.folder / "kept.db", "done (x)", multi=True)
    marks = plant.commands.work / "marks"
    marks.touch()
    marks.chmod(0o666)
    sql = plant.job(f"CONNECTION kept{id(plant)} AS 'INSERT INTO done VALUES (1); {ENDLESS}'")
    procedure = plant.job("CONNECTION ware AS 'WITH taken AS (DELETE FROM sales WHERE a = 5 RETURNING a) SELECT pg_sleep(600) FROM taken'")
    command = plant.job(f"EXEC '{plant.command(f'echo begun >> {marks}; sleep 600 & wait')}'")
    jobs = {"sql": sql, "procedure": procedure, "command": command}
    for name in jobs.values():
        plant.rota.sql(f"EXECUTE JOB {name}")
    options = plant.options | {"recovery_interval": 0.1}
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(plant.where), json.dumps(options)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(Path(sys.modules["rota"].__file__).parents[1])},
    )  # fmt: skip
    try:
        runs = running(plant.rota, jobs)
        eventually(lambda: marks.read_text() == "begun\n" and sessions(plant) == 1, what="the command and the statement")
    finally:
        worker.kill()
        worker.wait(patient(10))
        worker.stdout.close()
    eventually(lambda: processes(runs["command"]["job_run_uuid"]) == [], what="the end of the command")
    eventually(lambda: sessions(plant) == 0, what="the end of the session")
    assert rows(plant.folder / "kept.db", "SELECT * FROM done") == []
    plant.rota.sql(f"ALTER JOB {sql} SET AS 'SELECT 1'")
    with closing(plant.open(settings={"recovery_interval": 0.1})) as second, second.running():
        # Each is a suspect now, and runs alone.
        left = set(jobs.values())
        while left:
            name, run = eventually(lambda: _second_attempt(second, left), within=30)
            if name == command:
                eventually(lambda: marks.read_text() == "begun\n" * 2, what="the command again")
            second.sql(f"CANCEL JOB RUN '{run['job_run_uuid']}'")
            left.remove(name)
        ended = eventually(lambda: _ended(second, jobs), within=20)
    assert {run["state"] for run in ended.values()} == {"CANCELLED"}
    for name in jobs.values():
        first, _ = runs_of(plant.rota, name)
        assert (first["state"], first["error_type"]) == ("FAILED", "crash")
    assert marks.read_text() == "begun\n" * 2
    assert rows(plant.folder / "kept.db", "SELECT * FROM done") == []
    with psycopg.connect(plant.warehouse.replace("//", "//postgres@"), autocommit=True) as raw:
        assert raw.execute("SELECT count(*) FROM sales").fetchone() == (5,)


def _second_attempt(rota: Rota, names: set[str]) -> tuple[str, dict[str, Any]] | None:
    """Return a job whose second attempt runs, and that run."""
    runs = ((name, runs_of(rota, name)[-1]) for name in sorted(names))
    return next(((name, run) for name, run in runs if (run["state"], run["retry_count"]) == ("RUNNING", 1)), None)


# ---- params -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "words"),
    [
        ("CONNECTION data PARAMS = '{\"z\": 1}' AS 'SELECT 1'", "has no parameter 'z'; it takes: none"),
        ("CONNECTION ware PARAMS = '{\"x\": 1, \"z\": 1}' AS 'SELECT :x::int, (ARRAY[1,2])[1:2]'", "has no parameter 'z'; it takes: x"),
        ("CONNECTION ware PARAMS = '{\"n\": 1}' CALL take(0)", "has no parameter 'n'; it takes: none"),
        ("PARAMS = '{\"z\": 1}' EXEC '/bin/true'", "has no parameter 'z'; it takes: none"),
    ],
)
def test_params_that_a_job_does_not_use_are_refused_in_every_statement(plant, clauses, words):
    wrong = clauses[clauses.index("PARAMS") : clauses.index("}'") + 2]
    right = "PARAMS = '{\"x\": 1}'" if ":x" in clauses else ""
    job = plant.job(clauses.replace(wrong, right))
    for text in (
        f"CREATE JOB never {HOURLY} {clauses}",
        f"CREATE OR ALTER JOB {job} {HOURLY} {clauses}",
        f"CREATE JOB never {HOURLY} STATE = DISABLED {clauses}",
        f"ALTER JOB {job} SET {wrong}",
        f"EXECUTE JOB {job} WITH {wrong}".replace("PARAMS =", "PARAMS"),
    ):
        with pytest.raises(SqlError, match=words) as refused:
            plant.rota.sql(text)
        assert (refused.value.code, refused.value.sqlstate) == ("invalid_params", "22023")
        assert refused.value.column == text.index("PARAMS") + len("PARAMS = " if "PARAMS =" in text else "PARAMS ") + 1 or "EXECUTE" in text
    assert "never" not in {each.name for each in plant.rota.schedules.list()}
    assert not any(each.job_type == job for each in plant.rota.jobs.list())


def test_a_name_that_has_no_value_is_refused_where_the_params_change(plant):
    job = plant.job("CONNECTION data PARAMS = '{\"x\": 1}' AS 'SELECT :x'")
    with pytest.raises(SqlError, match="needs a parameter 'x'"):
        plant.rota.sql(f"ALTER JOB {job} SET PARAMS = '{{}}'")
    with pytest.raises(InvalidParams, match="needs a parameter 'x'"):
        plant.rota.schedules.update(job, params={})
    with pytest.raises(SqlError, match="has no parameter 'x'; it takes: y"):
        plant.rota.sql(f"ALTER JOB {job} SET AS 'SELECT :y' SET PARAMS = '{{\"y\": 1, \"x\": 1}}'")
    with pytest.raises(SqlError, match="has no parameter 'x'; it takes: none"):
        plant.rota.sql(f"ALTER JOB {job} SET AS 'SELECT 1'")
    plant.rota.sql(f"ALTER JOB {job} SET AS 'SELECT 1' SET PARAMS = '{{}}'")
