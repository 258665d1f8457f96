from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import apsw
import pytest

from rota.model.decide import Completed, Failed, Interrupted, Stopped, TimedOut
from rota.model.schedules import JobKind
from rota.model.settings import Settings
from rota.ports.executor import StopReason
from rota.ports.runner import BodyRefused, Database, UnfitDatabase, Unreachable
from rota.runners.sql import SqlRunner
from tests.runners.orders import JOB, RUN, order, rows
from tests.support.pace import patient
from tests.support.run_control import RunControl
from tests.support.waiting import eventually

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "data").mkdir()
    found = tmp_path / "data" / "target.db"
    with apsw.Connection(str(found)) as raw:
        raw.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t VALUES (1, 'x'), (2, 'x'), (3, 'x'), (4, 'x')")
    raw.close()
    return found


@pytest.fixture
def store(tmp_path):
    """The file of a store, beside the databases of jobs."""
    return tmp_path / "data" / "rota.db"


@pytest.fixture
def runner(path, store):
    raw = apsw.Connection(str(store))
    raw.pragma("journal_mode", "wal")
    raw.execute("CREATE TABLE jobs (a)")
    made = SqlRunner(Settings(sql_paths=f"{path.parent}", busy_timeout=0.3), f"sqlite:///{store}")
    yield made
    raw.close()


def database(path: Path | str, *, multi: bool = False) -> Database:
    return Database(name="local", url=f"sqlite:///{path}", multi=multi)


def run(runner, body, path, *, multi=False, control=None, **more):
    return runner.run(order(body, database(path, multi=multi), **more), control or RunControl(more.get("timeout_s", 0.0)))


def left(path: Path) -> int:
    raw = apsw.Connection(str(path))
    found = raw.execute("SELECT count(*) FROM t").get
    raw.close()
    return int(found)


def test_changes_are_counted_and_the_last_result_set_is_kept(runner, path):
    outcome = run(runner, "UPDATE t SET b = 'y' WHERE a > 2; DELETE FROM t WHERE a = 1; SELECT * FROM t ORDER BY a", path, multi=True)
    assert outcome == Completed(
        '{"columns":["a","b"],"rows":[[2,"x"],[3,"y"],[4,"y"]]}', message="3 rows affected; SELECT: 3 rows", rows_affected=3
    )
    assert left(path) == 3


def test_a_body_without_rows_has_no_result(runner, path):
    assert run(runner, "DELETE FROM t WHERE a = 1", path) == Completed(None, message="1 row affected", rows_affected=1)


def test_an_empty_result_set_has_its_columns(runner, path):
    assert run(runner, "SELECT a, b FROM t WHERE a > 9", path).result == '{"columns":["a","b"],"rows":[]}'


def test_several_statements_need_multi(runner, path):
    outcome = run(runner, "DELETE FROM t; SELECT 1", path)
    assert isinstance(outcome, Failed)
    assert outcome.permanent
    assert "MULTI" in outcome.error
    assert left(path) == 4


def test_a_semicolon_in_a_trigger_or_a_string_ends_no_statement(runner, path):
    trigger = "CREATE TRIGGER x AFTER INSERT ON t BEGIN UPDATE t SET b = ';' WHERE a = new.a; DELETE FROM t WHERE a = 1; END; -- ; done"
    assert isinstance(run(runner, trigger, path), Completed)
    assert run(runner, "INSERT INTO t VALUES (9, 'a;b');", path).rows_affected == 3


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE u (x INTEGER PRIMARY KEY AUTOINCREMENT, y TEXT NOT NULL)", "CREATE INDEX i ON t (b)",
        "CREATE VIEW v AS SELECT a FROM t",
        "ALTER TABLE t RENAME COLUMN b TO c", "ALTER TABLE t ADD COLUMN c", "ALTER TABLE t RENAME TO u", "DROP TABLE t",
        "CREATE TEMP TABLE x AS SELECT * FROM t", "CREATE VIRTUAL TABLE f USING fts5(words)", "ANALYZE", "REINDEX",
    ],
)  # fmt: skip
def test_statements_that_define_something_work(runner, path, ddl):
    outcome = run(runner, ddl, path)
    assert isinstance(outcome, Completed), outcome


