"""SHOW CREATE JOB prints what creates the same job; the good inputs of the specification are carried out."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota
from rota.sql.parser import parse
from tests.sql.test_sql_jobs import facts
from tests.sql.test_sql_run import refused

JOBS = [
    "CREATE JOB j SCHEDULE = CRON '30 2 * * *' TIMEZONE = 'Europe/Berlin' CALL report()",
    "CREATE JOB j SCHEDULE = EVERY 90 STARTS '2036-01-01T00:00:00Z' ENDS '2037-01-01T00:00:00Z' CALL report('it''s', day => -2)",
    "CREATE JOB j SCHEDULE = AT '2036-01-15 10:00:00' ON COMPLETION DROP DISABLED CALL report(day => 5)",
    (
        "CREATE JOB j SCHEDULE = EVERY 1 DAY CATCH_UP = ALL JITTER = 10 MIN PRIORITY = HIGH MAX_RETRIES = 0 RETRY_BACKOFF = 0"
        " TIMEOUT = 0 PARAMS = '{\"day\": 3}' DESCRIPTION = 'it''s' STATE = PAUSED CALL report()"
    ),
    "CREATE JOB j CLASS = QUORUM_REQUIRED PARTITION BY SHARD_SET ('a', 'b') SCHEDULE = EVERY 1 DAY DISABLED AS $$ SELECT 'x'; $$",
    "CREATE JOB j PARTITION BY DYNAMIC 'hash(x)' SCHEDULE = EVERY 1 DAY EXEC '/usr/bin/true --x \"a b\"'",
    "CREATE JOB j PARTITION BY SINGLE_SHARD 'eu' DEPENDS ON a, b SCHEDULE = EVERY 1 DAY CALL report()",
]
OWN = {"job_uuid", "created_at", "version", "template_version"}


@pytest.mark.parametrize("text", JOBS, ids=range(len(JOBS)))
def test_show_create_job_prints_a_statement_that_creates_the_same_job(rota, text):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report(); CREATE JOB b SCHEDULE = EVERY 1 HOUR CALL report()")
    rota.sql(text)
    before = facts(rota, "j")
    ((_, statement),) = rota.sql("SHOW CREATE JOB j")[0].rows
    parse(statement)
    rota.sql(f"DROP JOB j; {statement}")
    assert of(facts(rota, "j")) == of(before)
    assert rota.sql("SHOW CREATE JOB j")[0].rows == (("j", statement),)


def of(job: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if name not in OWN}


NOT_YET = [
    ("CREATE JOB k SCHEDULE = EVERY 1 DAY RUN AS reporter CALL report()", "running as a role is a later step"),
    ("ALTER JOB a SET RUN AS role_name", "the same"),
    ("ALTER JOB a SET SECRET 'API_KEY' = 'canary'", "secrets are a later step"),
    ("ALTER JOB a DROP SECRET 'API_KEY'", "the same"),
    ("SHOW SECRETS FOR a", "the same"),
    ("ALTER SYSTEM SET scheduler.enabled = false", "stored settings are a later step"),
    ("SHOW NODES", "clusters are a later step"),
    ("SHOW SHARDS", "the same"),
    ("EXECUTE JOB sweep", "no runner for the SQL of a job yet"),
]
"""Good inputs of the specification that can be written and not be done yet, with the reason."""


@pytest.mark.parametrize(("text", "reason"), NOT_YET, ids=lambda value: value[:40])
def test_what_can_be_written_and_not_be_done_yet_says_so(rota, text, reason):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report(); CREATE JOB sweep SCHEDULE = EVERY 1 HOUR DISABLED AS 'SWEEP DATABASE'")
    error = refused(rota, text)
    assert error.sqlstate == "0A000", reason
    assert "canary" not in error.report()


def test_good_inputs_about_privileges_are_carried_out(rota):
    rota.users.create("ada", role="system_manager")
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report()")
    tags = [
        rota.sql(text)[0].tag
        for text in (
            "GRANT EXECUTE ON JOB a TO ada",
            "GRANT VIEW JOB HISTORY TO PUBLIC",
            "SHOW GRANTS FOR JOB a",
            "REVOKE EXECUTE ON JOB a FROM ada",
            "CREATE ROLE reporter",
            "SHOW ROLES",
            "DROP ROLE reporter",
        )
    ]
    assert tags == ["GRANT", "GRANT", "SHOW 1", "REVOKE", "CREATE ROLE", "SHOW 1", "DROP ROLE"]


GOOD = [
    "CREATE JOB daily_sweep SCHEDULE = CRON '0 2 * * *' DESCRIPTION = 'Daily sweep/GC maintenance' ENABLED AS 'SWEEP DATABASE'",
    (
        "CREATE JOB nightly CLASS = LOCAL_SAFE PARTITION BY ALL_SHARDS SCHEDULE = CRON '0 2 * * *' DEPENDS ON a, b MAX_RETRIES = 3"
        " RETRY_BACKOFF = 60 SECONDS TIMEOUT = 1 HOUR ON COMPLETION PRESERVE DESCRIPTION = 'description' ENABLED"
        " AS 'DELETE FROM t WHERE x = ''y'''"
    ),
    (
        "CREATE JOB n1 PARTITION BY SINGLE_SHARD '00000000-0000-0000-0000-000000000001' SCHEDULE = AT '2036-01-15 10:00:00'"
        " ON COMPLETION DROP DISABLED CALL procedure_name()"
    ),
    (
        "CREATE JOB n2 PARTITION BY SHARD_SET ('a', 'b') SCHEDULE = EVERY 15 MINUTES STARTS '2036-01-01T00:00:00Z'"
        " ENDS '2037-01-01T00:00:00Z' EXEC '/usr/bin/true'"
    ),
    "CREATE JOB n3 CLASS = QUORUM_REQUIRED PARTITION BY DYNAMIC 'SELECT 1' SCHEDULE = EVERY 90 AS 'SELECT 1'",
    "CREATE JOB n4 PARTITION BY DYNAMIC (hash(customer_id)) SCHEDULE = EVERY 120s AS 'SELECT 1'",
    "CREATE OR ALTER JOB j CLASS = LEADER_ONLY SCHEDULE = CRON '0 2 * * *' AS 'SELECT 1'",
    "RECREATE JOB j SCHEDULE = CRON '*/15 * * * *' DISABLED AS CALL schema.proc(a => 1, b => 'x', c => NULL)",
    "ALTER JOB j SET SCHEDULE = CRON '0 */2 * * *'",
    "ALTER JOB j SET SCHEDULE = AT '2036-01-15T10:00:00Z'",
    "ALTER JOB j SET SCHEDULE = EVERY 2 HOURS STARTS '2036-01-01T00:00:00Z'",
    "ALTER JOB j SET CALL report() SET STATE = PAUSED",
    "ALTER JOB j SET STATE = ENABLED SET MAX_RETRIES = 5 SET RETRY_BACKOFF = 120s SET TIMEOUT = 30 M",
    "ALTER JOB j SET SCHEDULE = AT '2036-01-15T10:00:00Z' SET DESCRIPTION = '...' SET ON COMPLETION DROP",
    "ALTER JOB j SET DEPENDS ON a, b",
    "ALTER JOB j SET DEPENDS ON NONE",
    "ALTER JOB j SET CLASS = LOCAL_SAFE SET PARTITION BY SINGLE_SHARD 'shard'",
    "ALTER JOB j SET AS 'UPDATE t SET a = 1'",
    "ALTER JOB j SET EXEC '/opt/x --y'",
    "ALTER JOB j SET CALL report()",
    "ALTER JOB j STATE = DISABLED MAX_RETRIES = 2",
    "EXECUTE JOB j",
    "SHOW JOBS; SHOW JOBS LIKE 'daily%'; SHOW JOB daily_sweep; SHOW JOB RUNS FOR daily_sweep; SHOW JOB RUNS daily_sweep LIMIT 10",
    "SHOW JOB RUNS FOR 'daily_sweep'",
    "SHOW CREATE JOB daily_sweep; SHOW OCCURRENCES FOR daily_sweep LIMIT 20; SHOW DEPENDENCIES FOR j",
    "SHOW SETTINGS LIKE 'scheduler.%'; SHOW AUDIT FOR JOB j LIMIT 5; SHOW SCHEDULER; SHOW METRICS",
    "EXPLAIN JOB j",
    "PLAN ALTER JOB j SET SCHEDULE = AT '2036-03-03'; PLAN CREATE JOB k SCHEDULE = EVERY 1 DAY AS 'SELECT 1'; PLAN DROP JOB j",
    "FORECAST; FORECAST FOR 24 HOURS; FORECAST JOB j FOR 7 DAYS; FORECAST FROM '2036-03-28T00:00:00Z' TO '2036-03-31T00:00:00Z'",
    "CREATE JOB hourly_report SCHEDULE = '0 * * * *' AS 'CALL generate_hourly_sales_report()'",
    (
        "CREATE JOB n5 SCHEDULE = CRON '30 2 * * *' TIMEZONE = 'Europe/Berlin' CATCH_UP = LAST OVERLAP = SKIP JITTER = 10 MIN"
        " PRIORITY = high CALENDAR = holidays PARAMS = '{\"a\":1}' AS $$ INSERT INTO t VALUES ('it''s') $$"
    ),
    "CREATE JOB \"weird name; -- x\" SCHEDULE EVERY 1 H AS 'SELECT '';''' -- comment",
    "create job enabled schedule = every 1 d as 'select 1' /* done */ ;",
    "PAUSE JOB a; RESUME JOB a; RUN JOB a; CANCEL JOB a; ENABLE JOB a; DISABLE JOB a",
    "EXECUTE JOB j WITH PARAMS '{\"day\":1}' WAIT 0 S",
    "CREATE JOB etl_transform DEPENDS ON a SCHEDULE = '0 2 * * *' AS 'CALL transform_extracted_data()'",
    "CREATE JOB rebuild_shard CLASS = LOCAL_SAFE PARTITION BY SHARD 'shard_001' SCHEDULE = '0 4 * * 0' AS 'REINDEX DATABASE'",
    "DROP JOB hourly_report; DROP JOB daily_sweep KEEP HISTORY",
]
"""The good inputs of the specification but for those of NOT_YET, one after the other, with names of their own."""


def test_the_good_inputs_of_the_specification_are_carried_out_one_after_the_other(rota: Rota):
    rota.calendars.update("holidays", ["2036-12-25"])
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report(); CREATE JOB b SCHEDULE = EVERY 1 HOUR CALL report()")
    for text in GOOD:
        assert rota.sql(text)
    assert facts(rota, "j")["body"] == "report()"
