"""Statements that are read: what they mean, and how they are written canonically."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest
from msgspec import UNSET

from rota.errors import InvalidSchedule, SqlError
from rota.model.schedules import CatchUp, OnCompletion, Overlap, ScheduleState
from rota.model.values import instant
from rota.sql import syntax
from rota.sql.parser import parse, parse_script
from rota.sql.render import MASK, render
from rota.sql.syntax import Clauses, CreateJob, Parameter, SecretText
from rota.sql.values import instant_in

RUN = "d15f9cf4-2ab1-4e2c-9f33-0b0a6f4a0e0d"
JOB = "CREATE JOB j SCHEDULE = EVERY 1 H"


def clauses_of(text: str) -> Clauses:
    statement = parse(text)
    assert isinstance(statement, syntax.CreateJob | syntax.AlterJob)
    return statement.clauses


# ---- jobs -------------------------------------------------------------------------------------------------------------


def test_a_job_with_every_clause_is_read_as_what_it_says():
    text = """
    CREATE JOB nightly
      CLASS = LEADER_ONLY
      PARTITION BY SHARD_SET ('eu', 'us')
      SCHEDULE = EVERY 15 MINUTES STARTS '2036-01-01T00:00:00Z' ENDS '2037-01-01T00:00:00+01:00'
      TIMEZONE = 'Europe/Berlin'
      CATCH_UP = ALL
      OVERLAP = QUEUE
      JITTER = 10 MIN
      CALENDAR = holidays
      DEPENDS ON load, "Odd name"
      MAX_RETRIES = 3
      RETRY_BACKOFF = 60 SECONDS
      TIMEOUT = 1 HOUR 30 MINUTES
      ON COMPLETION PRESERVE
      RUN AS reporter
      CONNECTION = warehouse
      SECRETS (smtp, "api key")
      PRIORITY = high
      PARAMS = '{"b": 1, "a": [true, null]}'
      DESCRIPTION = 'it''s nightly'
      DISABLED
      AS 'DELETE FROM t WHERE x = ''y''';
    """
    assert parse(text) == CreateJob(
        "nightly",
        Clauses(
            job_class=syntax.JobClass.LEADER_ONLY,
            partition=syntax.ShardSet(("eu", "us")),
            schedule=syntax.AtIntervals(900, datetime(2036, 1, 1, tzinfo=UTC), datetime(2036, 12, 31, 23, tzinfo=UTC)),
            timezone="Europe/Berlin",
            catch_up=CatchUp.ALL,
            overlap=Overlap.QUEUE,
            jitter=600,
            calendar="holidays",
            depends_on=("load", "Odd name"),
            max_retries=3,
            retry_backoff=60,
            timeout=5400,
            on_completion=OnCompletion.PRESERVE,
            run_as="reporter",
            connection="warehouse",
            secrets=("smtp", "api key"),
            priority=75,
            params='{"a":[true,null],"b":1}',
            description="it's nightly",
            state=ScheduleState.DISABLED,
            body=syntax.SqlBody("DELETE FROM t WHERE x = 'y'"),
        ),
    )
    assert (
        render(parse(text))
        == """\
