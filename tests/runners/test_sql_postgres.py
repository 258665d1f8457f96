from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from rota.model.connections import URL_OPTIONS
from rota.model.decide import Completed, Failed, Interrupted, Stopped, TimedOut
from rota.model.schedules import JobKind
from rota.model.settings import Settings
from rota.ports.executor import StopReason
from rota.ports.runner import BodyRefused, Database, Stream, UnfitDatabase, Unreachable
from rota.runners import postgres_session
from rota.runners.sql import DIALECTS, SqlRunner
from tests.runners.orders import JOB, RUN, order, rows
from tests.support.pace import patient
from tests.support.postgres import Server, free_port, make_server
from tests.support.proof import size
from tests.support.run_control import RunControl
from tests.support.waiting import eventually

PASSWORD = "correct-horse-battery"
SET_UP = f"""
CREATE ROLE etl LOGIN PASSWORD '{PASSWORD}';
CREATE ROLE reporting; GRANT reporting TO etl;
CREATE ROLE etl_boss SUPERUSER LOGIN PASSWORD '{PASSWORD}';
CREATE TABLE sales (a int PRIMARY KEY, b text, c int CHECK (c > 0));
CREATE TABLE secret (a int);
INSERT INTO sales SELECT n, 'x', 1 FROM generate_series(1, 5) AS n;
GRANT ALL ON sales TO etl;
GRANT SELECT ON sales TO reporting;
CREATE SCHEMA rota;
CREATE TABLE rota.meta (a int); CREATE TABLE rota.job_facts (a int); CREATE TABLE rota.job_live (a int); CREATE TABLE rota.job_ends (a int);
CREATE TABLE rota.tokens (hash text);
CREATE PROCEDURE take(n int) LANGUAGE plpgsql AS $$ BEGIN DELETE FROM sales WHERE a <= n; RAISE NOTICE 'took %', n; END $$;
CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$ BEGIN DELETE FROM sales; COMMIT; END $$;
CREATE PROCEDURE answers(n int, OUT twice int) LANGUAGE plpgsql AS $$ BEGIN twice := n * 2; END $$;
CREATE PROCEDURE fails() LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'sold out'; END $$;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = make_server(fsync="off", max_prepared_transactions="2")
    with made.connect() as raw:
        raw.execute(SET_UP.encode())
    made.allow(
        "host all postgres 127.0.0.1/32 trust",
        "host all etl,etl_boss 127.0.0.1/32 scram-sha-256",
        "host all all 127.0.0.1/32 trust",
    )
    yield made
    made.throw_away()


@pytest.fixture
def boss(server) -> Iterator[psycopg.Connection]:
    with server.connect() as raw:
        yield raw
        raw.execute("TRUNCATE sales")
        raw.execute("INSERT INTO sales SELECT n, 'x', 1 FROM generate_series(1, 5) AS n")


@pytest.fixture
def runner() -> SqlRunner:
    return SqlRunner(Settings(), "rota.db")


def database(server: Server, *, user: str | None = "etl", password: str | None = PASSWORD, **more) -> Database:
    url = f"postgresql://127.0.0.1:{server.port}/postgres"
    return Database(**{"name": "warehouse", "url": url, "user": user, "password": password} | more)


def run(runner, server, body, *, multi=False, control=None, **more):
    timeout_s = more.get("timeout_s", 0.0)
    return runner.run(order(body, database(server, multi=multi), **more), control or RunControl(timeout_s))


def left(boss) -> int:
    return boss.execute("SELECT count(*) FROM sales").fetchone()[0]


def sessions(boss, user: str = "etl") -> int:
    return boss.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", [user]).fetchone()[0]


# ---- what a run gives back ----


def test_a_query_keeps_its_rows(runner, server):
    outcome = run(runner, server, "SELECT a, b FROM sales WHERE a < 3 ORDER BY a")
    assert outcome == Completed('{"columns":["a","b"],"rows":[[1,"x"],[2,"x"]]}', message="SELECT: 2 rows", rows_affected=0)


@pytest.mark.parametrize("number", [0, 1, 99, 100, 101, 200, 250])
def test_rows_are_counted_however_they_come(runner, server, number):
    outcome = run(runner, server, f"SELECT 1 FROM generate_series(1, {number})")
    assert (len(rows(outcome)), outcome.message) == (number, f"SELECT: {number} row{'s' * (number != 1)}")


def test_changes_are_counted(runner, server, boss):
    assert run(runner, server, "DELETE FROM sales WHERE a <= 3;") == Completed(None, message="3 rows affected", rows_affected=3)
    assert left(boss) == 2


def test_rows_that_a_change_returns_are_kept(runner, server, boss):
    outcome = run(runner, server, "DELETE FROM sales WHERE a = 1 RETURNING a")
    assert (rows(outcome), outcome.rows_affected, outcome.message) == ([[1]], 1, "1 row affected")


def test_a_script_runs_with_multi_and_its_last_rows_are_kept(runner, server, boss):
    body = "SELECT 1; DELETE FROM sales WHERE a = 1; SELECT current_user, count(*) FROM sales; UPDATE sales SET b = 'y' WHERE a < 4"
    outcome = run(runner, server, body, multi=True)
    assert rows(outcome) == [["etl", 4]]
    assert (outcome.rows_affected, outcome.message) == (3, "3 rows affected; SELECT: 1 row")


def test_a_statement_without_rows_says_what_it_was(runner, server):
    assert run(runner, server, "SET LOCAL timezone TO 'UTC'") == Completed(None, message="SET", rows_affected=0)
    assert run(runner, server, "CREATE TEMP TABLE x AS SELECT 1 AS a UNION SELECT 2").rows_affected == 2


def test_several_statements_need_multi_and_nothing_of_them_is_done(runner, server, boss):
    outcome = run(runner, server, "DELETE FROM sales; SELECT 1")
    assert (outcome.error_code, outcome.permanent) == ("42601", True)
    assert "MULTI" in outcome.error
    assert left(boss) == 5


def test_several_statements_with_placeholders_are_refused(runner, server, boss):
    outcome = run(runner, server, "DELETE FROM sales WHERE a = :a; SELECT 1", multi=True, params={"a": 1})
    assert "with placeholders is one statement" in outcome.error
    assert left(boss) == 5
    assert run(runner, server, "DELETE FROM sales WHERE a = :a", multi=True, params={"a": 1}).rows_affected == 1
    assert isinstance(run(runner, server, "SELECT 1; SELECT 2", multi=True, params={"spare": 1}), Completed)


def test_every_type_becomes_json(runner, server):
    body = """SELECT date '2026-01-02', timestamptz '2026-01-02 03:04:05Z', time '03:04', 1.10::numeric(8,2), 'NaN'::float8,
        '-Infinity'::float4,
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, '\\x00ff'::bytea, '{"a": [1, null]}'::jsonb, ARRAY[1.5::numeric, NULL],
        'infinity'::date, '0044-03-15 BC'::date, '1 mon 2 days'::interval, '[1,5)'::int4range, '10.0.0.1'::inet, row(1, 'a'),
        9223372036854775807::int8, true, NULL, 'é', '{1,2}'::int[], point(1, 2), '$1.50'::money, 'infinity'::timestamptz"""
    with_zone = run(runner, server, f"SET LOCAL timezone TO 'UTC'; {body}", multi=True)
    assert rows(with_zone) == [[
        "2026-01-02", "2026-01-02T03:04:05+00:00", "03:04:00", "1.10", "NaN", "-Infinity", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "AP8=",
        {"a": [1, None]}, ["1.5", None], "infinity", "0044-03-15 BC", "1 mon 2 days", "[1, 5)", "10.0.0.1", ["1", "a"], 2**63 - 1, True,
        None, "é", [1, 2], "(1,2)", "$1.50", "infinity",
    ]]  # fmt: skip


@pytest.mark.prove
def test_a_large_result_is_cut_and_never_held(runner, server):
    number = size(200_000, prove=1_000_000)
    process, text = psutil.Process(), "x" * 200
    run(runner, server, "SELECT 1")
    before = process.memory_info().rss
    outcome = run(runner, server, f"SELECT n, '{text}' FROM generate_series(1, {number}) AS n")
    assert outcome.message == f"SELECT: {number:,} rows, the first 1,000 kept"
    assert len(rows(outcome)) == 1000
    assert json.loads(outcome.result)["truncated"]
    assert process.memory_info().rss - before < 20 * 2**20 < number * 200


def test_a_query_that_does_its_work_in_its_rows_does_all_of_it(server, boss):
    boss.execute("CREATE OR REPLACE FUNCTION drop_one(n int) RETURNS int LANGUAGE sql AS 'DELETE FROM sales WHERE a = n RETURNING a'")
    runner = SqlRunner(Settings(sql_result_rows=2), "rota.db")
    assert len(rows(run(runner, server, "SELECT drop_one(n) FROM generate_series(1, 5) AS n"))) == 2
    assert left(boss) == 0


def test_the_result_is_bounded_in_bytes(server):
    outcome = run(SqlRunner(Settings(result_max=1000), "rota.db"), server, "SELECT repeat('x', 100) FROM generate_series(1, 100)")
    assert len(outcome.result) <= 1000
    assert len(rows(outcome)) == 9


def test_notices_are_written_to_the_log(runner, server, boss):
    control = RunControl()
    outcome = run(runner, server, "CALL take(2)", kind=JobKind.PROCEDURE, control=control)
    assert (outcome.message, outcome.rows_affected) == ("CALL", 0)
    assert control.written == [(Stream.ERR, b"NOTICE: took 2\n")]
    assert left(boss) == 3


def test_a_procedure_takes_literals_and_parameters_and_may_answer(runner, server):
    assert rows(run(runner, server, "CALL answers(21, NULL)", kind=JobKind.PROCEDURE)) == [[42]]
    assert rows(run(runner, server, "CALL answers(:n, NULL)", kind=JobKind.PROCEDURE, params={"n": 4})) == [[8]]


def test_a_procedure_job_is_a_call(runner, server):
    assert "begins with CALL" in run(runner, server, "SELECT 1", kind=JobKind.PROCEDURE).error


# ---- parameters and session variables ----


def test_parameters_are_bound_as_literals_of_their_type_would_be(runner, server):
    params = {
        "n": 3, "big": 2**40, "huge": 2**70, "f": 1.5, "t": "'; DROP TABLE sales; --", "day": "2026-01-02", "json": {"a": [1]}, "no": None,
        "yes": True, "spare": 9,
    }  # fmt: skip
    body = """SELECT :n + :n, pg_typeof(:n), :big, :huge::numeric, :f, :t, :day::date + 1, :json::jsonb -> 'a', :no::int, NOT :yes,
        ':n', a FROM sales WHERE a = :n AND b <> :t AND b = ANY (ARRAY['x', :t])"""
    assert rows(run(runner, server, body, params=params)) == [
        [6, "integer", 2**40, str(2**70), "1.5", "'; DROP TABLE sales; --", "2026-01-03", [1], None, False, ":n", 3]
    ]


def test_a_name_that_is_used_twice_is_one_parameter(runner, server):
    body = "SELECT :u || b, count(*) FROM sales GROUP BY :u || b"
    assert rows(run(runner, server, body, params={"u": "u"})) == [["ux", 5]]


def test_a_secret_is_bound_by_its_name_and_hidden_in_errors(runner, server):
    secrets = {"key": "s3cr3t-value"}
    assert rows(run(runner, server, "SELECT length(:key)", secrets=secrets)) == [[12]]
    outcome = run(runner, server, "SELECT :key::int", secrets=secrets)
    assert outcome.error_code == "22P02"
    assert "s3cr3t" not in repr(outcome)


@pytest.mark.parametrize(("body", "said"), [("SELECT :a", ":a is not a parameter"), ("SELECT $1", "by number"), ("  ; ", "no statement")])
def test_a_body_that_can_not_be_sent_is_refused(runner, server, body, said):
    outcome = run(runner, server, body)
    assert said in outcome.error
    assert outcome.permanent


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_texts_that_postgresql_can_not_hold_are_refused(runner, server, text):
    assert run(runner, server, "SELECT :a::text", params={"a": text}).error_code == "22021"
    assert run(runner, server, f"SELECT '{text}'").error_code == "22021"


def test_a_run_knows_itself_by_session_variables(runner, server):
    body = "SELECT current_setting('rota.job_uuid'), current_setting('rota.job_run_uuid'), current_setting('rota.job_name')"
    assert rows(run(runner, server, body)) == [[JOB, RUN, "nightly"]]


# ---- errors ----


def test_an_error_has_the_place_in_the_body_as_it_was_written(runner, server):
    outcome = run(runner, server, "SELECT :long_name,\n  é, nope FROM sales", params={"long_name": 1})
    assert (outcome.error_code, outcome.permanent) == ("42703", True)
    assert outcome.error.startswith('column "é" does not exist\nLINE 2:   é, nope FROM sales\n          ^')


@pytest.mark.parametrize(
    ("body", "code", "permanent"),
    [
        ("SELEC 1", "42601", True),
        ("SELECT * FROM nope", "42P01", True),
        ("SELECT * FROM secret", "42501", True),
        ("SELECT 1/0", "22012", True),
        ("INSERT INTO sales VALUES (9, 'x', 0)", "23514", True),
        ("INSERT INTO sales VALUES (1, 'x', 1)", "23505", False),
        ("CALL fails()", "P0001", False),
        ("COPY sales TO STDOUT", "0A000", True),
        ("COPY sales FROM STDIN", "0A000", True),
        ("VACUUM", "25001", True),
    ],
)
def test_an_error_is_permanent_or_not_by_its_class(runner, server, body, code, permanent):
    outcome = run(runner, server, body)
    assert isinstance(outcome, Failed)
    assert (outcome.error_code, outcome.permanent) == (code, permanent)


def test_a_lock_that_the_job_does_not_wait_for_is_transient(runner, server):
    with server.connect() as other, other.transaction():
        other.execute("LOCK TABLE sales")
        outcome = run(runner, server, "LOCK TABLE sales NOWAIT")
    assert (outcome.error_code, outcome.permanent) == ("55P03", False)


def test_a_session_that_is_ended_by_others_is_transient_and_leaves_nothing(runner, server, boss):
    def end() -> None:
        body = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(20)' AND usename = 'etl'"
        eventually(lambda: boss.execute(body).fetchone())

    other = threading.Thread(target=end)
    other.start()
    outcome = run(runner, server, "DELETE FROM sales; SELECT pg_sleep(20)", multi=True)
    other.join()
    assert (outcome.error_code, outcome.permanent) == ("57P01", False)
    assert left(boss) == 5


def test_a_lost_answer_to_a_commit_is_reported_as_unknown(runner, server, boss, monkeypatch):
    boss.execute(
        "CREATE OR REPLACE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(20); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER slow AFTER DELETE ON sales DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nap()"
    )
    try:
        # A deferred trigger makes the commit slow; a request to cancel ends it, and it is certain that nothing was done.
        assert run(runner, server, "DELETE FROM sales WHERE a = 1", timeout_s=0.3) == TimedOut(0.3)
        assert left(boss) == 5
        # Where the request does not arrive, the connection is cut.
        monkeypatch.setattr(postgres_session.Session, "cancel_safe", lambda *_, **__: None)
        outcome = run(runner, server, "DELETE FROM sales WHERE a = 1", control=RunControl(0.3, grace_s=0.2), timeout_s=0.3)
    finally:
        eventually(lambda: sessions(boss) == 0)
        boss.execute("DROP TRIGGER slow ON sales")
    assert "the outcome of the commit is unknown" in outcome.error
    assert (outcome.error_code, outcome.permanent) == ("08007", False)


# ---- the end of the time, and being asked to stop ----


@pytest.mark.parametrize(
    ("body", "multi"),
    [
        ("SELECT pg_sleep(20)", False),
        ("SET statement_timeout = 0; SELECT pg_sleep(20)", True),
        ("SELECT set_config('statement_timeout', '0', false), pg_sleep(20)", False),
        ("DO $$ BEGIN SET LOCAL statement_timeout = 0; PERFORM pg_sleep(20); END $$", False),
        ("DELETE FROM sales; SELECT n FROM generate_series(1, 100000000) AS n", True),
    ],
)
def test_a_run_ends_at_its_deadline_whatever_the_job_sets(runner, server, boss, body, multi):
    began = time.monotonic()
    assert run(runner, server, body, multi=multi, timeout_s=0.4) == TimedOut(0.4)
    assert time.monotonic() - began < patient(1.4)
    assert left(boss) == 5
    eventually(lambda: sessions(boss) == 0)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [(StopReason.CANCEL, Stopped), (StopReason.SHUTDOWN, Interrupted), (StopReason.LEASE, Interrupted)],
)
def test_a_run_that_is_asked_to_stop_ends_soon_and_leaves_nothing(runner, server, boss, reason, expected):
    control, began = RunControl(), time.monotonic()
    control.stop_after(0.2, reason)
    assert isinstance(run(runner, server, "DELETE FROM sales; SELECT pg_sleep(20)", multi=True, control=control), expected)
    assert time.monotonic() - began < patient(1.2)
    assert not control.forced.is_set()
    assert left(boss) == 5


def test_a_run_that_was_asked_to_stop_before_it_began_does_not_begin(runner, server, boss):
    control = RunControl()
    control.stop()
    assert run(runner, server, "DELETE FROM sales", control=control) == Stopped()
    assert left(boss) == 5


def test_a_request_to_cancel_that_comes_too_early_is_repeated(runner, server, monkeypatch):
    real, asked = postgres_session.Session.cancel_safe, []

    def ignored_once(session, **options):
        asked.append(time.monotonic())
        if len(asked) > 1:
            real(session, **options)

    monkeypatch.setattr(postgres_session.Session, "cancel_safe", ignored_once)
    control = RunControl(grace_s=20)
    control.stop_after(0.1)
    assert run(runner, server, "SELECT pg_sleep(20)", control=control) == Stopped()
    assert len(asked) == 2


def test_a_job_that_catches_the_cancel_is_cut_after_the_grace(runner, server, boss):
    body = "DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(1); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$"
    control, began = RunControl(0.3, grace_s=0.3), time.monotonic()
    assert run(runner, server, body, control=control, timeout_s=0.3) == TimedOut(0.3)
    assert control.forced.is_set()
    assert time.monotonic() - began < patient(1.6)
    # The server looks for its client once a second.
    eventually(lambda: sessions(boss) == 0)


@pytest.mark.paired
def test_a_run_on_a_server_that_is_frozen_ends_after_the_grace(runner, server, boss):
    freezer = threading.Timer(0.3, server.freeze)
    freezer.start()
    began = time.monotonic()
    try:
        outcome = run(runner, server, "SELECT pg_sleep(20)", control=RunControl(0.6, grace_s=0.2), timeout_s=0.6)
    finally:
        freezer.join()
        server.thaw()
    assert outcome == TimedOut(0.6)
    # One more second for the request to cancel, which nobody answers.
    assert time.monotonic() - began < patient(2.8)


def test_a_connection_that_nobody_answers_ends_at_the_deadline(runner, server):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        url = f"postgresql://127.0.0.1:{deaf.getsockname()[1]}/postgres"
        began = time.monotonic()
        assert runner.run(order("SELECT 1", database(server, url=url), timeout_s=0.3), RunControl(0.3)) == TimedOut(0.3)
        assert time.monotonic() - began < patient(1.3)


@pytest.mark.paired
def test_a_worker_that_is_killed_leaves_nothing_committed_and_no_session(server, boss):
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from rota.model.settings import Settings
from rota.ports.runner import Database
from rota.runners.sql import SqlRunner
from tests.runners.orders import order
from tests.support.run_control import RunControl
database = Database(name="x", url="postgresql://127.0.0.1:{server.port}/postgres", user="etl", password={PASSWORD!r}, multi=True)
SqlRunner(Settings(), "rota.db").run(order("DELETE FROM sales; SELECT pg_sleep(60)", database), RunControl())
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'etl' AND wait_event = 'PgSleep'"
    eventually(lambda: boss.execute(asleep).fetchone()[0])
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    eventually(lambda: sessions(boss) == 0, within=5)
    assert left(boss) == 5


# ---- what confines a job: the login, and nothing else ----


@pytest.mark.parametrize(
    ("body", "multi"),
    [
        ("RESET ROLE; SELECT current_user", True),
        ("SET ROLE NONE; SELECT current_user", True),
        ("SELECT set_config('role', 'none', true), current_user", False),
    ],
)
def test_run_as_narrows_and_a_job_can_undo_it_to_become_the_login_and_no_more(runner, server, body, multi):
    assert rows(run(runner, server, "SELECT current_user, session_user", run_as="reporting")) == [["reporting", "etl"]]
    assert run(runner, server, "DELETE FROM sales", run_as="reporting").error_code == "42501"
    assert rows(run(runner, server, body, multi=multi, run_as="reporting"))[0][-1] in {"etl", "reporting"}
    for statement in ("SELECT * FROM rota.tokens", "DO $$ BEGIN EXECUTE 'RESET ROLE'; DELETE FROM rota.tokens; END $$", "TABLE secret"):
        assert run(runner, server, statement, run_as="reporting").error_code == "42501"


def test_a_role_that_is_not_the_logins_is_refused(runner, server):
    assert run(runner, server, "SELECT 1", run_as="postgres").error_code == "42501"
    assert run(runner, server, "SELECT 1", run_as="nobody").error_code == "22023"
    assert "not a role" in run(runner, server, "SELECT 1", run_as="none").error


@pytest.mark.parametrize(
    ("body", "stays"),
    [
        ("DELETE FROM sales WHERE a = 1; COMMIT; SELECT 1", 4),
        ("DELETE FROM sales WHERE a = 1; COMMIT; BEGIN; DELETE FROM sales", 4),
        ("DELETE FROM sales WHERE a = 1; COMMIT AND CHAIN; DELETE FROM sales", 4),
        ("DELETE FROM sales WHERE a = 1; COMMIT; SELECT 1/0", 4),
        ("DELETE FROM sales WHERE a = 1; ROLLBACK AND CHAIN", 5),
        ("DELETE FROM sales WHERE a = 1; ROLLBACK; SELECT 1", 5),
    ],
)
def test_a_body_that_ends_its_transaction_is_found_and_not_repeated(runner, server, boss, body, stays):
    outcome = run(runner, server, body, multi=True)
    assert isinstance(outcome, Failed)
    assert (outcome.error_code, outcome.permanent) == ("2D000", True)
    assert "what it has committed stays" in outcome.error
    assert left(boss) == stays


def test_a_savepoint_is_no_end_of_the_transaction(runner, server, boss):
    body = "SAVEPOINT s; DELETE FROM sales; ROLLBACK TO s; RELEASE s; BEGIN; DELETE FROM sales WHERE a = 1"
    assert run(runner, server, body, multi=True).rows_affected == 6
    assert left(boss) == 4


@pytest.mark.parametrize("body", ["COMMIT", "rollback", "BEGIN", "START TRANSACTION", "/* x */ COMMIT AND CHAIN"])
def test_transaction_control_alone_is_refused(runner, server, body):
    assert run(runner, server, body).error_code == "2D000"


def test_a_procedure_that_commits_is_refused_by_the_server(runner, server, boss):
    outcome = run(runner, server, "CALL commits()", kind=JobKind.PROCEDURE)
    assert (outcome.error_code, outcome.permanent) == ("2D000", True)
    assert "can't commit" in outcome.error
    assert left(boss) == 5


REFUSED_LOGINS = {
    "superuser": ("ALTER ROLE bad SUPERUSER", "is a superuser"),
    "member of a superuser": ("CREATE ROLE chief SUPERUSER; GRANT chief TO bad", "as a member of chief, is a superuser"),
    "program": ("GRANT pg_execute_server_program TO bad", "files and programs"),
    "replication": ("ALTER ROLE bad REPLICATION", "REPLICATION"),
    "createrole": ("ALTER ROLE bad CREATEROLE", "NOCREATEROLE"),
    "owner": ("ALTER SCHEMA rota OWNER TO bad", "owns the schema rota"),
    "member of the owner": ("CREATE ROLE chief; ALTER SCHEMA rota OWNER TO chief; GRANT chief TO bad", "member of chief, owns the schema"),
    "not inherited": ("ALTER ROLE bad NOINHERIT; CREATE ROLE chief; GRANT USAGE ON SCHEMA rota TO chief; GRANT chief TO bad", "rights on"),
    "usage": ("GRANT USAGE ON SCHEMA rota TO bad", "has rights on the schema rota"),
    "create": ("GRANT CREATE ON SCHEMA rota TO bad", "may create objects"),
    "reads all": ("GRANT pg_read_all_data TO bad", "has rights on the schema rota"),
    "a table": ("GRANT SELECT ON rota.tokens TO bad", "has rights on rota.tokens"),
    "a column": ("GRANT UPDATE (hash) ON rota.tokens TO bad", "has rights on rota.tokens"),
    "owner of a table": ("ALTER TABLE rota.tokens OWNER TO bad", "has rights on rota.tokens"),
    "everybody": ("GRANT SELECT ON rota.tokens TO PUBLIC", "has rights on rota.tokens"),
}


@pytest.mark.parametrize("case", REFUSED_LOGINS)
def test_a_login_that_could_do_more_than_a_job_should_is_refused_everywhere(runner, server, boss, case):
    statements, said = REFUSED_LOGINS[case]
    boss.execute(f"CREATE ROLE bad LOGIN; {statements}".encode())
    unfit = database(server, user="bad", password=None)
    try:
        outcome = runner.run(order("DELETE FROM sales", unfit), RunControl())
        assert isinstance(outcome, Failed)
        assert said in outcome.error
        assert outcome.permanent
        with pytest.raises(UnfitDatabase, match="connection warehouse"):
            runner.probe(unfit)
        with pytest.raises(UnfitDatabase):
            runner.check(unfit, JobKind.SQL, "SELECT 1", [])
    finally:
        boss.execute(
            "ALTER SCHEMA rota OWNER TO postgres; ALTER TABLE rota.tokens OWNER TO postgres; REVOKE ALL ON rota.tokens FROM PUBLIC"
        )
        boss.execute("DROP OWNED BY bad; DROP ROLE bad")
        boss.execute("DO $$ BEGIN IF to_regrole('chief') IS NOT NULL THEN DROP OWNED BY chief; DROP ROLE chief; END IF; END $$")


def test_a_search_path_of_the_login_does_not_deceive_the_check(runner, server, boss):
    boss.execute(
        "CREATE ROLE bad LOGIN; CREATE SCHEMA lies AUTHORIZATION bad; GRANT SELECT ON rota.tokens TO bad;"
        "CREATE FUNCTION lies.has_table_privilege(oid, oid, text) RETURNS bool LANGUAGE sql AS 'SELECT false';"
        "CREATE FUNCTION lies.never(oid, oid) RETURNS bool LANGUAGE sql AS 'SELECT false';"
        "CREATE OPERATOR lies.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = lies.never);"
        "ALTER ROLE bad SET search_path = lies, pg_catalog"
    )
    try:
        with pytest.raises(UnfitDatabase):
            runner.probe(database(server, user="bad", password=None))
    finally:
        boss.execute("DROP SCHEMA lies CASCADE; DROP OWNED BY bad; DROP ROLE bad")


def test_the_login_of_the_store_is_refused_on_its_database(server):
    runner = SqlRunner(Settings(), f"postgresql://etl:{PASSWORD}@127.0.0.1:{server.port}/postgres")
    with pytest.raises(UnfitDatabase, match="login of Rota's own store"):
        runner.probe(database(server))


def test_the_tables_by_which_a_store_is_known_are_those_of_a_store():
    from rota.runners.postgres_login import QUERY
    from rota.stores.postgres.migrate import expected

    named = re.search(r"relname IN \(([^)]*)\)", QUERY)
    assert named is not None
    assert {name.strip(" '") for name in named[1].split(",")} <= expected().tables


def test_rights_that_come_later_count_at_the_next_run(runner, server, boss):
    boss.execute("CREATE ROLE late LOGIN")
    later = database(server, user="late", password=None)
    try:
        assert isinstance(runner.run(order("SELECT 1", later), RunControl()), Completed)
        boss.execute("GRANT SELECT ON rota.tokens TO late")
        assert isinstance(runner.run(order("SELECT 1", later), RunControl()), Failed)
    finally:
        boss.execute("DROP OWNED BY late; DROP ROLE late")


# ---- connecting ----


@pytest.mark.parametrize(
    ("change", "said", "code"),
    [
        ({"password": "wrong-password"}, "password authentication failed", "28P01"),
        ({"password": None}, "no password supplied", "28P01"),
        ({"user": "nobody"}, 'role "nobody" does not exist', "28000"),
        ({"url": "postgresql://127.0.0.1:{port}/nowhere"}, 'database "nowhere" does not exist', "3D000"),
        ({"url": "postgresql://127.0.0.1:{free}/postgres"}, "refused", "08001"),
        ({"url": "postgresql://127.0.0.1:{port}/postgres?sslmode=require"}, "SSL", "08001"),
    ],
)
def test_a_connection_that_can_not_be_opened_says_why_and_never_the_password(runner, server, change, said, code):
    change = {name: value and value.format(port=server.port, free=free_port()) for name, value in change.items()}
    unreachable = database(server, **change)
    with pytest.raises(Unreachable, match=said) as refused:
        runner.probe(unreachable)
    frames = traceback.StackSummary.extract(traceback.walk_tb(refused.value.__traceback__), capture_locals=True)
    shown = "".join(str(frame.locals) for frame in frames if frame.filename != __file__)
    assert "_asked" in {frame.name for frame in frames}
    for secret in (PASSWORD, "wrong-password"):
        assert secret not in shown
    outcome = runner.run(order("SELECT 1", unreachable), RunControl())
    assert said in outcome.error
    assert outcome.error_code == code
    assert outcome.permanent == (not code.startswith("08") or "SSL" in said)
    assert "password-" not in repr(outcome)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"url": "postgresql://etl:geheim12@127.0.0.1/postgres"}, "has a password"),
        ({"url": "postgresql://etl:geh@eim12@127.0.0.1/postgres"}, "can't be read"),
        ({"url": "postgresql://127.0.0.1/postgres?passfile=/root/.pgpass"}, "option passfile"),
        ({"url": "postgresql://127.0.0.1/postgres?options=-crole%3Dx"}, "option options"),
        ({"url": "postgresql://127.0.0.1/postgres?service=x"}, "option service"),
        ({"url": "postgresql:///postgres"}, "no host"),
        ({"user": None}, "no user"),
        ({"url": "mysql://127.0.0.1/x"}, "postgres://, postgresql:// or sqlite://"),
        ({"url": "nonsense"}, "postgres://, postgresql:// or sqlite://"),
    ],
)
def test_a_url_that_says_too_much_or_too_little_is_refused(runner, server, change, said):
    with pytest.raises(UnfitDatabase, match=said) as refused:
        runner.probe(database(server, **change))
    assert "eim12" not in str(refused.value)
    outcome = runner.run(order("SELECT 1", database(server, **change)), RunControl())
    assert outcome.permanent


def test_a_connection_takes_the_options_that_its_runner_takes():
    assert postgres_session.ALLOWED - {"host", "port", "dbname", "user"} == URL_OPTIONS


def test_the_workers_own_ways_to_log_in_are_not_used(runner, server, monkeypatch, tmp_path):
    (tmp_path / "pgpass").write_text(f"*:*:*:*:{PASSWORD}\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("PGUSER", "etl")
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGOPTIONS", "-c nonsense=1")
    monkeypatch.setenv("PGPORT", "1")
    with pytest.raises(Unreachable, match="no password supplied"):
        runner.probe(database(server, password=None))
    with pytest.raises(UnfitDatabase, match="no user"):
        runner.probe(database(server, user=None))


def test_a_missing_driver_is_named_with_the_extra(server, monkeypatch):
    monkeypatch.delitem(sys.modules, "rota.runners.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    outcome = SqlRunner(Settings(), "rota.db").run(order("SELECT 1", database(server)), RunControl())
    assert "extra postgres" in outcome.error
    assert not outcome.permanent


def test_a_job_without_a_connection_is_refused(runner):
    outcome = runner.run(order("SELECT 1", None), RunControl())
    assert "has no connection" in outcome.error
    assert outcome.permanent


def test_a_program_can_add_a_kind_of_database(server, monkeypatch):
    monkeypatch.setitem(DIALECTS, "warehouse", "rota.runners.sqlite")
    with pytest.raises(UnfitDatabase, match="is not sqlite:///path"):
        SqlRunner(Settings(), "rota.db").probe(database(server, url="warehouse://x"))


def test_a_probe_says_who_answered(runner, server):
    probe = runner.probe(database(server))
    assert (probe.server, probe.login) == ("PostgreSQL", "etl")
    assert probe.version[0].isdigit()
    assert 0 < probe.seconds < patient(5)


def test_a_session_has_its_nets(runner, server):
    body = "SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('client_connection_check_interval')"
    assert rows(run(runner, server, body)) == [["30s", "1s"]]
    body = "SELECT current_setting('statement_timeout')::interval BETWEEN '10s' AND '15s', current_setting('application_name')"
    assert rows(run(runner, server, body, timeout_s=10.0)) == [[True, "rota nightly"]]
    assert rows(run(runner, server, "SELECT current_setting('statement_timeout')")) == [["0"]]


def test_a_shorter_timeout_of_the_login_stays(runner, server, boss):
    boss.execute("ALTER ROLE etl SET statement_timeout = '100ms'")
    try:
        outcome = run(runner, server, "SELECT pg_sleep(20)", timeout_s=10.0)
    finally:
        boss.execute("ALTER ROLE etl RESET statement_timeout")
    assert (outcome.error_code, outcome.permanent) == ("57014", False)


# ---- checks ----


def test_a_check_asks_the_server_and_runs_nothing(runner, server, boss):
    runner.check(database(server), JobKind.SQL, "DELETE FROM sales WHERE a = :a", ["a", "spare"])
    runner.check(database(server), JobKind.SQL, "SELECT :a + :b", ["a", "b"])
    runner.check(database(server), JobKind.PROCEDURE, "CALL take(:n)", ["n"])
    runner.check(database(server), JobKind.SQL, "SELECT * FROM sales", [], run_as="reporting")
    runner.check(database(server, multi=True), JobKind.SQL, "CREATE TEMP TABLE u (x int); INSERT INTO u VALUES (1); DELETE FROM sales", [])
    assert left(boss) == 5


@pytest.mark.parametrize(
    ("body", "sqlstate", "position"),
    [
        ("SELECT :param_a,\n FROM sales", "42601", 19),
        ("SELECT :param_a, é, nope FROM sales", "42703", 18),
        ("SELECT * FROM nope", "42P01", 15),
        ("SELECT :b", "42P02", 8),
        ("SELECT 1; SELECT 2", "42601", None),
        ("CALL nope()", "42883", 6),
        ("COMMIT", "2D000", 1),
        ("SELECT * FROM rota.tokens", "42501", 15),
    ],
)
def test_a_check_refuses_a_body_with_its_place(runner, server, body, sqlstate, position):
    with pytest.raises(BodyRefused) as refused:
        runner.check(database(server), JobKind.SQL, body, ["param_a"])
    assert refused.value.sqlstate == sqlstate
    assert refused.value.position == position


def test_a_check_of_a_script_finds_errors_of_syntax(runner, server):
    with pytest.raises(BodyRefused) as refused:
        runner.check(database(server, multi=True), JobKind.SQL, "SELECT 1; SELEC 2", [])
    assert refused.value.position == 11


def test_a_check_that_has_to_wait_for_a_lock_is_given_up(runner, server, monkeypatch):
    from rota.runners import postgres

    with server.connect() as other, other.transaction():
        other.execute("LOCK TABLE sales")
        monkeypatch.setattr(postgres, "CHECK_LOCK", "100ms")
        with pytest.raises(Unreachable, match="could not check the body"):
            runner.check(database(server), JobKind.SQL, "SELECT * FROM sales", [])
