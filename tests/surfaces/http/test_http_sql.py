"""SQL over HTTP: results and errors as JSON, never more than the token may do elsewhere, and no query outlives its client."""

from __future__ import annotations

import http.client
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from rota import Rota, Settings
from rota.model.access import PERMITS, Permit
from rota.model.gate import Right
from rota.sql.catalog import TABLES
from rota.sql.private_database import process
from rota.sql.run import DOINGS, READING
from rota.surfaces.http import make_app
from rota.surfaces.http.access import COOKIE
from rota.surfaces.http.api.endpoint import API
from rota.surfaces.http.openapi import codes
from tests.support.keys import key_file
from tests.surfaces.http.api_support import Caller, Callers, callers, code_of
from tests.surfaces.http.sse_support import served

__all__ = ["callers"]
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
HOURLY = "SCHEDULE = EVERY 1 HOUR CALL echo()"
STATEMENTS = {
    "CREATE JOB other SCHEDULE = EVERY 1 HOUR CALL echo()": Right.CREATE_JOBS,
    "CREATE OR ALTER JOB j SCHEDULE = EVERY 2 HOURS CALL echo()": Right.CREATE_JOBS,
    "RECREATE JOB j SCHEDULE = EVERY 2 HOURS CALL echo()": Right.CREATE_JOBS,
    "ALTER JOB j SET TIMEOUT = 5": Right.ALTER_JOBS,
    "PAUSE JOB j": Right.ALTER_JOBS,
    "RESUME JOB j": Right.ALTER_JOBS,
    "DISABLE JOB j": Right.ALTER_JOBS,
    "ENABLE JOB j": Right.ALTER_JOBS,
    "EXECUTE JOB j": Right.EXECUTE_JOBS,
    "CANCEL JOB j": Right.CANCEL,
    "SHOW JOBS": Right.READ,
    "SHOW JOB j": Right.READ,
    "SHOW JOB RUNS": Right.READ,
    "EXPLAIN JOB j": Right.READ,
    "PLAN DROP JOB j": Right.DROP_JOBS,
    "FORECAST JOB j FOR 1 HOUR": Right.READ,
    "SELECT job_name FROM sys.jobs": Right.READ,
    "DROP JOB j": Right.DROP_JOBS,
    "GRANT EXECUTE ON JOB j TO PUBLIC": Right.GRANT,
    "REVOKE EXECUTE ON JOB j FROM PUBLIC": Right.GRANT,
    "CREATE ROLE r": Right.MANAGE_GRANTS,
    "CREATE CONNECTION c URL = 'postgresql://127.0.0.1/dw' USER = 'etl'": Right.MANAGE_CONNECTIONS,
    "CREATE SECRET s VALUE 'hunter2'": Right.MANAGE_SECRETS,
    "ALTER JOB j SET SECRET s = 'hunter2'": Right.ALTER_JOBS,
    "SHOW SECRETS": Right.READ,
}


def run(caller: Caller, text: str, params: object = None, **more: object):
    return caller.post("/sql", {"sql": text, **({} if params is None else {"params": params}), **more})


def test_each_statement_has_a_result_of_columns_and_rows(callers: Callers):
    answer = run(callers.admin, f"CREATE JOB nightly {HOURLY}; SELECT job_name, timeout_seconds, description FROM sys.jobs")
    assert answer.status_code == 200
    created, queried = answer.json()["results"]
    assert created == {"tag": "CREATE JOB", "columns": [], "rows": [], "notices": [], "truncated": False}
    assert queried["tag"] == "SELECT 1"
    assert queried["columns"] == ["job_name", "timeout_seconds", "description"]
    assert queried["rows"] == [["nightly", 3600, None]]