CREATE JOB nightly
  CLASS = LEADER_ONLY
  PARTITION BY SHARD_SET ('eu', 'us')
  SCHEDULE = EVERY 15 MINUTES STARTS '2036-01-01T00:00:00Z' ENDS '2036-12-31T23:00:00Z'
  TIMEZONE = 'Europe/Berlin'
  CATCH_UP = ALL
  OVERLAP = QUEUE
  JITTER = 10 MINUTES
  CALENDAR = holidays
  DEPENDS ON load, "Odd name"
  MAX_RETRIES = 3
  RETRY_BACKOFF = 1 MINUTE
  TIMEOUT = 90 MINUTES
  ON COMPLETION PRESERVE
  RUN AS reporter
  CONNECTION = warehouse
  SECRETS (smtp, "api key")
  PRIORITY = HIGH
  PARAMS = '{"a":[true,null],"b":1}'
  DESCRIPTION = 'it''s nightly'
  DISABLED
  AS $sql$DELETE FROM t WHERE x = 'y'$sql$;"""
    )


ALONE = [
    "CLASS = LOCAL_SAFE",
    "CLASS = LEADER_ONLY",
    "CLASS = QUORUM_REQUIRED",
    "PARTITION BY ALL_SHARDS",
    "TIMEZONE = 'America/New_York'",
    "TIME ZONE 'UTC'",
    "CATCH_UP = NONE",
    "CATCH_UP LAST",
    "OVERLAP = ALLOW",
    "JITTER = 1 DAY",
    "CALENDAR = holidays",
    "DEPENDS ON etl_extract",
    "DEPENDS ON a, b, c",
    "MAX_RETRIES = 0",
    "MAX_RETRIES 1000",
    "RETRY_BACKOFF = 120s",
    "TIMEOUT = 0",
    "ON COMPLETION PRESERVE",
    "RUN AS reporter",
    "CONNECTION = warehouse",
    "SECRETS (api_key)",
    "PRIORITY = 0",
    "PRIORITY = CRITICAL",
    "PARAMS = '{}'",
    "DESCRIPTION = ''",
    "ENABLED",
    "DISABLED",
    "STATE = PAUSED",
]


@pytest.mark.parametrize("clause", ALONE)
def test_every_clause_is_taken_alone_in_every_statement_that_has_clauses(clause):
    schedule = "SCHEDULE = CRON '0 2 * * *'"
    for text in (
        f"CREATE JOB j {clause} {schedule} AS 'x'",
        f"CREATE JOB IF NOT EXISTS j {schedule} {clause} CALL p()",
        f"CREATE OR ALTER JOB j {clause}",
        f"RECREATE JOB j {schedule} {clause} EXEC '/bin/true'",
        f"ALTER JOB j SET {clause}",
        f"ALTER JOB j {clause} SET AS 'x'",
    ):
        statement = parse(text)
        assert parse(render(statement)) == statement
        assert parse(f"PLAN {text}") == syntax.PlanChange(statement)


def test_a_moment_that_passed_and_a_zone_that_is_left_out_are_for_the_store_to_judge():
    text = "CREATE JOB migrate SCHEDULE = AT '2036-01-15 10:00:00' ON COMPLETION DROP MAX_RETRIES = 5 RETRY_BACKOFF = 120s CALL migrate()"
    assert clauses_of(text).on_completion is OnCompletion.DROP
    assert clauses_of(text.replace("2036", "2006")).schedule == syntax.OnceAt(datetime.fromisoformat("2006-01-15T10:00:00"))


def test_clauses_come_in_any_order_and_equals_signs_may_be_left_out():
    canonical = parse("CREATE JOB j CLASS = LOCAL_SAFE SCHEDULE = EVERY 1 H TIMEOUT = 5 M DISABLED AS 'x'")
    assert parse("create job j disabled timeout 300 schedule every '1 hour' class local_safe as $$x$$ ;") == canonical
    assert parse("CREATE JOB j STATE = DISABLED SCHEDULE EVERY 60 MIN CLASS LOCAL_SAFE TIMEOUT = '5m' AS $q$x$q$") == canonical


def test_what_is_not_said_is_not_a_default():
    assert msgspec.structs.asdict(clauses_of("ALTER JOB j SET TIMEOUT = 0")) == {
        **dict.fromkeys(Clauses.__struct_fields__, UNSET),
        "timeout": 0,
    }
    assert clauses_of(f"{JOB} AS 'x'").state is UNSET
    assert clauses_of("CREATE OR ALTER JOB j DESCRIPTION = 'only this'") == Clauses(description="only this")


def test_none_removes_a_value_and_is_not_the_same_as_saying_nothing():
    removed = "SET TIMEZONE = NONE SET CALENDAR NONE SET DEPENDS ON NONE SET RUN AS NONE SET CONNECTION = NONE SET SECRETS NONE"
    said = clauses_of(f"ALTER JOB j {removed} SET DESCRIPTION = NULL")
    assert said == Clauses(timezone=None, calendar=None, depends_on=None, run_as=None, connection=None, secrets=None, description=None)
    assert said != Clauses()
    assert clauses_of("CREATE OR ALTER JOB j RUN AS NONE") == Clauses(run_as=None)
    assert clauses_of("ALTER JOB j SET CATCH_UP = NONE").catch_up is CatchUp.NONE


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("CRON '0 2 * * *'", syntax.OnCronLine("0 2 * * *")),
        ("'*/5 * * * *'", syntax.OnCronLine("*/5 * * * *")),
        ("CRON ' @daily '", syntax.OnCronLine("@daily")),
        ("AT '2036-01-15T10:00:00Z'", syntax.OnceAt(datetime(2036, 1, 15, 10, tzinfo=UTC))),
        ("AT '2036-01-15T10:00:00+02:00'", syntax.OnceAt(datetime(2036, 1, 15, 8, tzinfo=UTC))),
        ("AT '2036-01-15 10:00:00'", syntax.OnceAt(datetime.fromisoformat("2036-01-15T10:00:00"))),
        ("AT '2036-01-15'", syntax.OnceAt(datetime.fromisoformat("2036-01-15T00:00:00"))),
        ("EVERY 90", syntax.AtIntervals(90)),
        ("EVERY 2 HOURS STARTS '2036-01-01T00:00:00Z'", syntax.AtIntervals(7200, datetime(2036, 1, 1, tzinfo=UTC))),
        ("EVERY 1 DAY ENDS '2036-01-01T00:00:00Z'", syntax.AtIntervals(86_400, None, datetime(2036, 1, 1, tzinfo=UTC))),
    ],
)
def test_a_schedule_is_a_cron_expression_a_moment_or_an_interval(text, rule):
    for statement in (f"CREATE JOB j SCHEDULE = {text} AS 'x'", f"ALTER JOB j SET SCHEDULE = {text}"):
        assert clauses_of(statement).schedule == rule


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90 S", 90),
        ("1 SEC", 1),
        ("2 secs", 2),
        ("1 SECOND", 1),
        ("60 SECONDS", 60),
        ("5 M", 300),
        ("5 MIN", 300),
        ("5 mins", 300),
        ("1 MINUTE", 60),
        ("15 MINUTES", 900),
        ("2 H", 7200),
        ("1 HOUR", 3600),
        ("2 HOURS", 7200),
        ("1 D", 86_400),
        ("1 DAY", 86_400),
        ("7 DAYS", 604_800),
        ("120s", 120),
        ("1h30m", 5400),
        ("1 HOUR 30 MINUTES", 5400),
        ("1 DAY 1 S", 86_401),
        ("'90'", 90),
        ("'1h30m'", 5400),
        ("'15 minutes'", 900),
        ("'1 Hour 30 Minutes'", 5400),
        ("INTERVAL '1 hour'", 3600),
        ("INTERVAL '5' MINUTE", 300),
        ("INTERVAL 5 MINUTES", 300),
    ],
)
def test_words_and_letters_for_durations_are_taken_wherever_durations_are(text, seconds):
    said = clauses_of(f"CREATE JOB j SCHEDULE = EVERY {text} TIMEOUT = {text} RETRY_BACKOFF {text} AS 'x'")
    assert isinstance(said.schedule, syntax.AtIntervals)
    assert (said.schedule.every, said.timeout, said.retry_backoff) == (seconds,) * 3
    assert parse(f"FORECAST FOR {text}") == syntax.ForecastJobs(None, seconds)
    assert parse(f"EXECUTE JOB j WAIT {text}") == syntax.ExecuteJob("j", UNSET, seconds)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("ALL_SHARDS", syntax.AllShards()),
        ("SINGLE_SHARD 'eu'", syntax.SingleShard("eu")),
        (f"SINGLE_SHARD '{RUN}'", syntax.SingleShard(RUN)),
        ("SHARD 'shard_001'", syntax.SingleShard("shard_001")),
        ("SHARD_SET ('a', 'b')", syntax.ShardSet(("a", "b"))),
        ("SHARD_SET 'a, b'", syntax.ShardSet(("a", "b"))),
        ("DYNAMIC 'SELECT 1'", syntax.DynamicShards("SELECT 1")),
        ("DYNAMIC (hash(customer_id))", syntax.DynamicShards("hash(customer_id)")),
        ("DYNAMIC ( f(')', \"(\") /* ( */ )", syntax.DynamicShards("f(')', \"(\") /* ( */")),
        ("DYNAMIC 'replace(name, ''drop'', '''')'", syntax.DynamicShards("replace(name, 'drop', '')")),
    ],
)
def test_a_partition_names_its_shards(text, rule):
    for statement in (f"CREATE JOB j PARTITION BY {text} SCHEDULE = EVERY 1 H AS 'x'", f"ALTER JOB j SET PARTITION BY {text}"):
        assert clauses_of(statement).partition == rule


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("AS 'SELECT 1'", syntax.SqlBody("SELECT 1")),
        ("AS $$ it's; $1 $$", syntax.SqlBody(" it's; $1 ")),
        ("AS $a$ $$ $b$ $a$", syntax.SqlBody(" $$ $b$ ")),
        ("CALL p()", syntax.CallBody(("p",))),
        ("AS CALL s.p(1, -2.50, 'x''y', NULL, TRUE, false, :region)",
         syntax.CallBody(("s", "p"), (1, Decimal("-2.50"), "x'y", None, True, False, Parameter("region")))),
        ('CALL "a.b"."c"()', syntax.CallBody(("a.b", "c"))),
        ("CALL p(1, region => 'eu', \"a b\" => NULL)",
         syntax.CallBody(("p",), (1,), (syntax.NamedArgument("region", "eu"), syntax.NamedArgument("a b", None)))),
        ("EXEC '/opt/x --y \"a b\"'", syntax.ExecBody('/opt/x --y "a b"')),
        ("AS EXEC '/bin/true'", syntax.ExecBody("/bin/true")),
    ],
)  # fmt: skip
def test_a_body_is_sql_a_procedure_or_a_command(text, body):
    for statement in (f"{JOB} {text}", f"ALTER JOB j SET {text}", f"ALTER JOB j {text}"):
        assert clauses_of(statement).body == body


def test_sql_with_quotes_is_rendered_readably_and_never_wrongly():
    def rendered(sql: str) -> str:
        return render(CreateJob("j", Clauses(schedule=syntax.AtIntervals(1), body=syntax.SqlBody(sql)))).partition("AS ")[2]

    assert rendered("SELECT 1") == "'SELECT 1';"
    assert rendered("SELECT '1'") == "$sql$SELECT '1'$sql$;"
    assert rendered("SELECT '$sql$'") == "'SELECT ''$sql$''';"
    assert rendered("'$sql") == "'''$sql';"


def test_an_alter_may_do_several_things_at_once_with_or_without_set():
    wanted = syntax.AlterJob("j", Clauses(state=ScheduleState.DISABLED, max_retries=2, body=syntax.SqlBody("x")), "k")
    assert parse("ALTER JOB j SET STATE = DISABLED SET MAX_RETRIES = 2 SET AS 'x' RENAME TO k") == wanted
    assert parse("ALTER JOB j RENAME TO k AS 'x' STATE DISABLED MAX_RETRIES = 2") == wanted
    assert parse("ALTER JOB j DISABLED SET AS 'x' SET MAX_RETRIES 2 RENAME TO k") == wanted
    assert render(wanted) == "ALTER JOB j\n  SET MAX_RETRIES = 2\n  SET STATE = DISABLED\n  SET AS 'x'\n  RENAME TO k;"


def test_a_state_in_create_is_a_word_alone_except_for_paused():
    assert "\n  ENABLED\n" in render(parse(f"{JOB} STATE = ENABLED AS 'x'"))
    assert "\n  STATE = PAUSED\n" in render(parse(f"{JOB} STATE = PAUSED AS 'x'"))


def test_create_or_alter_may_leave_out_the_schedule_and_the_body():
    statement = parse("CREATE OR ALTER JOB j TIMEOUT = 5")
    assert isinstance(statement, CreateJob)
    assert statement.mode is syntax.CreateMode.CREATE_OR_ALTER
    assert (statement.clauses.schedule, statement.clauses.body) == (UNSET, UNSET)
    for mode in ("CREATE", "RECREATE"):
        with pytest.raises(SqlError):
            parse(f"{mode} JOB j TIMEOUT = 5")


# ---- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "name", "canonical"),
    [
        ("nightly", "nightly", "nightly"),
        ("Nightly", "Nightly", "Nightly"),
        ('"nightly"', "nightly", "nightly"),
        ("enabled", "enabled", '"enabled"'),
        ('"select"', "select", '"select"'),
        ('"a ""b"""', 'a "b"', '"a ""b"""'),
        ('"weird name; -- x"', "weird name; -- x", '"weird name; -- x"'),
        ('"a.b.c"', "a.b.c", '"a.b.c"'),
        ("café_2$", "café_2$", "café_2$"),
        ("l\u0131ke", "l\u0131ke", "l\u0131ke"),
        ("if", "if", '"if"'),
    ],
)
def test_names_keep_their_case_and_have_double_quotes_where_they_need_them(written, name, canonical):
    assert parse(f"DROP JOB {written}") == syntax.DropJob(name)
    assert render(syntax.DropJob(name)) == f"DROP JOB {canonical};"


