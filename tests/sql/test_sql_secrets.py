"""Secrets in SQL, on both stores: set, listed and dropped by those who may; a value is in no answer, error or notice."""

from __future__ import annotations

import msgspec
import pytest

from rota import Settings
from rota.errors import InvalidOption, SqlError
from rota.model.gate import Actor, Role
from rota.schedule_edits import deciding
from rota.vault import open_secrets
from tests.support.keys import key_file

HOURLY = "SCHEDULE = EVERY 1 HOUR CALL report()"
CANARY = "canary-9f2c71"


@pytest.fixture
def settings(tmp_path):
    return Settings(master_key_file=str(key_file(tmp_path)))


@pytest.fixture
def shared(rota):
    rota.organizations.create("acme")
    for name, organization, role in (
        ("root", "acme", "system_manager"),
        ("ada", "acme", "admin"),
        ("bob", "acme", "user"),
        ("eve", "default", "admin"),
    ):
        rota.users.create(name, organization=organization, role=role)
    rota.acting_as(Actor("bob", "acme", Role.ADMIN)).sql(f"CREATE JOB nightly {HOURLY}; CREATE JOB weekly {HOURLY}")
    return rota


def refused(rota, text, params=None):
    with pytest.raises(SqlError) as found:
        rota.sql(text, params)
    assert CANARY not in found.value.report()
    assert CANARY not in repr(vars(found.value))
    return found.value


def opened(rota, *names, job=None, organization="acme"):
    session = rota._session
    return open_secrets(session.keyring(), session.open().store.sealed_secrets(organization, job, names))


def rows(rota, text, params=None):
    return [tuple(row) for row in rota.sql(text, params)[-1].rows]


def test_a_secret_is_created_altered_and_dropped(shared):
    ada = shared.acting_as("ada")
    results = ada.sql("CREATE SECRET key VALUE :v; ALTER SECRET key VALUE :w", {"v": CANARY, "w": "newer"})
    assert [(result.tag, result.notices) for result in results] == [("CREATE SECRET", ()), ("ALTER SECRET", ())]
    assert opened(shared, "key") == {"key": "newer"}
    assert ada.sql("CREATE SECRET other VALUE ?", ["x"])[0].tag == "CREATE SECRET"
    assert ada.sql("DROP SECRET key")[0].tag == "DROP SECRET"
    assert opened(shared, "key", "other") == {"other": "x"}


def test_a_value_in_the_statement_is_taken_with_a_warning(shared):
    for text in (
        f"CREATE SECRET key VALUE '{CANARY}'",
        f"ALTER SECRET key SET VALUE = '{CANARY}'",
        f"ALTER JOB nightly SET SECRET k = '{CANARY}'",
    ):
        *_, notice = shared.acting_as("ada").sql(text)[0].notices
        assert (notice.sqlstate, "use a parameter" in notice.message, CANARY in notice.message) == ("01000", True, False)


def test_a_job_has_secrets_of_its_own(shared):
    ada = shared.acting_as("ada")
    assert ada.sql("ALTER JOB nightly SET SECRET API_KEY = ?", ["first"])[0].tag == "ALTER JOB"
    ada.sql("ALTER JOB nightly SET SECRET API_KEY = ?", ["second"])
    job = ada.schedules.get("nightly").id.replace("-", "")
    assert opened(shared, job=job) == {"API_KEY": "second"}
    ada.sql("ALTER JOB nightly RENAME TO daily")
    assert opened(shared, job=job) == {"API_KEY": "second"}
    ada.sql("ALTER JOB daily DROP SECRET API_KEY")
    assert opened(shared, job=job) == {}
    ada.sql("ALTER JOB daily SET SECRET API_KEY = ?", ["third"])
    ada.sql(f"RECREATE JOB daily {HOURLY}")
    assert rows(ada, "SHOW SECRETS") == []


