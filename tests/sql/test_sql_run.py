"""Scripts that are carried out: read whole, statement by statement, up to the first that fails."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import get_args

import pytest

from rota.errors import InvalidOption, SqlError
from rota.model.gate import Right
from rota.sql.errors import SqlStatementError
from rota.sql.run import DOINGS
from rota.sql.syntax import Statement
from tests.support.clock import ManualClock

HOURLY = "SCHEDULE = EVERY 1 HOUR CALL report()"


def refused(rota, text, params=None) -> SqlStatementError:
    with pytest.raises(SqlStatementError) as caught:
        rota.sql(text, params)
    return caught.value


def test_every_kind_of_statement_has_a_right_and_something_that_does_it():
    assert set(DOINGS) == set(get_args(Statement))
    assert all(doing.right in set(Right) for doing in DOINGS.values())


def test_a_script_has_a_result_for_each_statement(rota):
    results = rota.sql(f"CREATE JOB a {HOURLY}; CREATE JOB b {HOURLY}; SHOW JOBS LIKE 'a%'")
    assert [result.tag for result in results] == ["CREATE JOB", "CREATE JOB", "SHOW 1"]
    assert results[2].columns[0] == "job_name"
    assert results[2].rows[0][0] == "a"


def test_nothing_runs_if_a_later_statement_can_not_be_read(rota):
    with pytest.raises(SqlError, match="nothing of the script was executed"):
        rota.sql(f"CREATE JOB a {HOURLY}; CREATE JOB")
    assert rota.schedules.list() == []


def test_the_first_statement_that_fails_ends_the_script_and_says_which_it_is(rota):
    error = refused(rota, f"CREATE JOB a {HOURLY};\nDROP JOB nosuch;\nCREATE JOB b {HOURLY}")
    assert (error.statement, error.executed, error.line, error.column) == (2, 1, 2, 10)
    wanted = "2:10: there is no job nosuch that you may see (with IF EXISTS this is not an error) (statement 2 of 3; 1 executed)"
    assert str(error) == wanted
    assert [each.name for each in rota.schedules.list()] == ["a"]


def test_an_error_of_a_statement_survives_a_pickle(rota):
    error = refused(rota, "DROP JOB nosuch")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.code, copy.sqlstate, copy.statement) == (str(error), "unknown_job", "42704", 1)


@pytest.mark.parametrize(
    ("text", "code", "sqlstate", "column"),
    [
        ("CREATE JOB j SCHEDULE = AT '2020-01-01T00:00:00Z' AS 'SELECT 1'", "invalid_schedule", "22008", 28),
        ("CREATE JOB j SCHEDULE = EVERY 1 HOUR ENDS '2020-01-01T00:00:00Z' AS 'SELECT 1'", "invalid_schedule", "22023", 43),
        ("CREATE JOB j DEPENDS ON nosuch SCHEDULE = EVERY 1 H AS 'SELECT 1'", "unknown_job", "42704", 25),
        ("CREATE JOB j DEPENDS ON a, nosuch SCHEDULE = EVERY 1 H AS 'SELECT 1'", "unknown_job", "42704", 28),
        ("ALTER JOB a SET DEPENDS ON b", "dependency_cycle", "42P17", 28),
        ("CREATE JOB j SCHEDULE = EVERY 1 H RUN AS nobody AS 'SELECT 1'", "sql_invalid", "0A000", 42),
        ("CREATE JOB j SCHEDULE = EVERY 1 H CONNECTION nosuch AS 'SELECT 1'", "unknown_connection", "42704", 46),
        ("CREATE JOB j SCHEDULE = EVERY 1 H SECRETS (nosuch) AS 'SELECT 1'", "unknown_secret", "42704", 43),
        ("CREATE JOB j SCHEDULE = EVERY 1 H CONNECTION c EXEC '/bin/true'", "sql_invalid", "42601", 46),
        ("CREATE JOB j SCHEDULE = EVERY 1 H CALL no_such_proc()", "unknown_procedure", "42883", 40),
        ("CREATE JOB j SCHEDULE = EVERY 1 H CALL no_such_proc(1)", "unknown_procedure", "42883", 40),
        ("CREATE JOB j SCHEDULE = EVERY 1 H CALL report('a', 1, 2)", "invalid_params", "42883", 40),
        ("CREATE JOB j SCHEDULE = EVERY 1 H CALL report(1, 'x')", "invalid_params", "22023", 40),
        ("CREATE JOB j SCHEDULE = EVERY 1 H CALL report(regio => 'x')", "invalid_params", "22023", 40),
        ("CREATE JOB j SCHEDULE = EVERY 1 H CALL report('x', region => 'y')", "invalid_params", "42601", 40),
        ("CREATE JOB j SCHEDULE = EVERY 1 H CALL report(:region)", "invalid_option", "42P02", 40),
        ("CREATE JOB a SCHEDULE = EVERY 1 H AS 'SELECT 1'", "job_exists", "42710", 12),
        ("CREATE JOB report SCHEDULE = EVERY 1 H AS 'SELECT 1'", "job_exists", "42710", 12),
        ("CREATE JOB j CALENDAR = nosuch SCHEDULE = EVERY 1 H AS 'SELECT 1'", "invalid_schedule", "22023", 12),
        ("CREATE OR ALTER JOB j TIMEOUT = 5", "sql_invalid", "42601", 1),
        ("ALTER JOB nosuch SET STATE = PAUSED", "unknown_job", "42704", 11),
        ("ALTER JOB a RENAME TO b", "schedule_exists", "42710", 11),
        ("ALTER JOB a SET ON COMPLETION DROP", "sql_invalid", "42601", 17),
        ("DROP JOB nosuch", "unknown_job", "42704", 10),
        ("DROP JOB a", "still_needed", "2BP01", 10),
        ("EXECUTE JOB nosuch", "unknown_job", "42704", 13),
        ("CANCEL JOB RUN 00000000-0000-0000-0000-000000000000", "unknown_run", "42704", 16),
        ("SHOW JOB nosuch", "unknown_job", "42704", 10),
        ("SHOW JOB '00000000-0000-0000-0000-000000000000'", "unknown_job", "42704", 10),
        ("EXPLAIN JOB RUN 00000000-0000-0000-0000-000000000000", "unknown_run", "42704", 17),
        ("GRANT EXECUTE ON JOB a TO nobody", "unknown_grantee", "42704", 27),
        ("GRANT EXECUTE ON JOB nosuch TO PUBLIC", "unknown_job", "42704", 22),
        ("GRANT ROLE nosuch TO PUBLIC", "unknown_role", "42704", 12),
        ("DROP ROLE nosuch", "unknown_role", "42704", 11),
        ("GRANT USE ON SECRET nosuch TO PUBLIC", "unknown_secret", "42704", 21),
        ("CREATE SECRET s VALUE 'canary'", "secret_unavailable", "55000", 15),
        ("SHOW NODES", "not_available", "0A000", 1),
    ],
)
def test_a_statement_that_only_the_store_can_refuse_names_its_place_and_its_sqlstate(rota, text, code, sqlstate, column):
    rota.sql(f"CREATE JOB a {HOURLY}; CREATE JOB b DEPENDS ON a {HOURLY}")
    error = refused(rota, text)
    assert (error.code, error.sqlstate, error.column) == (code, sqlstate, column), str(error)
    assert "canary" not in str(error)


def test_parameters_have_values_beside_the_script(rota):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report(:region, day => :day)", {"region": "it's", "day": 2})
    assert rota.sql("SHOW JOB a")[0].rows[18] == ("body", "report('it''s', day => 2)")
    with pytest.raises(InvalidOption, match="no statement has the parameter :wrong"):
        rota.sql("SHOW JOBS", {"wrong": 1})
    with pytest.raises(InvalidOption, match="1 values, and the statements have 0 question marks"):
        rota.sql("SHOW JOBS", [1])
    with pytest.raises(InvalidOption, match="pass a list"):
        rota.sql("SHOW JOBS", "x")


def test_a_program_that_asks_for_no_sql_imports_none_of_it():
    code = "import sys, rota; rota.Rota; import rota.local_workers; print([name for name in sys.modules if name.startswith('rota.sql')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_statements_of_a_script_see_each_other(rota, clock: ManualClock):
    results = rota.sql(f"CREATE JOB a {HOURLY}; ALTER JOB a RENAME TO b; DROP JOB b; SHOW JOBS")
    assert results[-1].rows == ()