@pytest.mark.parametrize("name", ["", " ", "x" * 256, "a\nb", "a\tb"])
def test_names_that_a_store_would_refuse_are_refused(name):
    quoted = '"' + name + '"'
    with pytest.raises(SqlError) as caught:
        parse(f"DROP JOB {quoted}")
    assert caught.value.column == 10
    assert caught.value.code == ("invalid_name" if name else "sql_syntax")


# ---- the other statements ---------------------------------------------------------------------------------------------

CANONICAL = [
    ("DROP JOB j", "DROP JOB j;"),
    ("drop job if exists j keep history", "DROP JOB IF EXISTS j KEEP HISTORY;"),
    ("EXECUTE JOB j", "EXECUTE JOB j;"),
    ("RUN JOB j WITH PARAMS '{\"x\" : 1}' WAIT 30 S", "EXECUTE JOB j WITH PARAMS '{\"x\":1}' WAIT 30 SECONDS;"),
    ("EXECUTE JOB j WAIT", "EXECUTE JOB j WAIT;"),
    (f"CANCEL JOB RUN {RUN}", f"CANCEL JOB RUN {RUN};"),
    (f"CANCEL JOB RUN '{RUN.upper()}'", f"CANCEL JOB RUN {RUN};"),
    (f"CANCEL JOB RUN {{{RUN}}}", f"CANCEL JOB RUN {RUN};"),
    (f"CANCEL JOB RUN '{{{RUN}}}'", f"CANCEL JOB RUN {RUN};"),
    (f"CANCEL JOB RUN 'urn:uuid:{RUN}'", f"CANCEL JOB RUN {RUN};"),
    ("CANCEL JOB j", "CANCEL JOB j;"),
    ('CANCEL JOB "run"', 'CANCEL JOB "run";'),
    ("PAUSE JOB j", "PAUSE JOB j;"),
    ("RESUME JOB j", "RESUME JOB j;"),
    ("ENABLE JOB j", "ENABLE JOB j;"),
    ("DISABLE JOB j", "DISABLE JOB j;"),
    ("SHOW JOBS", "SHOW JOBS;"),
    ("SHOW JOBS LIKE 'daily%' LIMIT 5", "SHOW JOBS LIKE 'daily%' LIMIT 5;"),
    ("SHOW JOB daily", "SHOW JOB daily;"),
    (f"SHOW JOB {RUN}", f"SHOW JOB {RUN};"),
    ("SHOW CREATE JOB daily", "SHOW CREATE JOB daily;"),
    ("SHOW JOB RUNS", "SHOW JOB RUNS;"),
    ("SHOW JOB RUNS LIMIT 10", "SHOW JOB RUNS LIMIT 10;"),
    ("SHOW JOB RUNS daily LIMIT 10", "SHOW JOB RUNS FOR daily LIMIT 10;"),
    ("SHOW JOB RUNS FOR 'daily'", "SHOW JOB RUNS FOR daily;"),
    (f"SHOW JOB RUNS FOR '{RUN}'", f"SHOW JOB RUNS FOR {RUN};"),
    ("SHOW OCCURRENCES FOR daily LIMIT 20", "SHOW OCCURRENCES FOR daily LIMIT 20;"),
    ("SHOW DEPENDENCIES FOR load", "SHOW DEPENDENCIES FOR load;"),
    ("SHOW GRANTS", "SHOW GRANTS;"),
    ("SHOW GRANTS FOR JOB j", "SHOW GRANTS FOR JOB j;"),
    ("SHOW GRANTS FOR ada", "SHOW GRANTS FOR ada;"),
    ("SHOW GRANTS FOR 'ada'", "SHOW GRANTS FOR ada;"),
    ("SHOW GRANTS FOR ROLE dev", "SHOW GRANTS FOR ROLE dev;"),
    ("SHOW ROLES", "SHOW ROLES;"),
    ("SHOW SECRETS FOR j", "SHOW SECRETS FOR j;"),
    ("SHOW CONNECTIONS", "SHOW CONNECTIONS;"),
    ("SHOW SETTINGS LIKE 'scheduler.%'", "SHOW SETTINGS LIKE 'scheduler.%';"),
    ("SHOW AUDIT FOR JOB j LIMIT 5", "SHOW AUDIT FOR JOB j LIMIT 5;"),
    ("SHOW SCHEDULER", "SHOW SCHEDULER;"),
    ("SHOW METRICS", "SHOW METRICS;"),
    ("SHOW NODES", "SHOW NODES;"),
    ("SHOW SHARDS", "SHOW SHARDS;"),
    ("EXPLAIN JOB j", "EXPLAIN JOB j;"),
    (f"EXPLAIN JOB RUN '{RUN}'", f"EXPLAIN JOB RUN {RUN};"),
    ("PLAN ALTER JOB j SET TIMEOUT = 5", "PLAN ALTER JOB j\n  SET TIMEOUT = 5 SECONDS;"),
    ("PLAN CREATE JOB k SCHEDULE = EVERY 1 DAY AS 'x'", "PLAN CREATE JOB k\n  SCHEDULE = EVERY 1 DAY\n  AS 'x';"),
    ("PLAN DROP JOB j", "PLAN DROP JOB j;"),
    ("FORECAST", "FORECAST;"),
    ("FORECAST FOR 24 HOURS", "FORECAST FOR 1 DAY;"),
    ("FORECAST JOB j FOR 7 DAYS", "FORECAST JOB j FOR 7 DAYS;"),
    ("FORECAST FROM '2036-03-28' TO '2036-03-31T00:00Z'", "FORECAST FROM '2036-03-28T00:00:00' TO '2036-03-31T00:00:00Z';"),
    ("GRANT EXECUTE ON JOB daily TO ada", "GRANT EXECUTE ON JOB daily TO ada;"),
    ("GRANT ALTER JOB, DROP ON JOB j TO USER ada, ROLE dev", "GRANT ALTER, DROP ON JOB j TO USER ada, ROLE dev;"),
    ("GRANT ALL PRIVILEGES ON JOB j TO bob", "GRANT ALL ON JOB j TO bob;"),
    ("GRANT CREATE JOB TO ROLE dev WITH GRANT OPTION", "GRANT CREATE JOB TO ROLE dev WITH GRANT OPTION;"),
    ("GRANT CREATE JOB, EXECUTE EXTERNAL JOB TO ops", "GRANT CREATE JOB, EXECUTE EXTERNAL JOB TO ops;"),
    ("GRANT VIEW JOB HISTORY TO PUBLIC", "GRANT VIEW JOB HISTORY TO PUBLIC;"),
    ('GRANT VIEW JOB HISTORY ON JOB j TO "PUBLIC"', 'GRANT VIEW JOB HISTORY ON JOB j TO "PUBLIC";'),
    ("GRANT ROLE reporter TO ada", "GRANT ROLE reporter TO ada;"),
    ("GRANT USE ON CONNECTION warehouse TO ada", "GRANT USE ON CONNECTION warehouse TO ada;"),
    ("GRANT USE ON SECRET smtp TO ada", "GRANT USE ON SECRET smtp TO ada;"),
    ("GRANT EXECUTE ON JOB j TO user, role", 'GRANT EXECUTE ON JOB j TO "user", "role";'),
    ("REVOKE EXECUTE ON JOB daily FROM ada", "REVOKE EXECUTE ON JOB daily FROM ada;"),
    ("REVOKE GRANT OPTION FOR CREATE JOB FROM dev CASCADE", "REVOKE GRANT OPTION FOR CREATE JOB FROM dev CASCADE;"),
    ("REVOKE ROLE reporter FROM ada RESTRICT", "REVOKE ROLE reporter FROM ada RESTRICT;"),
    ("CREATE ROLE reporter", "CREATE ROLE reporter;"),
    ("DROP ROLE reporter", "DROP ROLE reporter;"),
    ("ALTER SYSTEM SET scheduler.enabled = false", "ALTER SYSTEM SET scheduler.enabled = false;"),
    ("ALTER SYSTEM SET SCHEDULER.Polling_Interval_Seconds TO 30", "ALTER SYSTEM SET scheduler.polling_interval_seconds = 30;"),
    ("ALTER SYSTEM SET scheduler.x = '30'", "ALTER SYSTEM SET scheduler.x = 30;"),
    ("ALTER SYSTEM SET scheduler.x = 'two words'", "ALTER SYSTEM SET scheduler.x = 'two words';"),
    ("ALTER SYSTEM SET scheduler.x = -1.5", "ALTER SYSTEM SET scheduler.x = -1.5;"),
    ("ALTER SYSTEM RESET scheduler.enabled", "ALTER SYSTEM RESET scheduler.enabled;"),
    ("CREATE CONNECTION w USER 'etl' URL = 'postgresql://wh/dw' SECRET = pw",
     "CREATE CONNECTION w URL = 'postgresql://wh/dw' USER = 'etl' SECRET = pw;"),
    ("CREATE CONNECTION w MULTI URL 'sqlite:////d/x.db'", "CREATE CONNECTION w URL = 'sqlite:////d/x.db' MULTI;"),
    ("CREATE CONNECTION w URL 'sqlite:////d/x.db' SINGLE", "CREATE CONNECTION w URL = 'sqlite:////d/x.db';"),
    ("ALTER CONNECTION w SINGLE SET USER NONE", "ALTER CONNECTION w SET USER = NONE SET SINGLE;"),
    ("ALTER CONNECTION w SET SECRET = NONE URL = 'sqlite:///x.db'", "ALTER CONNECTION w SET URL = 'sqlite:///x.db' SET SECRET = NONE;"),
    ("DROP CONNECTION w", "DROP CONNECTION w;"),
    ("CREATE SECRET smtp = ?", "CREATE SECRET smtp VALUE ?;"),
    ("CREATE SECRET 'smtp' VALUE = :value", "CREATE SECRET smtp VALUE :value;"),
    ("ALTER SECRET smtp SET VALUE ?", "ALTER SECRET smtp VALUE ?;"),
    ("DROP SECRET smtp", "DROP SECRET smtp;"),
    ("ALTER JOB j SET SECRET 'API_KEY' = ?", "ALTER JOB j SET SECRET API_KEY = ?;"),
    ("ALTER JOB j DROP SECRET api_key", "ALTER JOB j DROP SECRET api_key;"),
    ("SELECT job_name, state, next_run_time FROM sys.jobs ORDER BY next_run_time;",
     "SELECT job_name, state, next_run_time FROM sys.jobs ORDER BY next_run_time;"),
    ("SELECT * FROM sys.job_runs WHERE job_uuid = '...'", "SELECT * FROM sys.job_runs WHERE job_uuid = '...';"),
    (" /* first */ select 1 -- last", "select 1;"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_a_statement_has_a_canonical_text_which_says_the_same(text, canonical):
    statement = parse(text)
    assert render(statement) == canonical
    assert parse(canonical) == statement


def test_a_query_is_kept_as_it_is_up_to_its_end_with_its_parameters():
    rows = "WITH r AS (SELECT * FROM sys.job_runs)"
    text = f"{rows}\nSELECT count(*) FROM r WHERE state = 'a; b' AND x = ? AND \"y;\" = :y AND z::text = $$;$$ /* ; */ > $1"
    first, second = parse_script(f"{text} ; SHOW JOBS")
    assert first.statement == syntax.Select(text, ("?", ":y", "$1"))
    assert second.statement == syntax.Show(syntax.Listing.JOBS)


def test_jobs_are_found_by_name_or_id():
    assert parse(f"SHOW JOB {RUN}") == syntax.Show(syntax.Listing.JOB, UUID(RUN))
    assert parse(f'SHOW JOB "{RUN}"') == syntax.Show(syntax.Listing.JOB, RUN)
    assert render(syntax.Show(syntax.Listing.JOB, RUN)) == f'SHOW JOB "{RUN}";'


def test_a_grantee_in_quotes_is_never_everybody():
    assert parse('GRANT CREATE JOB TO "PUBLIC"') != parse("GRANT CREATE JOB TO PUBLIC")


# ---- scripts ----------------------------------------------------------------------------------------------------------


def test_a_script_is_a_list_of_statements_each_with_its_place():
    text = ";; DROP JOB a;\n-- a comment; with a semicolon\n  EXECUTE JOB b\n;"
    first, second = parse_script(text)
    assert (str(first.location()), str(second.location())) == ("1:4", "3:3")
    assert text[first.start : first.end] == "DROP JOB a"
    assert text[second.start : second.end] == "EXECUTE JOB b"
    assert str(second.location("name")) == "3:15"
    assert second.location("name").position == text.index("b\n;") + 1


def test_a_part_without_a_place_of_its_own_is_where_its_statement_begins():
    (parsed,) = parse_script("  SHOW JOBS")
    assert parsed.location("job") == parsed.location()


def test_comments_nest_and_may_be_anywhere():
    text = "/* a /* b */ ' */ DROP -- '\n/**/JOB/* x */j -- end"
    assert parse(text) == syntax.DropJob("j")


# ---- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("CREATE SECRET k VALUE 'hunter2'", f"CREATE SECRET k VALUE {MASK};"),
        ("ALTER SECRET k = $$hunter2$$", f"ALTER SECRET k VALUE {MASK};"),
        ("ALTER JOB j SET SECRET k 'hunter2'", f"ALTER JOB j SET SECRET k = {MASK};"),
    ],
)
def test_the_value_of_a_secret_is_masked_unless_it_is_asked_for(text, masked):
    statement = parse(text)
    assert render(statement) == masked
    assert "hunter2" not in f"{statement!r} {statement}"
    assert render(statement, secrets=True) == masked.replace(MASK, "'hunter2'")
    with pytest.raises(SqlError):
        parse(masked)