def test_secrets_of_a_job_that_calls_a_handler_are_refused(shared):
    ada = shared.acting_as("ada")
    ada.sql("CREATE SECRET k VALUE ?", ["v"])
    words = "report is a Python handler, which is not given secrets"
    every, call = HOURLY.split(" CALL ")
    for text in (
        f"CREATE JOB calls {every} SECRETS (k) CALL {call}",
        f"CREATE OR ALTER JOB nightly {every} SECRETS (k) CALL {call}",
        f"CREATE JOB calls {every} STATE = DISABLED SECRETS (k) CALL {call}",
        "ALTER JOB nightly SET SECRETS (k)",
        "ALTER JOB selects SET CALL report()",
        f"RECREATE JOB selects {every} SECRETS (k) CALL {call}",
    ):
        ada.sql("CREATE JOB IF NOT EXISTS selects SCHEDULE = EVERY 1 HOUR SECRETS (k) AS 'SELECT :k'")
        error = refused(ada, text)
        assert words in str(error), text
        assert (error.code, error.sqlstate) == ("sql_invalid", "0A000")
    ada.sql("ALTER JOB selects SET CALL report() SET SECRETS NONE; ALTER JOB nightly SET SECRETS NONE")
    assert [each.name for each in ada.schedules.list()] == ["nightly", "selects", "weekly"]


def test_a_job_that_calls_a_handler_is_not_given_its_own_secrets_and_a_notice_says_so(shared):
    (done,) = shared.acting_as("ada").sql("ALTER JOB nightly SET SECRET k = ?", ["v"])
    assert [each.message for each in done.notices] == ["job nightly calls a Python handler, which is not given secrets"]


@pytest.mark.parametrize("history", ["", " KEEP HISTORY"])
def test_dropping_a_job_removes_its_secrets(shared, history):
    ada = shared.acting_as("ada")
    ada.sql("ALTER JOB nightly SET SECRET k = ?; ALTER JOB weekly SET SECRET k = ?", ["1", "2"])
    ada.sql(f"DROP JOB nightly{history}")
    assert rows(ada, "SELECT job_name, secret_name FROM sys.secrets") == [("weekly", "k")]
    assert [each.subject_id for each in ada.audit.list() if each.event == "SECRET_DROPPED"] == ["k"]


@pytest.mark.parametrize(
    ("text", "code", "sqlstate", "column"),
    [
        (f"CREATE SECRET there VALUE '{CANARY}'", "secret_exists", "42710", 15),
        (f"ALTER SECRET nosuch VALUE '{CANARY}'", "unknown_secret", "42704", 14),
        ("DROP SECRET nosuch", "unknown_secret", "42704", 13),
        (f"CREATE SECRET 'no name' VALUE '{CANARY}'", "invalid_name", "42602", 15),
        (f"ALTER JOB nightly SET SECRET 'a-b' = '{CANARY}'", "invalid_name", "42602", 30),
        (f"ALTER JOB nosuch SET SECRET k = '{CANARY}'", "unknown_job", "42704", 11),
        ("ALTER JOB nightly DROP SECRET k", "unknown_secret", "42704", 31),
        ("CREATE SECRET new VALUE ''", "invalid_option", "22023", 15),
        ("CREATE SECRET new VALUE :v", "invalid_option", "42P02", 15),
        ("CREATE SECRET new VALUE ?", "invalid_option", "42P02", 15),
        (f"CREATE SECRET new VALUE '{CANARY}' nonsense", "sql_syntax", "42601", 41),
        ("GRANT USE ON SECRET nosuch TO bob", "unknown_secret", "42704", 21),
    ],
)
def test_what_is_refused_names_its_place_and_not_the_value(shared, text, code, sqlstate, column):
    shared.acting_as("ada").sql("CREATE SECRET there VALUE ?", ["x"])
    error = refused(shared.acting_as("ada"), text)
    assert (error.code, error.sqlstate, error.column) == (code, sqlstate, column), str(error)


@pytest.mark.parametrize("value", [5, None, [CANARY], "", CANARY * 10_000])
def test_a_parameter_that_can_not_be_a_value_is_refused(shared, value):
    assert refused(shared.acting_as("ada"), "CREATE SECRET new VALUE :v", {"v": value}).sqlstate == "22023"


def test_parameters_that_are_passed_wrongly_are_not_shown(shared):
    with pytest.raises(InvalidOption, match="params is str") as found:
        shared.sql("CREATE SECRET new VALUE ?", CANARY)
    assert CANARY not in str(found.value)
    with pytest.raises(InvalidOption) as found:
        shared.sql("CREATE SECRET new VALUE ?", [CANARY, CANARY])
    assert CANARY not in str(found.value)