@pytest.mark.parametrize(
    ("text", "params", "row"),
    [
        ("SELECT ?, ?, ?", [1, "two", None], [1, "two", None]),
        ("SELECT :a, :b", {"a": 2.5, "b": True}, [2.5, 1]),
    ],
)
def test_parameters_are_a_list_or_an_object(callers, text, params, row):
    assert run(callers.user, text, params).json()["results"][0]["rows"] == [row]


def test_an_error_has_its_place_its_sqlstate_and_what_was_executed(callers):
    answer = run(callers.admin, f"CREATE JOB a {HOURLY};\nSELECT nope FROM sys.jobs")
    assert (answer.status_code, code_of(answer)) == (422, "unknown_column")
    problem = answer.json()
    assert [problem[name] for name in ("sqlstate", "line", "column", "statement", "executed")] == ["42703", 2, 8, 2, 1]
    assert problem["position"] == len(f"CREATE JOB a {HOURLY};\nSELECT n")
    answer = run(callers.admin, f"CREATE JOB b {HOURLY}; CREATE JOB a {HOURLY}; CREATE JOB c {HOURLY}")
    assert (answer.status_code, code_of(answer)) == (422, "job_exists")
    assert (answer.json()["statement"], answer.json()["executed"]) == (2, 1)
    answer = run(callers.admin, f"CREATE JOB d {HOURLY}; SELEC 1")
    assert (answer.status_code, code_of(answer)) == (422, "sql_syntax")
    assert (answer.json()["executed"], answer.json()["suggestion"], "statement" in answer.json()) == (0, "SELECT", False)
    names = run(callers.admin, "SELECT job_name FROM sys.jobs ORDER BY 1").json()["results"][0]["rows"]
    assert names == [["a"], ["b"]]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sql": ""},
        {"sql": 1},
        {"sql": "SELECT 1", "more": 1},
        {"sql": "SELECT 1", "params": "a"},
        {"sql": "SELECT ?", "params": [[1]]},
        {"sql": "SELECT 1", "atomic": "no"},
        {"sql": "SELECT 1", "params": [1]},
        {"sql": "SELECT 1 \0"},
    ],
)
def test_a_body_that_is_not_a_script_is_refused(callers, body):
    answer = callers.admin.post("/sql", body)
    assert answer.status_code == 422, answer.text
    assert code_of(answer)


@pytest.mark.parametrize("text", ["SELECT char(55296)", "SELECT CAST(x'ff' AS TEXT)"])
def test_a_text_that_is_not_unicode_is_refused_with_the_remedy(callers, text):
    answer = run(callers.user, text)
    assert (answer.status_code, answer.json()["sqlstate"]) == (422, "22021")
    assert "hex()" in answer.json()["detail"]


def test_values_that_json_has_not_are_null_or_text(callers):
    assert run(callers.user, "SELECT 9e999, x'00ff', 9223372036854775807").json()["results"][0]["rows"] == [[None, "AP8=", 2**63 - 1]]


@pytest.mark.parametrize("permit", Permit)
@pytest.mark.parametrize("text", STATEMENTS)
def test_a_token_may_do_with_sql_what_its_permits_allow(callers, permit, text):
    run(callers.admin, f"CREATE JOB j {HOURLY}")
    answer = run(callers.of("ada", permit), text)
    allowed = permit in {PERMITS[STATEMENTS[text]], Permit.MANAGE}
    assert answer.status_code == (200 if allowed else 403), answer.text
    if not allowed:
        assert (code_of(answer), answer.json()["sqlstate"]) == ("permission_denied", "42501")


def test_statements_that_only_read_are_those_that_need_no_more_than_to_read():
    assert {kind.__name__ for kind in READING} == {"Show", "ExplainJob", "ExplainRun", "PlanChange", "ForecastJobs", "Select"}
    assert set(STATEMENTS.values()) >= {doing.right for doing in DOINGS.values()} - {Right.MANAGE_ORGANIZATIONS, Right.OPERATE}