def test_a_full_text_table_can_be_filled_and_asked(runner, path):
    body = "CREATE VIRTUAL TABLE f USING fts5(words); INSERT INTO f VALUES ('red fox'); SELECT words FROM f WHERE f MATCH 'fox'"
    assert rows(run(runner, body, path, multi=True)) == [["red fox"]]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("DELETE FROM t; COMMIT; SELECT 1", "one transaction"),
        ("DELETE FROM t; ROLLBACK", "one transaction"),
        ("DELETE FROM t; SAVEPOINT s", "one transaction"),
        ("BEGIN", "one transaction"),
        ("DELETE FROM t; ATTACH 'other.db' AS o", "attach"),
        ("DETACH main", "detach"),
        ("DELETE FROM t; VACUUM", "VACUUM"),
        ("DELETE FROM t; VACUUM INTO 'copy.db'", "VACUUM"),
        ("PRAGMA journal_mode = DELETE", "PRAGMA journal_mode"),
        ("PRAGMA writable_schema = 1; DELETE FROM sqlite_master", "PRAGMA writable_schema"),
        ("SELECT * FROM pragma_table_info('t')", "PRAGMA table_info"),
        ("DELETE FROM t; SELECT load_extension('/tmp/x.so')", "load_extension"),
        ("DELETE FROM sqlite_master", "sqlite_master"),
    ],
)
def test_what_reaches_out_of_the_transaction_or_the_file_is_refused_and_undone(runner, path, body, said):
    outcome = run(runner, body, path, multi=True)
    assert isinstance(outcome, Failed)
    assert outcome.permanent
    assert said in outcome.error
    assert left(path) == 4
    assert sorted(each.name for each in path.parent.iterdir() if "copy" in each.name or "other" in each.name) == []


def test_an_error_names_the_place_in_the_body_and_sqlites_code(runner, path):
    outcome = run(runner, "DELETE FROM t;\nSELECT é, nope FROM t", path, multi=True)
    assert outcome.error == "no such column: é\nLINE 2: SELECT é, nope FROM t\n               ^"
    assert (outcome.error_code, outcome.permanent) == ("SQLITE_ERROR", True)
    outcome = run(runner, "INSERT INTO t VALUES (1, 'x')", path)
    assert (outcome.error_code, outcome.permanent) == ("SQLITE_CONSTRAINT_PRIMARYKEY", False)


@pytest.mark.parametrize("multi", [False, True])
def test_parameters_are_bound_by_name(runner, path, multi):
    params = {"a": 3, "b": "'; DROP TABLE t --", "list": [1, {"x": None}], "no": None, "yes": True, "spare": 1}
    body = "SELECT :b, @list, $no, :yes, a FROM t WHERE a = :a AND ':spare' <> ''"
    assert rows(run(runner, body, path, multi=multi, params=params)) == [["'; DROP TABLE t --", '[1,{"x":null}]', None, 1, 3]]


@pytest.mark.parametrize(("body", "said"), [("SELECT :what", ":what is not a parameter"), ("SELECT ?", "without a name")])
def test_a_parameter_that_the_job_lacks_is_refused(runner, path, body, said):
    outcome = run(runner, body, path, params={"a": 1})
    assert isinstance(outcome, Failed)
    assert said in outcome.error
    assert outcome.permanent


def test_a_parameter_that_sqlite_can_not_hold_is_refused(runner, path):
    assert "larger than" in run(runner, "SELECT :a", path, params={"a": 2**64}).error
    assert isinstance(run(runner, "SELECT :a", path, params={"a": "\ud800"}), Failed)