def test_who_may(shared):
    statements = ("CREATE SECRET x VALUE 'v'", "ALTER SECRET there VALUE 'v'", "DROP SECRET there")
    shared.acting_as("ada").sql("CREATE SECRET there VALUE ?", ["x"])
    for text in statements:
        assert refused(shared.acting_as("bob"), text).sqlstate == "42501"
    for text in statements[1:]:
        assert refused(shared.acting_as("eve"), text).sqlstate == "42704"
    for text in ("ALTER JOB nightly SET SECRET k = 'v'", "ALTER JOB nightly DROP SECRET k"):
        assert refused(shared.acting_as("eve"), text).sqlstate == "42704"
        shared.acting_as("bob").sql(text)


def test_lists_show_names_to_those_who_may_see_them(shared):
    ada, bob, eve = (shared.acting_as(name) for name in ("ada", "bob", "eve"))
    ada.sql("CREATE SECRET shared_one VALUE ?; CREATE SECRET shared_two VALUE ?; ALTER JOB nightly SET SECRET own = ?", [CANARY] * 3)
    names = "SELECT secret_name, job_name FROM sys.secrets ORDER BY secret_name"
    assert rows(ada, names) == [("own", "nightly"), ("shared_one", None), ("shared_two", None)]
    assert rows(bob, names) == [("own", "nightly")]
    assert rows(eve, names) == []
    ada.sql("GRANT USE ON SECRET shared_one TO bob")
    assert rows(bob, names) == [("own", "nightly"), ("shared_one", None)]
    assert rows(bob, "SHOW SECRETS FOR nightly")[0][:3] == ("nightly", "own", "JOB")
    for text in ("SHOW SECRETS", "SELECT * FROM sys.secrets", "SELECT * FROM sys.job_secrets", "SELECT * FROM sys.audit", "SHOW AUDIT"):
        assert CANARY not in str(ada.sql(text))
    assert refused(eve, "SHOW SECRETS FOR nightly").sqlstate == "42704"


def test_secrets_that_a_job_names_are_listed_with_it(shared):
    ada = shared.acting_as("ada")
    ada.sql("CREATE SECRET dsn VALUE ?; ALTER JOB nightly SET SECRET own = ?; ALTER JOB nightly SET SECRET both = ?", ["a", "b", "c"])
    name_secrets(shared, "nightly", ["dsn", "both"])
    found = rows(ada, "SELECT job_name, secret_key, source FROM sys.job_secrets ORDER BY secret_key")
    assert found == [("nightly", "both", "JOB"), ("nightly", "dsn", "ORGANIZATION"), ("nightly", "own", "JOB")]
    assert sorted(row[1:3] for row in rows(ada, "SHOW SECRETS FOR nightly")) == [("both", "JOB"), ("dsn", "ORGANIZATION"), ("own", "JOB")]
    assert refused(ada, "DROP SECRET dsn").sqlstate == "2BP01"


def name_secrets(rota, job, names):
    """Let a job name secrets of its organization."""
    session = rota._session
    schedule = next(each for each in session.open().store.schedules() if each.name == job)

    def change(present):
        own = msgspec.structs.replace(present.own, defaults={**present.own.defaults, "secrets": names})
        return msgspec.structs.replace(present, own=own)

    deciding(session, lambda edit: edit.change(schedule.id, change, Actor("ada", "acme", Role.ADMIN)))


def test_secrets_are_part_of_an_atomic_script(shared):
    ada = shared.acting_as("ada")
    text = f"CREATE SECRET a VALUE :v; ALTER JOB nightly SET SECRET b = :v; CREATE JOB third {HOURLY}; ALTER JOB third SET SECRET c = :v"
    ada.sql(text, {"v": CANARY}, atomic=True)
    assert rows(ada, "SELECT secret_name FROM sys.secrets ORDER BY 1") == [("a",), ("b",), ("c",)]
    with pytest.raises(SqlError):
        ada.sql("DROP SECRET a; DROP SECRET nosuch", atomic=True)
    assert len(rows(ada, "SHOW SECRETS")) == 3
