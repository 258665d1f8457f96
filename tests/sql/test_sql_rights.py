"""Who may create, alter, drop and execute jobs with SQL, and what others learn of them: each role, each statement, each store."""

from __future__ import annotations

import pytest

from rota import Rota
from rota.errors import SqlError
from rota.model.access import PERMITS, Permit
from rota.model.gate import Actor, Right, Role

HOURLY = "SCHEDULE = EVERY 1 HOUR CALL report()"
STATEMENTS = {
    Right.CREATE_JOBS: f"CREATE JOB new {HOURLY}",
    Right.ALTER_JOBS: "ALTER JOB j SET TIMEOUT = 5",
    Right.DROP_JOBS: "DROP JOB j",
    Right.EXECUTE_JOBS: "EXECUTE JOB j",
    Right.CANCEL: "CANCEL JOB j",
    Right.READ: "SHOW JOB j",
}


@pytest.fixture
def shared(rota: Rota) -> Rota:
    rota.organizations.create("acme")
    rota.organizations.create("beta")
    rota.users.create("root", role="system_manager")
    for name, organization, role in [("ada", "acme", "admin"), ("bob", "acme", "user"), ("eve", "beta", "admin")]:
        rota.users.create(name, organization=organization, role=role)
    return rota


def state(rota: Rota, who: Actor | str, text: str) -> str:
    """Return the SQLSTATE of a statement, or an empty text."""
    try:
        rota.acting_as(who).sql(text)
    except SqlError as error:
        return error.sqlstate
    return ""


@pytest.mark.parametrize("right", STATEMENTS)
def test_an_admin_may_within_the_organization_and_a_manager_everywhere(shared, right):
    for who in ("ada", "root"):
        shared.acting_as("ada").sql(f"CREATE JOB j {HOURLY}")
        assert state(shared, who, STATEMENTS[right]) == ""
        shared.acting_as("ada").sql("DROP JOB IF EXISTS j")


@pytest.mark.parametrize("right", STATEMENTS)
def test_what_another_organization_has_is_not_there(shared, right):
    shared.acting_as("ada").sql(f"CREATE JOB j {HOURLY}")
    wanted = "" if right is Right.CREATE_JOBS else "42704"
    assert state(shared, "eve", STATEMENTS[right]) == wanted


@pytest.mark.parametrize("right", STATEMENTS)
def test_a_user_may_only_with_jobs_of_its_own_and_creates_none(shared, right):
    shared.acting_as("ada").sql(f"CREATE JOB j {HOURLY}")
    assert state(shared, "bob", STATEMENTS[right]) == ("42501" if right is Right.CREATE_JOBS else "42704")
    shared.acting_as("ada").sql("DROP JOB j")
    # One of its own, as it has when its role was a higher one.
    shared.acting_as(Actor("bob", "acme", Role.ADMIN)).sql(f"CREATE JOB j {HOURLY}")
    assert state(shared, "bob", STATEMENTS[right]) == ("42501" if right is Right.CREATE_JOBS else "")


@pytest.mark.parametrize("right", [right for right in STATEMENTS if right is not Right.READ])
def test_a_token_may_no_more_than_its_permits(shared, right):
    shared.acting_as("ada").sql(f"CREATE JOB j {HOURLY}")
    for permit in (Permit.READ, Permit.SUBMIT, Permit.OPERATE):
        rights = frozenset(each for each, needed in PERMITS.items() if needed is permit)
        wanted = "" if PERMITS[right] is permit else "42501"
        assert state(shared, Actor("ada", "acme", Role.ADMIN, operations=rights), STATEMENTS[right]) == wanted, permit


def test_who_may_not_read_runs_starts_none_to_wait_for(shared):
    shared.acting_as("ada").sql(f"CREATE JOB j {HOURLY}")
    who = Actor("ada", "acme", Role.ADMIN, operations=frozenset({Right.EXECUTE_JOBS}))
    assert state(shared, who, "EXECUTE JOB j WAIT 1") == "42501"
    assert shared.jobs.list() == []


def test_names_are_apart_by_organization(shared):
    for who in ("ada", "eve"):
        shared.acting_as(who).sql(f"CREATE JOB same {HOURLY}")
        assert [row[0] for row in shared.acting_as(who).sql("SHOW JOBS")[0].rows] == ["same"]
    assert len(shared.sql("SHOW JOBS")[0].rows) == 2


def test_replacing_a_job_needs_the_right_to_drop_it(shared):
    shared.acting_as("ada").sql(f"CREATE JOB j {HOURLY}")
    rights = frozenset({Right.CREATE_JOBS, Right.READ})
    who = Actor("ada", "acme", Role.ADMIN, operations=rights)
    assert state(shared, who, f"RECREATE JOB j {HOURLY}") == "42501"
    assert state(shared, who, "CREATE OR ALTER JOB j TIMEOUT = 5") == "42501"
    assert state(shared, who, "PLAN DROP JOB j") == "42501"


def test_a_permission_that_a_handler_requires_is_asked_of_who_creates_a_job_of_it(shared):
    shared.templates.update("report", requires_permission="reports")
    assert state(shared, "ada", f"CREATE JOB j {HOURLY}") == "42501"
    shared.users.update("ada", permissions=["reports"])
    assert state(shared, "ada", f"CREATE JOB j {HOURLY}") == ""