def test_statements_triggers_and_views_can_ask_which_run_they_are_in(runner, path):
    assert rows(run(runner, "SELECT rota_job_uuid(), rota_job_run_uuid(), rota_job_name()", path)) == [[JOB, RUN, "nightly"]]
    run(runner, "CREATE TRIGGER x AFTER DELETE ON t BEGIN INSERT INTO t VALUES (100, rota_job_name()); END", path)
    run(runner, "DELETE FROM t WHERE a = 1", path)
    assert rows(run(runner, "SELECT b FROM t WHERE a = 100", path)) == [["nightly"]]


def test_odd_values_become_json(runner, path):
    assert rows(run(runner, "SELECT x'00ff', 1e999, 2.5, 9223372036854775807, NULL", path)) == [["AP8=", "Infinity", 2.5, 2**63 - 1, None]]
    assert json.loads(run(runner, "SELECT CAST(x'ff' AS TEXT)", path).result)["truncated"]


def test_a_large_result_is_cut_and_the_query_ends_there(runner, path):
    began = time.monotonic()
    outcome = run(runner, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n", path)
    assert outcome.message == "SELECT: the first 1,000 rows"
    assert json.loads(outcome.result)["truncated"]
    assert time.monotonic() - began < patient(2)


def test_statements_behind_a_cut_result_are_executed(runner, path):
    body = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n; DELETE FROM t"
    assert run(runner, body, path, multi=True).rows_affected == 4
    assert left(path) == 0


def test_returning_changes_all_rows_also_those_that_are_not_kept(path, store):
    runner = SqlRunner(Settings(sql_paths=str(path), sql_result_rows=2), str(store))
    outcome = run(runner, "DELETE FROM t RETURNING a", path)
    assert (outcome.rows_affected, outcome.message) == (4, "4 rows affected")
    assert len(rows(outcome)) == 2
    assert left(path) == 0


def test_a_run_ends_at_its_deadline_and_leaves_nothing(runner, path):
    began = time.monotonic()
    assert run(runner, f"DELETE FROM t; {ENDLESS}", path, multi=True, timeout_s=0.3) == TimedOut(0.3)
    assert time.monotonic() - began < patient(1.3)
    assert left(path) == 4


@pytest.mark.parametrize(
    ("reason", "expected"),
    [(StopReason.CANCEL, Stopped), (StopReason.SHUTDOWN, Interrupted), (StopReason.LEASE, Interrupted)],
)
def test_a_run_that_is_asked_to_stop_ends_soon(runner, path, reason, expected):
    control, began = RunControl(), time.monotonic()
    control.stop_after(0.1, reason)
    assert isinstance(run(runner, f"DELETE FROM t; {ENDLESS}", path, multi=True, control=control), expected)
    assert time.monotonic() - began < patient(1.1)
    assert left(path) == 4


def test_nothing_is_committed_once_the_run_was_asked_to_stop(runner, path):
    control = RunControl()
    control.stop()
    assert run(runner, "DELETE FROM t", path, control=control) == Stopped()
    assert left(path) == 4

    class Late(RunControl):
        """Asked to stop after it began: so few steps that the next look is that of the commit."""

        looks = 0

        def reason(self):
            self.looks += 1
            return StopReason.CANCEL if self.looks > 1 else None

    assert run(runner, "DELETE FROM t", path, control=Late()) == Stopped()
    assert left(path) == 4


@pytest.mark.parametrize(("timeout_s", "expected"), [(0.15, TimedOut), (0.0, Failed)])
def test_a_file_that_others_write_is_waited_for_until_the_deadline_or_busy_timeout(runner, path, timeout_s, expected):
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    outcome = run(runner, "DELETE FROM t", path, timeout_s=timeout_s)
    assert isinstance(outcome, expected)
    assert time.monotonic() - began < patient(1.3)
    if isinstance(outcome, Failed):
        assert (outcome.error_code, outcome.permanent) == ("SQLITE_BUSY", False)
    other.execute("ROLLBACK")
    other.close()


def test_a_lock_that_goes_is_waited_for(runner, path):
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.1, lambda: other.execute("ROLLBACK"))
    timer.start()
    assert run(runner, "DELETE FROM t", path).rows_affected == 4
    timer.join()
    other.close()