@pytest.mark.parametrize("name", TABLES)
def test_no_table_is_read_with_a_token_that_may_not_read(callers, name):
    reads = PERMITS[TABLES[name].right] is Permit.READ
    assert run(callers.of("root", "read"), f"SELECT * FROM sys.{name} LIMIT 1").status_code == (200 if reads else 403)
    assert run(callers.manager, f"SELECT * FROM sys.{name} LIMIT 1").status_code == 200
    assert run(callers.of("root", "submit", "operate"), f"SELECT * FROM sys.{name} LIMIT 1").status_code == 403


def test_nothing_of_another_organization_is_shown_or_changed(callers):
    run(callers.admin, f"CREATE JOB secretly {HOURLY}; EXECUTE JOB secretly")
    run_id = run(callers.admin, "SELECT job_run_uuid FROM sys.job_runs").json()["results"][0]["rows"][0][0]
    before = run(callers.admin, "SHOW CREATE JOB secretly; SELECT * FROM sys.job_runs").json()
    for name in TABLES:
        assert "secretly" not in run(callers.other, f"SELECT * FROM sys.{name}").text
    for text in STATEMENTS:
        named = re.sub(r"\bj\b", "secretly", text)
        if "secretly" in named and not named.startswith(("CREATE", "RECREATE")):
            assert code_of(run(callers.other, named)) == "unknown_job", named
    assert code_of(run(callers.other, f"CANCEL JOB RUN {run_id}")) == "unknown_run"
    for text in ("SHOW JOBS", "SHOW JOB RUNS", "SHOW OCCURRENCES", "SHOW DEPENDENCIES", "FORECAST FOR 1 DAY"):
        assert "secretly" not in run(callers.other, text).text
    assert run(callers.admin, "SHOW CREATE JOB secretly; SELECT * FROM sys.job_runs").json() == before


def test_nobody_and_a_page_of_somebody_else_are_refused(callers):
    assert callers.client.post(f"{API}/sql", json={"sql": "SELECT 1"}).status_code == 401
    session = callers.client.app.state.door.admission.open_session(callers.rota.tokens.create("b", user="ada", permits=["manage"]).secret)
    answer = callers.client.post(f"{API}/sql", json={"sql": "SELECT 1"}, headers={"Cookie": f"{COOKIE}={session.secret}"})
    assert (answer.status_code, code_of(answer)) == (403, "permission_denied")


def test_a_secret_in_a_statement_reaches_no_log_line_and_no_answer(rota, caplog):
    settings = Settings(http_log="yes")
    with closing(Rota(rota.store.url, settings=settings)) as logged, TestClient(make_app(logged)) as client, caplog.at_level(0):
        caller = Caller(client, logged.tokens.create("all", permits=["manage"]).secret)
        for text in ("CREATE SECRET s VALUE 'hunter2'", "CREATE SECRET s VALUE 'hunter2' x", "SELECT 'hunter2"):
            assert "hunter2" not in run(caller, text).text
    assert "/api/v1/sql" in caplog.text
    assert "hunter2" not in caplog.text


def test_every_code_of_a_statement_is_in_the_document():
    assert {"sql_syntax", "sql_failed", "sql_limit", "job_exists", "unknown_job", "not_available", "read_only"} <= set(codes())


# ---- queries that take long ------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(sql_timeout=20, sql_running=2, master_key_file=str(key_file(tmp_path)))


def running() -> int:
    return process.databases._running


def until(condition, timeout_s: float = 20.0) -> bool:
    end = time.monotonic() + timeout_s
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return met


