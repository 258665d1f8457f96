"""Atomic scripts: one transaction of definitions, on each store."""

from __future__ import annotations

import pytest

from rota import Rota
from rota.errors import SqlError, TransactionMisuse
from rota.sql.run import DOINGS
from tests.sql.test_sql_killed import WRITES_MAX, killed_at, step_of
from tests.sql.test_sql_run import HOURLY
from tests.support.clock import ManualClock
from tests.support.proof import size


def jobs(rota: Rota) -> dict[str, str]:
    """Return the jobs with their states."""
    (result,) = rota.sql("SHOW JOBS")
    return {row[0]: row[result.columns.index("state")] for row in result.rows}


def trail(rota: Rota) -> list[str]:
    return [each.event for each in reversed(rota.audit.list(subject="schedule")) if each.action != "schedule.fire"]


def refused(rota: Rota, text: str, **options: object) -> SqlError:
    with pytest.raises(SqlError) as caught:
        rota.sql(text, atomic=True, **options)
    return caught.value


def test_a_script_is_carried_out_as_a_whole_and_later_statements_see_earlier_ones(rota):
    results = rota.sql(
        f"""
        CREATE JOB a {HOURLY};
        CREATE JOB b SCHEDULE = EVERY 1 HOUR DEPENDS ON a CALL report('eu');
        ALTER JOB a SET DESCRIPTION = 'first' SET TIMEOUT = 1 MINUTE;
        PAUSE JOB b; RESUME JOB b; DISABLE JOB b; ENABLE JOB b; PAUSE JOB b;
        CREATE OR ALTER JOB a SCHEDULE = EVERY 2 HOURS CALL report();
        CREATE JOB IF NOT EXISTS a {HOURLY};
        RECREATE JOB c {HOURLY};
        RECREATE JOB c SCHEDULE = EVERY 3 HOURS CALL report();
        DROP JOB IF EXISTS nobody;
        ALTER JOB c RENAME TO d;
        DROP JOB d
        """,
        atomic=True,
    )
    assert [each.tag for each in results][:3] == ["CREATE JOB", "CREATE JOB", "ALTER JOB"]
    assert results[9].notices[0].message == "job a exists already: nothing was changed"
    assert jobs(rota) == {"a": "ENABLED", "b": "PAUSED"}
    created, modified, deleted = "JOB_CREATED", "JOB_MODIFIED", "JOB_DELETED"
    # A statement that changes nothing has no entry; RECREATE of a job that is there has two.
    assert trail(rota) == [created, created, *[modified] * 7, created, deleted, created, modified, deleted]


def test_parameters_are_shared_out_over_an_atomic_script(rota):
    rota.sql(
        "CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report(:region); CREATE JOB b SCHEDULE = EVERY 1 HOUR CALL report(region => :region)",
        {"region": "eu"},
        atomic=True,
    )
    assert set(jobs(rota)) == {"a", "b"}


HOURLY_AFTER_A = "SCHEDULE = EVERY 1 HOUR DEPENDS ON a CALL report()"
FAILURES = {
    "a name that is taken": (f"CREATE JOB there {HOURLY}", "job_exists", "42710"),
    "a name that this script has taken": (f"CREATE JOB a {HOURLY}", "job_exists", "42710"),
    "an unknown job": ("ALTER JOB nosuch SET TIMEOUT = 1 HOUR", "unknown_job", "42704"),
    "a circle": ("ALTER JOB a SET DEPENDS ON b", "dependency_cycle", "42P17"),
    "a job that others depend on": ("DROP JOB a", "still_needed", "2BP01"),
    "a procedure that is not there": ("CREATE JOB c SCHEDULE = EVERY 1 HOUR CALL nothing()", "unknown_procedure", "42883"),
    "a moment that has passed": ("ALTER JOB a SET SCHEDULE = AT '2020-01-01T00:00:00Z'", "invalid_schedule", "22008"),
    "a role that a handler can't have": ("CREATE JOB c SCHEDULE = EVERY 1 HOUR RUN AS ops CALL report()", "sql_invalid", "0A000"),
    "a connection that is not there": ("CREATE JOB c SCHEDULE = EVERY 1 HOUR CONNECTION = dw AS 'SELECT 1'", "unknown_connection", "42704"),
    "what is not available yet": ("ALTER JOB plain SET TIMEOUT = 1 HOUR", "not_available", "0A000"),
}


