"""The specification line by line: what a script does, and the query that shows it, on each store. Keys are the numbers of its lines."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import pytest

from rota import Rota

NOW_MS = 1_772_366_400_000
"""2026-03-01T12:00:00Z, as the clock of the tests shows it."""
HOURLY = "SCHEDULE = EVERY 1 HOUR CALL report()"
J = f"CREATE JOB j {HOURLY}"
A = f"CREATE JOB a {HOURLY}; CREATE JOB b {HOURLY}"
DAILY_SQL = "CREATE JOB j SCHEDULE = CRON '0 2 * * *' AS 'SELECT 1'"
AT = "CREATE JOB j SCHEDULE = AT '2026-05-01T00:00:00Z' CALL report()"


class Line(NamedTuple):
    """A script, the query that shows what it did, and the answer."""

    script: str
    query: str
    rows: list[tuple[Any, ...]]


def of_job(column: str, value: Any, script: str = J) -> Line:
    return Line(script, f"SELECT {column} FROM sys.jobs WHERE job_name = 'j'", [(value,)])


def of_run(column: str, value: Any, script: str = f"{J}; EXECUTE JOB j") -> Line:
    return Line(script, f"SELECT {column} FROM sys.job_runs", [(value,)])


def created(clause: str, column: str, value: Any, schedule: str = "SCHEDULE = EVERY 1 HOUR") -> Line:
    return of_job(column, value, f"{A}; CREATE JOB j {schedule} {clause} CALL report()")


def altered(change: str, column: str, value: Any, script: str = J) -> Line:
    return of_job(column, value, f"{A}; {script}; ALTER JOB j {change}")


LINES: dict[str, Line] = {
    # ---- sys.jobs, column by column
    "39": of_job("job_name", "j"),
    "40": created("DESCRIPTION = 'text'", "description", "text"),
    "41": created("CLASS = LEADER_ONLY", "job_class", "LEADER_ONLY"),
    "42 SQL": of_job("job_type", "SQL", DAILY_SQL),
    "42 PROCEDURE": of_job("job_type", "PROCEDURE"),
    "42 EXTERNAL": of_job("job_type", "EXTERNAL", "CREATE JOB j SCHEDULE = EVERY 1 HOUR EXEC '/bin/true'"),
    "43": of_job("job_sql", "SELECT 1", DAILY_SQL),
    "44": of_job("procedure_name", "report"),
    "45": of_job("external_command", "/bin/true -x", "CREATE JOB j SCHEDULE = EVERY 1 HOUR EXEC '/bin/true -x'"),
    "46 CRON": of_job("schedule_kind", "CRON", DAILY_SQL),
    "46 AT": of_job("schedule_kind", "AT", AT),
    "46 EVERY": of_job("schedule_kind", "EVERY"),
    "47": of_job("cron_expression", "0 2 * * *", DAILY_SQL),
    "48": of_job("interval_seconds", 3600),
    "49": created("", "starts_at", NOW_MS + 86_400_000, "SCHEDULE = EVERY 1 HOUR STARTS '2026-03-02T12:00:00Z'"),
    "49 AT": of_job("starts_at_ts", "2026-05-01T00:00:00.000000Z", AT),
    "50": created("", "ends_at", NOW_MS + 86_400_000, "SCHEDULE = EVERY 1 HOUR ENDS '2026-03-02T12:00:00Z'"),
    "51": of_job("schedule_tz", "UTC"),
    "51 given": created("TIMEZONE = 'Europe/Berlin'", "schedule_tz", "Europe/Berlin"),
    "52": of_job("next_run_time", NOW_MS + 3_600_000),
    "52 DISABLED": of_job("next_run_time", None, f"{J}; DISABLE JOB j"),
    "52 PAUSED": of_job("next_run_time", NOW_MS + 3_600_000, f"{J}; PAUSE JOB j"),
    "53": of_job("on_completion", "PRESERVE", AT),
    "54": created("PARTITION BY ALL_SHARDS", "partition_strategy", "ALL_SHARDS"),
    "55": created("PARTITION BY SINGLE_SHARD 's'", "partition_shard_uuid", "s"),
    "56": created("PARTITION BY DYNAMIC 'hash(x)'", "partition_expression", "hash(x)"),
    "57": created("PARTITION BY SHARD_SET ('a', 'b')", "partition_expression", '["a","b"]'),
    "58": of_job("max_retries", 3),
    "59": of_job("retry_backoff_seconds", 60),
    "60": of_job("timeout_seconds", 3600),
    "61": of_job("created_by", "local"),
    "63": of_job("created_at", NOW_MS),
    "64": of_job("state", "ENABLED"),
    "66": of_job("state", "DISABLED", f"{J}; DISABLE JOB j"),
    "67": of_job("state", "PAUSED", f"{J}; PAUSE JOB j"),
    # ---- sys.job_runs, column by column
    "77": of_run("assigned_node_uuid", None),
    "78": of_run("shard_uuid", None),
    "79": of_run("scheduled_time", NOW_MS),
    "80": of_run("started_at", NOW_MS, f"{J}; EXECUTE JOB j; TURN"),
    "81": of_run("completed_at", NOW_MS, f"{J}; EXECUTE JOB j; TURN"),
    "83": of_run("state", "PENDING"),
    "85": of_run("state", "COMPLETED", f"{J}; EXECUTE JOB j; TURN"),
    "87": of_run("state", "CANCELLED", f"{J}; EXECUTE JOB j; CANCEL JOB j"),
    "88": of_run("retry_count", 0),
    "89": of_run("result_message", "cancelled with SQL", f"{J}; EXECUTE JOB j; CANCEL JOB j"),
    "90": of_run("rows_affected", None),
    "91": of_run("result_data", '"everywhere 1"', f"{J}; EXECUTE JOB j; TURN"),
    "92": of_run("error_code", None, f"{J}; EXECUTE JOB j; TURN"),
    # ---- sys.job_dependencies
    "99": Line(
        f"{A}; CREATE JOB j SCHEDULE = EVERY 1 HOUR DEPENDS ON a, b CALL report(); ALTER JOB j SET DEPENDS ON b, a",
        "SELECT job_name, depends_on_job_name FROM sys.job_dependencies ORDER BY 2",
        [("j", "a"), ("j", "b")],
    ),
    "100": Line(
        f"{A}; CREATE JOB j SCHEDULE = EVERY 1 HOUR DEPENDS ON a CALL report(); DROP JOB j",
        "SELECT count(*) FROM sys.job_dependencies",
        [(0,)],
    ),
    # ---- CREATE JOB
    "112": created("CLASS = LOCAL_SAFE", "job_class", "LOCAL_SAFE"),
    "113": created("CLASS = LEADER_ONLY", "job_class", "LEADER_ONLY"),
    "114": created("CLASS = QUORUM_REQUIRED", "job_class", "QUORUM_REQUIRED"),
    "115": created("PARTITION BY ALL_SHARDS", "partition_strategy", "ALL_SHARDS"),
    "116": created("PARTITION BY SINGLE_SHARD 's'", "partition_strategy", "SINGLE_SHARD"),
    "117": created("PARTITION BY SHARD_SET ('a')", "partition_strategy", "SHARD_SET"),
    "118": created("PARTITION BY DYNAMIC (hash(x))", "partition_strategy", "DYNAMIC"),
    "125": created("MAX_RETRIES = 7", "max_retries", 7),
    "126": created("RETRY_BACKOFF = 2 MINUTES", "retry_backoff_seconds", 120),
    "127": created("TIMEOUT = 90", "timeout_seconds", 90),
    "128": created("ON COMPLETION PRESERVE", "on_completion", "PRESERVE"),
    "129": created("ON COMPLETION DROP", "on_completion", "DROP", "SCHEDULE = AT '2026-05-01T00:00:00Z'"),
    "132 ENABLED": created("ENABLED", "state", "ENABLED"),
    "132 DISABLED": created("DISABLED", "state", "DISABLED"),
    # ---- ALTER JOB
    "142": altered("SET SCHEDULE = CRON '5 3 * * *'", "cron_expression", "5 3 * * *"),
    "143": altered("SET SCHEDULE = AT '2026-05-01T00:00:00Z'", "next_run_time_ts", "2026-05-01T00:00:00.000000Z"),
    "144": altered("SET SCHEDULE = EVERY 5 MINUTES", "interval_seconds", 300),
    "145": altered("SET STATE = ENABLED", "state", "ENABLED", f"{J}; PAUSE JOB j"),
    "146": altered("SET STATE = DISABLED", "state", "DISABLED"),
    "147": altered("SET STATE = PAUSED", "state", "PAUSED"),
    "148": altered("SET MAX_RETRIES = 0", "max_retries", 0),
    "149": altered("SET RETRY_BACKOFF = 5", "retry_backoff_seconds", 5),
    "150": altered("SET TIMEOUT = 2 HOURS", "timeout_seconds", 7200),
    "152": altered("SET DESCRIPTION = 'new'", "description", "new"),
    "153": altered("SET ON COMPLETION PRESERVE", "on_completion", "PRESERVE", f"{AT}; ALTER JOB j SET ON COMPLETION DROP"),
    "154": altered("SET ON COMPLETION DROP", "on_completion", "DROP", AT),
    "157": altered("SET CLASS = LOCAL_SAFE", "job_class", "LOCAL_SAFE"),
    "158": altered("SET CLASS = LEADER_ONLY", "job_class", "LEADER_ONLY"),
    "159": altered("SET CLASS = QUORUM_REQUIRED", "job_class", "QUORUM_REQUIRED"),
    "160": altered("SET PARTITION BY ALL_SHARDS", "partition_strategy", "ALL_SHARDS"),
    "161": altered("SET PARTITION BY SINGLE_SHARD 's'", "partition_shard_uuid", "s"),
    "162": altered("SET PARTITION BY SHARD_SET ('x')", "partition_expression", '["x"]'),
    "163": altered("SET PARTITION BY DYNAMIC 'f(x)'", "partition_expression", "f(x)"),
    "164": altered("SET AS 'SELECT 2'", "job_sql", "SELECT 2"),
    "165": altered("SET CALL report('eu')", "procedure_name", "report"),
    "166": altered("SET EXEC '/bin/false'", "external_command", "/bin/false"),
    # ---- durations
    "184": created("", "interval_seconds", 90, "SCHEDULE = EVERY 90 SECONDS"),
    "185": created("", "interval_seconds", 900, "SCHEDULE = EVERY 15 MINUTES"),
    "186": created("", "interval_seconds", 7200, "SCHEDULE = EVERY 2 HOURS"),
    "187": created("", "interval_seconds", 86_400, "SCHEDULE = EVERY 1 DAY"),
    "194": created("CATCH_UP = NONE", "catch_up", "none"),
    "267": created("", "cron_expression", "0 * * * *", "SCHEDULE = '0 * * * *' PARTITION BY SHARD 'x'"),
}


def carry_out(rota: Rota, script: str) -> None:
    for statement in script.split("; "):
        if statement == "TURN":
            rota.turn()
        else:
            rota.sql(statement)


@pytest.mark.parametrize("number", LINES)
def test_a_line_of_the_specification_holds(rota, number):
    line = LINES[number]
    carry_out(rota, line.script)
    assert list(rota.sql(line.query)[0].rows) == line.rows


def test_ids_of_jobs_and_runs_are_uuids_that_refer_to_each_other(rota):
    carry_out(rota, f"{A}; CREATE JOB j SCHEDULE = EVERY 1 HOUR DEPENDS ON a CALL report(); EXECUTE JOB j")
    ((job, creator, role, procedure),) = rota.sql(
        "SELECT job_uuid, created_by_user_uuid, run_as_role_uuid, procedure_uuid FROM sys.jobs WHERE job_name = 'j'"
    )[0].rows
    assert {str(UUID(each)) for each in (job, creator, procedure)} == {job, creator, procedure}
    assert role is None
    ((run, of),) = rota.sql("SELECT job_run_uuid, job_uuid FROM sys.job_runs")[0].rows
    assert (str(UUID(run)), of) == (run, job)
    joined = "SELECT p.job_name FROM sys.job_dependencies d JOIN sys.jobs p ON p.job_uuid = d.depends_on_job_uuid WHERE d.job_uuid = ?"
    assert rota.sql(joined, [job])[0].rows == (("a",),)


def test_a_failed_attempt_has_its_message_and_the_next_one_its_count(rota, clock):
    @rota.job(name="fails")
    def fails() -> None:
        raise ValueError("no such luck")

    rota.sql("CREATE JOB j SCHEDULE = EVERY 1 HOUR MAX_RETRIES = 1 CALL fails(); EXECUTE JOB j")
    rota.turn()
    clock.advance(seconds=61)
    rota.turn()
    rows = rota.sql("SELECT state, retry_count, result_message, scheduled_time FROM sys.job_runs ORDER BY number")[0].rows
    assert [row[:3] for row in rows] == [("FAILED", 0, "ValueError: no such luck"), ("FAILED", 1, "ValueError: no such luck")]
    assert rows[1][3] == NOW_MS + 60_000


def test_a_run_of_a_due_time_is_in_the_catalog_from_its_firing_to_its_end(rota, clock):
    rota.sql(J)
    rota.store.pause()
    clock.advance(hours=1)
    rota.turn()
    assert rota.sql("SELECT state, scheduled_time FROM sys.job_runs")[0].rows == (("PENDING", NOW_MS + 3_600_000),)
    rota.store.resume()
    rota.turn()
    assert rota.sql("SELECT state, started_at FROM sys.job_runs")[0].rows == (("COMPLETED", NOW_MS + 3_600_000),)


def test_a_job_keeps_its_creator_after_the_user_was_removed(rota):
    rota.users.create("root", role="system_manager")
    rota.users.create("ada", role="admin")
    rota.acting_as("ada").sql(J)
    before = rota.sql("SELECT created_by, created_by_user_uuid FROM sys.jobs")[0].rows
    rota.users.delete("ada")
    assert rota.sql("SELECT created_by, created_by_user_uuid FROM sys.jobs")[0].rows == before
    assert before[0][0] == "ada"


def test_jobs_are_the_same_in_a_store_that_was_moved(rota, tmp_path, clock, settings):
    carry_out(
        rota, f"{A}; CREATE JOB j CLASS = LEADER_ONLY PARTITION BY SHARD_SET ('a') DEPENDS ON a SCHEDULE = EVERY 1 HOUR CALL report()"
    )
    shown = "SHOW CREATE JOB j"
    before = rota.sql(shown)[0].rows, rota.sql("SELECT * FROM sys.jobs ORDER BY job_name")[0].rows
    target = tmp_path / "moved.db"
    rota.store.promote(str(target), keep=True)
    moved = Rota(target, clock=clock, settings=settings)
    assert (moved.sql(shown)[0].rows, moved.sql("SELECT * FROM sys.jobs ORDER BY job_name")[0].rows) == before
    moved.close()