def test_a_call_is_refused_with_the_hint(runner, path):
    for kind in (JobKind.SQL, JobKind.PROCEDURE):
        outcome = run(runner, "CALL p()", path, kind=kind)
        assert "without quotes" in outcome.error
        assert outcome.permanent


def test_a_role_is_refused(runner, path):
    assert "no roles" in run(runner, "SELECT 1", path, run_as="etl").error


def test_a_file_that_is_missing_is_refused_and_not_created(runner, path):
    missing = path.parent / "none.db"
    outcome = run(runner, "SELECT 1", missing)
    assert "does not create it" in outcome.error
    assert not outcome.permanent
    assert not missing.exists()
    with pytest.raises(Unreachable, match="No such file"):
        runner.probe(database(missing))


def test_without_allowed_paths_no_file_is_opened(path, store):
    with pytest.raises(UnfitDatabase, match="set sql_paths"):
        SqlRunner(Settings(), str(store)).probe(database(path))


def test_a_file_outside_the_allowed_paths_is_refused_by_whatever_name(runner, path, tmp_path, monkeypatch):
    outside = tmp_path / "outside.db"
    apsw.Connection(str(outside)).close()
    outside.touch()
    (path.parent / "link.db").symlink_to(outside)
    (path.parent / "folder").symlink_to(tmp_path)
    monkeypatch.chdir(path.parent)
    for name in (
        outside,
        path.parent / "link.db",
        path.parent / "folder" / "outside.db",
        "../outside.db",
        path.parent / ".." / "outside.db",
    ):
        with pytest.raises(UnfitDatabase, match="outside sql_paths"):
            runner.probe(database(name))
    assert runner.probe(database("target.db")).server == "SQLite"


def test_a_single_file_can_be_allowed(path, store):
    runner = SqlRunner(Settings(sql_paths=f"/nowhere, {path}"), str(store))
    assert runner.probe(database(path)).login is None
    other = path.parent / "other.db"
    other.touch()
    with pytest.raises(UnfitDatabase):
        runner.probe(database(other))


@pytest.mark.parametrize("companion", ["", "-wal", "-shm"])
@pytest.mark.parametrize("way", ["path", "relative", "symlink", "hard link", "descriptor", "dots"])
def test_the_stores_own_files_are_refused_by_whatever_name(runner, path, store, way, companion, monkeypatch):
    own = Path(f"{store}{companion}")
    other = path.parent / "other.db"
    descriptor = None
    match way:
        case "path":
            name = str(own)
        case "relative":
            monkeypatch.chdir(path.parent)
            name = own.name
        case "symlink":
            other.symlink_to(own)
            name = str(other)
        case "hard link":
            os.link(own, other)
            name = str(other)
        case "descriptor":
            # Of the folder: closing a descriptor of the file itself would drop the locks of this process.
            descriptor = os.open(path.parent, os.O_RDONLY)
            name = f"/proc/self/fd/{descriptor}/{own.name}"
        case _:
            name = f"{path.parent}/../data/./{own.name}"
    with pytest.raises(UnfitDatabase, match="own store"):
        runner.probe(database(name))
    outcome = run(runner, "DELETE FROM jobs", name)
    assert isinstance(outcome, Failed)
    assert outcome.permanent
    if descriptor is not None:
        os.close(descriptor)


