"""SHOW CREATE JOB prints what creates the same job; what can be written and not be done yet says so."""

from __future__ import annotations

from typing import Any

import pytest

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
    ("CREATE JOB k SCHEDULE = EVERY 1 DAY RUN AS reporter CALL report()", "a handler in Python runs as no role"),
    ("ALTER JOB a SET RUN AS role_name", "the same"),
    ("SHOW NODES", "clusters are a later step"),
    ("SHOW SHARDS", "the same"),
]
"""Good inputs of the specification that can be written and not be done yet, with the reason."""


@pytest.mark.parametrize(("text", "reason"), NOT_YET, ids=lambda value: value[:40])
def test_what_can_be_written_and_not_be_done_yet_says_so(rota, text, reason):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report()")
    assert refused(rota, text).sqlstate == "0A000", reason


def test_good_inputs_about_secrets_are_carried_out(rota):
    rota.sql("CREATE JOB a SCHEDULE = EVERY 1 HOUR CALL report()")
    error = refused(rota, "ALTER JOB a SET SECRET 'API_KEY' = 'canary'")
    assert (error.code, error.sqlstate) == ("secret_unavailable", "55000"), "there is no master key"
    assert "canary" not in error.report()
    assert refused(rota, "ALTER JOB a DROP SECRET 'API_KEY'").code == "unknown_secret"
    assert rota.sql("SHOW SECRETS FOR a")[0].rows == ()


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