def test_the_value_of_a_secret_is_hidden_from_a_console_too():
    from rich.pretty import pretty_repr

    assert "hunter2" not in pretty_repr(syntax.CreateSecret("k", SecretText("hunter2")))


# ---- moments without a zone -------------------------------------------------------------------------------------------


def test_a_moment_without_a_zone_is_in_the_zone_of_its_job():
    noon = datetime.fromisoformat("2036-07-01T12:00:00")
    assert instant_in(noon, "Europe/Berlin") == instant(datetime(2036, 7, 1, 10, tzinfo=UTC))
    assert instant_in(noon, "UTC") == instant(datetime(2036, 7, 1, 12, tzinfo=UTC))
    assert instant_in(noon.replace(tzinfo=UTC), "Europe/Berlin") == instant(datetime(2036, 7, 1, 12, tzinfo=UTC))
    assert instant_in(noon.replace(microsecond=5), "America/New_York") == instant(datetime(2036, 7, 1, 16, 0, 0, 5, tzinfo=UTC))


@pytest.mark.parametrize(
    ("moment", "zone"),
    [
        ("2036-03-30T02:00:00", "Europe/Berlin"),
        ("2036-03-30T02:59:59", "Europe/Berlin"),
        ("2036-10-26T02:00:00", "Europe/Berlin"),
        ("2036-10-26T02:59:59", "Europe/Berlin"),
        ("2036-04-06T01:45:00", "Australia/Lord_Howe"),
    ],
)
def test_a_time_that_a_clock_shows_twice_or_never_is_refused(moment, zone):
    with pytest.raises(InvalidSchedule, match=r"(happens twice|never happens) in .* use '2036-.*Z' or '2036-.*Z'"):
        instant_in(datetime.fromisoformat(moment), zone)