def test_the_stores_file_by_its_own_descriptor_is_refused(path, store, tmp_path):
    program = f"""
import os
from rota.model.settings import Settings
from rota.ports.runner import Database, UnfitDatabase
from rota.runners.sql import SqlRunner
fd = os.open({str(store)!r}, os.O_RDWR | os.O_CREAT)
try:
    SqlRunner(Settings(sql_paths="/"), {str(store)!r}).probe(Database(name="x", url=f"sqlite:////proc/self/fd/{{fd}}"))
except UnfitDatabase as refused:
    print("own store" in str(refused))
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_log_that_is_a_hard_link_to_the_store_is_refused(runner, path, store):
    os.link(store, f"{path}-wal")
    with pytest.raises(UnfitDatabase, match="own store"):
        runner.probe(database(path))


def test_a_folder_or_a_device_is_not_a_database(runner, path):
    with pytest.raises(UnfitDatabase, match="not a file"):
        runner.probe(database(path.parent))


def test_another_file_that_takes_the_place_while_it_is_opened_is_refused(runner, path, monkeypatch):
    from rota.runners import sqlite_file

    other = path.parent / "other.db"
    other.write_bytes(path.read_bytes())
    real = apsw.Connection

    def swapped(name, **options):
        other.replace(name)
        return real(name, **options)

    monkeypatch.setattr(sqlite_file.apsw, "Connection", swapped)
    with pytest.raises(UnfitDatabase, match="another file"):
        runner.probe(database(path))


def test_a_connection_can_be_read_only(runner, path):
    assert rows(run(runner, "SELECT count(*) FROM t", f"{path}?mode=ro")) == [[4]]
    assert run(runner, "DELETE FROM t", f"{path}?mode=ro").error_code == "SQLITE_READONLY"


def test_a_file_that_is_no_database_is_refused(runner, path):
    path.write_bytes(b"not a database" * 100)
    outcome = run(runner, "SELECT 1 FROM t", path)
    assert (outcome.error_code, outcome.permanent) == ("SQLITE_NOTADB", True)
    with pytest.raises(Unreachable, match="not a database"):
        runner.probe(database(path))


def test_a_check_compiles_and_runs_nothing(runner, path):
    runner.check(database(path), JobKind.SQL, "DELETE FROM t WHERE a = :a AND b = rota_job_name()", ["a"])
    assert left(path) == 4
    script = database(path, multi=True)
    runner.check(script, JobKind.SQL, "CREATE TABLE u (x); INSERT INTO u VALUES (1); SELECT * FROM u", [])
    assert left(path) == 4


@pytest.mark.parametrize(
    ("body", "sqlstate", "position"),
    [
        ("SELECT é,\n FROM t", "42601", 12),
        ("SELECT * FROM nope", "42P01", None),
        ("SELECT nope FROM t", "42703", 8),
        ("SELECT :b", "42P02", 8),
        ("DELETE FROM t; SELEC 1", "42601", 16),
        ("DELETE FROM t; PRAGMA user_version", "42501", None),
        ("COMMIT", "42501", None),
        ("CALL p()", "0A000", 1),
        ("-- nothing", "42601", 1),
    ],
)
def test_a_check_refuses_a_body_with_its_place(runner, path, body, sqlstate, position):
    with pytest.raises(BodyRefused) as refused:
        runner.check(database(path, multi=True), JobKind.SQL, body, ["a"])
    assert refused.value.sqlstate == sqlstate
    assert refused.value.position == position


@pytest.mark.paired
def test_a_worker_that_is_killed_leaves_nothing_committed(path, store):
    program = f"""
import sys
from rota.model.settings import Settings
from rota.ports.runner import Database, Order
from rota.model.schedules import JobKind
from rota.runners.sql import SqlRunner
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.runners.orders import order
from tests.support.run_control import RunControl
database = Database(name="x", url="sqlite:///{path}", multi=True)
SqlRunner(Settings(sql_paths={str(path)!r}), {str(store)!r}).run(order("DELETE FROM t; {ENDLESS}", database), RunControl())
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    other = apsw.Connection(str(path))

    def is_locked() -> bool:
        try:
            other.execute("BEGIN IMMEDIATE; ROLLBACK")
        except apsw.BusyError:
            return True
        return False

    eventually(is_locked, what="the run holds the file")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not is_locked()
    other.close()
    assert left(path) == 4