@pytest.mark.parametrize("failing", FAILURES.values(), ids=FAILURES)
def test_a_failure_changes_nothing_and_says_so(rota, failing):
    statement, code, sqlstate = failing
    rota.sql(f"CREATE JOB there {HOURLY}")
    rota.schedule("plain", "report", every=3600)
    before = jobs(rota), trail(rota)
    script = f"CREATE JOB a {HOURLY};\nCREATE JOB b {HOURLY_AFTER_A};\nPAUSE JOB there;\n{statement};\nDROP JOB b"
    error = refused(rota, script)
    assert (error.code, error.sqlstate, error.line, error.statement, error.executed) == (code, sqlstate, 4, 4, 0)
    assert str(error).endswith("(statement 4 of 5; nothing was changed)")
    assert (jobs(rota), trail(rota)) == before
    # What the undone script had read of definitions is forgotten with it.
    rota.sql(f"CREATE JOB a {HOURLY}; CREATE JOB b {HOURLY}; DROP JOB b; DROP JOB a")


def test_a_script_of_one_statement_says_that_nothing_was_changed(rota):
    assert str(refused(rota, "DROP JOB nosuch")).endswith("(statement 1 of 1; nothing was changed)")


APART = {
    "EXECUTE JOB": "EXECUTE JOB a",
    "CANCEL JOB": "CANCEL JOB a",
    "SELECT": "SELECT * FROM sys.jobs",
    "WITH": "WITH x AS (SELECT 1) SELECT * FROM x",
    "SHOW JOBS": "SHOW JOBS",
    "EXPLAIN JOB": "EXPLAIN JOB a",
    "PLAN DROP": "PLAN DROP JOB a",
    "FORECAST": "FORECAST FOR 1 DAY",
    "ALTER SYSTEM": "ALTER SYSTEM SET scheduler.enabled = false",
}


@pytest.mark.parametrize("heading", APART)
def test_what_does_more_than_change_definitions_is_refused_before_anything_runs(rota, heading):
    error = refused(rota, f"CREATE JOB a {HOURLY};\n  {APART[heading]};")
    assert (error.code, error.sqlstate, error.line, error.column) == ("sql_invalid", "25001", 2, 3)
    assert (error.statement, error.executed) == (2, 0)
    wanted = f"{heading} can't be part of an atomic script, which changes definitions alone: run it in a script of its own"
    assert str(error).removeprefix("2:3: ") == f"{wanted} (statement 2 of 2; nothing was changed)"
    assert jobs(rota) == {}


def test_every_statement_that_changes_definitions_can_be_part_of_an_atomic_script():
    allowed = {kind.__name__ for kind, doing in DOINGS.items() if doing.atomic}
    jobs_of = {"CreateJob", "AlterJob", "DropJob", "SteerJob"}
    of_access = {"GrantRights", "RevokeRights", "CreateRole", "DropRole", "CreateConnection", "AlterConnection", "DropConnection"}
    of_secrets = {"CreateSecret", "AlterSecret", "DropSecret", "SetJobSecret", "DropJobSecret"}
    assert allowed == jobs_of | of_access | of_secrets


def test_a_syntax_error_is_found_before_anything_runs(rota):
    assert refused(rota, f"CREATE JOB a {HOURLY}; ALTER JOB a").sqlstate == "42601"
    assert jobs(rota) == {}


def test_an_atomic_script_inside_the_callers_own_transaction_is_refused(rota):
    rota.sql("SHOW JOBS")
    with rota.transaction():
        error = refused(rota, f"CREATE JOB a {HOURLY}")
    assert isinstance(error.__cause__, TransactionMisuse)
    assert jobs(rota) == {}


def test_the_schedules_of_decorators_are_declared_though_the_script_fails(where, clock, settings):
    rota = Rota(where, clock=clock, settings=settings, seed=7)

    @rota.job(every="1h")
    def hourly() -> None: ...

    refused(rota, "DROP JOB nosuch")
    assert [each.name for each in rota.schedules.list()] == ["hourly"]
    rota.close()