@pytest.mark.parametrize(
    ("moment", "zone", "utc"),
    [
        ("2036-03-30T01:59:59", "Europe/Berlin", "2036-03-30T00:59:59"),
        ("2036-03-30T03:00:00", "Europe/Berlin", "2036-03-30T01:00:00"),
        ("2036-10-26T01:59:59", "Europe/Berlin", "2036-10-25T23:59:59"),
        ("2036-10-26T03:00:00", "Europe/Berlin", "2036-10-26T02:00:00"),
        ("1970-01-01T09:00:00", "Asia/Tokyo", "1970-01-01T00:00:00"),
        ("9999-12-31T23:59:59", "UTC", "9999-12-31T23:59:59"),
        ("9999-12-31T23:59:59", "Asia/Tokyo", "9999-12-31T14:59:59"),
    ],
)
def test_times_beside_a_jump_and_at_the_ends_of_the_calendar_are_taken(moment, zone, utc):
    assert instant_in(datetime.fromisoformat(moment), zone) == instant(datetime.fromisoformat(f"{utc}Z"))


@pytest.mark.parametrize(("moment", "zone"), [("1970-01-01T08:59:59", "Asia/Tokyo"), ("9999-12-31T23:59:59", "America/New_York")])
def test_times_beyond_the_calendar_are_refused(moment, zone):
    with pytest.raises(InvalidSchedule, match=f"out of range in {zone}"):
        instant_in(datetime.fromisoformat(moment), zone)


def test_an_end_in_another_zone_than_the_start_is_compared_only_where_the_zone_of_the_job_is_known():
    bounds = "EVERY 1 H STARTS '2036-01-01T00:30:00' ENDS '2036-01-01T00:00:00Z'"
    with pytest.raises(SqlError, match="is before STARTS"):
        parse(f"CREATE JOB j SCHEDULE = {bounds} AS 'x'")
    parse(f"CREATE JOB j SCHEDULE = {bounds} TIMEZONE = 'Europe/Berlin' AS 'x'")
    parse(f"ALTER JOB j SET SCHEDULE = {bounds}")