def post(port: int, secret: str, text: str) -> http.client.HTTPConnection:
    """Send a script and leave its answer unread."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    connection.request("POST", f"{API}/sql", json.dumps({"sql": text}), headers)
    return connection


def test_a_client_that_goes_away_interrupts_its_query(rota):
    with served(rota) as here:
        began = time.monotonic()
        connection = post(here.port, here.secret, ENDLESS)
        assert until(lambda: running() == 1)
        connection.close()
        assert until(lambda: running() == 0)
        assert time.monotonic() - began < rota.settings.sql_timeout / 2


def test_a_query_on_postgresql_is_interrupted_too_and_the_next_is_answered(shop):
    shop.enqueue("ship", {"order": 1})
    with served(shop) as here:
        for _ in range(3):
            connection = post(here.port, here.secret, f"{ENDLESS}, sys.queue")
            assert until(lambda: running() == 1)
            connection.close()
            assert until(lambda: running() == 0, shop.settings.sql_timeout / 2)
        assert status(post(here.port, here.secret, "SELECT * FROM sys.queue")) == 200


def test_a_client_that_goes_away_begins_no_further_statement(rota):
    rota.job(echo)
    with served(rota) as here:
        connection = post(here.port, here.secret, f"{ENDLESS}; CREATE JOB later {HOURLY}")
        assert until(lambda: running() == 1)
        connection.close()
        assert until(lambda: running() == 0)
    assert rota.sql("SHOW JOBS")[0].rows == ()


def echo(text: str = "hi") -> str:
    return text


def test_queries_that_wait_for_their_turn_keep_no_thread_from_other_requests(rota):
    with served(rota) as here, ThreadPoolExecutor(60) as pool:
        connections = list(pool.map(lambda _: post(here.port, here.secret, ENDLESS), range(50)))
        assert until(lambda: running() == rota.settings.sql_running)
        began = time.monotonic()
        other = http.client.HTTPConnection("127.0.0.1", here.port, timeout=60)
        other.request("GET", f"{API}/jobs", headers={"Authorization": f"Bearer {here.secret}"})
        assert other.getresponse().status == 200
        assert time.monotonic() - began < rota.settings.sql_timeout / 2
        assert running() == rota.settings.sql_running
        other.close()
        for connection in connections:
            connection.close()
        assert until(lambda: running() == 0)


class TestImpatient:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(sql_timeout=0.3, sql_running=1)

    def test_a_query_that_takes_too_long_is_refused(self, callers):
        answer = run(callers.user, ENDLESS)
        assert (answer.status_code, code_of(answer), answer.json()["sqlstate"]) == (422, "sql_limit", "57014")
        assert "sql_timeout" in answer.json()["detail"]

    def test_a_query_that_finds_no_room_is_to_come_again(self, rota):
        with served(rota) as here, process.databases.lent(rota.settings, time.monotonic() + 1):
            connection = post(here.port, here.secret, "SELECT 1")
            answer = connection.getresponse()
            assert answer.status == 429
            assert json.loads(answer.read())["sqlstate"] == "53300"
            connection.close()


class TestBriefWait:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(http_direct_wait=0.5, http_direct_max=1)

    def test_a_wait_for_a_run_ends_with_the_patience_of_the_server(self, callers):
        run(callers.admin, f"CREATE JOB j {HOURLY}")
        (result,) = run(callers.admin, "EXECUTE JOB j WAIT").json()["results"]
        assert result["rows"][0][1] == "PENDING"
        assert "it continues" in result["notices"][0]["message"]

    def test_scripts_that_wait_are_bounded_and_delay_no_query(self, rota):
        rota.job(echo)
        rota.sql(f"CREATE JOB j {HOURLY}")
        with served(rota) as here, ThreadPoolExecutor(1) as pool:
            first = pool.submit(status, post(here.port, here.secret, "EXECUTE JOB j WAIT"))
            assert until(lambda: rota.sql("SHOW JOB RUNS")[0].rows != ())
            assert status(post(here.port, here.secret, "EXECUTE JOB j WAIT")) == 409
            assert status(post(here.port, here.secret, "SELECT 1")) == 200
            assert first.result() == 200


def status(connection: http.client.HTTPConnection) -> int:
    """Read the answer, and return its status."""
    with closing(connection):
        answer = connection.getresponse()
        answer.read()
        return answer.status