def test_a_user_is_refused_what_it_may_not_do_and_nothing_is_changed(rota):
    rota.organizations.create("acme")
    rota.users.create("ada", organization="acme", role="admin")
    rota.users.create("uwe", organization="acme", role="user")
    rota.acting_as("ada").sql(f"CREATE JOB hers {HOURLY}; PAUSE JOB hers", atomic=True)
    assert jobs(rota) == {"hers": "PAUSED"}
    error = refused(rota.acting_as("uwe"), "RESUME JOB hers")
    assert error.sqlstate == "42704"
    assert refused(rota.acting_as("uwe"), f"CREATE JOB his {HOURLY}").sqlstate == "42501"
    assert jobs(rota) == {"hers": "PAUSED"}


# ---- runs -------------------------------------------------------------------------------------------------------------


def states(rota: Rota) -> list[str]:
    return [job.status for job in rota.jobs.list()]


def test_a_dropped_job_has_its_waiting_runs_cancelled_in_the_same_transaction(rota):
    rota.sql(f"CREATE JOB a {HOURLY}; EXECUTE JOB a; EXECUTE JOB a")
    refused(rota, "DROP JOB a; DROP JOB nosuch")
    assert states(rota) == ["QUEUED", "QUEUED"]
    rota.sql(f"DROP JOB a KEEP HISTORY; CREATE JOB a {HOURLY}", atomic=True)
    assert states(rota) == ["CANCELLED", "CANCELLED"]


def test_the_history_of_a_dropped_job_is_removed_after_the_commit(rota):
    rota.sql(f"CREATE JOB a {HOURLY}; EXECUTE JOB a")
    rota.turn()
    refused(rota, "DROP JOB a; DROP JOB nosuch")
    assert states(rota) == ["COMPLETED"]
    rota.sql("DROP JOB a", atomic=True)
    assert states(rota) == []


def test_due_times_up_to_now_are_decided_with_the_script_and_reported_after_it(rota, clock: ManualClock):
    rota.sql(f"CREATE JOB a {HOURLY}; CREATE JOB b {HOURLY}")
    rota.templates.disable("report")
    news = []
    rota.on.not_run(news.append)
    clock.advance(hours=1)
    refused(rota, "DISABLE JOB a; DROP JOB nosuch")
    assert news == []
    rota.sql("DISABLE JOB a; DISABLE JOB b", atomic=True)
    assert [(each.schedule, each.fate) for each in news] == [("a", "REFUSED"), ("b", "REFUSED")]


# ---- killed -----------------------------------------------------------------------------------------------------------

STRIDE = size(4, prove=1)
"""By how many writes the next death is later, until the commit is near: that one is between the 25th write and the 29th, on each store."""
NEAR_COMMIT = 25
SCRIPT = """
    CREATE JOB b SCHEDULE = EVERY 1 HOUR CALL report();
    CREATE JOB c SCHEDULE = EVERY 1 HOUR DEPENDS ON b CALL report();
    ALTER JOB j SET SCHEDULE = EVERY 2 HOURS;
    DROP JOB k
"""


def seen(where: str) -> tuple[list[str], list[str], list[str]]:
    rota = Rota(where)
    try:
        shown = [f"{row[0]} {row[3]}" for row in rota.sql("SHOW JOBS")[0].rows]
        return shown, trail(rota), [str(job.status) for job in rota.jobs.list()]
    finally:
        rota.close()


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_script_that_is_killed_at_any_write_leaves_all_of_it_or_nothing(where):
    rota = Rota(where)
    rota.job(name="report")(lambda: None)
    rota.sql(f"CREATE JOB j {HOURLY}; CREATE JOB k {HOURLY}; EXECUTE JOB k")
    rota.close()
    before, write = seen(where), 1
    while killed_at(where, write, SCRIPT, atomic=True) and (after := seen(where)) == before:
        write += max(STRIDE if write < NEAR_COMMIT else 1, step_of(where))
        assert write < 2 * WRITES_MAX
    # The last one was killed after the commit, at the removal of the dropped job's history, which is another transaction.
    assert write > 20, "two jobs are created, one is changed, one dropped with its run cancelled"
    assert after[0] == ["b every hour", "c every hour", "j every 2 hours"]
    assert after[1] == ["JOB_CREATED", "JOB_CREATED", "JOB_CREATED", "JOB_CREATED", "JOB_MODIFIED", "JOB_DELETED"]
    assert after[2] == ["CANCELLED"]
    other = Rota(where)
    assert other._session.open().store.purge_dropped(limit=10).jobs == 1, "as each worker does from time to time"
    other.close()
